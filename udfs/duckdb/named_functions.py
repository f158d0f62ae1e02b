"""`named_function`: scores the rows of a batch, each with the model that it names."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa

from sqlml.errors import SqlmlError
from sqlml.ir.utf8_column import Texts
from sqlml.passes.split import text_input
from sqlml.planner.program.named_functions import NamedFunction, Scorer
from sqlml.types import Array
from sqlml.udfs.batch_function import arrow_of, arrow_type, rows_of, texts_of
from sqlml.udfs.duckdb.functions_by_name import found
from sqlml.udfs.engine_function import EngineFunction, taking
from sqlml.udfs.parked_errors import park
from sqlml.udfs.rows_by_name import scored_by_name


def named_function(function: NamedFunction, example: EngineFunction | None) -> EngineFunction:
    """The function as the engine registers it.

    Args:
        example: the function of one of its models, which returns what all return.
    """
    if example is None:
        return EngineFunction(function.name, partial(_kinds, function), ("VARCHAR",), "INTEGER")
    texts = ("BLOB[]",) * bool(function.texts)
    taken = ("VARCHAR", f"DOUBLE[{max(1, function.numbers)}]", *texts)
    call = taking(len(taken), partial(_scored, function, arrow_type(example.result_type)))
    return EngineFunction(function.name, call, taken, example.result_type, example.volatile)


def _kinds(function: NamedFunction, names: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The number of the kind of each row's model."""

    def kind_of(name: str, rows: Array) -> pa.Array | None:
        known = function.kinds.get(name)
        if known is not None:
            return arrow_of(np.full(len(rows), known, np.int32), pa.int32())
        _refuse(function, name)
        return None

    return scored_by_name(names, pa.int32(), kind_of)


def _scored(
    function: NamedFunction,
    kind: pa.DataType,
    names: pa.Array | pa.ChunkedArray,
    numbers: pa.Array | pa.ChunkedArray,
    texts: pa.Array | pa.ChunkedArray | None = None,
) -> pa.Array:
    """What each row's model makes of it.

    Raises:
        ParkedFailure: stands for the typed error that `parked_errors.claim` gives back.
    """
    try:
        matrix = rows_of(numbers, max(1, function.numbers), "float64")
        columns = [] if texts is None else texts_of(texts, function.texts)
    except SqlmlError as error:
        raise park(error) from None

    def scored(name: str, rows: Array) -> pa.Array | None:
        scorer = function.scorers.get(name)
        if scorer is None:
            _refuse(function, name)
            return None
        try:
            return _by(scorer, matrix, columns, rows)
        except Exception as error:
            raise park(error) from None

    return scored_by_name(names, kind, scored)


def _by(scorer: Scorer, matrix: Array, columns: list[Texts], rows: Array) -> pa.Array:
    """What one model makes of some rows."""
    batch = found(scorer.spec.name)
    given = np.zeros((len(rows), batch.given), batch.dtype)
    given[:, : len(scorer.numbers)] = matrix[rows][:, scorer.numbers]
    texts = {text_input(k): columns[place][rows] for k, place in enumerate(scorer.texts)}
    return batch.in_parts(given, texts)


def _refuse(function: NamedFunction, name: str) -> None:
    """Raises ParkedFailure where a name without a model is an error; else its rows have NULL."""
    error = function.error(name)
    if error is not None:
        raise park(type(error)(error.message))
