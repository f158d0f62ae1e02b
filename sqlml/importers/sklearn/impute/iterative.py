"""IterativeImputer: the fitted rounds of regressions, one after the other.

A row whose values are all missing gets what the rounds make of it. scikit-learn does that too,
except in a batch of only such rows, which it leaves at the initial fills.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, Recurse
from sqlml.importers.sklearn.fitted import check
from sqlml.importers.sklearn.impute.indicator import added_indicator, nan_where_missing
from sqlml.importers.sklearn.impute.simple import simple_imputer
from sqlml.ir.builder import Builder, Value


def iterative_imputer(model: Any, frame: Frame, recurse: Recurse) -> Frame:
    """The initial fills, improved by each regression of `imputation_sequence_` in turn.

    Raises:
        UnsupportedModelError: not fitted, sample_posterior, or a regressor that is not covered.
    """
    check(model, "imputation_sequence_", "initial_imputer_", "n_iter_", "_is_empty_feature")
    if model.sample_posterior:
        raise UnsupportedModelError(
            "IterativeImputer(sample_posterior=True) draws random numbers at each transform; set "
            "sample_posterior=False"
        )
    b = frame.builder
    x = nan_where_missing(model, frame)
    filled = simple_imputer(model.initial_imputer_, frame)
    empty = np.asarray(model._is_empty_feature, bool)
    kept = np.arange(frame.width) if model.keep_empty_features else np.flatnonzero(~empty)
    if filled.width != kept.size:
        raise UnsupportedModelError(
            "IterativeImputer does not drop the columns that its initial imputer drops; set "
            "keep_empty_features=True"
        )
    values = [filled.numbers(i) for i in range(filled.width)]
    gone = {
        i: b.op("isnan", b.op("select", x, indices=np.full(1, column, np.int64)))
        for i, column in enumerate(kept)
        if not empty[column]
    }
    for step in model.imputation_sequence_ if model.n_iter_ else ():
        feature = int(step.feat_idx)
        if feature in gone:
            others = [int(i) for i in step.neighbor_feat_idx]
            read = Frame(
                b, tuple(values[i] for i in others), tuple(filled.names[i] for i in others)
            )
            guess = _clipped(
                b, _prediction(recurse(step.estimator, read), step.estimator), model, feature
            )
            values[feature] = b.op("where", gone[feature], guess, values[feature])
    made = Frame(b, tuple(values), filled.names)
    return Frame.hstack(b, [made, *added_indicator(model, frame, x)])


def _prediction(made: Frame | Outputs, estimator: Any) -> Value:
    if isinstance(made, Frame) or "label" not in made.values or made.label_sets:
        raise UnsupportedModelError(
            f"IterativeImputer uses {type(estimator).__name__}, which is not a regressor"
        )
    return made.values["label"]


def _clipped(b: Builder, value: Value, model: Any, feature: int) -> Value:
    for op, limit in (("maximum", model._min_value), ("minimum", model._max_value)):
        bound = float(limit[feature])
        if np.isfinite(bound):
            value = b.op(op, value, bound)
    return value
