"""StandardScaler, MinMaxScaler, MaxAbsScaler and RobustScaler, in scikit-learn's operation order.

Each is sub/div or mul/add per column, as in `sklearn/preprocessing/_data.py`, never folded into
one multiply-add, because that rounds otherwise.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.importers.frame import Frame
from sqlml.importers.sklearn.checked import numbers
from sqlml.importers.sklearn.fitted import check
from sqlml.ir.builder import Value


def standard_scaler(model: Any, frame: Frame) -> Frame:
    """(x - mean_) / scale_; NaN passes, infinity raises."""
    check(model, "scale_", "mean_")
    value = numbers(frame, "StandardScaler", allow_nan=True)
    if model.with_mean:
        value = _by_column(frame, "sub", value, model.mean_)
    if model.with_std:
        value = _divided(frame, value, model.scale_)
    return Frame.of(frame.builder, value, frame.names)


def min_max_scaler(model: Any, frame: Frame) -> Frame:
    """x * scale_ + min_, cut to feature_range when clip is set; NaN passes, infinity raises."""
    check(model, "scale_", "min_")
    value = numbers(frame, "MinMaxScaler", allow_nan=True)
    value = _by_column(frame, "mul", value, model.scale_)
    value = _by_column(frame, "add", value, model.min_)
    if model.clip:
        value = _clipped(frame, value, *model.feature_range)
    return Frame.of(frame.builder, value, frame.names)


def max_abs_scaler(model: Any, frame: Frame) -> Frame:
    """x / scale_, cut to [-1, 1] when clip is set; NaN passes, infinity raises."""
    check(model, "scale_")
    value = numbers(frame, "MaxAbsScaler", allow_nan=True)
    value = _divided(frame, value, model.scale_)
    if getattr(model, "clip", False):
        value = _clipped(frame, value, -1.0, 1.0)
    return Frame.of(frame.builder, value, frame.names)


def robust_scaler(model: Any, frame: Frame) -> Frame:
    """(x - center_) / scale_; NaN passes, infinity raises."""
    check(model, "scale_", "center_")
    value = numbers(frame, "RobustScaler", allow_nan=True)
    if model.with_centering:
        value = _by_column(frame, "sub", value, model.center_)
    if model.with_scaling:
        value = _divided(frame, value, model.scale_)
    return Frame.of(frame.builder, value, frame.names)


def _divided(frame: Frame, value: Value, scale: Any) -> Value:
    """value / scale, or value * (1 / scale) as scikit-learn does it to a sparse matrix."""
    if frame.sparse:
        return _by_column(frame, "mul", value, 1 / np.asarray(scale, np.float64))
    return _by_column(frame, "div", value, scale)


def _by_column(frame: Frame, op: str, value: Value, numbers_: Any) -> Value:
    constant = frame.builder.constant(np.asarray(numbers_, np.float64))
    return frame.builder.op(op, value, constant)


def _clipped(frame: Frame, value: Value, low: float, high: float) -> Value:
    # maximum and minimum keep NaN, as np.clip does
    value = _by_column(frame, "maximum", value, np.array([low]))
    return _by_column(frame, "minimum", value, np.array([high]))
