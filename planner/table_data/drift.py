"""`drifted`: how much the columns of two tables differ, each as one distribution beside another.

Numbers are compared in bins with equally many rows of the first table, names one by one; the
Kolmogorov-Smirnov distance is that of all numbers. NULLs are no part of a distribution: their
shares stand beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from sqlml.dialects import Dialect
from sqlml.planner.evaluation.curves import quantile_edges
from sqlml.planner.evaluation.grouping import Grouping
from sqlml.planner.syntax.spelled import spelled
from sqlml.planner.table_data.column_kinds import DataColumn, listed

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


def drifted(
    columns: Sequence[DataColumn],
    names: tuple[str, str],
    thresholds: tuple[float, float, float],
    bins: int,
    dialect: Dialect,
) -> tuple[str, str, str]:
    """The text before, between and after the rows of two tables, with a row for each column.

    Args:
        columns: that both tables have. names: the metrics that decide, of numbers and of names.
        thresholds: above which a metric is an anomaly, likewise, and the difference of two shares
            of NULL.
    """
    numbers = [c for c in columns if c.kind == "number"]
    texts = [c for c in columns if c.kind != "number"]
    queries = {
        **_distributions(len(numbers), len(texts), bins),
        "shares": _shares(len(numbers), len(columns)),
    }
    written = spelled(
        "WITH sqlml_both AS (SELECT 1), "
        + ", ".join(f"{name} AS ({query})" for name, query in queries.items())
        + _ANSWER,
        dialect.name,
    ).removeprefix("WITH sqlml_both AS (SELECT 1), ")
    told = [dialect.array([dialect.text(c.name) for c in (*numbers, *texts)])]
    place = dialect.operator("+", "k", "1")
    is_number = f"k < {len(numbers)}"
    value = f"CASE WHEN {is_number} THEN {names[0]} ELSE {names[1]} END"
    threshold = f"CASE WHEN {is_number} THEN {thresholds[0]!r} ELSE {thresholds[1]!r} END"
    threshold = f"CAST({threshold} AS DOUBLE)"
    metric = f"CASE WHEN {is_number} THEN '{names[0]}' ELSE '{names[1]}' END"
    nulls = dialect.call("abs", dialect.operator("-", "null_share_base", "null_share_study"))
    items = (
        f"{dialect.at(told[0], place)} AS input, {metric} AS metric, {value} AS value, "
        f"{threshold} AS threshold, coalesce({value} > {threshold}, false) OR coalesce({nulls} > "
        f"{thresholds[2]!r}, false) AS is_anomaly, psi, "
        "jensen_shannon_divergence, l_infinity, kolmogorov_smirnov, null_share_base, "
        "null_share_study, rows_base, rows_study"
    )
    quote = dialect.quote_name
    picked = (
        f"{listed([quote(c.name) for c in numbers], 'DOUBLE', dialect)} AS numbers, "
        f"{listed([quote(c.name) for c in texts], 'VARCHAR', dialect)} AS names"
    )
    before = f"(SELECT {items} FROM (WITH sqlml_both AS (SELECT 0 AS side, {picked} FROM "
    return before, f" UNION ALL SELECT 1 AS side, {picked} FROM ", f"), {written}) AS sqlml_drift)"


def _distributions(numbers: int, texts: int, bins: int) -> dict[str, str]:
    """The queries that make `bins`: for each column `k` how many rows of each side are in a bin."""
    of_numbers = ", ".join(f"({k})" for k in range(max(numbers, 1)))
    of_texts = ", ".join(f"({k})" for k in range(numbers, numbers + max(texts, 1)))
    by_score = f"""
        SELECT k, p, CAST(sum(1 - side) AS DOUBLE) AS pos, CAST(sum(side) AS DOUBLE) AS neg FROM (
            SELECT k, side, array_extract(numbers, k + 1) AS p
            FROM sqlml_both CROSS JOIN (VALUES {of_numbers}) AS all_numbers(k)
            WHERE k < {numbers}
        ) AS long_numbers WHERE p IS NOT NULL GROUP BY k, p
    """
    cases = "".join(f"WHEN p <= e{n} THEN {n} " for n in range(1, bins))
    binned = f"""
        SELECT by_score.k, CASE {cases}ELSE {bins} END AS bin, sum(pos) AS base, sum(neg) AS study
        FROM {_KEYS.join("by_score", "edges", "LEFT JOIN")} GROUP BY by_score.k, bin
    """
    names = f"""
        SELECT k, name, CAST(sum(1 - side) AS DOUBLE) AS base, CAST(sum(side) AS DOUBLE) AS study
        FROM (
            SELECT k, side, array_extract(names, k - {numbers} + 1) AS name
            FROM sqlml_both CROSS JOIN (VALUES {of_texts}) AS all_names(k)
            WHERE k < {numbers + texts}
        ) AS long_names WHERE name IS NOT NULL GROUP BY k, name
    """
    upto = """
        SELECT k, sum(pos) OVER ascending AS base_upto, sum(neg) OVER ascending AS study_upto,
            sum(pos) OVER whole AS base, sum(neg) OVER whole AS study
        FROM by_score
        WINDOW ascending AS (PARTITION BY k ORDER BY p ROWS UNBOUNDED PRECEDING),
            whole AS (PARTITION BY k)
    """
    distances = """
        SELECT k, max(abs(base_upto / nullif(base, 0) - study_upto / nullif(study, 0))) AS ks
        FROM upto GROUP BY k
    """
    return {
        "by_score": by_score,
        **dict(quantile_edges(_KEYS, bins, "pos")),
        "binned": binned,
        "by_name": names,
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
    }


def _shares(numbers: int, columns: int) -> str:
    """How many rows and NULLs each column has on each side."""
    places = ", ".join(f"({k})" for k in range(columns))
    return f"""
        SELECT k, sum(1 - side) AS rows_base, sum(side) AS rows_study,
            sum(CASE WHEN side = 0 AND is_null THEN 1 ELSE 0 END) AS nulls_base,
            sum(CASE WHEN side = 1 AND is_null THEN 1 ELSE 0 END) AS nulls_study
        FROM (
            SELECT k, side, CASE WHEN k < {numbers} THEN array_extract(numbers, k + 1) IS NULL
                ELSE array_extract(names, k - {numbers} + 1) IS NULL END AS is_null
            FROM sqlml_both CROSS JOIN (VALUES {places}) AS all_columns(k)
        ) AS long_columns GROUP BY k
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
