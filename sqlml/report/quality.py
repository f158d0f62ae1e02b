"""The section about the quality of the model on rows with labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

import duckdb

from sqlml.planner.binding.requested_output import spell_class
from sqlml.report import charts
from sqlml.report.charts import plot_histogram
from sqlml.report.parts import (
    Note,
    Part,
    Plot,
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
"""The rows of a curve, each with the name of its class."""


@dataclass(frozen=True, slots=True)
class Classes:
    """The classes of a model of one target: their values, distinct names, and counts of rows.

    Of two classes, the second is positive. Rows are counted by labels, or else by predictions.
    `by_frequency` has the numbers of the classes, the most frequent first.
    """

    values: tuple[Any, ...]
    names: tuple[str, ...]
    by_frequency: tuple[int, ...]
    counts: tuple[int, ...]

    @property
    def are_two(self) -> bool:
        """True if there are two classes, one of which is positive."""
        return len(self.values) == 2

    @property
    def positive(self) -> str:
        return self.names[-1]

    @property
    def count_with_rows(self) -> int:
        """The number of classes that have rows."""
        return sum(count > 0 for count in self.counts)


def count_classes(subject: Subject) -> Classes:
    """Return the classes of a model with one target, whose rows are scored."""
    scores = subject.known_scores
    values = scores.rows.class_labels.values
    names = make_distinct([clip(spell_class(v) or "(empty)", 30) for v in values])
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
"""Number of thresholds in the table next to it: of one class, and of each of several."""

_MAX_MATRIX_CLASSES = 12
_MAX_CONFUSIONS = 20


def _plot_classifier(subject: Subject) -> list[Part]:
    """Return the plots of a classifier with one target, or why one is missing."""
    scores = subject.known_scores
    classes = count_classes(subject)
    confusion = _plot_confusion(subject, classes)
    if len(classes.values) < 2:
        return [confusion, Note("The model knows one class, so it has no curves.")]
    if scores.rows.scores == "none":
        why = "The model returns neither probabilities nor scores, so it has no curves."
        return [confusion, Note(why)]
    if classes.count_with_rows < 2:
        return [confusion, Note("All labels are of one class; curves compare two.")]
    parts = [confusion, _plot_roc(subject, classes), _plot_precision_recall(subject, classes)]
    if scores.rows.scores == "probabilities":
        return [*parts, _plot_calibration(subject, classes)]
    why = "The model gives scores and no probabilities, so it has no calibration curve."
    return [*parts, Note(why)]


def _read_curve(subject: Subject, classes: Classes, function: str, **options: Any) -> CurveRows:
    if classes.are_two:
        return [(classes.positive, row) for row in subject.evaluate(function, **options)]
    return [
        (classes.names[k], row)
        for k in classes.by_frequency[:MAX_CURVES]
        if classes.counts[k]
        for row in subject.evaluate(function, **{"class": classes.values[k]}, **options)
    ]


def _find_points(rows: CurveRows, x: str, y: str) -> list[tuple[str, float, float]]:
    return [(s, r[x], r[y]) for s, r in rows if r[x] is not None and r[y] is not None]


def _pick_evenly(rows: CurveRows) -> CurveRows:
    """Return evenly spaced rows of each class for a table."""
    by_class = [list(series) for _, series in groupby(rows, itemgetter(0))]
    count = _TABLE_ROWS if len(by_class) == 1 else _TABLE_ROWS_PER_CLASS
    picked = []
    for series in by_class:
        last = len(series) - 1
        step = max(1, last / (count - 1))
        indices = dict.fromkeys(min(last, round(n * step)) for n in range(count))
        picked += [series[i] for i in indices]
    return picked


def _make_curve_table(
    classes: Classes, caption: str, rows: CurveRows, columns: Mapping[str, str]
) -> Table:
    """Return the entries of `rows` under the titles of `columns`, and the class of each row."""
    cells = [[name, *(row[key] for key in columns.values())] for name, row in rows]
    if classes.are_two:
        return make_table(caption, tuple(columns), [row[1:] for row in cells])
    return make_table(caption, ("Class", *columns), cells)


def _describe_classes(classes: Classes) -> str:
    if classes.are_two:
        return f"Class {classes.positive} against {classes.names[0]}."
    count = classes.count_with_rows
    if count > MAX_CURVES:
        return f"Each of the {MAX_CURVES} most frequent of {count} classes against all others."
    return "Each class against all others."


def _plot_roc(subject: Subject, classes: Classes) -> Part:
    rows = _read_curve(subject, classes, "roc_curve", points=_CURVE_POINTS)
    points = _find_points(rows, "false_positive_rate", "recall")
    columns = {"Threshold": "threshold", "Recall": "recall"}
    columns["False positives"] = "false_positive_rate"
    return Plot(
        "ROC curve",
        f"{_describe_classes(classes)} The further above the dashed diagonal, the better.",
        charts.draw_lines(points, "False positive rate", "Recall", diagonal=True),
        "Line plot: recall rises from 0 to 1 as the false positive rate does",
        _make_curve_table(classes, "Points of the ROC curve", _pick_evenly(rows), columns),
    )


def _plot_precision_recall(subject: Subject, classes: Classes) -> Part:
    rows = _read_curve(subject, classes, "pr_curve", points=_CURVE_POINTS)
    points = _find_points(rows, "recall", "precision")
    thresholds = [(name, row) for name, row in rows if row["threshold"] is not None]
    caption = "Points of the precision-recall curve"
    columns = {"Threshold": "threshold", "Recall": "recall", "Precision": "precision"}
    return Plot(
        "Precision and recall",
        f"{_describe_classes(classes)} The share of hits that are right, as more of the class is "
        "found.",
        charts.draw_lines(points, "Recall", "Precision"),
        "Line plot of precision over recall",
        _make_curve_table(classes, caption, _pick_evenly(thresholds), columns),
    )


def _plot_calibration(subject: Subject, classes: Classes) -> Part:
    rows = _read_curve(subject, classes, "calibration_curve", bins=10)
    points = _find_points(rows, "mean_predicted", "fraction_of_positives")
    columns = {"Predicted": "mean_predicted", "Observed": "fraction_of_positives", "Rows": "rows"}
    return Plot(
        "Calibration",
        f"{_describe_classes(classes)} On the dashed diagonal, what is predicted with 30% happens "
        "in 30% of the rows.",
        charts.draw_lines(points, "Mean predicted probability", "Observed share", True, True),
        "Line plot of the observed share over the predicted probability",
        _make_curve_table(classes, "Bins of the calibration curve", rows, columns),
    )


def _plot_confusion(subject: Subject, classes: Classes) -> Part:
    """Show the confusion matrix, or the most frequent confusions if there are too many classes."""
    number_of = {value: k for k, value in enumerate(classes.values)}
    pairs: Counter[tuple[int, int]] = Counter()
    for row in subject.evaluate("confusion_matrix", pairs=True):
        pair = number_of[row["expected_label"]], number_of[row["predicted_label"]]
        pairs[pair] += int(row["rows"])
    present = sorted({k for pair in pairs for k in pair})
    if len(present) > _MAX_MATRIX_CLASSES:
        return _list_confusions(classes, pairs)
    cells, rows = [], []
    for y in present:
        total = sum(pairs[y, hat] for hat in present)
        for hat in present:
            n = pairs[y, hat]
            share = n / total if total else 0.0
            cells.append((classes.names[y], classes.names[hat], share, f"{n:,}"))
        right = f"{pairs[y, y] / total:.1%}" if total else ""
        rows.append([classes.names[y], *(pairs[y, hat] for hat in present), right])
    columns = ("Label", *(f"as {classes.names[k]}" for k in present), "Right")
    return Plot(
        "Confusion",
        "Rows of each class (down) by what they are taken for (across); the stronger the color, "
        "the greater the share of the class.",
        charts.draw_heatmap(cells, "Predicted", "Label"),
        "Matrix of labels and predictions",
        make_table("Confusion matrix", columns, rows),
    )


def _list_confusions(classes: Classes, pairs: Mapping[tuple[int, int], int]) -> Table:
    wrong = sorted(((n, y, hat) for (y, hat), n in pairs.items() if y != hat), reverse=True)
    rows = [[classes.names[y], classes.names[hat], n] for n, y, hat in wrong[:_MAX_CONFUSIONS]]
    note = note_left_out(len(wrong) - len(rows), "rarer ones")
    return make_table("Most frequent confusions", ("Label", "Taken for", "Rows"), rows, note)


_QUANTILES = 20
_IS_FINITE = "y IS NOT NULL AND hat IS NOT NULL AND isfinite(y) AND isfinite(hat)"


def _plot_regressor(subject: Subject) -> list[Part]:
    if subject.targets == 1:
        return _plot_target(subject, _IS_FINITE, "")
    parts: list[Part] = []
    for t, name in enumerate(subject.target_names[:MAX_TARGETS]):
        parts += _plot_target(subject, f"t = {t} AND {_IS_FINITE}", f"{name}: ")
    return [*parts, *subject.note_more_targets()]


def _plot_target(subject: Subject, condition: str, prefix: str) -> list[Part]:
    """Plot one target, whose rows of `sqlml_scored` fulfill the condition."""
    scores = subject.known_scores.table
    residuals = plot_histogram(
        subject,
        f"(SELECT y - hat AS x FROM {scores} WHERE {condition})",
        f"{prefix}Residuals",
        "Label minus prediction: around 0 if the model is right on average.",
        "Residual",
    )
    bins = subject.query_tables(
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
    points = [(r["mean_hat"], r["low"], r["mean_y"], r["high"]) for r in bins]
    if len({x for x, *_ in points}) < 2:
        why = "all predictions are about the same, so there is nothing to plot."
        return [Note(f"{prefix}{why}" if prefix else why.capitalize()), residuals]
    cells = [[r["mean_hat"], r["mean_y"], r["low"], r["high"], r["n"]] for r in bins]
    columns = ("Prediction", "Mean label", "10%", "90%", "Rows")
    labels = Plot(
        f"{prefix}Labels beside predictions",
        f"The rows in {len(points)} equal parts by their prediction: the mean label of each, in "
        "the band that holds 80% of the labels. On the dashed line both are the same.",
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
    "max_error": "Greatest error",
    "explained_variance": "Explained variance",
    "mean_absolute_percentage_error": "Mean absolute error as a share",
    "mean_squared_distance": "Mean squared distance to the center",
    "adjusted_rand_score": "Adjusted Rand score",
    "homogeneity": "Homogeneity",
    "completeness": "Completeness",
    "v_measure": "V measure",
}
"""Titles of the metrics of ml_evaluate, the most important first."""

_MAX_CLASSES = 20
"""Maximum number of classes, or of targets, in the table of metrics."""

_MAX_TILES = 4


def measure_quality(subject: Subject) -> Section:
    """Show the metrics, with the plots of a classifier or a regressor."""
    obstacle = _find_obstacle(subject)
    if obstacle is not None:
        return Section("quality", "Quality", "", (Note(obstacle),))
    metrics = subject.evaluate("evaluate")
    parts: list[Part] = [_compare_metrics(subject, metrics)]
    if subject.task == "numbers":
        parts += _plot_regressor(subject)
    elif subject.known_scores.rows.targets > 1:
        why = "Curves are drawn for classifiers of one target"
        parts.append(Note(f"{why}; ml_roc_curve and its like return those of several."))
    elif subject.task in ("classes", "two classes"):
        if subject.task == "classes":
            parts.append(_list_metrics_by_class(subject))
        parts += _plot_classifier(subject)
    tiles = [
        Tile(title, format_number(metrics[0][name], padded=True))
        for name, title in METRICS.items()
        if metrics[0].get(name) is not None and len(metrics) == 1
    ]
    lead = _write_lead(subject, metrics[0])
    return Section("quality", "Quality", lead, tuple(parts), tuple(tiles[:_MAX_TILES]))


def _find_obstacle(subject: Subject) -> str | None:
    """Return why nothing can be measured, or None if it can."""
    scores = subject.scores
    if scores is None:
        return "The model transforms or scores rows and predicts nothing that could be right."
    if not subject.count:
        return "The data has no rows."
    if not scores.is_labelled and subject.task != "clusters":
        return (
            "No column of labels is known, so nobody knows which predictions are right. Name it "
            "as in con.report('m', 'customers', label='churned') or --label churned."
        )
    known = "hat IS NOT NULL" if subject.task == "clusters" else "y IS NOT NULL AND hat IS NOT NULL"
    (row,) = subject.query_tables(f"SELECT count(*) AS n FROM {scores.table} WHERE {known}")
    return None if row["n"] else "No row has both a label and a prediction."


def _write_lead(subject: Subject, row: Mapping[str, Any]) -> str:
    sentence = f"Measured on {row['rows']:,} rows"
    if subject.known_scores.count < subject.count:
        sentence += f", an even sample of the {subject.count:,}"
    if subject.labels:
        names = " and ".join(map(clip, subject.labels))
        sentence += f", by column{'s' if len(subject.labels) > 1 else ''} {names}"
    for missing in ("label", "prediction"):
        if count := row[f"null_{missing}s"]:
            sentence += f"; {count:,} rows without a {missing} are left out"
    return f"{sentence}.{_warn_of_training_rows(subject)}"


def _warn_of_training_rows(subject: Subject) -> str:
    """Return a warning if the data reads a table that training also read."""
    if subject.facts is None:
        return ""
    connection = subject.tables.session.connection
    try:
        trained = connection.get_table_names(subject.facts.query, qualified=True)
        read = connection.get_table_names(f"SELECT * FROM {subject.source}", qualified=True)
    except duckdb.Error:  # a query that only sqlml reads
        return ""
    shared = sorted(set(map(fold, trained)) & set(map(fold, read)))
    if not shared:
        return ""
    return (
        f" The model was trained on rows of {' and '.join(map(clip, shared[:3]))}, so it has seen "
        "some of these rows, and new rows are likely to have worse metrics."
    )


def _compare_metrics(subject: Subject, metrics: list[dict[str, Any]]) -> Part:
    """Compare the metrics of these rows with those of training, on held-out rows if possible."""
    names = [name for name in METRICS if any(row.get(name) is not None for row in metrics)]
    rows = [[METRICS[name], *(row.get(name) for row in metrics[:_MAX_CLASSES])] for name in names]
    if len(metrics) > 1:
        targets = [clip(str(row["target"])) for row in metrics[:_MAX_CLASSES]]
        return make_table("Metrics of each target", ("Metric", *targets), rows)
    columns: tuple[str, ...] = ("Metric", "On this data")
    facts = subject.facts
    if facts is not None and facts.metrics.keys() & set(names):
        columns += ("Held out in training" if facts.held_out > 0 else "On the training rows",)
        rows = [[*row, facts.metrics.get(name)] for row, name in zip(rows, names, strict=True)]
    note = ""
    if subject.task == "classes":
        note = "Precision, recall, F1 and areas: means over the classes, each against all others."
    return make_table("Metrics", columns, rows, note)


def _list_metrics_by_class(subject: Subject) -> Part:
    metrics = [r for r in subject.evaluate("evaluate", per_class=True) if r["class"] is not None]
    metrics.sort(key=lambda row: -row["rows"])
    names = ("precision", "recall", "f1_score", "roc_auc", "average_precision")
    rows = [
        [format_value(row["class"], 30), row["rows"], *(row[name] for name in names)]
        for row in metrics[:_MAX_CLASSES]
    ]
    columns = ("Class", "Rows", *(METRICS[name] for name in names))
    note = note_left_out(len(metrics) - len(rows), "rarer classes")
    return make_table("Metrics of each class", columns, rows, note)
