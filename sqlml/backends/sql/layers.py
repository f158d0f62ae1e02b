"""`print_layers`: print a Program as a chain of queries, each of which reads the previous one.

Values that DuckDB binds in lambdas become columns that the next query reads. So expressions are
short, and no expression is written twice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlml.backends.sql.expression import Bindings, Expression, SumTrees, Value
from sqlml.backends.sql.printer import print_columns
from sqlml.dialects.portable import Portable
from sqlml.ir.program import Program

LONGEST_SUM = 40
"""Maximum number of terms of a sum in one expression, unless the sum is short."""

SHORT_SUM = 8_000
"""Maximum number of characters of a sum with more than `LONGEST_SUM` terms."""

MAX_CONDITIONS = 100
"""Maximum number of conditions in one expression."""

ROUNDED_SUM = "sqlml_rounded_sum"
"""Placeholder for a sum that is rounded after each addition; the SQL is deeply nested."""

_COLUMN = re.compile(r"'(?:[^']|'')*'|\bsqlml_v(\d+)\b")
"""A pattern of string literals, which contain no columns, and of columns."""


class VerbatimSql(str):
    """SQL that is already in the dialect of the database, not in sqlml's portable dialect."""


class Layers(Bindings):
    """Bindings whose names are columns of queries instead of fields of a struct."""

    def bind(self, value: Sequence[Expression]) -> Value:
        return tuple(
            e if e.cheap else replace(e, sql=self.name(e.sql), cheap=True, raw=None) for e in value
        )

    def bind_conditions(self, value: Sequence[Expression]) -> Value:
        """Bind conditions as numbers, because some databases have no columns of conditions."""
        numbers = [Expression(f"CASE WHEN {e.sql} THEN 1 ELSE 0 END", nan=False) for e in value]
        return tuple(
            operand if operand.cheap else Expression(f"({number.sql} = 1)", cheap=True, nan=False)
            for operand, number in zip(value, self.bind(numbers), strict=True)
        )

    def total(self, terms: Sequence[str], dtype: str) -> str:
        """Return SQL that adds `terms` in order; float32 is rounded after each addition."""
        group_size = max(LONGEST_SUM, SHORT_SUM // max(map(len, terms)))
        if dtype == "float32":
            group_size = self._portable.roundings + 1
        total_sql, remaining_terms = terms[0], terms[1:]
        while remaining_terms:
            partial_sum = self._add_few([total_sql, *remaining_terms[: group_size - 1]], dtype)
            remaining_terms = remaining_terms[group_size - 1 :]
            total_sql = self.name(partial_sum) if remaining_terms else partial_sum
        return total_sql

    def _add_few(self, terms: Sequence[str], dtype: str) -> str:
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
class PrintedLayers:
    """A Program as a chain of queries; the first query reads the inputs.

    `layers` has a mapping per query from column names to SQL. `values` maps outputs to expressions,
    and `rejected` is the condition for rejecting a row, or "". Both read the last query.
    """

    layers: tuple[Mapping[str, str], ...]
    values: Mapping[str, tuple[str, ...]]
    rejected: str

    def inlined_size(self, sql: str) -> int:
        """Return the length of `sql` after each column in it is replaced with its definition."""
        sizes: dict[str, int] = {}

        def measure(text: str) -> int:
            return len(text) + sum(sizes[f"sqlml_v{j + 1}"] for j in _find_columns(text))

        for layer in self.layers:
            sizes |= {name: measure(text) for name, text in layer.items() if text != name}
        return measure(sql)


def print_layers(
    program: Program,
    outputs: Sequence[str],
    inputs: Mapping[str, Sequence[str]],
    dialect: Portable,
    refused: Sequence[str] = (),
    sum_trees: SumTrees | None = None,
) -> PrintedLayers:
    """Print `outputs` of `program` as layers of queries, in which a missing value is NULL.

    `inputs` maps input names to the columns that the first query reads. `refused` lists further
    conditions under which a row is rejected. Trees are nested CASEs unless `sum_trees` is given.
    """
    bindings = Layers(dialect=dialect, sum_trees=sum_trees)
    columns = print_columns(program, [program.outputs[name] for name in outputs], inputs, bindings)
    values = {name: tuple(e.sql for e in columns[program.outputs[name]]) for name in outputs}
    output_columns = [sql for value in values.values() for sql in value]
    condition = _join_conditions(list(dict.fromkeys([*bindings.rejected, *refused])))
    if condition and len(output_columns) > 1:  # Compute the condition once for all columns.
        condition = bindings.name(f"CASE WHEN {condition} THEN 1 ELSE 0 END") + " = 1"
    layers = _arrange_layers(bindings.bound, [*output_columns, condition])
    return PrintedLayers(tuple(layers), values, condition)


def _join_conditions(conditions: Sequence[str]) -> str:
    """Join conditions with OR, in groups, because sqlglot and some databases limit long chains."""
    while len(conditions) > MAX_CONDITIONS:
        groups = range(0, len(conditions), MAX_CONDITIONS)
        conditions = [f"({' OR '.join(conditions[g : g + MAX_CONDITIONS])})" for g in groups]
    return " OR ".join(conditions)


def _find_columns(sql: str) -> list[int]:
    """Return the indices of the bound columns that an expression reads.

    >>> _find_columns("CASE sqlml_v2 WHEN 'sqlml_v7' THEN sqlml_v1 END")
    [1, 0]
    """
    return [int(number) - 1 for number in _COLUMN.findall(sql) if number]


def _arrange_layers(bound: Sequence[str], final_expressions: Sequence[str]) -> list[dict[str, str]]:
    """Return, for each query, a mapping from column names to SQL.

    `bound` are the expressions of the columns, and `final_expressions` read the last query. To keep
    few columns at a time, a column is computed as late as possible, and passed on to its readers.
    """
    columns_read = [_find_columns(sql) for sql in bound]
    layer_of_column: list[int] = []
    for needed in columns_read:
        layer_of_column.append(1 + max((layer_of_column[j] for j in needed), default=-1))
    num_layers = 1 + max(layer_of_column, default=-1)
    layer_of_column, last_layer_of_column = [num_layers - 1] * len(bound), [0] * len(bound)
    for sql in final_expressions:
        for j in _find_columns(sql):
            last_layer_of_column[j] = num_layers
    for i in reversed(range(len(bound))):  # The readers of a column come after it.
        for j in columns_read[i]:
            layer_of_column[j] = min(layer_of_column[j], layer_of_column[i] - 1)
            last_layer_of_column[j] = max(last_layer_of_column[j], layer_of_column[i])
    layers: list[dict[str, str]] = []
    for layer_index in range(num_layers):
        columns = {}
        for j, sql in enumerate(bound):
            name = f"sqlml_v{j + 1}"
            if layer_of_column[j] == layer_index and last_layer_of_column[j] > layer_index:
                columns[name] = sql
            elif layer_of_column[j] < layer_index < last_layer_of_column[j]:
                columns[name] = name
        layers.append(columns)
    return layers
