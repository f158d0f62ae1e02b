"""DummyClassifier and DummyRegressor, which predict constants."""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, RawColumn, build_labels
from sqlml.importers.sklearn import classify
from sqlml.importers.sklearn.estimator_checks import check, check_single_output
from sqlml.ir.builder import Value
from sqlml.types import Array


def dummy_classifier(model: Any, frame: Frame) -> Outputs:
    check(model, "class_prior_", "classes_", "n_outputs_")
    if model.strategy == "uniform":
        raise _random(model)
    lists = classify.class_lists(model)
    probas = [_probabilities(model, t, np.asarray(known)) for t, known in enumerate(lists)]
    # The label is the likeliest class; of strategy "constant" too, whose class is certain.
    numbers = [int(np.argmax(proba)) for proba in probas]
    label = repeat_rows(frame, np.array(numbers, np.int64))
    proba = repeat_rows(frame, np.concatenate(probas))
    labels = tuple(build_labels(known) for known in lists)
    return Outputs({"label": label, "proba": proba}, labels)


def dummy_regressor(model: Any, frame: Frame) -> Outputs:
    check(model, "constant_", "n_outputs_")
    return Outputs({"label": repeat_rows(frame, np.ravel(np.asarray(model.constant_, np.float64)))})


def class_probabilities(model: Any) -> Array:
    """Return the (K,) probabilities that a DummyClassifier of one target predicts."""
    check(model, "class_prior_", "classes_", "n_outputs_")
    check_single_output(model, int(model.n_outputs_))
    return _probabilities(model, 0, np.asarray(model.classes_))


def _probabilities(model: Any, target: int, classes: Array) -> Array:
    is_single = int(model.n_outputs_) == 1
    prior = np.asarray(model.class_prior_ if is_single else model.class_prior_[target], np.float64)
    match model.strategy:
        case "prior":
            return prior
        case "uniform":
            return np.asarray(np.ones(prior.size) / prior.size)
        case "most_frequent":
            return np.asarray(np.eye(prior.size)[int(prior.argmax())])
        case "constant":
            return np.asarray(classes == np.ravel(model.constant)[target], np.float64)
    raise _random(model)


def regression_constant(model: Any) -> Array:
    """Return the (1,) prediction of a DummyRegressor of one target."""
    check(model, "constant_", "n_outputs_")
    check_single_output(model, int(model.n_outputs_))
    return np.ravel(np.asarray(model.constant_, np.float64))


def _random(model: Any) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"DummyClassifier(strategy={model.strategy!r}) predicts at random, so no two runs agree; "
        "use strategy='prior' or 'most_frequent'"
    )


def repeat_rows(frame: Frame, values: Array) -> Value:
    """Repeat `values` (k,) as (n, k), with the number of rows of the first column."""
    column = next((b for b in frame.blocks if not isinstance(b, RawColumn)), None)
    rows = frame.numbers(0) if column is None else column
    builder = frame.builder
    if rows.type.dtype not in ("string", "float32", "float64"):
        rows = builder.op("cast", rows, dtype="float64")
    if rows.type.width != 1:
        rows = builder.op("select", rows, indices=np.zeros(1, np.int64))
    return builder.op("where", builder.op("isnan", rows), values, values)
