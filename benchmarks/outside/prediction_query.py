"""A query that calls a model, its variants, and how long each contender takes to run it.

The contenders (`contenders.py`) run the same query on the same tables, in turns. A row "without
model" is the query with a hash of the sum of the model's columns instead of the call, so it has the
scans, joins and filters alone. The sum has the lengths of texts.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from benchmarks.outside.contenders import (
    CACHED,
    EXTENSION,
    FILE,
    FRAME,
    OBJECT,
    Contender,
    Model,
    make_contenders,
    open_tables,
    run_with_frame,
)
from benchmarks.results import Row, line, parser, row_of, save, status, with_ratios
from benchmarks.rounds import Timing, best_calls

WITHOUT = "without model"

Fit = Callable[["PredictionQuery", pd.DataFrame, Mapping[str, str]], Model]
"""Fits a model on rows of a query; the mapping has the SQL type of each of its columns."""


@dataclass(frozen=True, slots=True)
class PredictionQuery:
    """A query of a benchmark.

    Attributes:
        make_tables: returns the tables at a scale, as frames or as paths of Parquet files.
        select: the query of the rows, with {p} in place of the call, whose result it calls p.
        rest: reads these rows, which it calls {rows}.
        numbers: the model's columns of numbers.
        categories: the model's columns of categories, or a column of texts.
        label: makes the labels to train on from the rows, if any are needed.
        models: maps the name of each model to the function that fits it.
        targets: other columns of the rows that `label` reads.
        result: the SQL type of the predictions.
        placeholder: the expression that replaces the call in the query without a model; {hash} is
            a hash of the sum of the model's columns, which reads them as a call does.
    """

    make_tables: Callable[[float], Mapping[str, Any]]
    select: str
    rest: str
    numbers: tuple[str, ...]
    categories: tuple[str, ...]
    label: Callable[[pd.DataFrame], Any] | None
    models: Mapping[str, Fit]
    targets: tuple[str, ...] = ()
    result: str = "BIGINT"
    placeholder: str = "({hash} % 2)::INTEGER"

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.numbers, *self.categories)

    def write_without_model(self, types: Mapping[str, str]) -> str:
        """Return the expression that replaces a call; `types` has the SQL type of each column."""
        lengths = (
            f"strlen({column})" if sql_type == "VARCHAR" else f"{column}::DOUBLE"
            for column, sql_type in types.items()
        )
        return self.placeholder.format(hash=f"hash({' + '.join(lengths)})")


def fit_pipeline(make_estimator: Callable[[], Any]) -> Fit:
    """Return a function that fits an estimator behind a scaler and a one-hot encoder, or TF-IDF."""

    def fit(query: PredictionQuery, frame: pd.DataFrame, types: Mapping[str, str]) -> Model:
        is_text = not query.numbers and len(query.categories) == 1
        encoder = make_column_transformer(
            *[(StandardScaler(), list(query.numbers))] * bool(query.numbers),
            (TfidfVectorizer(), query.categories[0])
            if is_text
            else (OneHotEncoder(handle_unknown="ignore"), list(query.categories)),
        )
        labels = query.label(frame) if query.label else None
        features = frame[list(query.columns)]
        pipeline = make_pipeline(encoder, make_estimator()).fit(features, labels)
        return Model(pipeline, types, query.result, onnx=convert(pipeline, types))

    return fit


def convert(pipeline: Any, types: Mapping[str, str]) -> bytes | None:
    """Return the ONNX file of a pipeline, or None if no converter takes it."""
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import FloatTensorType, Int64TensorType, StringTensorType

    kinds = {"DOUBLE": FloatTensorType, "VARCHAR": StringTensorType}
    inputs = [(c, kinds.get(t, Int64TensorType)([None, 1])) for c, t in types.items()]
    _register_converters()
    opset = {"": 18, "ai.onnx.ml": 3}
    options = {id(pipeline): {"zipmap": False}} if hasattr(pipeline, "classes_") else None
    try:
        file = to_onnx(pipeline, initial_types=inputs, options=options, target_opset=opset)
    except Exception:  # A converter may raise any exception.
        return None
    return bytes(file.SerializeToString())


@cache
def _register_converters() -> None:
    """Tell skl2onnx how onnxmltools converts the models of XGBoost and LightGBM."""
    from lightgbm import LGBMClassifier, LGBMRegressor
    from onnxmltools.convert.lightgbm.operator_converters.LightGbm import convert_lightgbm
    from onnxmltools.convert.xgboost.operator_converters.XGBoost import convert_xgboost
    from skl2onnx import update_registered_converter
    from skl2onnx.common import shape_calculator
    from xgboost import XGBClassifier

    of_labels = shape_calculator.calculate_linear_classifier_output_shapes
    options = {"nocl": [True, False], "zipmap": [True, False]}
    for cls, convert_model in (
        (XGBClassifier, convert_xgboost),
        (LGBMClassifier, convert_lightgbm),
    ):
        update_registered_converter(cls, cls.__name__, of_labels, convert_model, options=options)
    of_numbers = shape_calculator.calculate_linear_regressor_output_shapes
    update_registered_converter(
        LGBMRegressor, "LGBMRegressor", of_numbers, convert_lightgbm, options={"split": None}
    )


def rank_into_classes(frame: pd.DataFrame, columns: Sequence[str], classes: int) -> Any:
    """Return labels 0 to `classes` - 1, equally frequent, that depend on the columns."""
    total = np.zeros(len(frame))
    for k, column in enumerate(columns):
        values = frame[column]
        if values.dtype.kind in "fib":
            numbers = values.to_numpy(np.float64)
        else:
            numbers = pd.util.hash_array(values.to_numpy(object)) % 97 / 97.0
        total += (numbers - numbers.mean()) / (numbers.std() or 1.0) / (k + 1)
    ranks = pd.Series(total).rank(pct=True).to_numpy()
    return (ranks * classes).astype(np.int64).clip(0, classes - 1)


def measure(
    title: str, query: PredictionQuery, name: str, options: argparse.Namespace
) -> list[Row]:
    """Fit a model, compare what the contenders answer, and time the query."""
    con = open_tables(query.make_tables(options.scale), options.threads)
    model = _fit(query, name, con, options.train)
    case: dict[str, Any] = {"table": title, "model": name, "scale": options.scale}
    with tempfile.TemporaryDirectory() as folder:
        made, reasons = make_contenders(model, con, Path(folder))
        made[WITHOUT] = Contender(con, query.write_without_model(model.columns))
        ways = {n: partial(_run, query, model, n, contender) for n, contender in made.items()}
        answers, timings = dict[str, list[tuple[Any, ...]]](), dict[str, Timing]()
        for n, way in ways.items():
            start = time.perf_counter()
            with suppress(duckdb.InterruptException):
                answers[n] = _canonical(_run_within(options.limit, con, way))
            timings[n] = Timing(time.perf_counter() - start, 1)
            # Only a query of the engine can be interrupted.
            if n not in answers or timings[n].seconds > options.limit:
                reasons[n] = f"takes more than {options.limit:g} s"
        slow_answers = {n: answers.pop(n) for n in reasons if n in answers}
        # The first call of a model may wait for a compiler.
        sqlml_contenders = (OBJECT, FILE, EXTENSION)
        quick = [
            n for n in answers if n in sqlml_contenders or timings[n].seconds <= options.patience
        ]
        times = best_calls(
            [ways[n] for n in quick],
            options.rounds,
            least=options.least,
            patience=options.patience,
            of=statistics.median,
        )
        timings.update(zip(quick, times, strict=True))
        rows_query = f"SELECT count(*) FROM ({query.select.format(p=1)})"
        ((case["rows"],),) = con.execute(rows_query).fetchall()
    con.close()
    known_answers = answers | slow_answers
    expected = known_answers[CACHED if CACHED in known_answers else FRAME]
    rows = []
    for n, answer in answers.items():
        ns = timings[n].seconds / case["rows"] * 1e9
        row = row_of(case, n, threads=options.threads, ns=ns, rounds=timings[n].rounds)
        is_same = _is_same(answer, expected)
        note = "" if is_same else "answers differ"
        rows.append(row if n == WITHOUT else replace(row, exact=is_same, note=note))
    refused = [row_of(case, n, threads=options.threads, reason=r) for n, r in reasons.items()]
    return with_ratios([*rows, *refused])


_TYPES = {
    **dict.fromkeys(("INTEGER", "BIGINT"), "BIGINT"),
    **dict.fromkeys(("STRING", "VARCHAR"), "VARCHAR"),
    **dict.fromkeys(("BOOL", "BOOLEAN"), "BOOLEAN"),
}
"""Maps a type of a column to the type of the model's argument; all others are DOUBLE."""


def _fit(query: PredictionQuery, name: str, con: Any, train: int) -> Model:
    """Fit the model `name` on the first rows of the query."""
    packed = query.select.format(p=f"struct_pack({', '.join((*query.columns, *query.targets))})")
    relation = con.execute(f"SELECT p.* FROM ({packed}) LIMIT {train}")
    types = {
        entry[0]: _TYPES.get(str(entry[1]).split("(")[0], "DOUBLE")
        for entry in relation.description
        if entry[0] in query.columns
    }
    frame = relation.df()
    for column, sql_type in types.items():
        if sql_type == "DOUBLE":
            frame[column] = frame[column].astype(np.float64)
    return query.models[name](query, frame, types)


def _run(query: PredictionQuery, model: Model, name: str, contender: Contender) -> Any:
    select = query.select.format(p=contender.call)
    if name == FRAME:
        return run_with_frame(model, contender, select, query.rest.format(rows="scored"))
    return contender.con.execute(query.rest.format(rows=f"({select})")).fetchall()


def _run_within(limit: float, con: Any, way: Callable[[], Any]) -> Any:
    """Run a query, and interrupt it after `limit` seconds."""
    timer = threading.Timer(limit, con.interrupt)
    timer.start()
    try:
        return way()
    finally:
        timer.cancel()


def _canonical(answer: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return the rows in one order, with numbers as floats."""
    rows = (tuple(v if isinstance(v, str) else float(v) for v in row) for row in answer)
    return sorted(rows, key=lambda row: [v if isinstance(v, str) else f"{v:.9e}" for v in row])


def _is_same(answer: list[tuple[Any, ...]], expected: list[tuple[Any, ...]]) -> bool:
    """Compare texts exactly, and numbers but for the order in which they were added."""
    if len(answer) != len(expected):
        return False
    return all(
        a == b or (not isinstance(a, str) and not isinstance(b, str) and np.isclose(a, b, 1e-9, 0))
        for row, other in zip(answer, expected, strict=True)
        for a, b in zip(row, other, strict=True)
    )


def run(
    family: str, doc: str, queries: Mapping[str, PredictionQuery], arguments: list[str] | None
) -> int:
    """Measure, print a line for each contender, and write a JSON file when asked to."""
    options_parser = parser(family, doc.partition("\n")[0])
    options_parser.add_argument("--scale", type=float, default=1.0, help="of the tables")
    options_parser.add_argument("--train", type=int, default=30_000, help="rows to fit on")
    options_parser.add_argument(
        "--query", action="append", choices=list(queries), help="default: all"
    )
    options_parser.add_argument("--model", action="append", help="default: all")
    options_parser.add_argument(
        "--limit", type=float, default=20.0, help="seconds of a query, after which it is given up"
    )
    options = options_parser.parse_args(arguments)
    options.of = "median"
    kept: list[Row] = []
    for title, query in queries.items():
        if options.query and title not in options.query:
            continue
        for name in query.models:
            if options.model and name not in options.model:
                continue
            rows = measure(title, query, name, options)
            kept += rows
            print(f"{title}, {name}, {rows[0].case['rows']:,} rows, ns per row:")
            print("\n".join(line(row) for row in rows), flush=True)
            save(family, options, kept)
    return status(row for row in kept if row.contender == OBJECT)
