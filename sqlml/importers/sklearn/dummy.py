"""DummyClassifier and DummyRegressor, which predict constants."""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, RawColumn, build_labels
from sqlml.importers.sklearn import classify
from sqlml.importers.sklearn.estimator_checks import check_estimator, check_single_output
from sqlml.ir.builder import Value
from sqlml.types import Array


def import_dummy_classifier(model: Any, frame: Frame) -> Outputs:
    check_estimator(model, "class_prior_", "classes_", "n_outputs_")
    if model.strategy == "uniform":
        raise _make_random_strategy_error(model)
    classes = classify.read_class_lists(model)
    probabilities = [_compute_probabilities(model, i, known) for i, known in enumerate(classes)]
    # The label is the most probable class, even with the strategy "constant".
    label_indices = [int(np.argmax(proba)) for proba in probabilities]
    label = repeat_rows(frame, np.array(label_indices, np.int64))
    proba = repeat_rows(frame, np.concatenate(probabilities))
    labels = tuple(build_labels(known) for known in classes)
    return Outputs({"label": label, "proba": proba}, labels)


def import_dummy_regressor(model: Any, frame: Frame) -> Outputs:
    check_estimator(model, "constant_", "n_outputs_")
    return Outputs({"label": repeat_rows(frame, np.ravel(np.asarray(model.constant_, np.float64)))})


def read_class_probabilities(model: Any) -> Array:
    """Return the probabilities, (K,), that a single-target DummyClassifier predicts."""
    check_estimator(model, "class_prior_", "classes_", "n_outputs_")
    check_single_output(model, int(model.n_outputs_))
    return _compute_probabilities(model, 0, model.classes_)


def _compute_probabilities(model: Any, target: int, classes: Any) -> Array:
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
            return np.asarray(np.asarray(classes) == np.ravel(model.constant)[target], np.float64)
    raise _make_random_strategy_error(model)


def read_regression_constant(model: Any) -> Array:
    """Return the prediction, (1,), of a single-target DummyRegressor."""
    check_estimator(model, "constant_", "n_outputs_")
    check_single_output(model, int(model.n_outputs_))
    return np.ravel(np.asarray(model.constant_, np.float64))


def _make_random_strategy_error(model: Any) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"DummyClassifier(strategy={model.strategy!r}) predicts at random, so no two runs agree; "
        "use strategy='prior' or 'most_frequent'"
    )


def repeat_rows(frame: Frame, values: Array) -> Value:
    """Repeat `values`, (k,), in each row of the frame: (n, k)."""
    column = next((block for block in frame.blocks if not isinstance(block, RawColumn)), None)
    row_source = frame.read_numbers(0) if column is None else column
    builder = frame.builder
    if row_source.type.dtype not in ("string", "float32", "float64"):
        row_source = builder.op("cast", row_source, dtype="float64")
    if row_source.type.width != 1:
        row_source = builder.op("select", row_source, indices=np.zeros(1, np.int64))
    return builder.op("where", builder.op("isnan", row_source), values, values)
