"""Metrics, curves and matrices of predictions in columns, without a model."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from sklearn import metrics

import sqlml
from sqlml.errors import BindError
from tests.support.evaluated_models import FITTED, ROWS, X, compare, evaluated_models, one_row

COLUMNS = {
    "answers": "label := 'answer', prediction := 'answer_hat', probability := 'answer_p'",
    "grades": "label := 'grade', prediction := 'grade_hat', probability := 'grade_ps'",
    "prices": "label := 'price', prediction := 'price_hat'",
}


@pytest.fixture(scope="module")
def con() -> Iterator[sqlml.Session]:
    with evaluated_models() as con:
        con.execute(
            "CREATE TABLE scored AS SELECT *, predict('answers', *) AS answer_hat, "
            "predict_proba('answers', *, class := 'yes') AS answer_p, "
            "predict_proba('answers', *) AS answer_ps, predict('grades', *) AS grade_hat, "
            "predict_proba('grades', *) AS grade_ps, predict('prices', *) AS price_hat FROM shop"
        )
        yield con


CASES = (
    ("evaluate", "answers", ""),
    ("evaluate", "answers", "threshold := 0.3"),
    ("evaluate", "answers", "weight := 'worth', by := 'Shop''s'"),
    ("evaluate", "grades", ""),
    ("evaluate", "grades", "per_class := true, weight := 'worth'"),
    ("evaluate", "prices", "by := 'Shop''s'"),
    ("evaluate", "prices", "weight := 'worth'"),
    ("confusion_matrix", "answers", "threshold := 0.4"),
    ("confusion_matrix", "grades", "weight := 'worth'"),
    ("confusion_matrix", "grades", "pairs := true"),
    ("roc_curve", "answers", "points := 0"),
    ("roc_curve", "grades", "points := 7"),
    ("roc_curve", "grades", "class := 5"),
    ("pr_curve", "answers", "points := 20"),
    ("calibration_curve", "answers", "bins := 5"),
    ("calibration_curve", "grades", "class := 6, quantiles := true"),
    ("lift", "answers", "bins := 10"),
)


@pytest.mark.version
@pytest.mark.parametrize(("function", "name", "options"), CASES)
def test_results_are_those_of_the_model(
    con: sqlml.Session, function: str, name: str, options: str
) -> None:
    label, *_ = COLUMNS[name].split(", ")
    further = f", {options}" if options else ""
    of_model = con.sql(f"FROM ml_{function}(MODEL {name}, TABLE shop, {label}{further})")
    of_table = con.sql(f"FROM ml_{function}(TABLE scored, {COLUMNS[name]}{further})")
    assert of_table.columns == of_model.columns
    expected, got = sorted(of_model.fetchall(), key=repr), sorted(of_table.fetchall(), key=repr)
    assert len(got) == len(expected) > 0
    for got_row, expected_row in zip(got, expected, strict=True):
        for value, expected_value in zip(got_row, expected_row, strict=True):
            if isinstance(expected_value, float):
                np.testing.assert_allclose(value, expected_value, rtol=1e-12, atol=1e-13)
            else:
                assert value == expected_value


def test_metrics_are_those_of_scikit_learn(con: sqlml.Session) -> None:
    p = FITTED["answers"].predict_proba(X)[:, 1]
    y = ROWS.answer == "yes"
    row = one_row(
        con, "FROM ml_evaluate(TABLE scored, label := 'answer', probability := 'answer_p')"
    )
    expected = {
        "roc_auc": metrics.roc_auc_score(y, p),
        "average_precision": metrics.average_precision_score(y, p),
        "log_loss": metrics.log_loss(y, p),
        "brier_score": metrics.brier_score_loss(y, p),
        "accuracy": metrics.accuracy_score(y, p >= 0.5),
        "f1_score": metrics.f1_score(y, p >= 0.5),
    }
    compare(row, expected)
    maps = COLUMNS["answers"].replace("answer_p'", "answer_ps'")
    compare(one_row(con, f"FROM ml_evaluate(TABLE scored, {maps})"), expected)


def test_labels_of_other_types(con: sqlml.Session) -> None:
    """Booleans and integers are classes, and other rows than those of a table are evaluated."""
    for label, prediction in (
        ("answer = 'yes'", "answer_hat = 'yes'"),
        ("(answer = 'yes')::INT", "(answer_hat = 'yes')::INT"),
        ("(answer = 'yes')::UTINYINT", "(answer_hat = 'yes')::BIGINT"),
    ):
        rows = f"(SELECT {label} AS y, {prediction} AS hat, answer_p AS p FROM scored)"
        row = one_row(
            con, f"FROM ml_evaluate({rows}, label := 'y', prediction := 'hat', probability := 'p')"
        )
        compare(
            row,
            {"roc_auc": metrics.roc_auc_score(ROWS.answer, X.a * 0 + _probability())},
        )
    calls = "(SELECT *, predict('prices', *) AS p FROM shop)"
    row = one_row(con, f"FROM ml_evaluate({calls}, label := 'price', prediction := 'p')")
    compare(row, {"r2_score": metrics.r2_score(ROWS.price, FITTED["prices"].predict(X))})
    row = one_row(
        con, "FROM ml_evaluate(TABLE scored, label := 'answer', prediction := 'answer_hat')"
    )
    assert row["roc_auc"] is None and row["accuracy"] > 0.7
    row = one_row(
        con,
        "FROM ML.EVALUATE(TABLE scored, STRUCT('answer' AS label, 'answer_hat' AS prediction, "
        "'no' AS class))",
    )
    hat = FITTED["answers"].predict(X)
    compare(row, {"recall": metrics.recall_score(ROWS.answer, hat, pos_label="no")})


def _probability() -> np.ndarray:
    return FITTED["answers"].predict_proba(X)[:, 1]


def test_new_classes_are_seen(con: sqlml.Session) -> None:
    """A plan that read the classes of a table is not used again after they changed."""
    con.execute(
        "CREATE OR REPLACE TABLE few AS SELECT 'a' AS y, 'a' AS p UNION ALL SELECT 'b', 'a'"
    )
    query = "FROM ml_confusion_matrix(TABLE few, label := 'y', prediction := 'p')"
    assert con.sql(query).columns == ["expected_label", "a", "b"]
    con.execute("INSERT INTO few VALUES ('c', 'b')")
    assert con.sql(query).columns == ["expected_label", "a", "b", "c"]
    con.execute("CREATE OR REPLACE TABLE few AS SELECT 'a' AS y, 'a' AS p")
    with pytest.raises(BindError, match=r"need two classes, and have 'a': name classes := "):
        con.sql(query)
    query = query.replace("prediction", "classes := ['a', 'b'], prediction")
    assert con.sql(query).fetchall() == [("a", 1, 0), ("b", 0, 0)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("TABLE scored", "name one label column and the column of its predictions"),
        ("TABLE scored, label := 'price'", "name the column of the predictions"),
        ("TABLE scored, label := 'prise', prediction := 'a'", "no column 'prise'; did you mean"),
        ("TABLE scored, label := 'price', prediction := 'x'", "no column 'x'"),
        ("TABLE scored, label := 'price', prediction := 'a', class := 'no'", "cast it to VARCHAR"),
        ("TABLE scored, label := 'grade', probability := 'answer_p'", "name a MAP"),
        ("TABLE scored, label := 'answer', probability := 'answer_hat'", "name a MAP"),
        ("TABLE scored, label := 'price', prediction := 'a', coverage := 0.9", "calibrated model"),
        ("TABLE scored, label := 'price', prediction := 'a', predicted := 'b'", "unknown option"),
        ("MODEL prices, TABLE scored, label := 'price', prediction := 'a'", "unknown option pred"),
        ("TABLE scored, TABLE scored, label := 'price'", "takes"),
    ],
)
def test_what_is_wrong(con: sqlml.Session, arguments: str, message: str) -> None:
    with pytest.raises(BindError, match=message):
        con.sql(f"FROM ml_evaluate({arguments})").fetchall()


def test_names_of_a_with_clause(con: sqlml.Session) -> None:
    with pytest.raises(BindError, match="write the query in the brackets"):
        con.sql(
            "WITH s AS (FROM scored) FROM ml_evaluate(TABLE s, label := 'price', prediction := 'a')"
        )
