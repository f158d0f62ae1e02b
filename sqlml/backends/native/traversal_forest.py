"""`TraversalForest`: an Ensemble as the arrays that the traversal kernels read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.backends.native.jit import reads, specialise, writes
from sqlml.backends.native.traversal import LANES, pack, traverse, traverse_sets
from sqlml.ir.decisions import decisions
from sqlml.ir.trees import Ensemble
from sqlml.types import Array


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Nodes and leaves of all trees in one numbering, tree by tree, level by level.

    For N nodes: feature uint32 (offset in a panel), threshold, first uint32 (itself at a leaf),
    leaf uint32 (row of leaf_values; 0 at an inner node), inner int64 (number in the Ensemble,
    -1 at a leaf). roots uint32 (T,), depths int64 (T,). Panel column c + 1 is
    input column `columns[c]`, `negated` or not.
    """

    roots: Array
    depths: Array
    feature: Array
    threshold: Array
    first: Array
    leaf: Array
    inner: Array
    columns: Array
    negated: Array


def layout(e: Ensemble, dtype: np.dtype[Any]) -> Layout:
    """Number the nodes of `e` and write its tests with thresholds of `dtype`."""
    d = decisions(e)
    references, owners, firsts = [], [], []
    level, owner = e.roots.astype(np.int64), np.arange(e.trees)
    depths = np.zeros(e.trees, np.int64)
    count = 0
    while level.size:
        inner = level >= 0
        count += level.size
        first = np.full(level.size, -1, np.int64)
        first[inner] = count + 2 * np.arange(int(inner.sum()))
        references.append(level)
        owners.append(owner)
        firsts.append(first)
        nodes = level[inner]
        depths[np.unique(owner[inner])] += 1
        level = np.stack([d.then[nodes], d.otherwise[nodes]], axis=1).ravel().astype(np.int64)
        owner = np.repeat(owner[inner], 2)
    reference = np.concatenate(references) if references else np.zeros(0, np.int64)
    order = np.argsort(np.concatenate(owners), kind="stable") if owners else reference
    place = np.empty(count, np.int64)
    place[order] = np.arange(count)
    reference = reference[order]
    first = (np.concatenate(firsts) if firsts else reference)[order]
    is_inner = reference >= 0
    first = np.where(is_inner, place[first], np.arange(count))
    node = reference[is_inner]

    used = np.unique(d.feature.astype(np.int64) * 2 + d.negated)
    feature = np.zeros(count, np.uint32)
    column = np.searchsorted(used, d.feature.astype(np.int64) * 2 + d.negated)[node]
    feature[is_inner] = (column + 1) * LANES
    threshold = np.full(count, np.inf, dtype)
    threshold[is_inner] = d.threshold[node]
    return Layout(
        roots=place[: e.trees].astype(np.uint32),
        depths=depths,
        feature=feature,
        threshold=threshold,
        first=first.astype(np.uint32),
        leaf=np.where(is_inner, 0, ~reference).astype(np.uint32),
        inner=np.where(is_inner, reference, -1),
        columns=used // 2,
        negated=(used % 2).astype(bool),
    )


@dataclass(frozen=True, slots=True, eq=False)
class TraversalForest:
    """An Ensemble compiled for input of one dtype. Thread-safe.

    `columns` (int64) are the input columns that the tests read.
    """

    columns: Array
    base: Array
    panel_width: int
    dtype: np.dtype[Any]
    pack: Callable[..., Any]
    kernel: Callable[..., Any]
    negated: Array
    arrays: tuple[Array, ...]

    def __call__(self, x: Array) -> Array:
        """Score x (n, k) -> (n, outputs)."""
        n = x.shape[0]
        panels = np.empty((-(-n // LANES), self.panel_width), self.dtype)
        self.pack(x, self.columns, self.negated, panels)
        out = np.empty((n, self.base.size), self.base.dtype)
        out[:] = self.base
        self.kernel(panels, *self.arrays, out)
        return out


def traversal_forest(
    e: Ensemble, source: np.dtype[Any], columns: Array | None = None
) -> TraversalForest:
    """Compile `e` for input of dtype `source` (float32 or float64).

    The input is cast to the thresholds' dtype as it is packed. Column j of the ensemble's input
    is column `columns[j]` of what is passed (default: j).
    """
    dtype = e.threshold.dtype
    parts = layout(e, dtype)
    read = parts.columns if columns is None else columns[parts.columns]
    arrays: tuple[Array, ...] = (
        parts.roots,
        parts.depths,
        parts.feature,
        parts.threshold,
        parts.first,
        parts.leaf,
        e.leaf_values,
        e.target.astype(np.int64),
    )
    if e.has_categories:
        arrays += _sets(e, parts)
    kernel = specialise(
        traverse_sets if e.has_categories else traverse,
        (
            reads(dtype, 2, "C"),
            *(reads(a.dtype, a.ndim, "C") for a in arrays),
            writes(e.base.dtype, 2),
        ),
    )
    packer = specialise(
        pack,
        (reads(source, 2, "A"), reads(np.int64, 1, "C"), reads(np.bool_, 1, "C"), writes(dtype, 2)),
    )
    return TraversalForest(
        columns=np.ascontiguousarray(read, np.int64),
        base=e.base,
        panel_width=(parts.columns.size + 1) * LANES,
        dtype=dtype,
        pack=packer,
        kernel=kernel,
        negated=parts.negated,
        arrays=arrays,
    )


def _sets(e: Ensemble, parts: Layout) -> tuple[Array, ...]:
    """kind, begin, size and words of `traverse_sets`."""
    if e.categorical is None or e.set_offsets is None or e.set_words is None:
        raise AssertionError("an ensemble with categories has their sets")
    nodes = parts.feature.size
    kind, begin = np.zeros(nodes, np.uint8), np.zeros(nodes, np.uint32)
    size = np.zeros(nodes, parts.threshold.dtype)
    inner = parts.inner >= 0
    node = parts.inner[inner]
    kind[inner] = np.where(e.categorical[node], 1 + e.default_left[node], 0)
    begin[inner] = e.set_offsets[node]
    size[inner] = (e.set_offsets[node + 1] - e.set_offsets[node]) * 32.0
    return kind, begin, size, e.set_words
