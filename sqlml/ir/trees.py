"""`Ensemble`: the arrays of a tree_ensemble operator, and how raw trees become it.

All trees of an ensemble are concatenated. Inner nodes are numbered in pre-order and leaves
from left to right, so a child's number is above its parent's and no cycle can be written down.
A child is the number of an inner node, or `~leaf` (negative) for a leaf; a root likewise.

A row goes left at a numeric node when `x < threshold` (compare="lt") or `x <= threshold`
(compare="le"), in the dtype of x and threshold; NaN goes left when `default_left`. At a
categorical node `trunc(x)` goes left when it is a member of the node's set; NaN goes by
`default_left`; a negative value, or one beyond the set, is not a member. The exit leaf of tree t
adds `leaf_values[leaf]` (V values) to outputs `target[t] .. target[t]+V-1`, starting from `base`,
tree by tree in the dtype of `leaf_values`: the source libraries' own order.

What the source says of the nodes besides (`cover`, `leaf_cover`, `gain`) is no part of a score;
explanations are made of it (`sqlml/explaining/`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.bounded_cache import while_alive
from sqlml.errors import ProgramError
from sqlml.limits import MAX_TREE_DEPTH
from sqlml.types import FLOATS, Array, TensorType, dtype_of


def too_deep() -> str:
    """What is said of trees beyond the limit."""
    return (
        f"a tree is more than {MAX_TREE_DEPTH} tests deep, which is the limit; train it with a "
        "smaller max_depth"
    )


@dataclass(frozen=True, slots=True, eq=False)
class Ensemble:
    """T trees with M inner nodes and L leaves in all, V values per leaf and K outputs.

    roots int32 (T,), feature int32 (M,), threshold float32|float64 (M,), left and right int32
    (M,), default_left bool (M,), leaf_values float32|float64 (L, V), target int32 (T,), base
    (K,) of the leaves' dtype, compare "lt" or "le". With categorical nodes also: categorical
    bool (M,), set_offsets int32 (M+1,) into set_words uint32: the bits of node i's set are words
    `set_offsets[i] .. set_offsets[i+1]`, category c is bit c % 32 of word c // 32.

    Where the source says them, float32|float64: cover (M,) and leaf_cover (L,), the number of
    training rows that reached a node, or the sum of their weights or hessians, and gain (M,), what
    its test improved, rounded to float32.
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
    cover: Array | None = None
    leaf_cover: Array | None = None
    gain: Array | None = None
    input_least: Array | None = None
    input_most: Array | None = None

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
        """Depth of each inner node below its root, int32 (M,); a root has depth 0.

        Nodes below MAX_TREE_DEPTH, which no Program has, are not looked at.
        """
        return while_alive("depths", (self.roots, self.left, self.right), self._depths)

    def _depths(self) -> Array:
        depth = np.zeros(self.nodes, np.int32)
        level = self.roots[self.roots >= 0]
        d = 0
        while level.size and d <= MAX_TREE_DEPTH:
            depth[level] = d
            children = np.concatenate([self.left[level], self.right[level]])
            level = children[children >= 0]
            d += 1
        depth.flags.writeable = False
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
                self.target.min() >= 0 and int(self.target.max()) + values <= self.base.size,
                "a target reaches outside base",
            )
        if m:
            need(self.feature.min() >= 0 and self.feature.max() < x.width, "no such feature")
        need(not np.isnan(self.threshold).any(), "a threshold is NaN")
        refs = (self.roots, self.left, self.right)
        inner = [r[r >= 0] for r in refs]
        need(_once_each(inner, m), "every inner node needs exactly one parent")
        exits = [~r[r < 0] for r in refs]
        need(_once_each(exits, leaves), "every leaf needs exactly one parent")
        numbers = np.arange(m, dtype=np.int32)
        for child in (self.left, self.right):
            need(((child < 0) | (child > numbers)).all(), "a child stands before its parent")
        need(m <= MAX_TREE_DEPTH or self.depth <= MAX_TREE_DEPTH, too_deep())
        self._check_sets(need)
        self._check_statistics(need)
        for name, given in (("input_least", self.input_least), ("input_most", self.input_most)):
            fits = given is None or (given.shape == (x.width,) and given.dtype.name in FLOATS)
            need(fits, f"{name} does not fit the columns")

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

    def _check_statistics(self, need: Any) -> None:
        m, leaves = self.feature.size, self.leaf_values.shape[0]
        need((self.cover is None) == (self.leaf_cover is None), "cover and leaf_cover go together")
        for name, given, size in (
            ("cover", self.cover, m),
            ("leaf_cover", self.leaf_cover, leaves),
            ("gain", self.gain, m),
        ):
            if given is None:
                continue
            fits = given.shape == (size,) and given.dtype.name in FLOATS
            need(fits and _sound(given, name == "gain"), f"{name} does not fit the nodes")


STATISTICS = ("cover", "leaf_cover", "gain", "input_least", "input_most")
"""Attributes of a tree_ensemble that no score depends on."""


def _sound(numbers: Array, negative: bool) -> bool:
    """Whether all numbers are finite, and at least 0 unless they may be `negative`."""
    return bool(np.isfinite(numbers).all() and (negative or (numbers >= 0).all()))


@dataclass(frozen=True, slots=True, eq=False)
class RawTrees:
    """Trees as libraries store them: inner nodes and leaves mixed, in any order.

    All arrays have one entry per node, tree after tree; `left` and `right` are
    absolute node numbers, and `leaf` marks the leaves (whose children are not read). `value` is
    (nodes, V), read only for leaves. `roots` are node numbers. A categorical node's `sets` entry
    lists the members that go left; `sets` maps a node number to an int array. `cover` and `gain`
    are what the source says of the nodes, floats or integers; what is not finite, or a cover below
    0, is left out.
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
    cover: Array | None = None
    gain: Array | None = None


BATCH = 1 << 13
"""Nodes that are numbered at a time, so that this takes little memory beyond its result."""


def ensemble(raw: RawTrees, *, target: Array, base: Array, compare: str) -> Ensemble:
    """Number the nodes of `raw` as Ensemble wants them; drop what no root reaches.

    Thresholds keep their dtype, leaf values take the dtype of `base`.

    Raises:
        ProgramError: a child number is out of range, or a node has two parents (a cycle).
    """
    collector = Collector(base.dtype)
    for batch in _batches(raw):
        collector.add(batch)
    return collector.ensemble(target=target, base=base, compare=compare)


class Collector:
    """Trees that become one Ensemble, added some at a time; leaf values take dtype `leaves`."""

    def __init__(self, leaves: np.dtype[Any]) -> None:
        self._leaves = leaves
        self._parts: dict[str, list[Array]] = {}
        self._sets: dict[int, Array] = {}
        self._inner = 0
        self._exits = 0
        self._lacking: set[str] = set()

    def add(self, raw: RawTrees) -> None:
        """Append the trees of `raw`.

        Raises:
            ProgramError: as `ensemble` does.
        """
        n = raw.feature.size
        leaf = np.asarray(raw.leaf, bool)
        left, right = _children(raw.left, leaf, n), _children(raw.right, leaf, n)
        roots = np.asarray(raw.roots, np.int64)
        levels = _levels(roots, left, right, leaf)
        # Sizes of subtrees from the bottom up, then pre-order places from the top down.
        inner_size, leaf_size = (~leaf).astype(np.int32), leaf.astype(np.int32)
        for level in reversed(levels):
            parents = level[~leaf[level]]
            for size in (inner_size, leaf_size):
                size[parents] += size[left[parents]] + size[right[parents]]
        inner_at, leaf_at = np.zeros(n, np.int32), np.zeros(n, np.int32)
        inner_at[roots] = np.cumsum(inner_size[roots]) - inner_size[roots] + self._inner
        leaf_at[roots] = np.cumsum(leaf_size[roots]) - leaf_size[roots] + self._exits
        for level in levels:
            parents = level[~leaf[level]]
            lefts, rights = left[parents], right[parents]
            inner_at[lefts] = inner_at[parents] + 1
            inner_at[rights] = inner_at[parents] + 1 + inner_size[lefts]
            leaf_at[lefts] = leaf_at[parents]
            leaf_at[rights] = leaf_at[parents] + leaf_size[lefts]
        reached = np.concatenate(levels) if levels else roots.astype(np.int32)
        nodes, leaves = reached[~leaf[reached]], reached[leaf[reached]]
        nodes = _ordered(nodes, inner_at[nodes] - self._inner)
        leaves = _ordered(leaves, leaf_at[leaves] - self._exits)
        reference = np.where(leaf, ~leaf_at, inner_at)
        for name, part in (
            ("roots", reference[roots]),
            ("feature", raw.feature[nodes].astype(np.int32, copy=False)),
            ("threshold", raw.threshold[nodes]),
            ("left", reference[left[nodes]]),
            ("right", reference[right[nodes]]),
            ("default_left", raw.default_left[nodes].astype(bool, copy=False)),
            ("leaf_values", raw.value[leaves].astype(self._leaves, copy=False)),
        ):
            self._parts.setdefault(name, []).append(part)
        for name, given, chosen in (
            ("cover", raw.cover, nodes),
            ("leaf_cover", raw.cover, leaves),
            ("gain", raw.gain, nodes),
        ):
            numbers = None if given is None else _narrow(given[chosen], name == "gain")
            if numbers is None or not _sound(numbers, name == "gain"):
                self._lacking.add(name)
            elif name not in self._lacking:
                self._parts.setdefault(name, []).append(numbers)
        if raw.sets:
            inner = np.zeros(n, bool)
            inner[nodes] = True
            for node, members in raw.sets.items():
                if inner[node]:
                    self._sets[int(inner_at[node])] = members
        self._inner += nodes.size
        self._exits += leaves.size
        if max(self._inner, self._exits) > np.iinfo(np.int32).max:
            raise ProgramError("trees: more nodes than an ensemble can have")

    def ensemble(self, *, target: Array, base: Array, compare: str) -> Ensemble:
        """The Ensemble of all trees that were added, once; its arrays cannot be written to."""
        if self._lacking & {"cover", "leaf_cover"}:
            self._lacking |= {"cover", "leaf_cover"}
        for name in self._lacking:
            self._parts.pop(name, None)
        arrays = {}
        for name in list(self._parts):  # array by array, so that no two of them are held twice
            parts = self._parts.pop(name)
            arrays[name] = parts[0] if len(parts) == 1 else np.concatenate(parts)
        if self._sets:
            arrays |= _bitsets(self._sets, self._inner)
        for array in arrays.values():
            array.setflags(write=False)
        return Ensemble(**arrays, target=np.asarray(target, np.int32), base=base, compare=compare)


def _batches(raw: RawTrees) -> Iterator[RawTrees]:
    """`raw` in runs of whole trees; in a single run if its trees are not in sequence."""
    roots, n = np.asarray(raw.roots, np.int64), raw.feature.size
    if n <= BATCH or not roots.size or roots[0] < 0 or (np.diff(roots) <= 0).any():
        yield raw
        return
    cuts = np.unique(np.searchsorted(roots, np.arange(0, n, BATCH)))
    cuts = np.append(cuts[cuts < roots.size], roots.size)
    spans = [
        (a, z, int(roots[a]), int(roots[z]) if z < roots.size else n)
        for a, z in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)
    ]
    for _, _, begin, end in spans:
        inner = ~np.asarray(raw.leaf[begin:end], bool)
        for child in (raw.left[begin:end], raw.right[begin:end]):
            if (inner & ((child < begin) | (child >= end))).any():
                yield raw
                return
    keys = np.array(sorted(raw.sets or ()), np.int64)
    for a, z, begin, end in spans:
        own = keys[np.searchsorted(keys, begin) : np.searchsorted(keys, end)].tolist()
        yield RawTrees(
            roots[a:z] - begin,
            raw.feature[begin:end],
            raw.threshold[begin:end],
            raw.left[begin:end] - begin,
            raw.right[begin:end] - begin,
            raw.leaf[begin:end],
            raw.default_left[begin:end],
            raw.value[begin:end],
            {key - begin: raw.sets[key] for key in own} if raw.sets else None,
            None if raw.cover is None else raw.cover[begin:end],
            None if raw.gain is None else raw.gain[begin:end],
        )


def _narrow(numbers: Array, rounded: bool) -> Array:
    """As float32 where that is exact or they may be `rounded`, else as float64."""
    with np.errstate(over="ignore"):
        narrow = numbers.astype(np.float32, copy=False)
    exact = numbers.dtype == np.float32 or bool((narrow.astype(np.float64) == numbers).all())
    return narrow if exact or rounded else numbers.astype(np.float64, copy=False)


def _children(given: Array, leaf: Array, n: int) -> Array:
    """Child numbers as int32; -1 for leaves and for numbers of no node."""
    child = np.asarray(given)
    if child.dtype.kind not in "iu":
        child = child.astype(np.int64)
    return np.where(leaf | (child < 0) | (child >= n), -1, child).astype(np.int32)


def _levels(roots: Array, left: Array, right: Array, leaf: Array) -> list[Array]:
    """The nodes that the roots reach, int32 and level by level."""
    n = leaf.size
    seen = np.zeros(n, bool)
    levels: list[Array] = []
    level = roots
    while level.size:
        if len(levels) > MAX_TREE_DEPTH:
            raise ProgramError(too_deep())
        if level.min() < 0 or level.max() >= n:
            raise ProgramError("trees: a child number is out of range")
        level = level.astype(np.int32, copy=False)
        if seen[level].any() or np.unique(level).size != level.size:
            raise ProgramError("trees: a node has two parents, or the tree has a cycle")
        seen[level] = True
        levels.append(level)
        inner = level[~leaf[level]]
        level = np.stack([left[inner], right[inner]], axis=1).ravel()
    return levels


def _ordered(items: Array, places: Array) -> Array:
    """`items`, each at its place."""
    ordered = np.empty_like(items)
    ordered[places] = items
    return ordered


def _bitsets(sets: Mapping[int, Array], nodes: int) -> dict[str, Array]:
    categorical = np.zeros(nodes, bool)
    counts = np.zeros(nodes + 1, np.int32)
    words: list[Array] = []
    for i in sorted(sets):
        categorical[i] = True
        if len(sets[i]):
            members = np.asarray(sets[i], np.int64)
            bits = np.zeros(int(members.max()) // 32 + 1, np.uint32)
            np.bitwise_or.at(bits, members // 32, np.uint32(1) << (members % 32).astype(np.uint32))
            words.append(bits)
            counts[i + 1] = bits.size
    joined = np.concatenate(words) if words else np.zeros(0, np.uint32)
    offsets = np.cumsum(counts, dtype=np.int32)
    return {"categorical": categorical, "set_offsets": offsets, "set_words": joined}


def _once_each(parts: list[Array], count: int) -> bool:
    """Whether `parts` (numbers from 0 on) hold each number below `count` exactly once."""
    if sum(p.size for p in parts) != count or any(p.max(initial=-1) >= count for p in parts):
        return False
    met = np.zeros(count, bool)
    for part in parts:
        met[part] = True
    return bool(met.all())


def _owners(roots: Array, nodes: int) -> Array:
    """The tree of each inner node: pre-order numbers of one tree follow each other."""
    trees = np.flatnonzero(roots >= 0)
    counts = np.diff(np.append(roots[trees], nodes))
    return np.repeat(trees, counts).astype(np.int32)
