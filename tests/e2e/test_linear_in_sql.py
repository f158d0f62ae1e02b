"""Linear models run as SQL expressions, and give what the source library and the UDF give."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.impute import SimpleImputer
from sklearn.linear_model import (
    ElasticNet,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    RidgeClassifier,
    SGDClassifier,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC

import sqlml
from sqlml.errors import MissingValueError
from tests.e2e.native_models import NEEDS_NATIVE

COLUMNS = ["age", "Income", "a b"]


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(500, 3)) * [1.0, 1e4, 1e-3], columns=COLUMNS)
    frame["small"] = rng.normal(size=500).astype(np.float32)
    frame["whole"] = rng.integers(-5, 5, 500)
    frame["flag"] = rng.random(500) < 0.5
    return frame


@pytest.fixture
def con(table: pd.DataFrame) -> Iterator[sqlml.Session]:
    with sqlml.connect() as con:
        con.connection.register("frame", table)
        con.execute("CREATE TABLE t AS FROM frame")
        yield con


def fitted(model: Any, table: pd.DataFrame, labels: Any = None) -> Any:
    target = table.age + table.Income / 1e4 > 0.2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if labels is not None:
            return model.fit(table, np.asarray(labels)[target.astype(int)])
        return model.fit(table, table.age**2 + np.exp(table.small))


CLASSIFIERS = (
    make_pipeline(StandardScaler(), LogisticRegression()),
    make_pipeline(SimpleImputer(), MinMaxScaler(), LinearSVC()),
    SGDClassifier(loss="log_loss", random_state=0),
    RidgeClassifier(),
)
REGRESSORS = (LinearRegression(), make_pipeline(StandardScaler(), ElasticNet()), PoissonRegressor())


def explained(con: sqlml.Session, query: str) -> str:
    return con.explain(query).split("\n\n")[0]


@pytest.mark.by_day(2)
@pytest.mark.parametrize("model", CLASSIFIERS, ids=lambda m: str(m).split("(")[0])
@pytest.mark.parametrize("labels", [["no", "yes"], [7, -1], [False, True]], ids=str)
def test_classifiers(model: Any, labels: list[Any], table: pd.DataFrame, con: Any) -> None:
    model = fitted(model, table, labels)
    con.create_model("m", model, backend="sql")
    text = explained(con, "SELECT predict('m', *) FROM t")
    assert "the whole model, for rows without NULL, NaN and infinities" in text
    got = con.execute("SELECT predict('m', *) FROM t").fetchall()
    assert [row[0] for row in got] == model.predict(table).tolist()
    if hasattr(model, "predict_proba"):
        chosen = repr(model.classes_.tolist()[1])
        query = f"SELECT predict_proba('m', *, class := {chosen}) FROM t"
        assert "the whole model" in explained(con, query)
        got = np.array(con.execute(query).fetchall())[:, 0]
        np.testing.assert_allclose(got, model.predict_proba(table)[:, 1], rtol=1e-12)
    got = np.array(con.execute("SELECT predict_score('m', *) FROM t").fetchall())[:, 0]
    np.testing.assert_allclose(got, model.decision_function(table), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("model", REGRESSORS, ids=lambda m: str(m).split("(")[0])
def test_regressors(model: Any, table: pd.DataFrame, con: Any) -> None:
    con.create_model("m", fitted(model, table))
    assert "the whole model" in explained(con, "SELECT predict('m', *) FROM t")
    got = np.array(con.execute("SELECT predict('m', *) FROM t").fetchall())[:, 0]
    np.testing.assert_allclose(got, model.predict(table), rtol=1e-12)


@pytest.mark.parametrize("hole", ["NULL", "'nan'::DOUBLE", "'inf'::DOUBLE", "'-inf'::DOUBLE"])
def test_a_row_that_the_model_refuses_is_refused_as_by_the_udf(
    hole: str, table: pd.DataFrame, con: Any
) -> None:
    model = fitted(CLASSIFIERS[0], table, ["no", "yes"])
    con.create_model("by_sql", model, backend="sql")
    con.create_model("by_udf", model, backend="native")
    con.execute(f"UPDATE t SET Income = {hole} WHERE rowid = 321")
    messages = []
    for name in ("by_sql", "by_udf"):
        with pytest.raises(MissingValueError) as caught:
            con.execute(f"SELECT predict('{name}', *) FROM t").fetchall()
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert "Income" in messages[0]
    finite = "SELECT count(predict('by_sql', *)) FROM t WHERE isfinite(Income)"
    assert con.execute(finite).fetchone() == (499,)


def test_missing_values_are_imputed_in_sql(table: pd.DataFrame, con: Any) -> None:
    model = fitted(CLASSIFIERS[1], table, ["no", "yes"])
    con.create_model("m", model, backend="sql")
    con.execute("UPDATE t SET age = NULL WHERE rowid % 3 = 0")
    con.execute("UPDATE t SET small = 'nan' WHERE rowid % 5 = 0")
    holes = table.assign(
        age=table.age.where(np.arange(500) % 3 != 0),
        small=table.small.where(np.arange(500) % 5 != 0),
    )
    got = [row[0] for row in con.execute("SELECT predict('m', *) FROM t").fetchall()]
    assert got == model.predict(holes).tolist()


def test_other_models_and_arguments_stay_with_the_udf(table: pd.DataFrame, con: Any) -> None:
    several = fitted(LogisticRegression(), table, ["no", "yes"])
    con.create_model("m", several)
    for query in (
        "SELECT predict('m', * REPLACE (random() AS age)) FROM t",  # it would run more than once
        "SELECT predict('m', age + 1, Income, \"a b\", small, whole, flag) FROM t",
    ):
        assert "the whole model" not in explained(con, query)
    con.create_model("forced", several, backend="native")
    assert "the whole model" not in explained(con, "SELECT predict('forced', *) FROM t")
    three = LogisticRegression().fit(table[COLUMNS], np.arange(500) % 3)
    con.create_model("three", three)
    assert "the whole model" not in explained(con, "SELECT predict('three', *) FROM t")
    con.execute("ALTER TABLE t ADD COLUMN city VARCHAR DEFAULT 'Ulm'")
    words = make_pipeline(OneHotEncoder(), LinearRegression())
    words.fit(pd.DataFrame({"city": ["Ulm", "Bern"]}), [1.0, 2.0])
    con.create_model("words", words)
    assert "the whole model" not in explained(con, "SELECT predict('words', *) FROM t")
    (got,) = con.execute("SELECT predict('words', *) FROM t LIMIT 1").fetchone()
    assert got == pytest.approx(1.0, rel=1e-12)


@NEEDS_NATIVE
def test_several_calls_share_a_function_that_is_cheaper(table: pd.DataFrame, con: Any) -> None:
    """One expression is cheaper than a function, but the engine computes three one by one."""
    model = fitted(CLASSIFIERS[2], table, ["no", "yes"])
    con.create_model("m", model)
    one = "SELECT predict('m', *) AS label FROM t"
    several = (
        "SELECT predict('m', *) AS label, predict_proba('m', *)['yes'] AS yes FROM t "
        "WHERE predict('m', *) = 'yes'"
    )
    assert "the whole model" in explained(con, one)
    assert "the whole model" not in explained(con, several)
    positive = model.predict(table) == "yes"
    labels, probabilities = zip(*con.execute(several).fetchall(), strict=True)
    assert set(labels) == {"yes"}
    np.testing.assert_allclose(probabilities, model.predict_proba(table)[positive, 1], rtol=1e-12)


def test_it_works_wherever_an_expression_may_stand(table: pd.DataFrame, con: Any) -> None:
    model = fitted(CLASSIFIERS[0], table, ["no", "yes"])
    con.create_model("m", model)
    want = pd.Series(model.predict(table)).value_counts().to_dict()
    got = con.execute(
        "SELECT predict('m', x.*) AS label, count(*) FROM t AS x "
        "WHERE predict_proba('m', x.*, class := 'yes') >= 0 GROUP BY label ORDER BY count(*)"
    ).fetchall()
    assert dict(got) == want
    con.execute("CREATE VIEW v AS SELECT predict('m', *) AS label FROM t")
    assert con.execute("SELECT count(*) FROM v WHERE label = 'yes'").fetchone() == (want["yes"],)
    none = con.execute("SELECT predict('m', *) FROM t WHERE false").fetchall()
    assert none == []
