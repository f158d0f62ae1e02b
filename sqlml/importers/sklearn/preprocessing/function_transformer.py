"""FunctionTransformer with numpy's elementary functions, which are recognised by identity."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.expressions.functions import SAME_IN_NUMPY
from sqlml.importers.expressions.sql_steps import find_registered, sql_step
from sqlml.importers.frame import Frame
from sqlml.importers.sklearn.estimator_checks import check, numbers
from sqlml.ir.builder import Builder, Value

Make = Callable[[Builder, Value], Value]


def function_transformer(model: Any, frame: Frame) -> Frame:
    """Apply the identity, the SQL that is registered for the function, or one of `FUNCTIONS`.

    numpy computes np.log of booleans and int8 in float16 and of int16 in float32. A fitted
    FunctionTransformer records no dtypes, so this importer always uses float64, like scikit-learn
    does with `validate=True` or a float64 frame.
    """
    check(model)
    func = model.func
    registration = None if func is None or model.kw_args else find_registered(func)
    if registration is not None:
        return sql_step(func, frame, registration)
    make = None if func is None else find_function(func)
    if func is not None:
        name = getattr(func, "__name__", repr(func))
        example = "the_function" if name == "<lambda>" else name
        if make is None:
            raise UnsupportedModelError(
                f"FunctionTransformer calls the Python function {name}, which cannot run inside "
                f"SQL; say what it does with sqlml.register_step({example}, sql=..), or use one of "
                "numpy's elementary functions (np.log1p, np.sqrt ...) or a scikit-learn transformer"
            )
        if model.kw_args:
            raise UnsupportedModelError(
                f"FunctionTransformer calls {name} with kw_args={model.kw_args!r}, which may "
                "change what it computes; leave kw_args out"
            )
        if frame.sparse:
            raise UnsupportedModelError(
                f"FunctionTransformer calls {name} on a sparse matrix, where some functions see "
                "only the stored values; make it dense (sparse_threshold=0, sparse_output=False)"
            )
    if make is None and not model.validate:
        return frame
    x = numbers(frame, "FunctionTransformer") if model.validate else frame.matrix()
    value = frame.builder.cast(x if make is None else make(frame.builder, x), "float64")
    return Frame(frame.builder, (value,), frame.names, frame.sparse)


def find_function(function: Any) -> Make | None:
    """Return the builder of a numpy function's operators; None for another function."""
    return FUNCTIONS.get(function) if isinstance(function, Hashable) else None


def _operator(name: str) -> Make:
    return lambda b, x: b.op(name, x)


def _nan_to_num(b: Builder, x: Value) -> Value:
    """Replace NaN with 0 and infinities with the largest floats."""
    largest = np.finfo(np.float64).max
    x = b.op("minimum", b.op("where", b.op("isnan", x), 0.0, x), largest)
    return b.op("maximum", x, -largest)


FUNCTIONS: Mapping[Any, Make] = {
    **{getattr(np, name): _operator(name) for name in (*SAME_IN_NUMPY, "isnan")},
    np.absolute: _operator("abs"),
    np.around: _operator("rint"),
    np.deg2rad: lambda b, x: b.op("mul", x, math.pi / 180),
    np.degrees: lambda b, x: b.op("mul", x, 180 / math.pi),
    np.fabs: _operator("abs"),
    np.isfinite: lambda b, x: b.op("lt", b.op("abs", x), np.inf),
    np.isinf: lambda b, x: b.op("eq", b.op("abs", x), np.inf),
    np.logical_not: lambda b, x: b.op("eq", x, 0.0),
    np.nan_to_num: _nan_to_num,
    np.negative: _operator("neg"),
    np.positive: lambda b, x: x,
    np.rad2deg: lambda b, x: b.op("mul", x, 180 / math.pi),
    np.radians: lambda b, x: b.op("mul", x, math.pi / 180),
    np.reciprocal: lambda b, x: b.op("div", 1.0, x),
    np.round: _operator("rint"),
}
