"""Compare pipelines of scikit-learn with the ONNX files that skl2onnx writes of them.

All contenders run the same query, the sum of the labels of all rows, on a table in DuckDB:

* sqlml: a model that was created from the fitted pipeline;
* sqlml file: a model that was created from the ONNX file;
* onnxruntime: the ONNX file in an Arrow function of Python.

The results are compared with the pipeline's own, but those of the file with onnxruntime's, because
a file computes in float32.

    python -m benchmarks.outside.converted [--rows N] [--model NAME]... [--write FILE]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

import sqlml
from benchmarks.compare import Scores, canonical, compare
from benchmarks.contest import reason
from benchmarks.outside.pipelines import NUMBERS, Task, make_table, make_tasks
from benchmarks.results import Row, line, parser, row_of, save, status, with_ratios
from benchmarks.rounds import best_calls

OBJECT, FILE, ONNX = "sqlml", "sqlml file", "onnxruntime"


def convert(task: Task, frame: pd.DataFrame) -> bytes:
    """Return the ONNX file of a fitted pipeline: a matrix of numbers, or an input per column."""
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import FloatTensorType, Int64TensorType, StringTensorType

    kinds = {"f": FloatTensorType, "i": Int64TensorType}
    types: list[Any] = [("x", FloatTensorType([None, len(task.columns)]))]
    if list(task.columns) != NUMBERS:
        dtypes = frame[list(task.columns)].dtypes
        types = [(c, kinds.get(d.kind, StringTensorType)([None, 1])) for c, d in dtypes.items()]
    has_probabilities = hasattr(task.pipeline, "predict_proba")
    file = to_onnx(
        task.pipeline,
        initial_types=types,
        options={id(task.pipeline): {"zipmap": False}} if has_probabilities else None,
        target_opset={"": 18, "ai.onnx.ml": 3},
    )
    return bytes(file.SerializeToString())


def register_onnx(session: Any, content: bytes, frame: pd.DataFrame) -> None:
    """Register the Arrow function `onnx`, which returns the labels of an ONNX file."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # DuckDB calls the function on each of its threads.
    options.log_severity_level = 4
    providers = ["CPUExecutionProvider"]
    graph = onnxruntime.InferenceSession(content, options, providers=providers)
    inputs, output = [entry.name for entry in graph.get_inputs()], graph.get_outputs()[0].name

    def score(*arrow_columns: Any) -> Any:
        arrays = [np.asarray(column) for column in arrow_columns]
        if len(inputs) == 1:
            feeds = {inputs[0]: np.stack(arrays, axis=1).astype(np.float32, copy=False)}
        else:
            feeds = {n: a.reshape(-1, 1) for n, a in zip(inputs, arrays, strict=True)}
        return pa.array(np.ravel(graph.run([output], feeds)[0]).astype(np.float64))

    parameters = [Parameter(c, Parameter.POSITIONAL_ONLY) for c in frame.columns]
    score.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    names = {"f": "FLOAT", "i": "BIGINT"}
    types = [names.get(dtype.kind, "VARCHAR") for dtype in frame.dtypes]
    session.create_function("onnx", score, types, "DOUBLE", type="arrow")


def wait_for_kernels(session: sqlml.Session, query: str) -> None:
    """Run `query` until no kernel that it needs is being compiled."""
    deadline = time.monotonic() + 60
    while "compiled" in session.explain(query) and time.monotonic() < deadline:
        session.execute(query).fetchall()
        time.sleep(0.2)


def needs_python(session: sqlml.Session, query: str) -> bool:
    return "but Python scores" in session.explain(query) or "Arrow" in session.explain(query)


def measure(name: str, task: Task, options: argparse.Namespace) -> list[Row]:
    """Fit and convert a pipeline, compare the labels, and time the query of each contender."""
    table = make_table(options.rows, options.seed)
    frame = table[list(task.columns)]
    case = {"model": name, "rows": options.rows, "features": frame.shape[1]}
    task.pipeline.fit(frame[: options.train], table[task.target][: options.train])
    try:
        content = convert(task, frame)
    except Exception as error:  # A converter may raise any exception.
        return [row_of(case, OBJECT, threads=options.threads, reason=reason(error))]
    with tempfile.TemporaryDirectory() as folder, sqlml.connect() as session:
        session.execute(f"SET threads = {options.threads}")
        session.register("frame", frame)
        session.execute("CREATE TABLE t AS FROM frame")
        session.create_model("object", task.pipeline, verify=False)
        path = Path(folder, "model.onnx")
        path.write_bytes(content)
        inputs = ", ".join(f"{column} FLOAT" for column in task.columns)
        declared = f"INPUT ({inputs})" if list(task.columns) == NUMBERS else ""
        session.execute(f"CREATE MODEL file {declared} FROM '{path}'")
        register_onnx(session, content, frame)
        calls = {
            OBJECT: "predict('object', *)",
            FILE: "predict('file', *)",
            ONNX: f"onnx({', '.join(frame.columns)})",
        }
        for call in calls.values():
            wait_for_kernels(session, f"SELECT {call} FROM t")
        results = {n: _fetch(session, call) for n, call in calls.items()}
        # Of a float32 frame, scikit-learn would compute some values in float32.
        wide = frame.astype(dict.fromkeys(NUMBERS, np.float64))
        is_label = task.target == "class"
        expected = {
            OBJECT: canonical(task.pipeline.predict(frame if is_label else wide), "predict"),
            FILE: results[ONNX],
            ONNX: results[ONNX],
        }
        python = {n: needs_python(session, f"SELECT {calls[n]} FROM t") for n in (OBJECT, FILE)}
        queries = {n: f"SELECT sum({call}) FROM t" for n, call in calls.items()}
        ways = [lambda q=query: session.execute(q).fetchall() for query in queries.values()]
        times = best_calls(
            ways,
            options.rounds,
            least=options.least,
            patience=options.patience,
            of=statistics.median,
        )
        rows = [
            row_of(
                case,
                n,
                threads=options.threads,
                ns=timing.seconds / options.rows * 1e9,
                rounds=timing.rounds,
                difference=compare(results[n], expected[n], "predict", labels=is_label),
                note="runs in Python" if python.get(n) else "",
            )
            for n, timing in zip(queries, times, strict=True)
        ]
    return with_ratios(rows)


def _fetch(session: sqlml.Session, call: str) -> Scores:
    result = session.execute(f"SELECT {call}::DOUBLE AS result FROM t").fetchnumpy()["result"]
    return canonical(result, "predict")


def list_results(options: argparse.Namespace) -> Iterator[list[Row]]:
    for name, task in make_tasks().items():
        if not options.model or name in options.model:
            yield measure(name, task, options)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print a line for each contender, and write a JSON file when asked to."""
    options_parser = parser("outside.converted", __doc__.partition("\n")[0])
    options_parser.add_argument("--rows", type=int, default=100_000)
    options_parser.add_argument("--train", type=int, default=3_000, help="rows to fit on")
    options_parser.add_argument("--model", action="append", help="default: all")
    options = options_parser.parse_args(arguments)
    options.of = "median"
    kept: list[Row] = []
    for rows in list_results(options):
        kept += rows
        print(f"{rows[0].case['model']}, {options.threads} threads, ns per row:")
        print("\n".join(line(row) for row in rows), flush=True)
        save("outside.converted", options, kept)
    return status(row for row in kept if row.contender == OBJECT)


if __name__ == "__main__":
    sys.exit(main())
