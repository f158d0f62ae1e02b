"""A small machine for whole models other than trees: rows are lanes, columns are registers.

Vectorised interpretation (P. Boncz, M. Zukowski and N. Nes, "MonetDB/X100: Hyper-Pipelining Query
Execution", CIDR 2005). A block of rows is turned so that each column lies in one register of
float64, and each instruction works on whole registers: nothing but the rows and the results goes
through memory, and the machine is compiled once, for all models. Arithmetic is that of the
reference, operation by operation; `exp` and `log` are those of `exp_log.py`.

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

from collections.abc import Callable
from typing import Any

import numpy as np

from sqlml.backends.native.jit.specialise import reads, specialise, writes
from sqlml.backends.native.vm.exp_log import exponential, logarithm
from sqlml.backends.native.vm.prefetch import fetch
from sqlml.backends.native.vm.transpose import SIDE, turn

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
