"""`Assembler`: write bytecode for `register_machine.py`, and allocate its registers.

Each instruction first gets a new result register, and equal instructions are written only once.
`finish` then reuses registers that are no longer read, and merges adjacent instructions whose
fields differ by a constant step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from heapq import heappop, heappush
from types import MappingProxyType

import numpy as np

from sqlml.backends.native.vm.register_machine import FIELDS, OPCODES
from sqlml.backends.native.vm.table_rows import HEADER, SIDE
from sqlml.types import Array

OPS: Mapping[str, int] = MappingProxyType({name: i for i, name in enumerate(OPCODES)})
"""Maps the name of an instruction to the opcode."""
LIST_OPCODES = frozenset(
    OPS[name] for name in ("linear", "linear32", "sqeuclidean", "sqeuclidean32")
)
SINGLE_LIST_OPCODES = frozenset(OPS[name] for name in ("linear32", "sqeuclidean32"))
"""Instructions whose weights or points are float32, and whose field b counts float32 numbers."""
TABLE_OPCODES = frozenset(OPS[name] for name in ("add_rows", "add_rows32"))
NUMBER_OPCODES = frozenset(
    {*(OPS[name] for name in ("sum", "compare", "check", "take")), *LIST_OPCODES, *TABLE_OPCODES}
)
"""Instructions whose field c is the index of a number, not a register."""

_ONE_HOT = 1 << 40
"""The first register number of one-hot columns; see `Assembler.make_one_hot`."""

MAX_REGISTERS = 1 << 14
MAX_INSTRUCTIONS = 1 << 15

BLOCK_BYTES = 160 << 10
"""Bytes of a block's registers. They stay in the second-level cache."""

MOST_ROWS, FEWEST_ROWS, ROWS_STEP = 128, 32, 32
"""The most and fewest rows of a block. An unrolled loop processes ROWS_STEP rows at a time."""


class TooLargeError(Exception):
    """A Program needs too many registers or instructions."""


@dataclass(frozen=True, slots=True)
class VmCode:
    """The arguments of the VM; see `register_machine._run`."""

    code: Array
    columns: Array
    numbers: Array
    shape: Array


@dataclass(frozen=True, slots=True)
class OneHot:
    """A column that is 1 where register `code` (0 to `count` - 1) equals `place`, otherwise 0."""

    code: int
    place: int
    count: int


_TAYLOR = tuple(1.0 / math.factorial(k) for k in range(20, 1, -1))
"""Coefficients of exp, from the 20th power down to the second."""


class Assembler:
    """Writes instructions for rows with `inputs` columns.

    Registers 0 and up hold the inputs, followed by results. Registers -1 and down hold constants. A
    one-hot column has a separate number, and gets a register only if an instruction reads it.
    """

    def __init__(self, inputs: int) -> None:
        self.inputs = inputs
        self._next_register = inputs
        self._constants: dict[float | str, int] = {}
        self._numbers: list[Array] = []
        self._number_count = 0
        self._index_of_numbers: dict[tuple[float, ...], int] = {}
        self._index_of_tables: dict[tuple[object, ...], int] = {}
        self._lists: dict[tuple[int, ...], int] = {}
        self._instructions: list[tuple[int, int, int, int, int]] = []
        self._results: dict[tuple[int, int, int, int], int] = {}
        self._one_hot_columns: dict[int, OneHot] = {}

    def constant(self, value: float) -> int:
        """Return the register that holds `value` in every row."""
        key = str(value) if value == 0 or value != value else value
        return -1 - self._constants.setdefault(key, len(self._constants))

    def store_numbers(self, *values: float) -> int:
        """Store `values` unless already stored; return the index of the first value."""
        if values not in self._index_of_numbers:
            self._index_of_numbers[values] = self.store(np.array(values, np.float64))
        return self._index_of_numbers[values]

    def store(self, values: Array) -> int:
        """Store an array of numbers; return the index of the first number."""
        self._numbers.append(np.ravel(values))
        self._number_count += values.size
        return self._number_count - values.size

    def store_singles(self, values: Array) -> int:
        """Store float32 numbers in pairs; return the first's index, counted in float32 numbers."""
        pairs = np.append(np.ravel(values), np.zeros(values.size % 2)).astype(np.float32)
        return 2 * self.store(pairs.view(np.float64))

    def make_one_hot(self, code: int, count: int) -> list[int]:
        """Return register numbers of `count` columns; column k is 1 where register `code` is k."""
        first = _ONE_HOT + len(self._one_hot_columns)
        self._one_hot_columns.update({first + k: OneHot(code, k, count) for k in range(count)})
        return list(range(first, first + count))

    def find_one_hot(self, register: int) -> OneHot | None:
        """Return the one-hot column with the number `register`, or None if there is none."""
        return self._one_hot_columns.get(register)

    def emit_take(self, code: int, values: Sequence[float]) -> int:
        """Return a register that holds values[code], or 0 if `code` is out of range."""
        return self._write(OPS["take"], code, 0, self.store_numbers(float(len(values)), *values))

    def store_tables(self, tables: Sequence[Array], is_single: bool = False) -> int:
        """Store tables (rows, columns) with the same columns unless already stored.

        Return their index. If `is_single`, they are stored as float32.
        """
        digests = (sha256(table.tobytes()).digest() for table in tables)
        key = (is_single, *(table.shape for table in tables), *digests)
        if key not in self._index_of_tables:
            self._index_of_tables[key] = self._store_new_tables(tables, is_single)
        return self._index_of_tables[key]

    def _store_new_tables(self, tables: Sequence[Array], is_single: bool) -> int:
        width, first = tables[0].shape[1], HEADER + 2 * len(tables)
        sizes = [first * (2 if is_single else 1), *(table.size for table in tables)]
        *starts, zeros = np.cumsum(sizes).tolist()
        header = [float(width), float(zeros)]
        for start, table in zip(starts, tables, strict=True):
            header += [float(start), float(len(table))]
        numbers = np.concatenate([*map(np.ravel, tables), np.zeros(width + SIDE)])
        if not is_single:
            return self.store(np.concatenate([header, numbers]))
        pairs = np.append(numbers, np.zeros(numbers.size % 2)).astype(np.float32)
        return self.store(np.concatenate([header, pairs.view(np.float64)]))

    def emit_row_sums(
        self, codes: Sequence[int], tables: int, columns: int, is_single: bool = False
    ) -> list[int]:
        """Return a register for each column, with the sum of the rows that `codes` name.

        Each register of codes has one of the tables at the index `tables`. A code that is out of
        range has a row of zeros. If `is_single`, the tables and the sums are float32.
        """
        registers = tuple(map(self.resolve, codes))
        list_index = self._lists.setdefault(registers, len(self._lists))
        op = OPS["add_rows32" if is_single else "add_rows"]
        return [self._write(op, list_index, column, tables) for column in range(columns)]

    def resolve(self, number: int) -> int:
        """Return a readable register for `number`; emit the column if it is one-hot."""
        column = self._one_hot_columns.get(number)
        if column is None:
            return number
        index = self.store_numbers(0.0, 1.0)
        return self._write(OPS["compare"], column.code, self.constant(float(column.place)), index)

    def emit(self, op: str, a: int, b: int = 0, c: int = 0) -> int:
        """Write an instruction; return the result. For NUMBER_OPCODES, c is a number's index."""
        operand_c = c if OPS[op] in NUMBER_OPCODES else self.resolve(c)
        return self._write(OPS[op], self.resolve(a), self.resolve(b), operand_c)

    def emit_list(self, op: str, columns: Sequence[int], b: int, c: int) -> int:
        """Write `linear` or `sqeuclidean` over the registers `columns`; return the result register.

        `b` is the index of the first weight (`store_singles` in float32), and `c` is the index of
        the bias.
        """
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
        self._instructions.append((op, a, b, c, register))
        if len(self._instructions) > MAX_INSTRUCTIONS:
            raise TooLargeError
        return register

    def finish(self, inputs: Sequence[int], results: Sequence[int], is_integer: bool) -> VmCode:
        """Return code that reads the columns `inputs` and returns the registers `results`."""
        results = list(map(self.resolve, results))
        register_lists = list(self._lists)
        self._instructions = self._drop_unused(register_lists, results)
        constant_count = len(self._constants)
        allocation, register_count = self._allocate_registers(register_lists, results)
        columns = [*inputs, *(allocation[r] for r in results)]
        list_starts, list_sizes = [], []
        lists_read = {a for op, a, *_ in self._instructions if op in LIST_OPCODES | TABLE_OPCODES}
        for list_index, registers_of_list in enumerate(register_lists):
            # Registers that only dropped instructions read are not allocated.
            registers_read = registers_of_list if list_index in lists_read else ()
            list_starts.append(len(columns))
            list_sizes.append(len(registers_read))
            columns += [allocation[r] for r in registers_read]
        code_rows: list[list[int]] = []
        for op, a, b, c, out in self._instructions:
            operand_c = c + constant_count if op in NUMBER_OPCODES else allocation.get(c, 0)
            if op in LIST_OPCODES:
                operand_b = b + constant_count * (2 if op in SINGLE_LIST_OPCODES else 1)
                row = [op, 1, list_starts[a], list_sizes[a], operand_b, 0, operand_c, 0]
            elif op in TABLE_OPCODES:
                row = [op, 1, list_starts[a], list_sizes[a], b, 0, operand_c, 0]
            else:
                row = [op, 1, allocation[a], 0, allocation.get(b, 0), 0, operand_c, 0]
            code_rows.append([*row, allocation.get(out, 0), 0])
        code_rows = _merge_steps(code_rows)
        fitting_rows = BLOCK_BYTES // (8 * register_count) // ROWS_STEP * ROWS_STEP
        values = [float(key) for key in self._constants]
        block_rows = int(np.clip(fitting_rows, FEWEST_ROWS, MOST_ROWS))
        shape = (constant_count, register_count, block_rows, len(results), is_integer)
        return VmCode(
            np.array(code_rows, np.int64).reshape(-1, FIELDS),
            np.array(columns, np.int64),
            np.concatenate([np.array(values), *self._numbers]).astype(np.float64),
            np.array([self.inputs, *shape, self.inputs], np.int64),
        )

    def _drop_unused(
        self, register_lists: Sequence[tuple[int, ...]], results: Sequence[int]
    ) -> list[tuple[int, int, int, int, int]]:
        """Return the instructions whose results are read.

        `linear`, `sqeuclidean` and `add_rows` write several results at once. If one of them were
        never read, it could get the register of another.
        """
        registers_read = set(results)
        used_instructions = []
        for i in range(len(self._instructions) - 1, -1, -1):
            op, *_, out = self._instructions[i]
            if op == OPS["check"] or out in registers_read:
                used_instructions.append(self._instructions[i])
                registers_read.update(self._list_operands(i, register_lists))
        return used_instructions[::-1]

    def _allocate_registers(
        self, register_lists: Sequence[tuple[int, ...]], results: Sequence[int]
    ) -> tuple[dict[int, int], int]:
        """Map the assembler's registers to registers of the VM; also return their number."""
        last_reads = dict.fromkeys(results, len(self._instructions))
        for i in range(len(self._instructions) - 1, -1, -1):
            for register in self._list_operands(i, register_lists):
                last_reads.setdefault(register, i)
        allocation = {r: r for r in range(self.inputs)}
        allocation.update({-1 - k: self.inputs + k for k in range(len(self._constants))})
        register_count = len(allocation)
        free_registers: list[int] = [r for r in range(self.inputs) if r not in last_reads]
        for i, (op, *_, out) in enumerate(self._instructions):
            if op != OPS["check"]:
                # Allocate before operands are freed, since loops in place are slow.
                if not free_registers:
                    heappush(free_registers, register_count)
                    register_count += 1
                allocation[out] = heappop(free_registers)
            for register in set(self._list_operands(i, register_lists)):
                if register >= 0 and last_reads[register] == i:
                    heappush(free_registers, allocation[register])
        if register_count > MAX_REGISTERS:
            raise TooLargeError
        return allocation, max(register_count, 1)

    def _list_operands(self, i: int, register_lists: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        op, a, b, c, _ = self._instructions[i]
        if op in LIST_OPCODES | TABLE_OPCODES:
            return register_lists[a]
        if op == OPS["check"]:
            return (a,)
        return (a, b) if op in NUMBER_OPCODES else (a, b, c)

    # The following methods compose instructions. Arguments and results are registers.

    def add(self, a: int, b: int, factor: float = 1.0) -> int:
        """Return a + b * factor; the product must be exact, as for a factor of 1 or -1."""
        return self.emit("sum", a, b, self.store_numbers(factor))

    def compare(self, a: int, b: int, above: float, equal: float) -> int:
        """Return `above` where a > b, `equal` where a = b, otherwise 0."""
        return self.emit("compare", a, b, self.store_numbers(above, equal))

    def negative(self, a: int) -> int:
        return self.emit("mul", a, self.constant(-1.0))

    def absolute(self, a: int) -> int:
        # The sum turns -0 into 0.
        return self.add(self.emit("maximum", a, self.negative(a)), self.constant(0.0))

    def sign(self, a: int) -> int:
        """Return -1, 0 or 1, or NaN if a is NaN."""
        zero = self.constant(0.0)
        sign = self.add(self.compare(a, zero, 1.0, 0.0), self.compare(zero, a, 1.0, 0.0), -1.0)
        return self.emit("where", self.compare(a, a, 0.0, 1.0), sign, a)

    def truncated(self, a: int) -> int:
        """Return a rounded toward 0; "whole" keeps only numbers below 2^63, and these are whole."""
        is_small = self.compare(self.constant(2.0**53), self.absolute(a), 1.0, 0.0)
        return self.emit("where", is_small, self.emit("whole", a), a)

    def whole_int32(self, a: int) -> int:
        """Return a rounded toward 0, or -2^31 beyond the range of int32, as x86 processors do."""
        is_small = self.compare(self.constant(2.0**31), self.absolute(a), 1.0, 0.0)
        return self.emit("where", is_small, self.emit("whole", a), self.constant(-(2.0**31)))

    def minimum(self, a: int, b: int) -> int:
        """Return the smaller of a and b, or NaN if either is NaN."""
        return self.negative(self.emit("maximum", self.negative(a), self.negative(b)))

    def negation(self, a: int) -> int:
        """Return 1 - a, where a is 0 or 1."""
        return self.add(self.constant(1.0), a, -1.0)

    def sum_registers(self, x: Sequence[int], add: Callable[[int, int], int] | None = None) -> int:
        """Return the sum of registers, added in the order of `numpy.sum`.

        Each of eight partial sums adds every eighth number. More than 128 registers are first
        halved. `add` emits the sum of two registers (default: in float64).
        """
        add = add or self.add
        n = len(x)
        if n > 128:
            half = n // 2 - n // 2 % 8
            return add(self.sum_registers(x[:half], add), self.sum_registers(x[half:], add))
        lanes, remaining = (list(x[:8]), x[n - n % 8 :]) if n >= 8 else ([x[0]], x[1:])
        if n >= 8:
            for i in range(8, n - n % 8):
                lanes[i % 8] = add(lanes[i % 8], x[i])
            while len(lanes) > 1:
                lanes = [add(lanes[i], lanes[i + 1]) for i in range(0, len(lanes), 2)]
        total = lanes[0]
        for register in remaining:
            total = add(total, register)
        return total

    def largest(self, registers: Sequence[int]) -> int:
        """Return the maximum of registers, or NaN if any register is NaN."""
        maximum = registers[0]
        for register in registers[1:]:
            maximum = self.emit("maximum", maximum, register)
        return maximum

    def smallest(self, registers: Sequence[int]) -> int:
        """Return the minimum of registers, or NaN if any register is NaN."""
        return self.negative(self.largest([self.negative(r) for r in registers]))

    def argmax(self, x: Sequence[int]) -> int:
        """Return the index of the first NaN, or of the first maximum if there is no NaN."""
        index, best = self.constant(float(len(x) - 1)), x[-1]
        for j in range(len(x) - 2, -1, -1):
            best = self.emit("maximum", x[j], best)
            index = self.emit("where", self._is_maximum(x[j], best), self.constant(float(j)), index)
        return index

    def _is_maximum(self, x: int, best: int) -> int:
        """Return 1 where x equals `best` or x is NaN, otherwise 0, even if `best` is NaN."""
        is_equal = self.compare(x, best, 0.0, 1.0)
        is_number = self.compare(x, x, 0.0, 1.0)
        return self.emit("where", is_number, is_equal, self.constant(1.0))

    def sigmoid(self, a: int) -> int:
        one = self.constant(1.0)
        return self.emit("div", one, self.add(one, self.emit("exp", self.negative(a))))

    def single_sigmoid(self, a: int) -> int:
        """Return 1 / (1 + exp(-a)) as XGBoost's math.h does, rounded to float32 after each step."""
        one = self.constant(1.0)
        exponent = self.minimum(self.negative(a), self.constant(float(np.float32(88.7))))
        total = self.emit("single", self.emit("exp", exponent))
        for term in (1.0, float(np.float32(1e-16))):
            total = self.emit("single", self.add(total, self.constant(term)))
        return self.emit("div", one, total)

    def expm1(self, x: int) -> int:
        """Return exp(x) - 1, from the Taylor series where |x| < 1.1."""
        higher_terms = self.emit("mul", self.emit("mul", x, x), self._polynomial(x, _TAYLOR))
        large_result = self.add(self.emit("exp", x), self.constant(1.0), -1.0)
        is_small = self.compare(self.constant(1.1), self.absolute(x), 1.0, 0.0)
        return self.emit("where", is_small, self.add(x, higher_terms), large_result)

    def _polynomial(self, x: int, coefficients: Sequence[float]) -> int:
        """Return a polynomial of x; the coefficient of the highest power comes first."""
        value = self.constant(coefficients[0])
        for coefficient in coefficients[1:]:
            value = self.add(self.emit("mul", value, x), self.constant(coefficient))
        return value


def _merge_steps(code_rows: list[list[int]]) -> list[list[int]]:
    """Merge adjacent instructions whose fields advance by constant steps."""
    merged_rows: list[list[int]] = []
    for row in code_rows:
        if not merged_rows or not _try_merge_step(merged_rows[-1], row):
            merged_rows.append(row)
    return merged_rows


def _try_merge_step(previous: list[int], row: list[int]) -> bool:
    """Merge `row` into the instruction `previous` and return True, if `row` is the next step."""
    if previous[0] != row[0]:
        return False
    count = previous[1]
    is_list, is_table = row[0] in LIST_OPCODES, row[0] in TABLE_OPCODES
    steps = {}
    for field in (2, 4, 6, 8):
        difference = row[field] - previous[field]
        if (is_list or is_table) and field == 2:
            if difference or row[3] != previous[3]:
                return False
        elif is_list and field == 4:
            if difference != count * row[3]:
                return False
        elif is_table and field in (4, 6):  # The next column of the same tables.
            if difference != (count if field == 4 else 0):
                return False
            steps[field + 1] = 1 if field == 4 else 0
        elif count == 1:
            steps[field + 1] = difference
        elif difference != count * previous[field + 1]:
            return False
    previous[1] += 1
    for field, difference in steps.items():
        previous[field] = difference
    return True
