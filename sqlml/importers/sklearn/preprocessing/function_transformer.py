"""FunctionTransformer of numpy's own elementary functions, known by their identity."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame
from sqlml.importers.sklearn.checked import numbers
from sqlml.importers.sklearn.fitted import check
from sqlml.ir.builder import Builder, Value

Make = Callable[[Builder, Value], Value]


def function_transformer(model: Any, frame: Frame) -> Frame:
    """The identity when func is None, else one of `FUNCTIONS` on float64 columns.

    numpy itself computes np.log of booleans and int8 in float16 and of int16 in float32. A fitted
    FunctionTransformer keeps no dtypes, so ours is always float64; `validate=True`, or a float64
    frame, makes scikit-learn do the same.

    Raises:
        UnsupportedModelError: any other function, since its Python code cannot run inside SQL.
    """
    check(model)
    func = model.func
    make = None if func is None else _known(func)
    if func is not None:
        name = getattr(func, "__name__", repr(func))
        if make is None:
            raise UnsupportedModelError(
                f"FunctionTransformer calls the Python function {name}, which cannot run inside "
                "SQL; use one of numpy's elementary functions (np.log1p, np.sqrt ...), compute "
                "that column in the query, or use a scikit-learn transformer for it"
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


def _known(func: Any) -> Make | None:
    try:
        return FUNCTIONS.get(func)
    except TypeError:  # an unhashable callable is none of numpy's
        return None


def _operator(name: str) -> Make:
    return lambda b, x: b.op(name, x)


def _times(factor: float) -> Make:
    return lambda b, x: b.op("mul", x, factor)


def _reciprocal(b: Builder, x: Value) -> Value:
    return b.op("div", 1.0, x)


def _against_infinity(comparison: str) -> Make:
    return lambda b, x: b.op(comparison, b.op("abs", x), np.inf)


def _is_zero(b: Builder, x: Value) -> Value:
    return b.op("eq", x, 0.0)


def _nan_to_num(b: Builder, x: Value) -> Value:
    """NaN becomes 0, infinities the largest floats."""
    largest = np.finfo(np.float64).max
    x = b.op("where", b.op("isnan", x), 0.0, x)
    x = b.op("minimum", x, largest)
    return b.op("maximum", x, -largest)


FUNCTIONS: Mapping[Any, Make] = MappingProxyType(
    {
        np.absolute: _operator("abs"),
        np.arccos: _operator("arccos"),
        np.arccosh: _operator("arccosh"),
        np.arcsin: _operator("arcsin"),
        np.arcsinh: _operator("arcsinh"),
        np.arctan: _operator("arctan"),
        np.arctanh: _operator("arctanh"),
        np.around: _operator("rint"),
        np.cbrt: _operator("cbrt"),
        np.ceil: _operator("ceil"),
        np.cos: _operator("cos"),
        np.cosh: _operator("cosh"),
        np.deg2rad: _times(math.pi / 180),
        np.degrees: _times(180 / math.pi),
        np.exp: _operator("exp"),
        np.exp2: _operator("exp2"),
        np.expm1: _operator("expm1"),
        np.fabs: _operator("abs"),
        np.floor: _operator("floor"),
        np.isfinite: _against_infinity("lt"),
        np.isinf: _against_infinity("eq"),
        np.isnan: _operator("isnan"),
        np.log: _operator("log"),
        np.log10: _operator("log10"),
        np.log1p: _operator("log1p"),
        np.log2: _operator("log2"),
        np.logical_not: _is_zero,
        np.nan_to_num: _nan_to_num,
        np.negative: _operator("neg"),
        np.positive: lambda b, x: x,
        np.rad2deg: _times(180 / math.pi),
        np.radians: _times(math.pi / 180),
        np.reciprocal: _reciprocal,
        np.rint: _operator("rint"),
        np.round: _operator("rint"),
        np.sign: _operator("sign"),
        np.sin: _operator("sin"),
        np.sinh: _operator("sinh"),
        np.sqrt: _operator("sqrt"),
        np.square: _operator("square"),
        np.tan: _operator("tan"),
        np.tanh: _operator("tanh"),
        np.trunc: _operator("trunc"),
    }
)
