"""What planning costs, and what it saves: statements through a Session beside plain DuckDB.

    python -m benchmarks.planner [--rows N] [--write FILE]

Each case has the contender "sqlml", and one that it is compared with; `needed` is the project's bar
for the ratio of the two, or for microseconds where `unit` says so.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
from duckdb.func import PythonUDFType
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Lasso, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import sqlml
from benchmarks.end_to_end import by_hand
from benchmarks.machine import machine
from benchmarks.results import parser
from benchmarks.rounds import best_calls

Way = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Result:
    """One case: what was measured, its bar, and the seconds of both contenders.

    unit: "x" for how many times as long as sqlml the other took, "of" for how many times as long
    as the other sqlml took, "us" for the microseconds that sqlml took more.
    """

    case: str
    unit: str
    needed: float
    measured: float
    sqlml: float
    other: float
    against: str

    @property
    def met(self) -> bool:
        """Whether the bar is met."""
        return self.measured >= self.needed if self.unit == "x" else self.measured <= self.needed


def result(
    case: str,
    unit: str,
    needed: float,
    ours: Way,
    other: Way,
    against: str,
    options: argparse.Namespace,
) -> Result:
    """Measure one case: both ways in turns, many more where microseconds are told apart."""
    rounds = options.rounds * (20 if unit == "us" else 1)
    mine, theirs = best_calls([ours, other], rounds, least=options.least, patience=options.patience)
    a, b = mine.seconds, theirs.seconds
    measured = {"x": b / a, "of": a / b, "us": (a - b) * 1e6}[unit]
    return Result(case, unit, needed, measured, a, b, against)


def planning(options: argparse.Namespace) -> Iterator[Result]:
    """What a statement costs before the engine sees it."""
    with sqlml.connect() as con, duckdb.connect() as plain:
        names = [f"f{i}" for i in range(28)]
        columns = ", ".join(f"0.5::FLOAT AS {n}" for n in names)
        for c in (con.connection, plain):
            c.execute(f"CREATE TABLE t AS SELECT {columns} LIMIT 0")
        x = np.random.default_rng(0).normal(size=(500, 28))
        forest = RandomForestClassifier(10, max_depth=4).fit(x, x[:, 0] > 0)
        con.create_model("m", forest, inputs=names)

        def run(c: Any, query: str) -> Way:
            return lambda: c.execute(query).fetchall()

        yield result(
            "a statement without models",
            "us",
            50,
            run(con, "SELECT 42"),
            run(plain, "SELECT 42"),
            "plain DuckDB",
            options,
        )
        query = "SELECT predict('m', *) FROM t"
        plan = con.plan(query)
        assert plan is not None
        con.execute(query).fetchall()
        yield result(
            "a query that was planned before",
            "us",
            630,
            run(con, query),
            run(con.connection, plan.sql),
            "the rewritten text",
            options,
        )
        asked = asked_of_the_engine(con, query)

        def answered() -> Any:
            for ask in asked:
                ask()
            return con.connection.execute(plan.sql).fetchall()

        yield result(
            "of that what is not the engine's binding",
            "us",
            150,
            run(con, query),
            answered,
            "the same questions to the engine, then the rewritten text",
            options,
        )
        count = iter(range(10**9))

        def anew() -> Any:
            return con.execute(f"SELECT predict('m', *) AS y{next(count)} FROM t").fetchall()

        yield result(
            "a new query",
            "us",
            5000,
            anew,
            run(con.connection, plan.sql),
            "the rewritten text",
            options,
        )


class Recorder:
    """A connection that notes what it is asked, each as a function that asks it again."""

    def __init__(self, native: Any) -> None:
        self.native = native
        self.asked: list[Way] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.native, name)

        def noted(*args: Any, **options: Any) -> Any:
            self.asked.append(partial(method, *args, **options))
            return method(*args, **options)

        return noted


def asked_of_the_engine(con: sqlml.Session, query: str) -> list[Way]:
    """What a query that was planned before asks of DuckDB before it runs."""
    engine = con._services.engine
    recorder: Any = Recorder(engine.native)
    engine.native = engine.connection.native = recorder
    con.execute(query).fetchall()
    engine.native = engine.connection.native = recorder.native
    assert recorder.asked[-1].func.__name__ == "execute"
    return list(recorder.asked[:-1])


def reading(options: argparse.Namespace) -> Iterator[Result]:
    """10 used columns of 200 in a Parquet file."""
    rng = np.random.default_rng(options.seed)
    with tempfile.TemporaryDirectory() as folder, sqlml.connect() as con:
        path = Path(folder) / "wide.parquet"
        wide = {f"c{i}": rng.normal(size=options.rows) for i in range(200)}
        con.register("wide", pa.table(wide))
        con.execute(f"COPY wide TO '{path}'")
        x = np.column_stack([wide[f"c{i}"][:5000] for i in range(200)])
        model = Lasso(alpha=0.05).fit(x, x[:, :10].sum(axis=1))
        assert np.count_nonzero(model.coef_) == 10
        con.create_model("m", model, inputs=list(wide))
        every = ", ".join(f"sum(c{i})" for i in range(200))
        yield result(
            "10 used of 200 Parquet columns",
            "x",
            8,
            lambda: con.execute(f"SELECT sum(predict('m', *)) FROM '{path}'").fetchall(),
            lambda: con.execute(f"SELECT {every} FROM '{path}'").fetchall(),
            "reading all of them",
            options,
        )


def strings(options: argparse.Namespace) -> Iterator[Result]:
    """One-hot encoded strings in SQL, beside a function in Python that calls the library."""
    rng = np.random.default_rng(options.seed)
    rows = options.rows // 4
    frame = pd.DataFrame(
        {
            "city": rng.choice([f"city {i}" for i in range(60)], rows),
            "plan": rng.choice(["basic", "pro", "max"], rows),
            "age": rng.normal(40, 10, rows),
        }
    )
    encoder = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), ["age"]),
        (OneHotEncoder(handle_unknown="ignore"), ["city", "plan"]),
    )
    some = frame[:5000]
    model = make_pipeline(encoder, LogisticRegression()).fit(some, some.age > 40)
    with sqlml.connect() as con:
        con.register("frame", frame)
        con.execute("CREATE TABLE t AS FROM frame")
        con.create_model("m", model)

        def library(city: Any, plan: Any, age: Any) -> Any:
            table = pd.DataFrame({"city": city, "plan": plan, "age": age})
            return pa.array(model.predict_proba(table)[:, 1])

        con.connection.create_function(
            "library",
            library,
            [duckdb.sqltype(kind) for kind in ("VARCHAR", "VARCHAR", "DOUBLE")],
            duckdb.sqltype("DOUBLE"),
            type=PythonUDFType.ARROW,
        )
        yield result(
            "a pipeline with strings",
            "x",
            10,
            lambda: con.execute(
                "SELECT sum(predict_proba('m', *, class := true)) FROM t"
            ).fetchall(),
            lambda: con.execute("SELECT sum(library(city, plan, age)) FROM t").fetchall(),
            "strings passed to the library in a Python function",
            options,
        )


def scoring(options: argparse.Namespace) -> Iterator[Result]:
    """A linear model, calls that share an evaluation, and a join that nobody needs."""
    rng = np.random.default_rng(options.seed)
    names = [f"f{i}" for i in range(28)]
    x = rng.normal(size=(options.rows, 28)).astype(np.float32)
    y = x[:, 0] * x[:, 1] > 0
    linear = make_pipeline(StandardScaler(), LogisticRegression()).fit(x[:5000], y[:5000])
    forest = RandomForestClassifier(100, max_depth=8).fit(x[:5000], y[:5000])
    with sqlml.connect() as con:
        con.execute(f"SET threads = {options.threads}")
        con.register("matrix", pd.DataFrame(x, columns=names))
        con.execute("CREATE TABLE t AS SELECT *, (random() * 1e5)::INTEGER AS k FROM matrix")
        con.execute("CREATE TABLE d (id INTEGER PRIMARY KEY, extra DOUBLE)")
        con.execute("INSERT INTO d SELECT range, range FROM range(100_001)")
        con.create_model("linear", linear, inputs=names)
        con.create_model("forest", forest, inputs=names)

        def run(query: str) -> Way:
            return lambda: con.execute(query).fetchall()

        yield result(
            "a linear model",
            "of",
            1.5,
            run("SELECT sum(predict_proba('linear', *, class := true)) FROM t"),
            run(f"SELECT sum({by_hand(linear, names)}) FROM t"),
            "the expression written by hand",
            options,
        )
        yield result(
            "predict, predict_proba and WHERE on one model",
            "of",
            1.15,
            run(
                "SELECT count(predict('forest', *)), sum(predict_proba('forest', *, class := true))"
                " FROM t WHERE predict_proba('forest', *, class := true) > 0.5"
            ),
            run("SELECT count(predict('forest', *)) FROM t"),
            "predict alone",
            options,
        )
        yield result(
            "a LEFT JOIN that nobody needs",
            "of",
            1.05,
            run(
                "SELECT sum(predict_proba('forest', t.*, class := true)) FROM t "
                "LEFT JOIN d ON t.k = d.id"
            ),
            run("SELECT sum(predict_proba('forest', t.*, class := true)) FROM t"),
            "the query without it",
            options,
        )


def main(arguments: list[str] | None = None) -> int:
    """Measure, print a line for each case, and write a JSON file when asked to."""
    made = parser("planner", __doc__.partition("\n")[0])
    made.add_argument("--rows", type=int, default=500_000)
    options = made.parse_args(arguments)
    results: list[Result] = []
    for part in (planning, reading, strings, scoring):
        for one in part(options):
            results.append(one)
            verdict = "met" if one.met else "NOT met"
            print(
                f"{one.case}: {one.measured:.4g} {one.unit} (needed {one.needed:g}, {verdict}), "
                f"beside {one.against}",
                flush=True,
            )
            if options.write:
                held = {
                    "family": "planner",
                    "machine": machine(),
                    "parameters": {k: v for k, v in vars(options).items() if k != "write"},
                    "rows": [asdict(r) for r in results],
                }
                options.write.write_text(json.dumps(held, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
