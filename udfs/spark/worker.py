"""What runs in Spark's Python workers: a Program, which came by broadcast, over Arrow columns.

A worker process lives through many tasks and is given the Program once; it is compiled when the
first batch comes, and kept by the name of its function.
"""

from __future__ import annotations

import gc
import importlib.metadata
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sqlml.backends.no_wait import waiting
from sqlml.bounded_cache import Recent
from sqlml.dialects import SPARK
from sqlml.errors import BackendError, MissingValueError, SqlmlError
from sqlml.ir import store
from sqlml.ir.utf8_column import Texts
from sqlml.passes.split import text_input
from sqlml.planner.program.function_names import parse_name
from sqlml.types import Array
from sqlml.udfs.batch_function import BatchFunction, rows_of
from sqlml.udfs.make_function import engine_function

_LIBRARIES = ("sqlml", "numpy", "numba", "pyarrow")
"""What the numbers of a model may depend on, and what must read its Program."""

_ready: Recent[str, BatchFunction] = Recent()
_making = threading.Lock()
_settled: set[str] = set()


def versions() -> dict[str, str]:
    """The libraries of this process that score: name -> version."""
    found = {}
    for name in _LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "none"
    return found


def score(
    name: str, program: Any, wanted: Mapping[str, str], columns: Sequence[pa.Array]
) -> pa.StructArray:
    """Score one batch: for each row its value, or why the model refuses it.

    Spark calls a function for all rows, also for those that a CASE around the call leaves out; so a
    row is refused where its value is used (`Dialect.checked`), not here.

    Args:
        name: of the function (`planner.program.function_names`).
        program: Spark's broadcast of the stored Program, as bytes.
        wanted: the `versions` of the driver.
        columns: (n,) each: lists of the numbers, maybe several times; then the texts.

    Raises:
        BackendError: the worker's libraries differ from the driver's, or it lacks the Program.
    """
    if columns[0].null_count:
        return _of_rows_that_are(name, program, wanted, columns)
    batch = _ready.get(name) or _made(name, program, wanted)
    matrix = matrix_of(columns[0], batch.given, batch.dtype)
    texts = columns[len(columns) - batch.texts :]

    def value_of(rows: Array | slice) -> pa.Array:
        own = [c[rows] if isinstance(rows, slice) else c.take(pa.array(rows)) for c in texts]
        held = {text_input(k): Texts.of(column) for k, column in enumerate(own)}
        with waiting():  # many workers share a machine, and there are many rows
            return batch.of_matrix(matrix[rows], held)

    most = batch.most or max(1, len(matrix))
    parts = [slice(k, k + most) for k in range(0, max(1, len(matrix)), most)]
    try:
        values = pa.concat_arrays([value_of(part) for part in parts])
        errors = pa.nulls(len(values), pa.string())
    except SqlmlError:
        values, errors = row_by_row(matrix, value_of)
    _settle(name)
    return pa.StructArray.from_arrays([values, errors], names=["value", "error"])


def _of_rows_that_are(
    name: str, program: Any, wanted: Mapping[str, str], columns: Sequence[pa.Array]
) -> pa.StructArray:
    """NULL, and no error, for rows without numbers: Spark makes some to count several DISTINCTs."""
    there = columns[0].is_valid()
    found = score(name, program, wanted, [column.filter(there) for column in columns])
    kept = there.to_numpy(zero_copy_only=False)
    return found.take(pa.array(np.cumsum(kept) - 1, mask=~kept))


def _settle(name: str) -> None:
    """Keep all objects out of garbage collections, once a function has scored and so is compiled.

    Spark's daemon collects garbage after each task, which with the compiler's objects would take 25
    ms more.
    """
    if name not in _settled:
        _settled.add(name)
        gc.collect()
        gc.freeze()


def row_by_row(matrix: Array, value_of: Callable[[Array], pa.Array]) -> tuple[pa.Array, pa.Array]:
    """Values, and the errors of rows that have none.

    Rows that lack the same values are refused alike: one of them is asked. What is refused for
    another reason is found by halves.
    """
    values: list[pa.Array] = []
    places: list[Array] = []
    errors: dict[int, str] = {}

    def keep(rows: Array) -> None:
        values.append(value_of(rows))
        places.append(rows)

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

    odd = np.where(np.isnan(matrix), 1, np.where(np.isinf(matrix), 2, 0)).astype(np.int8)
    kinds, kind = np.unique(odd, axis=0, return_inverse=True)
    taken: list[Array] = []
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
        taken.append(rows)
    halve(np.sort(np.concatenate(taken)) if taken else np.empty(0, np.int64))
    place = np.full(len(matrix), -1)
    if places:
        place[np.concatenate(places)] = np.arange(sum(map(len, places)))
    made = pa.concat_arrays(values) if values else value_of(np.empty(0, np.int64))
    index = pa.array(place, mask=place < 0)
    return made.take(index), pa.array([errors.get(k) for k in range(len(matrix))], pa.string())


def _made(name: str, program: Any, wanted: Mapping[str, str]) -> BatchFunction:
    with _making:
        known = _ready.get(name)
        if known is not None:
            return known
        own = versions()
        others = [f"{k} {own[k]} (driver: {v})" for k, v in wanted.items() if own.get(k) != v]
        if others:
            raise BackendError(
                f"the libraries of a Spark worker differ from the driver's: {', '.join(others)}; "
                "install the same versions on all nodes"
            )
        spec = parse_name(name)
        assert spec is not None
        made = engine_function(spec, store.loads(_content(program)), dialect=SPARK).function
        assert isinstance(made, BatchFunction)
        _ready.put(name, made, made.nbytes)
        return made


def _content(program: Any) -> bytes:
    try:
        return bytes(program.value)
    except Exception as error:  # whatever kept it from coming
        raise BackendError(
            f"the model has not reached a Spark worker: {error}; attach the SparkSession again, "
            "which sends it again"
        ) from error


def matrix_of(lists: pa.ListArray, width: int, dtype: str) -> Array:
    """Lists of `width` numbers as rows (n, width); NULL becomes NaN."""
    values = lists.flatten()
    assert len(values) == len(lists) * width, (
        "the planner packs as many numbers as there are columns"
    )
    return rows_of(pa.FixedSizeListArray.from_arrays(values, width), width, dtype)
