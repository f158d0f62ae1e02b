"""IsotonicRegression: a monotone, piecewise linear function (`sklearn/isotonic.py`).

SciPy's interp1d calls `np.interp` for float64 points, but computes float32 points by a formula.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, Schema
from sqlml.importers.model_checks import explain_unfitted
from sqlml.importers.sklearn.estimator_checks import check_array, check_estimator
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array, dtype_of


def isotonic_regression(model: Any, frame: Frame) -> Outputs:
    check_estimator(model, "X_thresholds_", "y_thresholds_", "X_min_", "X_max_")
    dtype = dtype_of(np.asarray(model.X_thresholds_))
    value = check_array(frame, "IsotonicRegression", dtype=dtype)
    prediction = interpolate(frame.builder, value, model, frame.names)
    return Outputs({"label": prediction, "transform": prediction})


def read_isotonic_schema(model: Any) -> Schema:
    """Return the schema of one column without a name, because IsotonicRegression records none."""
    if not hasattr(model, "X_thresholds_"):
        raise explain_unfitted(model)
    return Schema(None, 1)


def interpolate(b: Builder, x: Value, model: Any, names: tuple[str, ...] = ("x",)) -> Value:
    """Return the result of `model.predict`, (n, 1) float64, for finite values `x`, (n, 1).

    Depending on the model's `out_of_bounds`, a value outside of the fitted points gets the nearest
    point's prediction, NaN or an error. With a single point, the prediction is constant.
    """
    points, values = np.asarray(model.X_thresholds_), np.asarray(model.y_thresholds_)
    if points.dtype not in (np.float32, np.float64) or points.shape != values.shape:
        raise UnsupportedModelError(
            "IsotonicRegression has points of an unknown dtype; fit it again"
        )
    x = b.cast(x, dtype_of(points))
    if model.out_of_bounds == "clip":
        for op, bound in (("maximum", model.X_min_), ("minimum", model.X_max_)):
            x = b.op(op, x, np.full(1, bound, points.dtype))
    elif model.out_of_bounds == "raise" and points.size > 1:
        step = "IsotonicRegression(out_of_bounds='raise')"
        bounds = {"low": points[:1], "high": points[-1:]}
        x = b.op("require_finite", x, features=names, allow_nan=False, step=step, **bounds)
    offsets = np.array([0, points.size], np.int64)
    if points.dtype == np.float64 or points.size == 1:
        line_attrs = {"points": points.astype(np.float64), "values": values.astype(np.float64)}
        prediction = b.op("interpolate", b.cast(x, "float64"), offsets=offsets, **line_attrs)
    else:
        index = b.op("search_sorted", x, edges=points, offsets=offsets, side="left")
        prediction = _interpolate_float32(b, x, index, points, values.astype(np.float32))
    if model.out_of_bounds == "nan" and points.size > 1:
        is_below, is_above = b.op("lt", x, points[:1]), b.op("gt", x, points[-1:])
        prediction = b.op("where", b.op("or", is_below, is_above), np.nan, prediction)
    return prediction


def _interpolate_float32(
    b: Builder, value: Value, index: Value, points: Array, values: Array
) -> Value:
    """Return slope * (value - x0) + y0 on the segment from (x0, y0) to the point at `index`."""
    right = b.op("minimum", b.op("maximum", index, 1), points.size - 1)
    left = b.op("sub", right, 1)
    x, y = b.constant(points), b.constant(values)
    x0, x1 = b.op("take", x, left), b.op("take", x, right)
    y0, y1 = b.op("take", y, left), b.op("take", y, right)
    slope = b.op("div", b.op("sub", y1, y0), b.op("sub", x1, x0))
    result = b.op("add", b.op("mul", slope, b.op("sub", value, x0)), y0)
    return b.op("cast", result, dtype="float64")
