"""`groups`: the same measures for each group of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlml.report import charts
from sqlml.report.draw import drawn
from sqlml.report.parts import Note, Part, Plot, Section, table
from sqlml.report.quality import METRICS
from sqlml.report.scores import group
from sqlml.report.shown import clipped, distinct, shown
from sqlml.report.subject import Subject

_MOST = 20
"""Groups that are shown: those of most rows."""

_METRICS = {
    "two classes": ("roc_auc", "precision", "recall", "accuracy", "log_loss"),
    "classes": ("accuracy", "f1_score", "roc_auc", "log_loss"),
    "numbers": ("r2_score", "mean_absolute_error", "mean_squared_error"),
    "clusters": ("mean_squared_distance",),
}
"""The measures of the table; the plot shows the first that some group has."""

_AVERAGED = {"two classes": "p1", "numbers": "hat"}
"""The column of predictions whose mean is shown for each group if the data has no labels."""


def groups(subject: Subject) -> Section:
    """A row for each group, and what they differ in."""
    by = " and ".join(clipped(name) for name in subject.groups)
    title = f"By {by}" if by else "By group"
    return Section("groups", title, subject.share if by else "", tuple(_parts(subject)))


def _parts(subject: Subject) -> list[Part]:
    scores = subject.scores
    if not subject.groups:
        return [
            Note(
                "No groups were named. To compare some, name a column that tells them apart, as in "
                "con.report('m', 'customers', by='region') or --by region."
            )
        ]
    if scores is None or not subject.count:
        return [Note("There is nothing to compare.")]
    keys = [f"g{n}" for n in range(len(subject.groups))]
    if scores.is_labelled or subject.task == "clusters":
        found = subject.largest_groups(_MOST)
        keys = [group(n) for n in range(len(keys))]
    else:
        found = _unlabelled(subject, ", ".join(keys))
    if not found:
        return [Note("No group has a row with a label and a prediction.")]
    return [_compared(subject, found, keys)]


def _unlabelled(subject: Subject, keys: str) -> list[dict[str, Any]]:
    """The rows of each group, and what is predicted of them on average, if that is a number."""
    assert subject.scores is not None
    scores, average, first = subject.scores, "CAST(NULL AS DOUBLE)", ""
    if scores.rows.targets > 1:
        first = "WHERE t = 0"
    elif subject.task in _AVERAGED:
        average = f"avg({_AVERAGED[subject.task]})"
    found = subject.of_tables(
        f"SELECT {keys}, count(*) AS n, {average} AS mean, count(*) OVER () AS sqlml_groups "
        f"FROM {scores.table} {first} GROUP BY {keys} ORDER BY n DESC, {keys} LIMIT {_MOST}"
    )
    return [{**row, "rows": row["n"]} for row in found]


def _compared(subject: Subject, some: list[dict[str, Any]], names: Sequence[str]) -> Part:
    several = "target" in some[0]
    wanted = [m for m in (*_METRICS[subject.task or "numbers"], "mean") if m in some[0]]
    wanted = [m for m in wanted if any(row[m] is not None for row in some)]
    columns = [*(clipped(name, 30) for name in subject.groups), *(["Target"] if several else [])]
    cells = [
        [
            *(shown(row[name], 30) for name in names),
            *([clipped(str(row["target"]), 30)] if several else []),
            row["rows"],
            *(row[m] for m in wanted),
        ]
        for row in some
    ]
    every = some[0]["sqlml_groups"]
    told = f"The {len(some)} largest of {every:,} groups." if every > len(some) else ""
    titles = [METRICS.get(m, _mean(subject)) for m in wanted]
    made = table("Groups", (*columns, "Rows", *titles), cells, told)
    if several or not wanted:
        return made
    (shared,) = wanted[:1]
    labels = distinct([", ".join(_key(row[name]) for name in names) for row in some])
    points = [
        (label, float(row[shared]), float(row[shared]), float(row[shared]))
        for label, row in zip(labels, some, strict=True)
        if row[shared] is not None
    ]
    return Plot(
        f"{titles[0]} of each group",
        f"The groups of most rows first. {told}".strip(),
        drawn(charts.intervals(points, titles[0])),
        f"A point for each group: {titles[0]}; the numbers are in the table.",
        made,
    )


def _mean(subject: Subject) -> str:
    assert subject.scores is not None
    if subject.task == "numbers":
        return "Mean prediction"
    kind = "probability" if subject.scores.rows.scores == "probabilities" else "score"
    return f"Mean {kind}"


def _key(value: Any) -> str:
    return "NULL" if value is None else shown(value, 30) or "(empty)"
