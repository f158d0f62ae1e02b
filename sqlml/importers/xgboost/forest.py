"""Convert the trees of XGBoost's gbtree and dart boosters from the document to an Ensemble."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from sqlml.errors import ArtifactError, ProgramError
from sqlml.ir.trees import Ensemble, RawTrees, build_ensemble
from sqlml.types import Array, matrix

Trees = Sequence[Mapping[str, Any]]

MAX_NODES = 1 << 30
"""The largest number of nodes in all trees together, so that node numbers fit int32."""

MAX_CATEGORY = 1 << 24
"""Category codes must be below this limit, because they are float32 (common/categorical.h)."""

_NODE_DTYPES = {
    **dict.fromkeys(("left_children", "right_children", "parents", "split_indices"), "int32"),
    **dict.fromkeys(("split_type", "default_left"), "bool"),
    "split_conditions": "float32",
}

_NO_NODE = np.iinfo(np.int32).max
"""The feature index of a node that pruning has removed, and the parent of some roots."""

_STATISTICS = ("base_weights", "loss_changes", "sum_hessian")
"""Keys of float arrays with one entry per node, which scalar leaves do not use."""

_CATEGORY_KEYS = ("categories_nodes", "categories", "categories_segments", "categories_sizes")
"""Keys of the arrays with the categories that nodes test; most trees have empty arrays."""

_CHECKED_ARRAY = "checked"
"""Stands for an array that `compact` has checked and dropped."""

MAX_SET_WORDS = 1 << 26
"""The largest size of the bit sets of all categorical nodes together, in 32-bit words."""


@dataclass(frozen=True, slots=True, eq=False)
class Forest:
    """The T trees of a model; child indices count the nodes of all trees.

    Attributes:
        output_index: the index of the output to which each tree adds, int32 (T,).
        iteration_starts: the index of the first tree of each iteration, and T at the end; int64.
        tree_weights: the weights of dart, float32 (T,), or None for gbtree.
    """

    nodes: RawTrees
    output_index: Array
    iteration_starts: Array
    tree_weights: Array | None
    features: int

    def count_trees(self, best_iteration: int | None) -> int:
        """Count the trees up to `best_iteration`, or all trees if there is no such iteration."""
        if best_iteration is None or not 0 <= best_iteration < self.iteration_starts.size - 1:
            return int(self.output_index.size)
        return int(self.iteration_starts[best_iteration + 1])

    def build_ensemble(self, num_trees: int, base: Array, is_inplace: bool) -> Ensemble:
        """Build an Ensemble of the first `num_trees` trees and the base margin, float32 (K,).

        Dart scales each tree. XGBoost's estimators use `inplace_predict`, which adds the base
        margin to a tree and subtracts it again before scaling, and thus rounds twice. If
        `is_inplace` is true, this function does the same, so that margins are bitwise equal.
        """
        raw_trees, node_values = self.nodes, self.nodes.value
        if self.tree_weights is not None:
            sizes = np.diff(np.append(raw_trees.roots, raw_trees.feature.size))
            if is_inplace:
                offset = base[None, :]
                if node_values.shape[1] == 1:
                    offset = np.repeat(base[self.output_index], sizes)[:, None]
                node_values = (node_values + offset) - offset
            node_values = node_values * np.repeat(self.tree_weights, sizes)[:, None]
        raw_trees = replace(raw_trees, roots=raw_trees.roots[:num_trees], value=node_values)
        target = self.output_index[:num_trees]
        try:
            ensemble = build_ensemble(raw_trees, target=target, base=base, compare="lt")
            ensemble.check(matrix("float32", self.features))
        except ProgramError as error:
            raise ArtifactError(f"the XGBoost model is damaged: {error}") from None
        ends = self.iteration_starts[1:]
        return ensemble.with_stages(ends[ends <= num_trees])


def compact(tree: dict[str, Any]) -> dict[str, Any]:
    """Convert the lists of `tree` to arrays in place, to save memory.

    The JSON parser calls this function for each object. `read_forest` rejects the lists that could
    not be converted.
    """
    if "left_children" not in tree:
        return tree
    category_lists = [tree.get(name) for name in _CATEGORY_KEYS]
    if all(isinstance(values, list | np.ndarray) and not len(values) for values in category_lists):
        for name in _CATEGORY_KEYS[1:]:
            del tree[name]
    dtypes = {**_NODE_DTYPES, "base_weights": "float32", "leaf_weights": "float32"}
    with np.errstate(all="ignore"):
        with suppress(*_DAMAGE_ERRORS):
            if _read_leaf_width(tree) == 1:
                for name in _STATISTICS:
                    _check_statistic(tree, name, 1)
                tree["base_weights"] = _CHECKED_ARRAY
                tree.pop("leaf_weights", None)
                dtypes |= dict.fromkeys(_STATISTICS, "float32")
        for name in dtypes.keys() & tree.keys():
            if tree[name] is not _CHECKED_ARRAY:
                with suppress(*_DAMAGE_ERRORS):
                    tree[name] = _to_array(tree[name], dtypes[name])
    return tree


_DAMAGE_ERRORS = (ArtifactError, AttributeError, LookupError, TypeError, ValueError, OverflowError)
"""Errors that an invalid tree may cause in `compact`; `read_forest` reports the errors later."""


def _read_leaf_width(tree: Mapping[str, Any]) -> int:
    """Return the number of values per leaf of a tree; reject a wrong node count."""
    params = tree["tree_param"]
    if int(params["num_nodes"]) != len(tree["left_children"]):
        raise ArtifactError("a tree of the XGBoost model has more or fewer nodes than stated")
    return int(params.get("size_leaf_vector", 1)) or 1


def _check_statistic(tree: Mapping[str, Any], name: str, values_per_node: int) -> None:
    values = tree[name]
    if values is _CHECKED_ARRAY:
        return
    is_list = isinstance(values, list) or (isinstance(values, np.ndarray) and values.ndim == 1)
    if not is_list or len(values) != len(tree["left_children"]) * values_per_node:
        raise ArtifactError(f"{name} of a tree of the XGBoost model has the wrong length")
    types = set(map(type, values)) if isinstance(values, list) else {values.dtype.type}
    if not all(issubclass(cls, float | np.floating) for cls in types):
        raise ArtifactError(f"{name} of a tree of the XGBoost model must hold floats only")


def _to_array(values: Any, dtype: str) -> Array:
    """Convert a list or array to `dtype`; reject non-numeric values and integer overflow."""
    if isinstance(values, np.ndarray) and values.dtype == dtype:
        return values
    array = np.asarray(values)
    if not array.size:
        return array.astype(dtype)
    if dtype == "float32":
        if array.dtype.kind not in "fiu":
            raise ArtifactError("an entry of the XGBoost model is not a number")
        return array.astype(np.float32, copy=False)
    if array.dtype.kind not in "biu":
        raise ArtifactError("a node number of the XGBoost model is not an integer")
    converted = array.astype(dtype, copy=False)
    if converted.dtype != array.dtype and not (converted == array).all():
        raise ArtifactError("a node number of the XGBoost model is out of range")
    return converted


def read_forest(
    model: Mapping[str, Any], tree_weights: Any, num_features: int, num_outputs: int
) -> Forest:
    """Read the trees of the gbtree document `model`, and remove the arrays to save memory."""
    trees = _read_trees(model)
    num_trees = len(trees)
    sizes = np.array([len(tree["left_children"]) for tree in trees], np.int64)
    if (sizes == 0).any():
        raise ArtifactError("a tree of the XGBoost model has no nodes")
    starts = np.cumsum(sizes) - sizes
    if sizes.sum() > MAX_NODES:
        raise ArtifactError(f"the XGBoost model has more than {MAX_NODES} nodes")
    for tree, num_nodes in zip(trees, sizes.tolist(), strict=True):
        # XGBoost before 1.3 had no categorical splits, and did not store this entry.
        tree.setdefault("split_type", np.zeros(num_nodes, bool))
    leaf_width = _read_common_width(trees)
    if leaf_width not in (1, num_outputs):
        reason = f"leaves of the XGBoost model have {leaf_width} values, not {num_outputs}"
        raise ArtifactError(reason)
    join = partial(_pop_and_join, trees, sizes)
    left, right = join("left_children"), join("right_children")
    threshold, default_left = join("split_conditions"), join("default_left")
    is_leaf = left == -1
    _check_parents(join("parents"), left, right, is_leaf, sizes)
    value = _read_leaf_values(trees, leaf_width, sizes, is_leaf, right, threshold)
    output_index, weights = _read_outputs_and_weights(
        model, tree_weights, num_trees, leaf_width, num_outputs
    )
    sets = _read_category_sets(trees, sizes, starts)
    # XGBoost sends categories in the set to the right, but an Ensemble sends them to the left.
    is_swapped = np.zeros(left.size, bool)
    is_swapped[np.fromiter(sets, np.int64, len(sets))] = True
    if (join("split_type") != is_swapped).any():
        reason = "the categorical nodes of the XGBoost model are not the nodes with sets"
        raise ArtifactError(reason)
    is_swapped &= ~is_leaf
    left[is_swapped], right[is_swapped] = right[is_swapped], left[is_swapped]
    roots = np.repeat(starts.astype(np.int32), sizes)
    left += roots
    right += roots
    number = np.arange(left.size, dtype=np.int32) - roots
    del roots
    nodes = RawTrees(
        roots=starts,
        feature=join("split_indices"),
        threshold=np.where(is_swapped | is_leaf, np.float32(0), threshold),
        left=left,
        right=right,
        leaf=is_leaf,
        default_left=default_left ^ is_swapped,
        value=value,
        sets=sets or None,
        cover=join("sum_hessian"),
        gain=join("loss_changes"),
        number=number,
    )
    _check_features(trees, nodes, num_features)
    iteration_starts = _read_iteration_starts(model, num_trees, num_outputs, leaf_width)
    return Forest(nodes, output_index, iteration_starts, weights, num_features)


def _read_trees(model: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
    trees: Sequence[dict[str, Any]] = list(model["trees"])
    if int(model["gbtree_model_param"]["num_trees"]) != len(trees):
        raise ArtifactError("the XGBoost model has more or fewer trees than stated")
    if [tree["id"] for tree in trees] != list(range(len(trees))):
        raise ArtifactError("the trees of the XGBoost model are not numbered consecutively")
    return trees


def _pop_and_join(trees: Sequence[dict[str, Any]], sizes: Array, name: str) -> Array:
    dtype = _NODE_DTYPES.get(name, "float32")
    joined_values = np.empty(int(sizes.sum()), dtype)
    start = 0
    for tree, size in zip(trees, sizes.tolist(), strict=True):
        values = _to_array(tree.pop(name), dtype)
        if values.shape != (size,):
            raise ArtifactError(f"{name} of a tree of the XGBoost model has the wrong length")
        joined_values[start : start + size] = values
        start += size
    return joined_values


def _check_parents(parents: Array, left: Array, right: Array, is_leaf: Array, sizes: Array) -> None:
    """Check that children and parents match, because XGBoost follows parents without a check."""
    tree_size = np.repeat(sizes.astype(np.int32), sizes)
    for child in (left, right):
        if (~is_leaf & ((child < 0) | (child >= tree_size))).any():
            raise ArtifactError("a child index of the XGBoost model is out of range")
    starts = np.cumsum(sizes) - sizes
    roots = np.repeat(starts.astype(np.int32), sizes)
    inner = np.flatnonzero(~is_leaf)
    local_index = (inner - roots[inner]).astype(np.int32)
    is_inside = (parents >= 0) & (parents < tree_size)
    is_inside[starts] = np.isin(parents[starts], (-1, _NO_NODE))
    children = ((roots + child)[inner] for child in (left, right))
    if not is_inside.all() or any((parents[child] != local_index).any() for child in children):
        raise ArtifactError("the parents in a tree of the XGBoost model do not match its children")


def _read_outputs_and_weights(
    model: Mapping[str, Any], weight_drop: Any, num_trees: int, leaf_width: int, num_outputs: int
) -> tuple[Array, Array | None]:
    """Return the output index of each tree, and the tree weights (or None for gbtree)."""
    output_index = _to_array(model["tree_info"], "int32")
    is_outside = (output_index < 0) | (output_index > num_outputs - leaf_width)
    if output_index.shape != (num_trees,) or is_outside.any():
        raise ArtifactError("tree_info of the XGBoost model does not fit its trees")
    weights = None if weight_drop is None else _to_array(weight_drop, "float32")
    if weights is not None and weights.shape != (num_trees,):
        raise ArtifactError("weight_drop of the XGBoost model does not fit its trees")
    return output_index, weights


def _check_features(trees: Trees, nodes: RawTrees, num_features: int) -> None:
    is_deleted = nodes.feature == _NO_NODE
    deleted_counts = np.add.reduceat(is_deleted, nodes.roots) if trees else nodes.roots
    if [int(tree["tree_param"].get("num_deleted", 0)) for tree in trees] != deleted_counts.tolist():
        raise ArtifactError("an XGBoost tree has more or fewer deleted nodes than stated")
    if (~nodes.leaf & ((nodes.feature < 0) | (nodes.feature >= num_features))).any():
        raise ArtifactError(f"a tree of the XGBoost model reads beyond its {num_features} features")


def _read_common_width(trees: Trees) -> int:
    """Return the number of values per leaf in all trees; check the node statistics."""
    widths = {_read_leaf_width(tree) for tree in trees} or {1}
    if len(widths) > 1:
        raise ArtifactError("trees of the XGBoost model have different numbers of values per leaf")
    (width,) = widths
    for tree, name in product(trees, _STATISTICS):
        _check_statistic(tree, name, width if name == "base_weights" else 1)
    return width


def _read_leaf_values(
    trees: Trees, width: int, sizes: Array, is_leaf: Array, right: Array, threshold: Array
) -> Array:
    """Return the values of all nodes (nodes, width); the values of inner nodes are unused.

    A scalar leaf stores the value in split_conditions. A vector leaf (multi_output_tree) stores the
    values in a row of leaf_weights, and the index of this row in right_children.
    """
    if width == 1:
        if (right[is_leaf] != -1).any():
            raise ArtifactError("a leaf of the XGBoost model has a child")
        return threshold[:, None]
    name = "leaf_weights" if trees and "leaf_weights" in trees[0] else "base_weights"
    tree_vectors = [_to_array(tree[name], "float32").reshape(-1, width) for tree in trees]
    vectors = np.concatenate(tree_vectors)
    if name == "base_weights":
        # Older versions without leaf_weights stored one vector per node.
        if vectors.shape[0] != is_leaf.size or (right[is_leaf] != -1).any():
            raise ArtifactError("base_weights of a tree of the XGBoost model has the wrong length")
        return vectors
    vector_counts = np.array(list(map(len, tree_vectors)), np.int64)
    row_in_tree = np.where(is_leaf, right, 0)
    if ((row_in_tree < 0) | (is_leaf & (row_in_tree >= np.repeat(vector_counts, sizes)))).any():
        raise ArtifactError("a leaf of the XGBoost model has no vector")
    starts = np.repeat(np.cumsum(vector_counts) - vector_counts, sizes)
    values: Array = vectors[row_in_tree + starts]
    return values


def _read_category_sets(trees: Trees, sizes: Array, starts: Array) -> dict[int, Array]:
    """Map the index of each categorical node, across all trees, to the tested categories."""
    sets: dict[int, Array] = {}
    num_words = 0
    for tree, size, start in zip(trees, sizes.tolist(), starts.tolist(), strict=True):
        nodes = _to_array(tree.get("categories_nodes", ()), "int32").tolist()
        members = _to_array(tree.get("categories", ()), "int32")
        set_starts = _to_array(tree.get("categories_segments", ()), "int32").tolist()
        set_sizes = _to_array(tree.get("categories_sizes", ()), "int32").tolist()
        if members.size and (members.min() < 0 or members.max() >= MAX_CATEGORY):
            raise ArtifactError("a category of the XGBoost model is out of range")
        offsets = np.cumsum([0, *set_sizes]).tolist()
        is_valid = len(nodes) == len(set_sizes) and [*set_starts, members.size] == offsets
        is_valid = is_valid and all(0 <= node < size for node in nodes)
        if not is_valid or sorted(set(nodes)) != nodes or 0 in set_sizes:
            raise ArtifactError("the category sets of the XGBoost model are damaged")
        for node, set_start, set_size in zip(nodes, set_starts, set_sizes, strict=True):
            categories = members[set_start : set_start + set_size]
            sets[start + node] = categories
            num_words += int(categories.max()) // 32 + 1
            if num_words > MAX_SET_WORDS:
                raise ArtifactError("the category sets of the XGBoost model exceed the size limit")
    return sets


def _read_iteration_starts(
    model: Mapping[str, Any], num_trees: int, num_outputs: int, leaf_width: int
) -> Array:
    """Return the index of the first tree of each iteration, followed by the number of trees.

    Models before XGBoost 2.0 lack these indices, but have equally many trees per iteration.
    """
    num_parallel = int(model["gbtree_model_param"].get("num_parallel_tree", 1))
    if num_parallel < 1:
        raise ArtifactError(f"the XGBoost model states {num_parallel} parallel trees")
    if "iteration_indptr" in model:
        starts = _to_array(model["iteration_indptr"], "int32")
        is_ascending = starts.ndim == 1 and starts.size > 0 and bool((np.diff(starts) >= 0).all())
        if is_ascending and starts[0] == 0 and starts[-1] == num_trees:
            return starts
        if not starts.size and not num_trees:
            return np.zeros(1, np.int64)
        raise ArtifactError("iteration_indptr of the XGBoost model does not fit its trees")
    trees_per_iteration = num_parallel * (num_outputs if leaf_width == 1 else 1)
    return np.append(np.arange(0, num_trees, trees_per_iteration), num_trees)
