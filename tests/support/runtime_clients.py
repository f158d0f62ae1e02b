"""A database with models, and a client without Python that has loaded the runtime.

The client is a process that imports DuckDB alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import LinearRegression, LogisticRegression, SGDClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

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


def create_shop(path: Path, config: dict[str, Any] = CONFIG) -> Path:
    """Create a database with models of several kinds, and the table `t` with rows to score."""
    rng = np.random.default_rng(0)
    x = pd.DataFrame({"a": rng.normal(size=200), "b": rng.integers(0, 9, 200)})
    x["city"] = rng.choice(["Bonn", "Köln", "a long name of a city"], 200)
    label = np.where(x.a + (x.city == "Bonn") > 0.5, "stays", "leaves")
    encoder = make_column_transformer((OneHotEncoder(), ["city"]), remainder="passthrough")
    both = np.stack([label, rng.choice(["x", "y"], 200)], axis=1)
    with sqlml.connect(path, config=config) as con:
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
        near = KNeighborsClassifier(3, algorithm="brute").fit(x[["b"]], label)
        con.create_model("python", near, verify=False)
    return path


VIEWS = {
    "label": "SELECT predict('churn', *) AS p FROM t",
    "proba": "SELECT predict_proba('churn', *) AS p FROM t",
    "class": "SELECT predict_proba('churn', *, class := 'stays') AS p FROM t",
    "list": "SELECT predict('churn', *) AS p, predict_proba('churn', *) AS q FROM t",
    "struct": "SELECT predict('churn', *) AS p, predict_proba('churn', *, class := 'stays') AS q "
    "FROM t",
    "line": "SELECT predict('value', *) AS p FROM t",
    "two": "SELECT predict('two', *) AS p, predict_proba('two', *) AS q FROM t",
    "probas": "SELECT predict_proba('two', *) AS q FROM t",
    "scaled": "SELECT transform('scaled', *) AS p FROM t",
    "wide": "SELECT predict('wide', *) AS p FROM wide",
    "words": "SELECT predict('words', word) AS p FROM words",
    "constant": "SELECT predict('churn', a, 3, 'Bonn') AS p FROM t",
    "explained": "SELECT explain('churn', *) AS p FROM t",
    "grouped": "SELECT predict('churn', *) AS p, avg(a) AS mean FROM t GROUP BY ALL ORDER BY ALL",
    "filtered": "SELECT a, city FROM t WHERE predict_proba('churn', *, class := 'stays') > 0.6",
    "joined": "SELECT u.a, predict('churn', t.*) AS p FROM t JOIN t AS u ON t.b = u.b",
    "outer_joined": "SELECT x, predict('careful', t.a, t.b) AS p "
    "FROM range(9) AS r(x) LEFT JOIN t ON b = x AND x > 5",
    "ranked": "SELECT a FROM t ORDER BY predict_proba('churn', *, class := 'stays'), a LIMIT 9",
    "quoted": "SELECT predict('it''s a name', *) AS p FROM t",
    "careful": "SELECT predict('careful', NULL, b) AS p, predict('careful', *) AS q FROM t",
    "yes": "SELECT predict_proba('yes', *) AS p FROM t",
    "leaves": "SELECT predict_leaf('churn', *) AS p FROM t",
    "leaf_of_one_tree": "SELECT predict_leaf('two', *) AS p FROM t",
    "first_trees": "SELECT predict_proba('churn', *, trees := 2) AS p FROM t",
    "view": "SELECT p, count(*) FROM v_label GROUP BY 1 ORDER BY 1",
}
"""Queries of views, and the ends of their names."""


def add_views(con: sqlml.Session) -> None:
    """Add the views, and further models and tables for them, to the database of `create_shop`."""
    rng = np.random.default_rng(1)
    wide = pd.DataFrame(rng.normal(size=(40, 120)), columns=[f"x{k}" for k in range(120)])
    words = pd.DataFrame({"word": ["Käse und Brot", "bread", "cheese bread", " ", "brot"] * 9})
    tree = make_pipeline(StandardScaler(), DecisionTreeRegressor(max_depth=3, random_state=0))
    text = make_pipeline(HashingVectorizer(n_features=64), SGDClassifier(random_state=0))
    con.register("wide_rows", wide)
    con.execute("CREATE TABLE wide AS FROM wide_rows")
    con.register("word_rows", words)
    con.execute("CREATE TABLE words AS FROM word_rows")
    con.create_model("wide", tree.fit(wide, wide.x3 + wide.x7), verify=False)
    con.create_model("words", text.fit(words.word, words.word.str.contains("bread")), verify=False)
    create_views(con)


def create_views(con: sqlml.Session) -> None:
    for name, query in VIEWS.items():
        con.execute(f"CREATE OR REPLACE VIEW v_{name} AS {query}")
