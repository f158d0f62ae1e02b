"""Add rows of tables: the instructions `add_rows` and `add_rows32` of the register machine.

A table has a row for each code, and a column for each result, as the weights of a layer after
one-hot encoding have. The numbers of a row are adjacent in memory, so that they are read as vectors
and with few cache misses. Each result is a register, so a square of 8 rows of the batch and 8
results is computed at a time, and transposed.

The tables of an instruction begin with a header: their number of columns, and for each table its
start, counted from the header on, and its number of rows. A code without a row adds 0.
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
    transpose_vectors,
    vector_pointer,
)
from sqlml.backends.native.jit.helpers import inlined_helper, literal_intrinsic

SIDE = 8
"""Rows and results of a square. The last square may contain unused rows and results. The rows lie
in the gap after a register (`register_machine.PAD`), and as many numbers follow the tables."""

_U = np.uint64


@inlined_helper
def add_rows(regs: Any, step: Any, n: Any, columns: Any, numbers: Any, fields: Any) -> None:
    """Run one of the two instructions (opcodes 19 and 20) on `n` rows.

    `fields` are the fields of the instruction (`register_machine.FIELDS`). Register k starts at
    regs[k * step].
    """
    row = _U(0)
    while row < n:
        for j in range(0, fields[1], SIDE):
            if fields[0] == 19:
                add_square(regs, step, row, columns, numbers, fields, j, 0)
            else:
                add_square(regs, step, row, columns, numbers, fields, j, 1)
        row += _U(SIDE)


@literal_intrinsic
def add_square(
    typing: Any,
    regs: Any,
    step: Any,
    row: Any,
    columns: Any,
    numbers: Any,
    fields: Any,
    first_result: Any,
    is_single: Any,
) -> Any:
    """Emit a square: the results from `first_result` on, for the rows of the batch from `row` on.

    `is_single` is a constant: whether each sum is rounded to float32. numba requires that an
    intrinsic has one parameter per argument.
    """
    from numba import types  # Importing numba is slow.

    unsigned, integer = types.uint64, types.int64
    arrays = (columns, numbers, fields)
    signature = types.void(regs, unsigned, unsigned, *arrays, integer, is_single)
    rounds = bool(is_single.literal_value)
    vector = ir.VectorType(ir.DoubleType(), SIDE)
    narrow = ir.VectorType(ir.FloatType(), SIDE)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointers = get_pointers(context, builder, signature, arguments, 0, 3, 4, 5)
        registers, listed, values, field = pointers
        step, row, first = arguments[1], arguments[2], arguments[6]
        runs, start, count, column, header, result, result_step = (
            builder.load(builder.gep(field, [long(i)])) for i in (1, 2, 3, 4, 6, 8, 9)
        )
        tables = builder.gep(values, [header])
        width = builder.fptosi(builder.load(tables), LONG)
        column = builder.add(column, first)
        # Adding anything to -0 leaves it as it is.
        zeros, nothing = (ir.Constant(vector, [zero] * SIDE) for zero in (0.0, -0.0))

        def find_register(number: Any) -> Any:
            place = builder.add(builder.mul(number, step), row)
            return vector_pointer(builder, registers, place, vector)

        entry_block = builder.block
        head, done = builder.append_basic_block("table"), builder.append_basic_block("done")
        builder.cbranch(builder.icmp_signed(">", count, long(0)), head, done)
        builder.position_at_end(head)
        i = builder.phi(LONG)
        sums = [builder.phi(vector) for _ in range(SIDE)]
        table_start, rows = (
            builder.load(builder.gep(tables, [builder.add(builder.mul(i, long(2)), long(k))]))
            for k in (1, 2)
        )
        register = builder.load(builder.gep(listed, [builder.add(start, i)]))
        codes = builder.load(find_register(register), align=8)
        is_code = builder.and_(
            builder.fcmp_ordered(">=", codes, zeros),
            builder.fcmp_ordered("<", codes, broadcast(builder, rows, vector)),
        )
        codes = builder.select(is_code, codes, zeros)
        codes = builder.fptosi(codes, ir.VectorType(LONG, SIDE))
        table = builder.add(builder.fptosi(table_start, LONG), column)
        new_sums = []
        for r, total in enumerate(sums):
            code, has_row = (builder.extract_element(x, long(r)) for x in (codes, is_code))
            place = builder.add(table, builder.mul(code, width))
            addend = builder.load(vector_pointer(builder, tables, place, vector), align=8)
            new_sum = builder.fadd(total, builder.select(has_row, addend, zeros))
            new_sum = builder.fpext(builder.fptrunc(new_sum, narrow), vector) if rounds else new_sum
            new_sums.append(new_sum)
        next_i = builder.add(i, long(1))
        i.add_incoming(long(0), entry_block)
        i.add_incoming(next_i, head)
        builder.cbranch(builder.icmp_signed("<", next_i, count), head, done)
        builder.position_at_end(done)
        totals = [builder.phi(vector) for _ in range(SIDE)]
        for phi, total, new_sum in zip(sums, totals, new_sums, strict=True):
            for incoming in (phi, total):
                incoming.add_incoming(nothing, entry_block)
                incoming.add_incoming(new_sum, head)
        # An unused result goes to the register of the last one, which is written after it.
        last = builder.sub(runs, long(1))
        for k, numbers_of_result in reversed(list(enumerate(transpose_vectors(builder, totals)))):
            index = builder.add(first, long(k))
            index = builder.select(builder.icmp_signed("<", index, last), index, last)
            register = builder.add(result, builder.mul(index, result_step))
            builder.store(numbers_of_result, find_register(register), align=8)
        return context.get_dummy_value()

    return signature, generate
