"""The operator `by_partition`: score the rows of each partition with the kernels of its Program.

The entry of a partition, with its table of kernel calls (`kernel_calls.py`), is written when its
first rows arrive. From then on, machine code gathers the rows of each partition in a block, follows
the table, and writes the results to the positions of the rows. A row of a partition without an
entry is rejected, so Python scores its block and writes the entry.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
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
    list_arrays,
)
from sqlml.bounded_cache import RecentCache
from sqlml.ir.operators.by_partition import score_by_partition
from sqlml.ir.partition_programs import load_program
from sqlml.ir.program import Attrs, Program
from sqlml.ir.utf8_column import TextColumn
from sqlml.types import FLOATS, Array

Prepare = Callable[[Attrs, int], tuple[Program, tuple[str, ...]] | None]
"""Returns a partition's Program for kernels, with one matrix as its input, and the features in the
columns of the matrix; or None if the Program reads strings."""

Compile = Callable[[Program], Any]
"""Returns the compiled form of a Program."""

MAX_COMPILED = 256
"""The number of compiled partitions that are kept for rows that kernel calls reject."""

MANY_ROWS = 2048
"""A number of rows for which kernels for many rows are chosen."""


@dataclass(frozen=True, slots=True, eq=False)
class _Partition:
    """A compiled partition; `features` are the columns of the matrix `matrix_name` that it reads.

    If the partition reads named columns instead of a matrix, `matrix_name` is "".
    """

    compiled: Any
    matrix_name: str
    features: tuple[str, ...]


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

    `entries` has the address of each partition's entry, or 0. Entries and the arrays that they
    point to are kept, and compiled partitions only for a while.
    """

    def __init__(self, attrs: Attrs, prepare: Prepare, compile_program: Compile) -> None:
        self.attrs = attrs
        self.entries = np.zeros(len(attrs["ends"]), np.int64)
        self.width = int(attrs["width"])
        self._prepare = prepare
        self._compile = compile_program
        self._compiled = RecentCache[int, _Partition](MAX_COMPILED)
        self._arrays: dict[int, list[Array]] = {}
        self._lock = threading.Lock()

    def __call__(self, *args: Any) -> Array:
        result = self._follow_entries(args)
        return (
            score_by_partition(self._run_partition, args, self.attrs) if result is None else result
        )

    def _follow_entries(self, args: Sequence[Any]) -> Array | None:
        """Score rows by kernel calls alone, or return None if that is impossible."""
        if any(isinstance(x, TextColumn) or x.dtype.kind not in "bif" for x in args):
            return None
        codes = np.unique(args[0])
        default = int(self._settings[0])
        indexes = {int(code) if code >= 0 else default for code in codes} - {-1}
        if not all(self._find_entry(index) for index in sorted(indexes)):
            return None
        x = np.concatenate(args, axis=1, dtype=np.float64)
        out = np.empty((len(x), self.width))
        kernel = self._specialise(out.dtype)
        is_scored = kernel(x, self.entries, self._settings, out) == -1
        return out.astype(self.attrs["dtype"], copy=False) if is_scored else None

    def _find_entry(self, index: int) -> int:
        """Return the address of a partition's entry, which is written first; 0 if impossible."""
        if index not in self._arrays:
            with self._lock:
                if index not in self._arrays:
                    partition = self._compile_partition(index)
                    self._compiled.put(index, partition, 1)
                    arrays = self._write_entry(partition)
                    self._arrays[index] = arrays
                    if arrays:
                        self.entries[index] = arrays[0].ctypes.data
        return int(self.entries[index])

    def _run_partition(self, index: int, rows: Mapping[str, Any]) -> Array:
        partition = self._compiled.get(index)
        if partition is None:
            partition = self._compile_partition(index)
            self._compiled.put(index, partition, 1)
        inputs = rows
        if partition.matrix_name:
            columns = [rows[name][:, 0] for name in partition.features]
            num_rows = len(next(iter(rows.values()))) if rows else 0
            matrix = np.empty((num_rows, max(1, len(columns))))
            for k, column in enumerate(columns):
                matrix[:, k] = column
            inputs = {partition.matrix_name: matrix}
        output = self.attrs["output"]
        result: Array = partition.compiled.run(inputs, (output,))[output]
        return result

    def _compile_partition(self, index: int) -> _Partition:
        prepared = self._prepare(self.attrs, index)
        if prepared is None:
            return _Partition(self._compile(load_program(self.attrs, index)), "", ())
        core, features = prepared
        (matrix_name,) = core.inputs
        return _Partition(self._compile(core), matrix_name, features)

    def _write_entry(self, partition: _Partition) -> list[Array]:
        """Return the entry of a partition, followed by the arrays that it points to.

        Return an empty list if kernel calls alone cannot score the partition.
        """
        if not partition.matrix_name:
            return []
        width = max(1, len(partition.features))
        output = self.attrs["output"]
        filler: Any = find_filler(partition.compiled, output, range(width), width)
        if not hasattr(filler, "make_calls") or filler.dtype.name not in RESULT_DTYPES:
            return []
        has_batches = hasattr(filler, "find_large_batch")
        large_batch = filler.find_large_batch() if has_batches else 0
        x, out = Rows(INPUT, np.dtype(np.float64), width), Rows(RESULT, filler.dtype, self.width)
        calls_of_sizes = []
        for row_count in (1, MANY_ROWS):
            options = {"row_count": row_count} if has_batches else {}
            calls = filler.make_calls(x, out, itertools.count(SCRATCH), **options)
            calls_of_sizes.append(KernelCalls(tuple(calls)))
        small, large = (calls.encode() for calls in calls_of_sizes)
        if small is None or large is None:
            return []
        sizes = [calls.measure_scratch() for calls in calls_of_sizes]
        buffer_sizes = [max(pair) for pair in itertools.zip_longest(*sizes, fillvalue=0)]
        names = self.attrs["names"]
        head = [
            *(small.ctypes.data, len(calls_of_sizes[0].calls)),
            *(large.ctypes.data, len(calls_of_sizes[1].calls)),
            int(np.ceil(min(large_batch, MANY_ROWS + 1))),
            max(calls.count_max_words() for calls in calls_of_sizes),
            *(width, len(buffer_sizes), RESULT_DTYPES.index(filler.dtype.name)),
        ]
        positions = [names.index(name) for name in partition.features] or [-1]
        entry = np.array([*head, *positions, *buffer_sizes], np.int64)
        calls = [call for calls in calls_of_sizes for call in calls.calls]
        constants = list_arrays(tuple(call.arguments for call in calls))
        return [entry, small, large, *constants]

    def make_call(self, x: Rows, out: Rows) -> Call:
        """Return the call that scores x, float64 (n, 1 + k): the codes, then the features."""
        return Call(self._specialise(out.dtype), (x, self.entries, self._settings, out))

    def _specialise(self, dtype: np.dtype[Any]) -> Callable[..., Any]:
        kinds = (reads(np.float64, 2, "C"), reads(np.int64, 1, "C"), reads(np.float64, 1, "C"))
        return specialise(score_partitions, (*kinds, writes(dtype, 2)))

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
