"""A register machine (VM) for models other than trees: rows are lanes, columns are registers.

It interprets bytecode in vectors (P. Boncz, M. Zukowski and N. Nes, "MonetDB/X100: Hyper-Pipelining
Query Execution", CIDR 2005). A block of rows is transposed so that each column is in one float64
register, and each instruction works on whole registers. So only the rows and the results go through
memory, and the VM is compiled once for all models. The arithmetic is that of the reference
interpreter, operation by operation. `exp` and `log` are defined below.

An instruction is a row of bytecode written by `assembler.py`. There are only a few instructions,
because each loop takes 0.1 s to compile:

=============  ===============================================================================
sum            a + b * (number k)
mul, div       a * b, a / b
maximum        the larger of a and b, NaN if either is NaN
compare        number k where a > b, number k + 1 where a = b, else 0
where          b where a is not 0, else c
sqrt, exp      the square root of a, the exponential of a
exp2           2 to the power a
tanh           the hyperbolic tangent of a
single         a rounded to float32
log            log(a + b), where b is all 0 or all 1
check          stops if a is outside number k to number k + 1 (number k + 2: whether NaN may pass)
take           number k + 1 + a if 0 <= a < number k, else 0
whole          a truncated as by a cast to int64: -2**63 beyond its range
linear         for each of its results: the sum of listed columns times numbers, plus a number
sqeuclidean    for each of its results: the sum of squared differences of columns and numbers
linear32       as linear, in float32
sqeuclidean32  as sqeuclidean, in float32
add_rows       for each of its results: the sum of a number in each listed column's row of a table
add_rows32     as add_rows, in float32
=============  ===============================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from llvmlite import ir

from sqlml.backends.native.jit.call_wrapper import (
    INT,
    POINTER,
    declare_function,
    get_pointers,
    long,
    transpose_vectors,
    vector_pointer,
)
from sqlml.backends.native.jit.helpers import compiled_helper, intrinsic
from sqlml.backends.native.jit.specialise import reads, specialise, writes
from sqlml.backends.native.vm.column_sums import sum_columns
from sqlml.backends.native.vm.table_rows import add_rows

# A kernel that computes on a block before it reads the next block leaves the memory idle, and then
# waits for the memory. With prefetching, rows in memory score as fast as rows in the cache: a
# linear model took 11 ns instead of 19 ns per row, for 500,000 rows of 20 floats.


@intrinsic
def fetch(typing: Any, rows: Any, index: Any) -> Any:
    """Emit a prefetch of the cache line with `rows[index]`, which may lie after the end."""
    from numba import types  # Importing numba is slow.

    return types.void(rows, types.uint64), _fetch


def _fetch(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    (data,) = get_pointers(context, builder, signature, arguments, 0)
    pointer = builder.bitcast(builder.gep(data, [arguments[1]]), POINTER)
    operands = (pointer, *(ir.Constant(INT, n) for n in (0, 3, 1)))
    prefetch = declare_function(builder.module, "llvm.prefetch.p0i8", ir.VoidType(), *operands)
    builder.call(prefetch, operands)
    return context.get_dummy_value()


# exp and log as plain arithmetic, so that a loop over rows becomes vector instructions.
#
# Calling the C library for each number takes ten times as long. Each function is within one unit in
# the last place of the true value. It returns the same number at every position of a batch, because
# it uses no fused multiply-add. Methods: W. Cody and W. Waite, "Software Manual for the Elementary
# Functions" (1980), chapters 5 and 6. The coefficients of log are those of fdlibm (`e_log.c`).

_MAGIC = 6755399441055744.0
"""1.5 * 2^52. Adding this rounds a number to an integer, in the last bits of the sum."""

_MAGIC_BITS = int(np.float64(_MAGIC).view(np.int64))
_LN2 = math.log(2.0)
_LOG2_E = 1.0 / _LN2
_LN2_HIGH = float(np.int64(0x3FE62E42FEE00000).view(np.float64))
_LN2_LOW = 1.90821492927058770002e-10
_F = [float(Fraction(1, math.factorial(k))) for k in range(14)]
_E2, _E3, _E4, _E5, _E6, _E7, _E8, _E9, _E10, _E11, _E12, _E13 = _F[2:]
_HALF_SQRT = int(np.float64(math.sqrt(0.5)).view(np.int64))
_L1, _L2, _L3 = 0.666666666666673513, 0.3999999999940941908, 0.2857142874366239149
_L4, _L5 = 0.22222198432149784, 0.1818357216161805012
_L6, _L7 = 0.1531383769920937332, 0.1479819860511658591


@compiled_helper
def exponential(x: Any) -> Any:
    """Return exp(x) as 2^k * exp(r), where |r| <= log(2) / 2 and exp(r) is a polynomial."""
    bound = min(max(x, -746.0), 710.0) if x == x else 0.0
    shifted = bound * _LOG2_E + _MAGIC
    rounded = shifted - _MAGIC
    r = (bound - rounded * _LN2_HIGH) - rounded * _LN2_LOW
    result = _scale_exponential(r, np.float64(shifted).view(np.int64) - _MAGIC_BITS)
    return result if x == x else x


@compiled_helper
def power_of_two(x: Any) -> Any:
    """Return 2^x as 2^k * exp(r), where k is an integer; the result is exact if x is one."""
    bound = min(max(x, -1076.0), 1025.0) if x == x else 0.0
    shifted = bound + _MAGIC
    r = (bound - (shifted - _MAGIC)) * _LN2
    result = _scale_exponential(r, np.float64(shifted).view(np.int64) - _MAGIC_BITS)
    return result if x == x else x


@compiled_helper
def _scale_exponential(r: Any, k: Any) -> Any:
    """Return 2^k * exp(r) for |r| <= log(2) / 2."""
    q = _E12 + r * _E13
    q = _E11 + r * q
    q = _E10 + r * q
    q = _E9 + r * q
    q = _E8 + r * q
    q = _E7 + r * q
    q = _E6 + r * q
    q = _E5 + r * q
    q = _E4 + r * q
    q = _E3 + r * q
    q = _E2 + r * q
    result = 1.0 + (r + (r * r) * q)
    # Apply 2^k in two factors: the result may be subnormal or infinite.
    half = k >> 1
    first = np.int64((half + 1023) << 52).view(np.float64)
    second = np.int64((k - half + 1023) << 52).view(np.float64)
    return (result * first) * second


_P = (-0.964399179425052238628, -99.2877231001918586564, -1614.68768441708447952)
_Q = (112.811678491632931402, 2235.48839060100448583, 4844.06305325125486048)
"""Coefficients of the rational approximation in Cephes' `tanh.c`."""

_P0, _P1, _P2 = _P
_Q0, _Q1, _Q2 = _Q


@compiled_helper
def hyperbolic_tangent(x: Any) -> Any:
    """Return tanh(x), from exp where |x| >= 0.625 and otherwise from Cephes' polynomials."""
    magnitude = abs(x)
    large_result = 1.0 - 2.0 / (exponential(magnitude + magnitude) + 1.0)
    large_result = large_result if x >= 0.0 else -large_result
    square = x * x
    numerator = (_P0 * square + _P1) * square + _P2
    denominator = ((square + _Q0) * square + _Q1) * square + _Q2
    small_result = x + x * ((square * numerator) / denominator)
    result = small_result if magnitude < 0.625 else large_result
    return result if x == x else x


@compiled_helper
def logarithm(x: Any, shift: Any) -> Any:
    """Return log(shift + x) for shift 0 or 1; accurate near x = 0 for shift 1."""
    total = shift + x
    lost = x - (total - shift)
    tiny = total < 2.2250738585072014e-308
    bits = np.float64(total * 18014398509481984.0 if tiny else total).view(np.int64)
    k = (bits - _HALF_SQRT) >> 52
    f = np.int64(bits - (k << 52)).view(np.float64) - 1.0
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    odd = w * (_L2 + w * (_L4 + w * _L6))
    even = z * (_L1 + w * (_L3 + w * (_L5 + w * _L7)))
    half = 0.5 * f * f
    e = np.float64(k) - (54.0 if tiny else 0.0)
    result: Any = e * _LN2_HIGH - ((half - (s * (half + (odd + even)) + e * _LN2_LOW)) - f)
    result = result + lost / total
    result = result if total < np.inf else total
    result = result if total > 0.0 else np.nan
    return result if total != 0.0 else -np.inf


# `transpose` turns 8 rows of 8 adjacent columns into 8 columns of 8 rows. A loop over single
# numbers would need a load, a conversion and a store per number. Instead, 8 vectors are loaded,
# interleaved three times (r[i] with r[i + 4]), and stored.

SIDE = 8
"""Rows and columns of a square."""


@intrinsic
def transpose(
    typing: Any, rows: Any, first: Any, width: Any, target: Any, start: Any, step: Any
) -> Any:
    """Emit the transposition of a square of numbers from rows[first] on; rows are `width` long.

    The number in row r and column c goes to target[start + c * step + r]. float32 may be widened.
    """
    from numba import types  # Importing numba is slow.

    signature = types.void(rows, types.uint64, types.uint64, target, types.uint64, types.uint64)
    return signature, _generate_transpose


def _generate_transpose(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    argument_types = signature.args
    source_type = context.get_data_type(argument_types[0].dtype)
    target_type = context.get_data_type(argument_types[3].dtype)

    source, target = get_pointers(context, builder, signature, arguments, 0, 3)
    first, width, start, step = (arguments[i] for i in (1, 2, 4, 5))
    vector = ir.VectorType(source_type, SIDE)
    vectors = []
    for r in range(SIDE):
        index = builder.add(first, builder.mul(width, long(r)))
        pointer = vector_pointer(builder, source, index, vector)
        vectors.append(builder.load(pointer, align=argument_types[0].dtype.bitwidth // 8))
    wide_vector = ir.VectorType(target_type, SIDE)
    for c, column in enumerate(transpose_vectors(builder, vectors)):
        value = column if source_type == target_type else builder.fpext(column, wide_vector)
        index = builder.add(start, builder.mul(step, long(c)))
        pointer = vector_pointer(builder, target, index, wide_vector)
        builder.store(value, pointer, align=argument_types[3].dtype.bitwidth // 8)
    return context.get_dummy_value()


OPCODES = (
    *("sum", "mul", "div", "maximum", "compare", "where", "sqrt", "exp", "log"),
    *("check", "linear", "sqeuclidean", "single", "take", "whole", "exp2", "tanh"),
    *("linear32", "sqeuclidean32", "add_rows", "add_rows32"),
)
"""Names of the instructions, in the order of their opcodes."""

FIELDS = 10
"""Fields of an instruction: opcode, number of runs, and a, b, c and result, each with its step.

After each run, a, b, c and the result advance by their steps. In `check`, `compare`, `sum` and
`take`, c is the index k of a number. `linear` and `sqeuclidean` run once per result. The columns
are listed from index a on, and the step of a is the length of the list. The weights begin at number
b, counted in float32 numbers if they are float32, and the biases at number c. `add_rows` lists its
columns of codes in the same way; b is a column of the tables, and c is the index of the tables
(`table_rows.py`).
"""

AHEAD = 64
"""Number of rows to prefetch ahead. At the end of a block, these are rows of the next block."""

PAD = 8
"""Unused numbers between registers. A distance of a power of 2 would cause cache conflicts."""

_U = np.uint64
_LIMIT = 2.0**63


def _run(
    single: Any, double: Any, code: Any, columns: Any, numbers: Any, shape: Any, out: Any
) -> Any:
    """Run the bytecode for all rows; return -1, or the first row of a block that fails a check.

    This is one long function, because a function per loop would take longer to compile.

    Args:
        single, double: the rows, concatenated (n * k,), as float32 or as float64; one is empty.
        code: bytecode (instructions, FIELDS).
        columns: the columns that registers 0, 1, ... hold, the registers of the results, and the
            lists of registers that instructions read.
        numbers: the values of the constants, followed by weights and points.
        shape: the numbers of columns read, constants, registers, rows per block and results; 1 if
            the results are integers; and the number of columns of the rows.
        out: float64 (n * results,); integer results are written as the bits of an int64.
    """
    inputs, constants, results, is_integer = shape[0], shape[1], shape[4], shape[5]
    rows, width = out.size // results, shape[6]
    size = max(min(shape[3], rows), 1)
    step = _U(size + PAD)
    # With unsigned indices, numba omits the test for negative indices.
    buffer = np.empty(shape[2] * (size + PAD) + 8)
    # Vectors that cross a cache line take twice as long.
    regs = buffer[(-(buffer.ctypes.data >> 3)) & 7 :]
    for k in range(constants):
        position = _U(inputs + k) * step
        for r in range(_U(size)):
            regs[position + r] = numbers[k]
    starts = np.empty(results, np.uint64)
    for k in range(results):
        starts[k] = _U(columns[inputs + k]) * step
    is_adjacent = inputs >= SIDE
    for k in range(1, inputs):
        is_adjacent = is_adjacent and columns[k] == columns[0] + k
    first_column = _U(columns[0]) if is_adjacent else _U(0)
    for first_row in range(0, rows, size):
        block_rows = min(size, rows - first_row)
        n = _U(block_rows)
        position = _U(first_row) * _U(width)
        square_rows = n - n % _U(SIDE) if is_adjacent else _U(0)
        for row in range(_U(0), square_rows, _U(SIDE)):
            ahead = position + (row + _U(AHEAD)) * _U(width)
            for line in range(_U(0), _U(SIDE * width), _U(16)):
                if single.size:
                    fetch(single, ahead + line)
                else:
                    fetch(double, ahead + line)
                    fetch(double, ahead + line + _U(8))
            for k in range(0, inputs, SIDE):
                column = _U(min(k, inputs - SIDE))  # The last square may overlap the previous one.
                square_start = position + row * _U(width) + first_column + column
                if single.size:
                    transpose(single, square_start, _U(width), regs, column * step + row, step)
                else:
                    transpose(double, square_start, _U(width), regs, column * step + row, step)
        position += square_rows * _U(width)
        for row in range(square_rows, n):
            for k in range(_U(inputs)):
                column_index = position + _U(columns[k])
                regs[k * step + row] = single[column_index] if single.size else double[column_index]
            position += _U(width)
        for i in range(code.shape[0]):
            opcode = code[i, 0]
            if opcode > 18:
                add_rows(regs, step, n, columns, numbers, code[i])
                continue
            if opcode == 10 or opcode == 11 or opcode > 16:
                sum_columns(regs, step, n, columns, numbers, code[i])
                continue
            for j in range(code[i, 1]):
                p = code[i, 2] + j * code[i, 3]
                q = code[i, 4] + j * code[i, 5]
                k = code[i, 6] + j * code[i, 7]
                a, b, c = _U(p) * step, _U(q) * step, _U(k) * step
                target = _U(code[i, 8] + j * code[i, 9]) * step
                if opcode == 0:
                    factor = numbers[k]
                    for r in range(n):
                        regs[target + r] = regs[a + r] + regs[b + r] * factor
                elif opcode == 1:
                    for r in range(n):
                        regs[target + r] = regs[a + r] * regs[b + r]
                elif opcode == 2:
                    for r in range(n):
                        regs[target + r] = regs[a + r] / regs[b + r]
                elif opcode == 3:
                    for r in range(n):
                        x, y = regs[a + r], regs[b + r]
                        regs[target + r] = x if x >= y or x != x else y
                elif opcode == 4:
                    above, equal = numbers[k], numbers[k + 1]
                    for r in range(n):
                        x, y = regs[a + r], regs[b + r]
                        regs[target + r] = above if x > y else equal if x == y else 0.0
                elif opcode == 5:
                    for r in range(n):
                        x, y = regs[b + r], regs[c + r]
                        regs[target + r] = x if regs[a + r] != 0.0 else y
                elif opcode == 6:
                    for r in range(n):
                        regs[target + r] = np.sqrt(regs[a + r])
                elif opcode == 7:
                    for r in range(n):
                        regs[target + r] = exponential(regs[a + r])
                elif opcode == 8:
                    shift = regs[b]
                    for r in range(n):
                        regs[target + r] = logarithm(regs[a + r], shift)
                elif opcode == 9:
                    low, high, nan = numbers[k], numbers[k + 1], numbers[k + 2]
                    failure_count = 0
                    for r in range(n):
                        x = regs[a + r]
                        if not ((x >= low and x <= high) or (x != x and nan > 0.0)):
                            failure_count += 1
                    if failure_count:
                        return first_row
                elif opcode == 12:
                    for r in range(n):
                        regs[target + r] = np.float32(regs[a + r])
                elif opcode == 13:
                    count = numbers[k]
                    for r in range(n):
                        x = regs[a + r]
                        is_inside = x >= 0.0 and x < count
                        regs[target + r] = numbers[k + 1 + np.int64(x)] if is_inside else 0.0
                elif opcode == 14:
                    for r in range(n):
                        x = regs[a + r]
                        regs[target + r] = np.trunc(x) if np.abs(x) < _LIMIT else -_LIMIT
                elif opcode == 15:
                    for r in range(n):
                        regs[target + r] = power_of_two(regs[a + r])
                elif opcode == 16:
                    for r in range(n):
                        regs[target + r] = hyperbolic_tangent(regs[a + r])
        position = _U(first_row) * _U(results)
        for row in range(n):
            if is_integer:
                for k in range(_U(results)):
                    # Viewing the whole array takes 0.2 s to compile.
                    integer = np.int64(regs[starts[k] + row])
                    out[position + k] = integer.view(np.float64)
            else:
                for k in range(_U(results)):
                    out[position + k] = regs[starts[k] + row]
            position += _U(results)
    return -1


def compile_machine() -> Callable[..., Any]:
    """Return the VM, compiled for this processor; see `_run`."""
    doubles, integers = reads(np.float64, 1, "C"), reads(np.int64, 1, "C")
    row_kinds = (reads(np.float32, 1, "C"), doubles)
    code_kinds = (reads(np.int64, 2, "C"), integers, doubles, integers)
    return specialise(_run, (*row_kinds, *code_kinds, writes(np.float64, 1)))
