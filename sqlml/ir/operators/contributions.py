"""Shapley values: the contribution of each input to a prediction.

`tree_contributions` computes them exactly for a sum of trees. The worth of a set of players
(inputs) is the expected score of a row of which only these are known. At the test of another
player, the row goes both ways, in the proportion of the training rows that did (Lundberg et al.,
"Consistent individualized feature attribution for tree ensembles", 2018, algorithm 1), or as each
background row does.

For one leaf, the worth is a product over the m players on its path: o_k if k is known (1 if the row
passes all tests of k on the path, else 0), and z_k if not (the product of the shares of rows that
passed them). So the Shapley value of k is the integral of (o_k - z_k) times the product of z_i (1 -
t) + o_i t over the other players i, for t from 0 to 1. This is a polynomial of degree m - 1, for
which the Gauss-Legendre rule with ceil(m / 2) points is exact.

`sampled_contributions` replaces unknown inputs of any Program by those of background rows. With few
inputs, all sets are evaluated; with more, inputs are added in random orders (Castro, Gomez, Tejada,
"Polynomial calculation of the Shapley value based on sampling", 2009), each followed by its reverse
(Mitchell et al., "Sampling permutations for Shapley value estimation", 2022).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sqlml.errors import ProgramError
from sqlml.ir.operators.forests import TREES, goes_left
from sqlml.ir.operators.op import Op, Types, array_attribute, require, require_matrix
from sqlml.ir.program import Attrs
from sqlml.ir.trees import Ensemble
from sqlml.ir.utf8_column import TextColumn
from sqlml.types import Array, TensorType, matrix

_SAMPLED = "program, numbers, texts, missing, width: int, orders: int, seed: int"
"""program: a stored Program with inputs `x0`, `x1`, ... and an output `y` (n, width). numbers
float64 (B, p) and texts object (B * p,): the B background rows; an input is in one of the two.
missing bool (B, p): texts that are NULL. orders: pairs of orders for each background row."""

Run = Callable[[Mapping[str, Array]], Array]
"""A function that runs the Program, from inputs by name, (n, 1) each, to (n, width)."""

Mixer = Callable[[slice, Array, Array], Array]

MAX_BACKGROUND, MAX_ORDERS = 1000, 1000
"""Most background rows, and most pairs of orders for each of them."""

_CELLS = 1 << 20
"""Most cells that the Program is run on at a time."""


def _sampled_type(types: Types, attrs: Attrs) -> TensorType:
    """Return (n, width * (2 p + 1)): contributions, expectation and standard errors by output."""
    inputs = len(types)
    for x in types:
        require_matrix(x, width=1)
    array_attribute(attrs, "program", "uint8", (None,))
    numbers = array_attribute(attrs, "numbers", "float64", (None, inputs))
    array_attribute(attrs, "texts", "string", (numbers.size,))
    array_attribute(attrs, "missing", "bool", numbers.shape)
    require(0 < numbers.shape[0] <= MAX_BACKGROUND, "background rows are missing, or too many")
    require(attrs["width"] > 0, "width must be an integer above 0")
    require(0 < attrs["orders"] <= MAX_ORDERS, f"orders must be 1 to {MAX_ORDERS}")
    require(attrs["seed"] >= 0, "a seed must not be negative")
    return matrix("float64", attrs["width"] * (2 * inputs + 1))


def sample_contributions(run: Run, args: Sequence[Array], attrs: Attrs) -> Array:
    """Return the contributions to the output of `run`; `args` has one (n, 1) array per input."""
    players = len(args)
    mixers = [_make_mixer(x, k, attrs) for k, x in enumerate(args)]
    rows, width = len(args[0]), int(attrs["width"])
    result = np.empty((rows, width, 2 * players + 1))
    # All sets are tried if that costs no more than the sampled orders.
    tries_all_sets = 2**players <= 2 * attrs["orders"] * (players + 1)
    estimate = _sum_all_sets if tries_all_sets else _sample_orders
    evaluations_per_row = 2**players if tries_all_sets else 2 * (players + 1)
    step = max(1, _CELLS // (players * evaluations_per_row))

    def worth(start: int, stop: int, backgrounds: Array, masks: Array) -> Array:
        """Run the Program on rows mixed with background rows; return (masks, rows, width)."""
        mixed = (mix(slice(start, stop), backgrounds, masks[:, k]) for k, mix in enumerate(mixers))
        outputs = run({f"x{k}": column for k, column in enumerate(mixed)})
        if outputs.size != len(masks) * (stop - start) * width:
            raise ProgramError(
                f"sampled_contributions: the Program does not return {width} numbers"
            )
        return outputs.reshape(len(masks), stop - start, width).astype(np.float64)

    for start in range(0, rows, step):
        stop = min(rows, start + step)
        result[start:stop] = estimate(start, stop, players, attrs, worth)
    return result.reshape(rows, width * (2 * players + 1))


def _make_mixer(x: Array, k: int, attrs: Attrs) -> Mixer:
    """Return a function that mixes input k of a slice of rows with that of background rows."""
    if isinstance(x, TextColumn) or x.dtype == object:
        x = x.objects() if isinstance(x, TextColumn) else x
        background = attrs["texts"].reshape(attrs["missing"].shape)[:, k].copy()
        background[attrs["missing"][:, k]] = None
    else:
        with np.errstate(all="ignore"):
            background = attrs["numbers"][:, k].astype(x.dtype)

    def mix(rows: slice, backgrounds: Array, is_known: Array) -> Array:
        known, unknown = x[rows, 0][None, :], background[backgrounds][:, None]
        return np.where(is_known[:, None], known, unknown).reshape(-1, 1)

    return mix


Worth = Callable[[int, int, Array, Array], Array]


def _sum_all_sets(start: int, stop: int, players: int, attrs: Attrs, worth: Worth) -> Array:
    """Compute exact contributions from each set of inputs with each background row."""
    sets = np.array(list(itertools.product([False, True], repeat=players)), bool)
    background = len(attrs["numbers"])
    mean = sum(worth(start, stop, np.full(len(sets), b), sets) for b in range(background))
    mean = np.asarray(mean) / background
    index_of = {tuple(members): i for i, members in enumerate(sets.tolist())}
    result = np.zeros((stop - start, mean.shape[2], 2 * players + 1))
    for members, i in index_of.items():
        size = sum(members)
        for k in range(players):
            if members[k]:
                continue
            weight = math.factorial(size) * math.factorial(players - size - 1)
            with_player = index_of[(*members[:k], True, *members[k + 1 :])]
            result[:, :, k] += weight / math.factorial(players) * (mean[with_player] - mean[i])
    result[:, :, players] = mean[index_of[(False,) * players]]
    return result


def _sample_orders(start: int, stop: int, players: int, attrs: Attrs, worth: Worth) -> Array:
    """Estimate contributions from random orders of the inputs.

    All rows share the orders, so a row has the same contributions in any batch. Each background row
    has the same number of orders, and the standard errors are those of the means over its orders.
    """
    background, orders = len(attrs["numbers"]), int(attrs["orders"])
    shape = (players, stop - start, int(attrs["width"]))
    mean, variance, expected = np.zeros(shape), np.zeros(shape), np.zeros(shape[1:])
    generator = np.random.default_rng(attrs["seed"])
    for b in range(background):
        added_by_order = []
        for _ in range(orders):
            order = generator.permutation(players)
            positions = np.stack([np.argsort(order), np.argsort(order[::-1])])
            # The set j of an order has its first j players.
            flat = (positions[:, None] < np.arange(players + 1)[:, None]).reshape(-1, players)
            values = worth(start, stop, np.full(len(flat), b), flat)
            steps = np.diff(values.reshape(2, players + 1, *shape[1:]), axis=1)
            added = np.empty(shape)
            added[order] = steps[0] / 2
            added[order[::-1]] += steps[1] / 2
            added_by_order.append(added)
        mean += np.mean(added_by_order, axis=0) / background
        if orders > 1:
            variance += np.var(added_by_order, axis=0, ddof=1) / orders / background**2
        expected += values[0] / background
    result = np.empty((*shape[1:], 2 * players + 1))
    result[:, :, :players] = np.moveaxis(mean, 0, 2)
    result[:, :, players] = expected
    result[:, :, players + 1 :] = np.moveaxis(np.sqrt(variance), 0, 2)
    return result


_GAME = ("player", "players", "background")


def ensemble_of_attrs(attrs: Attrs) -> Ensemble:
    return Ensemble.of({name: value for name, value in attrs.items() if name not in _GAME})


def _type(types: Types, attrs: Attrs) -> TensorType:
    e, (x,), players = ensemble_of_attrs(attrs), types, attrs["players"]
    e.check(x)
    if "background" in attrs:
        rows = array_attribute(attrs, "background", x.dtype, (None, x.width)).shape[0]
        require(0 < rows <= MAX_BACKGROUND, "background rows are missing, or too many")
    else:
        require(e.cover is not None, "contributions need covers, or background rows")
    player = array_attribute(attrs, "player", "int32", (x.width,))
    require(players > 0, "contributions need a player")
    require(((player >= 0) & (player < players)).all(), "a column belongs to no player")
    return matrix("float64", e.outputs * (players + 1))


def quadrature(features: int) -> tuple[Array, Array]:
    """Return points in (0, 1) and weights of the rule that is exact for paths of `features`."""
    points, weights = np.polynomial.legendre.leggauss(max(1, (features + 1) // 2))
    return (points + 1) / 2, weights / 2


def split_shares(e: Ensemble, background: Array | None) -> Array:
    """Return the shares of a node's rows that go to its left and right child, (B, M, 2).

    Without background rows, B = 1 and the shares are those of the training rows (0.5 each if none
    reached the node). Each of B background rows has shares of its own, 1 on one side and 0 on the
    other.
    """
    if background is not None:
        nodes = np.arange(e.nodes)
        left = np.stack([goes_left(e, nodes, row[e.feature]) for row in background])
        return np.stack([left, ~left], axis=2).astype(np.float64)
    assert e.cover is not None and e.leaf_cover is not None
    cover = e.cover.astype(np.float64)
    children = np.stack([e.left, e.right], axis=1)
    inner = children >= 0
    below = np.empty(children.shape)
    below[inner] = cover[children[inner]]
    below[~inner] = e.leaf_cover[~children[~inner]]
    with np.errstate(all="ignore"):
        share = below / cover[:, None]
    return np.where(cover[:, None] > 0, share, 0.5)[None]


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A leaf with the tests on its path: each node, and whether the path goes left there."""

    tree: int
    leaf: int
    tests: tuple[tuple[int, bool], ...]


def _iterate_leaves(e: Ensemble) -> Iterator[_Leaf]:
    for tree, root in enumerate(e.roots.tolist()):
        stack: list[tuple[int, tuple[tuple[int, bool], ...]]] = [(root, ())]
        while stack:
            node, tests = stack.pop()
            if node < 0:
                yield _Leaf(tree, ~node, tests)
            else:
                stack.append((int(e.right[node]), (*tests, (node, False))))
                stack.append((int(e.left[node]), (*tests, (node, True))))


def _contributions(args: Sequence[Array], attrs: Attrs) -> Array:
    """Return (n, K * (players + 1)); the last of a block is the expected score of unknown rows."""
    (x,) = args
    e, players = ensemble_of_attrs(attrs), int(attrs["players"])
    n, values = x.shape[0], e.leaf_values.shape[1]
    sides = split_shares(e, attrs.get("background"))
    result = np.zeros((n, e.outputs, players + 1))
    result[:, :, -1] = e.base
    for leaf, share in itertools.product(_iterate_leaves(e), sides):
        passed: dict[int, Array] = {}
        share_of: dict[int, float] = {}
        for node, left in leaf.tests:
            column = int(e.feature[node])
            k = int(attrs["player"][column])
            passes = goes_left(e, np.full(n, node), x[:, column]) == left
            passed[k] = passed.get(k, True) & passes
            share_of[k] = share_of.get(k, 1.0) * float(share[node, 0 if left else 1])
        outputs = slice(int(e.target[leaf.tree]), int(e.target[leaf.tree]) + values)
        value = e.leaf_values[leaf.leaf].astype(np.float64) / len(sides)
        result[:, outputs, -1] += np.prod(list(share_of.values())) * value
        for k in share_of:
            total = np.zeros(n)
            for t, weight in zip(*quadrature(len(share_of)), strict=True):
                others = [share_of[i] * (1 - t) + passed[i] * t for i in share_of if i != k]
                total += weight * np.prod([np.ones(n), *others], axis=0)
            contribution = (passed[k] - share_of[k]) * total
            result[:, outputs, k] += contribution[:, None] * value
    return result.reshape(n, e.outputs * (players + 1))


_GAME_ATTRIBUTES = "player, players: int, background?"

OPERATORS: tuple[Op, ...] = (
    Op("tree_contributions", "opaque", _type, _contributions, f"{TREES}, {_GAME_ATTRIBUTES}"),
    # It runs a Program; see `reference.FUNCTIONS`.
    Op("sampled_contributions", "opaque", _sampled_type, None, _SAMPLED, arity=(1, None)),
)
