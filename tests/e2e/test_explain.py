"""EXPLAIN stays short and right for models of other kinds than trees."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder

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
        con.connection.register("t", table)
        con.create_model("m", model)
        text = con.explain(f"SELECT predict('m', {columns}) FROM t")
    block = text.split("\n\n")[0].splitlines()
    assert block[0] == "SQLML"
    assert len(block) < 20 and max(map(len, block)) <= 96
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
