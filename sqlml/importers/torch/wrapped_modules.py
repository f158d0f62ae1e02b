"""What makes probabilities of the numbers that a torch module returns, in their own dtype."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, Schema, labels_of
from sqlml.importers.model_checks import unfitted
from sqlml.importers.sklearn.classify import argmax_label, two_or_more_classes
from sqlml.importers.torch.importer import import_module, module_schema
from sqlml.ir.builder import Builder, Value


def softmax(b: Builder, x: Value) -> Value:
    """(n, k) scores of all classes -> their probabilities."""
    return b.op("softmax", x, sum_dtype=x.type.dtype)


def sigmoid(b: Builder, x: Value) -> Value:
    """(n, 1) scores of the second class -> (n, 2) probabilities of both."""
    return with_complement(b, b.op("sigmoid", x))


def with_complement(b: Builder, second: Value) -> Value:
    """(n, 1) probabilities p of the second class -> (n, 2) of 1 - p and p."""
    return b.op("concat", b.op("sub", number_like(b, 1, second), second), second)


def number_like(b: Builder, number: float, like: Value) -> Value:
    """A constant of the dtype of another value."""
    return b.constant(np.array([number], like.type.dtype))


# DNNClassifier and DNNRegressor of sqlml (`sqlml/training/estimators/dnn.py`), trained in SQL.


def dnn_schema(model: Any) -> Schema:
    """The columns of the network's module."""
    return module_schema(_fitted_module(model))


def dnn_classifier(model: Any, frame: Frame) -> Outputs:
    """The class with the largest probability, the first of equal ones."""
    scores = _scores(model, frame)
    proba = (sigmoid if scores.type.width == 1 else softmax)(frame.builder, scores)
    label = argmax_label(frame.builder, proba)
    return Outputs({"label": label, "proba": proba}, labels_of(two_or_more_classes(model)))


def dnn_regressor(model: Any, frame: Frame) -> Outputs:
    """What the module returns."""
    return Outputs({"label": _scores(model, frame)})


def _scores(model: Any, frame: Frame) -> Value:
    return import_module(_fitted_module(model), frame).values["label"]


def _fitted_module(model: Any) -> Any:
    if not hasattr(model, "module_"):
        raise unfitted(model)
    return model.module_


DNN_IMPORTERS: Mapping[str, Callable[[Any, Frame], Frame | Outputs]] = MappingProxyType(
    {
        "sqlml.training.estimators.dnn.DNNClassifier": dnn_classifier,
        "sqlml.training.estimators.dnn.DNNRegressor": dnn_regressor,
    }
)
DNN_SCHEMAS: Mapping[str, Callable[[Any], Schema]] = MappingProxyType(
    dict.fromkeys(DNN_IMPORTERS, dnn_schema)
)


# Importers of skorch's NeuralNetClassifier, NeuralNetBinaryClassifier and NeuralNetRegressor.
#
# The net's module is imported as any torch module. What skorch makes of its output is in its
# files `classifier.py`, `regressor.py` and `utils.py` (`_infer_predict_nonlinearity`). Rows come
# in the dtype that the module reads; skorch hands them to it as they are.


def net_schema(model: Any) -> Schema:
    """The columns of the net's module."""
    return module_schema(_skorch_module(model))


def classifier(model: Any, frame: Frame) -> Outputs:
    """NeuralNetClassifier: probabilities (n, classes); the label is the place of the largest."""
    proba = _probabilities(model, frame)
    if proba.type.width < 2:
        raise UnsupportedModelError(
            f"{type(model).__name__} tells classes by their places among the module's outputs, "
            "and this module has one output; use NeuralNetBinaryClassifier"
        )
    label = argmax_label(frame.builder, proba)
    return Outputs({"label": label, "proba": proba}, labels_of(list(range(proba.type.width))))


def binary_classifier(model: Any, frame: Frame) -> Outputs:
    """NeuralNetBinaryClassifier: 1 where the probability is above the net's own threshold."""
    proba = _probabilities(model, frame)
    if proba.type.width != 2:
        raise UnsupportedModelError(
            f"the criterion of this {type(model).__name__} makes no two probabilities of the "
            "module's output; covered criteria: BCEWithLogitsLoss, BCELoss"
        )
    second = frame.builder.op("select", proba, indices=np.array([1]))
    # NumPy compares float32 numbers with the threshold in float32
    threshold = number_like(frame.builder, model.threshold, second)
    above = frame.builder.op("gt", second, threshold)
    label = frame.builder.op("cast", above, dtype="int64")
    return Outputs({"label": label, "proba": proba}, labels_of([0, 1]))


def regressor(model: Any, frame: Frame) -> Outputs:
    """NeuralNetRegressor: what the module returns, (n, targets)."""
    return Outputs({"label": _made(model, frame, _nonlinearity(model))})


def _probabilities(model: Any, frame: Frame) -> Value:
    return _made(model, frame, _nonlinearity(model))


def _made(model: Any, frame: Frame, nonlinearity: Callable[[Builder, Value], Value]) -> Value:
    value = import_module(_skorch_module(model), frame).values["label"]
    return nonlinearity(frame.builder, value)


def _skorch_module(model: Any) -> Any:
    """The trained module as it scores.

    Raises:
        UnsupportedModelError: the net is not fitted, or has several modules.
    """
    if not getattr(model, "initialized_", False) or not hasattr(model, "module_"):
        raise unfitted(model)
    return copy.deepcopy(model.module_).eval()


def _nonlinearity(model: Any) -> Callable[[Builder, Value], Value]:
    """What skorch does to the module's output.

    Raises:
        UnsupportedModelError: a function of the user's own.
    """
    asked = model.predict_nonlinearity
    if asked is None:
        return _identity
    if asked != "auto":
        raise UnsupportedModelError(
            f"predict_nonlinearity of this {type(model).__name__} is a function of Python, which "
            "sqlml does not import; make it a layer of the module"
        )
    criterion = type(getattr(model.criterion_, "_orig_mod", model.criterion_))
    names = [f"{c.__module__}.{c.__qualname__}" for c in criterion.__mro__]
    return next((NONLINEARITIES[name] for name in names if name in NONLINEARITIES), _identity)


def _identity(b: Builder, x: Value) -> Value:
    return x


NONLINEARITIES: Mapping[str, Callable[[Builder, Value], Value]] = MappingProxyType(
    {
        "torch.nn.modules.loss.CrossEntropyLoss": softmax,
        "torch.nn.modules.loss.BCEWithLogitsLoss": sigmoid,
        "torch.nn.modules.loss.BCELoss": with_complement,
    }
)
"""Class of a criterion -> what makes probabilities of the module's output."""

IMPORTERS: Mapping[str, Callable[[Any, Frame], Frame | Outputs]] = MappingProxyType(
    {
        "skorch.classifier.NeuralNetClassifier": classifier,
        "skorch.classifier.NeuralNetBinaryClassifier": binary_classifier,
        "skorch.regressor.NeuralNetRegressor": regressor,
    }
)
SCHEMAS: Mapping[str, Callable[[Any], Schema]] = MappingProxyType(
    dict.fromkeys(IMPORTERS, net_schema)
)
