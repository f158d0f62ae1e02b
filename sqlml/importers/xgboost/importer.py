"""Import XGBoost's estimators, Boosters and model files.

Models are first converted to the document of `document.py`. Estimators differ from a Booster in
four ways (measured with 3.2): they stop at `best_iteration`, map `missing` to NaN, accept
infinities (a Booster reads a DMatrix, which rejects infinities), and predict labels.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers import boosters
from sqlml.importers.boosters import REGRESSION, Objective
from sqlml.importers.frame import Frame, Leaf, Outputs, Schema, encode_categories, encode_columns
from sqlml.importers.model_checks import make_unfitted_error
from sqlml.importers.untrusted_documents import read_ubjson
from sqlml.importers.xgboost.document import StoredNames, XGBoostModel, read_document
from sqlml.importers.xgboost.forest import compact
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array, Labels

_IDENTITY = (
    "reg:squarederror reg:linear reg:squaredlogerror reg:pseudohubererror reg:absoluteerror "
    "reg:quantileerror rank:pairwise rank:ndcg rank:map binary:logitraw"
).split()
_EXPONENTIAL = "reg:gamma reg:tweedie count:poisson survival:cox survival:aft".split()

OBJECTIVES: Mapping[str, Objective] = {
    **dict.fromkeys(_IDENTITY, REGRESSION),
    "reg:logistic": Objective("regression", "sigmoid", "logit"),
    **dict.fromkeys(_EXPONENTIAL, Objective("regression", "exp", "log")),
    "binary:logistic": Objective("binary", "sigmoid", "logit"),
    "binary:hinge": Objective("binary", "step"),
    **dict.fromkeys(("multi:softmax", "multi:softprob"), Objective("multiclass", "softmax")),
}
"""Maps a supported objective's name to the task and the links. Source: XGBoost src/objective."""

MAX_FIRST_CLASS_MARGIN = 1.5 * 2.0**-24
"""The largest margin whose float32 sigmoid is not above 0.5, because exp(-x) + 1 rounds to 2.

Margins are compared instead of probabilities, so labels do not depend on the last bit of exp."""


def read_schema(model: Any) -> Schema:
    """Return the schema of an estimator, Booster or file; unnamed columns are f0, f1, ..."""
    is_file = isinstance(model, XGBoostModel)
    source = model if is_file else _require_booster(model)
    names = source.names if is_file else source.feature_names
    if names is not None:
        return Schema(tuple(map(str, names)), len(names))
    count = source.features if is_file else int(source.num_features())
    return boosters.build_schema(None, tuple(f"f{i}" for i in range(count)))


def import_classifier(model: Any, frame: Frame) -> Outputs:
    """Import XGBClassifier or XGBRFClassifier, which predicts one or several labels 0 to k - 1."""
    return _import_classifier(_read_model(model), frame, float(model.missing))


def import_regressor(model: Any, frame: Frame) -> Outputs:
    """Import XGBRegressor, XGBRFRegressor or XGBRanker, with any number of targets or quantiles."""
    return _import_regressor(_read_model(model), frame, float(model.missing))


def import_booster(model: Any, frame: Frame) -> Outputs:
    """Import a Booster with all trees, as a classifier if the objective has classes."""
    return _import_raw(_read_model(model), frame)


def import_saved_model(model: XGBoostModel, frame: Frame) -> Outputs:
    """Import a model file, which predicts like the estimator or Booster that wrote the file."""
    if model.estimator_type == "classifier":
        return _import_classifier(model, frame, missing=math.nan)
    if model.estimator_type in ("regressor", "ranker"):
        return _import_regressor(model, frame, missing=math.nan)
    return _import_raw(model, frame)


def _require_booster(model: Any) -> Any:
    get_booster = getattr(model, "get_booster", None)
    if get_booster is None:
        return model
    if not model.__sklearn_is_fitted__():
        raise make_unfitted_error(model)
    return get_booster()


def _read_model(model: Any) -> XGBoostModel:
    return read_document(read_ubjson(_require_booster(model).save_raw("ubj"), compact))


def _find_objective(model: XGBoostModel) -> Objective:
    return boosters.find_objective(OBJECTIVES, model.objective, "XGBoost objective")


def _import_classifier(model: XGBoostModel, frame: Frame, missing: float) -> Outputs:
    objective = _find_objective(model)
    margin = _build_margin(model, objective, frame, missing, is_estimator=True)
    return _import_classes(model, objective, frame.builder, margin)


def _import_regressor(model: XGBoostModel, frame: Frame, missing: float) -> Outputs:
    objective = _find_objective(model)
    if model.outputs > model.targets and model.objective != "multi:softprob":
        raise UnsupportedModelError(
            f"a regressor with objective {model.objective!r} and {model.outputs} outputs is not "
            "supported; use a classifier, or one model per output"
        )
    margin = _build_margin(model, objective, frame, missing, is_estimator=True)
    return boosters.import_regression(frame.builder, objective.link, margin)


def _import_raw(model: XGBoostModel, frame: Frame) -> Outputs:
    objective = _find_objective(model)
    margin = _build_margin(model, objective, frame, math.nan, is_estimator=False)
    if objective.task != "regression":
        return _import_classes(model, objective, frame.builder, margin)
    if model.outputs > model.targets:
        raise UnsupportedModelError(
            f"objective {model.objective!r} with {model.outputs} outputs is not supported; train "
            "one model per output"
        )
    return boosters.import_regression(frame.builder, objective.link, margin)


def _import_classes(
    model: XGBoostModel, objective: Objective, builder: Builder, margin: Value
) -> Outputs:
    prediction = boosters.apply_link(builder, objective.link, margin)
    if model.targets == 1 and model.outputs > 1:
        # Booster.predict compares margins for softmax and probabilities for softprob. Different
        # margins may round to the same probability, in which case the first such class wins.
        class_scores = margin if model.objective == "multi:softmax" else prediction
        labels = Labels("int64", tuple(range(model.outputs)))
        return boosters.import_multiclass(builder, class_scores, prediction, margin, labels)
    if objective.link == "sigmoid":
        label = boosters.label_above(builder, margin, MAX_FIRST_CLASS_MARGIN)
    else:
        label = boosters.label_above(builder, prediction, 0.5)
    if model.targets > 1:
        return boosters.import_multilabel(label, prediction, margin)
    if objective.task == "multiclass":
        raise UnsupportedModelError(f"objective {model.objective!r} with a single class")
    return boosters.import_binary(builder, label, prediction, margin, Labels("int64", (0, 1)))


def _build_margin(
    model: XGBoostModel, objective: Objective, frame: Frame, missing: float, is_estimator: bool
) -> Value:
    boosters.check_width(frame, model.features, "XGBoost")
    base_margin = compute_base_margin(objective, model.base_score)
    if model.estimates_base_score and not model.rounds:
        # Without rounds, base_score was never estimated, and XGBoost uses base_score as a margin.
        base_margin = model.base_score
    if model.weights is not None:
        x = _read_features(model, frame, missing, reject_infinite=True)
        # gblinear adds the base score of the first class to all classes (XGBoost 3.2).
        return _add_linear_terms(model.weights, x, base_margin[:1], frame.builder)
    if model.forest is None:
        raise UnsupportedModelError("the XGBoost model has neither trees nor weights")
    num_trees = model.forest.count_trees(model.best_iteration if is_estimator else None)
    ensemble = model.forest.build_ensemble(num_trees, base_margin, is_inplace=is_estimator)
    x = _read_features(model, frame, missing, reject_infinite=not is_estimator)
    return frame.builder.op("tree_ensemble", x, **ensemble.attrs())


def compute_base_margin(objective: Objective, base_score: Array) -> Array:
    """Convert base scores to margins with the float32 arithmetic of XGBoost."""
    base = base_score.astype(np.float32)
    with np.errstate(all="ignore"):
        if objective.base_link == "logit":
            one, epsilon = np.float32(1), np.float32(1e-6)
            return -_log_in_float64(one / np.clip(base, epsilon, one - epsilon) - one)
        if objective.base_link == "log":
            return _log_in_float64(base)
    return base


def _log_in_float64(x: Array) -> Array:
    return np.log(x.astype(np.float64)).astype(np.float32)


def _read_features(
    model: XGBoostModel, frame: Frame, missing: float, reject_infinite: bool
) -> Value:
    """Build the features, float32 (n, F); the value `missing` becomes NaN."""
    builder = frame.builder
    if frame.sparse == "with zeros":
        raise UnsupportedModelError(
            "DictVectorizer stores a 0, but nothing for a key that a dict lacks; XGBoost tells "
            "these cases apart and a column cannot; use DictVectorizer(sparse=False) and fit again"
        )
    if frame.sparse:
        # XGBoost treats the zeros of a sparse matrix, which are not stored, as missing values.
        if frame.has_sparse_rows:
            dense = builder.op("densify", frame.matrix("float64", "sparse"), fill=math.nan)
        else:
            dense = frame.matrix("float64")
            is_zero = builder.op("eq", dense, builder.constant(np.zeros(1)))
            dense = builder.op("where", is_zero, builder.constant(np.array([np.nan])), dense)
        frame = Frame.from_value(builder, dense, frame.names)
    categories_by_column = {
        i: _match_declared_enum(frame, i, values) if isinstance(values, StoredNames) else values
        for i, values in enumerate(model.categories)
        if values is not None
    }
    encode = partial(encode_categories, dtype="float32", refuse="XGBoost")
    x = encode_columns(frame, range(model.features), categories_by_column, encode, "float32")
    if not math.isnan(missing):
        is_missing = builder.op("eq", x, builder.constant(np.array([missing], np.float32)))
        x = builder.op("where", is_missing, builder.constant(np.array([np.nan], np.float32)), x)
    if reject_infinite and not math.isinf(missing):
        x = builder.op("require_finite", x, features=frame.names, allow_nan=True, step="XGBoost")
    return x


def _match_declared_enum(frame: Frame, column_index: int, stored_names: StoredNames) -> Array:
    """Return the categories of a column, with the names that the user has declared as an ENUM."""
    name = frame.names[column_index]
    match = _ENUM.fullmatch(frame.declared.get(name, "").strip())
    if match is None:
        raise UnsupportedModelError(
            f"column {name!r} has categories outside ASCII, whose names XGBoost does not store in "
            f"full; list them in the type of the column: INPUT (\"{name}\" ENUM('..', '..'), "
            f"...) or inputs={{'{name}': \"ENUM('..', '..')\", ...}}, in the order of training"
        )
    declared_names = [value.replace("''", "'") for value in _ENUM_VALUE.findall(match[1])]
    categories = stored_names.match_names(declared_names)
    if categories is None:
        raise UnsupportedModelError(
            f"the {len(declared_names)} values of the ENUM of column {name!r} are not the "
            f"{len(stored_names)} categories of the XGBoost model; list them in training order"
        )
    return categories


_ENUM_VALUE = re.compile(r"'((?:[^']|'')*)'")
_ENUM = re.compile(r"ENUM\s*\(\s*('(?:[^']|'')*'(?:\s*,\s*'(?:[^']|'')*')*)\s*\)", re.IGNORECASE)


def _add_linear_terms(weights: Array, x: Value, base_margin: Array, builder: Builder) -> Value:
    """Build the margins of gblinear; like XGBoost, add one feature at a time in float32."""
    x = builder.op("where", builder.op("isnan", x), builder.constant(np.zeros(1, np.float32)), x)
    margin = builder.constant((weights[-1] + base_margin)[None, :])
    for i, feature_weights in enumerate(weights[:-1]):
        column = builder.op("select", x, indices=np.array([i], np.int64))
        term = builder.op("mul", column, builder.constant(feature_weights[None, :]))
        margin = builder.op("add", margin, term)
    return margin


FILE = "xgboost file"

IMPORTERS: Mapping[str, Leaf] = {
    "xgboost.sklearn.XGBClassifier": import_classifier,
    "xgboost.sklearn.XGBRFClassifier": import_classifier,
    "xgboost.sklearn.XGBRegressor": import_regressor,
    "xgboost.sklearn.XGBRFRegressor": import_regressor,
    "xgboost.sklearn.XGBRanker": import_regressor,
    "xgboost.core.Booster": import_booster,
    FILE: import_saved_model,
}
SCHEMAS: Mapping[str, Callable[[Any], Schema]] = dict.fromkeys(IMPORTERS, read_schema)
