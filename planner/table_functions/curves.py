"""The queries of ROC, precision-recall and calibration curves and of lift, over `sqlml_scored`.

Each curve compares a positive class with all others. The positive class is the second of two
classes, or the class that the option `class` names. Otherwise each class has a curve, with the
class number in `k`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sqlml.planner.table_functions.evaluated_model import Grouping
from sqlml.planner.table_functions.scored_rows import IS_EVALUATED, EvaluationQuery

Ctes = tuple[tuple[str, str], ...]
"""Pairs of the name of a CTE and its query."""


def build_score_ctes(
    grouping: Grouping, class_number: int | None, class_count: int
) -> tuple[Grouping, Ctes]:
    """Return the grouping of a curve, and the queries that count the rows of each score.

    The last query is `by_score`. It has the score `p`, the total weight `pos` of the rows of the
    positive class, and the total weight `neg` of all other rows. If `class_number` is None, the
    positive class is the second of two classes, or each of several classes in turn. In that last
    case, the grouping includes the class number `k`.
    """
    source, score, is_positive = "sqlml_scored", "p1", "y = 1"
    if class_count > 2 and class_number is not None:
        score, is_positive = f"array_extract(ps, {class_number + 1})", f"y = {class_number}"
    elif class_count > 2:
        grouping = Grouping((*grouping.keys, "k"), grouping.names)
        class_rows = ", ".join(f"({n})" for n in range(class_count))
        source = f"sqlml_scored CROSS JOIN (VALUES {class_rows}) AS all_classes(k)"
        score, is_positive = "array_extract(ps, k + 1)", "y = k"
    key_items = grouping.columns
    items = f"{key_items} w, {is_positive} AS is_positive, {score} AS p"
    of_class = f"SELECT {items} FROM {source} WHERE {IS_EVALUATED}"
    by_score = f"""
        SELECT {key_items} p, count(*) AS n,
            CAST(sum(CASE WHEN is_positive THEN w ELSE 0 END) AS DOUBLE) AS pos,
            CAST(sum(CASE WHEN is_positive THEN 0 ELSE w END) AS DOUBLE) AS neg
        FROM of_class {grouping.group_by_with("p")}
    """
    return grouping, (("of_class", of_class), ("by_score", by_score))


def _build_cumulative_counts(grouping: Grouping) -> str:
    """Build a query that adds the columns `tps` and `fps` to the query `by_score`.

    The columns are the total weights of the positive and negative rows that score at least as high.
    """
    return f"""
        SELECT *, sum(pos) OVER descending AS tps, sum(neg) OVER descending AS fps
        FROM by_score WHERE pos + neg > 0
        WINDOW descending AS ({grouping.partition_by} ORDER BY p DESC ROWS UNBOUNDED PRECEDING)
    """


def _build_threshold_query(
    grouping: Grouping, score_ctes: Ctes, max_points: int, select: str
) -> EvaluationQuery:
    """Build the query of a curve, whose final `select` reads thresholds from the CTE `thinned`.

    `thinned` has at most `max_points` evenly spaced thresholds per group, or all thresholds if
    `max_points` is 0.
    """
    condition = "true"
    if max_points:
        step = f"CAST({max_points} AS DOUBLE) / thresholds"
        condition = f"floor(place * {step}) > floor((place - 1) * {step}) OR place = thresholds"
    thinned = f"""
        SELECT * FROM (
            SELECT *, sum(pos) OVER whole AS all_pos, sum(neg) OVER whole AS all_neg,
                row_number() OVER falling AS place, count(*) OVER whole AS thresholds
            FROM above
            WINDOW whole AS ({grouping.partition_by}),
                falling AS ({grouping.partition_by} ORDER BY p DESC)
        ) AS numbered WHERE {condition}
    """
    ctes = (*score_ctes, ("above", _build_cumulative_counts(grouping)), ("thinned", thinned))
    return EvaluationQuery(ctes, select)


def build_roc_curve(grouping: Grouping, score_ctes: Ctes, max_points: int) -> EvaluationQuery:
    """Build the query of a ROC curve, with a row per threshold, from infinity downwards."""
    select = f"""
        SELECT {grouping.columns} p AS threshold, tps / nullif(all_pos, 0) AS recall,
            fps / nullif(all_neg, 0) AS false_positive_rate, tps AS true_positives,
            fps AS false_positives, all_neg - fps AS true_negatives,
            all_pos - tps AS false_negatives
        FROM thinned
        UNION ALL
        SELECT {grouping.columns} CAST('Infinity' AS DOUBLE), 0 / nullif(all_pos, 0),
            0 / nullif(all_neg, 0), 0, 0, all_neg, all_pos
        FROM thinned WHERE place = thresholds
        ORDER BY {grouping.columns} threshold DESC
    """
    return _build_threshold_query(grouping, score_ctes, max_points, select)


def build_roc_points(
    grouping: Grouping, score_ctes: Ctes, thresholds: Sequence[float]
) -> EvaluationQuery:
    """Build the query of the points of a ROC curve at the given thresholds, in falling order."""
    rows = ", ".join(f"(CAST('{threshold!r}' AS DOUBLE))" for threshold in thresholds)
    counted = f"""
        SELECT {grouping.columns} threshold, sum(pos) AS all_pos, sum(neg) AS all_neg,
            sum(CASE WHEN p >= threshold THEN pos ELSE 0 END) AS tps,
            sum(CASE WHEN p >= threshold THEN neg ELSE 0 END) AS fps
        FROM by_score CROSS JOIN (VALUES {rows}) AS limits(threshold)
        {grouping.group_by_with("threshold")}
    """
    select = f"""
        SELECT {grouping.columns} threshold, tps / nullif(all_pos, 0) AS recall,
            fps / nullif(all_neg, 0) AS false_positive_rate, tps AS true_positives,
            fps AS false_positives, all_neg - fps AS true_negatives,
            all_pos - tps AS false_negatives
        FROM counted ORDER BY {grouping.columns} threshold DESC
    """
    return EvaluationQuery((*score_ctes, ("counted", counted)), select)


def build_pr_curve(grouping: Grouping, score_ctes: Ctes, max_points: int) -> EvaluationQuery:
    """Build the query of a precision-recall curve, with a row per threshold in falling order.

    The first row is the end of the curve at a recall of 0. The threshold of this row is NULL.
    """
    select = f"""
        SELECT {grouping.columns} p AS threshold,
            CASE WHEN all_pos > 0 THEN tps / all_pos ELSE 1 END AS recall,
            tps / nullif(tps + fps, 0) AS precision
        FROM thinned
        UNION ALL
        SELECT {grouping.columns} NULL, 0, 1 FROM thinned WHERE place = thresholds
        ORDER BY {grouping.columns} threshold DESC NULLS FIRST
    """
    return _build_threshold_query(grouping, score_ctes, max_points, select)


def build_calibration_curve(
    grouping: Grouping, score_ctes: Ctes, bin_count: int, by_quantiles: bool
) -> EvaluationQuery:
    """Build the calibration query, with bins of equal width, or equal size if `by_quantiles`."""
    edge_ctes: Ctes = ()
    edges = [repr(float(e)) for e in np.linspace(0, 1, bin_count + 1)[1:-1]]
    source = "by_score"
    if by_quantiles:
        edges = [f"e{n}" for n in range(1, bin_count)]
        edge_ctes = build_quantile_edges(grouping, bin_count)
        source = grouping.join("by_score", "edges")
    cases = "".join(f"WHEN p <= {edge} THEN {n} " for n, edge in enumerate(edges))
    bin_index = f"CASE {cases}ELSE {bin_count - 1} END" if edges else "0"
    items = f"{grouping.columns_of('by_score')} p, pos, neg, {bin_index} AS bin"
    binned = f"SELECT {items} FROM {source}"
    select = f"""
        SELECT {grouping.columns} CAST(bin + 1 AS INTEGER) AS bin,
            min(p) AS lowest, max(p) AS highest,
            fsum(p * (pos + neg)) / nullif(fsum(pos + neg), 0) AS mean_predicted,
            fsum(pos) / nullif(fsum(pos + neg), 0) AS fraction_of_positives,
            fsum(pos + neg) AS rows_in_bin
        FROM binned {grouping.group_by_with("bin")} ORDER BY {grouping.columns} bin
    """
    return EvaluationQuery((*score_ctes, *edge_ctes, ("binned", binned)), select)


def build_quantile_edges(
    grouping: Grouping, bin_count: int, count_column: str = "n", interpolate: bool = True
) -> Ctes:
    """Build the queries for the inner edges `e1`, `e2`, ... of bins with equal numbers of rows.

    If `interpolate` is true, an edge equals the result of `numpy.percentile`. Otherwise it is the
    lower of the two neighbouring values. `count_column` is the column of `by_score` with the number
    of rows of each score.
    """
    ranked = f"""
        SELECT *, sum({count_column}) OVER ascending AS upto,
            sum({count_column}) OVER whole AS total FROM by_score
        WINDOW ascending AS ({grouping.partition_by} ORDER BY p ROWS UNBOUNDED PRECEDING),
            whole AS ({grouping.partition_by})
    """
    # The product and the quotient round the quantiles as numpy.percentile does.
    quantiles = [float(q) for q in (np.linspace(0, 1, bin_count + 1) * 100 / 100)[1:-1]]
    neighbour_items = ", ".join(
        f"min(CASE WHEN upto > floor((total - 1) * {q!r}) THEN p END) AS low{n}, "
        f"min(CASE WHEN upto > floor((total - 1) * {q!r}) + 1 THEN p END) AS high{n}, "
        f"min((total - 1) * {q!r} - floor((total - 1) * {q!r})) AS part{n}"
        for n, q in enumerate(quantiles, 1)
    )
    neighbours = f"SELECT {grouping.columns} {neighbour_items} FROM ranked {grouping.group_by}"
    edge_template = "low{n}"
    if interpolate:
        edge_template = (
            "CASE WHEN high{n} IS NULL THEN low{n} "
            "WHEN part{n} < 0.5 THEN low{n} + (high{n} - low{n}) * part{n} "
            "ELSE high{n} - (high{n} - low{n}) * (1 - part{n}) END"
        )
    items = ", ".join(f"{edge_template.format(n=n)} AS e{n}" for n in range(1, bin_count))
    edges = f"SELECT {grouping.columns} {items} FROM neighbours"
    return (("ranked", ranked), ("neighbours", neighbours), ("edges", edges))


def build_lift(grouping: Grouping, score_ctes: Ctes, bin_count: int) -> EvaluationQuery:
    """Build the query that sorts rows by falling score and splits them into bins of equal size.

    The result has a row for each of `bin_count` bins. Rows with equal scores are all in the bin of
    the first of these rows.
    """
    ranked = f"""
        SELECT *, sum(pos + neg) OVER whole AS total, sum(pos) OVER whole AS all_pos,
            least(greatest(floor((tps + fps - pos - neg) * {bin_count}
                / nullif(sum(pos + neg) OVER whole, 0)), 0), {bin_count - 1}) AS part
        FROM above WHERE pos + neg > 0 WINDOW whole AS ({grouping.partition_by})
    """
    parts = f"""
        SELECT {grouping.columns} part, fsum(pos + neg) AS in_part, fsum(pos) AS pos,
            min(p) AS lowest, max(p) AS highest, max(tps + fps) AS upto, max(tps) AS pos_upto,
            max(total) AS total, max(all_pos) AS all_pos
        FROM ranked {grouping.group_by_with("part")}
    """
    positives = "nullif(all_pos, 0)"
    select = f"""
        SELECT {grouping.columns} CAST(part + 1 AS INTEGER) AS bin, lowest, highest,
            in_part AS rows_in_bin, pos AS positives, pos / nullif(in_part, 0) AS response_rate,
            pos / nullif(in_part, 0) * total / {positives} AS lift,
            upto / total AS cumulative_share, pos_upto / {positives} AS cumulative_gain,
            pos_upto / upto * total / {positives} AS cumulative_lift
        FROM parts ORDER BY {grouping.columns} bin
    """
    above_cte = ("above", _build_cumulative_counts(grouping))
    return EvaluationQuery((*score_ctes, above_cte, ("ranked", ranked), ("parts", parts)), select)
