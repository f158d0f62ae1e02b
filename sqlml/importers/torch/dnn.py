"""DNNClassifier and DNNRegressor of sqlml (`sqlml/training/estimators/dnn.py`), trained in SQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from sqlml.importers.frame import Frame, Outputs, Schema, labels_of
from sqlml.importers.sklearn.classify import argmax_label, two_or_more_classes
from sqlml.importers.torch.heads import sigmoid, softmax
from sqlml.importers.torch.importer import import_module, module_schema
from sqlml.importers.unfitted import unfitted
from sqlml.ir.builder import Value


def dnn_schema(model: Any) -> Schema:
    """The columns of the network's module."""
    return module_schema(_module(model))


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
    return import_module(_module(model), frame).values["label"]


def _module(model: Any) -> Any:
    if not hasattr(model, "module_"):
        raise unfitted(model)
    return model.module_


IMPORTERS: Mapping[str, Callable[[Any, Frame], Frame | Outputs]] = MappingProxyType(
    {
        "sqlml.training.estimators.dnn.DNNClassifier": dnn_classifier,
        "sqlml.training.estimators.dnn.DNNRegressor": dnn_regressor,
    }
)
SCHEMAS: Mapping[str, Callable[[Any], Schema]] = MappingProxyType(
    dict.fromkeys(IMPORTERS, dnn_schema)
)
