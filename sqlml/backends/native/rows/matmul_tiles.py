"""Compute tiles of a matrix product, whose sums stay in registers.

The method is from K. Goto and R. van de Geijn, "Anatomy of High-Performance Matrix Multiplication",
ACM TOMS 34(3), 2008, sections 4 and 5. The right factor is stored in panels, and a tile that fills
the registers reads each number of a panel once. Each sum adds the columns one by one, so a sum does
not depend on a row's position in the batch. `distance_tile` and `square_tile` use fused
multiply-adds, as `ir/operators/distances.py` does. `rounded_tile` rounds each product before the
sum, as `linear` and `pairwise` do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from llvmlite import ir

from sqlml.backends.native.jit.call_wrapper import (
    LONG,
    broadcast,
    declare_function,
    get_axis_length,
    get_pointers,
    long,
    vector_pointer,
)
from sqlml.backends.native.jit.helpers import intrinsic, literal_intrinsic
from sqlml.backends.native.jit.processor_levels import has_feature
from sqlml.backends.native.kernel_calls import RowKernel
from sqlml.ir.program import Program
from sqlml.types import Array

FUSES = has_feature("fma") or has_feature("neon")
"""True if the processor has fused multiply-adds; only `rounded_tile` works without them."""

TILE_ROWS, WIDTH = 8, 24
"""Rows and columns of a tile of float64. A panel has as many columns. Tiles and panels of float32
have twice as many columns, SINGLE_WIDTH.

The arrays of a model depend on these, so they are the same for all processors. A processor computes
a tile part by part.
"""

SINGLE_WIDTH = 2 * WIDTH

_LANES = 8 if has_feature("avx512f") else 4 if has_feature("avx2") else 2
_VECTORS = 3
_PART_ROWS = 4 if _LANES == 4 else 8
"""Rows of a part: AVX2 has 16 registers, AVX-512 and ARM have 32."""
_PARTS = [
    (row, column)
    for row in range(0, TILE_ROWS, _PART_ROWS)
    for column in range(0, WIDTH, _LANES * _VECTORS)
]
"""The first row and the first column of each part, which has `_VECTORS` vectors in a row."""
# Kinds of summands: products rounded only with the sum, rounded products, squared differences.
_FUSED, _ROUNDED, _GAPS = 0, 1, 2


def make_panels(right: Array) -> Array:
    """Copy a matrix (k, m) into panels (panels, k, width), and pad the last panel with zeros.

    The width is WIDTH, or for float32 SINGLE_WIDTH.
    """
    k, m = right.shape
    width = SINGLE_WIDTH if right.dtype == np.float32 else WIDTH
    panels = np.zeros((-(-m // width), k, width), right.dtype)
    for panel_index, panel in enumerate(panels):
        columns = right[:, panel_index * width : (panel_index + 1) * width]
        panel[:, : columns.shape[1]] = columns
    return panels


def pad_rows(left: Array) -> Array:
    """Return `left` (n, k) as contiguous rows, padded with zeros to a multiple of TILE_ROWS."""
    n, k = left.shape
    if n % TILE_ROWS == 0:
        return np.ascontiguousarray(left)
    padded = np.empty((n + -n % TILE_ROWS, k))
    padded[:n] = left
    padded[n:] = 0.0
    return padded


@literal_intrinsic
def rounded_tile(
    typing: Any, left: Any, row: Any, right: Any, panel: Any, gaps: Any, out: Any
) -> Any:
    """Emit out[r * WIDTH + w] = sum over c of a * b, or of (a - b) * (a - b) if `gaps` is 1.

    a is left[row + r, c] and b is right[panel, c, w]. Each difference, product and sum is rounded.
    left (n, k) and right (panels, k, WIDTH) are contiguous float64, and out is (TILE_ROWS *
    WIDTH,). If they are float32, the width is SINGLE_WIDTH.
    """
    from numba import types  # Importing numba is slow.

    signature = types.void(left, types.int64, right, types.int64, gaps, out)
    summand_kind = _GAPS if gaps.literal_value else _ROUNDED

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (out_data,) = get_pointers(context, builder, signature, arguments, 5)
        for part in _PARTS:
            sums = _sum_products(context, builder, signature, arguments, part, kind=summand_kind)
            _store_part(builder, sums, out_data, part)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def distance_tile(
    typing: Any,
    left: Any,
    row: Any,
    right: Any,
    panel: Any,
    row_norms: Any,
    point_norms: Any,
    max_distances: Any,
    out: Any,
) -> Any:
    """Emit code that writes max(0, row_norms[row + r] - 2 * s + point_norms[panel * WIDTH + w]).

    The distances are written to out[r * WIDTH + w]. s is the sum over c of left[row + r, c] *
    right[panel, c, w], with fused multiply-adds. The code returns an int64, in which bit r is set
    if any distance in row r is less than max_distances[r]. NaN is never less. numba requires that
    an intrinsic has one parameter per argument.
    """
    from numba import types  # Importing numba is slow.

    integer = types.int64
    signature = integer(left, integer, right, integer, row_norms, point_norms, max_distances, out)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointers = get_pointers(context, builder, signature, arguments, 4, 5, 6, 7)
        row_norms, point_norms, max_distances, out_data = pointers
        first_point = builder.mul(arguments[3], long(WIDTH))
        hit_mask = long(0)
        for part in _PARTS:
            first_row, first_column = part
            sums = _sum_products(context, builder, signature, arguments, part)
            vector = sums[0].type
            zeros = ir.Constant(vector, [0.0] * _LANES)
            minus_two = ir.Constant(vector, [-2.0] * _LANES)
            point_vectors = [
                _load_vector(builder, point_norms, first_point, first_column + k * _LANES, vector)
                for k in range(_VECTORS)
            ]
            for r in range(_PART_ROWS):
                row = long(first_row + r)
                index = builder.add(arguments[1], row)
                row_norm = broadcast(builder, builder.load(builder.gep(row_norms, [index])), vector)
                bound = builder.load(builder.gep(max_distances, [row]))
                bound = broadcast(builder, bound, vector)
                near_lanes = None
                for k in range(_VECTORS):
                    i = r * _VECTORS + k
                    distance = builder.fadd(row_norm, builder.fmul(sums[i], minus_two))
                    distance = builder.fadd(distance, point_vectors[k])
                    is_negative = builder.fcmp_ordered("<=", distance, zeros)
                    sums[i] = distance = builder.select(is_negative, zeros, distance)
                    is_less = builder.fcmp_ordered("<", distance, bound)
                    near_lanes = is_less if near_lanes is None else builder.or_(near_lanes, is_less)
                bits = builder.bitcast(near_lanes, ir.IntType(_LANES))
                has_hit = builder.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0))
                hit_mask = builder.or_(hit_mask, builder.shl(builder.zext(has_hit, LONG), row))
            _store_part(builder, sums, out_data, part)
        return hit_mask

    return signature, generate


@intrinsic
def square_tile(
    typing: Any, left: Any, row: Any, count: Any, right: Any, panel: Any, out: Any
) -> Any:
    """Emit code that adds the squared sums of a tile to out[w], for rows r < `count` in order."""
    from numba import types  # Importing numba is slow.

    integer = types.int64
    signature = types.void(left, integer, integer, right, integer, out)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (out_data,) = get_pointers(context, builder, signature, arguments, 5)
        for part in _PARTS:
            first_row, first_column = part
            sums = _sum_products(context, builder, signature, arguments, part, (0, 1, 3, 4))
            vector = sums[0].type
            zeros = ir.Constant(vector, [0.0] * _LANES)
            for k in range(_VECTORS):
                target = _vector_at(builder, out_data, long(0), first_column + k * _LANES, vector)
                total = builder.load(target, align=8)
                for r in range(_PART_ROWS):
                    value = sums[r * _VECTORS + k]
                    is_counted = builder.icmp_signed("<", long(first_row + r), arguments[2])
                    square = builder.select(is_counted, builder.fmul(value, value), zeros)
                    total = builder.fadd(total, square)
                builder.store(total, target, align=8)
        return context.get_dummy_value()

    return signature, generate


def _sum_products(
    context: Any,
    builder: Any,
    signature: Any,
    arguments: Any,
    part: tuple[int, int],
    argument_indices: tuple[int, int, int, int] = (0, 1, 2, 3),
    kind: int = _FUSED,
) -> list[Any]:
    """Emit code for the sums of a part of a tile; return the sums as vectors, row by row.

    `argument_indices` are the indices of left, row, right and panel in `arguments`. `kind` is
    _FUSED, _ROUNDED or _GAPS.
    """
    left_index, row_index, right_index, panel_index = argument_indices
    number = context.get_data_type(signature.args[right_index].dtype)
    scale = 2 if isinstance(number, ir.FloatType) else 1
    lanes, panel_width = scale * _LANES, scale * WIDTH
    vector = ir.VectorType(number, lanes)
    left, right = get_pointers(context, builder, signature, arguments, left_index, right_index)
    width = get_axis_length(context, builder, signature, arguments, right_index, axis=1)
    part_row, part_column = part
    row = builder.add(arguments[row_index], long(part_row))
    first_row = builder.gep(left, [builder.mul(row, width)])
    starts = [builder.gep(first_row, [builder.mul(long(r), width)]) for r in range(_PART_ROWS)]
    size = builder.mul(width, long(panel_width))
    start = builder.gep(right, [builder.mul(arguments[panel_index], size)])
    zeros = ir.Constant(vector, [0.0] * lanes)
    entry_block = builder.block
    head, done = builder.append_basic_block("column"), builder.append_basic_block("done")
    builder.cbranch(builder.icmp_signed(">", width, long(0)), head, done)
    builder.position_at_end(head)
    column = builder.phi(LONG)
    column.add_incoming(long(0), entry_block)
    sums = [builder.phi(vector) for _ in range(_PART_ROWS * _VECTORS)]
    offset = builder.mul(column, long(panel_width))
    panel_row = [
        _load_vector(builder, start, offset, scale * part_column + k * lanes, vector)
        for k in range(_VECTORS)
    ]
    new_sums = []
    for r in range(_PART_ROWS):
        value = broadcast(builder, builder.load(builder.gep(starts[r], [column])), vector)
        for k in range(_VECTORS):
            total = sums[r * _VECTORS + k]
            total.add_incoming(zeros, entry_block)
            if kind == _FUSED:
                operands = (value, panel_row[k], total)
                name = f"llvm.fma.v{lanes}f{32 if scale == 2 else 64}"
                multiply_add = declare_function(builder.module, name, vector, *operands)
                new_sums.append(builder.call(multiply_add, operands))
                continue
            factors = (value, panel_row[k])
            if kind == _GAPS:
                gap = builder.fsub(*factors)
                factors = (gap, gap)
            new_sums.append(builder.fadd(total, builder.fmul(*factors)))
    next_column = builder.add(column, long(1))
    column.add_incoming(next_column, head)
    for total, new_sum in zip(sums, new_sums, strict=True):
        total.add_incoming(new_sum, head)
    builder.cbranch(builder.icmp_signed("<", next_column, width), head, done)
    builder.position_at_end(done)
    results = [builder.phi(vector) for _ in new_sums]
    for result, new_sum in zip(results, new_sums, strict=True):
        result.add_incoming(zeros, entry_block)
        result.add_incoming(new_sum, head)
    return results


def _store_part(builder: Any, sums: list[Any], tile: Any, part: tuple[int, int]) -> None:
    """Store the sums of a part in a tile, (TILE_ROWS * WIDTH,)."""
    first_row, first_column = part
    scale = sums[0].type.count // _LANES
    for i, vector in enumerate(sums):
        row, k = divmod(i, _VECTORS)
        place = scale * ((first_row + row) * WIDTH + first_column + k * _LANES)
        builder.store(vector, _vector_at(builder, tile, long(0), place, vector.type), align=4)


def _load_vector(builder: Any, array: Any, index: Any, offset: int, vector: Any) -> Any:
    return builder.load(_vector_at(builder, array, index, offset, vector), align=4)


def _vector_at(builder: Any, array: Any, index: Any, offset: int, vector: Any) -> Any:
    return vector_pointer(builder, array, builder.add(index, long(offset)), vector)


# Squared norms of centred and rotated rows: |(x - mean) @ rotation|^2 for each class.
#
# QuadraticDiscriminantAnalysis computes the norms with five operators, which would pass all rows
# through memory once per class. Here rows are lanes, and only the result is written.


def find_quadratic(program: Program, i: int) -> tuple[int, RowKernel] | None:
    """Return the node of the rows and a kernel for node i, if node i computes squared norms.

    The kernel maps float64 x (n, k) to float64 (n, classes, 1). Returns None if the operators
    before node i are not those of QuadraticDiscriminantAnalysis.
    """
    nodes = program.nodes
    if nodes[i].attrs["axis"] != 2 or nodes[i].type.dtype != "float64" or not FUSES:
        return None
    square = nodes[nodes[i].inputs[0]]
    if square.op != "square":
        return None
    product = nodes[square.inputs[0]]
    if product.op != "batch_matmul":
        return None
    centred, rotations = (nodes[j] for j in product.inputs)
    if centred.op != "sub" or rotations.op != "constant":
        return None
    reshaped, means = (nodes[j] for j in centred.inputs)
    if reshaped.op != "reshape" or means.op != "constant" or reshaped.type.shape[1] != 1:
        return None
    x = nodes[reshaped.inputs[0]].type
    classes, width, rotated_width = rotations.type.shape
    if len(x.shape) != 2 or means.type.shape != (classes, width) or not width or not rotated_width:
        return None
    # The zero rows that pad each matrix are not counted.
    padded = np.zeros((classes, rotated_width + -rotated_width % TILE_ROWS, width))
    padded[:, :rotated_width] = rotations.attrs["value"].transpose(0, 2, 1)
    mean_rows, float64 = np.ascontiguousarray(means.attrs["value"]), np.dtype(np.float64)
    constants = (mean_rows, padded.reshape(-1, width), rotated_width)
    norms = RowKernel.of(_norms, float64, constants, classes, float64)
    return reshaped.inputs[0], replace(norms, row_shape=(classes, 1))


def _norms(x: Any, means: Any, rotations: Any, rotated_width: Any, out: Any) -> None:
    rows, width = x.shape
    classes = means.shape[0]
    padded_width = rotations.shape[0] // classes
    block, centred = np.zeros((width, WIDTH)), np.empty((1, width, WIDTH))
    norms = np.empty(WIDTH)
    for first_row in range(0, rows, WIDTH):
        block_rows = min(WIDTH, rows - first_row)
        for r in range(block_rows):
            for c in range(width):
                block[c, r] = x[first_row + r, c]
        for k in range(classes):
            for c in range(width):
                mean = means[k, c]
                for lane in range(WIDTH):
                    centred[0, c, lane] = block[c, lane] - mean
            norms[:] = 0.0
            for j in range(0, rotated_width, TILE_ROWS):
                square_tile(rotations, k * padded_width + j, rotated_width - j, centred, 0, norms)
            for r in range(block_rows):
                out[first_row + r, k] = norms[r]
