"""Imputers: MissingIndicator, SimpleImputer, KNNImputer and IterativeImputer (`sklearn/impute`).

NULL in SQL stands for NaN, None or pandas' NA, whichever the imputer treats as missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, RawColumn, Recurse, to_python
from sqlml.importers.sklearn.estimator_checks import check_array, check_estimator
from sqlml.ir.builder import Builder, Value


def import_missing_indicator(model: Any, frame: Frame) -> Frame:
    """Return a 0/1 column for each feature in `features_`: 1 where the value is missing.

    With features="missing-only" and error_on_new, a missing value in another column is an error.
    """
    check_estimator(model, "features_")
    builder = frame.builder
    op = builder.op
    indicator_columns = [int(i) for i in model.features_]
    if not indicator_columns:
        raise UnsupportedModelError(
            "MissingIndicator returns no columns, since nothing was missing in training; leave the "
            "step out, or set features='all'"
        )
    is_strict = model.features == "missing-only" and model.error_on_new
    other_columns = [i for i in range(frame.width) if is_strict and i not in indicator_columns]
    if other_columns or any(_reads_strings(model, frame, i) for i in indicator_columns):
        masks = [_build_mask_of_one(model, frame, i) for i in indicator_columns]
    else:
        masks = [_build_numeric_mask(model, frame, indicator_columns)]
    for i in other_columns:
        is_missing = op("neg", builder.cast(_build_mask_of_one(model, frame, i), "int64"))
        checked = op("require_known", is_missing, feature=frame.names[i], step="MissingIndicator")
        masks[0] = op("or", masks[0], builder.cast(checked, "bool"))
    values = tuple(builder.cast(mask, "float64") for mask in masks)
    names = tuple(f"missingindicator_{frame.names[i]}" for i in indicator_columns)
    return Frame(builder, values, names, model.sparse is True)


def is_null(value: Any) -> bool:
    """Return whether an imputer's option `missing_values` is NaN, None or pd.NA."""
    return value is None or type(value).__name__ == "NAType" or bool(value != value)


def build_string_mask(frame: Frame, i: int, missing_value: Any) -> Value:
    """Return a mask of the rows where string column `i` is NULL or `missing_value`."""
    if is_null(missing_value):
        return frame.builder.op("isnan", frame.read_strings(i))
    categories = np.array([str(missing_value)], object)
    code = frame.builder.op("encode", frame.read_strings(i), categories=categories, missing=-1)
    return frame.builder.op("ge", code, 0)


def build_number_mask(builder: Builder, x: Value, missing_value: Any) -> Value:
    """Return a mask of the numbers that equal `missing_value`, which may be NULL."""
    if is_null(missing_value):
        return builder.op("isnan", x)
    return builder.op("eq", x, float(missing_value))


def replace_missing_by_nan(model: Any, frame: Frame) -> Value:
    """Return the frame as numbers, with NaN for missing values."""
    missing_value = model.missing_values
    x = check_array(frame, type(model).__name__, allow_nan=is_null(missing_value))
    if is_null(missing_value):
        return x
    fill = np.full(frame.width, np.nan)
    return frame.builder.op("impute", x, fill=fill, missing=float(missing_value))


def build_indicator_frame(frame: Frame, columns: Sequence[int], is_missing: Value) -> Frame:
    names = [f"missingindicator_{frame.names[i]}" for i in columns]
    return Frame.from_value(frame.builder, frame.builder.cast(is_missing, "float64"), names)


def build_added_indicators(model: Any, frame: Frame, x: Value) -> list[Frame]:
    if model.indicator_ is None or not len(model.indicator_.features_):
        return []
    indices = np.asarray(model.indicator_.features_, np.int64)
    is_missing = frame.builder.op("isnan", frame.builder.op("select", x, indices=indices))
    return [build_indicator_frame(frame, indices.tolist(), is_missing)]


def _build_mask_of_one(model: Any, frame: Frame, i: int) -> Value:
    if _reads_strings(model, frame, i):
        return build_string_mask(frame, i, model.missing_values)
    return _build_numeric_mask(model, frame, [i])


def _build_numeric_mask(model: Any, frame: Frame, columns: list[int]) -> Value:
    missing_value = model.missing_values
    x = check_array(frame.select(columns), "MissingIndicator", allow_nan=is_null(missing_value))
    return build_number_mask(frame.builder, x, missing_value)


def _reads_strings(model: Any, frame: Frame, i: int) -> bool:
    (block,) = frame.select([i]).blocks
    if isinstance(block, RawColumn):
        return isinstance(model.missing_values, str) or model.missing_values is None
    return block.type.dtype == "string"


def import_simple_imputer(model: Any, frame: Frame) -> Frame:
    """Fill missing values, drop columns that were empty in training, and append indicators."""
    check_estimator(model, "statistics_", "indicator_")
    builder = frame.builder
    statistics = to_python(model.statistics_)
    is_string = [_is_string_column(model, frame, i, s) for i, s in enumerate(statistics)]
    columns = [i for i, s in enumerate(statistics) if model.keep_empty_features or not _is_nan(s)]
    indicator_columns = (
        [] if model.indicator_ is None else [int(i) for i in model.indicator_.features_]
    )
    frames: list[Frame] = []
    for run in _split_into_runs(is_string, columns):
        run_frame = frame.select(run)
        if is_string[run[0]]:
            filled = _fill_strings(model, frame.read_strings(run[0]), statistics[run[0]], frame)
        else:
            fill = _round_to_training_dtype(model, [statistics[i] for i in run])
            missing = _require_missing_number(model)
            x = _read_numbers(model, run_frame)
            filled = builder.op("impute", x, fill=fill, missing=missing)
        frames.append(Frame.from_value(builder, filled, run_frame.names))
    for run in _split_into_runs(is_string, indicator_columns):
        if is_string[run[0]]:
            is_missing = build_string_mask(frame, run[0], model.missing_values)
        else:
            x = _read_numbers(model, frame.select(run))
            is_missing = build_number_mask(builder, x, _require_missing_number(model))
        frames.append(build_indicator_frame(frame, run, is_missing))
    if not frames:
        raise UnsupportedModelError(
            "SimpleImputer drops every column, since all were NULL in training; leave the step "
            "out, or set keep_empty_features=True"
        )
    return Frame.hstack(builder, frames)


def _split_into_runs(is_string: Sequence[bool], columns: Sequence[int]) -> list[list[int]]:
    """Split `columns` into runs of adjacent numeric columns and single string columns."""
    runs: list[list[int]] = []
    for i in columns:
        if runs and not is_string[i] and not is_string[runs[-1][-1]]:
            runs[-1].append(i)
        else:
            runs.append([i])
    return runs


def _is_string_column(model: Any, frame: Frame, i: int, statistic: Any) -> bool:
    if isinstance(statistic, str):
        return True
    if not isinstance(statistic, int | float | None):
        raise UnsupportedModelError(
            f"SimpleImputer fills column {frame.names[i]!r} with {statistic!r}, which is neither "
            "a number nor a string"
        )
    (block,) = frame.select([i]).blocks
    if not isinstance(block, RawColumn):
        return block.type.dtype == "string"
    # A column that was all NULL in training has no fill, so only the fitted dtype tells its type.
    return _is_nan(statistic) and _find_fitted_dtype(model).kind == "O"


def _find_fitted_dtype(model: Any) -> np.dtype[Any]:
    return np.dtype(getattr(model, "_fill_dtype", np.asarray(model.statistics_).dtype))


def _round_to_training_dtype(model: Any, fills: list[Any]) -> np.ndarray[Any, Any]:
    """Round `fills` to the fitted dtype, then convert them to float64."""
    dtype = _find_fitted_dtype(model)
    values = np.array(fills, np.float64)
    if dtype.kind in "fiu" and not (dtype.kind in "iu" and np.isnan(values).any()):
        values = values.astype(dtype)
    return values.astype(np.float64)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and value != value


def _require_missing_number(model: Any) -> float:
    if is_null(model.missing_values):
        return float("nan")
    if isinstance(model.missing_values, str):
        raise UnsupportedModelError(
            f"SimpleImputer looks for {model.missing_values!r} in a column of numbers; use one "
            "imputer for the numbers and one for the strings"
        )
    return float(model.missing_values)


def _read_numbers(model: Any, frame: Frame) -> Value:
    if _find_fitted_dtype(model).kind == "O" and is_null(model.missing_values):
        return frame.matrix()  # scikit-learn does not reject infinity in object columns.
    return check_array(frame, "SimpleImputer", allow_nan=is_null(model.missing_values))


def _fill_strings(model: Any, column: Value, fill: Any, frame: Frame) -> Value:
    if not isinstance(fill, str):
        raise UnsupportedModelError(
            f"SimpleImputer fills a column of strings with {fill!r}; give fill_value a string, or "
            "drop the column, which was all NULL in training"
        )
    missing = {} if is_null(model.missing_values) else {"missing": str(model.missing_values)}
    return frame.builder.op("fill", column, value=fill, **missing)


def import_knn_imputer(model: Any, frame: Frame) -> Frame:
    """Fill missing values with the means of the nearest training rows."""
    check_estimator(model, "_fit_X", "_mask_fit_X", "_valid_mask", "indicator_")
    if model.metric != "nan_euclidean" or model.weights not in ("uniform", "distance"):
        raise UnsupportedModelError(
            f"KNNImputer(metric={model.metric!r}, weights={model.weights!r}) calls a Python "
            "function, which cannot run inside SQL; use 'nan_euclidean', and 'uniform' or "
            "'distance'"
        )
    op = frame.builder.op
    x = replace_missing_by_nan(model, frame)
    fit_rows = np.where(model._mask_fit_X, np.nan, np.asarray(model._fit_X, np.float64))
    order = "C" if model._fit_X.flags.c_contiguous else "F"
    k = int(model.n_neighbors)
    filled = op("knn_impute", x, rows=fit_rows, neighbours=k, weights=model.weights, order=order)
    is_valid = np.asarray(model._valid_mask, bool)
    names = frame.names
    if not is_valid.all() and model.keep_empty_features:
        filled = op("where", is_valid, filled, 0.0)
    elif not is_valid.all():
        if not is_valid.any():
            raise UnsupportedModelError(
                "KNNImputer drops every column, since all were NULL in training; leave the step "
                "out, or set keep_empty_features=True"
            )
        filled = op("select", filled, indices=np.flatnonzero(is_valid).astype(np.int64))
        names = tuple(np.array(names, object)[is_valid])
    imputed = Frame.from_value(frame.builder, filled, names)
    return Frame.hstack(frame.builder, [imputed, *build_added_indicators(model, frame, x)])


def import_iterative_imputer(model: Any, frame: Frame, recurse: Recurse) -> Frame:
    """Fill missing values initially, then with each regression of `imputation_sequence_` in turn.

    scikit-learn differs only if all values of a batch are missing: it keeps the initial fills.
    """
    attributes = ("imputation_sequence_", "initial_imputer_", "n_iter_", "_is_empty_feature")
    check_estimator(model, *attributes)
    if model.sample_posterior:
        raise UnsupportedModelError(
            "IterativeImputer(sample_posterior=True) draws random numbers at each transform; set "
            "sample_posterior=False"
        )
    builder = frame.builder
    op = builder.op
    x = replace_missing_by_nan(model, frame)
    filled = import_simple_imputer(model.initial_imputer_, frame)
    is_empty = np.asarray(model._is_empty_feature, bool)
    columns = np.arange(frame.width) if model.keep_empty_features else np.flatnonzero(~is_empty)
    if filled.width != columns.size:
        raise UnsupportedModelError(
            "IterativeImputer does not drop the columns that its initial imputer drops; set "
            "keep_empty_features=True"
        )
    values = [filled.read_numbers(i) for i in range(filled.width)]
    missing_masks = {
        i: op("isnan", op("select", x, indices=np.full(1, column, np.int64)))
        for i, column in enumerate(columns)
        if not is_empty[column]
    }
    for triplet in model.imputation_sequence_ if model.n_iter_ else ():
        target = int(triplet.feat_idx)
        if target in missing_masks:
            input_indices = [int(i) for i in triplet.neighbor_feat_idx]
            names = tuple(filled.names[i] for i in input_indices)
            inputs = Frame(builder, tuple(values[i] for i in input_indices), names)
            estimate = _predict_feature(triplet.estimator, inputs, recurse)
            for clip, limits in (("maximum", model._min_value), ("minimum", model._max_value)):
                if np.isfinite(float(limits[target])):
                    estimate = op(clip, estimate, float(limits[target]))
            values[target] = op("where", missing_masks[target], estimate, values[target])
    imputed = Frame(builder, tuple(values), filled.names)
    return Frame.hstack(builder, [imputed, *build_added_indicators(model, frame, x)])


def _predict_feature(estimator: Any, frame: Frame, recurse: Recurse) -> Value:
    outputs = recurse(estimator, frame)
    if isinstance(outputs, Frame) or "label" not in outputs.values or outputs.label_sets:
        raise UnsupportedModelError(
            f"IterativeImputer uses {type(estimator).__name__}, which is not a regressor"
        )
    return outputs.values["label"]
