"""`score`: in a Spark worker, the rows of a batch, each with the model that it names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sqlml.planner.program.function_names import parse_name
from sqlml.types import Array
from sqlml.udfs.batch_function import arrow_of, arrow_type
from sqlml.udfs.engine_function import scored_by_name
from sqlml.udfs.spark import worker

Rows = tuple[
    Mapping[str, tuple[str, Any, Sequence[int], Sequence[int]]], Mapping[str, int], int, str
]
"""Name -> its function, the broadcast of its Program, and which numbers and texts of a row it
takes; name -> its kind, where kinds are told apart; how many numbers a row has; and what SQL calls
the type of the result."""

Errors = tuple[Mapping[str, str | None], str | None]
"""Name -> why its rows cannot be scored, None if they have NULL; and what is said of any other, if
that is no NULL."""


def score(
    rows: Rows, errors: Errors, wanted: Mapping[str, str], columns: Sequence[pa.Array]
) -> pa.Array:
    """For each row its value, or why its model refuses it (`worker.score`).

    Args:
        columns: (n,) each: the names, lists of the numbers, then the texts.

    Raises:
        BackendError: the worker's libraries differ from the driver's, or it lacks a Program.
    """
    scorers, kinds, width, result = rows
    names, *given = columns
    value, matrix = arrow_type(result), np.empty((0, 0))
    if scorers:
        matrix = _matrix(given[0], max(1, width))

    def of(name: str, places: Array) -> pa.Array | None:
        if name in kinds:
            whole = arrow_of(np.full(len(places), kinds[name], np.int32), value)
            return _pair(whole, pa.nulls(len(places), pa.string()))
        if name in scorers:
            function, program, numbers, texts = scorers[name]
            own = matrix[places][:, list(numbers)]
            taken = [given[1 + k].take(arrow_of(places, pa.int64())) for k in texts]
            spec = parse_name(function)
            dtype = "float32" if spec is not None and spec.layout == "f32" else "float64"
            return worker.score(function, program, wanted, [_lists(own, dtype), *taken])
        message = errors[0].get(name, errors[1])
        if message is None:
            return None
        text = message.format(name=name) if name not in errors[0] else message
        return _pair(pa.nulls(len(places), value), pa.array([text] * len(places), pa.string()))

    return scored_by_name(names, pa.struct([("value", value), ("error", pa.string())]), of)


def _matrix(lists: pa.Array, width: int) -> Array:
    """Lists of numbers as rows (n, width); NaN where there is none: Spark makes rows of NULLs."""
    made = np.full((len(lists), width), np.nan)
    there = lists.is_valid()
    made[there.to_numpy(zero_copy_only=False)] = worker.matrix_of(
        lists.filter(there), width, "float64"
    )
    return made


def _lists(matrix: Array, dtype: str) -> pa.Array:
    """Rows as lists of numbers, of one at least."""
    rows = (matrix if matrix.shape[1] else np.zeros((len(matrix), 1))).astype(dtype)
    ends = np.arange(0, rows.size + 1, rows.shape[1])
    values = arrow_of(rows.ravel(), pa.from_numpy_dtype(rows.dtype))
    return pa.ListArray.from_arrays(arrow_of(ends, pa.int32()), values)


def _pair(value: pa.Array, error: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays([value, error], names=["value", "error"])
