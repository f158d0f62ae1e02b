"""`two_classes`, `classes`: what `ml_evaluate` says of a classifier, as scikit-learn defines it.

The areas under curves come from one sort of the rows by their probability: for each of them it says
how many of either side have at least that probability. Rows of one probability are one threshold.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlml.planner.evaluation.answer import COUNTS, KNOWN, ROWS, TOTALS, Answer
from sqlml.planner.evaluation.evaluated_model import Grouping

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


# `numbers`: what `ml_evaluate` says of a regressor, as scikit-learn defines it.


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


# `clusters`: what `ml_evaluate` says of a clustering: how compact it is, and, where rows have
# labels, how well it finds them again, as scikit-learn defines it.


COMPACT = ("mean_squared_distance",)
MATCHES = ("adjusted_rand_score", "homogeneity", "completeness", "v_measure")


def clusters(by: Grouping, labelled: bool) -> Answer:
    """One row for each group; `labelled`: `y` is a label, as a text."""
    known = KNOWN if labelled else "hat IS NOT NULL"
    null_labels = "sum(CASE WHEN y IS NULL THEN 1 ELSE 0 END)" if labelled else "0"
    totals = f"""
        SELECT {by.columns} sum(CASE WHEN {known} THEN 1 ELSE 0 END) AS n,
            {null_labels} AS null_labels,
            sum(CASE WHEN hat IS NULL THEN 1 ELSE 0 END) AS null_predictions,
            count(DISTINCT hat) AS clusters,
            fsum(w * distance * distance) FILTER (WHERE {known})
                / nullif(sum(w) FILTER (WHERE {known}), 0) AS mean_squared_distance
        FROM sqlml_scored {by.group_by}
    """
    rows = (
        "CAST(n AS BIGINT) AS rows_evaluated, CAST(null_labels AS BIGINT) AS null_labels, "
        "CAST(null_predictions AS BIGINT) AS null_predictions, clusters"
    )
    if not labelled:
        answer = (
            f"SELECT {by.columns} mean_squared_distance, {rows} FROM totals WHERE {by.has_rows}"
        )
        return Answer((("totals", totals),), answer)
    pairs = f"""
        SELECT {by.columns} y, hat, CAST(count(*) AS DOUBLE) AS both
        FROM sqlml_scored WHERE {known} {by.grouped_by("y", "hat")}
    """
    of_y = Grouping((*by.keys, "y"))
    of_hat = Grouping((*by.keys, "hat"))
    beside = f"""
        SELECT *, sum(both) OVER ({of_y.partition_by}) AS of_label,
            sum(both) OVER ({of_hat.partition_by}) AS of_cluster,
            sum(both) OVER ({by.partition_by}) AS total
        FROM pairs
    """
    measures = f"""
        SELECT {by.columns} max(total) AS total, fsum(both * both) AS squares,
            fsum(both * of_label) AS label_squares, fsum(both * of_cluster) AS cluster_squares,
            fsum(both / total * (ln(both) + ln(total) - ln(of_label) - ln(of_cluster))) AS shared,
            -fsum(both / total * ln(of_label / total)) AS label_entropy,
            -fsum(both / total * ln(of_cluster / total)) AS cluster_entropy
        FROM beside {by.group_by}
    """
    # the pairs of rows that are together in both, in the labels alone, in the clusters alone,
    # and in neither
    counted = f"""
        SELECT {by.columns} squares - total AS tp, label_squares - squares AS fn,
            cluster_squares - squares AS fp,
            total * total - label_squares - cluster_squares + squares AS tn,
            CASE WHEN label_entropy > 0 THEN shared / label_entropy ELSE 1 END AS homogeneity,
            CASE WHEN cluster_entropy > 0 THEN shared / cluster_entropy ELSE 1 END AS completeness
        FROM measures
    """
    answer = f"""
        SELECT {by.of("totals")} mean_squared_distance,
            CASE WHEN fn = 0 AND fp = 0 THEN 1 ELSE 2 * (tp * tn - fn * fp)
                / ((tp + fn) * (fn + tn) + (tp + fp) * (fp + tn)) END AS adjusted_rand_score,
            homogeneity, completeness,
            CASE WHEN homogeneity + completeness > 0
                THEN 2 * homogeneity * completeness / (homogeneity + completeness)
                WHEN homogeneity IS NOT NULL THEN 0 END AS v_measure, {rows}
        FROM {by.join("totals", "counted", "LEFT JOIN")} WHERE {by.has_rows}
    """
    queries = {
        "totals": totals,
        "pairs": pairs,
        "beside": beside,
        "measures": measures,
        "counted": counted,
    }
    return Answer(tuple(queries.items()), answer)


# `confusion_matrix`: how many rows of each class are taken for which.


def confusion_matrix(by: Grouping, classes: int, predicted: str, count: str) -> Answer:
    """A row for each group and class `k`, with columns `c0`, `c1`, ..: rows taken for each class.

    Args:
        classes: how many there are. predicted: what a row is taken for, of `sqlml_scored`.
        count: the type of the numbers.
    """
    numbers = ", ".join(f"({k})" for k in range(classes))
    taken = ", ".join(
        f"CAST(coalesce(sum(CASE WHEN hat = {k} THEN w END), 0) AS {count}) AS c{k}"
        for k in range(classes)
    )
    groups = f"SELECT {by.columns} 0 AS nothing FROM sqlml_scored {by.group_by or 'LIMIT 1'}"
    wanted = f"""
        SELECT {by.of("all_groups")} k
        FROM all_groups CROSS JOIN (VALUES {numbers}) AS all_classes(k)
    """
    pairs = f"""
        SELECT {by.columns} y AS k, {predicted} AS hat, sum(w) AS w
        FROM sqlml_scored WHERE {KNOWN} {by.grouped_by("y", predicted)}
    """
    each = Grouping((*by.keys, "k"))
    answer = f"""
        SELECT {each.of("wanted")} {taken} FROM {each.join("wanted", "pairs", "LEFT JOIN")}
        {each.group_of("wanted")} ORDER BY {by.of("wanted")} wanted.k
    """
    return Answer((("all_groups", groups), ("wanted", wanted), ("pairs", pairs)), answer)


def pairs(by: Grouping, predicted: str, count: str) -> Answer:
    """A row for each group and pair of a class `k` and the class `taken_for` that rows have."""
    answer = f"""
        SELECT {by.columns} y AS k, {predicted} AS taken_for, CAST(sum(w) AS {count}) AS c
        FROM sqlml_scored WHERE {KNOWN} {by.grouped_by("y", predicted)}
        ORDER BY {by.columns} k, taken_for
    """
    return Answer((), answer)
