"""`Asked`: what a library is asked of a model.

A separate process imports this module: it must stay light.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlml.ir.program import Program


@dataclass(frozen=True, slots=True)
class Asked:
    """What to ask of a model: the outputs by name, whether there are classes, and which columns are
    texts; `numbers` says that all columns are numbers, and `labels` are the classes of the first
    target."""

    outputs: tuple[str, ...]
    classes: bool
    texts: tuple[str, ...]
    numbers: bool
    labels: tuple[Any, ...] = ()

    @classmethod
    def of(cls, program: Program) -> Asked:
        """What a Program has."""
        kinds = {f.name: f.kind for f in program.features}
        return cls(
            tuple(program.outputs),
            bool(program.labels),
            tuple(name for name, kind in kinds.items() if kind == "string"),
            all(kind == "number" for kind in kinds.values()),
            program.labels[0].values if program.labels else (),
        )
