"""`Ensemble`: the arrays of a tree_ensemble operator, and how raw trees become it.

All trees of an ensemble lie behind each other. Inner nodes are numbered in pre-order and leaves
from left to right, so a child's number is above its parent's and no cycle can be written down.
A child is the number of an inner node, or `~leaf` (negative) for a leaf; a root likewise.

A row goes left at a numeric node when `x < threshold` (compare="lt") or `x <= threshold`
(compare="le"), in the dtype of x and threshold; NaN goes left when `default_left`. At a
categorical node `trunc(x)` goes left when it is a member of the node's set; NaN goes by
`default_left`; a negative value, or one beyond the set, is no member. The exit leaf of tree t
adds `leaf_values[leaf]` (V values) to outputs `target[t] .. target[t]+V-1`, starting from `base`,
tree by tree in the dtype of `leaf_values`: the source libraries' own order (numerics.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.errors import ProgramError
from sqlml.types import FLOATS, Array, TensorType, dtype_of


@dataclass(frozen=True, slots=True, eq=False)
class Ensemble:
    """T trees with M inner nodes and L leaves in all, V values a leaf and K outputs.

    roots int32 (T,), feature int32 (M,), threshold float32|float64 (M,), left and right int32
    (M,), default_left bool (M,), leaf_values float32|float64 (L, V), target int32 (T,), base
    (K,) of the leaves' dtype, compare "lt" or "le". With categorical nodes also: categorical
    bool (M,), set_offsets int32 (M+1,) into set_words uint32: the bits of node i's set are words
    `set_offsets[i] .. set_offsets[i+1]`, category c is bit c % 32 of word c // 32.
    """

    roots: Array
    feature: Array
    threshold: Array
    left: Array
    right: Array
    default_left: Array
    leaf_values: Array
    target: Array
    base: Array
    compare: str
    categorical: Array | None = None
    set_offsets: Array | None = None
    set_words: Array | None = None

    @classmethod
    def of(cls, attrs: Mapping[str, Any]) -> Ensemble:
        """The ensemble that the attributes of a tree_ensemble node describe."""
        return cls(**attrs)

    def attrs(self) -> dict[str, Any]:
        """The attributes of a tree_ensemble node."""
        names = self.__dataclass_fields__
        return {n: getattr(self, n) for n in names if getattr(self, n) is not None}

    @property
    def trees(self) -> int:
        """Number of trees."""
        return int(self.roots.size)

    @property
    def nodes(self) -> int:
        """Number of inner nodes in all trees."""
        return int(self.feature.size)

    @property
    def outputs(self) -> int:
        """Number of output columns."""
        return int(self.base.size)

    @property
    def has_categories(self) -> bool:
        """Whether any node tests for membership in a set."""
        return self.categorical is not None and bool(self.categorical.any())

    def node_roots(self) -> Array:
        """The tree that each inner node belongs to, int32 (M,)."""
        return _owners(self.roots, self.nodes)

    def depths(self) -> Array:
        """Depth of each inner node below its root, int32 (M,); a root has depth 0."""
        depth = np.zeros(self.nodes, np.int32)
        level = self.roots[self.roots >= 0]
        d = 0
        while level.size:
            depth[level] = d
            children = np.concatenate([self.left[level], self.right[level]])
            level = children[children >= 0]
            d += 1
        return depth

    @property
    def depth(self) -> int:
        """Number of tests on the longest path: 0 when every tree is a single leaf."""
        return int(self.depths().max()) + 1 if self.nodes else 0

    def check(self, x: TensorType) -> None:
        """Raise ProgramError unless the arrays fit each other and an input of type `x`."""
        m, leaves, trees = self.feature.size, self.leaf_values.shape[0], self.roots.size

        def need(condition: object, message: str) -> None:
            if not condition:
                raise ProgramError(f"tree_ensemble: {message}")

        for name, array, dtype, shape in (
            ("roots", self.roots, "int32", (trees,)),
            ("feature", self.feature, "int32", (m,)),
            ("threshold", self.threshold, x.dtype, (m,)),
            ("left", self.left, "int32", (m,)),
            ("right", self.right, "int32", (m,)),
            ("default_left", self.default_left, "bool", (m,)),
            ("target", self.target, "int32", (trees,)),
        ):
            need(
                array.dtype.name == dtype and array.shape == shape,
                f"{name} is {array.dtype}{array.shape}, not {dtype}{shape}",
            )
        need(x.dtype in FLOATS and x.rowwise and len(x.shape) == 2, f"cannot read {x!r}")
        need(self.compare in ("lt", "le"), f"unknown comparison {self.compare!r}")
        need(self.leaf_values.ndim == 2, "leaf_values must have two axes")
        need(
            self.base.ndim == 1
            and self.base.dtype == self.leaf_values.dtype
            and dtype_of(self.base) in FLOATS,
            "base and leaf_values differ in dtype",
        )
        values = self.leaf_values.shape[1]
        need(values > 0, "a leaf has no value")
        if trees:
            need(
                self.target.min() >= 0 and self.target.max() + values <= self.base.size,
                "a target reaches outside base",
            )
        if m:
            need(self.feature.min() >= 0 and self.feature.max() < x.width, "no such feature")
        need(not np.isnan(self.threshold).any(), "a threshold is NaN")
        refs = np.concatenate([self.roots, self.left, self.right])
        inner, exits = refs[refs >= 0], ~refs[refs < 0]
        need(
            inner.size == m and np.array_equal(np.bincount(inner, minlength=m), np.ones(m)),
            "every inner node needs exactly one parent",
        )
        need(
            exits.size == leaves
            and np.array_equal(np.bincount(exits, minlength=leaves), np.ones(leaves)),
            "every leaf needs exactly one parent",
        )
        numbers = np.arange(m, dtype=np.int32)
        for child in (self.left, self.right):
            need(((child < 0) | (child > numbers)).all(), "a child stands before its parent")
        self._check_sets(need)

    def _check_sets(self, need: Any) -> None:
        given = [a is not None for a in (self.categorical, self.set_offsets, self.set_words)]
        need(all(given) or not any(given), "categorical nodes need their sets")
        if self.categorical is None or self.set_offsets is None or self.set_words is None:
            return
        m = self.feature.size
        need(self.categorical.dtype == bool and self.categorical.shape == (m,), "categorical: bool")
        need(
            self.set_offsets.dtype == np.int32
            and self.set_offsets.shape == (m + 1,)
            and self.set_words.dtype == np.uint32
            and self.set_words.ndim == 1,
            "set_offsets int32, set_words uint32",
        )
        steps = np.diff(self.set_offsets)
        need(
            self.set_offsets[0] == 0
            and self.set_offsets[-1] == self.set_words.size
            and (steps >= 0).all()
            and (steps[~self.categorical] == 0).all(),
            "set_offsets do not fit set_words",
        )


@dataclass(frozen=True, slots=True, eq=False)
class RawTrees:
    """Trees as libraries keep them: inner nodes and leaves mixed, in any order.

    All arrays have one entry per node of all trees behind each other; `left` and `right` are
    absolute node numbers, and `leaf` marks the leaves (whose children are not read). `value` is
    (nodes, V), read for leaves alone. `roots` are node numbers. A categorical node's `sets` entry
    lists the members that go left; `sets` maps a node number to an int array.
    """

    roots: Array
    feature: Array
    threshold: Array
    left: Array
    right: Array
    leaf: Array
    default_left: Array
    value: Array
    sets: Mapping[int, Array] | None = None


def ensemble(raw: RawTrees, *, target: Array, base: Array, compare: str) -> Ensemble:
    """Number the nodes of `raw` as Ensemble wants them; drop what no root reaches.

    Thresholds keep their dtype, leaf values take the dtype of `base`.

    Raises:
        ProgramError: a child number is out of range, or a node has two parents (a cycle).
    """
    n = raw.feature.size
    roots = np.asarray(raw.roots, np.int64)
    left, right = np.asarray(raw.left, np.int64), np.asarray(raw.right, np.int64)
    leaf = np.asarray(raw.leaf, bool)
    seen = np.zeros(n, bool)
    levels: list[Array] = []
    level = roots
    while level.size:
        if level.min() < 0 or level.max() >= n:
            raise ProgramError("trees: a child number is out of range")
        if seen[level].any() or np.unique(level).size != level.size:
            raise ProgramError("trees: a node has two parents, or the tree has a cycle")
        seen[level] = True
        levels.append(level)
        inner = level[~leaf[level]]
        level = np.stack([left[inner], right[inner]], axis=1).ravel()
    # Sizes of subtrees from the bottom up, then pre-order places from the top down.
    inner_size = np.where(leaf, 0, 1).astype(np.int64)
    leaf_size = np.where(leaf, 1, 0).astype(np.int64)
    for level in reversed(levels):
        parents = level[~leaf[level]]
        for size in (inner_size, leaf_size):
            size[parents] += size[left[parents]] + size[right[parents]]
    inner_at, leaf_at = np.zeros(n, np.int64), np.zeros(n, np.int64)
    inner_at[roots] = np.cumsum(inner_size[roots]) - inner_size[roots]
    leaf_at[roots] = np.cumsum(leaf_size[roots]) - leaf_size[roots]
    for level in levels:
        parents = level[~leaf[level]]
        lefts, rights = left[parents], right[parents]
        inner_at[lefts] = inner_at[parents] + 1
        inner_at[rights] = inner_at[parents] + 1 + inner_size[lefts]
        leaf_at[lefts] = leaf_at[parents]
        leaf_at[rights] = leaf_at[parents] + leaf_size[lefts]
    reference = np.where(leaf, ~leaf_at, inner_at)
    nodes = np.flatnonzero(seen & ~leaf)
    nodes = nodes[np.argsort(inner_at[nodes], kind="stable")]
    leaves = np.flatnonzero(seen & leaf)
    leaves = leaves[np.argsort(leaf_at[leaves], kind="stable")]
    sets: dict[str, Array] = {}
    if raw.sets:
        sets = _bitsets([raw.sets.get(int(i)) for i in nodes])
    return Ensemble(
        roots=reference[roots].astype(np.int32),
        feature=raw.feature[nodes].astype(np.int32),
        threshold=raw.threshold[nodes],
        left=reference[left[nodes]].astype(np.int32),
        right=reference[right[nodes]].astype(np.int32),
        default_left=np.asarray(raw.default_left[nodes], bool),
        leaf_values=raw.value[leaves].astype(base.dtype),
        target=np.asarray(target, np.int32),
        base=base,
        compare=compare,
        **sets,
    )


def _bitsets(members: list[Array | None]) -> dict[str, Array]:
    categorical = np.array([m is not None for m in members], bool)
    words: list[Array] = []
    offsets = np.zeros(len(members) + 1, np.int32)
    for i, m in enumerate(members):
        count = 0
        if m is not None and len(m):
            m = np.asarray(m, np.int64)
            bits = np.zeros(int(m.max()) // 32 + 1, np.uint32)
            np.bitwise_or.at(bits, m // 32, np.uint32(1) << (m % 32).astype(np.uint32))
            words.append(bits)
            count = bits.size
        offsets[i + 1] = offsets[i] + count
    joined = np.concatenate(words) if words else np.zeros(0, np.uint32)
    return {"categorical": categorical, "set_offsets": offsets, "set_words": joined}


def _owners(roots: Array, nodes: int) -> Array:
    """The tree of each inner node: pre-order numbers of one tree follow each other."""
    trees = np.flatnonzero(roots >= 0)
    counts = np.diff(np.append(roots[trees], nodes))
    return np.repeat(trees, counts).astype(np.int32)
