"""The queries of ROC, precision-recall and calibration curves and of lift, over `sqlml_scored`.

Each compares one class with all others: the second of two classes, the one that the option `class`
names, or otherwise each of several classes, whose number is in `k`.
"""

from __future__ import annotations

import numpy as np

from sqlml.planner.table_functions.evaluated_model import Grouping
from sqlml.planner.table_functions.scored_rows import IS_EVALUATED, EvaluationQuery

Ctes = tuple[tuple[str, str], ...]


def build_scores(by: Grouping, k: int | None, classes: int) -> tuple[Grouping, Ctes]:
    """Return the groups and the queries that count the rows of each score.

    The last query is `by_score`, with the score `p`, and the weights `pos` of the class and `neg`
    of all others. Without `k`, the class is the second of two, or each of several, which the groups
    then include.
    """
    source, score, is_it = "sqlml_scored", "p1", "y = 1"
    if classes > 2 and k is not None:
        score, is_it = f"array_extract(ps, {k + 1})", f"y = {k}"
    elif classes > 2:
        by = Grouping((*by.keys, "k"), by.names)
        numbers = ", ".join(f"({n})" for n in range(classes))
        source = f"sqlml_scored CROSS JOIN (VALUES {numbers}) AS all_classes(k)"
        score, is_it = "array_extract(ps, k + 1)", "y = k"
    keys = by.columns
    scored = f"SELECT {keys} w, {is_it} AS is_it, {score} AS p FROM {source} WHERE {IS_EVALUATED}"
    grouped = f"""
        SELECT {keys} p, count(*) AS n,
            CAST(sum(CASE WHEN is_it THEN w ELSE 0 END) AS DOUBLE) AS pos,
            CAST(sum(CASE WHEN is_it THEN 0 ELSE w END) AS DOUBLE) AS neg
        FROM of_class {by.group_by_with("p")}
    """
    return by, (("of_class", scored), ("by_score", grouped))


def _count_rows_above(by: Grouping) -> str:
    """Return the query of the weighted rows with at least each score: `tps` and `fps`."""
    return f"""
        SELECT *, sum(pos) OVER descending AS tps, sum(neg) OVER descending AS fps
        FROM by_score WHERE pos + neg > 0
        WINDOW descending AS ({by.partition_by} ORDER BY p DESC ROWS UNBOUNDED PRECEDING)
    """


def _query_thresholds(by: Grouping, queries: Ctes, points: int, select: str) -> EvaluationQuery:
    """Return a query over `thinned`: at most `points` thresholds, evenly spaced; 0 for all."""
    condition = "true"
    if points:
        step = f"CAST({points} AS DOUBLE) / thresholds"
        condition = f"floor(place * {step}) > floor((place - 1) * {step}) OR place = thresholds"
    thinned = f"""
        SELECT * FROM (
            SELECT *, sum(pos) OVER whole AS all_pos, sum(neg) OVER whole AS all_neg,
                row_number() OVER falling AS place, count(*) OVER whole AS thresholds
            FROM above
            WINDOW whole AS ({by.partition_by}), falling AS ({by.partition_by} ORDER BY p DESC)
        ) AS numbered WHERE {condition}
    """
    ctes = (*queries, ("above", _count_rows_above(by)), ("thinned", thinned))
    return EvaluationQuery(ctes, select)


def build_roc_curve(by: Grouping, queries: Ctes, points: int) -> EvaluationQuery:
    """Return the query with a row per threshold, falling; the first is above all scores."""
    select = f"""
        SELECT {by.columns} p AS threshold, tps / nullif(all_pos, 0) AS recall,
            fps / nullif(all_neg, 0) AS false_positive_rate, tps AS true_positives,
            fps AS false_positives, all_neg - fps AS true_negatives,
            all_pos - tps AS false_negatives
        FROM thinned
        UNION ALL
        SELECT {by.columns} CAST('Infinity' AS DOUBLE), 0 / nullif(all_pos, 0),
            0 / nullif(all_neg, 0), 0, 0, all_neg, all_pos
        FROM thinned WHERE place = thresholds
        ORDER BY {by.columns} threshold DESC
    """
    return _query_thresholds(by, queries, points, select)


def build_pr_curve(by: Grouping, queries: Ctes, points: int) -> EvaluationQuery:
    """Return the query with a row per threshold, falling; the first has none and ends the curve."""
    select = f"""
        SELECT {by.columns} p AS threshold,
            CASE WHEN all_pos > 0 THEN tps / all_pos ELSE 1 END AS recall,
            tps / nullif(tps + fps, 0) AS precision
        FROM thinned
        UNION ALL
        SELECT {by.columns} NULL, 0, 1 FROM thinned WHERE place = thresholds
        ORDER BY {by.columns} threshold DESC NULLS FIRST
    """
    return _query_thresholds(by, queries, points, select)


def build_calibration_curve(
    by: Grouping, queries: Ctes, bins: int, quantiles: bool
) -> EvaluationQuery:
    """Return the query with a row per bin of probabilities, of equal width or number of rows."""
    edge_ctes: Ctes = ()
    edges = [repr(float(e)) for e in np.linspace(0, 1, bins + 1)[1:-1]]
    source = "by_score"
    if quantiles:
        edges = [f"e{n}" for n in range(1, bins)]
        edge_ctes = build_quantile_edges(by, bins)
        source = by.join("by_score", "edges")
    cases = "".join(f"WHEN p <= {edge} THEN {n} " for n, edge in enumerate(edges))
    bin_of = f"CASE {cases}ELSE {bins - 1} END" if edges else "0"
    binned = f"SELECT {by.columns_of('by_score')} p, pos, neg, {bin_of} AS bin FROM {source}"
    select = f"""
        SELECT {by.columns} CAST(bin + 1 AS INTEGER) AS bin, min(p) AS lowest, max(p) AS highest,
            fsum(p * (pos + neg)) / nullif(fsum(pos + neg), 0) AS mean_predicted,
            fsum(pos) / nullif(fsum(pos + neg), 0) AS fraction_of_positives,
            fsum(pos + neg) AS rows_in_bin
        FROM binned {by.group_by_with("bin")} ORDER BY {by.columns} bin
    """
    return EvaluationQuery((*queries, *edge_ctes, ("binned", binned)), select)


def build_quantile_edges(
    by: Grouping, bins: int, count: str = "n", interpolate: bool = True
) -> Ctes:
    """Return the queries of the inner edges `e1`, `e2`, ... of bins with equal numbers of rows.

    They are those of `numpy.percentile`, or the lower of two values without `interpolate`. `count`
    is the column of `by_score` with the number of rows that have the score.
    """
    ranked = f"""
        SELECT *, sum({count}) OVER ascending AS upto, sum({count}) OVER whole AS total
        FROM by_score
        WINDOW ascending AS ({by.partition_by} ORDER BY p ROWS UNBOUNDED PRECEDING),
            whole AS ({by.partition_by})
    """
    # The product and the quotient round as numpy.percentile does.
    shares = [float(q) for q in (np.linspace(0, 1, bins + 1) * 100 / 100)[1:-1]]
    bounds = ", ".join(
        f"min(CASE WHEN upto > floor((total - 1) * {q!r}) THEN p END) AS low{n}, "
        f"min(CASE WHEN upto > floor((total - 1) * {q!r}) + 1 THEN p END) AS high{n}, "
        f"min((total - 1) * {q!r} - floor((total - 1) * {q!r})) AS part{n}"
        for n, q in enumerate(shares, 1)
    )
    neighbours = f"SELECT {by.columns} {bounds} FROM ranked {by.group_by}"
    edge = "low{n}"
    if interpolate:
        edge = (
            "CASE WHEN high{n} IS NULL THEN low{n} "
            "WHEN part{n} < 0.5 THEN low{n} + (high{n} - low{n}) * part{n} "
            "ELSE high{n} - (high{n} - low{n}) * (1 - part{n}) END"
        )
    items = ", ".join(f"{edge.format(n=n)} AS e{n}" for n in range(1, bins))
    edges = f"SELECT {by.columns} {items} FROM neighbours"
    return (("ranked", ranked), ("neighbours", neighbours), ("edges", edges))


def build_lift(by: Grouping, queries: Ctes, bins: int) -> EvaluationQuery:
    """Return the query with a row for each of `bins` equal parts of the rows, by falling score.

    Rows of the same score stay together, in the part of the first of them.
    """
    ranked = f"""
        SELECT *, sum(pos + neg) OVER whole AS total, sum(pos) OVER whole AS all_pos,
            least(greatest(floor((tps + fps - pos - neg) * {bins}
                / nullif(sum(pos + neg) OVER whole, 0)), 0), {bins - 1}) AS part
        FROM above WHERE pos + neg > 0 WINDOW whole AS ({by.partition_by})
    """
    parts = f"""
        SELECT {by.columns} part, fsum(pos + neg) AS in_part, fsum(pos) AS pos, min(p) AS lowest,
            max(p) AS highest, max(tps + fps) AS upto, max(tps) AS pos_upto, max(total) AS total,
            max(all_pos) AS all_pos
        FROM ranked {by.group_by_with("part")}
    """
    share = "nullif(all_pos, 0)"
    select = f"""
        SELECT {by.columns} CAST(part + 1 AS INTEGER) AS bin, lowest, highest,
            in_part AS rows_in_bin, pos AS positives, pos / nullif(in_part, 0) AS response_rate,
            pos / nullif(in_part, 0) * total / {share} AS lift, upto / total AS cumulative_share,
            pos_upto / {share} AS cumulative_gain,
            pos_upto / upto * total / {share} AS cumulative_lift
        FROM parts ORDER BY {by.columns} bin
    """
    above = ("above", _count_rows_above(by))
    return EvaluationQuery((*queries, above, ("ranked", ranked), ("parts", parts)), select)
