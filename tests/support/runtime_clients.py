"""A database with models, and a client without Python that has loaded the runtime.

The client is a process that imports DuckDB alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.naive_bayes import CategoricalNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

import sqlml
from sqlml.backends.native.jit.processor_levels import LIBRARY
from tests.e2e.macro_checks import CONFIG

CLIENT = """
import json, sys
import duckdb

assert "sqlml" not in sys.modules
database, library, queries = json.loads(sys.stdin.read())
config = {"allow_unsigned_extensions": "true"}
results = []
with duckdb.connect(database, read_only=True, config=config) as con:
    con.execute(f"LOAD '{library}'")
    for query in queries:
        try:
            results.append(repr(con.execute(query).fetchall()))
        except duckdb.Error as error:
            results.append(f"{type(error).__name__}: {error}")
print(json.dumps(results))
"""


def ask_client(database: Path, queries: Sequence[str]) -> list[str]:
    """Run queries in a client without sqlml; return the results or errors as texts."""
    request = json.dumps([str(database), str(LIBRARY), list(queries)])
    done = subprocess.run(
        [sys.executable, "-I", "-c", CLIENT],
        input=request,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results: list[str] = json.loads(done.stdout)
    return results


def create_shop(path: Path) -> Path:
    """Create a database with models of several kinds, and the table `t` with rows to score."""
    rng = np.random.default_rng(0)
    x = pd.DataFrame({"a": rng.normal(size=200), "b": rng.integers(0, 9, 200)})
    x["city"] = rng.choice(["Bonn", "Köln", "a long name of a city"], 200)
    label = np.where(x.a + (x.city == "Bonn") > 0.5, "stays", "leaves")
    encoder = make_column_transformer((OneHotEncoder(), ["city"]), remainder="passthrough")
    both = np.stack([label, rng.choice(["x", "y"], 200)], axis=1)
    with sqlml.connect(path, config=CONFIG) as con:
        con.register("rows", x)
        con.execute("CREATE TABLE t AS FROM rows")
        churn = make_pipeline(encoder, RandomForestClassifier(8, max_depth=4, random_state=0))
        con.create_model("churn", churn.fit(x, label), verify=False)
        con.create_model("yes", churn, verify=False)
        con.execute("ALTER MODEL yes SET OPTIONS (positive_class = 'stays')")
        numbers = x[["a", "b"]]
        value = make_pipeline(StandardScaler(), LinearRegression()).fit(numbers, x.a * 2 + 1)
        con.create_model("value", value, verify=False)
        con.create_model("careful", value, verify=False)
        con.execute("ALTER MODEL careful SET OPTIONS (on_null = 'null')")
        con.create_model("scaled", StandardScaler().fit(numbers), verify=False)
        con.create_model("two", DecisionTreeClassifier(max_depth=3).fit(numbers, both))
        line = LogisticRegression().fit(numbers, label == "stays")
        con.create_model("it's a name", line, verify=False)
        counts = CategoricalNB().fit(np.abs(x[["b"]]), label)
        con.create_model("python", counts, inputs=["b"], verify=False)
    return path
