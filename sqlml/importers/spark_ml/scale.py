"""StandardScalerModel, MinMaxScalerModel, MaxAbsScalerModel, RobustScalerModel, Normalizer.

Spark multiplies by 1 / deviation where scikit-learn divides, and makes 0 of a column that did not
vary (`org/apache/spark/ml/feature/StandardScaler.scala` and its neighbours).
"""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np

from sqlml.importers.frame import Frame
from sqlml.importers.spark_ml.columns import Columns
from sqlml.importers.spark_ml.stages import Stage
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array


def standard_scaler(stage: Stage, columns: Columns, wanted: Collection[str]) -> None:
    """(x - mean) * (1 / std)."""
    shift = stage.vector("mean") if stage.flag("withMean", False) else None
    scale = _inverse(stage.vector("std"), 0.0) if stage.flag("withStd", True) else None
    _scaled(stage, columns, shift, scale, stage.vector("std").size)


def robust_scaler(stage: Stage, columns: Columns, wanted: Collection[str]) -> None:
    """(x - median) * (1 / range)."""
    shift = stage.vector("median") if stage.flag("withCentering", False) else None
    scale = _inverse(stage.vector("range"), 0.0) if stage.flag("withScaling", True) else None
    _scaled(stage, columns, shift, scale, stage.vector("range").size)


def max_abs_scaler(stage: Stage, columns: Columns, wanted: Collection[str]) -> None:
    """x * (1 / maxAbs); a column of zeros stays."""
    scale = _inverse(stage.vector("maxAbs"), 1.0)
    _scaled(stage, columns, None, scale, scale.size)


def min_max_scaler(stage: Stage, columns: Columns, wanted: Collection[str]) -> None:
    """(x - low) * ((max - min) / (high - low)) + min; the middle for a column that did not vary."""
    low, high = stage.vector("originalMin"), stage.vector("originalMax")
    least, most = stage.number("min", 0.0), stage.number("max", 1.0)
    if low.shape != high.shape:
        raise stage.damaged("it has different numbers of minima and maxima")
    span = high - low
    scale = np.divide(most - least, span, out=np.zeros_like(span), where=span != 0)
    frame = _read(stage, columns, low.size)
    b, x = frame.builder, frame.matrix()
    value = b.op("mul", b.op("sub", x, b.constant(low)), b.constant(scale))
    value = b.op("add", value, b.constant(np.full(1, least)))
    constant = scale == 0
    if constant.any():
        middle = b.constant(np.full(1, (least + most) / 2))
        middle = b.op("where", b.op("isnan", x), x, middle)
        value = b.op("where", b.constant(constant[None, :]), middle, value)
    _put(stage, columns, frame, value)


def normalizer(stage: Stage, columns: Columns, wanted: Collection[str]) -> None:
    """x divided by the norm of its row, unless that is 0."""
    frame = _read(stage, columns, None)
    b, x = frame.builder, frame.matrix()
    norm = _norm(stage, b, x, stage.number("p", 2.0))
    nothing = b.op("eq", norm, b.constant(np.zeros(1)))
    norm = b.op("where", nothing, b.constant(np.ones(1)), norm)
    _put(stage, columns, frame, b.op("div", x, norm))


def _norm(stage: Stage, b: Builder, x: Value, p: float) -> Value:
    if p == 1.0:
        return b.op("sum", b.op("abs", x), axis=1)
    if p == 2.0:
        return b.op("sqrt", b.op("sum", b.op("square", x), axis=1))
    if p == math.inf:
        return b.op("max", b.op("abs", x), axis=1)
    raise stage.unsupported(f"p={p} is not covered; use 1, 2 or infinity")


def _inverse(x: Array, instead: float) -> Array:
    """1 / x, and `instead` where x is 0."""
    made: Array = np.divide(1.0, x, out=np.full_like(x, instead), where=x != 0)
    return made


def _scaled(
    stage: Stage, columns: Columns, shift: Array | None, scale: Array | None, width: int
) -> None:
    frame = _read(stage, columns, width)
    b, value = frame.builder, frame.matrix()
    if shift is not None:
        if shift.size != width:
            raise stage.damaged(f"it shifts {shift.size} columns and scales {width}")
        value = b.op("sub", value, b.constant(shift))
    if scale is not None:
        value = b.op("mul", value, b.constant(scale))
    _put(stage, columns, frame, value)


def _read(stage: Stage, columns: Columns, width: int | None) -> Frame:
    return columns.vector(stage.text("inputCol"), stage.kind, width)


def _put(stage: Stage, columns: Columns, frame: Frame, value: Value) -> None:
    columns.put(stage.text("outputCol"), value, frame.names, vector=True)
