"""The three lowerings of trees to tensor operators: GEMM, TT and PTT (Hummingbird, section 4.1).

A strategy finds the index of the exit leaf of each row in each tree. The three differ in the nodes
that they test for a row; `NodeTests` builds the tests, and `lower_trees` does the rest.
Trees of similar size form a group, so that small trees are not padded to the largest. Unlike in
Hummingbird, leaf values are indexed and added in the order and the dtype of the source, so the
result equals the reference bit for bit, also for infinite values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sqlml.errors import BackendError
from sqlml.ir.builder import Builder, Value, rewrite
from sqlml.ir.program import Node, Program
from sqlml.ir.tree_shape import unify_decisions
from sqlml.ir.trees import Ensemble
from sqlml.types import Array


class NodeTests:
    """Builds the tests of nodes 0 to M-1 of an ensemble, and of node M, which is padding.

    If the test of node i holds, a row goes to `then[i]`, else to `otherwise[i]`, both int64 (M+1,).
    The tests are those of `tree_shape.Decisions`, on the columns of x and -x. A categorical node
    looks up `members[begin + category]` for categories from 0 to `size` - 1, and `members[absent]`
    for NaN. The first two entries of `members` are False and True.
    """

    def __init__(self, builder: Builder, x: Value, ensemble: Ensemble) -> None:
        decisions = unify_decisions(ensemble)
        self.builder = builder
        self.ensemble = ensemble
        self.then: Array = np.append(decisions.then, 0).astype(np.int64)
        self.otherwise: Array = np.append(decisions.otherwise, 0).astype(np.int64)
        self._dtype = ensemble.threshold.dtype
        threshold = np.append(decisions.threshold, np.array([np.nan], self._dtype))
        feature = decisions.feature.astype(np.int64)
        if decisions.negated.any():
            negated = builder.op("neg", x)
            if not decisions.negated.all():
                feature = np.where(decisions.negated, feature + x.type.width, feature)
                negated = builder.op("concat", x, negated)
            x = negated
        self.x = x
        self._feature = np.append(feature, 0)
        self._arrays: tuple[Array, ...] = (threshold,)
        self._members: Value | None = None
        if ensemble.has_categories:
            self._add_sets(ensemble)

    def _add_sets(self, ensemble: Ensemble) -> None:
        assert ensemble.categorical is not None
        assert ensemble.set_offsets is not None and ensemble.set_words is not None
        bits = (ensemble.set_words[:, None] >> np.arange(32, dtype=np.uint32)) & np.uint32(1)
        table = np.concatenate([[False, True], bits.ravel().astype(bool)])
        self._members = self.builder.constant(table)
        counts = 32 * np.diff(ensemble.set_offsets.astype(np.int64))
        self._arrays += (
            np.append(2 + 32 * ensemble.set_offsets[:-1].astype(np.int64), 0),
            np.append(counts, 0).astype(self._dtype),
            np.append(ensemble.categorical & ensemble.default_left, False).astype(np.int64),
        )

    def test_nodes(self, nodes: Array) -> Value:
        """Build the results of the tests of `nodes` for each row, bool (n, nodes.size)."""
        b = self.builder
        values = b.op("select", self.x, indices=self._feature[nodes])
        return self._compare(values, [b.constant(array[nodes]) for array in self._arrays])

    def make_tables(self, nodes: Array) -> list[Value]:
        """Return the tests of `nodes` as constant tables for `look_up`."""
        return [self.builder.constant(array[nodes]) for array in (self._feature, *self._arrays)]

    def look_up(self, table: Sequence[Value], index: Value) -> Value:
        """Build the results of the tests at each `index` (n, t) of the tables."""
        b = self.builder
        feature, *parameters = table
        values = b.op("gather", self.x, b.op("take", feature, index))
        return self._compare(values, [b.op("take", column, index) for column in parameters])

    def _compare(self, values: Value, parameters: Sequence[Value]) -> Value:
        """Compare `values` with `parameters`: threshold (and begin, size, absent if sets exist)."""
        b = self.builder
        threshold, *set_parameters = parameters
        holds = b.op("le", values, threshold)
        if self._members is None:
            return holds
        begin, size, absent = set_parameters
        zero = b.constant(np.zeros(1, self._dtype))
        no_offset = b.constant(np.zeros(1, np.int64))
        is_in_range = b.op("and", b.op("ge", values, zero), b.op("lt", values, size))
        code = b.op("cast", b.op("where", is_in_range, values, zero), dtype="int64")
        missing = b.op("where", b.op("isnan", values), absent, no_offset)
        position = b.op("where", is_in_range, b.op("add", begin, code), missing)
        return b.op("or", holds, b.op("take", self._members, position))


@dataclass(frozen=True, slots=True, eq=False)
class TreeStructure:
    """The structure of T trees with M inner nodes and L leaves.

    It has the tree and the parent (-1 for a root) of each inner node and each leaf, and the number
    of tests on the longest path of each tree, all int64.
    """

    node_tree: Array
    leaf_tree: Array
    node_parent: Array
    leaf_parent: Array
    depth: Array


def measure_structure(ensemble: Ensemble) -> TreeStructure:
    """Return the structure of an ensemble's trees, found by a walk from level to level."""
    num_leaves = ensemble.leaf_values.shape[0]
    node_tree, node_parent = np.full((2, ensemble.nodes), -1, np.int64)
    leaf_tree, leaf_parent = np.full((2, num_leaves), -1, np.int64)
    depth = np.zeros(ensemble.trees, np.int64)
    level, tree = ensemble.roots.astype(np.int64), np.arange(ensemble.trees)
    parent = np.full(ensemble.trees, -1, np.int64)
    while level.size:
        is_inner = level >= 0
        nodes, leaves = level[is_inner], ~level[~is_inner]
        node_tree[nodes], node_parent[nodes] = tree[is_inner], parent[is_inner]
        leaf_tree[leaves], leaf_parent[leaves] = tree[~is_inner], parent[~is_inner]
        depth[np.unique(tree[is_inner])] += 1
        level = np.concatenate([ensemble.left[nodes], ensemble.right[nodes]]).astype(np.int64)
        tree, parent = np.tile(tree[is_inner], 2), np.tile(nodes, 2)
    return TreeStructure(node_tree, leaf_tree, node_parent, leaf_parent, depth)


Find = Callable[[Array], Value]
"""A function that maps indices of trees with inner nodes to exit leaves, int64 (n, trees)."""
Strategy = Callable[[NodeTests, TreeStructure], Find]
"""A function that returns a Find, or raises BackendError if it does not suit the trees."""
Size = Callable[[TreeStructure], Array]
"""A function that returns tree sizes, int64 (T,). Trees form a group if their sizes, rounded up to
a power of two, are equal."""


def lower_trees(program: Program, strategy: Strategy, measure_trees: Size) -> Program:
    """Return a copy of `program` with tensor operators in place of each tree_ensemble."""

    def rule(builder: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
        if node.op != "tree_ensemble":
            return None
        ensemble = Ensemble.of(node.attrs)
        leaves = _find_exit_leaves(builder, inputs[0], ensemble, strategy, measure_trees)
        values = builder.op("take", builder.constant(ensemble.leaf_values), leaves)
        return builder.op("accumulate", values, base=ensemble.base, target=ensemble.target)

    return rewrite(program, rule, keep_inputs=True)


def _find_exit_leaves(
    builder: Builder, x: Value, ensemble: Ensemble, strategy: Strategy, measure_trees: Size
) -> Value:
    """Build the exit leaf of each row in each tree, int64 (n, T), one group of trees at a time."""
    if not ensemble.nodes:
        return _repeat_leaves(builder, x, ~ensemble.roots)
    structure = measure_structure(ensemble)
    exponents = np.ceil(np.log2(np.maximum(measure_trees(structure), 1))).astype(np.int64)
    group_of_tree = np.where(ensemble.roots < 0, -1, exponents)
    tree_groups = [np.flatnonzero(group_of_tree == number) for number in np.unique(group_of_tree)]
    leaves_of_groups: list[Value] = []
    if group_of_tree.min() < 0:
        leaves_of_groups.append(_repeat_leaves(builder, x, ~ensemble.roots[tree_groups[0]]))
    find_leaves = strategy(NodeTests(builder, x, ensemble), structure)
    leaves_of_groups += [find_leaves(trees) for trees in tree_groups[len(leaves_of_groups) :]]
    leaves = builder.concat(leaves_of_groups)
    order = np.argsort(np.concatenate(tree_groups))
    is_in_order = np.array_equal(order, np.arange(order.size))
    return leaves if is_in_order else builder.op("select", leaves, indices=order)


def _repeat_leaves(builder: Builder, x: Value, leaves: Array) -> Value:
    """Return the same leaves for every row, int64 (n, leaves.size)."""
    no_columns = builder.op("select", x, indices=np.zeros(0, np.int64))
    zero = builder.op("cast", builder.op("sum", no_columns, axis=1), dtype="int64")
    return builder.op("add", zero, builder.constant(leaves.astype(np.int64)))


MAX_ENTRIES = 1 << 26
"""Maximum number of entries of the matrices C of an ensemble: 256 MB in float32, before padding."""


def lower_gemm(program: Program) -> Program:
    """Lower each tree_ensemble to matrix products: all nodes are tested for every row.

    Hummingbird, algorithm 1. The second product counts, for each leaf, the tests that hold and
    should hold, minus the tests that hold and should not. The exit leaf is the leaf whose count is
    D, the number of tests that should hold. Counts are exact in float32, also on hardware that
    rounds products. The matrix C grows with the square of a tree's nodes, and is limited to
    MAX_ENTRIES.
    """
    return lower_trees(program, _plan_gemm, _count_inner_nodes)


def _count_inner_nodes(structure: TreeStructure) -> Array:
    return np.bincount(structure.node_tree, minlength=structure.depth.size)


def _count_leaves(structure: TreeStructure) -> Array:
    return np.bincount(structure.leaf_tree, minlength=structure.depth.size)


def explain_gemm_refusal(structure: TreeStructure) -> str | None:
    inner_node_counts = _count_inner_nodes(structure)
    num_entries = int((inner_node_counts * _count_leaves(structure)).sum())
    if num_entries <= MAX_ENTRIES:
        return None
    return (
        f"strategy gemm tests every node for every row, and its matrices would have {num_entries} "
        f"entries for trees of up to {inner_node_counts.max()} nodes (the limit is {MAX_ENTRIES}); "
        "use strategy='tt'"
    )


def _plan_gemm(tests: NodeTests, structure: TreeStructure) -> Find:
    b, ensemble = tests.builder, tests.ensemble
    reason = explain_gemm_refusal(structure)
    if reason is not None:
        raise BackendError(reason)
    inner_node_counts, leaf_counts = _count_inner_nodes(structure), _count_leaves(structure)
    node_position = _number_within_trees(structure.node_tree)
    leaf_position = _number_within_trees(structure.leaf_tree)

    def find_leaves(trees: Array) -> Value:
        num_trees, max_nodes = trees.size, int(inner_node_counts[trees].max())
        max_leaves = int(leaf_counts[trees].max())
        row_of_tree = np.full(structure.depth.size, -1, np.int64)
        row_of_tree[trees] = np.arange(num_trees)
        group_nodes = np.flatnonzero(row_of_tree[structure.node_tree] >= 0)
        nodes = np.full((num_trees, max_nodes), ensemble.nodes, np.int64)
        node_rows = row_of_tree[structure.node_tree[group_nodes]]
        nodes[node_rows, node_position[group_nodes]] = group_nodes
        leaves = np.flatnonzero(row_of_tree[structure.leaf_tree] >= 0)
        tree, position = row_of_tree[structure.leaf_tree[leaves]], leaf_position[leaves]
        leaf_table = np.zeros((num_trees, max_leaves), np.int64)
        leaf_table[tree, position] = leaves
        paths = np.zeros((num_trees, max_nodes, max_leaves), np.float32)
        # No count reaches this number, so padding is never the exit leaf.
        expected = np.full((num_trees, max_leaves), max_nodes + 1, np.float32)
        expected[tree, position] = 0
        # Climb from all leaves to the roots, and note which tests on each path should hold.
        child, parent = ~leaves, structure.leaf_parent[leaves]
        while leaves.size:
            holds = tests.then[parent] == child
            paths[tree, node_position[parent], position] = np.where(holds, 1, -1)
            expected[tree, position] += holds
            child, parent = parent, structure.node_parent[parent]
            has_parent = parent >= 0
            leaves, tree, position = leaves[has_parent], tree[has_parent], position[has_parent]
            child, parent = child[has_parent], parent[has_parent]
        holds_by_node = b.op("cast", tests.test_nodes(nodes.ravel()), dtype="float32")
        holds_by_node = b.op("reshape", holds_by_node, shape=(num_trees, max_nodes))
        counts = b.op("batch_matmul", holds_by_node, b.constant(paths))
        # A product is 1.2 to 1.4 times as fast as `where` with 0.
        is_exit = b.op("cast", b.op("eq", counts, b.constant(expected)), dtype="int64")
        leaf_numbers = b.op("mul", is_exit, b.constant(leaf_table))
        return b.op("reshape", b.op("max", leaf_numbers, axis=2), shape=(num_trees,))

    return find_leaves


def _number_within_trees(trees: Array) -> Array:
    """Return how many earlier entries belong to the same tree, for each entry of `trees`."""
    order = np.argsort(trees, kind="stable")
    first_positions = np.searchsorted(trees[order], np.arange(int(trees.max(initial=-1)) + 1))
    positions = np.empty(trees.size, np.int64)
    positions[order] = np.arange(trees.size) - first_positions[trees[order]]
    return positions


def lower_tt(program: Program) -> Program:
    """Lower each tree_ensemble to tree traversal (TT): rows descend all trees level by level.

    Hummingbird, algorithm 2. All trees share one numbering, inner nodes before leaves, so nothing
    is padded; leaves are their own children. Both children of a node are in one table: one lookup
    is faster than Hummingbird's two (N_L and N_R) and a choice between their results.
    """
    return lower_trees(program, _plan_traversal, lambda structure: structure.depth)


def _plan_traversal(tests: NodeTests, structure: TreeStructure) -> Find:
    b, ensemble = tests.builder, tests.ensemble
    num_nodes, num_leaves = ensemble.nodes, ensemble.leaf_values.shape[0]

    def number_children(child: Array) -> Array:
        inner = np.where(child >= 0, child, num_nodes + ~child)[:num_nodes]
        return np.concatenate([inner, np.arange(num_nodes, num_nodes + num_leaves)])

    children = np.stack([number_children(tests.otherwise), number_children(tests.then)], axis=1)
    table = tests.make_tables(np.minimum(np.arange(num_nodes + num_leaves), num_nodes))
    child_table, two = b.constant(children.ravel()), b.constant(np.array([2], np.int64))

    def find_leaves(trees: Array) -> Value:
        roots = ensemble.roots[trees]
        step = b.op("cast", tests.test_nodes(roots), dtype="int64")
        first_index = b.op("add", step, b.constant(2 * np.arange(trees.size, dtype=np.int64)))
        position = b.op("take", b.constant(children[roots].ravel()), first_index)
        for _ in range(int(structure.depth[trees].max()) - 1):
            holds = tests.look_up(table, position)
            step = b.op("cast", holds, dtype="int64")
            position = b.op("take", child_table, b.op("add", b.op("mul", position, two), step))
        return b.op("sub", position, b.constant(np.array([num_nodes], np.int64)))

    return find_leaves


MAX_DEPTH = 10
"""Maximum depth of a tree for PTT, whose size doubles with each level (Hummingbird,
section 5.1)."""


def lower_ptt(program: Program) -> Program:
    """Lower each tree_ensemble to perfect tree traversal (PTT), which needs no table of children.

    Hummingbird, algorithm 3. A leaf above the last level becomes a perfect subtree, all of whose
    leaves are that leaf. Node i of a level has the children 2i and 2i + 1 in the next level. A row
    that passes the test goes to 2i + 1, so the test itself is the step.
    """
    return lower_trees(program, _plan_perfect_traversal, lambda structure: structure.depth)


def explain_ptt_refusal(structure: TreeStructure) -> str | None:
    max_depth = int(structure.depth.max(initial=0))
    if max_depth <= MAX_DEPTH:
        return None
    return (
        f"strategy ptt pads every tree to a perfect one, and a tree of depth {max_depth} would "
        f"get 2^{max_depth} leaves (the limit is depth {MAX_DEPTH}); use strategy='tt'"
    )


def _plan_perfect_traversal(tests: NodeTests, structure: TreeStructure) -> Find:
    b, ensemble = tests.builder, tests.ensemble
    reason = explain_ptt_refusal(structure)
    if reason is not None:
        raise BackendError(reason)

    def find_leaves(trees: Array) -> Value:
        level = ensemble.roots[trees].astype(np.int64)
        two = b.constant(np.array([2], np.int64))
        index: Value | None = None
        for _ in range(int(structure.depth[trees].max())):
            nodes = np.where(level >= 0, level, ensemble.nodes)
            if index is None:
                step = b.op("cast", tests.test_nodes(nodes), dtype="int64")
                index = b.op("add", step, b.constant(2 * np.arange(trees.size, dtype=np.int64)))
            else:
                holds = tests.look_up(tests.make_tables(nodes), index)
                step = b.op("cast", holds, dtype="int64")
                index = b.op("add", b.op("mul", index, two), step)
            child_pair = (tests.otherwise[nodes], tests.then[nodes])
            children = np.stack([np.where(level >= 0, side, level) for side in child_pair], axis=1)
            level = children.ravel()
        assert index is not None  # No tree is a single leaf.
        return b.op("take", b.constant(~level), index)

    return find_leaves


STRATEGIES = {"gemm": lower_gemm, "tt": lower_tt, "ptt": lower_ptt}

REFUSALS = {"gemm": explain_gemm_refusal, "ptt": explain_ptt_refusal}
"""Map a strategy to a function that returns why it does not suit a TreeStructure, or None."""
