"""`classifier_plots`: ROC, precision and recall, calibration and confusion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlml.report import charts
from sqlml.report.classes import MOST_LINES, Classes, classes_of
from sqlml.report.draw import drawn
from sqlml.report.parts import Note, Part, Plot, Table, table
from sqlml.report.subject import Subject

_POINTS = 200
"""Thresholds of a curve that is drawn."""

_TABLE = 11
"""Of those, how many the table beside it has; of each class where there are several."""

_MOST_CELLS = 12
"""Classes of a confusion matrix that is drawn."""

_MOST_PAIRS = 20
"""Confusions that are listed where there are more classes."""


def classifier_plots(subject: Subject) -> list[Part]:
    """The plots of a classifier of one target, or why one is not there."""
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
    """The rows of a curve, each with the name of its class."""
    if classes.are_two:
        return [(classes.positive, row) for row in subject.evaluated(function, **options)]
    found = []
    for place in classes.drawn:
        if classes.counts[place]:
            own = subject.evaluated(function, **{"class": classes.values[place]}, **options)
            found += [(classes.names[place], row) for row in own]
    return found


def _which(classes: Classes) -> str:
    """Of which classes a plot is."""
    if classes.are_two:
        return f"Class {classes.positive} against {classes.names[0]}."
    seen = sum(count > 0 for count in classes.counts)
    if seen > MOST_LINES:
        return f"Each of the {MOST_LINES} most frequent of {seen} classes against all others."
    return "Each class against all others."


def _some(
    rows: Sequence[tuple[str, dict[str, Any]]], names: Sequence[str], classes: Classes
) -> list[list[Any]]:
    """Rows for a table, evenly taken from those of each class."""
    made = []
    several = len(dict.fromkeys(s for s, _ in rows))
    most = _TABLE if several == 1 else 6
    for series in dict.fromkeys(s for s, _ in rows):
        own = [row for s, row in rows if s == series]
        step = max(1, (len(own) - 1) / (most - 1)) if len(own) > 1 else 1
        places = dict.fromkeys(min(len(own) - 1, round(n * step)) for n in range(most))
        head = [] if classes.are_two else [series]
        made += [[*head, *(own[place][name] for name in names)] for place in places]
    return made


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
    """The matrix, or where there are too many classes the most frequent confusions."""
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
    """The pairs of classes that are confused most."""
    wrong = sorted(((n, y, hat) for (y, hat), n in pairs.items() if y != hat), reverse=True)
    rows = [[classes.names[y], classes.names[hat], n] for n, y, hat in wrong[:_MOST_PAIRS]]
    more = len(wrong) - len(rows)
    return table(
        "Most frequent confusions",
        ("Label", "Taken for", "Rows"),
        rows,
        f"{more:,} rarer ones are left out." if more else "",
    )
