"""A model per group: training, storing, opening and scoring models with PARTITION BY.

Training competes with a loop over the groups that fits the library's own estimators, whose
predictions are compared. Scoring competes with a single model of the size of a partition, which is
the least that can be expected.

    python -m benchmarks.groups [--task NAME]... [--write FILE]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import sqlml
from benchmarks.compare import compare
from benchmarks.results import Row, line, parser, row_of, save, with_ratios
from benchmarks.rounds import best_calls, round_times
from sqlml.session.session import Session

FEATURES = [f"x{k}" for k in range(8)]

KINDS: Mapping[str, str] = {
    "linear regression": "model_type = 'linear_reg'",
    "xgboost": (
        "model_type = 'boosted_tree_regressor', library = 'xgboost', n_estimators = 20, "
        "max_depth = 6, early_stop = false"
    ),
}
"""Maps the name of a kind of model to the options that train it."""

TASKS = ("train", "store", "score")


def fill(con: Session, groups: int, rows: int) -> None:
    """Make a table `train` of `rows` rows in each group, and the same number in any order."""
    columns = ", ".join(f"(hash(i, {k}) % 1000) / 500 - 1 AS x{k}" for k in range(len(FEATURES)))
    con.execute(
        f"CREATE OR REPLACE TABLE train AS SELECT 'g' || i % {groups} AS g, {columns}, "
        f"x0 * (hash(i % {groups}) % 7) + x1 * x2 + (hash(i, 99) % 100) / 500 AS y "
        f"FROM range({groups * rows}) AS t(i)"
    )


def create(con: Session, kind: str, name: str = "m", partition_by: str = "PARTITION BY g") -> None:
    source = "train" if partition_by else "(SELECT * EXCLUDE g FROM train WHERE g = 'g0')"
    con.execute(
        f"CREATE OR REPLACE MODEL {name} {partition_by} OPTIONS ({KINDS[kind]}, label = 'y', "
        f"split = 'none') AS SELECT * FROM {source}"
    )


def fit_loop(rows: pd.DataFrame, kind: str) -> dict[str, Any]:
    """Fit the library's estimator to the rows of each group, one after the other."""
    return {str(g): _estimator(kind).fit(part[FEATURES], part.y) for g, part in rows.groupby("g")}


def _estimator(kind: str) -> Any:
    if kind == "xgboost":
        from xgboost import XGBRegressor

        return XGBRegressor(n_estimators=20, max_depth=6, tree_method="hist")
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LinearRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    imputer = SimpleImputer(add_indicator=True, keep_empty_features=True)
    return make_pipeline(imputer, StandardScaler(), LinearRegression())


def train(options: argparse.Namespace) -> Iterator[list[Row]]:
    """Train a model of each group, from a table to predictions, and in a loop over a frame."""
    for kind in KINDS:
        with sqlml.connect() as con:
            fill(con, options.groups, options.rows)
            case = {"task": "train", "model": kind, "groups": options.groups, "rows": options.rows}
            fitted: dict[str, Any] = {}

            def loop(con: Session = con, kind: str = kind, fitted: dict[str, Any] = fitted) -> None:
                fitted |= fit_loop(con.sql("FROM train").df(), kind)

            def statement(con: Session = con, kind: str = kind) -> None:
                create(con, kind)

            ours, theirs = map(min, round_times([statement, loop], options.rounds))
            frame = con.sql("SELECT * FROM train USING SAMPLE 2000 (reservoir, 1)").df()
            expected = np.array(
                [
                    fitted[group].predict(frame.iloc[[k]][FEATURES])[0]
                    for k, group in enumerate(frame.g)
                ]
            )
            scored = con.sql("SELECT predict('m', *) AS p FROM frame").df().p.to_numpy()
            comparison = compare(scored[:, None], expected[:, None], "predict", labels=False)
            if not comparison.exact:
                raise SystemExit(
                    f"{kind}: predictions differ from the library's by {comparison.largest}"
                )
            seconds = {"sqlml": ours, "the library's loop": theirs}
            yield _rows(case, options, seconds, options.groups * options.rows)


def store(options: argparse.Namespace) -> Iterator[list[Row]]:
    """Store a linear regression of each of many groups, open it again, and score a row."""
    with tempfile.TemporaryDirectory() as folder:
        path, copied = Path(folder) / "groups.duckdb", Path(folder) / "m.sqlml"
        with sqlml.connect(str(path)) as con:
            fill(con, options.many, 10)
            create(con, "linear regression")
            con.execute(f"EXPORT MODEL m TO '{copied}'")

        def write() -> None:
            with sqlml.connect() as other:
                other.execute(f"CREATE MODEL m FROM '{copied}'")

        def open_and_score() -> None:
            with sqlml.connect(str(path)) as other:
                arguments = ", ".join("0.5" for _ in FEATURES)
                other.execute(f"SELECT predict('m', 'g7', {arguments})").fetchall()

        timings = best_calls([write, open_and_score], options.rounds)
        case = {"task": "store", "model": "linear regression", "groups": options.many}
        names = ("create from a file", "open and score a row")
        yield [
            row_of(
                case, name, threads=options.threads, ns=timing.seconds * 1e9, rounds=timing.rounds
            )
            for name, timing in zip(names, timings, strict=True)
        ]


def score(options: argparse.Namespace) -> Iterator[list[Row]]:
    """Score rows with a model of each group: in any order, and where groups lie together."""
    for kind in KINDS:
        with sqlml.connect() as con:
            con.execute(f"SET threads = {options.threads}")
            fill(con, options.groups, 100)
            create(con, kind)
            create(con, kind, "one", "")
            con.execute(
                "CREATE TABLE mixed AS SELECT * EXCLUDE y FROM "
                f"(SELECT unnest(range({options.scored})) AS i) JOIN (SELECT *, "
                f"row_number() OVER () - 1 AS j FROM train) ON j = hash(i) % {options.groups * 100}"
            )
            con.execute("CREATE TABLE sorted AS FROM mixed ORDER BY g")
            queries = {
                "sqlml": "SELECT sum(predict('m', *)) FROM sorted",
                "any order": "SELECT sum(predict('m', *)) FROM mixed",
                "one model": "SELECT sum(predict('one', *)) FROM (SELECT * EXCLUDE g FROM sorted)",
            }

            ways = [partial(_run, con, query) for query in queries.values()]
            for way in ways:  # Kernels are compiled when the first rows of a partition arrive.
                way()
            timings = best_calls(ways, options.rounds, least=options.least)
            case = {"task": "score", "model": kind, "groups": options.groups}
            yield _rows(
                case,
                options,
                {n: t.seconds for n, t in zip(queries, timings, strict=True)},
                options.scored,
            )


def _rows(
    case: Mapping[str, Any], options: argparse.Namespace, seconds: Mapping[str, float], count: int
) -> list[Row]:
    return [
        row_of(case, name, threads=options.threads, ns=s * 1e9 / count, rounds=options.rounds)
        for name, s in seconds.items()
    ]


def _run(con: Session, query: str) -> Any:
    return con.execute(query).fetchall()


def main(arguments: list[str] | None = None) -> int:
    """Measure, print a line for each contender, and write a JSON file when asked to."""
    argument_parser = parser("groups", __doc__.partition("\n")[0])
    argument_parser.add_argument(
        "--groups", type=int, default=1_000, help="partitions that train and score"
    )
    argument_parser.add_argument(
        "--rows", type=int, default=1_000, help="training rows of a partition"
    )
    argument_parser.add_argument(
        "--many", type=int, default=10_000, help="partitions that are stored"
    )
    argument_parser.add_argument(
        "--scored", type=int, default=1_000_000, help="rows that are scored"
    )
    argument_parser.add_argument("--task", action="append", choices=TASKS, help="default: all")
    options = argument_parser.parse_args(arguments)
    tasks = {"train": train, "store": store, "score": score}
    rows: list[Row] = []
    for task in options.task or TASKS:
        for part in tasks[task](options):
            compared = with_ratios(part)
            rows += compared
            save("groups", options, rows)
            print(", ".join(f"{k} {v}" for k, v in compared[0].case.items()))
            print("\n".join(line(row) for row in compared), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
