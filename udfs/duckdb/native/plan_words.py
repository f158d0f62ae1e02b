"""`PlanWords`: a compiled Program as the table of numbers that the row path follows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.backends.base import filler_of
from sqlml.backends.native.kernel_calls import INPUT, RESULT, Call, KernelCalls, Rows
from sqlml.backends.native.rows.columns import converted, shifted
from sqlml.types import Array
from sqlml.udfs.batch_function import BatchFunction
from sqlml.udfs.duckdb.native.layout import HEAD, TEXT_BYTES
from sqlml.udfs.duckdb.native.string_codes import code_calls, text_place

VECTOR = 2048
"""Most rows that DuckDB hands over at once."""

BLOCK_BYTES, FEWEST_ROWS = 4 << 20, 64
"""Memory that the numbers of one block of rows may take, if it has more rows than these."""


@dataclass(frozen=True, slots=True, eq=False)
class PlanWords:
    """A plan of the row path, whose matrix has so many columns, and all that it points to."""

    words: Array
    width: int
    kept: tuple[Any, ...]

    @property
    def address(self) -> int:
        """Where the plan lies."""
        found: int = self.words.ctypes.data
        return found


def needs_python(function: BatchFunction) -> str | None:
    """Why Python scores the batches of a function; None if machine code does."""
    if function.last is not None:
        return "it remembers rows that come again"
    if function.texts > _looked_up(function):
        return "it reads texts as a whole"
    return None if _filler(function) is not None else "some of the model's steps are numpy's"


def plan_words(function: BatchFunction) -> PlanWords:
    """The plan of a function, without calls where Python scores its batches."""
    filler = None if needs_python(function) else _filler(function)
    made = None if filler is None else _of_calls(function, filler)
    if made is None:
        texts = (TEXT_BYTES,) * function.texts
        return _written(function, range(function.given), function.given, _Tables(sizes=texts), ())
    return made


def _looked_up(function: BatchFunction) -> int:
    """How many of a function's texts have codes that it looks up itself."""
    return 0 if function.lookup is None else len(function.lookup.inputs)


def _filler(function: BatchFunction) -> Any:
    """What writes down its calls; None if there is no such."""
    width = function.width
    filler = filler_of(function.compiled, function.output, range(width), width)
    fits = hasattr(filler, "calls") and filler is not None and filler.input == function.dtype
    return filler if fits else None


def _of_calls(function: BatchFunction, filler: Any) -> PlanWords | None:
    """The plan; None where numba itself runs one of the kernels."""
    lookup, width = function.lookup, function.width
    before = () if lookup is None else tuple(code_calls(lookup, width))
    turn = min(int(np.ceil(filler.turn())) if hasattr(filler, "turn") else 0, VECTOR + 1)
    few = _calls(function, filler, before, 1 if turn > 1 else VECTOR)
    many = few if turn > VECTOR or turn <= 1 else _calls(function, filler, before, VECTOR)
    tables = few.words(), many.words()
    if tables[0] is None or tables[1] is None:
        return None
    pairs = itertools.zip_longest(few.scratch(), many.scratch(), fillvalue=0)
    made = _Tables(
        turn,
        (tables[0].ctypes.data, len(few.calls), tables[1].ctypes.data, len(many.calls)),
        max(few.most_words(), many.most_words()),
        tuple(max(pair) for pair in pairs),
    )
    places: Sequence[int] = range(function.given)
    if lookup is not None:
        places = lookup.given or (-1,)
    return _written(function, places, width, made, (few, many, tables, filler))


@dataclass(frozen=True, slots=True)
class _Tables:
    """Where the tables of calls lie, for blocks of fewer rows than `turn` and for others, how many
    calls each has, the most words of a call, and the bytes a row of each place between.
    """

    turn: int = 0
    calls: tuple[int, int, int, int] = (0, 0, 0, 0)
    most_words: int = 0
    sizes: tuple[int, ...] = ()


def _written(
    function: BatchFunction,
    places: Sequence[int],
    width: int,
    tables: _Tables,
    kept: tuple[Any, ...],
) -> PlanWords:
    """A plan for rows (n, width), where column k of numbers stands at `places[k]`, or (-1) not."""
    number = np.dtype(function.dtype).itemsize
    row = width * number + sum(tables.sizes)
    levels = 2 if function.groups else int(function.columns > 1 or function.listed)
    groups = (function.groups or (function.columns,)) if levels else ()
    head = (
        function.given,
        function.texts,
        width,
        number,
        min(VECTOR, max(FEWEST_ROWS, BLOCK_BYTES // row), function.most or VECTOR),
        tables.turn,
        *tables.calls,
        tables.most_words,
        len(tables.sizes),
        function.columns,
        4 if function.integer else 8,
        levels,
        len(groups),
    )
    assert len(head) == HEAD
    ends = np.cumsum([0, *groups]) if levels else ()
    return PlanWords(np.array([*head, *places, *tables.sizes, *ends], np.int64), width, kept)


def _calls(
    function: BatchFunction, filler: Any, before: tuple[Call, ...], rows: int
) -> KernelCalls:
    dtype = np.dtype(np.int32 if function.integer else np.float64)
    places = itertools.count(text_place(function.texts))
    x = Rows(INPUT, np.dtype(function.dtype), function.width)
    result = Rows(RESULT, dtype, function.columns)
    made = result if filler.dtype == dtype else Rows(next(places), filler.dtype, function.columns)
    with_rows = (rows,) if hasattr(filler, "turn") else ()
    calls: Sequence[Call] = filler.calls(x, made, places, *with_rows)
    if function.shifts:
        calls = (*calls, shifted(made, np.array(function.shifts, np.int64), result))
    elif made is not result:
        calls = (*calls, converted(made.line(), result.line()))
    return KernelCalls((*before, *calls))
