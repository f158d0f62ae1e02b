"""Importers of CatBoost's estimators and JSON files."""

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
from sqlml.importers.catboost.document import CatBoostModel, read_document
from sqlml.importers.catboost.forest import compact
from sqlml.importers.catboost.inputs import tree_columns
from sqlml.importers.catboost.objective import Output, loss, predict
from sqlml.importers.frame import Frame, Outputs, Schema, labels_of
from sqlml.importers.json_text import read_json
from sqlml.importers.unfitted import unfitted
from sqlml.ir.builder import Value
from sqlml.types import Labels


def schema(model: Any) -> Schema:
    """Return the columns of an estimator."""
    _check_fitted(model)
    names = tuple(str(n) for n in model.feature_names_)
    numbered = _numbered(len(names))
    return numbered if names == numbered.default_names else Schema(names, len(names))


def file_schema(model: CatBoostModel) -> Schema:
    """Return the columns of a file."""
    if model.names is not None:
        return Schema(model.names, model.features)
    return _numbered(model.features)


def _numbered(count: int) -> Schema:
    """Return columns without names, which CatBoost calls 0, 1, ..."""
    return Schema(None, count, tuple(map(str, range(count))))


def import_classifier(model: Any, frame: Frame) -> Outputs:
    """CatBoostClassifier: labels as `classes_` has them, `score` is RawFormulaVal."""
    document = _document(model)
    if loss(document.loss)[0] == "multilabel":
        return _multilabel(document, frame)
    softmax = document.outputs > 1 and document.loss != "MultiClassOneVsAll"
    output: Output = "softmax" if softmax else "sigmoid"
    return _classes(document, frame, _raw(document, frame), output)


def import_regressor(model: Any, frame: Frame) -> Outputs:
    """CatBoostRegressor, with the prediction type that its loss function has by default."""
    document = _document(model)
    kinds: dict[str, Output] = {
        "RawFormulaVal": "identity",
        "Exponent": "exp",
        "RMSEWithUncertainty": "uncertainty",
    }
    output = kinds[model._get_default_prediction_type()]
    return _regression(document, frame, output)


def import_raw(model: Any, frame: Frame) -> Outputs:
    """CatBoostRanker, and CatBoost itself: a classifier when its loss function is one, else the
    raw values, as its predict gives them."""
    document = _document(model)
    if loss(document.loss)[0] != "regression":
        return import_file(document, frame)
    return _regression(document, frame, "identity")


def import_file(model: CatBoostModel, frame: Frame) -> Outputs:
    """A JSON file: as CatBoostClassifier or CatBoostRegressor would predict, by its loss."""
    task, output = loss(model.loss)
    if task == "multilabel":
        return _multilabel(model, frame)
    if task == "classes":
        return _classes(model, frame, _raw(model, frame), output)
    return _regression(model, frame, output)


def _check_fitted(model: Any) -> None:
    if not model.is_fitted():
        raise unfitted(model)


def _document(model: Any) -> CatBoostModel:
    _check_fitted(model)
    with tempfile.TemporaryDirectory(prefix="sqlml") as folder:
        path = Path(folder, "model.json")
        try:
            model.save_model(str(path), format="json")
        except Exception as error:  # CatBoostError, which we do not import
            raise UnsupportedModelError(
                f"CatBoost cannot write this {type(model).__name__} as JSON, which sqlml reads: "
                f"{error}"
            ) from error
        return read_document(read_json(path.read_bytes(), compact))


def _regression(model: CatBoostModel, frame: Frame, output: Output) -> Outputs:
    if output == "uncertainty" and model.outputs != 2:
        raise ArtifactError(f"RMSEWithUncertainty with {model.outputs} values per row")
    if output == "exp" and model.outputs != 1:
        raise ArtifactError(f"loss {model.loss!r} with {model.outputs} values per row")
    raw = _raw(model, frame)
    return Outputs({"label": predict(frame.builder, output, raw), "score": raw})


def _multilabel(model: CatBoostModel, frame: Frame) -> Outputs:
    """Labels that a row has or not: 0 or 1 each, and the probability of 1."""
    if model.outputs < 2 or model.threshold is not None:
        what = "a single label" if model.outputs < 2 else "a probability threshold"
        raise UnsupportedModelError(f"CatBoost's loss function {model.loss!r} with {what}")
    b = frame.builder
    raw = _raw(model, frame)
    label = b.op("cast", b.op("gt", raw, b.constant(np.zeros(1))), dtype="int64")
    labels = (Labels("int64", (0, 1)),) * model.outputs
    proba = predict(b, "sigmoid", raw)
    return Outputs({"label": label, "proba": proba, "score": raw}, labels)


def _classes(model: CatBoostModel, frame: Frame, raw: Value, output: Output) -> Outputs:
    b = frame.builder
    names = model.classes or tuple(range(max(2, model.outputs)))
    labels: Labels = labels_of(names)
    if model.outputs == 1:
        if len(labels) != 2:
            raise UnsupportedModelError(f"{len(labels)} classes for one value per row")
        border = 0.0
        if model.threshold is not None:
            border = -math.log(1 / model.threshold - 1)
        label = b.op("cast", b.op("gt", raw, b.constant(np.array([border]))), dtype="int64")
        positive = predict(b, output, raw)
        other = b.op("sub", b.constant(np.ones(1)), positive)
        proba = b.op("concat", other, positive)
        return Outputs({"label": label, "proba": proba, "score": raw}, labels)
    raw = _external(model, raw, frame, len(labels))
    label = b.op("argmax", raw, axis=1)
    return Outputs({"label": label, "proba": predict(b, output, raw), "score": raw}, labels)


def _external(model: CatBoostModel, raw: Value, frame: Frame, count: int) -> Value:
    """Raw values in the order of the class names; -inf for a class that training never saw."""
    b = frame.builder
    place = {name: k for k, name in enumerate(model.class_of or range(model.outputs))}
    if count == model.outputs and list(place) == list(range(count)):
        return raw
    first = b.op("select", raw, indices=np.zeros(1, np.int64))
    nothing = b.constant(np.array([-np.inf]))
    never = b.op("where", b.op("isnan", first), nothing, nothing)
    wide = b.op("concat", raw, never)
    order = [place.get(name, model.outputs) for name in range(count)]
    return b.op("select", wide, indices=np.array(order, np.int64))


def _raw(model: CatBoostModel, frame: Frame) -> Value:
    """RawFormulaVal: scale * (sum of the leaves, tree by tree) + bias, (n, K) float64."""
    if frame.width != model.features or not model.features:
        raise UnsupportedModelError(
            f"the CatBoost model reads {model.features} columns, but gets {frame.width}"
        )
    b = frame.builder
    trees = replace(model.trees, base=np.zeros(model.outputs))  # more than the leaves' of none
    value = b.op("tree_ensemble", tree_columns(model, frame), **trees.attrs())
    if model.scale != 1:
        value = b.op("mul", value, b.constant(np.array([model.scale])))
    if model.bias.any():
        value = b.op("add", value, b.constant(model.bias))
    return value


FILE = "catboost file"
"""What `file_formats.read_artifact` makes of a file, as `registry.NAMES` calls it."""

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
