"""Add rows of tables: the instructions `add_rows` and `add_rows32` of the register machine.

A table has a row for each code, and a column for each result, as the weights of a layer after
one-hot encoding have. The numbers of a row are adjacent in memory, so that they are read as vectors
and with few cache misses. Each result is a register, so a square of 8 rows of the batch and 8
results is computed at a time, and transposed.

The tables of an instruction begin with a header of HEADER numbers, their columns and the start of a
row of zeros, and for each table its start and its rows. Starts are counted from the header on, in
`add_rows32` as float32 numbers, which the tables then contain. A code without a row adds the row of
zeros.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from sqlml.backends.native.jit.call_wrapper import (
    LONG,
    get_pointers,
    long,
    transpose_vectors,
    vector_pointer,
)
from sqlml.backends.native.jit.helpers import inlined_helper, literal_intrinsic

SIDE = 8
"""Rows and results of a square. The last square may contain unused rows and results. The rows lie
in the gap after a register (`register_machine.PAD`), and as many numbers follow the tables."""

HEADER = 2

_U = np.uint64


@inlined_helper
def add_rows(regs: Any, step: Any, n: Any, columns: Any, numbers: Any, fields: Any) -> None:
    """Run one of the two instructions (opcodes 19 and 20) on `n` rows.

    `fields` are the fields of the instruction (`register_machine.FIELDS`). Register k starts at
    regs[k * step].
    """
    row_starts = np.empty(fields[3] * SIDE, np.int64)
    row = _U(0)
    while row < n:
        _find_rows(regs, step, row, columns, numbers, fields, row_starts)
        for j in range(0, fields[1], SIDE):
            if fields[0] == 19:
                add_square(regs, step, row, row_starts, numbers, fields, j, 0)
            else:
                add_square(regs, step, row, row_starts, numbers, fields, j, 1)
        row += _U(SIDE)


@inlined_helper
def _find_rows(
    regs: Any, step: Any, row: Any, columns: Any, numbers: Any, fields: Any, row_starts: Any
) -> None:
    """Store for each table where the table rows of SIDE batch rows start, from `row` on."""
    header = fields[6]
    width, zeros = np.int64(numbers[header]), np.int64(numbers[header + 1])
    for i in range(fields[3]):
        codes = _U(columns[fields[2] + i]) * step + row
        start = np.int64(numbers[header + HEADER + 2 * i])
        rows = numbers[header + HEADER + 2 * i + 1]
        for r in range(SIDE):
            code = regs[codes + _U(r)]
            has_row = code >= 0.0 and code < rows
            row_starts[i * SIDE + r] = start + np.int64(code) * width if has_row else zeros


@literal_intrinsic
def add_square(
    typing: Any,
    regs: Any,
    step: Any,
    row: Any,
    row_starts: Any,
    numbers: Any,
    fields: Any,
    first_result: Any,
    is_single: Any,
) -> Any:
    """Emit a square: the results from `first_result` on, for the rows of the batch from `row` on.

    `is_single` is a constant: whether the tables and the sums are float32. numba requires that an
    intrinsic has one parameter per argument.
    """
    from numba import types  # Importing numba is slow.

    unsigned, integer = types.uint64, types.int64
    signature = types.void(
        regs, unsigned, unsigned, row_starts, numbers, fields, integer, is_single
    )
    number = ir.FloatType() if is_single.literal_value else ir.DoubleType()
    vector, wide = ir.VectorType(number, SIDE), ir.VectorType(ir.DoubleType(), SIDE)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointers = get_pointers(context, builder, signature, arguments, 0, 3, 4, 5)
        registers, starts, values, field = pointers
        step, row, first = arguments[1], arguments[2], arguments[6]
        runs, count, column, header, result, result_step = (
            builder.load(builder.gep(field, [long(i)])) for i in (1, 3, 4, 6, 8, 9)
        )
        tables = builder.bitcast(builder.gep(values, [header]), number.as_pointer())
        tables = builder.gep(tables, [builder.add(column, first)])
        entry_block = builder.block
        head, done = builder.append_basic_block("table"), builder.append_basic_block("done")
        builder.cbranch(builder.icmp_signed(">", count, long(0)), head, done)
        builder.position_at_end(head)
        i = builder.phi(LONG)
        sums = [builder.phi(vector) for _ in range(SIDE)]
        table = builder.gep(starts, [builder.mul(i, long(SIDE))])
        new_sums = []
        for r, total in enumerate(sums):
            row_start = builder.load(builder.gep(table, [long(r)]))
            pointer = vector_pointer(builder, tables, row_start, vector)
            new_sums.append(builder.fadd(total, builder.load(pointer, align=4)))
        next_i = builder.add(i, long(1))
        i.add_incoming(long(0), entry_block)
        i.add_incoming(next_i, head)
        builder.cbranch(builder.icmp_signed("<", next_i, count), head, done)
        builder.position_at_end(done)
        totals = [builder.phi(vector) for _ in range(SIDE)]
        # Adding a number to -0 gives that number, even if it is -0.
        nothing = ir.Constant(vector, [-0.0] * SIDE)
        for phi, total, new_sum in zip(sums, totals, new_sums, strict=True):
            for incoming in (phi, total):
                incoming.add_incoming(nothing, entry_block)
                incoming.add_incoming(new_sum, head)
        # An unused result goes to the register of the last one, which is written after it.
        last = builder.sub(runs, long(1))
        for k, column_of_square in reversed(list(enumerate(transpose_vectors(builder, totals)))):
            index = builder.add(first, long(k))
            index = builder.select(builder.icmp_signed("<", index, last), index, last)
            register = builder.add(result, builder.mul(index, result_step))
            target = builder.add(builder.mul(register, step), row)
            stored = column_of_square if vector == wide else builder.fpext(column_of_square, wide)
            builder.store(stored, vector_pointer(builder, registers, target, wide), align=8)
        return context.get_dummy_value()

    return signature, generate
