"""`numbers`: what `ml_evaluate` says of a regressor, as scikit-learn defines it."""

from __future__ import annotations

from sqlml.planner.evaluation.answer import COUNTS, KNOWN, ROWS, Answer
from sqlml.planner.evaluation.grouping import Grouping

_EPSILON = "2.220446049250313e-16"
"""What a label of 0 counts as, of which an error is a share: that of float64."""


def _log1p(x: str) -> str:
    """ln(1 + x), exact for small x, too (Goldberg, What Every Computer Scientist Should Know About
    Floating-Point Arithmetic, theorem 4)."""
    return f"CASE WHEN 1 + {x} = 1 THEN {x} ELSE {x} * ln(1 + {x}) / (1 + {x} - 1) END"


_LOGS = f"{_log1p('y')} - {_log1p('hat')}"


def numbers(by: Grouping) -> Answer:
    """One row for each group."""
    means = f"""
        SELECT {by.columns} {COUNTS}, CAST(sum(w) FILTER (WHERE {KNOWN}) AS DOUBLE) AS total,
            fsum(w * y) FILTER (WHERE {KNOWN}) / nullif(sum(w) FILTER (WHERE {KNOWN}), 0) AS mean_y,
            fsum(w * (y - hat)) FILTER (WHERE {KNOWN})
                / nullif(sum(w) FILTER (WHERE {KNOWN}), 0) AS mean_error
        FROM sqlml_scored {by.group_by}
    """
    sums = f"""
        SELECT {by.of("sqlml_scored")} fsum(w * abs(y - hat)) AS absolute,
            fsum(w * (y - hat) * (y - hat)) AS squares, max(abs(y - hat)) AS most,
            fsum(w * (y - mean_y) * (y - mean_y)) AS spread,
            fsum(w * (y - hat - mean_error) * (y - hat - mean_error)) AS unexplained,
            fsum(w * abs(y - hat) / greatest(abs(y), {_EPSILON})) AS shares,
            fsum(CASE WHEN y > -1 AND hat > -1
                THEN w * ({_LOGS}) * ({_LOGS}) END) AS log_squares,
            min(y) AS least_y, max(y) AS most_y, min(hat) AS least_hat
        FROM {by.join("sqlml_scored", "means")} WHERE {KNOWN} {by.group_of("sqlml_scored")}
    """
    ranked = f"""
        SELECT {by.columns} abs(y - hat) AS error, sum(w) OVER ascending AS upto,
            sum(w) OVER whole AS total
        FROM sqlml_scored WHERE {KNOWN} AND w > 0
        WINDOW ascending AS ({by.partition_by} ORDER BY abs(y - hat) ROWS UNBOUNDED PRECEDING),
            whole AS ({by.partition_by})
    """
    medians = f"""
        SELECT {by.columns} (min(CASE WHEN 2 * upto >= total THEN error END)
            + min(CASE WHEN 2 * upto > total THEN error END)) / 2 AS median
        FROM ranked {by.group_by}
    """
    both = by.join("means", "sums", "LEFT JOIN")
    measured = f"""
        SELECT {by.of("means")} n, null_labels, null_predictions, total, absolute, squares, most,
            spread, unexplained, shares, log_squares, least_y, most_y, least_hat FROM {both}
    """
    answer = f"""
        SELECT {by.of("measured")} absolute / nullif(total, 0) AS mean_absolute_error,
            squares / nullif(total, 0) AS mean_squared_error,
            CASE WHEN least_y > -1 AND least_hat > -1
                THEN log_squares / nullif(total, 0) END AS mean_squared_log_error,
            median AS median_absolute_error, most AS max_error,
            CASE WHEN n < 2 OR NOT total > 0 THEN NULL
                WHEN spread > 0 AND least_y < most_y THEN 1 - squares / spread
                WHEN squares > 0 THEN 0 ELSE 1 END AS r2_score,
            CASE WHEN NOT total > 0 THEN NULL
                WHEN spread > 0 AND least_y < most_y THEN 1 - unexplained / spread
                WHEN unexplained > 0 THEN 0 WHEN n > 0 THEN 1 END AS explained_variance,
            shares / nullif(total, 0) AS mean_absolute_percentage_error, {ROWS}
        FROM {by.join("measured", "medians", "LEFT JOIN")} WHERE {by.has_rows}
    """
    queries = {
        "means": means,
        "sums": sums,
        "ranked": ranked,
        "medians": medians,
        "measured": measured,
    }
    return Answer(tuple(queries.items()), answer)
