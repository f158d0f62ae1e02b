"""`quality`: how good the model is on rows with labels."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import duckdb

from sqlml.report.classifier_plots import classifier_plots
from sqlml.report.parts import Note, Part, Section, Tile, table
from sqlml.report.regressor_plots import regressor_plots
from sqlml.report.shown import clipped, number, shown
from sqlml.report.subject import Subject
from sqlml.types import fold

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
"""A metric of ml_evaluate -> how the page calls it; the most telling first."""

_MOST_CLASSES = 20
"""Classes that the table of metrics tells of."""

_TILES = 4


def quality(subject: Subject) -> Section:
    """The metrics, with the plots of a classifier or a regressor."""
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
    """Why nothing can be measured; None where it can."""
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
    told = f"Measured on {row['rows']:,} rows"
    if subject.scores.count < subject.count:
        told += f", an even sample of the {subject.count:,}"
    if label:
        told += f", by column{'s' if len(subject.labels) > 1 else ''} {label}"
    if row["null_labels"]:
        told += f"; {row['null_labels']:,} rows without a label are left out"
    if row["null_predictions"]:
        told += f"; {row['null_predictions']:,} rows without a prediction are left out"
    return f"{told}.{_seen_in_training(subject)}"


def _seen_in_training(subject: Subject) -> str:
    """Return a sentence that says so where the data reads a table that training read, too."""
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
    """The metrics of these rows, beside those of training: of the rows held out, if there were."""
    held = {} if subject.facts is None else subject.facts.metrics
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
    if held.keys() & set(names):
        is_held_out = subject.facts is not None and subject.facts.held_out > 0
        columns += ("Held out in training" if is_held_out else "On the training rows",)
        rows = [[*row, held.get(name)] for row, name in zip(rows, names, strict=True)]
    note = ""
    if subject.task == "classes":
        note = "Precision, recall, F1 and areas: means over the classes, each against all others."
    return table("Metrics", columns, rows, note)


def _by_class(subject: Subject) -> Part:
    """The metrics of each class, the most frequent first."""
    found = [
        row for row in subject.evaluated("evaluate", per_class=True) if row["class"] is not None
    ]
    found.sort(key=lambda row: -row["rows"])
    names = ("precision", "recall", "f1_score", "roc_auc", "average_precision")
    rows = [
        [shown(row["class"], 30), row["rows"], *(row[name] for name in names)]
        for row in found[:_MOST_CLASSES]
    ]
    more = len(found) - len(rows)
    return table(
        "Metrics of each class",
        ("Class", "Rows", *(METRICS[name] for name in names)),
        rows,
        f"{more:,} rarer classes are left out." if more else "",
    )
