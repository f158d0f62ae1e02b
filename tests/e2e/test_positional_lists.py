"""`predict('m', [a, b])`: a list or an array feeds the features by their positions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import catboost
import duckdb
import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction import FeatureHasher
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

import sqlml
from sqlml import errors

pytestmark = pytest.mark.version


@pytest.fixture(scope="module")
def con() -> Iterator[sqlml.Session]:
    random = np.random.default_rng(0)
    rows = pd.DataFrame(random.normal(size=(300, 3)), columns=["a", "b", "c"])
    forest = RandomForestClassifier(20, random_state=0).fit(rows, rows.a > rows.c)
    cities = pd.DataFrame({"city": ["north", "south"] * 5, "plan": ["x", "y", "y", "x", "x"] * 2})
    tree = make_pipeline(OrdinalEncoder(), DecisionTreeClassifier()).fit(cities, cities.city)
    with sqlml.connect() as made:
        made.register("rows", rows)
        made.execute(
            "CREATE TABLE t AS SELECT row_number() OVER () AS id, *, [a, b, c] AS items, "
            "[a, b, c]::DOUBLE[3] AS fixed, CASE WHEN id % 7 > 0 THEN [a, b, c] END AS gaps "
            "FROM rows"
        )
        made.create_model("forest", forest)
        made.create_model("tree", tree)
        yield made


@pytest.mark.by_day(3)
@pytest.mark.parametrize(
    "argument",
    ["[a, b, c]", "ARRAY[a, b, c]", "[\n  a,\n  b, c ]", "items", "fixed", "list_value(a, b, c)"]
    + ["[v + 1 - 1 FOR v IN items]", "t.items[:]"],
)
@pytest.mark.parametrize("backend", ["native", "sql"])
def test_elements_are_features(con: sqlml.Session, argument: str, backend: str) -> None:
    con.execute(f"SET sqlml_backend = '{backend}'")
    asked = "SELECT sum(predict_proba('forest', {}, class := true)) FROM t WHERE id < 50"
    try:
        found = con.execute(asked.format(argument)).fetchone()
        assert found == con.execute(asked.format("a, b, c")).fetchone()
    finally:
        con.execute("RESET sqlml_backend")


def unnamed_models() -> list[tuple[str, Any]]:
    """Models that were fitted to arrays, each with the name that its library gives column 0."""
    x = np.random.default_rng(1).normal(size=(200, 3))
    y = (x[:, 0] > x[:, 2]).astype(int)
    quiet = {"verbose": False, "allow_writing_files": False}
    return [
        ("f0", xgboost.XGBClassifier(n_estimators=3).fit(x, y)),
        ("Column_0", lightgbm.LGBMClassifier(n_estimators=3, verbose=-1).fit(x, y)),
        ("0", catboost.CatBoostClassifier(iterations=3, **quiet).fit(x, y)),
        ("x0", RandomForestClassifier(3, random_state=0).fit(x, y)),
        ("x0", make_pipeline(StandardScaler(), LogisticRegression()).fit(x, y)),
    ]


@pytest.mark.parametrize(("first", "model"), unnamed_models(), ids=lambda value: str(value)[:13])
def test_a_model_without_names_binds_by_position(
    con: sqlml.Session, first: str, model: Any
) -> None:
    con.create_model("bare", model, or_replace=True)
    assert next(iter(con.model("bare").inputs)) == first
    rows = con.execute("SELECT a, b, c FROM rows ORDER BY ALL").df().to_numpy()
    want = model.predict(rows).tolist()
    names = [first.replace("0", str(i)) for i in range(3)]
    named = ", ".join(f'"{name}" := {column}' for name, column in zip(names, "abc", strict=True))
    for arguments in ("a, b, c", "[a, b, c]", "[a, b, c]::DOUBLE[3]", named):
        query = f"SELECT predict('bare', {arguments}) FROM rows ORDER BY a, b, c"
        assert [label for (label,) in con.execute(query).fetchall()] == want
    with pytest.raises(errors.MissingColumnError, match=rf"calls its columns {first}, .*position"):
        con.execute("SELECT predict('bare', *) FROM rows")
    types = {"a": "DOUBLE", "b": "DOUBLE", "c": "DOUBLE"}
    con.create_model("bare", model, inputs=types, or_replace=True)
    query = "SELECT predict('bare', *) FROM rows ORDER BY a, b, c"
    assert [label for (label,) in con.execute(query).fetchall()] == want


def test_a_list_of_null_is_null_in_each_feature(con: sqlml.Session) -> None:
    nulls = "CASE WHEN id % 7 > 0 THEN {} END"
    given = ", ".join(nulls.format(name) for name in "abc")
    found = con.execute(
        f"SELECT count(*) FROM t WHERE predict('forest', gaps) IS NOT DISTINCT FROM "
        f"predict('forest', {given})"
    )
    assert found.fetchone() == (300,)


def test_texts_and_parameters(con: sqlml.Session) -> None:
    assert con.execute("SELECT predict('tree', ['south', 'x'])").fetchone() == ("south",)
    assert con.execute("SELECT predict('tree', ['south', ?])", ["x"]).fetchone() == ("south",)
    query = "SELECT predict('forest', ?) = predict('forest', 0.5, 0.25, 0.125)"
    assert con.execute(query, [[0.5, 0.25, 0.125]]).fetchone() == (True,)


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("[a, b]", "takes 3 features by position .a, b, c., but got 2"),
        ("[]", "but got 0"),
        ("[1, 2]::INTEGER[2]", "takes 3 features by position, but the array has 2"),
        ("['x', 'y', 'z']", "is a VARCHAR|wants a number|feature 'a'"),
        ("items, 1", "but got 2"),
    ],
)
def test_what_does_not_fit_is_refused(con: sqlml.Session, argument: str, words: str) -> None:
    with pytest.raises((errors.BindError, duckdb.Error), match=words):
        con.execute(f"SELECT predict('forest', {argument}) FROM t").fetchall()


def test_a_list_of_another_length_is_an_error_of_the_query(con: sqlml.Session) -> None:
    for value in ("items[:2]", "list_append(items, 1)"):
        with pytest.raises(Exception, match="a list has another length"):
            con.execute(f"SELECT predict('forest', {value}) FROM t").fetchall()


def test_a_model_of_one_list_takes_it_as_it_is(con: sqlml.Session) -> None:
    words = make_pipeline(FeatureHasher(8, input_type="string"), DecisionTreeClassifier())
    words.fit([["red"], ["blue", "red"], ["blue"]], [0, 1, 1])
    con.create_model("words", words, inputs={"words": "VARCHAR[]"})
    assert con.execute("SELECT predict('words', ['blue', 'red'])").fetchone() == (1,)
    one = DecisionTreeClassifier().fit([[0.0], [1.0]], [0, 1])
    con.create_model("one", one, inputs=["a"])
    assert con.execute("SELECT predict('one', [1.0]), predict('one', 0.0)").fetchone() == (1, 0)
