"""Fillers: objects that write an output of a Program in place (`backends/base.py`).

Scoring a row takes only a few microseconds, so the overhead around the kernels matters. Fillers
look up no names, and copy neither rows nor results.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from sqlml.backends.native.follow_calls import ALIGN, align_address, follow
from sqlml.backends.native.jit.process_memory import free, malloc, words_at
from sqlml.backends.native.jit.specialise import COUNT, reads, specialise, writes
from sqlml.backends.native.kernel_calls import (
    INPUT,
    RESULT,
    SCRATCH,
    Call,
    KernelCalls,
    Rows,
)
from sqlml.backends.native.operators import KERNEL_FLOATS, find_source
from sqlml.backends.native.rows.column_kernels import call_take, make_converter, make_finite_checker
from sqlml.backends.native.stages import Stages
from sqlml.backends.native.stepwise import BLOCK_BYTES, StepRunner
from sqlml.backends.native.trees.lockstep import ANY, FINITE, FINITE_OR_NAN
from sqlml.backends.native.trees.native_forest import Forest
from sqlml.backends.native.vm.assemble import find_upper_bound
from sqlml.backends.native.vm.whole_output import TreeTail, VmFiller
from sqlml.errors import SqlmlError
from sqlml.ir.program import Program
from sqlml.types import Array, numpy_dtype

# DuckDB's row path follows a table of calls (`kernel_calls.py`) for its vectors of rows.
# `CallRunner` does the same for rows and strings in Python's memory, with one Python call instead
# of many.

MAX_BLOCK_ROWS = 512
"""The most rows of a block. A block has fewer if the scratch space would exceed BLOCK_BYTES."""


class CallRunner:
    """Makes the kernel calls `calls`, encoded as `table`, for blocks of rows. Thread-safe.

    The first `num_text_buffers` scratch buffers hold the addresses of the strings. A block has at
    most `block` rows.
    """

    def __init__(self, calls: KernelCalls, table: Array, num_text_buffers: int) -> None:
        self._calls = calls
        self._sizes = np.array(calls.measure_scratch()[num_text_buffers:], np.int64)
        self._table = table
        self._call_count, self._max_words = len(calls.calls), calls.count_max_words()
        self.block = max(1, min(MAX_BLOCK_ROWS, BLOCK_BYTES // max(1, int(self._sizes.sum()))))
        array_kinds = (reads(np.uint8, 2, "C"), reads(np.int64, 2, "C"), writes(np.uint8, 2))
        integer_kind = reads(np.int64, 1, "C")
        argument_kinds = (integer_kind, (COUNT,) * 5, integer_kind, *array_kinds)
        self._run = specialise(follow_blocks, argument_kinds)

    def run(self, x: Array, ends: Array, out: Array, first: int, stop: int, block: int) -> int:
        """Score rows `first` to `stop` - 1; return the first row of a rejected block, or `stop`.

        x (n, w) and out (n, k) have the dtypes of the calls. `ends`, int64 (m, n), has two rows per
        string column: the addresses where strings begin, and the addresses where strings end.
        """
        counts = (self._call_count, self._max_words, block, first, stop)
        arrays = (x.view(np.uint8), ends, out.view(np.uint8))
        stopped_row: int = self._run(self._table, counts, self._sizes, *arrays)
        return stopped_row


def follow_blocks(table: Any, counts: Any, sizes: Any, x: Any, ends: Any, out: Any) -> Any:
    """Make the calls for each block of rows; return the row where the calls stop.

    Args:
        counts: the number of calls in the table, the words of the longest call, the rows per block,
            the first row, and the row at which to stop.
        sizes: the bytes per row of each scratch buffer.
        x, ends, out: the arrays of `CallRunner.run`; x and `out` are viewed as bytes.
    """
    call_count, max_words, block, first, stop = counts
    rows, num_text_buffers, num_scratch_buffers = out.shape[0], ends.shape[0], sizes.size
    block = min(block, stop - first)
    scratch_bytes = ALIGN
    for i in range(num_scratch_buffers):
        scratch_bytes += align_address(sizes[i] * block)
    word_count = max_words + 2 + num_text_buffers + num_scratch_buffers
    memory_address = malloc(8 * word_count + scratch_bytes)
    if memory_address == 0:
        return first
    memory = words_at(memory_address, word_count)
    words, buffers = memory[:max_words], memory[max_words:]
    address = align_address(memory_address + 8 * word_count)
    for i in range(num_scratch_buffers):
        buffers[2 + num_text_buffers + i] = address
        address += align_address(sizes[i] * block)
    while first < stop:
        block_rows = min(block, stop - first)
        buffers[0] = np.int64(x.ctypes.data) + first * x.shape[1]
        buffers[1] = np.int64(out.ctypes.data) + first * out.shape[1]
        for i in range(num_text_buffers):
            buffers[2 + i] = np.int64(ends.ctypes.data) + 8 * (i * rows + first)
        if follow(table, call_count, block_rows, buffers, words) != -1:
            break
        first += block_rows
    free(memory_address)
    return first


MANY_ROWS = 2048
"""A row count for which `TextFiller.make_calls` chooses the kernels for many rows."""


class _MatrixFiller:
    """Fills one output of a Program whose only input is a matrix, as a `Filler`. Thread-safe."""

    def __init__(self, program: Program, output: str) -> None:
        (self._node,) = program.inputs.values()
        self._output = program.outputs[output]
        output_type = program.output_type(output)
        self.input: np.dtype[Any] = numpy_dtype(program.nodes[self._node].type.dtype)
        self.dtype: np.dtype[Any] = numpy_dtype(output_type.dtype)
        self.width: int = output_type.width
        self.below: int | None = find_upper_bound(program, self._output)


class StepFiller(_MatrixFiller):
    """Fills an output step by step; reads the columns `columns` of rows with `width` columns."""

    def __init__(self, steps: StepRunner, output: str, columns: Sequence[int], width: int) -> None:
        super().__init__(steps.program, output)
        self._schedule = steps.schedule_of((output,))
        self._constants = steps.constants
        self._rows = steps.rows
        index = _simplify_index(np.array(columns, np.int64), width)
        self._index: Any = slice(None) if index is None else index

    def fill(self, x: Array, out: Array) -> int:
        for start in range(0, x.shape[0], self._rows):
            block = x[start : start + self._rows]
            must_copy = isinstance(self._index, np.ndarray)
            x_block = block.take(self._index, axis=1) if must_copy else block[:, self._index]
            values = {**self._constants, self._node: x_block}
            try:
                with np.errstate(all="ignore"):
                    self._schedule.run(values)
            except SqlmlError:
                return start
            out[start : start + self._rows] = values[self._output]
        return -1


class TextFiller:
    """Fills an output from a matrix and string columns, with kernel calls only. Thread-safe.

    `rows` is the node of the matrix, which has `columns` columns of dtype `input`. `texts` are the
    nodes of the string columns. If `reads_rows` is False, the output does not depend on the matrix.
    """

    def __init__(self, steps: StepRunner, output: str, stages: Stages) -> None:
        program = steps.program
        output_type = program.output_type(output)
        self.input: np.dtype[Any] = numpy_dtype(program.nodes[stages.rows].type.dtype)
        self.dtype: np.dtype[Any] = numpy_dtype(output_type.dtype)
        self.width: int = output_type.width
        self.rows: int = stages.rows
        self.texts: tuple[int, ...] = stages.texts
        self.reads_rows: bool = stages.rows in steps.schedule_of((output,)).inputs.values()
        self.find_large_batch = stages.find_large_batch
        self.make_calls = stages.make_calls
        self.columns = program.nodes[stages.rows].type.width
        self._runners: dict[bool, CallRunner | None] = {}

    def get_runner(self, row_count: int) -> CallRunner | None:
        """Return the runner for batches of `row_count` rows; None if a kernel needs numba."""
        is_few = row_count < self.find_large_batch()
        if is_few not in self._runners:
            buffers = itertools.count(SCRATCH)
            int64 = np.dtype(np.int64)
            addresses = [Rows(next(buffers), int64, 1, is_flat=True) for _ in 2 * self.texts]
            ends = list(zip(addresses[::2], addresses[1::2], strict=True))
            x, out = Rows(INPUT, self.input, self.columns), Rows(RESULT, self.dtype, self.width)
            calls = KernelCalls(self.make_calls(x, out, buffers, 1 if is_few else MANY_ROWS, ends))
            table = calls.encode()
            runner = None if table is None else CallRunner(calls, table, len(addresses))
            self._runners[is_few] = runner
        return self._runners[is_few]


class StagedFiller(StepFiller):
    """A `StepFiller` that can record the steps as kernel calls."""

    def __init__(
        self, steps: StepRunner, output: str, columns: Sequence[int], width: int, stages: Stages
    ) -> None:
        super().__init__(steps, output, columns, width)
        self.find_large_batch = stages.find_large_batch
        self.make_calls = stages.make_calls


class TreeFiller(_MatrixFiller):
    """Fills an output of one ensemble of trees with two kernel calls.

    The first call checks the rows and computes margins. The second call runs the VM, which turns
    margins into probabilities or labels. If the output is the margins, there is no second call.

    Args:
        columns: an index of the columns that `forest` reads; None means all columns.
        allowed: the numbers that these columns may contain, such as `lockstep.ANY`.
        tail: computes the output from the margins; None if the output is the margins.
    """

    def __init__(
        self,
        steps: StepRunner,
        output: str,
        forest: Forest,
        columns: Any,
        allowed: int,
        tail: VmFiller | None,
    ) -> None:
        super().__init__(steps.program, output)
        self._forest, self._columns, self._allowed, self._tail = forest, columns, allowed, tail
        dtype = forest.source_dtype
        allows_nan = allowed == FINITE_OR_NAN
        self._has_rejected = None if allowed == ANY else make_finite_checker(dtype, allows_nan)
        self._convert = None if dtype == self.input else make_converter(self.input, dtype)
        self._max_rows = steps.rows
        if self._convert is None and not isinstance(columns, np.ndarray):  # The rows need no copy.
            self._max_rows = max(steps.rows, BLOCK_BYTES // (16 * max(self.width, forest.outputs)))

    @classmethod
    def of(
        cls, steps: StepRunner, output: str, columns: Sequence[int], width: int
    ) -> TreeFiller | None:
        """Return a filler, or None if `output` needs more than a check, one ensemble and a tail."""
        program, columns_read = steps.program, np.array(columns, np.int64)
        output_steps = steps.schedule_of((output,)).steps
        tree_steps = [
            (step, step.function) for step in output_steps if isinstance(step.function, Forest)
        ]
        if len(tree_steps) != 1:
            return None
        ((step, forest),) = tree_steps
        input_node, allowed = step.inputs[0], ANY
        check = program.nodes[input_node]
        if check.op == "require_finite":
            has_limits = "low" in check.attrs or "high" in check.attrs
            if has_limits or check.type.dtype not in KERNEL_FLOATS:
                return None
            source = find_source(program, check.inputs[0], check.type.dtype)
            input_node = source.node
            allowed = FINITE_OR_NAN if check.attrs["allow_nan"] else FINITE
            if program.nodes[input_node].op == "input":
                columns_read = columns_read[source.columns]
        input_type = program.nodes[input_node].type
        if program.nodes[input_node].op != "input" or input_type.dtype not in KERNEL_FLOATS:
            return None
        last_function = output_steps[-1].function
        tail = last_function.machine if isinstance(last_function, TreeTail) else None
        if tail is None and output_steps[-1] is not step:
            return None
        return cls(steps, output, forest, _simplify_index(columns_read, width), allowed, tail)

    def fill(self, x: Array, out: Array) -> int:
        if x.shape[0] <= self._max_rows:
            return self._fill_block(x, out)
        for start in range(0, x.shape[0], self._max_rows):
            stop = start + self._max_rows
            if self._fill_block(x[start:stop], out[start:stop]) >= 0:
                return start
        return -1

    def _fill_block(self, x: Array, out: Array) -> int:
        forest, tail = self._forest, self._tail
        if self._columns is not None:
            x = x[:, self._columns]
        if self._convert is not None:
            numbers, x = x.ravel(), np.empty(x.shape, forest.source_dtype)
            self._convert(numbers, x.reshape(-1))
        margins = out if tail is None else np.empty((x.shape[0], forest.outputs), forest.dtype)
        if forest.uses_lockstep(x.shape[0]):
            if forest.lockstep_kernel.fill(x, margins, self._allowed) >= 0:
                return 0
        else:
            if self._has_rejected is not None and self._has_rejected(x):
                return 0
            margins = forest.block_kernel(x)
            if tail is None:
                out[...] = margins
        return -1 if tail is None else tail.fill(margins, out)

    def find_large_batch(self) -> float:
        """Return the row count from which `make_calls` returns the calls for large batches."""
        return self._forest.lockstep_limit

    def make_calls(
        self, x: Rows, out: Rows, buffers: Iterator[int], row_count: int
    ) -> tuple[Call, ...]:
        """Return the calls that do what `fill` does, for a block of `row_count` rows."""
        forest, tail = self._forest, self._tail
        copies: tuple[Call, ...] = ()
        if isinstance(self._columns, slice):
            x = x.select(self._columns)
        elif self._columns is not None:
            copy = Rows(next(buffers), forest.source_dtype, self._columns.size)
            copies, x = (call_take(x, self._columns, copy),), copy
        margins = out if tail is None else Rows(next(buffers), forest.dtype, forest.outputs)
        tree_calls = forest.make_calls(x, margins, buffers, row_count, self._allowed)
        tail_calls = () if tail is None else tail.make_calls(margins, out, buffers)
        return (*copies, *tree_calls, *tail_calls)


def _simplify_index(columns: Array, width: int) -> Any:
    """Return an index of `columns`: None for all `width` columns, a slice for adjacent columns."""
    if np.array_equal(columns, np.arange(width)):
        return None
    start = int(columns[0]) if columns.size else 0
    if np.array_equal(columns, np.arange(start, start + columns.size)):
        return slice(start, start + columns.size)
    return columns
