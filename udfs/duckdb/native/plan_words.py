"""`PlanWords`: a compiled Program as the table of numbers that the row path follows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.backends.base import filler_of
from sqlml.backends.native.kernel_calls import INPUT, RESULT, SCRATCH, Call, KernelCalls, Rows
from sqlml.backends.native.rows.columns import converted, shifted
from sqlml.types import Array
from sqlml.udfs.batch_function import BatchFunction
from sqlml.udfs.duckdb.native.layout import HEAD

VECTOR = 2048
"""Most rows that DuckDB hands over at once."""

BLOCK_BYTES, FEWEST_ROWS = 4 << 20, 64
"""Memory that the numbers of one block of rows may take, if it has more rows than these."""


@dataclass(frozen=True, slots=True, eq=False)
class PlanWords:
    """A plan of the row path, and all that lies behind its addresses."""

    words: Array
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
    return None if _filler(function) is not None else "some of the model's steps are numpy's"


def plan_words(function: BatchFunction) -> PlanWords:
    """The plan of a function, without calls where Python scores its batches."""
    filler = None if needs_python(function) else _filler(function)
    made = None if filler is None else _of_calls(function, filler)
    return _written(function, _Tables(), ()) if made is None else made


def _filler(function: BatchFunction) -> Any:
    """What writes down its calls; None if there is no such."""
    width = function.width
    filler = filler_of(function.compiled, function.output, range(width), width)
    fits = hasattr(filler, "calls") and filler is not None and filler.input == function.dtype
    return filler if fits else None


def _of_calls(function: BatchFunction, filler: Any) -> PlanWords | None:
    """The plan; None where numba itself runs one of the kernels."""
    turn = min(int(np.ceil(filler.turn())) if hasattr(filler, "turn") else 0, VECTOR + 1)
    few = _calls(function, filler, 1 if turn > 1 else VECTOR)
    many = few if turn > VECTOR or turn <= 1 else _calls(function, filler, VECTOR)
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
    return _written(function, made, (few, many, tables, filler))


@dataclass(frozen=True, slots=True)
class _Tables:
    """Where the tables of calls lie, for blocks of fewer rows than `turn` and for others, how many
    calls each has, the most words of a call, and the bytes a row of each place between.
    """

    turn: int = 0
    calls: tuple[int, int, int, int] = (0, 0, 0, 0)
    most_words: int = 0
    sizes: tuple[int, ...] = ()


def _written(function: BatchFunction, tables: _Tables, kept: tuple[Any, ...]) -> PlanWords:
    number = np.dtype(function.dtype).itemsize
    row = function.given * number + sum(tables.sizes)
    levels = 2 if function.groups else int(function.columns > 1 or function.listed)
    groups = (function.groups or (function.columns,)) if levels else ()
    head = (
        function.given,
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
    return PlanWords(np.array([*head, *tables.sizes, *ends], np.int64), kept)


def _calls(function: BatchFunction, filler: Any, rows: int) -> KernelCalls:
    dtype = np.dtype(np.int32 if function.integer else np.float64)
    places = itertools.count(SCRATCH)
    x = Rows(INPUT, np.dtype(function.dtype), function.width)
    result = Rows(RESULT, dtype, function.columns)
    made = result if filler.dtype == dtype else Rows(next(places), filler.dtype, function.columns)
    with_rows = (rows,) if hasattr(filler, "turn") else ()
    calls: Sequence[Call] = filler.calls(x, made, places, *with_rows)
    if function.shifts:
        calls = (*calls, shifted(made, np.array(function.shifts, np.int64), result))
    elif made is not result:
        calls = (*calls, converted(made.line(), result.line()))
    return KernelCalls(tuple(calls))
