"""CatBoost's trees, symmetric or not, from the document to an Ensemble.

A float split is true for `x > border` in float32. A one-hot split is true if the hash of a category
equals the split's value. The IR tests `x <= border`, so "false" goes left there; for a category it
tests whether the code is in a set, so "true" goes left.

NaN counts as -inf (nan_value_treatment AsFalse) or +inf (AsTrue) in a column that had NaN in
training. In other columns every comparison with NaN is false
(catboost/libs/model/cpu/quantization.h).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sqlml.errors import ArtifactError
from sqlml.importers.catboost.features import Columns, Split, read_floats
from sqlml.ir.trees import BATCH_NODES, Ensemble, RawTrees, TreeCollector
from sqlml.types import Array

MAX_SYMMETRIC_DEPTH = 30


def read_forest(document: Mapping[str, Any], columns: Columns) -> tuple[Ensemble, int | None]:
    """Return the trees from zeros, and the number of values per leaf; None without trees."""
    nodes = _NodeBuffer()
    outputs: int | None = None
    is_symmetric = "oblivious_trees" in document
    read_tree = _read_symmetric_tree if is_symmetric else _read_nested_tree
    for tree in document["oblivious_trees" if is_symmetric else "trees"] or []:
        width = read_tree(tree, columns, nodes)
        if outputs not in (None, width):
            raise ArtifactError("the trees of the CatBoost model have leaves of different widths")
        outputs = width
    return nodes.build_ensemble(outputs or 1), outputs


def _read_symmetric_tree(tree: Mapping[str, Any], columns: Columns, nodes: _NodeBuffer) -> int:
    """Read a tree with one split per level; bit d of a leaf's number is the outcome of split d."""
    splits = [columns.read_split(s) for s in tree["splits"] or []]
    depth = len(splits)
    values = read_floats(tree["leaf_values"])
    leaves = 1 << min(depth, MAX_SYMMETRIC_DEPTH)
    if depth > MAX_SYMMETRIC_DEPTH or not values.size or values.size % leaves:
        raise ArtifactError(f"{values.size} leaf values of a CatBoost tree with {depth} splits")
    inner = leaves - 1
    total = inner + leaves
    # The tree becomes a heap with the last split at its root, so that leaves are in order.
    feature, border = np.zeros(total, np.int32), np.zeros(total, np.float32)
    nan_goes_left, false_is_left = np.zeros(total, bool), np.ones(total, bool)
    sets: dict[int, int] = {}
    for depth_of_split, split in enumerate(reversed(splits)):
        repeat = 1 << depth_of_split
        level = slice(repeat - 1, 2 * repeat - 1)
        feature[level], border[level] = split.feature, split.border
        nan_goes_left[level] = not split.nan_is_true
        if split.code is not None:
            false_is_left[level] = nan_goes_left[level] = False
            sets.update(dict.fromkeys(range(repeat - 1, 2 * repeat - 1), split.code))
    heap = np.arange(total, dtype=np.int32)
    false, true = 2 * heap + 1, 2 * heap + 2
    cover = np.full(total, np.nan)
    weights = tree.get("leaf_weights")
    if not isinstance(weights, np.ndarray) or weights.shape != (leaves,):
        weights = np.full(leaves, np.nan)
    for height in reversed(range(depth + 1)):
        cover[(1 << height) - 1 : (2 << height) - 1] = weights
        weights = weights.reshape(-1, 2).sum(axis=1) if height else weights
    value = np.zeros((total, values.size // leaves))
    value[inner:] = values.reshape(leaves, -1)
    nodes.append(
        sets,
        feature=feature,
        threshold=border,
        left=np.where(false_is_left, false, true),
        right=np.where(false_is_left, true, false),
        leaf=heap >= inner,
        default_left=nan_goes_left,
        value=value,
        cover=cover,
    )
    return value.shape[1]


def _read_nested_tree(tree: Mapping[str, Any], columns: Columns, nodes: _NodeBuffer) -> int:
    """Read a tree of nodes {"split", "left", "right"} or {"value"}, of which left is false."""
    splits, values = list[Split | None](), list[Array | None]()
    left, right, weights = list[int](), list[int](), list[float]()
    sets: dict[int, int] = {}
    waiting: list[tuple[Any, list[int] | None, int]] = [(tree, None, 0)]
    while waiting:
        node, children, parent = waiting.pop()
        number = len(splits)
        if children is not None:
            children[parent] = number
        left.append(0)
        right.append(0)
        weight = node.get("weight")
        weights.append(float(weight) if isinstance(weight, int | float) else np.nan)
        if "value" in node:
            value = node["value"]
            splits.append(None)
            values.append(read_floats(value if isinstance(value, list) else [value]))
            continue
        split = columns.read_split(node["split"])
        splits.append(split)
        values.append(None)
        false, true = left, right
        if split.code is not None:
            sets[number] = split.code
            false, true = right, left
        waiting += [(node["left"], false, number), (node["right"], true, number)]
    widths = {v.size for v in values if v is not None}
    width = widths.pop()
    if widths or not width:
        raise ArtifactError("the leaves of a CatBoost tree differ in width")
    value = np.zeros((len(splits), width))
    for row, leaf_value in zip(value, values, strict=True):
        if leaf_value is not None:
            row[:] = leaf_value
    for i in reversed(range(len(splits))):  # a child's number is above its parent's
        if splits[i] is not None:
            weights[i] = weights[left[i]] + weights[right[i]]
    nodes.append(
        sets,
        feature=np.array([0 if s is None else s.feature for s in splits], np.int32),
        threshold=np.array([0 if s is None else s.border for s in splits], np.float32),
        left=np.array(left, np.int32),
        right=np.array(right, np.int32),
        leaf=np.array([s is None for s in splits], bool),
        default_left=np.array(
            [s is not None and s.code is None and not s.nan_is_true for s in splits], bool
        ),
        value=value,
        cover=np.array(weights),
    )
    return width


class _NodeBuffer:
    """The nodes of some trees, passed on to `collector` in batches."""

    def __init__(self) -> None:
        self.collector = TreeCollector(np.dtype(np.float64))
        self.trees = 0
        self._clear()

    def _clear(self) -> None:
        self.roots: list[int] = []
        self.arrays: dict[str, list[Array]] = {}
        self.sets: dict[int, Array] = {}
        self.size = 0

    def append(self, sets: Mapping[int, int], **arrays: Array) -> None:
        """Add a tree whose root is its node 0; `sets` has the codes that go left, by node."""
        self.trees += 1
        self.roots.append(self.size)
        for name, array in arrays.items():
            shift = self.size if name in ("left", "right") else 0
            self.arrays.setdefault(name, []).append(array + shift if shift else array)
        for node, code in sets.items():
            self.sets[self.size + node] = np.array([code], np.int64)
        self.size += arrays["feature"].size
        if self.size >= BATCH_NODES:
            self._flush()

    def _flush(self) -> None:
        joined = {name: np.concatenate(arrays) for name, arrays in self.arrays.items()}
        roots, sets = np.array(self.roots, np.int64), self.sets or None
        self._clear()
        self.collector.add(RawTrees(roots, **joined, sets=sets))

    def build_ensemble(self, outputs: int) -> Ensemble:
        if self.size:
            self._flush()
        if not self.trees:
            numbers, flags = np.zeros(0, np.int32), np.zeros(0, bool)
            threshold, value = np.zeros(0, np.float32), np.zeros((0, outputs))
            self.collector.add(
                RawTrees(numbers, numbers, threshold, numbers, numbers, flags, flags, value)
            )
        target = np.zeros(self.trees, np.int32)
        return self.collector.build(target=target, base=np.zeros(outputs), compare="le")
