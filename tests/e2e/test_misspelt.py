"""A misspelt function of ours, through the session: the engine's error with a word of ours."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

import sqlml
from sqlml import errors


def refused(work: Any) -> duckdb.Error:
    with pytest.raises(duckdb.Error) as caught:
        work()
    return caught.value


@pytest.mark.parametrize(
    "query",
    [
        "SELECT predict_prob('churn', *) FROM customers",
        "SELECT predict_prob('churn', c.*) FROM customers AS c",
        "SELECT predict_prob('churn', tenure, charges, plan, region) FROM customers",
        "SELECT predict_prob('churn', *, plan := 'max') FROM customers",
        "SELECT id FROM customers WHERE predict('churn', *) = 'yes' AND predict_prob('churn', *)",
    ],
)
def test_a_misspelt_function_is_named(con: sqlml.Session, query: str) -> None:
    for run in (con.execute, con.sql, con.query, lambda q: con.executemany(q, [[]])):
        error = refused(lambda run=run: run(query))
        assert type(error) in (duckdb.BinderException, duckdb.CatalogException)
        assert str(error).endswith("sqlml: did you mean predict_proba('churn', ..)?")
    assert con.execute("SELECT 1").fetchall() == [(1,)]


def test_the_hint_comes_within_a_transaction_too(con: sqlml.Session) -> None:
    con.execute("BEGIN")
    error = refused(lambda: con.execute("SELECT predict_prob('churn', *) FROM customers"))
    assert "did you mean predict_proba" in str(error)
    con.execute("ROLLBACK")


def test_a_relation_of_ours_says_where_models_are_called(con: sqlml.Session) -> None:
    scored = con.sql("SELECT *, predict('churn', *) AS p FROM customers")
    error = refused(lambda: scored.project("predict('churn', *)"))
    assert "calls a model only in a query" in str(error)
    assert "did you mean predict_proba" in str(
        refused(lambda: scored.filter("predict_prob('churn', id) > 1"))
    )


@pytest.mark.parametrize(
    "query",
    [
        "SELECT summ(id) FROM customers",
        "SELECT nope('churn', *) FROM customers",
        "SELECT list_transform('churn', *) FROM customers",
        "SELECT predict_prob(id) FROM customers",
        "SELECT absent FROM customers",
        "SELEC 1",
    ],
)
def test_errors_of_the_engine_stay_as_they_are(con: sqlml.Session, query: str) -> None:
    own = refused(lambda: con.connection.sql(query))
    seen = refused(lambda: con.sql(query))
    assert type(seen) is type(own) and str(seen) == str(own)


def test_a_macro_of_a_near_name_is_the_users_own(con: sqlml.Session) -> None:
    con.execute("CREATE MACRO predict_prob(a, b) AS b + 1")
    assert con.execute("SELECT predict_prob('churn', 1)").fetchall() == [(2,)]
    error = refused(lambda: con.sql("SELECT predict_prob('churn', *) FROM customers"))
    assert "did you mean" not in str(error)


TRAIN = "OPTIONS (model_type = 'linear_reg', label = 'id') AS SELECT id, tenure FROM customers"


@pytest.mark.parametrize(
    ("sql", "wanted"),
    [
        ("FROM predict('churn', customers)", "FROM ml_predict(MODEL 'churn', TABLE customers)"),
        ("FROM predict(MODEL churn, TABLE customers)", "predict('churn', *) FROM customers"),
        ("FROM customers c, explain('churn', c) e", "ml_explain_predict(MODEL 'churn', TABLE c)"),
        ("FROM customers JOIN predict_proba('churn', (FROM customers)) ON true", "TABLE t"),
        ("FROM transform('churn', customers)", "SELECT *, transform('churn', *) FROM customers"),
        ('SELECT predict("churn", *) FROM customers', "predict('churn', *)"),
        ('SELECT predict("churn", id, 2) FROM customers', "in single quotes"),
        ("ALTER MODEL churn RETRAN", "did you mean RETRAIN?"),
        ("ALTER MODEL churn SET DEFUALT_VERSION = 1", "expected ADD VERSION"),
        ("RETRAN MODEL churn", "write ALTER MODEL m RETRAIN"),
        ("FROM ml_describe_data(TABLE 'custumers')", 'Did you mean "customers"'),
        (f"CREATE MODEL tutorial.m {TRAIN}", "models belong to a database, not to a schema"),
        ("SELECT predict('tutorial.m', *) FROM customers", "to a database, not to a schema"),
        ("DROP MODEL tutorial.m", "models belong to a database, not to a schema"),
        ("DROP MODEL project.tutorial.m", "a model is named by model or database.model"),
        (f'CREATE MODEL "tutorial.m" {TRAIN}', "quote the name of a database separately"),
    ],
)
def test_what_people_write_first_is_answered(con: sqlml.Session, sql: str, wanted: str) -> None:
    with pytest.raises((duckdb.Error, errors.SqlmlError)) as caught:
        con.execute(sql)
    assert wanted in str(caught.value)


def test_calls_inside_tables_stay(con: sqlml.Session) -> None:
    scored = "SELECT * FROM unnest([predict('churn', *)]) u(p)"
    assert con.execute(f"SELECT p FROM customers, LATERAL ({scored})").fetchall()
    assert con.execute("SELECT count(*) FROM ml_describe_data(TABLE 'customers')").fetchall()


def test_a_suggested_column_is_quoted(con: sqlml.Session) -> None:
    con.execute('CREATE TABLE rows AS SELECT i AS a, i % 2 AS "churned?" FROM range(50) r(i)')
    for options, wanted in (
        ("label = 'churned'", "did you mean 'churned?'?"),
        ("label = 'churned?', monotone_constraints = {'b': 1}", "features: a"),
    ):
        options = f"model_type = 'boosted_tree_classifier', {options}"
        with pytest.raises(errors.SqlmlError) as caught:
            con.execute(f"CREATE MODEL m OPTIONS ({options}) AS FROM rows")
        assert wanted in str(caught.value)
