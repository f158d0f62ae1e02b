"""Score Arrow batches with a compiled Program.

An engine turns every exception into plain text. So a batch function stores its error under a token
and raises an exception that contains the token (`park_error`). The session finds the token in the
engine's message, and raises the original error (`claim_error`). If a model is a SQL expression, its
error message begins with the name of the error class.
"""

from __future__ import annotations

import itertools
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from sqlml.backends.base import CompiledProgram, Filler, find_filler
from sqlml.backends.no_wait import NotReady, no_wait
from sqlml.errors import (
    InputTypeError,
    MissingValueError,
    ScoringError,
    SqlmlError,
    UnknownCategoryError,
)
from sqlml.ir.utf8_column import TextColumn
from sqlml.passes.split import text_input_name
from sqlml.planner.program.function_spec import Field
from sqlml.types import Array

_TOKEN = re.compile(r"sqlml-failure-(\d+)")
_ERROR_CLASSES: Mapping[str, type[ScoringError]] = MappingProxyType(
    {cls.__name__: cls for cls in (MissingValueError, UnknownCategoryError)}
)
"""Maps class names in messages of `backends.sql.expression.NodePrinter.error` to the classes."""
_SQL_ERROR = re.compile(rf"Invalid Input Error: ({'|'.join(_ERROR_CLASSES)}): (.*)", re.DOTALL)
_MAX_PARKED = 100
_tokens = itertools.count(1)
_parked_errors: OrderedDict[int, BaseException] = OrderedDict()
_lock = threading.Lock()


class ParkedFailure(Exception):
    """Raised inside the engine. The message contains the token of the parked error."""


def park_error(error: Exception) -> ParkedFailure:
    """Store `error` for `claim_error`, and return an exception to raise instead.

    The message of the exception contains the token of `error`. If `error` is not a SqlmlError, it
    becomes the cause of a ScoringError that asks for a report. Tracebacks are dropped, because they
    would keep the batch and the model alive until the error is claimed.
    """
    if not isinstance(error, SqlmlError):
        scoring_error = ScoringError(
            f"scoring failed in backend code ({type(error).__name__}: {error}); "
            "please report this with the model's DESCRIBE"
        )
        scoring_error.__cause__ = error
        error = scoring_error
    chained_error: BaseException | None = error
    while chained_error is not None:
        chained_error.__traceback__ = None
        chained_error = chained_error.__cause__ or chained_error.__context__
    token = next(_tokens)
    with _lock:
        _parked_errors[token] = error
        if len(_parked_errors) > _MAX_PARKED:  # A client may never claim errors.
            _parked_errors.popitem(last=False)
    return ParkedFailure(f"sqlml-failure-{token}: {error}")


def claim_error(message: str) -> BaseException | None:
    """Return the sqlml error that caused an engine's message, or None if sqlml did not cause it."""
    token_match = _TOKEN.search(message)
    if token_match is None:
        sql_error = _SQL_ERROR.match(message)
        return None if sql_error is None else _ERROR_CLASSES[sql_error[1]](sql_error[2])
    with _lock:
        return _parked_errors.pop(int(token_match[1]), None)


@dataclass(frozen=True, slots=True)
class CategoryEncoder:
    """Encodes string columns that have too many categories to be written into a query.

    `compiled` maps each string column of `inputs` to the column of codes (n, 1) in `outputs`. In a
    batch, the columns of `inputs` follow the first `first_text` string columns. The engine fills
    the matrix columns `packed_columns`. The codes fill the matrix columns `looked_up_columns`.
    """

    compiled: CompiledProgram
    first_text: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    packed_columns: tuple[int, ...]
    looked_up_columns: tuple[int, ...]
    dtype: str

    def complete(self, packed_matrix: Array, texts: Mapping[str, Any]) -> Array:
        """Return the full matrix, which combines `packed_matrix` with the codes of `texts`."""
        codes = self.compiled.run(texts, self.outputs)
        width = len(self.packed_columns) + len(self.looked_up_columns)
        matrix = np.empty((packed_matrix.shape[0], width), self.dtype)
        matrix[:, self.packed_columns] = packed_matrix[:, : len(self.packed_columns)]
        for column, output in zip(self.looked_up_columns, self.outputs, strict=True):
            matrix[:, column] = codes[output][:, 0]
        return matrix


MAX_THREADS = 64  # Maximum number of threads whose last batches are remembered.


class LastRows:
    """The last batch of each thread with its results. Thread-safe.

    An engine evaluates a call in WHERE before the same call in SELECT. The call in SELECT gets a
    subset of the previous batch, in the same order. Comparing the bytes finds these rows in a few
    nanoseconds per row, since equal bytes have equal scores. `found_rows` counts the rows found.
    """

    def __init__(self) -> None:
        self.found_rows: int = 0
        self._last_batches: OrderedDict[int, tuple[Array, Array]] = OrderedDict()
        self._lock = threading.Lock()

    def make_twin(self) -> LastRows:
        """Return an instance with the same remembered rows, but with a separate `found_rows`."""
        twin_rows = LastRows()
        twin_rows._last_batches, twin_rows._lock = self._last_batches, self._lock
        return twin_rows

    def find(self, rows: Array) -> Array | None:
        """Return the results (n, outputs) of `rows` (n, k), or None if a row is not remembered."""
        with self._lock:
            last_batch = self._last_batches.get(threading.get_ident())
        if last_batch is None or last_batch[0].shape[1] != rows.shape[1] or not rows.size:
            return None
        # Imported late, since few queries score the same rows twice.
        from sqlml.backends.native.jit.specialise import reads, specialise, writes

        row_bits = _view_bits(rows)
        positions = np.empty(len(rows), np.int64)
        rows_kind = reads(row_bits.dtype, 2, "C")
        kernel = specialise(find, (rows_kind, rows_kind, writes(np.int64, 1)))
        if not kernel(last_batch[0], row_bits, positions):
            return None
        with self._lock:
            self.found_rows += len(rows)
        return last_batch[1][positions]

    def keep(self, rows: Array, results: Array) -> None:
        with self._lock:
            self._last_batches[threading.get_ident()] = (_view_bits(rows).copy(), results)
            self._last_batches.move_to_end(threading.get_ident())
            while len(self._last_batches) > MAX_THREADS:
                self._last_batches.popitem(last=False)


def _view_bits(rows: Array) -> Array:
    """View floats as integers, so that NaN equals NaN and 0.0 differs from -0.0."""
    return np.ascontiguousarray(rows).view(np.uint32 if rows.itemsize == 4 else np.uint64)


def find(known_rows: Any, rows: Any, positions: Any) -> Any:
    """Set `positions` to the index of each row in `known_rows`; return False if one is missing."""
    position, width = 0, rows.shape[1]
    for row in range(rows.shape[0]):
        while True:
            if position == known_rows.shape[0]:
                return False
            column = 0
            while column < width and known_rows[position, column] == rows[row, column]:
                column += 1
            if column == width:
                break
            position += 1
        positions[row] = position
    return True


Texts = Mapping[str, TextColumn]
Explain = Callable[[UnknownCategoryError, Mapping[str, Any], Texts], UnknownCategoryError]

_ARROW_TYPES = {"INTEGER": pa.int32(), "DOUBLE": pa.float64()}


@dataclass(frozen=True)
class BatchFunction:
    """A function that scores a batch. Any number of threads may call it at once.

    If `by_column` is true, the arguments are one array per numeric column, then one array per
    string column. Otherwise, the first argument is a fixed-size list array with the numbers of each
    row. If `texts` is not 0, a second argument then has a list of `texts` strings per row, encoded
    as UTF-8 bytes, because an engine may pass VARCHAR in several layouts.
    """

    # Reads `input_name` (n, width) of `dtype` and computes `output` (n, columns).
    compiled: CompiledProgram
    input_name: str
    output: str
    width: int
    dtype: str
    is_integer: bool  # Returns INTEGER instead of DOUBLE.
    columns: int
    # Returns a list even for a single column. Several columns are always returned as a list.
    is_listed: bool = False
    # Lengths of the lists into which a row's results are split, one per target; empty for one list.
    groups: tuple[int, ...] = ()
    class_offsets: tuple[int, ...] = ()  # The offset to add to the class indices of each target.
    explain: Explain | None = None  # Adds details to an error about an unknown category.
    last_rows: LastRows | None = None  # Finds rows that were scored just before.
    nbytes: int = 0
    max_rows: int | None = None  # Maximum number of rows to score at once.
    lookup: CategoryEncoder | None = None
    texts: int = 0
    by_column: bool = False
    fields: tuple[Field, ...] = ()  # Names and types of the result if it is a struct.

    @property
    def argument_count(self) -> int:
        return self.packed + self.texts if self.by_column else 1 + bool(self.texts)

    @property
    def packed(self) -> int:
        return self.width if self.lookup is None else max(1, len(self.lookup.packed_columns))

    def __call__(self, *arrays: pa.Array | pa.ChunkedArray) -> pa.Array:
        """Score one batch; raise every error as a ParkedFailure for `claim_error`."""
        try:
            if self.by_column:
                matrix = stack_columns(arrays[: self.packed], self.dtype)
                texts = [TextColumn.from_values(column) for column in arrays[self.packed :]]
            else:
                matrix = unpack_rows(arrays[0], self.packed, self.dtype)
                texts = split_text_lists(arrays[1], self.texts) if self.texts else []
            named_texts = {text_input_name(k): column for k, column in enumerate(texts)}
            return self.score_in_parts(matrix, named_texts)
        except Exception as error:
            raise park_error(error) from None

    def score_matrix(self, matrix: Array, texts: Mapping[str, Any]) -> pa.Array:
        """Score the rows of `matrix` (n, packed); errors are raised without parking them."""
        numbers, row_count = self.score_numbers(matrix, texts), matrix.shape[0]
        if self.fields:
            values = np.frombuffer(numbers.buffers()[1], np.float64, len(numbers))
            columns = values.reshape(row_count, self.columns).T
            names, types = zip(*self.fields, strict=True)
            arrays = [to_arrow(c, _ARROW_TYPES[t]) for c, t in zip(columns, types, strict=True)]
            return pa.StructArray.from_arrays(arrays, list(names))
        if self.columns == 1 and not self.is_listed:
            return numbers
        row_length = self.columns
        if self.groups:
            numbers = _make_lists(numbers, np.append(0, np.cumsum(np.tile(self.groups, row_count))))
            row_length = len(self.groups)
        return _make_lists(numbers, np.arange(0, row_count * row_length + 1, row_length))

    def score_in_parts(self, matrix: Array, texts: Mapping[str, Any]) -> pa.Array:
        """Score any number of rows, with at most `max_rows` rows per call of `score_matrix`."""
        row_count, max_rows = matrix.shape[0], self.max_rows
        if max_rows is None or row_count <= max_rows:
            return self.score_matrix(matrix, texts)
        results = []
        for start in range(0, row_count, max_rows):
            row_slice = slice(start, start + max_rows)
            selected_texts = {name: column[row_slice] for name, column in texts.items()}
            results.append(self.score_matrix(matrix[row_slice], selected_texts))
        return pa.concat_arrays(results)

    def score_numbers(self, matrix: Array, texts: Mapping[str, Any]) -> pa.Array:
        """Return the results, flattened row by row; wait for a kernel only if no path avoids it."""
        try:
            with no_wait():
                return self._compute_numbers(matrix, texts)
        except NotReady:  # No slower path can replace this kernel.
            return self._compute_numbers(matrix, texts)

    def _compute_numbers(self, matrix: Array, texts: Mapping[str, Any]) -> pa.Array:
        looked_up_texts: dict[str, TextColumn] = {}
        if (lookup := self.lookup) is not None:
            for text_index, name in enumerate(lookup.inputs, lookup.first_text):
                looked_up_texts[name] = texts[text_input_name(text_index)]
            matrix = lookup.complete(matrix, looked_up_texts)
            texts = {name: texts[name] for name in map(text_input_name, range(lookup.first_text))}
        try:
            return self._recall_or_score(matrix, texts)
        except UnknownCategoryError as error:
            if self.explain is None:
                raise
            inputs = {self.input_name: matrix, **texts}
            raise self.explain(error, inputs, looked_up_texts) from None

    def _recall_or_score(self, matrix: Array, texts: Mapping[str, Any]) -> pa.Array:
        last_rows = None if texts else self.last_rows
        recalled_results = numbers = None
        with suppress(NotReady):
            recalled_results = None if last_rows is None else last_rows.find(matrix)
        if recalled_results is not None:
            return to_arrow(recalled_results.ravel(), self._arrow_type)
        with suppress(NotReady):
            numbers = None if texts else self._score_with_filler(matrix)
        if numbers is None:
            numbers = self._score_with_backend(matrix, texts)
        if last_rows is not None:
            values = np.frombuffer(numbers.buffers()[1], self._arrow_type.to_pandas_dtype())
            last_rows.keep(matrix, values[: len(numbers)].reshape(-1, self.columns))
        return numbers

    @property
    def _arrow_type(self) -> pa.DataType:
        return _ARROW_TYPES["INTEGER" if self.is_integer else "DOUBLE"]

    @cached_property
    def _filler(self) -> Filler | None:
        filler = find_filler(self.compiled, self.output, range(self.width), self.width)
        fits = filler is not None and filler.width == self.columns and filler.input == self.dtype
        return filler if fits else None

    def _score_with_filler(self, matrix: Array) -> pa.Array | None:
        """Score into an Arrow buffer, or return None if the filler is missing or rejects a row."""
        filler = self._filler
        if filler is None or self.class_offsets or not matrix.flags.aligned:
            return None
        shape = matrix.shape[0], self.columns
        if filler.dtype != np.float64 or self.is_integer:
            values = np.empty(shape, filler.dtype)
            rejected_row = filler.fill(matrix, values)
            return to_arrow(values.ravel(), self._arrow_type) if rejected_row < 0 else None
        num_values = shape[0] * shape[1]
        buffer = pa.allocate_buffer(num_values * 8)
        rejected_row = filler.fill(matrix, np.frombuffer(buffer, np.float64).reshape(shape))
        if rejected_row >= 0:
            return None
        return pa.Array.from_buffers(self._arrow_type, num_values, [None, buffer])

    def _score_with_backend(self, matrix: Array, texts: Mapping[str, Any]) -> pa.Array:
        inputs = {self.input_name: matrix, **texts}
        result = self.compiled.run(inputs, [self.output])[self.output]
        if result.shape != (matrix.shape[0], self.columns):
            raise ScoringError(
                f"the model returned shape {result.shape} instead of "
                f"{(matrix.shape[0], self.columns)}; please report this with the model's DESCRIBE"
            )
        if self.class_offsets:
            result = result + np.array(self.class_offsets)
        return to_arrow(result.reshape(-1), self._arrow_type)


def arrow_type(sql_type: str) -> pa.DataType:
    """Convert the SQL result type of a function to an Arrow type.

    >>> str(arrow_type("DOUBLE[]"))
    'list<item: double>'
    """
    converted_type = _ARROW_TYPES[sql_type.removesuffix("[]").removesuffix("[]")]
    for _ in range(sql_type.count("[]")):
        converted_type = pa.list_(converted_type)
    return converted_type


def split_text_lists(lists: pa.Array | pa.ChunkedArray, column_count: int) -> list[TextColumn]:
    """Convert an array with one list of `column_count` texts per row to `column_count` columns."""
    lists = join_chunks(lists)
    list_type = lists.type
    predicates = (pa.types.is_list, pa.types.is_large_list, pa.types.is_list_view)
    is_list = any(predicate(list_type) for predicate in predicates)
    binary_types = (pa.binary(), pa.large_binary(), pa.binary_view())
    if not is_list or list_type.value_type not in binary_types:
        raise InputTypeError(
            f"the texts are {list_type}, but this model's function takes lists of bytes; call it "
            "through predict(...), which packs the columns"
        )
    # Comparing with a Python number would import pandas, which takes 0.2 s.
    lengths = pa.compute.min_max(pa.compute.list_value_length(lists)).as_py()
    if lists.null_count or set(lengths.values()) - {column_count, None}:
        raise InputTypeError(f"each row needs a list of {column_count} texts")
    flat_texts = TextColumn.from_values(lists.flatten())
    return [flat_texts[k::column_count] for k in range(column_count)]


def join_chunks(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return `values` as one array; a single chunk is not copied."""
    if not isinstance(values, pa.ChunkedArray):
        return values
    if values.num_chunks == 1:
        return values.chunk(0)
    return pa.concat_arrays(values.chunks) if values.num_chunks else values.combine_chunks()


def _make_lists(values: pa.Array, offsets: Array) -> pa.ListArray:
    return pa.ListArray.from_arrays(to_arrow(offsets, pa.int32()), values)


def to_arrow(values: Array, arrow_type: pa.DataType) -> pa.Array:
    """Copy a numpy array (n,) into an Arrow array without NULLs.

    `pa.array()` would import pandas. Arrow must own the memory, because DuckDB 1.5 lets Arrow's
    threads release a result, possibly while the interpreter is shutting down. A thread that
    releases numpy's memory needs the GIL, and would abort; see
    https://github.com/apache/arrow/issues/49942.
    """
    dtype = np.dtype(arrow_type.to_pandas_dtype())
    buffer = pa.allocate_buffer(values.size * dtype.itemsize)
    np.frombuffer(buffer, dtype)[:] = values
    return pa.Array.from_buffers(arrow_type, values.size, [None, buffer])


def unpack_rows(packed_rows: pa.Array | pa.ChunkedArray, width: int, dtype: str) -> Array:
    """Convert fixed-size lists to a matrix (n, width); copy the values only if one is NULL."""
    packed_rows = join_chunks(packed_rows)
    list_type, is_fixed_size = packed_rows.type, pa.types.is_fixed_size_list(packed_rows.type)
    if not is_fixed_size or (list_type.list_size, list_type.value_type) != (width, _FLOATS[dtype]):
        raise InputTypeError(
            f"the batch is {list_type}, but this model's function takes {dtype}[{width}]; call it "
            "through predict(...), which packs the columns"
        )
    if packed_rows.null_count:
        raise InputTypeError("a row of the batch is NULL; pass NULL per column instead")
    values = packed_rows.values.slice(packed_rows.offset * width, len(packed_rows) * width)
    return _to_numbers(values, dtype).reshape(-1, width)


def stack_columns(columns: Sequence[pa.Array | pa.ChunkedArray], dtype: str) -> Array:
    """Stack numeric columns (n,) into a matrix (n, columns); NULL becomes NaN."""
    matrix = np.empty((len(columns[0]), len(columns)), dtype)
    for position, column in enumerate(columns):
        matrix[:, position] = _to_numbers(column, dtype)
    return matrix


def _to_numbers(values: pa.Array | pa.ChunkedArray, dtype: str) -> Array:
    """Convert a numeric column to a numpy array; NULL becomes NaN. Copy only if necessary."""
    values = join_chunks(values)
    if values.type != _FLOATS[dtype]:
        raise InputTypeError(
            f"a column of the batch is {values.type}, but this model's function takes {dtype}; "
            "call it through predict(...), which casts the columns"
        )
    if values.null_count:
        values = values.fill_null(float("nan"))
    if not len(values):
        return np.empty(0, dtype)
    start = values.offset * np.dtype(dtype).itemsize
    return np.frombuffer(values.buffers()[1], dtype, len(values), start)


_FLOATS = {"float32": pa.float32(), "float64": pa.float64()}
