"""`Gaps`: how a model reads rows that leave out values, and names with blanks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gaps:
    """How the source library reads rows with unstated values, and names with blanks.

    Attributes:
        cell: what a cell that a sparse matrix does not store stands for: 0, or NaN (XGBoost);
            None if the parts of the model disagree, or it is unknown.
        separator: that of the DictVectorizer that reads the rows, in whose dicts an absent key is
            the number 0; None if no DictVectorizer does, and an absent key is a missing value.
        blanks: LightGBM is among the parts of the model, which writes a _ for each blank in the
            name of a column: a column `my col` feeds the feature `my_col`.
    """

    cell: float | None = None
    separator: str | None = None
    blanks: bool = False
