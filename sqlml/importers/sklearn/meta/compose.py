"""Composites: Pipeline, ColumnTransformer, FeatureUnion, searches and other outer estimators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from sqlml.errors import ProgramError, UnsupportedModelError
from sqlml.importers.expressions.sql_steps import find_registered
from sqlml.importers.frame import ANY_COUNT, Frame, Outputs, Recurse, Schema, Sparse
from sqlml.importers.model_checks import explain_missing_columns
from sqlml.importers.sklearn.estimator_checks import check, path_of
from sqlml.importers.sklearn.feature_extraction import (
    dict_schema,
    hashed_columns,
    one_list,
    one_text,
)
from sqlml.importers.sklearn.meta.members import Member, apply_number, as_numbers, is_dropped
from sqlml.importers.sklearn.preprocessing.numeric_transforms import NEAR, find_function, unscale
from sqlml.ir.builder import Builder, Value

OWN_COLUMNS: Mapping[str, Callable[[Any], Schema]] = {
    "sklearn.feature_extraction._dict_vectorizer.DictVectorizer": dict_schema,
    "sklearn.feature_extraction._hash.FeatureHasher": hashed_columns,
    "sklearn.feature_extraction.text.CountVectorizer": one_text,
    "sklearn.feature_extraction.text.HashingVectorizer": one_text,
    "sklearn.feature_extraction.text.TfidfVectorizer": one_text,
    "sklearn.preprocessing._label.MultiLabelBinarizer": one_list,
}
"""Transformers that do not read a matrix, and how to learn the columns of their table."""


def pipeline(model: Any, frame: Frame, recurse: Recurse) -> Frame | Outputs:
    """Apply the steps one after the other; None and "passthrough" are skipped."""
    check(model, "steps")
    result: Frame | Outputs = frame
    maker: Any = None
    for name, step in model.steps:
        if _passes(step):
            continue
        before = _transform_of(frame.builder, maker, result)
        if before is None:
            raise UnsupportedModelError(
                f"step {name!r} follows a step that predicts; put the predictor last"
            )
        result, maker = _step(name, step, before, recurse), step
        if before.sparse and isinstance(result, Frame) and _hands_on_sparse(step):
            # Scalers and imputers hand on what they get.
            result = replace(result, sparse=result.sparse or before.sparse)
    if isinstance(result, Outputs) and _passes(model.steps[-1][1]):
        last = _transform_of(frame.builder, maker, result)  # The last step hides the predictor.
        if last is None:
            raise UnsupportedModelError(
                "the last step only passes on what a predictor returns; remove it"
            )
        return last
    return result


def column_transformer(model: Any, frame: Frame, recurse: Recurse) -> Frame:
    """Apply each transformer to its own columns; outputs are in the order of `transformers_`."""
    check(model, "transformers_", "_transformer_to_input_indices", "sparse_output_")
    weights = model.transformer_weights or {}
    parts: list[Frame] = []
    for name, transformer, chosen in model.transformers_:
        indices = [int(i) for i in model._transformer_to_input_indices[name]]
        if not indices or is_dropped(transformer):
            continue
        columns = _as_rows(name, transformer, chosen, frame.select(indices))
        part = columns if _passes(transformer) else _frame(name, transformer, columns, recurse)
        parts.append(_weight_columns(part, weights.get(name)))
    return replace(_side_by_side(model, frame, parts), sparse=bool(model.sparse_output_))


def _as_rows(name: str, transformer: Any, chosen: Any, columns: Frame) -> Frame:
    """Return the chosen columns for a transformer that reads rows instead of a matrix.

    A single column is a column of texts, lists or maps. From a list of columns, FeatureHasher reads
    rows of strings, and a vectorizer would read the columns' names.
    """
    first = transformer.steps[0][1] if getattr(transformer, "steps", None) else transformer
    schema = OWN_COLUMNS.get(path_of(first))
    if schema is None or schema is dict_schema or isinstance(chosen, str | int | np.integer):
        return columns
    if schema is hashed_columns and first.input_type == "string":
        return replace(columns, blocks=tuple(columns.strings(i) for i in range(columns.width)))
    advice = "; give it one column of lists or maps as a string, as in ('i', hasher, 'items')"
    if schema is one_text:
        advice = (
            ", and would read their names, not their texts; give it one column as a string, as in "
            "('t', vectorizer, 'text')"
        )
    transformer_name = type(first).__name__
    raise UnsupportedModelError(
        f"step {name!r}: {transformer_name} was fitted on the list of columns {chosen!r}{advice}"
    )


def feature_union(model: Any, frame: Frame, recurse: Recurse) -> Frame:
    """Apply each transformer to all columns; outputs are side by side."""
    check(model, "transformer_list")
    weights = model.transformer_weights or {}
    parts: list[Frame] = []
    for name, transformer in model.transformer_list:
        if is_dropped(transformer):
            continue
        part = frame if _passes(transformer) else _frame(name, transformer, frame, recurse)
        parts.append(_weight_columns(part, weights.get(name)))
    joined = _side_by_side(model, frame, parts)
    kinds: set[Sparse] = {part.sparse for part in parts}
    return replace(joined, sparse="with zeros" if "with zeros" in kinds else any(kinds))


def best_estimator(model: Any, frame: Frame, recurse: Recurse) -> Frame | Outputs:
    _check_refit(model)
    check(model, "best_estimator_")
    return recurse(model.best_estimator_, frame)


def frozen_estimator(model: Any, frame: Frame, recurse: Recurse) -> Frame | Outputs:
    check(model, "estimator")
    return recurse(model.estimator, frame)


def self_training_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Return the classifier that was fitted on given and guessed labels."""
    check(model, "estimator_", "classes_")
    member = Member.of(model, "estimator_", model.estimator_, as_numbers(frame), recurse)
    return Outputs(member.available("label", "proba", "score"), member.classes)


def ransac_regressor(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Return the regressor that was fitted on the inliers."""
    check(model, "estimator_")
    columns = as_numbers(frame)
    member = Member.of(model, "estimator_", model.estimator_, columns, recurse, several=True)
    return Outputs({"label": member.output_of("predict")})


def composite_schema(model: Any) -> Schema:
    """Return the columns that the first part with recorded columns was fitted on."""
    reader = _find_reader(model)
    if reader is not None:
        schema = OWN_COLUMNS.get(path_of(reader), Schema.from_model)(reader)
        if schema is not None:
            return schema
    if find_registered(_find_first(model)):
        return Schema(None, ANY_COUNT)
    _check_refit(model)
    raise explain_missing_columns(model)


def dict_separator(model: Any) -> str | None:
    reader = _find_reader(model)
    if reader is None or OWN_COLUMNS.get(path_of(reader)) is not dict_schema:
        return None
    return str(reader.separator)


def _find_reader(model: Any) -> Any:
    """Return the first part that records its columns or reads no matrix; None if there is none."""
    names = ("feature_names_in_", "n_features_in_")
    if path_of(model) in OWN_COLUMNS or any(getattr(model, n, None) is not None for n in names):
        return model
    parts = [part for _, part in getattr(model, "steps", [])]
    parts += [part for _, part in getattr(model, "transformer_list", [])]
    parts += [getattr(model, "best_estimator_", None)]
    members = getattr(model, "estimators_", None)  # Pipelines, if they read texts.
    parts += members if isinstance(members, list) else []
    parts += [member.estimator for member in getattr(model, "calibrated_classifiers_", [])]
    part = next((part for part in parts if not (_passes(part) or is_dropped(part))), None)
    return None if part is None else _find_reader(part)


def _find_first(model: Any) -> Any:
    model = getattr(model, "best_estimator_", model)
    steps = [step for _, step in getattr(model, "steps", []) if not _passes(step)]
    return _find_first(steps[0]) if steps else model


def _check_refit(model: Any) -> None:
    if hasattr(model, "cv_results_") and not hasattr(model, "best_estimator_"):
        raise UnsupportedModelError(
            f"{type(model).__name__}(refit=False) keeps no fitted estimator; use refit=True"
        )


def _step(name: str, step: Any, frame: Frame, recurse: Recurse) -> Frame | Outputs:
    try:
        return recurse(step, frame)
    except (UnsupportedModelError, ProgramError) as error:
        raise UnsupportedModelError(f"step {name!r}: {error}") from error


def _frame(name: str, step: Any, frame: Frame, recurse: Recurse) -> Frame:
    transformed = _transform_of(frame.builder, step, _step(name, step, frame, recurse))
    if transformed is None:
        raise UnsupportedModelError(
            f"step {name!r}: {type(step).__name__} predicts where a transformer is expected"
        )
    return transformed


def _transform_of(b: Builder, step: Any, result: Frame | Outputs) -> Frame | None:
    if isinstance(result, Frame):
        return result
    value = result.values.get("transform")
    if value is None:
        return None
    return Frame.from_value(b, value, stem=type(step).__name__.lower())


_DENSE = (
    "sklearn.cluster.",
    "sklearn.cross_decomposition.",
    "sklearn.decomposition.",
    "sklearn.discriminant_analysis",
)
"""Modules whose transformers make a dense matrix of a sparse one too."""


def _hands_on_sparse(step: Any) -> bool:
    if hasattr(step, "sparse_output_") or type(step).__module__.startswith(_DENSE):
        return False
    if type(step).__module__ == "sklearn.random_projection":
        return hasattr(step.components_, "toarray") and not step.dense_output
    return True


def _passes(step: Any) -> bool:
    return step is None or (isinstance(step, str) and step == "passthrough")


def _weight_columns(frame: Frame, weight: float | None) -> Frame:
    if weight is None:
        return frame
    value = frame.matrix(rows="sparse")
    if value.type.sparse:
        value = frame.builder.op("scale_stored", value, factors=np.full(1, float(weight)))
    else:
        value = frame.builder.op("mul", value, float(weight))
    return Frame.from_value(frame.builder, value, frame.names, frame.sparse)


def _side_by_side(model: Any, frame: Frame, parts: list[Frame]) -> Frame:
    if not any(part.width for part in parts):
        raise UnsupportedModelError(
            f"{type(model).__name__} keeps no columns; give it a transformer or "
            "remainder='passthrough'"
        )
    return Frame.hstack(frame.builder, parts)


_TARGET_STEP = "TransformedTargetRegressor"


def transformed_target_regressor(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Apply the transformer's inverse to the regressor's predictions, (n, targets)."""
    check(model, "regressor_", "transformer_")
    member = Member.of(model, "regressor_", model.regressor_, frame, recurse, several=True)
    value = member.output_of("predict")
    return Outputs({"label": inverse(frame.builder, model.transformer_, value)})


def inverse(b: Builder, transformer: Any, value: Value) -> Value:
    path = path_of(transformer)
    if path not in INVERSES:
        known = ", ".join(sorted(name.rsplit(".", 1)[1] for name in INVERSES))
        raise UnsupportedModelError(
            f"the inverse transform of {type(transformer).__name__} is not known to sqlml; use one "
            f"of {known}"
        )
    return INVERSES[path](b, transformer, value)


def _check_finite(b: Builder, value: Value, allow_nan: bool = True) -> Value:
    names = tuple(f"prediction{i}" for i in range(value.type.width))
    return b.op("require_finite", value, features=names, allow_nan=allow_nan, step=_TARGET_STEP)


def _scaler(b: Builder, model: Any, value: Value) -> Value:
    return unscale(b, model, _check_finite(b, value))


def _power(b: Builder, model: Any, value: Value) -> Value:
    check(model, "lambdas_")
    value = _check_finite(b, value)
    if model.standardize:
        value = _scaler(b, model._scaler, value)
    invert = {"box-cox": _box_cox, "yeo-johnson": _yeo_johnson}[model.method]
    columns = [b.op("select", value, indices=np.array([i])) for i in range(value.type.width)]
    pairs = zip(columns, map(float, model.lambdas_), strict=True)
    return b.concat([invert(b, column, power) for column, power in pairs])


def _box_cox(b: Builder, value: Value, power: float) -> Value:
    """Return exp(log1p(power * y) / power), like scipy.special.inv_boxcox."""
    if power == 0:
        return b.op("exp", value)
    log = b.op("log1p", apply_number(b, "mul", value, power))
    return b.op("exp", apply_number(b, "div", log, power))


def _yeo_johnson(b: Builder, value: Value, power: float) -> Value:
    tiny = np.spacing(1.0)
    if abs(power) < tiny:
        above = apply_number(b, "sub", b.op("exp", value), 1)
    else:
        base = apply_number(b, "add", apply_number(b, "mul", value, power), 1)
        above = apply_number(b, "sub", apply_number(b, "pow", base, 1 / power), 1)
    if abs(power - 2) > tiny:
        base = apply_number(b, "add", apply_number(b, "mul", value, -(2 - power)), 1)
        below = b.op("sub", 1.0, apply_number(b, "pow", base, 1 / (2 - power)))
    else:
        below = b.op("sub", 1.0, b.op("exp", b.op("neg", value)))
    return b.op("where", b.op("ge", value, 0.0), above, below)


def _quantile(b: Builder, model: Any, value: Value) -> Value:
    """Map positions between 0 and 1 (or normal deviates) back to the training quantiles."""
    check(model, "quantiles_", "references_")
    value = _check_finite(b, value)
    is_normal = model.output_distribution == "normal"
    share = b.op("ndtr", value) if is_normal else value
    quantiles = np.asarray(model.quantiles_, np.float64).T
    columns, points = quantiles.shape
    result = b.op(
        "interpolate",
        share,
        points=np.tile(np.asarray(model.references_, np.float64), columns),
        values=quantiles.ravel(),
        offsets=np.arange(columns + 1, dtype=np.int64) * points,
    )
    if is_normal:
        below = b.op("lt", b.op("sub", share, NEAR), 0.0)
        above = b.op("gt", b.op("add", share, NEAR), 1.0)
        result = b.op("where", above, quantiles[:, -1], result)
        result = b.op("where", below, quantiles[:, 0], result)
    return result  # Uniform positions need no ends: the interpolation has them.


def _function(b: Builder, model: Any, value: Value) -> Value:
    check(model)
    if model.validate:
        value = _check_finite(b, value, allow_nan=False)
    function = model.inverse_func
    if function is None:
        return value
    make = find_function(function)
    if make is None or model.inv_kw_args:
        name = getattr(function, "__name__", repr(function))
        raise UnsupportedModelError(
            f"{_TARGET_STEP} calls the Python function {name}, which cannot run inside SQL; use a "
            "transformer, or one of numpy's elementary functions (np.exp, np.expm1, np.square ...)"
        )
    return b.cast(make(b, value), "float64")


INVERSES: Mapping[str, Callable[[Builder, Any, Value], Value]] = {
    "sklearn.preprocessing._data.MaxAbsScaler": _scaler,
    "sklearn.preprocessing._data.MinMaxScaler": _scaler,
    "sklearn.preprocessing._data.PowerTransformer": _power,
    "sklearn.preprocessing._data.QuantileTransformer": _quantile,
    "sklearn.preprocessing._data.RobustScaler": _scaler,
    "sklearn.preprocessing._data.StandardScaler": _scaler,
    "sklearn.preprocessing._function_transformer.FunctionTransformer": _function,
}
