"""FixedThresholdClassifier and TunedThresholdClassifierCV: another cut between two classes.

`sklearn/model_selection/_classification_threshold.py`: the positive class from `score >=
threshold` on; probabilities and scores are the inner classifier's own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, Recurse, Schema
from sqlml.importers.sklearn.fitted import check
from sqlml.importers.sklearn.meta.members import OUTPUT, classes_of, predictor, wide
from sqlml.importers.unfitted import unfitted
from sqlml.ir.builder import Builder, Value
from sqlml.types import numpy_dtype

METHODS = ("predict_proba", "decision_function")


def fixed_threshold_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """The threshold is a parameter; "auto" is 0.5 for probabilities and 0 for scores."""
    check(model)
    inner = inner_estimator(model)
    made = predictor(model, "estimator", inner, frame, recurse)
    method = _method(model, made)
    threshold = model.threshold
    if isinstance(threshold, str):
        threshold = 0.5 if method == "predict_proba" else 0.0
    # numpy brings Python's own floats to the dtype of the scores, and keeps its own at float64
    narrow = type(threshold) in (int, float)
    score = _score(model, frame.builder, made, method, model.pos_label)
    score = score if narrow else wide(frame.builder, score)
    return _cut(frame.builder, made, score, float(threshold), _positive(made, model.pos_label))


def tuned_threshold_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """The threshold is `best_threshold_`, found by cross-validation."""
    check(model, "estimator_", "best_threshold_", "_curve_scorer")
    made = predictor(model, "estimator_", model.estimator_, frame, recurse)
    pos_label = model._curve_scorer._get_pos_label()
    score = _score(model, frame.builder, made, _method(model, made), pos_label)
    score = wide(frame.builder, score)
    threshold = float(model.best_threshold_)
    return _cut(frame.builder, made, score, threshold, _positive(made, pos_label))


def inner_estimator(model: Any) -> Any:
    """The fitted classifier inside: one given fitted needs no fit of the model itself."""
    return getattr(model, "estimator_", model.estimator)


def threshold_schema(model: Any) -> Schema:
    """The columns of the classifier inside.

    Raises:
        UnsupportedModelError: that is not fitted.
    """
    inner = inner_estimator(model)
    schema = Schema.recorded(inner)
    if schema is None:
        raise unfitted(model)
    return schema


def _method(model: Any, made: Outputs) -> str:
    wanted = METHODS if model.response_method == "auto" else (model.response_method,)
    for method in wanted:
        if method in OUTPUT and OUTPUT[method] in made.values:
            return str(method)
    raise UnsupportedModelError(
        f"the classifier in {type(model).__name__} has no {' or '.join(map(str, wanted))}"
    )


def _positive(made: Outputs, pos_label: Any) -> int:
    assert made.labels is not None
    return 1 if pos_label is None else made.labels.values.index(pos_label)


def _score(model: Any, builder: Builder, made: Outputs, method: str, pos_label: Any) -> Value:
    """(n, 1): the probability of the positive class, or the score in favour of it."""
    labels = classes_of(model, "estimator", made)
    if len(labels) != 2:
        raise UnsupportedModelError(
            f"the classifier in {type(model).__name__} has {len(labels)} classes, not two"
        )
    if pos_label is not None and pos_label not in labels.values:
        raise UnsupportedModelError(
            f"{type(model).__name__} has pos_label={pos_label!r}, which is not one of its classes"
        )
    positive = _positive(made, pos_label)
    score: Value = made.values[OUTPUT[method]]
    if method == "predict_proba":
        return builder.op("select", score, indices=np.array([positive]))
    return score if positive else builder.op("neg", score)


def _cut(builder: Builder, made: Outputs, score: Value, threshold: float, positive: int) -> Outputs:
    limit = builder.constant(np.full(1, threshold, numpy_dtype(score.type.dtype)))
    code = [builder.constant(np.full(1, i, np.int64)) for i in (positive, 1 - positive)]
    values = {name: made.values[name] for name in ("proba", "score") if name in made.values}
    label = builder.op("where", builder.op("ge", score, limit), *code)
    return Outputs({"label": label, **values}, made.labels)
