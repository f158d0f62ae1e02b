"""`Assembler`: write bytecode for `register_machine.py`, and allocate its registers.

While code is written, each instruction writes a new register, and equal instructions are written
once. `finish` reuses registers that are no longer read, and merges adjacent instructions that
differ only by a step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from types import MappingProxyType

import numpy as np

from sqlml.backends.native.vm.register_machine import FIELDS, OPCODES
from sqlml.types import Array

OPS: Mapping[str, int] = MappingProxyType({name: i for i, name in enumerate(OPCODES)})
LISTS = frozenset({OPS["linear"], OPS["sqeuclidean"]})
NUMBERED = frozenset({OPS["sum"], OPS["compare"], OPS["check"], OPS["take"], *LISTS})
"""Instructions whose field c is the index of a number, not a register."""

_ONE_HOT = 1 << 40
"""The first number that stands for a one-hot column."""

MOST_REGISTERS = 4096
MOST_INSTRUCTIONS = 8192

BLOCK_BYTES = 160 << 10
"""Memory of a block's registers: they stay in the second-level cache."""

MOST_ROWS, FEWEST_ROWS, ROWS_STEP = 128, 32, 32
"""Rows of a block: multiples of the rows that an unrolled loop of vector instructions processes."""


class TooLargeError(Exception):
    """A Program needs too many registers or instructions."""


@dataclass(frozen=True, slots=True)
class Code:
    """Arguments of the machine; see `register_machine._run`."""

    code: Array
    columns: Array
    numbers: Array
    shape: Array


@dataclass(frozen=True, slots=True)
class OneHot:
    """A column that is 1 where the code in register `code` is `place`, of `count`; else 0."""

    code: int
    place: int
    count: int


class Assembler:
    """Writes instructions.

    Registers from 0 up are inputs and then results; those from -1 down are constants. A one-hot
    column has a number that stands for a register, which is only written on demand.
    """

    def __init__(self, inputs: int) -> None:
        self.inputs = inputs
        self._next_register = inputs
        self._constants: dict[float | str, int] = {}
        self._numbers: list[Array] = []
        self._stored = 0
        self._places: dict[tuple[float, ...], int] = {}
        self._lists: dict[tuple[int, ...], int] = {}
        self._code: list[tuple[int, int, int, int, int]] = []
        self._results: dict[tuple[int, int, int, int], int] = {}
        self._one_hot: dict[int, OneHot] = {}

    def constant(self, value: float) -> int:
        """Return the register that holds `value` in every row."""
        key = str(value) if value == 0 or value != value else value
        return -1 - self._constants.setdefault(key, len(self._constants))

    def store_numbers(self, *values: float) -> int:
        """Return the index of the first of some numbers."""
        if values not in self._places:
            self._places[values] = self.store(np.array(values, np.float64))
        return self._places[values]

    def store(self, values: Array) -> int:
        """Return the index of the first of an array of numbers."""
        self._numbers.append(np.ravel(values))
        self._stored += values.size
        return self._stored - values.size

    def make_one_hot(self, code: int, count: int) -> list[int]:
        """Return numbers that stand for columns that are 1 where a register is 0, 1, and so on."""
        first = _ONE_HOT + len(self._one_hot)
        self._one_hot.update({first + k: OneHot(code, k, count) for k in range(count)})
        return list(range(first, first + count))

    def find_one_hot(self, register: int) -> OneHot | None:
        return self._one_hot.get(register)

    def emit_take(self, code: int, values: Sequence[float]) -> int:
        """Return the register with values[code]; 0 for a code out of range."""
        return self._write(OPS["take"], code, 0, self.store_numbers(float(len(values)), *values))

    def resolve(self, number: int) -> int:
        """Return the register that a number stands for."""
        column = self._one_hot.get(number)
        if column is None:
            return number
        index = self.store_numbers(0.0, 1.0)
        return self._write(OPS["compare"], column.code, self.constant(float(column.place)), index)

    def emit(self, op: str, a: int, b: int = 0, c: int = 0) -> int:
        """Return the register that an instruction writes; c may be the index of a number."""
        third = c if OPS[op] in NUMBERED else self.resolve(c)
        return self._write(OPS[op], self.resolve(a), self.resolve(b), third)

    def emit_list(self, op: str, columns: Sequence[int], b: int, c: int) -> int:
        """Return the register that an instruction writes from listed registers and numbers."""
        columns = list(map(self.resolve, columns))
        list_index = self._lists.setdefault(tuple(columns), len(self._lists))
        return self._write(OPS[op], list_index, b, c)

    def _write(self, op: int, a: int, b: int, c: int) -> int:
        register = self._results.get((op, a, b, c))
        if register is not None:
            return register
        register = 0
        if op != OPS["check"]:
            register, self._next_register = self._next_register, self._next_register + 1
        self._results[op, a, b, c] = register
        self._code.append((op, a, b, c, register))
        if len(self._code) > MOST_INSTRUCTIONS:
            raise TooLargeError
        return register

    def finish(self, inputs: Sequence[int], results: Sequence[int], is_integer: bool) -> Code:
        """Return the code; `inputs` are columns of rows, `results` registers."""
        results = list(map(self.resolve, results))
        lists = list(self._lists)
        self._code = self._drop_unused(lists, results)
        constants = len(self._constants)
        allocation, registers = self._allocate_registers(lists, results)
        columns = [*inputs, *(allocation[r] for r in results)]
        list_starts, list_sizes = [], []
        read = {a for op, a, _, _, _ in self._code if op in LISTS}
        for number, registers_of_list in enumerate(lists):
            # Registers that only dropped instructions read are not allocated.
            registers_read = registers_of_list if number in read else ()
            list_starts.append(len(columns))
            list_sizes.append(len(registers_read))
            columns += [allocation[r] for r in registers_read]
        rows: list[list[int]] = []
        for op, a, b, c, out in self._code:
            third = c + constants if op in NUMBERED else allocation.get(c, 0)
            if op in LISTS:
                row = [op, 1, list_starts[a], list_sizes[a], b + constants, 0, third, 0]
            else:
                row = [op, 1, allocation[a], 0, allocation.get(b, 0), 0, third, 0]
            rows.append([*row, allocation.get(out, 0), 0])
        rows = _merge_steps(rows)
        size = BLOCK_BYTES // (8 * registers) // ROWS_STEP * ROWS_STEP
        values = [float(key) for key in self._constants]
        block_rows = int(np.clip(size, FEWEST_ROWS, MOST_ROWS))
        shape = (constants, registers, block_rows, len(results), is_integer)
        return Code(
            np.array(rows, np.int64).reshape(-1, FIELDS),
            np.array(columns, np.int64),
            np.concatenate([np.array(values), *self._numbers]).astype(np.float64),
            np.array([self.inputs, *shape, self.inputs], np.int64),
        )

    def _drop_unused(
        self, lists: Sequence[tuple[int, ...]], results: Sequence[int]
    ) -> list[tuple[int, int, int, int, int]]:
        """Return the code without instructions whose results nobody reads.

        The machine writes two results of a list at once, so neither may share the other's register:
        a register that nobody reads would be free for the next result.
        """
        read = set(results)
        used = []
        for i in range(len(self._code) - 1, -1, -1):
            op, *_, out = self._code[i]
            if op == OPS["check"] or out in read:
                used.append(self._code[i])
                read.update(self._list_operands(i, lists))
        return used[::-1]

    def _allocate_registers(
        self, lists: Sequence[tuple[int, ...]], results: Sequence[int]
    ) -> tuple[dict[int, int], int]:
        """Return the machine's register for each of ours, and how many there are."""
        last_reads = dict.fromkeys(results, len(self._code))
        for i in range(len(self._code) - 1, -1, -1):
            for register in self._list_operands(i, lists):
                last_reads.setdefault(register, i)
        allocation = {r: r for r in range(self.inputs)}
        allocation.update({-1 - k: self.inputs + k for k in range(len(self._constants))})
        count = len(allocation)
        free: list[int] = [r for r in range(self.inputs) if r not in last_reads]
        for i, (op, *_, out) in enumerate(self._code):
            if op != OPS["check"]:
                # Allocate before operands are freed: overwriting what a loop reads is slow.
                if not free:
                    heappush(free, count)
                    count += 1
                allocation[out] = heappop(free)
            for register in set(self._list_operands(i, lists)):
                if register >= 0 and last_reads[register] == i:
                    heappush(free, allocation[register])
        if count > MOST_REGISTERS:
            raise TooLargeError
        return allocation, max(count, 1)

    def _list_operands(self, i: int, lists: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        op, a, b, c, _ = self._code[i]
        if op in LISTS:
            return lists[a]
        if op == OPS["check"]:
            return (a,)
        return (a, b) if op in NUMBERED else (a, b, c)


def _merge_steps(rows: list[list[int]]) -> list[list[int]]:
    """Merge adjacent instructions with equal distances between their fields into one with steps."""
    merged: list[list[int]] = []
    for row in rows:
        if not merged or not _try_merge(merged[-1], row):
            merged.append(row)
    return merged


def _try_merge(before: list[int], row: list[int]) -> bool:
    """Extend `before` by `row` if that is its next step; return whether it is."""
    if before[0] != row[0]:
        return False
    count = before[1]
    is_list = row[0] in LISTS
    steps = {}
    for field in (2, 4, 6, 8):
        gap = row[field] - before[field]
        if is_list and field == 2:
            if gap or row[3] != before[3]:
                return False
        elif is_list and field == 4:
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


# Functions of registers that the machine has no instruction for.


def add(asm: Assembler, a: int, b: int, factor: float = 1.0) -> int:
    """Return a + b * factor, with a factor whose products are exact, such as 1 and -1."""
    return asm.emit("sum", a, b, asm.store_numbers(factor))


def compare(asm: Assembler, a: int, b: int, above: float, equal: float) -> int:
    """Return `above` where a > b, `equal` where a = b, else 0."""
    return asm.emit("compare", a, b, asm.store_numbers(above, equal))


def negative(asm: Assembler, a: int) -> int:
    return asm.emit("mul", a, asm.constant(-1.0))


def absolute(asm: Assembler, a: int) -> int:
    # The sum turns -0 into 0.
    return add(asm, asm.emit("maximum", a, negative(asm, a)), asm.constant(0.0))


def minimum(asm: Assembler, a: int, b: int) -> int:
    """Return the smaller of both, NaN where one is."""
    return negative(asm, asm.emit("maximum", negative(asm, a), negative(asm, b)))


def negation(asm: Assembler, a: int) -> int:
    """Return 1 - a, for a of 0 or 1."""
    return add(asm, asm.constant(1.0), a, -1.0)


def sum_registers(asm: Assembler, x: Sequence[int]) -> int:
    """Return a sum in numpy's order: eight sums of every eighth number, halved from 128 on."""
    n = len(x)
    if n > 128:
        half = n // 2 - n // 2 % 8
        return add(asm, sum_registers(asm, x[:half]), sum_registers(asm, x[half:]))
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
    """Return the maximum of registers, NaN where one is."""
    maximum = x[0]
    for register in x[1:]:
        maximum = asm.emit("maximum", maximum, register)
    return maximum


def smallest(asm: Assembler, x: Sequence[int]) -> int:
    """Return the minimum of registers, NaN where one is."""
    return negative(asm, largest(asm, [negative(asm, r) for r in x]))


def argmax(asm: Assembler, x: Sequence[int]) -> int:
    """Return the index of the first maximum or NaN, searched from the last column down."""
    index, best = asm.constant(float(len(x) - 1)), x[-1]
    for j in range(len(x) - 2, -1, -1):
        best = asm.emit("maximum", x[j], best)
        index = asm.emit("where", _is_maximum(asm, x[j], best), asm.constant(float(j)), index)
    return index


def _is_maximum(asm: Assembler, x: int, best: int) -> int:
    """Return 1 if x equals the maximum or is itself NaN. (A NaN maximum is of a later column.)"""
    equal = compare(asm, x, best, 0.0, 1.0)
    number = compare(asm, x, x, 0.0, 1.0)
    return asm.emit("where", number, equal, asm.constant(1.0))


# The sigmoid, XGBoost's sigmoid of float32, tanh and expm1.

_P = (-0.964399179425052238628, -99.2877231001918586564, -1614.68768441708447952)
_Q = (112.811678491632931402, 2235.48839060100448583, 4844.06305325125486048)
"""Coefficients of `tanh.c` of Cephes."""

_TAYLOR = tuple(1.0 / math.factorial(k) for k in range(20, 1, -1))
"""Coefficients of exp, from the 20th power down to the second."""


def sigmoid(asm: Assembler, a: int) -> int:
    one = asm.constant(1.0)
    return asm.emit("div", one, add(asm, one, asm.emit("exp", negative(asm, a))))


def single_sigmoid(asm: Assembler, a: int) -> int:
    """Return 1 / (1 + exp(-a)) with each step rounded to float32, as in XGBoost's common/math.h."""
    one = asm.constant(1.0)
    limited = minimum(asm, negative(asm, a), asm.constant(float(np.float32(88.7))))
    total = asm.emit("single", asm.emit("exp", limited))
    for number in (1.0, float(np.float32(1e-16))):
        total = asm.emit("single", add(asm, total, asm.constant(number)))
    return asm.emit("div", one, total)


def tanh(asm: Assembler, x: int) -> int:
    """Return tanh(x): from exp where |x| >= 0.625, else the quotient of polynomials of Cephes."""
    one, two, zero = asm.constant(1.0), asm.constant(2.0), asm.constant(0.0)
    size = absolute(asm, x)
    grown = asm.emit("exp", add(asm, size, size))
    large = add(asm, one, asm.emit("div", two, add(asm, grown, one)), -1.0)
    large = asm.emit("where", compare(asm, x, zero, 1.0, 1.0), large, negative(asm, large))
    z = asm.emit("mul", x, x)
    numerator = _polynomial(asm, z, _P)
    denominator = add(asm, z, asm.constant(_Q[0]))
    for number in _Q[1:]:
        denominator = add(asm, asm.emit("mul", denominator, z), asm.constant(number))
    share = asm.emit("div", asm.emit("mul", z, numerator), denominator)
    small = add(asm, x, asm.emit("mul", x, share))
    is_small = compare(asm, asm.constant(0.625), size, 1.0, 0.0)
    result = asm.emit("where", is_small, small, large)
    return asm.emit("where", compare(asm, x, x, 0.0, 1.0), result, x)


def expm1(asm: Assembler, x: int) -> int:
    """Return exp(x) - 1, from the Taylor series where |x| < 1.1."""
    rest = asm.emit("mul", asm.emit("mul", x, x), _polynomial(asm, x, _TAYLOR))
    large = add(asm, asm.emit("exp", x), asm.constant(1.0), -1.0)
    is_small = compare(asm, asm.constant(1.1), absolute(asm, x), 1.0, 0.0)
    return asm.emit("where", is_small, add(asm, x, rest), large)


def _polynomial(asm: Assembler, x: int, coefficients: Sequence[float]) -> int:
    """Return a polynomial; the coefficient of the highest power comes first."""
    value = asm.constant(coefficients[0])
    for number in coefficients[1:]:
        value = add(asm, asm.emit("mul", value, x), asm.constant(number))
    return value
