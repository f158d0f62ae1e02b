"""Importers of XGBoost's estimators, Booster and files.

All of them read the one document of `document.py`. Estimators differ from a Booster in four ways
(measured against 3.2): they stop at `best_iteration`, map `missing` to NaN, take infinities (they
predict in place; a DMatrix refuses infinity), and make labels of predictions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, Schema, category_codes, coded_columns
from sqlml.importers.model_checks import unfitted
from sqlml.importers.xgboost import document
from sqlml.importers.xgboost.document import StoredNames, XGBoostModel, read_document
from sqlml.importers.xgboost.forest import compact
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array, Labels

# What each objective of XGBoost does with base_score and with the margin.
#
# Source: XGBoost src/objective; `base_score` is kept in the space of the predictions.


Link = Literal["identity", "logit", "log"]
Output = Literal["identity", "sigmoid", "exp", "step", "softmax"]
Task = Literal["regression", "binary", "multiclass"]


@dataclass(frozen=True, slots=True)
class Objective:
    """`link` takes base_score to the margin, `output` the margin to the prediction."""

    link: Link
    output: Output
    task: Task


_IDENTITY = Objective("identity", "identity", "regression")
_EXP = Objective("log", "exp", "regression")
_SOFTMAX = Objective("identity", "softmax", "multiclass")

OBJECTIVES: Mapping[str, Objective] = MappingProxyType(
    {
        "reg:squarederror": _IDENTITY,
        "reg:linear": _IDENTITY,
        "reg:squaredlogerror": _IDENTITY,
        "reg:pseudohubererror": _IDENTITY,
        "reg:absoluteerror": _IDENTITY,
        "reg:quantileerror": _IDENTITY,
        "reg:logistic": Objective("logit", "sigmoid", "regression"),
        "reg:gamma": _EXP,
        "reg:tweedie": _EXP,
        "count:poisson": _EXP,
        "survival:cox": _EXP,
        "survival:aft": _EXP,
        "rank:pairwise": _IDENTITY,
        "rank:ndcg": _IDENTITY,
        "rank:map": _IDENTITY,
        "binary:logistic": Objective("logit", "sigmoid", "binary"),
        "binary:logitraw": _IDENTITY,
        "binary:hinge": Objective("identity", "step", "binary"),
        "multi:softmax": _SOFTMAX,
        "multi:softprob": _SOFTMAX,
    }
)

HALF = np.float32(1.5 * 2.0**-24)
"""Largest margin whose float32 sigmoid is not above 0.5: below it exp(-x) + 1 rounds to 2.

Comparing margins instead of probabilities keeps labels free of the last bit of anybody's exp."""


def objective(name: str) -> Objective:
    """The row of `name`.

    Raises:
        UnsupportedModelError: no row has that name.
    """
    row = OBJECTIVES.get(name)
    if row is None:
        raise UnsupportedModelError(
            f"XGBoost objective {name!r} is not covered; covered: {', '.join(OBJECTIVES)}"
        )
    return row


def base_margin(row: Objective, base_score: Array) -> Array:
    """base_score float32 (K,) as a margin, in XGBoost's float32 arithmetic."""
    base = base_score.astype(np.float32)
    with np.errstate(all="ignore"):
        if row.link == "logit":
            one, edge = np.float32(1), np.float32(1e-6)
            odds = one / np.clip(base, edge, one - edge) - one
            return -_log(odds)
        if row.link == "log":
            return _log(base)
    return base


def _log(x: Array) -> Array:
    return np.log(x.astype(np.float64)).astype(np.float32)


def predict(b: Builder, row: Objective, margin: Value) -> Value:
    """What Booster.predict makes of the margin: (n, K) float32."""
    if row.output == "sigmoid":
        return b.op("sigmoid", margin)
    if row.output == "exp":
        return b.op("exp", margin)
    if row.output == "softmax":
        return b.op("softmax", margin, sum_dtype="float64")
    if row.output == "step":
        above = b.op("gt", margin, b.constant(np.zeros(1, np.float32)))
        return b.op("cast", above, dtype="float32")
    return margin


def above_half(b: Builder, row: Objective, margin: Value, prediction: Value) -> Value:
    """Whether the prediction is above 0.5, as int64 (n, 1): the class of two classes."""
    if row.output == "sigmoid":
        above = b.op("gt", margin, b.constant(np.array([HALF])))
    else:
        above = b.op("gt", prediction, b.constant(np.array([0.5], np.float32)))
    return b.op("cast", above, dtype="int64")


def schema(model: Any) -> Schema:
    """Return the columns of an estimator or Booster."""
    booster = _booster(model)
    names = booster.feature_names
    if names is not None:
        return Schema(tuple(str(n) for n in names), len(names))
    return _numbered(int(booster.num_features()))


def file_schema(model: XGBoostModel) -> Schema:
    """Return the columns of a model file."""
    if model.names is not None:
        return Schema(model.names, model.features)
    return _numbered(model.features)


def _numbered(count: int) -> Schema:
    """Return columns without names, which XGBoost calls f0, f1, ... in its dumps and plots."""
    return Schema(None, count, tuple(f"f{i}" for i in range(count)))


def import_classifier(model: Any, frame: Frame) -> Outputs:
    """XGBClassifier and XGBRFClassifier: labels 0 .. k-1, as `classes_` has them; several labels
    a row when it was fitted on an indicator matrix."""
    return _classifier(_document(model), frame, float(model.missing))


def import_regressor(model: Any, frame: Frame) -> Outputs:
    """XGBRegressor (of several targets or quantiles too), XGBRFRegressor and XGBRanker."""
    return _regressor(_document(model), frame, float(model.missing))


def import_booster(model: Any, frame: Frame) -> Outputs:
    """A raw Booster: all its trees; a classifier when its objective is one."""
    return _raw(_document(model), frame)


def import_file(model: XGBoostModel, frame: Frame) -> Outputs:
    """A model file: predicts as the estimator does that wrote it, else as a Booster."""
    if model.estimator == "classifier":
        return _classifier(model, frame, math.nan)
    if model.estimator in ("regressor", "ranker"):
        return _regressor(model, frame, math.nan)
    return _raw(model, frame)


def _booster(model: Any) -> Any:
    get = getattr(model, "get_booster", None)
    if get is None:
        return model
    if not model.__sklearn_is_fitted__():
        raise unfitted(model)
    return get()


def _document(model: Any) -> XGBoostModel:
    return read_document(document.loads(_booster(model).save_raw("ubj"), compact))


def _classifier(model: XGBoostModel, frame: Frame, missing: float) -> Outputs:
    row = objective(model.objective)
    margin = _margin(model, row, frame, missing, estimator=True)
    return _classes(model, row, frame, margin)


def _regressor(model: XGBoostModel, frame: Frame, missing: float) -> Outputs:
    row = objective(model.objective)
    if model.outputs > model.targets and model.objective != "multi:softprob":
        raise UnsupportedModelError(
            f"a regressor with objective {model.objective!r} and {model.outputs} outputs is not "
            "covered; use a classifier, or one model per output"
        )
    margin = _margin(model, row, frame, missing, estimator=True)
    return Outputs({"label": predict(frame.builder, row, margin), "score": margin})


def _raw(model: XGBoostModel, frame: Frame) -> Outputs:
    row = objective(model.objective)
    margin = _margin(model, row, frame, math.nan, estimator=False)
    if row.task != "regression":
        return _classes(model, row, frame, margin)
    if model.outputs > model.targets:
        raise UnsupportedModelError(
            f"objective {model.objective!r} with {model.outputs} outputs is not covered; train "
            "one model per output"
        )
    return Outputs({"label": predict(frame.builder, row, margin), "score": margin})


def _classes(model: XGBoostModel, row: Objective, frame: Frame, margin: Value) -> Outputs:
    b = frame.builder
    prediction = predict(b, row, margin)
    if model.targets > 1:
        # An indicator matrix: for each label the probability that it is there.
        label = above_half(b, row, margin, prediction)
        labels = (Labels("int64", (0, 1)),) * model.targets
        return Outputs({"label": label, "proba": prediction, "score": margin}, labels)
    if model.outputs > 1:
        # argmax of what predict compares: the margins in softmax, the probabilities in softprob,
        # where two margins may round to one probability and the first class wins.
        compared = margin if model.objective == "multi:softmax" else prediction
        return Outputs(
            {"label": b.op("argmax", compared, axis=1), "proba": prediction, "score": margin},
            Labels("int64", tuple(range(model.outputs))),
        )
    if row.task == "multiclass":
        raise UnsupportedModelError(f"objective {model.objective!r} with a single class")
    other = b.op("sub", b.constant(np.ones(1, np.float32)), prediction)
    return Outputs(
        {
            "label": above_half(b, row, margin, prediction),
            "proba": b.op("concat", other, prediction),
            "score": margin,
        },
        Labels("int64", (0, 1)),
    )


def _margin(
    model: XGBoostModel, row: Objective, frame: Frame, missing: float, estimator: bool
) -> Value:
    if not model.features:
        raise UnsupportedModelError("the XGBoost model has no features")
    if frame.width != model.features:
        raise UnsupportedModelError(
            f"the XGBoost model reads {model.features} columns, but gets {frame.width}"
        )
    base = base_margin(row, model.base_score)
    if model.estimated and not model.rounds:
        # A model of no rounds has estimated nothing, and predicts its placeholder as a margin.
        base = model.base_score
    if model.weights is not None:
        x = _columns(model, frame, missing, finite=True)
        # gblinear adds the first class' base score to all classes (XGBoost 3.2).
        return _linear(model.weights, x, base[:1], frame.builder)
    if model.forest is None:
        raise UnsupportedModelError("the XGBoost model has neither trees nor weights")
    best = model.best_iteration if estimator else None
    trees = model.forest.ensemble(model.forest.trees_until(best), base, inplace=estimator)
    x = _columns(model, frame, missing, finite=not estimator)
    return frame.builder.op("tree_ensemble", x, **trees.attrs())


def _columns(model: XGBoostModel, frame: Frame, missing: float, finite: bool) -> Value:
    """All features as (n, F) float32, NaN where missing."""
    b = frame.builder
    if frame.sparse == "with zeros":
        raise UnsupportedModelError(
            "DictVectorizer stores a 0 but not a number whose key a dict lacks; XGBoost tells "
            "these apart and a column cannot; write DictVectorizer(sparse=False) and fit again"
        )
    if frame.sparse:
        # What a sparse matrix does not store is missing, and it stores no zero.
        if frame.stored:
            stored = frame.matrix("float64", "sparse")
            wide = b.op("densify", stored, fill=float("nan"))
        else:
            wide = frame.matrix("float64")
            zero = b.op("eq", wide, b.constant(np.zeros(1)))
            wide = b.op("where", zero, b.constant(np.array([np.nan])), wide)
        frame = Frame.of(b, wide, frame.names)
    known = {
        i: _declared(frame, i, categories) if isinstance(categories, StoredNames) else categories
        for i, categories in enumerate(model.categories)
        if categories is not None
    }
    codes = partial(category_codes, dtype="float32", refuse="XGBoost")
    x = coded_columns(frame, range(model.features), known, codes, "float32")
    if not math.isnan(missing):
        gone = b.op("eq", x, b.constant(np.array([missing], np.float32)))
        x = b.op("where", gone, b.constant(np.array([np.nan], np.float32)), x)
    if finite and not math.isinf(missing):
        x = b.op("require_finite", x, features=frame.names, allow_nan=True, step="XGBoost")
    return x


def _declared(frame: Frame, i: int, stored: StoredNames) -> Array:
    """Return the categories outside ASCII of a column, whose names the user has declared.

    Raises:
        UnsupportedModelError: they are not declared, or are not those of the model.
    """
    name = frame.names[i]
    match = _ENUM.fullmatch(frame.declared.get(name, "").strip())
    if match is None:
        raise UnsupportedModelError(
            f"column {name!r} has categories outside ASCII, whose names XGBoost does not store in "
            f"full; say what they are by the column's type: INPUT (\"{name}\" ENUM('..', '..'), "
            f"...) or inputs={{'{name}': \"ENUM('..', '..')\", ...}}, in the order of training"
        )
    declared = [value.replace("''", "'") for value in _ENUM_VALUE.findall(match[1])]
    categories = stored.of(declared)
    if categories is None:
        raise UnsupportedModelError(
            f"the {len(declared)} values of the ENUM of column {name!r} are not the {len(stored)} "
            "categories of the XGBoost model; write them as they were in training, in their order"
        )
    return categories


_ENUM_VALUE = re.compile(r"'((?:[^']|'')*)'")
_ENUM = re.compile(r"ENUM\s*\(\s*('(?:[^']|'')*'(?:\s*,\s*'(?:[^']|'')*')*)\s*\)", re.IGNORECASE)


def _linear(weights: Array, x: Value, base: Array, b: Builder) -> Value:
    """gblinear, feature by feature: XGBoost sums in float32 in this order, and a matrix product
    would sum in another."""
    x = b.op("where", b.op("isnan", x), b.constant(np.zeros(1, np.float32)), x)
    total = b.constant((weights[-1] + base)[None, :])
    for j, row in enumerate(weights[:-1]):
        column = b.op("select", x, indices=np.array([j], np.int64))
        total = b.op("add", total, b.op("mul", column, b.constant(row[None, :])))
    return total


FILE = "xgboost file"
"""What `file_formats.read_artifact` makes of a file, as `registry.NAMES` calls it."""

IMPORTERS: Mapping[str, Callable[[Any, Frame], Frame | Outputs]] = MappingProxyType(
    {
        "xgboost.sklearn.XGBClassifier": import_classifier,
        "xgboost.sklearn.XGBRFClassifier": import_classifier,
        "xgboost.sklearn.XGBRegressor": import_regressor,
        "xgboost.sklearn.XGBRFRegressor": import_regressor,
        "xgboost.sklearn.XGBRanker": import_regressor,
        "xgboost.core.Booster": import_booster,
        FILE: import_file,
    }
)
SCHEMAS: Mapping[str, Callable[[Any], Schema]] = MappingProxyType(
    {path: file_schema if path == FILE else schema for path in IMPORTERS}
)
