"""`named_function`: scores the rows of a batch, each with the model that it names."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa

from sqlml.errors import SqlmlError
from sqlml.ir.utf8_column import Texts
from sqlml.passes.split import text_input
from sqlml.planner.program.named_function import NamedFunction, Scorer
from sqlml.types import Array
from sqlml.udfs.batch_function import arrow_of, arrow_type, matrix_of, park
from sqlml.udfs.duckdb.functions_by_name import found
from sqlml.udfs.engine_function import EngineFunction, scored_by_name, taking


def named_function(function: NamedFunction, example: EngineFunction | None) -> EngineFunction:
    """The function as the engine registers it: of a name, numbers (DOUBLE), and texts.

    Args:
        example: the function of one of its models, which returns what all return.
    """
    models = function if function.by_column else None
    if example is None:
        kinds = partial(_kinds, function)
        return EngineFunction(function.name, kinds, ("VARCHAR",), "INTEGER", models=models)
    taken = ("VARCHAR", *("DOUBLE",) * function.numbers, *("VARCHAR",) * function.texts)
    result = example.result_type
    call = taking(len(taken), partial(_scored, function, arrow_type(result)))
    return EngineFunction(function.name, call, taken, result, example.volatile, models=models)


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
    *columns: pa.Array | pa.ChunkedArray,
) -> pa.Array:
    """What each row's model makes of it.

    Raises:
        ParkedFailure: stands for the typed error that `parked_errors.claim` gives back.
    """
    try:
        matrix = matrix_of(columns[: function.numbers], "float64")
        texts = [Texts.of(column) for column in columns[function.numbers :]]
    except SqlmlError as error:
        raise park(error) from None

    def scored(name: str, rows: Array) -> pa.Array | None:
        scorer = function.scorers.get(name)
        if scorer is None:
            _refuse(function, name)
            return None
        try:
            return _by(scorer, matrix, texts, rows)
        except Exception as error:
            raise park(error) from None

    return scored_by_name(names, kind, scored)


def _by(scorer: Scorer, matrix: Array, columns: list[Texts], rows: Array) -> pa.Array:
    """What one model makes of some rows."""
    batch = found(scorer.spec.name)
    given = matrix[rows][:, list(scorer.numbers)].astype(batch.dtype)
    texts = {text_input(k): columns[place][rows] for k, place in enumerate(scorer.texts)}
    return batch.in_parts(np.ascontiguousarray(given), texts)


def _refuse(function: NamedFunction, name: str) -> None:
    """Raises ParkedFailure where a name without a model is an error; else its rows have NULL."""
    error = function.error(name)
    if error is not None:
        raise park(type(error)(error.message))
