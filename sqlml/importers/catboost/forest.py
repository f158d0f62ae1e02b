"""Convert CatBoost's trees, symmetric or not, from the document to an Ensemble.

A float split is true for `x > border` in float32. The IR tests `x <= border`, so the false branch
becomes the left child. A one-hot split is true if the hash of a category equals the split's value.
The IR tests whether the code is in a set, so the true branch becomes the left child.

NaN counts as -inf (nan_value_treatment AsFalse) or +inf (AsTrue) in a column that had NaN in
training. In other columns every comparison with NaN is false
(catboost/libs/model/cpu/quantization.h).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sqlml.errors import ArtifactError
from sqlml.importers.catboost.binary import LEAF_NUMBERS
from sqlml.importers.catboost.features import Columns, Split, read_floats
from sqlml.ir.trees import BATCH_NODES, Ensemble, RawTrees, TreeCollector
from sqlml.types import Array

MAX_SYMMETRIC_DEPTH = 30


def read_forest(document: Mapping[str, Any], columns: Columns) -> tuple[Ensemble, int | None]:
    """Return an Ensemble with base 0, and the number of values per leaf (None without trees)."""
    nodes = _NodeBuffer()
    num_outputs: int | None = None
    is_symmetric = "oblivious_trees" in document
    trees = document["oblivious_trees" if is_symmetric else "trees"] or []
    leaf_numbers = document.get(LEAF_NUMBERS) or [None] * len(trees)
    for tree, numbers in zip(trees, leaf_numbers, strict=True):
        if is_symmetric:
            width = _read_symmetric_tree(tree, columns, nodes)
        else:
            width = _read_nested_tree(tree, numbers, columns, nodes)
        if num_outputs not in (None, width):
            raise ArtifactError("the trees of the CatBoost model have leaves of different widths")
        num_outputs = width
    return nodes.build_ensemble(num_outputs or 1), num_outputs


def _read_symmetric_tree(tree: Mapping[str, Any], columns: Columns, nodes: _NodeBuffer) -> int:
    """Add a tree with one split per level; bit d of a leaf's index is 1 if split d is true."""
    splits = [columns.read_split(split) for split in tree["splits"] or []]
    depth = len(splits)
    values = read_floats(tree["leaf_values"])
    num_leaves = 1 << min(depth, MAX_SYMMETRIC_DEPTH)
    if depth > MAX_SYMMETRIC_DEPTH or not values.size or values.size % num_leaves:
        raise ArtifactError(f"{values.size} leaf values of a CatBoost tree with {depth} splits")
    num_inner = num_leaves - 1
    num_nodes = num_inner + num_leaves
    # Store the tree as a heap, with the last split at the root, so that leaves keep their order.
    feature, border = np.zeros(num_nodes, np.int32), np.zeros(num_nodes, np.float32)
    nan_goes_left, false_goes_left = np.zeros(num_nodes, bool), np.ones(num_nodes, bool)
    left_codes: dict[int, int] = {}
    for level, split in enumerate(reversed(splits)):
        start, stop = (1 << level) - 1, (2 << level) - 1
        feature[start:stop], border[start:stop] = split.feature, split.border
        nan_goes_left[start:stop] = split.nan_goes_left
        if split.code is not None:
            false_goes_left[start:stop] = False
            left_codes |= dict.fromkeys(range(start, stop), split.code)
    node_index = np.arange(num_nodes, dtype=np.int32)
    false_child, true_child = 2 * node_index + 1, 2 * node_index + 2
    cover = np.full(num_nodes, np.nan)
    weights = tree.get("leaf_weights")
    if not isinstance(weights, np.ndarray) or weights.shape != (num_leaves,):
        weights = np.full(num_leaves, np.nan)
    for level in reversed(range(depth + 1)):
        cover[(1 << level) - 1 : (2 << level) - 1] = weights
        weights = weights.reshape(-1, 2).sum(axis=1) if level else weights
    node_values = np.zeros((num_nodes, values.size // num_leaves))
    node_values[num_inner:] = values.reshape(num_leaves, -1)
    nodes.append(
        left_codes,
        feature=feature,
        threshold=border,
        left=np.where(false_goes_left, false_child, true_child),
        right=np.where(false_goes_left, true_child, false_child),
        leaf=node_index >= num_inner,
        default_left=nan_goes_left,
        value=node_values,
        cover=cover,
        number=node_index - num_inner,
    )
    return node_values.shape[1]


def _read_nested_tree(
    tree: Mapping[str, Any], leaf_numbers: Any, columns: Columns, nodes: _NodeBuffer
) -> int:
    """Add a tree of nested nodes; "left" is the false branch, and leaves have a "value".

    `leaf_numbers` has CatBoost's numbers of the leaves from left to right. If it is None, they are
    0, 1, ..., as for a model that CatBoost has loaded from JSON.
    """
    splits, leaf_values = list[Split | None](), list[Array | None]()
    left, right, weights = list[int](), list[int](), list[float]()
    left_codes: dict[int, int] = {}
    stack: list[tuple[Any, list[int] | None, int]] = [(tree, None, 0)]
    while stack:
        node, children, parent = stack.pop()
        index = len(splits)
        if children is not None:
            children[parent] = index
        left.append(0)
        right.append(0)
        node_weight = node.get("weight")
        weights.append(float(node_weight) if isinstance(node_weight, int | float) else np.nan)
        if "value" in node:
            value = node["value"]
            splits.append(None)
            leaf_values.append(read_floats(value if isinstance(value, list) else [value]))
            continue
        split = columns.read_split(node["split"])
        splits.append(split)
        leaf_values.append(None)
        false_children, true_children = left, right
        if split.code is not None:
            left_codes[index] = split.code
            false_children, true_children = right, left
        stack += [(node["right"], true_children, index), (node["left"], false_children, index)]
    widths = {leaf_value.size for leaf_value in leaf_values if leaf_value is not None}
    width = widths.pop()
    if widths or not width:
        raise ArtifactError("the leaves of a CatBoost tree differ in width")
    leaves = [i for i, leaf_value in enumerate(leaf_values) if leaf_value is not None]
    leaf_order = np.arange(len(leaves)) if leaf_numbers is None else np.asarray(leaf_numbers)
    if leaf_order.dtype.kind != "i" or leaf_order.shape != (len(leaves),):
        raise ArtifactError("the numbers of the leaves of a CatBoost tree do not fit it")
    number = np.zeros(len(splits), np.int32)
    number[leaves] = leaf_order
    node_values = np.zeros((len(splits), width))
    for node_value, leaf_value in zip(node_values, leaf_values, strict=True):
        if leaf_value is not None:
            node_value[:] = leaf_value
    for i in reversed(range(len(splits))):  # Children come after parents.
        if splits[i] is not None:
            weights[i] = weights[left[i]] + weights[right[i]]
    nodes.append(
        left_codes,
        feature=np.array([0 if s is None else s.feature for s in splits], np.int32),
        threshold=np.array([0 if s is None else s.border for s in splits], np.float32),
        left=np.array(left, np.int32),
        right=np.array(right, np.int32),
        leaf=np.array([s is None for s in splits], bool),
        default_left=np.array([s is not None and s.nan_goes_left for s in splits], bool),
        value=node_values,
        cover=np.array(weights),
        number=number,
    )
    return width


class _NodeBuffer:
    """Collects the nodes of trees, and passes batches to `collector` to save memory."""

    def __init__(self) -> None:
        self.collector = TreeCollector(np.dtype(np.float64))
        self.tree_count = 0
        self._clear()

    def _clear(self) -> None:
        self.roots: list[int] = []
        self.arrays: dict[str, list[Array]] = {}
        self.sets: dict[int, Array] = {}
        self.size = 0

    def append(self, left_codes: Mapping[int, int], **arrays: Array) -> None:
        """Add a tree whose root is node 0; `left_codes` maps one-hot nodes to left codes."""
        self.tree_count += 1
        self.roots.append(self.size)
        for name, array in arrays.items():
            shift = self.size if name in ("left", "right") else 0
            self.arrays.setdefault(name, []).append(array + shift if shift else array)
        for node, code in left_codes.items():
            self.sets[self.size + node] = np.array([code], np.int64)
        self.size += arrays["feature"].size
        if self.size >= BATCH_NODES:
            self._flush()

    def _flush(self) -> None:
        joined = {name: np.concatenate(arrays) for name, arrays in self.arrays.items()}
        roots, sets = np.array(self.roots, np.int64), self.sets or None
        self._clear()
        self.collector.add(RawTrees(roots, **joined, sets=sets))

    def build_ensemble(self, num_outputs: int) -> Ensemble:
        if self.size:
            self._flush()
        if not self.tree_count:
            ints, floats, flags = np.zeros(0, np.int32), np.zeros(0, np.float32), np.zeros(0, bool)
            value = np.zeros((0, num_outputs))
            self.collector.add(RawTrees(ints, ints, floats, ints, ints, flags, flags, value))
        target = np.zeros(self.tree_count, np.int32)
        return self.collector.build(target=target, base=np.zeros(num_outputs), compare="le")
