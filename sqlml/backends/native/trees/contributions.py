"""`contributions`: Shapley values of the columns of a sum of trees, a block of rows at a time.

`ir/operators/contributions.py` says what they are: for each leaf an integral over t, by quadrature.
Leaf by leaf that takes 2 m ceil(m / 2) multiplications a row for m players on the path. Here a
walk over each tree does it edge by edge, as Linear TreeSHAP does with polynomials (Yu, Xu, Kuang
and others, 2022): on the way down the product of the path's factors at each point of t is carried
along, and on the way up the sums of the leaves below. An edge that tests player k then adds, for
all leaves below it at once, the sum times (o - z) / (z (1 - t) + o t), where o says whether the row
passes all tests of k so far and z is the share of the training rows that do. Where k was tested
above, what was added there for these leaves is taken back. So an edge costs ceil(m / 2) times five
operations a row, in vectors over rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sqlml.backends.native.jit.specialise import helper, kinds_of, reads, specialise, writes
from sqlml.backends.native.kernel_calls import Call, Rows
from sqlml.ir.operators.contributions import ensemble_of_attrs, quadrature, split_shares
from sqlml.ir.program import Attrs
from sqlml.ir.trees import Ensemble
from sqlml.types import Array

ROWS, FEWEST = 256, 8
"""Rows of a block: long vectors, and the numbers of one tree stay in the cache."""

WIDE = 1 << 21
"""Numbers of the result that a block has at most: blocks of wide rows have fewer of them."""

_U = np.uint64

LEFT, RIGHT, DONE = 0, 1, 2
"""Where the walk stands at a node: before its left child, before its right one, behind both."""


def contributor(attrs: Attrs, dtype: np.dtype[Any]) -> Callable[[Array], Array]:
    """x (n, k) of a dtype -> float64 (n, outputs * (players + 1)), as the operator says."""
    kernel, constants, width = _made(attrs, dtype)

    def contribute(x: Array) -> Array:
        out = np.empty((x.shape[0], width))
        kernel(x, *constants, out)
        return out

    return contribute


def contributed(attrs: Attrs, x: Rows, out: Rows) -> Call:
    """The call of a `contributor`."""
    kernel, constants, _ = _made(attrs, x.dtype)
    return Call(kernel, (x, *constants, out))


def _made(attrs: Attrs, dtype: np.dtype[Any]) -> tuple[Callable[..., Any], tuple[Any, ...], int]:
    """The kernel, its constants, and the numbers of a row of the result."""
    e, players = ensemble_of_attrs(attrs), int(attrs["players"])
    owner = np.ascontiguousarray(attrs["player"][e.feature])
    share, points = split_shares(e, attrs.get("background")), _points(e, owner)
    tests = (e.feature, e.threshold, e.default_left, e.compare == "le")
    none = np.zeros(0, np.uint32)
    sets = (
        np.zeros(0, np.bool_) if e.categorical is None else e.categorical,
        np.zeros(0, np.int32) if e.set_offsets is None else e.set_offsets,
        none if e.set_words is None else e.set_words,
    )
    rules = max(int(points.max(initial=1)), 1)
    t, weight = np.zeros((rules + 1, rules)), np.zeros((rules + 1, rules))
    for q in np.unique(points).tolist():
        t[q, :q], weight[q, :q] = quadrature(2 * q)
    base = e.base + np.mean([_expected(e, one) for one in share], axis=0)
    constants = (
        tests,
        sets,
        (e.roots, e.left, e.right, share),
        (e.leaf_values.astype(np.float64), e.target, base),
        (points, t, weight),
        (owner, players),
        max(e.depth, 1),
        _block(max(e.outputs * players, e.leaf_values.shape[1] * rules * (e.depth + 1))),
    )
    kinds = (reads(dtype, 2), *kinds_of(*constants), writes(np.float64, 2))
    return specialise(contributions, kinds), constants, e.outputs * (players + 1)


def _block(numbers: int) -> int:
    """Rows of a block of which each has so many numbers: a multiple of `FEWEST`."""
    return int(np.clip(WIDE // max(numbers, 1) // FEWEST * FEWEST, FEWEST, ROWS))


def _points(e: Ensemble, owner: Array) -> Array:
    """int32 (T,): how many points of t are exact for all paths of a tree.

    Args:
        owner: int32 (M,), the player whose column a node tests.
    """
    most = np.zeros(e.trees, np.int32)
    above = np.full(e.nodes, -1, np.int64)
    for child in (e.left, e.right):
        inner = child >= 0
        above[child[inner]] = np.flatnonzero(inner)
    # The nearest node above that is the same player's, one step up at a time for all nodes.
    new, at = np.ones(e.nodes, bool), above.copy()
    while (look := np.flatnonzero(at >= 0)).size:
        same = owner[at[look]] == owner[look]
        new[look[same]] = False
        at[look] = np.where(same, -1, above[at[look]])
    players = np.zeros(e.nodes, np.int32)
    depths = e.depths()
    for depth in range(int(depths.max(initial=-1)) + 1):
        here = np.flatnonzero(depths == depth)
        parent = above[here]
        players[here] = new[here] + np.where(parent >= 0, players[parent], 0)
    np.maximum.at(most, e.node_roots(), players)
    return np.maximum((most + 1) // 2, 1).astype(np.int32)


def _expected(e: Ensemble, share: Array) -> Array:
    """(K,) float64: what the trees give a row of which nothing is known, without the base."""
    reached = np.zeros(e.nodes)
    leaf = np.zeros(e.leaf_values.shape[0])
    inner = e.roots >= 0
    reached[e.roots[inner]] = 1
    leaf[~e.roots[~inner]] = 1
    depths = e.depths()
    for depth in range(int(depths.max(initial=-1)) + 1):
        here = np.flatnonzero(depths == depth)
        for child, part in ((e.left[here], share[here, 0]), (e.right[here], share[here, 1])):
            down = child >= 0
            reached[child[down]] = reached[here[down]] * part[down]
            leaf[~child[~down]] = reached[here[~down]] * part[~down]
    owner = np.zeros(leaf.size, np.int64)
    trees = e.node_roots()
    for child in (e.left, e.right):
        owner[~child[child < 0]] = trees[child < 0]
    owner[~e.roots[~inner]] = np.flatnonzero(~inner)
    made = np.zeros(e.outputs)
    for value in range(e.leaf_values.shape[1]):
        np.add.at(made, e.target[owner] + value, leaf * e.leaf_values[:, value])
    return made


@helper
def _goes_left(tests: Any, sets: Any, node: Any, column: Any, size: Any, out: Any) -> None:
    """out[r] = 1.0 where row r of a block goes left at a node, else 0.0."""
    _, threshold, default_left, at_most = tests
    categorical, offsets, words = sets
    missing, edge = 1.0 if default_left[node] else 0.0, threshold[node]
    if categorical.size > 0 and categorical[node]:
        begin, most = offsets[node], (offsets[node + 1] - offsets[node]) * 32
        for r in range(size):
            value = column[r]
            member = 0.0
            if value >= 0 and value < most:
                code = np.int64(value)
                word = words[begin + code // 32]
                member = float((word >> np.uint32(code % 32)) & np.uint32(1))
            out[r] = missing if value != value else member
    elif at_most:
        for r in range(size):
            value = column[r]
            left = 1.0 if value <= edge else 0.0
            out[r] = missing if value != value else left
    else:
        for r in range(size):
            value = column[r]
            left = 1.0 if value < edge else 0.0
            out[r] = missing if value != value else left


@helper
def _go_on(
    product: Any, before: Any, passed: Any, first: Any, factors: Any, size: Any, out: Any
) -> None:
    """out = the product of the path's factors with that of one more edge.

    Where the edge is the `first` of its player, all rows have passed what is `before` it.
    """
    yes, no, neither = factors
    if first:
        for r in range(size):
            out[r] = product[r] * (no + (yes - no) * passed[r])
    else:
        for r in range(size):
            had = no + (yes - no) * passed[r]
            out[r] = product[r] * (neither + (had - neither) * before[r])


@helper
def _add(
    below: Any,
    before: Any,
    passed: Any,
    first: Any,
    weights: Any,
    size: Any,
    out: Any,
    new: Any,
    sums: Any,
) -> None:
    """Add to out what an edge contributes for the leaves below it, whose sum goes into `sums`.

    Where it is not the `first` of its player, what was added above is taken back.
    """
    yes, no = weights
    if first and new:
        for r in range(size):
            out[r] += below[r] * (no + (yes - no) * passed[r])
            sums[r] = below[r]
    elif first:
        for r in range(size):
            out[r] += below[r] * (no + (yes - no) * passed[r])
            sums[r] += below[r]
    elif new:
        for r in range(size):
            out[r] += below[r] * (no + (yes - no) * passed[r]) * before[r]
            sums[r] = below[r]
    else:
        for r in range(size):
            out[r] += below[r] * (no + (yes - no) * passed[r]) * before[r]
            sums[r] += below[r]


@helper
def _exit(
    product: Any,
    before: Any,
    passed: Any,
    first: Any,
    factors: Any,
    weights: Any,
    value: Any,
    size: Any,
    out: Any,
    new: Any,
    sums: Any,
) -> None:
    """`_go_on` and `_add` for an edge to a leaf."""
    yes, no, neither = factors
    more, less = weights
    if first and new:
        for r in range(size):
            own = product[r] * (no + (yes - no) * passed[r]) * value
            out[r] += own * (less + (more - less) * passed[r])
            sums[r] = own
    elif first:
        for r in range(size):
            own = product[r] * (no + (yes - no) * passed[r]) * value
            out[r] += own * (less + (more - less) * passed[r])
            sums[r] += own
    elif new:
        for r in range(size):
            had = no + (yes - no) * passed[r]
            own = product[r] * (neither + (had - neither) * before[r]) * value
            out[r] += own * (less + (more - less) * passed[r]) * before[r]
            sums[r] = own
    else:
        for r in range(size):
            had = no + (yes - no) * passed[r]
            own = product[r] * (neither + (had - neither) * before[r]) * value
            out[r] += own * (less + (more - less) * passed[r]) * before[r]
            sums[r] += own


@helper
def _turn(x: Any, start: Any, rows: Any, size: Any, turned: Any) -> None:
    """Some rows of x as columns of a block, whose other rows are 0."""
    for c in range(x.shape[1]):
        for r in range(rows):
            turned[c, r] = x[start + r, c]
        for r in range(rows, size):
            turned[c, r] = 0


@helper
def _enter(
    tests: Any, sets: Any, owner: Any, node: Any, level: Any, turned: Any, size: Any, path: Any
) -> None:
    """Take a node onto the path: which rows go left, and where its player was tested before."""
    feature = tests[0]
    node_at, _, earlier, _, goes, _ = path
    _goes_left(tests, sets, node, turned[feature[node]], size, goes[level])
    above = level - 1
    while above >= 0 and owner[node_at[above]] != owner[node]:
        above -= 1
    earlier[level] = above


@helper
def _choose(share: Any, level: Any, size: Any, path: Any) -> None:
    """Go to the left or the right child: which rows do, and the share of rows that did."""
    node_at, stage, earlier, known, goes, passed = path
    above, side = earlier[level], stage[level]
    here, way = passed[level], goes[level]
    if side == LEFT:
        for r in range(size):
            here[r] = way[r]
    else:
        for r in range(size):
            here[r] = 1.0 - way[r]
    known[level] = share[node_at[level], side]
    if above >= 0:
        known[level] *= known[above]
        before = passed[above]
        for r in range(size):
            here[r] *= before[r]


@helper
def _factors(t: Any, before: Any, z: Any) -> Any:
    """What the path's product is multiplied by for rows that pass, that do not, that never did."""
    had = 1.0 / (before * (1.0 - t) + t)
    neither = z / before if before > 0.0 else 0.0
    return (z * (1.0 - t) + t) * had, z * (1.0 - t) * had, neither


@helper
def _weights(t: Any, before: Any, z: Any) -> Any:
    """What an edge contributes for each unit below it, for rows that pass and that do not."""
    had = 1.0 / (before * (1.0 - t) + t)
    return (before - z) * had / (z * (1.0 - t) + t), -had / (1.0 - t)


def contributions(
    x: Any,
    tests: Any,
    sets: Any,
    nodes: Any,
    leaves: Any,
    rule: Any,
    game: Any,
    deep: Any,
    block: Any,
    out: Any,
) -> None:
    """out (n, K * (players + 1)): contributions and expected value for each output.

    Args:
        x: (n, k) rows in the dtype of the thresholds.
        tests: feature, threshold, default_left (M,), and whether a row goes left at `<=`.
        sets: categorical (M,), set_offsets, set_words; empty without categories.
        nodes: roots (T,), left, right (M,) as an Ensemble has them, and share (B, M, 2).
        leaves: leaf_values (L, V), target (T,), and base (K,) with the expected values.
        rule: points (T,), the rule of a tree, and t and weight (rules, points) of each rule.
        game: of each node the player whose column it tests, and the number of players.
        deep: tests on the longest path.
        block: rows that are walked with together, a multiple of 8.
    """
    roots, left, right, share = nodes
    leaf_values, target, base = leaves
    points, ts, weights = rule
    owner, players = game
    values, outputs, most = leaf_values.shape[1], base.size, ts.shape[1]
    backgrounds = share.shape[0]
    turned = np.empty((max(x.shape[1], 1), block), x.dtype)
    total = np.empty((outputs * players, block))
    # Of each level of the path: products at its points, and sums of the leaves below.
    product = np.empty(((deep + 1) * most, block))
    below = np.empty(((deep + 1) * values * most, block))
    path = (
        np.empty(deep, np.int64),  # the node
        np.empty(deep, np.int64),  # where the walk stands there
        np.empty(deep, np.int64),  # the level above that tests the same player, or -1
        np.empty(deep),  # the share of rows that pass all tests of the player so far
        np.empty((deep, block)),  # 1 where a row goes left
        np.empty((deep, block)),  # 1 where it passes all tests of the player so far
    )
    node_at, stage, earlier, known, _, passed = path
    always = np.ones(block)
    for start in range(0, x.shape[0], block):
        rows = min(block, x.shape[0] - start)
        size = _U((rows + 7) // 8 * 8)
        _turn(x, start, rows, size, turned)
        total[:] = 0.0
        for round in range(roots.size * backgrounds):
            tree, sides = round // backgrounds, share[round % backgrounds]
            if roots[tree] < 0:
                continue
            used, to, level = points[tree], target[tree], 0
            for q in range(used):
                product[q, :] = weights[used, q] / backgrounds
            node_at[0], stage[0] = roots[tree], LEFT
            _enter(tests, sets, owner, node_at[0], 0, turned, size, path)
            while level >= 0:
                leaf, child = False, np.int32(0)
                if stage[level] == DONE:  # back to the edge that led here
                    level -= 1
                    if level < 0:
                        continue
                else:
                    _choose(sides, level, size, path)
                    child = left[node_at[level]] if stage[level] == LEFT else right[node_at[level]]
                    leaf = child < 0
                above = earlier[level]
                first = above < 0
                before, z_before = (always, 1.0) if first else (passed[above], known[above])
                here, z = passed[level], known[level]
                if child > 0:
                    for q in range(used):
                        factors = _factors(ts[used, q], z_before, z)
                        own, further = product[level * most + q], product[(level + 1) * most + q]
                        _go_on(own, before, here, first, factors, size, further)
                    level += 1
                    node_at[level], stage[level] = child, LEFT
                    _enter(tests, sets, owner, node_at[level], level, turned, size, path)
                    continue
                new = stage[level] == LEFT
                for v in range(values):
                    added = total[(to + v) * players + owner[node_at[level]]]
                    for q in range(used):
                        weight = _weights(ts[used, q], z_before, z)
                        sums = below[(level * values + v) * most + q]
                        if leaf:
                            factors = _factors(ts[used, q], z_before, z)
                            own, value = product[level * most + q], leaf_values[~child, v]
                            _exit(
                                own,
                                before,
                                here,
                                first,
                                factors,
                                weight,
                                value,
                                size,
                                added,
                                new,
                                sums,
                            )
                        else:
                            deeper = below[((level + 1) * values + v) * most + q]
                            _add(deeper, before, here, first, weight, size, added, new, sums)
                stage[level] += 1
        for r in range(rows):
            for output in range(outputs):
                begin = output * (players + 1)
                for p in range(players):
                    out[start + r, begin + p] = total[output * players + p, r]
                out[start + r, begin + players] = base[output]
