"""CatBoost's trees, symmetric or not, as the RawTrees of an Ensemble.

A float split is true for `x > border` in float32, a one-hot split where the hash of a category
equals the split's value. The IR asks `x <= border`, so "false" is left there; of a category it
asks whether its code is in a set, so "true" is left.

NaN counts as -inf (nan_value_treatment AsFalse) or +inf (AsTrue) in a column that had NaN in
training; in others every comparison with it is false (catboost/libs/model/cpu/quantization.h).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sqlml.errors import ArtifactError
from sqlml.importers.catboost.columns import Columns
from sqlml.importers.catboost.document_numbers import floats
from sqlml.importers.catboost.hash_table import HashTable
from sqlml.importers.catboost.split import Split
from sqlml.ir.trees import BATCH, Collector, Ensemble, RawTrees
from sqlml.types import Array

MAX_DEPTH = 30


class _Nodes:
    """Nodes of some trees, which go on to `collector` before they are many."""

    def __init__(self) -> None:
        self.collector = Collector(np.dtype(np.float64))
        self.trees = 0
        self._clear()

    def _clear(self) -> None:
        self.roots: list[int] = []
        self.parts: dict[str, list[Array]] = {}
        self.sets: dict[int, Array] = {}
        self.size = 0

    def append(self, sets: Mapping[int, int], **arrays: Array) -> None:
        """A tree whose first node is its root, with child numbers of its own; `sets` maps a
        node to the code that goes left."""
        self.trees += 1
        self.roots.append(self.size)
        for name, array in arrays.items():
            shift = self.size if name in ("left", "right") else 0
            self.parts.setdefault(name, []).append(array + shift if shift else array)
        for node, code in sets.items():
            self.sets[self.size + node] = np.array([code], np.int64)
        self.size += arrays["feature"].size
        if self.size >= BATCH:
            self._flush()

    def _flush(self) -> None:
        joined = {name: np.concatenate(parts) for name, parts in self.parts.items()}
        roots, sets = np.array(self.roots, np.int64), self.sets or None
        self._clear()
        self.collector.add(RawTrees(roots, **joined, sets=sets))

    def ensemble(self, outputs: int) -> Ensemble:
        """All trees, from zeros."""
        if self.size:
            self._flush()
        if not self.trees:
            empty, none = np.zeros(0, np.int32), np.zeros(0, bool)
            nothing = np.zeros((0, outputs))
            self.collector.add(
                RawTrees(empty, empty, np.zeros(0, np.float32), empty, empty, none, none, nothing)
            )
        target = np.zeros(self.trees, np.int32)
        return self.collector.ensemble(target=target, base=np.zeros(outputs), compare="le")


def compact(entry: dict[str, Any]) -> dict[str, Any]:
    """Take an object of a JSON document as it is parsed: the leaves of a tree, and the entries of a
    table of hashes, as arrays.

    So they never stand in memory as Python numbers all at once. Values that make no array stay,
    for the readers to refuse.
    """
    for name in ("leaf_values", "leaf_weights"):
        values = entry.get(name)
        if isinstance(values, list):
            try:
                entry[name] = floats(values)
            except (ArtifactError, TypeError, ValueError, OverflowError):
                pass
    if isinstance(entry.get("hash_map"), list):
        try:
            entry["hash_map"] = HashTable.read(entry["hash_map"], entry.get("hash_stride"))
        except (ArtifactError, TypeError, ValueError, OverflowError):
            pass
    return entry


def read_forest(document: Mapping[str, Any], columns: Columns) -> tuple[Ensemble, int | None]:
    """The trees from zeros, and how many values a leaf has; None if there are no trees.

    Raises:
        ArtifactError: the trees do not fit together.
        UnsupportedModelError: an unknown kind of split.
    """
    nodes = _Nodes()
    outputs: int | None = None
    symmetric = "oblivious_trees" in document
    for tree in document["oblivious_trees" if symmetric else "trees"] or []:
        width = _symmetric(tree, columns, nodes) if symmetric else _any(tree, columns, nodes)
        if outputs not in (None, width):
            raise ArtifactError("the trees of the CatBoost model have leaves of different widths")
        outputs = width
    return nodes.ensemble(outputs or 1), outputs


def _symmetric(tree: Mapping[str, Any], columns: Columns, nodes: _Nodes) -> int:
    """A tree with one split a level; bit d of a leaf's number is the outcome of split d."""
    splits = [columns.split(s) for s in tree["splits"] or []]
    depth = len(splits)
    values = floats(tree["leaf_values"])
    leaves = 1 << min(depth, MAX_DEPTH)
    if depth > MAX_DEPTH or not values.size or values.size % leaves:
        raise ArtifactError(f"{values.size} leaf values of a CatBoost tree with {depth} splits")
    inner = leaves - 1
    total = inner + leaves
    # As a heap: the last split is the root's, so that leaves come in the order of their numbers.
    levels = [splits[depth - 1 - level] for level in range(depth)]
    repeats = [1 << level for level in range(depth)]
    feature, border = np.zeros(total, np.int32), np.zeros(total, np.float32)
    falls_left, false_is_left = np.zeros(total, bool), np.ones(total, bool)
    sets: dict[int, int] = {}
    for split, repeat in zip(levels, repeats, strict=True):
        at = slice(repeat - 1, 2 * repeat - 1)
        feature[at], border[at] = split.feature, split.border
        falls_left[at] = not split.nan_is_true
        if split.code is not None:
            false_is_left[at] = falls_left[at] = False
            sets.update(dict.fromkeys(range(repeat - 1, 2 * repeat - 1), split.code))
    heap = np.arange(total, dtype=np.int32)
    false, true = 2 * heap + 1, 2 * heap + 2
    cover = np.full(total, np.nan)
    weights = _weights(tree.get("leaf_weights"), leaves)
    for level in reversed(range(depth + 1)):
        cover[(1 << level) - 1 : (2 << level) - 1] = weights
        weights = weights.reshape(-1, 2).sum(axis=1) if level else weights
    value = np.zeros((total, values.size // leaves))
    value[inner:] = values.reshape(leaves, -1)
    nodes.append(
        sets,
        feature=feature,
        threshold=border,
        left=np.where(false_is_left, false, true),
        right=np.where(false_is_left, true, false),
        leaf=heap >= inner,
        default_left=falls_left,
        value=value,
        cover=cover,
    )
    return value.shape[1]


def _weights(given: Any, leaves: int) -> Array:
    """The weights of the training rows in the leaves of a tree; NaN where it does not say them."""
    fits = isinstance(given, np.ndarray) and given.shape == (leaves,)
    return given if fits else np.full(leaves, np.nan)


def _any(tree: Mapping[str, Any], columns: Columns, nodes: _Nodes) -> int:
    """A tree of nested nodes: {"split", "left", "right"} or {"value"}; left is false."""
    splits: list[Split | None] = []
    left: list[int] = []
    right: list[int] = []
    values: list[Array | None] = []
    weights: list[float] = []
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
            values.append(floats(value if isinstance(value, list) else [value]))
            continue
        split = columns.split(node["split"])
        splits.append(split)
        values.append(None)
        false, true = left, right
        if split.code is not None:
            sets[number] = split.code
            false, true = right, left
        waiting.append((node["left"], false, number))
        waiting.append((node["right"], true, number))
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
