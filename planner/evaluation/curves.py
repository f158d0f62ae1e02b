"""`roc_curve`, `pr_curve`, `calibration_curve`, `lift`: tables that can be plotted as they are.

Each looks at one class against all others: of two classes the second, of more the one that the
option `class` names, or each in turn (its number is in `k`, then).
"""

from __future__ import annotations

import numpy as np

from sqlml.planner.evaluation.answer import KNOWN, Answer
from sqlml.planner.evaluation.evaluated_model import Grouping

Queries = tuple[tuple[str, str], ...]


def by_score(by: Grouping, k: int | None, classes: int) -> tuple[Grouping, Queries]:
    """The rows of each group by their score, of a class: `p`, `pos`, `neg`.

    Args:
        k: the class that is looked at; None: all of them, as keys of groups.
        classes: how many there are; of 2 the second is looked at.

    Returns:
        The keys, and the queries, of which `by_score` is the last.
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
    scored = f"SELECT {keys} w, {is_it} AS is_it, {score} AS p FROM {source} WHERE {KNOWN}"
    grouped = f"""
        SELECT {keys} p, count(*) AS n,
            CAST(sum(CASE WHEN is_it THEN w ELSE 0 END) AS DOUBLE) AS pos,
            CAST(sum(CASE WHEN is_it THEN 0 ELSE w END) AS DOUBLE) AS neg
        FROM of_class {by.grouped_by("p")}
    """
    return by, (("of_class", scored), ("by_score", grouped))


def _above(by: Grouping) -> str:
    """Return the query that counts the rows of each group with at least a score, from `by_score`
    with `p`, `pos`, `neg`; scores of rows without weight are none."""
    return f"""
        SELECT *, sum(pos) OVER descending AS tps, sum(neg) OVER descending AS fps
        FROM by_score WHERE pos + neg > 0
        WINDOW descending AS ({by.partition_by} ORDER BY p DESC ROWS UNBOUNDED PRECEDING)
    """


def _thinned(by: Grouping, points: int) -> str:
    """The rows of `above`, at most so many for each group; 0: all. `p` falls."""
    kept = "true"
    if points:
        step = f"CAST({points} AS DOUBLE) / thresholds"
        kept = f"floor(place * {step}) > floor((place - 1) * {step}) OR place = thresholds"
    return f"""
        SELECT * FROM (
            SELECT *, sum(pos) OVER whole AS all_pos, sum(neg) OVER whole AS all_neg,
                row_number() OVER falling AS place, count(*) OVER whole AS thresholds
            FROM above
            WINDOW whole AS ({by.partition_by}), falling AS ({by.partition_by} ORDER BY p DESC)
        ) AS numbered WHERE {kept}
    """


def roc_curve(by: Grouping, queries: Queries, points: int) -> Answer:
    """A row for each threshold from the highest; the first is above all scores."""
    answer = f"""
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
    return Answer((*queries, ("above", _above(by)), ("thinned", _thinned(by, points))), answer)


def pr_curve(by: Grouping, queries: Queries, points: int) -> Answer:
    """A row for each threshold from the highest; the first, without one, is the curve's end. All
    of no positive rows are found."""
    answer = f"""
        SELECT {by.columns} p AS threshold,
            CASE WHEN all_pos > 0 THEN tps / all_pos ELSE 1 END AS recall,
            tps / nullif(tps + fps, 0) AS precision
        FROM thinned
        UNION ALL
        SELECT {by.columns} NULL, 0, 1 FROM thinned WHERE place = thresholds
        ORDER BY {by.columns} threshold DESC NULLS FIRST
    """
    return Answer((*queries, ("above", _above(by)), ("thinned", _thinned(by, points))), answer)


def calibration_curve(by: Grouping, queries: Queries, bins: int, quantiles: bool) -> Answer:
    """A row for each bin of probabilities that has rows, from the lowest.

    Args:
        quantiles: bins of as many rows each; else of equal width.
    """
    more: Queries = ()
    edges = [repr(float(e)) for e in np.linspace(0, 1, bins + 1)[1:-1]]
    source = "by_score"
    if quantiles:
        edges = [f"e{n}" for n in range(1, bins)]
        more = quantile_edges(by, bins)
        source = by.join("by_score", "edges")
    cases = "".join(f"WHEN p <= {edge} THEN {n} " for n, edge in enumerate(edges))
    bin_of = f"CASE {cases}ELSE {bins - 1} END" if edges else "0"
    binned = f"SELECT {by.of('by_score')} p, pos, neg, {bin_of} AS bin FROM {source}"
    answer = f"""
        SELECT {by.columns} CAST(bin + 1 AS INTEGER) AS bin, min(p) AS lowest, max(p) AS highest,
            fsum(p * (pos + neg)) / nullif(fsum(pos + neg), 0) AS mean_predicted,
            fsum(pos) / nullif(fsum(pos + neg), 0) AS fraction_of_positives,
            fsum(pos + neg) AS rows_in_bin
        FROM binned {by.grouped_by("bin")} ORDER BY {by.columns} bin
    """
    return Answer((*queries, *more, ("binned", binned)), answer)


def quantile_edges(by: Grouping, bins: int, count: str = "n", between: bool = True) -> Queries:
    """The inner edges `e1`, `e2`, .. of bins with equal numbers of rows, as numpy's percentile
    finds them; the last of the queries is `edges`.

    Args:
        count: how many rows a row of `by_score` stands for.
        between: an edge may lie between two values; otherwise it is the lower one.
    """
    ranked = f"""
        SELECT *, sum({count}) OVER ascending AS upto, sum({count}) OVER whole AS total
        FROM by_score
        WINDOW ascending AS ({by.partition_by} ORDER BY p ROWS UNBOUNDED PRECEDING),
            whole AS ({by.partition_by})
    """
    shares = [float(q) for q in (np.linspace(0, 1, bins + 1) * 100 / 100)[1:-1]]  # of percentiles
    low = ", ".join(
        f"min(CASE WHEN upto > floor((total - 1) * {q!r}) THEN p END) AS low{n}, "
        f"min(CASE WHEN upto > floor((total - 1) * {q!r}) + 1 THEN p END) AS high{n}, "
        f"min((total - 1) * {q!r} - floor((total - 1) * {q!r})) AS part{n}"
        for n, q in enumerate(shares, 1)
    )
    neighbours = f"SELECT {by.columns} {low} FROM ranked {by.group_by}"
    interpolated = ", ".join(
        f"CASE WHEN high{n} IS NULL THEN low{n} "
        f"WHEN part{n} < 0.5 THEN low{n} + (high{n} - low{n}) * part{n} "
        f"ELSE high{n} - (high{n} - low{n}) * (1 - part{n}) END AS e{n}"
        for n in range(1, bins)
    )
    lower = ", ".join(f"low{n} AS e{n}" for n in range(1, bins))
    edges = f"SELECT {by.columns} {interpolated if between else lower} FROM neighbours"
    return (("ranked", ranked), ("neighbours", neighbours), ("edges", edges))


def lift(by: Grouping, queries: Queries, bins: int) -> Answer:
    """A row for each of `bins` parts of the rows, from those with the highest scores.

    Rows of one score stay together, in the part in which the first of them falls.
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
        FROM ranked {by.grouped_by("part")}
    """
    share = "nullif(all_pos, 0)"
    answer = f"""
        SELECT {by.columns} CAST(part + 1 AS INTEGER) AS bin, lowest, highest,
            in_part AS rows_in_bin, pos AS positives, pos / nullif(in_part, 0) AS response_rate,
            pos / nullif(in_part, 0) * total / {share} AS lift, upto / total AS cumulative_share,
            pos_upto / {share} AS cumulative_gain,
            pos_upto / upto * total / {share} AS cumulative_lift
        FROM parts ORDER BY {by.columns} bin
    """
    return Answer((*queries, ("above", _above(by)), ("ranked", ranked), ("parts", parts)), answer)
