"""Read a table, score a forest, and write the scores: forests of 10 to 1,600 trees.

Source: "A Comparison of Decision Forest Inference Platforms from a Database Perspective"
(arXiv 2302.04430), which measures the whole way from a table to a table of predictions. Its data
sets are generated here with their numbers of columns, distributions and missing values. sqlml runs
one statement; every other contender runs the same statement with an Arrow function around it, or,
as "data frame", the rows are fetched, scored by the library, and written.

    python -m benchmarks.outside.forests [--model NAME]... [--table NAME]... [--write FILE]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

import sqlml
from benchmarks.compare import Difference, canonical, compare
from benchmarks.contest import reason
from benchmarks.models import CACHE, Subject, ensemble
from benchmarks.outside.contenders import register_function
from benchmarks.peers import PEERS, Score, Setting
from benchmarks.results import Row, line, parser, row_of, save, status, with_ratios
from benchmarks.rounds import best_calls
from benchmarks.tables import TABLES, Random, Shape, shaped


def _departures(rng: Random, rows: int, features: int) -> npt.NDArray[np.float64]:
    """Flights: a date, times, codes of carriers and airports, and a distance."""
    x = np.rint(rng.uniform(0, 1, (rows, features)) * np.linspace(7, 350, features))
    x[:, 2::4] = np.rint(rng.uniform(0, 2400, x[:, 2::4].shape))
    return x


def _measurements(rng: Random, rows: int, features: int) -> npt.NDArray[np.float64]:
    """Measurements of a production line, of which a part passes only some stations."""
    x = np.round(rng.normal(0, 0.1, (rows, features)), 3)
    stations = rng.random((rows, features // 16 + 1)) < 0.19
    return np.where(np.repeat(stations, 16, axis=1)[:, :features], x, np.nan)


def _payments(rng: Random, rows: int, features: int) -> npt.NDArray[np.float64]:
    """Payments: an hour, an amount with a long tail, and limits."""
    x = rng.lognormal(3, 1.5, (rows, features))
    x[:, 0] = rng.integers(0, 24, rows)
    return x


SHAPES: Mapping[str, Shape] = {
    "fraud": TABLES["fraud"],
    "year": TABLES["year"],
    "higgs": TABLES["higgs"],
    "airline": Shape(13, (0.55, 0.45), _departures),
    "bosch": Shape(968, (0.9942, 0.0058), _measurements),
    "tpcx-ai": Shape(7, (0.97, 0.03), _payments),
}
TREES = (10, 500, 1600)
MODELS = ("random forest", "xgboost", "lightgbm")

Way = Callable[[], Any]
FRAME, EXTENSION = "data frame", "sqlml extension"
OMITTED_PEER = "tl2cgen"
"""A contender whose C code takes gcc minutes for a large forest, so it is left out."""

ASKED = (
    "library",
    *(name for name, peer in PEERS.items() if peer.trees and name != OMITTED_PEER),
    "onnxruntime",
)
WRITE = "CREATE OR REPLACE TABLE scored AS SELECT id, {call} AS score FROM t"


def measure(kind: str, name: str, trees: int, options: argparse.Namespace) -> list[Row]:
    """Fit a forest, compare what the contenders write, and time them."""
    shape = SHAPES[name]
    subject = ensemble(
        kind,
        shape,
        trees=trees,
        depth=8,
        rows=min(options.train, options.cells // shape.features),
        seed=options.seed,
        threads=options.threads,
        cache=options.cache,
    )
    rows = min(options.rows, options.cells // shape.features)
    x, _ = shaped(shape, rows, options.seed + 1)
    case = {"model": kind, "table": name, "trees": trees, "rows": rows, "features": shape.features}
    ways, reasons = dict[str, Way](), dict[str, str]()
    differences: dict[str, Difference] = {}
    expected = canonical(getattr(subject.model, subject.method)(x), subject.method)
    with tempfile.TemporaryDirectory() as folder:
        for contender in ("sqlml", EXTENSION, FRAME, *ASKED):
            try:
                con = _open(x, options.threads)
                way = _make_way(contender, con, subject, Path(folder), options)
                way()
                written = con.execute("SELECT score FROM scored ORDER BY id").fetchnumpy()["score"]
                got = canonical(np.asarray(written), "predict")
            except Exception as error:  # A library may raise any exception.
                reasons[contender] = reason(error)
                continue
            ways[contender] = way
            differences[contender] = compare(got, expected, "predict", labels=False)
        times = best_calls(
            list(ways.values()),
            options.rounds,
            least=options.least,
            patience=options.patience,
            of=statistics.median,
        )
    measured = [
        row_of(
            case,
            contender,
            threads=options.threads,
            ns=timing.seconds / rows * 1e9,
            rounds=timing.rounds,
            difference=differences[contender],
            note=PEERS[contender].note if contender in PEERS else "",
        )
        for contender, timing in zip(ways, times, strict=True)
    ]
    refused = [row_of(case, c, threads=options.threads, reason=why) for c, why in reasons.items()]
    return with_ratios([*measured, *refused])


def _open(x: Any, threads: int) -> Any:
    """Return a connection with the rows as table t."""
    con = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    con.execute(f"SET threads = {threads}")
    columns = {f"f{i}": pa.array(np.ascontiguousarray(x[:, i])) for i in range(x.shape[1])}
    con.register("rows", pa.table({"id": pa.array(np.arange(len(x))), **columns}))
    con.execute("CREATE TABLE t AS FROM rows")
    con.unregister("rows")
    return con


def _make_way(
    contender: str, con: Any, subject: Subject, folder: Path, options: argparse.Namespace
) -> Way:
    """Return a function that scores table t and writes the table `scored`."""
    columns = [f"f{i}" for i in range(subject.train[0].shape[1])]
    if contender == FRAME:
        setting = Setting(options.threads, cache=options.cache)
        return _make_frame_way(con, columns, PEERS["library"].make(subject, setting), subject)
    if contender in ("sqlml", EXTENSION):
        named = ", ".join(f"{column} := {column}" for column in columns)
        session = sqlml.attach(con) if contender == "sqlml" else sqlml.connect()
        model_options: dict[str, Any] = {"positive_class": 1} if subject.labels else {}
        session.create_model("m", subject.model, inputs=columns, verify=False, **model_options)
        if contender == "sqlml":
            call = f"predict('m', {named})"
            if subject.labels:
                call = f"predict_proba('m', {named})"
            return lambda: session.execute(WRITE.format(call=call))
        path = folder / "m.duckdb_extension"
        session.execute(f"EXPORT MODEL m TO '{path}'")
        con.execute(f"LOAD '{path}'")
        call = f"{'m_proba' if subject.labels else 'm'}({', '.join(columns)})"
        return lambda: con.execute(WRITE.format(call=call))
    setting = Setting(1, cache=options.cache)  # DuckDB calls the function on each of its threads.
    score = PEERS[contender].make(subject, setting)

    def score_columns(arrays: Sequence[Any]) -> Any:
        rows = np.stack([np.asarray(array) for array in arrays], axis=1)
        return canonical(score(rows), subject.method)[:, 0]

    register_function(con, "f", dict.fromkeys(columns, "FLOAT"), "DOUBLE", score_columns)
    return lambda: con.execute(WRITE.format(call=f"f({', '.join(columns)})"))


def _make_frame_way(con: Any, columns: list[str], score: Score, subject: Subject) -> Way:
    def way() -> None:
        frame = con.execute("FROM t").df()
        scores = canonical(score(frame[columns].to_numpy(np.float32)), subject.method)[:, 0]
        con.register("scores", frame[["id"]].assign(score=scores))
        con.execute("CREATE OR REPLACE TABLE scored AS FROM scores")
        con.unregister("scores")

    return way


def list_results(options: argparse.Namespace) -> Iterator[list[Row]]:
    for name in options.table or SHAPES:
        for kind in options.model or MODELS:
            for trees in options.trees or TREES:
                yield measure(kind, name, trees, options)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print a line for each contender, and write a JSON file when asked to."""
    options_parser = parser("outside.forests", __doc__.partition("\n")[0])
    options_parser.add_argument("--rows", type=int, default=200_000, help="of the table")
    options_parser.add_argument("--cells", type=int, default=20_000_000, help="rows x features")
    options_parser.add_argument("--train", type=int, default=20_000, help="rows to fit on")
    options_parser.add_argument("--trees", type=int, action="append", help="default: 10, 500, 1600")
    options_parser.add_argument("--model", action="append", choices=MODELS, help="default: all")
    options_parser.add_argument("--table", action="append", choices=list(SHAPES))
    options_parser.add_argument("--cache", type=Path, default=CACHE, help="folder of fitted models")
    options = options_parser.parse_args(arguments)
    options.of = "median"
    kept: list[Row] = []
    for rows in list_results(options):
        kept += rows
        case = rows[0].case
        print(f"{case['model']}, {case['table']}, {case['trees']} trees, ns per row:")
        print("\n".join(line(row) for row in rows), flush=True)
        save("outside.forests", options, kept)
    return status(row for row in kept if row.contender == "sqlml")


if __name__ == "__main__":
    sys.exit(main())
