"""Numeric transformers: scalers, powers, quantiles, bins, polynomials, splines and functions.

The two operations of a scaler are not merged into a multiply-add, which would round differently.
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
    make_option_error,
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
"""Maps a class to steps: an operator, the attribute that has the second operand of each column, and
the parameter that enables the step, or ""."""

_INVERSE_OPERATORS = {"sub": "add", "add": "sub", "mul": "div", "div": "mul"}


def import_scaler(model: Any, frame: Frame) -> Frame:
    """Scale columns with `_SCALER_STEPS`; clip them to `feature_range` if `clip` is true."""
    steps = _read_scaler_steps(model)
    op = frame.builder.op
    scaled = check_array(frame, type(model).__name__, allow_nan=True)
    for operator, operand in steps:
        if operator == "div" and frame.sparse:  # scikit-learn multiplies sparse rows.
            operator, operand = "mul", 1 / operand
        scaled = op(operator, scaled, operand)
    if getattr(model, "clip", False):
        low, high = getattr(model, "feature_range", (-1.0, 1.0))
        # The operators maximum and minimum keep NaN, as np.clip does.
        scaled = op("minimum", op("maximum", scaled, float(low)), float(high))
    return Frame.from_value(frame.builder, scaled, frame.names)


def unscale(builder: Builder, model: Any, value: Value) -> Value:
    """Return the inverse transform of a scaler for an (n, k) float64 value."""
    for operator, operand in reversed(_read_scaler_steps(model)):
        value = builder.op(_INVERSE_OPERATORS[operator], value, operand)
    return value


def _read_scaler_steps(model: Any) -> list[tuple[str, Array]]:
    steps = _SCALER_STEPS[type(model).__name__]
    check_estimator(model, *(attribute for _, attribute, _ in steps))
    used = [(op, name) for op, name, option in steps if not option or getattr(model, option)]
    return [(op, np.asarray(getattr(model, name), np.float64)) for op, name in used]


def import_normalizer(model: Any, frame: Frame) -> Frame:
    """Divide each row by the l1, l2 or max norm, unless the norm is almost zero."""
    check_estimator(model)
    op = frame.builder.op
    x = check_array(frame, "Normalizer")
    match model.norm:
        case "l1":
            norm = op("sum", op("abs", x), axis=1)
        case "l2":
            norm = op("sqrt", op("sum", op("square", x), axis=1))
        case "max":
            norm = op("max", op("abs", x), axis=1)
        case _:
            raise make_option_error(model, "norm")
    min_norm = 10 * np.finfo(np.float64).eps
    is_zero = op("eq", norm, 0.0) if frame.sparse else op("lt", norm, min_norm)
    normalized = op("div", x, op("where", is_zero, 1.0, norm))
    return Frame(frame.builder, (normalized,), frame.names, frame.sparse)


def import_binarizer(model: Any, frame: Frame) -> Frame:
    check_estimator(model)
    builder = frame.builder
    is_above = builder.op("gt", check_array(frame, "Binarizer"), float(model.threshold))
    indicators = builder.op("cast", is_above, dtype="float64")
    return Frame(builder, (indicators,), frame.names, frame.sparse)


_EPSILON = float(np.finfo(np.float64).eps)
_MIN_POSITIVE = 5e-324
_MAX_EXPM1_ARGUMENT = 709.78
"""SciPy's boxcox uses expm1 only for arguments up to this limit, because it overflows above."""


def import_power_transformer(model: Any, frame: Frame) -> Frame:
    """Apply the Yeo-Johnson or Box-Cox transform; NaN stays NaN."""
    check_estimator(model, "lambdas_")
    builder = frame.builder
    lambdas = np.asarray(model.lambdas_, np.float64)
    x = check_array(frame, "PowerTransformer", allow_nan=True)
    if model.method == "yeo-johnson":
        powers = apply_yeo_johnson(builder, x, lambdas)
    elif model.method == "box-cox":
        step = "PowerTransformer(method='box-cox')"
        low = np.full(x.type.width, _MIN_POSITIVE)
        x = check_bounds(frame, x, step, allow_nan=True, low=low)
        powers = apply_box_cox(builder, x, lambdas)
    else:
        raise make_option_error(model, "method")
    transformed = Frame.from_value(builder, powers, frame.names)
    return import_scaler(model._scaler, transformed) if model.standardize else transformed


def apply_yeo_johnson(builder: Builder, x: Value, lambdas: Array) -> Value:
    op = builder.op
    positive = _scale_power(builder, op("log1p", x), lambdas, np.abs(lambdas) < _EPSILON)
    log_of_negative = op("log1p", op("neg", x))
    negative = op(
        "neg", _scale_power(builder, log_of_negative, 2 - lambdas, np.abs(lambdas - 2) <= _EPSILON)
    )
    return op("where", op("ge", x, 0.0), positive, negative)


def _scale_power(builder: Builder, log: Value, power: Array, is_zero: Array) -> Value:
    """Return expm1(power * log) / power, or `log` where `is_zero` is true."""
    op = builder.op
    divisor = np.where(is_zero, 1.0, power)
    scaled = op("div", op("expm1", op("mul", divisor, log)), divisor)
    return op("where", is_zero, log, scaled) if is_zero.any() else scaled


def apply_box_cox(builder: Builder, x: Value, lambdas: Array) -> Value:
    op = builder.op
    is_zero = np.abs(lambdas) < 1e-19
    power = np.where(is_zero, 1.0, lambdas)
    log_x = op("log", x)
    exponent = op("mul", power, log_x)
    expm1_value = op("div", op("expm1", exponent), power)
    magnitude = op("exp", op("sub", exponent, np.log(np.abs(power))))
    exp_value = op("sub", op("mul", np.sign(power), magnitude), 1 / power)
    transformed = op("where", op("lt", exponent, _MAX_EXPM1_ARGUMENT), expm1_value, exp_value)
    return op("where", is_zero, log_x, transformed) if is_zero.any() else transformed


BOUNDS_THRESHOLD = 1e-7
"""A value closer than this to an end of the training range counts as that end."""


def import_quantile_transformer(model: Any, frame: Frame) -> Frame:
    """Map numbers to positions among the training quantiles, or to normal deviates.

    If a number equals several quantiles, the mean of an ascending and a descending interpolation is
    the middle of the positions.
    """
    check_estimator(model, "quantiles_", "references_")
    if frame.sparse:
        raise UnsupportedModelError(
            "QuantileTransformer of a sparse matrix skips the zeros that are not stored; make it "
            "dense (sparse_threshold=0, sparse_output=False) before fit"
        )
    if model.output_distribution not in ("uniform", "normal"):
        raise make_option_error(model, "output_distribution")
    builder = frame.builder
    op = builder.op
    quantiles = np.asarray(model.quantiles_, np.float64).T
    references = np.broadcast_to(np.asarray(model.references_, np.float64), quantiles.shape)
    x = check_array(frame, "QuantileTransformer", allow_nan=True)
    ascending = interpolate_columns(builder, x, quantiles, references)
    reversed_quantiles, reversed_references = -quantiles[:, ::-1], -references[:, ::-1]
    descending = interpolate_columns(builder, op("neg", x), reversed_quantiles, reversed_references)
    positions = op("mul", 0.5, op("sub", ascending, descending))
    lowest, highest = quantiles[:, 0], quantiles[:, -1]
    if model.output_distribution == "uniform":
        is_lowest, is_highest = op("eq", x, lowest), op("eq", x, highest)
    else:
        is_lowest = op("lt", op("sub", x, BOUNDS_THRESHOLD), lowest)
        is_highest = op("gt", op("add", x, BOUNDS_THRESHOLD), highest)
    positions = op("where", is_lowest, 0.0, op("where", is_highest, 1.0, positions))
    if model.output_distribution == "normal":
        min_share = BOUNDS_THRESHOLD - np.spacing(1)
        positions = op("maximum", op("ndtri", positions), ndtri(np.array([min_share])))
        positions = op("minimum", positions, ndtri(np.array([1 - min_share])))
    return Frame.from_value(builder, positions, frame.names)


def interpolate_columns(builder: Builder, x: Value, points: Array, values: Array) -> Value:
    """Interpolate column i of x, (n, k), through `points[i]` and `values[i]`."""
    offsets = np.arange(len(points) + 1, dtype=np.int64) * points.shape[1]
    tables = {"points": points.ravel(), "values": values.ravel()}
    return builder.op("interpolate", x, **tables, offsets=offsets)


def import_k_bins_discretizer(model: Any, frame: Frame) -> Frame:
    """Return the index of each number's bin, or one-hot columns of the bins."""
    check_estimator(model, "bin_edges_", "n_bins_")
    builder = frame.builder
    op = builder.op
    is_float32 = model.dtype is not None and np.dtype(model.dtype) == np.float32
    dtype: DType = "float32" if is_float32 else "float64"
    x = builder.cast(check_array(frame, "KBinsDiscretizer", dtype=dtype), "float64")
    inner_edges = [np.asarray(edges, np.float64)[1:-1] for edges in model.bin_edges_]
    offsets = np.cumsum([0, *(edges.size for edges in inner_edges)]).astype(np.int64)
    edges = np.concatenate(inner_edges)
    codes = op("search_sorted", x, edges=edges, offsets=offsets, side="right")
    if model.encode == "ordinal":
        return Frame.from_value(builder, op("cast", codes, dtype="float64"), frame.names)
    frames: list[Frame] = []
    for i, num_bins in enumerate(int(n) for n in model.n_bins_):
        column_codes = op("select", codes, indices=np.full(1, i, np.int64))
        names = [f"{frame.names[i]}_{float(j)}" for j in range(num_bins)]
        indicators = op("one_hot", column_codes, width=num_bins, dtype="float64")
        frames.append(Frame.from_value(builder, indicators, names))
    return replace(Frame.hstack(builder, frames), sparse=model.encode == "onehot")


def import_polynomial_features(model: Any, frame: Frame) -> Frame:
    """Return the products of columns up to a degree, each computed from a smaller product."""
    check_estimator(model, "n_output_features_", "_min_degree", "_max_degree")
    op = frame.builder.op
    x = check_array(frame, "PolynomialFeatures")
    blocks: list[Value] = []
    names: list[str] = []
    if model.include_bias:
        first_column = op("select", x, indices=np.zeros(1, np.int64))
        blocks.append(op("where", op("isnan", first_column), 1.0, 1.0))
        names.append("1")
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
            multipliers = op("select", x, indices=np.array([term[0] for term in terms], np.int64))
            products = op("mul", op("select", products, indices=previous_indices), multipliers)
        if degree >= model._min_degree:
            blocks.append(products)
            names += [" ".join(frame.names[i] for i in term) for term in terms]
    return Frame(frame.builder, (frame.builder.concat(blocks),), tuple(names), frame.sparse)


def import_spline_transformer(model: Any, frame: Frame) -> Frame:
    """Return the B-splines of each column; include_bias=False drops the last spline."""
    check_estimator(model, "bsplines_", "n_features_out_")
    builder = frame.builder
    op = builder.op
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
            splines = _build_periodic_basis(builder, x, knots, degree)
        case "error" | "continue":
            splines = op("bspline", x, knots=knots, degree=degree)
        case "constant":
            splines = _continue_as_constants(frame, x, model, knots)
        case "linear":
            splines = _continue_as_tangents(builder, x, model, knots)
        case _:
            raise make_option_error(model, "extrapolation")
    splines_per_column = splines.type.width // frame.width
    if fills_zeros:
        is_missing = op("isnan", _repeat_columns(builder, x, splines_per_column))
        splines = op("where", is_missing, 0.0, splines)
    num_kept = splines_per_column if model.include_bias else splines_per_column - 1
    if num_kept < splines_per_column:
        kept_columns = np.arange(splines.type.width).reshape(frame.width, -1)[:, :num_kept]
        splines = op("select", splines, indices=kept_columns.ravel())
    names = [f"{name}_sp_{j}" for name in frame.names for j in range(num_kept)]
    return Frame(builder, (splines,), tuple(names), bool(model.sparse_output))


def _build_periodic_basis(builder: Builder, x: Value, knots: Array, degree: int) -> Value:
    """Return periodic splines: wrap x into one period, and add the last splines to the first."""
    op = builder.op
    low, high = knots[:, degree], knots[:, -degree - 1]
    wrapped = op("add", low, op("mod", op("sub", x, low), high - low))
    basis = op("bspline", wrapped, knots=knots, degree=degree)
    if not degree:
        return basis
    splines_per_column = knots.shape[1] - degree - 1
    blocks = []
    for start in range(0, splines_per_column * len(knots), splines_per_column):
        end = start + splines_per_column
        kept, overlapping = np.arange(start, end - degree), np.arange(end - degree, end)
        first_splines = op("select", basis, indices=kept[:degree])
        last_splines = op("select", basis, indices=overlapping)
        blocks.append(op("add", first_splines, last_splines))
        if kept.size > degree:
            blocks.append(op("select", basis, indices=kept[degree:]))
    return builder.concat(blocks)


def _continue_as_constants(frame: Frame, x: Value, model: Any, knots: Array) -> Value:
    """Return splines that keep the value at the nearer end outside of the training range."""
    degree = int(model.degree)
    if degree == 0:  # Splines are zero below the range, and a value above it raises an error.
        step = "SplineTransformer(degree=0, extrapolation='constant')"
        x = check_bounds(frame, x, step, allow_nan=True, high=knots[:, -1])
    ends = [(degree, degree)] * len(knots)
    return _continue_at_ends(frame.builder, x, model, knots, ends, tangent=False)


def _continue_as_tangents(builder: Builder, x: Value, model: Any, knots: Array) -> Value:
    """Return splines that follow their tangents outside of the training range.

    For degrees 0 and 1, scikit-learn increments the degree from column to column, so later columns
    end at inner knots.
    """
    ends: list[tuple[int, int]] = []
    degree = int(model.degree)
    for _ in knots:
        end_knot, degree = degree, degree + (degree <= 1)
        ends.append((end_knot, degree))
    return _continue_at_ends(builder, x, model, knots, ends, tangent=True)


def _continue_at_ends(
    builder: Builder, x: Value, model: Any, knots: Array, ends: list[tuple[int, int]], tangent: bool
) -> Value:
    """Return the splines of each column; the outer splines continue beyond two end knots.

    `ends` has, for each column, the index of the end knot from either side and the number of
    splines that continue. They continue as tangents if `tangent` is true, otherwise as constants.
    """
    op = builder.op
    num_splines = knots.shape[1] - int(model.degree) - 1
    basis = op("bspline", x, knots=knots, degree=int(model.degree))
    repeated_x = _repeat_columns(builder, x, num_splines)
    low = [column_knots[knot] for column_knots, (knot, _) in zip(knots, ends, strict=True)]
    high = [column_knots[-knot - 1] for column_knots, (knot, _) in zip(knots, ends, strict=True)]
    is_above_low = op("ge", repeated_x, np.repeat(low, num_splines))
    is_below_high = op("le", repeated_x, np.repeat(high, num_splines))
    basis = op("where", op("and", is_above_low, is_below_high), basis, 0.0)
    indices = np.arange(num_splines)
    counts = np.array([num_continued for _, num_continued in ends])[:, None]
    for end_points, comparison in ((low, "lt"), (high, "gt")):
        splines = list(zip(model.bsplines_, end_points, strict=True))
        is_continued = indices < counts if end_points is low else indices >= num_splines - counts
        continuation: Value | Array = np.concatenate([spline(end) for spline, end in splines])
        repeated_ends = np.repeat(end_points, num_splines)
        if tangent:
            slopes = np.concatenate([spline(end, nu=1) for spline, end in splines])
            distances = op("sub", repeated_x, repeated_ends)
            continuation = op("add", continuation, op("mul", distances, slopes))
        is_outside = op("and", op(comparison, repeated_x, repeated_ends), is_continued.ravel())
        basis = op("where", is_outside, continuation, basis)
    return basis


def _repeat_columns(builder: Builder, x: Value, repeats: int) -> Value:
    indices = np.repeat(np.arange(x.type.width), repeats).astype(np.int64)
    return builder.op("select", x, indices=indices)


ValueFunction = Callable[[Builder, Value], Value]


def import_function_transformer(model: Any, frame: Frame) -> Frame:
    """Apply the registered SQL of the function, an entry of `FUNCTIONS`, or the identity.

    The function is computed in float64, because a FunctionTransformer records no dtypes. numpy
    computes functions of small integers in smaller floats.
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
    computed = frame.builder.cast(x if compute is None else compute(frame.builder, x), "float64")
    return Frame(frame.builder, (computed,), frame.names, frame.sparse)


def find_function(function: Any) -> ValueFunction | None:
    return FUNCTIONS.get(function) if isinstance(function, Hashable) else None


def _make_operator(name: str) -> ValueFunction:
    return lambda builder, x: builder.op(name, x)


def _replace_non_finite(builder: Builder, x: Value) -> Value:
    """Compute np.nan_to_num: replace NaN by 0 and infinities by the largest floats."""
    op = builder.op
    largest = np.finfo(np.float64).max
    x = op("minimum", op("where", op("isnan", x), 0.0, x), largest)
    return op("maximum", x, -largest)


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
