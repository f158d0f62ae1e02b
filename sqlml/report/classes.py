"""`Classes`: the classes of a model as a report names them, the most frequent first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlml.planner.binding.class_argument import spelled_class
from sqlml.report.shown import clipped, distinct
from sqlml.report.subject import Subject

MOST_LINES = 6
"""Classes that have lines of their own in a plot."""


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
        """Whether there are two classes, of which one is looked for."""
        return len(self.values) == 2

    @property
    def positive(self) -> str:
        """The name of the class that is looked for."""
        return self.names[-1]

    @property
    def drawn(self) -> tuple[int, ...]:
        """The places of those that have a line of their own."""
        return self.seen[:MOST_LINES]


def classes_of(subject: Subject) -> Classes:
    """The classes of a model of one target, whose rows have been scored."""
    scores = subject.scores
    assert scores is not None
    values = scores.rows.class_labels.values
    names = distinct([clipped(spelled_class(v) or "(empty)", 30) for v in values])
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
