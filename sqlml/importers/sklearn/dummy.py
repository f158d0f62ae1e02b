"""DummyClassifier and DummyRegressor: constants, also as the start of gradient boosting."""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, RawColumn, labels_of
from sqlml.importers.sklearn.classify import class_list
from sqlml.importers.sklearn.fitted import check, check_single_output
from sqlml.ir.builder import Value
from sqlml.types import Array


def dummy_classifier(model: Any, frame: Frame) -> Outputs:
    """The same class and probabilities for every row.

    Raises:
        UnsupportedModelError: a strategy that draws at random.
    """
    proba = class_probabilities(model)
    classes = class_list(model)
    if model.strategy == "constant":
        label = int(np.flatnonzero(np.asarray(classes) == np.ravel(model.constant)[0])[0])
    elif model.strategy == "uniform":
        raise _random(model)
    else:
        label = int(np.argmax(model.class_prior_))
    return Outputs(
        {
            "label": _each_row(frame, np.array([label], np.int64)),
            "proba": _each_row(frame, proba),
        },
        labels_of(classes),
    )


def dummy_regressor(model: Any, frame: Frame) -> Outputs:
    """`constant_` for every row."""
    return Outputs({"label": _each_row(frame, regression_constant(model))})


def class_probabilities(model: Any) -> Array:
    """The (K,) probabilities that a DummyClassifier gives every row.

    Raises:
        UnsupportedModelError: not fitted, several targets, or drawn at random.
    """
    check(model, "class_prior_", "classes_", "n_outputs_")
    check_single_output(model, int(model.n_outputs_))
    prior = np.asarray(model.class_prior_, np.float64)
    if model.strategy == "prior":
        return prior
    if model.strategy == "uniform":
        uniform: Array = np.ones(prior.size) / prior.size
        return uniform
    if model.strategy == "most_frequent":
        certain: Array = np.eye(prior.size)[int(prior.argmax())]
        return certain
    if model.strategy == "constant":
        chosen = np.asarray(model.classes_) == np.ravel(model.constant)[0]
        return np.asarray(chosen, np.float64)
    raise _random(model)


def regression_constant(model: Any) -> Array:
    """The (1,) prediction of a DummyRegressor."""
    check(model, "constant_", "n_outputs_")
    check_single_output(model, int(model.n_outputs_))
    return np.ravel(np.asarray(model.constant_, np.float64))


def _random(model: Any) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"DummyClassifier(strategy={model.strategy!r}) predicts at random, so no two runs agree; "
        "use strategy='prior' or 'most_frequent'"
    )


def _each_row(frame: Frame, values: Array) -> Value:
    """`values` (k,) as (n, k); the first column read only tells how many rows there are."""
    made = next((b for b in frame.blocks if not isinstance(b, RawColumn)), None)
    rows = frame.numbers(0) if made is None else made
    builder = frame.builder
    if rows.type.dtype not in ("string", "float32", "float64"):
        rows = builder.op("cast", rows, dtype="float64")
    if rows.type.width != 1:
        rows = builder.op("select", rows, indices=np.zeros(1, np.int64))
    constant = builder.constant(values)
    return builder.op("where", builder.op("isnan", rows), constant, constant)
