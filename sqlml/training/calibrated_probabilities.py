"""Calibrate the probabilities of a classifier, as scikit-learn's CalibratedClassifierCV does.

scikit-learn fits the calibrators to the scores of a fitted model, and its importer appends them to
the model's Program. The result equals `CalibratedClassifierCV(FrozenEstimator(model), method)`.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from sqlml.errors import ConfigError
from sqlml.importers.frame import Frame, Outputs
from sqlml.importers.sklearn.meta.calibration import import_calibrated_classifier
from sqlml.ir.builder import Builder
from sqlml.ir.ops import verify
from sqlml.ir.program import Program
from sqlml.training.cascades.last_estimator import Rows, compute_output
from sqlml.training.conformal import append_programs, list_missing_classes
from sqlml.types import Array, list_classes

METHODS = ("isotonic", "sigmoid", "temperature")
"""The methods of CalibratedClassifierCV."""


def calibrate_probabilities(
    program: Program, method: str, rows: Rows, codes: Array, weights: Array | None, by_score: bool
) -> Program:
    """Return a classifier whose probabilities are calibrated to the true classes of some rows.

    Raises ConfigError if the rows lack a class, or if scikit-learn rejects them.

    Args:
        program: a classifier with one label and the output `proba`.
        rows: the inputs of the Program, each (n,).
        codes: int64 (n,), the indices of the true classes.
        weights: the weights of the rows (n,), or None.
        by_score: calibrate the output `score` instead of the probabilities.
    """
    labels = program.labels[0]
    missing = list_missing_classes(codes, labels)
    if missing:
        raise ConfigError(
            f"no calibration row has the class {list_classes(missing)}, so its probability cannot "
            "be calibrated: add such rows"
        )
    output = "score" if by_score else "proba"
    scores = compute_output(program, output, rows)
    fitted = _fit_calibrators(scores, codes, len(labels), weights, method, by_score)
    builder = Builder()
    (values,) = append_programs(builder, [program])
    values = {"label": values["label"], output: values[output]}

    def read_model(_: Any, __: Frame) -> Outputs:
        return Outputs(values, (labels,))

    fitted.classes_ = np.array(labels.values, None if labels.kind != "string" else object)
    calibrated = import_calibrated_classifier(
        fitted, Frame.raw(builder, list(program.inputs)), read_model
    )
    order = tuple(name for name in program.inputs)
    return verify(builder.build(calibrated.values, program.labels, order))


def _fit_calibrators(
    scores: Array,
    codes: Array,
    num_classes: int,
    weights: Array | None,
    method: str,
    by_score: bool,
) -> Any:
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.frozen import FrozenEstimator
    from sklearn.model_selection import KFold

    estimator = _make_score_reader(num_classes, by_score)
    folds = KFold(2)  # The folds do not matter, since the estimator is not fitted again.
    calibrator = CalibratedClassifierCV(FrozenEstimator(estimator), method=method, cv=folds)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return calibrator.fit(scores, codes, sample_weight=weights)
        except ValueError as error:
            raise ConfigError(f"scikit-learn cannot calibrate the probabilities: {error}") from None


def _make_score_reader(num_classes: int, by_score: bool) -> Any:
    """Return a fitted classifier whose input is its own result."""
    from sklearn.base import BaseEstimator, ClassifierMixin

    class ScoreReader(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
        def __init__(self) -> None:
            self.classes_ = np.arange(num_classes)

        def __sklearn_is_fitted__(self) -> bool:
            return True

        def fit(self, X: Array, y: Array) -> Any:
            return self  # scikit-learn requires the methods fit and predict, but calls neither.

        def predict(self, X: Array) -> Array:
            return np.zeros(len(X), np.int64)

    class DecisionReader(ScoreReader):
        def decision_function(self, X: Array) -> Array:
            return X[:, 0] if X.shape[1] == 1 else X

    class ProbabilityReader(ScoreReader):
        def predict_proba(self, X: Array) -> Array:
            return X

    return DecisionReader() if by_score else ProbabilityReader()
