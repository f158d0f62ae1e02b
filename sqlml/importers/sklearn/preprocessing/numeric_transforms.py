"""Numeric transformers: scalers, powers, quantiles, bins, polynomials, splines and functions.

Folding a scaler's sub/div or mul/add into one multiply-add would round differently. Powers follow
`scipy.stats._morestats._yeojohnson_transform` and `scipy.special.boxcox`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from itertools import combinations, combinations_with_replacement
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.expressions.functions import SAME_IN_NUMPY
from sqlml.importers.expressions.sql_steps import find_registered, sql_step
from sqlml.importers.frame import Frame
from sqlml.importers.sklearn.estimator_checks import check, check_bounds, explain_option, numbers
from sqlml.ir.builder import Builder, Value
from sqlml.ir.operators.elementwise import ndtri
from sqlml.types import Array, DType

_STEPS: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    "StandardScaler": (("sub", "mean_", "with_mean"), ("div", "scale_", "with_std")),
    "MinMaxScaler": (("mul", "scale_", ""), ("add", "min_", "")),
    "MaxAbsScaler": (("div", "scale_", ""),),
    "RobustScaler": (("sub", "center_", "with_centering"), ("div", "scale_", "with_scaling")),
}
"""Class -> its steps: operator, attribute with a number for each column, parameter that asks."""

_INVERSE = {"sub": "add", "add": "sub", "mul": "div", "div": "mul"}


def scaler(model: Any, frame: Frame) -> Frame:
    """Scale like StandardScaler, MinMaxScaler, MaxAbsScaler and RobustScaler, and clip if asked."""
    steps, b = _steps(model), frame.builder
    value = numbers(frame, type(model).__name__, allow_nan=True)
    for op, column in steps:
        if op == "div" and frame.sparse:  # scikit-learn multiplies sparse rows.
            op, column = "mul", 1 / column
        value = b.op(op, value, column)
    if getattr(model, "clip", False):
        low, high = getattr(model, "feature_range", (-1.0, 1.0))
        # The operators maximum and minimum keep NaN, as np.clip does.
        value = b.op("minimum", b.op("maximum", value, float(low)), float(high))
    return Frame.from_value(b, value, frame.names)


def unscale(b: Builder, model: Any, value: Value) -> Value:
    """Return `model.inverse_transform` of (n, k) float64."""
    for op, column in reversed(_steps(model)):
        value = b.op(_INVERSE[op], value, column)
    return value


def _steps(model: Any) -> list[tuple[str, Array]]:
    rows = _STEPS[type(model).__name__]
    check(model, *(attribute for _, attribute, _ in rows))
    return [
        (op, np.asarray(getattr(model, attribute), np.float64))
        for op, attribute, asked in rows
        if not asked or getattr(model, asked)
    ]


def normalizer(model: Any, frame: Frame) -> Frame:
    """Divide x by the l1, l2 or max norm of its row; rows of (nearly) zeros stay unchanged."""
    check(model)
    b = frame.builder
    x = numbers(frame, "Normalizer")
    match model.norm:
        case "l1":
            norm = b.op("sum", b.op("abs", x), axis=1)
        case "l2":
            norm = b.op("sqrt", b.op("sum", b.op("square", x), axis=1))
        case "max":
            norm = b.op("max", b.op("abs", x), axis=1)
        case _:
            raise explain_option(model, "norm")
    smallest = 10 * np.finfo(np.float64).eps
    is_zero = b.op("eq", norm, 0.0) if frame.sparse else b.op("lt", norm, smallest)
    value = b.op("div", x, b.op("where", is_zero, 1.0, norm))
    return Frame(b, (value,), frame.names, frame.sparse)


def binarizer(model: Any, frame: Frame) -> Frame:
    check(model)
    b = frame.builder
    is_above = b.op("gt", numbers(frame, "Binarizer"), float(model.threshold))
    return Frame(b, (b.op("cast", is_above, dtype="float64"),), frame.names, frame.sparse)


_EPS = float(np.finfo(np.float64).eps)
_SMALLEST = 5e-324
_LOG_MAX = 709.78
"""Above it boxcox leaves expm1, which would overflow."""


def power_transformer(model: Any, frame: Frame) -> Frame:
    """Apply Yeo-Johnson or Box-Cox powers; NaN passes, infinity and invalid numbers raise."""
    check(model, "lambdas_")
    b = frame.builder
    lambdas = np.asarray(model.lambdas_, np.float64)
    x = numbers(frame, "PowerTransformer", allow_nan=True)
    if model.method == "yeo-johnson":
        value = yeo_johnson(b, x, lambdas)
    elif model.method == "box-cox":
        low, step = np.full(x.type.width, _SMALLEST), "PowerTransformer(method='box-cox')"
        x = check_bounds(frame, x, step, allow_nan=True, low=low)
        value = box_cox(b, x, lambdas)
    else:
        raise explain_option(model, "method")
    transformed = Frame.from_value(b, value, frame.names)
    return scaler(model._scaler, transformed) if model.standardize else transformed


def yeo_johnson(b: Builder, x: Value, lambdas: Array) -> Value:
    positive = _scale_power(b, b.op("log1p", x), lambdas, np.abs(lambdas) < _EPS)
    log = b.op("log1p", b.op("neg", x))
    negative = b.op("neg", _scale_power(b, log, 2 - lambdas, np.abs(lambdas - 2) <= _EPS))
    return b.op("where", b.op("ge", x, 0.0), positive, negative)


def _scale_power(b: Builder, log: Value, power: Array, is_zero: Array) -> Value:
    """Return expm1(power * log) / power, or the log itself if the power is nearly 0."""
    divisor = np.where(is_zero, 1.0, power)
    value = b.op("div", b.op("expm1", b.op("mul", divisor, log)), divisor)
    return b.op("where", is_zero, log, value) if is_zero.any() else value


def box_cox(b: Builder, x: Value, lambdas: Array) -> Value:
    is_zero = np.abs(lambdas) < 1e-19
    power = np.where(is_zero, 1.0, lambdas)
    log = b.op("log", x)
    raised = b.op("mul", power, log)
    usual = b.op("div", b.op("expm1", raised), power)
    size = b.op("exp", b.op("sub", raised, np.log(np.abs(power))))
    huge = b.op("sub", b.op("mul", np.sign(power), size), 1 / power)
    value = b.op("where", b.op("lt", raised, _LOG_MAX), usual, huge)
    return b.op("where", is_zero, log, value) if is_zero.any() else value


NEAR = 1e-7
"""scikit-learn's BOUNDS_THRESHOLD: this near to an end of the training range is the end."""


def quantile_transformer(model: Any, frame: Frame) -> Frame:
    """Return the mean of two interpolations, from both sides, so repeated quantiles count half."""
    check(model, "quantiles_", "references_")
    if frame.sparse:
        raise UnsupportedModelError(
            "QuantileTransformer of a sparse matrix skips the zeros that are not stored; make it "
            "dense (sparse_threshold=0, sparse_output=False) before fit"
        )
    if model.output_distribution not in ("uniform", "normal"):
        raise explain_option(model, "output_distribution")
    b = frame.builder
    quantiles = np.asarray(model.quantiles_, np.float64).T
    references = np.asarray(model.references_, np.float64)
    x = numbers(frame, "QuantileTransformer", allow_nan=True)
    value = _interpolate(b, x, quantiles, references)
    lowest, highest = quantiles[:, 0], quantiles[:, -1]
    if model.output_distribution == "uniform":
        is_lowest, is_highest = b.op("eq", x, lowest), b.op("eq", x, highest)
    else:
        is_lowest = b.op("lt", b.op("sub", x, NEAR), lowest)
        is_highest = b.op("gt", b.op("add", x, NEAR), highest)
    value = b.op("where", is_lowest, 0.0, b.op("where", is_highest, 1.0, value))
    if model.output_distribution == "normal":
        edge = NEAR - np.spacing(1)
        value = b.op("maximum", b.op("ndtri", value), ndtri(np.array([edge])))
        value = b.op("minimum", value, ndtri(np.array([1 - edge])))
    return Frame.from_value(b, value, frame.names)


def _interpolate(b: Builder, x: Value, quantiles: Array, references: Array) -> Value:
    columns, points = quantiles.shape
    offsets = np.arange(columns + 1, dtype=np.int64) * points

    def interpolate(x: Value, quantiles: Array, references: Array) -> Value:
        values = np.tile(references, columns)
        return b.op("interpolate", x, points=quantiles.ravel(), values=values, offsets=offsets)

    up = interpolate(x, quantiles, references)
    down = interpolate(b.op("neg", x), -quantiles[:, ::-1], -references[::-1])
    return b.op("mul", 0.5, b.op("sub", up, down))


def k_bins_discretizer(model: Any, frame: Frame) -> Frame:
    """Return the number of inner edges that are not above the value, for all strategies."""
    check(model, "bin_edges_", "n_bins_")
    b = frame.builder
    is_single = model.dtype is not None and np.dtype(model.dtype) == np.float32
    dtype: DType = "float32" if is_single else "float64"
    x = b.cast(numbers(frame, "KBinsDiscretizer", dtype=dtype), "float64")
    inner = [np.asarray(edges, np.float64)[1:-1] for edges in model.bin_edges_]
    offsets = np.cumsum([0, *(edges.size for edges in inner)]).astype(np.int64)
    codes = b.op("search_sorted", x, edges=np.concatenate(inner), offsets=offsets, side="right")
    if model.encode == "ordinal":
        return Frame.from_value(b, b.op("cast", codes, dtype="float64"), frame.names)
    parts: list[Frame] = []
    for i, bins in enumerate(int(n) for n in model.n_bins_):
        code = b.op("select", codes, indices=np.full(1, i, np.int64))
        names = [f"{frame.names[i]}_{float(j)}" for j in range(bins)]
        hot = b.op("one_hot", code, width=bins, dtype="float64")
        parts.append(Frame.from_value(b, hot, names))
    return replace(Frame.hstack(b, parts), sparse=model.encode == "onehot")


def polynomial_features(model: Any, frame: Frame) -> Frame:
    """Return (n, terms) float64; each degree multiplies the previous one by one more column."""
    check(model, "n_output_features_", "_min_degree", "_max_degree")
    b = frame.builder
    x = numbers(frame, "PolynomialFeatures")
    parts: list[Value] = []
    names: list[str] = []
    if model.include_bias:
        first = b.op("select", x, indices=np.zeros(1, np.int64))
        parts, names = [b.op("where", b.op("isnan", first), 1.0, 1.0)], ["1"]
    choose = combinations if model.interaction_only else combinations_with_replacement
    # The columns of each product, in rising order, and twice for a square.
    terms: list[tuple[int, ...]] = [(i,) for i in range(frame.width)]
    value = x
    for degree in range(1, int(model._max_degree) + 1):
        if degree > 1:
            index_of = {term: i for i, term in enumerate(terms)}
            terms = list(choose(range(frame.width), degree))
            if not terms:
                break
            rest = np.array([index_of[term[1:]] for term in terms], np.int64)
            heads = b.op("select", x, indices=np.array([term[0] for term in terms], np.int64))
            value = b.op("mul", b.op("select", value, indices=rest), heads)
        if degree >= model._min_degree:
            parts.append(value)
            names += [" ".join(frame.names[i] for i in term) for term in terms]
    return Frame(b, (b.concat(parts),), tuple(names), frame.sparse)


def spline_transformer(model: Any, frame: Frame) -> Frame:
    """Return the B-spline basis (n, columns * splines); include_bias=False drops the last ones."""
    check(model, "bsplines_", "n_features_out_")
    b = frame.builder
    knots = np.stack([np.asarray(s.t, np.float64) for s in model.bsplines_])
    degree = int(model.degree)
    has_zeros = getattr(model, "handle_missing", "error") == "zeros"
    x = numbers(frame, "SplineTransformer", allow_nan=has_zeros)
    low, high = knots[:, degree], knots[:, -degree - 1]
    if not (high > low).all():
        raise UnsupportedModelError(
            "SplineTransformer was fitted on a column of one value, which leaves its splines no "
            "room; drop the column (VarianceThreshold)"
        )
    match model.extrapolation:
        case "periodic":
            value = _wrap_periods(b, x, knots, degree)
        case "error":
            step = "SplineTransformer(extrapolation='error')"
            x = check_bounds(frame, x, step, allow_nan=True, low=low, high=high)
            value = b.op("bspline", x, knots=knots, degree=degree)
        case "continue":
            value = b.op("bspline", x, knots=knots, degree=degree)
        case "constant":
            value = _continue_constantly(frame, x, model, knots)
        case "linear":
            value = _continue_linearly(b, x, model, knots)
        case _:
            raise explain_option(model, "extrapolation")
    each = value.type.width // frame.width
    if has_zeros:
        value = b.op("where", b.op("isnan", _repeat_columns(b, x, each)), 0.0, value)
    splines = each if model.include_bias else each - 1
    if splines < each:
        columns = [i * each + j for i in range(frame.width) for j in range(splines)]
        value = b.op("select", value, indices=np.array(columns, np.int64))
    names = [f"{name}_sp_{j}" for name in frame.names for j in range(splines)]
    return Frame(b, (value,), tuple(names), bool(model.sparse_output))


def _wrap_periods(b: Builder, x: Value, knots: Array, degree: int) -> Value:
    low = knots[:, degree]
    x = b.op("add", low, b.op("mod", b.op("sub", x, low), knots[:, -degree - 1] - low))
    basis = b.op("bspline", x, knots=knots, degree=degree)
    if not degree:
        return basis
    each = knots.shape[1] - degree - 1
    parts = []
    for start in range(0, each * len(knots), each):
        first, last = np.arange(start, start + each - degree), np.arange(degree) - degree
        head = b.op("select", basis, indices=first[:degree])
        parts.append(b.op("add", head, b.op("select", basis, indices=last + start + each)))
        if first.size > degree:
            parts.append(b.op("select", basis, indices=first[degree:]))
    return b.concat(parts)


def _continue_constantly(frame: Frame, x: Value, model: Any, knots: Array) -> Value:
    """Return the values at the nearer end; with degree 0, zeros below (above, the source fails)."""
    b, degree = frame.builder, int(model.degree)
    if degree == 0:
        step = "SplineTransformer(degree=0, extrapolation='constant')"
        x = check_bounds(frame, x, step, allow_nan=True, high=knots[:, -1])
    return _continue_ends(b, x, model, knots, [(degree, degree)] * len(knots), tangent=False)


def _continue_linearly(b: Builder, x: Value, model: Any, knots: Array) -> Value:
    """Continue with tangents at the ends.

    With degree 0 and 1, scikit-learn increments the degree from column to column, so it uses inner
    knots as the ends of later columns.
    """
    degree, used = int(model.degree), []
    for _ in knots:
        before, degree = degree, degree + (degree <= 1)
        used.append((before, degree))
    return _continue_ends(b, x, model, knots, used, tangent=True)


def _continue_ends(
    b: Builder, x: Value, model: Any, knots: Array, used: list[tuple[int, int]], *, tangent: bool
) -> Value:
    """Return the functions between two knots; outside, the first and last ones continue.

    `used` has for each column the knot that is its end, and how many functions continue.
    """
    each = knots.shape[1] - int(model.degree) - 1
    value = b.op("bspline", x, knots=knots, degree=int(model.degree))
    repeated = _repeat_columns(b, x, each)
    low = [t[knot] for t, (knot, _) in zip(knots, used, strict=True)]
    high = [t[-knot - 1] for t, (knot, _) in zip(knots, used, strict=True)]
    is_inside = b.op(
        "and",
        b.op("ge", repeated, np.repeat(low, each)),
        b.op("le", repeated, np.repeat(high, each)),
    )
    value = b.op("where", is_inside, value, 0.0)
    indices = np.arange(each)
    for ends, comparison in ((low, "lt"), (high, "gt")):
        splines = list(zip(model.bsplines_, ends, strict=True))
        counts = np.array([count for _, count in used])[:, None]
        continues = indices < counts if ends is low else indices >= each - counts
        line: Value | Array = np.concatenate([spline(end) for spline, end in splines])
        repeated_ends = np.repeat(ends, each)
        if tangent:
            slopes = np.concatenate([spline(end, nu=1) for spline, end in splines])
            line = b.op("add", line, b.op("mul", b.op("sub", repeated, repeated_ends), slopes))
        is_outside = b.op("and", b.op(comparison, repeated, repeated_ends), continues.ravel())
        value = b.op("where", is_outside, line, value)
    return value


def _repeat_columns(b: Builder, x: Value, each: int) -> Value:
    return b.op("select", x, indices=np.repeat(np.arange(x.type.width), each).astype(np.int64))


Make = Callable[[Builder, Value], Value]


def function_transformer(model: Any, frame: Frame) -> Frame:
    """Apply the identity, the SQL that is registered for the function, or one of `FUNCTIONS`.

    A FunctionTransformer records no dtypes, so float64 is used, as with `validate=True`, though
    numpy computes np.log of booleans and small integers in smaller floats.
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
