"""The trees of XGBoost's gbtree and dart boosters, from the document to an Ensemble."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from sqlml.errors import ArtifactError, ProgramError
from sqlml.ir.trees import Ensemble, RawTrees, build_ensemble
from sqlml.types import Array, matrix

MAX_NODES = 1 << 30
"""The largest number of nodes in all trees together, so that node numbers fit int32."""

MAX_CATEGORY = 1 << 24
"""The limit of category codes: they are float32, and XGBoost rejects larger ones
(common/categorical.h)."""

_NUMBERS = {
    **dict.fromkeys(("left_children", "right_children", "parents", "split_indices"), "int32"),
    **dict.fromkeys(("split_type", "default_left"), "bool"),
    "split_conditions": "float32",
}
"""The arrays that have one entry per node, with their dtypes."""

_NO_NODE = np.iinfo(np.int32).max
"""The feature number of a node that pruning has removed, and the parent of a root (or -1)."""

_STATISTICS = ("base_weights", "loss_changes", "sum_hessian")
"""Floats of each node that prediction does not read if leaves have one value."""

_SETS = ("categories_nodes", "categories", "categories_segments", "categories_sizes")
"""Keys of the categories that nodes test; empty in most trees."""

_CHECKED = "checked"
"""Replaces an array that `compact` has checked and dropped."""

MAX_SET_WORDS = 1 << 26
"""The largest size of the bit sets of all categorical nodes together, in 32-bit words."""


@dataclass(frozen=True, slots=True, eq=False)
class Forest:
    """T trees with absolute node numbers.

    Attributes:
        group: the output that each tree adds to, int32 (T,).
        indptr: tree numbers at which iterations begin, and T; int64.
        drop: the tree weights of dart, float32 (T,), or None.
    """

    nodes: RawTrees
    group: Array
    indptr: Array
    drop: Array | None
    features: int

    def count_trees(self, best_iteration: int | None) -> int:
        """Count the trees of the iterations 0 ... best_iteration; all trees if it is None."""
        if best_iteration is None or not 0 <= best_iteration < self.indptr.size - 1:
            return int(self.group.size)
        return int(self.indptr[best_iteration + 1])

    def build_ensemble(self, trees: int, base: Array, inplace: bool) -> Ensemble:
        """Build an Ensemble of the first `trees` trees on top of the margin `base` float32 (K,).

        Dart scales each tree. Its `inplace_predict`, which the estimators use, adds the base
        margin to a tree and subtracts it again before it scales, which rounds twice. This does
        the same, so that margins are equal bit for bit.
        """
        raw, value = self.nodes, self.nodes.value
        if self.drop is not None:
            sizes = np.diff(np.append(raw.roots, raw.feature.size))
            if inplace:
                offset = base[None, :]
                if value.shape[1] == 1:
                    offset = np.repeat(base[self.group], sizes)[:, None]
                value = (value + offset) - offset
            value = value * np.repeat(self.drop, sizes)[:, None]
        raw = replace(raw, roots=raw.roots[:trees], value=value)
        try:
            result = build_ensemble(raw, target=self.group[:trees], base=base, compare="lt")
            result.check(matrix("float32", self.features))
        except ProgramError as error:
            raise ArtifactError(f"the XGBoost model is damaged: {error}") from None
        return result


def compact(entry: dict[str, Any]) -> dict[str, Any]:
    """Replace the lists of a tree by arrays while the document is parsed, to save memory.

    A list that does not form an array stays, and `read_forest` rejects it.
    """
    if "left_children" not in entry:
        return entry
    sets = [entry.get(name) for name in _SETS]
    if all(isinstance(members, list | np.ndarray) and not len(members) for members in sets):
        for name in _SETS[1:]:
            del entry[name]
    numbers = {**_NUMBERS, "base_weights": "float32", "leaf_weights": "float32"}
    with np.errstate(all="ignore"):
        with suppress(*_NO_ARRAY):
            if _read_leaf_width(entry) == 1:
                for name in _STATISTICS:
                    _check_statistic(entry, name, 1)
                entry["base_weights"] = _CHECKED
                entry.pop("leaf_weights", None)
                numbers |= dict.fromkeys(_STATISTICS, "float32")
        for name in numbers.keys() & entry.keys():
            if entry[name] is not _CHECKED:
                with suppress(*_NO_ARRAY):
                    entry[name] = _to_array(entry[name], numbers[name])
    return entry


_NO_ARRAY = (ArtifactError, AttributeError, LookupError, TypeError, ValueError, OverflowError)
"""Errors caused by a tree that XGBoost did not write; `read_forest` reports them."""


def _read_leaf_width(tree: Mapping[str, Any]) -> int:
    """Return the number of values per leaf, after checking the stated number of nodes."""
    params = tree["tree_param"]
    if int(params["num_nodes"]) != len(tree["left_children"]):
        raise ArtifactError("a tree of the XGBoost model has more or fewer nodes than stated")
    return int(params.get("size_leaf_vector", 1)) or 1


def _check_statistic(tree: Mapping[str, Any], name: str, width: int) -> None:
    """Check the length and type of floats, which XGBoost reads without a check of the length."""
    values = tree[name]
    if values is _CHECKED:
        return
    is_listed = isinstance(values, list) or (isinstance(values, np.ndarray) and values.ndim == 1)
    if not is_listed or len(values) != len(tree["left_children"]) * width:
        raise ArtifactError(f"{name} of a tree of the XGBoost model has the wrong length")
    types = set(map(type, values)) if isinstance(values, list) else {values.dtype.type}
    if not all(issubclass(kind, float | np.floating) for kind in types):
        raise ArtifactError(f"{name} of a tree of the XGBoost model must hold floats only")


def _to_array(values: Any, dtype: str) -> Array:
    """Convert a list or array of a document to an array of `dtype` without loss of integers."""
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


def read_forest(model: Mapping[str, Any], drop: Any, features: int, outputs: int) -> Forest:
    """Read the `model` entry of a gbtree document, and remove its arrays to save memory."""
    trees = _read_trees(model)
    count = len(trees)
    sizes = np.array([len(t["left_children"]) for t in trees], np.int64)
    if (sizes == 0).any():
        raise ArtifactError("a tree of the XGBoost model has no nodes")
    starts = np.cumsum(sizes) - sizes
    if sizes.sum() > MAX_NODES:
        raise ArtifactError(f"the XGBoost model has more than {MAX_NODES} nodes")
    for tree, nodes in zip(trees, sizes.tolist(), strict=True):
        # XGBoost before 1.3 had no categorical splits and no such entry.
        tree.setdefault("split_type", np.zeros(nodes, bool))
    width = _read_common_width(trees)
    if width not in (1, outputs):
        raise ArtifactError(f"leaves of the XGBoost model have {width} values, not {outputs}")
    left, right = _join(trees, sizes, "left_children"), _join(trees, sizes, "right_children")
    threshold = _join(trees, sizes, "split_conditions")
    default_left = _join(trees, sizes, "default_left")
    leaf = left == -1
    _check_children(_join(trees, sizes, "parents"), left, right, leaf, sizes)
    value = _read_leaf_values(trees, width, sizes, leaf, right, threshold)
    group, weights = _read_groups_and_weights(model, drop, count, width, outputs)
    sets = _read_sets(trees, sizes, starts)
    # XGBoost sends members of the set to the right, Ensemble to the left.
    swapped = np.zeros(left.size, bool)
    swapped[np.fromiter(sets, np.int64, len(sets))] = True
    if (_join(trees, sizes, "split_type") != swapped).any():
        raise ArtifactError("the categorical nodes of the XGBoost model are not those with sets")
    swapped &= ~leaf
    if swapped.any():
        left[swapped], right[swapped] = right[swapped], left[swapped]
    roots = np.repeat(starts.astype(np.int32), sizes)
    left += roots
    right += roots
    del roots
    nodes = RawTrees(
        roots=starts,
        feature=_join(trees, sizes, "split_indices"),
        threshold=np.where(swapped | leaf, np.float32(0), threshold),
        left=left,
        right=right,
        leaf=leaf,
        default_left=default_left ^ swapped,
        value=value,
        sets=sets or None,
        cover=_join(trees, sizes, "sum_hessian"),
        gain=_join(trees, sizes, "loss_changes"),
    )
    _check_features(trees, nodes, features)
    return Forest(nodes, group, _read_indptr(model, count, outputs, width), weights, features)


def _read_trees(model: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
    trees: Sequence[dict[str, Any]] = list(model["trees"])
    if int(model["gbtree_model_param"]["num_trees"]) != len(trees):
        raise ArtifactError("the XGBoost model has more or fewer trees than stated")
    if [tree["id"] for tree in trees] != list(range(len(trees))):
        raise ArtifactError("the trees of the XGBoost model are not numbered one by one")
    return trees


def _join(trees: Sequence[dict[str, Any]], sizes: Array, name: str) -> Array:
    """Remove the array `name` from all trees and return its concatenation."""
    dtype = _NUMBERS.get(name, "float32")
    joined = np.empty(int(sizes.sum()), dtype)
    start = 0
    for tree, size in zip(trees, sizes.tolist(), strict=True):
        values = _to_array(tree.pop(name), dtype)
        if values.shape != (size,):
            raise ArtifactError(f"{name} of a tree of the XGBoost model has the wrong length")
        joined[start : start + size] = values
        start += size
    return joined


def _check_children(parents: Array, left: Array, right: Array, leaf: Array, sizes: Array) -> None:
    """Check child numbers, and parents, which are unused here but read by XGBoost unchecked."""
    size = np.repeat(sizes.astype(np.int32), sizes)
    for child in (left, right):
        if (~leaf & ((child < 0) | (child >= size))).any():
            raise ArtifactError("a child number of the XGBoost model is out of range")
    starts = np.cumsum(sizes) - sizes
    roots = np.repeat(starts.astype(np.int32), sizes)
    inner = np.flatnonzero(~leaf)
    numbers = (inner - roots[inner]).astype(np.int32)
    is_inside = (parents >= 0) & (parents < size)
    is_inside[starts] = np.isin(parents[starts], (-1, _NO_NODE))
    fits = all((parents[(roots + child)[inner]] == numbers).all() for child in (left, right))
    if not (is_inside.all() and fits):
        raise ArtifactError("the parents in a tree of the XGBoost model are not those of its nodes")


def _read_groups_and_weights(
    model: Mapping[str, Any], drop: Any, trees: int, width: int, outputs: int
) -> tuple[Array, Array | None]:
    """Return the output and the dart weight of each tree."""
    group = _to_array(model["tree_info"], "int32")
    if group.shape != (trees,) or ((group < 0) | (group > outputs - width)).any():
        raise ArtifactError("tree_info of the XGBoost model does not fit its trees")
    weights = None if drop is None else _to_array(drop, "float32")
    if weights is not None and weights.shape != (trees,):
        raise ArtifactError("weight_drop of the XGBoost model does not fit its trees")
    return group, weights


def _check_features(trees: Sequence[Mapping[str, Any]], nodes: RawTrees, features: int) -> None:
    deleted = np.add.reduceat(nodes.feature == _NO_NODE, nodes.roots) if trees else nodes.roots
    if [int(tree["tree_param"].get("num_deleted", 0)) for tree in trees] != deleted.tolist():
        raise ArtifactError("an XGBoost tree has more or fewer nodes deleted than stated")
    if (~nodes.leaf & ((nodes.feature < 0) | (nodes.feature >= features))).any():
        raise ArtifactError(f"a tree of the XGBoost model reads beyond its {features} features")


def _read_common_width(trees: Sequence[Mapping[str, Any]]) -> int:
    """Return the number of values per leaf, after checking the statistics of the nodes."""
    widths = {_read_leaf_width(t) for t in trees} or {1}
    if len(widths) > 1:
        raise ArtifactError("trees of the XGBoost model differ in the size of their leaves")
    (width,) = widths
    for tree, name in product(trees, _STATISTICS):
        _check_statistic(tree, name, width if name == "base_weights" else 1)
    return width


def _read_leaf_values(
    trees: Sequence[Mapping[str, Any]],
    width: int,
    sizes: Array,
    leaf: Array,
    right: Array,
    threshold: Array,
) -> Array:
    """Return the values of the nodes, (nodes, width).

    Scalar leaves have their value in split_conditions. Vector leaves (multi_output_tree) have
    theirs in leaf_weights, and their row number there in right_children.
    """
    if width == 1:
        if (right[leaf] != -1).any():
            raise ArtifactError("a leaf of the XGBoost model has a child")
        return threshold[:, None]
    name = "leaf_weights" if trees and "leaf_weights" in trees[0] else "base_weights"
    vectors = [_to_array(t[name], "float32").reshape(-1, width) for t in trees]
    if name == "base_weights":
        # Older versions without leaf_weights stored one vector per node.
        value = np.concatenate(vectors)
        if value.shape[0] != leaf.size or (right[leaf] != -1).any():
            raise ArtifactError("base_weights of a tree of the XGBoost model has the wrong length")
        return value
    counts = np.array([len(v) for v in vectors], np.int64)
    row = np.where(leaf, right, 0)
    if ((row < 0) | (leaf & (row >= np.repeat(counts, sizes)))).any():
        raise ArtifactError("a leaf of the XGBoost model has no vector")
    starts = np.repeat(np.cumsum(counts) - counts, sizes)
    values: Array = np.concatenate(vectors)[row + starts]
    return values


def _read_sets(trees: Sequence[Mapping[str, Any]], sizes: Array, starts: Array) -> dict[int, Array]:
    """Return the categories that each categorical node tests, by node number."""
    sets: dict[int, Array] = {}
    words = 0
    for tree, size, start in zip(trees, sizes.tolist(), starts.tolist(), strict=True):
        nodes = _to_array(tree.get("categories_nodes", ()), "int32").tolist()
        members = _to_array(tree.get("categories", ()), "int32")
        begins = _to_array(tree.get("categories_segments", ()), "int32").tolist()
        counts = _to_array(tree.get("categories_sizes", ()), "int32").tolist()
        if members.size and (members.min() < 0 or members.max() >= MAX_CATEGORY):
            raise ArtifactError("a category of the XGBoost model is out of range")
        offsets = np.cumsum([0, *counts]).tolist()
        fits = len(nodes) == len(counts) and [*begins, members.size] == offsets
        if not fits or sorted(set(nodes)) != nodes or 0 in counts:
            raise ArtifactError("the category sets of the XGBoost model are damaged")
        for node, begin, count in zip(nodes, begins, counts, strict=True):
            if not 0 <= node < size:
                raise ArtifactError("the category sets of the XGBoost model are damaged")
            categories = members[begin : begin + count]
            sets[start + node] = categories
            words += int(categories.max()) // 32 + 1
            if words > MAX_SET_WORDS:
                raise ArtifactError("the category sets of the XGBoost model are over the limit")
    return sets


def _read_indptr(model: Mapping[str, Any], trees: int, outputs: int, width: int) -> Array:
    """Return the tree numbers at which iterations begin, which XGBoost writes since 2.0."""
    parallel = int(model["gbtree_model_param"].get("num_parallel_tree", 1))
    if parallel < 1:
        raise ArtifactError(f"the XGBoost model states {parallel} parallel trees")
    if "iteration_indptr" in model:
        indptr = _to_array(model["iteration_indptr"], "int32")
        ascends = indptr.ndim == 1 and indptr.size > 0 and bool((np.diff(indptr) >= 0).all())
        if ascends and indptr[0] == 0 and indptr[-1] == trees:
            return indptr
        if not indptr.size and not trees:
            return np.zeros(1, np.int64)
        raise ArtifactError("iteration_indptr of the XGBoost model does not fit its trees")
    return np.append(np.arange(0, trees, parallel * (outputs if width == 1 else 1)), trees)
