"""`Plan`: what the planner decided for one statement, as a value that prints as EXPLAIN."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Any

from sqlml.planner.choice import Choice
from sqlml.planner.column_types import Bound
from sqlml.planner.names import FunctionSpec

_LINE = 96
"""Width of EXPLAIN's lines."""


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """One model call: the model, what it reads, where each part runs."""

    written: str
    model: str
    version: int
    output: str
    reads: tuple[tuple[str, Bound], ...]
    unread: tuple[str, ...]
    encoded: tuple[str, ...]
    spec: FunctionSpec
    program: str
    choice: Choice
    sql: str
    type: str

    def to_dict(self) -> dict[str, Any]:
        """The call as plain values, for tools."""
        return {
            "call": self.written,
            "model": self.model,
            "version": self.version,
            "output": self.output,
            "columns_read": {name: bound.type for name, bound in self.reads},
            "columns_unread": list(self.unread),
            "encoded_in_sql": list(self.encoded),
            "backend": self.choice.backend,
            "strategy": self.choice.strategy,
            "device": self.choice.device,
            "reason": self.choice.reason,
            "function": self.spec.name,
            "sql": self.sql,
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """The statement as it goes to the engine, and the calls that were planned in it.

    `parameters` tells which of the user's positional parameters remain, by index; None when all
    do. `dropped_names` are named parameters that were used up as model names.
    """

    statement: str
    sql: str
    calls: tuple[PlannedCall, ...]
    parameters: tuple[int, ...] | None = None
    dropped_names: frozenset[str] = frozenset()

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain values, for tools."""
        return {"sql": self.sql, "calls": [c.to_dict() for c in self.calls]}

    def __str__(self) -> str:
        return "\n".join(_block(c, n, len(self.calls)) for n, c in enumerate(self.calls, 1))


def _block(call: PlannedCall, number: int, count: int) -> str:
    title = "SQLML" if count == 1 else f"SQLML {number}/{count}"
    reads = [f"{name} {bound.type}" for name, bound in call.reads]
    packed = {"f32": "FLOAT", "f64": "DOUBLE"}[call.spec.layout]
    lines = [
        ("call", call.written),
        ("model", f"{call.model} (version {call.version})"),
        ("output", call.output),
        ("columns read", _listed(reads) or "none"),
        ("columns not read", _listed(list(call.unread)) or "none"),
        ("in SQL", _listed([f"codes of {name}" for name in call.encoded]) or "nothing"),
        (
            "in UDF",
            f"{call.choice.backend} backend, strategy {call.choice.strategy}, device "
            f"{call.choice.device}, packed as {packed}[{max(1, len(call.reads))}]",
        ),
        ("chosen by", call.choice.reason),
        ("function", call.spec.name),
    ]
    width = max(len(name) for name, _ in lines)
    body = [
        textwrap.fill(
            text,
            _LINE,
            initial_indent=f"  {name:<{width}}  ",
            subsequent_indent=" " * (width + 4),
            break_long_words=False,
            break_on_hyphens=False,
        )
        for name, text in lines
    ]
    return "\n".join([title, *body])


def _listed(items: list[str], most: int = 60) -> str:
    shown = ", ".join(items[:most])
    return shown + (f", .. {len(items) - most} more" if len(items) > most else "")
