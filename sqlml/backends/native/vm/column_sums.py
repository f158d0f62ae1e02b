"""Sum listed registers: the instructions `linear` and `sqeuclidean` of the register machine, and
`linear32` and `sqeuclidean32`, which compute in float32.

The sums of a tile, a few vectors of rows of up to 8 results, stay in registers of the processor, so
a number that is read once serves several sums (K. Goto and R. van de Geijn, "Anatomy of
High-Performance Matrix Multiplication", ACM TOMS 34(3), 2008). The rows after the last tile are
summed a vector at a time, then one at a time. Each sum adds the columns in order and rounds each
product, so a result depends neither on the position of the row nor on the processor.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from sqlml.backends.native.jit.call_wrapper import (
    LONG,
    broadcast,
    get_pointers,
    long,
    vector_pointer,
)
from sqlml.backends.native.jit.helpers import inlined_helper, literal_intrinsic
from sqlml.backends.native.jit.processor_levels import has_feature

_LANES = 8 if has_feature("avx512f") else 4 if has_feature("avx2") else 2
_VECTORS = 4 if has_feature("avx512f") else 2
"""Vectors of rows that are summed at once: AVX2 has 16 registers, AVX-512 has 32."""

TILE_ROWS, TILE_RESULTS, TILE_RESULTS32 = _LANES * _VECTORS, 4, 8
"""A vector holds twice as many numbers of float32, so a tile of `linear32` has twice the results.
Then the conversion of the registers to float32 costs half as much for each result."""

_U = np.uint64


@inlined_helper
def sum_columns(regs: Any, step: Any, n: Any, columns: Any, numbers: Any, fields: Any) -> None:
    """Run one of the four instructions (opcodes 10, 11, 17 and 18) on `n` rows.

    `fields` are the fields of the instruction (`register_machine.FIELDS`). Register k starts at
    regs[k * step].
    """
    row = _U(0)
    while row + _U(TILE_ROWS) <= n and fields[0] == 17:
        _sum_rows32(regs, step, row, columns, numbers, fields)
        row += _U(TILE_ROWS)
    while row + _U(TILE_ROWS) <= n:
        _sum_rows(regs, step, row, columns, numbers, fields, TILE_ROWS)
        row += _U(TILE_ROWS)
    while row + _U(_LANES) <= n:
        _sum_rows(regs, step, row, columns, numbers, fields, _LANES)
        row += _U(_LANES)
    while row < n:
        _sum_rows(regs, step, row, columns, numbers, fields, 1)
        row += _U(1)


@inlined_helper
def _sum_rows(
    regs: Any, step: Any, row: Any, columns: Any, numbers: Any, fields: Any, rows: Any
) -> None:
    results = fields[1]
    whole_tiles = results - results % TILE_RESULTS
    for j in range(0, whole_tiles, TILE_RESULTS):
        _run_tile(regs, step, row, columns, numbers, fields, j, rows, TILE_RESULTS)
    for j in range(whole_tiles, results):
        _run_tile(regs, step, row, columns, numbers, fields, j, rows, 1)


@inlined_helper
def _sum_rows32(regs: Any, step: Any, row: Any, columns: Any, numbers: Any, fields: Any) -> None:
    results = fields[1]
    whole_tiles = results - results % TILE_RESULTS32
    for j in range(0, whole_tiles, TILE_RESULTS32):
        sum_tile(regs, step, row, columns, numbers, fields, j, TILE_ROWS, TILE_RESULTS32, 1, 1)
    if results - whole_tiles >= TILE_RESULTS:
        j = whole_tiles
        sum_tile(regs, step, row, columns, numbers, fields, j, TILE_ROWS, TILE_RESULTS, 1, 1)
        whole_tiles += TILE_RESULTS
    for j in range(whole_tiles, results):
        sum_tile(regs, step, row, columns, numbers, fields, j, TILE_ROWS, 1, 1, 1)


@inlined_helper
def _run_tile(
    regs: Any,
    step: Any,
    row: Any,
    columns: Any,
    numbers: Any,
    fields: Any,
    j: Any,
    rows: Any,
    results: Any,
) -> None:
    if fields[0] == 10:
        sum_tile(regs, step, row, columns, numbers, fields, j, rows, results, 1, 0)
    elif fields[0] == 11:
        sum_tile(regs, step, row, columns, numbers, fields, j, rows, results, 0, 0)
    elif fields[0] == 17:
        sum_tile(regs, step, row, columns, numbers, fields, j, rows, results, 1, 1)
    else:
        sum_tile(regs, step, row, columns, numbers, fields, j, rows, results, 0, 1)


@literal_intrinsic
def sum_tile(
    typing: Any,
    regs: Any,
    step: Any,
    row: Any,
    columns: Any,
    numbers: Any,
    fields: Any,
    first_result: Any,
    rows: Any,
    results: Any,
    is_linear: Any,
    is_single: Any,
) -> Any:
    """Emit the sums of `rows` rows from `row` on, for `results` results from `first_result` on.

    `rows`, `results`, `is_linear` and `is_single` are constants. If `is_single`, each number is
    rounded to float32, though registers hold float64, and the weights or points are float32 numbers
    that are packed in pairs in `numbers`. numba requires that an intrinsic has one parameter per
    argument.
    """
    from numba import types  # Importing numba is slow.

    unsigned, integer = types.uint64, types.int64
    arrays = (columns, numbers, fields)
    constants = (rows, results, is_linear, is_single)
    signature = types.void(regs, unsigned, unsigned, *arrays, integer, *constants)
    row_count, result_count, adds_products, single = (c.literal_value for c in constants)
    lanes = min(row_count, 2 * _LANES if single else _LANES)
    vector = ir.VectorType(ir.FloatType() if single else ir.DoubleType(), lanes)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointers = get_pointers(context, builder, signature, arguments, 0, 3, 4, 5)
        registers, listed, values, field = pointers
        step, row, first = arguments[1], arguments[2], arguments[6]
        start, count, weight, bias, bias_step, result, result_step = (
            builder.load(builder.gep(field, [long(i)])) for i in (2, 3, 4, 6, 7, 8, 9)
        )
        rows = [
            builder.gep(registers, [builder.add(row, long(k))]) for k in range(0, row_count, lanes)
        ]
        indices = [builder.add(first, long(j)) for j in range(result_count)]
        all_weights = values
        if single:
            all_weights = builder.bitcast(values, ir.FloatType().as_pointer())
        weights = [
            builder.gep(all_weights, [_advance(builder, weight, index, count)]) for index in indices
        ]
        columns = builder.gep(listed, [start])
        sums = _sum_listed(builder, vector, rows, step, columns, count, weights, adds_products)
        for index, totals in zip(indices, sums, strict=True):
            register = _advance(builder, result, index, result_step)
            if adds_products:
                position = _advance(builder, bias, index, bias_step)
                addend = _load_broadcast(builder, values, position, vector)
                totals = [builder.fadd(total, addend) for total in totals]
            for row_start, total in zip(rows, totals, strict=True):
                wide = ir.VectorType(ir.DoubleType(), lanes)
                place = vector_pointer(builder, row_start, builder.mul(register, step), wide)
                builder.store(builder.fpext(total, wide) if single else total, place, align=8)
        return context.get_dummy_value()

    return signature, generate


def _advance(builder: Any, start: Any, index: Any, step: Any) -> Any:
    return builder.add(start, builder.mul(index, step))


def _load_vector(builder: Any, row: Any, offset: Any, vector: Any) -> Any:
    """Load float64 numbers, and round them to float32 if `vector` is a type of float32."""
    wide = ir.VectorType(ir.DoubleType(), vector.count)
    loaded = builder.load(vector_pointer(builder, row, offset, wide), align=8)
    return loaded if vector == wide else builder.fptrunc(loaded, vector)


def _load_broadcast(builder: Any, numbers: Any, position: Any, vector: Any) -> Any:
    number = builder.load(builder.gep(numbers, [position]))
    if vector.element != number.type:
        number = builder.fptrunc(number, vector.element)
    return broadcast(builder, number, vector)


def _sum_listed(
    builder: Any,
    vector: Any,
    rows: list[Any],
    step: Any,
    columns: Any,
    count: Any,
    weights: list[Any],
    adds_products: bool,
) -> list[list[Any]]:
    """Emit the sums over the first `count` of `columns`; return a vector per result and row."""
    zeros = ir.Constant(vector, [0.0] * vector.count)
    entry_block = builder.block
    head, done = builder.append_basic_block("column"), builder.append_basic_block("done")
    builder.cbranch(builder.icmp_signed(">", count, long(0)), head, done)
    builder.position_at_end(head)
    column = builder.phi(LONG)
    sums = [[builder.phi(vector) for _ in rows] for _ in weights]
    offset = builder.mul(builder.load(builder.gep(columns, [column])), step)
    values = [_load_vector(builder, row, offset, vector) for row in rows]
    new_sums = []
    for totals, weight_start in zip(sums, weights, strict=True):
        weight = _load_broadcast(builder, weight_start, column, vector)
        gaps = values if adds_products else [builder.fsub(value, weight) for value in values]
        factors = [weight] * len(gaps) if adds_products else gaps
        products = map(builder.fmul, gaps, factors)
        new_sums.append([*map(builder.fadd, totals, products)])
    next_column = builder.add(column, long(1))
    column.add_incoming(long(0), entry_block)
    column.add_incoming(next_column, head)
    builder.cbranch(builder.icmp_signed("<", next_column, count), head, done)
    builder.position_at_end(done)
    results = []
    for totals, new_totals in zip(sums, new_sums, strict=True):
        results.append([builder.phi(vector) for _ in rows])
        for total, new_total, final in zip(totals, new_totals, results[-1], strict=True):
            for phi in (total, final):
                phi.add_incoming(zeros, entry_block)
                phi.add_incoming(new_total, head)
    return results
