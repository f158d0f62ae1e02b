"""Composites: Pipeline, ColumnTransformer, FeatureUnion, searches and other outer estimators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from sqlml.errors import ProgramError, UnsupportedModelError
from sqlml.importers.expressions.sql_steps import find_registered
from sqlml.importers.frame import ANY_COUNT, Frame, Outputs, Recurse, Schema, Sparse
from sqlml.importers.model_checks import make_missing_columns_error
from sqlml.importers.sklearn.estimator_checks import check_estimator, get_class_path
from sqlml.importers.sklearn.feature_extraction import (
    read_dict_schema,
    read_hasher_schema,
    read_list_schema,
    read_text_schema,
)
from sqlml.importers.sklearn.meta.members import (
    Member,
    apply_constant,
    convert_to_numbers,
    is_dropped,
)
from sqlml.importers.sklearn.preprocessing.numeric_transforms import (
    BOUNDS_THRESHOLD,
    find_function,
    interpolate_columns,
    unscale,
)
from sqlml.ir.builder import Builder, Value

ROW_READERS: Mapping[str, Callable[[Any], Schema]] = {
    "sklearn.feature_extraction._dict_vectorizer.DictVectorizer": read_dict_schema,
    "sklearn.feature_extraction._hash.FeatureHasher": read_hasher_schema,
    "sklearn.feature_extraction.text.CountVectorizer": read_text_schema,
    "sklearn.feature_extraction.text.HashingVectorizer": read_text_schema,
    "sklearn.feature_extraction.text.TfidfVectorizer": read_text_schema,
    "sklearn.preprocessing._label.MultiLabelBinarizer": read_list_schema,
}
"""Maps transformers that read rows, not a matrix, to functions that find the columns."""


def import_pipeline(model: Any, frame: Frame, recurse: Recurse) -> Frame | Outputs:
    """Apply the steps of a pipeline one after the other, except None and "passthrough"."""
    check_estimator(model, "steps")
    result: Frame | Outputs = frame
    last_step: Any = None
    for name, step in model.steps:
        if _is_passthrough(step):
            continue
        step_input = _to_frame(frame.builder, last_step, result)
        if step_input is None:
            raise UnsupportedModelError(
                f"step {name!r} follows a step that predicts; put the predictor last"
            )
        result = _import_step(name, step, step_input, recurse)
        last_step = step
        if step_input.sparse and isinstance(result, Frame) and _keeps_sparse(step):
            # A scaler or an imputer, for example, returns a sparse matrix if its input is sparse.
            result = replace(result, sparse=result.sparse or step_input.sparse)
    if isinstance(result, Outputs) and _is_passthrough(model.steps[-1][1]):
        # If the last step is "passthrough", the pipeline is a transformer without predict.
        hidden_output = _to_frame(frame.builder, last_step, result)
        if hidden_output is None:
            raise UnsupportedModelError(
                "the last step only passes on what a predictor returns; remove it"
            )
        return hidden_output
    return result


def import_column_transformer(model: Any, frame: Frame, recurse: Recurse) -> Frame:
    """Apply each of `transformers_` to its columns, and join the outputs in order."""
    check_estimator(model, "transformers_", "_transformer_to_input_indices", "sparse_output_")
    weights = model.transformer_weights or {}
    frames: list[Frame] = []
    for name, transformer, selection in model.transformers_:
        indices = [int(i) for i in model._transformer_to_input_indices[name]]
        if not indices or is_dropped(transformer):
            continue
        columns = _prepare_row_input(name, transformer, selection, frame.select(indices))
        output = _import_transformer(name, transformer, columns, recurse)
        frames.append(_multiply_by_weight(output, weights.get(name)))
    return replace(_join_frames(model, frame, frames), sparse=bool(model.sparse_output_))


def _prepare_row_input(name: str, transformer: Any, selection: Any, columns: Frame) -> Frame:
    """Return `columns` in the form that `transformer` reads: one column, or rows of strings."""
    first_step = transformer.steps[0][1] if getattr(transformer, "steps", None) else transformer
    schema = ROW_READERS.get(get_class_path(first_step))
    reads_many_columns = schema is None or schema is read_dict_schema
    if reads_many_columns or isinstance(selection, str | int | np.integer):
        return columns
    if schema is read_hasher_schema and first_step.input_type == "string":
        return replace(columns, blocks=tuple(columns.read_strings(i) for i in range(columns.width)))
    advice = "; give it one column of lists or maps as a string, as in ('i', hasher, 'items')"
    if schema is read_text_schema:
        advice = (
            ", and would read their names, not their values; give it one column as a string, as in "
            "('t', vectorizer, 'text')"
        )
    transformer_name = type(first_step).__name__
    raise UnsupportedModelError(
        f"step {name!r}: {transformer_name} was fitted on the list of columns {selection!r}{advice}"
    )


def import_feature_union(model: Any, frame: Frame, recurse: Recurse) -> Frame:
    """Apply each transformer to all columns, and return the outputs side by side."""
    check_estimator(model, "transformer_list")
    weights = model.transformer_weights or {}
    frames: list[Frame] = []
    for name, transformer in model.transformer_list:
        if is_dropped(transformer):
            continue
        output = _import_transformer(name, transformer, frame, recurse)
        frames.append(_multiply_by_weight(output, weights.get(name)))
    sparse_flags: set[Sparse] = {output.sparse for output in frames}
    sparse: Sparse = "with zeros" if "with zeros" in sparse_flags else any(sparse_flags)
    return replace(_join_frames(model, frame, frames), sparse=sparse)


def import_best_estimator(model: Any, frame: Frame, recurse: Recurse) -> Frame | Outputs:
    _check_refit(model)
    check_estimator(model, "best_estimator_")
    return recurse(model.best_estimator_, frame)


def import_frozen_estimator(model: Any, frame: Frame, recurse: Recurse) -> Frame | Outputs:
    check_estimator(model, "estimator")
    return recurse(model.estimator, frame)


def import_self_training_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Import the inner classifier, which was fitted on given and predicted labels."""
    check_estimator(model, "estimator_", "classes_")
    member = Member.read(model, "estimator_", model.estimator_, convert_to_numbers(frame), recurse)
    return Outputs(member.get_available("label", "proba", "score"), member.classes)


def import_ransac_regressor(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Import the inner regressor, which was fitted on the inliers."""
    check_estimator(model, "estimator_")
    columns = convert_to_numbers(frame)
    member = Member.read(model, "estimator_", model.estimator_, columns, recurse, many=True)
    return Outputs({"label": member.get_output("predict")})


def read_composite_schema(model: Any) -> Schema:
    """Return the columns of the first part of a composite that records columns."""
    reader = _find_reader(model)
    if reader is not None:
        schema = ROW_READERS.get(get_class_path(reader), Schema.from_model)(reader)
        if schema is not None:
            return schema
    if find_registered(_find_first_step(model)):
        return Schema(None, ANY_COUNT)
    _check_refit(model)
    raise make_missing_columns_error(model)


def find_dict_separator(model: Any) -> str | None:
    reader = _find_reader(model)
    if reader is None or ROW_READERS.get(get_class_path(reader)) is not read_dict_schema:
        return None
    return str(reader.separator)


def _find_reader(model: Any) -> Any:
    """Return the first part that records columns or is in `ROW_READERS`, or None."""
    records = (getattr(model, name, None) for name in ("feature_names_in_", "n_features_in_"))
    if get_class_path(model) in ROW_READERS or any(record is not None for record in records):
        return model
    steps = [step for _, step in getattr(model, "steps", [])]
    steps += [step for _, step in getattr(model, "transformer_list", [])]
    steps += [getattr(model, "best_estimator_", None)]
    members = getattr(model, "estimators_", None)  # A member may be a pipeline that reads texts.
    steps += members if isinstance(members, list) else []
    steps += [member.estimator for member in getattr(model, "calibrated_classifiers_", [])]
    step = next((step for step in steps if not (_is_passthrough(step) or is_dropped(step))), None)
    return None if step is None else _find_reader(step)


def _find_first_step(model: Any) -> Any:
    model = getattr(model, "best_estimator_", model)
    steps = [step for _, step in getattr(model, "steps", []) if not _is_passthrough(step)]
    return _find_first_step(steps[0]) if steps else model


def _check_refit(model: Any) -> None:
    if hasattr(model, "cv_results_") and not hasattr(model, "best_estimator_"):
        raise UnsupportedModelError(
            f"{type(model).__name__}(refit=False) keeps no fitted estimator; use refit=True"
        )


def _import_step(name: str, step: Any, frame: Frame, recurse: Recurse) -> Frame | Outputs:
    try:
        return recurse(step, frame)
    except (UnsupportedModelError, ProgramError) as error:
        raise UnsupportedModelError(f"step {name!r}: {error}") from error


def _import_transformer(name: str, step: Any, frame: Frame, recurse: Recurse) -> Frame:
    if _is_passthrough(step):
        return frame
    transformed = _to_frame(frame.builder, step, _import_step(name, step, frame, recurse))
    if transformed is None:
        raise UnsupportedModelError(
            f"step {name!r}: {type(step).__name__} is a predictor, but must be a transformer"
        )
    return transformed


def _to_frame(builder: Builder, step: Any, result: Frame | Outputs) -> Frame | None:
    if isinstance(result, Frame):
        return result
    value = result.values.get("transform")
    if value is None:
        return None
    return Frame.from_value(builder, value, stem=type(step).__name__.lower())


_DENSE_MODULES = (
    "sklearn.cluster.",
    "sklearn.cross_decomposition.",
    "sklearn.decomposition.",
    "sklearn.discriminant_analysis",
)
"""Modules whose transformers return a dense matrix even if their input is sparse."""


def _keeps_sparse(step: Any) -> bool:
    if hasattr(step, "sparse_output_") or type(step).__module__.startswith(_DENSE_MODULES):
        return False
    if type(step).__module__ == "sklearn.random_projection":
        return hasattr(step.components_, "toarray") and not step.dense_output
    return True


def _is_passthrough(step: Any) -> bool:
    return step is None or (isinstance(step, str) and step == "passthrough")


def _multiply_by_weight(frame: Frame, weight: float | None) -> Frame:
    if weight is None:
        return frame
    columns = frame.matrix(rows="sparse")
    if columns.type.sparse:
        columns = frame.builder.op("scale_stored", columns, factors=np.full(1, float(weight)))
    else:
        columns = frame.builder.op("mul", columns, float(weight))
    return Frame.from_value(frame.builder, columns, frame.names, frame.sparse)


def _join_frames(model: Any, frame: Frame, outputs: list[Frame]) -> Frame:
    if not any(output.width for output in outputs):
        raise UnsupportedModelError(
            f"{type(model).__name__} keeps no columns; give it a transformer or "
            "remainder='passthrough'"
        )
    return Frame.hstack(frame.builder, outputs)


_TARGET_STEP = "TransformedTargetRegressor"


def import_transformed_target_regressor(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Return the inner regressor's predictions, transformed back to the targets."""
    check_estimator(model, "regressor_", "transformer_")
    member = Member.read(model, "regressor_", model.regressor_, frame, recurse, many=True)
    prediction = member.get_output("predict")
    return Outputs({"label": invert_transform(frame.builder, model.transformer_, prediction)})


def invert_transform(builder: Builder, transformer: Any, value: Value) -> Value:
    path = get_class_path(transformer)
    if path not in INVERSES:
        supported = ", ".join(sorted(name.rsplit(".", 1)[1] for name in INVERSES))
        raise UnsupportedModelError(
            f"the inverse transform of {type(transformer).__name__} is not known to sqlml; use one "
            f"of {supported}"
        )
    return INVERSES[path](builder, transformer, value)


def _require_finite(builder: Builder, value: Value, allow_nan: bool = True) -> Value:
    names = tuple(f"prediction{i}" for i in range(value.type.width))
    attrs = {"features": names, "allow_nan": allow_nan, "step": _TARGET_STEP}
    return builder.op("require_finite", value, **attrs)


def _invert_scaler(builder: Builder, model: Any, value: Value) -> Value:
    return unscale(builder, model, _require_finite(builder, value))


def _invert_power(builder: Builder, model: Any, value: Value) -> Value:
    check_estimator(model, "lambdas_")
    value = _require_finite(builder, value)
    if model.standardize:
        value = _invert_scaler(builder, model._scaler, value)
    invert = {"box-cox": _invert_box_cox, "yeo-johnson": _invert_yeo_johnson}[model.method]
    columns = [builder.op("select", value, indices=np.array([i])) for i in range(value.type.width)]
    pairs = zip(columns, map(float, model.lambdas_), strict=True)
    return builder.concat([invert(builder, column, power) for column, power in pairs])


def _invert_box_cox(builder: Builder, value: Value, power: float) -> Value:
    if power == 0:
        return builder.op("exp", value)
    log = builder.op("log1p", apply_constant(builder, "mul", value, power))
    return builder.op("exp", apply_constant(builder, "div", log, power))


def _invert_yeo_johnson(builder: Builder, value: Value, power: float) -> Value:
    op = builder.op
    epsilon = np.spacing(1.0)
    if abs(power) < epsilon:
        for_positive = apply_constant(builder, "sub", op("exp", value), 1)
    else:
        base = _scale_and_add_one(builder, value, power)
        power_of_base = apply_constant(builder, "pow", base, 1 / power)
        for_positive = apply_constant(builder, "sub", power_of_base, 1)
    if abs(power - 2) > epsilon:
        base = _scale_and_add_one(builder, value, -(2 - power))
        for_negative = op("sub", 1.0, apply_constant(builder, "pow", base, 1 / (2 - power)))
    else:
        for_negative = op("sub", 1.0, op("exp", op("neg", value)))
    return op("where", op("ge", value, 0.0), for_positive, for_negative)


def _scale_and_add_one(builder: Builder, value: Value, factor: float) -> Value:
    return apply_constant(builder, "add", apply_constant(builder, "mul", value, factor), 1)


def _invert_quantile(builder: Builder, model: Any, value: Value) -> Value:
    """Map positions between 0 and 1, or normal deviates, to values of the training target."""
    op = builder.op
    check_estimator(model, "quantiles_", "references_")
    value = _require_finite(builder, value)
    is_normal = model.output_distribution == "normal"
    share = op("ndtr", value) if is_normal else value
    quantiles = np.asarray(model.quantiles_, np.float64).T
    references = np.broadcast_to(np.asarray(model.references_, np.float64), quantiles.shape)
    target = interpolate_columns(builder, share, references, quantiles)
    if is_normal:
        is_below = op("lt", op("sub", share, BOUNDS_THRESHOLD), 0.0)
        is_above = op("gt", op("add", share, BOUNDS_THRESHOLD), 1.0)
        target = op("where", is_above, quantiles[:, -1], target)
        target = op("where", is_below, quantiles[:, 0], target)
    return target  # The interpolation has already clipped uniform positions.


def _invert_function(builder: Builder, model: Any, value: Value) -> Value:
    check_estimator(model)
    if model.validate:
        value = _require_finite(builder, value, allow_nan=False)
    function = model.inverse_func
    if function is None:
        return value
    apply_function = find_function(function)
    if apply_function is None or model.inv_kw_args:
        name = getattr(function, "__name__", repr(function))
        raise UnsupportedModelError(
            f"{_TARGET_STEP} calls the Python function {name}, which cannot run inside SQL; use a "
            "transformer, or one of numpy's elementary functions (np.exp, np.expm1, np.square ...)"
        )
    return builder.cast(apply_function(builder, value), "float64")


INVERSES: Mapping[str, Callable[[Builder, Any, Value], Value]] = {
    "sklearn.preprocessing._data.MaxAbsScaler": _invert_scaler,
    "sklearn.preprocessing._data.MinMaxScaler": _invert_scaler,
    "sklearn.preprocessing._data.PowerTransformer": _invert_power,
    "sklearn.preprocessing._data.QuantileTransformer": _invert_quantile,
    "sklearn.preprocessing._data.RobustScaler": _invert_scaler,
    "sklearn.preprocessing._data.StandardScaler": _invert_scaler,
    "sklearn.preprocessing._function_transformer.FunctionTransformer": _invert_function,
}
