"""Hostile constants of kernels for trees that the argument checks refuse, by what is wrong."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sqlml.backends.native.kernel_calls import Call
from tests.support.guarded_arrays import is_accepted
from tests.support.tree_calls import CALLS, find_check

Change = Callable[[Any], Any]


def put(value: Any, index: Any = 0, field: str | None = None) -> Change:
    """Replace an item of an array, or a field of the record there."""

    def change(array: Any) -> Any:
        changed = array.copy()
        (changed if field is None else changed[field])[index] = value
        return changed

    return change


def cut(length: int) -> Change:
    return lambda array: array[:length]


def become(value: Any) -> Change:
    return lambda _: value


def shape_of(*shape: int) -> Change:
    return lambda array: np.empty(shape, array.dtype)


def make_leaf_move(nodes: Any) -> Any:
    """Let rows at the first leaf of a descent go to the node before it."""
    leaf = next(i for i in range(1, nodes.size) if int(nodes[i]) & 0xFFFFFF == i - 1)
    return put(int(nodes[leaf]) | 7 << 24, leaf)(nodes)


def make_node_wait(nodes: Any) -> Any:
    """Let an inner node of a descent be its own left child."""
    node = next(i for i in range(1, nodes.size) if int(nodes[i]) & 0xFFFFFF > i)
    return put(int(nodes[node]) & ~0xFFFFFF | node, node)(nodes)


def find_lockstep_leaf(nodes: Any) -> int:
    return int(np.flatnonzero(nodes["link"] == 0)[0])


def put_at_leaf(value: Any, field: str) -> Change:
    return lambda nodes: put(value, find_lockstep_leaf(nodes), field)(nodes)


def lower_depth(trees: Any) -> Any:
    """Let the lowest tree that has nodes end above its leaves."""
    row = int(np.flatnonzero(trees[:, 1])[-1])
    return put(trees[row, 1] - 1, (row, 1))(trees)


def swap_depths(trees: Any) -> Any:
    """Let a tree of the first window be lower than the next one."""
    row = int(np.flatnonzero(np.diff(trees[:256, 1].astype(int)))[0])
    return put(trees[row + 1, 1], (row, 1))(put(trees[row, 1], (row + 1, 1))(trees))


HUGE = 1 << 60
BYTES, SETS, MANY = "cursors of a byte", "cursors and sets", "cursors, many values"
DESCENT, WIDE_DESCENT, DEEP = "descent", "descent, many values", "lockstep, deep"
GAME, GAME_SETS = "contributions", "contributions and sets"

HOSTILE: list[tuple[str, str, str, Change]] = [
    # The call, what is wrong, the argument (with the position in a tuple), and the change.
    (BYTES, "a column beyond the rows", "tables 0", put(5)),
    (BYTES, "a negative column", "tables 0", put(-1)),
    (BYTES, "more columns than thresholds begin", "tables 0", become(np.zeros(99, np.int64))),
    (BYTES, "thresholds end early", "tables 1", cut(3)),
    (BYTES, "thresholds begin below the table", "tables 2", put(-1)),
    (BYTES, "thresholds begin beyond the table", "tables 2", put(HUGE)),
    ("cursors and pages", "a search of many steps", "tables 3", put(31)),
    ("cursors and pages", "a shift of 64 bits", "tables 3", put(64)),
    (BYTES, "a cell beyond the cells", "tables 6", put(1e6)),
    (BYTES, "an infinite cell", "tables 6", put(np.inf)),
    (BYTES, "a panel column beyond the panel", "tables 9", put(99)),
    (BYTES, "a second panel column beyond the panel", "tables 10", put(99)),
    (BYTES, "more thresholds than there are", "tables 12", put(1 << 20)),
    (BYTES, "endless pages", "tables 14", put(HUGE)),
    (BYTES, "a panel without columns", "width", become(0)),
    (BYTES, "a panel of 2**60 columns", "width", become(HUGE)),
    (BYTES, "a negative panel", "width", become(-(1 << 63))),
    (BYTES, "a node reads beyond the panel", "nodes 0", put((1 << 32) - 1)),
    (BYTES, "fewer ranks than nodes", "nodes 1", cut(1)),
    (BYTES, "a row starts at a leaf of the next tree", "nodes 3", put(200)),
    (BYTES, "a step leads to the next tree", "nodes 4", put(100)),
    (BYTES, "a triple lacks a node", "nodes 5", lambda starts: put(starts[1] - 1, 1)(starts)),
    (BYTES, "nodes in descending order", "nodes 5", put(HUGE)),
    (BYTES, "too few starts", "nodes 5", cut(4)),
    (BYTES, "leaves beyond the values", "leaves 0", put(HUGE, -1)),
    (BYTES, "no first leaves", "leaves 0", cut(0)),
    (BYTES, "a tree without leaves", "leaves 0", put(0, 1)),
    (BYTES, "a target beyond the outputs", "leaves 1", put(1)),
    (BYTES, "a negative target", "leaves 1", put(-1)),
    (BYTES, "no marks of oblivious trees", "leaves 2", cut(0)),
    ("oblivious trees", "a bit beyond the leaves", "nodes 4", put(64)),
    (BYTES, "values of two outputs", "values", lambda a: np.concatenate([a, a])),
    (BYTES, "more outputs than columns of the result", "base", become(np.zeros(2, "f4"))),
    (BYTES, "a negative width of leaves", "leaf_width", become(-16)),
    (MANY, "leaves that are no multiple of a vector", "leaf_width", become(15)),
    (MANY, "wider leaves than values", "leaf_width", become(32)),
    (MANY, "values end early", "values", cut(64)),
    (MANY, "leaves of 2**60 values", "leaf_width", become(HUGE)),
    (SETS, "a set's column beyond the rows", "sets 0", put(5)),
    (SETS, "codes beyond the table", "sets 1", put(10_000)),
    (SETS, "negative codes", "sets 1", put(-1)),
    (SETS, "a table that ends early", "sets 4", cut(50)),
    (SETS, "a table beyond the others", "sets 3", put(HUGE)),
    (SETS, "a negative table", "sets 3", put(-1)),
    (SETS, "wider tables than the panel", "sets 2", lambda a: a + 1600),
    (SETS, "half a square of sets", "sets 2", lambda a: a - 8),
    (SETS, "negative sets", "sets 2", put(-16)),
    (SETS, "fewer tables than columns", "sets 3", cut(2)),
    (DESCENT, "an inner node is its own child", "lower 0", make_node_wait),
    (DESCENT, "a leaf moves", "lower 0", make_leaf_move),
    (DESCENT, "a child beyond the tree", "lower 0", put(0xFFFFFF, 1)),
    (DESCENT, "a node reads beyond the panel", "lower 0", put((0xFFFFFF << 40) | 2, 1)),
    (DESCENT, "a leaf beyond the values", "lower 1", lambda a: put(1 << 30, np.arange(9))(a)),
    (DESCENT, "fewer leaves than nodes", "lower 1", cut(9)),
    (DESCENT, "a tree begins beyond the nodes", "lower 2", put(HUGE, -1)),
    (DESCENT, "a tree before the nodes", "lower 2", put(-1)),
    (DESCENT, "an exit beyond the tree", "upper 4", put(250)),
    (DESCENT, "a target beyond the outputs", "target", put(1)),
    (DESCENT, "many outputs", "outputs", become(HUGE)),
    (DESCENT, "no outputs", "outputs", become(0)),
    (WIDE_DESCENT, "values end early", "values", cut(64)),
    (WIDE_DESCENT, "wider leaves", "leaf_width", become(32)),
    (DEEP, "rows longer than they are", "stride", become(6)),
    (DEEP, "negative rows", "stride", become(-1)),
    (DEEP, "a constant in place of the rows", "tested", become(np.zeros(5, "f4"))),
    (DEEP, "a root in another tree", "trees", put(1, (0, 0))),
    (DEEP, "a depth that does not reach the leaves", "trees", put(17, (0, 1))),
    (DEEP, "an endless depth", "trees", put((1 << 32) - 1, (0, 1))),
    (DEEP, "a tree of another window", "trees", put(3, (0, 2))),
    (DEEP, "two trees at one place", "trees", lambda a: put(a[1, 2], (0, 2))(a)),
    (DEEP, "a leaf beyond the values", "trees", put((1 << 32) - 1, (0, 3))),
    (DEEP, "more positions than there are", "trees", put(1 << 31, (2, 4))),
    (DEEP, "no trees with nodes at a level", "moving", put(0, (0, 5))),
    (DEEP, "no numbers of trees at the last level", "moving", lambda a: a[:, :12].copy()),
    (DEEP, "a node is its own child", "nodes", put(1, 0, "link")),
    (DEEP, "a child beyond the tree", "nodes", lambda a: put(a["link"][0] | 30, 0, "link")(a)),
    (DEEP, "a node reads beyond the rows", "nodes", put(5 << 5 | 2, 0, "link")),
    (DEEP, "a row leaves a leaf", "nodes", put_at_leaf(np.float32(0), "threshold")),
    (DEEP, "a leaf of another column", "nodes", put_at_leaf(1 << 20, "link")),
    (DEEP, "a leaf number beyond the values", "leaf", lambda a: a | 0x3FFFFF),
    (DEEP, "fewer leaf numbers than nodes", "leaf", cut(9)),
    (DEEP, "NaN leaves a leaf", "left", lambda a: np.ones_like(a)),
    (DEEP, "too few directions of NaN", "left", cut(1)),
    (DEEP, "a distance of all bits", "bits", become(32)),
    (DEEP, "a shift of 2**60 bits", "bits", become(HUGE)),
    (DEEP, "a target beyond the outputs", "target", put(1)),
    (DEEP, "values end early", "values", cut(3)),
    (DEEP, "an array of 2**40 values per leaf", "values", shape_of(0, 1 << 40)),
    ("lockstep and sets", "a set beyond the words", "sets 0", lambda a: a + np.uint32(1 << 20)),
    ("lockstep and sets", "a set of many categories", "sets 1", lambda a: a + 1e6),
    ("lockstep and sets", "an endless set", "sets 1", lambda a: a + np.inf),
    ("lockstep and sets", "no directions of NaN", "left", cut(0)),
    ("lockstep, other rows", "a column beyond the rows", "columns 0", put(5)),
    ("lockstep, other rows", "fewer categories than columns", "columns 1", cut(2)),
    (SETS, "fewer bins than nodes", "nodes 6", cut(2)),
    ("lockstep", "a depth above the lowest leaves", "trees", lower_depth),
    ("lockstep, windows", "trees that are not in order", "trees", swap_depths),
    ("lockstep", "a top reads beyond the block", "tops 0", put(5 * 64)),
    ("lockstep", "a top ends in another tree", "tops 2", put((1 << 32) - 1)),
    ("lockstep", "a top ends above the lowest levels", "tops 2", put(0)),
    ("lockstep", "fewer tops than trees", "tops 2", cut(16)),
    (GAME, "a column beyond the rows", "tests 0", put(5)),
    (GAME, "fewer thresholds than nodes", "tests 1", cut(2)),
    (GAME, "a root beyond the nodes", "nodes 0", put(1 << 30)),
    (GAME, "a tree twice", "nodes 0", lambda roots: np.full_like(roots, roots.max())),
    (GAME, "a node is its own child", "nodes 1", put(0)),
    (GAME, "a node with two parents", "nodes 2", lambda right: put(1, 0)(right)),
    (GAME, "a child beyond the nodes", "nodes 1", put(1 << 30)),
    (GAME, "a leaf beyond the values", "nodes 2", lambda right: np.minimum(right, -(1 << 30))),
    (GAME, "fewer shares than nodes", "nodes 3", lambda share: share[:, :2].copy()),
    (GAME, "endless backgrounds", "nodes 3", shape_of(1 << 55, 0, 2)),
    (GAME, "values of more outputs", "leaves 0", lambda a: np.tile(a, (1, 2))),
    (GAME, "a target beyond the outputs", "leaves 1", put(2)),
    (GAME, "more outputs than columns", "leaves 2", lambda base: np.tile(base, 2)),
    (GAME, "more points than the tables have", "quadrature 0", put(99)),
    (GAME, "a negative number of points", "quadrature 0", put(-1)),
    (GAME, "fewer weights than points", "quadrature 2", lambda a: a[:, :0].copy()),
    (GAME, "tables of 2**40 points", "quadrature 1", shape_of(0, 1 << 40)),
    (GAME, "a player beyond the others", "settings 0", put(3)),
    (GAME, "2**60 players", "settings 1", become(HUGE)),
    (GAME, "a path longer than the scratch arrays", "settings 2", become(4)),
    (GAME, "paths of 2**60 nodes", "settings 2", become(HUGE)),
    (GAME, "blocks without rows", "settings 3", become(0)),
    (GAME, "blocks of 12 rows", "settings 3", become(12)),
    (GAME, "blocks of 2**60 rows", "settings 3", become(HUGE)),
    (GAME_SETS, "a set beyond the words", "sets 1", put(1 << 20, -1)),
    (GAME_SETS, "a negative set", "sets 1", put(-1)),
    (GAME_SETS, "fewer words than sets", "sets 2", cut(1)),
    (GAME_SETS, "fewer marks than nodes", "sets 0", cut(1)),
    ("leaf models", "no leaves", "intercepts", cut(0)),
    ("leaf models", "fewer values than leaves", "missing_values", cut(3)),
    ("leaf models", "terms beyond the weights", "begin", put(7, -1)),
    ("leaf models", "terms before the weights", "begin", put(-1)),
    ("leaf models", "a feature beyond the rows", "features", put(4)),
    ("leaf models", "a negative feature", "features", put(-4)),
    ("leaf models", "more trees than columns", "target", become(np.zeros(8, "i4"))),
    ("leaf models", "a target beyond the outputs", "target", put(2)),
    ("leaf models", "more outputs than columns", "base", become(np.zeros(3))),
]


@pytest.mark.parametrize(
    ("name", "path", "change"),
    [(name, path, change) for name, _, path, change in HOSTILE],
    ids=[f"{name}: {what}" for name, what, *_ in HOSTILE],
)
def test_hostile_constants_are_refused(name: str, path: str, change: Change) -> None:
    call = CALLS[name]()
    check = find_check(call)
    assert check is not None and is_accepted(check, call)
    assert not is_accepted(check, change_argument(call, check, path, change))


def change_argument(call: Call, check: Callable[..., Any], path: str, change: Change) -> Call:
    """Change an argument, named as in the check, or an item of an argument that is a tuple."""
    argument_name, *items = path.split()
    index = list(inspect.signature(check).parameters).index(argument_name)
    arguments = list(call.arguments)
    if items:
        values = list(arguments[index])
        values[int(items[0])] = change(values[int(items[0])])
        arguments[index] = tuple(values)
    else:
        arguments[index] = change(arguments[index])
    return replace(call, arguments=tuple(arguments))


def test_trees_move_less_than_they_must_if_a_lower_tree_comes_first() -> None:
    """The group of such trees descends only as far as its first tree."""
    call = CALLS["lockstep, windows"]()
    check = find_check(call)
    assert check is not None

    def put_lower_tree_first(trees: Any) -> Any:
        changed = trees.copy()
        row = int(np.flatnonzero(np.diff(trees[:256, 1].astype(int)))[0])
        changed[[row, row + 1], :2] = trees[[row + 1, row], :2]
        order = changed[:256, 2]
        first, second = order == row, order == row + 1
        order[first], order[second] = row + 1, row
        return changed

    all_move = change_argument(call, check, "moving", lambda a: np.full_like(a, 256))
    assert is_accepted(check, all_move)
    assert not is_accepted(check, change_argument(all_move, check, "trees", put_lower_tree_first))
