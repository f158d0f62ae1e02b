"""`StepFiller`: an output of a Program that runs step by step, written where it shall be.

A row of a model takes some microseconds, and what stands around the kernels counts: no names, no
copies of the rows, no result that is copied into another.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from sqlml.backends.native.jit.process_memory import call_1, free, malloc, words_at
from sqlml.backends.native.jit.specialise import COUNT, helper, reads, specialise, writes
from sqlml.backends.native.kernel_calls import ADDRESS, INPUT, RESULT, SCRATCH, KernelCalls, Rows
from sqlml.backends.native.stages import Stages
from sqlml.backends.native.stepwise import Stepwise
from sqlml.backends.native.vm.assemble import below
from sqlml.errors import SqlmlError
from sqlml.types import Array, numpy_dtype

# `follow`: machine code that makes the calls of a table one after the other (`kernel_calls.py`).
#
# The row path of DuckDB follows a table for its vectors of rows. `Follower` does it for rows and
# texts that Python holds: one call in place of many, each of which would take some microseconds.


ALIGN = 64

BLOCK_BYTES, MOST_ROWS = 4 << 20, 512
"""Most bytes of the numbers between of a block of rows, if it has more than one, and most rows."""


class Follower:
    """Calls for rows, results, texts, and numbers between. Thread-safe.

    Args:
        table: what `calls` wrote down.
        ends: how many of the places between are given: those of the texts' addresses, which come
            first.

    Attributes:
        block: how many rows are scored together at most.
    """

    def __init__(self, calls: KernelCalls, table: Array, ends: int) -> None:
        self._kept = calls
        self._sizes = np.array(calls.scratch()[ends:], np.int64)
        self._table, self._count = table, len(calls.calls)
        self._words = calls.most_words()
        self.block = max(1, min(MOST_ROWS, BLOCK_BYTES // max(1, int(self._sizes.sum()))))
        byte = (reads(np.uint8, 2, "C"), reads(np.int64, 2, "C"), writes(np.uint8, 2))
        counts = (COUNT,) * 5
        table_kind = reads(np.int64, 1, "C")
        self._run = specialise(follow_blocks, (table_kind, *counts, table_kind, *byte))

    def run(self, x: Array, ends: Array, out: Array, first: int, stop: int, block: int) -> int:
        """Score rows from `first` on, `block` of them together; the first one of a block that is
        refused, or `stop`.

        x: (n, w), and out: (n, k), of the dtypes of the calls. ends: int64 (m, n), the addresses
        where the texts of a column begin, and where they end, column by column.
        """
        bytes_of = x.view(np.uint8), ends, out.view(np.uint8)
        counts = self._count, self._words, block, first, stop
        found: int = self._run(self._table, *counts, self._sizes, *bytes_of)
        return found


@helper
def aligned(number: Any) -> Any:
    """The next address that a cache line begins with."""
    return (number + ALIGN - 1) // ALIGN * ALIGN


@helper
def follow(table: Any, calls: Any, rows: Any, places: Any, words: Any) -> Any:
    """Make the calls of a table for a block of rows; the first result other than -1, else -1."""
    at = 0
    for _ in range(calls):
        address, size, changes = table[at], table[at + 1], table[at + 2]
        at += 3
        for i in range(size):
            words[i] = table[at + i]
        at += size
        for _ in range(changes):
            what, value = table[at + 1], table[at + 2]
            if what == ADDRESS:
                words[table[at]] = places[value >> 32] + (value & 0xFFFFFFFF)
            else:
                words[table[at]] = value * rows
            at += 3
        found = call_1(address, words.ctypes.data)
        if found >= 0 or found < -1:
            return found
    return -1


def follow_blocks(
    table: Any,
    calls: Any,
    most: Any,
    block: Any,
    first: Any,
    stop: Any,
    sizes: Any,
    x: Any,
    ends: Any,
    out: Any,
) -> Any:
    """Make the calls for each block of rows; where they end (`Follower.run`).

    most: words of a call. sizes: bytes a row of each place between. x, out: bytes (n, w), (n, k).
    """
    rows, count, between = out.shape[0], ends.shape[0], sizes.size
    block = min(block, stop - first)
    taken = ALIGN
    for i in range(between):
        taken += aligned(sizes[i] * block)
    room = most + 2 + count + between
    held_at = malloc(8 * room + taken)
    if held_at == 0:
        return first
    held = words_at(held_at, room)
    words, places = held[:most], held[most:]
    at = aligned(held_at + 8 * room)
    for i in range(between):
        places[2 + count + i] = at
        at += aligned(sizes[i] * block)
    while first < stop:
        here = min(block, stop - first)
        places[0] = np.int64(x.ctypes.data) + first * x.shape[1]
        places[1] = np.int64(out.ctypes.data) + first * out.shape[1]
        for i in range(count):
            places[2 + i] = np.int64(ends.ctypes.data) + 8 * (i * rows + first)
        if follow(table, calls, here, places, words) != -1:
            break
        first += here
    free(held_at)
    return first


MANY = 2048
"""Rows of a batch that is not small."""


class StepFiller:
    """One output of a Program of one input, a matrix. Thread-safe; see `Filler`.

    Args:
        columns, width: the input's columns are these of the `width` columns of the rows.
    """

    def __init__(self, steps: Stepwise, output: str, columns: Sequence[int], width: int) -> None:
        program = steps.program
        (node,) = program.inputs.values()
        kind = program.output_type(output)
        self.input = numpy_dtype(program.nodes[node].type.dtype)
        self.dtype = numpy_dtype(kind.dtype)
        self.width = kind.width
        self.below = below(program, program.outputs[output])
        self._node = node
        self._made = program.outputs[output]
        self._plan = steps.schedule_of((output,))
        self._constants = steps.constants
        self._rows = steps.rows
        start = columns[0] if columns else 0
        self._slice: slice | None = None
        if list(columns) == list(range(start, start + len(columns))):
            self._slice = slice(start, start + len(columns))
        self._columns = np.array(columns, np.int64)

    def fill(self, x: Array, out: Array) -> int:
        """Write what the steps make of rows `x` into `out`, block by block (`Filler.fill`)."""
        for start in range(0, x.shape[0], self._rows):
            block = x[start : start + self._rows]
            values = dict(self._constants)
            if self._slice is not None:
                values[self._node] = block[:, self._slice]
            else:
                values[self._node] = block.take(self._columns, axis=1)
            try:
                with np.errstate(all="ignore"):
                    self._plan.run(values)
            except SqlmlError:
                return start
            out[start : start + self._rows] = values[self._made]
        return -1


class TextFiller:
    """One output of a matrix and columns of texts, as calls of kernels alone. Thread-safe.

    Attributes:
        input, columns: dtype and width of the matrix; dtype, width: of the output.
        rows, texts: the Program's nodes of the matrix and of the texts; reads_rows: whether the
            output needs the matrix.
    """

    def __init__(self, steps: Stepwise, output: str, stages: Stages) -> None:
        program = steps.program
        kind = program.output_type(output)
        self.input = numpy_dtype(program.nodes[stages.rows].type.dtype)
        self.dtype, self.width = numpy_dtype(kind.dtype), kind.width
        self.rows, self.texts = stages.rows, stages.texts
        self.reads_rows = stages.rows in steps.schedule_of((output,)).inputs.values()
        self.turn, self.calls = stages.turn, stages.calls
        self.columns = program.nodes[stages.rows].type.width
        self._made: dict[bool, Follower | None] = {}

    def follower(self, rows: int) -> Follower | None:
        """What scores a batch of so many rows; None where numba itself runs a kernel.

        Raises:
            NotReady: a kernel is being compiled, and the caller need not wait.
        """
        few = rows < self.turn()
        if few not in self._made:
            places = itertools.count(SCRATCH)
            flat = [Rows(next(places), np.dtype(np.int64), 1, flat=True) for _ in 2 * self.texts]
            ends = list(zip(flat[::2], flat[1::2], strict=True))
            x, out = Rows(INPUT, self.input, self.columns), Rows(RESULT, self.dtype, self.width)
            calls = KernelCalls(self.calls(x, out, places, 1 if few else MANY, ends))
            table = calls.words()
            self._made[few] = None if table is None else Follower(calls, table, len(flat))
        return self._made[few]


class StagedFiller(StepFiller):
    """A `StepFiller` that can write down its steps as calls of kernels."""

    def __init__(
        self, steps: Stepwise, output: str, columns: Sequence[int], width: int, stages: Stages
    ) -> None:
        super().__init__(steps, output, columns, width)
        self.turn, self.calls = stages.turn, stages.calls
