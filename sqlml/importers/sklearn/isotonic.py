"""IsotonicRegression: a monotone, piecewise linear function (`sklearn/isotonic.py`).

SciPy's interp1d calls `np.interp` for float64 points, but computes float32 points by a formula.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, Schema
from sqlml.importers.model_checks import make_unfitted_error
from sqlml.importers.sklearn.estimator_checks import check_array, check_estimator
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array, dtype_of


def import_isotonic_regression(model: Any, frame: Frame) -> Outputs:
    check_estimator(model, "X_thresholds_", "y_thresholds_", "X_min_", "X_max_")
    dtype = dtype_of(np.asarray(model.X_thresholds_))
    x = check_array(frame, "IsotonicRegression", dtype=dtype)
    prediction = interpolate_isotonic(frame.builder, x, model, frame.names)
    return Outputs({"label": prediction, "transform": prediction})


def read_isotonic_schema(model: Any) -> Schema:
    """Return the schema of one unnamed column, because IsotonicRegression records no names."""
    if not hasattr(model, "X_thresholds_"):
        raise make_unfitted_error(model)
    return Schema(None, 1)


def interpolate_isotonic(
    builder: Builder, x: Value, model: Any, names: tuple[str, ...] = ("x",)
) -> Value:
    """Return the result of `model.predict`, (n, 1) float64, for finite values `x`.

    The option `out_of_bounds` decides whether a value outside of the fitted points gets the
    prediction of the nearest point, NaN or an error. With a single point, the prediction is
    constant.
    """
    op = builder.op
    points, values = np.asarray(model.X_thresholds_), np.asarray(model.y_thresholds_)
    if points.dtype not in (np.float32, np.float64) or points.shape != values.shape:
        raise UnsupportedModelError(
            "IsotonicRegression has points of an unknown dtype; fit it again"
        )
    x = builder.cast(x, dtype_of(points))
    if model.out_of_bounds == "clip":
        for operator, bound in (("maximum", model.X_min_), ("minimum", model.X_max_)):
            x = op(operator, x, np.full(1, bound, points.dtype))
    elif model.out_of_bounds == "raise" and points.size > 1:
        step = "IsotonicRegression(out_of_bounds='raise')"
        bounds = {"low": points[:1], "high": points[-1:]}
        x = op("require_finite", x, features=names, allow_nan=False, step=step, **bounds)
    offsets = np.array([0, points.size], np.int64)
    if points.dtype == np.float64 or points.size == 1:
        line_attrs = {"points": points.astype(np.float64), "values": values.astype(np.float64)}
        prediction = op("interpolate", builder.cast(x, "float64"), offsets=offsets, **line_attrs)
    else:
        index = op("search_sorted", x, edges=points, offsets=offsets, side="left")
        prediction = _interpolate_float32(builder, x, index, points, values.astype(np.float32))
    if model.out_of_bounds == "nan" and points.size > 1:
        is_below, is_above = op("lt", x, points[:1]), op("gt", x, points[-1:])
        prediction = op("where", op("or", is_below, is_above), np.nan, prediction)
    return prediction


def _interpolate_float32(
    builder: Builder, position: Value, index: Value, points: Array, values: Array
) -> Value:
    """Interpolate on the segment that ends at the point `index`."""
    op = builder.op
    right = op("minimum", op("maximum", index, 1), points.size - 1)
    left = op("sub", right, 1)
    x, y = builder.constant(points), builder.constant(values)
    x0, x1 = op("take", x, left), op("take", x, right)
    y0, y1 = op("take", y, left), op("take", y, right)
    slope = op("div", op("sub", y1, y0), op("sub", x1, x0))
    return op("cast", op("add", op("mul", slope, op("sub", position, x0)), y0), dtype="float64")
