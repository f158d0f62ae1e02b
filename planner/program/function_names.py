"""Names of the engine functions that score: they hold all that is needed to rebuild them.

A view stores the rewritten text, so another process must be able to rebuild a function from its
name: the Program's hash, the outputs, the layout of the packed matrix and how it is run.
"""

from __future__ import annotations

import re
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sqlml.bounded_cache import Recent
from sqlml.ir.program import Program
from sqlml.limits import MADE_BYTES
from sqlml.passes.split import Layout

# `Constants`: values of a model's inputs that have become part of it, and how names spell them.
#
# A number is spelled by the bits of its DOUBLE, without the zeros at their end, and a text by its
# bytes, so that every value has one spelling, in letters and digits that a function's name may
# have.


Constant = tuple[int, float | str | None]
"""The place of an input among those of the Program, and its value; None is NULL."""

Constants = tuple[Constant, ...]

PATTERN = r"(?:_k\d{1,6}(?:n|f[0-9a-f]{1,16}|s(?:[0-9a-f]{2})*))*"
"""A regular expression of what `spelled` makes."""

MOST = 64
"""Different constants of a model; other literals are passed as columns, as parameters are."""

_BYTES = 1000
"""What the constants of one call take, about."""

_made: Recent[str, set[Constants]] = Recent(MADE_BYTES)
_lock = threading.Lock()

_ONE = re.compile(r"_k(\d{1,6})([nfs])([0-9a-f]*)")


def spelled(constants: Constants) -> str:
    """As a part of a function's name.

    >>> spelled(((0, 3.0), (2, None), (11, "pro")))
    '_k0f4008_k2n_k11s70726f'
    """
    return "".join(f"_k{place}{_value(value)}" for place, value in constants)


def _value(value: float | str | None) -> str:
    if value is None:
        return "n"
    if isinstance(value, str):
        return "s" + value.encode("utf-8").hex()
    return "f" + (struct.pack(">d", value).hex().rstrip("0") or "0")


def parse_constants(text: str) -> Constants:
    """What `spelled` has spelled.

    >>> parse_constants("_k0f4008_k2n_k11s70726f")
    ((0, 3.0), (2, None), (11, 'pro'))
    """
    made: list[Constant] = []
    for place, kind, digits in _ONE.findall(text):
        value: float | str | None = None
        if kind == "f":
            (value,) = struct.unpack(">d", bytes.fromhex(digits.ljust(16, "0")))
        elif kind == "s":
            value = bytes.fromhex(digits).decode("utf-8", "replace")
        made.append((int(place), value))
    return tuple(made)


def admitted(program: Program, found: Constants) -> bool:
    """Whether these constants are among the first `MOST` of a model; they count from now on."""
    with _lock:
        made = _made.get(program.hash) or set()
        if found not in made and len(made) >= MOST:
            return False
        made.add(found)
        _made.put(program.hash, made, _BYTES * len(made))
        return True


Output = Literal["label", "proba", "score", "samples", "transform", "contributions"]
PREFIX = "sqlml_"
KEPT = "sqlml_open_a_session_first_"
"""What the names begin with that views and macros keep: an engine that lacks the function shows its
name, and that is all it says to someone who reads the view without sqlml."""

HASH_DIGITS = 24
REFUSED_TEXT = f"{KEPT}refused_text"
"""The function that keeps texts for an error's message (`udfs.refused_texts`)."""

_REFUSED_TEXT = re.compile(rf"\b(?:{KEPT}|{PREFIX})refused_text(?:_t[1-9]\d{{0,9}})?\b")
_PART = r"(label|proba|score|samples|transform|contributions)(0|[1-9]\d{0,6})?"
_NAME = re.compile(
    r"sqlml_(?P<kept>open_a_session_first_)?(?P<program>[0-9a-f]{24})_(?P<parts>PART(?:_PART)*)_(?P<layout>f32|f64)"
    r"_(?P<backend>[a-z]{1,20})_(?P<strategy>[a-z]{1,20})_(?P<device>[a-z]{1,20})"
    r"(?P<constants>CONSTANTS)(?:_l(?P<lookup>0|[1-9]\d{0,8}))?(?:_r(?P<rows>[1-9]\d{0,8}))?(?P<again>_again)?(?P<once>_once)?(?P<by_column>_c)?(?:_t(?P<twin>[1-9]\d{0,9}))?".replace(
        "PART", _PART.replace("(", "(?:")
    ).replace("CONSTANTS", PATTERN)
)


@dataclass(frozen=True, slots=True)
class Part:
    """What a function computes: an output, or one `column` of it; of contributions, those to one
    class.

    >>> str(Part("proba", 1)), str(Part("label"))
    ('proba1', 'label')
    """

    output: Output
    column: int | None = None

    def __str__(self) -> str:
        return self.output + ("" if self.column is None else str(self.column))


@dataclass(frozen=True, slots=True)
class FunctionSpec:
    """One engine function: which Program, which parts of its outputs, run how.

    Several parts come side by side (`prepare.fields_of`). `again` says that rows come again in
    another clause of the query, so that the function shall remember some, and `once` that the
    engine shall evaluate it where it is written and nowhere else. A `twin` is the same function
    under another name, for a transaction that cannot see the first. `constants` are inputs that
    have become part of the model. `rows` are the most that are scored at once, where it says so.
    Encoders of more than `lookup` categories are the function's own, which is given their texts.
    The columns are arguments of their own where it is called `by_column`, else one packed argument.
    `kept`: a view or a macro calls it.
    """

    program: str
    parts: tuple[Part, ...]
    layout: Layout
    backend: str
    strategy: str
    device: str
    again: bool = False
    twin: int | None = None
    once: bool = False
    constants: Constants = ()
    rows: int | None = None
    lookup: int | None = None
    by_column: bool = False
    kept: bool = False

    @property
    def name(self) -> str:
        """The function's name in the engine."""
        start = f"{KEPT if self.kept else PREFIX}{self.program[:HASH_DIGITS]}"
        return (
            f"{start}_{'_'.join(map(str, self.parts))}_{self.layout}"
            f"_{self.backend}_{self.strategy}_{self.device}{spelled(self.constants)}"
            + ("" if self.lookup is None else f"_l{self.lookup}")
            + ("" if self.rows is None else f"_r{self.rows}")
            + "_again" * self.again
            + "_once" * self.once
            + "_c" * self.by_column
            + ("" if self.twin is None else f"_t{self.twin}")
        )


Field = tuple[str, str]
"""The name of a part of a function's result, and its SQL type."""


def struct_of(fields: Sequence[Field]) -> str:
    """The SQL type of a struct.

    >>> struct_of([("label", "INTEGER"), ("proba1", "DOUBLE")])
    'STRUCT(label INTEGER, proba1 DOUBLE)'
    """
    return f"STRUCT({', '.join(map(' '.join, fields))})"


def refused_text_names(text: str) -> frozenset[str]:
    """All names in `text` of the function `REFUSED_TEXT` and of its twins."""
    return frozenset(_REFUSED_TEXT.findall(text) if "refused_text" in text else ())


def parse_name(text: str) -> FunctionSpec | None:
    """The first function name of ours in `text`, read back; None when there is none."""
    match = _NAME.search(text)
    if match is None:
        return None
    parts = (re.fullmatch(_PART, part) for part in match["parts"].split("_"))
    return FunctionSpec(
        match["program"],
        tuple(
            Part(p[1], int(p[2]) if p[2] else None)  # type: ignore[arg-type]
            for p in parts
            if p is not None
        ),
        match["layout"],  # type: ignore[arg-type]
        match["backend"],
        match["strategy"],
        match["device"],
        match["again"] is not None,
        int(match["twin"]) if match["twin"] else None,
        match["once"] is not None,
        parse_constants(match["constants"]),
        int(match["rows"]) if match["rows"] else None,
        int(match["lookup"]) if match["lookup"] is not None else None,
        match["by_column"] is not None,
        match["kept"] is not None,
    )
