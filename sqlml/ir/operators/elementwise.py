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
WIDE = (
    *("exp2", "log2", "log10", "cbrt", "sin", "cos", "tan", "arcsin", "arccos", "arctan"),
    *("sinh", "cosh", "arcsinh", "arccosh", "arctanh"),
)
"""numpy's functions, of floats by way of float64."""
UNARY_FLOAT = (
    *("exp", "log", "log1p", "expm1", "sqrt", "sigmoid", "tanh", *ROUNDING),
    *(*WIDE, "ndtr", "ndtri"),
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


UFUNCS: Mapping[str, np.ufunc] = MappingProxyType(
    {
        **{
            name: getattr(np, name)
            for name in (
                *("log", "log1p", "expm1", "sqrt", "tanh", *ROUNDING),
                *("abs", "sign", "square", "maximum", "minimum"),
            )
        },
        "neg": np.negative,
        "add": np.add,
        "sub": np.subtract,
        "mul": np.multiply,
        "div": np.divide,
        "mod": np.mod,  # the sign of the divisor, as in Python
        "lt": np.less,
        "le": np.less_equal,
        "gt": np.greater,
        "ge": np.greater_equal,
        "eq": np.equal,
        "ne": np.not_equal,
        "and": np.logical_and,
        "or": np.logical_or,
        "not": np.logical_not,
        "shift_right": np.right_shift,
        "bit_and": np.bitwise_and,
    }
)
"""Operators that are one ufunc, with any inputs."""

_FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {
        **{name: function_of(ufunc) for name, ufunc in UFUNCS.items()},
        **{name: _wide(getattr(np, name)) for name in WIDE},
        "exp": function_of(exp),
        "sigmoid": _sigmoid,
        "ndtr": function_of(ndtr),
        "ndtri": function_of(ndtri),
        "pow": _wide(np.power),
    }
)

OPERATORS: tuple[Op, ...] = (
    # both sides of an operator have one dtype
    *(
        Op(name, "both", "injective", rule, _FUNCTIONS[name], arity=(inputs, inputs))
        for names, rule, inputs in (
            (UNARY_FLOAT, _float_unary_type, 1),
            (UNARY_NUMERIC, _numeric_unary_type, 1),
            (ARITHMETIC, _arithmetic_type, 2),
            (DIVISION, _division_type, 2),
            (COMPARISON, _comparison_type, 2),
            (LOGICAL, _logical_type, 2),
            (BITWISE, _bitwise_type, 2),
            (("not",), _logical_type, 1),
        )
        for name in names
    ),
    Op("isnan", "both", "injective", _isnan_type, function_of(missing)),
    Op("where", "both", "injective", _where_type, function_of(np.where), arity=(3, 3)),
    Op(
        "cast",
        "both",
        "injective",
        _cast_type,
        lambda args, attrs: args[0].astype(str(attrs["dtype"])),
        {"dtype": "str"},
        sparse=True,
    ),
)
