"""Multilayer perceptrons and BernoulliRBM."""

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


def import_mlp_classifier(model: Any, frame: Frame) -> Outputs:
    """Return the class of the largest output; for two classes, compare one output with 0.5."""
    check_estimator(
        model, "coefs_", "intercepts_", "out_activation_", "classes_", "_label_binarizer"
    )
    builder = frame.builder
    if model._label_binarizer.y_type_.startswith("multilabel"):
        proba = _build_layers(model, frame)
        label = classify.label_by_threshold(builder, proba, threshold=0.5)
        binary_labels = (Labels("int64", (0, 1)),) * proba.type.width
        return Outputs({"label": label, "proba": proba}, binary_labels)
    labels = build_labels(classify.require_multiple_classes(model))
    proba = _build_layers(model, frame)
    if proba.type.width > 1:
        return Outputs({"label": classify.label_by_argmax(builder, proba), "proba": proba}, labels)
    label = classify.label_by_threshold(builder, proba, threshold=0.5)
    return Outputs({"label": label, "proba": classify.add_complement(builder, proba)}, labels)


def import_mlp_regressor(model: Any, frame: Frame) -> Outputs:
    check_estimator(model, "coefs_", "intercepts_", "out_activation_")
    return Outputs({"label": _build_layers(model, frame)})


def import_bernoulli_rbm(model: Any, frame: Frame) -> Frame:
    """Return the probability that each hidden unit is on."""
    check_estimator(model, "components_", "intercept_hidden_")
    x = check_array(frame, "BernoulliRBM")
    hidden = frame.builder.linear(x, np.asarray(model.components_).T, model.intercept_hidden_)
    return Frame.from_value(frame.builder, frame.builder.op("sigmoid", hidden))


def _build_layers(model: Any, frame: Frame) -> Value:
    output = check_array(frame, type(model).__name__)
    last_layer = len(model.coefs_) - 1
    for i, (weights, bias) in enumerate(zip(model.coefs_, model.intercepts_, strict=True)):
        activation = model.out_activation_ if i == last_layer else model.activation
        if activation not in ACTIVATIONS:
            raise UnsupportedModelError(
                f"activation {activation!r} is not known to sqlml; use "
                + ", ".join(sorted(ACTIVATIONS))
            )
        output = ACTIVATIONS[activation](frame.builder, frame.builder.linear(output, weights, bias))
    return output
