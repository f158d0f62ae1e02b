"""`print_layers`: outputs of a Program as the columns of queries, each over the one before it.

What an expression of DuckDB binds in a lambda is a column here, which the next query reads. So no
expression is long, and none is written twice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlml.backends.sql.expression import Bindings, Expression, Value, Walked
from sqlml.backends.sql.printer import columns_of
from sqlml.dialects.portable import Portable
from sqlml.ir.program import Program

LONGEST_SUM = 40
"""Terms of a sum in one expression, as of trees; of short ones as many as `SHORT_SUM` holds."""

SHORT_SUM = 8_000
"""Characters of a sum of more terms."""

IN_A_ROW = 100
"""Conditions in one expression."""

ROUNDED_SUM = "sqlml_rounded_sum"
"""What stands for a sum that is rounded after each addition: written out, it would be nested."""

_COLUMN = re.compile(r"'(?:[^']|'')*'|\bsqlml_v(\d+)\b")
"""A text, in which no column is meant, or a column."""


class Verbatim(str):
    """SQL of the database itself, where `Portable`'s is expected."""


class Layers(Bindings):
    """What has a name: columns."""

    def bind(self, value: Sequence[Expression]) -> Value:
        return tuple(
            e
            if e.cheap
            else Expression(self.name(e.sql), cheap=True, nan=e.nan, category=e.category)
            for e in value
        )

    def bind_conditions(self, value: Sequence[Expression]) -> Value:
        """As numbers, since a column of some databases cannot be a condition."""
        numbers = [Expression(f"CASE WHEN {e.sql} THEN 1 ELSE 0 END", nan=False) for e in value]
        return tuple(
            e if e.cheap else Expression(f"({number.sql} = 1)", cheap=True, nan=False)
            for e, number in zip(value, self.bind(numbers), strict=True)
        )

    def total(self, terms: Sequence[str], dtype: str) -> str:
        """From left to right, rounded after each addition if they are float32."""
        at_once = max(LONGEST_SUM, SHORT_SUM // max(map(len, terms)))
        if dtype == "float32":
            at_once = self._portable.roundings + 1
        first, rest = terms[0], terms[1:]
        while rest:
            made = self._some([first, *rest[: at_once - 1]], dtype)
            rest = rest[at_once - 1 :]
            first = self.name(made) if rest else made
        return first

    def _some(self, terms: Sequence[str], dtype: str) -> str:
        """The sum of so few that one expression holds it."""
        if dtype != "float32":
            return self.dialect.total(terms)
        if len(terms) == 2:
            return self.dialect.rounded(self.dialect.operator("+", *terms))
        return f"{ROUNDED_SUM}({', '.join(terms)})"

    @property
    def _portable(self) -> Portable:
        assert isinstance(self.dialect, Portable)
        return self.dialect

    def _read(self, number: int | str) -> str:
        return f"sqlml_v{number}"


@dataclass(frozen=True)
class Printed:
    """Queries, from the one over the inputs on; columns by their names.

    Attributes:
        layers: of each query the columns that it makes; those that a later one reads are to be
            kept.
        values: for each output its columns, over the last query.
        refused: the condition under which a row is refused, over the last query, too; "": no row.
    """

    layers: tuple[Mapping[str, str], ...]
    values: Mapping[str, tuple[str, ...]]
    refused: str

    def inlined(self, sql: str) -> int:
        """The characters of an expression in which each column is replaced by what makes it."""
        sizes: dict[str, int] = {}

        def of(text: str) -> int:
            return len(text) + sum(sizes[f"sqlml_v{j + 1}"] for j in _columns(text))

        for layer in self.layers:
            sizes |= {name: of(text) for name, text in layer.items() if text != name}
        return of(sql)


def print_layers(
    program: Program,
    outputs: Sequence[str],
    inputs: Mapping[str, Sequence[str]],
    dialect: Portable,
    refused: Sequence[str] = (),
    walked: Walked | None = None,
) -> Printed:
    """Outputs of `program` as layers of queries.

    Args:
        inputs: for each input the columns of the first query, of type DOUBLE or VARCHAR; a missing
            value is NULL.
        refused: conditions under which a row is refused, besides those of the model.
        walked: sums up the trees, if they are not to be CASEs.

    Raises:
        BackendError: an operator cannot be printed.
    """
    bindings = Layers(dialect=dialect, walked=walked)
    made = columns_of(program, [program.outputs[name] for name in outputs], inputs, bindings)
    values = {name: tuple(e.sql for e in made[program.outputs[name]]) for name in outputs}
    last = [sql for value in values.values() for sql in value]
    condition = _any(list(dict.fromkeys([*bindings.refused, *refused])))
    if condition and len(last) > 1:  # told once for all of them
        condition = bindings.name(f"CASE WHEN {condition} THEN 1 ELSE 0 END") + " = 1"
    return Printed(tuple(_layers(bindings.bound, [*last, condition])), values, condition)


def _any(conditions: Sequence[str]) -> str:
    """Whether any of them is true; of groups of them where they are many, as sqlglot and some
    databases take only so many in a row."""
    while len(conditions) > IN_A_ROW:
        groups = range(0, len(conditions), IN_A_ROW)
        conditions = [f"({' OR '.join(conditions[g : g + IN_A_ROW])})" for g in groups]
    return " OR ".join(conditions)


def _columns(sql: str) -> list[int]:
    """The columns that an expression reads, by their places among the bound ones.

    >>> _columns("CASE sqlml_v2 WHEN 'sqlml_v7' THEN sqlml_v1 END")
    [1, 0]
    """
    return [int(number) - 1 for number in _COLUMN.findall(sql) if number]


def _layers(bound: Sequence[str], last: Sequence[str]) -> list[dict[str, str]]:
    """The columns of each query: each is made as late as it can be, so that few are kept at a
    time, and kept as long as it is read."""
    reads = [_columns(sql) for sql in bound]
    level: list[int] = []
    for needed in reads:
        level.append(1 + max((level[j] for j in needed), default=-1))
    count = 1 + max(level, default=-1)
    level, until = [count - 1] * len(bound), [0] * len(bound)
    for sql in last:
        for j in _columns(sql):
            until[j] = count
    for i in reversed(range(len(bound))):  # what reads a column comes behind it
        for j in reads[i]:
            level[j] = min(level[j], level[i] - 1)
            until[j] = max(until[j], level[i])
    made: list[dict[str, str]] = []
    for at in range(count):
        columns = {}
        for j, sql in enumerate(bound):
            name = f"sqlml_v{j + 1}"
            if level[j] == at and until[j] > at:
                columns[name] = sql
            elif level[j] < at < until[j]:
                columns[name] = name
        made.append(columns)
    return made
