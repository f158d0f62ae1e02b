"""Compare models that were exported from sqlml with the same models in a session.

All contenders run the same query on the same table of DOUBLE and VARCHAR columns in DuckDB:

* sqlml: a session whose models run as native functions, the route that calls no Python;
* sqlml extension: `EXPORT MODEL m TO 'm.duckdb_extension'`, loaded by a plain connection. The model
  has the option `positive_class`, so that `m_proba` returns the probability of one class;
* sqlml arrow: the session with `SET sqlml_route = 'arrow'`, through Arrow and Python;
* sqlml SQL: `EXPORT MODEL m TO 'm.sql'`, whose macros a plain connection calls. Models other than
  the linear one score fewer rows this way (`--sql-rows`), because their SQL is slow;
* onnxruntime: the ONNX file that skl2onnx or onnxmltools writes, run by an Arrow function of Python
  in a plain connection. DuckDB calls it on each of its threads, so each call uses one thread.

The queries sum up the labels of all rows, or the probabilities of one class. Before they are timed,
the results of all rows are compared with those of the source library. The result of a contender is
the median of its rounds. Further rows have the size of each extension, and the time that a process
without sqlml takes to load it.

    python -m benchmarks.exported [--rows N] [--model NAME]... [--write FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from xgboost import XGBClassifier

import sqlml
from benchmarks.compare import Difference, Scores, canonical, compare
from benchmarks.contest import reason
from benchmarks.end_to_end import columns, with_texts
from benchmarks.models import CACHE, Subject, ensemble
from benchmarks.peers import convert_to_onnx
from benchmarks.results import Row, line, parser, row_of, save, status, with_ratios
from benchmarks.rounds import best_calls
from benchmarks.tables import table
from sqlml.errors import SqlmlError

ROOT = Path(__file__).parent.parent
TABLE = "higgs"
LOGISTIC, FOREST, LIGHTGBM = "logistic regression", "random forest", "lightgbm"
XGBOOST, LARGE_XGBOOST = "xgboost", "xgboost, 5 times the trees"
NETWORK, CATEGORIES = "neural network", "one-hot and xgboost"
MODELS = (LOGISTIC, FOREST, XGBOOST, LARGE_XGBOOST, LIGHTGBM, NETWORK, CATEGORIES)

METHODS: Mapping[str, str] = {"probability": "predict_proba", "label": "predict"}
"""Maps the kind of a query to the method of the source library that it corresponds to."""

SESSION, EXTENSION, ARROW, SQL = "sqlml", "sqlml extension", "sqlml arrow", "sqlml SQL"
ONNX = "onnxruntime"


@dataclass(frozen=True, slots=True)
class ExtensionFile:
    """An exported extension: its size in bytes, and the seconds to write and to load it."""

    case: Mapping[str, Any]
    size: int
    export: float
    load: float
    contender: str = EXTENSION
    exact: bool = True
    reason: str | None = None


class Connections(NamedTuple):
    """Two sessions, one for each route, and a connection without sqlml."""

    native: sqlml.Session
    arrow: sqlml.Session
    plain: Any


@dataclass(frozen=True, slots=True)
class Contender:
    """`query` is a SELECT without its FROM, and `run` executes SQL on the contender's connection.

    `table` is the name of the table, and `rows` is the number of its rows.
    """

    query: str
    run: Callable[[str], Any]
    rows: int
    table: str = "t"

    def fetch(self, method: str) -> Scores:
        """Return the result for each row, (rows, 1)."""
        result = self.run(f"SELECT {self.query} AS result FROM {self.table}")
        return canonical(result.fetchnumpy()["result"], method)

    def sum(self) -> Any:
        """Run the query that is timed."""
        return self.run(f"SELECT sum({self.query}) FROM {self.table}").fetchall()


def fit(name: str, options: argparse.Namespace) -> Subject:
    """Return a fitted model of two classes, 0 and 1."""
    if name in (FOREST, XGBOOST, LARGE_XGBOOST, LIGHTGBM):
        return ensemble(
            XGBOOST if name == LARGE_XGBOOST else name,
            TABLE,
            trees=options.trees * (5 if name == LARGE_XGBOOST else 1),
            depth=options.depth,
            rows=options.train,
            seed=options.seed,
            threads=options.threads,
            cache=options.cache,
        )
    x, y = table(TABLE, options.train, options.seed)
    rows: Any = x
    if name == CATEGORIES:
        rows = with_texts(x, options.seed)
        # XGBoost would take the zeros of a sparse matrix for missing values, and ONNX would not.
        one_hot = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
        encoder = make_column_transformer(
            (one_hot, list(rows.columns[-5:])), remainder="passthrough"
        )
        trees = XGBClassifier(n_estimators=options.trees, max_depth=options.depth, random_state=0)
        model = make_pipeline(encoder, trees)
    elif name == NETWORK:
        network = MLPClassifier((64,), max_iter=20, early_stopping=True, random_state=0)
        model = make_pipeline(StandardScaler(), network)
    else:
        model = make_pipeline(StandardScaler(), LogisticRegression())
    model.fit(rows, y)
    return Subject(model, "scikit-learn", "predict_proba", True, name, (rows, y))


def make_rows(name: str, options: argparse.Namespace) -> tuple[pd.DataFrame, Any]:
    """Return the rows of the table, and the same rows as the source library gets them."""
    x, _ = table(TABLE, options.rows, options.seed + 1)
    if name == CATEGORIES:
        frame = with_texts(x, options.seed + 1)
        return frame.astype(dict.fromkeys(columns(25), "float64")), frame
    wide = x.astype("float64")
    rows = x if name in (XGBOOST, LARGE_XGBOOST, LIGHTGBM) else wide
    return pd.DataFrame(wide, columns=columns(x.shape[1])), rows


GROUP = 2048
"""The rows in a row group of DuckDB are a multiple of this number."""


def create_table(con: Any, frame: pd.DataFrame) -> None:
    con.register("frame", frame)
    con.execute("CREATE TABLE t AS FROM frame")
    con.unregister("frame")


def create_small_table(plain: Any, few_rows: int, folder: Path) -> None:
    # DuckDB gives whole row groups to its threads, so a small table needs small row groups.
    size = -(-few_rows // (2 * GROUP)) * GROUP
    plain.execute(f"ATTACH '{folder / 'few.duckdb'}' AS small (ROW_GROUP_SIZE {size})")
    plain.execute(f"CREATE TABLE small.few AS FROM t LIMIT {few_rows}")


def make_onnx_session(name: str, subject: Subject, frame: pd.DataFrame) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    graph = convert_pipeline(subject, frame) if name == CATEGORIES else convert_to_onnx(subject)
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def convert_pipeline(subject: Subject, frame: pd.DataFrame) -> bytes:
    """Return the ONNX file of a pipeline with XGBoost, which has an input for each column."""
    from onnxmltools.convert.xgboost.operator_converters.XGBoost import convert_xgboost
    from skl2onnx import to_onnx, update_registered_converter
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType
    from skl2onnx.common.shape_calculator import calculate_linear_classifier_output_shapes

    update_registered_converter(
        XGBClassifier,
        "XGBoostXGBClassifier",
        calculate_linear_classifier_output_shapes,
        convert_xgboost,
        options={"nocl": [True, False], "zipmap": [True, False, "columns"]},
    )
    kinds = {
        column: FloatTensorType if dtype.kind == "f" else StringTensorType
        for column, dtype in frame.dtypes.items()
    }
    file = to_onnx(
        subject.model,
        initial_types=[(column, kind([None, 1])) for column, kind in kinds.items()],
        options={id(subject.model): {"zipmap": False}},
        target_opset={"": 18, "ai.onnx.ml": 3},  # The newest that both converters know.
    )
    return bytes(file.SerializeToString())


def register_onnx(con: Any, kind: str, session: Any, frame: pd.DataFrame) -> None:
    """Register a function for the labels, or for the probabilities of class 1."""
    inputs = [entry.name for entry in session.get_inputs()]
    output = session.get_outputs()[1 if kind == "probability" else 0].name

    def score(*arrow_columns: Any) -> Any:
        arrays = [np.asarray(column) for column in arrow_columns]
        if len(inputs) == 1:
            matrix = np.empty((len(arrays[0]), len(arrays)), np.float32)
            for k, array in enumerate(arrays):
                matrix[:, k] = array
            feeds = {inputs[0]: matrix}
        else:
            feeds = {
                name: array.astype(np.float32 if array.dtype.kind == "f" else object).reshape(-1, 1)
                for name, array in zip(inputs, arrays, strict=True)
            }
        (result,) = session.run([output], feeds)
        column = result[:, 1] if kind == "probability" else result
        return pa.array(column.astype(np.float64))

    # DuckDB reads the number of arguments from the signature.
    parameters = [Parameter(c, Parameter.POSITIONAL_ONLY) for c in frame.columns]
    score.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    types = ["DOUBLE" if dtype.kind == "f" else "VARCHAR" for dtype in frame.dtypes]
    con.create_function(f"onnx_{kind}", score, types, "DOUBLE", type="arrow")


def list_contenders(
    name: str, kind: str, open_: Connections, frame: pd.DataFrame, options: argparse.Namespace
) -> dict[str, Contender]:
    """Return the contenders for a kind of query."""
    plain = open_.plain
    is_label = kind == "label"
    arguments = ", ".join(frame.columns)
    (parameters,) = plain.execute(
        "SELECT any_value(parameters) FROM duckdb_functions() WHERE function_name = 's'"
    ).fetchone()
    named = ", ".join(f"{column} := {column}" for column in parameters or ())
    call = "predict('m', *)" if is_label else "predict_proba('m', *, class := 1)"
    extension_call = f"m({arguments})" if is_label else f"m_proba({arguments})"
    macro_call = f"s({named})" if is_label else f"s_proba({named})[1]"
    rows = options.rows
    return {
        SESSION: Contender(call, open_.native.execute, rows),
        EXTENSION: Contender(extension_call, plain.execute, rows),
        ARROW: Contender(call, open_.arrow.execute, rows),
        SQL: Contender(macro_call, plain.execute, rows)
        if name == LOGISTIC
        else Contender(macro_call, plain.execute, min(rows, options.sql_rows), "small.few"),
        ONNX: Contender(f"onnx_{kind}({arguments})", plain.execute, rows),
    }


def export(
    name: str, session: sqlml.Session, plain: Any, folder: Path, options: argparse.Namespace
) -> ExtensionFile:
    """Export model `m` as an extension, and load it."""
    path = folder / "m.duckdb_extension"
    start = time.perf_counter()
    session.execute(f"EXPORT MODEL m TO '{path}'")
    seconds = time.perf_counter() - start
    plain.execute(f"LOAD '{path}'")
    command = [sys.executable, "-m", "benchmarks.exported_child", str(path)]
    loads = []
    for _ in range(options.rounds):
        done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
        loads.append(json.loads(done.stdout)["load"])
    case = {"model": name, "query": "load"}
    load = statistics.median(loads)
    return ExtensionFile(case, path.stat().st_size, round(seconds, 4), round(load, 5))


def prepare_others(
    name: str, subject: Subject, session: sqlml.Session, plain: Any, frame: pd.DataFrame, path: Path
) -> dict[str, str]:
    """Create the macros of model `s`, and the ONNX functions; return why a contender has none."""
    reasons = {}
    try:
        session.execute(f"EXPORT MODEL s TO '{path}'")
        plain.execute(path.read_text())
    except (duckdb.Error, SqlmlError) as error:
        reasons[SQL] = reason(error)
    try:
        onnx_session = make_onnx_session(name, subject, frame)
        for kind in METHODS:
            register_onnx(plain, kind, onnx_session, frame)
    except Exception as error:  # A converter may raise any exception.
        reasons[ONNX] = reason(error)
    return reasons


def measure(name: str, options: argparse.Namespace) -> Iterator[list[Row] | ExtensionFile]:
    """Yield the times of one model for each kind of query and number of threads, and its file."""
    subject = fit(name, options)
    frame, library_rows = make_rows(name, options)
    expected = {
        kind: canonical(getattr(subject.model, method)(library_rows), method)
        for kind, method in METHODS.items()
    }
    with (
        tempfile.TemporaryDirectory() as folder,
        sqlml.connect() as native,
        sqlml.connect() as arrow,
        duckdb.connect(config={"allow_unsigned_extensions": "true"}) as plain,
    ):
        open_ = Connections(native, arrow, plain)
        for con in open_:
            create_table(con, frame)
        create_small_table(plain, min(options.rows, options.sql_rows), Path(folder))
        for session, route in ((native, "native"), (arrow, "arrow")):
            for model in ("m", "s"):
                inputs = list(frame.columns)
                # `m_proba` then returns a number, and no MAP.
                model_options: dict[str, Any] = {"positive_class": 1} if model == "m" else {}
                session.create_model(
                    model, subject.model, inputs=inputs, verify=False, **model_options
                )
            session.execute(f"SET sqlml_route = '{route}'")
            # Otherwise the session computes some models with SQL expressions.
            session.execute("SET sqlml_backend = 'native'")
        yield export(name, native, plain, Path(folder), options)
        path = Path(folder, "s.sql")
        reasons = prepare_others(name, subject, native, plain, frame, path)
        for kind in options.query or METHODS:
            contenders = list_contenders(name, kind, open_, frame, options)
            ready = {n: c for n, c in contenders.items() if n not in reasons}
            differences = {n: _compare(c, expected[kind], kind) for n, c in ready.items()}
            for threads in sorted({1, options.threads}):
                for con in open_:
                    con.execute(f"SET threads = {threads}")
                times = best_calls(
                    [contender.sum for contender in ready.values()],
                    options.rounds,
                    least=options.least,
                    patience=options.patience,
                    of=statistics.median,
                )
                case = {"model": name, "query": kind, "threads": threads}
                case |= {"rows": options.rows, "features": frame.shape[1]}
                rows = [
                    row_of(
                        case,
                        n,
                        threads=threads,
                        ns=timing.seconds / ready[n].rows * 1e9,
                        rounds=timing.rounds,
                        difference=differences[n],
                        note="" if ready[n].rows == options.rows else f"{ready[n].rows:,} rows",
                    )
                    for n, timing in zip(ready, times, strict=True)
                ]
                refused = (row_of(case, n, threads=threads, reason=reasons[n]) for n in reasons)
                yield with_ratios([*rows, *refused])


def _compare(contender: Contender, expected: Scores, kind: str) -> Difference:
    method = METHODS[kind]
    return compare(contender.fetch(method), expected[: contender.rows], method, labels=True)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print a line for each contender, and write a JSON file when asked to."""
    made = parser("exported", __doc__.partition("\n")[0])
    made.add_argument("--rows", type=int, default=1_000_000)
    made.add_argument("--sql-rows", type=int, default=8_192, help="for slow SQL")
    made.add_argument("--train", type=int, default=50_000, help="rows to fit on")
    made.add_argument("--trees", type=int, default=100)
    made.add_argument("--depth", type=int, default=5, help="100 deeper trees are too large for SQL")
    made.add_argument("--model", action="append", choices=MODELS, help="default: all")
    made.add_argument("--query", action="append", choices=list(METHODS), help="default: both")
    made.add_argument("--cache", type=Path, default=CACHE, help="folder of fitted models")
    options = made.parse_args(arguments)
    options.of = "median"
    kept: list[Row | ExtensionFile] = []
    for name in options.model or MODELS:
        for result in measure(name, options):
            if isinstance(result, ExtensionFile):
                kept.append(result)
                sizes = f"{result.size / 1e6:.1f} MB, loaded in {result.load * 1e3:.1f} ms"
                print(f"{name}: {sizes}", flush=True)
            else:
                kept += result
                case = result[0].case
                print(f"{name}, {case['query']}, {case['threads']} threads, ns per row:")
                print("\n".join(line(row) for row in result), flush=True)
            save("exported", options, kept)
    # SQL may be too long to be exported, which is no error.
    return status(r for r in kept if r.contender != SQL or not r.reason)


if __name__ == "__main__":
    sys.exit(main())
