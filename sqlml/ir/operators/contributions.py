"""What each column contributes to a sum of trees: Shapley values, exact.

The worth of a set S of features is what the trees are expected to give a row of which only S is
known: at a test of another feature the row goes both ways, in the proportion of the training rows
that did (Lundberg et al., "Consistent individualized feature attribution for tree ensembles", 2018,
algorithm 1); or, with background rows, the way that each of these goes, and the mean is taken.

For one leaf this worth is a product over the m features on its path, of o_k where k is known (1 if
the row passes all of the path's tests of k, else 0), and of z_k where it is not (the product of the
shares of rows that passed them). So the Shapley value of k is the integral of (o_k - z_k) times the
product of z_i (1 - t) + o_i t over the other features i, for t from 0 to 1: a polynomial of degree
m - 1, for which the Gauss-Legendre rule with ceil(m / 2) points is exact.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from sqlml.ir.operators.forests import TREES, goes_left
from sqlml.ir.operators.op import Op, Types, array, need
from sqlml.ir.operators.sampled import MOST_BACKGROUND
from sqlml.ir.program import Attrs
from sqlml.ir.trees import Ensemble
from sqlml.types import Array, TensorType, matrix

_GAME = ("player", "players", "background", "together")


def ensemble_of(attrs: Attrs) -> Ensemble:
    """The trees of a tree_contributions node."""
    return Ensemble.of({name: value for name, value in attrs.items() if name not in _GAME})


def _type(types: Types, attrs: Attrs) -> TensorType:
    e = ensemble_of(attrs)
    e.check(types[0])
    known = attrs.get("background")
    need(e.cover is not None or known is not None, "contributions need covers, or background rows")
    if known is not None:
        fits = known.ndim == 2 and 0 < known.shape[0] <= MOST_BACKGROUND
        need(fits and known.shape[1] == types[0].width, "the background rows do not fit")
        need(known.dtype == e.threshold.dtype, "the background rows have another dtype")
    player, players = array(attrs, "player"), attrs["players"]
    need(players > 0, "contributions need a player")
    need(
        player.dtype == np.int32 and player.shape == (types[0].width,),
        "one player for each column",
    )
    need(bool(((player >= 0) & (player < players)).all()), "a column belongs to no player")
    together = attrs.get("together", False)
    need(isinstance(together, bool), "together is a bool")
    return matrix("float64", e.outputs * (players + 1))


def quadrature(features: int) -> tuple[Array, Array]:
    """Points in (0, 1) and weights of the rule that is exact for so many features on a path."""
    points, weights = np.polynomial.legendre.leggauss(max(1, (features + 1) // 2))
    return (points + 1) / 2, weights / 2


def shares(e: Ensemble, background: Array | None) -> Array:
    """(B, M, 2): the share of the rows at a node that go to its left and its right child.

    Without background rows those of training, B = 1: where no row came, both have half of nothing.
    With B of them each by itself, 1 to one side and 0 to the other (interventional values).
    """
    if background is not None:
        nodes = np.arange(e.nodes)
        left = np.stack([goes_left(e, nodes, row[e.feature]) for row in background])
        return np.stack([left, ~left], axis=2).astype(np.float64)
    assert e.cover is not None and e.leaf_cover is not None
    cover = e.cover.astype(np.float64)
    sides = []
    for child in (e.left, e.right):
        own = np.zeros(child.size)
        inner = child >= 0
        own[inner] = cover[child[inner]]
        own[~inner] = e.leaf_cover[~child[~inner]]
        sides.append(own)
    below = np.stack(sides, axis=1) if e.nodes else np.zeros((0, 2))
    with np.errstate(all="ignore"):
        made = below / cover[:, None]
    return np.where(cover[:, None] > 0, made, 0.5)[None]


def joining(e: Ensemble, attrs: Attrs) -> Array:
    """int32 (M,): what joins the game at each node, its column or its player."""
    together: Array = attrs["player"][e.feature]
    return together if attrs.get("together") else e.feature


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A leaf with the tests on its path: node, and whether it is reached to the left."""

    tree: int
    leaf: int
    tests: tuple[tuple[int, bool], ...]


def _leaves(e: Ensemble) -> Iterator[_Leaf]:
    for tree, root in enumerate(e.roots.tolist()):
        waiting: list[tuple[int, tuple[tuple[int, bool], ...]]] = [(root, ())]
        while waiting:
            at, tests = waiting.pop()
            if at < 0:
                yield _Leaf(tree, ~at, tests)
            else:
                waiting.append((int(e.right[at]), (*tests, (at, False))))
                waiting.append((int(e.left[at]), (*tests, (at, True))))


def _contributions(args: Sequence[Array], attrs: Attrs) -> Array:
    """Leaf by leaf. (n, K * (players + 1)): for each output the contributions of the players, and
    what the trees give a row of which nothing is known.

    Each column joins the game by itself, and what a player's columns contribute is added up; with
    `together` all columns of a player join at once.
    """
    (x,) = args
    e, players = ensemble_of(attrs), int(attrs["players"])
    n, values = x.shape[0], e.leaf_values.shape[1]
    sides = shares(e, attrs.get("background"))
    joins = joining(e, attrs)
    made = np.zeros((n, e.outputs, players + 1))
    made[:, :, -1] = e.base
    for leaf, share in itertools.product(_leaves(e), sides):
        passed: dict[int, Array] = {}
        known: dict[int, float] = {}
        for node, left in leaf.tests:
            k = int(joins[node])
            goes = goes_left(e, np.full(n, node), x[:, e.feature[node]]) == left
            passed[k] = passed.get(k, True) & goes
            known[k] = known.get(k, 1.0) * float(share[node, 0 if left else 1])
        places = slice(int(e.target[leaf.tree]), int(e.target[leaf.tree]) + values)
        value = e.leaf_values[leaf.leaf].astype(np.float64) / len(sides)
        made[:, places, -1] += np.prod(list(known.values())) * value
        for k in known:
            total = np.zeros(n)
            for t, weight in zip(*quadrature(len(known)), strict=True):
                others = [known[i] * (1 - t) + passed[i] * t for i in known if i != k]
                total += weight * np.prod([np.ones(n), *others], axis=0)
            own = (passed[k] - known[k]) * total
            player = k if attrs.get("together") else attrs["player"][k]
            made[:, places, player] += own[:, None] * value
    return made.reshape(n, e.outputs * (players + 1))


OPERATORS: tuple[Op, ...] = (
    Op(
        "tree_contributions",
        "model",
        "opaque",
        _type,
        _contributions,
        {**TREES, "player": "array", "players": "int", "background": "array?", "together": "bool?"},
    ),
)
