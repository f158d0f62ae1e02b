"""`Forest`: the trees of gbtree and dart as arrays, and the Ensemble they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sqlml.errors import ArtifactError, ProgramError
from sqlml.ir.trees import Ensemble, RawTrees, ensemble
from sqlml.types import Array, matrix

MAX_NODES = 1 << 30
"""Most nodes that all trees may have together, so that their numbers are int32."""

MAX_CATEGORY = 1 << 24
"""Codes are float32; XGBoost refuses codes from here on (common/categorical.h)."""

_NUMBERS = {
    "left_children": "int32",
    "right_children": "int32",
    "parents": "int32",
    "split_indices": "int32",
    "split_type": "bool",
    "default_left": "bool",
    "split_conditions": "float32",
}
"""What is read of each node, and in which dtype."""

_DELETED = np.iinfo(np.int32).max
"""The feature of a node that pruning took away."""

_STATISTICS = ("base_weights", "loss_changes", "sum_hessian")
"""Floats of each node that no prediction of a tree with leaves of one value reads."""

_SETS = ("categories_nodes", "categories", "categories_segments", "categories_sizes")
"""Keys for the categories that a node tests; empty in most trees."""

_CHECKED = "checked"
"""Stands in a tree for what `compact` has checked and left out."""

_NO_PARENT = (-1, (1 << 31) - 1)
"""What XGBoost calls the parent of a root."""

MAX_SET_WORDS = 1 << 26
"""Most words that the bit sets of all categorical nodes may have together."""


@dataclass(frozen=True, slots=True, eq=False)
class Forest:
    """All trees; node numbers are absolute.

    roots int64 (T,), group int32 (T,): the output that a tree adds to; indptr int64: tree numbers
    at which iterations begin; drop float32 (T,) or None: the weights of dart.
    """

    nodes: RawTrees
    group: Array
    indptr: Array
    drop: Array | None
    features: int

    def trees_until(self, best_iteration: int | None) -> int:
        """How many trees the iterations 0 .. best_iteration have, all of them for None."""
        if best_iteration is None or not 0 <= best_iteration < self.indptr.size - 1:
            return int(self.group.size)
        return int(self.indptr[best_iteration + 1])

    def ensemble(self, trees: int, base: Array, inplace: bool) -> Ensemble:
        """The first `trees` trees on top of the margin `base` float32 (K,).

        Dart scales each tree. Its `inplace_predict`, which the estimators use, adds the base
        margin to a tree and takes it away again before it scales, and rounds twice by that; we
        do the same, so that margins are equal bit for bit.

        Raises:
            ArtifactError: child or feature numbers that make no tree.
        """
        raw, value = self.nodes, self.nodes.value
        if self.drop is not None:
            sizes = np.diff(np.append(raw.roots, raw.feature.size))
            if inplace:
                several = value.shape[1] > 1
                offset = base[None, :] if several else np.repeat(base[self.group], sizes)[:, None]
                value = (value + offset) - offset
            value = value * np.repeat(self.drop, sizes)[:, None]
        raw = replace(raw, roots=raw.roots[:trees], value=value)
        try:
            made = ensemble(raw, target=self.group[:trees], base=base, compare="lt")
            made.check(matrix("float32", self.features))
        except ProgramError as error:
            raise ArtifactError(f"the XGBoost model is damaged: {error}") from None
        return made


def compact(entry: dict[str, Any]) -> dict[str, Any]:
    """Take an object of a JSON document as it is parsed: of a tree, arrays in place of lists.

    So a document never stands in memory as Python numbers. A list that makes no array stays, for
    `read_forest` to refuse.
    """
    if "left_children" not in entry:
        return entry
    sets = [entry.get(name) for name in _SETS]
    if all(isinstance(part, list | np.ndarray) and not len(part) for part in sets):
        for name in _SETS[1:]:
            del entry[name]
    numbers = {**_NUMBERS, "base_weights": "float32", "leaf_weights": "float32"}
    with np.errstate(all="ignore"):
        try:
            width = _width(entry)
            for name in _STATISTICS if width == 1 else ():
                _check_statistic(entry, name, 1)
            if width == 1:
                entry["base_weights"] = _CHECKED
                entry.pop("leaf_weights", None)
                numbers |= dict.fromkeys(_STATISTICS, "float32")
        except _NO_ARRAY:
            pass
        for name in numbers.keys() & entry.keys():
            try:
                if entry[name] is not _CHECKED:
                    entry[name] = _numbers(entry[name], numbers[name])
            except _NO_ARRAY:
                continue
    return entry


_NO_ARRAY = (ArtifactError, AttributeError, LookupError, TypeError, ValueError, OverflowError)
"""Errors caused by a tree that XGBoost did not write; `read_forest` reports them."""


def _width(tree: Mapping[str, Any]) -> int:
    """The number of values per leaf; a tree's stated sizes are checked against its arrays."""
    about = tree["tree_param"]
    if int(about["num_nodes"]) != len(tree["left_children"]):
        raise ArtifactError("a tree of the XGBoost model has more or fewer nodes than stated")
    return int(about.get("size_leaf_vector", 1)) or 1


def _check_statistic(tree: Mapping[str, Any], name: str, width: int) -> None:
    """XGBoost reads them without a look at how many there are."""
    given = tree[name]
    if given is _CHECKED:
        return
    listed = isinstance(given, list) or (isinstance(given, np.ndarray) and given.ndim == 1)
    if not listed or len(given) != len(tree["left_children"]) * width:
        raise ArtifactError(f"{name} of a tree of the XGBoost model has the wrong length")
    kinds = set(map(type, given)) if isinstance(given, list) else {given.dtype.type}
    if not all(issubclass(kind, float | np.floating) for kind in kinds):
        raise ArtifactError(f"{name} of a tree of the XGBoost model must hold floats only")


def _numbers(given: Any, dtype: str) -> Array:
    """A list or array of a document as an array of `dtype`, which must hold what it says."""
    if isinstance(given, np.ndarray) and given.dtype == dtype:
        return given
    array = np.asarray(given)
    if not array.size:
        return array.astype(dtype)
    if dtype == "float32":
        if array.dtype.kind not in "fiu":
            raise ArtifactError("an entry of the XGBoost model is not a number")
        return array.astype(np.float32, copy=False)
    if array.dtype.kind not in "biu":
        raise ArtifactError("a node number of the XGBoost model is not an integer")
    made = array.astype(dtype, copy=False)
    if made.dtype != array.dtype and not (made == array).all():
        raise ArtifactError("a node number of the XGBoost model is out of range")
    return made


def read_forest(model: Mapping[str, Any], drop: Any, features: int, outputs: int) -> Forest:
    """The `model` entry of a gbtree document as arrays, which are taken out of its trees, so that
    memory holds them once.

    Raises:
        ArtifactError: arrays of one tree differ in length, or numbers are out of range.
        KeyError, TypeError, ValueError: an entry is absent or of another type.
    """
    trees: Sequence[dict[str, Any]] = list(model["trees"])
    count = len(trees)
    if int(model["gbtree_model_param"]["num_trees"]) != count:
        raise ArtifactError("the XGBoost model has more or fewer trees than stated")
    if [tree["id"] for tree in trees] != list(range(count)):
        raise ArtifactError("the trees of the XGBoost model are not numbered one by one")
    sizes = np.array([len(t["left_children"]) for t in trees], np.int64)
    if (sizes == 0).any():
        raise ArtifactError("a tree of the XGBoost model has no nodes")
    starts = np.cumsum(sizes) - sizes
    if sizes.sum() > MAX_NODES:
        raise ArtifactError(f"the XGBoost model has more than {MAX_NODES} nodes")
    for tree, nodes in zip(trees, sizes.tolist(), strict=True):
        # XGBoost before 1.3 had no splits by categories, and takes their absence for that.
        tree.setdefault("split_type", np.zeros(nodes, bool))

    width = _common_width(trees)

    def joined(name: str) -> Array:
        dtype = _NUMBERS.get(name, "float32")
        made = np.empty(int(sizes.sum()), dtype)
        for tree, start, size in zip(trees, starts.tolist(), sizes.tolist(), strict=True):
            part = _numbers(tree.pop(name), dtype)
            if part.shape != (size,):
                raise ArtifactError(f"{name} of a tree of the XGBoost model has the wrong length")
            made[start : start + size] = part
        return made

    left, right = joined("left_children"), joined("right_children")
    threshold = joined("split_conditions")
    default_left = joined("default_left")
    leaf = left == -1
    size = np.repeat(sizes.astype(np.int32), sizes)
    for child in (left, right):
        if (~leaf & ((child < 0) | (child >= size))).any():
            raise ArtifactError("a child number of the XGBoost model is out of range")
    own = np.repeat(starts.astype(np.int32), sizes)
    _check_parents(joined("parents"), left, right, leaf, own, size, starts)
    del size
    value = _leaf_values(trees, width, sizes, leaf, right, threshold)
    if width not in (1, outputs):
        raise ArtifactError(f"leaves of the XGBoost model have {width} values, not {outputs}")
    group = _numbers(model["tree_info"], "int32")
    if group.shape != (count,) or (
        count and (group.min() < 0 or int(group.max()) + width > outputs)
    ):
        raise ArtifactError("tree_info of the XGBoost model does not fit its trees")
    weights = None if drop is None else _numbers(drop, "float32")
    if weights is not None and weights.shape != (count,):
        raise ArtifactError("weight_drop of the XGBoost model does not fit its trees")
    sets = _sets(trees, sizes, starts)
    # XGBoost sends members of the set to the right, Ensemble to the left.
    swapped = np.zeros(left.size, bool)
    swapped[np.fromiter(sets, np.int64, len(sets))] = True
    if (joined("split_type") != swapped).any():
        raise ArtifactError("the categorical nodes of the XGBoost model are not those with sets")
    swapped &= ~leaf
    if swapped.any():
        left[swapped], right[swapped] = right[swapped], left[swapped]
    left += own
    right += own
    del own
    nodes = RawTrees(
        roots=starts,
        feature=joined("split_indices"),
        threshold=np.where(swapped | leaf, np.float32(0), threshold),
        left=left,
        right=right,
        leaf=leaf,
        default_left=default_left ^ swapped,
        value=value,
        sets=sets or None,
        cover=joined("sum_hessian"),
        gain=joined("loss_changes"),
    )
    deleted = np.add.reduceat(nodes.feature == _DELETED, starts) if count else starts
    if [int(tree["tree_param"].get("num_deleted", 0)) for tree in trees] != deleted.tolist():
        raise ArtifactError(
            "a tree of the XGBoost model has more or fewer nodes deleted than stated"
        )
    if (~leaf & ((nodes.feature < 0) | (nodes.feature >= features))).any():
        raise ArtifactError(f"a tree of the XGBoost model reads beyond its {features} features")
    return Forest(nodes, group, _indptr(model, count, outputs, width), weights, features)


def _check_parents(
    parents: Array, left: Array, right: Array, leaf: Array, own: Array, size: Array, roots: Array
) -> None:
    """No prediction of ours asks for parents, but XGBoost reads at the places that they name."""
    inner = np.flatnonzero(~leaf)
    here = (inner - own[inner]).astype(np.int32)
    inside = (parents >= 0) & (parents < size)
    inside[roots] = np.isin(parents[roots], _NO_PARENT)
    fits = all((parents[(own + child)[inner]] == here).all() for child in (left, right))
    if not (inside.all() and fits):
        raise ArtifactError("the parents in a tree of the XGBoost model are not those of its nodes")


def _common_width(trees: Sequence[Mapping[str, Any]]) -> int:
    """How many values each leaf has."""
    widths = {_width(t) for t in trees} or {1}
    if len(widths) > 1:
        raise ArtifactError("trees of the XGBoost model differ in the size of their leaves")
    (width,) = widths
    for tree in trees:
        for name in _STATISTICS:
            _check_statistic(tree, name, width if name == "base_weights" else 1)
    return width


def _leaf_values(
    trees: Sequence[Mapping[str, Any]],
    width: int,
    sizes: Array,
    leaf: Array,
    right: Array,
    threshold: Array,
) -> Array:
    """(nodes, width). Leaves keep their value in split_conditions; vector leaves
    (multi_output_tree) in leaf_weights, and their place there in right_children."""
    if width == 1:
        if (right[leaf] != -1).any():
            raise ArtifactError("a leaf of the XGBoost model has a child")
        return threshold[:, None]
    name = "leaf_weights" if trees and "leaf_weights" in trees[0] else "base_weights"
    parts = [_numbers(t[name], "float32").reshape(-1, width) for t in trees]
    if name == "base_weights":
        # Before leaf_weights came, there was one vector for each node.
        value = np.concatenate(parts)
        if value.shape[0] != leaf.size or (right[leaf] != -1).any():
            raise ArtifactError("base_weights of a tree of the XGBoost model has the wrong length")
        return value
    counts = np.array([len(p) for p in parts], np.int64)
    rows = np.concatenate(parts)
    at = np.where(leaf, right, 0)
    if ((at < 0) | (leaf & (at >= np.repeat(counts, sizes)))).any():
        raise ArtifactError("a leaf of the XGBoost model has no vector")
    chosen: Array = rows[at + np.repeat(np.cumsum(counts) - counts, sizes)]
    return chosen


def _sets(trees: Sequence[Mapping[str, Any]], sizes: Array, starts: Array) -> dict[int, Array]:
    """Node number -> categories of its set."""
    sets: dict[int, Array] = {}
    words = 0
    for tree, size, start in zip(trees, sizes.tolist(), starts.tolist(), strict=True):
        nodes = _numbers(tree.get("categories_nodes", ()), "int32").tolist()
        members = _numbers(tree.get("categories", ()), "int32")
        begins = _numbers(tree.get("categories_segments", ()), "int32").tolist()
        counts = _numbers(tree.get("categories_sizes", ()), "int32").tolist()
        if members.size and (members.min() < 0 or members.max() >= MAX_CATEGORY):
            raise ArtifactError("a category of the XGBoost model is out of range")
        behind = np.cumsum([0, *counts]).tolist()
        fits = len(nodes) == len(counts) and [*begins, members.size] == behind
        if not fits or sorted(set(nodes)) != nodes or 0 in counts:
            raise ArtifactError("the category sets of the XGBoost model are damaged")
        for node, begin, count in zip(nodes, begins, counts, strict=True):
            if not 0 <= node < size:
                raise ArtifactError("the category sets of the XGBoost model are damaged")
            chosen = members[begin : begin + count]
            sets[start + node] = chosen
            words += int(chosen.max()) // 32 + 1
            if words > MAX_SET_WORDS:
                raise ArtifactError("the category sets of the XGBoost model are over the limit")
    return sets


def _indptr(model: Mapping[str, Any], trees: int, outputs: int, width: int) -> Array:
    """Tree numbers at which iterations begin; files before XGBoost 2.0 do not say them."""
    parallel = _parallel_trees(model)
    if "iteration_indptr" in model:
        indptr = _numbers(model["iteration_indptr"], "int32")
        steps = np.diff(indptr)
        if indptr.ndim == 1 and indptr.size and indptr[0] == 0 and indptr[-1] == trees:
            if (steps >= 0).all():
                return indptr
        if not indptr.size and not trees:
            return np.zeros(1, np.int64)
        raise ArtifactError("iteration_indptr of the XGBoost model does not fit its trees")
    return np.append(np.arange(0, trees, parallel * (outputs if width == 1 else 1)), trees)


def _parallel_trees(model: Mapping[str, Any]) -> int:
    """How many trees a round trains for each output."""
    given = int(model["gbtree_model_param"].get("num_parallel_tree", 1))
    if given < 1:
        raise ArtifactError(f"the XGBoost model states {given} parallel trees")
    return given
