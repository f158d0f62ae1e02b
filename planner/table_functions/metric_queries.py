"""The queries of the metrics of `ml_evaluate` and of confusion matrices, over `sqlml_scored`.

Metrics are those of `sklearn.metrics`. The areas under curves come from one sort of the rows by
probability, which counts the rows of either side with at least that probability.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlml.planner.table_functions.evaluated_model import Grouping
from sqlml.planner.table_functions.scored_rows import (
    IS_EVALUATED,
    ROW_COUNT_COLUMNS,
    ROW_COUNT_SUMS,
    ROW_COUNTS,
    EvaluationQuery,
)

_EPSILON = "2.220446049250313e-16"
"""The least distance from 0 and 1 of the probabilities in log_loss: the epsilon of float64."""

CLUSTER_METRICS = ("mean_squared_distance",)
CLUSTER_MATCH_METRICS = ("adjusted_rand_score", "homogeneity", "completeness", "v_measure")


def _clip_probability(p: str) -> str:
    return f"CASE WHEN ({p}) IS NOT NULL THEN least(greatest({p}, {_EPSILON}), 1 - {_EPSILON}) END"


def _rank_rows(by: Grouping, source: str, p: str, pos: str, neg: str) -> str:
    """Return `source` with `tps` and `fps`, the weights of the rows of at least each score."""
    return f"""
        SELECT *, CAST(sum({pos}) OVER falling AS DOUBLE) AS tps,
            CAST(sum({neg}) OVER falling AS DOUBLE) AS fps
        FROM {source} WINDOW falling AS ({by.partition_by} ORDER BY {p} DESC)
    """


def _sum_areas(p: str, pos: str, neg: str) -> str:
    """Return select items over `_rank_rows`: unnormalized areas under the ROC and precision curves.

    The area under the ROC curve counts pairs of a positive and a negative row. Pairs of the same
    score count half, so it is the mean of two numbers: the pairs in which the positive row scores
    at least as high, and those in which it scores higher.
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


def build_binary_metrics(by: Grouping, hit: str) -> EvaluationQuery:
    """Return the query of the metrics of two classes; `hit` is the condition for the second one."""
    pos, neg = (f"CASE WHEN {IS_EVALUATED} AND y = {k} THEN w ELSE 0 END" for k in (1, 0))
    tp, fp = (f"CASE WHEN {IS_EVALUATED} AND y = {k} AND {hit} THEN w ELSE 0 END" for k in (1, 0))
    of_label = "CASE WHEN p0 IS NULL THEN NULL WHEN y = 1 THEN p1 ELSE p0 END"
    totals = f"""
        SELECT {by.columns} {ROW_COUNTS}, fsum({pos}) AS pos, fsum({neg}) AS neg, fsum({tp}) AS tp,
            fsum({fp}) AS fp,
            fsum(w * ln({_clip_probability(of_label)})) FILTER (WHERE {IS_EVALUATED}) AS logs,
            fsum(w * ((y - p1) * (y - p1) + (1 - y - p0) * (1 - y - p0)))
                FILTER (WHERE {IS_EVALUATED}) AS squares, {_sum_areas("p1", pos, neg)}
        FROM ranked {by.group_by}
    """
    select = f"""
        SELECT {by.columns} {_PRECISION} AS precision, {_RECALL} AS recall,
            (tp + neg - fp) / nullif(pos + neg, 0) AS accuracy, {_F1} AS f1_score,
            -logs / nullif(pos + neg, 0) AS log_loss, {_ROC} AS roc_auc,
            {_STEPS} AS average_precision, squares / 2 / nullif(pos + neg, 0) AS brier_score,
            {ROW_COUNT_COLUMNS}
        FROM totals WHERE {by.require_rows}
    """
    ranked = _rank_rows(by, "sqlml_scored", "p1", pos, neg)
    return EvaluationQuery((("ranked", ranked), ("totals", totals)), select)


def build_multiclass_metrics(
    by: Grouping, counts: Sequence[int], per_class: bool, probabilities: bool
) -> EvaluationQuery:
    """Return the query of the metrics of a classifier of several classes, with a row per group.

    Precision, recall, F1 and areas are means over the classes, each against all others. With
    `per_class`, a row is added for each class `k`. Without `probabilities`, `ps` has other scores.
    """
    count = str(counts[0])
    if len(counts) > 1:
        cases = " ".join(f"WHEN {t} THEN {n}" for t, n in enumerate(counts))
        count = f"CASE t {cases} END"
    totals = f"""
        SELECT {by.columns} {ROW_COUNT_SUMS}, fsum(w) AS w, fsum(logs) AS logs,
            fsum(CASE WHEN y = hat THEN w ELSE 0 END) AS hits
        FROM pairs {by.group_by}
    """
    select = f"""
        SELECT {by.columns_of("totals")} CAST(NULL AS INTEGER) AS k, precision, recall,
            hits / nullif(w, 0) AS accuracy, f1_score, -logs / nullif(w, 0) AS log_loss, roc_auc,
            average_precision, squares / nullif(w, 0) AS brier_score, {ROW_COUNT_COLUMNS}
        FROM {by.join("totals", "areas", "LEFT JOIN")} WHERE {by.require_rows}
    """
    if per_class:
        select += f"""
            UNION ALL
            SELECT {by.columns} k, {_PRECISION}, {_RECALL}, (tp + neg - fp) / nullif(pos + neg, 0),
                {_F1}, NULL, {_ROC}, {_STEPS}, squares / nullif(pos + neg, 0),
                CAST(n AS BIGINT), NULL, NULL
            FROM of_class ORDER BY {by.columns} k NULLS FIRST
        """
    queries = {
        **_count_predictions(by, probabilities),
        "totals": totals,
        **_measure_classes(by, max(counts), count, probabilities),
        "areas": _average_classes(by, count, 2 in counts),
    }
    return EvaluationQuery(tuple(queries.items()), select)


def _count_predictions(by: Grouping, probabilities: bool) -> dict[str, str]:
    """Return the queries of the rows of each true and predicted class, and of each class."""
    p_of_label = (
        "array_extract(ps, CAST(y + 1 AS INTEGER))" if probabilities else "CAST(NULL AS DOUBLE)"
    )
    each = Grouping((*by.keys, "k"))
    pairs = f"""
        SELECT {by.columns} y, hat, {ROW_COUNTS},
            CAST(coalesce(sum(w) FILTER (WHERE {IS_EVALUATED}), 0) AS DOUBLE) AS w,
            fsum(w * ln({_clip_probability(p_of_label)})) FILTER (WHERE {IS_EVALUATED}) AS logs
        FROM sqlml_scored {by.group_by_with("y", "hat")}
    """
    counted = f"""
        SELECT {each.columns} fsum(pos) AS pos, fsum(tp) AS tp, fsum(predicted) - fsum(tp) AS fp,
            sum(n) AS n
        FROM (
            SELECT {by.columns} y AS k, n, w AS pos, CASE WHEN y = hat THEN w ELSE 0 END AS tp,
                0 AS predicted FROM pairs WHERE {IS_EVALUATED}
            UNION ALL
            SELECT {by.columns} hat AS k, 0 AS n, 0 AS pos, 0 AS tp, w AS predicted
            FROM pairs WHERE {IS_EVALUATED}
        ) AS both_sides
        {each.group_by}
    """
    return {"pairs": pairs, "counted": counted}


def _measure_classes(
    by: Grouping, most_classes: int, count: str, probabilities: bool
) -> dict[str, str]:
    """Return the queries of the numbers behind each class's metrics; the last is `of_class`."""
    each = Grouping((*by.keys, "k"))
    numbers = ", ".join(f"({k})" for k in range(most_classes))
    of_classes = f"""
        SELECT *, array_extract(ps, k + 1) AS p
        FROM sqlml_scored CROSS JOIN (VALUES {numbers}) AS all_classes(k)
        WHERE {IS_EVALUATED} AND k < {count}
    """
    pos, neg = "CASE WHEN y = k THEN w ELSE 0 END", "CASE WHEN y = k THEN 0 ELSE w END"
    miss = "CASE WHEN y = k THEN 1 - p ELSE p END"
    curves = f"""
        SELECT {each.columns} fsum({pos}) AS pos, fsum({neg}) AS neg,
            {f"fsum(w * ({miss}) * ({miss}))" if probabilities else "CAST(NULL AS DOUBLE)"}
            AS squares, {_sum_areas("p", pos, neg)}
        FROM ranked {each.group_by}
    """
    of_class = f"""
        SELECT {each.columns_of("curves")} coalesce(tp, 0) AS tp, coalesce(fp, 0) AS fp, curves.pos,
            neg, counted.k IS NOT NULL AS is_seen, coalesce(counted.n, 0) AS n, squares, area,
            precisions, scores
        FROM {each.join("curves", "counted", "LEFT JOIN")}
    """
    return {
        "of_classes": of_classes,
        "ranked": _rank_rows(each, "of_classes", "p", pos, neg),
        "curves": curves,
        "of_class": of_class,
    }


def _average_classes(by: Grouping, count: str, has_two_classes: bool) -> str:
    """Return the query of the means over `of_class`, or of the second class if there are two."""

    def average(metric: str, of_all: str) -> str:
        if not has_two_classes:
            return of_all
        of_second = f"max(CASE WHEN k = 1 THEN {metric} END)"
        return f"CASE WHEN {count} = 2 THEN {of_second} ELSE {of_all} END"

    def average_seen(metric: str) -> str:
        return average(metric, f"avg(CASE WHEN is_seen THEN {metric} END)")

    def average_if_complete(metric: str) -> str:
        of_all = f"CASE WHEN count({metric}) = {count} THEN avg({metric}) END"
        return average(metric, of_all)

    return f"""
        SELECT {by.columns} {average_seen(_PRECISION)} AS precision,
            {average_seen(_RECALL)} AS recall, {average_seen(_F1)} AS f1_score,
            {average_if_complete(_ROC)} AS roc_auc,
            {average_if_complete(_STEPS)} AS average_precision,
            fsum(squares) / CASE WHEN {count} = 2 THEN 2 ELSE 1 END AS squares
        FROM of_class {by.group_by}
    """


def _log1p(x: str) -> str:
    # Goldberg, "What every computer scientist should know about floating-point arithmetic", 1991,
    # theorem 4: accurate for small x, too.
    return f"CASE WHEN 1 + {x} = 1 THEN {x} ELSE {x} * ln(1 + {x}) / (1 + {x} - 1) END"


_LOGS = f"{_log1p('y')} - {_log1p('hat')}"


def build_regression_metrics(by: Grouping) -> EvaluationQuery:
    means = f"""
        SELECT {by.columns} {ROW_COUNTS},
            CAST(sum(w) FILTER (WHERE {IS_EVALUATED}) AS DOUBLE) AS total,
            fsum(w * y) FILTER (WHERE {IS_EVALUATED})
                / nullif(sum(w) FILTER (WHERE {IS_EVALUATED}), 0) AS mean_y,
            fsum(w * (y - hat)) FILTER (WHERE {IS_EVALUATED})
                / nullif(sum(w) FILTER (WHERE {IS_EVALUATED}), 0) AS mean_error
        FROM sqlml_scored {by.group_by}
    """
    sums = f"""
        SELECT {by.columns_of("sqlml_scored")} fsum(w * abs(y - hat)) AS absolute,
            fsum(w * (y - hat) * (y - hat)) AS squares, max(abs(y - hat)) AS most,
            fsum(w * (y - mean_y) * (y - mean_y)) AS spread,
            fsum(w * (y - hat - mean_error) * (y - hat - mean_error)) AS unexplained,
            fsum(w * abs(y - hat) / greatest(abs(y), {_EPSILON})) AS shares,
            fsum(CASE WHEN y > -1 AND hat > -1
                THEN w * ({_LOGS}) * ({_LOGS}) END) AS log_squares,
            min(y) AS least_y, max(y) AS most_y, min(hat) AS least_hat
        FROM {by.join("sqlml_scored", "means")} WHERE {IS_EVALUATED}
        {by.group_by_of("sqlml_scored")}
    """
    both = by.join("means", "sums", "LEFT JOIN")
    measured = f"""
        SELECT {by.columns_of("means")} n, null_labels, null_predictions, total, absolute, squares,
            most, spread, unexplained, shares, log_squares, least_y, most_y, least_hat FROM {both}
    """
    select = f"""
        SELECT {by.columns_of("measured")} absolute / nullif(total, 0) AS mean_absolute_error,
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
            shares / nullif(total, 0) AS mean_absolute_percentage_error, {ROW_COUNT_COLUMNS}
        FROM {by.join("measured", "medians", "LEFT JOIN")} WHERE {by.require_rows}
    """
    queries = {"means": means, "sums": sums, **_compute_median_error(by), "measured": measured}
    return EvaluationQuery(tuple(queries.items()), select)


def _compute_median_error(by: Grouping) -> dict[str, str]:
    ranked = f"""
        SELECT {by.columns} abs(y - hat) AS error, sum(w) OVER ascending AS upto,
            sum(w) OVER whole AS total
        FROM sqlml_scored WHERE {IS_EVALUATED} AND w > 0
        WINDOW ascending AS ({by.partition_by} ORDER BY abs(y - hat) ROWS UNBOUNDED PRECEDING),
            whole AS ({by.partition_by})
    """
    medians = f"""
        SELECT {by.columns} (min(CASE WHEN 2 * upto >= total THEN error END)
            + min(CASE WHEN 2 * upto > total THEN error END)) / 2 AS median
        FROM ranked {by.group_by}
    """
    return {"ranked": ranked, "medians": medians}


def build_clustering_metrics(by: Grouping, labelled: bool) -> EvaluationQuery:
    """Return the query of how compact clusters are, and how well they match labels `y`, if any."""
    is_counted = IS_EVALUATED if labelled else "hat IS NOT NULL"
    null_labels = "sum(CASE WHEN y IS NULL THEN 1 ELSE 0 END)" if labelled else "0"
    totals = f"""
        SELECT {by.columns} sum(CASE WHEN {is_counted} THEN 1 ELSE 0 END) AS n,
            {null_labels} AS null_labels,
            sum(CASE WHEN hat IS NULL THEN 1 ELSE 0 END) AS null_predictions,
            count(DISTINCT hat) AS clusters,
            fsum(w * distance * distance) FILTER (WHERE {is_counted})
                / nullif(sum(w) FILTER (WHERE {is_counted}), 0) AS mean_squared_distance
        FROM sqlml_scored {by.group_by}
    """
    if not labelled:
        select = f"""
            SELECT {by.columns} mean_squared_distance, {ROW_COUNT_COLUMNS}, clusters
            FROM totals WHERE {by.require_rows}
        """
        return EvaluationQuery((("totals", totals),), select)
    select = f"""
        SELECT {by.columns_of("totals")} mean_squared_distance,
            CASE WHEN fn = 0 AND fp = 0 THEN 1 ELSE 2 * (tp * tn - fn * fp)
                / ((tp + fn) * (fn + tn) + (tp + fp) * (fp + tn)) END AS adjusted_rand_score,
            homogeneity, completeness,
            CASE WHEN homogeneity + completeness > 0
                THEN 2 * homogeneity * completeness / (homogeneity + completeness)
                WHEN homogeneity IS NOT NULL THEN 0 END AS v_measure, {ROW_COUNT_COLUMNS}, clusters
        FROM {by.join("totals", "counted", "LEFT JOIN")} WHERE {by.require_rows}
    """
    return EvaluationQuery((("totals", totals), *_compare_clusters_with_labels(by)), select)


def _compare_clusters_with_labels(by: Grouping) -> tuple[tuple[str, str], ...]:
    """Return the queries of the matches of clusters and labels; the last is `counted`.

    It counts pairs of rows that are together in both (`tp`), in the labels alone (`fn`), in the
    clusters alone (`fp`) and in neither (`tn`).
    """
    pairs = f"""
        SELECT {by.columns} y, hat, CAST(count(*) AS DOUBLE) AS both
        FROM sqlml_scored WHERE {IS_EVALUATED} {by.group_by_with("y", "hat")}
    """
    of_y, of_hat = Grouping((*by.keys, "y")), Grouping((*by.keys, "hat"))
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
    counted = f"""
        SELECT {by.columns} squares - total AS tp, label_squares - squares AS fn,
            cluster_squares - squares AS fp,
            total * total - label_squares - cluster_squares + squares AS tn,
            CASE WHEN label_entropy > 0 THEN shared / label_entropy ELSE 1 END AS homogeneity,
            CASE WHEN cluster_entropy > 0 THEN shared / cluster_entropy ELSE 1 END AS completeness
        FROM measures
    """
    return (("pairs", pairs), ("beside", beside), ("measures", measures), ("counted", counted))


def build_confusion_matrix(
    by: Grouping, classes: int, predicted: str, count: str
) -> EvaluationQuery:
    """Return the query with a row per group and true class `k`, and a column per predicted class.

    The columns `c0`, `c1`, ... count rows, as `count`; `predicted` is the predicted class number.
    """
    numbers = ", ".join(f"({k})" for k in range(classes))
    columns = ", ".join(
        f"CAST(coalesce(sum(CASE WHEN hat = {k} THEN w END), 0) AS {count}) AS c{k}"
        for k in range(classes)
    )
    groups = f"SELECT {by.columns} 0 AS nothing FROM sqlml_scored {by.group_by or 'LIMIT 1'}"
    cells = f"""
        SELECT {by.columns_of("all_groups")} k
        FROM all_groups CROSS JOIN (VALUES {numbers}) AS all_classes(k)
    """
    pairs = f"""
        SELECT {by.columns} y AS k, {predicted} AS hat, sum(w) AS w
        FROM sqlml_scored WHERE {IS_EVALUATED} {by.group_by_with("y", predicted)}
    """
    each = Grouping((*by.keys, "k"))
    select = f"""
        SELECT {each.columns_of("cells")} {columns} FROM {each.join("cells", "pairs", "LEFT JOIN")}
        {each.group_by_of("cells")} ORDER BY {by.columns_of("cells")} cells.k
    """
    return EvaluationQuery((("all_groups", groups), ("cells", cells), ("pairs", pairs)), select)


def build_confusion_pairs(by: Grouping, predicted: str, count: str) -> EvaluationQuery:
    select = f"""
        SELECT {by.columns} y AS k, {predicted} AS taken_for, CAST(sum(w) AS {count}) AS c
        FROM sqlml_scored WHERE {IS_EVALUATED} {by.group_by_with("y", predicted)}
        ORDER BY {by.columns} k, taken_for
    """
    return EvaluationQuery((), select)
