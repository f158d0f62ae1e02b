"""FunctionTransformer with numpy's elementary functions, which are recognised by identity."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame
from sqlml.importers.sklearn.estimator_checks import check, numbers
from sqlml.importers.sql_steps.importer import find_registered, sql_step
from sqlml.ir.builder import Builder, Value

Make = Callable[[Builder, Value], Value]


def function_transformer(model: Any, frame: Frame) -> Frame:
    """Apply the identity, the SQL that is registered for the function, or one of `FUNCTIONS`.

    numpy computes np.log of booleans and int8 in float16 and of int16 in float32. A fitted
    FunctionTransformer records no dtypes, so this importer always uses float64, like scikit-learn
    does with `validate=True` or a float64 frame.

    Raises:
        UnsupportedModelError: any other function, because its Python code cannot run inside SQL.
    """
    check(model)
    func = model.func
    registration = None if func is None or model.kw_args else find_registered(func)
    if registration is not None:
        return sql_step(func, frame, registration)
    make = None if func is None else _find_function(func)
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
    value = x if make is None else make(frame.builder, x)
    if value.type.dtype == "bool":
        value = frame.builder.op("cast", value, dtype="float64")
    return Frame(frame.builder, (value,), frame.names, frame.sparse)


def _find_function(func: Any) -> Make | None:
    try:
        return FUNCTIONS.get(func)
    except TypeError:  # an unhashable callable is none of numpy's
        return None


def _operator(name: str) -> Make:
    return lambda b, x: b.op(name, x)


def _times(factor: float) -> Make:
    return lambda b, x: b.op("mul", x, factor)


def _against_infinity(comparison: str) -> Make:
    return lambda b, x: b.op(comparison, b.op("abs", x), np.inf)


def _nan_to_num(b: Builder, x: Value) -> Value:
    """Replace NaN with 0 and infinities with the largest floats."""
    largest = np.finfo(np.float64).max
    x = b.op("where", b.op("isnan", x), 0.0, x)
    x = b.op("minimum", x, largest)
    return b.op("maximum", x, -largest)


_OPERATORS = (
    "arccos arccosh arcsin arcsinh arctan arctanh cbrt ceil cos cosh exp exp2 expm1 floor isnan "
    "log log10 log1p log2 rint sign sin sinh sqrt square tan tanh trunc"
).split()
"""numpy's functions that are operators of the same name."""

FUNCTIONS: Mapping[Any, Make] = MappingProxyType(
    {
        **{getattr(np, name): _operator(name) for name in _OPERATORS},
        np.absolute: _operator("abs"),
        np.around: _operator("rint"),
        np.deg2rad: _times(math.pi / 180),
        np.degrees: _times(180 / math.pi),
        np.fabs: _operator("abs"),
        np.isfinite: _against_infinity("lt"),
        np.isinf: _against_infinity("eq"),
        np.logical_not: lambda b, x: b.op("eq", x, 0.0),
        np.nan_to_num: _nan_to_num,
        np.negative: _operator("neg"),
        np.positive: lambda b, x: x,
        np.rad2deg: _times(180 / math.pi),
        np.radians: _times(math.pi / 180),
        np.reciprocal: lambda b, x: b.op("div", 1.0, x),
        np.round: _operator("rint"),
    }
)
