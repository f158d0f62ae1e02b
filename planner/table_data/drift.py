"""`drifted`, `skewed`: how much columns differ, each as one distribution beside another.

They are those of two tables, or of a table and of the rows that a model was trained on.

Numbers are compared in bins with equally many rows of the first table, names one by one; the
Kolmogorov-Smirnov distance is that of all numbers. NULLs are no part of a distribution: their
shares stand beside it. Of the rows of a training the model knows some numbers and names, each with
how many rows it stands for (`training/storage/column_statistics.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from sqlml.dialects import Dialect
from sqlml.planner.evaluation.curves import quantile_edges
from sqlml.planner.evaluation.evaluated_model import Grouping
from sqlml.planner.syntax.literal_table import literal_table
from sqlml.planner.syntax.spelled import spelled
from sqlml.planner.table_data.describe import DataColumn, listed
from sqlml.types import fold

METRICS: Mapping[str, str] = MappingProxyType(
    {
        "psi": "psi",
        "jensen_shannon_divergence": "jensen_shannon_divergence",
        "l_infty": "l_infinity",
        "l_infinity": "l_infinity",
        "kolmogorov_smirnov": "kolmogorov_smirnov",
    }
)
"""Name of a metric, as the options have it -> the column of the answer."""

_FLOOR = "1e-4"
"""The share of a bin without rows, whose logarithm the population stability index takes."""

_KEYS = Grouping(("k",))


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """How columns are compared, and what is an anomaly.

    Attributes:
        metrics: that decide, of numbers and of names.
        thresholds: above which a metric is an anomaly, likewise, and the difference of two shares
            of NULL.
        of_columns: column, folded -> its own threshold.
        bins: of numbers.
    """

    metrics: tuple[str, str]
    thresholds: tuple[float, float, float]
    of_columns: Mapping[str, float]
    bins: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of rows that are not there any more, of each column by its place.

    Attributes:
        numbers, names: place, value, and how many rows have it.
        others: place, and how many rows have names that are not told.
        shares: place, and how many rows and NULLs there were.
    """

    numbers: Sequence[tuple[int, float, int]]
    names: Sequence[tuple[int, str, int]]
    others: Sequence[tuple[int, int]]
    shares: Sequence[tuple[int, int, int]]


def drifted(
    columns: Sequence[DataColumn], judgement: Judgement, dialect: Dialect
) -> tuple[str, str, str]:
    """The text before, between and after the rows of two tables, with a row for each column.

    Args:
        columns: that both tables have.
    """
    numbers, texts = of_kinds(columns)
    items = {c.name: dialect.quote_name(c.name) for c in columns}
    picked = _picked(numbers, texts, items, dialect)
    before, after = _around(numbers, texts, judgement, None, dialect)
    return (
        f"{before}0 AS side, {picked} FROM ",
        f" UNION ALL SELECT 1 AS side, {picked} FROM ",
        after,
    )


def skewed(
    columns: Sequence[DataColumn],
    items: Mapping[str, str],
    known: Known,
    judgement: Judgement,
    dialect: Dialect,
) -> tuple[str, str]:
    """The text before and after the rows of a table that is compared with what is known of others.

    Args:
        columns: in the order of their places: numbers first.
        items: column -> its expression over the rows.
    """
    numbers, texts = of_kinds(columns)
    before, after = _around(numbers, texts, judgement, known, dialect)
    return f"{before}1 AS side, {_picked(numbers, texts, items, dialect)} FROM ", after


def of_kinds(columns: Sequence[DataColumn]) -> tuple[list[DataColumn], list[DataColumn]]:
    """Columns of numbers, and all others."""
    numbers = [c for c in columns if c.kind == "number"]
    return numbers, [c for c in columns if c.kind != "number"]


def _picked(
    numbers: Sequence[DataColumn],
    texts: Sequence[DataColumn],
    items: Mapping[str, str],
    dialect: Dialect,
) -> str:
    return (
        f"{listed([items[c.name] for c in numbers], 'DOUBLE', dialect)} AS numbers, "
        f"{listed([items[c.name] for c in texts], 'VARCHAR', dialect)} AS names"
    )


def _around(
    numbers: Sequence[DataColumn],
    texts: Sequence[DataColumn],
    judgement: Judgement,
    known: Known | None,
    dialect: Dialect,
) -> tuple[str, str]:
    """The text before and after the rows of both sides, `side`, `numbers` and `names` of each."""
    metrics, thresholds = judgement.metrics, judgement.thresholds
    queries = _distributions(len(numbers), len(texts), judgement.bins, known is not None)
    written = spelled(
        "WITH sqlml_both AS (SELECT 1), "
        + ", ".join(f"{name} AS ({query})" for name, query in queries.items())
        + _ANSWER,
        dialect.name,
    ).removeprefix("WITH sqlml_both AS (SELECT 1), ")
    if known is not None:
        written = ", ".join([*_tables(known, dialect), written])
    told = [dialect.array([dialect.text(c.name) for c in (*numbers, *texts)])]
    place = dialect.operator("+", "k", "1")
    is_number = f"k < {len(numbers)}"
    value = f"CASE WHEN {is_number} THEN {metrics[0]} ELSE {metrics[1]} END"
    own = "".join(
        f"WHEN k = {k} THEN {judgement.of_columns[fold(c.name)]!r} "
        for k, c in enumerate((*numbers, *texts))
        if fold(c.name) in judgement.of_columns
    )
    threshold = f"CASE {own}WHEN {is_number} THEN {thresholds[0]!r} ELSE {thresholds[1]!r} END"
    threshold = f"CAST({threshold} AS DOUBLE)"
    metric = f"CASE WHEN {is_number} THEN '{metrics[0]}' ELSE '{metrics[1]}' END"
    nulls = dialect.call("abs", dialect.operator("-", "null_share_base", "null_share_study"))
    items = (
        f"{dialect.at(told[0], place)} AS input, {metric} AS metric, {value} AS value, "
        f"{threshold} AS threshold, coalesce({value} > {threshold}, false) OR coalesce({nulls} > "
        f"{thresholds[2]!r}, false) AS is_anomaly, psi, "
        "jensen_shannon_divergence, l_infinity, kolmogorov_smirnov, null_share_base, "
        "null_share_study, rows_base, rows_study"
    )
    before = f"(SELECT {items} FROM (WITH sqlml_both AS (SELECT "
    return before, f"), {written}) AS sqlml_drift)"


def _tables(known: Known, dialect: Dialect) -> list[str]:
    """What is known, as queries of a WITH."""
    k, n = {"k": "BIGINT"}, {"n": "DOUBLE"}
    tables: Mapping[str, tuple[Mapping[str, str], Sequence[Sequence[Any]]]] = {
        "known_numbers": ({**k, "p": "DOUBLE", **n}, known.numbers),
        "known_names": ({**k, "name": "VARCHAR", **n}, known.names),
        "known_others": ({**k, **n}, known.others),
        "known_shares": ({**k, "num_rows": "BIGINT", "nulls": "BIGINT"}, known.shares),
    }
    return [
        f"{name} AS {literal_table(columns, rows, dialect)}"
        for name, (columns, rows) in tables.items()
    ]


def _distributions(numbers: int, texts: int, bins: int, known: bool) -> dict[str, str]:
    """The queries that make `bins`: for each column `k` how many rows of each side are in a bin.

    Args:
        known: the first side are the rows of `known_numbers` and its like.
    """
    of_numbers = ", ".join(f"({k})" for k in range(max(numbers, 1)))
    of_texts = ", ".join(f"({k})" for k in range(numbers, numbers + max(texts, 1)))
    long_numbers = f"""
        SELECT k, 1 - side AS base, side AS study, array_extract(numbers, k + 1) AS p
        FROM sqlml_both CROSS JOIN (VALUES {of_numbers}) AS all_numbers(k) WHERE k < {numbers}
    """
    long_names = f"""
        SELECT k, 1 - side AS base, side AS study, array_extract(names, k - {numbers} + 1) AS name
        FROM sqlml_both CROSS JOIN (VALUES {of_texts}) AS all_names(k) WHERE k < {numbers + texts}
    """
    if known:
        long_numbers += " UNION ALL SELECT k, n AS base, 0 AS study, p FROM known_numbers"
        long_names = f"""
            SELECT seen.k, base, study, CASE WHEN seen.name IS NULL OR known_others.k IS NULL
                OR known_names.k IS NOT NULL THEN seen.name ELSE '' END AS name,
                known_others.k IS NOT NULL AND known_names.k IS NULL AS is_other
            FROM ({long_names}) AS seen
            LEFT JOIN known_names ON seen.k = known_names.k AND seen.name = known_names.name
            LEFT JOIN known_others ON seen.k = known_others.k
            UNION ALL SELECT k, n AS base, 0 AS study, name, false AS is_other FROM known_names
            UNION ALL
            SELECT k, n AS base, 0 AS study, '' AS name, true AS is_other FROM known_others
        """
    by_score = """
        SELECT k, p, CAST(sum(base) AS DOUBLE) AS pos, CAST(sum(study) AS DOUBLE) AS neg
        FROM long_numbers WHERE p IS NOT NULL GROUP BY k, p
    """
    cases = "".join(f"WHEN p <= e{n} THEN {n} " for n in range(1, bins))
    binned = f"""
        SELECT by_score.k, CASE {cases}ELSE {bins} END AS bin, sum(pos) AS base, sum(neg) AS study
        FROM {_KEYS.join("by_score", "edges", "LEFT JOIN")} GROUP BY by_score.k, bin
    """
    by_name = f"""
        SELECT k, name, CAST(sum(base) AS DOUBLE) AS base, CAST(sum(study) AS DOUBLE) AS study
        FROM long_names WHERE name IS NOT NULL GROUP BY k, name{", is_other" if known else ""}
    """
    upto = """
        SELECT k, pos, sum(pos) OVER ascending AS base_upto, sum(neg) OVER ascending AS study_upto,
            sum(pos) OVER whole AS base, sum(neg) OVER whole AS study
        FROM by_score
        WINDOW ascending AS (PARTITION BY k ORDER BY p ROWS UNBOUNDED PRECEDING),
            whole AS (PARTITION BY k)
    """
    distances = f"""
        SELECT k, max(abs(base_upto / nullif(base, 0) - study_upto / nullif(study, 0))) AS ks
        FROM upto{" WHERE pos > 0" if known else ""} GROUP BY k
    """
    return {
        "long_numbers": long_numbers,
        "long_names": long_names,
        "by_score": by_score,
        **dict(quantile_edges(_KEYS, bins, "pos", between=not known)),
        "binned": binned,
        "by_name": by_name,
        "upto": upto,
        "distances": distances,
        "all_bins": """
            SELECT k, base, study FROM binned UNION ALL SELECT k, base, study FROM by_name
        """,
        "in_bins": """
            SELECT k, base / nullif(sum(base) OVER whole, 0) AS p,
                study / nullif(sum(study) OVER whole, 0) AS q
            FROM all_bins WINDOW whole AS (PARTITION BY k)
        """,
        "measured": f"""
            SELECT k, max(abs(p - q)) AS l_infinity,
                fsum((greatest(p, {_FLOOR}) - greatest(q, {_FLOOR}))
                    * ln(greatest(p, {_FLOOR}) / greatest(q, {_FLOOR}))) AS psi,
                fsum((CASE WHEN p > 0 THEN p * ln(2 * p / (p + q)) ELSE 0 END
                    + CASE WHEN q > 0 THEN q * ln(2 * q / (p + q)) ELSE 0 END) / 2) AS js
            FROM in_bins WHERE p IS NOT NULL AND q IS NOT NULL GROUP BY k
        """,
        "shares": _shares(numbers, numbers + texts, known),
    }


def _shares(numbers: int, columns: int, known: bool) -> str:
    """How many rows and NULLs each column has on each side."""
    places = ", ".join(f"({k})" for k in range(columns))
    of_rows = f"""
        SELECT k, sum(1 - side) AS rows_base, sum(side) AS rows_study,
            sum(CASE WHEN side = 0 AND is_null THEN 1 ELSE 0 END) AS nulls_base,
            sum(CASE WHEN side = 1 AND is_null THEN 1 ELSE 0 END) AS nulls_study
        FROM (
            SELECT k, side, CASE WHEN k < {numbers} THEN array_extract(numbers, k + 1) IS NULL
                ELSE array_extract(names, k - {numbers} + 1) IS NULL END AS is_null
            FROM sqlml_both CROSS JOIN (VALUES {places}) AS all_columns(k)
        ) AS long_columns GROUP BY k
    """
    if not known:
        return of_rows
    return f"""
        SELECT known_shares.k, num_rows AS rows_base, nulls AS nulls_base,
            coalesce(rows_study, 0) AS rows_study, coalesce(nulls_study, 0) AS nulls_study
        FROM known_shares LEFT JOIN ({of_rows}) AS of_rows ON known_shares.k = of_rows.k
    """


_ANSWER = """
    SELECT shares.k, psi, js AS jensen_shannon_divergence, l_infinity, ks AS kolmogorov_smirnov,
        CAST(nulls_base AS DOUBLE) / nullif(rows_base, 0) AS null_share_base,
        CAST(nulls_study AS DOUBLE) / nullif(rows_study, 0) AS null_share_study,
        CAST(rows_base AS BIGINT) AS rows_base, CAST(rows_study AS BIGINT) AS rows_study
    FROM shares LEFT JOIN measured ON shares.k = measured.k
        LEFT JOIN distances ON shares.k = distances.k
    ORDER BY shares.k
"""
