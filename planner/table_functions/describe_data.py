"""The SQL of `ml_describe_data`: statistics of each column, from one pass over the rows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from sqlml.dialects.type_names import NUMBERS, STRINGS
from sqlml.errors import BindError
from sqlml.planner.binding.probe_queries import ProbeError
from sqlml.planner.syntax.query_templates import spell_for_engine
from sqlml.planner.table_functions.table_function_call import TableFunctionCall

Kind = Literal["number", "name", "time", "other"]
_TIMES = re.compile(r"DATE|TIME.*")


@dataclass(frozen=True, slots=True)
class DataColumn:
    """A column of a table; values of kind "name" are counted one by one, as categories are."""

    name: str
    type: str
    kind: Kind


def write_description(call: TableFunctionCall) -> tuple[str, str]:
    """Return the SQL before and after the rows of ml_describe_data, with a row for each column."""
    (types,) = require_column_types(call)
    columns, dialect = classify_columns(types), call.dialect
    quantiles = call.read_integer("num_quantiles", 2, 1, 100)
    top = call.read_integer("top_k", 1, 0, 100)
    aggregates = ", ".join(
        aggregate
        for n, column in enumerate(columns)
        for aggregate in _list_aggregates(n, column, quantiles)
    )
    statistics = f"SELECT count(*) AS num_rows, {aggregates} FROM sqlml_rows"
    rows = " UNION ALL ".join(_select_row(n, c, top, quantiles) for n, c in enumerate(columns))
    query = spell_for_engine(
        f"WITH sqlml_rows AS (SELECT 1), statistics AS ({statistics}) {rows}", dialect.name
    ).removeprefix("WITH sqlml_rows AS (SELECT 1), ")
    items = ", ".join(f"{dialect.quote_name(c.name)} AS c{n}" for n, c in enumerate(columns))
    names = dialect.array([dialect.text(c.name) for c in columns])
    type_names = dialect.array([dialect.text(c.type) for c in columns])
    position = dialect.operator("+", "place", "1")
    before = (
        f"(SELECT {dialect.at(names, position)} AS name, {dialect.at(type_names, position)} AS "
        "type, num_rows, num_nulls, num_zeros, least AS min, most AS max, mean, stddev, median, "
        "quantiles, approx_unique, avg_string_length, top_values "
        f"FROM (WITH sqlml_rows AS (SELECT {items} FROM "
    )
    return before, f"), {query}) AS sqlml_described)"


def require_column_types(call: TableFunctionCall) -> list[Mapping[str, str]]:
    """Return the column types of each relation of a call, or raise BindError."""
    required = []
    for span, rows, types in zip(call.form.rows, call.rows, call.column_types, strict=True):
        if types is None:
            reason = ""
            try:
                call.context.describe(f"SELECT * FROM {rows}")
            except ProbeError as error:
                reason = f": {error}"
            message = f"cannot determine the columns of these rows{reason}"
            raise BindError(message, call.sql, span.start)
        required.append(types)
    return required


def classify_columns(types: Mapping[str, str]) -> list[DataColumn]:
    return [DataColumn(name, kind, _classify_type(kind)) for name, kind in types.items()]


def _classify_type(kind: str) -> Kind:
    if kind == "BOOLEAN" or STRINGS.fullmatch(kind):
        return "name"
    if NUMBERS.fullmatch(kind):
        return "number"
    return "time" if _TIMES.fullmatch(kind) else "other"


def _list_aggregates(n: int, column: DataColumn, quantiles: int) -> list[str]:
    c = f"c{n}"
    aggregates = [f"count({c}) AS n{n}"]
    if column.kind != "other":
        aggregates += [
            f"CAST(min({c}) AS VARCHAR) AS least{n}",
            f"CAST(max({c}) AS VARCHAR) AS most{n}",
            f"approx_count_distinct({c}) AS unique{n}",
        ]
    if column.kind == "number":
        x = f"CAST({c} AS DOUBLE)"
        aggregates += [
            f"sum(CASE WHEN {c} = 0 THEN 1 ELSE 0 END) AS zeros{n}",
            f"avg({x}) AS mean{n}",
            f"stddev_pop({x}) AS stddev{n}",
            f"least(greatest(approx_quantile({x}, 0.5), min({x})), max({x})) AS median{n}",
            f"min({x}) AS q{n}_0",
            *(
                f"least(greatest(approx_quantile({x}, {part / quantiles!r}), min({x})), max({x})) "
                f"AS q{n}_{part}"
                for part in range(1, quantiles)
            ),
            f"max({x}) AS q{n}_{quantiles}",
        ]
    if column.kind == "name" and column.type != "BOOLEAN":
        aggregates.append(f"avg(length(CAST({c} AS VARCHAR))) AS long{n}")
    return aggregates


def _select_row(n: int, column: DataColumn, top: int, quantiles: int) -> str:
    is_number = column.kind == "number"
    is_text = column.kind == "name" and column.type != "BOOLEAN"
    has_order = column.kind != "other"
    values = ", ".join(f"q{n}_{part}" for part in range(quantiles + 1))
    quartiles = f"list_value({values})" if is_number else "CAST(NULL AS DOUBLE[])"
    tops = "CAST(NULL AS STRUCT(value VARCHAR, count BIGINT)[])"
    if column.kind == "name" and top:
        tops = f"""(
            SELECT list(struct_pack(value := name, count := often)) FROM (
                SELECT CAST(c{n} AS VARCHAR) AS name, count(*) AS often FROM sqlml_rows
                WHERE c{n} IS NOT NULL GROUP BY c{n} ORDER BY often DESC, name LIMIT {top}
            ) AS frequent
        )"""
    null = "CAST(NULL AS {})".format
    items = {
        "place": str(n),
        "num_rows": "num_rows",
        "num_nulls": f"num_rows - n{n}",
        "num_zeros": f"CAST(zeros{n} AS BIGINT)" if is_number else null("BIGINT"),
        "least": f"least{n}" if has_order else null("VARCHAR"),
        "most": f"most{n}" if has_order else null("VARCHAR"),
        "mean": f"mean{n}" if is_number else null("DOUBLE"),
        "stddev": f"stddev{n}" if is_number else null("DOUBLE"),
        "median": f"median{n}" if is_number else null("DOUBLE"),
        "quantiles": quartiles,
        "approx_unique": f"CAST(unique{n} AS BIGINT)" if has_order else null("BIGINT"),
        "avg_string_length": f"long{n}" if is_text else null("DOUBLE"),
        "top_values": tops,
    }
    return f"SELECT {', '.join(f'{sql} AS {name}' for name, sql in items.items())} FROM statistics"
