"""Add the values of exit leaves to sums, from tables in registers if that is faster.

A processor reads one number at a time from a table in memory, but 16 numbers at a time from a table
in registers (AVX-512: vpermi2ps). Measured for float32, a row takes 0.04 ns for 64 leaves in
registers and 0.12 ns for 256 leaves in registers. For float64 and leaves in memory, a row takes
0.18 ns if cursors are loaded as numbers of 64 bits and sums are added as vectors, and 0.34 ns if
each row is read alone.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from sqlml.backends.native.jit.call_wrapper import (
    LONG,
    declare_function,
    get_axis_length,
    get_pointers,
    long,
    vector_pointer,
)
from sqlml.backends.native.jit.helpers import intrinsic, literal_intrinsic
from sqlml.backends.native.jit.processor_levels import has_feature

TOGETHER = 3
"""If leaves have at least this many values, all values of a leaf are added at once."""

PADDING = 256
"""Entries after the end of a table that may be loaded into registers, but are never selected."""

_WORD_BITS = 64
"""Bits of cursors that are loaded as one number."""

_PERMUTES = has_feature("avx512f")
SMALL = 64
_SIZES = {32: (0, SMALL, 256), 64: (0, SMALL, 128)}
"""Maps the bits of a number to the number of table entries for each `size` of `add_leaves`: 0 for a
table in memory, then a small and the largest table in registers."""


@literal_intrinsic
def add_leaves(typing: Any, table: Any, row: Any, cursor: Any, sums: Any, size: Any) -> Any:
    """Emit sums[r] += table[row + cursor[r]] for all r.

    table (T,) and sums (rows,) have the same float dtype, and rows is a multiple of 16; cursor
    (rows,) is unsigned. `size` is a literal: 1 if all cursors are below SMALL, 2 if they are below
    1024 divided by the bytes of a number, otherwise 0.
    """
    from numba import types  # Importing numba is slow.

    signature = types.void(table, types.int64, cursor, sums, size)
    bits = sums.dtype.bitwidth
    entries = _SIZES[bits][size.literal_value] if _PERMUTES else 0
    lanes = 512 // bits

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values, cursors, totals = get_pointers(context, builder, signature, arguments, 0, 2, 3)
        rows = get_axis_length(context, builder, signature, arguments, 3)
        values = builder.gep(values, [arguments[1]])
        entry_block = builder.block
        number_type = ir.VectorType(ir.FloatType() if bits == 32 else ir.DoubleType(), lanes)
        registers = []
        for k in range(0, entries, lanes):
            pointer = vector_pointer(builder, values, long(k), number_type)
            registers.append(builder.load(pointer, align=bits // 8))
        head, done = builder.append_basic_block("rows"), builder.append_basic_block("done")
        builder.cbranch(builder.icmp_signed(">", rows, long(0)), head, done)
        builder.position_at_end(head)
        r = builder.phi(LONG)
        r.add_incoming(long(0), entry_block)
        cursor_bits = signature.args[2].dtype.bitwidth
        if registers:
            cursor_type = ir.VectorType(ir.IntType(cursor_bits), lanes)
            leaves = builder.load(vector_pointer(builder, cursors, r, cursor_type), align=1)
            leaves = builder.zext(leaves, ir.VectorType(ir.IntType(bits), lanes))
            value = _permute(builder, registers, leaves, bits, lanes)
        else:
            value = _load_items(builder, values, builder.gep(cursors, [r]), number_type)
        sum_pointer = vector_pointer(builder, totals, r, number_type)
        total = builder.fadd(builder.load(sum_pointer, align=bits // 8), value)
        builder.store(total, sum_pointer, align=bits // 8)
        next_row = builder.add(r, long(lanes))
        r.add_incoming(next_row, builder.block)
        builder.cbranch(builder.icmp_signed("<", next_row, rows), head, done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return signature, generate


def _load_items(builder: Any, table: Any, indices: Any, vector: Any) -> Any:
    """Emit a `vector` of entries of `table`, whose indices begin at `indices`.

    The indices are unsigned. Several are loaded as one number, on a little-endian processor.
    """
    index_bits = indices.type.pointee.width
    word_type, word_lanes = ir.IntType(_WORD_BITS), _WORD_BITS // index_bits
    mask = ir.Constant(word_type, (1 << index_bits) - 1)
    items = ir.Constant(vector, ir.Undefined)
    for lane in range(vector.count):
        if lane % word_lanes == 0:
            pointer = builder.gep(indices, [long(lane)])
            word = builder.load(builder.bitcast(pointer, word_type.as_pointer()), align=1)
        shift = ir.Constant(word_type, lane % word_lanes * index_bits)
        index = builder.and_(builder.lshr(word, shift), mask)
        item = builder.load(builder.gep(table, [index]))
        items = builder.insert_element(items, item, ir.IntType(32)(lane))
    return items


def _permute(builder: Any, registers: list[Any], indices: Any, bits: int, lanes: int) -> Any:
    """Emit the entries `indices` of a table in `registers`; an instruction reads two of these."""
    table_type, index_type = registers[0].type, indices.type
    name = f"llvm.x86.avx512.vpermi2var.{'ps' if bits == 32 else 'pd'}.512"
    candidates = []
    for low, high in zip(registers[::2], registers[1::2], strict=True):
        operands = (low, indices, high)
        permute = declare_function(builder.module, name, table_type, *operands)
        candidates.append(builder.call(permute, operands))
    bit = 2 * lanes
    while len(candidates) > 1:
        masked = builder.and_(indices, ir.Constant(index_type, [bit] * lanes))
        is_upper = builder.icmp_unsigned("!=", masked, ir.Constant(index_type, [0] * lanes))
        pairs = zip(candidates[::2], candidates[1::2], strict=True)
        candidates = [builder.select(is_upper, high, low) for low, high in pairs]
        bit *= 2
    return candidates[0]


def pad_count(value_count: int, itemsize: int) -> int:
    """Round the number of values per leaf up to a size that `add_rows` supports.

    >>> pad_count(3, 8), pad_count(8, 8), pad_count(9, 4)
    (8, 8, 16)
    """
    lanes = 64 // itemsize
    return -(-value_count // lanes) * lanes


@intrinsic
def add_rows(typing: Any, table: Any, row: Any, cursor: Any, sums: Any, width: Any) -> Any:
    """Emit sums[r * width + k] += table[(row + cursor[r]) * width + k] for all r and k < `width`.

    table and sums have the same float dtype, `width` is a result of `pad_count`, and cursor (rows,)
    is unsigned.
    """
    from numba import types  # Importing numba is slow.

    signature = types.void(table, types.int64, cursor, sums, types.int64)
    bits = sums.dtype.bitwidth
    lanes = 512 // bits

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = ir.VectorType(ir.FloatType() if bits == 32 else ir.DoubleType(), lanes)
        values, cursors, totals = get_pointers(context, builder, signature, arguments, 0, 2, 3)
        rows = get_axis_length(context, builder, signature, arguments, 2)
        first_leaf, width = arguments[1], arguments[4]
        blocks = [builder.append_basic_block(n) for n in ("row", "part", "next", "done")]
        row_head, part_head, row_end, done = blocks
        entry_block = builder.block
        builder.cbranch(builder.icmp_signed(">", rows, long(0)), row_head, done)

        builder.position_at_end(row_head)
        r = builder.phi(LONG)
        r.add_incoming(long(0), entry_block)
        leaf = builder.zext(builder.load(builder.gep(cursors, [r])), LONG)
        source = builder.gep(values, [builder.mul(builder.add(first_leaf, leaf), width)])
        target = builder.gep(totals, [builder.mul(r, width)])
        builder.branch(part_head)

        builder.position_at_end(part_head)
        k = builder.phi(LONG)
        k.add_incoming(long(0), row_head)
        leaf_pointer = vector_pointer(builder, source, k, vector)
        sum_pointer = vector_pointer(builder, target, k, vector)
        value = builder.load(leaf_pointer, align=bits // 8)
        total = builder.load(sum_pointer, align=bits // 8)
        builder.store(builder.fadd(total, value), sum_pointer, align=bits // 8)
        next_column = builder.add(k, long(lanes))
        k.add_incoming(next_column, part_head)
        builder.cbranch(builder.icmp_signed("<", next_column, width), part_head, row_end)

        builder.position_at_end(row_end)
        next_row = builder.add(r, long(1))
        r.add_incoming(next_row, row_end)
        builder.cbranch(builder.icmp_signed("<", next_row, rows), row_head, done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return signature, generate
