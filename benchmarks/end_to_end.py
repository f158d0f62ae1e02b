"""A query end to end: a model as a function of SQL over a table of FLOAT columns in DuckDB.

`SELECT sum(predict_proba('m', *, class := 1)) FROM t`, in turns with

* kernel: the same rows, a contiguous matrix, by `sqlml.compile(model).predict_proba`;
* scan: a query that adds up every column, which is what reading them costs;
* frame: fetch the table as a frame, score it with the source library, register the result and add
  it up: the way without sqlml;
* arrow: the query with `SET sqlml_route = 'arrow'`, through Arrow and Python;
* expression: for the linear model, the probability written as SQL by hand.

"pipeline" is a scikit-learn pipeline of one-hot and scaled columns over 25 FLOATs and 5 VARCHARs;
its kernel is given a frame. "texts" is a TF-IDF vectoriser before a logistic regression, over half
as many rows of one VARCHAR of some 20 words; its kernel is given an Arrow table.

And the most memory that a process takes to score so many rows of a table that is made while it is
read, and a hundred times as many.

    python -m benchmarks.end_to_end [--rows N] [--memory-rows N] [--model NAME]... [--write FILE]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import sqlml
from benchmarks.compare import Difference, canonical, compare
from benchmarks.models import CACHE, Subject, ensemble
from benchmarks.peers import LIBRARY, Setting
from benchmarks.results import Row, parser, row_of, save, status, with_ratios
from benchmarks.rounds import best_calls
from benchmarks.tables import TABLES, table

TABLE = "higgs"
LINEAR = "logistic regression"
PIPELINE = "pipeline"
TEXTS = "texts"
MODELS = (LINEAR, "xgboost", "lightgbm", "random forest", PIPELINE, TEXTS)
QUERY = "SELECT sum(predict_proba('m', *, class := 1)) FROM t"


def subject_of(kind: str, options: argparse.Namespace) -> Subject:
    """A fitted model of the table's columns."""
    if kind == PIPELINE:
        x, y = table(TABLE, options.train, options.seed)
        frame = with_texts(x, options.seed)
        texts, numbers = list(frame.columns[-5:]), list(frame.columns[:-5])
        hot = OneHotEncoder(handle_unknown="ignore")
        both = make_column_transformer((hot, texts), (StandardScaler(), numbers))
        model = make_pipeline(both, LogisticRegression(max_iter=200)).fit(frame, y)
        return Subject(model, "scikit-learn", "predict_proba", True, kind, (x, y))
    if kind == TEXTS:
        texts, y = reviews(options.train, options.seed)
        model = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(texts, y)
        return Subject(model, "scikit-learn", "predict_proba", True, kind, (texts, y))
    if kind != LINEAR:
        return ensemble(
            kind,
            TABLE,
            trees=options.trees,
            depth=options.depth,
            rows=options.train,
            seed=options.seed,
            threads=options.threads,
            cache=options.cache,
        )
    x, y = table(TABLE, options.train, options.seed)
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(x, y)
    return Subject(model, "scikit-learn", "predict_proba", True, kind, (x, y))


def measure(kind: str, options: argparse.Namespace) -> list[Row]:
    """Times of one model: the query as contender "sqlml", and what it is compared with."""
    subject = subject_of(kind, options)
    rows = options.rows // 2 if kind == TEXTS else options.rows
    x, _ = table(TABLE, rows, options.seed + 1)
    setting = Setting(options.threads, cache=options.cache)
    scorer = sqlml.compile(subject.model, threads=options.threads)
    given: Any = x
    frame = pd.DataFrame(x, columns=columns(x.shape[1]))
    library = LIBRARY[subject.library](subject, setting)
    if kind == PIPELINE:
        given = frame = with_texts(x, options.seed + 1)
        library = subject.model.predict_proba
    if kind == TEXTS:
        texts, _ = reviews(rows, options.seed + 1)
        frame, given = texts.to_frame(), pa.table({"text": pa.array(texts, pa.string())})

        def library(frame: Any) -> Any:
            return subject.model.predict_proba(frame.text)

    names = list(frame.columns)
    with sqlml.connect(":memory:") as con:
        con.execute(f"SET threads = {options.threads}")
        con.register("matrix", frame)
        con.execute("CREATE TABLE t AS FROM matrix")
        con.unregister("matrix")
        con.create_model("m", subject.model, inputs=names)

        def by_frame() -> Any:
            frame = con.execute("SELECT * FROM t").df()
            fetched = frame if kind in (PIPELINE, TEXTS) else frame.to_numpy()
            p = canonical(library(fetched), subject.method)[:, 0]
            con.register("scored", pd.DataFrame({"p": p}))
            total = con.execute("SELECT sum(p) FROM scored").fetchall()
            con.unregister("scored")
            return total

        def ask(query: str) -> Callable[[], Any]:
            return lambda: con.execute(query).fetchall()

        def by_arrow() -> Any:
            con.execute("SET sqlml_route = 'arrow'")
            try:
                return con.execute(QUERY).fetchall()
            finally:
                con.execute("RESET sqlml_route")

        numbers = set(frame.select_dtypes("number").columns)
        read = [f"sum({n})" if n in numbers else f"max({n})" for n in names]
        ways: dict[str, Callable[[], Any]] = {
            "sqlml": ask(QUERY),
            "kernel": lambda: scorer.predict_proba(given),
            "scan": ask(f"SELECT {', '.join(read)} FROM t"),
            "frame": by_frame,
            "arrow": by_arrow,
        }
        if kind == LINEAR:
            ways["expression"] = ask(f"SELECT sum({by_hand(subject.model, names)}) FROM t")
        difference = _difference(con, subject, frame.text if kind == TEXTS else given)
        times = best_calls(
            list(ways.values()), options.rounds, least=options.least, patience=options.patience
        )
    case = {"model": kind, "rows": rows, "features": len(names)}
    return with_ratios(
        [
            row_of(
                case,
                name,
                threads=options.threads,
                ns=t.seconds / rows * 1e9,
                rounds=t.rounds,
                difference=difference if name == "sqlml" else None,
            )
            for name, t in zip(ways, times, strict=True)
        ]
    )


def _difference(con: Any, subject: Subject, x: Any) -> Difference:
    """What the query says of every row, beside the library."""
    query = "SELECT predict_proba('m', *, class := 1) AS p FROM t"
    got = canonical(con.execute(query).fetchnumpy()["p"], subject.method)
    matrix = isinstance(x, np.ndarray)
    rows = x.astype("float64") if subject.library == "scikit-learn" and matrix else x
    want = canonical(subject.model.predict_proba(rows), subject.method)
    return compare(got, want, subject.method, labels=True)


def columns(features: int) -> list[str]:
    """Names of the table's columns."""
    return [f"f{i}" for i in range(features)]


def with_texts(x: Any, seed: int) -> pd.DataFrame:
    """The first 25 columns of a table, and 5 of texts: 5 to 80 categories of 3 to 20 characters."""
    rng, frame = np.random.default_rng(seed), pd.DataFrame(x[:, :25], columns=columns(25))
    for k, count in enumerate((5, 10, 20, 40, 80)):
        names = np.array([f"c{i}" if i % 2 else f"category number {i}" for i in range(count)])
        frame[f"s{k}"] = names[rng.integers(0, count, len(frame))].astype(object)
    return frame


def reviews(rows: int, seed: int) -> tuple[pd.Series, Any]:
    """Texts of 1 to 40 words, the frequent ones of 20,000 often, and whether they are good."""
    rng = np.random.default_rng(seed)
    words = np.array([f"word{k}" for k in range(20_000)], object)
    good, length = rng.random(rows) < 0.5, rng.integers(1, 41, rows)
    drawn = (rng.zipf(1.2, int(length.sum())) + 7 * np.repeat(good, length)) % words.size
    ends = np.cumsum(length)
    texts = [" ".join(words[part]) for part in np.split(drawn, ends[:-1])]
    return pd.Series(texts, name="text", dtype=object), good.astype(int)


def by_hand(pipeline: Any, names: list[str]) -> str:
    """The probability of a scaled logistic regression, as one would write it in SQL."""
    scaler, model = pipeline[0], pipeline[-1]
    weights = model.coef_[0] / scaler.scale_
    offset = float(model.intercept_[0] - (weights * scaler.mean_).sum())
    terms = " + ".join(
        f"{float(weight)!r}::DOUBLE * {name}" for weight, name in zip(weights, names, strict=True)
    )
    return f"1 / (1 + exp(-({offset!r}::DOUBLE + {terms})))"


@dataclass(frozen=True, slots=True)
class Peak:
    """Bytes that a process takes at most to score `rows` rows; `start` is what it had before."""

    contender: str
    case: Mapping[str, Any]
    start: int | None = None
    peak: int | None = None
    exact: bool = True
    reason: str | None = None


def peaks(options: argparse.Namespace) -> list[Peak]:
    """The memory of `--memory-rows` rows, and of `--memory-times` as many."""
    subject = subject_of(options.memory_model, options)
    names = columns(TABLES[TABLE].features)
    made = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.duckdb")
        with sqlml.connect(str(path)) as con:
            con.create_model("m", subject.model, inputs=names)
        for rows in (options.memory_rows, options.memory_rows * options.memory_times):
            case = {"model": options.memory_model, "rows": rows, "features": len(names)}
            command = [sys.executable, "-m", "benchmarks.end_to_end_child", str(path)]
            command += [str(rows), str(len(names)), str(options.threads)]
            home = Path(__file__).parent.parent
            done = subprocess.run(command, capture_output=True, text=True, cwd=home)
            if done.returncode:
                why = (done.stderr.strip().splitlines() or ["it died"])[-1]
                made.append(Peak("sqlml", case, exact=False, reason=why))
            else:
                said = json.loads(done.stdout)
                made.append(Peak("sqlml", case, said["start"], said["peak"]))
    return made


def main(arguments: list[str] | None = None) -> int:
    """Measure, print a line for each way, and write a JSON file when asked to."""
    made = parser("end_to_end", __doc__.partition("\n")[0])
    made.add_argument("--rows", type=int, default=1_000_000)
    made.add_argument("--train", type=int, default=50_000, help="rows to fit on")
    made.add_argument("--trees", type=int, default=500)
    made.add_argument("--depth", type=int, default=8)
    made.add_argument("--model", action="append", choices=MODELS, help="default: all")
    made.add_argument("--memory-rows", type=int, default=1_000_000)
    made.add_argument("--memory-times", type=int, default=100, help="0 leaves memory out")
    made.add_argument("--memory-model", choices=MODELS, default="xgboost")
    made.add_argument("--cache", type=Path, default=CACHE, help="folder of fitted models")
    options = made.parse_args(arguments)
    kept: list[Row | Peak] = []
    for kind in options.model or MODELS:
        rows = measure(kind, options)
        kept += rows
        save("end_to_end", options, kept)
        print(f"{kind}, {rows[0].case['rows']:,} rows, ns a row:")
        print(
            "\n".join(f"  {r.contender:<12}{r.ns:>10,.1f}{r.ratio:>8.2f}x" for r in rows),
            flush=True,
        )
    for peak in peaks(options) if options.memory_times else ():
        kept.append(peak)
        most = peak.reason or f"{(peak.peak or 0) / 2**20:,.0f} MiB at most"
        print(f"{peak.case['rows']:,} rows: {most}", flush=True)
    save("end_to_end", options, kept)
    return status(kept)


if __name__ == "__main__":
    sys.exit(main())
