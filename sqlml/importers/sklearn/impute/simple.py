"""SimpleImputer: per column a fill for missing values, and the indicator columns.

Source: `sklearn/impute/_base.py`. A column is one of strings when its fill is a string. NULL is
whatever the imputer calls missing: NaN, None or pandas' NA.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, RawColumn
from sqlml.importers.sklearn.checked import numbers
from sqlml.importers.sklearn.fitted import check
from sqlml.importers.sklearn.impute.indicator import (
    marked_columns,
    means_null,
    number_is_missing,
    string_is_missing,
)
from sqlml.ir.builder import Value


def simple_imputer(model: Any, frame: Frame) -> Frame:
    """Fill missing values; columns that were all missing in training are dropped.

    With add_indicator, one more 0/1 column for each column that missed values in training.

    Raises:
        UnsupportedModelError: not fitted, or a fill that is neither number nor string.
    """
    check(model, "statistics_", "indicator_")
    statistics = [s.item() if isinstance(s, np.generic) else s for s in model.statistics_]
    is_string = [_is_string(model, frame, i, s) for i, s in enumerate(statistics)]
    kept = [i for i, s in enumerate(statistics) if model.keep_empty_features or not _is_nan(s)]
    marked = [] if model.indicator_ is None else [int(i) for i in model.indicator_.features_]
    parts: list[Frame] = []
    for run in _runs(is_string, kept):
        chosen = frame.take(run)
        if is_string[run[0]]:
            value = _filled(model, frame.strings(run[0]), statistics[run[0]], frame)
        else:
            fill = _as_fitted(model, [statistics[i] for i in run])
            value = frame.builder.op(
                "impute", _numbers(model, chosen), fill=fill, missing=_missing_number(model)
            )
        parts.append(Frame.of(frame.builder, value, chosen.names))
    for run in _runs(is_string, marked):
        if is_string[run[0]]:
            gone = string_is_missing(frame, run[0], model.missing_values)
        else:
            x = _numbers(model, frame.take(run))
            gone = number_is_missing(frame.builder, x, _missing_number(model))
        parts.append(marked_columns(frame, run, gone))
    if not parts:
        raise UnsupportedModelError(
            "SimpleImputer drops every column, since all were NULL in training; leave the step "
            "out, or set keep_empty_features=True"
        )
    return Frame.hstack(frame.builder, parts)


def _runs(is_string: Sequence[bool], kept: Sequence[int]) -> list[list[int]]:
    """`kept` cut into runs of number columns, which are filled at once, and single strings."""
    runs: list[list[int]] = []
    for i in kept:
        if runs and not is_string[i] and not is_string[runs[-1][-1]]:
            runs[-1].append(i)
        else:
            runs.append([i])
    return runs


def _is_string(model: Any, frame: Frame, i: int, statistic: Any) -> bool:
    if isinstance(statistic, str):
        return True
    if not isinstance(statistic, (int, float)) and statistic is not None:
        raise UnsupportedModelError(
            f"SimpleImputer fills column {frame.names[i]!r} with {statistic!r}, which is neither "
            "a number nor a string"
        )
    (block,) = frame.take([i]).blocks
    if not isinstance(block, RawColumn):
        return block.type.dtype == "string"
    # A column without a fill was all NULL in training; its dtype there is all that is known.
    return _is_nan(statistic) and _fitted_dtype(model).kind == "O"


def _fitted_dtype(model: Any) -> np.dtype[Any]:
    return np.dtype(getattr(model, "_fill_dtype", np.asarray(model.statistics_).dtype))


def _as_fitted(model: Any, fills: list[Any]) -> np.ndarray[Any, Any]:
    """The fills as float64, rounded first as transform rounds them to the training dtype."""
    dtype = _fitted_dtype(model)
    values = np.array(fills, np.float64)
    if dtype.kind in "fiu" and not (dtype.kind in "iu" and np.isnan(values).any()):
        values = values.astype(dtype)
    return values.astype(np.float64)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and value != value


def _missing_number(model: Any) -> float:
    if means_null(model.missing_values):
        return float("nan")
    if isinstance(model.missing_values, str):
        raise UnsupportedModelError(
            f"SimpleImputer looks for {model.missing_values!r} in a column of numbers; use one "
            "imputer for the numbers and one for the strings"
        )
    return float(model.missing_values)


def _numbers(model: Any, frame: Frame) -> Value:
    if _fitted_dtype(model).kind == "O" and means_null(model.missing_values):
        return frame.matrix()  # check_array does not look for infinity among objects
    return numbers(frame, "SimpleImputer", allow_nan=means_null(model.missing_values))


def _filled(model: Any, column: Value, fill: Any, frame: Frame) -> Value:
    if not isinstance(fill, str):
        raise UnsupportedModelError(
            f"SimpleImputer fills a column of strings with {fill!r}; give fill_value a string, or "
            "drop the column, which was all NULL in training"
        )
    missing = {} if means_null(model.missing_values) else {"missing": str(model.missing_values)}
    return frame.builder.op("fill", column, value=fill, **missing)
