"""Properties of tree ensembles for cost models and fast kernels.

`TreeShape` has the sizes that determine the cost of scoring. `Decisions` has the tests of the nodes
in the form that fast kernels run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sqlml.bounded_cache import cache_by_arrays
from sqlml.errors import ProgramError
from sqlml.ir.trees import Ensemble
from sqlml.types import Array


@dataclass(frozen=True, slots=True, eq=False)
class TreeShape:
    """The shape of an ensemble of T trees with V values per leaf, for cost models.

    `nodes`, int64 (T, L), counts the inner nodes of each level; deeper nodes count as the last
    level. `inside`, float64 (T, L), is the share of the leaves below a level. `oblivious`, bool
    (T,), marks trees in which all nodes of a level have the same test. `columns` counts the tested
    columns. `thresholds` is the largest number of distinct thresholds of a column, and
    `all_thresholds` is the sum over all columns. `sets` counts the
    distinct tests of sets, where sets of one category count as one for each `SHARED_SETS` of a
    column. `set_share` is the share of nodes with a set, without `single` nodes. `categories`
    counts the categories that `single` nodes test, column by column.
    """

    nodes: Array
    inside: Array
    oblivious: Array
    values: int
    columns: int
    thresholds: int
    all_thresholds: int
    sets: int
    set_share: float = 0.0
    categories: int = 0

    @property
    def trees(self) -> int:
        return int(self.nodes.shape[0])

    @property
    def steps(self) -> Array:
        """The mean length of the paths in each tree, float64 (T,)."""
        return np.asarray(self.inside.sum(1))


def measure_tree_shape(ensemble: Ensemble) -> TreeShape:
    """Return the shape of `ensemble`, cached as long as the arrays of `ensemble` exist."""
    arrays = [value for value in ensemble.attrs().values() if isinstance(value, np.ndarray)]
    return cache_by_arrays("shape", arrays, lambda: _measure_tree_shape(ensemble))


def _measure_tree_shape(ensemble: Ensemble) -> TreeShape:
    depth_of_node = ensemble.depths().astype(np.int64)
    tree_of_node = ensemble.node_roots().astype(np.int64)
    level_count = min(ensemble.depth, 64)  # Deeper levels count as the last.

    def count_by_level(trees: Array, depth: Array) -> Array:
        cell_index = trees * level_count + np.minimum(depth, level_count - 1)
        counts = np.bincount(cell_index, minlength=ensemble.trees * level_count)
        return counts.reshape(ensemble.trees, level_count)

    is_leaf = np.concatenate([ensemble.left, ensemble.right]) < 0
    leaf_depth = np.tile(depth_of_node, 2)[is_leaf]  # The leaf's parent has this depth.
    tree_of_leaf = np.tile(tree_of_node, 2)[is_leaf]
    leaf_counts = np.maximum(np.bincount(tree_of_leaf, minlength=ensemble.trees), 1)[:, None]
    leaves_below = count_by_level(tree_of_leaf, leaf_depth)[:, ::-1].cumsum(1)[:, ::-1]
    threshold_counts = _count_thresholds(ensemble)
    return TreeShape(
        nodes=count_by_level(tree_of_node, depth_of_node),
        inside=leaves_below / leaf_counts,
        oblivious=find_oblivious_trees(ensemble),
        values=int(ensemble.leaf_values.shape[1]),
        columns=int((threshold_counts > 0).sum()),
        thresholds=int(threshold_counts.max()),
        all_thresholds=int(threshold_counts.sum()),
        sets=_count_sets(ensemble),
        set_share=_measure_set_share(ensemble),
        categories=_count_categories(ensemble),
    )


def _count_thresholds(ensemble: Ensemble) -> Array:
    features, thresholds = ensemble.feature, ensemble.threshold
    if ensemble.categorical is not None:
        thresholds = np.where(ensemble.categorical, 0, thresholds)
    counts = np.bincount(features, minlength=1)
    sorted_thresholds = thresholds[np.argsort(features, kind="stable")]
    distinct_counts = np.zeros_like(counts)
    start = 0
    for column, count in enumerate(counts.tolist()):
        distinct_counts[column] = np.unique(sorted_thresholds[start : start + count]).size
        start += count
    return distinct_counts


SHARED_SETS = 255
"""The most sets of one category that share a column of bins (`backends/native/trees/binned.py`)."""


def find_shared_sets(ensemble: Ensemble) -> Array:
    """Return the category of nodes where a row goes left only with this category, otherwise -1."""
    categories = ensemble.find_only_categories()
    categories[ensemble.default_left] = -1
    return categories


def _count_sets(ensemble: Ensemble) -> int:
    if ensemble.categorical is None:
        return 0
    categories = find_shared_sets(ensemble)
    is_shared = categories >= 0
    tested_columns, _ = np.unique(np.stack([ensemble.feature, categories])[:, is_shared], axis=1)
    tests_per_column = np.bincount(tested_columns)
    shared_count = int((-(-tests_per_column // SHARED_SETS)).sum())
    tests = np.stack([ensemble.feature, _number_sets(ensemble), ensemble.default_left])
    other_tests = np.unique(tests[:, ensemble.categorical & ~is_shared], axis=1)
    return shared_count + int(other_tests.shape[1])


def _measure_set_share(ensemble: Ensemble) -> float:
    if ensemble.categorical is None or not ensemble.nodes:
        return 0.0
    is_set = ensemble.categorical if ensemble.single is None else ~ensemble.single
    return float((ensemble.categorical & is_set).mean())


def _count_categories(ensemble: Ensemble) -> int:
    if ensemble.single is None:
        return 0
    tests = np.stack([ensemble.feature, ensemble.threshold])[:, ensemble.single]
    return int(np.unique(tests, axis=1).shape[1])


def find_oblivious_trees(ensemble: Ensemble) -> Array:
    """Return a mask of the trees with one test per level and all leaves at the same depth."""
    depths, tree_of_node = ensemble.depths(), ensemble.node_roots()
    tree_depths, max_depth = ensemble.tree_depths(), 16  # No library grows deeper oblivious trees.
    node_counts = np.bincount(tree_of_node, minlength=ensemble.trees)
    is_perfect = node_counts == (1 << np.minimum(tree_depths, max_depth)) - 1
    is_oblivious: Array = (tree_depths <= max_depth) & is_perfect
    if not is_oblivious[tree_of_node].any():
        return is_oblivious
    order = np.lexsort((depths, tree_of_node))

    def differ(values: Array) -> Array:
        return np.asarray(values[order][1:] != values[order][:-1])

    same_level = ~differ(depths) & ~differ(tree_of_node)
    tests = (ensemble.feature, ensemble.threshold, ensemble.default_left, _number_sets(ensemble))
    has_changed = np.logical_or.reduce([differ(values) for values in tests])
    is_oblivious[tree_of_node[order][1:][has_changed & same_level]] = False
    return is_oblivious


def _number_sets(ensemble: Ensemble) -> Array:
    """Return a number per node, which is equal for equal sets, and -1 for nodes without a set."""
    set_numbers = np.full(ensemble.nodes, -1, np.int64)
    if ensemble.categorical is None or ensemble.set_offsets is None or ensemble.set_words is None:
        return set_numbers
    number_by_words: dict[bytes, int] = {}
    for i in np.flatnonzero(ensemble.categorical).tolist():
        words = ensemble.set_words[ensemble.set_offsets[i] : ensemble.set_offsets[i + 1]].tobytes()
        set_numbers[i] = number_by_words.setdefault(words, len(number_by_words))
    return set_numbers


@dataclass(frozen=True, slots=True, eq=False)
class Decisions:
    """The tests of M inner nodes: a row goes to `then` if `y <= threshold`, else to `otherwise`.

    y is column `feature` (int32), negated if `negated` (bool). `then` and `otherwise` (int32)
    number nodes and leaves as `Ensemble.left` does. `threshold` is NaN if the test never holds, and
    at categorical nodes, where NaN follows `default_left`.

    The tests of all libraries are converted to this form, in which NaN fails without a special
    case. `x < t` becomes `x <= t'`, where t' is the largest float below t. If NaN goes left, the
    test becomes the opposite, `x > t`, written as `-x <= t'`, and the children are swapped.
    """

    feature: Array
    negated: Array
    threshold: Array
    then: Array
    otherwise: Array


def unify_decisions(ensemble: Ensemble) -> Decisions:
    """Convert the tests of `ensemble` to Decisions that lead every row to the same leaf.

    Raises ProgramError if there are `single` nodes, which only native kernels read.
    """
    if ensemble.single is not None:
        raise ProgramError("tree_ensemble: only the native backend reads single categories")
    is_negated = ensemble.default_left.copy()
    if ensemble.categorical is not None:
        is_negated &= ~ensemble.categorical
    is_exclusive = is_negated if ensemble.compare == "le" else ~is_negated
    threshold = np.where(is_negated, -ensemble.threshold, ensemble.threshold)
    threshold = np.where(is_exclusive, find_largest_below(threshold), threshold)
    if ensemble.categorical is not None:
        threshold[ensemble.categorical] = np.nan
    return Decisions(
        feature=ensemble.feature,
        negated=is_negated,
        threshold=threshold.astype(ensemble.threshold.dtype),
        then=np.where(is_negated, ensemble.right, ensemble.left).astype(np.int32),
        otherwise=np.where(is_negated, ensemble.left, ensemble.right).astype(np.int32),
    )


def find_largest_below(value: Array) -> Array:
    """Return the largest float below each entry of `value`, or NaN for minus infinity.

    >>> find_largest_below(np.array([1.0, -np.inf]))
    array([ 1., nan])
    """
    below = np.nextafter(value, np.array(-np.inf, value.dtype))
    return np.where(value == -np.inf, np.array(np.nan, value.dtype), below)


def narrow_thresholds(ensemble: Ensemble) -> Ensemble:
    """Return an ensemble with float32 thresholds that sends every float32 row to the same leaf.

    A float32 is at most t if and only if it is at most the largest float32 that is not above t.
    Kernels then read half the bytes, and a vector instruction compares twice as many values.
    """
    if ensemble.threshold.dtype == np.float32:
        return ensemble
    with np.errstate(over="ignore"):
        narrowed = ensemble.threshold.astype(np.float32)
    rounds_down = ensemble.compare == "le"
    is_wrong = narrowed > ensemble.threshold if rounds_down else narrowed < ensemble.threshold
    direction = np.float32(-np.inf if rounds_down else np.inf)
    narrowed[is_wrong] = np.nextafter(narrowed[is_wrong], direction)
    return replace(ensemble, threshold=narrowed)
