"""The section about the quality of the model on rows with labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import duckdb

from sqlml.planner.binding.requested_output import spell_class
from sqlml.report import charts
from sqlml.report.charts import drawn, histogram
from sqlml.report.parts import (
    Note,
    Part,
    Plot,
    Section,
    Table,
    Tile,
    clipped,
    distinct,
    number,
    shown,
    table,
)
from sqlml.report.subject import MOST_TARGETS, Subject
from sqlml.types import fold

MOST_LINES = 6
"""Maximum number of classes with lines of their own in a plot."""


@dataclass(frozen=True, slots=True)
class Classes:
    """The classes of a model of one target.

    Attributes:
        values: by their places in `sqlml_scored`; the second of two is the one that is looked for.
        names: as they are printed, no two alike.
        seen: places from the most frequent to the rarest, by labels, or without any by predictions.
        counts: rows of each place, likewise.
    """

    values: tuple[Any, ...]
    names: tuple[str, ...]
    seen: tuple[int, ...]
    counts: tuple[int, ...]

    @property
    def are_two(self) -> bool:
        """Return whether there are two classes, one of which is positive."""
        return len(self.values) == 2

    @property
    def positive(self) -> str:
        """Return the name of the positive class."""
        return self.names[-1]

    @property
    def drawn(self) -> tuple[int, ...]:
        """Return the positions of the classes that have a line of their own."""
        return self.seen[:MOST_LINES]


def classes_of(subject: Subject) -> Classes:
    """Return the classes of a model with one target, whose rows are scored."""
    scores = subject.scores
    assert scores is not None
    values = scores.rows.class_labels.values
    names = distinct([clipped(spell_class(v) or "(empty)", 30) for v in values])
    column = "y" if scores.is_labelled else "hat"
    found = subject.of_tables(
        f"SELECT {column} AS place, count(*) AS n FROM {scores.table} "
        f"WHERE {column} IS NOT NULL GROUP BY {column}"
    )
    counts = [0] * len(values)
    for row in found:
        counts[row["place"]] = row["n"]
    seen = sorted(range(len(values)), key=lambda place: -counts[place])
    return Classes(values, names, tuple(seen), tuple(counts))


_POINTS = 200
"""Number of thresholds of a drawn curve."""

_TABLE = 11
"""Number of thresholds in the table next to it, per class if there are several."""

_MOST_CELLS = 12
"""Maximum number of classes of a drawn confusion matrix."""

_MOST_PAIRS = 20
"""Number of listed confusions if there are more classes."""


def classifier_plots(subject: Subject) -> list[Part]:
    """Return the plots of a classifier with one target, or why one is missing."""
    scores = subject.scores
    assert scores is not None
    classes = classes_of(subject)
    parts: list[Part] = [_confusion(subject, classes)]
    if len(classes.values) < 2:
        return [*parts, Note("The model knows one class, so it has no curves.")]
    if scores.rows.scores == "none":
        return [
            *parts,
            Note("The model returns neither probabilities nor scores, so it has no curves."),
        ]
    if sum(count > 0 for count in classes.counts) < 2:
        return [*parts, Note("All labels are of one class; curves compare two.")]
    parts += [_roc(subject, classes), _precision_recall(subject, classes)]
    if scores.rows.scores == "probabilities":
        parts.append(_calibration(subject, classes))
    else:
        parts.append(
            Note("The model gives scores and no probabilities, so it has no calibration curve.")
        )
    return parts


def _curves(
    subject: Subject, classes: Classes, function: str, **options: Any
) -> list[tuple[str, dict[str, Any]]]:
    """Return the rows of a curve, each with the name of its class."""
    if classes.are_two:
        return [(classes.positive, row) for row in subject.evaluated(function, **options)]
    curve = []
    for place in classes.drawn:
        if classes.counts[place]:
            curve_rows = subject.evaluated(function, **{"class": classes.values[place]}, **options)
            curve += [(classes.names[place], row) for row in curve_rows]
    return curve


def _which(classes: Classes) -> str:
    """Describe the classes of a plot."""
    if classes.are_two:
        return f"Class {classes.positive} against {classes.names[0]}."
    seen = sum(count > 0 for count in classes.counts)
    if seen > MOST_LINES:
        return f"Each of the {MOST_LINES} most frequent of {seen} classes against all others."
    return "Each class against all others."


def _some(
    rows: Sequence[tuple[str, dict[str, Any]]], names: Sequence[str], classes: Classes
) -> list[list[Any]]:
    """Return evenly spaced rows of each class for a table."""
    cells = []
    several = len(dict.fromkeys(s for s, _ in rows))
    most = _TABLE if several == 1 else 6
    for series in dict.fromkeys(s for s, _ in rows):
        series_rows = [row for s, row in rows if s == series]
        step = max(1, (len(series_rows) - 1) / (most - 1)) if len(series_rows) > 1 else 1
        places = dict.fromkeys(min(len(series_rows) - 1, round(n * step)) for n in range(most))
        head = [] if classes.are_two else [series]
        cells += [[*head, *(series_rows[place][name] for name in names)] for place in places]
    return cells


def _with_class(classes: Classes, *columns: str) -> tuple[str, ...]:
    return columns if classes.are_two else ("Class", *columns)


def _roc(subject: Subject, classes: Classes) -> Part:
    rows = _curves(subject, classes, "roc_curve", points=_POINTS)
    points = [
        (s, row["false_positive_rate"], row["recall"])
        for s, row in rows
        if row["recall"] is not None and row["false_positive_rate"] is not None
    ]
    names = ("threshold", "recall", "false_positive_rate")
    beside = table(
        "Points of the ROC curve",
        _with_class(classes, "Threshold", "Recall", "False positives"),
        _some(rows, names, classes),
    )
    return Plot(
        "ROC curve",
        f"{_which(classes)} The further above the dashed diagonal, the better.",
        drawn(charts.lines(points, "False positive rate", "Recall", diagonal=True)),
        "Line plot: recall rises from 0 to 1 as the false positive rate does; "
        "the numbers are in the table.",
        beside,
    )


def _precision_recall(subject: Subject, classes: Classes) -> Part:
    rows = _curves(subject, classes, "pr_curve", points=_POINTS)
    points = [
        (s, row["recall"], row["precision"])
        for s, row in rows
        if row["recall"] is not None and row["precision"] is not None
    ]
    told = [(s, row) for s, row in rows if row["threshold"] is not None]
    beside = table(
        "Points of the precision-recall curve",
        _with_class(classes, "Threshold", "Recall", "Precision"),
        _some(told, ("threshold", "recall", "precision"), classes),
    )
    return Plot(
        "Precision and recall",
        f"{_which(classes)} The share of hits that are right, as more of the class is found.",
        drawn(charts.lines(points, "Recall", "Precision")),
        "Line plot of precision over recall; the numbers are in the table.",
        beside,
    )


def _calibration(subject: Subject, classes: Classes) -> Part:
    rows = _curves(subject, classes, "calibration_curve", bins=10)
    points = [
        (s, row["mean_predicted"], row["fraction_of_positives"])
        for s, row in rows
        if row["mean_predicted"] is not None
    ]
    names = ("mean_predicted", "fraction_of_positives", "rows")
    cells = [[*([] if classes.are_two else [s]), *(row[name] for name in names)] for s, row in rows]
    beside = table(
        "Bins of the calibration curve",
        _with_class(classes, "Predicted", "Observed", "Rows"),
        cells,
    )
    return Plot(
        "Calibration",
        f"{_which(classes)} On the dashed diagonal, what is predicted with 30% happens in 30% of "
        "the rows.",
        drawn(charts.lines(points, "Mean predicted probability", "Observed share", True, True)),
        "Line plot of the observed share over the predicted probability; the numbers are in the "
        "table.",
        beside,
    )


def _confusion(subject: Subject, classes: Classes) -> Part:
    """Show the confusion matrix, or the most frequent confusions if there are too many classes."""
    place = {value: n for n, value in enumerate(classes.values)}
    pairs: dict[tuple[int, int], int] = {}
    for row in subject.evaluated("confusion_matrix", pairs=True):
        key = place[row["expected_label"]], place[row["predicted_label"]]
        pairs[key] = pairs.get(key, 0) + int(row["rows"])
    shown = sorted({n for pair in pairs for n in pair})
    if len(shown) > _MOST_CELLS:
        return _confusions(classes, pairs)
    totals = {k: sum(n for (y, _), n in pairs.items() if y == k) for k in shown}
    cells = [
        (
            classes.names[y],
            classes.names[hat],
            pairs.get((y, hat), 0) / totals[y] if totals[y] else 0.0,
            f"{pairs.get((y, hat), 0):,}",
        )
        for y in shown
        for hat in shown
    ]
    rows = [
        [classes.names[y], *(pairs.get((y, hat), 0) for hat in shown), _right(pairs, totals, y)]
        for y in shown
    ]
    columns = ("Label", *(f"as {classes.names[k]}" for k in shown), "Right")
    return Plot(
        "Confusion",
        "Rows of each class (down) by what they are taken for (across); the stronger the colour, "
        "the greater the share of the class.",
        drawn(charts.heat(cells, "Predicted", "Label")),
        "Matrix of labels and predictions; the numbers are in the table.",
        table("Confusion matrix", columns, rows),
    )


def _right(pairs: dict[tuple[int, int], int], totals: dict[int, int], y: int) -> str:
    return f"{pairs.get((y, y), 0) / totals[y]:.1%}" if totals[y] else ""


def _confusions(classes: Classes, pairs: dict[tuple[int, int], int]) -> Table:
    """Return the pairs of classes that are confused most."""
    wrong = sorted(((n, y, hat) for (y, hat), n in pairs.items() if y != hat), reverse=True)
    rows = [[classes.names[y], classes.names[hat], n] for n, y, hat in wrong[:_MOST_PAIRS]]
    more = len(wrong) - len(rows)
    return table(
        "Most frequent confusions",
        ("Label", "Taken for", "Rows"),
        rows,
        f"{more:,} rarer ones are left out." if more else "",
    )


_PARTS = 20
"""Number of equal parts of the rows by prediction."""

_KNOWN = "y IS NOT NULL AND hat IS NOT NULL AND isfinite(y) AND isfinite(hat)"


def regressor_plots(subject: Subject) -> list[Part]:
    """Return the plots of a regressor for each of the first targets."""
    if subject.targets == 1:
        return _of_target(subject, _KNOWN, "")
    parts: list[Part] = []
    for t, name in enumerate(subject.target_names[:MOST_TARGETS]):
        parts += _of_target(subject, f"t = {t} AND {_KNOWN}", f"{name}: ")
    more = subject.targets - MOST_TARGETS
    return [*parts, *([Note(f"Plots of {more:,} more targets are left out.")] if more > 0 else [])]


def _of_target(subject: Subject, known: str, name: str) -> list[Part]:
    """The plots of one target.

    Args:
        known: which rows of `sqlml_scored`. name: what titles begin with.
    """
    assert subject.scores is not None
    scores = subject.scores.table
    residuals = histogram(
        subject,
        f"(SELECT y - hat AS x FROM {scores} WHERE {known})",
        f"{name}Residuals",
        "Label minus prediction: around 0 where the model is right on average.",
        "Residual",
    )
    bins = subject.of_tables(
        f"""
        SELECT part, avg(hat) AS mean_hat, avg(y) AS mean_y, quantile(y, 0.1) AS low,
            quantile(y, 0.9) AS high, count(*) AS n
        FROM (
            SELECT y, hat, ntile({_PARTS}) OVER (ORDER BY hat) AS part
            FROM {scores} WHERE {known}
        ) AS parts
        GROUP BY part ORDER BY part
        """
    )
    points = [(r["mean_hat"], r["low"], r["mean_y"], r["high"]) for r in bins]
    if len({x for x, *_ in points}) < 2:
        why = "all predictions are about the same, so there is nothing to plot."
        return [Note(f"{name}{why}" if name else why.capitalize()), residuals]
    beside = Plot(
        f"{name}Labels beside predictions",
        f"The rows in {len(points)} equal parts by their prediction: the mean label of each, in "
        "the band that holds 80% of the labels. On the dashed line both are the same.",
        drawn(charts.band(points, "Mean prediction", "Label")),
        "Line plot of the mean label over the mean prediction; the numbers are in the table.",
        table(
            f"{name}Labels by prediction",
            ("Prediction", "Mean label", "10%", "90%", "Rows"),
            [[r["mean_hat"], r["mean_y"], r["low"], r["high"], r["n"]] for r in bins],
        ),
    )
    return [beside, residuals]


METRICS: Mapping[str, str] = MappingProxyType(
    {
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
        "mean_squared_distance": "Mean squared distance to the centre",
        "adjusted_rand_score": "Adjusted Rand score",
        "homogeneity": "Homogeneity",
        "completeness": "Completeness",
        "v_measure": "V measure",
    }
)
"""Titles of the metrics of ml_evaluate, the most important first."""

_MOST_CLASSES = 20
"""Maximum number of classes in the table of metrics."""

_TILES = 4


def quality(subject: Subject) -> Section:
    """Show the metrics, with the plots of a classifier or a regressor."""
    scores = subject.scores
    why = _why_not(subject)
    if why is not None or scores is None:
        return Section("quality", "Quality", "", (Note(why or ""),))
    every = subject.evaluated("evaluate")
    first = every[0]
    parts: list[Part] = [_metrics(subject, every)]
    if subject.task == "numbers":
        parts += regressor_plots(subject)
    elif scores.rows.targets > 1:
        parts.append(
            Note(
                "Curves are drawn for classifiers of one target; ml_roc_curve and its like return "
                "those of several."
            )
        )
    elif subject.task in ("classes", "two classes"):
        if subject.task == "classes":
            parts.append(_by_class(subject))
        parts += classifier_plots(subject)
    tiles = [
        Tile(name, number(first[key], padded=True))
        for key, name in METRICS.items()
        if first.get(key) is not None and len(every) == 1
    ]
    return Section("quality", "Quality", _lead(subject, first), tuple(parts), tuple(tiles[:_TILES]))


def _why_not(subject: Subject) -> str | None:
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
    (row,) = subject.of_tables(f"SELECT count(*) AS n FROM {scores.table} WHERE {known}")
    return None if row["n"] else "No row has both a label and a prediction."


def _lead(subject: Subject, row: Mapping[str, Any]) -> str:
    assert subject.scores is not None
    label = " and ".join(clipped(name) for name in subject.labels)
    sentence = f"Measured on {row['rows']:,} rows"
    if subject.scores.count < subject.count:
        sentence += f", an even sample of the {subject.count:,}"
    if label:
        sentence += f", by column{'s' if len(subject.labels) > 1 else ''} {label}"
    if row["null_labels"]:
        sentence += f"; {row['null_labels']:,} rows without a label are left out"
    if row["null_predictions"]:
        sentence += f"; {row['null_predictions']:,} rows without a prediction are left out"
    return f"{sentence}.{_seen_in_training(subject)}"


def _seen_in_training(subject: Subject) -> str:
    """Return a warning if the data reads a table that training also read."""
    if subject.facts is None:
        return ""
    connection = subject.asking.connection
    try:
        trained = connection.get_table_names(subject.facts.query, qualified=True)
        read = connection.get_table_names(f"SELECT * FROM {subject.source}", qualified=True)
    except duckdb.Error:  # a query that only sqlml reads
        return ""
    shared = sorted({fold(name) for name in trained} & {fold(name) for name in read})
    if not shared:
        return ""
    names = " and ".join(clipped(name) for name in shared[:3])
    return (
        f" The model was trained on rows of {names}, so it has seen some of these rows, and new "
        "rows are likely to have worse metrics."
    )


def _metrics(subject: Subject, every: list[dict[str, Any]]) -> Part:
    """Compare the metrics of these rows with those of training, on held-out rows if possible."""
    trained_metrics = {} if subject.facts is None else subject.facts.metrics
    names = [name for name in METRICS if any(row.get(name) is not None for row in every)]
    if len(every) > 1:
        rows = [
            [METRICS[name], *(row.get(name) for row in every[:_MOST_CLASSES])] for name in names
        ]
        targets = [clipped(str(row["target"])) for row in every[:_MOST_CLASSES]]
        return table("Metrics of each target", ("Metric", *targets), rows)
    (only,) = every
    rows = [[METRICS[name], only.get(name)] for name in names]
    columns: tuple[str, ...] = ("Metric", "On this data")
    if trained_metrics.keys() & set(names):
        is_held_out = subject.facts is not None and subject.facts.held_out > 0
        columns += ("Held out in training" if is_held_out else "On the training rows",)
        rows = [[*row, trained_metrics.get(name)] for row, name in zip(rows, names, strict=True)]
    note = ""
    if subject.task == "classes":
        note = "Precision, recall, F1 and areas: means over the classes, each against all others."
    return table("Metrics", columns, rows, note)


def _by_class(subject: Subject) -> Part:
    """Return the metrics of each class, the most frequent first."""
    metrics = [
        row for row in subject.evaluated("evaluate", per_class=True) if row["class"] is not None
    ]
    metrics.sort(key=lambda row: -row["rows"])
    names = ("precision", "recall", "f1_score", "roc_auc", "average_precision")
    rows = [
        [shown(row["class"], 30), row["rows"], *(row[name] for name in names)]
        for row in metrics[:_MOST_CLASSES]
    ]
    more = len(metrics) - len(rows)
    return table(
        "Metrics of each class",
        ("Class", "Rows", *(METRICS[name] for name in names)),
        rows,
        f"{more:,} rarer classes are left out." if more else "",
    )
