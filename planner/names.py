"""Names of the engine functions that score: they say all that is needed to make them again.

A view stores the rewritten text, so a function must be found by its name alone in another
process: the Program's hash, the output, the layout of the packed matrix and how it is run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from sqlml.passes.split import Layout

Output = Literal["label", "proba", "score", "samples", "transform"]
PREFIX = "sqlml_"
HASH_DIGITS = 24
_NAME = re.compile(
    r"sqlml_(?P<program>[0-9a-f]{24})_(?P<output>label|proba|score|samples|transform)"
    r"(?P<column>0|[1-9]\d{0,6})?_(?P<layout>f32|f64)_(?P<backend>[a-z]{1,20})"
    r"_(?P<strategy>[a-z]{1,20})_(?P<device>[a-z]{1,20})(?:_t(?P<twin>[1-9]\d{0,9}))?"
)


@dataclass(frozen=True, slots=True)
class FunctionSpec:
    """One engine function: which Program, which output (`column` of it, or all), run how.

    A `twin` is the same function under another name, for a transaction that cannot see the first.
    """

    program: str
    output: Output
    column: int | None
    layout: Layout
    backend: str
    strategy: str
    device: str
    twin: int | None = None

    @property
    def name(self) -> str:
        """The function's name in the engine."""
        column = "" if self.column is None else str(self.column)
        return (
            f"{PREFIX}{self.program[:HASH_DIGITS]}_{self.output}{column}_{self.layout}"
            f"_{self.backend}_{self.strategy}_{self.device}"
            + ("" if self.twin is None else f"_t{self.twin}")
        )


def parse_name(text: str) -> FunctionSpec | None:
    """The first function name of ours in `text`, read back; None when there is none."""
    match = _NAME.search(text)
    if match is None:
        return None
    return FunctionSpec(
        match["program"],
        match["output"],  # type: ignore[arg-type]
        int(match["column"]) if match["column"] else None,
        match["layout"],  # type: ignore[arg-type]
        match["backend"],
        match["strategy"],
        match["device"],
        int(match["twin"]) if match["twin"] else None,
    )
