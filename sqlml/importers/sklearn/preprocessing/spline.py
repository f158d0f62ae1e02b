"""SplineTransformer: the B-spline basis of each column, and what it does outside the knots."""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame
from sqlml.importers.sklearn.checked import numbers, within
from sqlml.importers.sklearn.fitted import check
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array

_OUTSIDE = ("error", "constant", "linear", "continue", "periodic")


def spline_transformer(model: Any, frame: Frame) -> Frame:
    """(n, columns * splines) float64; without include_bias each column's last spline is left out.

    NaN gives zeros with handle_missing="zeros", else it raises. With extrapolation="error" a
    number beyond the outer knots raises.
    """
    check(model, "bsplines_", "n_features_out_")
    if model.extrapolation not in _OUTSIDE:
        raise UnsupportedModelError(
            f"SplineTransformer(extrapolation={model.extrapolation!r}) is not known to sqlml"
        )
    b = frame.builder
    knots = np.stack([np.asarray(s.t, np.float64) for s in model.bsplines_])
    degree = int(model.degree)
    zeros = getattr(model, "handle_missing", "error") == "zeros"
    x = numbers(frame, "SplineTransformer", allow_nan=zeros)
    ends = knots[:, degree], knots[:, -degree - 1]
    if not (ends[1] > ends[0]).all():
        raise UnsupportedModelError(
            "SplineTransformer was fitted on a column of one value, which leaves its splines no "
            "room; drop the column (VarianceThreshold)"
        )
    if model.extrapolation == "periodic":
        value = _periodic(b, x, knots, degree, ends)
    elif model.extrapolation == "error":
        step = "SplineTransformer(extrapolation='error')"
        x = within(frame, x, step, allow_nan=True, low=ends[0], high=ends[1])
        value = b.op("bspline", x, knots=knots, degree=degree)
    elif model.extrapolation == "continue":
        value = b.op("bspline", x, knots=knots, degree=degree)
    elif model.extrapolation == "constant":
        value = _constant(frame, x, model, knots)
    else:
        value = _linear(b, x, model, knots)
    each = value.type.width // frame.width
    if zeros:
        gone = b.op("isnan", _repeated(b, x, each))
        value = b.op("where", gone, 0.0, value)
    kept = each if model.include_bias else each - 1
    if kept < each:
        columns = [i * each + j for i in range(frame.width) for j in range(kept)]
        value = b.op("select", value, indices=np.array(columns, np.int64))
    names = [f"{name}_sp_{j}" for name in frame.names for j in range(kept)]
    return Frame(b, (value,), tuple(names), bool(model.sparse_output))


def _periodic(b: Builder, x: Value, knots: Array, degree: int, ends: tuple[Array, Array]) -> Value:
    """The last `degree` functions are the first ones of the next period."""
    low, period = ends[0], ends[1] - ends[0]
    x = b.op("add", low, b.op("mod", b.op("sub", x, low), period))
    whole = b.op("bspline", x, knots=knots, degree=degree)
    each = knots.shape[1] - degree - 1
    if not degree:
        return whole
    columns = np.arange(len(knots))[:, None] * each
    base = b.op("select", whole, indices=(columns + np.arange(each - degree)).ravel())
    last = (columns + each - degree + np.arange(degree)).ravel()
    wrapped = b.op("select", whole, indices=last)
    parts = []
    for i in range(len(knots)):
        own = np.arange(each - degree) + i * (each - degree)
        head = b.op("select", base, indices=own[:degree])
        more = b.op("select", wrapped, indices=np.arange(degree) + i * degree)
        parts.append(b.op("add", head, more))
        if own.size > degree:
            parts.append(b.op("select", base, indices=own[degree:]))
    return b.beside(parts)


def _constant(frame: Frame, x: Value, model: Any, knots: Array) -> Value:
    """The values at the nearer end; with degree 0 zeros below, and above scikit-learn fails."""
    b, degree = frame.builder, int(model.degree)
    if degree == 0:
        step = "SplineTransformer(degree=0, extrapolation='constant')"
        x = within(frame, x, step, allow_nan=True, high=knots[:, -1])
    return _continued(b, x, model, knots, [(degree, degree)] * len(knots), tangent=False)


def _linear(b: Builder, x: Value, model: Any, knots: Array) -> Value:
    """Tangents at the ends. With degree 0 and 1 scikit-learn counts the degree up from column to
    column, and so takes inner knots for the ends of all columns but the first (or two)."""
    degree, used = int(model.degree), []
    for _ in knots:
        before, degree = degree, degree + (degree <= 1)
        used.append((before, degree))
    return _continued(b, x, model, knots, used, tangent=True)


def _continued(
    b: Builder,
    x: Value,
    model: Any,
    knots: Array,
    used: list[tuple[int, int]],
    *,
    tangent: bool,
) -> Value:
    """The functions between two knots; outside, the first and the last ones go on, others are 0.

    Args:
        used: for each column which knot from either side is its end, and how many functions go on.
    """
    each = knots.shape[1] - int(model.degree) - 1
    value = b.op("bspline", x, knots=knots, degree=int(model.degree))
    wide = _repeated(b, x, each)
    low = np.array([t[at] for t, (at, _) in zip(knots, used, strict=True)])
    high = np.array([t[-at - 1] for t, (at, _) in zip(knots, used, strict=True)])
    ends = [np.repeat(end, each) for end in (low, high)]
    inside = b.op("and", b.op("ge", wide, ends[0]), b.op("le", wide, ends[1]))
    value = b.op("where", inside, value, 0.0)
    for side, comparison in ((0, "lt"), (1, "gt")):
        at, slope = np.zeros((len(knots), each)), np.zeros((len(knots), each))
        goes_on = np.zeros((len(knots), each), bool)
        for i, (spline, (_, count)) in enumerate(zip(model.bsplines_, used, strict=True)):
            chosen = slice(0, count) if side == 0 else slice(max(0, each - count), each)
            end = (low, high)[side][i]
            goes_on[i, chosen] = True
            at[i] = spline(end)
            slope[i] = spline(end, nu=1) if tangent else 0
        line: Value | Array = at.ravel()
        if tangent:
            beyond = b.op("sub", wide, ends[side])
            line = b.op("add", line, b.op("mul", beyond, slope.ravel()))
        outside = b.op(comparison, wide, ends[side])
        outside = b.op("and", outside, goes_on.ravel())
        value = b.op("where", outside, line, value)
    return value


def _repeated(b: Builder, x: Value, each: int) -> Value:
    """Each column `each` times in a row."""
    return b.op("select", x, indices=np.repeat(np.arange(x.type.width), each).astype(np.int64))
