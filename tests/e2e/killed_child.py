"""Children that change models until somebody kills them; run as a script by test_killed.py.

A line on the standard input is a database file: a child of this process opens it and does what
`STEPS` says, from the beginning. It prints the number of its process when it has opened the file,
and a line after each step; the last line comes when that child is gone.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import pandas as pd
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeRegressor

import sqlml

FRAME = pd.DataFrame({"a": [0.0, 1.0, 2.0], "b": [1.0, 0.0, 1.0]})
LINES = [LinearRegression().fit(FRAME, FRAME.a * slope) for slope in range(1, 5)]
TREE = DecisionTreeRegressor().fit(FRAME, FRAME.b)

Step = Callable[[sqlml.Session], Any]


def sql(text: str) -> Step:
    return lambda con: con.execute(text)


def create(name: str, model: Any, **options: Any) -> Step:
    return lambda con: con.create_model(name, model, verify=False, **options)


STEPS: tuple[Step, ...] = (
    create("m", LINES[0]),
    create("n", LINES[0]),
    create("m", TREE, or_replace=True),
    lambda con: con.add_version("m", LINES[1], verify=False),
    sql("ALTER MODEL m SET ALIAS champion = 3"),
    sql("ALTER MODEL m SET TAG team = 'x', stage = 'y'"),
    sql("ALTER MODEL m SET DEFAULT_VERSION = 1"),
    sql("ALTER MODEL m DROP VERSION 2"),
    sql("ALTER MODEL m RENAME TO o"),
    sql("BEGIN; ALTER MODEL o SET ALIAS b = 1; ALTER MODEL n RENAME TO p; COMMIT"),
    sql("ALTER MODEL o SET OPTIONS (backend = 'reference')"),
    create("n", LINES[2], comment="new"),
    sql("BEGIN; DROP MODEL p; ALTER MODEL o UNSET ALIAS champion; COMMIT"),
    sql("COMMENT ON MODEL o IS 'text'"),
    sql("DROP MODEL o"),
    create("n", LINES[3], or_replace=True),
    sql(
        "CREATE MODEL trained OPTIONS (model_type = 'boosted_tree_classifier', label = 'y', "
        "n_estimators = 20) AS SELECT range % 7 AS a, range % 5 AS b, range % 2 AS y FROM range(90)"
    ),
    sql("ALTER MODEL trained RETRAIN AS SELECT range a, range b, range % 2 AS y FROM range(90)"),
)

TABLES = ("models", "versions", "aliases", "tags", "programs")


def state(con: sqlml.Session) -> tuple[Any, ...]:
    """All that the catalog holds, but for times."""
    if not con.execute("FROM duckdb_tables() WHERE schema_name = 'sqlml'").fetchall():
        return ()
    found = []
    for table in TABLES:
        leave = "EXCLUDE (created_at)" if table in ("models", "versions") else ""
        rows = con.execute(f"SELECT * {leave} FROM sqlml.catalog_{table} ORDER BY ALL").fetchall()
        found.append(repr(rows))
    return tuple(found)


def main() -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            con = sqlml.connect(line.strip())
            print(os.getpid(), flush=True)
            for step in STEPS:
                step(con)
                print("done", flush=True)
            signal.pause()  # the last state waits to be killed, too
        os.waitpid(child, 0)
        print("gone", flush=True)


if __name__ == "__main__":
    main()
