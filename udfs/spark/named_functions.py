"""Score each row of a batch with the model that the row names, in a Spark worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sqlml.planner.program.function_names import parse_name
from sqlml.types import Array
from sqlml.udfs.batch_function import arrow_of, arrow_type
from sqlml.udfs.engine_function import score_by_name
from sqlml.udfs.spark import worker

Rows = tuple[
    Mapping[str, tuple[str, Any, Sequence[int], Sequence[int]]], Mapping[str, int], int, str
]
"""What the rows need, in a form that can be pickled.

Name -> (function, broadcast of its Program, positions of its numbers and of its texts in a row);
name -> kind; the count of numbers in a row; and the SQL type of the result.
"""

Errors = tuple[Mapping[str, str | None], str | None]
"""Name -> why its rows cannot be scored, or None if they are NULL; and the message for unknown
names, or None if their rows are NULL."""


def score(
    rows: Rows, errors: Errors, wanted: Mapping[str, str], columns: Sequence[pa.Array]
) -> pa.Array:
    """Return for each row its value, or why its model rejects it (`worker.score`).

    Args:
        columns: (n,) each: the names, lists of the numbers, then the texts.

    Raises:
        BackendError: the worker's libraries differ from the driver's, or a Program is missing.
    """
    scorers, kinds, width, result = rows
    names, *arguments = columns
    value, matrix = arrow_type(result), np.empty((0, 0))
    if scorers:
        matrix = _matrix(arguments[0], max(1, width))

    def score_group(name: str, positions: Array) -> pa.Array | None:
        if name in kinds:
            values = arrow_of(np.full(len(positions), kinds[name], np.int32), value)
            return _pair(values, pa.nulls(len(positions), pa.string()))
        if name in scorers:
            function, program, numbers, texts = scorers[name]
            selected = matrix[positions][:, list(numbers)]
            columns = [arguments[1 + k].take(arrow_of(positions, pa.int64())) for k in texts]
            spec = parse_name(function)
            dtype = "float32" if spec is not None and spec.layout == "f32" else "float64"
            return worker.score(function, program, wanted, [_lists(selected, dtype), *columns])
        message = errors[0].get(name, errors[1])
        if message is None:
            return None
        text = message.format(name=name) if name not in errors[0] else message
        messages = pa.array([text] * len(positions), pa.string())
        return _pair(pa.nulls(len(positions), value), messages)

    result_type = pa.struct([("value", value), ("error", pa.string())])
    return score_by_name(names, result_type, score_group)


def _matrix(lists: pa.Array, width: int) -> Array:
    """Unpack lists of numbers to rows (n, width), with NaN for the NULL rows that Spark adds."""
    matrix = np.full((len(lists), width), np.nan)
    valid = lists.is_valid()
    matrix[valid.to_numpy(zero_copy_only=False)] = worker.matrix_of(
        lists.filter(valid), width, "float64"
    )
    return matrix


def _lists(matrix: Array, dtype: str) -> pa.Array:
    """Pack rows into lists of at least one number."""
    rows = (matrix if matrix.shape[1] else np.zeros((len(matrix), 1))).astype(dtype)
    ends = np.arange(0, rows.size + 1, rows.shape[1])
    values = arrow_of(rows.ravel(), pa.from_numpy_dtype(rows.dtype))
    return pa.ListArray.from_arrays(arrow_of(ends, pa.int32()), values)


def _pair(value: pa.Array, error: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays([value, error], names=["value", "error"])
