"""The paths on which a Scorer computes an output of a table, a matrix, or a few rows of strings.

Scoring one row takes most of the time outside of the kernel. So the kernel of a `MatrixScorer`
writes directly into the result. A `FewTextsScorer` makes no table and no column arrays, which would
be ten times as slow as the kernel.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from sqlml.backends.base import CompiledProgram, Filler, find_filler, find_text_filler
from sqlml.backends.category_lookup import ArrowEncoder, make_arrow_encoders
from sqlml.backends.costs import current_costs
from sqlml.backends.no_wait import NotReady, no_wait
from sqlml.errors import ScoringError, UnknownCategoryError
from sqlml.ir.program import Program
from sqlml.passes.split import PACKED, Layout, SplitProgram, text_input_name
from sqlml.planner.program.choose import choose_way
from sqlml.planner.program.cost import ROWS
from sqlml.planner.program.prepare_program import compile_core, prepare_output
from sqlml.scorer.input_table import Table
from sqlml.types import Array, Feature
from sqlml.udfs.make_function import name_refused_value

MAX_PART_ROWS = 16_384  # Maximum number of rows in a part of a batch.
BLOCK_ROWS = 512  # Rows that kernels score at a time. The size of a part is a multiple.
MIN_PARALLEL_NS = 200_000.0  # Waking threads is not worthwhile for shorter batches.
MAX_FEW_ROWS = 16  # Maximum rows for `FewTextsScorer`. More rows are faster with a table.


@dataclass(frozen=True, slots=True, eq=False)
class CompiledOutput:
    """A compiled output of a model, with encoders for string columns and a numeric `core`.

    `look_up` maps each column of category codes to the name of a feature and an encoder. If
    `look_up` is None, `encode` computes the codes. `core` reads a packed matrix of `dtype`.
    `row_ns` is the estimated time per row in nanoseconds.
    """

    output: str
    split: SplitProgram
    core: CompiledProgram
    encode: CompiledProgram | None
    look_up: Mapping[str, tuple[str, ArrowEncoder]] | None
    dtype: np.dtype[Any]
    on_cpu: bool
    row_ns: float

    def score(self, table: Table) -> Array:
        """Compute the output (n, k) for the n rows of a table."""
        try:
            with no_wait():
                return self._score(table)
        except NotReady:  # No slower path can replace this kernel, so wait until it is compiled.
            return self._score(table)

    def _score(self, table: Table) -> Array:
        codes: Mapping[str, Array] = {}
        if self.look_up is not None:
            strings = {name: table.read_strings(name) for name, _ in self.look_up.values()}
            codes = {code: encode(strings[name]) for code, (name, encode) in self.look_up.items()}
        elif self.encode is not None:
            codes = self.encode.run({n: table.read_objects(n) for n in self.encode.program.inputs})
        packed_matrix = table.pack(self.split.columns, codes, self.dtype)
        inputs: dict[str, Any] = {PACKED: packed_matrix}
        texts = enumerate(self.split.texts)
        inputs |= {text_input_name(index): table.read_texts(name) for index, name in texts}
        try:
            return self.core.run(inputs, (self.output,))[self.output]
        except UnknownCategoryError as error:
            raise name_refused_value(error, self.split.core, inputs, table.read_cell) from None


def compile_output(
    program: Program, output: str, layout: Layout, options: Mapping[str, Any]
) -> CompiledOutput:
    """Compile the string encoders and the numeric core of an output, and estimate the row time."""
    split = prepare_output(program, output, None, layout).split
    choice = choose_way(split.core, options, batch=ROWS)  # All rows arrive at once.
    encoders = split.encoders
    look_up = None if encoders is None else make_arrow_encoders(encoders)
    row_ns = 50.0
    if choice.estimates:  # Subtract the time in which an engine would pass a row to the function.
        transfer_ns = len(split.columns) * current_costs()["udf.number"]
        row_ns = max(1.0, choice.estimates[0].seconds / ROWS * 1e9 - transfer_ns)
    return CompiledOutput(
        output,
        split,
        compile_core(split.core, choice),
        None if encoders is None or look_up else compile_core(encoders, choose_way(encoders, {})),
        look_up,
        np.dtype(split.core.input_type(PACKED).dtype),
        choice.device == "cpu",
        row_ns,
    )


def decode_labels(class_indices: Array, labels: Sequence[Array]) -> Array:
    """Decode class indices (n, targets) to labels, or to objects if the target dtypes differ."""
    columns = []
    for column, classes in zip(class_indices.T, labels, strict=True):
        if column.size and not (column.min() >= 0 and column.max() < len(classes)):
            raise ScoringError("the model returned a class number for which it has no label")
        columns.append(classes.take(column))
    if len({classes.dtype.kind for classes in labels}) > 1:
        columns = [column.astype(object) for column in columns]
    return np.stack(columns, axis=1)


def split_rows(rows: int, threads: int, row_ns: float) -> list[slice]:
    """Split a batch into equal parts for threads. A row takes about `row_ns` nanoseconds.

    >>> split_rows(10_000, 2, row_ns=500.0)
    [slice(0, 5120, None), slice(5120, 10000, None)]
    >>> split_rows(10_000, 2, row_ns=1.0)
    [slice(0, 10000, None)]
    """
    num_threads = threads if rows * row_ns >= MIN_PARALLEL_NS else 1
    num_parts = max(1, -(-rows // (MAX_PART_ROWS * num_threads)) * num_threads)
    part_rows = max(BLOCK_ROWS, -(-rows // (num_parts * BLOCK_ROWS)) * BLOCK_ROWS)
    starts = range(0, max(rows, 1), part_rows)
    return [slice(start, min(start + part_rows, rows)) for start in starts]


class MatrixScorer:
    """A thread-safe scorer for matrices (n, `width`) of dtype `filler.input`. Rows are not copied.

    If `labels` contains the classes (K,) of one target, class indices are decoded to these labels.
    `threads` defaults to the number of cores. A row takes about `row_ns` nanoseconds.
    """

    __slots__ = ("_dtype", "_fill", "_labels", "_num_results", "_row_ns", "_threads", "width")

    def __init__(
        self,
        filler: Filler,
        width: int,
        threads: int | None,
        row_ns: float,
        labels: Sequence[Array],
    ) -> None:
        self.width: int = width
        self._fill = filler.fill
        self._dtype = filler.dtype
        self._num_results = filler.width
        self._threads = threads or os.cpu_count() or 1
        self._row_ns = row_ns
        self._labels = labels[0] if labels else None

    @classmethod
    def of(
        cls,
        compiled: CompiledOutput,
        features: Sequence[Feature],
        labels: Sequence[Array],
        threads: int | None,
    ) -> MatrixScorer | None:
        """Make a scorer, or return None if the model reads strings or no kernel scores matrices."""
        split = compiled.split
        if split.encoders is not None or split.texts or not split.columns:
            return None
        indices = {feature.name: i for i, feature in enumerate(features)}
        columns = [indices[column.name] for column in split.columns]
        filler = find_filler(compiled.core, compiled.output, columns, len(features))
        if filler is None:
            return None
        if labels:  # Each class index that the kernel writes must have a label.
            if len(labels) > 1 or filler.below is None or filler.below > len(labels[0]):
                return None
        return cls(filler, len(features), threads, compiled.row_ns, labels)

    def score(self, x: Array) -> Array | None:
        """Return the output (n, k) or the labels (n,), or None if the model rejects a row."""
        num_rows, labels = x.shape[0], self._labels
        slices = split_rows(num_rows, self._threads, self._row_ns) if num_rows > BLOCK_ROWS else ()
        if len(slices) < 2:
            result = np.empty((num_rows, self._num_results), self._dtype)
            with no_wait():
                if self._fill(x, result) >= 0:
                    return None
            return result if labels is None else labels.take(result.ravel(), mode="clip")
        shape = num_rows if labels is not None else (num_rows, self._num_results)
        output = np.empty(shape, self._dtype if labels is None else labels.dtype)

        def score_part(rows: slice) -> int:
            """Score a slice of rows; return the index of the first rejected row, or -1."""
            block, output_block = x[rows], output[rows]
            if labels is None:
                with no_wait():
                    return self._fill(block, output_block)
            class_indices = np.empty((len(block), 1), self._dtype)
            with no_wait():
                rejected_row = self._fill(block, class_indices)
            if rejected_row < 0:
                labels.take(class_indices[:, 0], out=output_block, mode="clip")
            return rejected_row

        map_parts = map if self._threads == 1 else get_thread_pool(self._threads).map
        return output if max(map_parts(score_part, slices)) < 0 else None


@lru_cache(maxsize=8)
def get_thread_pool(threads: int) -> ThreadPoolExecutor:
    """Return a pool whose threads stay alive between batches."""
    return ThreadPoolExecutor(threads, thread_name_prefix="sqlml")


if hasattr(os, "register_at_fork"):  # A forked process does not inherit threads.
    os.register_at_fork(after_in_child=get_thread_pool.cache_clear)


class FewTextsScorer:
    """A thread-safe fast path for a few rows, if a model has only string columns.

    `filler` is a result of `CompiledProgram.text_filler`, and `follower` calls `filler` for a few
    rows. `columns` are the indices of the string columns in `features`.
    """

    __slots__ = ("_columns", "_dtype", "_features", "_names", "_run", "_width", "_x")

    def __init__(
        self, filler: Any, follower: Any, features: Sequence[Feature], columns: Sequence[int]
    ) -> None:
        self._run = follower.run
        self._width: int = filler.width
        self._dtype: np.dtype[Any] = filler.dtype
        self._features, self._columns = features, columns
        self._names = [features[column].name for column in columns]
        self._x = np.empty((MAX_FEW_ROWS, filler.columns), filler.input)

    @classmethod
    def of(cls, compiled: CompiledOutput, features: Sequence[Feature]) -> FewTextsScorer | None:
        """Make a scorer, or return None if the model reads numbers or no kernel scores strings."""
        split = compiled.split
        if split.encoders is not None or split.columns or not split.texts:
            return None
        filler = find_text_filler(compiled.core, compiled.output)
        if filler is None or filler.reads_rows or not filler.texts:
            return None
        follower = filler.get_runner(1)
        if follower is None:
            return None
        index_by_name = {feature.name: i for i, feature in enumerate(features)}
        return cls(filler, follower, features, [index_by_name[name] for name in split.texts])

    def score(self, x: Any) -> Array | None:
        """Return the output (n, k), or None if `x` has too many rows or values of other types."""
        columns = self._read_texts(x)
        if columns is None:
            return None
        rows = len(columns[0])
        if not 0 < rows <= MAX_FEW_ROWS:
            return None
        try:
            encoded_texts = [str.encode(text) for column in columns for text in column]
        except (TypeError, UnicodeEncodeError):  # A value is not a string, or not valid Unicode.
            return None
        text_bytes = np.frombuffer(b"".join(encoded_texts), np.uint8)
        address = text_bytes.__array_interface__["data"][0]
        ends = np.empty((2 * len(columns), rows), np.int64)
        lengths = iter(map(len, encoded_texts))
        for ends_row in range(0, len(ends), 2):
            for row in range(rows):
                ends[ends_row, row] = address
                address += next(lengths)
                ends[ends_row + 1, row] = address
        result = np.empty((rows, self._width), self._dtype)
        scored_rows = self._run(self._x[:rows], ends, result, 0, rows, MAX_FEW_ROWS)
        return result if scored_rows == rows else None

    def _read_texts(self, x: Any) -> list[list[Any]] | None:
        cls = type(x)
        if cls is np.ndarray:
            if x.ndim == 2 and x.dtype == object and x.shape[1] == len(self._features):
                return [x[:, k].tolist() for k in self._columns] if len(x) <= MAX_FEW_ROWS else None
        elif cls is list:
            if len(self._features) == 1 and x and type(x[0]) is str:
                return [x]
        elif cls.__name__ == "DataFrame" and cls.__module__.partition(".")[0] == "pandas":
            labels = x.columns
            try:
                if len(x) == 1 and labels.is_unique:
                    return [[x.iat[0, labels.get_loc(name)]] for name in self._names]
            except (KeyError, TypeError):  # Names differ in case, or are not strings.
                pass
        return None
