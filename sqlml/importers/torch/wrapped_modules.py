"""Import networks that wrap a torch module: skorch's, and those of sqlml's own estimators.

The module is imported like any torch module. The results of a classifier's module are then
converted to probabilities in the same dtype. The rules are in skorch's files `classifier.py`,
`regressor.py` and `utils.py` (`_infer_predict_nonlinearity`), and for sqlml's networks in
`sqlml/training/estimators/`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Leaf, Outputs, Schema, build_labels
from sqlml.importers.model_checks import make_unfitted_error
from sqlml.importers.sklearn.classify import label_by_argmax, require_multiple_classes
from sqlml.importers.torch.importer import import_module, read_module_schema
from sqlml.ir.builder import Builder, Value


def build_softmax(builder: Builder, scores: Value) -> Value:
    """Build the probability of each class from the scores (n, k)."""
    return builder.op("softmax", scores, sum_dtype=scores.type.dtype)


def build_sigmoid(builder: Builder, score: Value) -> Value:
    """Build the probabilities (n, 2) of two classes from the second class's score (n, 1)."""
    return add_complement(builder, builder.op("sigmoid", score))


def add_complement(builder: Builder, proba: Value) -> Value:
    """Build the probabilities (n, 2) of two classes from the second class's probability (n, 1)."""
    one = make_constant_like(builder, 1, proba)
    return builder.op("concat", builder.op("sub", one, proba), proba)


def make_constant_like(builder: Builder, number: float, like: Value) -> Value:
    """Build the constant `number` in the dtype of `like`."""
    return builder.constant(np.array([number], like.type.dtype))


def import_dnn_classifier(model: Any, frame: Frame) -> Outputs:
    """Import DNNClassifier, which predicts the most probable class, or the first in a tie."""
    scores = import_module(_copy_module(model), frame).values["label"]
    proba = (build_sigmoid if scores.type.width == 1 else build_softmax)(frame.builder, scores)
    label = label_by_argmax(frame.builder, proba)
    return Outputs({"label": label, "proba": proba}, build_labels(require_multiple_classes(model)))


def import_dnn_regressor(model: Any, frame: Frame) -> Outputs:
    return import_module(_copy_module(model), frame)


def import_autoencoder(model: Any, frame: Frame) -> Outputs:
    """Import Autoencoder: latent columns, and the negative mean squared error of each row."""
    module = _copy_module(model)
    op = frame.builder.op
    latent = import_module(module.encoder, frame).values["label"]
    latent_frame = Frame.from_value(frame.builder, latent)
    restored = import_module(module.decoder, latent_frame).values["label"]
    residual = op("sub", restored, frame.matrix("float32"))
    squares = op("sum", op("mul", residual, residual), axis=1)
    width = make_constant_like(frame.builder, -frame.width, squares)
    return Outputs({"transform": latent, "samples": op("div", squares, width)})


def import_classifier(model: Any, frame: Frame) -> Outputs:
    """Import skorch's NeuralNetClassifier, which predicts the most probable class."""
    proba = _apply_net(model, frame)
    if proba.type.width < 2:
        raise UnsupportedModelError(
            f"{type(model).__name__} needs a module with an output per class, "
            "and this module has one output; use NeuralNetBinaryClassifier"
        )
    label = label_by_argmax(frame.builder, proba)
    return Outputs({"label": label, "proba": proba}, build_labels(list(range(proba.type.width))))


def import_binary_classifier(model: Any, frame: Frame) -> Outputs:
    """Import skorch's NeuralNetBinaryClassifier, which predicts 1 if proba > `threshold`."""
    proba = _apply_net(model, frame)
    if proba.type.width != 2:
        raise UnsupportedModelError(
            f"the criterion of this {type(model).__name__} does not convert the module's output to "
            "two probabilities; supported criteria: BCEWithLogitsLoss, BCELoss"
        )
    positive_proba = frame.builder.op("select", proba, indices=np.array([1]))
    # NumPy compares float32 numbers with the threshold in float32.
    threshold = make_constant_like(frame.builder, model.threshold, positive_proba)
    is_positive = frame.builder.op("gt", positive_proba, threshold)
    label = frame.builder.op("cast", is_positive, dtype="int64")
    return Outputs({"label": label, "proba": proba}, build_labels([0, 1]))


def import_regressor(model: Any, frame: Frame) -> Outputs:
    """Import skorch's NeuralNetRegressor, which predicts the module's output (n, targets)."""
    return Outputs({"label": _apply_net(model, frame)})


def _apply_net(model: Any, frame: Frame) -> Value:
    nonlinearity = _find_nonlinearity(model)
    value = import_module(_copy_module(model), frame).values["label"]
    return value if nonlinearity is None else nonlinearity(frame.builder, value)


def _copy_module(model: Any) -> Any:
    if not getattr(model, "initialized_", True) or not hasattr(model, "module_"):
        raise make_unfitted_error(model)
    return copy.deepcopy(model.module_).eval()


def _find_nonlinearity(model: Any) -> Callable[[Builder, Value], Value] | None:
    """Return the function that converts the module's output to probabilities, or None if unchanged.

    Raises UnsupportedModelError if the user has set a Python function, which sqlml cannot read.
    """
    nonlinearity = model.predict_nonlinearity
    if nonlinearity is None:
        return None
    if nonlinearity != "auto":
        raise UnsupportedModelError(
            f"predict_nonlinearity of this {type(model).__name__} is a Python function, which "
            "sqlml cannot import; make it a layer of the module"
        )
    criterion = type(getattr(model.criterion_, "_orig_mod", model.criterion_))
    class_names = (f"{cls.__module__}.{cls.__qualname__}" for cls in criterion.__mro__)
    return next((NONLINEARITIES[name] for name in class_names if name in NONLINEARITIES), None)


NONLINEARITIES: Mapping[str, Callable[[Builder, Value], Value]] = {
    "torch.nn.modules.loss.CrossEntropyLoss": build_softmax,
    "torch.nn.modules.loss.BCEWithLogitsLoss": build_sigmoid,
    "torch.nn.modules.loss.BCELoss": add_complement,
}
"""Maps the criterion's class to the function that converts the output to probabilities."""

IMPORTERS: Mapping[str, Leaf] = {
    "skorch.classifier.NeuralNetClassifier": import_classifier,
    "skorch.classifier.NeuralNetBinaryClassifier": import_binary_classifier,
    "skorch.regressor.NeuralNetRegressor": import_regressor,
    "sqlml.training.estimators.dnn.DNNClassifier": import_dnn_classifier,
    "sqlml.training.estimators.dnn.DNNRegressor": import_dnn_regressor,
    "sqlml.training.estimators.dnn.DNNLinearCombinedClassifier": import_dnn_classifier,
    "sqlml.training.estimators.dnn.DNNLinearCombinedRegressor": import_dnn_regressor,
    "sqlml.training.estimators.autoencoder.Autoencoder": import_autoencoder,
}
SCHEMAS: Mapping[str, Callable[[Any], Schema]] = dict.fromkeys(
    IMPORTERS, lambda model: read_module_schema(_copy_module(model))
)
