"""A small machine for whole models other than trees: rows are lanes, columns are registers.

Vectorised interpretation (P. Boncz, M. Zukowski and N. Nes, "MonetDB/X100: Hyper-Pipelining Query
Execution", CIDR 2005). A block of rows is turned so that each column lies in one register of
float64, and each instruction works on whole registers: nothing but the rows and the results goes
through memory, and the machine is compiled once, for all models. Arithmetic is that of the
reference, operation by operation; `exp` and `log` are those of `run.py`.

An instruction is a row of `code`, as `assembler.py` writes it. It has few kinds and no function
of its own for each, because each loop takes 0.1 s to compile:

===========  =================================================================================
sum          a + b * (number k)
mul, div     a * b, a / b
maximum      the larger of a and b, NaN where one is
compare      number k where a > b, number k + 1 where a = b, else 0
where        b where a is not 0, else c
sqrt, exp    of a
single       a rounded to float32
log          log(a + b), where b is all 0 or all 1
check        stops the machine where a is outside number k .. k + 1 (k + 2: unless it is NaN)
take         number k + 1 + a, where a is from 0 to less than number k, else 0
whole        a without its fraction, as an int64 has it: beyond that, -2**63
linear       for each of its results: the sum of listed columns times numbers, plus a number
sqeuclidean  for each of its results: the sum of squared differences of columns and numbers
===========  =================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from llvmlite import ir

from sqlml.backends.native.jit.helpers import called, intrinsic
from sqlml.backends.native.jit.specialise import reads, specialise, writes

# `fetch`: ask the memory for numbers before they are needed.
#
# A kernel that computes for a while on a block and then reads the next one leaves the memory idle
# meanwhile, and then waits for it. Asked for in time, what lies in memory scores as fast as what
# lies in the cache: 500,000 rows of 20 floats took a linear model 11 ns per row in place of 19.


LINE_BYTES = 64
"""Of a line of the cache, on all processors but a few, where more is asked for than is needed."""


def _fetcher(typing: Any, rows: Any, place: Any) -> Any:
    """Ask for the line of the cache with number `place` of `rows`, counted in memory.

    It may lie beyond them: then nothing happens.
    """
    from numba import types  # only to compile

    return types.void(rows, types.uint64), _fetch


fetch = intrinsic(_fetcher)


def _fetch(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    (kind, _), (array, place) = signature.args, arguments
    data = context.make_array(kind)(context, builder, array).data
    byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
    form = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
    name = "llvm.prefetch.p0i8"
    ask = builder.module.globals.get(name) or ir.Function(builder.module, form, name)
    numbers = [ir.Constant(word, n) for n in (0, 3, 1)]
    builder.call(ask, [builder.bitcast(builder.gep(data, [place]), byte), *numbers])
    return context.get_dummy_value()


# exp and log as plain arithmetic, so that a loop over rows becomes vector instructions.
#
# A call of the C library for each number takes ten times as long. Each function is within one
# unit in the last place of the true value, and gives the same number in every place of a batch
# (there is no fused multiply-add in it). Methods: W. Cody and W. Waite, "Software Manual for the
# Elementary Functions" (1980), chapters 5 and 6; the coefficients of log are those of fdlibm
# (`e_log.c`).


_MAGIC = 6755399441055744.0
"""1.5 * 2^52: a number added to it is rounded to a whole one, which is then its last bits."""

_MAGIC_BITS = int(np.float64(_MAGIC).view(np.int64))
_LOG2_E = 1.0 / math.log(2.0)
_LN2_HIGH = float(np.int64(0x3FE62E42FEE00000).view(np.float64))
_LN2_LOW = 1.90821492927058770002e-10
_F = [float(Fraction(1, math.factorial(k))) for k in range(14)]
_E2, _E3, _E4, _E5, _E6, _E7, _E8, _E9, _E10, _E11, _E12, _E13 = _F[2:]
_HALF_SQRT = int(np.float64(math.sqrt(0.5)).view(np.int64))
_L1, _L2, _L3, _L4 = (
    0.666666666666673513,
    0.3999999999940941908,
    0.2857142874366239149,
    0.22222198432149784,
)
_L5, _L6, _L7 = 0.1818357216161805012, 0.1531383769920937332, 0.1479819860511658591


@called
def exponential(x: Any) -> Any:
    """exp(x) of a float64."""
    bound = min(max(x, -746.0), 710.0) if x == x else 0.0
    shifted = bound * _LOG2_E + _MAGIC
    k = np.float64(shifted).view(np.int64) - _MAGIC_BITS
    whole = shifted - _MAGIC
    r = (bound - whole * _LN2_HIGH) - whole * _LN2_LOW
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
    made = 1.0 + (r + (r * r) * q)
    # 2^k in two factors: the result may be subnormal, or infinite.
    half = k >> 1
    first = np.int64((half + 1023) << 52).view(np.float64)
    second = np.int64((k - half + 1023) << 52).view(np.float64)
    made = (made * first) * second
    return made if x == x else x


@called
def logarithm(x: Any, shift: Any) -> Any:
    """log(shift + x) of a float64, with shift 0 or 1, without losing the digits of a small x."""
    whole = shift + x
    lost = x - (whole - shift)
    tiny = whole < 2.2250738585072014e-308
    bits = np.float64(whole * 18014398509481984.0 if tiny else whole).view(np.int64)
    k = (bits - _HALF_SQRT) >> 52
    f = np.int64(bits - (k << 52)).view(np.float64) - 1.0
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    odd = w * (_L2 + w * (_L4 + w * _L6))
    even = z * (_L1 + w * (_L3 + w * (_L5 + w * _L7)))
    half = 0.5 * f * f
    e = np.float64(k) - (54.0 if tiny else 0.0)
    made: Any = e * _LN2_HIGH - ((half - (s * (half + (odd + even)) + e * _LN2_LOW)) - f)
    made = made + lost / whole
    made = made if whole < np.inf else whole
    made = made if whole > 0.0 else np.nan
    return made if whole != 0.0 else -np.inf


# `turn`: 8 rows of 8 columns that lie side by side, written as 8 columns of 8 rows.
#
# A loop over single numbers takes a load, a conversion and a store for each. Here 8 vectors are
# loaded, interleaved three times (r[i] with r[i + 4], which turns a square of 8 by 8) and stored.


SIDE = 8
"""Rows and columns of a square."""


def _turner(
    typing: Any, rows: Any, place: Any, width: Any, turned: Any, start: Any, step: Any
) -> Any:
    """Write numbers of rows (flat, `width` long each) from `place` on, as wide or wider ones.

    Row r and column c of the square go to turned[start + c * step + r].
    """
    from numba import types  # only to compile

    signature = types.void(rows, types.uint64, types.uint64, turned, types.uint64, types.uint64)
    return signature, _generate


turn = intrinsic(_turner)


def _generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    kinds = signature.args
    number = context.get_data_type(kinds[0].dtype)
    made = context.get_data_type(kinds[3].dtype)

    def data(i: int) -> Any:
        return context.make_array(kinds[i])(context, builder, arguments[i]).data

    source, target = data(0), data(3)
    place, width, start, step = (arguments[i] for i in (1, 2, 4, 5))
    vector = ir.VectorType(number, SIDE)
    long = ir.IntType(64)
    held = []
    for r in range(SIDE):
        at = builder.add(place, builder.mul(width, ir.Constant(long, r)))
        pointer = builder.bitcast(builder.gep(source, [at]), vector.as_pointer())
        held.append(builder.load(pointer, align=kinds[0].dtype.bitwidth // 8))
    half = SIDE // 2
    low = [i // 2 + (i % 2) * SIDE for i in range(SIDE)]
    masks = [
        ir.Constant(ir.VectorType(ir.IntType(32), SIDE), mask)
        for mask in (low, [i + half for i in low])
    ]
    for _ in range(SIDE.bit_length() - 1):
        held = [
            builder.shuffle_vector(held[i], held[i + half], mask)
            for i in range(half)
            for mask in masks
        ]
    wide = ir.VectorType(made, SIDE)
    for c, column in enumerate(held):
        value = column if number == made else builder.fpext(column, wide)
        at = builder.add(start, builder.mul(step, ir.Constant(long, c)))
        pointer = builder.bitcast(builder.gep(target, [at]), wide.as_pointer())
        builder.store(value, pointer, align=kinds[3].dtype.bitwidth // 8)
    return context.get_dummy_value()


OPCODES = (
    *("sum", "mul", "div", "maximum", "compare", "where", "sqrt", "exp", "log"),
    *("check", "linear", "sqeuclidean", "single", "take", "whole"),
)
"""Names of the instructions by their numbers."""

FIELDS = 10
"""Of an instruction: its number, how often it runs, a, b, c and result with their steps.

After each time a register moves on by its step. `check`, `compare`, `sum` and `take` have k for c.
The columns of `linear` and `sqeuclidean` are listed from a on, as many as its step says, a multiple
of LISTED; their numbers begin at b, the biases at c, and they run once for each result.
"""

LISTED = 3
"""Columns that one loop adds up: with more, LLVM would have to compare too many addresses."""

AHEAD = 64
"""Rows that are asked for before they are read: those of the next block, at its end."""

PAD = 8
"""Numbers between registers: their distance must not be a power of 2, which caches dislike."""

_U = np.uint64
_LIMIT = 2.0**63


def _run(
    single: Any, double: Any, code: Any, columns: Any, numbers: Any, shape: Any, out: Any
) -> Any:
    """Fill `out`; -1, or the first row of a block in which a check fails.

    Args:
        single, double: the rows one after the other, (n * k,): one of them, the other is empty.
        columns: registers that instructions list; the first are the columns of the rows that
            registers 0, 1 .. hold, then the registers of the results.
        numbers: the constants' values first, then weights and points.
        shape: how many columns are read, constants, registers, rows per block, results, whether
            these are integers, and how many columns there are.
        out: (n * results,); int64 is written as its bits.
    """
    inputs, constants, results, whole = shape[0], shape[1], shape[4], shape[5]
    rows, width = out.size // results, shape[6]
    size = max(min(shape[3], rows), 1)
    step = _U(size + PAD)
    # Unsigned, so that no index is tested for being negative.
    room = np.empty((shape[2] + 1) * (size + PAD) + 8)
    # Vectors that lie across two lines of the cache take twice as long.
    v = room[(-(room.ctypes.data >> 3)) & 7 :]
    scrap = _U(shape[2]) * step
    for k in range(constants):
        at = _U(inputs + k) * step
        for r in range(_U(size)):
            v[at + r] = numbers[k]
    starts = np.empty(results, np.uint64)
    for k in range(results):
        starts[k] = _U(columns[inputs + k]) * step
    together = inputs >= SIDE
    for k in range(1, inputs):
        together = together and columns[k] == columns[0] + k
    first_column = _U(columns[0]) if together else _U(0)
    for first in range(0, rows, size):
        here = min(size, rows - first)
        n = _U(here)
        at = _U(first) * _U(width)
        turned = n - n % _U(SIDE) if together else _U(0)
        for row in range(_U(0), turned, _U(SIDE)):
            ahead = at + (row + _U(AHEAD)) * _U(width)
            for line in range(_U(0), _U(SIDE * width), _U(16)):
                if single.size:
                    fetch(single, ahead + line)
                else:
                    fetch(double, ahead + line)
                    fetch(double, ahead + line + _U(8))
            for k in range(0, inputs, SIDE):
                column = _U(min(k, inputs - SIDE))  # the last square may overlap the one before
                here_in = at + row * _U(width) + first_column + column
                if single.size:
                    turn(single, here_in, _U(width), v, column * step + row, step)
                else:
                    turn(double, here_in, _U(width), v, column * step + row, step)
        at += turned * _U(width)
        for row in range(turned, n):
            for k in range(_U(inputs)):
                from_ = at + _U(columns[k])
                v[k * step + row] = single[from_] if single.size else double[from_]
            at += _U(width)
        for i in range(code.shape[0]):
            what = code[i, 0]
            for j in range(code[i, 1]):
                p = code[i, 2] + j * code[i, 3]
                q = code[i, 4] + j * code[i, 5]
                k = code[i, 6] + j * code[i, 7]
                a, b, c = _U(p) * step, _U(q) * step, _U(k) * step
                o = _U(code[i, 8] + j * code[i, 9]) * step
                if what == 0:
                    factor = numbers[k]
                    for r in range(n):
                        v[o + r] = v[a + r] + v[b + r] * factor
                elif what == 1:
                    for r in range(n):
                        v[o + r] = v[a + r] * v[b + r]
                elif what == 2:
                    for r in range(n):
                        v[o + r] = v[a + r] / v[b + r]
                elif what == 3:
                    for r in range(n):
                        x, y = v[a + r], v[b + r]
                        v[o + r] = x if x >= y or x != x else y
                elif what == 4:
                    above, equal = numbers[k], numbers[k + 1]
                    for r in range(n):
                        x, y = v[a + r], v[b + r]
                        v[o + r] = above if x > y else equal if x == y else 0.0
                elif what == 5:
                    for r in range(n):
                        x, y = v[b + r], v[c + r]
                        v[o + r] = x if v[a + r] != 0.0 else y
                elif what == 6:
                    for r in range(n):
                        v[o + r] = np.sqrt(v[a + r])
                elif what == 7:
                    for r in range(n):
                        v[o + r] = exponential(v[a + r])
                elif what == 8:
                    shift = v[b]
                    for r in range(n):
                        v[o + r] = logarithm(v[a + r], shift)
                elif what == 9:
                    low, high, nan = numbers[k], numbers[k + 1], numbers[k + 2]
                    bad = 0
                    for r in range(n):
                        x = v[a + r]
                        if not ((x >= low and x <= high) or (x != x and nan > 0.0)):
                            bad += 1
                    if bad:
                        return first
                elif what == 12:
                    for r in range(n):
                        v[o + r] = np.float32(v[a + r])
                elif what == 13:
                    count = numbers[k]
                    for r in range(n):
                        x = v[a + r]
                        held = x >= 0.0 and x < count
                        v[o + r] = numbers[k + 1 + np.int64(x)] if held else 0.0
                elif what == 14:
                    for r in range(n):
                        x = v[a + r]
                        v[o + r] = np.trunc(x) if np.abs(x) < _LIMIT else -_LIMIT
                elif j % 2 == 0:
                    # Two results at once, as long as there are two, share what they read.
                    listed, count = code[i, 2], code[i, 3]
                    two = j + 1 < code[i, 1]
                    o2 = _U(code[i, 8] + (j + 1) * code[i, 9]) * step if two else scrap
                    w = code[i, 4] + j * count
                    w2 = w + count if two else w
                    for r in range(n):
                        v[o + r] = 0.0
                    for r in range(n):
                        v[o2 + r] = 0.0
                    m = 0
                    while m < count:
                        t = listed + m
                        a, e, e2 = _U(columns[t]) * step, numbers[w + m], numbers[w2 + m]
                        b, f = _U(columns[t + 1]) * step, numbers[w + m + 1]
                        c, g = _U(columns[t + 2]) * step, numbers[w + m + 2]
                        f2, g2 = numbers[w2 + m + 1], numbers[w2 + m + 2]
                        if what == 10:
                            for r in range(n):
                                x, y, z = v[a + r], v[b + r], v[c + r]
                                v[o + r] = ((v[o + r] + x * e) + y * f) + z * g
                                v[o2 + r] = ((v[o2 + r] + x * e2) + y * f2) + z * g2
                        else:
                            for r in range(n):
                                x, y, z = v[a + r], v[b + r], v[c + r]
                                s = v[o + r] + (x - e) * (x - e)
                                s = s + (y - f) * (y - f)
                                v[o + r] = s + (z - g) * (z - g)
                                s = v[o2 + r] + (x - e2) * (x - e2)
                                s = s + (y - f2) * (y - f2)
                                v[o2 + r] = s + (z - g2) * (z - g2)
                        m += LISTED
                    if what == 10:
                        bias, bias2 = numbers[k], numbers[k + code[i, 7] if two else k]
                        for r in range(n):
                            v[o + r] += bias
                            v[o2 + r] += bias2
        at = _U(first) * _U(results)
        for row in range(n):
            if whole:
                for k in range(_U(results)):
                    whole_number = np.int64(v[starts[k] + row])
                    out[at + k] = whole_number.view(
                        np.float64
                    )  # a view of all takes 0.2 s to compile
            else:
                for k in range(_U(results)):
                    out[at + k] = v[starts[k] + row]
            at += _U(results)
    return -1


def machine() -> Callable[..., Any]:
    """The machine's code for this processor; see `_run`."""
    return specialise(
        _run,
        (
            reads(np.float32, 1, "C"),
            reads(np.float64, 1, "C"),
            reads(np.int64, 2, "C"),
            reads(np.int64, 1, "C"),
            reads(np.float64, 1, "C"),
            reads(np.int64, 1, "C"),
            writes(np.float64, 1),
        ),
    )
