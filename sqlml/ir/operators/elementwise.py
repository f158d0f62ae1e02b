"""Operators that compute each number from its neighbours at the same place, with broadcasting."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.ir.operators.normal import ndtr, ndtri
from sqlml.ir.operators.op import (
    Function,
    Op,
    Types,
    broadcast,
    floating,
    function_of,
    need,
    numeric,
    same_dtype,
)
from sqlml.ir.program import Attrs
from sqlml.types import FLOATS, INTEGERS, Array, TensorType

ROUNDING = ("trunc", "floor", "ceil", "rint")
UNARY_FLOAT = (
    *("exp", "log", "log1p", "expm1", "sqrt", "sigmoid", "tanh", *ROUNDING),
    *("exp2", "log2", "log10", "cbrt", "sin", "cos", "tan", "arcsin", "arccos", "arctan"),
    *("sinh", "cosh", "arcsinh", "arccosh", "arctanh", "ndtr", "ndtri"),
)
UNARY_NUMERIC = ("neg", "abs", "sign", "square")
ARITHMETIC = ("add", "sub", "mul", "maximum", "minimum")
COMPARISON = ("lt", "le", "gt", "ge", "eq", "ne")
LOGICAL = ("and", "or")
BITWISE = ("shift_right", "bit_and")
DIVISION = ("div", "pow", "mod")


def _arithmetic_type(types: Types, attrs: Attrs) -> TensorType:
    return TensorType(numeric(same_dtype(types)), broadcast(types))


def _division_type(types: Types, attrs: Attrs) -> TensorType:
    floating(types[0].dtype)
    return _arithmetic_type(types, attrs)


def _comparison_type(types: Types, attrs: Attrs) -> TensorType:
    need(same_dtype(types) != "string", "only encode compares strings")
    return TensorType("bool", broadcast(types))


def _logical_type(types: Types, attrs: Attrs) -> TensorType:
    need(same_dtype(types) == "bool", "logical operators take bool")
    return TensorType("bool", broadcast(types))


def _bitwise_type(types: Types, attrs: Attrs) -> TensorType:
    need(same_dtype(types) in INTEGERS, "bit operators take integers")
    return TensorType(types[0].dtype, broadcast(types))


def _float_unary_type(types: Types, attrs: Attrs) -> TensorType:
    floating(types[0].dtype)
    return types[0]


def _numeric_unary_type(types: Types, attrs: Attrs) -> TensorType:
    numeric(types[0].dtype)
    return types[0]


def _isnan_type(types: Types, attrs: Attrs) -> TensorType:
    need(types[0].dtype in FLOATS or types[0].dtype == "string", "isnan takes floats or strings")
    return TensorType("bool", types[0].shape)


def _where_type(types: Types, attrs: Attrs) -> TensorType:
    need(types[0].dtype == "bool", "where takes a bool condition")
    return TensorType(same_dtype(types[1:]), broadcast(types))


def _cast_type(types: Types, attrs: Attrs) -> TensorType:
    need("string" not in (types[0].dtype, attrs["dtype"]), "strings are not cast")
    need(not types[0].sparse or attrs["dtype"] in FLOATS, "sparse rows are cast only to floats")
    return TensorType(attrs["dtype"], types[0].shape, types[0].sparse)


def exp(x: Array) -> Array:
    """float32 by way of float64: rounded once, as libm's expf is and numpy's own is not."""
    return np.exp(x.astype(np.float64)).astype(x.dtype) if x.dtype == np.float32 else np.exp(x)


def _wide(function: Callable[..., Any]) -> Function:
    """A function of floats that is computed in float64 and rounded once."""

    def compute(args: Sequence[Array], attrs: Attrs) -> Array:
        dtype = args[0].dtype
        made: Array = function(*[x.astype(np.float64, copy=False) for x in args])
        return made.astype(dtype, copy=False)

    return compute


def _sigmoid(args: Sequence[Array], attrs: Attrs) -> Array:
    """1 / (1 + exp(-x)), as scipy's expit and the boosters have it: exactly 0 once exp overflows.

    scikit-learn answers uniform probabilities where all one-vs-rest sigmoids are 0.
    """
    (x,) = args
    if x.dtype == np.float32:  # XGBoost's own formula (common/math.h), NaN kept
        limited = np.where(np.isnan(x), x, np.minimum(-x, np.float32(88.7)))
        return np.float32(1) / (exp(limited) + np.float32(1) + np.float32(1e-16))
    one = x.dtype.type(1)
    shares: Array = one / (one + np.exp(-x))
    return shares


def missing(x: Array) -> Array:
    """Where numbers are NaN, or strings missing."""
    if x.dtype == object:
        return np.array([is_missing(v) for v in x.ravel()], bool).reshape(x.shape)
    return np.isnan(x)


def is_missing(value: object) -> bool:
    """Whether a string column's entry is missing: None, NaN or pandas' NA.

    >>> is_missing(None), is_missing(float("nan")), is_missing("")
    (True, True, False)
    """
    return value is None or value != value or not isinstance(value, str)


OPERATORS: tuple[Op, ...] = (
    # both sides of an operator have one dtype
    *(Op(n, "both", "injective", (1, 1), _float_unary_type) for n in UNARY_FLOAT),
    *(Op(n, "both", "injective", (1, 1), _numeric_unary_type) for n in UNARY_NUMERIC),
    *(Op(n, "both", "injective", (2, 2), _arithmetic_type) for n in ARITHMETIC),
    *(Op(n, "both", "injective", (2, 2), _division_type) for n in DIVISION),
    *(Op(n, "both", "injective", (2, 2), _comparison_type) for n in COMPARISON),
    *(Op(n, "both", "injective", (2, 2), _logical_type) for n in LOGICAL),
    *(Op(n, "both", "injective", (2, 2), _bitwise_type) for n in BITWISE),
    Op("not", "both", "injective", (1, 1), _logical_type),
    Op("isnan", "both", "injective", (1, 1), _isnan_type),
    Op("where", "both", "injective", (3, 3), _where_type),
    Op("cast", "both", "injective", (1, 1), _cast_type, {"dtype": "str"}, sparse=True),
)

FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {
        "exp": function_of(exp),
        "log": function_of(np.log),
        "log1p": function_of(np.log1p),
        "expm1": function_of(np.expm1),
        "sqrt": function_of(np.sqrt),
        "sigmoid": _sigmoid,
        "tanh": function_of(np.tanh),
        "trunc": function_of(np.trunc),
        "floor": function_of(np.floor),
        "ceil": function_of(np.ceil),
        "rint": function_of(np.rint),
        "exp2": _wide(np.exp2),
        "log2": _wide(np.log2),
        "log10": _wide(np.log10),
        "cbrt": _wide(np.cbrt),
        "sin": _wide(np.sin),
        "cos": _wide(np.cos),
        "tan": _wide(np.tan),
        "arcsin": _wide(np.arcsin),
        "arccos": _wide(np.arccos),
        "arctan": _wide(np.arctan),
        "sinh": _wide(np.sinh),
        "cosh": _wide(np.cosh),
        "arcsinh": _wide(np.arcsinh),
        "arccosh": _wide(np.arccosh),
        "arctanh": _wide(np.arctanh),
        "ndtr": function_of(ndtr),
        "ndtri": function_of(ndtri),
        "neg": function_of(np.negative),
        "abs": function_of(np.abs),
        "sign": function_of(np.sign),
        "square": function_of(np.square),
        "add": function_of(np.add),
        "sub": function_of(np.subtract),
        "mul": function_of(np.multiply),
        "div": function_of(np.divide),
        "pow": _wide(np.power),
        "mod": function_of(np.mod),  # the sign of the divisor, as in Python
        "maximum": function_of(np.maximum),
        "minimum": function_of(np.minimum),
        "lt": function_of(np.less),
        "le": function_of(np.less_equal),
        "gt": function_of(np.greater),
        "ge": function_of(np.greater_equal),
        "eq": function_of(np.equal),
        "ne": function_of(np.not_equal),
        "and": function_of(np.logical_and),
        "or": function_of(np.logical_or),
        "shift_right": function_of(np.right_shift),
        "bit_and": function_of(np.bitwise_and),
        "not": function_of(np.logical_not),
        "isnan": function_of(missing),
        "where": function_of(np.where),
        "cast": lambda args, attrs: args[0].astype(str(attrs["dtype"])),
    }
)
