"""Check of the arguments of the register machine: the bytecode, its registers and its numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.backends.native.argument_checks.conditions import (
    Rows,
    RowsOrNothing,
    has_indices_below,
)
from sqlml.backends.native.jit.helpers import compiled_helper
from sqlml.backends.native.vm.assembler import MAX_INSTRUCTIONS, MAX_REGISTERS, MOST_ROWS
from sqlml.backends.native.vm.register_machine import FIELDS, OPCODES
from sqlml.backends.native.vm.table_rows import HEADER, SIDE

_COUNT = len(OPCODES)
_SUM, _COMPARE, _CHECK = OPCODES.index("sum"), OPCODES.index("compare"), OPCODES.index("check")
_TAKE, _LINEAR, _LINEAR32 = (OPCODES.index(name) for name in ("take", "linear", "linear32"))
_SQEUCLIDEAN, _ADD_ROWS = OPCODES.index("sqeuclidean"), OPCODES.index("add_rows")


@compiled_helper
def _stays_below(first: Any, step: Any, runs: Any, limit: Any) -> Any:
    """Return True if `first` + j * `step` is at least 0 and below `limit` in each of the runs j."""
    if first < 0 or first >= limit or step < -limit or step > limit:
        return False
    last = first + (runs - 1) * step
    return last >= 0 and last < limit


@compiled_helper
def _has_table(numbers: Any, index: Any) -> Any:
    """Return True if `take` finds all numbers of the table at `index`, which begins with a count.

    The count may be a fraction or NaN. Only positions below the count are read.
    """
    return not numbers[index] > numbers.size - 1 - index


@compiled_helper
def _is_list(code: Any, i: Any, first_listed: Any, column_count: Any) -> Any:
    """Return True if a list of registers lies at `first_listed` or later in `column_count`."""
    listed, count = code[i, 2], code[i, 3]
    if count < 0 or count > column_count:
        return False
    return listed >= first_listed and listed <= column_count - count


@compiled_helper
def _is_below(number: Any, limit: Any) -> Any:
    """Return True if `number` is a whole number from 0 to `limit` - 1."""
    return number >= 0.0 and number < limit and number == np.trunc(number)


@compiled_helper
def _has_rows(code: Any, i: Any, numbers: Any) -> Any:
    """Return True if `add_rows` finds all rows of its tables, and SIDE numbers after them."""
    runs, count, column, index = code[i, 1], code[i, 3], code[i, 4], code[i, 6]
    if not _stays_below(index, 0, 1, numbers.size):
        return False
    size = numbers.size - index
    if size < HEADER or count > (size - HEADER) // 2 or (runs > 1 and code[i, 5] != 1):
        return False
    # Tables of float32 have twice as many numbers.
    size = 2 * size if code[i, 0] > _ADD_ROWS else size
    if not _is_below(numbers[index], size) or not _is_below(numbers[index + 1], size):
        return False
    width, zeros = np.int64(numbers[index]), np.int64(numbers[index + 1])
    if column < 0 or runs > width or column > width - runs or zeros > size - width - SIDE:
        return False
    for k in range(index + HEADER, index + HEADER + 2 * count, 2):
        start, rows = numbers[k], numbers[k + 1]
        if not _is_below(start, size) or not _is_below(rows, size):
            return False
        if np.int64(rows) > (size - np.int64(start) - SIDE) // width:
            return False
    return True


@compiled_helper
def _is_list_instruction(code: Any, i: Any, first_listed: Any, column_count: Any, size: Any) -> Any:
    """Return True if the lists and the weights of `linear` or `sqeuclidean` exist.

    The registers are listed at `first_listed` or later in `column_count` columns. There are `size`
    numbers.
    """
    runs, count, begin = code[i, 1], code[i, 3], code[i, 4]
    if not _is_list(code, i, first_listed, column_count):
        return False
    # float32 weights take half the space.
    last = 2 * size if code[i, 0] >= _LINEAR32 else size
    if begin < 0 or begin > last or runs * count > last - begin:
        return False
    if code[i, 0] != _LINEAR and code[i, 0] != _LINEAR32:
        return True
    return _stays_below(code[i, 6], code[i, 7], runs, size)


@compiled_helper
def _is_instruction(code: Any, i: Any, registers: Any, numbers: Any) -> Any:
    """Return True if all operands of an instruction that reads no list exist."""
    opcode, runs = code[i, 0], code[i, 1]
    for field in (2, 4):
        if not _stays_below(code[i, field], code[i, field + 1], runs, registers):
            return False
    first, step = code[i, 6], code[i, 7]
    if opcode == _SUM:
        return _stays_below(first, step, runs, numbers.size)
    if opcode == _COMPARE:
        return _stays_below(first, step, runs, numbers.size - 1)
    if opcode == _CHECK:
        return _stays_below(first, step, runs, numbers.size - 2)
    if opcode != _TAKE:
        return _stays_below(first, step, runs, registers)
    if not _stays_below(first, step, runs, numbers.size):
        return False
    for j in range(runs):
        if not _has_table(numbers, first + j * step):
            return False
    return True


def check_machine(
    single: RowsOrNothing,
    double: RowsOrNothing,
    code: Any,
    columns: Any,
    numbers: Any,
    shape: Any,
    out: Rows,
) -> Any:
    """Check `_run`, the register machine; each register and each number that it uses must exist."""
    if shape.size != 7 or code.shape[1] != FIELDS or code.shape[0] > MAX_INSTRUCTIONS:
        return False
    inputs, constants, registers, block_rows = shape[0], shape[1], shape[2], shape[3]
    results, width = shape[4], shape[6]
    # The machine reads `single` unless it is empty.
    if single.size + double.size != width or (single.size > 0 and double.size > 0):
        return False
    if width < 1 or results < 1 or results != out.size:
        return False
    if block_rows < 1 or block_rows > MOST_ROWS:
        return False
    if registers < 1 or registers > MAX_REGISTERS or inputs < 0 or inputs > registers:
        return False
    if constants < 0 or constants > registers - inputs or constants > numbers.size:
        return False
    if columns.size < inputs or results > columns.size - inputs:
        return False
    if not has_indices_below(columns[:inputs], width):
        return False
    if not has_indices_below(columns[inputs:], registers):
        return False
    remaining_runs = MAX_INSTRUCTIONS
    for i in range(code.shape[0]):
        opcode, runs = code[i, 0], code[i, 1]
        if opcode < 0 or opcode >= _COUNT or runs < 1 or runs > remaining_runs:
            return False
        if not _stays_below(code[i, 8], code[i, 9], runs, registers):
            return False
        if opcode >= _ADD_ROWS:
            if not _is_list(code, i, inputs, columns.size) or not _has_rows(code, i, numbers):
                return False
        elif opcode == _LINEAR or opcode == _SQEUCLIDEAN or opcode >= _LINEAR32:
            if not _is_list_instruction(code, i, inputs, columns.size, numbers.size):
                return False
        elif not _is_instruction(code, i, registers, numbers):
            return False
        remaining_runs -= runs
    return True
