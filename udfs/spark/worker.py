"""Score Arrow columns in Spark's Python workers.

A worker process lives through many tasks and gets each Program once, by broadcast. The Program is
compiled when the first batch arrives, and cached by the name of its function.
"""

from __future__ import annotations

import gc
import importlib.metadata
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa

from sqlml.backends.no_wait import wait_for_kernels
from sqlml.bounded_cache import Recent
from sqlml.dialects import SPARK
from sqlml.errors import BackendError, MissingValueError, SqlmlError
from sqlml.ir import store
from sqlml.ir.utf8_column import TextColumn
from sqlml.passes.split import text_input_name
from sqlml.planner.program.function_names import parse_name
from sqlml.types import Array
from sqlml.udfs.batch_function import BatchFunction, arrow_of, arrow_type, rows_of
from sqlml.udfs.engine_function import score_by_name
from sqlml.udfs.make_function import make_engine_function

_LIBRARIES = ("sqlml", "numpy", "numba", "pyarrow")
"""Libraries that a model's numbers may depend on, or that read its Program."""

_ready: Recent[str, BatchFunction] = Recent()
_making = threading.Lock()
_settled: set[str] = set()


def versions() -> dict[str, str]:
    versions = dict.fromkeys(_LIBRARIES, "none")
    for name in _LIBRARIES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def score(
    name: str, program: Any, wanted: Mapping[str, str], columns: Sequence[pa.Array]
) -> pa.StructArray:
    """Score one batch: return for each row its value, or why the model rejects it.

    Spark calls a function for all rows, even for those that a CASE around the call excludes. So a
    row fails where its value is used (`Dialect.checked`), not here. `columns` (n,) are lists of the
    numbers, maybe several times, then the texts; `wanted` are the `versions` of the driver.
    """
    if columns[0].null_count:
        return _score_valid_rows(name, program, wanted, columns)
    batch = _ready.get(name) or _compile(name, program, wanted)
    matrix = _unpack(columns[0], batch.packed, batch.dtype)
    texts = list(map(TextColumn.from_values, columns[len(columns) - batch.texts :]))

    def value_of(rows: Array | slice) -> pa.Array:
        selected = {text_input_name(k): column[rows] for k, column in enumerate(texts)}
        # Waiting for kernels pays off: many workers share a machine, and there are many rows.
        with wait_for_kernels():
            return batch.score_in_parts(matrix[rows], selected)

    try:
        values = value_of(slice(None))
        errors = pa.nulls(len(values), pa.string())
    except SqlmlError:
        values, errors = row_by_row(matrix, value_of)
    _settle(name)
    return _pair(values, errors)


def _pair(value: pa.Array, error: pa.Array) -> pa.StructArray:
    return pa.StructArray.from_arrays([value, error], names=["value", "error"])


def _score_valid_rows(
    name: str, program: Any, wanted: Mapping[str, str], columns: Sequence[pa.Array]
) -> pa.StructArray:
    """Return NULL for rows without numbers, which Spark adds to count several DISTINCTs."""
    valid = columns[0].is_valid()
    scores = score(name, program, wanted, [column.filter(valid) for column in columns])
    mask = valid.to_numpy(zero_copy_only=False)
    return scores.take(pa.array(np.cumsum(mask) - 1, mask=~mask))


def _settle(name: str) -> None:
    """Exclude all objects from garbage collections, once a function has scored and so is compiled.

    Spark's daemon collects garbage after each task, which the compiler's objects slow by 25 ms.
    """
    if name not in _settled:
        _settled.add(name)
        gc.collect()
        gc.freeze()


def row_by_row(matrix: Array, value_of: Callable[[Array], pa.Array]) -> tuple[pa.Array, pa.Array]:
    """Return the values of rows, and the errors of those that have none.

    Of rows that lack the same values, which fail alike, one is tried. Others are found by
    bisection.
    """
    values: list[pa.Array] = []
    positions: list[Array] = []
    errors: dict[int, str] = {}

    def keep(rows: Array) -> None:
        values.append(value_of(rows))
        positions.append(rows)

    def halve(rows: Array) -> None:
        if not len(rows):
            return
        try:
            keep(rows)
        except SqlmlError as error:
            if len(rows) == 1:
                errors[int(rows[0])] = error.message
                return
            middle = len(rows) // 2
            halve(rows[:middle])
            halve(rows[middle:])

    non_finite = np.where(np.isnan(matrix), 1, np.where(np.isinf(matrix), 2, 0)).astype(np.int8)
    kinds, kind = np.unique(non_finite, axis=0, return_inverse=True)
    candidates: list[Array] = []
    for k in range(len(kinds)):
        rows = np.flatnonzero(kind.ravel() == k)
        if kinds[k].any():
            try:
                value_of(rows[:1])
            except MissingValueError as error:
                errors.update(dict.fromkeys(rows.tolist(), error.message))
                continue
            except SqlmlError:
                pass
        candidates.append(rows)
    halve(np.sort(np.concatenate(candidates)) if candidates else np.empty(0, np.int64))
    position = np.full(len(matrix), -1)
    if positions:
        position[np.concatenate(positions)] = np.arange(sum(map(len, positions)))
    scores = pa.concat_arrays(values) if values else value_of(np.empty(0, np.int64))
    index = pa.array(position, mask=position < 0)
    messages = pa.array([errors.get(k) for k in range(len(matrix))], pa.string())
    return scores.take(index), messages


def _compile(name: str, program: Any, wanted: Mapping[str, str]) -> BatchFunction:
    with _making:
        cached = _ready.get(name)
        if cached is not None:
            return cached
        ours = versions()
        others = [f"{k} {ours[k]} (driver: {v})" for k, v in wanted.items() if ours[k] != v]
        if others:
            raise BackendError(
                f"the libraries of a Spark worker differ from the driver's: {', '.join(others)}; "
                "install the same versions on all nodes"
            )
        spec = parse_name(name)
        assert spec is not None
        stored = store.loads(_content(program))
        function = make_engine_function(spec, stored, dialect=SPARK).function
        assert isinstance(function, BatchFunction)
        _ready.put(name, function, function.nbytes)
        return function


def _content(program: Any) -> bytes:
    try:
        return bytes(program.value)
    except Exception as error:  # pyspark may raise any exception here.
        raise BackendError(
            f"the model has not reached a Spark worker: {error}; attach the SparkSession again to "
            "send it again"
        ) from error


def _unpack(lists: pa.ListArray, width: int, dtype: str) -> Array:
    """Unpack lists of `width` numbers to rows (n, width); NULL becomes NaN."""
    values = lists.flatten()
    assert len(values) == len(lists) * width, (
        "the planner packs as many numbers as there are columns"
    )
    return rows_of(pa.FixedSizeListArray.from_arrays(values, width), width, dtype)


Rows = tuple[
    Mapping[str, tuple[str, Any, Sequence[int], Sequence[int]]], Mapping[str, int], int, str
]
"""Everything that scores rows by the model that each row names, in a form that can be pickled.

Name -> (function, broadcast of its Program, positions of its numbers and of its texts in a row);
name -> kind; the count of numbers in a row; and the SQL type of the result.
"""

Errors = tuple[Mapping[str, str | None], str | None]
"""Name -> why its rows cannot be scored, or None if they are NULL; and the message for unknown
names, or None if their rows are NULL."""


def score_named_rows(
    rows: Rows, errors: Errors, wanted: Mapping[str, str], columns: Sequence[pa.Array]
) -> pa.Array:
    """Score rows with the models that they name: columns of names, lists of numbers, and texts."""
    scorers, kinds, width, result = rows
    messages, message_for_unknown = errors
    names, *arguments = columns
    value = arrow_type(result)
    matrix = np.empty((0, 0))
    if scorers:  # Rows of numbers, with NaN for the NULL rows that Spark adds.
        lists = arguments[0]
        valid = lists.is_valid()
        matrix = np.full((len(lists), max(1, width)), np.nan)
        unpacked = _unpack(lists.filter(valid), max(1, width), "float64")
        matrix[valid.to_numpy(zero_copy_only=False)] = unpacked

    def score_group(name: str, positions: Array) -> pa.Array | None:
        count = len(positions)
        if name in kinds:
            values = arrow_of(np.full(count, kinds[name], np.int32), value)
            return _pair(values, pa.nulls(count, pa.string()))
        if name in scorers:
            function, program, numbers, texts = scorers[name]
            selected = matrix[positions][:, list(numbers)]
            columns = [arguments[1 + k].take(arrow_of(positions, pa.int64())) for k in texts]
            spec = parse_name(function)
            dtype = "float32" if spec is not None and spec.layout == "f32" else "float64"
            return score(function, program, wanted, [_pack(selected, dtype), *columns])
        message = messages.get(name, message_for_unknown)
        if message is None:
            return None
        text = message if name in messages else message.format(name=name)
        return _pair(pa.nulls(count, value), pa.array([text] * count, pa.string()))

    result_type = pa.struct([("value", value), ("error", pa.string())])
    return score_by_name(names, result_type, score_group)


def _pack(matrix: Array, dtype: str) -> pa.Array:
    rows = (matrix if matrix.shape[1] else np.zeros((len(matrix), 1))).astype(dtype)
    ends = np.arange(0, rows.size + 1, rows.shape[1])
    values = arrow_of(rows.ravel(), pa.from_numpy_dtype(rows.dtype))
    return pa.ListArray.from_arrays(arrow_of(ends, pa.int32()), values)
