"""`predict('churn', t)` on a plain DuckDB connection: macros that CREATE MODEL keeps current."""

from __future__ import annotations

from copy import copy
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import sqlml
from sqlml.errors import BindError, UnknownModelError
from tests.e2e.macro_checks import BARE, IS_2, rows

pytestmark = pytest.mark.version


def scanned(con: duckdb.DuckDBPyConnection, query: str) -> str:
    """The columns that the scan in the engine's plan of a query reads."""
    ((_, plan),) = rows(con, f"EXPLAIN {query}")
    return plan[plan.index("Projections:", plan.index("Table:")) :]


@pytest.mark.parametrize(
    "call, starred",
    [
        ("predict('churn', t)", "predict('churn', *)"),
        ("predict('CHURN', t)", "predict('churn', *)"),
        ("predict_proba('churn', t)", "predict_proba('churn', *)"),
        ("predict_proba('churn', t, 'yes')", "predict_proba('churn', *, class := 'yes')"),
        ("predict_proba('churn', t, class := 'no')", "predict_proba('churn', *, class := 'no')"),
        ("predict_score('churn', t)", "predict_score('churn', *)"),
        ("sqlml.predict('churn', t)", "predict('churn', *)"),
    ],
)
def test_the_same_as_in_a_session(con: Any, plain: Any, call: str, starred: str) -> None:
    want = rows(con, f"SELECT id, {starred} FROM customers t ORDER BY id")
    got = rows(plain, f"SELECT id, {call} FROM customers t ORDER BY id")
    for (number, value), (other, expected) in zip(got, want, strict=True):
        assert number == other and type(value) is type(expected)
        assert value == (expected if isinstance(value, str) else pytest.approx(expected, rel=1e-12))


def test_models_of_other_columns_and_types_beside_each_other(con: Any, plain: Any) -> None:
    """The table of `value` lacks the columns of `churn`, whose labels are no numbers."""
    con.execute(
        "CREATE TABLE bills AS SELECT charges, coalesce(tenure, 1) AS tenure FROM customers"
    )
    got = rows(plain, "SELECT predict('value', b), typeof(predict('value', b)) FROM bills b")
    want = rows(con, "SELECT predict('value', *) FROM bills")
    assert [g for g, _ in got] == pytest.approx([w for (w,) in want], rel=1e-12)
    assert {kind for _, kind in got} == {"DOUBLE"}
    assert rows(plain, "SELECT typeof(predict('churn', t)) FROM customers t LIMIT 1") == [
        ("VARCHAR",)
    ]
    assert rows(plain, "SELECT predict('value', {'charges': true, 'TENURE': 2::DECIMAL(5,1)})") == [
        (pytest.approx(rows(con, "SELECT predict('value', true, 2)")[0][0]),)
    ]
    assert rows(plain, "SELECT count(*) FROM customers t WHERE predict('churn', t) IS NULL") == [
        (0,)
    ]
    assert rows(plain, "SELECT predict('churn', t) FROM customers t LIMIT 0") == []


@pytest.mark.skipif(not IS_2, reason="1.5 makes a struct of all columns of a row")
def test_only_what_the_model_reads_is_scanned(con: Any, plain: Any) -> None:
    assert "charges" in scanned(plain, "SELECT predict('value', t) FROM customers t")
    for other in ("plan", "region", "id"):
        assert other not in scanned(plain, "SELECT predict('value', t) FROM customers t")


@pytest.mark.parametrize(
    "call, says",
    [
        ("predict('churn', {'tenure': 1, 'charges': 2, 'plan': 'pro'})", 'key "region"'),
        ("predict('chum', t)", 'key "chum"'),
        ("predict_proba('value', t)", 'key "value"'),
        ("predict('value', {'charges': '3', 'tenure': 2})", "charges of the model takes numbers"),
        (
            "predict('churn', {'tenure': 1, 'charges': 2, 'plan': 3, 'region': 'north'})",
            "plan of the model takes strings, but the column is INTEGER",
        ),
        ("predict('value', {'charges': DATE '2020-01-01', 'tenure': 2})", "column is DATE"),
        ("predict_proba('churn', t, 'maybe')", "no class maybe; its classes are 'no', 'yes'"),
    ],
)
def test_errors_name_what_is_wrong(plain: Any, call: str, says: str) -> None:
    with pytest.raises(duckdb.Error) as error:
        rows(plain, f"SELECT {call} FROM customers t")
    assert says in str(error.value)


@pytest.mark.by_day(4)
@pytest.mark.parametrize(
    "labels",
    [
        [0, 1, 2],
        [-3, 10, 2**60],
        [False, True],
        [0.0, 2.0, 10.0],
        ["0.5", "1", "1.0"],
        ["True", "false", "true"],
        ["True", "FALSE", "10"],
        ["yes", "it's", ""],
    ],
)
def test_classes_are_spelled_as_in_a_session(con: Any, plain: Any, labels: list[Any]) -> None:
    x = pd.DataFrame({"a": np.arange(40.0), "b": np.arange(40.0) % 7})
    con.execute("CREATE TABLE x AS SELECT * FROM x")
    tree = DecisionTreeClassifier(max_depth=3).fit(x, np.array(labels)[np.arange(40) % len(labels)])
    con.create_model("m", tree)
    assert rows(plain, "SELECT predict('m', x) FROM x") == rows(
        con, "SELECT predict('m', *) FROM x"
    )
    found = 0
    for value in (
        *("2", "'2'", "2.0", "'2.0'", "1", "1.0", "1e0", "'1'", "'1.0'", "0", "'0'", "-3", "1.5"),
        *("true", "false", "'True'", "'true'", "'TRUE'", "'False'", "'FALSE'", "10", "'10'", "''"),
        *("0.5", "'0.5'", ".5", "1152921504606846976", "'yes'", "'Yes'", "'it''s'", "'maybe'"),
    ):
        asked = f"SELECT predict_proba('m', *, class := {value}) FROM x"
        macro = f"SELECT predict_proba('m', x, {value}) FROM x"
        try:
            want = rows(con, asked)
        except BindError:
            with pytest.raises(duckdb.Error, match="the model has no class"):
                rows(plain, macro)
        else:
            found += 1
            assert rows(plain, macro) == want, value
    assert found >= 2


def test_transformers_texts_and_several_targets(con: Any, plain: Any, frame: pd.DataFrame) -> None:
    known = frame.dropna()
    numbers = known[["charges", "tenure"]]
    con.execute("CREATE TABLE known AS SELECT * FROM known")
    con.create_model("scaler", StandardScaler().fit(numbers))
    con.create_model("both", LinearRegression().fit(numbers, numbers.to_numpy()[:, ::-1]))
    words = make_pipeline(TfidfVectorizer(), DecisionTreeClassifier(random_state=0))
    con.create_model("words", words.fit(known.region, known.plan), inputs=["region"])
    two = DecisionTreeClassifier(max_depth=4).fit(numbers, known[["plan", "region"]])
    con.create_model("two", two)
    for function, model in [
        ("transform", "scaler"),
        ("predict", "both"),
        ("predict", "words"),
        ("predict_proba", "words"),
        ("predict", "two"),
        ("predict_proba", "two"),
    ]:
        want = rows(con, f"SELECT {function}('{model}', *) FROM known")
        assert rows(plain, f"SELECT {function}('{model}', k) FROM known k") == want


def test_the_macros_follow_the_models(con: Any, plain: Any, value_model: Any) -> None:
    ask = "SELECT predict('value', {'charges': 10, 'tenure': 1})"
    known = pd.DataFrame({"charges": [1.0, 2.0, 4.0], "tenure": [1.0, 0.0, 1.0]})
    plain.execute(f"CREATE VIEW w AS {ask}")
    before = rows(plain, ask)
    con.execute("BEGIN")
    con.create_model("value", LinearRegression().fit(known, [7.0, 7.0, 7.0]), or_replace=True)
    con.execute("ROLLBACK")
    assert rows(plain, ask) == before == rows(plain, "FROM w")
    con.create_model("value", LinearRegression().fit(known, [7.0, 7.0, 7.0]), or_replace=True)
    assert rows(plain, ask) == rows(plain, "FROM w") == [(pytest.approx(7.0),)]
    con.execute("DROP MODEL value")
    with pytest.raises(duckdb.BinderException, match="value"):
        rows(plain, ask)
    con.execute("DROP MODEL churn")
    assert rows(plain, BARE) == []
    assert rows(
        plain,
        "SELECT count(*) FROM duckdb_functions() WHERE schema_name = 'sqlml' "
        "AND (starts_with(function_name, 'score_') OR starts_with(function_name, 'choose_'))",
    ) == [(0,)]
    con.create_model("value", value_model)
    assert rows(plain, ask) == before


def test_two_open_transactions_both_reach_the_macros(
    con: Any, plain: Any, value_model: Any
) -> None:
    first, second = con.cursor(), con.cursor()
    same = copy(value_model)
    same.intercept_ = np.nextafter(value_model.intercept_, np.inf)  # but not one that is stored
    for other, name, model in ((first, "one", value_model), (second, "two", same)):
        other.execute("BEGIN")
        other.create_model(name, model)
    row = "{'charges': 10, 'tenure': 1}"
    with pytest.raises(duckdb.BinderException, match="one"):
        rows(plain, f"SELECT predict('one', {row})")
    first.execute("COMMIT")
    second.commit()
    for name in ("one", "two"):
        want = rows(con, f"SELECT predict('{name}', {row})")
        assert rows(plain, f"SELECT predict('{name}', {row})") == want


def test_a_model_of_lists_says_where_it_is_scored(con: Any, plain: Any) -> None:
    from sklearn.preprocessing import MultiLabelBinarizer

    con.create_model("tags", MultiLabelBinarizer().fit([["a", "b"], ["c"]]), inputs=["tags"])
    with pytest.raises(duckdb.Error, match="sqlml.attach"):
        rows(plain, "SELECT transform('tags', {'tags': ['a']})")


# -- a user's own functions


def test_a_users_own_function_is_never_replaced(churn: object) -> None:
    with sqlml.connect() as con, con.connection.cursor() as plain:
        plain.execute("CREATE MACRO predict(a, b) AS a || b")
        plain.create_function("transform", lambda x: x + 1, ["BIGINT"], "BIGINT")
        con.create_model("churn", churn)
        assert rows(plain, "SELECT predict('x', 'y'), transform(1)") == [("xy", 2)]
        assert rows(plain, BARE) == [("predict",), ("predict_proba",), ("predict_score",)]
        row = "{'tenure': 1, 'charges': 2, 'plan': 'pro', 'region': 'north'}"
        assert rows(plain, f"SELECT sqlml.predict('churn', {row})") == rows(
            con, f"SELECT predict('churn', {row})"
        )


def test_a_users_own_function_takes_the_place_in_a_session(con: Any, plain: Any) -> None:
    assert rows(plain, BARE) == [("predict",), ("predict_proba",), ("predict_score",)]
    con.execute("CREATE MACRO predict(a, b) AS a || b")
    assert rows(plain, "SELECT predict('x', 'y')") == [("xy",)]
    con.create_function("predict_proba", lambda x: x + 1, ["BIGINT"], "BIGINT")
    con.execute("CREATE OR REPLACE MACRO predict_score(a) AS a")
    con.execute("DROP MODEL value")
    assert rows(plain, "SELECT predict('x', 'y'), predict_proba(1), predict_score(3)") == [
        ("xy", 2, 3)
    ]
    assert rows(con, "SELECT count(predict('churn', *)) FROM customers") == [(500,)]
    assert rows(plain, "SELECT count(sqlml.predict('churn', t)) FROM customers t") == [(500,)]


def test_what_was_dropped_stays_dropped(con: Any, plain: Any) -> None:
    plain.execute("DROP MACRO predict")
    con.execute("DROP MODEL value")
    assert rows(plain, BARE) == [("predict_proba",), ("predict_score",)]
    assert rows(plain, "SELECT count(sqlml.predict('churn', t)) FROM customers t") == [(500,)]


def test_our_macros_are_not_a_users_function(con: Any) -> None:
    with pytest.raises(UnknownModelError):
        con.execute("SELECT predict('nope', 3)")
    assert rows(con, "SELECT count(predict('churn', t)) FROM customers t") == [(500,)]


# -- other processes, other databases


def test_hostile_names_are_quoted_wherever_they_go(con: Any, plain: Any) -> None:
    x = pd.DataFrame({'a"; --': [0.0, 5.0], "it's": [1.0, 1.0]})
    con.create_model('o\'hara "x"', LogisticRegression().fit(x, ["'", '"']))
    con.execute("CREATE TABLE x AS SELECT * FROM x")
    model = "'o''hara \"x\"'"
    got = rows(plain, f"SELECT predict({model}, x), predict_proba({model}, x, $$'$$) FROM x")
    assert [label for label, _ in got] == ["'", '"']
    assert [p > 0.5 for _, p in got] == [True, False]
