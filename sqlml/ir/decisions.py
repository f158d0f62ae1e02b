"""`Decisions`: the node tests of an Ensemble in the one form that every fast kernel runs.

A source library compares with `<` or `<=` and sends NaN left or right, node by node. All four
cases are one test `y <= threshold`, which NaN fails by itself:

* `x < t` is `x <= t'` with t' the largest float below t;
* where NaN goes left, the node asks for the opposite, `x > t`, as `-x <= t'`, and its children
  change places. So y is x or -x, which is exact, and no kernel looks for NaN at all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sqlml.ir.trees import Ensemble
from sqlml.types import Array


@dataclass(frozen=True, slots=True, eq=False)
class Decisions:
    """For each of M inner nodes: go to `then` when `y <= threshold`, else to `otherwise`.

    y is column `feature` (int32) or, where `negated` (bool), minus that column. `then` and
    `otherwise` (int32) count nodes and leaves as `Ensemble.left` does. `threshold` has the
    ensemble's dtype and is NaN where the test never holds; so it is at a categorical node, whose
    members go to `then` (NaN by the ensemble's own `default_left`).
    """

    feature: Array
    negated: Array
    threshold: Array
    then: Array
    otherwise: Array


def decisions(e: Ensemble) -> Decisions:
    """The tests of `e`, with the same leaf for every row as `operators.forests.exit_leaves`."""
    negated = e.default_left.copy()
    if e.categorical is not None:
        negated &= ~e.categorical
    exclusive = negated if e.compare == "le" else ~negated
    threshold = np.where(negated, -e.threshold, e.threshold)
    threshold = np.where(exclusive, largest_below(threshold), threshold)
    if e.categorical is not None:
        threshold[e.categorical] = np.nan
    return Decisions(
        feature=e.feature,
        negated=negated,
        threshold=threshold.astype(e.threshold.dtype),
        then=np.where(negated, e.right, e.left).astype(np.int32),
        otherwise=np.where(negated, e.left, e.right).astype(np.int32),
    )


def largest_below(value: Array) -> Array:
    """The largest float of the same dtype below each entry; NaN below minus infinity.

    >>> largest_below(np.array([1.0, -np.inf]))
    array([ 1., nan])
    """
    below = np.nextafter(value, np.array(-np.inf, value.dtype))
    return np.where(value == -np.inf, np.array(np.nan, value.dtype), below)


def for_float32(e: Ensemble) -> Ensemble:
    """An ensemble with thresholds of float32, which sends every float32 where `e` does.

    A float32 is at most t where it is at most the largest float32 that is, and below t where it is
    below the smallest that is not. Half the bytes, and twice the values in a vector.
    """
    if e.threshold.dtype == np.float32:
        return e
    with np.errstate(over="ignore"):
        narrow = e.threshold.astype(np.float32)
    down = e.compare == "le"
    wrong = narrow > e.threshold if down else narrow < e.threshold
    narrow[wrong] = np.nextafter(narrow[wrong], np.float32(-np.inf if down else np.inf))
    return replace(e, threshold=narrow)
