"""Small blocks of a matrix product, in registers while their columns are summed.

K. Goto and R. van de Geijn, "Anatomy of High-Performance Matrix Multiplication", ACM TOMS 34(3),
2008, sections 4 and 5: the right factor lies in panels, and a tile of the product as large as the
registers hold reads each number of it once. Each sum runs over the columns one by one, so it is the
same wherever in a batch a row comes. `distance_tile` and `square_tile` round each product and sum
once (a fused multiply-add), as `ir/operators/distances.py` does; `rounded_tile` rounds the product,
too, as `linear` and `pairwise` do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir

from sqlml.backends.native.jit.helpers import intrinsic, literal_intrinsic
from sqlml.backends.native.jit.object_code import has
from sqlml.backends.native.jit.specialise import kinds_of, reads, specialise, writes
from sqlml.ir.program import Program
from sqlml.types import Array

FUSES = has("fma") or has("neon")
"""Whether the processor has fused multiply-adds; only `rounded_tile` works without them."""

_LANES = 8 if has("avx512f") else 4 if has("avx2") else 2
_VECTORS = 3
HIGH = 4 if _LANES == 4 else 8
"""Rows of a tile: with AVX2 there are 16 registers, with AVX-512 and on ARM 32."""
WIDE = _LANES * _VECTORS
"""Columns of a tile, and of a panel."""
_FUSED, _ROUNDED, _GAPS = 0, 1, 2
"""What is summed: products with one rounding, products, squares of differences."""


def panels(right: Array) -> Array:
    """A matrix (k, m) as tiles read it: (panels, k, WIDE), 0 in the columns after the last."""
    k, m = right.shape
    made = np.zeros((-(-m // WIDE), k, WIDE))
    for p, panel in enumerate(made):
        part = right[:, p * WIDE : (p + 1) * WIDE]
        panel[:, : part.shape[1]] = part
    return made


def whole_tiles(left: Array) -> Array:
    """Rows (n, k) as tiles read them: contiguous, with rows of 0 up to a multiple of HIGH."""
    n, k = left.shape
    if n % HIGH == 0:
        return np.ascontiguousarray(left)
    made = np.empty((n + -n % HIGH, k))
    made[:n] = left
    made[n:] = 0.0
    return made


def _rounded_tile(
    typing: Any, left: Any, row: Any, right: Any, panel: Any, gaps: Any, out: Any
) -> Any:
    """out[r * WIDE + w] = sum over c of a * b, or where `gaps` (literal) is 1 of (a - b) * (a - b).

    a is left[row + r, c], b is right[panel, c, w]; each difference, product and sum is rounded.
    left (n, k) and right (panels, k, WIDE), contiguous float64; out (HIGH * WIDE,).
    """
    from numba import types  # only to compile

    signature = types.void(left, types.int64, right, types.int64, gaps, out)
    kind = _GAPS if gaps.literal_value else _ROUNDED

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        made = _product(context, builder, signature, arguments, kind=kind)
        (to,) = _data(context, builder, signature, arguments, 5)
        _write(builder, made, to)
        return context.get_dummy_value()

    return signature, generate


def _distance_tile(
    typing: Any,
    left: Any,
    row: Any,
    right: Any,
    panel: Any,
    own: Any,
    lengths: Any,
    worst: Any,
    out: Any,
) -> Any:
    """Expanded distances: max(0, own[row + r] - 2 * the sum + lengths[panel * WIDE + w]) in `out`.

    int64: the bit r is set where one of row r is less than worst[r], which none of NaN is.
    """
    from numba import types  # only to compile

    long = types.int64
    signature = long(left, long, right, long, own, lengths, worst, out)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        made = _product(context, builder, signature, arguments)
        data = _data(context, builder, signature, arguments, 4, 5, 6, 7)
        own, lengths, worst, to = data
        whole = ir.IntType(64)
        vector = made[0].type
        zeros = ir.Constant(vector, [0.0] * _LANES)
        minus_two = ir.Constant(vector, [-2.0] * _LANES)
        start = builder.mul(arguments[3], ir.Constant(whole, WIDE))
        theirs = [_read(builder, lengths, start, k * _LANES, vector) for k in range(_VECTORS)]
        found = ir.Constant(whole, 0)
        for r in range(HIGH):
            place = builder.add(arguments[1], ir.Constant(whole, r))
            mine = _spread(builder, builder.load(builder.gep(own, [place])), vector)
            most = builder.load(builder.gep(worst, [ir.Constant(whole, r)]))
            most = _spread(builder, most, vector)
            near = None
            for k in range(_VECTORS):
                i = r * _VECTORS + k
                far = builder.fadd(mine, builder.fmul(made[i], minus_two))
                far = builder.fadd(far, theirs[k])
                negative = builder.fcmp_ordered("<=", far, zeros)
                made[i] = far = builder.select(negative, zeros, far)
                less = builder.fcmp_ordered("<", far, most)
                near = less if near is None else builder.or_(near, less)
            bits = builder.bitcast(near, ir.IntType(_LANES))
            some = builder.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0))
            bit = builder.shl(builder.zext(some, whole), ir.Constant(whole, r))
            found = builder.or_(found, bit)
        _write(builder, made, to)
        return found

    return signature, generate


def _square_tile(
    typing: Any, left: Any, row: Any, count: Any, right: Any, panel: Any, out: Any
) -> Any:
    """out[w] += the sum over r < count of the squares of the tile's row r, one by one."""
    from numba import types  # only to compile

    long = types.int64
    signature = types.void(left, long, long, right, long, out)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        made = _product(context, builder, signature, arguments, places=(0, 1, 3, 4))
        (to,) = _data(context, builder, signature, arguments, 5)
        vector, whole = made[0].type, ir.IntType(64)
        start = ir.Constant(whole, 0)
        zeros = ir.Constant(vector, [0.0] * _LANES)
        for k in range(_VECTORS):
            total = _read(builder, to, start, k * _LANES, vector)
            for r in range(HIGH):
                value = made[r * _VECTORS + k]
                counts = builder.icmp_signed("<", ir.Constant(whole, r), arguments[2])
                square = builder.select(counts, builder.fmul(value, value), zeros)
                total = builder.fadd(total, square)
            builder.store(total, _vector_at(builder, to, start, k * _LANES, vector), align=8)
        return context.get_dummy_value()

    return signature, generate


def _product(
    context: Any,
    builder: Any,
    signature: Any,
    arguments: Any,
    places: tuple[int, int, int, int] = (0, 1, 2, 3),
    kind: int = _FUSED,
) -> list[Any]:
    """The vectors of a tile, row by row; at `places` are the arguments left, row, right, panel."""
    lefts, row, rights, panel = places
    long, vector = ir.IntType(64), ir.VectorType(ir.DoubleType(), _LANES)
    left, right = _data(context, builder, signature, arguments, lefts, rights)
    columns = context.make_array(signature.args[rights])(context, builder, arguments[rights])
    width = builder.extract_value(columns.shape, 1)
    first = builder.gep(left, [builder.mul(arguments[row], width)])
    starts = [builder.gep(first, [builder.mul(ir.Constant(long, r), width)]) for r in range(HIGH)]
    size = builder.mul(width, ir.Constant(long, WIDE))
    start = builder.gep(right, [builder.mul(arguments[panel], size)])
    multiply_add = _multiply_add(builder.module, vector) if kind == _FUSED else None
    zeros = ir.Constant(vector, [0.0] * _LANES)
    entry = builder.block
    head, done = builder.append_basic_block("column"), builder.append_basic_block("done")
    some = builder.icmp_signed(">", width, ir.Constant(long, 0))
    builder.cbranch(some, head, done)
    builder.position_at_end(head)
    c = builder.phi(long)
    c.add_incoming(ir.Constant(long, 0), entry)
    sums = [builder.phi(vector) for _ in range(HIGH * _VECTORS)]
    at = builder.mul(c, ir.Constant(long, WIDE))
    read = [_read(builder, start, at, k * _LANES, vector) for k in range(_VECTORS)]
    added = []
    for r in range(HIGH):
        value = _spread(builder, builder.load(builder.gep(starts[r], [c])), vector)
        for k in range(_VECTORS):
            total = sums[r * _VECTORS + k]
            total.add_incoming(zeros, entry)
            if multiply_add is not None:
                added.append(builder.call(multiply_add, [value, read[k], total]))
                continue
            factors = (value, read[k])
            if kind == _GAPS:
                gap = builder.fsub(*factors)
                factors = (gap, gap)
            added.append(builder.fadd(total, builder.fmul(*factors)))
    after = builder.add(c, ir.Constant(long, 1))
    c.add_incoming(after, head)
    for total, new in zip(sums, added, strict=True):
        total.add_incoming(new, head)
    builder.cbranch(builder.icmp_signed("<", after, width), head, done)
    builder.position_at_end(done)
    made = []
    for new in added:
        result = builder.phi(vector)
        result.add_incoming(zeros, entry)
        result.add_incoming(new, head)
        made.append(result)
    return made


def _data(context: Any, builder: Any, signature: Any, arguments: Any, *which: int) -> list[Any]:
    """Where the numbers of these arguments lie, which are arrays."""
    made = (context.make_array(signature.args[i])(context, builder, arguments[i]) for i in which)
    return [array.data for array in made]


def _write(builder: Any, vectors: list[Any], to: Any) -> None:
    for i, vector in enumerate(vectors):
        place = _vector_at(builder, to, ir.Constant(ir.IntType(64), 0), i * _LANES, vector.type)
        builder.store(vector, place, align=8)


def _read(builder: Any, array: Any, place: Any, further: int, vector: Any) -> Any:
    return builder.load(_vector_at(builder, array, place, further, vector), align=8)


def _multiply_add(module: Any, vector: Any) -> Any:
    name = f"llvm.fma.v{_LANES}f64"
    return module.globals.get(name) or ir.Function(
        module, ir.FunctionType(vector, [vector] * 3), name
    )


def _vector_at(builder: Any, array: Any, place: Any, further: int, vector: Any) -> Any:
    place = builder.add(place, ir.Constant(place.type, further))
    return builder.bitcast(builder.gep(array, [place]), vector.as_pointer())


def _spread(builder: Any, value: Any, vector: Any) -> Any:
    """A vector that holds `value` in each place."""
    index = ir.IntType(32)
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(index, 0))
    places = ir.Constant(ir.VectorType(index, _LANES), [0] * _LANES)
    return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), places)


rounded_tile: Any = literal_intrinsic(_rounded_tile)
distance_tile: Any = intrinsic(_distance_tile)
square_tile: Any = intrinsic(_square_tile)


# Squared lengths of centred and turned rows, |(x - mean) @ turn|^2 for each class, by tiles.
#
# What QuadraticDiscriminantAnalysis computes: five operators, between which all rows would pass
# through memory once per class. Here rows are lanes, and only the result is written.


@dataclass(frozen=True, slots=True)
class Quadratic:
    """Node `node` (n, k) less means (t, k), times turns (t, k, m), squared and summed: (n, t)."""

    node: int
    means: Array
    turns: Array

    @classmethod
    def of(cls, program: Program, i: int) -> Quadratic | None:
        """What node i, a sum, computes; None if it does not follow this pattern."""
        nodes = program.nodes
        if nodes[i].attrs["axis"] != 2 or nodes[i].type.dtype != "float64" or not FUSES:
            return None
        below = nodes[nodes[i].inputs[0]]
        if below.op != "square":
            return None
        product = nodes[below.inputs[0]]
        if product.op != "batch_matmul":
            return None
        centred, turns = (nodes[j] for j in product.inputs)
        if centred.op != "sub" or turns.op != "constant":
            return None
        spread, means = (nodes[j] for j in centred.inputs)
        if spread.op != "reshape" or means.op != "constant" or spread.type.shape[1] != 1:
            return None
        x = nodes[spread.inputs[0]].type
        classes, width, turned = turns.type.shape
        if len(x.shape) != 2 or means.type.shape != (classes, width) or not width or not turned:
            return None
        return cls(spread.inputs[0], means.attrs["value"], turns.attrs["value"])


def quadratic(found: Quadratic) -> Callable[[Array], Array]:
    """x (n, k) float64 -> (n, t, 1) float64."""
    classes, width, turned = found.turns.shape
    # Rows after the last are not counted.
    turns = np.zeros((classes, turned + -turned % HIGH, width))
    turns[:, :turned] = found.turns.transpose(0, 2, 1)
    turns = turns.reshape(-1, width)
    means = np.ascontiguousarray(found.means)
    signature = (reads(np.float64, 2), *kinds_of(means, turns, turned), writes(np.float64, 2))
    kernel = specialise(_norms, signature)

    def norms(x: Array) -> Array:
        out = np.empty((x.shape[0], classes))
        kernel(x, means, turns, turned, out)
        return out[:, :, None]

    return norms


def _norms(x: Any, means: Any, turns: Any, turned: Any, out: Any) -> None:
    rows, width = x.shape
    classes = means.shape[0]
    padded = turns.shape[0] // classes
    block, centred = np.zeros((width, WIDE)), np.empty((1, width, WIDE))
    norms = np.empty(WIDE)
    for first in range(0, rows, WIDE):
        here = min(WIDE, rows - first)
        for r in range(here):
            for c in range(width):
                block[c, r] = x[first + r, c]
        for t in range(classes):
            for c in range(width):
                mean = means[t, c]
                for w in range(WIDE):
                    centred[0, c, w] = block[c, w] - mean
            norms[:] = 0.0
            for j in range(0, turned, HIGH):
                square_tile(turns, t * padded + j, turned - j, centred, 0, norms)
            for r in range(here):
                out[first + r, t] = norms[r]
