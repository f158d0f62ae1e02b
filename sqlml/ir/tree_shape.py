"""`TreeShape`: what the cost of scoring an Ensemble depends on, tree by tree."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sqlml.bounded_cache import while_alive
from sqlml.ir.trees import Ensemble
from sqlml.types import Array

MOST_LEVELS = 64
"""Levels that are told apart; what lies deeper counts as one."""


@dataclass(frozen=True, slots=True, eq=False)
class TreeShape:
    """What the cost model needs of an ensemble of T trees with V values per leaf.

    nodes int64 (T, L): inner nodes by level, all deeper ones in the last. inside float64 (T, L):
    of the leaves, the share that lies below a level; its sum over the levels is the mean length of
    a path, each leaf counted once. oblivious bool (T,): all nodes of a level ask the same question.
    columns: how many the tests read; thresholds: the most distinct ones that a column has, and
    all_thresholds those of all columns; sets: categorical nodes.
    """

    nodes: Array
    inside: Array
    oblivious: Array
    values: int
    columns: int
    thresholds: int
    all_thresholds: int
    sets: int

    @property
    def trees(self) -> int:
        """Number of trees."""
        return int(self.nodes.shape[0])

    @property
    def steps(self) -> Array:
        """Mean length of a path in each tree, float64 (T,)."""
        total: Array = self.inside.sum(1)
        return total


def tree_shape(e: Ensemble) -> TreeShape:
    """The shape of `e`; it is kept for as long as its arrays live."""
    arrays = [a for a in e.attrs().values() if not isinstance(a, str)]
    return while_alive("shape", arrays, lambda: _tree_shape(e))


def _tree_shape(e: Ensemble) -> TreeShape:
    depths, owner = e.depths().astype(np.int64), e.node_roots().astype(np.int64)
    levels = min(e.depth, MOST_LEVELS)

    def by_level(trees: Array, depth: Array) -> Array:
        place = trees * levels + np.minimum(depth, levels - 1)
        return np.bincount(place, minlength=e.trees * levels).reshape(e.trees, levels)

    children = np.concatenate([e.left, e.right])
    leaf_depth = np.concatenate([depths, depths])[children < 0]  # of the node above
    leaf_owner = np.concatenate([owner, owner])[children < 0]
    leaves = np.maximum(np.bincount(leaf_owner, minlength=e.trees), 1)[:, None]
    ended = by_level(leaf_owner, leaf_depth) if levels else np.zeros((e.trees, 0), np.int64)
    below = ended[:, ::-1].cumsum(1)[:, ::-1]
    distinct = _distinct_thresholds(e)
    return TreeShape(
        nodes=by_level(owner, depths) if levels else np.zeros((e.trees, 0), np.int64),
        inside=below / leaves,
        oblivious=oblivious(e),
        values=int(e.leaf_values.shape[1]),
        columns=int((distinct > 0).sum()),
        thresholds=int(distinct.max()),
        all_thresholds=int(distinct.sum()),
        sets=0 if e.categorical is None else int(e.categorical.sum()),
    )


def _distinct_thresholds(e: Ensemble) -> Array:
    """How many different thresholds each column has, int64 (columns,)."""
    counts = np.bincount(e.feature, minlength=1)
    values = e.threshold[np.argsort(e.feature, kind="stable")]
    distinct = np.zeros_like(counts)
    start = 0
    for column, count in enumerate(counts.tolist()):
        own = np.sort(values[start : start + count])
        distinct[column] = count and 1 + np.count_nonzero(own[1:] != own[:-1])
        start += count
    return distinct


def oblivious(e: Ensemble) -> Array:
    """Whether all nodes of a level ask the same and all leaves lie at one depth, bool (T,)."""
    depths, owner = e.depths().astype(np.int64), e.node_roots()
    depth = np.zeros(e.trees, np.int64)
    np.maximum.at(depth, owner, depths + 1)
    nodes = np.bincount(owner, minlength=e.trees)
    deepest = 16  # no library grows oblivious trees of more levels
    perfect: Array = (depth <= deepest) & (nodes == (1 << np.minimum(depth, deepest)) - 1)
    if not perfect[owner].any():
        return perfect
    order = np.lexsort((depths, owner))

    def differ(values: Array) -> Array:
        changed: Array = values[order][1:] != values[order][:-1]
        return changed

    same_level = ~differ(depths) & ~differ(owner)
    other = differ(e.feature) | differ(e.threshold) | differ(e.default_left) | differ(_sets(e))
    perfect[owner[order][1:][other & same_level]] = False
    return perfect


def _sets(e: Ensemble) -> Array:
    """A number for each node that is the same for equal sets of categories; -1 for none."""
    numbers = np.full(e.nodes, -1, np.int64)
    if e.categorical is None or e.set_offsets is None or e.set_words is None:
        return numbers
    known: dict[bytes, int] = {}
    for i in np.flatnonzero(e.categorical).tolist():
        words = e.set_words[e.set_offsets[i] : e.set_offsets[i + 1]].tobytes()
        numbers[i] = known.setdefault(words, len(known))
    return numbers


# `Decisions`: the node tests of an Ensemble in the one form that every fast kernel runs.
#
# A source library compares with `<` or `<=` and sends NaN left or right, node by node. All four
# cases are one test `y <= threshold`, which NaN fails by itself:
#
# * `x < t` is `x <= t'` with t' the largest float below t;
# * where NaN goes left, the node asks for the opposite, `x > t`, as `-x <= t'`, and its children
#   change places. So y is x or -x, which is exact, and no kernel looks for NaN at all.


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
