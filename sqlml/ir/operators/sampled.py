"""What each input contributes to what any Program says: Shapley values against background rows.

The worth of a set S of inputs is the mean, over some background rows, of what the Program says of
the row with all inputs but S replaced by those of a background row. With few inputs all sets are
tried; with more, inputs are put into the row one after the other in random orders, and what the
Program says changes by their contributions (Castro, Gomez, Tejada, "Polynomial calculation of the
Shapley value based on sampling", 2009). An order is followed by its reverse, which cancels a part
of the error (Mitchell and others, "Sampling permutations for Shapley value estimation", 2022).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from sqlml.ir.operators.op import Types, array, need
from sqlml.ir.program import Attrs
from sqlml.ir.utf8_column import Texts
from sqlml.types import Array, TensorType, matrix

ATTRS: Mapping[str, str] = {
    **dict.fromkeys(("program", "numbers", "texts", "missing"), "array"),
    **dict.fromkeys(("width", "orders", "seed"), "int"),
}
"""program: the stored Program, bytes, with inputs `x0`, `x1`, .. and an output `y` (n, width).
numbers float64 (B, p) and texts object (B, p): the B background rows, of each input in one of them;
missing bool (B, p): texts that are NULL. orders: pairs of orders for each background row."""

Run = Callable[[Mapping[str, Array]], Array]
"""The Program: name of an input -> (n, 1), to (n, width)."""

MOST_BACKGROUND = 1000
"""Background rows at most."""

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
    need(numbers.shape[1] == inputs and texts.shape == missing.shape == numbers.shape, "one each")
    need(texts.dtype == object and missing.dtype == bool, "texts must be texts")
    need(all(t.rowwise and t.shape[1:] == (1,) for t in types), "inputs must be single columns")
    need(attrs["width"] > 0 and attrs["orders"] > 0, "width and orders must be above 0")
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
        return run(given).reshape(len(masks), stop - start, width).astype(np.float64)

    for start in range(0, rows, step):
        stop = min(rows, start + step)
        made[start:stop] = _of_rows(start, stop, len(columns), attrs, worth)
    return made.reshape(rows, width * (2 * len(columns) + 1))


class _Column:
    """One input of some rows, and of the background rows."""

    def __init__(self, x: Array, k: int, attrs: Attrs) -> None:
        if isinstance(x, Texts) or x.dtype == object:
            self._rows = x.objects() if isinstance(x, Texts) else x
            held = attrs["texts"][:, k].copy()
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
    """Whether there are no more sets than what the orders take."""
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
    """By random orders, the same for each row: a row has the same values in any batch."""
    total = square = expected = None
    count = 0
    for b, orders in _orders(players, attrs):
        masks = np.zeros((len(orders), players + 1, players), bool)
        for o, order in enumerate(orders):
            for j, k in enumerate(order):
                masks[o, j + 1 :, k] = True
        flat = masks.reshape(-1, players)
        values = worth(start, stop, np.full(len(flat), b), flat)
        values = values.reshape(len(orders), players + 1, *values.shape[1:])
        steps = np.diff(values, axis=1)
        own = np.zeros((players, *steps.shape[2:]))
        for o, order in enumerate(orders):
            own[order] += steps[o] / len(orders)
        total = own if total is None else total + own
        square = own**2 if square is None else square + own**2
        expected = values[0, 0] if expected is None else expected + values[0, 0]
        count += 1
    assert total is not None and square is not None and expected is not None
    mean = total / count
    spread = np.maximum(square / count - mean**2, 0) / max(count - 1, 1)
    made = np.empty((*mean.shape[1:], 2 * players + 1))
    made[:, :, :players] = np.moveaxis(mean, 0, 2)
    made[:, :, players] = expected / count
    made[:, :, players + 1 :] = np.moveaxis(np.sqrt(spread), 0, 2)
    return made


def _orders(players: int, attrs: Attrs) -> Iterator[tuple[int, list[Array]]]:
    """A background row and an order with its reverse, `orders` times for each row."""
    draw = np.random.default_rng(attrs["seed"])
    for _ in range(attrs["orders"]):
        for b in range(len(attrs["numbers"])):
            order = draw.permutation(players)
            yield b, [order, order[::-1]]
