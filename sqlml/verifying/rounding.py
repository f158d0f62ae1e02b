"""Answers that only rounding decides: whether a source's is one of them.

The terms of a sum may be added in any order. A library adds differently for one row than for
several, and differently on another machine, and each of these sums is the exact one of weights that
are about an ulp off. Mostly that is the last digit of an answer. But nearest neighbours after a PCA
may lie at the same distance, and which of them count is decided by that digit; and of the
difference of two distances of 1e19 it may be all that is left. Squared distances that a library
makes of squares, |x|^2 - 2 x.y + |y|^2, are that far off the direct ones where columns spread far
less than they are large, as behind a Normalizer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from sqlml.errors import ScoringError
from sqlml.ir.builder import Builder, Value
from sqlml.ir.program import Node, Program
from sqlml.ir.rewrite import rewrite
from sqlml.types import Array

VARIANTS = 8
"""Programs that are tried."""

_REACH = 4.0
"""How much farther than the variants' numbers the source's number may be from ours."""

_SUMS: Mapping[str, tuple[str, ...]] = {
    "linear": ("weights", "bias"),
    "pairwise": ("points",),
    "sum": (),
    "sub": (),
}
"""Operators that add terms up -> the constants in these; `sum` and `sub` have their terms from
elsewhere."""

Answers = Mapping[str, Array]
"""Output -> its values for each row: numbers or labels, (n, ..)."""


def decided_by_rounding(
    program: Program,
    answer: Callable[[Program], Answers],
    ours: Answers,
    theirs: Answers,
    bound: float,
) -> frozenset[int]:
    """The rows whose answers differ, but might not if sums were rounded differently.

    Args:
        answer: the outputs of a Program like `program` for the same rows.
        bound: the largest relative difference of a number.
    """
    rows = differing_rows(ours, theirs, bound)
    if not len(rows):
        return frozenset()
    try:
        variants = [answer(other) for other in rounded_otherwise(program)]
    except ScoringError:  # one of them refuses a row: then nothing tells
        return frozenset()
    return frozenset(
        row
        for row in rows.tolist()
        if all(
            _reached(ours[name][row], theirs[name][row], [v[name][row] for v in variants], bound)
            for name in ours.keys() & theirs.keys()
        )
    )


def rounded_otherwise(program: Program) -> Iterator[Program]:
    """`program` with the constants of its sums an ulp off, up or down, in several ways.

    There are none for a Program without sums.
    """
    if not any(node.op in _SUMS for node in program.nodes):
        return
    for seed in range(VARIANTS):
        dice = np.random.default_rng(seed)

        def nudged(
            b: Builder, node: Node, inputs: Sequence[Value], dice: np.random.Generator = dice
        ) -> Value:
            if node.op in ("sum", "sub"):
                return b.op(node.op, _terms(b, inputs[0], dice), *inputs[1:], **node.attrs)
            made = {name: _nudged(node.attrs[name], dice) for name in _SUMS[node.op]}
            value = b.op(node.op, *inputs, **{**node.attrs, **made})
            if node.op == "linear":
                return value
            ones = np.ones(value.type.width, value.type.dtype)
            value = b.op("mul", value, _nudged(ones, dice))
            direct = node.attrs["metric"] == "sqeuclidean" and "weights" not in node.attrs
            return _as_of_squares(b, value, inputs[0], dice) if direct else value

        yield rewrite(program, nudged, keep_inputs=True, ops=_SUMS.keys())


def _terms(b: Builder, terms: Value, dice: np.random.Generator) -> Value:
    """Terms of a sum (n, ..), an ulp off where they are floats and their number is known."""
    kind = terms.type
    shape = kind.shape[1:]
    fixed = not kind.rowwise or kind.sparse or min(shape, default=-1) < 0
    if fixed or np.dtype(kind.dtype).kind != "f":
        return terms
    return b.op("mul", terms, _nudged(np.ones(shape, kind.dtype), dice))


def _as_of_squares(b: Builder, distance: Value, x: Value, dice: np.random.Generator) -> Value:
    """Squared distances (n, m), off as if they were made of squares: a sum of k terms is mostly
    within sqrt(k) / 2 ulps of |x|^2."""
    dtype = np.dtype(distance.type.dtype)
    signs = dice.choice([-1, 1], distance.type.width)
    size = b.op("sum", b.op("square", x), axis=1)
    off = np.finfo(dtype).eps * max(1.0, x.type.width**0.5 / 2)
    ulps = (off * signs).astype(dtype)
    return b.op("add", distance, b.op("mul", size, ulps))


def _nudged(values: Array, dice: np.random.Generator) -> Array:
    """Zeros stay what they are: their terms add nothing."""
    towards = np.where(dice.integers(0, 2, values.shape) == 1, np.inf, -np.inf)
    moved = np.nextafter(values, towards.astype(values.dtype))
    return np.where((values == 0) | ~np.isfinite(values), values, moved)


def _reached(ours: Array, theirs: Array, variants: Sequence[Array], bound: float) -> bool:
    """Whether one row's answer is as near as the variants' are."""
    a, b = np.atleast_1d(ours), np.atleast_1d(theirs)
    if a.dtype.kind != "f" or b.dtype.kind != "f":
        return any(np.array_equal(np.atleast_1d(v), b) for v in (a, *variants))
    away = np.max([np.abs(np.atleast_1d(v) - a) for v in variants], axis=0, initial=0.0)
    near = np.isclose(a, b, rtol=bound, atol=0.0, equal_nan=True)
    return bool((near | (np.abs(a - b) <= _REACH * away)).all())


def differing_rows(ours: Answers, theirs: Answers, bound: float) -> Array:
    """The indices of the rows in which some output differs; none if the shapes differ.

    >>> differing_rows({"score": np.array([[1.0], [2]])}, {"score": np.array([[1.0], [3]])}, 0.1)
    array([1])
    """
    found: set[int] = set()
    for name in ours.keys() & theirs.keys():
        a, b = ours[name], theirs[name]
        if a.shape != b.shape:
            return np.empty(0, np.int64)
        if a.dtype.kind == "f" and b.dtype.kind == "f":
            other = ~np.isclose(a, b, rtol=bound, atol=0.0, equal_nan=True)
        else:
            other = a.astype(object) != b.astype(object)
        found.update(np.flatnonzero(other.reshape(len(b), -1).any(axis=1)).tolist())
    return np.array(sorted(found), np.int64)
