"""`Shared`: the parts that calls of one model on the same row ask of one function together."""

from __future__ import annotations

from dataclasses import dataclass

from sqlml.dialects import DUCKDB, Dialect
from sqlml.ir.program import Program
from sqlml.planner.program.function_names import Part, struct_of
from sqlml.planner.program.prepare import fields_of, is_listed, width_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """All `parts` that calls of one model on the same row ask for, and where they are evaluated.

    Attributes:
        calls: how many they are.
        again: rows come again in another clause, so that the function is to remember some.
        in_from: FROM makes the parts, as a column that all clauses read.
        once: the engine is to evaluate the function where it is written, and for no other rows.
    """

    parts: tuple[Part, ...]
    calls: int = 1
    again: bool = False
    in_from: bool = False
    once: bool = False

    def apart(self, part: Part) -> Shared:
        """What is left for one call that shares nothing."""
        return Shared(parts=(part,), once=self.once)

    def type(self, program: Program, by_column: bool) -> str:
        """The SQL type of the function of all parts."""
        part = self.parts[0]
        if fields := fields_of(program, self.parts, by_column):
            return struct_of(fields)
        if len(self.parts) > 1:
            return "DOUBLE[]"
        number = "INTEGER" if part.output == "label" and program.labels else "DOUBLE"
        return number + "[]" * is_listed(part, width_of(program, part))

    def element(
        self, call: str, program: Program, part: Part, by_column: bool, dialect: Dialect = DUCKDB
    ) -> str:
        """What `part` is of the result of `call`, the function of all parts."""
        if len(self.parts) == 1:
            return call
        if fields_of(program, self.parts, by_column):
            return dialect.field(call, str(part))
        first = 1 + sum(width_of(program, p) for p in self.parts[: self.parts.index(part)])
        width = width_of(program, part)
        if is_listed(part, width):
            return dialect.part(call, first, first + width - 1)
        element = dialect.at(call, first)
        whole = part.output == "label" and bool(program.labels)
        return f"CAST({element} AS INTEGER)" if whole else element
