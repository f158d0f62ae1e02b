"""`clusters`: what `ml_evaluate` says of a clustering: how compact it is, and, where rows have
labels, how well it finds them again, as scikit-learn defines it."""

from __future__ import annotations

from sqlml.planner.evaluation.answer import KNOWN, Answer
from sqlml.planner.evaluation.grouping import Grouping

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
