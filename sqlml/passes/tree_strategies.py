"""The three lowerings of trees to tensor operators: GEMM, TT and PTT (Hummingbird, section 4.1).

A strategy finds the exit leaf of each row in each tree. The three strategies differ in the nodes
that are tested for a row: `NodeTests` builds the tests, and `lower_trees` does the rest. Trees of
similar size form a group, so that small trees are not padded to the size of the largest tree.
Unlike Hummingbird, sqlml adds leaf values in the order and the dtype of the source library. So the
results equal those of the reference interpreter bit for bit, even if values are infinite.
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
    """Builds the tests of the M nodes of an ensemble, and of node M, which is padding.

    If a row passes the test of node i, the row goes to `then[i]`, otherwise to `otherwise[i]`; both
    are int64 (M + 1,). The tests are those of `tree_shape.Decisions`, on the columns of x and -x. A
    categorical node looks up `members[begin + category]` if the category is from 0 to `size` - 1,
    and `members[absent]` for NaN. The first two entries of `members` are False and True.
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
        members = np.concatenate([[False, True], bits.ravel().astype(bool)])
        self._members = self.builder.constant(members)
        set_sizes = 32 * np.diff(ensemble.set_offsets.astype(np.int64))
        self._arrays += (
            np.append(2 + 32 * ensemble.set_offsets[:-1].astype(np.int64), 0),
            np.append(set_sizes, 0).astype(self._dtype),
            np.append(ensemble.categorical & ensemble.default_left, False).astype(np.int64),
        )

    def test_nodes(self, nodes: Array) -> Value:
        """Test all `nodes` for each row; the result is bool (n, nodes.size)."""
        builder = self.builder
        x_values = builder.op("select", self.x, indices=self._feature[nodes])
        return self._compare(x_values, [builder.constant(array[nodes]) for array in self._arrays])

    def make_tables(self, nodes: Array) -> list[Value]:
        """Return the parameters of the tests of `nodes`, as constant tables for `look_up`."""
        return [self.builder.constant(array[nodes]) for array in (self._feature, *self._arrays)]

    def look_up(self, tables: Sequence[Value], index: Value) -> Value:
        """Run the tests at each `index` (n, t) of the tables; the result is bool (n, t)."""
        builder = self.builder
        feature, *parameters = tables
        x_values = builder.op("gather", self.x, builder.op("take", feature, index))
        return self._compare(x_values, [builder.op("take", column, index) for column in parameters])

    def _compare(self, values: Value, parameters: Sequence[Value]) -> Value:
        # With category sets, the parameters after the threshold are begin, size and absent.
        builder = self.builder
        threshold, *set_parameters = parameters
        passes_threshold = builder.op("le", values, threshold)
        if self._members is None:
            return passes_threshold
        begin, size, absent = set_parameters
        zero = builder.constant(np.zeros(1, self._dtype))
        no_offset = builder.constant(np.zeros(1, np.int64))
        is_not_negative, is_below_size = (
            builder.op("ge", values, zero),
            builder.op("lt", values, size),
        )
        is_in_range = builder.op("and", is_not_negative, is_below_size)
        code = builder.op("cast", builder.op("where", is_in_range, values, zero), dtype="int64")
        other_position = builder.op("where", builder.op("isnan", values), absent, no_offset)
        position = builder.op("where", is_in_range, builder.op("add", begin, code), other_position)
        return builder.op("or", passes_threshold, builder.op("take", self._members, position))


@dataclass(frozen=True, slots=True, eq=False)
class TreeStructure:
    """The tree and the parent of each inner node and each leaf, and the depth of each tree.

    All arrays are int64. The parent of a root is -1. Depth is the length of the longest path.
    """

    node_tree: Array
    leaf_tree: Array
    node_parent: Array
    leaf_parent: Array
    depth: Array


def measure_structure(ensemble: Ensemble) -> TreeStructure:
    """Return the structure of the trees of `ensemble`."""
    num_leaves = ensemble.leaf_values.shape[0]
    node_tree, node_parent = np.full((2, ensemble.nodes), -1, np.int64)
    leaf_tree, leaf_parent = np.full((2, num_leaves), -1, np.int64)
    depth = np.zeros(ensemble.trees, np.int64)
    level, trees = ensemble.roots.astype(np.int64), np.arange(ensemble.trees)
    parents = np.full(ensemble.trees, -1, np.int64)
    while level.size:
        is_inner = level >= 0
        nodes, leaves = level[is_inner], ~level[~is_inner]
        node_tree[nodes], node_parent[nodes] = trees[is_inner], parents[is_inner]
        leaf_tree[leaves], leaf_parent[leaves] = trees[~is_inner], parents[~is_inner]
        depth[np.unique(trees[is_inner])] += 1
        level = np.concatenate([ensemble.left[nodes], ensemble.right[nodes]]).astype(np.int64)
        trees, parents = np.tile(trees[is_inner], 2), np.tile(nodes, 2)
    return TreeStructure(node_tree, leaf_tree, node_parent, leaf_parent, depth)


LeafFinder = Callable[[Array], Value]
"""A function that maps indices of trees with inner nodes to exit leaves, int64 (n, trees)."""
Strategy = Callable[[NodeTests, TreeStructure], LeafFinder]
"""A function that returns a LeafFinder, or raises BackendError if the trees are unsupported."""
SizeMeasure = Callable[[TreeStructure], Array]
"""A function that returns the sizes of trees, int64 (T,). Trees form a group if their sizes are
equal after rounding up to a power of two."""


def lower_trees(program: Program, strategy: Strategy, measure_trees: SizeMeasure) -> Program:
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
    builder: Builder, x: Value, ensemble: Ensemble, strategy: Strategy, measure_trees: SizeMeasure
) -> Value:
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
    no_columns = builder.op("select", x, indices=np.zeros(0, np.int64))
    zero = builder.op("cast", builder.op("sum", no_columns, axis=1), dtype="int64")
    return builder.op("add", zero, builder.constant(leaves.astype(np.int64)))


MAX_ENTRIES = 1 << 26
"""Maximum number of entries of an ensemble's matrices C: 256 MB of float32, before padding."""


def lower_gemm(program: Program) -> Program:
    """Lower each tree_ensemble to matrix products: all nodes are tested for every row.

    This is algorithm 1 of Hummingbird. The second product computes a count for each leaf: the tests
    that hold as required, minus the tests that hold but must not. In the exit leaf, the count is D,
    the number of tests that must hold. Counts are exact in float32, even on hardware that rounds
    products. MAX_ENTRIES limits the matrix C, which grows with the square of the number of nodes.
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


def _plan_gemm(tests: NodeTests, structure: TreeStructure) -> LeafFinder:
    builder, ensemble = tests.builder, tests.ensemble
    refusal = explain_gemm_refusal(structure)
    if refusal is not None:
        raise BackendError(refusal)
    inner_node_counts, leaf_counts = _count_inner_nodes(structure), _count_leaves(structure)
    node_position = _number_within_trees(structure.node_tree)
    leaf_position = _number_within_trees(structure.leaf_tree)

    def find_leaves(trees: Array) -> Value:
        num_trees, max_nodes = trees.size, int(inner_node_counts[trees].max())
        max_leaves = int(leaf_counts[trees].max())
        row_of_tree = np.full(structure.depth.size, -1, np.int64)
        row_of_tree[trees] = np.arange(num_trees)
        group_nodes = np.flatnonzero(row_of_tree[structure.node_tree] >= 0)
        node_table = np.full((num_trees, max_nodes), ensemble.nodes, np.int64)
        node_rows = row_of_tree[structure.node_tree[group_nodes]]
        node_table[node_rows, node_position[group_nodes]] = group_nodes
        leaves = np.flatnonzero(row_of_tree[structure.leaf_tree] >= 0)
        rows, positions = row_of_tree[structure.leaf_tree[leaves]], leaf_position[leaves]
        leaf_table = np.zeros((num_trees, max_leaves), np.int64)
        leaf_table[rows, positions] = leaves
        paths = np.zeros((num_trees, max_nodes, max_leaves), np.float32)
        # No count reaches this number, so padding is never the exit leaf.
        required_counts = np.full((num_trees, max_leaves), max_nodes + 1, np.float32)
        required_counts[rows, positions] = 0
        # Climb from all leaves to the roots, and note which tests on each path must hold.
        children, parents = ~leaves, structure.leaf_parent[leaves]
        while leaves.size:
            holds = tests.then[parents] == children
            paths[rows, node_position[parents], positions] = np.where(holds, 1, -1)
            required_counts[rows, positions] += holds
            children, parents = parents, structure.node_parent[parents]
            has_parent = parents >= 0
            leaves, rows, positions = leaves[has_parent], rows[has_parent], positions[has_parent]
            children, parents = children[has_parent], parents[has_parent]
        holds_by_node = builder.op("cast", tests.test_nodes(node_table.ravel()), dtype="float32")
        holds_by_node = builder.op("reshape", holds_by_node, shape=(num_trees, max_nodes))
        counts = builder.op("batch_matmul", holds_by_node, builder.constant(paths))
        # A product is 1.2 to 1.4 times as fast as `where` with 0.
        is_exit = builder.op("eq", counts, builder.constant(required_counts))
        is_exit = builder.op("cast", is_exit, dtype="int64")
        leaf_numbers = builder.op("mul", is_exit, builder.constant(leaf_table))
        return builder.op("reshape", builder.op("max", leaf_numbers, axis=2), shape=(num_trees,))

    return find_leaves


def _number_within_trees(trees: Array) -> Array:
    """Return, for each entry of `trees`, how many earlier entries are equal."""
    order = np.argsort(trees, kind="stable")
    first_positions = np.searchsorted(trees[order], np.arange(int(trees.max(initial=-1)) + 1))
    positions = np.empty(trees.size, np.int64)
    positions[order] = np.arange(trees.size) - first_positions[trees[order]]
    return positions


def lower_tt(program: Program) -> Program:
    """Lower each tree_ensemble to tree traversal (TT): rows descend all trees level by level.

    This is algorithm 2 of Hummingbird. All trees share one numbering, with inner nodes before
    leaves, so nothing is padded. A leaf is the child of itself. One table has both children of each
    node, so a step needs one lookup instead of Hummingbird's two (N_L and N_R).
    """
    return lower_trees(program, _plan_traversal, lambda structure: structure.depth)


def _plan_traversal(tests: NodeTests, structure: TreeStructure) -> LeafFinder:
    builder, ensemble = tests.builder, tests.ensemble
    num_nodes, num_leaves = ensemble.nodes, ensemble.leaf_values.shape[0]

    def number_children(child: Array) -> Array:
        child_number = np.where(child >= 0, child, num_nodes + ~child)[:num_nodes]
        return np.concatenate([child_number, np.arange(num_nodes, num_nodes + num_leaves)])

    children = np.stack([number_children(tests.otherwise), number_children(tests.then)], axis=1)
    test_tables = tests.make_tables(np.minimum(np.arange(num_nodes + num_leaves), num_nodes))
    child_table, two = builder.constant(children.ravel()), builder.constant(np.array([2], np.int64))

    def find_leaves(trees: Array) -> Value:
        roots = ensemble.roots[trees]
        passes = builder.op("cast", tests.test_nodes(roots), dtype="int64")
        first_children = builder.constant(2 * np.arange(trees.size, dtype=np.int64))
        first_index = builder.op("add", passes, first_children)
        node = builder.op("take", builder.constant(children[roots].ravel()), first_index)
        for _ in range(int(structure.depth[trees].max()) - 1):
            passes = builder.op("cast", tests.look_up(test_tables, node), dtype="int64")
            child_index = builder.op("add", builder.op("mul", node, two), passes)
            node = builder.op("take", child_table, child_index)
        return builder.op("sub", node, builder.constant(np.array([num_nodes], np.int64)))

    return find_leaves


MAX_DEPTH = 10
"""Maximum depth of a tree for PTT; each level doubles the size (Hummingbird, section 5.1)."""


def lower_ptt(program: Program) -> Program:
    """Lower each tree_ensemble to perfect tree traversal (PTT), which needs no table of children.

    This is algorithm 3 of Hummingbird. A leaf above the last level is replaced with a perfect
    subtree of copies of the leaf. Node i of a level has the children 2i and 2i + 1 in the next
    level. A row that passes the test goes to child 2i + 1.
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


def _plan_perfect_traversal(tests: NodeTests, structure: TreeStructure) -> LeafFinder:
    builder, ensemble = tests.builder, tests.ensemble
    refusal = explain_ptt_refusal(structure)
    if refusal is not None:
        raise BackendError(refusal)

    def find_leaves(trees: Array) -> Value:
        level = ensemble.roots[trees].astype(np.int64)
        two = builder.constant(np.array([2], np.int64))
        index: Value | None = None
        for _ in range(int(structure.depth[trees].max())):
            nodes = np.where(level >= 0, level, ensemble.nodes)
            if index is None:
                passes = builder.op("cast", tests.test_nodes(nodes), dtype="int64")
                first_children = builder.constant(2 * np.arange(trees.size, dtype=np.int64))
                index = builder.op("add", passes, first_children)
            else:
                holds = tests.look_up(tests.make_tables(nodes), index)
                passes = builder.op("cast", holds, dtype="int64")
                index = builder.op("add", builder.op("mul", index, two), passes)
            child_pair = (tests.otherwise[nodes], tests.then[nodes])
            children = np.stack([np.where(level >= 0, side, level) for side in child_pair], axis=1)
            level = children.ravel()
        assert index is not None  # No tree is a single leaf.
        return builder.op("take", builder.constant(~level), index)

    return find_leaves


STRATEGIES = {"gemm": lower_gemm, "tt": lower_tt, "ptt": lower_ptt}

REFUSALS = {"gemm": explain_gemm_refusal, "ptt": explain_ptt_refusal}
"""Map a strategy to a function that returns why it does not suit a TreeStructure, or None."""
