"""`described`: what each column of a table looks like, from one pass over its rows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sqlml.dialects import Dialect
from sqlml.dialects.type_names import NUMBERS, STRINGS
from sqlml.planner.syntax.spelled import spelled

# `Kind`: whether the values of a column are counted as numbers or as names.


Kind = Literal["number", "name", "time", "other"]

_TIMES = re.compile(r"DATE|TIME.*")


@dataclass(frozen=True, slots=True)
class DataColumn:
    """A column of a table: its name, its type in the engine, and what its values are."""

    name: str
    type: str
    kind: Kind


def data_columns(columns: Mapping[str, str]) -> list[DataColumn]:
    """The columns of a table, of name -> type."""
    return [DataColumn(name, kind, _kind(kind)) for name, kind in columns.items()]


def _kind(kind: str) -> Kind:
    if kind == "BOOLEAN" or STRINGS.fullmatch(kind):
        return "name"
    if NUMBERS.fullmatch(kind):
        return "number"
    return "time" if _TIMES.fullmatch(kind) else "other"


def listed(items: list[str], kind: str, dialect: Dialect) -> str:
    """A list of expressions, all cast to a type; a list of nothing has that type, too."""
    spelled = dialect.type(kind)
    cast = [f"CAST({item} AS {spelled})" for item in items] or [f"CAST(NULL AS {spelled})"]
    return dialect.array(cast)


def described(
    columns: Sequence[DataColumn], quantiles: int, top: int, dialect: Dialect
) -> tuple[str, str]:
    """The text before and after the rows of a query in brackets, with a row for each column.

    Args:
        quantiles: into how many parts quantiles cut the numbers of a column.
        top: how many of the most frequent names are told.
    """
    measures = ", ".join(
        m for n, column in enumerate(columns) for m in _measures(n, column, quantiles)
    )
    statistics = f"SELECT count(*) AS num_rows, {measures} FROM sqlml_rows"
    rows = " UNION ALL ".join(_row(n, c, top, quantiles) for n, c in enumerate(columns))
    made = spelled(
        f"WITH sqlml_rows AS (SELECT 1), statistics AS ({statistics}) {rows}", dialect.name
    ).removeprefix("WITH sqlml_rows AS (SELECT 1), ")
    names = ", ".join(f"{dialect.quote_name(c.name)} AS c{n}" for n, c in enumerate(columns))
    text, kinds = (
        dialect.array([dialect.text(value) for value in values])
        for values in ([c.name for c in columns], [c.type for c in columns])
    )
    place = dialect.operator("+", "place", "1")
    told = (
        f"SELECT {dialect.at(text, place)} AS name, {dialect.at(kinds, place)} AS type, num_rows, "
        "num_nulls, num_zeros, least AS min, most AS max, mean, stddev, median, quantiles, "
        "approx_unique, avg_string_length, top_values"
    )
    before = f"({told} FROM (WITH sqlml_rows AS (SELECT {names} FROM "
    return before, f"), {made}) AS sqlml_described)"


def _measures(n: int, column: DataColumn, quantiles: int) -> list[str]:
    """The aggregates of a column `c<n>`."""
    c = f"c{n}"
    made = [f"count({c}) AS n{n}"]
    if column.kind != "other":
        made += [
            f"CAST(min({c}) AS VARCHAR) AS least{n}",
            f"CAST(max({c}) AS VARCHAR) AS most{n}",
            f"approx_count_distinct({c}) AS unique{n}",
        ]
    if column.kind == "number":
        x = f"CAST({c} AS DOUBLE)"
        made += [
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
        made.append(f"avg(length(CAST({c} AS VARCHAR))) AS long{n}")
    return made


def _row(n: int, column: DataColumn, top: int, quantiles: int) -> str:
    """The select that makes the row of a column."""
    is_number = column.kind == "number"
    text = column.kind == "name" and column.type != "BOOLEAN"
    known = column.kind != "other"
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
        "least": f"least{n}" if known else null("VARCHAR"),
        "most": f"most{n}" if known else null("VARCHAR"),
        "mean": f"mean{n}" if is_number else null("DOUBLE"),
        "stddev": f"stddev{n}" if is_number else null("DOUBLE"),
        "median": f"median{n}" if is_number else null("DOUBLE"),
        "quantiles": quartiles,
        "approx_unique": f"CAST(unique{n} AS BIGINT)" if known else null("BIGINT"),
        "avg_string_length": f"long{n}" if text else null("DOUBLE"),
        "top_values": tops,
    }
    return f"SELECT {', '.join(f'{sql} AS {name}' for name, sql in items.items())} FROM statistics"
