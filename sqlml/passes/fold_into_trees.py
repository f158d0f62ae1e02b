"""Fold scalers and imputers in front of trees into their thresholds. Exact.

A step f that never decreases keeps comparisons monotone, even in floating point: f(x) <= t holds up
to some float, and for no larger float. Bisection over the ordered floats finds this float by
evaluating the steps, so each row reaches the same leaf as before. An imputer sends NaN where the
fill value goes. `sink_checks` has moved checks below these steps.
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
from sqlml.passes.float_order import Step, find_last_true, match_step
from sqlml.types import Array, numpy_dtype


@dataclass(frozen=True, slots=True)
class Imputer:
    """A step that replaces NaN with the number in `fill` (k,) of the column."""

    fill: Array

    def apply(self, x: Array, columns: Array) -> Array:
        return np.where(np.isnan(x), self.fill[columns], x)


@dataclass(frozen=True, slots=True)
class Chain:
    """The steps between `x` and the trees, in the order of computation."""

    x: Value
    steps: tuple[Step | Imputer, ...]

    def apply(self, x: Array, columns: Array) -> Array:
        for step in self.steps:
            x = step.apply(x, columns)
        return x


def fold_into_trees(program: Program) -> Program:
    """Fold the monotone steps in front of trees into the thresholds of the trees."""
    return rewrite(program, _fold_steps, ops=("tree_ensemble",))


def fold_casts_into_trees(program: Program) -> Program:
    """Fold steps, even if all are casts, because SQL engines cannot cast 1e300 to FLOAT."""
    return rewrite(program, partial(_fold_steps, fold_casts=True), ops=("tree_ensemble",))


def _fold_steps(
    builder: Builder, node: Node, inputs: Sequence[Value], fold_casts: bool = False
) -> Value | None:
    ensemble = Ensemble.of(node.attrs)
    if ensemble.has_categories or not ensemble.nodes:
        return None
    chain = _find_chain(builder, inputs[0])
    has_only_casts = all(isinstance(step, Step) and step.op == "cast" for step in chain.steps)
    if has_only_casts and not (fold_casts and chain.steps):
        return None
    threshold = _fold_thresholds(ensemble, chain)
    if threshold is None:
        return None
    # A NaN goes left by default, or because the fill value of an imputer goes left.
    nan = np.full(ensemble.nodes, np.nan, numpy_dtype(chain.x.type.dtype))
    filled = chain.apply(nan, ensemble.feature)
    default_left = goes_left(ensemble, np.arange(ensemble.nodes), filled)
    attrs = {**node.attrs, "threshold": threshold, "default_left": default_left}
    return builder.op("tree_ensemble", chain.x, **attrs)


def match_step_or_imputer(builder: Builder, x: Value) -> tuple[Value, Step | Imputer] | None:
    """Return the input of the step or imputer that computes `x`, and the step; None if neither."""
    node = builder.node(x)
    if node.op == "impute" and np.isnan(node.attrs["missing"]):
        return builder.value(node.inputs[0]), Imputer(node.attrs["fill"])
    return match_step(builder, x)


def _find_chain(builder: Builder, x: Value) -> Chain:
    steps: list[Step | Imputer] = []
    while (match := match_step_or_imputer(builder, x)) is not None:
        x = match[0]
        steps.append(match[1])
    return Chain(x, tuple(reversed(steps)))


def _fold_thresholds(ensemble: Ensemble, chain: Chain) -> Array | None:
    """Return the thresholds for tests of `chain.x`, or None if a test always or never holds."""
    fields = [("feature", ensemble.feature.dtype), ("threshold", ensemble.threshold.dtype)]
    pairs = np.zeros(ensemble.nodes, fields)
    pairs["feature"], pairs["threshold"] = ensemble.feature, ensemble.threshold
    unique, inverse = np.unique(pairs, return_inverse=True)
    columns, threshold = unique["feature"], unique["threshold"]

    def holds(x: Array) -> Array:
        value = chain.apply(x, columns)
        return np.asarray(value < threshold if ensemble.compare == "lt" else value <= threshold)

    last, following = find_last_true(holds, columns.size, numpy_dtype(chain.x.type.dtype))
    folded_thresholds = following if ensemble.compare == "lt" else last
    return None if np.isnan(folded_thresholds).any() else folded_thresholds[inverse]
