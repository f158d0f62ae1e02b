"""What somebody tries in the first hour: each mistake is named with its fix, each guess works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import lightgbm
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import sqlml
from sqlml import errors


def failing(con: sqlml.Session, statement: str) -> str:
    with pytest.raises(errors.SqlmlError) as caught:
        con.execute(statement)
    return str(caught.value)


# -- files


def test_a_missing_file_says_where_it_was_looked_for(
    con: sqlml.Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "nothere.json"
    message = failing(con, "CREATE MODEL m FROM 'nothere.json'")
    assert message.startswith(f"no such file: 'nothere.json'; looked for {place}")
    assert f"looked for {place}" in failing(con, f"CREATE MODEL m FROM '{place}'")
    assert "is a directory" in failing(con, f"CREATE MODEL m FROM '{tmp_path}'")
    assert f"({tmp_path})" in failing(con, "CREATE MODEL m FROM '.'")
    assert "no file matches '*.json'" in failing(con, "CREATE MODEL m FROM '*.json'")


# -- names and options


@pytest.mark.parametrize("name", ["", "m/1", "m@last", "a.b.c", "."])
def test_a_name_that_is_none_is_a_config_error(
    con: sqlml.Session, value_model: Any, name: str
) -> None:
    with pytest.raises(errors.ConfigError, match="invalid model name .*: write 'model' or"):
        con.create_model(name, value_model)


def test_the_name_comes_before_the_model(con: sqlml.Session, value_model: Any) -> None:
    swapped: Any = (value_model, "value")
    with pytest.raises(errors.ConfigError, match="name comes first.*not a LinearRegression"):
        con.create_model(*swapped)


def test_inputs_are_a_list_of_names_and_no_text(con: sqlml.Session) -> None:
    model = LinearRegression().fit(np.eye(2), [1.0, 2.0])
    for work in (
        lambda: con.create_model("m", model, inputs="ab"),
        lambda: sqlml.compile(model, inputs="ab"),
    ):
        with pytest.raises(errors.ConfigError, match=r"inputs=\['ab'\]"):
            work()


def test_a_wrong_option_is_the_same_error_in_both_places(
    con: sqlml.Session, value_model: Any
) -> None:
    for options, says in (
        ({"bakend": "torch"}, "unknown option 'bakend'"),
        (
            {"backend": "tourch"},
            "unknown backend 'tourch'; backends: auto, sql, native, reference, torch, onnxruntime",
        ),
        ({"strategy": "fast"}, "unknown strategy 'fast'"),
    ):
        with pytest.raises(errors.ConfigError, match=says):
            sqlml.compile(value_model, **options)
        with pytest.raises(errors.ConfigError, match=says):
            con.create_model("m", value_model, **options)


@pytest.mark.parametrize(
    ("labels", "second", "spellings"),
    [
        ([0, 1], "1", ["1", "'1'", "1.0"]),
        ([0.0, 1.0], "1.0", ["1", "'1'", "'1.0'", "1.0"]),
        ([False, True], "true", ["true", "TRUE", "'true'", "'True'", "'TRUE'"]),
        (["1", "1.0"], "'1.0'", ["'1.0'", "1.0"]),
        (["no", "yes"], "'yes'", ["'yes'"]),
        (["false", "true"], "'true'", ["'true'", "true"]),
    ],
)
def test_a_class_is_named_by_its_value_or_its_text(
    con: sqlml.Session, labels: list[Any], second: str, spellings: list[str]
) -> None:
    frame = pd.DataFrame({"a": [0.0, 1.0, 2.0, 3.0]})
    model = LogisticRegression().fit(frame, [labels[0], labels[0], labels[1], labels[1]])
    con.create_model("m", model)
    want = model.predict_proba(pd.DataFrame({"a": [3.0]}))[0, 1]
    assert want > 0.6
    first = "false" if labels[0] is False else repr(labels[0])
    for spelling in spellings:
        query = f"SELECT predict_proba('m', a := 3, class := {spelling})"
        assert con.execute(query).fetchall()[0][0] == pytest.approx(want, rel=1e-12), spelling
    assert f"classes are {first}, {second}" in failing(
        con, "SELECT predict_proba('m', a := 3, class := 'maybe')"
    )
    if isinstance(labels[0], str) and labels[0] != "1":
        assert "no class" in failing(con, "SELECT predict_proba('m', a := 3, class := 'YES')")


# -- LightGBM's names


def test_lightgbm_writes_underscores_and_reads_the_frame_by_its_own_names(
    con: sqlml.Session, tmp_path: Path
) -> None:
    frame = pd.DataFrame({"Age": np.arange(80.0), "income $": np.arange(80.0) % 7})
    y = ((frame["income $"] > 3) ^ (frame.Age > 40)).astype(int)
    model = lightgbm.LGBMClassifier(n_estimators=4, min_child_samples=2, verbose=-1).fit(frame, y)
    assert model.feature_name_ == ["Age", "income_$"]
    want = model.predict(frame).tolist()
    model.booster_.save_model(tmp_path / "m.txt")
    con.register("training", frame)
    con.create_model("m", model)
    con.execute(f"CREATE MODEL f FROM '{tmp_path / 'm.txt'}'")
    search = GridSearchCV(model, {"n_estimators": [4]}, cv=2).fit(frame, y)
    con.create_model("searched", search)
    con.create_model("piped", make_pipeline(clone(model)).fit(frame, y))
    library = dict(con.execute("DESCRIBE MODEL searched").fetchall())["library"]
    assert library.startswith("sklearn ") and ", lightgbm " in library
    for name in ("m", "f", "searched", "piped"):
        for call in (
            f"predict('{name}', *)",
            f"predict('{name}', training)",
            f"predict('{name}', {{'age': Age, 'Income $': \"income $\"}})",
            f'predict(\'{name}\', age := Age, "income $" := "income $")',
            f'predict(\'{name}\', age := Age, "income_$" := "income $")',
            f"predict('{name}', Age, \"income $\")",
        ):
            assert [r[0] for r in con.execute(f"SELECT {call} FROM training").fetchall()] == want
    agrees = con.execute("VERIFY MODEL f USING (SELECT * FROM training)").fetchall()
    assert agrees and all(row[-1] for row in agrees)
    con.create_model("m", model, inputs=["Age", "income $"], or_replace=True)
    got = con.execute("SELECT predict('m', *) FROM training").fetchall()
    assert [r[0] for r in got] == want
    for fitted in (model, search):
        scorer = sqlml.compile(fitted)
        for rows in (frame, pl.from_pandas(frame).lazy(), frame.to_dict("records")):
            assert scorer.predict(rows).tolist() == want


def test_a_column_with_underscores_goes_before_one_with_blanks(con: sqlml.Session) -> None:
    frame = pd.DataFrame({"a b": np.arange(80.0), "c_d e": np.arange(80.0) % 7})
    y = ((frame["c_d e"] > 3) ^ (frame["a b"] > 40)).astype(int)
    model = lightgbm.LGBMClassifier(n_estimators=4, min_child_samples=2, verbose=-1).fit(frame, y)
    con.create_model("m", model)
    row = 'SELECT 10 AS "a b", 50 AS a_b, 5 AS "c_d e"'
    ((got,),) = con.execute(f"SELECT predict('m', *) FROM ({row})").fetchall()
    (want,) = model.predict(pd.DataFrame({"a b": [50.0], "c_d e": [5.0]})).tolist()
    assert got == want
    message = failing(con, f"SELECT predict('m', *) FROM ({row}, 6 AS \"c d_e\")")
    assert "feature 'c_d_e' of model 'm' is ambiguous: 2 columns have that name" in message
    with pytest.raises(errors.AmbiguousColumnError, match="2 columns are called 'c_d_e'"):
        sqlml.compile(model).predict(frame.assign(**{"c d_e": 1.0}))


def test_other_models_read_blanks_as_blanks(con: sqlml.Session) -> None:
    frame = pd.DataFrame({"age": np.arange(80.0), "income_": np.arange(80.0) % 7})
    y = (frame.income_ > 3) ^ (frame.age > 40)
    boosted = lightgbm.LGBMClassifier(n_estimators=4, min_child_samples=2, verbose=-1)
    con.create_model("boosted", boosted.fit(frame, y))
    con.create_model("linear", LogisticRegression().fit(frame, y))
    for query in (
        "SELECT predict('boosted', *) FROM (SELECT 1 AS age, 2 AS incom)",
        "SELECT predict('linear', *) FROM (SELECT 1 AS age, 2 AS \"income \")",
    ):
        assert "needs column 'income_'" in failing(con, query)


# -- what a Scorer takes


def test_one_column_alone_feeds_a_model_of_one_column() -> None:
    frame = pd.DataFrame({"visits": [1.0, 2.0, 4.0]})
    model = LinearRegression().fit(frame, [1.0, 3.0, 2.0])
    want = model.predict(frame)
    scorer = sqlml.compile(model)
    for column in (
        frame.visits,
        frame.visits.convert_dtypes(),
        frame.visits[::-1][::-1],
        pl.Series("visits", [1.0, 2.0, 4.0]),
        pa.array([1, 2, 4]),
        pa.chunked_array([[1.0], [2.0, 4.0]]),
        frame.visits.to_numpy(),
    ):
        np.testing.assert_allclose(scorer.predict(column), want, rtol=1e-12)
    with pytest.raises(errors.MissingValueError, match="'visits'"):
        scorer.predict(pa.array([1.0, None]))


def test_one_column_alone_is_refused_where_the_model_has_more(value_model: Any) -> None:
    scorer = sqlml.compile(value_model)
    frame = pd.DataFrame({"charges": [1.0, 2.0], "tenure": [3.0, 4.0]})
    for column in (frame.charges, frame.iloc[0], pl.Series([1.0]), pa.array([1.0])):
        with pytest.raises(errors.InputTypeError, match="is one column.*2 columns: charges"):
            scorer.predict(column)


def test_a_relation_is_a_table(con: sqlml.Session, value_model: Any) -> None:
    scorer = sqlml.compile(value_model)
    con.execute("CREATE TABLE t AS SELECT tenure, charges FROM customers WHERE tenure > 0")
    want = [r[0] for r in con.execute("SELECT predict('value', *) FROM t").fetchall()]
    plain = duckdb.sql("SELECT 2 AS tenure, 3 AS charges")
    for relation in (
        con.sql("FROM t"),
        con.table("t"),
        con.sql("SELECT *, predict('value', *) AS own FROM t"),
    ):
        np.testing.assert_array_equal(scorer.predict(relation), want)
    assert scorer.predict(plain).shape == (1,)
    with pytest.raises(errors.MissingColumnError, match="'tenure'"):
        scorer.predict(con.sql("SELECT charges FROM t"))


@pytest.mark.parametrize("what", [None, object(), "text", 3])
def test_what_is_no_table_is_an_input_type_error(value_model: Any, what: Any) -> None:
    with pytest.raises(errors.InputTypeError, match="pass a 2-d array"):
        sqlml.compile(value_model).predict(what)
