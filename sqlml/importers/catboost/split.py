"""`Split`: one test of a tree of CatBoost's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Split:
    """One test: of column `feature` against `border`, or (`code` not None) for a category.

    `nan_is_true` says what NaN counts as.
    """

    feature: int
    border: np.float32
    nan_is_true: bool
    code: int | None
