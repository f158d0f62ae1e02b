"""Make the sections about the distribution of predictions and about groups of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlml.report import charts
from sqlml.report.charts import plot_histogram
from sqlml.report.parts import (
    Note,
    Plot,
    ReportPart,
    Section,
    clip,
    format_value,
    make_distinct,
    make_table,
    note_left_out,
)
from sqlml.report.quality import METRICS, Classes, count_classes
from sqlml.report.subject import MAX_TARGETS, SCORES, Subject, build_call_sql, name_group_column

_MAX_BARS = 15


def describe_predictions(subject: Subject) -> Section:
    """Make the section about the distribution of predictions."""
    parts = _plot_predictions(subject) if subject.count else [Note("The data has no rows.")]
    return Section("predictions", "Predictions", subject.sample_sentence, tuple(parts))


def _plot_predictions(subject: Subject) -> list[ReportPart]:
    scores = subject.scores
    if scores is None:
        return [_plot_scores(subject)]
    if scores.rows.target_count > 1:
        return _plot_targets(subject)
    if subject.task == "numbers":
        sql = f"SELECT hat AS x, 1 AS s FROM {scores.table} WHERE hat IS NOT NULL"
        series, explanation = None, "The predicted values."
        if scores.is_labelled:
            sql += f" UNION ALL SELECT y, 0 FROM {scores.table} WHERE y IS NOT NULL"
            series, explanation = {0: "Label", 1: "Prediction"}, "Predictions and labels."
        return [plot_histogram(subject, f"({sql})", "Distribution", explanation, "Value", series)]
    if subject.task == "clusters":
        return [_plot_clusters(subject)]
    classes = count_classes(subject)
    return [_plot_class_counts(subject, classes), _plot_class_scores(subject, classes)]


def _plot_scores(subject: Subject) -> ReportPart:
    outputs = subject.model.program.outputs
    output = next((name for name in SCORES if name in outputs), None)
    if output is None or subject.model.program.output_type(output).width > 1:
        return Note(f"The model predicts nothing; it returns {', '.join(outputs)}.")
    query = f"SELECT {build_call_sql(subject.model, subject.reference)} AS x FROM {subject.rows}"
    with subject.tables.store_briefly("samples", query) as table:
        explanation = "The scores of the rows; the model predicts nothing."
        return plot_histogram(subject, f"(SELECT x FROM {table})", "Scores", explanation, "Score")


def _plot_targets(subject: Subject) -> list[ReportPart]:
    scores = subject.known_scores
    parts: list[ReportPart] = []
    for target, name in enumerate(subject.target_names[:MAX_TARGETS]):
        condition = f"t = {target} AND hat IS NOT NULL"
        if subject.task == "numbers":
            sql = f"(SELECT hat AS x FROM {scores.table} WHERE {condition})"
            parts.append(plot_histogram(subject, sql, name, "The predicted values.", "Prediction"))
            continue
        labels = scores.rows.model.program.labels[target].values
        counts = [(clip(str(labels[k]), 30), n) for k, n in _count_predictions(subject, condition)]
        parts.append(_plot_counts(name, "Rows for which each class is predicted.", counts, "Class"))
    return [*parts, *subject.note_more_targets()]


def _count_predictions(subject: Subject, condition: str) -> list[tuple[int, int]]:
    """Return (class or cluster index, row count) for rows that match `condition`, largest first."""
    rows = subject.query_tables(
        f"SELECT hat, count(*) AS n FROM {subject.known_scores.table} "
        f"WHERE {condition} GROUP BY hat ORDER BY n DESC, hat"
    )
    return [(row["hat"], row["n"]) for row in rows]


def _plot_counts(
    title: str, explanation: str, counts: list[tuple[str, int]], column: str
) -> ReportPart:
    if not counts:
        return Note(f"{title}: no row has a prediction.")
    names = make_distinct([name for name, _ in counts])
    total = sum(n for _, n in counts)
    top_counts = [(name, n) for name, (_, n) in zip(names, counts, strict=True)][:_MAX_BARS]
    bars = charts.draw_bars([(name, float(n)) for name, n in top_counts], "Rows")
    cells = [[name, n, f"{n / total:.1%}"] for name, n in top_counts]
    note = note_left_out(len(counts) - len(top_counts), "rarer entries")
    table = make_table(title, (column, "Rows", "Share"), cells, note)
    description = f"A bar for each {column.lower()}: its number of rows"
    return Plot(title, explanation, bars, description, table)


def _plot_clusters(subject: Subject) -> ReportPart:
    num_clusters = len(subject.known_scores.rows.model.program.labels[0].values)
    counts = [(f"cluster {k}", n) for k, n in _count_predictions(subject, "hat IS NOT NULL")]
    explanation = "Rows in each cluster, the largest first."
    if empty_count := num_clusters - len(counts):
        explanation += f" {empty_count:,} of {num_clusters:,} clusters have no row."
    return _plot_counts("Clusters", explanation, counts, "Cluster")


def _plot_class_counts(subject: Subject, classes: Classes) -> ReportPart:
    predicted_counts = dict(_count_predictions(subject, "hat IS NOT NULL"))
    if not predicted_counts:
        return Note("No row has a prediction.")
    ordered = sorted(range(len(classes.values)), key=lambda k: -predicted_counts.get(k, 0))
    top_classes = [k for k in ordered if predicted_counts.get(k) or classes.counts[k]][:_MAX_BARS]
    predicted_total, label_total = sum(predicted_counts.values()), sum(classes.counts)
    bars = [(classes.names[k], predicted_counts.get(k, 0)) for k in top_classes]
    columns = ["Class", "Predicted", "Share"]
    cells: list[list[Any]] = [[name, n, f"{n / predicted_total:.1%}"] for name, n in bars]
    if subject.known_scores.is_labelled and label_total:
        columns += ["Labels", "Share of labels"]
        for row, k in zip(cells, top_classes, strict=True):
            row += [classes.counts[k], f"{classes.counts[k] / label_total:.1%}"]
    note = note_left_out(len(classes.values) - len(top_classes), "rarer or empty classes")
    svg = charts.draw_bars([(name, float(n)) for name, n in bars], "Rows")
    title, explanation = "Predicted classes", "Rows for which each class is predicted."
    description = "A bar for each predicted class: its number of rows"
    return Plot(title, explanation, svg, description, make_table(title, columns, cells, note))


def _plot_class_scores(subject: Subject, classes: Classes) -> ReportPart:
    """Plot the scores of the positive class, or of the predicted class if not binary."""
    scores = subject.known_scores
    if scores.rows.score_kind == "none":
        return Note("The model returns neither probabilities nor scores of its classes.")
    has_probabilities = scores.rows.score_kind == "probabilities"
    score_name = "probability" if has_probabilities else "score"
    series = None
    if classes.is_binary:
        sql = f"(SELECT p1 AS x, y AS s FROM {scores.table} WHERE p1 IS NOT NULL)"
        title = f"Distribution of the {score_name}"
        explanation = f"The {score_name} of class {classes.positive}"
        if scores.is_labelled and classes.count_with_rows == 2:
            series = dict(enumerate(classes.names))
            explanation += ", for the rows of each class: the further apart, the better"
    else:
        sql = f"(SELECT list_max(ps) AS x FROM {scores.table} WHERE hat IS NOT NULL)"
        title = f"{score_name.capitalize()} of the prediction"
        explanation = f"The {score_name} of the predicted class: how certain the model is"
    xlabel = score_name.capitalize()
    return plot_histogram(subject, sql, title, f"{explanation}.", xlabel, series, has_probabilities)


_MAX_GROUPS = 20

_TASK_METRICS = {
    "two classes": ("roc_auc", "precision", "recall", "accuracy", "log_loss"),
    "classes": ("accuracy", "f1_score", "roc_auc", "log_loss"),
    "numbers": ("r2_score", "mean_absolute_error", "mean_squared_error"),
    "clusters": ("mean_squared_distance",),
}
"""Maps tasks to metrics for the table of groups. The plot shows the first available metric."""

_AVERAGED = {"two classes": "p1", "numbers": "hat"}
"""Maps tasks to the column whose mean is shown for each group if the data has no labels."""


def compare_groups(subject: Subject) -> Section:
    if not subject.groups:
        note = Note(
            "No groups were named. To compare groups, name the column that defines them, as in "
            "con.report('m', 'customers', by='region') or --by region."
        )
        return Section("groups", "By group", "", (note,))
    title = f"By {' and '.join(map(clip, subject.groups))}"
    return Section("groups", title, subject.sample_sentence, (_compare_largest_groups(subject),))


def _compare_largest_groups(subject: Subject) -> ReportPart:
    if subject.scores is None or not subject.count:
        return Note("There is nothing to compare.")
    if subject.scores.is_labelled or subject.task == "clusters":
        groups = subject.evaluate_largest_groups(_MAX_GROUPS)
        keys = [name_group_column(n) for n in range(len(subject.groups))]
    else:
        keys = [f"g{n}" for n in range(len(subject.groups))]
        groups = _average_unlabelled(subject, ", ".join(keys))
    if not groups:
        return Note("No group has a row with a label and a prediction.")
    return _plot_groups(subject, groups, keys)


def _average_unlabelled(subject: Subject, keys_sql: str) -> list[dict[str, Any]]:
    scores = subject.known_scores
    mean_sql = "CAST(NULL AS DOUBLE)"
    condition = ""
    if scores.rows.target_count > 1:
        condition = "WHERE t = 0"
    elif subject.task in _AVERAGED:
        mean_sql = f"avg({_AVERAGED[subject.task]})"
    groups = subject.query_tables(
        f"SELECT {keys_sql}, count(*) AS n, {mean_sql} AS mean, count(*) OVER () AS sqlml_groups "
        f"FROM {scores.table} {condition} GROUP BY {keys_sql} ORDER BY n DESC, {keys_sql} "
        f"LIMIT {_MAX_GROUPS}"
    )
    return [{**row, "rows": row["n"]} for row in groups]


def _plot_groups(subject: Subject, groups: list[dict[str, Any]], keys: Sequence[str]) -> ReportPart:
    has_targets = "target" in groups[0]
    available_metrics = {name for row in groups for name, value in row.items() if value is not None}
    candidates = (*_TASK_METRICS[subject.task or "numbers"], "mean")
    metrics = [name for name in candidates if name in available_metrics]
    columns = [*(clip(name, 30) for name in subject.groups), *(["Target"] if has_targets else [])]
    cells: list[list[Any]] = []
    for row in groups:
        target = [clip(str(row["target"]), 30)] if has_targets else []
        group, numbers = (format_value(row[key], 30) for key in keys), (row[m] for m in metrics)
        cells.append([*group, *target, row["rows"], *numbers])
    total = groups[0]["sqlml_groups"]
    note = f"The {len(groups)} largest of {total:,} groups." if total > len(groups) else ""
    titles = [METRICS.get(name) or _make_mean_title(subject) for name in metrics]
    table = make_table("Groups", (*columns, "Rows", *titles), cells, note)
    if has_targets or not metrics:
        return table
    names = make_distinct([", ".join(_format_group(row[key]) for key in keys) for row in groups])
    values = {name: row[metrics[0]] for name, row in zip(names, groups, strict=True)}
    points = [(name, float(v), float(v), float(v)) for name, v in values.items() if v is not None]
    return Plot(
        f"{titles[0]} of each group",
        f"The largest groups come first. {note}".strip(),
        charts.draw_intervals(points, titles[0]),
        f"A point for each group: {titles[0]}",
        table,
    )


def _make_mean_title(subject: Subject) -> str:
    if subject.task == "numbers":
        return "Mean prediction"
    has_probabilities = subject.known_scores.rows.score_kind == "probabilities"
    return "Mean probability" if has_probabilities else "Mean score"


def _format_group(value: Any) -> str:
    return "NULL" if value is None else format_value(value, 30) or "(empty)"
