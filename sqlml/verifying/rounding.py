"""Answers that rounding alone decides: what they are, and whether a source's is one of them.

The terms of a sum may be added in any order. A library does so otherwise for one row than for
several, and otherwise on another machine, and each of these sums is the exact one of weights that
are an ulp or so off. Mostly that is the last digit of an answer. But nearest neighbours behind a
PCA may lie at the same distance, and which of them count is decided by that digit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from sqlml.ir.builder import Builder, Value
from sqlml.ir.program import Node, Program
from sqlml.ir.rewrite import rewrite
from sqlml.types import Array

VARIANTS = 8
"""Programs that are tried."""


def rounded_otherwise(program: Program) -> Iterator[Program]:
    """`program` with all weights of its sums an ulp off, up or down, in several ways.

    Of a Program without sums of weights there are none.
    """
    if not any(node.op == "linear" for node in program.nodes):
        return
    for seed in range(VARIANTS):
        up = np.random.default_rng(seed)

        def nudged(b: Builder, node: Node, inputs: Sequence[Value], up: Any = up) -> Value:
            made = {name: _nudged(node.attrs[name], up) for name in ("weights", "bias")}
            return b.op("linear", *inputs, **{**node.attrs, **made})

        yield rewrite(program, nudged, keep_inputs=True, ops={"linear"})


def _nudged(values: Array, up: np.random.Generator) -> Array:
    """Zeros stay what they are: their terms add nothing."""
    towards = np.where(up.integers(0, 2, values.shape) == 1, np.inf, -np.inf)
    moved = np.nextafter(values, towards.astype(values.dtype))
    return np.where((values == 0) | ~np.isfinite(values), values, moved)


def differing_rows(ours: Mapping[str, Array], theirs: Mapping[str, Array], bound: float) -> Array:
    """The places of the rows of which some output differs; of none where the shapes do.

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
