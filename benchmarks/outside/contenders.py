"""Ways to call a fitted pipeline in a query of DuckDB: sqlml's, and those that others use.

Each contender has a session of its own with the same tables, and a call to put into the query.
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


Open = Callable[[], Any]
"""Returns a new plain connection with the tables."""


def make_contenders(
    model: Model, open_: Open, folder: Path, threads: int
) -> tuple[dict[str, Contender], dict[str, str]]:
    """Return the contenders, and why others cannot run the model."""
    packed = ", ".join(f"{MODEL_COLUMN}{column} := {column}" for column in model.columns)
    makers: Mapping[str, Callable[[Any], Contender]] = {
        OBJECT: lambda con: _make_object(model, con),
        FILE: lambda con: _make_file(model, con, folder),
        EXTENSION: lambda con: _make_extension(model, con, folder),
        SQL: lambda con: _make_macros(model, con, folder),
        CACHED: lambda con: _make_function(model, con, _score_cached(model)),
        LOADED: lambda con: _make_function(model, con, _score_loaded(model, folder)),
        ONNX: lambda con: _make_function(model, con, _score_onnx(model)),
        FRAME: lambda con: Contender(con, f"struct_pack({packed})"),
    }
    made, reasons = dict[str, Contender](), dict[str, str]()
    for name, make in makers.items():
        con = open_()
        con.execute(f"SET threads = {threads}")
        try:
            made[name] = make(con)
        except Exception as error:  # A converter may raise any exception.
            reasons[name] = reason(error)
    return made, reasons


def _make_object(model: Model, con: Any) -> Contender:
    session = sqlml.attach(con)
    _create_model(session, model)
    return Contender(session, _call(model))


def _create_model(session: Any, model: Model) -> None:
    source = model.pipeline if model.source is None else model.source
    session.create_model("m", source, verify=False)


def _make_file(model: Model, con: Any, folder: Path) -> Contender:
    if model.onnx is None:
        raise ValueError("no converter writes its ONNX file")
    path = folder / "m.onnx"
    path.write_bytes(model.onnx)
    session = sqlml.attach(con)
    session.execute(f"CREATE MODEL m FROM '{path}'")
    return Contender(session, _call(model))


def _make_extension(model: Model, con: Any, folder: Path) -> Contender:
    con.execute(f"LOAD '{_export(model, folder / 'm.duckdb_extension')}'")
    return Contender(con, f"m({', '.join(model.columns)})")


def _make_macros(model: Model, con: Any, folder: Path) -> Contender:
    con.execute(_export(model, folder / "m.sql").read_text())
    # A macro has no parameters for columns that the model does not read.
    query = "SELECT parameters FROM duckdb_functions() WHERE function_name = 'm'"
    (parameters,) = con.execute(query).fetchone()
    return Contender(con, f"m({', '.join(f'{name} := {name}' for name in parameters)})")


def _export(model: Model, path: Path) -> Path:
    with sqlml.connect() as session:
        _create_model(session, model)
        session.execute(f"EXPORT MODEL m TO '{path}'")
    return path


def _call(model: Model) -> str:
    named = ", ".join(f"{column} := {column}" for column in model.columns)
    return f"predict('m', {named})"


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


def _make_function(model: Model, con: Any, score: Score) -> Contender:
    def function(*columns: Any) -> Any:
        return pa.array(score(columns))

    # DuckDB reads the number of arguments from the signature.
    parameters = [Parameter(column, Parameter.POSITIONAL_ONLY) for column in model.columns]
    function.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    con.create_function("m", function, list(model.columns.values()), model.result, type="arrow")
    return Contender(con, f"m({', '.join(model.columns)})")


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


def open_plain(tables: Mapping[str, Any]) -> Open:
    """Return a function that opens a connection with `tables`, frames or paths of Parquet files."""

    def open_connection() -> Any:
        con = duckdb.connect(config={"allow_unsigned_extensions": "true"})
        for name, table in tables.items():
            if isinstance(table, Path):
                con.execute(f"CREATE TABLE {name} AS FROM '{table}'")
            else:
                con.register("frame", table)
                con.execute(f"CREATE TABLE {name} AS FROM frame")
                con.unregister("frame")
        return con

    return open_connection
