"""`NodeTests`: the tests of a tree_ensemble's nodes as tensor operators.

The three tree strategies differ in which nodes they test for a row; what a test is stands here.
Every comparison and every direction of NaN becomes one `le` (`ir/tree_shape.py`), on the columns
of x and of minus x side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sqlml.errors import BackendError
from sqlml.ir.builder import Builder, Value, rewrite
from sqlml.ir.program import Node, Program
from sqlml.ir.tree_shape import decisions
from sqlml.ir.trees import Ensemble
from sqlml.types import Array


class NodeTests:
    """The nodes 0 .. M-1 of an ensemble, and node M that stands for no node.

    Where a test holds, a row goes on to `then`, else to `otherwise` (int64 (M+1,)), which count
    as `Ensemble.left` does. Arrays by node: feature int64, threshold; for categorical nodes their
    set is `members[begin + category]` for categories below size, and NaN reads
    `members[absent]`, whose first two entries are False and True.
    """

    def __init__(self, builder: Builder, x: Value, e: Ensemble) -> None:
        d = decisions(e)
        self.builder = builder
        self.ensemble = e
        self.then = np.append(d.then, 0).astype(np.int64)
        self.otherwise = np.append(d.otherwise, 0).astype(np.int64)
        self._dtype = e.threshold.dtype
        threshold = np.append(d.threshold, np.array([np.nan], self._dtype))
        feature = d.feature.astype(np.int64)
        if d.negated.any():
            minus = builder.op("neg", x)
            if not d.negated.all():
                feature = np.where(d.negated, feature + x.type.width, feature)
                minus = builder.op("concat", x, minus)
            x = minus
        self.x = x
        self._feature = np.append(feature, 0)
        self._arrays: tuple[Array, ...] = (threshold,)
        self._members: Value | None = None
        if e.has_categories:
            self._read_sets(e)

    def _read_sets(self, e: Ensemble) -> None:
        if e.categorical is None or e.set_offsets is None or e.set_words is None:
            raise AssertionError("an ensemble with categories must have their sets")
        bits = (e.set_words[:, None] >> np.arange(32, dtype=np.uint32)) & np.uint32(1)
        table = np.concatenate([[False, True], bits.ravel().astype(bool)])
        self._members = self.builder.constant(table)
        counts = 32 * np.diff(e.set_offsets.astype(np.int64))
        self._arrays += (
            np.append(2 + 32 * e.set_offsets[:-1].astype(np.int64), 0),
            np.append(counts, 0).astype(self._dtype),
            np.append(e.categorical & e.default_left, False).astype(np.int64),
        )

    def at(self, nodes: Array) -> Value:
        """bool (n, nodes.size): the same nodes for every row."""
        b = self.builder
        values = b.op("select", self.x, indices=self._feature[nodes])
        return self._decide(values, [b.constant(array[nodes]) for array in self._arrays])

    def table(self, nodes: Array) -> list[Value]:
        """What `nodes` test, as constant tables for `look_up`: features, then the parameters."""
        return [self.builder.constant(array[nodes]) for array in (self._feature, *self._arrays)]

    def look_up(self, table: Sequence[Value], index: Value) -> Value:
        """bool, in the shape of index (n, t): the node at each index of the table's."""
        b = self.builder
        feature, *parameters = table
        values = b.op("gather", self.x, b.op("take", feature, index))
        return self._decide(values, [b.op("take", part, index) for part in parameters])

    def _decide(self, values: Value, parameters: Sequence[Value]) -> Value:
        """Whether the tests hold; `parameters` are threshold, and of sets begin, size, absent."""
        b = self.builder
        threshold, *of_sets = parameters
        holds = b.op("le", values, threshold)
        if self._members is None:
            return holds
        begin, size, absent = of_sets
        zero = b.constant(np.zeros(1, self._dtype))
        none = b.constant(np.zeros(1, np.int64))
        inside = b.op("and", b.op("ge", values, zero), b.op("lt", values, size))
        code = b.op("cast", b.op("where", inside, values, zero), dtype="int64")
        missing = b.op("where", b.op("isnan", values), absent, none)
        place = b.op("where", inside, b.op("add", begin, code), missing)
        return b.op("or", holds, b.op("take", self._members, place))


# `lower_trees`: what the tree strategies share: from a tree_ensemble to exit leaves to sums.
#
# A strategy finds the number of the leaf in which each row leaves each tree. Trees of like size
# are treated together, so that small ones are not padded to the largest, and the leaves' values
# are added in the source's order in the source's dtype, so the result is that of the reference
# bit for bit. (Hummingbird ends in a multiplication of one-hot rows by leaves' values and a mean
# over the trees; indexing gives the same values, for infinite ones and on hardware that rounds
# its products as well, and a fixed order gives the same sums.)


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """Where the nodes of T trees hang: M inner nodes, L leaves.

    Of each inner node (int64 (M,)) and leaf (int64 (L,)): the tree, and the inner node above,
    -1 at a root; `depth` int64 (T,) is the number of tests on a tree's longest path.
    """

    node_tree: Array
    leaf_tree: Array
    node_parent: Array
    leaf_parent: Array
    depth: Array


def shape_of(e: Ensemble) -> Shape:
    """Walk the trees of `e` level by level."""
    leaves = e.leaf_values.shape[0]
    node_tree, node_parent = np.full((2, e.nodes), -1, np.int64)
    leaf_tree, leaf_parent = np.full((2, leaves), -1, np.int64)
    depth = np.zeros(e.trees, np.int64)
    level, tree = e.roots.astype(np.int64), np.arange(e.trees)
    parent = np.full(e.trees, -1, np.int64)
    while level.size:
        inner = level >= 0
        nodes, exits = level[inner], ~level[~inner]
        node_tree[nodes], node_parent[nodes] = tree[inner], parent[inner]
        leaf_tree[exits], leaf_parent[exits] = tree[~inner], parent[~inner]
        depth[np.unique(tree[inner])] += 1
        level = np.concatenate([e.left[nodes], e.right[nodes]]).astype(np.int64)
        tree, parent = np.tile(tree[inner], 2), np.tile(nodes, 2)
    return Shape(node_tree, leaf_tree, node_parent, leaf_parent, depth)


Find = Callable[[Array], Value]
"""Numbers of trees, none a bare leaf -> the exit leaf of each row in each, int64 (n, trees)."""
Strategy = Callable[[NodeTests, Shape], Find]
"""How to find exit leaves; it raises BackendError if it should not be used."""
Size = Callable[[Shape], Array]
"""The sizes of the trees, int64 (T,); trees up to the same power of two go together."""


def lower_trees(program: Program, strategy: Strategy, size: Size) -> Program:
    """A copy of `program` in which each tree_ensemble has become tensor operators."""

    def rule(builder: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
        if node.op != "tree_ensemble":
            return None
        e = Ensemble.of(node.attrs)
        leaves = _exit_leaves(builder, inputs[0], e, strategy, size)
        values = builder.op("take", builder.constant(e.leaf_values), leaves)
        return builder.op("accumulate", values, base=e.base, target=e.target)

    return rewrite(program, rule, keep_inputs=True)


def _exit_leaves(builder: Builder, x: Value, e: Ensemble, strategy: Strategy, size: Size) -> Value:
    shape = shape_of(e)
    group = np.where(e.roots < 0, -1, np.ceil(np.log2(np.maximum(size(shape), 1))).astype(np.int64))
    parts: list[Value] = []
    members: list[Array] = []
    find: Find | None = None
    for number in np.unique(group):
        trees = np.flatnonzero(group == number)
        members.append(trees)
        if number < 0:
            parts.append(_bare(builder, x, ~e.roots[trees]))
            continue
        if find is None:
            find = strategy(NodeTests(builder, x, e), shape)
        parts.append(find(trees))
    if not parts:
        return _bare(builder, x, np.zeros(0, np.int64))
    leaves = builder.beside(parts)
    order = np.argsort(np.concatenate(members))
    if np.array_equal(order, np.arange(order.size)):
        return leaves
    return builder.op("select", leaves, indices=order)


def _bare(builder: Builder, x: Value, leaves: Array) -> Value:
    """int64 (n, leaves.size): the same leaves for every row."""
    nothing = builder.op("select", x, indices=np.zeros(0, np.int64))
    zero = builder.op("cast", builder.op("sum", nothing, axis=1), dtype="int64")
    return builder.op("add", zero, builder.constant(leaves.astype(np.int64)))


# GEMM: every node of every tree is tested for every row, and a product counts the path.
#
# Hummingbird, section 4.1, algorithm 1, with its names A, B, C, D, E. A, a one-hot matrix, picks
# the node's feature: here a select, which is the same and right for infinities. The second
# product counts, per leaf, the tests that hold among those that should minus those that should
# not; the exit leaf is the one whose count is D, the number of those that should. The counts are
# small integers, exact in float32 and on hardware that rounds products to less. E, from one-hot
# rows to a leaf's value, is an index (see `exit_leaves`).


MAX_ENTRIES = 1 << 26
"""Most entries of the matrices C of one ensemble: 256 MB in float32, before padding."""


def lower_gemm(program: Program) -> Program:
    """Write each tree_ensemble as matrix products.

    Raises:
        BackendError: C, which grows with the square of a tree's nodes, has over MAX_ENTRIES.
    """
    return lower_trees(program, _gemm, _inner_nodes)


def _inner_nodes(shape: Shape) -> Array:
    return np.bincount(shape.node_tree, minlength=shape.depth.size)


def _leaves(shape: Shape) -> Array:
    return np.bincount(shape.leaf_tree, minlength=shape.depth.size)


def gemm_refusal(shape: Shape) -> str | None:
    """Why trees of this shape are not written so; None: they are."""
    nodes_of = _inner_nodes(shape)
    entries = int((nodes_of * _leaves(shape)).sum())
    if entries <= MAX_ENTRIES:
        return None
    return (
        f"strategy gemm tests every node for every row, and its matrices would have {entries} "
        f"entries for trees of up to {nodes_of.max()} nodes (the limit is {MAX_ENTRIES}); "
        "use strategy='tt'"
    )


def _gemm(tests: NodeTests, shape: Shape) -> Find:
    b, e = tests.builder, tests.ensemble
    reason = gemm_refusal(shape)
    if reason is not None:
        raise BackendError(reason)
    nodes_of, leaves_of = _inner_nodes(shape), _leaves(shape)
    node_place, leaf_place = _places(shape.node_tree), _places(shape.leaf_tree)

    def find(trees: Array) -> Value:
        count, inner = trees.size, int(nodes_of[trees].max())
        exits = int(leaves_of[trees].max())
        row = np.full(shape.depth.size, -1, np.int64)
        row[trees] = np.arange(count)
        mine = np.flatnonzero(row[shape.node_tree] >= 0)
        nodes = np.full((count, inner), e.nodes, np.int64)
        nodes[row[shape.node_tree[mine]], node_place[mine]] = mine
        leaves = np.flatnonzero(row[shape.leaf_tree] >= 0)
        tree, place = row[shape.leaf_tree[leaves]], leaf_place[leaves]
        numbers = np.zeros((count, exits), np.int64)
        numbers[tree, place] = leaves
        paths = np.zeros((count, inner, exits), np.float32)
        # No count reaches this, so a leaf that is only padding is never the exit.
        wanted = np.full((count, exits), inner + 1, np.float32)
        wanted[tree, place] = 0
        child, above = ~leaves, shape.leaf_parent[leaves]
        while leaves.size:
            holds = tests.then[above] == child
            paths[tree, node_place[above], place] = np.where(holds, 1, -1)
            wanted[tree, place] += holds
            child, above = above, shape.node_parent[above]
            on = above >= 0
            leaves, tree, place = leaves[on], tree[on], place[on]
            child, above = child[on], above[on]
        tested = b.op("cast", tests.at(nodes.ravel()), dtype="float32")
        tested = b.op("reshape", tested, shape=(count, inner))
        counts = b.op("batch_matmul", tested, b.constant(paths))
        # A product is 1.2 to 1.4 times as fast as a choice between numbers and 0.
        reached = b.op("cast", b.op("eq", counts, b.constant(wanted)), dtype="int64")
        found = b.op("mul", reached, b.constant(numbers))
        return b.op("reshape", b.op("max", found, axis=2), shape=(count,))

    return find


def _places(tree: Array) -> Array:
    """The number of each entry among those of the same tree, in their order."""
    order = np.argsort(tree, kind="stable")
    start = np.searchsorted(tree[order], np.arange(int(tree.max(initial=-1)) + 1))
    places = np.empty(tree.size, np.int64)
    places[order] = np.arange(tree.size) - start[tree[order]]
    return places


# Tree traversal: every row goes down every tree at once, one level a step.
#
# Hummingbird, section 4.1, algorithm 2. All trees share one numbering, inner nodes first and then
# leaves, so nothing is padded; leaves are their own children. The first step is at the same nodes
# for every row, so it looks nothing up. Both children of a node lie in one table, the one for
# rows that fail its test first: one lookup is faster than two and a choice between them (N_L and
# N_R of the paper).


def lower_tt(program: Program) -> Program:
    """Write each tree_ensemble as tree traversal; any depth."""
    return lower_trees(program, _tree_traversal, lambda shape: shape.depth)


def _tree_traversal(tests: NodeTests, shape: Shape) -> Find:
    b, e = tests.builder, tests.ensemble
    nodes, leaves = e.nodes, e.leaf_values.shape[0]

    def numbered(child: Array) -> Array:
        inner = np.where(child >= 0, child, nodes + ~child)[:nodes]
        return np.concatenate([inner, np.arange(nodes, nodes + leaves)])

    children = np.stack([numbered(tests.otherwise), numbered(tests.then)], axis=1)
    table = tests.table(np.minimum(np.arange(nodes + leaves), nodes))
    child_table, two = b.constant(children.ravel()), b.constant(np.array([2], np.int64))

    def find(trees: Array) -> Value:
        roots = e.roots[trees]
        step = b.op("cast", tests.at(roots), dtype="int64")
        first = b.op("add", step, b.constant(2 * np.arange(trees.size, dtype=np.int64)))
        at = b.op("take", b.constant(children[roots].ravel()), first)
        for _ in range(int(shape.depth[trees].max()) - 1):
            holds = tests.look_up(table, at)
            step = b.op("cast", holds, dtype="int64")
            at = b.op("take", child_table, b.op("add", b.op("mul", at, two), step))
        return b.op("sub", at, b.constant(np.array([nodes], np.int64)))

    return find


# Perfect tree traversal: the same as tree traversal with children that need no table.
#
# Hummingbird, section 4.1, algorithm 3. A leaf above the last level stands for a perfect subtree
# all of whose leaves are that leaf. Node i of a level has the children 2i and 2i + 1 of the next,
# and so has node i of all trees of a group, concatenated. Child 2i + 1 is where a row goes that
# passes the test, so the test itself is the step.


MAX_DEPTH = 10
"""Perfect trees double with each level; the paper's own limit (section 5.1)."""


def lower_ptt(program: Program) -> Program:
    """Write each tree_ensemble as perfect tree traversal.

    Raises:
        BackendError: a tree is deeper than MAX_DEPTH.
    """
    return lower_trees(program, _perfect_tree_traversal, lambda shape: shape.depth)


def ptt_refusal(shape: Shape) -> str | None:
    """Why trees of this shape are not written so; None: they are."""
    deepest = int(shape.depth.max(initial=0))
    if deepest <= MAX_DEPTH:
        return None
    return (
        f"strategy ptt pads every tree to a perfect one, and a tree of depth {deepest} would "
        f"get 2^{deepest} leaves (the limit is depth {MAX_DEPTH}); use strategy='tt'"
    )


def _perfect_tree_traversal(tests: NodeTests, shape: Shape) -> Find:
    b, e = tests.builder, tests.ensemble
    reason = ptt_refusal(shape)
    if reason is not None:
        raise BackendError(reason)

    def find(trees: Array) -> Value:
        level = e.roots[trees].astype(np.int64)
        two = b.constant(np.array([2], np.int64))
        index: Value | None = None
        for _ in range(int(shape.depth[trees].max())):
            nodes = np.where(level >= 0, level, e.nodes)
            if index is None:
                step = b.op("cast", tests.at(nodes), dtype="int64")
                index = b.op("add", step, b.constant(2 * np.arange(trees.size, dtype=np.int64)))
            else:
                holds = tests.look_up(tests.table(nodes), index)
                step = b.op("cast", holds, dtype="int64")
                index = b.op("add", b.op("mul", index, two), step)
            inner = level >= 0
            children = np.stack(
                [
                    np.where(inner, tests.otherwise[nodes], level),
                    np.where(inner, tests.then[nodes], level),
                ],
                axis=1,
            )
            level = children.ravel()
        if index is None:
            raise AssertionError("a tree that is a bare leaf needs no traversal")
        return b.op("take", b.constant(~level), index)

    return find
