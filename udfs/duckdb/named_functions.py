"""Score each row of a batch with the model that the row names, in DuckDB."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa

from sqlml.errors import SqlmlError
from sqlml.ir.utf8_column import TextColumn
from sqlml.passes.split import text_input_name
from sqlml.planner.program.named_function import NamedFunction
from sqlml.types import Array
from sqlml.udfs.batch_function import arrow_of, arrow_type, matrix_of, park
from sqlml.udfs.duckdb.functions_by_name import find_function
from sqlml.udfs.engine_function import EngineFunction, score_by_name, with_signature


def make_named_function(function: NamedFunction, example: EngineFunction | None) -> EngineFunction:
    """Build the function to register: it takes a name, numbers (DOUBLE), and texts.

    Args:
        example: the function of one of the models, since all return the same type. None builds a
            function that returns the kind of each row's model.
    """
    models = function if function.by_column else None
    if example is None:
        kinds = partial(_kinds, function)
        return EngineFunction(function.name, kinds, ("VARCHAR",), "INTEGER", models=models)
    argument_types = ("VARCHAR", *("DOUBLE",) * function.numbers, *("VARCHAR",) * function.texts)
    result = example.result_type
    call = with_signature(len(argument_types), partial(_score_rows, function, arrow_type(result)))
    return EngineFunction(
        function.name, call, argument_types, result, example.volatile, models=models
    )


def _kinds(function: NamedFunction, names: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the number of the kind of each row's model."""

    def kind_of(name: str, rows: Array) -> pa.Array | None:
        kind = function.groups.get(name)
        if kind is not None:
            return arrow_of(np.full(len(rows), kind, np.int32), pa.int32())
        _refuse(function, name)
        return None

    return score_by_name(names, pa.int32(), kind_of)


def _score_rows(
    function: NamedFunction,
    kind: pa.DataType,
    names: pa.Array | pa.ChunkedArray,
    *columns: pa.Array | pa.ChunkedArray,
) -> pa.Array:
    """Score each row with its model.

    Raises:
        ParkedFailure: with the token of the typed error, which `claim` returns.
    """
    try:
        matrix = matrix_of(columns[: function.numbers], "float64")
        texts = [TextColumn.from_values(column) for column in columns[function.numbers :]]
    except SqlmlError as error:
        raise park(error) from None

    def score(name: str, rows: Array) -> pa.Array | None:
        scorer = function.scorers.get(name)
        if scorer is None:
            _refuse(function, name)
            return None
        try:
            batch = find_function(scorer.spec.name)
            numbers = matrix[rows][:, list(scorer.numbers)].astype(batch.dtype)
            selected = {text_input_name(k): texts[t][rows] for k, t in enumerate(scorer.texts)}
            return batch.score_in_parts(np.ascontiguousarray(numbers), selected)
        except Exception as error:
            raise park(error) from None

    return score_by_name(names, kind, score)


def _refuse(function: NamedFunction, name: str) -> None:
    """Raise ParkedFailure if a name without a model is an error; otherwise its rows are NULL."""
    error = function.find_error(name)
    if error is not None:
        raise park(type(error)(error.message))
