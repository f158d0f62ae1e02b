"""Scalers of columns with their inverse transforms, Normalizer of rows, and Binarizer.

A scaler is sub/div or mul/add per column, as in `sklearn/preprocessing/_data.py`, never folded into
one multiply-add, because that rounds otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame
from sqlml.importers.sklearn.checked import numbers
from sqlml.importers.sklearn.fitted import check
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array

_STEPS: Mapping[str, tuple[tuple[str, str, str], ...]] = MappingProxyType(
    {
        "StandardScaler": (("sub", "mean_", "with_mean"), ("div", "scale_", "with_std")),
        "MinMaxScaler": (("mul", "scale_", ""), ("add", "min_", "")),
        "MaxAbsScaler": (("div", "scale_", ""),),
        "RobustScaler": (("sub", "center_", "with_centering"), ("div", "scale_", "with_scaling")),
    }
)
"""Class -> its steps: operator, attribute with a number for each column, parameter that asks."""

_INVERSE = MappingProxyType({"sub": "add", "add": "sub", "mul": "div", "div": "mul"})


def scaler(model: Any, frame: Frame) -> Frame:
    """StandardScaler, MinMaxScaler, MaxAbsScaler and RobustScaler.

    Their steps, and a cut to feature_range or [-1, 1] where `clip` is set. NaN passes, infinity
    raises.
    """
    steps, builder = _steps(model), frame.builder
    value = numbers(frame, type(model).__name__, allow_nan=True)
    for op, column in steps:
        if op == "div" and frame.sparse:  # value * (1 / scale), as scikit-learn does it there
            op, column = "mul", 1 / column
        value = builder.op(op, value, column)
    if getattr(model, "clip", False):
        low, high = getattr(model, "feature_range", (-1.0, 1.0))
        # maximum and minimum keep NaN, as np.clip does
        value = builder.op("minimum", builder.op("maximum", value, float(low)), float(high))
    return Frame.of(builder, value, frame.names)


def unscaled(builder: Builder, model: Any, value: Value) -> Value:
    """`model.inverse_transform` of (n, k) float64."""
    for op, column in reversed(_steps(model)):
        value = builder.op(_INVERSE[op], value, column)
    return value


def _steps(model: Any) -> list[tuple[str, Array]]:
    rows = _STEPS[type(model).__name__]
    check(model, *(attribute for _, attribute, _ in rows))
    return [
        (op, np.asarray(getattr(model, attribute), np.float64))
        for op, attribute, asked in rows
        if not asked or getattr(model, asked)
    ]


def normalizer(model: Any, frame: Frame) -> Frame:
    """x divided by the l1, l2 or max norm of its row; a row of (nearly) zeros stays as it is."""
    check(model)
    b = frame.builder
    x = numbers(frame, "Normalizer")
    norm = _norm(b, x, model.norm)
    if frame.sparse:
        tiny = b.op("eq", norm, 0.0)
    else:
        tiny = b.op("lt", norm, 10 * np.finfo(np.float64).eps)
    norm = b.op("where", tiny, 1.0, norm)
    return Frame(b, (b.op("div", x, norm),), frame.names, frame.sparse)


def _norm(b: Builder, x: Value, kind: str) -> Value:
    if kind == "l1":
        return b.op("sum", b.op("abs", x), axis=1)
    if kind == "l2":
        return b.op("sqrt", b.op("sum", b.op("square", x), axis=1))
    if kind == "max":
        return b.op("max", b.op("abs", x), axis=1)
    raise UnsupportedModelError(f"Normalizer(norm={kind!r}) is not known to sqlml")


def binarizer(model: Any, frame: Frame) -> Frame:
    """1 where x is above the threshold, else 0."""
    check(model)
    b = frame.builder
    x = numbers(frame, "Binarizer")
    above = b.op("gt", x, float(model.threshold))
    return Frame(b, (b.op("cast", above, dtype="float64"),), frame.names, frame.sparse)
