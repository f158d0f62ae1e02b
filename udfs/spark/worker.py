"""Score Arrow columns in Spark's Python workers.

A worker process runs many tasks and receives each Program once, by broadcast. The Program is
compiled when the first batch arrives. The compiled function is cached, keyed by name.
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
from sqlml.bounded_cache import RecentCache
from sqlml.dialects import SPARK
from sqlml.errors import BackendError, MissingValueError, SqlmlError
from sqlml.ir import store
from sqlml.ir.utf8_column import TextColumn
from sqlml.passes.split import text_input_name
from sqlml.planner.program.function_spec import parse_function_name
from sqlml.types import Array
from sqlml.udfs.batch_function import BatchFunction, arrow_type, to_arrow, unpack_rows
from sqlml.udfs.engine_function import score_by_name
from sqlml.udfs.make_function import make_engine_function

_LIBRARIES = ("sqlml", "numpy", "numba", "pyarrow")
"""Libraries that may affect a model's results, or that read a Program."""

_functions: RecentCache[str, BatchFunction] = RecentCache()
_compile_lock = threading.Lock()
_frozen_functions: set[str] = set()


def read_library_versions() -> dict[str, str]:
    version_by_library = dict.fromkeys(_LIBRARIES, "none")
    for name in _LIBRARIES:
        with suppress(importlib.metadata.PackageNotFoundError):
            version_by_library[name] = importlib.metadata.version(name)
    return version_by_library


def score(
    name: str, broadcast: Any, driver_versions: Mapping[str, str], columns: Sequence[pa.Array]
) -> pa.StructArray:
    """Score one batch; return a value or an error message for each row.

    Spark calls a function for all rows, even for rows that a CASE around the call excludes. Thus, a
    row fails where the value is used (`Dialect.checked`), not here. The first of `columns` has a
    list of each row's numbers, and the last columns are strings.
    """
    if columns[0].null_count:
        return _score_valid_rows(name, broadcast, driver_versions, columns)
    batch_function = _functions.get(name) or _compile(name, broadcast, driver_versions)
    matrix = _unpack(columns[0], batch_function.packed, batch_function.dtype)
    texts = list(map(TextColumn.from_values, columns[len(columns) - batch_function.texts :]))

    def score_rows(rows: Array | slice) -> pa.Array:
        strings = {text_input_name(i): column[rows] for i, column in enumerate(texts)}
        # Waiting for kernels pays off: many workers share a machine, and there are many rows.
        with wait_for_kernels():
            return batch_function.score_in_parts(matrix[rows], strings)

    try:
        values = score_rows(slice(None))
        errors = pa.nulls(len(values), pa.string())
    except SqlmlError:
        values, errors = score_each(matrix, score_rows)
    _freeze_garbage(name)
    return _make_result(values, errors)


def _make_result(value: pa.Array, error: pa.Array) -> pa.StructArray:
    return pa.StructArray.from_arrays([value, error], names=["value", "error"])


def _score_valid_rows(
    name: str, broadcast: Any, driver_versions: Mapping[str, str], columns: Sequence[pa.Array]
) -> pa.StructArray:
    """Score rows with numbers, and return NULL for rows of NULL, which Spark adds for DISTINCT."""
    is_valid = columns[0].is_valid()
    valid_columns = [column.filter(is_valid) for column in columns]
    results = score(name, broadcast, driver_versions, valid_columns)
    mask = is_valid.to_numpy(zero_copy_only=False)
    return results.take(pa.array(np.cumsum(mask) - 1, mask=~mask))


def _freeze_garbage(name: str) -> None:
    """Exclude all current objects from garbage collection, once per function.

    Spark's daemon collects garbage after each task, and the compiler's objects would add 25 ms to
    each collection.
    """
    if name not in _frozen_functions:
        _frozen_functions.add(name)
        gc.collect()
        gc.freeze()


def score_each(matrix: Array, score_rows: Callable[[Array], pa.Array]) -> tuple[pa.Array, pa.Array]:
    """Return each row's value (or NULL if the row fails) and error message (or NULL).

    Rows with missing values in the same columns fail in the same way, so only one row is tried.
    Bisection finds the other failing rows.
    """
    values: list[pa.Array] = []
    scored_rows: list[Array] = []
    errors: dict[int, str] = {}

    def bisect(rows: Array) -> None:
        if not len(rows):
            return
        try:
            values.append(score_rows(rows))
            scored_rows.append(rows)
        except SqlmlError as error:
            if len(rows) == 1:
                errors[int(rows[0])] = error.message
                return
            middle = len(rows) // 2
            bisect(rows[:middle])
            bisect(rows[middle:])

    non_finite = np.where(np.isnan(matrix), 1, np.where(np.isinf(matrix), 2, 0)).astype(np.int8)
    patterns, pattern_index = np.unique(non_finite, axis=0, return_inverse=True)
    remaining_rows: list[Array] = []
    for i, pattern in enumerate(patterns):
        rows = np.flatnonzero(pattern_index.ravel() == i)
        if pattern.any():
            try:
                score_rows(rows[:1])
            except MissingValueError as error:
                errors |= dict.fromkeys(rows.tolist(), error.message)
                continue
            except SqlmlError:
                pass
        remaining_rows.append(rows)
    bisect(np.sort(np.concatenate(remaining_rows)) if remaining_rows else np.empty(0, np.int64))
    value_indices = np.full(len(matrix), -1)
    if scored_rows:
        value_indices[np.concatenate(scored_rows)] = np.arange(sum(map(len, scored_rows)))
    scores = pa.concat_arrays(values) if values else score_rows(np.empty(0, np.int64))
    messages = pa.array([errors.get(i) for i in range(len(matrix))], pa.string())
    return scores.take(pa.array(value_indices, mask=value_indices < 0)), messages


def _compile(name: str, broadcast: Any, driver_versions: Mapping[str, str]) -> BatchFunction:
    with _compile_lock:
        cached = _functions.get(name)
        if cached is not None:
            return cached
        worker_versions = read_library_versions()
        differences = [
            f"{library} {worker_versions[library]} (driver: {version})"
            for library, version in driver_versions.items()
            if worker_versions[library] != version
        ]
        if differences:
            raise BackendError(
                f"libraries of a Spark worker differ from the driver's: {', '.join(differences)}; "
                "install the same versions on all nodes"
            )
        spec = parse_function_name(name)
        assert spec is not None
        program = store.loads(_read_broadcast(broadcast))
        function = make_engine_function(spec, program, dialect=SPARK).function
        assert isinstance(function, BatchFunction)
        _functions.put(name, function, function.nbytes)
        return function


def _read_broadcast(broadcast: Any) -> bytes:
    try:
        return bytes(broadcast.value)
    except Exception as error:  # pyspark may raise any exception here.
        raise BackendError(
            f"the model has not reached a Spark worker: {error}; attach the SparkSession again to "
            "send it again"
        ) from error


def _unpack(lists: pa.ListArray, width: int, dtype: str) -> Array:
    values = lists.flatten()
    assert len(values) == len(lists) * width, (
        "the planner packs as many numbers as there are columns"
    )
    return unpack_rows(pa.FixedSizeListArray.from_arrays(values, width), width, dtype)


Scorer = tuple[str, Any, Sequence[int], Sequence[int]]
"""A function's name, a broadcast Program, and the positions of the numbers and the strings."""

Rows = tuple[Mapping[str, Scorer], Mapping[str, int], int, str]
"""The data for scoring rows that name a model, in a form that can be pickled.

The elements are the Scorers by model name, group numbers by model name, the number of numbers in a
row, and the SQL type of the result.
"""

Errors = tuple[Mapping[str, str | None], str | None]
"""Error messages by model name, or None for NULL, and the message for unknown names, or None."""


def score_named_rows(
    scoring: Rows, errors: Errors, driver_versions: Mapping[str, str], columns: Sequence[pa.Array]
) -> pa.Array:
    """Score each row with the named model; `columns` are names, lists of numbers, and strings."""
    scorers, groups, width, sql_type = scoring
    messages, message_for_unknown = errors
    names, *arguments = columns
    value_type = arrow_type(sql_type)
    matrix = np.empty((0, 0))
    if scorers:  # Spark may add rows of NULL, which become NaN.
        lists = arguments[0]
        is_valid = lists.is_valid()
        matrix = np.full((len(lists), max(1, width)), np.nan)
        unpacked = _unpack(lists.filter(is_valid), max(1, width), "float64")
        matrix[is_valid.to_numpy(zero_copy_only=False)] = unpacked

    def score_group(name: str, positions: Array) -> pa.Array | None:
        count = len(positions)
        if name in groups:
            values = to_arrow(np.full(count, groups[name], np.int32), value_type)
            return _make_result(values, pa.nulls(count, pa.string()))
        if name in scorers:
            spec_name, broadcast, number_positions, text_indices = scorers[name]
            selected = matrix[positions][:, list(number_positions)]
            strings = [arguments[1 + k].take(to_arrow(positions, pa.int64())) for k in text_indices]
            spec = parse_function_name(spec_name)
            dtype = "float32" if spec is not None and spec.layout == "f32" else "float64"
            return score(spec_name, broadcast, driver_versions, [_pack(selected, dtype), *strings])
        template = messages.get(name, message_for_unknown)
        if template is None:
            return None
        message = template if name in messages else template.format(name=name)
        return _make_result(pa.nulls(count, value_type), pa.array([message] * count, pa.string()))

    result_type = pa.struct([("value", value_type), ("error", pa.string())])
    return score_by_name(names, result_type, score_group)


def _pack(matrix: Array, dtype: str) -> pa.Array:
    rows = (matrix if matrix.shape[1] else np.zeros((len(matrix), 1))).astype(dtype)
    ends = np.arange(0, rows.size + 1, rows.shape[1])
    values = to_arrow(rows.ravel(), pa.from_numpy_dtype(rows.dtype))
    return pa.ListArray.from_arrays(to_arrow(ends, pa.int32()), values)
