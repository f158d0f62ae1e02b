"""Cross-validation: a model for each fold, fitted to other rows and measured on the fold.

::

    rows with folds -> for each fold: fit to the other rows, measure -> the mean of the metrics

With folds by time, a model is fitted to the rows of all earlier blocks, as with scikit-learn's
TimeSeriesSplit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.errors import ConfigError
from sqlml.scorer.evaluate import Metrics
from sqlml.training.column_statistics import Classes
from sqlml.training.options.folds import FoldRule
from sqlml.types import Array, class_literal


@dataclass(frozen=True, slots=True, eq=False)
class Folds:
    """The rows of a training, divided into folds.

    numbers: the fold of each row (n,), from 1, or 0 for rows that are only fitted. bounds: as in
    `FoldRule.select_fold`. label: numbers or class codes (n,). weight: (n,), or None.
    """

    rule: FoldRule
    numbers: Array
    bounds: tuple[str, ...]
    label: Array
    weight: Array | None
    classes: Classes | None

    def masks(self, number: int) -> tuple[Array, Array]:
        """Return the rows that the model of a fold is fitted to, and those that it predicts."""
        is_time = self.rule.method == "time"
        fitted = self.numbers < number if is_time else self.numbers != number
        return fitted, self.numbers == number

    def check(self) -> None:
        """Raise ConfigError if a fold has too few rows to fit or to measure a model."""
        for number in range(1, self.rule.count + 1):
            fitted, measured = self.masks(number)
            fold = f"fold {number} of {self.rule.count}"
            if not measured.any() or not fitted.any():
                raise ConfigError(f"option cv: {fold} has no rows: lower cv")
            if self.weight is not None:
                for side, verb in ((fitted, "fitted to"), (measured, "measured on")):
                    if not self.weight[side].any():
                        message = f"all rows that the model of {fold} is {verb} have a weight of 0"
                        raise ConfigError(f"option cv: {message}: lower cv")
            if self.classes is not None:
                self._check_classes(fitted, fold)

    def _check_classes(self, fitted: Array, fold: str) -> None:
        values = () if self.classes is None else self.classes.values()
        counts = np.bincount(self.label[fitted], minlength=len(values))
        if not counts.all():
            value = class_literal(values[int(np.argmin(counts))])
            place = "before" if self.rule.method == "time" else "outside"
            raise ConfigError(
                f"option cv: no row {place} {fold} has the class {value}, so its model could not "
                "predict it: lower cv, or leave the rows of rare classes out of the query"
            )
        if fitted.sum() <= len(values):
            message = f"too few rows are left to fit the model of {fold}"
            raise ConfigError(f"option cv: {message}: lower cv")


@dataclass(frozen=True, slots=True, eq=False)
class FoldFit:
    """The model of a fold, the numbers of fitted and of measured rows, and the metrics."""

    model: Any
    fitted: int
    measured: int
    metrics: Metrics


@dataclass(frozen=True, slots=True, eq=False)
class CrossValidation:
    """The models of all folds."""

    folds: Folds
    fits: tuple[FoldFit, ...]

    @property
    def metrics(self) -> dict[str, float | None]:
        """The means of the metrics, or None for a metric that some fold does not define."""
        means: dict[str, float | None] = {}
        for name in self.fits[0].metrics:
            values = [fit.metrics.get(name) for fit in self.fits]
            defined = [value for value in values if value is not None]
            means[name] = float(np.mean(defined)) if len(defined) == len(values) else None
        return means


def cross_validate(
    folds: Folds, fit: Callable[[int, Array, Array], tuple[Any, Metrics]]
) -> CrossValidation:
    """Fit and measure the model of each fold.

    `fit` receives the number of the fold and the masks of `Folds.masks`, and returns a model with
    its metrics.
    """
    fits = []
    for number in range(1, folds.rule.count + 1):
        fitted, measured = folds.masks(number)
        model, metrics = fit(number, fitted, measured)
        fits.append(FoldFit(model, int(fitted.sum()), int(measured.sum()), metrics))
    return CrossValidation(folds, tuple(fits))
