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
from sqlml.udfs.duckdb.native.row_path import HEAD

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


def plan_words(function: BatchFunction) -> PlanWords | None:
    """The plan of a function; None where a step of it needs Python."""
    if function.lookup is not None or function.texts or function.last is not None:
        return None
    width, dtype = function.width, np.dtype(function.dtype)
    filler: Any = filler_of(function.compiled, function.output, range(width), width)
    if not hasattr(filler, "calls") or filler.input != dtype:
        return None
    turn = min(int(np.ceil(filler.turn())) if hasattr(filler, "turn") else 0, VECTOR + 1)
    few = _calls(function, filler, 1 if turn > 1 else VECTOR)
    many = few if turn > VECTOR or turn <= 1 else _calls(function, filler, VECTOR)
    tables = few.words(), many.words()
    if tables[0] is None or tables[1] is None:
        return None
    pairs = itertools.zip_longest(few.scratch(), many.scratch(), fillvalue=0)
    sizes = [max(pair) for pair in pairs]
    row = width * dtype.itemsize + sum(sizes)
    levels = 2 if function.groups else int(function.columns > 1 or function.listed)
    groups = (function.groups or (function.columns,)) if levels else ()
    head = (
        width,
        dtype.itemsize,
        min(VECTOR, max(FEWEST_ROWS, BLOCK_BYTES // max(1, row)), function.most or VECTOR),
        turn,
        tables[0].ctypes.data,
        len(few.calls),
        tables[1].ctypes.data,
        len(many.calls),
        max(few.most_words(), many.most_words()),
        len(sizes),
        function.columns,
        4 if function.integer else 8,
        levels,
        len(groups),
    )
    assert len(head) == HEAD
    ends = np.cumsum([0, *groups]) if levels else ()
    words = np.array([*head, *sizes, *ends], np.int64)
    return PlanWords(words, (few, many, tables, filler))


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
