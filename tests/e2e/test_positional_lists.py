"""`predict('m', [a, b])`: a list or an array feeds the features by their positions."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction import FeatureHasher
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder
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
