"""`add_leaves`: the values of exit leaves added to sums, from tables in registers where that helps.

A processor reads a table in memory one number at a time, a table in registers 16 numbers at a time
(AVX-512: vpermi2ps). Measured for float32, ns per row: 0.04 of 64 leaves and 0.12 of 256, 0.34 from
memory.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from sqlml.backends.native.jit.helpers import intrinsic, literal_intrinsic
from sqlml.backends.native.jit.object_code import has

TOGETHER = 3
"""From so many numbers on the values of a leaf are added together."""

PADDING = 256
"""Entries after a table that are read but never chosen."""

_PERMUTES = has("avx512f")
SMALL = 64
_SIZES = {32: (0, SMALL, 256), 64: (0, SMALL, 128)}
"""Bits of a number -> entries of a table in memory (none), of a small one in registers, and of the
largest that fits them. Each is code of its own, which takes time to compile, so there are three."""


def _add_leaves(typing: Any, table: Any, row: Any, cursor: Any, sums: Any, size: Any) -> Any:
    """sums[r] += table[row + cursor[r]] for all r.

    table (T,) and sums (rows,) of one float dtype, rows a multiple of 16; cursor (rows,) unsigned.
    `size` is literal: 1 where each cursor is below SMALL, 2 where below 1024 / the bytes of a
    number, else 0.
    """
    from numba import types  # only to compile

    signature = types.void(table, types.int64, cursor, sums, size)
    bits = sums.dtype.bitwidth
    entries = _SIZES[bits][size.literal_value] if _PERMUTES else 0
    permutes = entries > 0
    lanes = 512 // bits if permutes else 1

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        long = ir.IntType(64)
        number = ir.FloatType() if bits == 32 else ir.DoubleType()
        kinds = signature.args
        arrays = [context.make_array(kinds[i])(context, builder, arguments[i]) for i in (0, 2, 3)]
        values, cursors, totals = (a.data for a in arrays)
        rows = builder.extract_value(arrays[2].shape, 0)
        values = builder.gep(values, [arguments[1]])
        entry = builder.block

        def vector(kind: Any) -> Any:
            return ir.VectorType(kind, lanes) if permutes else kind

        def at(array: Any, place: Any, kind: Any) -> Any:
            return builder.bitcast(builder.gep(array, [place]), vector(kind).as_pointer())

        registers = []
        if permutes:
            for k in range(0, entries, lanes):
                here = at(values, ir.Constant(long, k), number)
                registers.append(builder.load(here, align=bits // 8))
        head, done = builder.append_basic_block("rows"), builder.append_basic_block("done")
        some = builder.icmp_signed(">", rows, ir.Constant(long, 0))
        builder.cbranch(some, head, done)
        builder.position_at_end(head)
        r = builder.phi(long)
        r.add_incoming(ir.Constant(long, 0), entry)
        kind = ir.IntType(kinds[2].dtype.bitwidth)
        chosen = builder.load(at(cursors, r, kind), align=1)
        if permutes:
            chosen = builder.zext(chosen, vector(ir.IntType(bits)))
            value = _permuted(builder, registers, chosen, bits, lanes)
        else:
            value = builder.load(builder.gep(values, [builder.zext(chosen, long)]))
        place = at(totals, r, number)
        total = builder.fadd(builder.load(place, align=bits // 8), value)
        builder.store(total, place, align=bits // 8)
        after = builder.add(r, ir.Constant(long, lanes))
        r.add_incoming(after, builder.block)
        builder.cbranch(builder.icmp_signed("<", after, rows), head, done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return signature, generate


def _permuted(builder: Any, registers: list[Any], chosen: Any, bits: int, lanes: int) -> Any:
    """The entries `chosen` of the table in `registers`, two of which one instruction reads."""
    table, index = registers[0].type, chosen.type
    name = f"llvm.x86.avx512.vpermi2var.{'ps' if bits == 32 else 'pd'}.512"
    function = builder.module.globals.get(name) or ir.Function(
        builder.module, ir.FunctionType(table, [table, index, table]), name
    )
    pairs = zip(registers[::2], registers[1::2], strict=True)
    level = [builder.call(function, [low, chosen, high]) for low, high in pairs]
    bit = 2 * lanes
    while len(level) > 1:
        mask = ir.Constant(index, [bit] * lanes)
        upper = builder.icmp_unsigned(
            "!=", builder.and_(chosen, mask), ir.Constant(index, [0] * lanes)
        )
        level = [
            builder.select(upper, high, low)
            for low, high in zip(level[::2], level[1::2], strict=True)
        ]
        bit *= 2
    return level[0]


add_leaves: Any = literal_intrinsic(_add_leaves)


def padded(values: int, itemsize: int) -> int:
    """How many numbers a leaf of `values` numbers takes where they are added together.

    >>> padded(3, 8), padded(8, 8), padded(9, 4)
    (8, 8, 16)
    """
    lanes = 64 // itemsize
    return -(-values // lanes) * lanes


def _add_rows(typing: Any, table: Any, row: Any, cursor: Any, sums: Any, width: Any) -> Any:
    """sums[r * width + k] += table[(row + cursor[r]) * width + k] for all r and k < `width`.

    table and sums of one float dtype, `width` as `padded` makes it; cursor (rows,) unsigned.
    """
    from numba import types  # only to compile

    signature = types.void(table, types.int64, cursor, sums, types.int64)
    bits = sums.dtype.bitwidth
    lanes = 512 // bits

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        long = ir.IntType(64)
        number = ir.FloatType() if bits == 32 else ir.DoubleType()
        vector = ir.VectorType(number, lanes)
        kinds = signature.args
        arrays = [context.make_array(kinds[i])(context, builder, arguments[i]) for i in (0, 2, 3)]
        values, cursors, totals = (a.data for a in arrays)
        rows = builder.extract_value(arrays[1].shape, 0)
        first, width = arguments[1], arguments[4]
        blocks = [builder.append_basic_block(n) for n in ("row", "part", "next", "done")]
        row_head, part_head, row_end, done = blocks
        entry = builder.block
        some = builder.icmp_signed(">", rows, ir.Constant(long, 0))
        builder.cbranch(some, row_head, done)

        builder.position_at_end(row_head)
        r = builder.phi(long)
        r.add_incoming(ir.Constant(long, 0), entry)
        chosen = builder.zext(builder.load(builder.gep(cursors, [r])), long)
        source = builder.gep(values, [builder.mul(builder.add(first, chosen), width)])
        target = builder.gep(totals, [builder.mul(r, width)])
        builder.branch(part_head)

        builder.position_at_end(part_head)
        k = builder.phi(long)
        k.add_incoming(ir.Constant(long, 0), row_head)

        def at(base: Any) -> Any:
            return builder.bitcast(builder.gep(base, [k]), vector.as_pointer())

        value, total = (builder.load(at(base), align=bits // 8) for base in (source, target))
        builder.store(builder.fadd(total, value), at(target), align=bits // 8)
        after = builder.add(k, ir.Constant(long, lanes))
        k.add_incoming(after, part_head)
        builder.cbranch(builder.icmp_signed("<", after, width), part_head, row_end)

        builder.position_at_end(row_end)
        following = builder.add(r, ir.Constant(long, 1))
        r.add_incoming(following, row_end)
        builder.cbranch(builder.icmp_signed("<", following, rows), row_head, done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return signature, generate


add_rows: Any = intrinsic(_add_rows)
