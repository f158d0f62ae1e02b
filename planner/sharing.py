"""Calls of one model on the same row share one evaluation.

`SELECT predict('m', *), predict_proba('m', *) FROM t` calls one function, which makes both side by
side; the engine evaluates equal calls of one projection once. What stands in WHERE or ON is
evaluated by another operator of the engine, before: there the function is called in FROM
(`once.py`) or, where that cannot be, is one that remembers the rows that it scored last, for those
of them that come again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from sqlml.catalog.model import Model
from sqlml.dialects import DUCKDB, Dialect
from sqlml.ir.program import Program
from sqlml.planner.build import width_of
from sqlml.planner.names import Part
from sqlml.planner.refusals import guarded, refuses_rows
from sqlml.planner.single_source import Source, source_of
from sqlml.planner.syntax.outline import ModelCall, Outline

_FIRST = frozenset({"WHERE", "FROM"})
"""Clauses whose rows are filtered before the others see them."""


class Target(Protocol):
    """What a call computes."""

    @property
    def model(self) -> Model: ...

    @property
    def part(self) -> Part: ...


@dataclass(frozen=True, slots=True)
class Shared:
    """All `parts` that calls of one model on the same row ask for, and whether it comes `again`.

    `calls` says how many they are, `source` the FROM clause that makes them all. `once` says that
    the engine is to evaluate the function where it is written, and for no other rows.
    """

    parts: tuple[Part, ...]
    again: bool
    calls: int
    source: Source | None = None
    once: bool = False

    def apart(self, part: Part) -> Shared:
        """The same for one call that shares nothing."""
        return Shared((part,), False, 1, once=self.once)

    def type(self, program: Program) -> str:
        """The SQL type of the function of all parts."""
        part = self.parts[0]
        if len(self.parts) > 1:
            return "DOUBLE[]"
        number = "INTEGER" if part.output == "label" and program.labels else "DOUBLE"
        width = width_of(program, part)
        listed = width > 1 or (part.output == "proba" and part.column is None)
        return number + "[]" * listed

    def element(self, call: str, program: Program, part: Part, dialect: Dialect = DUCKDB) -> str:
        """What `part` is of the result of `call`, the function of all parts."""
        if len(self.parts) == 1:
            return call
        first = 1 + sum(width_of(program, p) for p in self.parts[: self.parts.index(part)])
        width = width_of(program, part)
        if part.column is None and (width > 1 or part.output == "proba"):
            return dialect.part(call, first, first + width - 1)
        element = dialect.at(call, first)
        whole = part.output == "label" and bool(program.labels)
        return f"CAST({element} AS INTEGER)" if whole else element


def shared(
    targets: Mapping[ModelCall, Target], outline: Outline, in_source: bool, dialect: Dialect
) -> dict[ModelCall, Shared]:
    """For each call what it shares, with itself at least; by FROM, where it may be `in_source`."""
    groups: dict[Any, list[ModelCall]] = {}
    for call, target in targets.items():
        groups.setdefault(same_row(call, target), []).append(call)
    found: dict[ModelCall, Shared] = {}
    for calls in groups.values():
        parts = tuple(sorted({targets[c].part for c in calls}, key=str))
        clauses = {call.clause in _FIRST for call in calls}
        again = len(clauses) > 1
        source = None
        if again and in_source and any(map(_filters, calls)):
            source = source_of(calls[0], outline)
        refuses = dialect.lazy_calls and refuses_rows(targets[calls[0]].model.program)
        for call in calls:
            once = source is not None or (refuses and guarded(call, outline.created))
            found[call] = Shared(parts, again and source is None, len(calls), source, once)
    return found


def _filters(call: ModelCall) -> bool:
    """Whether WHERE asks the call for each row."""
    return call.clause == "WHERE" and call.always_asked


def same_row(call: ModelCall, target: Target) -> Any:
    """Equal for calls of one model version in one block whose arguments are written alike."""
    if len(target.model.program.labels) > 1:
        return call  # several targets come as lists of their own
    if call.means_outputs:
        return call  # its names may be others there
    model = target.model
    query = None if call.block is None else call.block.span
    return query, model.database, model.name, model.version, call.spelled
