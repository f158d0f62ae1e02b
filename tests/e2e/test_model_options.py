"""Options of a model beside those of backends, and the OUTPUT clause."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import sqlml
from sqlml import errors
from sqlml.udfs.batch_function import BatchFunction

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "age": RNG.normal(40, 10, 300),
        "income": RNG.normal(3000, 500, 300),
        "plan": RNG.choice(["basic", "pro"], 300),
    }
)
CHURN = np.where(FRAME.age + (FRAME.plan == "pro") * 9 > 45, "yes", "no")


@pytest.fixture(scope="module")
def churn() -> Any:
    """A model that takes a missing income, and neither a missing age nor a missing plan."""
    columns = make_column_transformer(
        (StandardScaler(), ["age"]),
        (make_pipeline(SimpleImputer(), StandardScaler()), ["income"]),
        (OneHotEncoder(), ["plan"]),
    )
    return make_pipeline(columns, LogisticRegression()).fit(FRAME, CHURN)


@pytest.fixture
def con() -> Iterator[sqlml.Session]:
    with sqlml.connect() as con:
        con.execute("CREATE TABLE t AS SELECT row_number() OVER () AS id, * FROM FRAME")
        con.execute(
            "INSERT INTO t VALUES (1001, NULL, 1.0, 'pro'), (1002, 'nan', 1.0, 'pro'), "
            "(1003, 40.0, NULL, 'pro'), (1004, 40.0, 1.0, NULL)"
        )
        yield con


def holes(con: Any, query: str) -> list[Any]:
    return [row[0] for row in con.execute(query).fetchall()]


@pytest.mark.parametrize("backend", ["auto", "native", "sql"])
def test_a_row_without_a_value_that_the_model_needs_is_null(
    con: sqlml.Session, churn: Any, backend: str
) -> None:
    con.create_model("m", churn, on_null="null", backend=backend)
    want = churn.predict(FRAME).tolist()
    imputed = churn.predict(FRAME.head(1).assign(age=40.0, income=np.nan, plan="pro")).tolist()
    query = "SELECT predict('m', *) FROM t ORDER BY id"
    assert holes(con, query) == [*want, None, None, *imputed, None]
    rows = con.execute(
        "SELECT predict('m', *), predict_proba('m', *), predict_proba('m', *, class := 'yes'), "
        "predict_score('m', *) FROM t WHERE id > 1000 ORDER BY id"
    ).fetchall()
    assert [[v is None for v in row] for row in rows] == [[True] * 4, [True] * 4, [False] * 4] + [
        [True] * 4
    ]
    assert holes(con, "SELECT id FROM t WHERE predict('m', *) IS NULL ORDER BY id") == [
        *(1001, 1002, 1004)
    ]
    both = "SELECT predict('m', *) FROM t WHERE predict_proba('m', *, class := 'yes') > 0.5"
    assert set(holes(con, both)) == {"yes"}
    plan = con.plan(query)
    assert plan is not None and plan.calls[0].null_where == ("age", "plan")
    assert "NULL where missing" in str(plan)


def test_without_the_option_the_error_names_the_column(con: sqlml.Session, churn: Any) -> None:
    con.create_model("m", churn)
    with pytest.raises(errors.MissingValueError, match="'age' has NULL"):
        con.execute("SELECT predict('m', *) FROM t WHERE id < 1003").fetchall()
    con.execute("ALTER MODEL m SET OPTIONS (on_null = 'null')")
    assert holes(con, "SELECT count(predict('m', *)) FROM t") == [301]
    con.execute("ALTER MODEL m RESET OPTIONS (on_null)")
    with pytest.raises(errors.MissingValueError):
        con.execute("SELECT predict('m', *) FROM t WHERE id < 1003").fetchall()


def test_plain_connections_have_the_same_options(con: sqlml.Session, churn: Any) -> None:
    con.create_model("m", churn, on_null="null", positive_class="yes", batch_size=100)
    call = "predict('m', *), predict_proba('m', *)"
    want = con.execute(f"SELECT {call} FROM t ORDER BY id").fetchall()
    with con.connection.cursor() as plain:
        got = plain.execute(
            "SELECT predict('m', t), predict_proba('m', t) FROM t ORDER BY id"
        ).fetchall()
        other = plain.execute("SELECT predict_proba('m', t, 'no') FROM t WHERE id = 1").fetchall()
    assert [g for g, _ in got] == [w for w, _ in want]
    assert [g for _, g in got] == [w and pytest.approx(w, rel=1e-12) for _, w in want]
    assert other[0][0] == pytest.approx(1 - want[0][1])


def test_an_argument_is_evaluated_once(con: sqlml.Session) -> None:
    model = LinearRegression().fit([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], [1.0, 2.0, 3.0])
    con.create_model("m", model, inputs=["a", "b"], on_null="null")
    drawn = "CASE WHEN random() < 0.5 THEN NULL ELSE 1.0 END"
    for backend in ("auto", "native"):
        con.execute(f"SET sqlml_backend = '{backend}'")
        query = f"SELECT predict('m', a := {drawn}, b := 1.0) FROM range(1000)"
        found = holes(con, query)
        assert 400 < sum(v is None for v in found) < 600
        both = f"SELECT p FROM ({query.replace(' FROM', ' AS p FROM')}) WHERE p > 0"
        assert set(np.round(holes(con, both), 9)) == {3.0}
        nested = "age"
        for _ in range(6):
            nested = f"predict('m', a := {nested}, b := 1.0)"
        plan = con.plan(f"SELECT {nested} FROM t")
        assert plan is not None and len(plan.sql) < 7_000
        want = 40.0
        for _ in range(6):
            want = float(model.predict([[want, 1.0]])[0])
        got = holes(con, f"SELECT {nested} FROM t WHERE id = 1003")
        assert got == [pytest.approx(want)]
        assert holes(con, f"SELECT {nested} FROM t WHERE id = 1001") == [None]


def test_models_that_take_what_is_missing_stay_as_they_are(con: sqlml.Session) -> None:
    holed = FRAME[["age", "income"]].mask(RNG.random((300, 2)) < 0.2)
    forest = RandomForestClassifier(5, random_state=0).fit(holed, CHURN)
    con.create_model("m", forest, on_null="null")
    plan = con.plan("SELECT predict('m', *) FROM t")
    assert plan is not None and plan.calls[0].null_where == ()
    want = forest.predict(pd.DataFrame({"age": [np.nan], "income": [1.0]})).tolist()
    assert holes(con, "SELECT predict('m', *) FROM t WHERE id = 1001") == want


def test_a_column_that_is_not_there_is_null(con: sqlml.Session, churn: Any) -> None:
    con.create_model("m", churn)
    query = "SELECT predict('m', * EXCLUDE (income)) FROM t WHERE id < 1000 ORDER BY id"
    with pytest.raises(errors.MissingColumnError, match="income"):
        con.execute(query)
    con.execute("ALTER MODEL m SET OPTIONS (on_missing_column = 'null')")
    assert holes(con, query) == churn.predict(FRAME.assign(income=np.nan)).tolist()
    struct = "SELECT predict('m', {'age': age, 'plan': plan}) FROM t WHERE id < 1000 ORDER BY id"
    assert holes(con, struct) == holes(con, query)
    without = "SELECT predict('m', * EXCLUDE (plan)) FROM t WHERE id < 1000"
    with pytest.raises(errors.SqlmlError, match="plan"):
        con.execute(without).fetchall()
    con.execute("ALTER MODEL m SET OPTIONS (on_null = 'null')")
    assert set(holes(con, without)) == {None}


def test_the_positive_class_is_what_predict_proba_means(con: sqlml.Session, churn: Any) -> None:
    con.create_model("m", churn, positive_class="yes")
    want = churn.predict_proba(FRAME)[:, 1]
    made = con.sql("SELECT predict_proba('m', *) AS p FROM t WHERE id < 1000 ORDER BY id")
    assert [str(kind) for kind in made.types] == ["DOUBLE"]
    np.testing.assert_allclose([p for (p,) in made.fetchall()], want, rtol=1e-12)
    other = "SELECT predict_proba('m', *, class := 'no') FROM t WHERE id < 1000 ORDER BY id"
    np.testing.assert_allclose(holes(con, other), 1 - want, rtol=1e-9)
    for bad in ("maybe", 1):
        with pytest.raises(errors.ConfigError, match="has no class.*'no', 'yes'"):
            con.create_model("n", churn, positive_class=bad)
    with pytest.raises(errors.ConfigError, match="for classifiers"):
        con.create_model(
            "n", LinearRegression().fit([[0.0], [1.0]], [0, 1]), inputs=["a"], positive_class="yes"
        )


def test_batches_are_cut(con: sqlml.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    score = BatchFunction.score_matrix

    def counted(self: Any, packed: Any, *more: Any) -> Any:
        seen.append(len(packed))
        return score(self, packed, *more)

    monkeypatch.setattr(BatchFunction, "score_matrix", counted)
    con.execute("SET sqlml_route = 'arrow'")
    model = RandomForestClassifier(3, random_state=0).fit(FRAME[["age", "income"]], CHURN)
    con.create_model("m", model, backend="native", batch_size=70)
    query = "SELECT predict('m', *) FROM t WHERE id <= 300 ORDER BY id"
    assert holes(con, query) == model.predict(FRAME[["age", "income"]]).tolist()
    assert sum(seen) == 300 and max(seen) == 70
    texts = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(FRAME.plan, CHURN)
    con.create_model("words", texts, inputs=["plan"], batch_size=64)
    seen.clear()
    query = "SELECT predict('words', plan) FROM t WHERE id <= 300 ORDER BY id"
    assert holes(con, query) == texts.predict(FRAME.plan).tolist()
    assert max(seen) == 64
    con.execute("CREATE VIEW v AS SELECT predict('m', *) FROM t WHERE id = 1")
    assert (
        "_r70"
        in con.execute("SELECT sql FROM duckdb_views() WHERE view_name = 'v'").fetchall()[0][0]
    )
    assert len(holes(con, "FROM v")) == 1


def test_output_names_what_is_predicted(con: sqlml.Session, churn: Any, tmp_path: Path) -> None:
    path = tmp_path / "m.sqlml"
    con.create_model("object", churn)
    con.execute(f"EXPORT MODEL object TO '{path}'")
    con.execute(f"CREATE MODEL m OUTPUT (Churned TEXT) FROM '{path}' OPTIONS (on_null = 'null')")
    con.execute("SELECT * FROM ml_predict(MODEL m, TABLE t)")
    assert [d[0] for d in con.description] == [
        *("id", "age", "income", "plan", "predicted_Churned", "predicted_Churned_probs")
    ]
    with pytest.raises(errors.BindError, match="already have a column 'predicted_churned'"):
        con.execute("FROM ml_predict(MODEL m, (SELECT *, 1 AS predicted_churned FROM t))")
    ((_, text),) = con.execute("SHOW CREATE MODEL m").fetchall()
    assert '\nOUTPUT ("Churned" VARCHAR)\nFROM' in text
    con.execute("ALTER MODEL m RESET OPTIONS")
    con.execute("ALTER MODEL m RENAME TO n")
    assert con.execute("SHOW CREATE MODEL n").fetchall()[0][1].count("OUTPUT") == 1
    con.execute("DROP MODEL n")
    con.execute(text)
    assert con.execute("SHOW CREATE MODEL m").fetchall() == [("m", text)]
    for clause, says in (
        ("(churned BIGINT)", r"predicts VARCHAR: write OUTPUT \(churned VARCHAR\)"),
        ("(a VARCHAR, b VARCHAR)", "names one column"),
    ):
        with pytest.raises(errors.ConfigError, match=says):
            con.execute(f"CREATE MODEL n OUTPUT {clause} FROM '{path}'")
    con.create_model("scaler", StandardScaler().fit(FRAME[["age"]]))
    con.execute(f"EXPORT MODEL scaler TO '{path}'")
    with pytest.raises(errors.ConfigError, match="predicts nothing"):
        con.execute(f"CREATE MODEL n OUTPUT (x DOUBLE) FROM '{path}'")


@pytest.mark.parametrize(
    "options, says",
    [
        ({"on_null": "skip"}, "'error' or 'null'"),
        ({"on_null": None}, "'error' or 'null'"),
        ({"on_missing_column": True}, "'error' or 'null'"),
        ({"batch_size": 0}, "number of rows"),
        ({"batch_size": "many"}, "number of rows"),
        ({"batch_size": True}, "number of rows"),
        ({"positive_class": ["yes"]}, "a class of the model"),
    ],
)
def test_other_values_are_refused(con: sqlml.Session, churn: Any, options: Any, says: str) -> None:
    with pytest.raises(errors.ConfigError, match=says):
        con.create_model("m", churn, **options)
    assert con.execute("SHOW MODELS").fetchall() == []


def test_a_forged_row_reaches_no_function_s_name(con: sqlml.Session, churn: Any) -> None:
    con.create_model("m", churn, backend="native")
    forged = '{"batch_size": "1(); DROP TABLE t; --", "output": ["\\"", 1], "on_null": {"a": 1}}'
    con.connection.execute("UPDATE sqlml.catalog_versions SET options = ?", [forged])
    con.connection.execute("CREATE OR REPLACE TYPE sqlml.stamp_m AS ENUM ('forged')")
    with pytest.raises(errors.ConfigError, match="batch_size must be a number of rows"):
        con.execute("SELECT predict('m', *) FROM t")
    con.execute("SHOW CREATE MODEL m").fetchall()
    assert holes(con, "SELECT count(*) FROM t") == [304]
