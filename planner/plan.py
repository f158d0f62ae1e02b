"""`Plan`: what the planner decided for one statement, as a value that prints as EXPLAIN."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Any

from sqlml.planner.choice import Choice
from sqlml.planner.column_types import Bound
from sqlml.planner.cost import ROWS
from sqlml.planner.names import FunctionSpec
from sqlml.planner.sharing import Shared

_LINE = 96
"""Width of EXPLAIN's lines."""

_UNITS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6))

_TIED = "\N{NO-BREAK SPACE}"
"""Between a column and its type, so that they stay on one line."""


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
    texts: tuple[str, ...] = ()
    has_trees: bool = True
    shared: Shared | None = None

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
            "texts": list(self.texts),
            "backend": self.choice.backend,
            "strategy": self.choice.strategy,
            "device": self.choice.device,
            "reason": self.choice.reason,
            "estimates": [
                {"way": e.name, "seconds": e.seconds, "loading": e.start}
                for e in self.choice.estimates
            ],
            "function": self.spec.name,
            "parts": [str(part) for part in self.spec.parts],
            "remembers_rows": self.spec.again,
            "sql": self.sql,
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """The statement as it goes to the engine, and the calls that were planned in it.

    `parameters` tells which of the user's positional parameters remain, by index; None when all
    do. `dropped_names` are named parameters that were used up as model names, `dropped_joins` the
    joins that nobody needs.
    """

    statement: str
    sql: str
    calls: tuple[PlannedCall, ...]
    parameters: tuple[int, ...] | None = None
    dropped_names: frozenset[str] = frozenset()
    dropped_joins: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain values, for tools."""
        return {
            "sql": self.sql,
            "calls": [c.to_dict() for c in self.calls],
            "dropped_joins": list(self.dropped_joins),
        }

    def __str__(self) -> str:
        blocks = [_block(c, n, len(self.calls)) for n, c in enumerate(self.calls, 1)]
        joins = [
            f"  join left out  {join}: its key is unique, and nothing reads it"
            for join in self.dropped_joins
        ]
        return "\n".join([*blocks, *joins])


def _block(call: PlannedCall, number: int, count: int) -> str:
    title = "SQLML" if count == 1 else f"SQLML {number}/{count}"
    reads = [f"{name} {bound.type}" for name, bound in call.reads]
    packed = {"f32": "FLOAT", "f64": "DOUBLE"}[call.spec.layout]
    numbers = len([name for name, _ in call.reads if name not in call.texts])
    texts = f", with the texts of {_listed(list(call.texts))}" if call.texts else ""
    strategy = f", strategy {call.choice.strategy}" if call.has_trees else ""
    lines = [
        ("call", call.written),
        ("model", f"{call.model} (version {call.version})"),
        ("output", call.output),
        ("columns read", _listed(reads) or "none"),
        ("columns not read", _listed(list(call.unread)) or "none"),
        ("in SQL", _in_sql(call)),
        (
            "in UDF",
            f"{call.spec.backend} backend{strategy}, device {call.spec.device}, "
            f"packed as {packed}[{max(1, numbers)}]{texts}",
        ),
        ("chosen by", call.choice.reason),
        *_estimates(call.choice),
        *_shared(call),
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
        ).replace(_TIED, " ")
        for name, text in lines
    ]
    return "\n".join([title, *body])


def _shared(call: PlannedCall) -> list[tuple[str, str]]:
    """What the call shares with others on the same row."""
    if call.shared is None or call.shared.calls == 1:
        return []
    parts = ", ".join(map(str, call.shared.parts))
    text = f"one evaluation of {parts} for {call.shared.calls} calls"
    if call.shared.again:
        text += "; rows that a filter passes on are remembered, and not scored again"
    if call.shared.source is not None:
        text += ", made in FROM for WHERE and the other clauses to read"
    return [("shared", text)]


def _in_sql(call: PlannedCall) -> str:
    if call.choice.backend == "sql":
        return "the whole model, for rows without NULL, NaN and infinities"
    return _listed([f"codes of {name}" for name in call.encoded]) or "nothing"


def _estimates(choice: Choice) -> list[tuple[str, str]]:
    """What the ways of running were estimated to take, the chosen one first."""
    if not choice.estimates:
        return []
    times = [f"{e.name} {_duration(e.start + e.seconds)}" for e in choice.estimates]
    shown = [("estimate", f"{times[0]} for {ROWS:,} rows on one thread")]
    return shown + ([("runners-up", _listed(times[1:]))] if times[1:] else [])


def _duration(seconds: float) -> str:
    """
    >>> [_duration(s) for s in (0.0000042, 0.0123, 2.5, 2100.0, float("inf"))]
    ['4.2 us', '12 ms', '2.5 s', '2,100 s', 'out of question']
    """
    if seconds == float("inf"):
        return "out of question"
    unit, size = next(((u, s) for u, s in _UNITS if seconds >= s), _UNITS[-1])
    count = seconds / size
    return f"{count:,.0f} {unit}" if count >= 10 else f"{count:.1f} {unit}"


def _listed(items: list[str], most: int = 24) -> str:
    shown = ", ".join(item.replace(" ", _TIED) for item in items[:most])
    return shown + (f", .. {len(items) - most} more" if len(items) > most else "")
