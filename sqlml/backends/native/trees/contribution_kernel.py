"""`contributions`: Shapley values of the players (columns) of a sum of trees, by blocks of rows.

`ir/operators/contributions.py` defines the values: each leaf adds an integral over t, computed by
quadrature. Leaf by leaf, this takes 2 m ceil(m / 2) multiplications a row for m players on the
path. Here a walk over each tree works edge by edge, as Linear TreeSHAP does with polynomials (Yu,
Xu, Kuang and others, 2022). On the way down, the walk computes the product of the path's factors at
each point of t, and on the way up, the sums of the leaves below. An edge that tests player k then
adds the sum times (o - z) / (z (1 - t) + o t) for all leaves below. Here o is 1 if the row passes
all tests of k so far, otherwise 0, and z is the share of the training rows that pass these tests.
If k was tested above, the part that was added there for these leaves is subtracted. So an edge
costs ceil(m / 2) times five operations a row, in vectors over rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.backends.native.jit.specialise import inlined_helper
from sqlml.backends.native.kernel_calls import RowKernel
from sqlml.ir.operators.contributions import compute_shares, make_ensemble, make_quadrature
from sqlml.ir.program import Attrs
from sqlml.ir.trees import Ensemble
from sqlml.types import Array

ROWS, FEWEST = 256, 8
"""The most and the fewest rows of a block."""

WIDE = 1 << 21
"""The most numbers in the result of a block; blocks of wide rows have fewer rows."""

_U = np.uint64

LEFT, RIGHT, DONE = 0, 1, 2
"""States of the walk at a node: before the left child, before the right child, after both."""


def make_contribution_kernel(attrs: Attrs, dtype: np.dtype[Any]) -> RowKernel:
    """Return a kernel from x (n, k) to contributions, float64 (n, outputs * (players + 1))."""
    ensemble, num_players = make_ensemble(attrs), int(attrs["players"])
    player_of_node = np.ascontiguousarray(attrs["player"][ensemble.feature])
    share = compute_shares(ensemble, attrs.get("background"))
    point_counts = _count_points(ensemble, player_of_node)
    tests = (ensemble.feature, ensemble.threshold, ensemble.default_left, ensemble.compare == "le")
    sets = (
        np.zeros(0, np.bool_) if ensemble.categorical is None else ensemble.categorical,
        np.zeros(0, np.int32) if ensemble.set_offsets is None else ensemble.set_offsets,
        np.zeros(0, np.uint32) if ensemble.set_words is None else ensemble.set_words,
    )
    max_points = max(int(point_counts.max(initial=1)), 1)
    point_table, weight_table = np.zeros((2, max_points + 1, max_points))
    for count in np.unique(point_counts).tolist():
        point_table[count, :count], weight_table[count, :count] = make_quadrature(2 * count)
    expected = [_compute_expected(ensemble, shares) for shares in share]
    base = ensemble.base + np.mean(expected, axis=0)
    numbers_per_path = ensemble.leaf_values.shape[1] * max_points * (ensemble.depth + 1)
    numbers_per_row = max(1, ensemble.outputs * num_players, numbers_per_path)
    block_rows = int(np.clip(WIDE // numbers_per_row // FEWEST * FEWEST, FEWEST, ROWS))
    constants = (
        tests,
        sets,
        (ensemble.roots, ensemble.left, ensemble.right, share),
        (ensemble.leaf_values.astype(np.float64), ensemble.target, base),
        (point_counts, point_table, weight_table),
        (player_of_node, num_players, max(ensemble.depth, 1), block_rows),
    )
    width = ensemble.outputs * (num_players + 1)
    return RowKernel.of(contributions, dtype, constants, width, np.dtype(np.float64))


def _count_points(ensemble: Ensemble, player_of_node: Array) -> Array:
    """Return how many points make the quadrature of each tree exact, int32 (trees,)."""
    max_players = np.zeros(ensemble.trees, np.int32)
    parents = np.full(ensemble.nodes, -1, np.int64)
    for children in (ensemble.left, ensemble.right):
        is_inner = children >= 0
        parents[children[is_inner]] = np.flatnonzero(is_inner)
    # Find the nearest node above with the same player, one step up at a time for all nodes.
    is_new, ancestor = np.ones(ensemble.nodes, bool), parents.copy()
    while (pending := np.flatnonzero(ancestor >= 0)).size:
        has_same_player = player_of_node[ancestor[pending]] == player_of_node[pending]
        is_new[pending[has_same_player]] = False
        ancestor[pending] = np.where(has_same_player, -1, parents[ancestor[pending]])
    player_counts = np.zeros(ensemble.nodes, np.int32)
    depths = ensemble.depths()
    for depth in range(int(depths.max(initial=-1)) + 1):
        nodes = np.flatnonzero(depths == depth)
        above = parents[nodes]
        player_counts[nodes] = is_new[nodes] + np.where(above >= 0, player_counts[above], 0)
    np.maximum.at(max_players, ensemble.node_roots(), player_counts)
    return np.maximum((max_players + 1) // 2, 1).astype(np.int32)


def _compute_expected(ensemble: Ensemble, share: Array) -> Array:
    """Return the expected sum of the trees for each output, (outputs,), if no column is known."""
    reach_share = np.zeros(ensemble.nodes)
    leaf_share = np.zeros(ensemble.leaf_values.shape[0])
    has_nodes = ensemble.roots >= 0
    reach_share[ensemble.roots[has_nodes]] = 1
    leaf_share[~ensemble.roots[~has_nodes]] = 1
    depths = ensemble.depths()
    for depth in range(int(depths.max(initial=-1)) + 1):
        nodes = np.flatnonzero(depths == depth)
        for side, children_of_node in enumerate((ensemble.left, ensemble.right)):
            children, child_share = children_of_node[nodes], reach_share[nodes] * share[nodes, side]
            is_inner = children >= 0
            reach_share[children[is_inner]] = child_share[is_inner]
            leaf_share[~children[~is_inner]] = child_share[~is_inner]
    tree_of_leaf = np.zeros(leaf_share.size, np.int64)
    tree_of_node = ensemble.node_roots()
    for children in (ensemble.left, ensemble.right):
        tree_of_leaf[~children[children < 0]] = tree_of_node[children < 0]
    tree_of_leaf[~ensemble.roots[~has_nodes]] = np.flatnonzero(~has_nodes)
    expected = np.zeros(ensemble.outputs)
    for k in range(ensemble.leaf_values.shape[1]):
        values = leaf_share * ensemble.leaf_values[:, k]
        np.add.at(expected, ensemble.target[tree_of_leaf] + k, values)
    return expected


@inlined_helper
def _evaluate_test(tests: Any, sets: Any, node: Any, column: Any, size: Any, out: Any) -> None:
    """Set out[r] to 1.0 if row r of a block goes left at `node`, otherwise to 0.0."""
    _, threshold, default_left, at_most = tests
    categorical, offsets, words = sets
    missing, bound = 1.0 if default_left[node] else 0.0, threshold[node]
    if categorical.size > 0 and categorical[node]:
        begin, code_limit = offsets[node], (offsets[node + 1] - offsets[node]) * 32
        for r in range(size):
            value = column[r]
            is_member = 0.0
            if value >= 0 and value < code_limit:
                code = np.int64(value)
                word = words[begin + code // 32]
                is_member = float((word >> np.uint32(code % 32)) & np.uint32(1))
            out[r] = missing if value != value else is_member
    elif at_most:
        for r in range(size):
            value = column[r]
            goes_left = 1.0 if value <= bound else 0.0
            out[r] = missing if value != value else goes_left
    else:
        for r in range(size):
            value = column[r]
            goes_left = 1.0 if value < bound else 0.0
            out[r] = missing if value != value else goes_left


@inlined_helper
def _extend_product(product: Any, edge: Any, factors: Any, out: Any) -> None:
    """Set `out` to the product of the path's factors and the factors of one more edge.

    `edge` is a tuple: an array with 1 where a row passed the player's earlier tests, and an array
    with 1 where the row also passes this test; True if this is the player's first edge on the path;
    True if the edge leads to a left child; and the number of rows. `factors` come from
    `_compute_factors`.
    """
    before, passed, is_first, _, size = edge
    pass_factor, fail_factor, failed_factor = factors
    if is_first:
        for r in range(size):
            out[r] = product[r] * (fail_factor + (pass_factor - fail_factor) * passed[r])
    else:
        for r in range(size):
            factor = fail_factor + (pass_factor - fail_factor) * passed[r]
            out[r] = product[r] * (failed_factor + (factor - failed_factor) * before[r])


@inlined_helper
def _add_edge(below: Any, edge: Any, weights: Any, out: Any, sums: Any) -> None:
    """Add an edge's contribution to `out`, and the sum of the leaves `below` to `sums`.

    If this is not the player's first edge on the path, the part that the edge above has added for
    these leaves is subtracted. `edge` is the same tuple as in `_extend_product`.
    """
    before, passed, is_first, is_left, size = edge
    pass_weight, fail_weight = weights
    if is_first and is_left:
        for r in range(size):
            out[r] += below[r] * (fail_weight + (pass_weight - fail_weight) * passed[r])
            sums[r] = below[r]
    elif is_first:
        for r in range(size):
            out[r] += below[r] * (fail_weight + (pass_weight - fail_weight) * passed[r])
            sums[r] += below[r]
    elif is_left:
        for r in range(size):
            out[r] += below[r] * (fail_weight + (pass_weight - fail_weight) * passed[r]) * before[r]
            sums[r] = below[r]
    else:
        for r in range(size):
            out[r] += below[r] * (fail_weight + (pass_weight - fail_weight) * passed[r]) * before[r]
            sums[r] += below[r]


@inlined_helper
def _add_leaf(
    product: Any, value: Any, edge: Any, factors: Any, weights: Any, out: Any, sums: Any
) -> None:
    """Do what `_extend_product` and `_add_edge` do, for an edge to a leaf."""
    before, passed, is_first, is_left, size = edge
    pass_factor, fail_factor, failed_factor = factors
    pass_weight, fail_weight = weights
    if is_first and is_left:
        for r in range(size):
            leaf_sum = product[r] * (fail_factor + (pass_factor - fail_factor) * passed[r]) * value
            out[r] += leaf_sum * (fail_weight + (pass_weight - fail_weight) * passed[r])
            sums[r] = leaf_sum
    elif is_first:
        for r in range(size):
            leaf_sum = product[r] * (fail_factor + (pass_factor - fail_factor) * passed[r]) * value
            out[r] += leaf_sum * (fail_weight + (pass_weight - fail_weight) * passed[r])
            sums[r] += leaf_sum
    elif is_left:
        for r in range(size):
            factor = fail_factor + (pass_factor - fail_factor) * passed[r]
            leaf_sum = product[r] * (failed_factor + (factor - failed_factor) * before[r]) * value
            out[r] += leaf_sum * (fail_weight + (pass_weight - fail_weight) * passed[r]) * before[r]
            sums[r] = leaf_sum
    else:
        for r in range(size):
            factor = fail_factor + (pass_factor - fail_factor) * passed[r]
            leaf_sum = product[r] * (failed_factor + (factor - failed_factor) * before[r]) * value
            out[r] += leaf_sum * (fail_weight + (pass_weight - fail_weight) * passed[r]) * before[r]
            sums[r] += leaf_sum


@inlined_helper
def _transpose(x: Any, start: Any, rows: Any, size: Any, columns: Any) -> None:
    for c in range(x.shape[1]):
        for r in range(rows):
            columns[c, r] = x[start + r, c]
        for r in range(rows, size):
            columns[c, r] = 0


@inlined_helper
def _enter_node(
    tests: Any, sets: Any, owner: Any, level: Any, columns: Any, size: Any, path: Any
) -> None:
    """Evaluate the test of the path's last node; find the previous test of the same player."""
    feature = tests[0]
    node_at, _, earlier, _, goes_left, _ = path
    node = node_at[level]
    _evaluate_test(tests, sets, node, columns[feature[node]], size, goes_left[level])
    above = level - 1
    while above >= 0 and owner[node_at[above]] != owner[node]:
        above -= 1
    earlier[level] = above


@inlined_helper
def _follow_child(share: Any, level: Any, size: Any, path: Any) -> None:
    """Descend to the next child; update the rows that pass the player's tests, and their share."""
    node_at, stage, earlier, shares, goes_left, passed = path
    earlier_level, side = earlier[level], stage[level]
    passes, goes = passed[level], goes_left[level]
    if side == LEFT:
        for r in range(size):
            passes[r] = goes[r]
    else:
        for r in range(size):
            passes[r] = 1.0 - goes[r]
    shares[level] = share[node_at[level], side]
    if earlier_level >= 0:
        shares[level] *= shares[earlier_level]
        passed_before = passed[earlier_level]
        for r in range(size):
            passes[r] *= passed_before[r]


@inlined_helper
def _compute_factors(t: Any, z_before: Any, z: Any) -> Any:
    """Return an edge's factors at point t for rows that pass, fail now, and failed before.

    z and `z_before` are the shares of training rows that pass with and without this test.
    """
    scale = 1.0 / (z_before * (1.0 - t) + t)
    failed_factor = z / z_before if z_before > 0.0 else 0.0
    return (z * (1.0 - t) + t) * scale, z * (1.0 - t) * scale, failed_factor


@inlined_helper
def _compute_weights(t: Any, z_before: Any, z: Any) -> Any:
    """Return an edge's weights at point t for rows that pass and for rows that fail."""
    scale = 1.0 / (z_before * (1.0 - t) + t)
    return (z_before - z) * scale / (z * (1.0 - t) + t), -scale / (1.0 - t)


def contributions(
    x: Any, tests: Any, sets: Any, nodes: Any, leaves: Any, quadrature: Any, settings: Any, out: Any
) -> None:
    """Write the contributions and the expected value of each output to out (n, K * (players + 1)).

    This is one long function, because the walk keeps its state in local arrays. Every argument but
    x and `out` is a tuple.

    Args:
        x: (n, k) rows in the dtype of the thresholds.
        tests: feature, threshold, default_left (M,), and True if a row goes left at `<=`.
        sets: categorical (M,), set_offsets, set_words; empty without categories.
        nodes: the arrays roots (T,), left and right (M,) of an Ensemble, and share (B, M, 2).
        leaves: leaf_values (L, V), target (T,), and base (K,) with the expected values.
        quadrature: points (T,), the number of points of each tree; and two tables with the points t
            and with the weights, which have a row for each number of points.
        settings: the player whose column a node tests (M,), the number of players, the most tests
            on a path, and the number of rows that are processed together, a multiple of 8.
    """
    roots, left, right, share = nodes
    leaf_values, target, base = leaves
    points, t_values, weights = quadrature
    owner, players, depth, block = settings
    values, outputs, max_points = leaf_values.shape[1], base.size, t_values.shape[1]
    backgrounds = share.shape[0]
    columns = np.empty((max(x.shape[1], 1), block), x.dtype)
    total = np.empty((outputs * players, block))
    # Per level of the path: products at its points, and sums of the leaves below.
    product = np.empty(((depth + 1) * max_points, block))
    below = np.empty(((depth + 1) * values * max_points, block))
    path = (
        np.empty(depth, np.int64),  # The node.
        np.empty(depth, np.int64),  # The state of the walk at the node.
        np.empty(depth, np.int64),  # The level above that tests the same player, or -1.
        np.empty(depth),  # The share of rows that pass all tests of the player so far.
        np.empty((depth, block)),  # 1 where a row goes left, otherwise 0.
        np.empty((depth, block)),  # 1 where a row passes all tests of the player.
    )
    node_at, stage, earlier, shares, _, passed = path
    always = np.ones(block)
    for start in range(0, x.shape[0], block):
        rows = min(block, x.shape[0] - start)
        size = _U((rows + 7) // 8 * 8)
        _transpose(x, start, rows, size, columns)
        total[:] = 0.0
        for tree_round in range(roots.size * backgrounds):
            tree, background_share = tree_round // backgrounds, share[tree_round % backgrounds]
            if roots[tree] < 0:
                continue
            point_count, first_output, level = points[tree], target[tree], 0
            for point in range(point_count):
                product[point, :] = weights[point_count, point] / backgrounds
            node_at[0], stage[0] = roots[tree], LEFT
            _enter_node(tests, sets, owner, 0, columns, size, path)
            while level >= 0:
                is_leaf, child = False, np.int32(0)
                if stage[level] == DONE:  # Return to the edge that led here.
                    level -= 1
                    if level < 0:
                        continue
                else:
                    _follow_child(background_share, level, size, path)
                    child = left[node_at[level]] if stage[level] == LEFT else right[node_at[level]]
                    is_leaf = child < 0
                above = earlier[level]
                is_first = above < 0
                before, z_before = (always, 1.0) if is_first else (passed[above], shares[above])
                z = shares[level]
                edge = (before, passed[level], is_first, stage[level] == LEFT, size)
                if child > 0:
                    for point in range(point_count):
                        factors = _compute_factors(t_values[point_count, point], z_before, z)
                        path_product = product[level * max_points + point]
                        extended = product[(level + 1) * max_points + point]
                        _extend_product(path_product, edge, factors, extended)
                    level += 1
                    node_at[level], stage[level] = child, LEFT
                    _enter_node(tests, sets, owner, level, columns, size, path)
                    continue
                for k in range(values):
                    added = total[(first_output + k) * players + owner[node_at[level]]]
                    for point in range(point_count):
                        edge_weights = _compute_weights(t_values[point_count, point], z_before, z)
                        sums = below[(level * values + k) * max_points + point]
                        if is_leaf:
                            factors = _compute_factors(t_values[point_count, point], z_before, z)
                            path_product = product[level * max_points + point]
                            value = leaf_values[~child, k]
                            _add_leaf(path_product, value, edge, factors, edge_weights, added, sums)
                        else:
                            deeper = below[((level + 1) * values + k) * max_points + point]
                            _add_edge(deeper, edge, edge_weights, added, sums)
                stage[level] += 1
        for r in range(rows):
            for output in range(outputs):
                begin = output * (players + 1)
                for player in range(players):
                    out[start + r, begin + player] = total[output * players + player, r]
                out[start + r, begin + players] = base[output]
