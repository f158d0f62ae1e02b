"""The upper levels of a tree, answered for 64 rows at a time: `enter`.

Going down in lockstep, a row reads a number of its own at each level. But at the first levels all
rows ask the same few columns. So a block of rows is turned, column by column (`turn_rows`): a node
then is compared with 64 numbers that lie side by side, and its answers are the bits of a word. The
15 words of the first four levels are put together by bits, and say where each row goes on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from sqlml.backends.native.jit.helpers import intrinsic
from sqlml.backends.native.jit.specialise import helper
from sqlml.backends.native.vm.transpose import SIDE, turn
from sqlml.types import Array

TOP = 4
"""Levels that are answered for all rows of a block."""

LANES = 64
"""Rows of a block."""

LOW, TURNED_COLUMNS = 12, 12
"""Levels of the trees that go down turned blocks, and the most columns for each tree: more take
longer to be turned than is won."""

NODES, EXITS = (1 << TOP) - 1, 1 << TOP

_U = np.uint64


def tops(roots: Array, column: Array, threshold: Array, right: Array) -> tuple[Array, Array, Array]:
    """The upper levels of trees, for `enter`.

    Args:
        roots: int64 (trees,): their places.
        column, threshold: by place.
        right: int64 (places,): the place of the right child, behind the left one; of a leaf its
            own.

    Returns:
        uint32 (trees * NODES,): where the nodes' columns begin in a turned block, level by level;
        their thresholds, NaN for what lies below a leaf; uint32 (trees * EXITS,): the places that
        rows come to.
    """
    columns = np.zeros((roots.size, NODES), np.uint32)
    thresholds = np.full((roots.size, NODES), np.nan, threshold.dtype)
    places = roots.reshape(-1, 1)
    for level in range(TOP):
        at = slice((1 << level) - 1, (2 << level) - 1)
        inner = right[places] != places
        columns[:, at] = np.where(inner, column[places] * LANES, 0)
        thresholds[:, at] = np.where(inner, threshold[places], np.nan)
        both = np.stack([right[places] - inner, right[places]], axis=2)
        places = both.reshape(roots.size, 2 << level)
    return columns.ravel(), thresholds.ravel(), places.astype(np.uint32).ravel()


@helper
def turn_rows(flat: Any, first: Any, stride: Any, used: Any, turned: Any) -> None:
    """turned (stride * LANES,) = rows of `stride` numbers from row `first` on, column by column."""
    whole = used - used % SIDE
    for r in range(0, whole, SIDE):
        begin = (first + r) * stride
        for c in range(0, stride - SIDE + 1, SIDE):
            turn(flat, _U(begin + c), _U(stride), turned, _U(c * LANES + r), _U(LANES))
        for c in range(stride - stride % SIDE, stride):
            for i in range(SIDE):
                turned[_U(c * LANES + r + i)] = flat[_U(begin + i * stride + c)]
    for r in range(whole, used):
        for c in range(stride):
            turned[_U(c * LANES + r)] = flat[_U((first + r) * stride + c)]


@helper
def enter(
    turned: Any, columns: Any, thresholds: Any, exits: Any, t: Any, words: Any, which: Any, to: Any
) -> None:
    """Write to `to` (LANES,) where the rows of a turned block are below the top of tree t.

    words uint64 (NODES,), which int32 (LANES,): room.
    """
    w, first = words, _U(t * NODES)
    for k in range(_U(NODES)):
        w[k] = _above(turned, _U(columns[first + k]), thresholds[first + k])
    a = w[0]
    b = _pick(a, w[1], w[2])
    c = _pick(b, _pick(a, w[3], w[5]), _pick(a, w[4], w[6]))
    left, right = _pick(a, w[7], w[11]), _pick(a, w[9], w[13])
    left_2, right_2 = _pick(a, w[8], w[12]), _pick(a, w[10], w[14])
    d = _pick(c, _pick(b, left, right), _pick(b, left_2, right_2))
    _spread(d, c, b, a, which)
    for r in range(_U(LANES)):
        to[r] = exits[_U(t * EXITS) + _U(which[r])]


@helper
def _pick(where: Any, left: Any, right: Any) -> Any:
    """The bits of `right` where a bit is set, else those of `left`."""
    return (where & right) | (~where & left)


def _above_of(typing: Any, numbers: Any, begin: Any, threshold: Any) -> Any:
    """A word of bits: which of LANES numbers from `begin` on are not up to a threshold."""
    from numba import types  # only to compile

    return types.uint64(numbers, types.uint64, numbers.dtype), _generate_above


def _generate_above(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
    (kind, *_), (array, begin, threshold) = signature.args, arguments
    vector = ir.VectorType(context.get_data_type(kind.dtype), LANES)
    data = context.make_array(kind)(context, b, array).data
    given = b.load(
        b.bitcast(b.gep(data, [begin]), vector.as_pointer()), align=kind.dtype.bitwidth // 8
    )
    nothing = ir.Constant(vector, ir.Undefined)
    one = b.insert_element(nothing, threshold, ir.Constant(ir.IntType(32), 0))
    everywhere = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    bound = b.shuffle_vector(one, nothing, everywhere)
    return b.bitcast(b.fcmp_unordered(">", given, bound), ir.IntType(LANES))


def _spread_of(typing: Any, a: Any, b: Any, c: Any, d: Any, to: Any) -> Any:
    """Write LANES numbers of TOP bits, whose lowest are the bits of the first word."""
    from numba import types

    words = [types.uint64] * TOP
    return types.void(*words, to), _generate_spread


def _generate_spread(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
    *words, array = arguments
    vector = ir.VectorType(ir.IntType(32), LANES)
    total = ir.Constant(vector, [0] * LANES)
    for place, word in enumerate(words):
        bits = b.zext(b.bitcast(word, ir.VectorType(ir.IntType(1), LANES)), vector)
        total = b.or_(total, b.shl(bits, ir.Constant(vector, [place] * LANES)))
    data = context.make_array(signature.args[-1])(context, b, array).data
    b.store(total, b.bitcast(data, vector.as_pointer()), align=4)
    return context.get_dummy_value()


_above, _spread = intrinsic(_above_of), intrinsic(_spread_of)
