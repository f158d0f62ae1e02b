"""EXPLAIN stays short and right: what is read and why not, where it runs, for how many rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.feature_selection import SelectKBest
from sklearn.linear_model import Lasso, LogisticRegression
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

import sqlml

WIDE = [f"f{i}" for i in range(100)]


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(80, 100)), columns=WIDE)
    frame["city"] = rng.choice(["Bern", "Genf", "Ulm"], 80)
    frame["note"] = rng.choice(["late again", "on time", "very late"], 80)
    return frame


def explained(table: pd.DataFrame, model: object, columns: str) -> dict[str, str]:
    """EXPLAIN's own block as title -> text; every line fits the width."""
    with sqlml.connect() as con:
        con.execute("SET sqlml_route = 'arrow'")  # as on a machine without native functions
        con.connection.register("t", table)
        con.create_model("m", model)
        text = con.explain(f"SELECT predict('m', {columns}) FROM t")
    block = text.split("\n\n")[0].splitlines()
    assert block[0] == "SQLML"
    assert len(block) < 21 and max(map(len, block)) <= 96
    made: dict[str, str] = {}
    for line in block[1:]:
        title, rest = line[2:18].strip(), line[20:].strip()
        if title:
            made[title], last = rest, title
        else:
            made[last] += "\n" + rest
    return made


def test_a_strategy_is_named_where_there_are_trees(table: pd.DataFrame) -> None:
    y = table.f0 > 0
    near = KNeighborsClassifier().fit(table[["f0", "f1"]], y)
    assert (
        explained(table, near, "*")["in UDF"] == "native backend, device cpu, packed as DOUBLE[2]"
    )
    forest = RandomForestRegressor(3).fit(table[["f0", "f1"]], table[["f2", "f3"]])
    made = explained(table, forest, "*")
    assert made["in UDF"].startswith("native backend, strategy traverse, device cpu")
    assert made["output"] == "label, 2 targets"


def test_many_columns_are_cut_and_never_torn_from_their_types(table: pd.DataFrame) -> None:
    made = explained(table, LogisticRegression().fit(table[WIDE], table.f0 > 0), "*")
    assert made["columns read"].startswith("f0 DOUBLE, f1 DOUBLE, ")
    assert made["columns read"].endswith("f23 DOUBLE, .. 76 more")
    assert not any(line.startswith("DOUBLE") for line in made["columns read"].splitlines())
    assert "\N{NO-BREAK SPACE}" not in made["columns read"]


def test_texts_and_codes_are_told_apart(table: pd.DataFrame) -> None:
    both = ColumnTransformer([("t", TfidfVectorizer(), "note"), ("c", OrdinalEncoder(), ["city"])])
    model = make_pipeline(both, LogisticRegression()).fit(table[["note", "city"]], table.f0 > 0)
    made = explained(table, model, "note, city")
    assert made["in SQL"] == "codes of city"
    assert "with the texts of note" in made["in UDF"]
    assert made["columns read"] == "note VARCHAR, city VARCHAR"


@pytest.mark.parametrize("second", ["DROP TABLE t", "SELECT 'predict('", "DROP MODEL m"])
def test_the_statements_behind_the_first_are_not_run(second: str) -> None:
    with sqlml.connect() as con:
        con.execute("CREATE TABLE t (a INTEGER)")
        with pytest.raises(sqlml.errors.ParseError, match="one query"):
            con.explain(f"SELECT a FROM t; {second}")
        assert con.execute("FROM t").fetchall() == []


def test_each_feature_that_is_not_read_has_a_reason(table: pd.DataFrame) -> None:
    wide = table[WIDE[:8]]
    best = make_pipeline(StandardScaler(), SelectKBest(k=2), LogisticRegression())
    made = explained(table, best.fit(wide, table.f0 + table.f3 > 0), "*")
    kept = wide.columns[best[1].get_support()]
    others = ", ".join(c for c in wide if c not in kept)
    assert made["columns not read"] == f"{others} (push_selection)"
    some = ColumnTransformer([("s", StandardScaler(), ["f0", "f2"])])
    tree = DecisionTreeClassifier(max_depth=1)
    model = make_pipeline(some, tree).fit(wide, table.f2 > 0)
    reason = "f1, f3, f4, f5, f6, f7 (never used)"
    made = explained(table, model, "*")
    assert made["columns not read"].replace("\n", " ") == (
        f"f0 (inject_selection, push_selection); {reason}"
    )
    forest = RandomForestRegressor(40, random_state=0).fit(wide, table.f0 + wide.sum(axis=1))
    assert explained(table, forest, "*")["columns not read"] == "none"


def test_reasons_as_plain_values(table: pd.DataFrame) -> None:
    wide = table[WIDE[:4]]
    y = np.stack([table.f0 > 0, table.f1 > 0], axis=1).astype(int)
    both = MultiOutputClassifier(DecisionTreeClassifier(max_depth=1)).fit(wide, y)
    lasso = Lasso(alpha=0.3).fit(wide, table.f1)
    with sqlml.connect() as con:
        con.connection.register("t", table)
        con.create_model("both", both)
        con.create_model("lasso", lasso)
        plan = con.plan("SELECT predict('both', *), predict('lasso', *), city FROM t")
        assert plan is not None
        first, second = plan.to_dict()["calls"]
    assert list(first["columns_read"]) == ["f0", "f1"]
    unused = "inject_selection, push_selection"
    assert first["dropped_by"] == {"f2": unused, "f3": unused}
    assert second["dropped_by"] == {"f0": unused, "f2": unused, "f3": unused}
    assert second["columns_unread"] == list(second["dropped_by"])
    assert first["other_columns"] == [*WIDE[4:], "city", "note"] == second["other_columns"]


def test_columns_of_a_star_that_are_no_features(table: pd.DataFrame) -> None:
    model = LogisticRegression().fit(table[["f1", "f2"]], table.f0 > 0)
    made = explained(table, model, "* EXCLUDE (f3, note)")
    assert made["other columns"].startswith("f0, f4, f5, ")
    assert made["other columns"].endswith(".. 74 more: no features of the model")
    assert "other columns" not in explained(table, model, "f1, f2")
    assert "other columns" not in explained(table, model, "f1 := f1, f2 := f2")
    made = explained(table, model, "t.*, f2 := 1")
    assert "f2" not in made["other columns"].split(", ")


def test_rows_batches_and_estimates(table: pd.DataFrame) -> None:
    forest = RandomForestRegressor(30, random_state=0).fit(table[["f0", "f1"]], table.f2)
    made = explained(table, forest, "*")
    assert made["rows"] == "80 estimated by the engine; 2,048 at a time"
    assert made["estimate"].endswith(" for 80 rows on one thread")
    assert "measured" not in made
