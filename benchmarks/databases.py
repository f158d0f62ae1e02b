"""Models in other databases: exported SQL beside orbital's, beside functions, and beside fetching
the rows to score them in Python.

A database scores a table of rows of 28 numbers and counts the predictions that are not NULL; each
contender's predictions are compared with the library's first. Servers are started in a folder of
their own, with the settings that they come with.

    python -m benchmarks.databases [--rows N] [--trees N] [--database NAME]... [--write FILE]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from xgboost import XGBClassifier

import sqlml
from benchmarks.compare import canonical, compare
from benchmarks.database_connections import OPEN, Connection
from benchmarks.results import Row, line, parser, row_of, save, status, with_ratios
from benchmarks.rounds import best_calls
from benchmarks.tables import table
from sqlml.errors import SqlmlError

MODELS: Mapping[str, Callable[[argparse.Namespace], Any]] = {
    "linear": lambda o: make_pipeline(StandardScaler(), LogisticRegression()),
    "boosting": lambda o: make_pipeline(
        StandardScaler(), GradientBoostingClassifier(n_estimators=o.trees, max_depth=o.depth)
    ),
    "forest": lambda o: RandomForestClassifier(o.trees, max_depth=o.depth, n_jobs=-1),
    "xgboost": lambda o: XGBClassifier(n_estimators=o.trees, max_depth=o.depth),
}


@dataclass(frozen=True, slots=True)
class Contender:
    """What scores: the probabilities for checking, and the call that is timed."""

    name: str
    scores: Callable[[], Any]
    work: Callable[[], Any]
    note: str


def contenders(
    database: Connection, model: Any, names: list[str], folder: Path
) -> Iterator[Contender | tuple[str, str]]:
    """All that can score in a database; name and reason of those that cannot."""
    scorer = sqlml.compile(model, inputs=names)
    columns = ", ".join(map(database.quoted, names))

    def of_query(name: str, query: str, column: str) -> Contender:
        column = database.quoted(column)
        ordered = f"SELECT {column} FROM ({query}) q"
        ordered += f" ORDER BY {database.quoted('id')}" if name != "orbital" else ""
        counted = f"SELECT count({column}) FROM ({query}) q"
        return Contender(
            name,
            lambda: database.frame(ordered).to_numpy(np.float64),
            lambda: database.frame(counted),
            f"{len(query):,} characters",
        )

    positive = str(scorer.classes_[1])
    try:
        query = scorer.to_sql(database.name, table="t", columns=["id"]).strip().rstrip(";")
        yield of_query("sqlml", query, f"probability_{positive}")
    except SqlmlError as error:
        yield "sqlml", str(error)
    try:
        database.run(scorer.to_sql(database.name, name=f"scored_{folder.name}"))
        function = f"scored_{folder.name}_probability_{positive}"
        call = f"{database.quoted(function)}({columns})"
        query = f"SELECT id, {call} AS p FROM t"
        yield replace(of_query("function of sqlml", query, "p"), note="called for each row")
    except SqlmlError as error:
        yield "function of sqlml", str(error)

    def fetched() -> Any:
        frame = database.frame(f"SELECT {columns} FROM t")
        return scorer.predict_proba(frame.astype(float))

    yield Contender(
        "fetch, then sqlml", fetched, fetched, "a frame of Python objects from the driver"
    )
    yield from _of_orbital(database, model, names, of_query)


def _of_orbital(
    database: Connection,
    model: Any,
    names: list[str],
    of_query: Callable[[str, str, str], Contender],
) -> Iterator[Contender | tuple[str, str]]:
    try:
        import orbital
        from orbital.types import DoubleColumnType

        pipeline = model if hasattr(model, "steps") else make_pipeline(model)
        features = {name: DoubleColumnType() for name in names}
        parsed = orbital.parse_pipeline(pipeline, features=features)
        dialect = {"mariadb": "mysql"}.get(database.name, database.name)
        query = orbital.export_sql("t", parsed, dialect=dialect)
        yield of_query("orbital", query, "output_probability.1")
    except Exception as error:  # it fails in many ways
        yield "orbital", f"{type(error).__name__}: {error}"[:200]


def measure(
    database: Connection, name: str, options: argparse.Namespace, folder: Path
) -> Iterator[Row]:
    """All contenders in one database on one model."""
    x, y = table("higgs", options.train, options.seed)
    model = MODELS[name](options).fit(x, y)
    scored, _ = table("higgs", options.rows, options.seed + 1)
    names = [f"f{k}" for k in range(scored.shape[1])]
    frame = pd.DataFrame(np.asarray(scored, np.float64), columns=names)
    database.load("t", frame.assign(id=np.arange(len(frame))))
    want = canonical(model.predict_proba(frame.to_numpy()), "predict_proba")
    case = {"database": database.name, "model": name, "rows": options.rows}
    able: list[tuple[Contender, Any, float]] = []
    for contender in contenders(database, model, names, folder):
        if isinstance(contender, tuple):
            yield row_of(case, contender[0], threads=1, reason=contender[1])
            continue
        began = time.perf_counter()
        try:
            got = canonical(contender.scores(), "predict_proba")
        except Exception as error:  # of the database's driver
            yield row_of(case, contender.name, threads=1, reason=str(error)[:200])
            continue
        difference = compare(got, want, "predict_proba", labels=False)
        able.append((contender, difference, time.perf_counter() - began))
    timings = best_calls(
        [c.work for c, _, _ in able],
        options.rounds,
        least=options.least,
        patience=options.patience,
    )
    made = [
        row_of(
            case,
            contender.name,
            threads=1,
            ns=timing.seconds / options.rows * 1e9,
            rounds=timing.rounds,
            difference=difference,
            note=contender.note,
        )
        for (contender, difference, _), timing in zip(able, timings, strict=True)
    ]
    yield from with_ratios(made)


def main() -> int:
    """Run the command line; returns the exit status."""
    options = parser("databases", __doc__)
    options.add_argument("--rows", type=int, default=100_000)
    options.add_argument("--train", type=int, default=20_000)
    options.add_argument("--trees", type=int, default=100)
    options.add_argument("--depth", type=int, default=6)
    options.add_argument("--database", action="append", choices=list(OPEN))
    options.add_argument("--model", action="append", choices=list(MODELS))
    given = options.parse_args()
    rows: list[Row] = []
    for name in given.database or OPEN:
        with (
            tempfile.TemporaryDirectory(dir="/tmp") as folder,
            OPEN[name](Path(folder)) as database,
        ):
            for model in given.model or MODELS:
                print(f"{name}, {model}")
                for row in measure(database, model, given, Path(folder)):
                    rows.append(row)
                    print(line(row), flush=True)
                save("databases", given, rows)
    return status(rows)


if __name__ == "__main__":
    sys.exit(main())
