"""Score Arrow batches with a compiled Program.

An engine turns every exception into plain text. So a batch function parks its error under a token
(`park`) and raises the token; the session finds the token in the engine's message and raises the
original error (`claim`). A model that is a SQL expression fails with a text that begins with the
name of the error class.
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

from sqlml.backends.base import Compiled, Filler, find_filler
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
from sqlml.planner.program.function_names import Field
from sqlml.types import Array

_TOKEN = re.compile(r"sqlml-failure-(\d+)")
_CLASSES: Mapping[str, type[ScoringError]] = MappingProxyType(
    {kind.__name__: kind for kind in (MissingValueError, UnknownCategoryError)}
)
"""Error classes that `backends.sql.printing.Printing.error` writes, by name."""
_SQL_ERROR = re.compile(rf"Invalid Input Error: ({'|'.join(_CLASSES)}): (.*)", re.DOTALL)
_MOST_PARKED = 100
_counter = itertools.count(1)
_parked: OrderedDict[int, BaseException] = OrderedDict()
_lock = threading.Lock()


class ParkedFailure(Exception):
    """Raised inside the engine, with the token in its text."""


def park(error: Exception) -> ParkedFailure:
    """Park `error` and return the exception to raise instead.

    An error that is not sqlml's becomes the cause of a ScoringError that asks for a report.
    Tracebacks are dropped, since they keep the batch and the model alive, maybe unclaimed.
    """
    if not isinstance(error, SqlmlError):
        unforeseen = ScoringError(
            f"scoring failed in backend code ({type(error).__name__}: {error}); "
            "please report this with the model's DESCRIBE"
        )
        unforeseen.__cause__ = error
        error = unforeseen
    link: BaseException | None = error
    while link is not None:
        link.__traceback__ = None
        link = link.__cause__ or link.__context__
    number = next(_counter)
    with _lock:
        _parked[number] = error
        while len(_parked) > _MOST_PARKED:  # Bounds memory if a client never claims its errors.
            _parked.popitem(last=False)
    return ParkedFailure(f"sqlml-failure-{number}: {error}")


def claim(message: str) -> BaseException | None:
    """Return the sqlml error behind an engine's message, or None."""
    match = _TOKEN.search(message)
    if match is None:
        sql_error = _SQL_ERROR.match(message)
        return None if sql_error is None else _CLASSES[sql_error[1]](sql_error[2])
    with _lock:
        return _parked.pop(int(match[1]), None)


@dataclass(frozen=True, slots=True)
class Lookup:
    """Encodes categories that are too many to be written into a query.

    `compiled` computes `outputs`, (n, 1) codes each, from the texts `inputs`, which follow the
    `first` texts of a batch. The engine packs some columns of the matrix, and codes fill those that
    are looked up.
    """

    compiled: Compiled
    first: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    packed: tuple[int, ...]
    looked_up: tuple[int, ...]
    dtype: str

    def complete(self, matrix_columns: Array, texts: Mapping[str, Any]) -> Array:
        """Join the packed columns (n, columns) and the codes of `texts` to a matrix (n, all)."""
        codes = self.compiled.run(texts, self.outputs)
        width = len(self.packed) + len(self.looked_up)
        matrix = np.empty((matrix_columns.shape[0], width), self.dtype)
        matrix[:, self.packed] = matrix_columns[:, : len(self.packed)]
        for column, output in zip(self.looked_up, self.outputs, strict=True):
            matrix[:, column] = codes[output][:, 0]
        return matrix


MOST_THREADS = 64  # Whose last batches are remembered.


class LastRows:
    """The last batch of each thread with its results. Thread-safe.

    An engine evaluates a call in WHERE before the same call in SELECT, which gets some rows of the
    batch before, in the same order. They are found by their bytes in a few nanoseconds per row,
    since equal bytes have equal scores. `found_rows` counts them.
    """

    def __init__(self) -> None:
        self.found_rows: int = 0
        self._last: OrderedDict[int, tuple[Array, Array]] = OrderedDict()
        self._lock = threading.Lock()

    def twin(self) -> LastRows:
        """Return an instance that shares these rows and has its own count."""
        twin = LastRows()
        twin._last, twin._lock = self._last, self._lock
        return twin

    def find(self, rows: Array) -> Array | None:
        """Return the results (n, outputs) of `rows` (n, k) if the last batch has them all."""
        with self._lock:
            last = self._last.get(threading.get_ident())
        if last is None or last[0].shape[1] != rows.shape[1] or not rows.size:
            return None
        bits, positions = _view_bits(rows), np.empty(len(rows), np.int64)
        # Imported late, since few queries score the same rows twice.
        from sqlml.backends.native.jit.specialise import reads, specialise, writes

        rows_kind = reads(bits.dtype, 2, "C")
        kernel = specialise(find, (rows_kind, rows_kind, writes(np.int64, 1)))
        if not kernel(last[0], bits, positions):
            return None
        with self._lock:
            self.found_rows += len(rows)
        return last[1][positions]

    def keep(self, rows: Array, results: Array) -> None:
        with self._lock:
            self._last[threading.get_ident()] = (_view_bits(rows).copy(), results)
            self._last.move_to_end(threading.get_ident())
            while len(self._last) > MOST_THREADS:
                self._last.popitem(last=False)


def _view_bits(rows: Array) -> Array:
    """View rows of floats as integers, so that NaN equals itself and 0.0 differs from -0.0."""
    return np.ascontiguousarray(rows).view(np.uint32 if rows.itemsize == 4 else np.uint64)


def find(known: Any, rows: Any, positions: Any) -> Any:
    """Write the positions of `rows` among `known`, in the same order; return whether all exist."""
    position, width = 0, rows.shape[1]
    for r in range(rows.shape[0]):
        while True:
            if position == known.shape[0]:
                return False
            k = 0
            while k < width and known[position, k] == rows[r, k]:
                k += 1
            if k == width:
                break
            position += 1
        positions[r] = position
    return True


Explain = Callable[
    [UnknownCategoryError, Mapping[str, Any], Mapping[str, TextColumn]], UnknownCategoryError
]

_KINDS = {"INTEGER": pa.int32(), "DOUBLE": pa.float64()}


@dataclass(frozen=True)
class BatchFunction:
    """Scores a batch. Any number of threads may call it at once.

    It takes a fixed-size list array with the numbers of each row. If `texts` is not 0, a second
    array has a list of that many texts per row, as UTF-8 bytes, since an engine may pass VARCHAR in
    several layouts. With `by_column` it takes an array per column of numbers, then one per column
    of texts.
    """

    # Reads `input_name` (n, width) of `dtype` and computes `output` (n, columns).
    compiled: Compiled
    input_name: str
    output: str
    width: int
    dtype: str
    integer: bool  # Returns INTEGER instead of DOUBLE.
    columns: int
    # Returns a list even for a single column. Several columns always are a list.
    listed: bool = False
    # Lengths of the lists that a row's numbers are split into, one per target; empty for one list.
    groups: tuple[int, ...] = ()
    shifts: tuple[int, ...] = ()  # Offsets to add to the class numbers of each target.
    explain: Explain | None = None  # Adds details to an error about a category.
    last: LastRows | None = None  # Finds rows that were scored just before.
    nbytes: int = 0
    most: int | None = None  # Maximum number of rows to score at once.
    lookup: Lookup | None = None
    texts: int = 0
    by_column: bool = False
    fields: tuple[Field, ...] = ()  # Names and types of the result if it is a struct.

    @property
    def argument_count(self) -> int:
        return self.packed + self.texts if self.by_column else 1 + bool(self.texts)

    @property
    def packed(self) -> int:
        """Return the number of matrix columns that the engine packs."""
        return self.width if self.lookup is None else max(1, len(self.lookup.packed))

    def __call__(self, *arrays: pa.Array | pa.ChunkedArray) -> pa.Array:
        """Score one batch; a ParkedFailure has the token of the typed error (`claim`)."""
        try:
            if self.by_column:
                matrix = matrix_of(arrays[: self.packed], self.dtype)
                texts = [TextColumn.from_values(column) for column in arrays[self.packed :]]
            else:
                matrix = rows_of(arrays[0], self.packed, self.dtype)
                texts = texts_of(arrays[1], self.texts) if self.texts else []
            named_texts = {text_input_name(k): column for k, column in enumerate(texts)}
            return self.score_in_parts(matrix, named_texts)
        except Exception as error:
            raise park(error) from None

    def score_matrix(self, matrix: Array, texts: Mapping[str, Any]) -> pa.Array:
        """Score rows (n, packed) of `dtype`, raising the typed errors themselves."""
        numbers, rows = self.score_numbers(matrix, texts), matrix.shape[0]
        if self.fields:
            columns = np.frombuffer(numbers.buffers()[1], np.float64, len(numbers))
            each = zip(columns.reshape(rows, self.columns).T, self.fields, strict=True)
            arrays = [arrow_of(column, _KINDS[kind]) for column, (_, kind) in each]
            return pa.StructArray.from_arrays(arrays, [name for name, _ in self.fields])
        if self.columns == 1 and not self.listed:
            return numbers
        per_row = self.columns
        if self.groups:
            numbers = _lists(numbers, np.append(0, np.cumsum(np.tile(self.groups, rows))))
            per_row = len(self.groups)
        return _lists(numbers, np.arange(0, rows * per_row + 1, per_row))

    def score_in_parts(self, matrix: Array, texts: Mapping[str, Any]) -> pa.Array:
        """Score any number of rows like `score_matrix`, at most `most` at once."""
        rows, most = matrix.shape[0], self.most
        if most is None or rows <= most:
            return self.score_matrix(matrix, texts)
        parts = [slice(first, first + most) for first in range(0, rows, most)]
        return pa.concat_arrays(
            [self.score_matrix(matrix[p], {n: t[p] for n, t in texts.items()}) for p in parts]
        )

    def score_numbers(self, matrix: Array, texts: Mapping[str, Any]) -> pa.Array:
        """Return all numbers row by row, on a slower path while kernels are still compiling."""
        try:
            with no_wait():
                return self._numbers(matrix, texts)
        except NotReady:  # This kernel has no slower path.
            return self._numbers(matrix, texts)

    def _numbers(self, matrix: Array, texts: Mapping[str, Any]) -> pa.Array:
        looked_up: dict[str, TextColumn] = {}
        if self.lookup is not None:
            lookup = self.lookup
            positions = enumerate(lookup.inputs, lookup.first)
            looked_up = {name: texts[text_input_name(k)] for k, name in positions}
            matrix = lookup.complete(matrix, looked_up)
            texts = {name: texts[name] for name in map(text_input_name, range(lookup.first))}
        try:
            return self._score_or_recall(matrix, texts)
        except UnknownCategoryError as error:
            if self.explain is None:
                raise
            inputs = {self.input_name: matrix, **texts}
            raise self.explain(error, inputs, looked_up) from None

    def _score_or_recall(self, matrix: Array, texts: Mapping[str, Any]) -> pa.Array:
        """Return the remembered results of the rows if there are any, or else compute them."""
        last = None if texts else self.last
        recalled = numbers = None
        with suppress(NotReady):
            recalled = None if last is None else last.find(matrix)
        if recalled is not None:
            return arrow_of(recalled.ravel(), self._kind)
        with suppress(NotReady):
            numbers = None if texts else self._fill(matrix)
        if numbers is None:
            numbers = self._compute(matrix, texts)
        if last is not None:
            values = np.frombuffer(numbers.buffers()[1], self._kind.to_pandas_dtype())
            last.keep(matrix, values[: len(numbers)].reshape(-1, self.columns))
        return numbers

    @property
    def _kind(self) -> pa.DataType:
        return _KINDS["INTEGER" if self.integer else "DOUBLE"]

    @cached_property
    def _filler(self) -> Filler | None:
        filler = find_filler(self.compiled, self.output, range(self.width), self.width)
        fits = filler is not None and filler.width == self.columns and filler.input == self.dtype
        return filler if fits else None

    def _fill(self, matrix: Array) -> pa.Array | None:
        """Score directly into Arrow's memory, or return None where that is impossible."""
        filler = self._filler
        if filler is None or self.shifts or not matrix.flags.aligned:
            return None
        shape = matrix.shape[0], self.columns
        if filler.dtype != np.float64 or self.integer:
            values = np.empty(shape, filler.dtype)
            return arrow_of(values.ravel(), self._kind) if filler.fill(matrix, values) < 0 else None
        buffer = pa.allocate_buffer(shape[0] * shape[1] * 8)
        if filler.fill(matrix, np.frombuffer(buffer, np.float64).reshape(shape)) >= 0:
            return None
        return pa.Array.from_buffers(self._kind, shape[0] * shape[1], [None, buffer])

    def _compute(self, matrix: Array, texts: Mapping[str, Any]) -> pa.Array:
        inputs = {self.input_name: matrix, **texts}
        result = self.compiled.run(inputs, [self.output])[self.output]
        if result.shape != (matrix.shape[0], self.columns):
            raise ScoringError(
                f"the model returned shape {result.shape} instead of "
                f"{(matrix.shape[0], self.columns)}; please report this with the model's DESCRIBE"
            )
        if self.shifts:
            result = result + np.array(self.shifts)
        return arrow_of(result.reshape(-1), self._kind)


def arrow_type(result: str) -> pa.DataType:
    """Return the Arrow type of a function's SQL result type.

    >>> str(arrow_type("DOUBLE[]"))
    'list<item: double>'
    """
    kind = _KINDS[result.removesuffix("[]").removesuffix("[]")]
    for _ in range(result.count("[]")):
        kind = pa.list_(kind)
    return kind


def texts_of(lists: pa.Array | pa.ChunkedArray, columns: int) -> list[TextColumn]:
    """Split lists of `columns` texts (bytes or NULL) into columns; a single chunk is not copied."""
    lists = join_chunks(lists)
    kind, types = lists.type, pa.types
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_list_view(kind)
    binary = (pa.binary(), pa.large_binary(), pa.binary_view())
    if not is_list or kind.value_type not in binary:
        raise InputTypeError(
            f"the texts are {kind}, but this model's function takes lists of bytes; call it "
            "through predict(...), which packs the columns"
        )
    # Comparing with a Python number would import pandas, which takes 0.2 s.
    lengths = pa.compute.min_max(pa.compute.list_value_length(lists)).as_py()
    if lists.null_count or set(lengths.values()) - {columns, None}:
        raise InputTypeError(f"each row needs a list of {columns} texts")
    flat = TextColumn.from_values(lists.flatten())
    return [flat[k::columns] for k in range(columns)]


def join_chunks(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return an array without chunks; a single chunk is not copied."""
    if not isinstance(values, pa.ChunkedArray):
        return values
    if values.num_chunks == 1:
        return values.chunk(0)
    return pa.concat_arrays(values.chunks) if values.num_chunks else values.combine_chunks()


def _lists(values: pa.Array, ends: Array) -> pa.ListArray:
    return pa.ListArray.from_arrays(arrow_of(ends, pa.int32()), values)


def arrow_of(values: Array, kind: pa.DataType) -> pa.Array:
    """Copy a numpy array (n,) into an Arrow array without NULLs; `pa.array()` would import pandas.

    Arrow owns the memory: DuckDB 1.5 lets Arrow's threads release a result, maybe while the
    interpreter is shutting down. With numpy's memory they would need the GIL and abort, as in
    https://github.com/apache/arrow/issues/49942.
    """
    dtype = np.dtype(kind.to_pandas_dtype())
    buffer = pa.allocate_buffer(values.size * dtype.itemsize)
    np.frombuffer(buffer, dtype)[:] = values
    return pa.Array.from_buffers(kind, values.size, [None, buffer])


def rows_of(packed: pa.Array | pa.ChunkedArray, width: int, dtype: str) -> Array:
    """Return a fixed-size list array as a matrix (n, width), copied only if a NULL becomes NaN."""
    packed = join_chunks(packed)
    kind, value = packed.type, _FLOATS[dtype]
    if not pa.types.is_fixed_size_list(kind) or kind.list_size != width or kind.value_type != value:
        raise InputTypeError(
            f"the batch is {kind}, but this model's function takes {dtype}[{width}]; call it "
            "through predict(...), which packs the columns"
        )
    if packed.null_count:
        raise InputTypeError("a row of the batch is NULL; pass NULL per column instead")
    values = packed.values.slice(packed.offset * width, len(packed) * width)
    return _numbers(values, dtype).reshape(-1, width)


def matrix_of(columns: Sequence[pa.Array | pa.ChunkedArray], dtype: str) -> Array:
    """Stack columns (n,) of numbers to a matrix (n, columns); NULL becomes NaN."""
    matrix = np.empty((len(columns[0]), len(columns)), dtype)
    for position, column in enumerate(columns):
        matrix[:, position] = _numbers(column, dtype)
    return matrix


def _numbers(values: pa.Array | pa.ChunkedArray, dtype: str) -> Array:
    """Return numbers (n,) of `dtype`; NULL becomes NaN. One chunk without NULLs is not copied."""
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
