"""IsotonicRegression: a monotone line through points (`sklearn/isotonic.py`).

scikit-learn interpolates with scipy's interp1d, which uses `np.interp` for float64 points and its
own formula in float32 for float32 points.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, Schema
from sqlml.importers.model_checks import explain_unfitted
from sqlml.importers.sklearn.estimator_checks import check, numbers
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array, dtype_of


def isotonic_regression(model: Any, frame: Frame) -> Outputs:
    """Return prediction and transform of one column."""
    check(model, "X_thresholds_", "y_thresholds_", "X_min_", "X_max_")
    dtype = dtype_of(np.asarray(model.X_thresholds_))
    value = numbers(frame, "IsotonicRegression", dtype=dtype)
    prediction = interpolate(frame.builder, value, model, frame.names)
    return Outputs({"label": prediction, "transform": prediction})


def isotonic_schema(model: Any) -> Schema:
    """Return the schema of one column without a name, because scikit-learn records none.

    Raises:
        UnsupportedModelError: not fitted.
    """
    if not hasattr(model, "X_thresholds_"):
        raise explain_unfitted(model)
    return Schema(None, 1)


def interpolate(
    builder: Builder, value: Value, model: Any, names: tuple[str, ...] = ("x",)
) -> Value:
    """Return `model.predict` of finite values (n, 1) as (n, 1) float64.

    Values beyond the points get the end values ("clip"), NaN ("nan") or an error ("raise"). A
    single point is constant for every out_of_bounds.
    """
    points, values = np.asarray(model.X_thresholds_), np.asarray(model.y_thresholds_)
    if points.dtype not in (np.float32, np.float64) or points.shape != values.shape:
        raise UnsupportedModelError(
            "IsotonicRegression has points of an unknown kind; fit it again"
        )
    if value.type.dtype != dtype_of(points):
        value = builder.op("cast", value, dtype=dtype_of(points))
    if model.out_of_bounds == "clip":
        for op, end in (("maximum", model.X_min_), ("minimum", model.X_max_)):
            value = builder.op(op, value, np.full(1, end, points.dtype))
    elif model.out_of_bounds == "raise" and points.size > 1:
        value = builder.op(
            "require_finite",
            value,
            features=names,
            allow_nan=False,
            step="IsotonicRegression(out_of_bounds='raise')",
            low=points[:1],
            high=points[-1:],
        )
    if points.dtype == np.float64 or points.size == 1:
        result = _interpolate(builder, value, points, values)
    else:
        result = _interpolate_float32(builder, value, points, values)
    if model.out_of_bounds == "nan" and points.size > 1:
        low, high = builder.op("lt", value, points[:1]), builder.op("gt", value, points[-1:])
        outside = builder.op("or", low, high)
        result = builder.op("where", outside, np.nan, result)
    return result


def _interpolate(builder: Builder, value: Value, points: Array, values: Array) -> Value:
    if value.type.dtype != "float64":
        value = builder.op("cast", value, dtype="float64")
    return builder.op(
        "interpolate",
        value,
        points=points.astype(np.float64),
        values=values.astype(np.float64),
        offsets=np.array([0, points.size], np.int64),
    )


def _interpolate_float32(builder: Builder, value: Value, points: Array, values: Array) -> Value:
    """Return slope * (x - x0) + y0 on the piece of x, like `interp1d._call_linear`."""
    index = builder.op(
        "search_sorted",
        value,
        edges=points,
        offsets=np.array([0, points.size], np.int64),
        side="left",
    )
    right = builder.op("minimum", builder.op("maximum", index, 1), points.size - 1)
    left = builder.op("sub", right, 1)
    x, y = builder.constant(points), builder.constant(values.astype(np.float32))
    x0, x1 = builder.op("take", x, left), builder.op("take", x, right)
    y0, y1 = builder.op("take", y, left), builder.op("take", y, right)
    slope = builder.op("div", builder.op("sub", y1, y0), builder.op("sub", x1, x0))
    result = builder.op("add", builder.op("mul", slope, builder.op("sub", value, x0)), y0)
    return builder.op("cast", result, dtype="float64")
