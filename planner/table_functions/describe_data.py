"""The SQL of `ml_describe_data`: statistics of each column, from one pass over the rows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from sqlml.dialects.type_names import NUMBERS, STRINGS
from sqlml.errors import BindError
from sqlml.planner.binding.probe_queries import ProbeError
from sqlml.planner.syntax.query_templates import render_for_engine
from sqlml.planner.table_functions.table_function_call import TableFunctionCall

Kind = Literal["number", "category", "time", "other"]
_TIME_TYPES = re.compile(r"DATE|TIME.*")


@dataclass(frozen=True, slots=True)
class DataColumn:
    """A column of a table. For the kind "category", the rows of each value are counted."""

    name: str
    type: str
    kind: Kind


def build_description(call: TableFunctionCall) -> tuple[str, str]:
    """Return the SQL before and after the user's rows, which yields a row for each column."""
    (column_types,) = require_column_types(call)
    columns, dialect = classify_columns(column_types), call.dialect
    quantile_count = call.read_integer("num_quantiles", 2, 1, 100)
    top_count = call.read_integer("top_k", 1, 0, 100)
    aggregates = ["count(*) AS num_rows"]
    row_queries = []
    for index, column in enumerate(columns):
        aggregates += _list_aggregates(index, column, quantile_count)
        row_queries.append(_build_row_query(index, column, top_count, quantile_count))
    statistics = f"SELECT {', '.join(aggregates)} FROM sqlml_rows"
    rows_query = " UNION ALL ".join(row_queries)
    stub = "WITH sqlml_rows AS (SELECT 1), "
    template = f"{stub}statistics AS ({statistics}) {rows_query}"
    query = render_for_engine(template, dialect.name).removeprefix(stub)
    items = ", ".join(f"{dialect.quote_name(c.name)} AS c{k}" for k, c in enumerate(columns))
    name_list = dialect.array([dialect.text(c.name) for c in columns])
    type_list = dialect.array([dialect.text(c.type) for c in columns])
    position = dialect.operator("+", "place", "1")
    prefix = (
        f"(SELECT {dialect.at(name_list, position)} AS name, {dialect.at(type_list, position)} AS "
        "type, num_rows, num_nulls, num_zeros, least AS min, most AS max, mean, stddev, median, "
        "quantiles, approx_unique, avg_string_length, top_values "
        f"FROM (WITH sqlml_rows AS (SELECT {items} FROM "
    )
    return prefix, f"), {query}) AS sqlml_described)"


def require_column_types(call: TableFunctionCall) -> list[Mapping[str, str]]:
    """Return the column types of each relation of `call`, or raise BindError if any are unknown."""
    for span, rows, types in zip(call.form.rows, call.rows, call.column_types, strict=True):
        if types is None:
            reason = ""
            try:
                call.context.describe(f"SELECT * FROM {rows}")
            except ProbeError as error:
                reason = f": {error}"
            message = f"cannot determine the columns of these rows{reason}"
            raise BindError(message, call.sql, span.start)
    return [types for types in call.column_types if types is not None]


def classify_columns(types: Mapping[str, str]) -> list[DataColumn]:
    return [DataColumn(name, t, _classify_type(t)) for name, t in types.items()]


def _classify_type(sql_type: str) -> Kind:
    if sql_type == "BOOLEAN" or STRINGS.fullmatch(sql_type):
        return "category"
    if NUMBERS.fullmatch(sql_type):
        return "number"
    return "time" if _TIME_TYPES.fullmatch(sql_type) else "other"


def _list_aggregates(index: int, column: DataColumn, quantile_count: int) -> list[str]:
    column_sql = f"c{index}"
    aggregates = [f"count({column_sql}) AS n{index}"]
    if column.kind != "other":
        aggregates += [
            f"CAST(min({column_sql}) AS VARCHAR) AS least{index}",
            f"CAST(max({column_sql}) AS VARCHAR) AS most{index}",
            f"approx_count_distinct({column_sql}) AS unique{index}",
        ]
    if column.kind == "number":
        number_sql = f"CAST({column_sql} AS DOUBLE)"
        inner = range(1, quantile_count)
        aggregates += [
            f"sum(CASE WHEN {column_sql} = 0 THEN 1 ELSE 0 END) AS zeros{index}",
            f"avg({number_sql}) AS mean{index}",
            f"stddev_pop({number_sql}) AS stddev{index}",
            f"{_build_quantile(number_sql, 0.5)} AS median{index}",
            f"min({number_sql}) AS q{index}_0",
            *(f"{_build_quantile(number_sql, k / quantile_count)} AS q{index}_{k}" for k in inner),
            f"max({number_sql}) AS q{index}_{quantile_count}",
        ]
    if column.kind == "category" and column.type != "BOOLEAN":
        aggregates.append(f"avg(length(CAST({column_sql} AS VARCHAR))) AS length{index}")
    return aggregates


def _build_quantile(number_sql: str, share: float) -> str:
    quantile = f"approx_quantile({number_sql}, {share!r})"
    return f"least(greatest({quantile}, min({number_sql})), max({number_sql}))"


def _build_row_query(index: int, column: DataColumn, top_count: int, quantile_count: int) -> str:
    is_number = column.kind == "number"
    is_text = column.kind == "category" and column.type != "BOOLEAN"
    has_order = column.kind != "other"
    quantiles = ", ".join(f"q{index}_{k}" for k in range(quantile_count + 1))
    typed_null = "CAST(NULL AS {})".format
    top_values = typed_null("STRUCT(value VARCHAR, count BIGINT)[]")
    if column.kind == "category" and top_count:
        top_values = f"""(
            SELECT list(struct_pack(value := name, count := frequency)) FROM (
                SELECT CAST(c{index} AS VARCHAR) AS name, count(*) AS frequency FROM sqlml_rows
                WHERE c{index} IS NOT NULL GROUP BY c{index}
                ORDER BY frequency DESC, name LIMIT {top_count}
            ) AS frequent
        )"""
    items = {
        "place": str(index),
        "num_rows": "num_rows",
        "num_nulls": f"num_rows - n{index}",
        "num_zeros": f"CAST(zeros{index} AS BIGINT)" if is_number else typed_null("BIGINT"),
        "least": f"least{index}" if has_order else typed_null("VARCHAR"),
        "most": f"most{index}" if has_order else typed_null("VARCHAR"),
        "mean": f"mean{index}" if is_number else typed_null("DOUBLE"),
        "stddev": f"stddev{index}" if is_number else typed_null("DOUBLE"),
        "median": f"median{index}" if is_number else typed_null("DOUBLE"),
        "quantiles": f"list_value({quantiles})" if is_number else typed_null("DOUBLE[]"),
        "approx_unique": f"CAST(unique{index} AS BIGINT)" if has_order else typed_null("BIGINT"),
        "avg_string_length": f"length{index}" if is_text else typed_null("DOUBLE"),
        "top_values": top_values,
    }
    return f"SELECT {', '.join(f'{sql} AS {name}' for name, sql in items.items())} FROM statistics"
