"""Columns that a model does not use are never read: by DuckDB's own plan, and by bytes of a file.

The witness is a query that names the columns which the fitted object uses, by its own attributes:
the query with the model must scan the same columns and read as many bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestRegressor
from sklearn.feature_selection import SelectFromModel, SelectKBest, VarianceThreshold
from sklearn.linear_model import Lasso, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier
from xgboost import XGBRegressor

import sqlml

COLUMNS, ROWS = 60, 40_000
NAMES = [f"c{i}" for i in range(COLUMNS)]
RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.normal(size=(ROWS, COLUMNS)), columns=NAMES)
TARGET = X.c3 + 2 * X.c17 - X.c40 + 0.5 * (X.c55 > 0)
CLASS = np.where(TARGET > 0.5, "high", "low")
SOME = slice(0, 2_000)
FOOTER = 4 * 2**16
"""What planning may read: the end of the file, each time that the engine binds a query to it. A
column has 320,000 bytes."""


def chosen(mask: Any) -> list[str]:
    """The names where a mask is true."""
    return [name for name, kept in zip(NAMES, np.asarray(mask).ravel(), strict=True) if kept]


def of_trees(features: Any) -> list[str]:
    """The names of the features that trees test; a leaf's is negative."""
    return [NAMES[i] for i in np.unique(features) if i >= 0]


def lasso() -> tuple[Any, list[str]]:
    model = Lasso(alpha=0.1).fit(X[SOME], TARGET[SOME])
    return model, chosen(model.coef_ != 0)


def scaled_lasso() -> tuple[Any, list[str]]:
    model = make_pipeline(StandardScaler(), Lasso(alpha=0.1)).fit(X[SOME], TARGET[SOME])
    return model, chosen(model[-1].coef_ != 0)


def sparse_logistic() -> tuple[Any, list[str]]:
    logistic = LogisticRegression(l1_ratio=1.0, C=0.02, solver="liblinear")
    model = make_pipeline(MinMaxScaler(), StandardScaler(), logistic).fit(X[SOME], CLASS[SOME])
    return model, chosen(model[-1].coef_ != 0)


def selected_forest() -> tuple[Any, list[str]]:
    forest = RandomForestRegressor(20, max_depth=6, random_state=0)
    model = make_pipeline(StandardScaler(), SelectKBest(k=5), forest)
    model.fit(X[SOME], np.digitize(TARGET[SOME], [-1, 0, 1]))
    return model, chosen(model[1].get_support())


def selected_twice() -> tuple[Any, list[str]]:
    pick = SelectFromModel(Lasso(alpha=0.1))
    model = make_pipeline(VarianceThreshold(), pick, MinMaxScaler(), LogisticRegression())
    model.fit(X[SOME], (TARGET[SOME] > 0.5).astype(int))
    return model, chosen(model[1].get_support())


def one_tree() -> tuple[Any, list[str]]:
    model = DecisionTreeClassifier(max_depth=4, random_state=0).fit(X[SOME], CLASS[SOME])
    return model, of_trees(model.tree_.feature)


def boosted() -> tuple[Any, list[str]]:
    model = XGBRegressor(n_estimators=4, max_depth=2).fit(X[SOME], TARGET[SOME])
    used = model.get_booster().get_score(importance_type="weight")
    return model, [name for name in NAMES if name in used]


def parts_of_columns() -> tuple[Any, list[str]]:
    parts = make_column_transformer(
        (StandardScaler(), ["c3", "c17"]), ("drop", ["c4"]), ("passthrough", ["c40"])
    )
    model = make_pipeline(parts, LogisticRegression()).fit(X[SOME], CLASS[SOME])
    return model, ["c3", "c17", "c40"]


MODELS: dict[str, Callable[[], tuple[Any, list[str]]]] = {
    "Lasso": lasso,
    "a scaler before Lasso": scaled_lasso,
    "two scalers before an L1 logistic regression": sparse_logistic,
    "SelectKBest before a forest": selected_forest,
    "two selections": selected_twice,
    "a tree": one_tree,
    "XGBoost": boosted,
    "a ColumnTransformer": parts_of_columns,
}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("wide") / "wide.parquet"
    with sqlml.connect() as con:
        con.register("x", X)
        con.execute(f"COPY x TO '{path}'")
    return path


def scanned(con: Any, query: str) -> set[str]:
    """The columns that DuckDB's plan of a query reads from a file or table."""
    ((_, text),) = con.execute(f"EXPLAIN (FORMAT json) {query}").fetchall()
    found: set[str] = set()

    def visit(node: dict[str, Any]) -> None:
        if "SCAN" in node["name"].upper() or "READ_" in node["name"].upper():
            listed = node["extra_info"].get("Projections", [])
            found.update([listed] if isinstance(listed, str) else listed)
        for child in node.get("children", []):
            visit(child)

    for root in json.loads(text):
        visit(root)
    return found


def bytes_read(path: Path, query: str, model: Any = None) -> int:
    """What a query reads of a file, in a database that never saw it before; the log says it."""
    with sqlml.connect() as con:
        if model is not None:
            con.create_model("m", model)
        con.execute("CALL enable_logging('FileSystem')").fetchall()
        con.execute(query).fetchall()
        ((count,),) = con.connection.execute(
            "SELECT sum(bytes::BIGINT) FROM duckdb_logs_parsed('FileSystem') "
            f"WHERE op = 'READ' AND path = '{path}'"
        ).fetchall()
    return int(count)


@pytest.mark.by_day(4)
@pytest.mark.parametrize("name", MODELS)
def test_only_used_columns_are_read(name: str, file: Path) -> None:
    model, used = MODELS[name]()
    assert 0 < len(used) < COLUMNS / 2
    query = f"SELECT predict('m', *) AS y FROM '{file}'"
    with sqlml.connect() as con:
        con.create_model("m", model)
        plan = con.plan(query)
        assert plan is not None
        assert {column for column, _ in plan.calls[0].reads} == set(used)
        found = [y for (y,) in con.execute(query).fetchall()]
        assert scanned(con.connection, plan.sql) == set(used)
    wanted = model.predict(X)
    if wanted.dtype.kind == "f":
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-9)
    else:
        assert found == list(wanted)
    by_name = f"SELECT {', '.join(f'sum({column})' for column in used)} FROM '{file}'"
    everything = f"SELECT {', '.join(f'sum({column})' for column in NAMES)} FROM '{file}'"
    read, needed = bytes_read(file, query, model), bytes_read(file, by_name)
    assert needed <= read < needed + FOOTER
    assert read < bytes_read(file, everything) * (len(used) + 1) / COLUMNS * 1.2


def test_through_views_joins_and_subqueries(file: Path) -> None:
    model, used = one_tree()
    with sqlml.connect() as con:
        con.create_model("m", model)
        con.execute(f"CREATE VIEW v AS SELECT *, c3 + 1 AS more FROM '{file}'")
        con.execute("CREATE TABLE d AS SELECT range AS id, range * 1.5 AS extra FROM range(5)")
        for query, more in (
            ("SELECT predict('m', *) FROM v", set()),
            # the scan itself filters by c9
            ("SELECT predict('m', *) FROM (SELECT * FROM v WHERE c9 > 0) q", set()),
            ("SELECT count(*) FROM v WHERE predict('m', *) = 'high'", set()),
            (
                "WITH w AS (SELECT *, predict('m', *) AS y FROM v) "
                "SELECT y, avg(c11) FROM w GROUP BY y",
                {"c11"},
            ),
            (
                "SELECT predict('m', v.*), extra FROM v JOIN d ON round(c20) = d.id",
                {"c20", "id", "extra"},
            ),
        ):
            plan = con.plan(query)
            assert plan is not None
            con.execute(query).fetchall()
            assert scanned(con.connection, plan.sql) == set(used) | more


def test_strings_that_no_step_uses_are_not_read(file: Path, tmp_path: Path) -> None:
    path = tmp_path / "texts.parquet"
    frame = X[SOME].assign(plan=RNG.choice(["a", "b"], 2_000), city=RNG.choice(["x", "y"], 2_000))
    encode = make_column_transformer(
        (OneHotEncoder(), ["plan", "city"]), ("passthrough", ["c3", "c17", "c20"])
    )
    y = frame.c3 + (frame.plan == "a") > 0.5
    model = make_pipeline(encode, DecisionTreeClassifier(max_depth=3, random_state=0)).fit(frame, y)
    names = ["plan", "plan", "city", "city", "c3", "c17", "c20"]
    used = {names[i] for i in np.unique(model[-1].tree_.feature) if i >= 0}
    assert "plan" in used and "city" not in used
    with sqlml.connect() as con:
        con.register("frame", frame)
        con.execute(f"COPY frame TO '{path}'")
        con.create_model("m", model)
        query = f"SELECT predict('m', *) FROM '{path}'"
        plan = con.plan(query)
        assert plan is not None
        assert [y for (y,) in con.execute(query).fetchall()] == list(model.predict(frame))
        assert scanned(con.connection, plan.sql) == used
