"""Import CatBoost's estimators and files."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import ArtifactError, UnsupportedModelError
from sqlml.importers.boosters import (
    REGRESSION,
    Link,
    Objective,
    apply_link,
    build_schema,
    check_width,
    find_objective,
    import_binary,
    import_multiclass,
    import_multilabel,
    import_regression,
    label_above,
)
from sqlml.importers.catboost.document import CatBoostModel, compact, read_document
from sqlml.importers.catboost.tree_inputs import compute_tree_inputs
from sqlml.importers.frame import Frame, Outputs, Schema, build_labels
from sqlml.importers.model_checks import explain_unfitted
from sqlml.importers.untrusted_documents import read_json
from sqlml.ir.builder import Value

_IDENTITY = (
    "RMSE MAE Quantile MultiQuantile GroupQuantile LogLinQuantile Expectile MAPE RMSPE Lq Huber "
    "LogCosh Cox SurvivalAft MultiRMSE MultiRMSEWithMissingValues QueryRMSE QuerySoftMax "
    "QueryCrossEntropy PairLogit PairLogitPairwise YetiRank YetiRankPairwise StochasticFilter "
    "StochasticRank LambdaMart UserPerObjMetric UserQuerywiseMetric PythonUserDefinedPerObject "
    "PythonUserDefinedMultiTarget"
).split()

LOSSES: Mapping[str, Objective] = MappingProxyType(
    {
        "Logloss": Objective("binary", "sigmoid"),
        "CrossEntropy": Objective("binary", "sigmoid"),
        "Focal": Objective("binary", "sigmoid"),
        "MultiClass": Objective("multiclass", "softmax"),
        "MultiClassOneVsAll": Objective("multiclass", "sigmoid"),
        "MultiLogloss": Objective("multilabel", "sigmoid"),
        "MultiCrossEntropy": Objective("multilabel", "sigmoid"),
        "Poisson": Objective("regression", "exp"),
        "Tweedie": Objective("regression", "exp"),
        "RMSEWithUncertainty": Objective("regression", "variance"),
        **dict.fromkeys(_IDENTITY, REGRESSION),
    }
)
"""The loss functions that are covered.

Source: catboost/libs/eval_result/eval_helpers.cpp, and CatBoostRegressor's default prediction."""


def schema(model: Any) -> Schema:
    _check_fitted(model)
    names = tuple(str(n) for n in model.feature_names_)
    return build_schema(names, _number_columns(len(names)))


def file_schema(model: CatBoostModel) -> Schema:
    if model.names is not None:
        return Schema(model.names, model.features)
    return build_schema(None, _number_columns(model.features))


def _number_columns(count: int) -> tuple[str, ...]:
    return tuple(map(str, range(count)))


def import_classifier(model: Any, frame: Frame) -> Outputs:
    """Import CatBoostClassifier, with the labels of `classes_`; `score` is RawFormulaVal."""
    document = _read_model(model)
    if _find_loss(document).task == "multilabel":
        return _import_multilabel(document, frame)
    is_softmax = document.outputs > 1 and document.loss != "MultiClassOneVsAll"
    return _import_classes(document, frame, "softmax" if is_softmax else "sigmoid")


def import_regressor(model: Any, frame: Frame) -> Outputs:
    """Import CatBoostRegressor, with the default prediction type of its loss function."""
    document = _read_model(model)
    return _import_regression(document, frame, _LINKS[model._get_default_prediction_type()])


_LINKS: Mapping[str, Link] = MappingProxyType(
    {"RawFormulaVal": "identity", "Exponent": "exp", "RMSEWithUncertainty": "variance"}
)


def import_raw(model: Any, frame: Frame) -> Outputs:
    """Import CatBoostRanker or CatBoost, which predict raw values unless the loss has classes."""
    document = _read_model(model)
    if _find_loss(document).task != "regression":
        return import_file(document, frame)
    return _import_regression(document, frame, "identity")


def import_file(model: CatBoostModel, frame: Frame) -> Outputs:
    """Import a file, which predicts like CatBoostClassifier or CatBoostRegressor by its loss."""
    loss = _find_loss(model)
    if loss.task == "multilabel":
        return _import_multilabel(model, frame)
    if loss.task == "regression":
        return _import_regression(model, frame, loss.link)
    return _import_classes(model, frame, loss.link)


def _check_fitted(model: Any) -> None:
    if not model.is_fitted():
        raise explain_unfitted(model)


def _read_model(model: Any) -> CatBoostModel:
    _check_fitted(model)
    with tempfile.TemporaryDirectory(prefix="sqlml") as folder:
        path = Path(folder, "model.json")
        try:
            model.save_model(str(path), format="json")
        except Exception as error:  # a CatBoostError, whose class is not imported here
            raise UnsupportedModelError(
                f"CatBoost cannot write this {type(model).__name__} as JSON, which sqlml reads: "
                f"{error}"
            ) from error
        return read_document(read_json(path.read_bytes(), compact))


def _find_loss(model: CatBoostModel) -> Objective:
    if not model.loss:  # CatBoost predicts raw values if a file states no loss
        return REGRESSION
    return find_objective(LOSSES, model.loss, "CatBoost's loss function")


def _import_regression(model: CatBoostModel, frame: Frame, link: Link) -> Outputs:
    if link == "variance" and model.outputs != 2:
        raise ArtifactError(f"RMSEWithUncertainty with {model.outputs} values per row")
    if link == "exp" and model.outputs != 1:
        raise ArtifactError(f"loss {model.loss!r} with {model.outputs} values per row")
    return import_regression(frame.builder, link, _compute_raw(model, frame))


def _import_multilabel(model: CatBoostModel, frame: Frame) -> Outputs:
    if model.outputs < 2 or model.threshold is not None:
        feature = "a single label" if model.outputs < 2 else "a probability threshold"
        raise UnsupportedModelError(f"CatBoost's loss function {model.loss!r} with {feature}")
    b = frame.builder
    raw = _compute_raw(model, frame)
    return import_multilabel(label_above(b, raw, 0.0), apply_link(b, "sigmoid", raw), raw)


def _import_classes(model: CatBoostModel, frame: Frame, link: Link) -> Outputs:
    b, raw = frame.builder, _compute_raw(model, frame)
    labels = build_labels(model.classes or tuple(range(max(2, model.outputs))))
    if model.outputs == 1:
        if len(labels) != 2:
            raise UnsupportedModelError(f"{len(labels)} classes for one value per row")
        border = 0.0 if model.threshold is None else -math.log(1 / model.threshold - 1)
        label = label_above(b, raw, border)
        return import_binary(b, label, apply_link(b, link, raw), raw, labels)
    raw = _arrange_by_class(model, raw, frame, len(labels))
    return import_multiclass(b, raw, apply_link(b, link, raw), raw, labels)


def _arrange_by_class(model: CatBoostModel, raw: Value, frame: Frame, classes: int) -> Value:
    """Return raw values in the order of the class names; -inf for classes without training rows."""
    b = frame.builder
    output_of = {name: k for k, name in enumerate(model.class_of or range(model.outputs))}
    if classes == model.outputs and list(output_of) == list(range(classes)):
        return raw
    first = b.op("select", raw, indices=np.zeros(1, np.int64))
    infinity = b.constant(np.array([-np.inf]))
    untrained = b.op("where", b.op("isnan", first), infinity, infinity)
    extended = b.op("concat", raw, untrained)
    order = [output_of.get(name, model.outputs) for name in range(classes)]
    return b.op("select", extended, indices=np.array(order, np.int64))


def _compute_raw(model: CatBoostModel, frame: Frame) -> Value:
    """Return RawFormulaVal: scale * (sum of the leaves, tree by tree) + bias, (n, K) float64."""
    check_width(frame, model.features, "CatBoost")
    b = frame.builder
    trees = replace(model.trees, base=np.zeros(model.outputs))  # K may be set without trees
    value = b.op("tree_ensemble", compute_tree_inputs(model, frame), **trees.attrs())
    if model.scale != 1:
        value = b.op("mul", value, b.constant(np.array([model.scale])))
    if model.bias.any():
        value = b.op("add", value, b.constant(model.bias))
    return value


FILE = "catboost file"
"""The name in the registry of a model that was read from a file."""

IMPORTERS: Mapping[str, Callable[[Any, Frame], Frame | Outputs]] = MappingProxyType(
    {
        "catboost.core.CatBoostClassifier": import_classifier,
        "catboost.core.CatBoostRegressor": import_regressor,
        "catboost.core.CatBoostRanker": import_raw,
        "catboost.core.CatBoost": import_raw,
        FILE: import_file,
    }
)
SCHEMAS: Mapping[str, Callable[[Any], Schema]] = MappingProxyType(
    {path: file_schema if path == FILE else schema for path in IMPORTERS}
)
