"""Queries over `sqlml_scored` for the metrics of `ml_evaluate` and for confusion matrices.

The metrics equal those of `sklearn.metrics`. To find the areas under curves, a query sorts the rows
by probability once, and counts for each row the positive and negative rows that score at least as
high.
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

EPSILON = "2.220446049250313e-16"
"""The float64 epsilon: log_loss clips probabilities to keep this distance from 0 and 1."""

CLUSTER_METRICS = ("mean_squared_distance",)
CLUSTER_MATCH_METRICS = ("adjusted_rand_score", "homogeneity", "completeness", "v_measure")


def _build_clipped_probability(probability: str) -> str:
    clipped = f"least(greatest({probability}, {EPSILON}), 1 - {EPSILON})"
    return f"CASE WHEN ({probability}) IS NOT NULL THEN {clipped} END"


def _build_cumulative_counts_sql(
    grouping: Grouping, source: str, score: str, positive_weight: str, negative_weight: str
) -> str:
    """Build a query that adds the columns `tps` and `fps` to the query `source`.

    For each row, `tps` is the total weight of the positive rows whose score is at least as high,
    and `fps` is that of the negative rows.
    """
    return f"""
        SELECT *, CAST(sum({positive_weight}) OVER by_falling_score AS DOUBLE) AS tps,
            CAST(sum({negative_weight}) OVER by_falling_score AS DOUBLE) AS fps
        FROM {source} WINDOW by_falling_score AS ({grouping.partition_by} ORDER BY {score} DESC)
    """


def _build_area_items(score: str, positive_weight: str, negative_weight: str) -> str:
    """Build select items for the unnormalized areas under the ROC and precision-recall curves.

    The items read the query of `_build_cumulative_counts_sql`. The area under the ROC curve is the
    mean of two counts of pairs of a positive and a negative row: the pairs in which the positive
    row scores at least as high, and the pairs in which the positive row scores higher.
    """
    pairs_at_least = f"fsum({negative_weight} * tps)"
    pairs_not_above = f"fsum({positive_weight} * fps)"
    pairs = f"fsum({positive_weight}) * fsum({negative_weight})"
    step = f"{positive_weight} * (tps / (tps + fps))"
    return f"""
        ({pairs_at_least} + {pairs} - {pairs_not_above}) / 2 AS area,
        fsum(CASE WHEN {positive_weight} > 0 THEN {step} ELSE 0 END) AS precisions,
        count({score}) AS scores
    """


_HAS_BOTH_CLASSES = "pos > 0 AND neg > 0 AND scores > 0"
_PRECISION = "CASE WHEN tp + fp > 0 THEN tp / (tp + fp) WHEN pos + neg > 0 THEN 0 END"
_RECALL = "CASE WHEN pos > 0 THEN tp / pos WHEN pos + neg > 0 THEN 0 END"
_F1 = "CASE WHEN tp + fp + pos > 0 THEN 2 * tp / (tp + fp + pos) WHEN pos + neg > 0 THEN 0 END"
_ROC_AUC = f"CASE WHEN {_HAS_BOTH_CLASSES} THEN area / (pos * neg) END"
_AVERAGE_PRECISION = (
    "CASE WHEN scores > 0 AND pos > 0 THEN precisions / pos WHEN scores > 0 AND neg > 0 THEN 0 END"
)


def build_binary_metrics(grouping: Grouping, is_predicted_positive: str) -> EvaluationQuery:
    """Build the query for the metrics of a binary classifier.

    `is_predicted_positive` is the SQL condition for rows that are predicted as the second class.
    """
    conditions = ["y = 1", "y = 0"]
    conditions += [f"{condition} AND {is_predicted_positive}" for condition in conditions]
    positive_weight, negative_weight, true_positive_weight, false_positive_weight = (
        f"CASE WHEN {IS_EVALUATED} AND {condition} THEN w ELSE 0 END" for condition in conditions
    )
    label_probability = "CASE WHEN p0 IS NULL THEN NULL WHEN y = 1 THEN p1 ELSE p0 END"
    totals = f"""
        SELECT {grouping.columns} {ROW_COUNTS}, fsum({positive_weight}) AS pos,
            fsum({negative_weight}) AS neg, fsum({true_positive_weight}) AS tp,
            fsum({false_positive_weight}) AS fp,
            fsum(w * ln({_build_clipped_probability(label_probability)}))
                FILTER (WHERE {IS_EVALUATED}) AS logs,
            fsum(w * ((y - p1) * (y - p1) + (1 - y - p0) * (1 - y - p0)))
                FILTER (WHERE {IS_EVALUATED}) AS squares,
            {_build_area_items("p1", positive_weight, negative_weight)}
        FROM ranked {grouping.group_by}
    """
    select = f"""
        SELECT {grouping.columns} {_PRECISION} AS precision, {_RECALL} AS recall,
            (tp + neg - fp) / nullif(pos + neg, 0) AS accuracy, {_F1} AS f1_score,
            -logs / nullif(pos + neg, 0) AS log_loss, {_ROC_AUC} AS roc_auc,
            {_AVERAGE_PRECISION} AS average_precision,
            squares / 2 / nullif(pos + neg, 0) AS brier_score,
            {ROW_COUNT_COLUMNS}
        FROM totals WHERE {grouping.require_rows}
    """
    ranked = _build_cumulative_counts_sql(
        grouping, "sqlml_scored", "p1", positive_weight, negative_weight
    )
    return EvaluationQuery((("ranked", ranked), ("totals", totals)), select)


def build_multiclass_metrics(
    grouping: Grouping, class_counts: Sequence[int], per_class: bool, has_probabilities: bool
) -> EvaluationQuery:
    """Build the query for the metrics of a multiclass classifier, which returns a row per group.

    Precision, recall, F1 and areas compare each class with all others and average the results. If
    `per_class` is true, the query also returns a row for each class `k`. If `has_probabilities` is
    true, the column `ps` holds probabilities instead of other scores. `class_counts` holds the
    number of classes of each target.
    """
    class_count_sql = str(class_counts[0])
    if len(class_counts) > 1:
        cases = " ".join(f"WHEN {t} THEN {n}" for t, n in enumerate(class_counts))
        class_count_sql = f"CASE t {cases} END"
    totals = f"""
        SELECT {grouping.columns} {ROW_COUNT_SUMS}, fsum(w) AS w, fsum(logs) AS logs,
            fsum(CASE WHEN y = hat THEN w ELSE 0 END) AS hits
        FROM pairs {grouping.group_by}
    """
    select = f"""
        SELECT {grouping.columns_of("totals")} CAST(NULL AS INTEGER) AS k, precision, recall,
            hits / nullif(w, 0) AS accuracy, f1_score, -logs / nullif(w, 0) AS log_loss, roc_auc,
            average_precision, squares / nullif(w, 0) AS brier_score, {ROW_COUNT_COLUMNS}
        FROM {grouping.join("totals", "areas", "LEFT JOIN")} WHERE {grouping.require_rows}
    """
    if per_class:
        select += f"""
            UNION ALL
            SELECT {grouping.columns} k, {_PRECISION}, {_RECALL},
                (tp + neg - fp) / nullif(pos + neg, 0),
                {_F1}, NULL, {_ROC_AUC}, {_AVERAGE_PRECISION}, squares / nullif(pos + neg, 0),
                CAST(n AS BIGINT), NULL, NULL
            FROM of_class ORDER BY {grouping.columns} k NULLS FIRST
        """
    queries = {
        **_build_prediction_counts(grouping, has_probabilities),
        "totals": totals,
        **_build_class_measures(grouping, max(class_counts), class_count_sql, has_probabilities),
        "areas": _build_class_means(grouping, class_count_sql, 2 in class_counts),
    }
    return EvaluationQuery(tuple(queries.items()), select)


def _build_prediction_counts(grouping: Grouping, has_probabilities: bool) -> dict[str, str]:
    """Build the queries `pairs` and `counted`, which count rows by class.

    `pairs` counts the rows of each pair of an actual and a predicted class. `counted` counts the
    true and false positives of each class.
    """
    label_probability = (
        "array_extract(ps, CAST(y + 1 AS INTEGER))" if has_probabilities else "CAST(NULL AS DOUBLE)"
    )
    class_grouping = Grouping((*grouping.keys, "k"))
    pairs = f"""
        SELECT {grouping.columns} y, hat, {ROW_COUNTS},
            CAST(coalesce(sum(w) FILTER (WHERE {IS_EVALUATED}), 0) AS DOUBLE) AS w,
            fsum(w * ln({_build_clipped_probability(label_probability)}))
                FILTER (WHERE {IS_EVALUATED}) AS logs
        FROM sqlml_scored {grouping.group_by_with("y", "hat")}
    """
    counted = f"""
        SELECT {class_grouping.columns} fsum(pos) AS pos, fsum(tp) AS tp,
            fsum(predicted) - fsum(tp) AS fp, sum(n) AS n
        FROM (
            SELECT {grouping.columns} y AS k, n, w AS pos,
                CASE WHEN y = hat THEN w ELSE 0 END AS tp, 0 AS predicted
            FROM pairs WHERE {IS_EVALUATED}
            UNION ALL
            SELECT {grouping.columns} hat AS k, 0 AS n, 0 AS pos, 0 AS tp, w AS predicted
            FROM pairs WHERE {IS_EVALUATED}
        ) AS both_sides
        {class_grouping.group_by}
    """
    return {"pairs": pairs, "counted": counted}


def _build_class_measures(
    grouping: Grouping, max_class_count: int, class_count_sql: str, has_probabilities: bool
) -> dict[str, str]:
    """Build the queries of counts and areas for each class `k`. The last query is `of_class`."""
    class_grouping = Grouping((*grouping.keys, "k"))
    class_rows = ", ".join(f"({k})" for k in range(max_class_count))
    of_classes = f"""
        SELECT *, array_extract(ps, k + 1) AS p
        FROM sqlml_scored CROSS JOIN (VALUES {class_rows}) AS all_classes(k)
        WHERE {IS_EVALUATED} AND k < {class_count_sql}
    """
    positive_weight = "CASE WHEN y = k THEN w ELSE 0 END"
    negative_weight = "CASE WHEN y = k THEN 0 ELSE w END"
    error = "CASE WHEN y = k THEN 1 - p ELSE p END"
    curves = f"""
        SELECT {class_grouping.columns} fsum({positive_weight}) AS pos,
            fsum({negative_weight}) AS neg,
            {f"fsum(w * ({error}) * ({error}))" if has_probabilities else "CAST(NULL AS DOUBLE)"}
            AS squares, {_build_area_items("p", positive_weight, negative_weight)}
        FROM ranked {class_grouping.group_by}
    """
    of_class = f"""
        SELECT {class_grouping.columns_of("curves")} coalesce(tp, 0) AS tp, coalesce(fp, 0) AS fp,
            curves.pos, neg, counted.k IS NOT NULL AS is_seen, coalesce(counted.n, 0) AS n, squares,
            area, precisions, scores
        FROM {class_grouping.join("curves", "counted", "LEFT JOIN")}
    """
    return {
        "of_classes": of_classes,
        "ranked": _build_cumulative_counts_sql(
            class_grouping, "of_classes", "p", positive_weight, negative_weight
        ),
        "curves": curves,
        "of_class": of_class,
    }


def _build_class_means(grouping: Grouping, class_count_sql: str, has_two_classes: bool) -> str:
    """Build the query of metrics averaged over classes, or of the second class if there are two."""

    def average(metric: str, mean_sql: str) -> str:
        if not has_two_classes:
            return mean_sql
        second_class_sql = f"max(CASE WHEN k = 1 THEN {metric} END)"
        return f"CASE WHEN {class_count_sql} = 2 THEN {second_class_sql} ELSE {mean_sql} END"

    def average_seen(metric: str) -> str:
        return average(metric, f"avg(CASE WHEN is_seen THEN {metric} END)")

    def average_if_complete(metric: str) -> str:
        mean_sql = f"CASE WHEN count({metric}) = {class_count_sql} THEN avg({metric}) END"
        return average(metric, mean_sql)

    return f"""
        SELECT {grouping.columns} {average_seen(_PRECISION)} AS precision,
            {average_seen(_RECALL)} AS recall, {average_seen(_F1)} AS f1_score,
            {average_if_complete(_ROC_AUC)} AS roc_auc,
            {average_if_complete(_AVERAGE_PRECISION)} AS average_precision,
            fsum(squares) / CASE WHEN {class_count_sql} = 2 THEN 2 ELSE 1 END AS squares
        FROM of_class {grouping.group_by}
    """


def _build_log1p(x: str) -> str:
    # This formula is accurate for small x, too: see Goldberg, "What every computer scientist should
    # know about floating-point arithmetic", 1991, theorem 4.
    return f"CASE WHEN 1 + {x} = 1 THEN {x} ELSE {x} * ln(1 + {x}) / (1 + {x} - 1) END"


_LOG_ERROR = f"{_build_log1p('y')} - {_build_log1p('hat')}"


def build_regression_metrics(grouping: Grouping) -> EvaluationQuery:
    means = f"""
        SELECT {grouping.columns} {ROW_COUNTS},
            CAST(sum(w) FILTER (WHERE {IS_EVALUATED}) AS DOUBLE) AS total,
            fsum(w * y) FILTER (WHERE {IS_EVALUATED})
                / nullif(sum(w) FILTER (WHERE {IS_EVALUATED}), 0) AS mean_y,
            fsum(w * (y - hat)) FILTER (WHERE {IS_EVALUATED})
                / nullif(sum(w) FILTER (WHERE {IS_EVALUATED}), 0) AS mean_error
        FROM sqlml_scored {grouping.group_by}
    """
    sums = f"""
        SELECT {grouping.columns_of("sqlml_scored")} fsum(w * abs(y - hat)) AS absolute,
            fsum(w * (y - hat) * (y - hat)) AS squares, max(abs(y - hat)) AS max_error,
            fsum(w * (y - mean_y) * (y - mean_y)) AS spread,
            fsum(w * (y - hat - mean_error) * (y - hat - mean_error)) AS unexplained,
            fsum(w * abs(y - hat) / greatest(abs(y), {EPSILON})) AS shares,
            fsum(CASE WHEN y > -1 AND hat > -1
                THEN w * ({_LOG_ERROR}) * ({_LOG_ERROR}) END) AS log_squares,
            min(y) AS min_y, max(y) AS max_y, min(hat) AS min_hat
        FROM {grouping.join("sqlml_scored", "means")} WHERE {IS_EVALUATED}
        {grouping.group_by_of("sqlml_scored")}
    """
    measured = f"""
        SELECT {grouping.columns_of("means")} n, null_labels, null_predictions, total, absolute,
            squares, max_error, spread, unexplained, shares, log_squares, min_y, max_y, min_hat
        FROM {grouping.join("means", "sums", "LEFT JOIN")}
    """
    select = f"""
        SELECT {grouping.columns_of("measured")} absolute / nullif(total, 0) AS mean_absolute_error,
            squares / nullif(total, 0) AS mean_squared_error,
            CASE WHEN min_y > -1 AND min_hat > -1
                THEN log_squares / nullif(total, 0) END AS mean_squared_log_error,
            median AS median_absolute_error, max_error,
            CASE WHEN n < 2 OR NOT total > 0 THEN NULL
                WHEN spread > 0 AND min_y < max_y THEN 1 - squares / spread
                WHEN squares > 0 THEN 0 ELSE 1 END AS r2_score,
            CASE WHEN NOT total > 0 THEN NULL
                WHEN spread > 0 AND min_y < max_y THEN 1 - unexplained / spread
                WHEN unexplained > 0 THEN 0 WHEN n > 0 THEN 1 END AS explained_variance,
            shares / nullif(total, 0) AS mean_absolute_percentage_error, {ROW_COUNT_COLUMNS}
        FROM {grouping.join("measured", "medians", "LEFT JOIN")} WHERE {grouping.require_rows}
    """
    queries = {"means": means, "sums": sums, **_build_median_error(grouping), "measured": measured}
    return EvaluationQuery(tuple(queries.items()), select)


def _build_median_error(grouping: Grouping) -> dict[str, str]:
    """Build the queries for the weighted median of absolute errors. The last is `medians`."""
    ranked = f"""
        SELECT {grouping.columns} abs(y - hat) AS error, sum(w) OVER ascending AS upto,
            sum(w) OVER whole AS total
        FROM sqlml_scored WHERE {IS_EVALUATED} AND w > 0
        WINDOW whole AS ({grouping.partition_by}),
            ascending AS ({grouping.partition_by} ORDER BY abs(y - hat) ROWS UNBOUNDED PRECEDING)
    """
    medians = f"""
        SELECT {grouping.columns} (min(CASE WHEN 2 * upto >= total THEN error END)
            + min(CASE WHEN 2 * upto > total THEN error END)) / 2 AS median
        FROM ranked {grouping.group_by}
    """
    return {"ranked": ranked, "medians": medians}


def build_clustering_metrics(grouping: Grouping, has_labels: bool) -> EvaluationQuery:
    """Build the query that measures how compact clusters are.

    If `has_labels` is true, the query also measures how well the clusters match the labels `y`.
    """
    is_counted = IS_EVALUATED if has_labels else "hat IS NOT NULL"
    null_labels = "sum(CASE WHEN y IS NULL THEN 1 ELSE 0 END)" if has_labels else "0"
    totals = f"""
        SELECT {grouping.columns} sum(CASE WHEN {is_counted} THEN 1 ELSE 0 END) AS n,
            {null_labels} AS null_labels,
            sum(CASE WHEN hat IS NULL THEN 1 ELSE 0 END) AS null_predictions,
            count(DISTINCT hat) AS clusters,
            fsum(w * distance * distance) FILTER (WHERE {is_counted})
                / nullif(sum(w) FILTER (WHERE {is_counted}), 0) AS mean_squared_distance
        FROM sqlml_scored {grouping.group_by}
    """
    if not has_labels:
        select = f"""
            SELECT {grouping.columns} mean_squared_distance, {ROW_COUNT_COLUMNS}, clusters
            FROM totals WHERE {grouping.require_rows}
        """
        return EvaluationQuery((("totals", totals),), select)
    select = f"""
        SELECT {grouping.columns_of("totals")} mean_squared_distance,
            CASE WHEN fn = 0 AND fp = 0 THEN 1 ELSE 2 * (tp * tn - fn * fp)
                / ((tp + fn) * (fn + tn) + (tp + fp) * (fp + tn)) END AS adjusted_rand_score,
            homogeneity, completeness,
            CASE WHEN homogeneity + completeness > 0
                THEN 2 * homogeneity * completeness / (homogeneity + completeness)
                WHEN homogeneity IS NOT NULL THEN 0 END AS v_measure, {ROW_COUNT_COLUMNS}, clusters
        FROM {grouping.join("totals", "counted", "LEFT JOIN")} WHERE {grouping.require_rows}
    """
    return EvaluationQuery((("totals", totals), *_build_cluster_comparison(grouping)), select)


def _build_cluster_comparison(grouping: Grouping) -> tuple[tuple[str, str], ...]:
    """Build the queries that compare clusters with labels. The last query is `counted`.

    `counted` counts the pairs of rows that have the same label and cluster (`tp`), only the same
    label (`fn`), only the same cluster (`fp`), or nothing in common (`tn`).
    """
    pairs = f"""
        SELECT {grouping.columns} y, hat, CAST(count(*) AS DOUBLE) AS joint
        FROM sqlml_scored WHERE {IS_EVALUATED} {grouping.group_by_with("y", "hat")}
    """
    by_label, by_cluster = Grouping((*grouping.keys, "y")), Grouping((*grouping.keys, "hat"))
    margins = f"""
        SELECT *, sum(joint) OVER ({by_label.partition_by}) AS of_label,
            sum(joint) OVER ({by_cluster.partition_by}) AS of_cluster,
            sum(joint) OVER ({grouping.partition_by}) AS total
        FROM pairs
    """
    measures = f"""
        SELECT {grouping.columns} max(total) AS total, fsum(joint * joint) AS squares,
            fsum(joint * of_label) AS label_squares, fsum(joint * of_cluster) AS cluster_squares,
            fsum(joint / total * (ln(joint) + ln(total) - ln(of_label) - ln(of_cluster))) AS shared,
            -fsum(joint / total * ln(of_label / total)) AS label_entropy,
            -fsum(joint / total * ln(of_cluster / total)) AS cluster_entropy
        FROM margins {grouping.group_by}
    """
    counted = f"""
        SELECT {grouping.columns} squares - total AS tp, label_squares - squares AS fn,
            cluster_squares - squares AS fp,
            total * total - label_squares - cluster_squares + squares AS tn,
            CASE WHEN label_entropy > 0 THEN shared / label_entropy ELSE 1 END AS homogeneity,
            CASE WHEN cluster_entropy > 0 THEN shared / cluster_entropy ELSE 1 END AS completeness
        FROM measures
    """
    return (("pairs", pairs), ("margins", margins), ("measures", measures), ("counted", counted))


def build_confusion_matrix(
    grouping: Grouping, class_count: int, predicted: str, count_type: str
) -> EvaluationQuery:
    """Build the query of a confusion matrix, with a row per group and actual class `k`.

    The columns `c0`, `c1`, ... hold the number of rows for each predicted class, with the SQL type
    `count_type`. `predicted` is the SQL expression of the predicted class index.
    """
    class_rows = ", ".join(f"({k})" for k in range(class_count))
    columns = ", ".join(
        f"CAST(coalesce(sum(CASE WHEN hat = {k} THEN w END), 0) AS {count_type}) AS c{k}"
        for k in range(class_count)
    )
    limit = grouping.group_by or "LIMIT 1"
    all_groups = f"SELECT {grouping.columns} 0 AS nothing FROM sqlml_scored {limit}"
    cells = f"""
        SELECT {grouping.columns_of("all_groups")} k
        FROM all_groups CROSS JOIN (VALUES {class_rows}) AS all_classes(k)
    """
    pairs = f"""
        SELECT {grouping.columns} y AS k, {predicted} AS hat, sum(w) AS w
        FROM sqlml_scored WHERE {IS_EVALUATED} {grouping.group_by_with("y", predicted)}
    """
    class_grouping = Grouping((*grouping.keys, "k"))
    select = f"""
        SELECT {class_grouping.columns_of("cells")} {columns}
        FROM {class_grouping.join("cells", "pairs", "LEFT JOIN")}
        {class_grouping.group_by_of("cells")} ORDER BY {grouping.columns_of("cells")} cells.k
    """
    return EvaluationQuery((("all_groups", all_groups), ("cells", cells), ("pairs", pairs)), select)


def build_confusion_pairs(grouping: Grouping, predicted: str, count_type: str) -> EvaluationQuery:
    select = f"""
        SELECT {grouping.columns} y AS k, {predicted} AS predicted_class,
            CAST(sum(w) AS {count_type}) AS c
        FROM sqlml_scored WHERE {IS_EVALUATED} {grouping.group_by_with("y", predicted)}
        ORDER BY {grouping.columns} k, predicted_class
    """
    return EvaluationQuery((), select)
