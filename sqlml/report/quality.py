"""Make the section about the quality of the model on rows with labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

import duckdb

from sqlml.planner.binding.requested_output import render_class
from sqlml.report import charts
from sqlml.report.parts import (
    Note,
    Plot,
    ReportPart,
    Section,
    Table,
    Tile,
    clip,
    format_number,
    format_value,
    make_distinct,
    make_table,
    note_left_out,
)
from sqlml.report.subject import MAX_TARGETS, Subject
from sqlml.types import fold

MAX_CURVES = 6
CurveRows = Sequence[tuple[str, dict[str, Any]]]
"""Points of curves. Each element is a class name and a result row, for example of ml_roc_curve."""


@dataclass(frozen=True, slots=True)
class Classes:
    """The classes of a model with one target.

    `names` are distinct display names. `by_frequency` has the indices of the classes, with the most
    frequent class first. `counts` has the number of rows with each label, or with each prediction
    if the data has no labels.
    """

    values: tuple[Any, ...]
    names: tuple[str, ...]
    by_frequency: tuple[int, ...]
    counts: tuple[int, ...]

    @property
    def is_binary(self) -> bool:
        """True if there are exactly two classes. The second class is the positive class."""
        return len(self.values) == 2

    @property
    def positive(self) -> str:
        return self.names[-1]

    @property
    def count_with_rows(self) -> int:
        """The number of classes with at least one row."""
        return sum(count > 0 for count in self.counts)


def count_classes(subject: Subject) -> Classes:
    """Count the scored rows of each class of a model with one target."""
    scores = subject.known_scores
    values = scores.rows.class_labels.values
    names = make_distinct([clip(render_class(value) or "(empty)", 30) for value in values])
    column = "y" if scores.is_labelled else "hat"
    counts = [0] * len(values)
    for row in subject.query_tables(
        f"SELECT {column} AS class, count(*) AS n FROM {scores.table} "
        f"WHERE {column} IS NOT NULL GROUP BY {column}"
    ):
        counts[row["class"]] = row["n"]
    by_frequency = sorted(range(len(values)), key=lambda k: -counts[k])
    return Classes(values, names, tuple(by_frequency), tuple(counts))


_CURVE_POINTS = 200
_TABLE_ROWS, _TABLE_ROWS_PER_CLASS = 11, 6
"""The number of points in the table of a curve, for one class and for each of several classes."""

_MAX_MATRIX_CLASSES = 12
_MAX_CONFUSIONS = 20


def _plot_classifier(subject: Subject) -> list[ReportPart]:
    scores = subject.known_scores
    classes = count_classes(subject)
    confusion = _plot_confusion(subject, classes)
    if len(classes.values) < 2:
        return [confusion, Note("The model has only one class, so there are no curves.")]
    if scores.rows.score_kind == "none":
        reason = "The model returns neither probabilities nor scores, so there are no curves."
        return [confusion, Note(reason)]
    if classes.count_with_rows < 2:
        return [confusion, Note("All labels are of one class, and curves compare two classes.")]
    parts = [confusion, _plot_roc(subject, classes), _plot_precision_recall(subject, classes)]
    if scores.rows.score_kind == "probabilities":
        return [*parts, _plot_calibration(subject, classes)]
    reason = "The model returns scores but no probabilities, so there is no calibration curve."
    return [*parts, Note(reason)]


def _read_curve(subject: Subject, classes: Classes, function: str, **options: Any) -> CurveRows:
    if classes.is_binary:
        return [(classes.positive, row) for row in subject.evaluate(function, **options)]
    return [
        (classes.names[k], row)
        for k in classes.by_frequency[:MAX_CURVES]
        if classes.counts[k]
        for row in subject.evaluate(function, **{"class": classes.values[k]}, **options)
    ]


def _extract_points(rows: CurveRows, x_key: str, y_key: str) -> list[tuple[str, float, float]]:
    points = [(name, row[x_key], row[y_key]) for name, row in rows]
    return [point for point in points if None not in point]


def _pick_evenly(rows: CurveRows) -> CurveRows:
    rows_by_class = [list(class_rows) for _, class_rows in groupby(rows, itemgetter(0))]
    num_points = _TABLE_ROWS if len(rows_by_class) == 1 else _TABLE_ROWS_PER_CLASS
    picked_rows = []
    for class_rows in rows_by_class:
        last_index = len(class_rows) - 1
        step = max(1, last_index / (num_points - 1))
        indices = dict.fromkeys(min(last_index, round(n * step)) for n in range(num_points))
        picked_rows += [class_rows[i] for i in indices]
    return picked_rows


def _make_curve_table(
    classes: Classes, caption: str, rows: CurveRows, columns: Mapping[str, str]
) -> Table:
    """Make a table of curve points. `columns` maps titles to keys of result rows."""
    cells = [[name, *(row[key] for key in columns.values())] for name, row in rows]
    if classes.is_binary:
        return make_table(caption, tuple(columns), [row[1:] for row in cells])
    return make_table(caption, ("Class", *columns), cells)


def _describe_classes(classes: Classes) -> str:
    if classes.is_binary:
        return f"Class {classes.positive} against {classes.names[0]}."
    count = classes.count_with_rows
    if count > MAX_CURVES:
        return f"Each of the {MAX_CURVES} most frequent of {count} classes against all others."
    return "Each class against all others."


def _plot_roc(subject: Subject, classes: Classes) -> ReportPart:
    rows = _read_curve(subject, classes, "roc_curve", points=_CURVE_POINTS)
    points = _extract_points(rows, "false_positive_rate", "recall")
    columns = {"Threshold": "threshold", "Recall": "recall"}
    columns["False positives"] = "false_positive_rate"
    return Plot(
        "ROC curve",
        f"{_describe_classes(classes)} The further above the dashed diagonal, the better.",
        charts.draw_lines(points, "False positive rate", "Recall", diagonal=True),
        "Line plot: recall rises from 0 to 1 as the false positive rate does",
        _make_curve_table(classes, "Points of the ROC curve", _pick_evenly(rows), columns),
    )


def _plot_precision_recall(subject: Subject, classes: Classes) -> ReportPart:
    rows = _read_curve(subject, classes, "pr_curve", points=_CURVE_POINTS)
    points = _extract_points(rows, "recall", "precision")
    thresholds = [(name, row) for name, row in rows if row["threshold"] is not None]
    caption = "Points of the precision-recall curve"
    columns = {"Threshold": "threshold", "Recall": "recall", "Precision": "precision"}
    return Plot(
        "Precision and recall",
        f"{_describe_classes(classes)} Precision is the share of hits that are correct; "
        "recall is the share of the class that is found.",
        charts.draw_lines(points, "Recall", "Precision"),
        "Line plot of precision over recall",
        _make_curve_table(classes, caption, _pick_evenly(thresholds), columns),
    )


def _plot_calibration(subject: Subject, classes: Classes) -> ReportPart:
    rows = _read_curve(subject, classes, "calibration_curve", bins=10)
    points = _extract_points(rows, "mean_predicted", "fraction_of_positives")
    columns = {"Predicted": "mean_predicted", "Observed": "fraction_of_positives", "Rows": "rows"}
    return Plot(
        "Calibration",
        f"{_describe_classes(classes)} On the dashed diagonal, a class that is predicted with 30% "
        "occurs in 30% of the rows.",
        charts.draw_lines(points, "Mean predicted probability", "Observed share", True, True),
        "Line plot of the observed share over the predicted probability",
        _make_curve_table(classes, "Bins of the calibration curve", rows, columns),
    )


def _plot_confusion(subject: Subject, classes: Classes) -> ReportPart:
    """Plot the confusion matrix, or list the most frequent confusions if it is too large."""
    index_by_label = {value: k for k, value in enumerate(classes.values)}
    pair_counts: Counter[tuple[int, int]] = Counter()
    for row in subject.evaluate("confusion_matrix", pairs=True):
        pair = index_by_label[row["expected_label"]], index_by_label[row["predicted_label"]]
        pair_counts[pair] += int(row["rows"])
    indices = sorted({k for pair in pair_counts for k in pair})
    if len(indices) > _MAX_MATRIX_CLASSES:
        return _tabulate_confusions(classes, pair_counts)
    cells, rows = [], []
    for actual in indices:
        total = sum(pair_counts[actual, predicted] for predicted in indices)
        for predicted in indices:
            count = pair_counts[actual, predicted]
            share = count / total if total else 0.0
            cells.append((classes.names[actual], classes.names[predicted], share, f"{count:,}"))
        recall = f"{pair_counts[actual, actual] / total:.1%}" if total else ""
        rows.append([classes.names[actual], *(pair_counts[actual, k] for k in indices), recall])
    columns = ("Label", *(f"as {classes.names[k]}" for k in indices), "Correct")
    return Plot(
        "Confusion",
        "Actual class (rows) by predicted class (columns); the stronger the color, the greater the "
        "share of the actual class.",
        charts.draw_heatmap(cells, "Predicted", "Label"),
        "Matrix of labels and predictions",
        make_table("Confusion matrix", columns, rows),
    )


def _tabulate_confusions(classes: Classes, pair_counts: Mapping[tuple[int, int], int]) -> Table:
    errors = [(n, *pair) for pair, n in pair_counts.items() if pair[0] != pair[1]]
    errors.sort(reverse=True)
    rows = [
        [classes.names[actual], classes.names[predicted], count]
        for count, actual, predicted in errors[:_MAX_CONFUSIONS]
    ]
    note = note_left_out(len(errors) - len(rows), "rarer confusions")
    return make_table("Most frequent confusions", ("Label", "Predicted as", "Rows"), rows, note)


_QUANTILES = 20
_IS_FINITE = "y IS NOT NULL AND hat IS NOT NULL AND isfinite(y) AND isfinite(hat)"


def _plot_regressor(subject: Subject) -> list[ReportPart]:
    if subject.targets == 1:
        return _plot_target(subject, _IS_FINITE, "")
    parts: list[ReportPart] = []
    for target, name in enumerate(subject.target_names[:MAX_TARGETS]):
        parts += _plot_target(subject, f"t = {target} AND {_IS_FINITE}", f"{name}: ")
    return [*parts, *subject.note_more_targets()]


def _plot_target(subject: Subject, condition: str, prefix: str) -> list[ReportPart]:
    """Plot the labels and residuals of the scored rows that match `condition`."""
    scores = subject.known_scores.table
    residuals = charts.plot_histogram(
        subject,
        f"(SELECT y - hat AS x FROM {scores} WHERE {condition})",
        f"{prefix}Residuals",
        "Label minus prediction: around 0 if the model is correct on average.",
        "Residual",
    )
    part_rows = subject.query_tables(
        f"""
        SELECT avg(hat) AS mean_hat, quantile(y, 0.1) AS low, avg(y) AS mean_y,
            quantile(y, 0.9) AS high, count(*) AS n
        FROM (
            SELECT y, hat, ntile({_QUANTILES}) OVER (ORDER BY hat) AS part
            FROM {scores} WHERE {condition}
        ) AS parts
        GROUP BY part ORDER BY part
        """
    )
    points = [(row["mean_hat"], row["low"], row["mean_y"], row["high"]) for row in part_rows]
    if len({mean_hat for mean_hat, *_ in points}) < 2:
        reason = "all predictions are about the same, so there is nothing to plot."
        return [Note(f"{prefix}{reason}" if prefix else reason.capitalize()), residuals]
    cells = [[row[key] for key in ("mean_hat", "mean_y", "low", "high", "n")] for row in part_rows]
    columns = ("Prediction", "Mean label", "10%", "90%", "Rows")
    labels = Plot(
        f"{prefix}Labels and predictions",
        f"The rows, sorted by prediction, in {len(points)} equal parts. The line shows the mean "
        "label of each part, and the band holds 80% of its labels. On the dashed line, label and "
        "prediction are equal.",
        charts.draw_band(points, "Mean prediction", "Label"),
        "Line plot of the mean label over the mean prediction",
        make_table(f"{prefix}Labels by prediction", columns, cells),
    )
    return [labels, residuals]


METRICS: Mapping[str, str] = {
    "roc_auc": "ROC AUC",
    "average_precision": "Average precision",
    "accuracy": "Accuracy",
    "precision": "Precision",
    "recall": "Recall",
    "f1_score": "F1",
    "log_loss": "Log loss",
    "brier_score": "Brier score",
    "r2_score": "R²",
    "mean_absolute_error": "Mean absolute error",
    "median_absolute_error": "Median absolute error",
    "mean_squared_error": "Mean squared error",
    "mean_squared_log_error": "Mean squared log error",
    "max_error": "Max error",
    "explained_variance": "Explained variance",
    "mean_absolute_percentage_error": "Mean absolute error as a share",
    "mean_squared_distance": "Mean squared distance to the center",
    "adjusted_rand_score": "Adjusted Rand score",
    "homogeneity": "Homogeneity",
    "completeness": "Completeness",
    "v_measure": "V measure",
}
"""Maps metrics of ml_evaluate to titles in the report, with the most important metric first."""

_MAX_CLASSES = 20
"""The maximum number of classes or targets in a table of metrics."""

_MAX_TILES = 4


def measure_quality(subject: Subject) -> Section:
    """Make the section with metrics, and with the plots of a classifier or regressor."""
    obstacle = _find_obstacle(subject)
    if obstacle is not None:
        return Section("quality", "Quality", "", (Note(obstacle),))
    metrics = subject.evaluate("evaluate")
    parts: list[ReportPart] = [_tabulate_metrics(subject, metrics)]
    if subject.task == "numbers":
        parts += _plot_regressor(subject)
    elif subject.known_scores.rows.target_count > 1:
        reason = "Curves are drawn for classifiers of one target"
        parts.append(Note(f"{reason}; ml_roc_curve and similar functions support several."))
    elif subject.task in ("classes", "two classes"):
        if subject.task == "classes":
            parts.append(_tabulate_class_metrics(subject))
        parts += _plot_classifier(subject)
    tiles = [
        Tile(title, format_number(metrics[0][name], padded=True))
        for name, title in METRICS.items()
        if metrics[0].get(name) is not None and len(metrics) == 1
    ]
    lead = _make_lead(subject, metrics[0])
    return Section("quality", "Quality", lead, tuple(parts), tuple(tiles[:_MAX_TILES]))


def _find_obstacle(subject: Subject) -> str | None:
    scores = subject.scores
    if scores is None:
        return "The model transforms or scores rows; it predicts nothing that could be checked."
    if not subject.count:
        return "The data has no rows."
    if not scores.is_labelled and subject.task != "clusters":
        return (
            "No column of labels is known, so predictions cannot be checked. Name the column as in "
            "con.report('m', 'customers', label='churned') or --label churned."
        )
    columns = ("hat",) if subject.task == "clusters" else ("y", "hat")
    condition = " AND ".join(f"{column} IS NOT NULL" for column in columns)
    (row,) = subject.query_tables(f"SELECT count(*) AS n FROM {scores.table} WHERE {condition}")
    return None if row["n"] else "No row has both a label and a prediction."


def _make_lead(subject: Subject, metrics: Mapping[str, Any]) -> str:
    sentence = f"Measured on {metrics['rows']:,} rows"
    if subject.known_scores.count < subject.count:
        sentence += f", sampled evenly from {subject.count:,}"
    if subject.labels:
        names = " and ".join(map(clip, subject.labels))
        columns = "columns" if len(subject.labels) > 1 else "column"
        sentence += f", against the labels in {columns} {names}"
    for missing in ("label", "prediction"):
        if count := metrics[f"null_{missing}s"]:
            sentence += f"; {count:,} rows without a {missing} are left out"
    return f"{sentence}.{_warn_of_training_rows(subject)}"


def _warn_of_training_rows(subject: Subject) -> str:
    if subject.training_facts is None:
        return ""
    connection = subject.tables.session.connection
    try:
        training_tables = connection.get_table_names(subject.training_facts.query, qualified=True)
        query = f"SELECT * FROM {subject.source}"
        report_tables = connection.get_table_names(query, qualified=True)
    except duckdb.Error:  # Only sqlml can parse the query.
        return ""
    shared_tables = sorted(set(map(fold, training_tables)) & set(map(fold, report_tables)))
    if not shared_tables:
        return ""
    return (
        f" The model was trained on rows of {' and '.join(map(clip, shared_tables[:3]))}, so it "
        "has seen some of these rows, and new rows are likely to have worse metrics."
    )


def _tabulate_metrics(subject: Subject, metrics: list[dict[str, Any]]) -> ReportPart:
    names = [name for name in METRICS if any(row.get(name) is not None for row in metrics)]
    rows = [[METRICS[name], *(row.get(name) for row in metrics[:_MAX_CLASSES])] for name in names]
    if len(metrics) > 1:
        targets = [clip(str(row["target"])) for row in metrics[:_MAX_CLASSES]]
        return make_table("Metrics of each target", ("Metric", *targets), rows)
    columns: tuple[str, ...] = ("Metric", "On this data")
    training = subject.training_facts
    if training is not None and training.metrics.keys() & set(names):
        where = "Held out in training" if training.held_out > 0 else "On the training rows"
        if "cv" in training.options and not training.held_out:
            where = f"Mean of {training.options['cv']} folds"
        columns += (where,)
        rows = [[*row, training.metrics.get(name)] for row, name in zip(rows, names, strict=True)]
    note = ""
    if subject.task == "classes":
        note = "Precision, recall, F1 and areas are means over all classes, each against the rest."
    return make_table("Metrics", columns, rows, note)


def _tabulate_class_metrics(subject: Subject) -> ReportPart:
    rows_by_class = subject.evaluate("evaluate", per_class=True)
    metrics = [row for row in rows_by_class if row["class"] is not None]
    metrics.sort(key=lambda row: -row["rows"])
    names = ("precision", "recall", "f1_score", "roc_auc", "average_precision")
    rows = [
        [format_value(row["class"], 30), row["rows"], *(row[name] for name in names)]
        for row in metrics[:_MAX_CLASSES]
    ]
    columns = ("Class", "Rows", *(METRICS[name] for name in names))
    note = note_left_out(len(metrics) - len(rows), "rarer classes")
    return make_table("Metrics of each class", columns, rows, note)
