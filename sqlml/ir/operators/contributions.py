"""Shapley values: the contribution of each input to a prediction.

`tree_contributions` computes exact values for a sum of trees. The worth of a set of players (known
inputs) is the expected score of a row in which only these inputs are known. At the test of an
unknown input, the row follows the background rows, or goes both ways as training rows do (Lundberg
et al., "Consistent individualized feature attribution for tree ensembles", 2018, algorithm 1).

For one leaf, the worth is a product over the m players on the path. A known player k has the factor
o_k: 1 if the row passes all tests of k on the path, else 0. An unknown player k has the factor z_k:
the product of the shares of rows that passed. So the Shapley value of k is the integral, for t from
0 to 1, of (o_k - z_k) times the product of z_i (1 - t) + o_i t over the other players i. This is a
polynomial of degree m - 1, for which the Gauss-Legendre rule with ceil(m / 2) points is exact.

`sampled_contributions` replaces unknown inputs of any Program with values of background rows. All
sets of few inputs are evaluated. Many inputs are added in random orders (Castro, Gomez, Tejada,
"Polynomial calculation of the Shapley value based on sampling", 2009), and each order is followed
by the reverse (Mitchell et al., "Sampling permutations for Shapley value estimation", 2022).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from sqlml.errors import ProgramError
from sqlml.ir.operators.forests import TREES, goes_left
from sqlml.ir.operators.op import Op, Types, array_attribute, require, require_matrix
from sqlml.ir.program import Attrs
from sqlml.ir.trees import Ensemble
from sqlml.ir.utf8_column import TextColumn
from sqlml.types import Array, TensorType, matrix

_SAMPLING = "sampled_contributions"
_SAMPLED = "program, numbers, texts, missing, width: int, orders: int, seed: int"
"""`program` is a stored Program with inputs `x0`, `x1`, ... and an output `y` (n, width). B
background rows have the numbers of p inputs in `numbers`, float64 (B, p), and the strings in
`texts`, object (B * p,). `missing`, bool (B, p), marks strings that are NULL. `orders` is the
number of pairs of orders per background row."""

Run = Callable[[Mapping[str, Array]], Array]
"""A function that runs the Program: it maps inputs (n, 1) by name to an output (n, width)."""

Mixer = Callable[[slice, Array, Array], Array]
"""A function that maps rows, background rows and masks of known values to values of an input."""

MAX_BACKGROUND, MAX_ORDERS = 1000, 1000
"""Maximum number of background rows, and of pairs of orders for each of them."""

_MAX_CELLS = 1 << 20
"""Maximum number of input values to score at a time."""


def _sampled_type(types: Types, attrs: Attrs) -> TensorType:
    # For each output: the contributions of the inputs, the expected score, the standard errors.
    num_inputs = len(types)
    for x in types:
        require_matrix(x, width=1)
    array_attribute(attrs, "program", "uint8", (None,))
    numbers = array_attribute(attrs, "numbers", "float64", (None, num_inputs))
    array_attribute(attrs, "texts", "string", (numbers.size,))
    array_attribute(attrs, "missing", "bool", numbers.shape)
    has_valid_background = 0 < numbers.shape[0] <= MAX_BACKGROUND
    require(has_valid_background, f"there must be 1 to {MAX_BACKGROUND} background rows")
    require(attrs["width"] > 0, "width must be an integer above 0")
    require(0 < attrs["orders"] <= MAX_ORDERS, f"orders must be 1 to {MAX_ORDERS}")
    require(attrs["seed"] >= 0, "a seed must not be negative")
    return matrix("float64", attrs["width"] * (2 * num_inputs + 1))


def sample_contributions(run: Run, args: Sequence[Array], attrs: Attrs) -> Array:
    """Return the contributions of each input, (n, 1) in `args`, to the output of `run`.

    `_sampled_type` describes the layout of the result.
    """
    num_players = len(args)
    mixers = [_make_mixer(x, k, attrs) for k, x in enumerate(args)]
    num_rows, width = len(args[0]), int(attrs["width"])
    result = np.empty((num_rows, width, 2 * num_players + 1))
    # Try all sets if that costs no more than sampling orders.
    tries_all_sets = 2**num_players <= 2 * attrs["orders"] * (num_players + 1)
    estimate = _sum_all_sets if tries_all_sets else _sample_orders
    evaluations_per_row = 2**num_players if tries_all_sets else 2 * (num_players + 1)
    rows_per_step = max(1, _MAX_CELLS // (num_players * evaluations_per_row))

    def worth(start: int, stop: int, backgrounds: Array, masks: Array) -> Array:
        """Return outputs (masks, rows, width) for rows mixed with background rows."""
        mixed = (mix(slice(start, stop), backgrounds, masks[:, k]) for k, mix in enumerate(mixers))
        outputs = run({f"x{k}": column for k, column in enumerate(mixed)})
        if outputs.size != len(masks) * (stop - start) * width:
            raise ProgramError(f"{_SAMPLING}: the Program does not return {width} numbers")
        return outputs.reshape(len(masks), stop - start, width).astype(np.float64)

    for start in range(0, num_rows, rows_per_step):
        stop = min(num_rows, start + rows_per_step)
        result[start:stop] = estimate(start, stop, num_players, attrs, worth)
    return result.reshape(num_rows, width * (2 * num_players + 1))


def _make_mixer(x: Array, k: int, attrs: Attrs) -> Mixer:
    """Return a function that replaces unknown values of input k with those of background rows."""
    if isinstance(x, TextColumn) or x.dtype == object:
        x = x.objects() if isinstance(x, TextColumn) else x
        background = attrs["texts"].reshape(attrs["missing"].shape)[:, k].copy()
        background[attrs["missing"][:, k]] = None
    else:
        with np.errstate(all="ignore"):
            background = attrs["numbers"][:, k].astype(x.dtype)

    def mix(rows: slice, backgrounds: Array, is_known: Array) -> Array:
        row_values, background_values = x[rows, 0][None, :], background[backgrounds][:, None]
        return np.where(is_known[:, None], row_values, background_values).reshape(-1, 1)

    return mix


Worth = Callable[[int, int, Array, Array], Array]
"""A function of start, stop, background rows and masks: `worth` in `sample_contributions`."""


def _sum_all_sets(start: int, stop: int, num_players: int, attrs: Attrs, worth: Worth) -> Array:
    sets = np.array(list(itertools.product([False, True], repeat=num_players)), bool)
    rows = range(len(attrs["numbers"]))
    total = sum(worth(start, stop, np.full(len(sets), row), sets) for row in rows)
    mean_worths = np.asarray(total) / len(rows)
    index_by_set = {tuple(members): index for index, members in enumerate(sets.tolist())}
    contributions = np.zeros((stop - start, mean_worths.shape[2], 2 * num_players + 1))
    for members, index in index_by_set.items():
        set_size = sum(members)
        for k in range(num_players):
            if members[k]:
                continue
            weight = math.factorial(set_size) * math.factorial(num_players - set_size - 1)
            with_player = index_by_set[(*members[:k], True, *members[k + 1 :])]
            change = mean_worths[with_player] - mean_worths[index]
            contributions[:, :, k] += weight / math.factorial(num_players) * change
    contributions[:, :, num_players] = mean_worths[index_by_set[(False,) * num_players]]
    return contributions


def _sample_orders(start: int, stop: int, num_players: int, attrs: Attrs, worth: Worth) -> Array:
    """Estimate contributions from random orders of the inputs.

    All rows share the orders, so a row has the same contributions in any batch. The standard errors
    are those of the mean over the orders, whose number is the same for each background row.
    """
    num_background, num_orders = len(attrs["numbers"]), int(attrs["orders"])
    result_shape = (num_players, stop - start, int(attrs["width"]))
    means, variances, expected_scores = (
        np.zeros(result_shape),
        np.zeros(result_shape),
        np.zeros(result_shape[1:]),
    )
    generator = np.random.default_rng(attrs["seed"])
    for background_row in range(num_background):
        contributions_by_order = []
        for _ in range(num_orders):
            order = generator.permutation(num_players)
            positions = np.stack([np.argsort(order), np.argsort(order[::-1])])
            # Set j of an order consists of its first j players.
            masks = positions[:, None] < np.arange(num_players + 1)[:, None]
            masks = masks.reshape(-1, num_players)
            set_worths = worth(start, stop, np.full(len(masks), background_row), masks)
            changes = np.diff(set_worths.reshape(2, num_players + 1, *result_shape[1:]), axis=1)
            contributions = np.empty(result_shape)
            contributions[order] = changes[0] / 2
            contributions[order[::-1]] += changes[1] / 2
            contributions_by_order.append(contributions)
        means += np.mean(contributions_by_order, axis=0) / num_background
        if num_orders > 1:
            variance_of_order = np.var(contributions_by_order, axis=0, ddof=1)
            variances += variance_of_order / num_orders / num_background**2
        expected_scores += set_worths[0] / num_background
    result = np.empty((*result_shape[1:], 2 * num_players + 1))
    result[:, :, :num_players] = np.moveaxis(means, 0, 2)
    result[:, :, num_players] = expected_scores
    result[:, :, num_players + 1 :] = np.moveaxis(np.sqrt(variances), 0, 2)
    return result


_GAME_ATTRS = ("player", "players", "background")


def make_ensemble(attrs: Attrs) -> Ensemble:
    return Ensemble.of({name: value for name, value in attrs.items() if name not in _GAME_ATTRS})


def _tree_game_type(types: Types, attrs: Attrs) -> TensorType:
    ensemble, (x,), num_players = make_ensemble(attrs), types, attrs["players"]
    ensemble.check(x)
    if "background" in attrs:
        num_rows = array_attribute(attrs, "background", x.dtype, (None, x.width)).shape[0]
        is_valid = 0 < num_rows <= MAX_BACKGROUND
        require(is_valid, "background rows are missing, or there are too many")
    else:
        require(ensemble.cover is not None, "contributions need covers, or background rows")
    player_of_column = array_attribute(attrs, "player", "int32", (x.width,))
    require(num_players > 0, "contributions need a player")
    has_player = (player_of_column >= 0) & (player_of_column < num_players)
    require(has_player.all(), "each column must belong to a player")
    return matrix("float64", ensemble.outputs * (num_players + 1))


def make_quadrature(num_players: int) -> tuple[Array, Array]:
    """Return the points and weights of the Gauss-Legendre rule on (0, 1) for `num_players`."""
    points, weights = np.polynomial.legendre.leggauss(max(1, (num_players + 1) // 2))
    return (points + 1) / 2, weights / 2


def compute_shares(ensemble: Ensemble, background: Array | None) -> Array:
    """Return the shares of rows that go left and right at each node, (B, M, 2).

    Each of B background rows goes to one side, so the shares are 1 and 0. Without background rows,
    B is 1, and the training rows are counted; both shares are 0.5 if no row reached the node.
    """
    if background is not None:
        nodes = np.arange(ensemble.nodes)
        is_left = [goes_left(ensemble, nodes, row[ensemble.feature]) for row in background]
        return np.stack([is_left, np.logical_not(is_left)], axis=2).astype(np.float64)
    assert ensemble.cover is not None and ensemble.leaf_cover is not None
    cover = ensemble.cover.astype(np.float64)
    children = np.stack([ensemble.left, ensemble.right], axis=1)
    is_inner = children >= 0
    child_cover = np.empty(children.shape)
    child_cover[is_inner] = cover[children[is_inner]]
    child_cover[~is_inner] = ensemble.leaf_cover[~children[~is_inner]]
    with np.errstate(all="ignore"):
        shares = child_cover / cover[:, None]
    return np.where(cover[:, None] > 0, shares, 0.5)[None]


_Tests = tuple[tuple[int, bool], ...]
"""The tests on the path of a leaf: pairs of a node and whether the path goes left there."""


def _iterate_leaves(ensemble: Ensemble) -> Iterator[tuple[int, int, _Tests]]:
    for tree, root in enumerate(ensemble.roots.tolist()):
        stack: list[tuple[int, _Tests]] = [(root, ())]
        while stack:
            node, tests = stack.pop()
            if node < 0:
                yield tree, ~node, tests
            else:
                stack.append((int(ensemble.right[node]), (*tests, (node, False))))
                stack.append((int(ensemble.left[node]), (*tests, (node, True))))


def _tree_contributions(args: Sequence[Array], attrs: Attrs) -> Array:
    (x,) = args
    ensemble, num_players = make_ensemble(attrs), int(attrs["players"])
    num_rows, values_per_leaf = x.shape[0], ensemble.leaf_values.shape[1]
    shares_by_background = compute_shares(ensemble, attrs.get("background"))
    result = np.zeros((num_rows, ensemble.outputs, num_players + 1))
    result[:, :, -1] = ensemble.base
    leaves = _iterate_leaves(ensemble)
    for (tree, leaf, tests), shares in itertools.product(leaves, shares_by_background):
        # o_k and z_k of the module's docstring, for each player k on the path.
        passes_of: dict[int, Array] = {}
        share_of: dict[int, float] = {}
        for node, is_left in tests:
            column = int(ensemble.feature[node])
            player = int(attrs["player"][column])
            is_passed = goes_left(ensemble, np.full(num_rows, node), x[:, column]) == is_left
            passes_of[player] = passes_of.get(player, True) & is_passed
            share_of[player] = share_of.get(player, 1.0) * float(shares[node, 0 if is_left else 1])
        first_output = int(ensemble.target[tree])
        outputs = slice(first_output, first_output + values_per_leaf)
        value = ensemble.leaf_values[leaf].astype(np.float64) / len(shares_by_background)
        result[:, outputs, -1] += np.prod(list(share_of.values())) * value
        for player in share_of:
            total = np.zeros(num_rows)
            for t, weight in zip(*make_quadrature(len(share_of)), strict=True):
                others = [share_of[i] * (1 - t) + passes_of[i] * t for i in share_of if i != player]
                total += weight * np.prod([np.ones(num_rows), *others], axis=0)
            contribution = (passes_of[player] - share_of[player]) * total
            result[:, outputs, player] += contribution[:, None] * value
    return result.reshape(num_rows, ensemble.outputs * (num_players + 1))


_TREE_GAME = f"{TREES}, player, players: int, background?"

OPERATORS: tuple[Op, ...] = (
    Op("tree_contributions", "opaque", _tree_game_type, _tree_contributions, _TREE_GAME),
    # `reference.FUNCTIONS` has the function, because it runs a Program.
    Op(_SAMPLING, "opaque", _sampled_type, None, _SAMPLED, arity=(1, None)),
)
