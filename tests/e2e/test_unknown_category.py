"""A category that a model has never seen: the error names column and value, and what to do."""

from __future__ import annotations

import re
import sqlite3
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
import torch
import xgboost
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import CategoricalNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import LabelEncoder, OneHotEncoder, OrdinalEncoder
from torch import nn

import sqlml
from sqlml.errors import ConfigError, UnknownCategoryError

TRAINING = pd.DataFrame({"city": ["paris", "rome", "o'fallon", "rome"], "size": [1.0, 2.0, 3.0, 4]})
Y = [0, 1, 0, 1]


def encoded(encoder: Any) -> Any:
    return make_pipeline(encoder, LogisticRegression()).fit(TRAINING, Y)


def message(work: Any) -> str:
    with pytest.raises(UnknownCategoryError) as caught:
        work()
    assert caught.value.feature and caught.value.step
    return str(caught.value)


@pytest.mark.by_day(6)
@pytest.mark.parametrize("backend", ["native", "reference", "torch", "onnxruntime"])
@pytest.mark.parametrize(
    ("row", "named"),
    [
        ({"city": "atlantis"}, "column 'city' has 'atlantis', which OneHotEncoder"),
        ({"city": None}, "column 'city' has NULL, which OneHotEncoder"),
        ({"size": 7.0}, "column 'size' has 7, which OneHotEncoder"),
        ({"size": 2.5}, "column 'size' has 2.5, which OneHotEncoder"),
        ({"city": "x" * 500}, f"column 'city' has '{'x' * 55}...', which OneHotEncoder"),
    ],
)
def test_a_scorer_names_the_first_value(backend: str, row: dict[str, Any], named: str) -> None:
    scorer = sqlml.compile(encoded(OneHotEncoder()), backend=backend)
    rows = pd.concat([TRAINING] * 9000, ignore_index=True)
    good = {"city": "rome", "size": 1.0}
    other = {column: {"city": "utopia", "size": 99.0}[column] for column in row}
    bad = pd.DataFrame([good, {**good, **row}, {**good, **other}])
    for held in (bad, pd.concat([rows, bad], ignore_index=True)):
        text = message(lambda held=held: scorer.predict(held))
        assert text.startswith(named)
        assert "filter such rows, or fit the encoder with handle_unknown='ignore'" in text


@pytest.fixture(scope="module")
def native() -> tuple[pd.DataFrame, Any]:
    """XGBoost with categories of its own: of texts and of numbers."""
    codes = np.arange(240)
    frame = pd.DataFrame(
        {
            "city": pd.Categorical(np.array(["bern", "o'fallon", "rome"])[codes % 3]),
            "zip": pd.Categorical(np.array([100, 200, 300, 400])[codes // 3 % 4]),
        }
    ).mask(np.arange(240)[:, None] % np.array([7, 11]) == 0)
    y = (frame.city == "rome") * 2.0 + (frame.zip == 300) * 1.0 - frame.city.isna() * 3.0
    kind = xgboost.XGBRegressor(n_estimators=5, enable_categorical=True, max_cat_to_onehot=9)
    return frame, kind.fit(frame, y)


def test_an_unknown_category_counts_as_null_where_the_model_says_so(
    native: tuple[pd.DataFrame, Any], tmp_path: Any
) -> None:
    frame, model = native
    rows = [("rome", 300), ("utopia", 300), (None, 200), ("o'fallon", 999), ("utopia", None)]
    known = pd.DataFrame(
        {
            "city": pd.Categorical(
                ["rome", None, None, "o'fallon", None], frame.city.cat.categories
            ),
            "zip": pd.Categorical([300, 300, 200, None, None], frame.zip.cat.categories),
        }
    )
    want = model.predict(known)
    assert len(set(want.tolist())) == 4
    path = tmp_path / "models.duckdb"
    with sqlml.connect(path) as con:
        con.execute("CREATE TABLE t (city VARCHAR, zip INTEGER)")
        con.executemany("INSERT INTO t VALUES (?, ?)", rows)
        con.create_model("strict", model)
        con.create_model("lenient", model, on_unknown="null")
        text = message(lambda: con.execute("SELECT predict('strict', *) FROM t").fetchall())
        assert "option on_unknown = 'null'" in text
        calls = ["predict('lenient', *)", "predict('lenient', city || '', zip + 0)"]
        for call in calls:
            got = con.execute(f"SELECT {call} FROM t").fetchall()
            np.testing.assert_allclose([value for (value,) in got], want, rtol=1e-6)
        plan = con.explain("SELECT predict('lenient', *) FROM t")
        assert re.search(r"unknown is NULL +city, zip: as option on_unknown says", plan)
        ((literal,),) = con.execute(
            "SELECT predict('lenient', city := 'rome', zip := 9)"
        ).fetchall()
        ((null,),) = con.execute(
            "SELECT predict('lenient', city := 'rome', zip := NULL)"
        ).fetchall()
        assert literal == null
        con.execute("ALTER MODEL strict SET OPTIONS (on_unknown = 'null')")
        got = con.execute("SELECT predict('strict', *) FROM t").fetchall()
        np.testing.assert_allclose([value for (value,) in got], want, rtol=1e-6)
        con.execute(f"EXPORT MODEL lenient TO '{tmp_path}/lite.sql' (DIALECT sqlite, TABLE t)")
    with sqlite3.connect(":memory:") as lite:
        lite.execute("CREATE TABLE t (city, zip)")
        lite.executemany("INSERT INTO t VALUES (?, ?)", rows)
        query = (tmp_path / "lite.sql").read_text().strip().removesuffix(";")
        np.testing.assert_allclose([r[2] for r in lite.execute(query)], want, rtol=1e-6)


def test_a_model_that_refuses_null_answers_null_for_an_unknown_category(
    session: Any, tmp_path: Any
) -> None:
    model = encoded(OneHotEncoder())
    with pytest.raises(ConfigError, match="also rejects in column 'city': set on_null = 'null'"):
        session.create_model("nulls", model, on_unknown="null")
    session.create_model("nulls", model, on_unknown="null", on_null="null")
    got = session.execute("SELECT predict('nulls', *) FROM t").fetchall()
    assert [value is None for (value,) in got] == [False, True, True, True]
    session.export_model("nulls", tmp_path / "nulls.sql")
    with duckdb.connect() as plain:
        plain.execute((tmp_path / "nulls.sql").read_text())
        assert plain.execute(f"SELECT nulls(city, size) {ROWS}").fetchall() == got


def test_an_option_that_cannot_be_followed_is_refused(session: Any) -> None:
    model = make_pipeline(OrdinalEncoder(), CategoricalNB()).fit(TRAINING, Y)
    with pytest.raises(ConfigError, match="on_unknown = 'null' is not available for this model"):
        session.create_model("bayes", model, on_unknown="null")
    with pytest.raises(ConfigError, match="on_unknown cannot be 'ignore'; it takes 'error' or"):
        session.create_model("bayes", model, on_unknown="ignore")


ROWS = "FROM (VALUES ('rome', 1), ('atlantis', 1), ('utopia', 2), (NULL, 2)) t(city, size)"
UNSEEN = "which OneHotEncoder has never seen"


@pytest.fixture(scope="module")
def session() -> Any:
    with sqlml.connect() as con:
        con.create_model("m", encoded(OneHotEncoder()), verify=False)
        con.create_model("other", encoded(OneHotEncoder()), verify=False)
        lenient = OneHotEncoder(handle_unknown="ignore")
        con.create_model("lenient", encoded(lenient), verify=False)
        con.execute(f"CREATE TABLE t AS {ROWS}")
        yield con


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("SELECT predict('m', *) FROM t", "'city' has 'atlantis'"),
        ("SELECT predict('m', *) FROM t WHERE city IS NULL", "'city' has NULL"),
        ("SELECT predict('m', *) FROM t WHERE city IS DISTINCT FROM 'atlantis'", "has 'utopia'"),
        ("SELECT 1 FROM t WHERE predict('m', *) > 0", "has 'atlantis'"),
        ("SELECT 1 FROM t WHERE predict_proba('m', *, class := 1) > 0.5", "has 'atlantis'"),
        ("SELECT predict('m', *), predict('other', *) FROM t ORDER BY 1", "has 'atlantis'"),
        ("SELECT predict('m', city := 'o''higgins', size := 1)", "'city' has \"o'higgins\""),
        ("SELECT predict('m', city := 'rome', size := 7)", "'size' has 7"),
        (f"SELECT predict('m', city := '{'x' * 150}', size := 1)", f"has '{'x' * 55}...'"),
        ("SELECT predict('m', t) FROM t", "has 'atlantis'"),
        ("SELECT sum(predict('m', *)) OVER (ORDER BY size) FROM t", "has 'atlantis'"),
        ("CREATE TABLE made AS SELECT predict('m', *) FROM t", "has 'atlantis'"),
        ("INSERT INTO t SELECT predict('m', *)::VARCHAR, 1 FROM t", "has 'atlantis'"),
        ("SELECT predict('m', lower(upper(city)), size) FROM t", "has 'atlantis'"),
        ("EXPLAIN ANALYZE SELECT predict('m', *) FROM t", "has 'atlantis'"),
    ],
)
def test_a_query_names_the_value(session: Any, query: str, found: str) -> None:
    text = message(lambda: session.execute(query).fetchall())
    assert found in text and UNSEEN in text and "To find it" not in text


def test_a_parameter_is_named(session: Any) -> None:
    call = "SELECT predict('m', city := ?, size := ?)"
    assert session.execute(call, ["rome", 1]).fetchall() == [(1,)]
    assert "has 'oz'" in message(lambda: session.execute(call, ["oz", 1]).fetchall())
    assert "has NULL" in message(lambda: session.execute(call, [None, 1]).fetchall())


@pytest.mark.parametrize(
    "query",
    [
        "SELECT predict('m', *) FROM t WHERE city = 'rome'",
        "SELECT CASE WHEN city = 'rome' THEN predict('m', *) END FROM t ORDER BY 1",
        "SELECT TRY(predict('m', *)) FROM t ORDER BY 1",
        "SELECT predict('m', *) FROM (FROM t LIMIT 1)",
        "SELECT predict('lenient', *) FROM t ORDER BY 1",
        "SELECT coalesce(TRY(predict('m', *)), predict('lenient', *)) FROM t ORDER BY 1",
    ],
)
def test_rows_that_are_not_asked_for_raise_nothing(session: Any, query: str) -> None:
    assert (1,) in session.execute(query).fetchall()


def test_of_many_unknown_texts_one_of_the_column_is_named(session: Any) -> None:
    query = "SELECT predict('m', city := 'oz ' || i, size := 1) FROM range(300000) r(i)"
    assert "column 'city' has 'oz " in message(lambda: session.execute(query).fetchall())
    masked = query.replace("predict(", "CASE WHEN i % 2048 > 2000 THEN predict(") + " "
    masked = masked.replace("size := 1)", "size := 1) END")
    text = message(lambda: session.execute(masked).fetchall())
    assert text.startswith("column 'city' has 'oz ")


def test_each_column_has_its_own_values(session: Any) -> None:
    twice = TRAINING[["city"]].assign(town=["a", "b", "a", "b"])
    session.create_model("two", make_pipeline(OneHotEncoder(), LogisticRegression()).fit(twice, Y))
    call = "SELECT predict('two', city := '{}', town := '{}')"
    for city, town, found in (
        ("oz", "a", "'city' has 'oz'"),
        ("rome", "oz", "'town' has 'oz'"),
        ("ox", "oz", "'city' has 'ox'"),
    ):
        asked = call.format(city, town)
        assert found in message(lambda asked=asked: session.execute(asked).fetchall())


def test_a_long_expression_is_not_written_twice_and_has_a_query(session: Any) -> None:
    city = "concat(" + ", ".join(["city"] * 50) + ")"
    session.execute("SET sqlml_route = 'arrow'")  # then the engine's SQL makes the codes
    text = message(lambda: session.execute(f"SELECT predict('m', {city}, size) FROM t").fetchall())
    session.execute("RESET sqlml_route")
    assert text.startswith("column 'city' has a category (or NULL) that OneHotEncoder")
    query = text.partition("To find it: ")[2]
    found = session.execute(query.replace("FROM ...", "FROM t") + " ORDER BY 1").fetchall()
    assert found == [("atlantis",), ("utopia",), (None,)]


@pytest.mark.parametrize(
    ("call", "found"),
    [
        ("city := 'oz', size := 1", "'city' has 'oz'"),
        ("city := NULL, size := 1", "'city' has NULL"),
        ("city := 'rome', size := 7", "'size' has 7"),
        ("city := 'rome', size := 2.5", "'size' has 2.5"),
        ("city := 'rome', size := NULL", "'size' has NULL"),
        (f"city := '{'x' * 500}', size := 1", f"has '{'x' * 55}...'"),
    ],
)
def test_an_expression_names_the_value(session: Any, call: str, found: str) -> None:
    session.execute("SET sqlml_backend = 'sql'")
    try:
        with pytest.raises(UnknownCategoryError, match=f"{re.escape(found)}, {UNSEEN}"):
            session.execute(f"SELECT predict('m', {call})").fetchall()
    finally:
        session.execute("RESET sqlml_backend")


def test_in_a_transaction_the_value_is_named(tmp_path: Any) -> None:
    with sqlml.connect(tmp_path / "a.duckdb") as con:
        con.execute("BEGIN")
        con.create_model("m", encoded(OneHotEncoder()))
        text = message(lambda: con.execute(f"SELECT predict('m', *) {ROWS}").fetchall())
        assert "'city' has 'atlantis'" in text


def test_a_view_names_the_value_too(tmp_path: Any) -> None:
    with sqlml.connect(tmp_path / "a.duckdb") as con:
        con.create_model("m", encoded(OneHotEncoder()))
        con.execute("CREATE TABLE t AS SELECT 'rome' AS city, 7 AS size")
        con.execute("CREATE VIEW v AS SELECT predict('m', *) AS p FROM t")
        con.execute(f"CREATE VIEW w AS SELECT predict('m', *) AS p {ROWS}")
        con.execute("BEGIN; CREATE TABLE u AS SELECT 'oz' AS city, 1 AS size")
        con.execute("CREATE VIEW x AS SELECT predict('m', *) AS p FROM u")
        con.execute("COMMIT")
    with sqlml.connect(tmp_path / "a.duckdb") as con:
        for view, found in (("v", "'size' has 7"), ("w", "has 'atlantis'"), ("x", "has 'oz'")):
            assert found in message(lambda view=view: con.execute(f"FROM {view}").fetchall())


def test_the_macros_of_a_plain_connection_name_the_value() -> None:
    with duckdb.connect() as plain:
        sqlml.attach(plain).create_model("m", encoded(OneHotEncoder()))
        plain.execute(f"CREATE TABLE t AS {ROWS}")
        assert plain.execute("SELECT predict('m', t) FROM t LIMIT 1").fetchall() == [(1,)]
        with pytest.raises(duckdb.Error, match="'city' has 'atlantis'"):
            plain.execute("SELECT predict('m', t) FROM t").fetchall()


def test_a_long_list_of_categories_gives_no_query() -> None:
    many = pd.DataFrame({"city": [f"city number {i}" for i in range(500)]})
    model = make_pipeline(OneHotEncoder(), LogisticRegression(max_iter=5)).fit(many, [0, 1] * 250)
    with sqlml.connect() as con:
        con.create_model("m", model)
        text = message(lambda: con.execute("SELECT predict('m', city := 'x')").fetchall())
    assert "city number" not in text and len(text) < 200


@pytest.mark.parametrize(
    ("encoder", "fix"),
    [
        (OneHotEncoder(), "handle_unknown='ignore'"),
        (OrdinalEncoder(), "handle_unknown='use_encoded_value', unknown_value=-1"),
    ],
)
def test_the_fix_of_each_encoder_is_its_own(encoder: Any, fix: str) -> None:
    bad = pd.DataFrame({"city": ["atlantis"], "size": [1.0]})
    text = message(lambda: sqlml.compile(encoded(encoder)).predict(bad))
    assert text.endswith(f"fit the encoder with {fix}")


def test_xgboost_takes_null_and_has_no_encoder() -> None:
    frame = TRAINING.assign(city=TRAINING.city.astype("category"))
    model = xgboost.XGBClassifier(n_estimators=2, enable_categorical=True, min_child_weight=0)
    model.fit(frame, Y)
    with sqlml.connect() as con:
        con.create_model("m", model)
        con.execute("SELECT predict('m', city := NULL, size := 1)").fetchall()
        call = "SELECT predict('m', city := 'atlantis', size := 1)"
        from_sql = message(lambda: con.execute(call).fetchall())
    scorer = sqlml.compile(model)
    text = message(lambda: scorer.predict({"city": ["atlantis"], "size": [1.0]}))
    assert text.startswith("column 'city' has 'atlantis', which XGBoost has never seen")
    for each in (text, from_sql):
        assert "handle_unknown" not in each and "(or NULL)" not in each
        assert "replace such a value with NULL" in each
    assert "IS NULL" not in from_sql


class Zones(nn.Module):
    """An embedding of the first column, or of all."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.columns = columns
        self.table = nn.Embedding(5, 3)
        self.out = nn.Linear(3 * columns, 1)

    def forward(self, x: Any) -> Any:
        taken = self.table(x[:, : self.columns].long())
        return self.out(taken.reshape(-1, 3 * self.columns))


@pytest.mark.parametrize(("columns", "bad"), [(1, "zone"), (2, "zone"), (2, "area")])
def test_an_embedding_names_the_users_column_and_its_range(columns: int, bad: str) -> None:
    torch.manual_seed(0)
    model = Zones(columns).eval()
    with sqlml.connect() as con:
        con.create_model("m", model, inputs=["zone", "area"])
        good = con.execute("SELECT predict('m', zone := 4, area := 2)").fetchall()[0][0]
        want = model(torch.tensor([[4.0, 2.0]])).item()
        np.testing.assert_allclose(good, want, rtol=1e-6, atol=1e-7)  # terms cancel out
        for value in (5, -1):
            given = {"zone": 1, "area": 1, bad: value}
            call = ", ".join(f"{k} := {v}" for k, v in given.items())
            text = message(lambda call=call: con.execute(f"SELECT predict('m', {call})").fetchall())
            assert text.startswith(
                f"column '{bad}' has {value}, which the module's embedding (0 to 4) has never seen"
            )
            assert "handle_unknown" not in text and "NULL" not in text


def test_other_steps_have_their_own_fix() -> None:
    codes = np.array([[0, 1], [1, 0], [2, 1]])
    text = message(lambda: sqlml.compile(CategoricalNB().fit(codes, Y[:3])).predict([[5, 1]]))
    assert text.startswith("column 'x0' has 5, which CategoricalNB") and "min_categories" in text
    labels = LabelEncoder().fit(["a", "b"])
    text = message(lambda: sqlml.compile(labels).transform(np.array(["a", "z"], object)))
    assert text.startswith("column 'x0' has 'z', which LabelEncoder") and "all labels" in text
