"""Scalers and imputers in front of trees become part of their thresholds. Exact.

A step that never decreases (scaling by a positive number, shifting, clipping, rounding to
float32) keeps each comparison monotone, in floating point too: f(x) <= t holds up to some largest
float x and for none above it. That float is found by bisection over the ordered floats, with the
very operations of the chain, so a row reaches the leaf that it reached before. An imputer sends
NaN where its fill goes. Checks have been moved below by `sink_checks`.
Hummingbird, section 5.2, folds scalers into linear weights, which rounds; here nothing rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from sqlml.ir.builder import Builder, Value, rewrite
from sqlml.ir.operators.forests import goes_left
from sqlml.ir.program import Node, Program
from sqlml.ir.trees import Ensemble
from sqlml.passes.float_order import Step, last_true, step_below
from sqlml.types import Array, numpy_dtype


@dataclass(frozen=True, slots=True)
class Impute:
    """NaN becomes `fill` (k,)."""

    fill: Array

    def apply(self, x: Array, columns: Array) -> Array:
        """The step on values x (m,), the i-th of which stands in column `columns[i]`."""
        filled: Array = np.where(np.isnan(x), self.fill[columns], x)
        return filled


@dataclass(frozen=True, slots=True)
class Chain:
    """What lies between the trees and value `x`: steps from the lowest up."""

    x: Value
    steps: tuple[Step | Impute, ...]

    def apply(self, x: Array, columns: Array) -> Array:
        """The steps on values x (m,) of columns (m,)."""
        for step in self.steps:
            x = step.apply(x, columns)
        return x


def fold_into_trees(program: Program) -> Program:
    """Return `program` with the monotone steps before its trees folded into thresholds."""
    return rewrite(program, _rule, ops=("tree_ensemble",))


def fold_casts_into_trees(program: Program) -> Program:
    """Fold as `fold_into_trees` does, and fold casts also where nothing else is to fold.

    Kernels fold casts for themselves. SQL cannot: the engine refuses to round 1e300 to a float32.
    """
    return rewrite(program, partial(_rule, casts=True), ops=("tree_ensemble",))


def _rule(b: Builder, node: Node, inputs: Sequence[Value], casts: bool = False) -> Value | None:
    e = Ensemble.of(node.attrs)
    if e.has_categories or not e.nodes:
        return None
    chain = _chain(b, inputs[0])
    if all(isinstance(s, Step) and s.op == "cast" for s in chain.steps):
        if not casts or not chain.steps:
            return None
    threshold = _thresholds(e, chain)
    if threshold is None:
        return None
    attrs = {**node.attrs, "threshold": threshold, "default_left": _default_left(e, chain)}
    return b.op("tree_ensemble", chain.x, **attrs)


def _chain(b: Builder, x: Value) -> Chain:
    """The longest chain of steps below `x`."""
    steps: list[Step | Impute] = []
    while True:
        node = b.node(x)
        if node.op == "impute" and node.attrs["missing"] != node.attrs["missing"]:
            steps.append(Impute(node.attrs["fill"]))
            x = b.value(node.inputs[0])
        elif (found := step_below(b, x)) is not None:
            x = found[0]
            steps.append(found[1])
        else:
            return Chain(x, tuple(reversed(steps)))


def _thresholds(e: Ensemble, chain: Chain) -> Array | None:
    """Thresholds for the values below the chain; None if no float is one."""
    pairs = np.zeros(e.nodes, [("feature", e.feature.dtype), ("threshold", e.threshold.dtype)])
    pairs["feature"], pairs["threshold"] = e.feature, e.threshold
    unique, inverse = np.unique(pairs, return_inverse=True)
    columns, wanted = unique["feature"], unique["threshold"]

    def goes_left(x: Array) -> Array:
        value = chain.apply(x, columns)
        left: Array = value < wanted if e.compare == "lt" else value <= wanted
        return left

    dtype = numpy_dtype(chain.x.type.dtype)
    last, following = last_true(goes_left, columns.size, dtype)
    found = following if e.compare == "lt" else last
    return None if np.isnan(found).any() else found[inverse]


def _default_left(e: Ensemble, chain: Chain) -> Array:
    """Where NaN goes: to its default side, or where the fill of an imputer goes."""
    nan = np.full(e.nodes, np.nan, numpy_dtype(chain.x.type.dtype))
    return goes_left(e, np.arange(e.nodes), chain.apply(nan, e.feature))
