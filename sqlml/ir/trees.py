"""`Ensemble`, the arrays of a tree_ensemble operator, and the conversion of raw trees.

All trees of an ensemble are concatenated. The index of a child is above that of the parent, so
cycles are impossible. Importers number inner nodes in pre-order, and leaves from left to right. A
child or a root is the index of an inner node, or `~leaf` (negative) for a leaf.

At a numeric node, a row goes left if `x < threshold` (compare="lt") or `x <= threshold` ("le"). At
a categorical node, a row goes left if x >= 0 and `trunc(x)` is a member of the node's set. NaN goes
left if `default_left`. The outputs start with `base`. Then the exit leaf of each tree t adds the V
values `leaf_values[leaf]` to outputs `target[t]` to `target[t] + V - 1`, in the dtype of the
leaves. The source libraries add trees in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sqlml.bounded_cache import cache_by_arrays
from sqlml.errors import ProgramError
from sqlml.limits import MAX_TREE_DEPTH
from sqlml.types import FLOATS, Array, TensorType

MAX_CATEGORY = 1 << 24
"""An exclusive limit of the categories of `single` nodes. float32 has all integers below it."""

_FIX = "train it with a smaller max_depth"
_TOO_DEEP = f"a tree is more than {MAX_TREE_DEPTH} tests deep, which is the limit; {_FIX}"


@dataclass(frozen=True, slots=True, eq=False)
class Ensemble:
    """T trees with M inner nodes and L leaves in all, V values per leaf and K outputs.

    The arrays are roots int32 (T,), feature int32 (M,), threshold float32|float64 (M,), left and
    right int32 (M,), default_left bool (M,), leaf_values float32|float64 (L, V), target int32 (T,)
    and base (K,) of the leaves' dtype. compare is "lt" or "le". With categorical nodes, there are
    also categorical bool (M,), set_offsets int32 (M+1,) and set_words uint32. The set of node i has
    the words `set_offsets[i]` to `set_offsets[i+1] - 1`; category c is bit c % 32 of word c // 32.
    If there is `single`, bool (M,), it marks categorical nodes whose sets have no words: the only
    member is the threshold.

    The statistics are optional. cover (M,) and leaf_cover (L,) are the number of training rows that
    reached a node, or the sum of their weights or hessians. gain (M,), in float32, tells how much a
    test improved the fit. input_least and input_most bound the values of each input column.
    leaf_number int32 (L,) has the numbers by which the source library calls the leaves of a tree.
    stage_ends int32 (S,) counts the trees of the first 1 to S stages with which the library can
    score: boosting iterations, or the trees of a forest. If stage_mean, an operator `div` that
    reads the ensemble divides the sum by S.
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
    single: Array | None = None
    cover: Array | None = None
    leaf_cover: Array | None = None
    gain: Array | None = None
    input_least: Array | None = None
    input_most: Array | None = None
    leaf_number: Array | None = None
    stage_ends: Array | None = None
    stage_mean: bool | None = None

    @classmethod
    def of(cls, attrs: Mapping[str, Any]) -> Ensemble:
        return cls(**attrs)

    def attrs(self) -> dict[str, Any]:
        names = self.__dataclass_fields__
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def with_stages(self, ends: Array, is_mean: bool = False) -> Ensemble:
        """Return a copy that records stages, unless there are none; see the class."""
        if not len(ends):
            return self
        return replace(self, stage_ends=np.asarray(ends, np.int32), stage_mean=is_mean or None)

    @property
    def trees(self) -> int:
        return int(self.roots.size)

    @property
    def nodes(self) -> int:
        return int(self.feature.size)

    @property
    def outputs(self) -> int:
        return int(self.base.size)

    @property
    def has_categories(self) -> bool:
        return self.categorical is not None and bool(self.categorical.any())

    def set_members(self, node: int) -> Array:
        assert self.set_offsets is not None and self.set_words is not None
        if self.single is not None and self.single[node]:
            return self.threshold[node : node + 1].astype(np.int64)
        words = self.set_words[self.set_offsets[node] : self.set_offsets[node + 1]]
        return np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little"))

    def find_only_categories(self) -> Array:
        """Return the category of each node whose set has one category, int64 (M,), otherwise -1."""
        categories = np.full(self.nodes, -1, np.int64)
        if self.set_offsets is None or self.set_words is None:
            return categories
        if self.single is not None:
            categories[self.single] = self.threshold[self.single]
        counts = np.bitwise_count(self.set_words)
        counts_before = np.cumsum(np.append(0, counts.astype(np.int64)))
        nodes = np.flatnonzero(np.diff(counts_before[self.set_offsets]) == 1)
        word_indexes = np.flatnonzero(counts)
        words = word_indexes[np.searchsorted(word_indexes, self.set_offsets[nodes])]
        bits = np.log2(self.set_words[words]).astype(np.int64)
        categories[nodes] = (words - self.set_offsets[nodes]) * 32 + bits
        return categories

    def keep_trees(self, trees: Array) -> Ensemble:
        """Return the trees with these indices, without stages; the outputs stay the same."""
        raw = self.to_raw_trees()
        ensemble = build_ensemble(
            replace(raw, roots=raw.roots[trees]),
            target=self.target[trees],
            base=self.base,
            compare=self.compare,
        )
        return replace(ensemble, input_least=self.input_least, input_most=self.input_most)

    def to_raw_trees(self) -> RawTrees:
        """Return the trees with their statistics; the leaves follow the inner nodes."""
        num_leaves, values_per_leaf = self.leaf_values.shape

        def index_nodes(children: Array) -> Array:
            return np.where(children >= 0, children, self.nodes + ~children)

        def extend(inner: Array, leaves: Array | None = None) -> Array:
            if leaves is None:
                leaves = np.zeros(num_leaves, inner.dtype)
            return np.concatenate([inner, leaves])

        categorical = np.zeros(0, bool) if self.categorical is None else self.categorical
        no_number = np.zeros(self.nodes, np.int32)
        return RawTrees(
            roots=index_nodes(self.roots),
            feature=extend(self.feature),
            threshold=extend(self.threshold),
            left=extend(index_nodes(self.left)),
            right=extend(index_nodes(self.right)),
            leaf=extend(np.zeros(self.nodes, bool), np.ones(num_leaves, bool)),
            default_left=extend(self.default_left),
            value=extend(np.zeros((self.nodes, values_per_leaf)), self.leaf_values),
            sets={node: self.set_members(node) for node in np.flatnonzero(categorical).tolist()},
            cover=None if self.cover is None else extend(self.cover, self.leaf_cover),
            gain=None if self.gain is None else extend(self.gain),
            number=None if self.leaf_number is None else extend(no_number, self.leaf_number),
        )

    def node_roots(self) -> Array:
        """Return the index of each inner node's tree, int32 (M,)."""
        trees_with_nodes = np.flatnonzero(self.roots >= 0)
        node_counts = np.diff(np.append(self.roots[trees_with_nodes], self.nodes))
        return np.repeat(trees_with_nodes, node_counts).astype(np.int32)

    def depths(self) -> Array:
        """Return each inner node's depth, int32 (M,); it is 0 beyond `MAX_TREE_DEPTH`."""
        return cache_by_arrays("depths", (self.roots, self.left, self.right), self._compute_depths)

    def _compute_depths(self) -> Array:
        depths = np.zeros(self.nodes, np.int32)
        level = self.roots[self.roots >= 0]
        for depth in range(MAX_TREE_DEPTH + 1):
            if not level.size:
                break
            depths[level] = depth
            children = np.concatenate([self.left[level], self.right[level]])
            level = children[children >= 0]
        depths.flags.writeable = False
        return depths

    def tree_depths(self) -> Array:
        """Return the number of tests on each tree's longest path, int64 (T,)."""
        depths = np.zeros(self.trees, np.int64)
        np.maximum.at(depths, self.node_roots(), self.depths().astype(np.int64) + 1)
        return depths

    @property
    def depth(self) -> int:
        """The number of tests on the longest path of any tree; 0 if every tree is a single leaf."""
        return int(self.depths().max()) + 1 if self.nodes else 0

    def check(self, x: TensorType) -> None:
        """Raise ProgramError unless the arrays match each other and an input of type `x`."""
        num_nodes, num_trees = self.feature.size, self.roots.size
        _require(x.dtype in FLOATS and x.rowwise and len(x.shape) == 2, f"cannot read {x!r}")
        self._check_array("roots", "int32", num_trees)
        for name in ("feature", "threshold", "left", "right", "default_left"):
            dtype = {"threshold": x.dtype, "default_left": "bool"}.get(name, "int32")
            self._check_array(name, dtype, num_nodes)
        self._check_array("target", "int32", num_trees)
        _require(self.compare in ("lt", "le"), f"unknown comparison {self.compare!r}")
        _require(self.leaf_values.ndim == 2, "leaf_values must have two axes")
        num_leaves, values_per_leaf = self.leaf_values.shape
        _require(self.leaf_values.dtype.name in FLOATS, "leaf_values must be floats")
        self._check_array("base", self.leaf_values.dtype.name, self.base.size)
        _require(values_per_leaf > 0, "a leaf has no value")
        if num_trees:
            end = int(self.target.max()) + values_per_leaf
            fits = self.target.min() >= 0 and end <= self.base.size
            _require(fits, "a target reaches outside base")
        if num_nodes:
            _require(self.feature.min() >= 0 and self.feature.max() < x.width, "no such feature")
        _require(not np.isnan(self.threshold).any(), "a threshold is NaN")
        children = (self.roots, self.left, self.right)
        has_parents = _occur_once([r[r >= 0] for r in children], num_nodes)
        _require(has_parents, "every inner node needs exactly one parent")
        has_parents = _occur_once([~r[r < 0] for r in children], num_leaves)
        _require(has_parents, "every leaf needs exactly one parent")
        node_numbers = np.arange(num_nodes, dtype=np.int32)
        for child in (self.left, self.right):
            _require(((child < 0) | (child > node_numbers)).all(), "a child precedes its parent")
        _require(num_nodes <= MAX_TREE_DEPTH or self.depth <= MAX_TREE_DEPTH, _TOO_DEEP)
        self._check_sets()
        are_consistent = (self.cover is None) == (self.leaf_cover is None)
        _require(are_consistent, "cover and leaf_cover must both be present, or neither")
        for name, size in (("cover", num_nodes), ("leaf_cover", num_leaves), ("gain", num_nodes)):
            numbers = getattr(self, name)
            if numbers is not None:
                fits = numbers.shape == (size,) and numbers.dtype.name in FLOATS
                is_valid = fits and _are_valid_statistics(numbers, name == "gain")
                _require(is_valid, f"{name} does not fit the nodes")
        for name in ("input_least", "input_most"):
            bounds = getattr(self, name)
            fits = bounds is None or (bounds.shape == (x.width,) and bounds.dtype.name in FLOATS)
            _require(fits, f"{name} does not fit the columns")
        if self.leaf_number is not None:
            self._check_array("leaf_number", "int32", num_leaves)
        if self.stage_ends is not None:
            self._check_array("stage_ends", "int32", self.stage_ends.size)
            steps = np.diff(self.stage_ends, prepend=0, append=num_trees)
            _require(steps.size > 1 and (steps >= 0).all(), "stage_ends do not fit the trees")
            _require(steps[-1] == 0, "stage_ends do not fit the trees")

    def _check_array(self, name: str, dtype: str, size: int) -> None:
        array: Array = getattr(self, name)
        is_valid = array.dtype.name == dtype and array.shape == (size,)
        _require(is_valid, f"{name} must be {dtype}({size},), not {array.dtype}{array.shape}")

    def _check_sets(self) -> None:
        are_present = [a is not None for a in (self.categorical, self.set_offsets, self.set_words)]
        _require(all(are_present) or not any(are_present), "categorical nodes need their sets")
        _require(self.single is None or all(are_present), "single nodes must be categorical")
        if self.categorical is None or self.set_offsets is None or self.set_words is None:
            return
        self._check_array("categorical", "bool", self.feature.size)
        self._check_array("set_offsets", "int32", self.feature.size + 1)
        self._check_array("set_words", "uint32", self.set_words.size)
        set_sizes, ends = np.diff(self.set_offsets), self.set_offsets[[0, -1]].tolist()
        is_valid = ends == [0, self.set_words.size] and (set_sizes >= 0).all()
        is_valid = is_valid and (set_sizes[~self.categorical] == 0).all()
        _require(is_valid, "set_offsets do not fit set_words")
        if self.single is not None:
            self._check_array("single", "bool", self.feature.size)
            members = self.threshold[self.single]
            is_category = (members >= 0) & (members < MAX_CATEGORY) & (members == np.trunc(members))
            is_valid = is_category.all() and (set_sizes[self.single] == 0).all()
            is_valid = is_valid and self.categorical[self.single].all()
            _require(is_valid, "a threshold is not the one category of a node")


def _require(condition: object, message: str) -> None:
    if not condition:
        raise ProgramError(f"tree_ensemble: {message}")


STATISTICS = (
    *("cover", "leaf_cover", "gain", "input_least", "input_most"),
    *("leaf_number", "stage_ends", "stage_mean"),
)
"""Attributes of a tree_ensemble that do not affect scores."""


def _are_valid_statistics(numbers: Array, can_be_negative: bool) -> bool:
    return bool(np.isfinite(numbers).all() and (can_be_negative or (numbers >= 0).all()))


@dataclass(frozen=True, slots=True, eq=False)
class RawTrees:
    """Trees as libraries store them: inner nodes and leaves mixed, in any order.

    Arrays have one entry per node, tree after tree, except `roots`. `left`, `right` and `roots` are
    indices of nodes, `leaf` (bool) marks the leaves, and `value` (nodes, V) is read only for
    leaves. `sets` maps a categorical node to the categories that go left. `number` has the
    library's number of each leaf. The statistics `cover` and `gain` are dropped if an entry is not
    finite, or if a cover is negative.
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
    number: Array | None = None


BATCH_NODES = 1 << 13
"""Number of nodes that are numbered at a time, to bound the additional memory."""


def build_ensemble(raw: RawTrees, *, target: Array, base: Array, compare: str) -> Ensemble:
    """Build an Ensemble from the nodes below the roots; leaf values get the dtype of `base`."""
    collector = TreeCollector(base.dtype)
    for batch in _split_into_batches(raw):
        collector.add(batch)
    return collector.build(target=target, base=base, compare=compare)


class TreeCollector:
    """Collects trees in batches and builds one Ensemble from them."""

    def __init__(self, leaf_dtype: np.dtype[Any]) -> None:
        self._leaf_dtype = leaf_dtype
        self._arrays: dict[str, list[Array]] = {}
        self._sets: dict[int, Array] = {}
        self._inner_count = 0
        self._leaf_count = 0
        self._missing_statistics: set[str] = set()

    def add(self, raw: RawTrees) -> None:
        """Append trees; raise ProgramError if they are not trees."""
        is_leaf, roots = np.asarray(raw.leaf, bool), np.asarray(raw.roots, np.int64)
        left, right = (_clean_children(child, is_leaf) for child in (raw.left, raw.right))
        levels = _find_levels(roots, left, right, is_leaf)
        parents = [level[~is_leaf[level]] for level in levels]
        inner_number = _number_nodes(~is_leaf, roots, left, right, parents)
        leaf_number = _number_nodes(is_leaf, roots, left, right, parents)
        reached = np.concatenate(levels) if levels else roots.astype(np.int32)
        nodes, leaves = reached[~is_leaf[reached]], reached[is_leaf[reached]]
        nodes = _reorder(nodes, inner_number[nodes])
        leaves = _reorder(leaves, leaf_number[leaves])
        inner_number += self._inner_count
        new_numbers = np.where(is_leaf, ~(leaf_number + self._leaf_count), inner_number)
        for name, array in (
            ("roots", new_numbers[roots]),
            ("feature", raw.feature[nodes].astype(np.int32, copy=False)),
            ("threshold", raw.threshold[nodes]),
            ("left", new_numbers[left[nodes]]),
            ("right", new_numbers[right[nodes]]),
            ("default_left", raw.default_left[nodes].astype(bool, copy=False)),
            ("leaf_values", raw.value[leaves].astype(self._leaf_dtype, copy=False)),
        ):
            self._arrays.setdefault(name, []).append(array)
        for name, statistic, positions in (
            ("cover", raw.cover, nodes),
            ("leaf_cover", raw.cover, leaves),
            ("gain", raw.gain, nodes),
        ):
            self._add_statistic(name, None if statistic is None else statistic[positions])
        if raw.number is not None:
            numbers = raw.number[leaves].astype(np.int32, copy=False)
            self._arrays.setdefault("leaf_number", []).append(numbers)
        if raw.sets:
            is_inner = np.zeros(is_leaf.size, bool)
            is_inner[nodes] = True
            sets = [(node, members) for node, members in raw.sets.items() if is_inner[node]]
            self._sets |= {int(inner_number[node]): members for node, members in sets}
        self._inner_count += nodes.size
        self._leaf_count += leaves.size
        if max(self._inner_count, self._leaf_count) > np.iinfo(np.int32).max:
            raise ProgramError("the trees have more nodes than an ensemble can have")

    def _add_statistic(self, name: str, numbers: Array | None) -> None:
        """Append the `numbers` of a batch to a statistic.

        If they are None or invalid in any batch, `build` leaves out the statistic.
        """
        is_gain = name == "gain"
        narrowed = None if numbers is None else _narrow_statistic(numbers, may_round=is_gain)
        if narrowed is None or not _are_valid_statistics(narrowed, can_be_negative=is_gain):
            self._missing_statistics.add(name)
        elif name not in self._missing_statistics:
            self._arrays.setdefault(name, []).append(narrowed)

    def build(self, *, target: Array, base: Array, compare: str) -> Ensemble:
        """Return an Ensemble of all added trees with read-only arrays; call this only once."""
        if self._missing_statistics & {"cover", "leaf_cover"}:
            self._missing_statistics |= {"cover", "leaf_cover"}
        for name in self._missing_statistics:
            self._arrays.pop(name, None)
        arrays: dict[str, Any] = {}
        for name in list(self._arrays):  # Only one array at a time is in memory twice.
            chunks = self._arrays.pop(name)
            arrays[name] = chunks[0] if len(chunks) == 1 else np.concatenate(chunks)
        if self._sets:
            arrays |= _build_bitsets(self._sets, self._inner_count)
        for array in arrays.values():
            array.setflags(write=False)
        return Ensemble(**arrays, target=np.asarray(target, np.int32), base=base, compare=compare)


def _split_into_batches(raw: RawTrees) -> Iterator[RawTrees]:
    """Yield batches of complete trees, or `raw` unchanged if trees are interleaved."""
    roots, num_nodes = np.asarray(raw.roots, np.int64), raw.feature.size
    if num_nodes <= BATCH_NODES or not roots.size or roots[0] < 0 or (np.diff(roots) <= 0).any():
        yield raw
        return
    tree_bounds = np.unique(np.searchsorted(roots, np.arange(0, num_nodes, BATCH_NODES)))
    tree_bounds = np.append(tree_bounds[tree_bounds < roots.size], roots.size)
    tree_ranges = list(zip(tree_bounds[:-1].tolist(), tree_bounds[1:].tolist(), strict=True))
    tree_starts = np.append(roots, num_nodes).tolist()
    spans = [(first, end, tree_starts[first], tree_starts[end]) for first, end in tree_ranges]
    for _, _, begin, end in spans:
        is_inner = ~np.asarray(raw.leaf[begin:end], bool)
        for child in (raw.left[begin:end], raw.right[begin:end]):
            if (is_inner & ((child < begin) | (child >= end))).any():
                yield raw
                return
    categorical_nodes = np.array(sorted(raw.sets or ()), np.int64)
    array_names = (
        "feature",
        "threshold",
        "leaf",
        "default_left",
        "value",
        "cover",
        "gain",
        "number",
    )
    for first_tree, end_tree, begin, end in spans:
        batch_nodes = categorical_nodes[
            np.searchsorted(categorical_nodes, begin) : np.searchsorted(categorical_nodes, end)
        ].tolist()
        arrays = {name: getattr(raw, name) for name in array_names}
        yield RawTrees(
            roots=roots[first_tree:end_tree] - begin,
            left=raw.left[begin:end] - begin,
            right=raw.right[begin:end] - begin,
            sets={node - begin: raw.sets[node] for node in batch_nodes} if raw.sets else None,
            **{name: array[begin:end] for name, array in arrays.items() if array is not None},
        )


def _number_nodes(
    is_counted: Array, roots: Array, left: Array, right: Array, parents: Sequence[Array]
) -> Array:
    """Return how many of the counted nodes precede each node in pre-order, int32 (n,).

    `parents` lists the inner nodes of each level, from the roots down.
    """
    counts = is_counted.astype(np.int32)
    for level in reversed(parents):
        counts[level] += counts[left[level]] + counts[right[level]]
    numbers = np.zeros(counts.size, np.int32)
    numbers[roots] = np.cumsum(counts[roots]) - counts[roots]
    for level in parents:
        left_children = left[level]
        numbers[left_children] = numbers[level] + is_counted[level]
        numbers[right[level]] = numbers[left_children] + counts[left_children]
    return numbers


def _narrow_statistic(numbers: Array, may_round: bool) -> Array:
    with np.errstate(over="ignore"):
        narrowed = numbers.astype(np.float32, copy=False)
    is_exact = numbers.dtype == np.float32 or bool((narrowed.astype(np.float64) == numbers).all())
    return narrowed if is_exact or may_round else numbers.astype(np.float64, copy=False)


def _clean_children(child_numbers: Array, is_leaf: Array) -> Array:
    """Return child indices as int32, with -1 for leaves, and for indices that are out of range."""
    children = np.asarray(child_numbers)
    if children.dtype.kind not in "iu":
        children = children.astype(np.int64)
    is_invalid = is_leaf | (children < 0) | (children >= is_leaf.size)
    return np.where(is_invalid, -1, children).astype(np.int32)


def _find_levels(roots: Array, left: Array, right: Array, is_leaf: Array) -> list[Array]:
    num_nodes = is_leaf.size
    visited = np.zeros(num_nodes, bool)
    levels: list[Array] = []
    level = roots
    while level.size:
        if len(levels) > MAX_TREE_DEPTH:
            raise ProgramError(_TOO_DEEP)
        if level.min() < 0 or level.max() >= num_nodes:
            raise ProgramError("trees: a child index is out of range")
        level = level.astype(np.int32, copy=False)
        if visited[level].any() or np.unique(level).size != level.size:
            raise ProgramError("trees: a node has two parents, or the tree has a cycle")
        visited[level] = True
        levels.append(level)
        inner_nodes = level[~is_leaf[level]]
        level = np.stack([left[inner_nodes], right[inner_nodes]], axis=1).ravel()
    return levels


def _reorder(values: Array, positions: Array) -> Array:
    ordered = np.empty_like(values)
    ordered[positions] = values
    return ordered


def _build_bitsets(sets: Mapping[int, Array], num_nodes: int) -> dict[str, Array]:
    categorical = np.zeros(num_nodes, bool)
    word_counts = np.zeros(num_nodes + 1, np.int32)
    words: list[Array] = []
    for node in sorted(sets):
        categorical[node] = True
        if len(sets[node]):
            members = np.asarray(sets[node], np.int64)
            bits = np.zeros(int(members.max()) // 32 + 1, np.uint32)
            np.bitwise_or.at(bits, members // 32, np.uint32(1) << (members % 32).astype(np.uint32))
            words.append(bits)
            word_counts[node + 1] = bits.size
    all_words = np.concatenate(words) if words else np.zeros(0, np.uint32)
    offsets = np.cumsum(word_counts, dtype=np.int32)
    return {"categorical": categorical, "set_offsets": offsets, "set_words": all_words}


def _occur_once(arrays: list[Array], count: int) -> bool:
    if sum(a.size for a in arrays) != count or any(a.max(initial=-1) >= count for a in arrays):
        return False
    occurs = np.zeros(count, bool)
    for numbers in arrays:
        occurs[numbers] = True
    return bool(occurs.all())
