"""`Assembler`: instructions for `run.py`, and which of its registers hold what.

While they are written, each instruction makes its own register, and only once. `finish` gives
registers that nothing reads any more to others, and merges neighbouring instructions that differ
only by a step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from types import MappingProxyType

import numpy as np

from sqlml.backends.native.vm.run import FIELDS, OPCODES
from sqlml.types import Array

OPS: Mapping[str, int] = MappingProxyType({name: i for i, name in enumerate(OPCODES)})
LISTS = frozenset({OPS["linear"], OPS["sqeuclidean"]})
NUMBERED = frozenset({OPS["sum"], OPS["compare"], OPS["check"], OPS["take"], *LISTS})
"""Instructions whose field c is the place of a number, not a register."""

_ONE_HOT = 1 << 40
"""The first number that stands for a one-hot column."""

MOST_REGISTERS = 4096
MOST_INSTRUCTIONS = 8192

BLOCK_BYTES = 160 << 10
"""Memory of the registers of one block: they stay in the processor's second cache."""

MOST_ROWS, FEWEST_ROWS, ROWS_STEP = 128, 32, 32
"""Rows of a block: whole rounds of a loop whose vector instructions are unrolled."""


class TooLarge(Exception):
    """A Program that takes more registers or instructions than the machine shall have."""


@dataclass(frozen=True, slots=True)
class Code:
    """Arguments of the machine; see `run._run`."""

    code: Array
    columns: Array
    numbers: Array
    shape: Array


@dataclass(frozen=True, slots=True)
class OneHot:
    """1 where the code in a register is `place`, of `count`; else 0."""

    code: int
    place: int
    count: int


class Assembler:
    """Writes instructions. Registers are counted from 0, inputs first; constants' from -1 down.

    A one-hot column has a number that stands for a register, which is made if it must be.
    """

    def __init__(self, inputs: int) -> None:
        self.inputs = inputs
        self._made = inputs
        self._constants: dict[float | str, int] = {}
        self._numbers: list[Array] = []
        self._stored = 0
        self._places: dict[tuple[float, ...], int] = {}
        self._lists: dict[tuple[int, ...], int] = {}
        self._code: list[tuple[int, int, int, int, int]] = []
        self._known: dict[tuple[int, int, int, int], int] = {}
        self._one_hot: dict[int, OneHot] = {}

    def constant(self, value: float) -> int:
        """The register that holds `value` in every row."""
        key = str(value) if value == 0 or value != value else value
        return -1 - self._constants.setdefault(key, len(self._constants))

    def numbers(self, *values: float) -> int:
        """The place of the first of some numbers."""
        found = self._places.get(values)
        if found is None:
            found = self._places[values] = self.store(np.array(values, np.float64))
        return found

    def store(self, values: Array) -> int:
        """The place of the first of an array of numbers."""
        self._numbers.append(np.ravel(values))
        self._stored += values.size
        return self._stored - values.size

    def one_hot(self, code: int, count: int) -> list[int]:
        """What stands for the columns that are 1 where the code in a register is 0, 1, .."""
        first = _ONE_HOT + len(self._one_hot)
        self._one_hot.update({first + k: OneHot(code, k, count) for k in range(count)})
        return list(range(first, first + count))

    def one_hot_of(self, register: int) -> OneHot | None:
        """The one-hot column that a number stands for."""
        return self._one_hot.get(register)

    def take(self, code: int, values: Sequence[float]) -> int:
        """The register with the value at the place that a code says; 0 for another code."""
        return self._write(OPS["take"], code, 0, self.numbers(float(len(values)), *values))

    def register(self, number: int) -> int:
        """The register that a number stands for."""
        column = self._one_hot.get(number)
        if column is None:
            return number
        place = self.numbers(0.0, 1.0)
        return self._write(OPS["compare"], column.code, self.constant(float(column.place)), place)

    def emit(self, op: str, a: int, b: int = 0, c: int = 0) -> int:
        """The register that an instruction makes of registers, or of c as the place of a number."""
        third = c if OPS[op] in NUMBERED else self.register(c)
        return self._write(OPS[op], self.register(a), self.register(b), third)

    def emit_list(self, op: str, columns: Sequence[int], b: int, c: int) -> int:
        """The register that an instruction makes of listed registers and of numbers."""
        columns = list(map(self.register, columns))
        listed = self._lists.setdefault(tuple(columns), len(self._lists))
        return self._write(OPS[op], listed, b, c)

    def _write(self, op: int, a: int, b: int, c: int) -> int:
        known = self._known.get((op, a, b, c))
        if known is not None:
            return known
        made = 0
        if op != OPS["check"]:
            made, self._made = self._made, self._made + 1
        self._known[op, a, b, c] = made
        self._code.append((op, a, b, c, made))
        if len(self._code) > MOST_INSTRUCTIONS:
            raise TooLarge
        return made

    def finish(self, inputs: Sequence[int], results: Sequence[int], whole: bool) -> Code:
        """All of it. `inputs` are columns of the rows; `results` registers, `whole` their kind."""
        results = list(map(self.register, results))
        lists = list(self._lists)
        self._code = self._needed(lists, results)
        constants = len(self._constants)
        place, registers = self._allocated(lists, results)
        columns = [*inputs, *(place[r] for r in results)]
        start, counts = [], []
        read = {a for op, a, _, _, _ in self._code if op in LISTS}
        for number, listed in enumerate(lists):
            # Registers that only instructions without use read have no place.
            registers_read = listed if number in read else ()
            start.append(len(columns))
            counts.append(len(registers_read))
            columns += [place[r] for r in registers_read]
        rows: list[list[int]] = []
        for op, a, b, c, out in self._code:
            third = c + constants if op in NUMBERED else place.get(c, 0)
            if op in LISTS:
                row = [op, 1, start[a], counts[a], b + constants, 0, third, 0]
            else:
                row = [op, 1, place[a], 0, place.get(b, 0), 0, third, 0]
            rows.append([*row, place.get(out, 0), 0])
        rows = _merged(rows)
        size = BLOCK_BYTES // (8 * registers) // ROWS_STEP * ROWS_STEP
        values = [float(key) for key in self._constants]
        return Code(
            np.array(rows, np.int64).reshape(-1, FIELDS),
            np.array(columns, np.int64),
            np.concatenate([np.array(values), *self._numbers]).astype(np.float64),
            np.array(
                [
                    self.inputs,
                    constants,
                    registers,
                    int(np.clip(size, FEWEST_ROWS, MOST_ROWS)),
                    len(results),
                    whole,
                    self.inputs,
                ],
                np.int64,
            ),
        )

    def _needed(
        self, lists: Sequence[tuple[int, ...]], results: Sequence[int]
    ) -> list[tuple[int, int, int, int, int]]:
        """The code without what nobody reads.

        The machine makes two results of a list at once, so neither may lie where the other does:
        a register that nobody reads would be free for the next one.
        """
        read = set(results)
        kept = []
        for i in range(len(self._code) - 1, -1, -1):
            op, *_, out = self._code[i]
            if op == OPS["check"] or out in read:
                kept.append(self._code[i])
                read.update(self._reads(i, lists))
        return kept[::-1]

    def _allocated(
        self, lists: Sequence[tuple[int, ...]], results: Sequence[int]
    ) -> tuple[dict[int, int], int]:
        """The machine's register for each of ours, and how many it needs."""
        last = dict.fromkeys(results, len(self._code))
        for i in range(len(self._code) - 1, -1, -1):
            for register in self._reads(i, lists):
                last.setdefault(register, i)
        place = {r: r for r in range(self.inputs)}
        place.update({-1 - k: self.inputs + k for k in range(len(self._constants))})
        count = len(place)
        free: list[int] = [r for r in range(self.inputs) if r not in last]
        for i, (op, *_, out) in enumerate(self._code):
            if op != OPS["check"]:
                # Before its operands are free: loops that write over what they read are slow.
                if not free:
                    heappush(free, count)
                    count += 1
                place[out] = heappop(free)
            for register in set(self._reads(i, lists)):
                if register >= 0 and last[register] == i:
                    heappush(free, place[register])
        if count > MOST_REGISTERS:
            raise TooLarge
        return place, max(count, 1)

    def _reads(self, i: int, lists: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        op, a, b, c, _ = self._code[i]
        if op in LISTS:
            return lists[a]
        if op == OPS["check"]:
            return (a,)
        return (a, b) if op in NUMBERED else (a, b, c)


def _merged(rows: list[list[int]]) -> list[list[int]]:
    """Neighbours with equal distances between their fields as one instruction with steps."""
    made: list[list[int]] = []
    for row in rows:
        if made and _continues(made[-1], row):
            continue
        made.append(row)
    return made


def _continues(before: list[int], row: list[int]) -> bool:
    """Whether `row` is the next time of `before`, which is changed to say so."""
    if before[0] != row[0]:
        return False
    count = before[1]
    lists = row[0] in LISTS
    steps = {}
    for field in (2, 4, 6, 8):
        gap = row[field] - before[field]
        if lists and field == 2:
            if gap or row[3] != before[3]:
                return False
        elif lists and field == 4:
            if gap != count * row[3]:
                return False
        elif count == 1:
            steps[field + 1] = gap
        elif gap != count * before[field + 1]:
            return False
    before[1] += 1
    for field, gap in steps.items():
        before[field] = gap
    return True


# Functions of registers that the machine has no instruction for, composed of those it has.


def add(asm: Assembler, a: int, b: int, factor: float = 1.0) -> int:
    """a + b * factor, with a factor whose products are exact, such as 1 and -1."""
    return asm.emit("sum", a, b, asm.numbers(factor))


def compare(asm: Assembler, a: int, b: int, above: float, equal: float) -> int:
    """`above` where a > b, `equal` where a = b, else 0."""
    return asm.emit("compare", a, b, asm.numbers(above, equal))


def negative(asm: Assembler, a: int) -> int:
    """-a."""
    return asm.emit("mul", a, asm.constant(-1.0))


def absolute(asm: Assembler, a: int) -> int:
    """|a|."""
    # The sum makes 0 of -0.
    return add(asm, asm.emit("maximum", a, negative(asm, a)), asm.constant(0.0))


def minimum(asm: Assembler, a: int, b: int) -> int:
    """The smaller of both, NaN where one is."""
    return negative(asm, asm.emit("maximum", negative(asm, a), negative(asm, b)))


def negation(asm: Assembler, a: int) -> int:
    """1 - a, of 0 or 1."""
    return add(asm, asm.constant(1.0), a, -1.0)


def summed(asm: Assembler, x: Sequence[int]) -> int:
    """A sum in numpy's order: eight sums of every eighth number, from 128 on by halves."""
    n = len(x)
    if n > 128:
        half = n // 2 - n // 2 % 8
        return add(asm, summed(asm, x[:half]), summed(asm, x[half:]))
    lanes, rest = (list(x[:8]), x[n - n % 8 :]) if n >= 8 else ([x[0]], x[1:])
    if n >= 8:
        for i in range(8, n - n % 8):
            lanes[i % 8] = add(asm, lanes[i % 8], x[i])
        while len(lanes) > 1:
            lanes = [add(asm, lanes[i], lanes[i + 1]) for i in range(0, len(lanes), 2)]
    total = lanes[0]
    for number in rest:
        total = add(asm, total, number)
    return total


def largest(asm: Assembler, x: Sequence[int]) -> int:
    """The maximum of registers, NaN where one is."""
    made = x[0]
    for register in x[1:]:
        made = asm.emit("maximum", made, register)
    return made


def smallest(asm: Assembler, x: Sequence[int]) -> int:
    """The minimum of registers, NaN where one is."""
    return negative(asm, largest(asm, [negative(asm, r) for r in x]))


def argmax(asm: Assembler, x: Sequence[int]) -> int:
    """From the last column down: each that is not below the largest after it, or is NaN."""
    at, best = asm.constant(float(len(x) - 1)), x[-1]
    for j in range(len(x) - 2, -1, -1):
        best = asm.emit("maximum", x[j], best)
        at = asm.emit("where", _same(asm, x[j], best), asm.constant(float(j)), at)
    return at


def _same(asm: Assembler, x: int, best: int) -> int:
    """Whether x is the maximum: equal to it, or itself NaN. (A NaN best is of a later column.)"""
    equal = compare(asm, x, best, 0.0, 1.0)
    number = compare(asm, x, x, 0.0, 1.0)
    return asm.emit("where", number, equal, asm.constant(1.0))


# The sigmoid, XGBoost's own of float32, tanh and expm1, composed of the machine's instructions.


_P = (-0.964399179425052238628, -99.2877231001918586564, -1614.68768441708447952)
_Q = (112.811678491632931402, 2235.48839060100448583, 4844.06305325125486048)
"""Coefficients of `tanh.c` of Cephes."""

_TAYLOR = tuple(1.0 / math.factorial(k) for k in range(20, 1, -1))
"""Of exp: the coefficients from the 20th power down to the second."""


def sigmoid(asm: Assembler, a: int) -> int:
    """1 / (1 + exp(-a))."""
    one = asm.constant(1.0)
    return asm.emit("div", one, add(asm, one, asm.emit("exp", negative(asm, a))))


def single_sigmoid(asm: Assembler, a: int) -> int:
    """1 / (1 + exp(-a)) of a float32, each step rounded to one, as XGBoost does (common/math.h)."""
    one = asm.constant(1.0)
    limited = minimum(asm, negative(asm, a), asm.constant(float(np.float32(88.7))))
    made = asm.emit("single", asm.emit("exp", limited))
    for number in (1.0, float(np.float32(1e-16))):
        made = asm.emit("single", add(asm, made, asm.constant(number)))
    return asm.emit("div", one, made)


def tanh(asm: Assembler, x: int) -> int:
    """From exp where |x| >= 0.625, else the quotient of polynomials of Cephes (`tanh.c`)."""
    one, two, zero = asm.constant(1.0), asm.constant(2.0), asm.constant(0.0)
    size = absolute(asm, x)
    grown = asm.emit("exp", add(asm, size, size))
    large = add(asm, one, asm.emit("div", two, add(asm, grown, one)), -1.0)
    large = asm.emit("where", compare(asm, x, zero, 1.0, 1.0), large, negative(asm, large))
    z = asm.emit("mul", x, x)
    above = _polynomial(asm, z, _P)
    below = add(asm, z, asm.constant(_Q[0]))
    for number in _Q[1:]:
        below = add(asm, asm.emit("mul", below, z), asm.constant(number))
    share = asm.emit("div", asm.emit("mul", z, above), below)
    small = add(asm, x, asm.emit("mul", x, share))
    is_small = compare(asm, asm.constant(0.625), size, 1.0, 0.0)
    made = asm.emit("where", is_small, small, large)
    return asm.emit("where", compare(asm, x, x, 0.0, 1.0), made, x)


def expm1(asm: Assembler, x: int) -> int:
    """exp(x) - 1, of Taylor's series where |x| < 1.1."""
    rest = asm.emit("mul", asm.emit("mul", x, x), _polynomial(asm, x, _TAYLOR))
    large = add(asm, asm.emit("exp", x), asm.constant(1.0), -1.0)
    is_small = compare(asm, asm.constant(1.1), absolute(asm, x), 1.0, 0.0)
    return asm.emit("where", is_small, add(asm, x, rest), large)


def _polynomial(asm: Assembler, x: int, coefficients: Sequence[float]) -> int:
    """The coefficient of the highest power comes first."""
    made = asm.constant(coefficients[0])
    for number in coefficients[1:]:
        made = add(asm, asm.emit("mul", made, x), asm.constant(number))
    return made
