"""`Answer`: the queries that make an evaluation of `sqlml_scored`, and what all of them share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlml.planner.evaluation.scored_rows import ScoredRows
from sqlml.planner.syntax.spelled import spelled

KNOWN = "y IS NOT NULL AND hat IS NOT NULL"
"""Of `sqlml_scored`: rows that can be evaluated."""

COUNTS = (
    f"sum(CASE WHEN {KNOWN} THEN 1 ELSE 0 END) AS n, "
    "sum(CASE WHEN y IS NULL THEN 1 ELSE 0 END) AS null_labels, "
    "sum(CASE WHEN y IS NOT NULL AND hat IS NULL THEN 1 ELSE 0 END) AS null_predictions"
)
"""How many of those there are, and how many without a label, and without a prediction."""

TOTALS = "sum(n) AS n, sum(null_labels) AS null_labels, sum(null_predictions) AS null_predictions"
"""Sums of such counts."""

ROWS = (
    "CAST(n AS BIGINT) AS rows_evaluated, CAST(null_labels AS BIGINT) AS null_labels, "
    "CAST(null_predictions AS BIGINT) AS null_predictions"
)
"""The counts as columns of an answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Named queries of `sqlml_scored`, each of those before it, and the one that is the answer.

    They are templates (`syntax/spelled.py`), without names from outside.
    """

    queries: tuple[tuple[str, str], ...]
    answer: str

    def around(self, rows: ScoredRows, items: Sequence[str]) -> tuple[str, str]:
        """The text before and after the user's rows of a query in brackets.

        Args:
            items: the columns of the answer as users see them, of those of `answer`.
        """
        made = ", ".join([_SCORED, *(f"{name} AS ({query})" for name, query in self.queries)])
        written = spelled(f"WITH {made} {self.answer}", rows.dialect.name)
        others = written.removeprefix(f"WITH {_SCORED}")
        scored = f"sqlml_scored AS (SELECT {rows.columns} FROM {rows.sources})"
        before = f"(SELECT {', '.join(items)} FROM (WITH sqlml_calls AS (SELECT {rows.calls} FROM "
        return before, f"), {scored}{others}) AS sqlml_answer)"


_SCORED = "sqlml_scored AS (SELECT 1)"
"""What stands for the rows, which have names from outside, while the others are spelled."""
