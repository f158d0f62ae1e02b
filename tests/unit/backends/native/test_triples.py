"""`order_triples`: each node once, parents before children, and three that belong together."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesRegressor

import sqlml
from sqlml.backends.native.trees.walk import MAX_SINGLE_NODES, NONE, number_exits, order_triples
from sqlml.ir.trees import Ensemble


def ensemble(depth: int | None) -> Ensemble:
    """Trees of many shapes: thresholds at random split off few rows here and many there."""
    x = np.random.default_rng(0).normal(size=(300, 4))
    model = ExtraTreesRegressor(12, max_depth=depth, random_state=0).fit(x, x[:, 0] * x[:, 1])
    program = sqlml.compile(model).program
    (node,) = (n for n in program.nodes if n.op == "tree_ensemble")
    return Ensemble.of(node.attrs)


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 5, None])
@pytest.mark.parametrize("cut", [None, 3])
def test_each_node_once_and_parents_first(depth: int | None, cut: int | None) -> None:
    e = ensemble(depth)
    numbered = number_exits(e, None if cut is None else np.full(e.trees, cut))
    order, starts = order_triples(e, numbered)
    assert sorted(order[order != NONE]) == sorted(numbered.node)
    owner = e.node_roots()
    for t in range(e.trees):
        three, one = order[starts[2 * t] : starts[2 * t + 1]], order[starts[2 * t + 1] :]
        one = one[: starts[2 * t + 2] - starts[2 * t + 1]]
        seen = {int(e.roots[t])}
        for node, left, right in three.reshape(-1, 3):
            assert owner[node] == t and int(node) in seen
            assert left in (NONE, e.left[node]) and right in (NONE, e.right[node])
            seen |= {int(child) for child in (e.left[node], e.right[node])}
            for child in {left, right} - {NONE}:
                seen |= {int(e.left[child]), int(e.right[child])}
        for node in one:
            assert owner[node] == t and int(node) in seen
            seen |= {int(e.left[node]), int(e.right[node])}
        assert NONE not in one


def test_trees_of_few_nodes_and_trees_that_are_named_stay_single() -> None:
    e = ensemble(None)
    numbered = number_exits(e)
    alone = np.arange(e.trees) % 2 == 0
    _, starts = order_triples(e, numbered, alone)
    sizes = np.diff(numbered.starts)
    in_triples = np.diff(starts)[::2]
    assert (in_triples[alone | (sizes <= MAX_SINGLE_NODES)] == 0).all()
    assert (in_triples[~alone & (sizes > MAX_SINGLE_NODES)] > 0).all()


def test_two_full_levels_take_no_padding() -> None:
    e = ensemble(4)
    numbered = number_exits(e)
    order, starts = order_triples(e, numbered)
    full = np.flatnonzero(np.diff(numbered.starts) == 15)
    assert full.size
    for t in full:
        assert starts[2 * t + 1] - starts[2 * t] == starts[2 * t + 2] - starts[2 * t] == 15
        assert NONE not in order[starts[2 * t] : starts[2 * t + 2]]
