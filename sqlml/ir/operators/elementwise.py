"""Operators that compute each element from the elements at the same position, with broadcasting.

All inputs of an operator have the same dtype. The normal distribution function uses libm's erfc.
The inverse is algorithm AS 241 (PPND16): M. J. Wichura, "The percentage points of the normal
distribution", Applied Statistics 37 (1988), with a relative error below 1e-15.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.polynomial.polynomial import polyval

from sqlml.errors import ProgramError
from sqlml.ir.operators.op import (
    Function,
    Op,
    Rule,
    Types,
    broadcast_shape,
    ignore_attributes,
    require,
    require_same_dtype,
)
from sqlml.ir.program import Attrs
from sqlml.types import DTYPES, FLOATS, INTEGERS, TEXTUAL, Array, DType, TensorType

_erfc = np.frompyfunc(math.erfc, 1, 1)

# fmt: off
_MIDDLE = (
    (3.3871328727963666080, 1.3314166789178437745e2, 1.9715909503065514427e3,
     1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
     3.3430575583588128105e4, 2.5090809287301226727e3),
    (1.0, 4.2313330701600911252e1, 6.8718700749205790830e2,
     5.3941960214247511077e3, 2.1213794301586595867e4, 3.9307895800092710610e4,
     2.8729085735721942674e4, 5.2264952788528545610e3),
)
"""Coefficients of the numerator and the denominator for |p - 0.5| <= 0.425, lowest power first."""

_NEAR_TAIL = (
    (1.42343711074968357734, 4.63033784615654529590, 5.76949722146069140550,
     3.64784832476320460504, 1.27045825245236838258, 2.41780725177450611770e-1,
     2.27238449892691845833e-2, 7.74545014278341407640e-4),
    (1.0, 2.05319162663775882187, 1.67638483018380384940,
     6.89767334985100004550e-1, 1.48103976427480074590e-1, 1.51986665636164571966e-2,
     5.47593808499534494600e-4, 1.05075007164441684324e-9),
)
"""Coefficients for sqrt(-log(tail)) <= 5."""

_FAR_TAIL = (
    (6.65790464350110377720, 5.46378491116411436990, 1.78482653991729133580,
     2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
     2.71155556874348757815e-5, 2.01033439929228813265e-7),
    (1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1,
     1.48753612908506148525e-2, 7.86869131145613259100e-4, 1.84631831751005468180e-5,
     1.42151175831644588870e-7, 2.04426310338993978564e-15),
)
"""Coefficients for sqrt(-log(tail)) > 5."""
# fmt: on

QUANTILE_COEFFICIENTS = (_MIDDLE, _NEAR_TAIL, _FAR_TAIL)
"""Pairs of polynomials for `ndtri`, from the middle of the distribution outwards."""


def ndtr(x: Array) -> Array:
    """Return the standard normal distribution function at `x`, in the dtype of `x`.

    >>> ndtr(np.array([-np.inf, 0.0]))
    array([0. , 0.5])
    """
    doubled_result = np.asarray(_erfc(-np.asarray(x, np.float64) * math.sqrt(0.5)), np.float64)
    return (0.5 * doubled_result).astype(x.dtype)


def ndtri(p: Array) -> Array:
    """Return the x for which ndtr(x) = p, in the dtype of `p`, or NaN if p is not in [0, 1].

    >>> ndtri(np.array([0.0, 0.5, 2.0]))
    array([-inf,   0.,  nan])
    """
    float64_p = np.asarray(p, np.float64)
    centred = float64_p - 0.5
    with np.errstate(all="ignore"):
        tail = np.minimum(float64_p, 1 - float64_p)
        tail_root = np.sqrt(-np.log(tail))
        outer_x = np.where(
            tail_root <= 5,
            _divide_polynomials(_NEAR_TAIL, tail_root - 1.6),
            _divide_polynomials(_FAR_TAIL, tail_root - 5),
        )
        outer_x = np.where(tail == 0, np.inf, outer_x)
        middle_x = centred * _divide_polynomials(_MIDDLE, 0.180625 - centred * centred)
        x = np.where(np.abs(centred) <= 0.425, middle_x, np.copysign(outer_x, centred))
    return np.where((float64_p < 0) | (float64_p > 1), np.nan, x).astype(p.dtype)


def _divide_polynomials(
    coefficient_pairs: tuple[tuple[float, ...], tuple[float, ...]], x: Array
) -> Array:
    numerator, denominator = (polyval(x, coefficients) for coefficients in coefficient_pairs)
    return np.asarray(numerator / denominator)


ROUNDING = ("trunc", "floor", "ceil", "rint")
WIDE = (
    *("exp2", "log2", "log10", "cbrt", "sin", "cos", "tan", "arcsin", "arccos", "arctan"),
    *("sinh", "cosh", "arcsinh", "arccosh", "arctanh"),
)
"""Functions of numpy that are computed in float64 for inputs of either float dtype."""
_UFUNC_NAMES = ("log", "log1p", "expm1", "sqrt", "tanh", *ROUNDING)
UNARY_FLOAT = ("exp", "sigmoid", "ndtr", "ndtri", *_UFUNC_NAMES, *WIDE)
UNARY_NUMERIC = ("neg", "abs", "sign", "square")
ARITHMETIC = ("add", "sub", "mul", "maximum", "minimum")
COMPARISON = ("lt", "le", "gt", "ge", "eq", "ne")
LOGICAL = ("and", "or")
BITWISE = ("shift_right", "bit_and")
DIVISION = ("div", "pow", "mod")


def _make_elementwise_rule(dtypes: Collection[str], result_dtype: DType | None = None) -> Rule:
    """Return a rule for inputs of one of `dtypes`; `result_dtype` defaults to the inputs' dtype."""

    def rule(types: Types, attrs: Attrs) -> TensorType:
        dtype = require_same_dtype(types)
        if dtype not in dtypes:
            raise ProgramError(f"{dtype} is not one of {', '.join(sorted(dtypes))}")
        return TensorType(result_dtype or dtype, broadcast_shape(types))

    return rule


def _isnan_type(types: Types, attrs: Attrs) -> TensorType:
    require(types[0].dtype in FLOATS or types[0].dtype == "string", "isnan takes floats or strings")
    return TensorType("bool", types[0].shape)


def _where_type(types: Types, attrs: Attrs) -> TensorType:
    require(types[0].dtype == "bool", "where takes a bool condition")
    return TensorType(require_same_dtype(types[1:]), broadcast_shape(types))


def _cast_type(types: Types, attrs: Attrs) -> TensorType:
    require("string" not in (types[0].dtype, attrs["dtype"]), "strings cannot be cast")
    require(not types[0].sparse or attrs["dtype"] in FLOATS, "sparse rows are cast only to floats")
    return TensorType(attrs["dtype"], types[0].shape, types[0].sparse)


def _cast(args: Sequence[Any], attrs: Attrs) -> Any:
    return args[0].astype(str(attrs["dtype"]))


def exp(x: Array) -> Array:
    """Return e to the power of x; float32 is computed in float64 and rounded once, as in libm."""
    return np.exp(x.astype(np.float64)).astype(x.dtype) if x.dtype == np.float32 else np.exp(x)


def _compute_in_float64(function: Callable[..., Any]) -> Function:
    def compute(args: Sequence[Array], attrs: Attrs) -> Array:
        dtype = args[0].dtype
        result: Array = function(*[x.astype(np.float64, copy=False) for x in args])
        return result.astype(dtype, copy=False)

    return compute


def _sigmoid(args: Sequence[Array], attrs: Attrs) -> Array:
    # If exp overflows, the result is 0, as in scipy's expit and in the boosters.
    (x,) = args
    if x.dtype == np.float32:  # XGBoost's formula (common/math.h), except that NaN stays NaN.
        clipped = np.where(np.isnan(x), x, np.minimum(-x, np.float32(88.7)))
        return np.float32(1) / (exp(clipped) + np.float32(1) + np.float32(1e-16))
    one = x.dtype.type(1)
    return np.asarray(one / (one + np.exp(-x)))


def find_missing(x: Array) -> Array:
    """Return a mask of the numbers that are NaN, or of the strings that are missing."""
    if x.dtype == object:
        return np.array([is_missing(value) for value in x.ravel()], bool).reshape(x.shape)
    return np.isnan(x)


def is_missing(value: object) -> bool:
    """Return whether an entry of a string column is missing: None, NaN or pandas' NA.

    >>> is_missing(None), is_missing(float("nan")), is_missing("")
    (True, True, False)
    """
    return value is None or value != value or not isinstance(value, str)


UFUNCS: Mapping[str, np.ufunc] = {
    **{name: getattr(np, name) for name in _UFUNC_NAMES},
    **{name: getattr(np, name) for name in ("abs", "sign", "square", "maximum", "minimum")},
    "neg": np.negative,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "mod": np.mod,  # It has the sign of the divisor, as in Python.
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
"""Map operators to ufuncs, if one ufunc implements the operator for all dtypes."""

_FUNCTIONS: Mapping[str, Function] = {
    **{name: ignore_attributes(ufunc) for name, ufunc in UFUNCS.items()},
    **{name: _compute_in_float64(getattr(np, name)) for name in WIDE},
    "exp": ignore_attributes(exp),
    "sigmoid": _sigmoid,
    "ndtr": ignore_attributes(ndtr),
    "ndtri": ignore_attributes(ndtri),
    "pow": _compute_in_float64(np.power),
}

OPERATORS: tuple[Op, ...] = (
    *(
        Op(name, "injective", rule, _FUNCTIONS[name], arity=(inputs, inputs))
        for names, inputs, rule in (
            (UNARY_FLOAT, 1, _make_elementwise_rule(FLOATS)),
            (UNARY_NUMERIC, 1, _make_elementwise_rule(FLOATS | INTEGERS)),
            (ARITHMETIC, 2, _make_elementwise_rule(FLOATS | INTEGERS)),
            (DIVISION, 2, _make_elementwise_rule(FLOATS)),
            (COMPARISON, 2, _make_elementwise_rule(DTYPES - TEXTUAL, "bool")),
            (LOGICAL, 2, _make_elementwise_rule({"bool"})),
            (BITWISE, 2, _make_elementwise_rule(INTEGERS)),
            (("not",), 1, _make_elementwise_rule({"bool"})),
        )
        for name in names
    ),
    Op("isnan", "injective", _isnan_type, ignore_attributes(find_missing)),
    Op("where", "injective", _where_type, ignore_attributes(np.where), arity=(3, 3)),
    Op("cast", "injective", _cast_type, _cast, "dtype: str", sparse=True),
)
