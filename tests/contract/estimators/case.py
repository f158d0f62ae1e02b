"""`Case`: one estimator with data and a target, as the contract suite fits and checks it.

The families beside this file list their cases as data; `test_estimators.py` puts every case
through the same oracles (`tests/support/oracles.py`) on every backend.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from sqlml.types import Array

Data = Callable[[int, int], pd.DataFrame]
"""(rows, seed) -> a table to fit on and to score."""
Target = Callable[[pd.DataFrame, int], Array]
"""(table, seed) -> class numbers (int64), or real values; (n,) or (n, targets)."""


def numbers(rows: int, seed: int) -> pd.DataFrame:
    """Six float64 columns without a gap: wide, narrow, with ties, constant, whole, zero or one."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "wide": rng.normal(3, 40, rows),
            "narrow": rng.normal(0, 0.1, rows),
            "tied": rng.integers(-8, 8, rows) / 4,
            "constant": np.full(rows, 7.25),
            "whole": rng.integers(-3, 20, rows).astype(float),
            "flag": rng.integers(0, 2, rows).astype(float),
        }
    )


def varied(rows: int, seed: int) -> pd.DataFrame:
    """`numbers` without the constant column, for estimators that want a full rank."""
    return numbers(rows, seed).drop(columns="constant")


def positive(rows: int, seed: int) -> pd.DataFrame:
    """`numbers` without negative ones."""
    return numbers(rows, seed).abs()


def counts(rows: int, seed: int) -> pd.DataFrame:
    """Five columns of small whole numbers from 0, many of them 0."""
    rng = np.random.default_rng(seed)
    made = rng.poisson([0.3, 1, 2, 4, 0.05], (rows, 5)).clip(0, 9).astype(float)
    made[: min(rows, 10)] = np.arange(10)[: min(rows, 10), None]  # every value is seen in training
    return pd.DataFrame(made, columns=list("abcde"))


def gaps(rows: int, seed: int) -> pd.DataFrame:
    """`numbers` with every tenth value missing, the constant column apart."""
    frame = numbers(rows, seed)
    gone = np.random.default_rng(seed + 1).random(frame.shape) < 0.1
    gone[:, frame.columns.get_loc("constant")] = False
    return frame.mask(gone)


def two(table: pd.DataFrame, seed: int) -> Array:
    """Two classes that the first three columns tell apart, with noise."""
    return np.minimum(three(table, seed), 1)


def three(table: pd.DataFrame, seed: int) -> Array:
    """Three classes that the first three columns tell apart, with noise."""
    score = real(table, seed)
    return np.searchsorted(np.quantile(score, [0.4, 0.7]), score).astype(np.int64)


def real(table: pd.DataFrame, seed: int) -> Array:
    """A real target that depends on the first three columns, with noise."""
    x = table.iloc[:, :3].to_numpy(np.float64, na_value=np.nan)
    spread = np.nanstd(x, axis=0)
    scaled = np.nan_to_num((x - np.nanmean(x, axis=0)) / np.where(spread > 0, spread, 1))
    noise = np.random.default_rng(seed).normal(0, 0.3, len(table))
    return np.asarray(scaled @ np.array([1.0, -0.7, 0.4])[: x.shape[1]] + noise)


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the contract suite.

    Attributes:
        name: test id: the estimator and what is special about it.
        make: a new unfitted estimator.
        target: what to fit it on; None for one that is fitted on the table alone.
        data: the table.
        rows: how many rows it is fitted on.
        labels: kinds of class labels to try, for classifiers ("string", "int64", "bool",
            "float64"); "int64" alone for an estimator that takes no others.
        rtol: relative bound on all numbers but labels, on the reference and native backends.
        torch_rtol: the same on backends of tensors.
        bits: outputs ("label", "proba", "score", "samples", "transform") that must be equal bit
            for bit on the reference and native backends.
        near: labels may differ where the source's own scores of two classes are within rounding;
            the reason.
        column: the one column that is handed over alone, to an estimator that takes no frame.
        heavy: the source itself is too slow for 10^5 rows; it gets 10^4.
    """

    name: str
    make: Callable[[], Any]
    target: Target | None = None
    data: Data = numbers
    rows: int = 300
    labels: tuple[str, ...] = ("string",)
    rtol: float = 1e-9
    torch_rtol: float = 1e-6
    bits: frozenset[str] = frozenset()
    near: str = ""
    column: str = ""
    heavy: bool = False

    def given(self, table: pd.DataFrame) -> Any:
        """The table as the estimator takes it."""
        return table[self.column] if self.column else table
