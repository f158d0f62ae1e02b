"""Ways to call a fitted pipeline in a query of DuckDB: sqlml's, and those that others use.

All contenders share a database and its tables. Each has a name of its own in SQL, and a call to put
into the query.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa

import sqlml
from benchmarks.contest import reason

OBJECT, FILE, EXTENSION, SQL = "sqlml", "sqlml file", "sqlml extension", "exported SQL"
CACHED, LOADED, ONNX = "Arrow UDF", "Arrow UDF, loading", "onnxruntime"
FRAME = "data frame"


@dataclass(frozen=True, slots=True)
class Model:
    """A fitted model and what it reads.

    Attributes:
        pipeline: the model as its library has it; `predict` takes a frame of the columns.
        columns: maps each column to its SQL type, in the order of training.
        result: the SQL type of the predictions.
        onnx: the model's ONNX file, or None if no converter takes it.
        source: what sqlml imports in place of the pipeline, if it does not know its class.
    """

    pipeline: Any
    columns: Mapping[str, str]
    result: str
    onnx: bytes | None = None
    source: Any = None


@dataclass(frozen=True, slots=True)
class Contender:
    """A connection, and the call of the model in SQL."""

    con: Any
    call: str


def make_contenders(
    model: Model, con: Any, folder: Path
) -> tuple[dict[str, Contender], dict[str, str]]:
    """Return the contenders in the database of `con`, and why others cannot run the model."""
    session = sqlml.attach(con)
    packed = ", ".join(f"{MODEL_COLUMN}{column} := {column}" for column in model.columns)
    makers: Mapping[str, Callable[[], Contender]] = {
        OBJECT: lambda: _make_object(model, session),
        FILE: lambda: _make_file(model, session, folder),
        EXTENSION: lambda: _make_extension(model, con, folder),
        SQL: lambda: _make_macros(model, con, folder),
        CACHED: lambda: _make_function("cached", model, con, _score_cached(model)),
        LOADED: lambda: _make_function("loaded", model, con, _score_loaded(model, folder)),
        ONNX: lambda: _make_function("onnx", model, con, _score_onnx(model)),
        FRAME: lambda: Contender(con, f"struct_pack({packed})"),
    }
    made, reasons = dict[str, Contender](), dict[str, str]()
    for name, make in makers.items():
        try:
            made[name] = make()
        except Exception as error:  # A converter may raise any exception.
            reasons[name] = reason(error)
    return made, reasons


def _make_object(model: Model, session: Any) -> Contender:
    _create_model(session, "object", model)
    return Contender(session, _predict("object", model))


def _create_model(session: Any, name: str, model: Model) -> None:
    source = model.pipeline if model.source is None else model.source
    session.create_model(name, source, verify=False)


def _make_file(model: Model, session: Any, folder: Path) -> Contender:
    if model.onnx is None:
        raise ValueError("no converter writes its ONNX file")
    path = folder / "file.onnx"
    path.write_bytes(model.onnx)
    session.execute(f"CREATE MODEL file FROM '{path}'")
    return Contender(session, _predict("file", model))


def _predict(name: str, model: Model) -> str:
    named = ", ".join(f"{column} := {column}" for column in model.columns)
    return f"predict('{name}', {named})"


def _make_extension(model: Model, con: Any, folder: Path) -> Contender:
    path = folder / "exported.duckdb_extension"
    _export("exported", model, path)
    con.execute(f"LOAD '{path}'")
    return Contender(con, f"exported({', '.join(model.columns)})")


def _make_macros(model: Model, con: Any, folder: Path) -> Contender:
    path = folder / "macros.sql"
    _export("written", model, path)
    con.execute(path.read_text())
    # A macro has no parameters for columns that the model does not read.
    query = "SELECT parameters FROM duckdb_functions() WHERE function_name = 'written'"
    ((parameters,),) = con.execute(query).fetchall()
    return Contender(con, f"written({', '.join(f'{name} := {name}' for name in parameters)})")


def _export(name: str, model: Model, path: Path) -> None:
    with sqlml.connect() as session:
        _create_model(session, name, model)
        session.execute(f"EXPORT MODEL {name} TO '{path}'")


Score = Callable[[Sequence[Any]], Any]
"""Maps the Arrow columns of a batch to the labels."""


def make_frame(model: Model, columns: Sequence[Any]) -> pd.DataFrame:
    """Return the batch as a frame with the dtypes of training."""
    arrays = (np.asarray(column) for column in columns)
    return pd.DataFrame(dict(zip(model.columns, arrays, strict=True)))


def _score_cached(model: Model) -> Score:
    return lambda columns: model.pipeline.predict(make_frame(model, columns))


def _score_loaded(model: Model, folder: Path) -> Score:
    path = folder / "m.pickle"
    path.write_bytes(pickle.dumps(model.pipeline))

    def score(columns: Sequence[Any]) -> Any:
        return pickle.loads(path.read_bytes()).predict(make_frame(model, columns))

    return score


def _score_onnx(model: Model) -> Score:
    import onnxruntime

    if model.onnx is None:
        raise ValueError("no converter writes its ONNX file")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # DuckDB calls the function on each of its threads.
    options.log_severity_level = 4
    graph = onnxruntime.InferenceSession(model.onnx, options, providers=["CPUExecutionProvider"])
    inputs, output = [entry.name for entry in graph.get_inputs()], graph.get_outputs()[0].name
    dtypes = {"VARCHAR": object, "BIGINT": np.int64, "BOOLEAN": np.int64}
    kinds = [dtypes.get(sql_type, np.float32) for sql_type in model.columns.values()]

    def score(columns: Sequence[Any]) -> Any:
        arrays = [np.asarray(c).astype(kind) for c, kind in zip(columns, kinds, strict=True)]
        if len(inputs) == 1:
            feeds = {inputs[0]: np.stack(arrays, axis=1)}
        else:
            feeds = {name: a.reshape(-1, 1) for name, a in zip(inputs, arrays, strict=True)}
        return np.ravel(graph.run([output], feeds)[0])

    return score


def _make_function(name: str, model: Model, con: Any, score: Score) -> Contender:
    register_function(con, name, model.columns, model.result, score)
    return Contender(con, f"{name}({', '.join(model.columns)})")


def register_function(
    con: Any, name: str, columns: Mapping[str, str], result: str, score: Score
) -> None:
    """Register an Arrow function; `columns` maps its parameters to SQL types."""

    def function(*arrays: Any) -> Any:
        return pa.array(score(arrays))

    # DuckDB reads the number of arguments from the signature.
    parameters = [Parameter(column, Parameter.POSITIONAL_ONLY) for column in columns]
    function.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    con.create_function(name, function, list(columns.values()), result, type="arrow")


MODEL_COLUMN = "of_model_"
"""The prefix of the model's columns in a frame that has other columns too."""


def run_with_frame(model: Model, contender: Contender, query: str, rest: str) -> Any:
    """Fetch the rows of `query` with the model's columns, score them, and run `rest` on them.

    `query` has the columns as the struct `p`. `rest` reads the table `scored`, whose `p` is the
    prediction.
    """
    frame = contender.con.execute(f"SELECT * EXCLUDE (p), p.* FROM ({query})").df()
    features = pd.DataFrame({column: frame.pop(MODEL_COLUMN + column) for column in model.columns})
    contender.con.register("scored", frame.assign(p=np.ravel(model.pipeline.predict(features))))
    return contender.con.execute(rest).fetchall()


def open_tables(tables: Mapping[str, Any], threads: int) -> Any:
    """Return a connection to a database with `tables`, frames or paths of Parquet files."""
    con = duckdb.connect(config={"allow_unsigned_extensions": "true", "threads": threads})
    for name, table in tables.items():
        if isinstance(table, Path):
            con.execute(f"CREATE TABLE {name} AS FROM '{table}'")
        else:
            con.register("frame", table)
            con.execute(f"CREATE TABLE {name} AS FROM frame")
            con.unregister("frame")
    return con
