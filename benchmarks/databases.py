"""Models in other databases: exported SQL beside orbital's, beside functions and trees in a table,
and beside fetching the rows to score them in Python.

A database scores a table of rows of 28 numbers and sums the predictions; each contender's
predictions are compared with the library's first. Servers are started in a folder of their own,
with the settings that they come with, but for two: PostgreSQL does without its JIT compiler, with
which XGBoost's trees are scored as well, and ClickHouse, which is there where `chdb` is installed,
merges no queries. The largest model that a database takes is found by doubling the trees of
XGBoost: case `largest`, whose note says how far it goes, and why no farther.

    python -m benchmarks.databases [--rows N] [--trees N] [--database NAME]... [--write FILE]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
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
from benchmarks.database_connections import INSTALLED, OPEN, Connection
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
class Place:
    """A database, a statement that sets it up, the models that it scores, and how many rows."""

    database: str
    setting: str = ""
    models: Sequence[str] = (*MODELS, "largest")
    rows: int = 10_000


PLACES: Mapping[str, Place] = {
    "sqlite": Place("sqlite"),
    "duckdb": Place("duckdb"),
    "postgres": Place("postgres", "SET jit = off", rows=100_000),
    "postgres-jit": Place("postgres", "SET jit = on", ["xgboost"], rows=100_000),
    "mariadb": Place("mariadb"),
    "clickhouse": Place("clickhouse", "SET query_plan_merge_expressions = 0", rows=100_000),
}

CALLS = 2_000
"""Rows for which a function is called."""

FEW = 1_000
"""Rows that the largest models score."""

LONG = 60.0
"""Seconds after which no larger model is tried."""


@dataclass(frozen=True, slots=True)
class Contender:
    """What scores: the probabilities for checking, the call that is timed, and its rows; whether
    they come in the order of the table."""

    name: str
    scores: Callable[[], Any]
    work: Callable[[], Any]
    note: str
    rows: int
    ordered: bool = True


def contenders(
    database: Connection, model: Any, names: list[str], rows: int
) -> Iterator[Contender | tuple[str, str]]:
    """All that can score in a database; name and reason of those that cannot."""
    scorer = sqlml.compile(model, inputs=names)
    columns = ", ".join(map(database.quoted, names))

    def of_query(name: str, query: str, column: str, key: str = "id") -> Contender:
        column = database.quoted(column)
        ordered = f"SELECT {column} FROM ({query}) q ORDER BY {database.quoted(key)}"
        summed = f"SELECT sum({column}) FROM ({query}) q"  # DuckDB counts without computing them
        return Contender(
            name,
            lambda: database.frame(ordered).to_numpy(np.float64),
            lambda: database.frame(summed),
            f"{len(query):,} characters",
            rows,
            key == "id",
        )

    positive = str(scorer.classes_[1])
    column = f"probability_{positive}"
    try:
        text = scorer.to_sql(database.name, table="t", columns=["id"]).strip().rstrip(";")
        settings, _, query = text.rpartition(";\n\n")
        database.run(settings)
        yield of_query("sqlml", query, column)
    except SqlmlError as error:
        yield "sqlml", str(error)
    try:
        text = scorer.to_sql(database.name, table="t", columns=["id"], form="nodes", name="m")
        database.run(text)
        found = of_query("nodes of sqlml", "SELECT * FROM m_scores", column)
        yield replace(found, note=f"{len(text):,} characters, most of them a table")
    except SqlmlError as error:
        yield "nodes of sqlml", str(error)
    try:
        database.run(scorer.to_sql(database.name, name="called"))
        call = f"{database.quoted(f'called_{column}')}({columns})"
        few = min(rows, CALLS)
        query = f"SELECT id, {call} AS p FROM t WHERE id < {few}"
        found = of_query("function of sqlml", query, "p")
        yield replace(found, note="called for each row", rows=few)
    except SqlmlError as error:
        yield "function of sqlml", str(error)

    def fetched() -> Any:
        frame = database.frame(f"SELECT {columns} FROM t")
        return scorer.predict_proba(frame.astype(float))

    note = "a frame of Python objects from the driver"
    yield Contender("fetch, then sqlml", fetched, fetched, note, rows)
    yield from _of_orbital(database, model, names, of_query)


def _of_orbital(
    database: Connection,
    model: Any,
    names: list[str],
    of_query: Callable[..., Contender],
) -> Iterator[Contender | tuple[str, str]]:
    def query(apart: bool) -> str:
        import orbital
        from orbital.types import DoubleColumnType

        pipeline = model if hasattr(model, "steps") else make_pipeline(model)
        features = {name: DoubleColumnType() for name in names}
        parsed = orbital.parse_pipeline(pipeline, features=features)
        dialect = {"mariadb": "mysql"}.get(database.name, database.name)
        made: str = orbital.export_sql("t", parsed, dialect=dialect, separate_trees=apart)
        return made

    column = "output_probability.1"  # beside no key of the table
    seen = ""
    for name, apart in {"orbital": False, "orbital, trees apart": True}.items():
        try:
            text = query(apart)
            if text != seen:
                yield of_query(name, text, column, column)
            seen = text
        except Exception as error:  # it fails in many ways
            yield name, f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]


def measure(
    place: str, database: Connection, name: str, options: argparse.Namespace
) -> Iterator[Row]:
    """All contenders in one database on one model."""
    database.run("DROP VIEW IF EXISTS m_scores")
    database.run("DROP TABLE IF EXISTS m_nodes")
    if database.name == "postgres":  # which does not replace a function by one of other columns
        database.run("DROP ROUTINE IF EXISTS called, called_probability_0, called_probability_1")
    x, y = table("higgs", options.train, options.seed)
    model = MODELS[name](options).fit(x, y)
    rows = options.rows or PLACES[place].rows
    scored, _ = table("higgs", rows, options.seed + 1)
    names = [f"f{k}" for k in range(scored.shape[1])]
    frame = pd.DataFrame(np.asarray(scored, np.float64), columns=names)
    database.load("t", frame.assign(id=np.arange(len(frame))))
    want = canonical(model.predict_proba(frame.to_numpy()), "predict_proba")
    case = {"database": place, "model": name, "rows": rows}
    able: list[tuple[Contender, Any, float]] = []
    for contender in contenders(database, model, names, rows):
        if isinstance(contender, tuple):
            yield row_of(case, contender[0], threads=1, reason=contender[1])
            continue
        began = time.perf_counter()
        try:
            got = canonical(contender.scores(), "predict_proba")
        except Exception as error:  # of the database's driver
            yield row_of(case, contender.name, threads=1, reason=str(error)[:200])
            continue
        expected = want[: contender.rows]
        if not contender.ordered:
            expected, got = np.sort(expected, axis=0), np.sort(got, axis=0)
        difference = compare(got, expected, "predict_proba", labels=False)
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
            ns=timing.seconds / contender.rows * 1e9,
            rounds=timing.rounds,
            difference=difference,
            note=contender.note,
        )
        for (contender, difference, _), timing in zip(able, timings, strict=True)
    ]
    yield from with_ratios(made)


@cache
def many_trees(trees: int, depth: int, seed: int) -> XGBClassifier:
    """Learnt slowly, from few rows, so that the last trees are nearly as large as the first."""
    x, y = table("higgs", 4 * FEW, seed)
    return XGBClassifier(n_estimators=trees, max_depth=depth, learning_rate=0.01).fit(x, y)


def largest(place: str, database: Connection, options: argparse.Namespace) -> Row:
    """How many trees the database takes: twice as many, until it refuses, takes too long, or
    nothing more is tried.

    The note says so, and the time is that of the last that it took, the reading of the text
    included.
    """
    x, _ = table("higgs", FEW, options.seed + 1)
    names = [f"f{k}" for k in range(x.shape[1])]
    rows = pd.DataFrame(np.asarray(x, np.float64), columns=names)
    database.run("DROP VIEW IF EXISTS m_scores")
    database.load("t", rows.assign(id=np.arange(len(rows))))
    trained = many_trees(options.most, options.depth, options.seed).get_booster()
    found, seconds, trees, why = "none", 0.0, options.fewest, "no more were tried"
    difference = None
    while trees <= options.most:
        booster = trained[:trees]
        scorer = sqlml.compile(booster, inputs=names)
        try:
            text = scorer.to_sql(database.name, table="t", columns=["id"])
            began = time.perf_counter()
            answers = database.frame(text).sort_values("id")["probability_1"]
            seconds = time.perf_counter() - began
        except Exception as error:  # of the database's driver, or that the text is too long
            why = f"of {trees:,}: {' '.join(str(error).split())[:160]}"
            break
        want = canonical(booster.inplace_predict(np.asarray(x)), "predict")
        got = canonical(answers.to_numpy(np.float64), "predict")
        difference = compare(got, want, "predict", labels=False)
        found = f"{trees:,} trees, {len(text):,} characters"
        if seconds > LONG:
            why = f"it took {seconds:.0f} seconds"
            break
        trees *= 2
    case = {"database": place, "model": "largest", "rows": FEW}
    return row_of(
        case,
        "sqlml",
        threads=1,
        ns=seconds / FEW * 1e9,
        difference=difference,
        note=f"{found}; {why}",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = parser("databases", __doc__)
    options.add_argument("--rows", type=int, help="that are scored, in place of each database's")
    options.add_argument("--train", type=int, default=20_000)
    options.add_argument("--trees", type=int, default=100)
    options.add_argument("--depth", type=int, default=6)
    options.add_argument("--fewest", type=int, default=1_000, help="trees that are tried first")
    options.add_argument("--most", type=int, default=16_000, help="trees that are tried last")
    options.add_argument("--database", action="append", choices=list(PLACES))
    options.add_argument("--model", action="append", choices=[*MODELS, "largest"])
    given = options.parse_args(arguments)
    rows: list[Row] = []
    found = [name for name, place in PLACES.items() if place.database in INSTALLED]
    for name in given.database or found:
        place = PLACES[name]
        with (
            tempfile.TemporaryDirectory(dir="/tmp") as folder,
            OPEN[place.database](Path(folder)) as database,
        ):
            if place.setting:
                database.run(place.setting)
            for model in given.model or place.models:
                print(f"{name}, {model}")
                made: Iterable[Row] = (
                    [largest(name, database, given)]
                    if model == "largest"
                    else measure(name, database, model, given)
                )
                for row in made:
                    rows.append(row)
                    print(line(row), flush=True)
                save("databases", given, rows)
    return status(rows)


if __name__ == "__main__":
    sys.exit(main())
