"""The operator `by_partition`: score the rows of each partition with the kernels of its Program.

A partition is compiled when its first rows arrive. From then on, machine code gathers the rows of
each partition in a block, follows the table of the partition's kernel calls (`kernel_calls.py`),
and writes the results to the positions of the rows. A row of a partition that is not compiled yet
is rejected, so Python scores its block and compiles the partition.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from sqlml.backends.base import find_filler
from sqlml.backends.native.follow_calls import ALIGN, align_address, follow
from sqlml.backends.native.jit.process_memory import (
    doubles_at,
    floats_at,
    free,
    int32s_at,
    malloc,
    words_at,
)
from sqlml.backends.native.jit.specialise import compiled_helper, reads, specialise, writes
from sqlml.backends.native.kernel_calls import (
    INPUT,
    RESULT,
    SCRATCH,
    Call,
    KernelCalls,
    Rows,
)
from sqlml.ir.operators.by_partition import score_by_partition
from sqlml.ir.partition_programs import load_program
from sqlml.ir.program import Attrs, Program
from sqlml.types import FLOATS, Array

Prepare = Callable[[Attrs, int], tuple[Program, tuple[str, ...]] | None]
"""Returns a partition's Program for kernels, with one matrix as its input, and the features in the
columns of the matrix; or None if the Program reads strings."""

Compile = Callable[[Program], Any]
"""Returns the compiled form of a Program."""

MANY_ROWS = 2048
"""A number of rows for which kernels for many rows are chosen."""


@dataclass(frozen=True, slots=True, eq=False)
class _Partition:
    """A compiled partition; `features` are the columns of the matrix that `compiled` reads.

    `entry` has the integers that machine code reads, in the order of `ENTRY`, and `references`
    keeps alive what they point to.
    """

    compiled: Any
    matrix_name: str
    features: tuple[str, ...]
    entry: Array | None
    references: Any


ENTRY = 9
(SMALL_CALLS, SMALL_COUNT, LARGE_CALLS, LARGE_COUNT, LARGE_BATCH) = range(5)
(MAX_WORDS, COLUMNS, BUFFERS, RESULT_KIND) = range(5, ENTRY)
"""An entry: the address and number of the calls for few rows, and of those for many; the number of
rows from which the latter are made; the most integers of a call; the numbers of columns and of
scratch buffers; and the index of the result's dtype in `RESULT_DTYPES`. It is followed by the
feature of each column, and by the bytes per row of each scratch buffer."""

RESULT_DTYPES = ("float64", "float32", "int64", "int32")


class PartitionScorer:
    """Scores rows of partitions, each of which is compiled when it is needed. Thread-safe.

    `entries` has the address of each partition's entry, or 0.
    """

    def __init__(self, attrs: Attrs, prepare: Prepare, compile_program: Compile) -> None:
        self.attrs = attrs
        self._prepare = prepare
        self._compile = compile_program
        self._partitions: dict[int, _Partition] = {}
        self._lock = threading.Lock()
        self.entries = np.zeros(len(attrs["ends"]), np.int64)
        self.width = int(attrs["width"])

    def __call__(self, *args: Any) -> Array:
        return score_by_partition(self._run_partition, args, self.attrs)

    def _run_partition(self, index: int, rows: Mapping[str, Any]) -> Array:
        partition = self._find_partition(index)
        output = self.attrs["output"]
        inputs = rows
        if partition.matrix_name:
            columns = [rows[name][:, 0] for name in partition.features]
            num_rows = len(next(iter(rows.values()))) if rows else 0
            matrix = np.empty((num_rows, max(1, len(columns))))
            for k, column in enumerate(columns):
                matrix[:, k] = column
            inputs = {partition.matrix_name: matrix}
        result: Array = partition.compiled.run(inputs, (output,))[output]
        return result

    def _find_partition(self, index: int) -> _Partition:
        partition = self._partitions.get(index)
        if partition is None:
            with self._lock:
                partition = self._partitions.get(index)
                if partition is None:
                    partition = self._compile_partition(index)
                    self._partitions[index] = partition
                    if partition.entry is not None:
                        self.entries[index] = partition.entry.ctypes.data
        return partition

    def _compile_partition(self, index: int) -> _Partition:
        prepared = self._prepare(self.attrs, index)
        if prepared is None:
            compiled = self._compile(load_program(self.attrs, index))
            return _Partition(compiled, "", (), None, None)
        core, features = prepared
        compiled = self._compile(core)
        (matrix_name,) = core.inputs
        entry, references = self._make_entry(compiled, features)
        return _Partition(compiled, matrix_name, features, entry, references)

    def _make_entry(self, compiled: Any, features: tuple[str, ...]) -> tuple[Array | None, Any]:
        """Return the entry of a partition, and the objects that it points to.

        There is no entry if kernel calls alone cannot score the partition.
        """
        width = max(1, len(features))
        filler: Any = find_filler(compiled, self.attrs["output"], range(width), width)
        if not hasattr(filler, "make_calls") or filler.dtype.name not in RESULT_DTYPES:
            return None, None
        has_batches = hasattr(filler, "find_large_batch")
        large_batch = filler.find_large_batch() if has_batches else 0
        calls_of_sizes: list[KernelCalls] = []
        for row_count in (1, MANY_ROWS):
            options = {"row_count": row_count} if has_batches else {}
            x = Rows(INPUT, np.dtype(np.float64), width)
            out = Rows(RESULT, filler.dtype, self.width)
            calls = filler.make_calls(x, out, itertools.count(SCRATCH), **options)
            calls_of_sizes.append(KernelCalls(tuple(calls)))
        tables = [calls.encode() for calls in calls_of_sizes]
        small, large = tables
        if small is None or large is None:
            return None, None
        sizes = [calls.measure_scratch() for calls in calls_of_sizes]
        buffer_sizes = [max(pair) for pair in itertools.zip_longest(*sizes, fillvalue=0)]
        positions = [self.attrs["names"].index(name) for name in features] or [-1]
        head = [
            *(small.ctypes.data, len(calls_of_sizes[0].calls)),
            *(large.ctypes.data, len(calls_of_sizes[1].calls)),
            int(np.ceil(min(large_batch, MANY_ROWS + 1))),
            max(calls.count_max_words() for calls in calls_of_sizes),
            *(width, len(buffer_sizes), RESULT_DTYPES.index(filler.dtype.name)),
        ]
        entry = np.array([*head, *positions, *buffer_sizes], np.int64)
        return entry, (filler, calls_of_sizes, tables)

    def make_call(self, x: Rows, out: Rows) -> Call:
        """Return the call that scores x, float64 (n, 1 + k): the codes, then the features."""
        arguments = (self.entries, self._settings)
        kinds = (reads(np.float64, 2, "C"), reads(np.int64, 1, "C"), reads(np.float64, 1, "C"))
        kernel = specialise(score_partitions, (*kinds, writes(out.dtype, 2)))
        return Call(kernel, (x, *arguments, out))

    @cached_property
    def _settings(self) -> Array:
        """The partition of rows with a negative code, or -1, and the result without a partition."""
        default = len(self.entries) - 1 if self.attrs["has_default"] else -1
        missing = np.nan if self.attrs["dtype"] in FLOATS else -1
        return np.array([default, missing], np.float64)


@compiled_helper
def _chain_rows(x: Any, entries: Any, settings: Any, memory: Any, out: Any) -> Any:
    """Link the rows of each partition into a list; return how many partitions occur.

    `memory`, int64 (partitions + 4 n,), receives the position of each partition among those that
    occur, and for each of these: the partition, its first row, and its number of rows; and the next
    row of the same partition for each row, or -1. Return -1 - r if row r has no compiled partition.
    """
    rows = x.shape[0]
    positions, partitions = memory[: entries.size], memory[entries.size :]
    first_rows, row_counts, next_rows = (
        partitions[rows:],
        partitions[2 * rows :],
        partitions[3 * rows :],
    )
    count = 0
    for row in range(rows - 1, -1, -1):  # This way, each list has its rows in order.
        code = x[row, 0]
        if not code >= 0:
            code = settings[0]
        if code < 0:
            for k in range(out.shape[1]):
                out[row, k] = settings[1]
            continue
        partition = np.int64(code)
        if partition >= entries.size or entries[partition] == 0:
            return -1 - row
        # The memory is not initialised: a position is valid only if it leads back here.
        position = positions[partition]
        if position < 0 or position >= count or partitions[position] != partition:
            position = count
            positions[partition], partitions[position] = position, partition
            first_rows[position], row_counts[position] = -1, 0
            count += 1
        next_rows[row] = first_rows[position]
        first_rows[position] = row
        row_counts[position] += 1
    return count


@compiled_helper
def _measure_scratch(entry: Any, rows: Any) -> Any:
    """Return the bytes that scoring `rows` rows of a partition needs."""
    nbytes = ALIGN + 8 * (entry[MAX_WORDS] + entry[BUFFERS] + 2)
    nbytes += align_address(8 * entry[COLUMNS] * rows)
    for k in range(entry[BUFFERS]):
        nbytes += align_address(entry[ENTRY + entry[COLUMNS] + k] * rows)
    return nbytes


@compiled_helper
def _copy_results(results_at: Any, kind: Any, row: Any, next_rows: Any, out: Any) -> None:
    """Write the results of a partition to its rows, of which `row` is the first."""
    width, k = out.shape[1], 0
    while row >= 0:
        if kind == 0:
            doubles = doubles_at(results_at, k + width)
            for c in range(width):
                out[row, c] = doubles[k + c]
        elif kind == 1:
            floats = floats_at(results_at, k + width)
            for c in range(width):
                out[row, c] = floats[k + c]
        elif kind == 2:
            words = words_at(results_at, k + width)
            for c in range(width):
                out[row, c] = words[k + c]
        else:
            integers = int32s_at(results_at, k + width)
            for c in range(width):
                out[row, c] = integers[k + c]
        k += width
        row = next_rows[row]


def score_partitions(x: Any, entries: Any, settings: Any, out: Any) -> Any:
    """Score rows x (n, 1 + k); return a row to reject, or -1.

    Args:
        x: the partition of each row, then the features.
        entries: the addresses of the partitions' entries.
        settings: see `PartitionScorer._settings`.
        out: receives the results (n, width).
    """
    rows = x.shape[0]
    chain_words = entries.size + 4 * rows
    chains_at = malloc(8 * chain_words)
    if chains_at == 0:
        return 0
    chains = words_at(chains_at, chain_words)
    count = _chain_rows(x, entries, settings, chains, out)
    if count < 0:
        free(chains_at)
        return -1 - count
    partitions = chains[entries.size :]
    first_rows, row_counts, next_rows = (
        partitions[rows:],
        partitions[2 * rows :],
        partitions[3 * rows :],
    )
    scratch_bytes = 0
    for k in range(count):
        entry = words_at(entries[partitions[k]], 1 << 40)
        scratch_bytes = max(
            scratch_bytes,
            _measure_scratch(entry, row_counts[k]) + 8 * out.shape[1] * row_counts[k] + ALIGN,
        )
    scratch_at = malloc(scratch_bytes)
    rejected = -1
    if scratch_at == 0:
        rejected = 0
    else:
        for k in range(count - 1, -1, -1):
            entry = words_at(entries[partitions[k]], 1 << 40)
            if not _score_partition(
                x, entry, first_rows[k], row_counts[k], next_rows, scratch_at, out
            ):
                rejected = first_rows[k]
                break
        free(scratch_at)
    free(chains_at)
    return rejected


@compiled_helper
def _score_partition(
    x: Any, entry: Any, first_row: Any, rows: Any, next_rows: Any, scratch_at: Any, out: Any
) -> Any:
    """Score the rows of one partition; return False if a kernel rejects one of them."""
    columns, num_buffers = entry[COLUMNS], entry[BUFFERS]
    words = words_at(scratch_at, entry[MAX_WORDS])
    buffers = words_at(scratch_at + 8 * entry[MAX_WORDS], 2 + num_buffers)
    next_buffer = align_address(scratch_at + 8 * (entry[MAX_WORDS] + 2 + num_buffers))
    buffers[0] = next_buffer
    next_buffer += align_address(8 * columns * rows)
    buffers[1] = next_buffer
    next_buffer += align_address(8 * out.shape[1] * rows)
    for k in range(num_buffers):
        buffers[2 + k] = next_buffer
        next_buffer += align_address(entry[ENTRY + columns + k] * rows)
    matrix = doubles_at(buffers[0], columns * rows)
    row, k = first_row, 0
    while row >= 0:
        for c in range(columns):
            feature = entry[ENTRY + c]
            matrix[k + c] = x[row, 1 + feature] if feature >= 0 else 0.0
        k += columns
        row = next_rows[row]
    is_large = rows >= entry[LARGE_BATCH]
    calls = words_at(entry[LARGE_CALLS] if is_large else entry[SMALL_CALLS], 1 << 40)
    call_count = entry[LARGE_COUNT] if is_large else entry[SMALL_COUNT]
    if follow(calls, call_count, rows, buffers, words) != -1:
        return False
    _copy_results(buffers[1], entry[RESULT_KIND], first_row, next_rows, out)
    return True
