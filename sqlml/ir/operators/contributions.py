"""What each column contributes to a sum of trees: Shapley values, exact.

The worth of a set S of players is what the trees are expected to give a row of which only S is
known: at a test of another player the row goes both ways, in the proportion of the training rows
that did (Lundberg et al., "Consistent individualized feature attribution for tree ensembles", 2018,
algorithm 1); or, with background rows, the way that each of these goes, and the mean is taken.

A player is an input of the model: all columns that are made of it are known or unknown together.

For one leaf this worth is a product over the m players on its path, of o_k where k is known (1 if
the row passes all of the path's tests of k, else 0), and of z_k where it is not (the product of the
shares of rows that passed them). So the Shapley value of k is the integral of (o_k - z_k) times the
product of z_i (1 - t) + o_i t over the other players i, for t from 0 to 1: a polynomial of degree
m - 1, for which the Gauss-Legendre rule with ceil(m / 2) points is exact.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sqlml.errors import ProgramError
from sqlml.ir.operators.forests import TREES, goes_left
from sqlml.ir.operators.op import Op, Types, array, need
from sqlml.ir.program import Attrs
from sqlml.ir.trees import Ensemble
from sqlml.ir.utf8_column import Texts
from sqlml.types import Array, TensorType, matrix

# What each input contributes to what any Program says: Shapley values against background rows.
#
# The worth of a set S of inputs is the mean, over some background rows, of what the Program says
# of the row with all inputs but S replaced by those of a background row. With few inputs all sets
# are tried; with more, inputs are put into the row one after the other in random orders, and what
# the Program says changes by their contributions (Castro, Gomez, Tejada, "Polynomial calculation
# of the Shapley value based on sampling", 2009). An order is followed by its reverse, which
# cancels a part of the error (Mitchell and others, "Sampling permutations for Shapley value
# estimation", 2022).


ATTRS: Mapping[str, str] = {
    **dict.fromkeys(("program", "numbers", "texts", "missing"), "array"),
    **dict.fromkeys(("width", "orders", "seed"), "int"),
}
"""program: the stored Program, bytes, with inputs `x0`, `x1`, .. and an output `y` (n, width).
numbers float64 (B, p) and texts object (B * p,): the B background rows, of each input in one of
them; missing bool (B, p): texts that are NULL. orders: pairs of orders for each background row."""

Run = Callable[[Mapping[str, Array]], Array]
"""The Program: name of an input -> (n, 1), to (n, width)."""

MOST_BACKGROUND, MOST_ORDERS = 1000, 1000
"""Background rows, and pairs of orders for each, at most."""

_CELLS = 1 << 20
"""Cells of rows that the Program is given at a time."""


def sampled_type(types: Types, attrs: Attrs) -> TensorType:
    """(n, width * (2 p + 1)): for each output the contributions of the p inputs, what is expected
    without any, and the standard errors of the contributions."""
    inputs = len(types)
    program = array(attrs, "program")
    need(program.dtype == np.uint8 and program.ndim == 1, "the Program must be bytes")
    numbers, texts, missing = (array(attrs, name) for name in ("numbers", "texts", "missing"))
    need(numbers.dtype == np.float64 and numbers.ndim == 2, "numbers must be float64")
    need(0 < numbers.shape[0] <= MOST_BACKGROUND, "background rows are missing, or too many")
    need(numbers.shape[1] == inputs and missing.shape == numbers.shape, "one of each input")
    need(texts.shape == (numbers.size,), "one text of each input")
    need(texts.dtype == object and missing.dtype == bool, "texts must be texts")
    need(all(t.rowwise and t.shape[1:] == (1,) for t in types), "inputs must be single columns")
    need(attrs["width"] > 0 and 0 < attrs["orders"] <= MOST_ORDERS, "width or orders out of range")
    need(attrs["seed"] >= 0, "a seed is not below 0")
    return matrix("float64", attrs["width"] * (2 * inputs + 1))


def sampled(run: Run, args: Sequence[Array], attrs: Attrs) -> Array:
    """The contributions of the rows `args`, one (n, 1) of each input, by a Program."""
    columns = [_Column(x, k, attrs) for k, x in enumerate(args)]
    rows, width = len(args[0]), int(attrs["width"])
    made = np.empty((rows, width, 2 * len(columns) + 1))
    names = [f"x{k}" for k in range(len(columns))]
    step = max(1, _CELLS // (len(columns) * _states(len(columns), attrs)))

    def worth(start: int, stop: int, backgrounds: Array, masks: Array) -> Array:
        """(masks, rows, width): the Program on rows whose inputs outside a mask are a background
        row's."""
        given = {
            name: column.mixed(start, stop, backgrounds, masks[:, k])
            for k, (name, column) in enumerate(zip(names, columns, strict=True))
        }
        told = run(given)
        if told.size != len(masks) * (stop - start) * width:
            raise ProgramError(f"sampled_contributions: the Program does not give {width} numbers")
        return told.reshape(len(masks), stop - start, width).astype(np.float64)

    for start in range(0, rows, step):
        stop = min(rows, start + step)
        made[start:stop] = _of_rows(start, stop, len(columns), attrs, worth)
    return made.reshape(rows, width * (2 * len(columns) + 1))


class _Column:
    """One input of some rows, and of the background rows."""

    def __init__(self, x: Array, k: int, attrs: Attrs) -> None:
        if isinstance(x, Texts) or x.dtype == object:
            self._rows = x.objects() if isinstance(x, Texts) else x
            held = attrs["texts"].reshape(attrs["missing"].shape)[:, k].copy()
            held[attrs["missing"][:, k]] = None
            self._background = held
        else:
            self._rows = x
            with np.errstate(all="ignore"):
                self._background = attrs["numbers"][:, k].astype(x.dtype)

    def mixed(self, start: int, stop: int, backgrounds: Array, known: Array) -> Array:
        """(masks * rows, 1): the rows' values where `known`, else those of a background row."""
        rows = self._rows[start:stop, 0]
        values = np.where(known[:, None], rows[None, :], self._background[backgrounds][:, None])
        return values.reshape(-1, 1)


Worth = Callable[[int, int, Array, Array], Array]


def _tries_all_sets(players: int, attrs: Attrs) -> bool:
    """Whether all sets of players together need no more evaluations than the sampled orders."""
    return bool(2**players <= 2 * attrs["orders"] * (players + 1))


def _states(players: int, attrs: Attrs) -> int:
    """Rows that the Program is given at a time for each row."""
    return 2**players if _tries_all_sets(players, attrs) else 2 * (players + 1)


def _of_rows(start: int, stop: int, players: int, attrs: Attrs, worth: Worth) -> Array:
    """(rows, width, 2 players + 1) of some rows."""
    if _tries_all_sets(players, attrs):
        return _by_all_sets(start, stop, players, attrs, worth)
    return _by_orders(start, stop, players, attrs, worth)


def _by_all_sets(start: int, stop: int, players: int, attrs: Attrs, worth: Worth) -> Array:
    """Exact: each set of inputs, with each background row."""
    sets = np.array(list(itertools.product([False, True], repeat=players)), bool)
    background = len(attrs["numbers"])
    mean = sum(worth(start, stop, np.full(len(sets), b), sets) for b in range(background))
    mean = np.asarray(mean) / background
    place = {tuple(some): i for i, some in enumerate(sets.tolist())}
    made = np.zeros((stop - start, mean.shape[2], 2 * players + 1))
    for some, i in place.items():
        size = sum(some)
        for k in range(players):
            if some[k]:
                continue
            weight = math.factorial(size) * math.factorial(players - size - 1)
            more = place[(*some[:k], True, *some[k + 1 :])]
            made[:, :, k] += weight / math.factorial(players) * (mean[more] - mean[i])
    made[:, :, players] = mean[place[(False,) * players]]
    return made


def _by_orders(start: int, stop: int, players: int, attrs: Attrs, worth: Worth) -> Array:
    """By random orders, the same for each row: a row has the same values in any batch.

    Each background row has as many orders, so that only these are left to chance: errors are of the
    means over them, background row by background row.
    """
    background, orders = len(attrs["numbers"]), int(attrs["orders"])
    shape = (players, stop - start, int(attrs["width"]))
    mean, variance, expected = np.zeros(shape), np.zeros(shape), np.zeros(shape[1:])
    draw = np.random.default_rng(attrs["seed"])
    for b in range(background):
        own = []
        for _ in range(orders):
            order = draw.permutation(players)
            masks = np.zeros((2, players + 1, players), bool)
            for o, one in enumerate((order, order[::-1])):
                for j, k in enumerate(one):
                    masks[o, j + 1 :, k] = True
            flat = masks.reshape(-1, players)
            values = worth(start, stop, np.full(len(flat), b), flat)
            steps = np.diff(values.reshape(2, players + 1, *shape[1:]), axis=1)
            added = np.empty(shape)
            added[order] = steps[0] / 2
            added[order[::-1]] += steps[1] / 2
            own.append(added)
        mean += np.mean(own, axis=0) / background
        if orders > 1:
            variance += np.var(own, axis=0, ddof=1) / orders / background**2
        expected += values[0] / background
    made = np.empty((*shape[1:], 2 * players + 1))
    made[:, :, :players] = np.moveaxis(mean, 0, 2)
    made[:, :, players] = expected
    made[:, :, players + 1 :] = np.moveaxis(np.sqrt(variance), 0, 2)
    return made


_GAME = ("player", "players", "background")


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
    what the trees give a row of which nothing is known."""
    (x,) = args
    e, players = ensemble_of(attrs), int(attrs["players"])
    n, values = x.shape[0], e.leaf_values.shape[1]
    sides = shares(e, attrs.get("background"))
    made = np.zeros((n, e.outputs, players + 1))
    made[:, :, -1] = e.base
    for leaf, share in itertools.product(_leaves(e), sides):
        passed: dict[int, Array] = {}
        known: dict[int, float] = {}
        for node, left in leaf.tests:
            column = int(e.feature[node])
            k = int(attrs["player"][column])
            goes = goes_left(e, np.full(n, node), x[:, column]) == left
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
            made[:, places, k] += own[:, None] * value
    return made.reshape(n, e.outputs * (players + 1))


OPERATORS: tuple[Op, ...] = (
    Op(
        "tree_contributions",
        "model",
        "opaque",
        _type,
        _contributions,
        {**TREES, "player": "array", "players": "int", "background": "array?"},
    ),
)
