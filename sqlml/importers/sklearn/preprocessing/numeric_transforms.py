"""Numeric transformers: scalers, powers, quantiles, bins, polynomials, splines and functions.

The two operations of a scaler are not merged into one multiply-add, which would round differently.
Powers follow `scipy.stats._morestats._yeojohnson_transform` and `scipy.special.boxcox`.
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
from sqlml.importers.expressions.sql_steps import find_registered, import_sql_step
from sqlml.importers.frame import Frame
from sqlml.importers.sklearn.estimator_checks import (
    check_array,
    check_bounds,
    check_estimator,
    explain_option,
)
from sqlml.ir.builder import Builder, Value
from sqlml.ir.operators.elementwise import ndtri
from sqlml.types import Array, DType

_SCALER_STEPS: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    "StandardScaler": (("sub", "mean_", "with_mean"), ("div", "scale_", "with_std")),
    "MinMaxScaler": (("mul", "scale_", ""), ("add", "min_", "")),
    "MaxAbsScaler": (("div", "scale_", ""),),
    "RobustScaler": (("sub", "center_", "with_centering"), ("div", "scale_", "with_scaling")),
}
"""Maps a class to its steps: an operator, the attribute with its second operand per column, and the
parameter that enables the step, or ""."""

_INVERSE_OPERATORS = {"sub": "add", "add": "sub", "mul": "div", "div": "mul"}


def scaler(model: Any, frame: Frame) -> Frame:
    """Scale with the steps in `_SCALER_STEPS`; if the model has `clip`, clip to `feature_range`."""
    steps, b = _read_scaler_steps(model), frame.builder
    value = check_array(frame, type(model).__name__, allow_nan=True)
    for op, operand in steps:
        if op == "div" and frame.sparse:  # scikit-learn multiplies sparse rows.
            op, operand = "mul", 1 / operand
        value = b.op(op, value, operand)
    if getattr(model, "clip", False):
        low, high = getattr(model, "feature_range", (-1.0, 1.0))
        # The operators maximum and minimum keep NaN, as np.clip does.
        value = b.op("minimum", b.op("maximum", value, float(low)), float(high))
    return Frame.from_value(b, value, frame.names)


def unscale(builder: Builder, model: Any, value: Value) -> Value:
    """Return `model.inverse_transform(value)` for a scaler `model` and an (n, k) float64 value."""
    for op, operand in reversed(_read_scaler_steps(model)):
        value = builder.op(_INVERSE_OPERATORS[op], value, operand)
    return value


def _read_scaler_steps(model: Any) -> list[tuple[str, Array]]:
    steps = _SCALER_STEPS[type(model).__name__]
    check_estimator(model, *(attribute for _, attribute, _ in steps))
    return [
        (op, np.asarray(getattr(model, attribute), np.float64))
        for op, attribute, parameter in steps
        if not parameter or getattr(model, parameter)
    ]


def normalizer(model: Any, frame: Frame) -> Frame:
    """Divide each row by its l1, l2 or max norm, unless the norm is zero or almost zero."""
    check_estimator(model)
    b, x = frame.builder, check_array(frame, "Normalizer")
    match model.norm:
        case "l1":
            norm = b.op("sum", b.op("abs", x), axis=1)
        case "l2":
            norm = b.op("sqrt", b.op("sum", b.op("square", x), axis=1))
        case "max":
            norm = b.op("max", b.op("abs", x), axis=1)
        case _:
            raise explain_option(model, "norm")
    min_norm = 10 * np.finfo(np.float64).eps
    is_zero = b.op("eq", norm, 0.0) if frame.sparse else b.op("lt", norm, min_norm)
    normalized = b.op("div", x, b.op("where", is_zero, 1.0, norm))
    return Frame(b, (normalized,), frame.names, frame.sparse)


def binarizer(model: Any, frame: Frame) -> Frame:
    check_estimator(model)
    b = frame.builder
    is_above = b.op("gt", check_array(frame, "Binarizer"), float(model.threshold))
    return Frame(b, (b.op("cast", is_above, dtype="float64"),), frame.names, frame.sparse)


_EPSILON = float(np.finfo(np.float64).eps)
_MIN_POSITIVE = 5e-324
_MAX_EXPM1_ARGUMENT = 709.78
"""SciPy's boxcox uses expm1 only for arguments up to this limit, because it overflows above."""


def power_transformer(model: Any, frame: Frame) -> Frame:
    """Apply the Yeo-Johnson or Box-Cox transform; NaN stays NaN, and invalid numbers are errors."""
    check_estimator(model, "lambdas_")
    b = frame.builder
    lambdas = np.asarray(model.lambdas_, np.float64)
    x = check_array(frame, "PowerTransformer", allow_nan=True)
    if model.method == "yeo-johnson":
        value = yeo_johnson(b, x, lambdas)
    elif model.method == "box-cox":
        low, step = np.full(x.type.width, _MIN_POSITIVE), "PowerTransformer(method='box-cox')"
        x = check_bounds(frame, x, step, allow_nan=True, low=low)
        value = box_cox(b, x, lambdas)
    else:
        raise explain_option(model, "method")
    transformed = Frame.from_value(b, value, frame.names)
    return scaler(model._scaler, transformed) if model.standardize else transformed


def yeo_johnson(builder: Builder, x: Value, lambdas: Array) -> Value:
    positive = _scale_power(builder, builder.op("log1p", x), lambdas, np.abs(lambdas) < _EPSILON)
    log = builder.op("log1p", builder.op("neg", x))
    negative = builder.op(
        "neg", _scale_power(builder, log, 2 - lambdas, np.abs(lambdas - 2) <= _EPSILON)
    )
    return builder.op("where", builder.op("ge", x, 0.0), positive, negative)


def _scale_power(builder: Builder, log: Value, power: Array, is_zero: Array) -> Value:
    """Return expm1(power * log) / power, or `log` itself where `is_zero` says that power is 0."""
    divisor = np.where(is_zero, 1.0, power)
    value = builder.op("div", builder.op("expm1", builder.op("mul", divisor, log)), divisor)
    return builder.op("where", is_zero, log, value) if is_zero.any() else value


def box_cox(builder: Builder, x: Value, lambdas: Array) -> Value:
    is_zero = np.abs(lambdas) < 1e-19
    power = np.where(is_zero, 1.0, lambdas)
    log = builder.op("log", x)
    exponent = builder.op("mul", power, log)
    ordinary_value = builder.op("div", builder.op("expm1", exponent), power)
    magnitude = builder.op("exp", builder.op("sub", exponent, np.log(np.abs(power))))
    large_value = builder.op("sub", builder.op("mul", np.sign(power), magnitude), 1 / power)
    value = builder.op(
        "where", builder.op("lt", exponent, _MAX_EXPM1_ARGUMENT), ordinary_value, large_value
    )
    return builder.op("where", is_zero, log, value) if is_zero.any() else value


BOUNDS_THRESHOLD = 1e-7
"""A value closer than this to an end of the training range counts as that end."""


def quantile_transformer(model: Any, frame: Frame) -> Frame:
    """Map numbers to their positions among the training quantiles, or to normal deviates.

    If a number equals several quantiles, the mean of an ascending and a descending interpolation is
    the middle of their positions.
    """
    check_estimator(model, "quantiles_", "references_")
    if frame.sparse:
        raise UnsupportedModelError(
            "QuantileTransformer of a sparse matrix skips the zeros that are not stored; make it "
            "dense (sparse_threshold=0, sparse_output=False) before fit"
        )
    if model.output_distribution not in ("uniform", "normal"):
        raise explain_option(model, "output_distribution")
    b = frame.builder
    quantiles = np.asarray(model.quantiles_, np.float64).T
    references = np.broadcast_to(np.asarray(model.references_, np.float64), quantiles.shape)
    x = check_array(frame, "QuantileTransformer", allow_nan=True)
    ascending = interpolate_columns(b, x, quantiles, references)
    descending = interpolate_columns(b, b.op("neg", x), -quantiles[:, ::-1], -references[:, ::-1])
    value = b.op("mul", 0.5, b.op("sub", ascending, descending))
    lowest, highest = quantiles[:, 0], quantiles[:, -1]
    if model.output_distribution == "uniform":
        is_lowest, is_highest = b.op("eq", x, lowest), b.op("eq", x, highest)
    else:
        is_lowest = b.op("lt", b.op("sub", x, BOUNDS_THRESHOLD), lowest)
        is_highest = b.op("gt", b.op("add", x, BOUNDS_THRESHOLD), highest)
    value = b.op("where", is_lowest, 0.0, b.op("where", is_highest, 1.0, value))
    if model.output_distribution == "normal":
        min_share = BOUNDS_THRESHOLD - np.spacing(1)
        value = b.op("maximum", b.op("ndtri", value), ndtri(np.array([min_share])))
        value = b.op("minimum", value, ndtri(np.array([1 - min_share])))
    return Frame.from_value(b, value, frame.names)


def interpolate_columns(builder: Builder, x: Value, points: Array, values: Array) -> Value:
    """Interpolate column i of x, (n, k), through `points[i]` and `values[i]`, each (k, m)."""
    offsets = np.arange(len(points) + 1, dtype=np.int64) * points.shape[1]
    return builder.op(
        "interpolate", x, points=points.ravel(), values=values.ravel(), offsets=offsets
    )


def k_bins_discretizer(model: Any, frame: Frame) -> Frame:
    """Return the bin of each value, which counts the inner edges up to it, or one-hot columns."""
    check_estimator(model, "bin_edges_", "n_bins_")
    b = frame.builder
    is_float32 = model.dtype is not None and np.dtype(model.dtype) == np.float32
    dtype: DType = "float32" if is_float32 else "float64"
    x = b.cast(check_array(frame, "KBinsDiscretizer", dtype=dtype), "float64")
    inner_edges = [np.asarray(edges, np.float64)[1:-1] for edges in model.bin_edges_]
    offsets = np.cumsum([0, *(edges.size for edges in inner_edges)]).astype(np.int64)
    edges = np.concatenate(inner_edges)
    codes = b.op("search_sorted", x, edges=edges, offsets=offsets, side="right")
    if model.encode == "ordinal":
        return Frame.from_value(b, b.op("cast", codes, dtype="float64"), frame.names)
    frames: list[Frame] = []
    for i, num_bins in enumerate(int(n) for n in model.n_bins_):
        column_codes = b.op("select", codes, indices=np.full(1, i, np.int64))
        names = [f"{frame.names[i]}_{float(j)}" for j in range(num_bins)]
        indicators = b.op("one_hot", column_codes, width=num_bins, dtype="float64")
        frames.append(Frame.from_value(b, indicators, names))
    return replace(Frame.hstack(b, frames), sparse=model.encode == "onehot")


def polynomial_features(model: Any, frame: Frame) -> Frame:
    """Return the products of columns up to a degree; products of lower degree are reused."""
    check_estimator(model, "n_output_features_", "_min_degree", "_max_degree")
    b, x = frame.builder, check_array(frame, "PolynomialFeatures")
    blocks: list[Value] = []
    names: list[str] = []
    if model.include_bias:
        first_column = b.op("select", x, indices=np.zeros(1, np.int64))
        blocks, names = [b.op("where", b.op("isnan", first_column), 1.0, 1.0)], ["1"]
    choose = combinations if model.interaction_only else combinations_with_replacement
    # A term is an ascending tuple of column indices; in a power, an index is repeated.
    terms: list[tuple[int, ...]] = [(i,) for i in range(frame.width)]
    products = x
    for degree in range(1, int(model._max_degree) + 1):
        if degree > 1:
            index_by_term = {term: i for i, term in enumerate(terms)}
            terms = list(choose(range(frame.width), degree))
            if not terms:
                break
            previous_indices = np.array([index_by_term[term[1:]] for term in terms], np.int64)
            multipliers = b.op("select", x, indices=np.array([term[0] for term in terms], np.int64))
            products = b.op("mul", b.op("select", products, indices=previous_indices), multipliers)
        if degree >= model._min_degree:
            blocks.append(products)
            names += [" ".join(frame.names[i] for i in term) for term in terms]
    return Frame(b, (b.concat(blocks),), tuple(names), frame.sparse)


def spline_transformer(model: Any, frame: Frame) -> Frame:
    """Return the B-splines of each column; include_bias=False drops the last spline of each."""
    check_estimator(model, "bsplines_", "n_features_out_")
    b = frame.builder
    knots = np.stack([np.asarray(s.t, np.float64) for s in model.bsplines_])
    degree = int(model.degree)
    fills_zeros = getattr(model, "handle_missing", "error") == "zeros"
    x = check_array(frame, "SplineTransformer", allow_nan=fills_zeros)
    low, high = knots[:, degree], knots[:, -degree - 1]
    if not (high > low).all():
        raise UnsupportedModelError(
            "SplineTransformer was fitted on a column with a single value, for which its splines "
            "are not defined; drop the column (VarianceThreshold)"
        )
    if model.extrapolation == "error":
        step = "SplineTransformer(extrapolation='error')"
        x = check_bounds(frame, x, step, allow_nan=True, low=low, high=high)
    match model.extrapolation:
        case "periodic":
            value = _build_periodic_basis(b, x, knots, degree)
        case "error" | "continue":
            value = b.op("bspline", x, knots=knots, degree=degree)
        case "constant":
            value = _continue_as_constants(frame, x, model, knots)
        case "linear":
            value = _continue_as_tangents(b, x, model, knots)
        case _:
            raise explain_option(model, "extrapolation")
    splines_per_column = value.type.width // frame.width
    if fills_zeros:
        value = b.op("where", b.op("isnan", _repeat_columns(b, x, splines_per_column)), 0.0, value)
    num_kept = splines_per_column if model.include_bias else splines_per_column - 1
    if num_kept < splines_per_column:
        kept_columns = np.arange(value.type.width).reshape(frame.width, -1)[:, :num_kept]
        value = b.op("select", value, indices=kept_columns.ravel())
    names = [f"{name}_sp_{j}" for name in frame.names for j in range(num_kept)]
    return Frame(b, (value,), tuple(names), bool(model.sparse_output))


def _build_periodic_basis(builder: Builder, x: Value, knots: Array, degree: int) -> Value:
    """Return periodic splines: wrap x into one period, and add the last splines to the first."""
    low, high = knots[:, degree], knots[:, -degree - 1]
    wrapped = builder.op("add", low, builder.op("mod", builder.op("sub", x, low), high - low))
    basis = builder.op("bspline", wrapped, knots=knots, degree=degree)
    if not degree:
        return basis
    splines_per_column = knots.shape[1] - degree - 1
    blocks = []
    for start in range(0, splines_per_column * len(knots), splines_per_column):
        end = start + splines_per_column
        kept, overlapping = np.arange(start, end - degree), np.arange(end - degree, end)
        first_splines = builder.op("select", basis, indices=kept[:degree])
        last_splines = builder.op("select", basis, indices=overlapping)
        blocks.append(builder.op("add", first_splines, last_splines))
        if kept.size > degree:
            blocks.append(builder.op("select", basis, indices=kept[degree:]))
    return builder.concat(blocks)


def _continue_as_constants(frame: Frame, x: Value, model: Any, knots: Array) -> Value:
    """Return splines that, outside of the training range, keep their value at the nearer end.

    Splines of degree 0 are zero below the range, and a value above the range raises an error.
    """
    b, degree = frame.builder, int(model.degree)
    if degree == 0:
        step = "SplineTransformer(degree=0, extrapolation='constant')"
        x = check_bounds(frame, x, step, allow_nan=True, high=knots[:, -1])
    return _continue_at_ends(b, x, model, knots, [(degree, degree)] * len(knots), tangent=False)


def _continue_as_tangents(builder: Builder, x: Value, model: Any, knots: Array) -> Value:
    """Return splines that, outside of the training range, follow their tangents.

    For degrees 0 and 1, scikit-learn increments the degree from column to column, so later columns
    end at inner knots.
    """
    degree, ends = int(model.degree), []
    for _ in knots:
        end_knot, degree = degree, degree + (degree <= 1)
        ends.append((end_knot, degree))
    return _continue_at_ends(builder, x, model, knots, ends, tangent=True)


def _continue_at_ends(
    builder: Builder,
    x: Value,
    model: Any,
    knots: Array,
    ends: list[tuple[int, int]],
    *,
    tangent: bool,
) -> Value:
    """Return the splines of each column; the outer splines continue beyond two end knots.

    For each column, `ends` has the index of the end knot, counted from either side, and the number
    of splines that continue there: as tangents if `tangent` is true, otherwise as constants.
    """
    num_splines = knots.shape[1] - int(model.degree) - 1
    basis = builder.op("bspline", x, knots=knots, degree=int(model.degree))
    repeated_x = _repeat_columns(builder, x, num_splines)
    low = [column_knots[knot] for column_knots, (knot, _) in zip(knots, ends, strict=True)]
    high = [column_knots[-knot - 1] for column_knots, (knot, _) in zip(knots, ends, strict=True)]
    is_above_low = builder.op("ge", repeated_x, np.repeat(low, num_splines))
    is_below_high = builder.op("le", repeated_x, np.repeat(high, num_splines))
    basis = builder.op("where", builder.op("and", is_above_low, is_below_high), basis, 0.0)
    indices = np.arange(num_splines)
    counts = np.array([num_continued for _, num_continued in ends])[:, None]
    for end_points, comparison in ((low, "lt"), (high, "gt")):
        splines = list(zip(model.bsplines_, end_points, strict=True))
        is_continued = indices < counts if end_points is low else indices >= num_splines - counts
        continuation: Value | Array = np.concatenate([spline(end) for spline, end in splines])
        repeated_ends = np.repeat(end_points, num_splines)
        if tangent:
            slopes = np.concatenate([spline(end, nu=1) for spline, end in splines])
            distances = builder.op("sub", repeated_x, repeated_ends)
            continuation = builder.op("add", continuation, builder.op("mul", distances, slopes))
        is_outside = builder.op(
            "and", builder.op(comparison, repeated_x, repeated_ends), is_continued.ravel()
        )
        basis = builder.op("where", is_outside, continuation, basis)
    return basis


def _repeat_columns(builder: Builder, x: Value, repeats: int) -> Value:
    return builder.op(
        "select", x, indices=np.repeat(np.arange(x.type.width), repeats).astype(np.int64)
    )


ValueFunction = Callable[[Builder, Value], Value]


def function_transformer(model: Any, frame: Frame) -> Frame:
    """Apply the function's registered SQL, its entry in `FUNCTIONS`, or the identity for None.

    The function is computed in float64, as with `validate=True`, because a FunctionTransformer
    records no dtypes; numpy itself computes np.log of small integers in smaller floats.
    """
    check_estimator(model)
    func = model.func
    registration = None if func is None or model.kw_args else find_registered(func)
    if registration is not None:
        return import_sql_step(func, frame, registration)
    compute = None if func is None else find_function(func)
    if func is not None:
        name = getattr(func, "__name__", repr(func))
        example = "the_function" if name == "<lambda>" else name
        if compute is None:
            raise UnsupportedModelError(
                f"FunctionTransformer calls the Python function {name}, which cannot run inside "
                f"SQL; register its SQL with sqlml.register_step({example}, sql=...), or use a "
                "scikit-learn transformer, or a function of numpy such as np.log1p or np.sqrt"
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
    if compute is None and not model.validate:
        return frame
    x = check_array(frame, "FunctionTransformer") if model.validate else frame.matrix()
    value = frame.builder.cast(x if compute is None else compute(frame.builder, x), "float64")
    return Frame(frame.builder, (value,), frame.names, frame.sparse)


def find_function(function: Any) -> ValueFunction | None:
    return FUNCTIONS.get(function) if isinstance(function, Hashable) else None


def _make_operator(name: str) -> ValueFunction:
    return lambda builder, x: builder.op(name, x)


def _replace_non_finite(builder: Builder, x: Value) -> Value:
    """Compute np.nan_to_num: replace NaN with 0 and infinities with the largest floats."""
    largest = np.finfo(np.float64).max
    x = builder.op("minimum", builder.op("where", builder.op("isnan", x), 0.0, x), largest)
    return builder.op("maximum", x, -largest)


FUNCTIONS: Mapping[Any, ValueFunction] = {
    **{getattr(np, name): _make_operator(name) for name in (*SAME_IN_NUMPY, "isnan")},
    np.absolute: _make_operator("abs"),
    np.around: _make_operator("rint"),
    np.deg2rad: lambda builder, x: builder.op("mul", x, math.pi / 180),
    np.degrees: lambda builder, x: builder.op("mul", x, 180 / math.pi),
    np.fabs: _make_operator("abs"),
    np.isfinite: lambda builder, x: builder.op("lt", builder.op("abs", x), np.inf),
    np.isinf: lambda builder, x: builder.op("eq", builder.op("abs", x), np.inf),
    np.logical_not: lambda builder, x: builder.op("eq", x, 0.0),
    np.nan_to_num: _replace_non_finite,
    np.negative: _make_operator("neg"),
    np.positive: lambda builder, x: x,
    np.rad2deg: lambda builder, x: builder.op("mul", x, 180 / math.pi),
    np.radians: lambda builder, x: builder.op("mul", x, math.pi / 180),
    np.reciprocal: lambda builder, x: builder.op("div", 1.0, x),
    np.round: _make_operator("rint"),
}
