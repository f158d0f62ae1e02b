"""Rounding ties: rows in which our predictions and the library's differ only by rounding.

The terms of a sum may be added in any order, and a library uses another order for a single row or
on another machine. Each result is exact for weights that are about an ulp off. The order may decide
between neighbours at the same distance, or change the difference of two distances of 1e19.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.random import Generator

from sqlml.errors import ProgramError, ScoringError
from sqlml.ir.builder import Builder, Value, rewrite
from sqlml.ir.program import Attrs, Node, Program
from sqlml.types import Array
from sqlml.verifying.ask_library import Predictions

VARIANT_COUNT = 8
_SUM_CONSTANTS: Mapping[str, tuple[str, ...]] = {
    "linear": ("weights", "bias"),
    "pairwise": ("points",),
    "sum": (),
    "sub": (),
}
"""Map operators that add terms to attributes with constants; `sum` and `sub` have no constants."""


def find_rounding_ties(
    program: Program,
    predict: Callable[[Program], Predictions],
    ours: Predictions,
    theirs: Predictions,
    tolerance: float,
) -> frozenset[int]:
    """Return the indices of rows in which errors of one ulp in sums explain the differences.

    `predict` returns the predictions of a Program for the same rows.
    """
    rows = find_differing_rows(ours, theirs, tolerance)
    if not len(rows):
        return frozenset()
    try:
        variants = [predict(variant) for variant in perturb_sums(program)]
    except (ProgramError, ScoringError):  # A variant rejects a row, or the bounds of its points.
        return frozenset()

    def is_tie(row: int) -> bool:
        return all(
            _is_within_reach(ours[n][row], theirs[n][row], [v[n][row] for v in variants], tolerance)
            for n in ours.keys() & theirs.keys()
        )

    return frozenset(filter(is_tie, rows.tolist()))


def perturb_sums(program: Program) -> Iterator[Program]:
    """Yield variants of `program` in which the constants of sums are an ulp larger or smaller."""
    ops = [node.op for node in program.nodes]
    if _SUM_CONSTANTS.keys().isdisjoint(ops):
        return
    # Sums decide between neighbours if the points and the rows are sums.
    has_ties = "nearest" in ops and not {"linear", "sum"}.isdisjoint(ops[: ops.index("nearest")])
    perturbed_ops = {*_SUM_CONSTANTS, *(["nearest"] if has_ties else [])}
    for seed in range(VARIANT_COUNT):
        perturb = partial(_perturb_sum, np.random.default_rng(seed))
        yield rewrite(program, perturb, keep_inputs=True, ops=perturbed_ops)


def _perturb_sum(rng: Generator, builder: Builder, node: Node, inputs: Sequence[Value]) -> Value:
    if node.op in ("sum", "sub"):
        terms = _perturb_terms(builder, inputs[0], rng)
        return builder.op(node.op, terms, *inputs[1:], **node.attrs)
    if node.op == "nearest":
        return builder.op("nearest", *inputs, **{**node.attrs, **_perturb_points(node.attrs, rng)})
    constants = {name: _nudge_by_one_ulp(node.attrs[name], rng) for name in _SUM_CONSTANTS[node.op]}
    value = builder.op(node.op, *inputs, **{**node.attrs, **constants})
    if node.op == "linear":
        return value
    ones = np.ones(value.type.width, value.type.dtype)
    value = builder.op("mul", value, _nudge_by_one_ulp(ones, rng))
    is_squared = node.attrs["metric"] == "sqeuclidean" and "weights" not in node.attrs
    return _perturb_squared_distance(builder, value, inputs[0], rng) if is_squared else value


def _perturb_terms(builder: Builder, terms: Value, rng: Generator) -> Value:
    """Perturb the terms of a sum (n, ...) by an ulp; keep integers and sparse rows."""
    terms_type, shape = terms.type, terms.type.shape[1:]
    has_unknown_size = not terms_type.rowwise or terms_type.sparse or min(shape, default=-1) < 0
    if has_unknown_size or np.dtype(terms_type.dtype).kind != "f":
        return terms
    return builder.op("mul", terms, _nudge_by_one_ulp(np.ones(shape, terms_type.dtype), rng))


def _perturb_squared_distance(builder: Builder, distance: Value, x: Value, rng: Generator) -> Value:
    """Perturb sums of k squares by the expected error, sqrt(k) / 2 ulps of |x|^2."""
    dtype = np.dtype(distance.type.dtype)
    signs = rng.choice([-1, 1], distance.type.width)
    squared_norm = builder.op("sum", builder.op("square", x), axis=1)
    relative_error = np.finfo(dtype).eps * max(1.0, x.type.width**0.5 / 2)
    ulps = (relative_error * signs).astype(dtype)
    return builder.op("add", distance, builder.op("mul", squared_norm, ulps))


def _perturb_points(attrs: Attrs, rng: Generator) -> dict[str, Array]:
    """Perturb the points of `nearest` by an ulp, equal points alike, and widen the bounds."""
    points, point_indices = np.unique(attrs["points"], axis=0, return_inverse=True)
    perturbed = {"points": _nudge_by_one_ulp(points, rng)[point_indices.reshape(-1)]}
    if "bounds" in attrs:
        lower, upper = np.split(attrs["bounds"], [points.shape[1]], axis=1)
        max_error = (4 + points.shape[1]) * np.finfo(np.float64).eps  # A sum over the columns.
        ulps = max_error * np.abs(points).max(initial=1.0)
        perturbed["bounds"] = np.hstack([lower - ulps * (attrs["ties"] == "kd_tree"), upper + ulps])
    return perturbed


def _nudge_by_one_ulp(values: Array, rng: Generator) -> Array:
    """Move each value up or down by one ulp; keep zeros, whose terms do not matter."""
    direction = np.where(rng.integers(0, 2, values.shape) == 1, np.inf, -np.inf)
    nudged = np.nextafter(values, direction.astype(values.dtype))
    return np.where((values == 0) | ~np.isfinite(values), values, nudged)


def _is_within_reach(ours: Array, theirs: Array, variants: list[Array], tolerance: float) -> bool:
    """Return whether `theirs` differs from `ours` by at most 4 times the spread of `variants`."""
    a, b = np.atleast_1d(ours), np.atleast_1d(theirs)
    if a.dtype.kind != "f" or b.dtype.kind != "f":
        return any(np.array_equal(np.atleast_1d(v), b) for v in (a, *variants))
    spread = np.max([np.abs(np.atleast_1d(v) - a) for v in variants], axis=0, initial=0.0)
    is_close = np.isclose(a, b, rtol=tolerance, atol=0.0, equal_nan=True)
    return bool((is_close | (np.abs(a - b) <= 4 * spread)).all())


def find_differing_rows(ours: Predictions, theirs: Predictions, tolerance: float) -> Array:
    """Return the indices of rows in which an output differs, or no rows if shapes differ."""
    differing: set[int] = set()
    for name in ours.keys() & theirs.keys():
        a, b = ours[name], theirs[name]
        if a.shape != b.shape:
            return np.empty(0, np.int64)
        if a.dtype.kind == "f" and b.dtype.kind == "f":
            is_different = ~np.isclose(a, b, rtol=tolerance, atol=0.0, equal_nan=True)
        else:
            is_different = a.astype(object) != b.astype(object)
        differing.update(np.flatnonzero(is_different.reshape(len(b), -1).any(axis=1)).tolist())
    return np.array(sorted(differing), np.int64)
