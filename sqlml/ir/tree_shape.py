"""Properties of tree ensembles for cost models and fast kernels.

`TreeShape` has the sizes on which the cost of scoring depends. `Decisions` has the node tests in
the one form that all fast kernels run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sqlml.bounded_cache import cache_by_arrays
from sqlml.ir.trees import Ensemble
from sqlml.types import Array


@dataclass(frozen=True, slots=True, eq=False)
class TreeShape:
    """The shape of an ensemble of T trees with V values per leaf, for cost models.

    nodes int64 (T, L): inner nodes by level, with all deeper ones in the last level. inside float64
    (T, L): the share of the leaves below a level. oblivious bool (T,): all nodes of a level have
    the same test. columns: number of columns that the tests read. thresholds: the largest number of
    distinct thresholds of a column; all_thresholds: their sum over all columns. sets: number of
    categorical nodes.
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
        return int(self.nodes.shape[0])

    @property
    def steps(self) -> Array:
        """Mean length of a path in each tree, float64 (T,)."""
        return np.asarray(self.inside.sum(1))


def measure_tree_shape(e: Ensemble) -> TreeShape:
    """Return the shape of `e`, cached while its arrays are alive."""
    arrays = [a for a in e.attrs().values() if not isinstance(a, str)]
    return cache_by_arrays("shape", arrays, lambda: _measure_tree_shape(e))


def _measure_tree_shape(e: Ensemble) -> TreeShape:
    depths, owner = e.depths().astype(np.int64), e.node_roots().astype(np.int64)
    level_count = min(e.depth, 64)  # Deeper levels count as the last.

    def count_by_level(trees: Array, depth: Array) -> Array:
        if not level_count:
            return np.zeros((e.trees, 0), np.int64)
        cell = trees * level_count + np.minimum(depth, level_count - 1)
        return np.bincount(cell, minlength=e.trees * level_count).reshape(e.trees, level_count)

    children = np.concatenate([e.left, e.right])
    leaf_depth = np.concatenate([depths, depths])[children < 0]  # Depth of the leaf's parent.
    leaf_owner = np.concatenate([owner, owner])[children < 0]
    leaves = np.maximum(np.bincount(leaf_owner, minlength=e.trees), 1)[:, None]
    below = count_by_level(leaf_owner, leaf_depth)[:, ::-1].cumsum(1)[:, ::-1]
    distinct = _count_thresholds(e)
    return TreeShape(
        nodes=count_by_level(owner, depths),
        inside=below / leaves,
        oblivious=find_oblivious_trees(e),
        values=int(e.leaf_values.shape[1]),
        columns=int((distinct > 0).sum()),
        thresholds=int(distinct.max()),
        all_thresholds=int(distinct.sum()),
        sets=0 if e.categorical is None else int(e.categorical.sum()),
    )


def _count_thresholds(e: Ensemble) -> Array:
    """Return the number of distinct thresholds of each column, int64 (columns,)."""
    counts = np.bincount(e.feature, minlength=1)
    values = e.threshold[np.argsort(e.feature, kind="stable")]
    distinct = np.zeros_like(counts)
    start = 0
    for column, count in enumerate(counts.tolist()):
        column_values = np.sort(values[start : start + count])
        distinct[column] = count and 1 + np.count_nonzero(column_values[1:] != column_values[:-1])
        start += count
    return distinct


def find_oblivious_trees(e: Ensemble) -> Array:
    """Return whether each tree has one test per level and all leaves at one depth, bool (T,)."""
    depths, owner, depth = e.depths(), e.node_roots(), e.tree_depths()
    nodes = np.bincount(owner, minlength=e.trees)
    deepest = 16  # No library grows deeper oblivious trees.
    perfect: Array = (depth <= deepest) & (nodes == (1 << np.minimum(depth, deepest)) - 1)
    if not perfect[owner].any():
        return perfect
    order = np.lexsort((depths, owner))

    def differ(values: Array) -> Array:
        return np.asarray(values[order][1:] != values[order][:-1])

    same_level = ~differ(depths) & ~differ(owner)
    tests = (e.feature, e.threshold, e.default_left, _number_sets(e))
    has_changed = np.logical_or.reduce([differ(values) for values in tests])
    perfect[owner[order][1:][has_changed & same_level]] = False
    return perfect


def _number_sets(e: Ensemble) -> Array:
    """Return a number per node that equal sets of categories share; -1 for nodes without a set."""
    numbers = np.full(e.nodes, -1, np.int64)
    if e.categorical is None or e.set_offsets is None or e.set_words is None:
        return numbers
    number_of_set: dict[bytes, int] = {}
    for i in np.flatnonzero(e.categorical).tolist():
        words = e.set_words[e.set_offsets[i] : e.set_offsets[i + 1]].tobytes()
        numbers[i] = number_of_set.setdefault(words, len(number_of_set))
    return numbers


@dataclass(frozen=True, slots=True, eq=False)
class Decisions:
    """Tests of M inner nodes: a row goes to `then` if `y <= threshold`, else to `otherwise`.

    y is column `feature` (int32) or, where `negated` (bool), minus that column. `then` and
    `otherwise` (int32) number nodes and leaves as `Ensemble.left` does. `threshold` has the
    ensemble's dtype; it is NaN where the test never holds, and at categorical nodes, whose NaN
    follows `default_left`.

    All libraries' tests become this one, which NaN fails by itself: `x < t` is `x <= t'` with t'
    the largest float below t. Where NaN goes left, the test becomes the opposite, `x > t`, written
    as `-x <= t'`, and the children are swapped.
    """

    feature: Array
    negated: Array
    threshold: Array
    then: Array
    otherwise: Array


def unify_decisions(e: Ensemble) -> Decisions:
    """Return the tests of `e`, which lead every row to the leaf that `e` does."""
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
    """Return the largest float of the same dtype below each entry; NaN below minus infinity.

    >>> largest_below(np.array([1.0, -np.inf]))
    array([ 1., nan])
    """
    below = np.nextafter(value, np.array(-np.inf, value.dtype))
    return np.where(value == -np.inf, np.array(np.nan, value.dtype), below)


def narrow_thresholds(e: Ensemble) -> Ensemble:
    """Return an ensemble with float32 thresholds that sends every float32 row to the same leaf.

    A float32 is at most t if it is at most the largest float32 up to t. Kernels then read half the
    bytes and compare twice as many values per vector instruction.
    """
    if e.threshold.dtype == np.float32:
        return e
    with np.errstate(over="ignore"):
        narrow = e.threshold.astype(np.float32)
    down = e.compare == "le"
    wrong = narrow > e.threshold if down else narrow < e.threshold
    narrow[wrong] = np.nextafter(narrow[wrong], np.float32(-np.inf if down else np.inf))
    return replace(e, threshold=narrow)
