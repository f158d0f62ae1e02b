"""Multilayer perceptrons and BernoulliRBM: layers of matrix products and activations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, build_labels
from sqlml.importers.sklearn import classify
from sqlml.importers.sklearn.estimator_checks import check_array, check_estimator
from sqlml.ir.builder import Builder, Value
from sqlml.types import Labels

ACTIVATIONS: Mapping[str, Callable[[Builder, Value], Value]] = {
    "identity": lambda builder, x: x,
    "exp": lambda builder, x: builder.op("exp", x),
    "logistic": lambda builder, x: builder.op("sigmoid", x),
    "relu": lambda builder, x: builder.op("maximum", x, 0.0),
    "softmax": lambda builder, x: builder.op("softmax", x, sum_dtype="float64"),
    "tanh": lambda builder, x: builder.op("tanh", x),
}


def mlp_classifier(model: Any, frame: Frame) -> Outputs:
    """Return the class of the largest output; for two classes, compare one output with 0.5."""
    check_estimator(
        model, "coefs_", "intercepts_", "out_activation_", "classes_", "_label_binarizer"
    )
    b = frame.builder
    if model._label_binarizer.y_type_.startswith("multilabel"):
        proba = _compute_output(model, frame)
        label = classify.label_by_threshold(b, proba, threshold=0.5)
        binary_labels = (Labels("int64", (0, 1)),) * proba.type.width
        return Outputs({"label": label, "proba": proba}, binary_labels)
    labels = build_labels(classify.two_or_more_classes(model))
    proba = _compute_output(model, frame)
    if proba.type.width > 1:
        return Outputs({"label": classify.argmax_label(b, proba), "proba": proba}, labels)
    label = classify.label_by_threshold(b, proba, threshold=0.5)
    return Outputs({"label": label, "proba": classify.add_complement(b, proba)}, labels)


def mlp_regressor(model: Any, frame: Frame) -> Outputs:
    check_estimator(model, "coefs_", "intercepts_", "out_activation_")
    return Outputs({"label": _compute_output(model, frame)})


def bernoulli_rbm(model: Any, frame: Frame) -> Frame:
    """Return the probability that each hidden unit is on, (n, n_components)."""
    check_estimator(model, "components_", "intercept_hidden_")
    x = check_array(frame, "BernoulliRBM")
    hidden = frame.builder.linear(x, np.asarray(model.components_).T, model.intercept_hidden_)
    return Frame.from_value(frame.builder, frame.builder.op("sigmoid", hidden))


def _compute_output(model: Any, frame: Frame) -> Value:
    b = frame.builder
    value = check_array(frame, type(model).__name__)
    last_layer = len(model.coefs_) - 1
    for i, (weights, bias) in enumerate(zip(model.coefs_, model.intercepts_, strict=True)):
        name = model.out_activation_ if i == last_layer else model.activation
        if name not in ACTIVATIONS:
            raise UnsupportedModelError(
                f"activation {name!r} is not known to sqlml; use {', '.join(sorted(ACTIVATIONS))}"
            )
        value = ACTIVATIONS[name](b, b.linear(value, weights, bias))
    return value
