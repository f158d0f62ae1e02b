"""`two_classes`, `classes`: what `ml_evaluate` says of a classifier, as scikit-learn defines it.

The areas under curves come from one sort of the rows by their probability: for each of them it says
how many of either side have at least that probability. Rows of one probability are one threshold.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlml.planner.evaluation.answer import COUNTS, KNOWN, ROWS, TOTALS, Answer
from sqlml.planner.evaluation.grouping import Grouping

_EPSILON = "2.220446049250313e-16"
"""The distance from 0 and 1 to which log_loss moves probabilities: that of float64."""


def clipped(p: str) -> str:
    """A probability as log_loss takes it; NULL for NULL."""
    return f"CASE WHEN ({p}) IS NOT NULL THEN least(greatest({p}, {_EPSILON}), 1 - {_EPSILON}) END"


def _ranked(by: Grouping, source: str, p: str, pos: str, neg: str) -> str:
    """The rows, each with how many of each side have at least its score: `tps` and `fps`.

    Args:
        pos, neg: a row's weight on one side, or 0.
    """
    return f"""
        SELECT *, CAST(sum({pos}) OVER falling AS DOUBLE) AS tps,
            CAST(sum({neg}) OVER falling AS DOUBLE) AS fps
        FROM {source} WINDOW falling AS ({by.partition_by} ORDER BY {p} DESC)
    """


def _areas(p: str, pos: str, neg: str) -> str:
    """Of `_ranked`: the areas under the ROC curve and under steps of precision, not yet divided.

    Of a row of one side, half of the other side's rows with the same score lie above it. So the
    area is the mean of the pairs in which the first is at least as high, and those in which it is
    higher: all but those in which the other is at least as high.
    """
    at_least, others = f"fsum({neg} * tps)", f"fsum({pos} * fps)"
    steps = f"CASE WHEN {pos} > 0 THEN {pos} * (tps / (tps + fps)) ELSE 0 END"
    return f"""
        ({at_least} + fsum({pos}) * fsum({neg}) - {others}) / 2 AS area,
        fsum({steps}) AS precisions, count({p}) AS scores
    """


_BOTH = "pos > 0 AND neg > 0 AND scores > 0"
_PRECISION = "CASE WHEN tp + fp > 0 THEN tp / (tp + fp) WHEN pos + neg > 0 THEN 0 END"
_RECALL = "CASE WHEN pos > 0 THEN tp / pos WHEN pos + neg > 0 THEN 0 END"
_F1 = "CASE WHEN tp + fp + pos > 0 THEN 2 * tp / (tp + fp + pos) WHEN pos + neg > 0 THEN 0 END"
_ROC = f"CASE WHEN {_BOTH} THEN area / (pos * neg) END"
_STEPS = (
    "CASE WHEN scores > 0 AND pos > 0 THEN precisions / pos WHEN scores > 0 AND neg > 0 THEN 0 END"
)


def two_classes(by: Grouping, hit: str) -> Answer:
    """One row for each group, of the second class.

    Args:
        hit: whether the second class is predicted, a condition on `sqlml_scored`.
    """
    pos, neg = (f"CASE WHEN {KNOWN} AND y = {k} THEN w ELSE 0 END" for k in (1, 0))
    tp, fp = (f"CASE WHEN {KNOWN} AND y = {k} AND {hit} THEN w ELSE 0 END" for k in (1, 0))
    of_label = "CASE WHEN p0 IS NULL THEN NULL WHEN y = 1 THEN p1 ELSE p0 END"
    totals = f"""
        SELECT {by.columns} {COUNTS}, fsum({pos}) AS pos, fsum({neg}) AS neg, fsum({tp}) AS tp,
            fsum({fp}) AS fp, fsum(w * ln({clipped(of_label)})) FILTER (WHERE {KNOWN}) AS logs,
            fsum(w * ((y - p1) * (y - p1) + (1 - y - p0) * (1 - y - p0)))
                FILTER (WHERE {KNOWN}) AS squares, {_areas("p1", pos, neg)}
        FROM ranked {by.group_by}
    """
    answer = f"""
        SELECT {by.columns} {_PRECISION} AS precision, {_RECALL} AS recall,
            (tp + neg - fp) / nullif(pos + neg, 0) AS accuracy, {_F1} AS f1_score,
            -logs / nullif(pos + neg, 0) AS log_loss, {_ROC} AS roc_auc,
            {_STEPS} AS average_precision, squares / 2 / nullif(pos + neg, 0) AS brier_score, {ROWS}
        FROM totals WHERE {by.has_rows}
    """
    ranked = _ranked(by, "sqlml_scored", "p1", pos, neg)
    return Answer((("ranked", ranked), ("totals", totals)), answer)


def classes(by: Grouping, counts: Sequence[int], per_class: bool, probabilities: bool) -> Answer:
    """One row for each group: means over the classes, each against all others.

    Args:
        counts: how many classes each target has. per_class: further rows for each class, whose
            number is in `k`. probabilities: whether `ps` holds those, or else other scores.
    """
    p_of_label = (
        "array_extract(ps, CAST(y + 1 AS INTEGER))" if probabilities else "CAST(NULL AS DOUBLE)"
    )
    each = Grouping((*by.keys, "k"), (*by.names, "k"))
    pairs = f"""
        SELECT {by.columns} y, hat, {COUNTS},
            CAST(coalesce(sum(w) FILTER (WHERE {KNOWN}), 0) AS DOUBLE) AS w,
            fsum(w * ln({clipped(p_of_label)})) FILTER (WHERE {KNOWN}) AS logs
        FROM sqlml_scored {by.grouped_by("y", "hat")}
    """
    totals = f"""
        SELECT {by.columns} {TOTALS}, fsum(w) AS w, fsum(logs) AS logs,
            fsum(CASE WHEN y = hat THEN w ELSE 0 END) AS hits
        FROM pairs {by.group_by}
    """
    counted = f"""
        SELECT {each.columns} fsum(pos) AS pos, fsum(tp) AS tp, fsum(predicted) - fsum(tp) AS fp,
            sum(n) AS n
        FROM (
            SELECT {by.columns} y AS k, n, w AS pos, CASE WHEN y = hat THEN w ELSE 0 END AS tp,
                0 AS predicted FROM pairs WHERE {KNOWN}
            UNION ALL
            SELECT {by.columns} hat AS k, 0 AS n, 0 AS pos, 0 AS tp, w AS predicted
            FROM pairs WHERE {KNOWN}
        ) AS both_sides
        {each.group_by}
    """
    numbers = ", ".join(f"({k})" for k in range(max(counts)))
    count = str(counts[0])
    if len(counts) > 1:
        cases = " ".join(f"WHEN {t} THEN {n}" for t, n in enumerate(counts))
        count = f"CASE t {cases} END"
    of_classes = f"""
        SELECT *, array_extract(ps, k + 1) AS p
        FROM sqlml_scored CROSS JOIN (VALUES {numbers}) AS all_classes(k)
        WHERE {KNOWN} AND k < {count}
    """
    pos, neg = "CASE WHEN y = k THEN w ELSE 0 END", "CASE WHEN y = k THEN 0 ELSE w END"
    miss = "CASE WHEN y = k THEN 1 - p ELSE p END"
    curves = f"""
        SELECT {each.columns} fsum({pos}) AS pos, fsum({neg}) AS neg,
            {f"fsum(w * ({miss}) * ({miss}))" if probabilities else "CAST(NULL AS DOUBLE)"}
            AS squares, {_areas("p", pos, neg)}
        FROM ranked {each.group_by}
    """
    of_class = f"""
        SELECT {each.of("curves")} coalesce(tp, 0) AS tp, coalesce(fp, 0) AS fp, curves.pos, neg,
            counted.k IS NOT NULL AS is_seen, coalesce(counted.n, 0) AS n, squares, area,
            precisions, scores
        FROM {each.join("curves", "counted", "LEFT JOIN")}
    """

    def over_classes(metric: str, of_all: str) -> str:
        """The mean over the classes; of a target with two classes the second's."""
        if 2 not in counts:
            return of_all
        return (
            f"CASE WHEN {count} = 2 THEN max(CASE WHEN k = 1 THEN {metric} END) ELSE {of_all} END"
        )

    def seen(metric: str) -> str:
        return over_classes(metric, f"avg(CASE WHEN is_seen THEN {metric} END)")

    def all_known(metric: str) -> str:
        of_all = f"CASE WHEN count({metric}) = {count} THEN avg({metric}) END"
        return over_classes(metric, of_all)

    areas = f"""
        SELECT {by.columns} {seen(_PRECISION)} AS precision, {seen(_RECALL)} AS recall,
            {seen(_F1)} AS f1_score, {all_known(_ROC)} AS roc_auc,
            {all_known(_STEPS)} AS average_precision,
            fsum(squares) / CASE WHEN {count} = 2 THEN 2 ELSE 1 END AS squares
        FROM of_class {by.group_by}
    """
    answer = f"""
        SELECT {by.of("totals")} CAST(NULL AS INTEGER) AS k, precision, recall,
            hits / nullif(w, 0) AS accuracy, f1_score, -logs / nullif(w, 0) AS log_loss, roc_auc,
            average_precision, squares / nullif(w, 0) AS brier_score, {ROWS}
        FROM {by.join("totals", "areas", "LEFT JOIN")} WHERE {by.has_rows}
    """
    queries = {
        "pairs": pairs,
        "totals": totals,
        "counted": counted,
        "of_classes": of_classes,
        "ranked": _ranked(each, "of_classes", "p", pos, neg),
        "curves": curves,
        "of_class": of_class,
        "areas": areas,
    }
    if per_class:
        answer += f"""
            UNION ALL
            SELECT {by.columns} k, {_PRECISION}, {_RECALL}, (tp + neg - fp) / nullif(pos + neg, 0),
                {_F1}, NULL, {_ROC}, {_STEPS}, squares / nullif(pos + neg, 0),
                CAST(n AS BIGINT), NULL, NULL
            FROM of_class ORDER BY {by.columns} k NULLS FIRST
        """
    return Answer(tuple(queries.items()), answer)
