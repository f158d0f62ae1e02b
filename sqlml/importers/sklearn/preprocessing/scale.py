"""StandardScaler, MinMaxScaler, MaxAbsScaler and RobustScaler, and their inverse transforms.

Each is sub/div or mul/add per column, as in `sklearn/preprocessing/_data.py`, never folded into
one multiply-add, because that rounds otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

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
    """The steps, and a cut to feature_range or [-1, 1] where `clip` is set.

    NaN passes, infinity raises.
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
