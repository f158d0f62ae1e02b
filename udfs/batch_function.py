"""`BatchFunction`: a compiled Program as a function from one Arrow array to another."""

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

from sqlml.backends.base import Compiled, Filler, filler_of
from sqlml.backends.no_wait import NotReady, no_wait
from sqlml.errors import (
    InputTypeError,
    MissingValueError,
    ScoringError,
    SqlmlError,
    UnknownCategoryError,
)
from sqlml.ir.utf8_column import Texts
from sqlml.passes.split import text_input
from sqlml.planner.program.function_names import Field
from sqlml.types import Array

# Errors on their way out of an engine, which turns every exception into plain text.
#
# A batch function parks its own error here under a token and raises the token; the session finds
# the token in the engine's message and raises the error itself. A model that is an expression of
# the engine fails with a text that begins with the name of the error's class.


_TOKEN = re.compile(r"sqlml-failure-(\d+)")
_CLASSES: Mapping[str, type[ScoringError]] = MappingProxyType(
    {kind.__name__: kind for kind in (MissingValueError, UnknownCategoryError)}
)
"""What `backends.sql.printing.Printing.error` writes."""
_TOLD = re.compile(rf"Invalid Input Error: ({'|'.join(_CLASSES)}): (.*)", re.DOTALL)
_MOST = 100

_counter = itertools.count(1)
_parked: OrderedDict[int, BaseException] = OrderedDict()
_lock = threading.Lock()


class ParkedFailure(Exception):
    """Raised inside the engine; its text holds the token."""


def park(error: Exception) -> ParkedFailure:
    """Keep `error` and return the exception to raise in its place.

    An error that is not sqlml's own becomes the cause of one that asks to be reported. Tracebacks
    are not kept, which hold the batch and the model: nobody may ever ask for them.
    """
    if not isinstance(error, SqlmlError):
        unforeseen = ScoringError(
            f"scoring failed in backend code ({type(error).__name__}: {error}); "
            "please report this with the model's DESCRIBE"
        )
        unforeseen.__cause__ = error
        error = unforeseen
    kept: BaseException | None = error
    while kept is not None:
        kept.__traceback__ = None
        kept = kept.__cause__ or kept.__context__
    number = next(_counter)
    with _lock:
        _parked[number] = error
        while len(_parked) > _MOST:  # a client that never asks must not make us grow
            _parked.popitem(last=False)
    return ParkedFailure(f"sqlml-failure-{number}: {error}")


def claim(message: str) -> BaseException | None:
    """The error of ours that an engine's message is about; None when it is about none."""
    match = _TOKEN.search(message)
    if match is None:
        told = _TOLD.match(message)
        return None if told is None else _CLASSES[told[1]](told[2])
    with _lock:
        return _parked.pop(int(match[1]), None)


# `Lookup`: codes of categories that are too many to be written into a query, from their texts.


@dataclass(frozen=True, slots=True)
class Lookup:
    """Completes the matrix of a batch.

    `compiled` makes `outputs`, (n, 1) codes each, of the texts `inputs`, which follow the `first`
    texts of a batch. Columns `given` of the matrix come from the engine, columns `found` are
    these outputs.
    """

    compiled: Compiled
    first: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    given: tuple[int, ...]
    found: tuple[int, ...]
    dtype: str

    def texts(self, texts: Mapping[str, Texts]) -> dict[str, Texts]:
        """Those of a batch's texts that are looked up, by the names of their columns."""
        places = range(self.first, self.first + len(self.inputs))
        return {name: texts[text_input(k)] for name, k in zip(self.inputs, places, strict=True)}

    def rest(self, texts: Mapping[str, Texts]) -> dict[str, Texts]:
        """The others, which the model itself reads."""
        return {name: texts[name] for name in map(text_input, range(self.first))}

    def completed(self, given: Array, texts: Mapping[str, Any]) -> Array:
        """The matrix (n, all) of `given` (n, columns) and the codes of `texts`."""
        codes = self.compiled.run(texts, self.outputs)
        made = np.empty((given.shape[0], len(self.given) + len(self.found)), self.dtype)
        made[:, self.given] = given[:, : len(self.given)]
        for place, output in zip(self.found, self.outputs, strict=True):
            made[:, place] = codes[output][:, 0]
        return made


# `LastRows`: the batch that each thread scored last, for rows of it that come again.
#
# An engine evaluates a call in WHERE before it evaluates the same call in SELECT, for the rows
# that are left: some of those of the batch before, in their order. To find them by their bytes
# takes a few nanoseconds per row, and the same bytes have the same score.


MOST_THREADS = 64
"""Threads whose last batches are kept."""


class LastRows:
    """Thread-safe; it keeps a batch a thread. `found` counts the rows that came again."""

    def __init__(self) -> None:
        self.found = 0
        self._last: OrderedDict[int, tuple[Array, Array]] = OrderedDict()
        self._lock = threading.Lock()

    def twin(self) -> LastRows:
        """Another with the same rows, and a count of its own."""
        made = LastRows()
        made._last, made._lock = self._last, self._lock
        return made

    def find(self, rows: Array) -> Array | None:
        """The results of `rows` (n, k), if all of them come again: (n, outputs)."""
        with self._lock:
            kept = self._last.get(threading.get_ident())
        if kept is None or kept[0].shape[1] != rows.shape[1] or not rows.size:
            return None
        words, place = _words(rows), np.empty(len(rows), np.int64)
        if not _finder(words.dtype)(kept[0], words, place):
            return None
        with self._lock:
            self.found += len(rows)
        return kept[1][place]

    def keep(self, rows: Array, results: Array) -> None:
        """Remember `rows` (n, k) and their results (n, outputs)."""
        with self._lock:
            self._last[threading.get_ident()] = (_words(rows).copy(), results)
            self._last.move_to_end(threading.get_ident())
            while len(self._last) > MOST_THREADS:
                self._last.popitem(last=False)

    def clear(self) -> None:
        """Forget all rows, and their count."""
        with self._lock:
            self._last.clear()
            self.found = 0


def _words(rows: Array) -> Array:
    """The bits of rows of floats, as integers: NaN equals itself, and 0.0 is not -0.0."""
    return np.ascontiguousarray(rows).view(np.uint32 if rows.itemsize == 4 else np.uint64)


def _finder(dtype: np.dtype[Any]) -> Any:
    from sqlml.backends.native.jit.specialise import (  # only where rows come again
        reads,
        specialise,
        writes,
    )

    return specialise(find, (reads(dtype, 2, "C"), reads(dtype, 2, "C"), writes(np.int64, 1)))


def find(known: Any, rows: Any, place: Any) -> Any:
    """Whether all of `rows` are among `known`, in the same order; `place` is where."""
    at, width = 0, rows.shape[1]
    for r in range(rows.shape[0]):
        while True:
            if at == known.shape[0]:
                return False
            k = 0
            while k < width and known[at, k] == rows[r, k]:
                k += 1
            if k == width:
                break
            at += 1
        place[r] = at
    return True


Explain = Callable[
    [UnknownCategoryError, Mapping[str, Any], Mapping[str, Texts]], UnknownCategoryError
]
"""An error, the inputs of the batch that it is about, and the texts that were looked up -> an error
that says more.
"""


_KINDS = {"INTEGER": pa.int32(), "DOUBLE": pa.float64()}
"""Of results, by their SQL types."""


@dataclass(frozen=True)
class BatchFunction:
    """Scores a batch: fixed-size list array (rows of numbers) in, numbers out.

    With `by_column` it takes an array for each column of numbers, then one for each column of
    texts. Otherwise, where `texts` is not 0, each row also has a list of that many texts, as UTF-8
    bytes, since an engine may hand a VARCHAR over in several layouts.

    `compiled` reads `input_name` (n, width) of `dtype` and makes `output`; one column comes back
    as a plain array, several (and one, when `listed`) as lists, or as a struct of such `fields`.
    Any number of threads may call it at once.

    Several targets: `groups` are the lengths of the lists that a row's numbers are dealt into
    (none: one list), `shifts` what is added to the class numbers of each target. `explain` adds
    what is known to an error about a category. `last`, if given, has the rows that come again. The
    model takes `nbytes`, and `most` rows at once. `lookup`, if given, finds some of the columns.
    """

    compiled: Compiled
    input_name: str
    output: str
    width: int
    dtype: str
    integer: bool
    columns: int
    listed: bool = False
    groups: tuple[int, ...] = ()
    shifts: tuple[int, ...] = ()
    explain: Explain | None = None
    last: LastRows | None = None
    nbytes: int = 0
    most: int | None = None
    lookup: Lookup | None = None
    texts: int = 0
    by_column: bool = False
    fields: tuple[Field, ...] = ()

    @property
    def arguments(self) -> int:
        """How many arrays it takes."""
        return self.given + self.texts if self.by_column else 1 + bool(self.texts)

    @property
    def given(self) -> int:
        """Columns of the matrix that the engine packs."""
        return self.width if self.lookup is None else max(1, len(self.lookup.given))

    def __call__(self, *given: pa.Array | pa.ChunkedArray) -> pa.Array:
        """Score one batch.

        Raises:
            ParkedFailure: stands for the typed error that `parked_errors.claim` gives back.
        """
        rows, most = len(given[0]), self.most
        if most is None or rows <= most:
            return self.score(*given)
        parts = [[a.slice(first, most) for a in given] for first in range(0, rows, most)]
        return pa.concat_arrays([self.score(*part) for part in parts])

    def score(self, *given: Any) -> pa.Array:
        """Score `most` rows or fewer at once, as `__call__` does any number."""
        try:
            if self.by_column:
                matrix = matrix_of(given[: self.given], self.dtype)
                texts = [Texts.of(column) for column in given[self.given :]]
            else:
                matrix = rows_of(given[0], self.given, self.dtype)
                texts = texts_of(given[1], self.texts) if self.texts else []
            return self.of_matrix(matrix, {text_input(k): t for k, t in enumerate(texts)})
        except Exception as error:
            raise park(error) from None

    def of_matrix(self, matrix: Array, texts: Mapping[str, Any]) -> pa.Array:
        """What rows (n, given) of `dtype` give; it raises the typed errors themselves."""
        numbers, rows = self.numbers(matrix, texts), matrix.shape[0]
        if self.fields:
            columns = np.frombuffer(numbers.buffers()[1], np.float64, len(numbers))
            each = zip(columns.reshape(rows, self.columns).T, self.fields, strict=True)
            made = [arrow_of(column, _KINDS[kind]) for column, (_, kind) in each]
            return pa.StructArray.from_arrays(made, [name for name, _ in self.fields])
        if self.columns == 1 and not self.listed:
            return numbers
        if not self.groups:
            return _lists(numbers, np.arange(0, rows * self.columns + 1, self.columns))
        ends = np.append(0, np.cumsum(np.tile(self.groups, rows)))
        groups = len(self.groups)
        return _lists(_lists(numbers, ends), np.arange(0, rows * groups + 1, groups))

    def in_parts(self, matrix: Array, texts: Mapping[str, Any]) -> pa.Array:
        """What any number of rows give, `most` at once, as `of_matrix` does."""
        rows, most = matrix.shape[0], self.most
        if most is None or rows <= most:
            return self.of_matrix(matrix, texts)
        parts = [slice(first, first + most) for first in range(0, rows, most)]
        return pa.concat_arrays(
            [self.of_matrix(matrix[p], {n: t[p] for n, t in texts.items()}) for p in parts]
        )

    def numbers(self, matrix: Array, texts: Mapping[str, Any]) -> pa.Array:
        """All numbers of what rows give, row by row.

        They are there soon: where kernels are still to be compiled, a slower way makes them.
        """
        try:
            with no_wait():
                return self._numbers(matrix, texts)
        except NotReady:  # a kernel for which there is no slower way
            return self._numbers(matrix, texts)

    def _numbers(self, matrix: Array, texts: Mapping[str, Any]) -> pa.Array:
        looked_up: dict[str, Texts] = {}
        if self.lookup is not None:
            looked_up = self.lookup.texts(texts)
            matrix, texts = self.lookup.completed(matrix, looked_up), self.lookup.rest(texts)
        try:
            return self._made(matrix, texts)
        except UnknownCategoryError as error:
            inputs = {self.input_name: matrix, **texts}
            told = error if self.explain is None else self.explain(error, inputs, looked_up)
            raise told from None

    def _made(self, matrix: Array, texts: Mapping[str, Any]) -> pa.Array:
        """All numbers, row by row."""
        last = None if texts else self.last
        found = numbers = None
        with suppress(NotReady):
            found = None if last is None else last.find(matrix)
        if found is not None:
            return arrow_of(found.ravel(), self._kind)
        with suppress(NotReady):
            numbers = None if texts else self._filled(matrix)
        if numbers is None:
            numbers = self._computed(matrix, texts)
        if last is not None:
            held = np.frombuffer(numbers.buffers()[1], self._kind.to_pandas_dtype())
            last.keep(matrix, held[: len(numbers)].reshape(-1, self.columns))
        return numbers

    @property
    def _kind(self) -> pa.DataType:
        return _KINDS["INTEGER" if self.integer else "DOUBLE"]

    @cached_property
    def _filler(self) -> Filler | None:
        filler = filler_of(self.compiled, self.output, range(self.width), self.width)
        fits = filler is not None and filler.width == self.columns and filler.input == self.dtype
        return filler if fits else None

    def _filled(self, matrix: Array) -> pa.Array | None:
        """All numbers, row by row, written where Arrow wants them; None: by `_computed`."""
        filler = self._filler
        if filler is None or self.shifts or not matrix.flags.aligned:
            return None
        shape = matrix.shape[0], self.columns
        if filler.dtype != np.float64 or self.integer:
            made = np.empty(shape, filler.dtype)
            return arrow_of(made.ravel(), self._kind) if filler.fill(matrix, made) < 0 else None
        buffer = pa.allocate_buffer(shape[0] * shape[1] * 8)
        if filler.fill(matrix, np.frombuffer(buffer, np.float64).reshape(shape)) >= 0:
            return None
        return pa.Array.from_buffers(self._kind, shape[0] * shape[1], [None, buffer])

    def _computed(self, matrix: Array, texts: Mapping[str, Any]) -> pa.Array:
        inputs = {self.input_name: matrix, **texts}
        result = self.compiled.run(inputs, [self.output])[self.output]
        if result.shape != (matrix.shape[0], self.columns):
            raise ScoringError(
                f"the model made {result.shape} instead of {(matrix.shape[0], self.columns)}"
            )
        if self.shifts:
            result = result + np.array(self.shifts)
        return arrow_of(result.reshape(-1), self._kind)


def arrow_type(result: str) -> pa.DataType:
    """The Arrow type of what a function returns, by its SQL type.

    >>> str(arrow_type("DOUBLE[]"))
    'list<item: double>'
    """
    made = _KINDS[result.removesuffix("[]").removesuffix("[]")]
    for _ in range(result.count("[]")):
        made = pa.list_(made)
    return made


def texts_of(lists: pa.Array | pa.ChunkedArray, columns: int) -> list[Texts]:
    """Split lists of `columns` texts (bytes or NULL) into that many columns; one chunk is not
    copied.

    Raises:
        InputTypeError: another type, or a list of another length.
    """
    if isinstance(lists, pa.ChunkedArray):
        lists = pa.concat_arrays(lists.chunks) if lists.num_chunks else lists.combine_chunks()
    kind = lists.type
    listed = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_list_view(kind)
    if not listed or not _is_bytes(kind.value_type):
        raise InputTypeError(
            f"the texts are {kind}, but this model's function takes lists of bytes; call it "
            "through predict(..), which packs the columns"
        )
    # A comparison with a number of Python would import pandas, for 0.2 s.
    lengths = pa.compute.min_max(pa.compute.list_value_length(lists)).as_py()
    if lists.null_count or set(lengths.values()) - {columns, None}:
        raise InputTypeError(f"each row needs a list of {columns} texts")
    flat = Texts.of(lists.flatten())
    return [flat[k::columns] for k in range(columns)]


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    )


def _lists(values: pa.Array, ends: Array) -> pa.ListArray:
    """`values` as lists that end at `ends`, the first of which is 0."""
    return pa.ListArray.from_arrays(arrow_of(ends, pa.int32()), values)


def arrow_of(values: Array, kind: pa.DataType) -> pa.Array:
    """A numpy array (n,) as an Arrow array without NULLs; pa.array() would import pandas.

    Arrow owns the memory. DuckDB 1.5 lets Arrow's own threads release a result, maybe when the
    interpreter is already ending; around numpy's memory they would need the GIL and abort, as in
    https://github.com/apache/arrow/issues/49942.
    """
    dtype = np.dtype(kind.to_pandas_dtype())
    buffer = pa.allocate_buffer(values.size * dtype.itemsize)
    np.frombuffer(buffer, dtype)[:] = values
    return pa.Array.from_buffers(kind, values.size, [None, buffer])


def rows_of(packed: pa.Array | pa.ChunkedArray, width: int, dtype: str) -> Array:
    """A fixed-size list array as an (n, width) matrix; NULL becomes NaN. No copy without NULLs.

    Raises:
        InputTypeError: another type or width than the model's.
    """
    if isinstance(packed, pa.ChunkedArray):
        packed = packed.chunk(0) if packed.num_chunks == 1 else packed.combine_chunks()
    if isinstance(packed, pa.ChunkedArray):
        packed = pa.concat_arrays(packed.chunks)
    kind = packed.type
    value = _FLOATS[dtype]
    if not pa.types.is_fixed_size_list(kind) or kind.list_size != width or kind.value_type != value:
        raise InputTypeError(
            f"the batch is {kind}, but this model's function takes {dtype}[{width}]; call it "
            "through predict(..), which packs the columns"
        )
    if packed.null_count:
        raise InputTypeError("a row of the batch is NULL as a whole; pass NULL per column instead")
    values = packed.values.slice(packed.offset * width, len(packed) * width)
    return _numbers(values, dtype).reshape(-1, width)


def matrix_of(columns: Sequence[pa.Array | pa.ChunkedArray], dtype: str) -> Array:
    """Columns (n,) of numbers as a matrix (n, columns); NULL becomes NaN."""
    made = np.empty((len(columns[0]), len(columns)), dtype)
    for place, column in enumerate(columns):
        made[:, place] = _numbers(column, dtype)
    return made


def _numbers(values: pa.Array | pa.ChunkedArray, dtype: str) -> Array:
    """Numbers (n,) of `dtype`; NULL becomes NaN. No copy of one chunk without NULLs."""
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks) if values.num_chunks else values.combine_chunks()
    if values.type != _FLOATS[dtype]:
        raise InputTypeError(
            f"a column of the batch is {values.type}, but this model's function takes {dtype}; "
            "call it through predict(..), which casts the columns"
        )
    if values.null_count:
        values = values.fill_null(float("nan"))
    if not len(values):
        return np.empty(0, dtype)
    start = values.offset * np.dtype(dtype).itemsize
    return np.frombuffer(values.buffers()[1], dtype, len(values), start)


_FLOATS = {"float32": pa.float32(), "float64": pa.float64()}
