"""`Gaps`: what a model makes of a cell that its rows leave out, as sparse matrices and dicts do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gaps:
    """How the source library reads rows with unstated values.

    Attributes:
        cell: what a cell that a sparse matrix does not store stands for: 0, or NaN (XGBoost);
            None if the parts of the model disagree, or it is unknown.
        separator: that of the DictVectorizer that reads the rows, in whose dicts an absent key is
            the number 0; None if no DictVectorizer does, and an absent key is a missing value.
    """

    cell: float | None = None
    separator: str | None = None
