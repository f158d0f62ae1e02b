"""`PlanWords`: a compiled Program as the table of numbers that the row path follows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.backends.base import filler_of, text_filler_of
from sqlml.backends.native.kernel_calls import INPUT, RESULT, Call, KernelCalls, Rows
from sqlml.backends.native.rows.columns import converted, shifted
from sqlml.types import Array
from sqlml.udfs.batch_function import BatchFunction
from sqlml.udfs.duckdb.native.layout import HEAD, NOT_MADE, STRUCT, TEXT_BYTES
from sqlml.udfs.duckdb.native.string_codes import code_calls, text_ends, text_place

VECTOR = 2048
"""Most rows that DuckDB hands over at once."""

BLOCK_BYTES, FEWEST_ROWS, FEWEST_BYTES = 4 << 20, 64, 16 << 20
"""The most bytes of a block; FEWEST_ROWS may take more than BLOCK_BYTES, up to FEWEST_BYTES."""

_BYTES = {"INTEGER": 4, "DOUBLE": 8}
"""Of a field of a result."""


@dataclass(frozen=True, slots=True, eq=False)
class PlanWords:
    """A plan of the row path, whose matrix has `width` columns, and all that the plan points to.

    The calls for batches of few rows and of many are made when such a batch comes, since each has
    kernels to compile.
    """

    words: Array
    width: int
    lookups: tuple[Call, ...] = ()
    few: KernelCalls | None = None
    many: KernelCalls | None = None
    kept: tuple[Any, ...] = ()

    @property
    def address(self) -> int:
        """Where the plan lies."""
        found: int = self.words.ctypes.data
        return found


def obstacle(function: BatchFunction) -> str | None:
    """What keeps machine code from scoring a function's batches; None if nothing does."""
    if function.last is not None:
        return "it remembers rows that come again"
    return None if _filler(function) is not None else "some of the model's steps run in Python"


def plan_words(function: BatchFunction, rows: int, before: PlanWords | None = None) -> PlanWords:
    """The plan of a function, without calls where Python scores its batches.

    It has the calls for batches of `rows` rows, and those that the plan `before` has.

    Raises:
        NotReady: a kernel is being compiled, and the caller need not wait.
    """
    filler = None if obstacle(function) else _filler(function)
    made = None if filler is None else _of_calls(function, filler, rows, before)
    return python_scores(function) if made is None else made


def python_scores(function: BatchFunction) -> PlanWords:
    """The plan of a function whose packed batches Python scores."""
    texts, places = (TEXT_BYTES,) * function.texts, range(function.given)
    return PlanWords(
        _written(function, places, function.given, (0, 0, 0, 0, 0, 0), texts), len(places)
    )


def _whole_texts(function: BatchFunction) -> int:
    """How many of a function's texts the model itself reads; the codes of others are looked up."""
    return function.texts if function.lookup is None else function.lookup.first


def _filler(function: BatchFunction) -> Any:
    """The function's filler, if it can write its output as kernel calls; else None."""
    width = function.width
    if _whole_texts(function):
        filler = text_filler_of(function.compiled, function.output)
    else:
        filler = filler_of(function.compiled, function.output, range(width), width)
    fits = hasattr(filler, "calls") and filler is not None and filler.input == function.dtype
    return filler if fits else None


def _of_calls(
    function: BatchFunction, filler: Any, rows: int, before: PlanWords | None
) -> PlanWords | None:
    """The plan; None where numba itself runs one of the kernels."""
    lookup, width = function.lookup, function.width
    turn = min(int(np.ceil(filler.turn())) if hasattr(filler, "turn") else 0, VECTOR + 1)
    if before is None:
        found = () if lookup is None else tuple(code_calls(lookup, width))
        before = PlanWords(np.empty(0, np.int64), width, found)
    few, many = before.few, before.many
    if rows < turn:
        few = few or _calls(function, filler, before.lookups, 1)
    else:
        many = many or _calls(function, filler, before.lookups, VECTOR)
    both = [calls for calls in (few, many) if calls is not None]
    tables = {id(calls): calls.words() for calls in both}
    if any(table is None for table in tables.values()):
        return None

    def place(calls: KernelCalls | None) -> tuple[int, int]:
        table = tables.get(id(calls))
        return (
            (0, NOT_MADE)
            if calls is None or table is None
            else (table.ctypes.data, len(calls.calls))
        )

    pairs = itertools.zip_longest(*(calls.scratch() for calls in both), fillvalue=0)
    most = max(calls.most_words() for calls in both)
    head = (turn, *place(few), *place(many), most)
    places: Sequence[int] = range(function.given)
    if lookup is not None:
        places = lookup.given or (-1,)
    words = _written(function, places, width, head, tuple(max(pair) for pair in pairs))
    return PlanWords(words, width, before.lookups, few, many, (tables, filler))


def _written(
    function: BatchFunction,
    places: Sequence[int],
    width: int,
    calls: tuple[int, int, int, int, int, int],
    sizes: tuple[int, ...],
) -> Array:
    """A plan for rows (n, width), where column k of numbers stands at `places[k]`, or (-1) not.

    calls: from how many rows on a batch has many, where the calls for few lie and how many they
    are, the same for many, and the most words of a call. sizes: bytes a row of the places between.
    """
    number = np.dtype(function.dtype).itemsize
    row = width * number + sum(sizes)
    levels = 2 if function.groups else int(function.columns > 1 or function.listed)
    levels = STRUCT if function.fields else levels
    groups = (function.groups or (function.columns,)) if levels > 0 else ()
    head = (
        function.given,
        function.texts,
        width,
        number,
        min(_block(row), function.most or VECTOR),
        *calls,
        len(sizes),
        function.columns,
        4 if function.integer else 8,
        levels,
        len(groups),
    )
    assert len(head) == HEAD
    ends = np.cumsum([0, *groups]) if groups else [_BYTES[kind] for _, kind in function.fields]
    return np.array([*head, *places, *sizes, *ends], np.int64)


def _block(row: int) -> int:
    """How many rows of so many bytes are scored together.

    >>> [_block(row) for row in (8, 4096, 1 << 17, 1 << 20, 1 << 25)]
    [2048, 1024, 64, 16, 1]
    """
    fewest = max(1, min(FEWEST_ROWS, FEWEST_BYTES // row))
    return min(VECTOR, max(fewest, BLOCK_BYTES // row))


def _calls(
    function: BatchFunction, filler: Any, before: tuple[Call, ...], rows: int
) -> KernelCalls:
    dtype = np.dtype(np.int32 if function.integer else np.float64)
    places = itertools.count(text_place(function.texts))
    x = Rows(INPUT, np.dtype(function.dtype), function.width)
    result = Rows(RESULT, dtype, function.columns)
    made = result if filler.dtype == dtype else Rows(next(places), filler.dtype, function.columns)
    with_rows = (rows,) if hasattr(filler, "turn") else ()
    ends = [_ends(places) for _ in range(_whole_texts(function))]
    with_texts = {"texts": ends} if ends else {}
    before += tuple(text_ends(k, *pair) for k, pair in enumerate(ends))
    calls: Sequence[Call] = filler.calls(x, made, places, *with_rows, **with_texts)
    if function.shifts:
        calls = (*calls, shifted(made, np.array(function.shifts, np.int64), result))
    elif made is not result:
        calls = (*calls, converted(made.line(), result.line()))
    return KernelCalls((*before, *calls))


def _ends(places: Iterator[int]) -> tuple[Rows, Rows]:
    """Rows for the addresses where each text of a column begins, and where it ends."""
    start, stop = (Rows(next(places), np.dtype(np.int64), 1, flat=True) for _ in range(2))
    return start, stop
