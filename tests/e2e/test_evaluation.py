"""`ml_evaluate`: the numbers of sklearn.metrics, for models that were imported."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from sklearn import metrics
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.preprocessing import StandardScaler

import sqlml
from sqlml import errors
from tests.support.evaluated_models import (
    FEATURES,
    FITTED,
    ROWS,
    X,
    compare,
    evaluated_models,
    one_row,
)


@pytest.fixture(scope="module")
def con() -> Iterator[sqlml.Session]:
    with evaluated_models() as con:
        yield con


def _of_two(rows: pd.DataFrame, weight: Any, positive: str = "yes") -> dict[str, float]:
    model = FITTED["answers"]
    place = list(model.classes_).index(positive)
    hat, p = model.predict(rows[FEATURES]), model.predict_proba(rows[FEATURES])
    given: dict[str, Any] = {"sample_weight": weight}
    precision, recall, f1, _ = metrics.precision_recall_fscore_support(
        rows.answer, hat, pos_label=positive, average="binary", **given
    )
    y = rows.answer == positive
    return {
        "precision": precision,
        "recall": recall,
        "f1_score": f1,
        "accuracy": metrics.accuracy_score(rows.answer, hat, **given),
        "log_loss": metrics.log_loss(rows.answer, p, labels=model.classes_, **given),
        "roc_auc": metrics.roc_auc_score(y, p[:, place], **given),
        "average_precision": metrics.average_precision_score(y, p[:, place], **given),
        "brier_score": metrics.brier_score_loss(y, p[:, place], **given),
        "rows": len(rows),
    }


def _of_several(rows: pd.DataFrame, weight: Any) -> dict[str, float]:
    model = FITTED["grades"]
    hat, p = model.predict(rows[FEATURES]), model.predict_proba(rows[FEATURES])
    given: dict[str, Any] = {"sample_weight": weight}
    precision, recall, f1, _ = metrics.precision_recall_fscore_support(
        rows.grade, hat, average="macro", zero_division=0.0, **given
    )
    return {
        "precision": precision,
        "recall": recall,
        "f1_score": f1,
        "accuracy": metrics.accuracy_score(rows.grade, hat, **given),
        "log_loss": metrics.log_loss(rows.grade, p, **given),
        "roc_auc": metrics.roc_auc_score(rows.grade, p, multi_class="ovr", **given),
        "average_precision": metrics.average_precision_score(rows.grade, p, **given),
        "brier_score": metrics.brier_score_loss(rows.grade, p, **given),
    }


def _of_numbers(y: Any, hat: Any, weight: Any) -> dict[str, float]:
    given: dict[str, Any] = {"sample_weight": weight}
    return {
        "mean_absolute_error": metrics.mean_absolute_error(y, hat, **given),
        "mean_squared_error": metrics.mean_squared_error(y, hat, **given),
        "median_absolute_error": metrics.median_absolute_error(y, hat, **given),
        "max_error": metrics.max_error(y, hat),
        "r2_score": metrics.r2_score(y, hat, **given),
        "explained_variance": metrics.explained_variance_score(y, hat, **given),
        "mean_absolute_percentage_error": metrics.mean_absolute_percentage_error(y, hat, **given),
    }


@pytest.mark.version
@pytest.mark.parametrize("weight", [None, "worth"])
def test_metrics_are_those_of_scikit_learn(con: sqlml.Session, weight: str | None) -> None:
    option = "" if weight is None else f", weight := '{weight}'"
    values = None if weight is None else ROWS[weight]
    ask = "FROM ml_evaluate(MODEL {}, TABLE shop, label := '{}'{})"
    compare(one_row(con, ask.format("answers", "answer", option)), _of_two(ROWS, values))
    compare(one_row(con, ask.format("grades", "grade", option)), _of_several(ROWS, values))
    hat = FITTED["prices"].predict(X)
    compare(
        one_row(con, ask.format("prices", "price", option)), _of_numbers(ROWS.price, hat, values)
    )


def test_groups(con: sqlml.Session) -> None:
    ask = """FROM ml_evaluate(MODEL {}, TABLE shop, label := '{}', by := 'Shop''s')
             WHERE "Shop's" = '{}'"""
    for shop in ("north", "south"):
        part = ROWS[ROWS["Shop's"] == shop]
        compare(one_row(con, ask.format("answers", "answer", shop)), _of_two(part, None))
        compare(one_row(con, ask.format("grades", "grade", shop)), _of_several(part, None))
        hat = FITTED["prices"].predict(part[FEATURES])
        found = one_row(con, ask.format("prices", "price", shop))
        compare(found, _of_numbers(part.price, hat, None))
    several = con.sql(
        "FROM ml_evaluate(MODEL answers, (SELECT *, NULL AS n FROM shop), label := 'answer', "
        "by := ['Shop''s', 'n'])"
    )
    assert several.columns[:2] == ["Shop's", "n"]
    assert sorted(row[0] for row in several.fetchall()) == ["north", "south"]


def test_a_threshold_and_the_other_class(con: sqlml.Session) -> None:
    hat = FITTED["answers"].predict_proba(X)[:, 1] >= 0.3
    y = ROWS.answer == "yes"
    found = one_row(
        con,
        "FROM ML.EVALUATE(MODEL answers, (SELECT * FROM shop), "
        "STRUCT(0.3 AS threshold, 'answer' AS label))",
    )
    assert found["recall"] == pytest.approx(metrics.recall_score(y, hat), rel=1e-12)
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(y, hat), rel=1e-12)
    ask = "FROM ml_evaluate(MODEL answers, TABLE shop, label := 'answer', class := 'no')"
    compare(one_row(con, ask), _of_two(ROWS, None, "no"))


def test_rows_without_a_label_are_counted_and_left_out(con: sqlml.Session) -> None:
    rows = "(SELECT * REPLACE (CASE WHEN a > 0.5 THEN NULL ELSE {0} END AS {0}) FROM shop)"
    part = ROWS[ROWS.a <= 0.5]
    ask = "FROM ml_evaluate(MODEL {}, {}, label := '{}')"
    found = one_row(con, ask.format("answers", rows.format("answer"), "answer"))
    compare(found, _of_two(part, None))
    assert found["null_labels"] == len(ROWS) - len(part)
    found = one_row(con, ask.format("grades", rows.format("grade"), "grade"))
    compare(found, _of_several(part, None))
    found = one_row(con, ask.format("prices", rows.format("price"), "price"))
    compare(found, _of_numbers(part.price, FITTED["prices"].predict(part[FEATURES]), None))
    assert found["null_labels"] == len(ROWS) - len(part)


def test_what_one_class_alone_does_not_define_is_null(con: sqlml.Session) -> None:
    found = one_row(
        con,
        "FROM ml_evaluate(MODEL answers, (FROM shop WHERE answer = 'yes'), label := 'answer')",
    )
    assert found["roc_auc"] is None and found["average_precision"] == 1
    assert 0 < found["recall"] == found["accuracy"] < 1 == found["precision"]
    found = one_row(
        con, "FROM ml_evaluate(MODEL grades, (FROM shop WHERE grade > 4), label := 'grade')"
    )
    assert found["roc_auc"] is None and found["log_loss"] > 0
    found = one_row(con, "FROM ml_evaluate(MODEL prices, (FROM shop LIMIT 1), label := 'price')")
    assert found["r2_score"] is None and found["mean_absolute_error"] == found["max_error"]


def test_constant_scores_and_labels(con: sqlml.Session) -> None:
    found = one_row(
        con,
        "FROM ml_evaluate(MODEL answers, (SELECT 0.1 AS a, 0.1 AS b, 0.1 AS c, answer FROM shop), "
        "label := 'answer')",
    )
    assert found["roc_auc"] == 0.5
    y = ROWS.answer == "yes"
    assert found["average_precision"] == pytest.approx(y.mean(), rel=1e-12)
    found = one_row(
        con,
        "FROM ml_evaluate(MODEL prices, (SELECT * REPLACE (2 AS price) FROM shop), "
        "label := 'price')",
    )
    hat = FITTED["prices"].predict(X)
    wanted = metrics.explained_variance_score(np.full(len(X), 2.0), hat)
    assert found["r2_score"] == 0 and found["explained_variance"] == wanted


def test_each_class_of_several(con: sqlml.Session) -> None:
    found = con.sql(
        "FROM ml_evaluate(MODEL grades, TABLE shop, label := 'grade', per_class := true) "
        "ORDER BY class NULLS FIRST"
    )
    of_all, *rows = [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]
    compare(of_all, _of_several(ROWS, None))
    hat, p = FITTED["grades"].predict(X), FITTED["grades"].predict_proba(X)
    told = metrics.precision_recall_fscore_support(ROWS.grade, hat)
    assert [row["class"] for row in rows] == [4, 5, 6]
    for k, row in enumerate(rows):
        wanted = {
            "precision": told[0][k],
            "recall": told[1][k],
            "f1_score": told[2][k],
            "rows": told[3][k],
            "roc_auc": metrics.roc_auc_score(ROWS.grade == k + 4, p[:, k]),
        }
        compare(row, wanted)


def test_several_targets(con: sqlml.Session) -> None:
    hat = FITTED["both"].predict(X)
    found = con.sql("FROM ml_evaluate(MODEL both, TABLE shop, label := ['price', 'other'])")
    rows = {r[0]: dict(zip(found.columns, r, strict=True)) for r in found.fetchall()}
    for n, name in enumerate(["price", "other"]):
        compare(rows[name], _of_numbers(ROWS[name], hat[:, n], None))
    found = con.sql(
        "FROM ml_evaluate(MODEL two, (SELECT * REPLACE (grade::VARCHAR AS grade) FROM shop), "
        "label := ['answer', 'grade'])"
    )
    rows = {r[0]: dict(zip(found.columns, r, strict=True)) for r in found.fetchall()}
    several, p = FITTED["two"].predict(X), FITTED["two"].predict_proba(X)
    for n, name in enumerate(["answer", "grade"]):
        y = ROWS[name].astype(str)
        assert rows[name]["accuracy"] == pytest.approx(metrics.accuracy_score(y, several[:, n]))
        wanted = metrics.log_loss(y, p[n], labels=FITTED["two"].classes_[n])
        assert rows[name]["log_loss"] == pytest.approx(wanted, rel=1e-12)


def test_a_model_without_probabilities_is_ranked_by_its_scores(con: sqlml.Session) -> None:
    found = one_row(
        con,
        "FROM ml_evaluate(MODEL margins, (SELECT *, answer = 'yes' AS y FROM shop), label := 'y')",
    )
    score, y = FITTED["margins"].decision_function(X), ROWS.answer == "yes"
    compare(found, {"roc_auc": metrics.roc_auc_score(y, score)})
    assert found["log_loss"] is None and found["brier_score"] is None


def test_clusters(con: sqlml.Session) -> None:
    model = FITTED["groups"]
    found = one_row(con, "FROM ml_evaluate(MODEL groups, TABLE shop)")
    compare(found, {"mean_squared_distance": (model.transform(X).min(axis=1) ** 2).mean()})
    assert found["clusters"] == 3
    for name, label in (("groups", "grade"), ("mixture", "answer")):
        found = one_row(con, f"FROM ml_evaluate(MODEL {name}, TABLE shop, label := '{label}')")
        hat = FITTED[name].predict(X)
        wanted = {
            "adjusted_rand_score": metrics.adjusted_rand_score(ROWS[label], hat),
            "homogeneity": metrics.homogeneity_score(ROWS[label], hat),
            "completeness": metrics.completeness_score(ROWS[label], hat),
            "v_measure": metrics.v_measure_score(ROWS[label], hat),
        }
        compare(found, wanted)


def test_rows_of_another_form_of_a_parameter_and_of_a_with(con: sqlml.Session) -> None:
    nested = (
        "FROM ml_evaluate(MODEL grades, (SELECT * REPLACE (predicted_label AS grade) "
        "FROM ml_predict(MODEL grades, TABLE shop)), label := 'grade')"
    )
    assert one_row(con, nested)["accuracy"] == 1
    con.execute(
        "SELECT rows FROM ml_evaluate(MODEL answers, (FROM shop WHERE a > ?), label := 'answer')",
        [0.5],
    )
    assert con.fetchall() == [(int((ROWS.a > 0.5).sum()),)]
    form = "ml_evaluate(MODEL answers, TABLE few, label := 'answer')"
    assert one_row(con, f"WITH few AS (FROM shop LIMIT 20) FROM {form}")["rows"] == 20


LABEL = "label := 'answer'"
BAD: Mapping[str, str] = {
    "ml_evaluate(MODEL answers, TABLE shop)": "name the label column",
    "ml_evaluate(MODEL answers, TABLE shop, label := 'nope')": "no column 'nope'; columns: a, b",
    "ml_evaluate(MODEL answers, TABLE shop, label := 'answe')": "did you mean 'answer'",
    "ml_evaluate(MODEL answers, TABLE shop, label := 'grade')": "model 'answers' are VARCHAR",
    "ml_evaluate(MODEL answers, TABLE shop, label := 'Shop''s')": "not a class of model 'answers'",
    "ml_evaluate(MODEL prices, TABLE shop, label := 'answer')": "predicts numbers",
    "ml_evaluate(MODEL prices, TABLE shop, label := 'price', threshold := 1)": "does not apply to",
    f"ml_evaluate(MODEL answers, (FROM shop WHERE a > 99), {LABEL})": "nothing to evaluate",
    "ml_evaluate(MODEL prices, (FROM shop WHERE a > 99), label := 'price')": "nothing to evaluate",
    f"ml_evaluate(MODEL answers, (SELECT a, answer FROM shop), {LABEL})": "needs columns 'b', 'c'",
    "ml_evaluate(MODEL both, TABLE shop, label := 'price')": "predicts 2 values per row",
    f"ml_evaluate(MODEL answers, TABLE shop, {LABEL}, class := 'x')": "no class 'x'",
    f"ml_evaluate(MODEL answers, TABLE shop, {LABEL}, per_class := true)": "has two classes",
    "ml_evaluate(MODEL answers, TABLE shop, lable := 'answer')": "did you mean label",
    f"ml_evaluate(MODEL answers, TABLE shop, {LABEL}, label := 'a')": "given twice",
    "ml_evaluate(MODEL answers, TABLE shop, label := ?)": "must be literals",
    "ml_evaluate(MODEL answers, TABLE shop, 'answer')": "takes options, as in threshold",
    f"ml_evaluate(MODEL answers, TABLE shop, {LABEL}, weight := 'answer')": "must be a number",
    f"ml_evaluate(MODEL answers, TABLE shop, {LABEL}, weight := 'a')": "NULL, infinite or below 0",
    "ml_roc_curve(MODEL prices, TABLE shop, label := 'price')": "needs a classifier",
    f"ml_roc_curve(MODEL answers, {LABEL})": "name the rows, as in ml_roc_curve",
    "ml_calibration_curve(MODEL margins, TABLE shop, label := 'answer')": "gives no probabilities",
    f"ml_lift(MODEL answers, TABLE shop, {LABEL}, bins := 0)": "whole number from 1",
    "ml_evalute(MODEL answers, TABLE shop)": "ml_evalute; did you mean ml_evaluate",
    "ML.FORECAST(MODEL answers)": "unknown function ML.FORECAST; functions: ml_predict, ",
    "ml_training_info(MODEL answers, TABLE shop)": "takes a model alone",
}


@pytest.mark.parametrize("form", BAD)
def test_one_clear_error(con: sqlml.Session, form: str) -> None:
    with pytest.raises((errors.SqlmlError, duckdb.InvalidInputException)) as caught:
        con.sql(f"FROM {form}").fetchall()
    assert BAD[form] in str(caught.value)


@pytest.mark.parametrize(
    "split",
    [
        "split = 'random', eval_fraction = 0.3, seed = 5",
        "split = 'seq', split_column = 'b', eval_fraction = 0.3",
        "split = 'custom', split_column = 'held'",
    ],
)
def test_the_rows_held_out_of_a_trained_model(con: sqlml.Session, split: str) -> None:
    con.execute(
        f"CREATE OR REPLACE MODEL trained OPTIONS (model_type = 'logistic_reg', label = 'Answer', "
        f"{split}) AS SELECT a, b, answer, hash(a, b) % 3 = 0 AS held FROM shop"
    )
    measured = one_row(con, "FROM ml_evaluate(MODEL trained)")
    again = one_row(con, "FROM ml_evaluate(MODEL trained, class := 'yes')")
    compare(again, {name: measured[name] for name in ("accuracy", "roc_auc", "log_loss", "rows")})
    matrix = con.sql("FROM ml_confusion_matrix(MODEL trained)").fetchall()
    assert sum(sum(row[1:]) for row in matrix) == measured["rows"]
    assert con.sql("FROM ml_roc_curve(MODEL trained)").fetchall()[-1][1:3] == (1, 1)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("answers", "answer"),
        ("grades", "grade"),
        ("prices", "price"),
        ("both", ["price", "other"]),
        ("two", ["answer", "grade"]),
        ("margins", "answer"),
    ],
)
def test_a_scorer_evaluates_as_sql_does(con: sqlml.Session, name: str, label: Any) -> None:
    y = ROWS[label].copy()
    if name == "margins":
        y = y == "yes"
    elif name == "two":
        y = y.astype(str)
    elif name != "both":
        y = y.astype(object)
        y[ROWS.a > 1] = None
    con.register("truth", ROWS[FEATURES + ["worth"]].join(pd.DataFrame(y), rsuffix=" y"))
    columns = [label] if isinstance(label, str) else label
    found = sqlml.compile(FITTED[name]).evaluate(X, y, sample_weight=ROWS.worth)
    listed = ", ".join(f"'{column}'" for column in columns)
    told = con.sql(
        f"FROM ml_evaluate(MODEL {name}, TABLE truth, label := [{listed}], weight := 'worth')"
    )
    rows = [dict(zip(told.columns, row, strict=True)) for row in told.fetchall()]
    for target, metrics_of_one in enumerate(found if isinstance(found, list) else [found]):
        several = len(columns) > 1
        row = next(r for r in rows if not several or r["target"] == columns[target])
        for metric, value in metrics_of_one.items():
            assert row[metric] == (None if value is None else pytest.approx(value, rel=1e-12))


def test_a_scorer_refuses_what_is_no_label() -> None:
    scorer = sqlml.compile(FITTED["answers"])
    with pytest.raises(errors.ConfigError, match="'maybe' is not a class.*'no', 'yes'"):
        scorer.evaluate(X[:2], ["yes", "maybe"])
    with pytest.raises(errors.ConfigError, match="no row has a label"):
        scorer.evaluate(X[:2], [None, None])
    with pytest.raises(errors.ConfigError, match="predicts nothing"):
        sqlml.compile(StandardScaler().fit(X)).evaluate(X, ROWS.answer)


def test_no_function_of_a_database_is_called(con: sqlml.Session) -> None:
    """Macros hide functions that are called by bare names."""
    forms = [
        "ml_evaluate(MODEL prices, TABLE shop, label := 'price', weight := 'worth')",
        "ml_evaluate(MODEL grades, TABLE shop, label := 'grade', per_class := true)",
        "ml_evaluate(MODEL groups, TABLE shop, label := 'grade')",
        "ml_confusion_matrix(MODEL grades, TABLE shop, label := 'grade')",
        "ml_roc_curve(MODEL answers, TABLE shop, label := 'answer', points := 9)",
        "ml_calibration_curve(MODEL answers, TABLE shop, label := 'answer', quantiles := true)",
        "ml_lift(MODEL answers, TABLE shop, label := 'answer')",
        "ml_describe_data(TABLE shop)",
        "ml_validate_data_drift(TABLE shop, (FROM shop WHERE a > 0))",
    ]
    before = [con.sql(f"FROM {form}").df() for form in forms]
    with sqlml.attach(con.cursor()._connection) as other:
        other.execute("CREATE SCHEMA hidden; SET search_path = 'main'")
        names = {
            *("max", "min", "floor", "sum", "fsum", "count", "avg", "ln", "abs", "least"),
            *("greatest", "list", "array_extract", "list_value", "list_position", "map_values"),
            *("row_number", "stddev_pop", "approx_quantile", "length", "struct_pack"),
        }
        for name in names:
            other.execute(f"CREATE MACRO main.{name}(x) AS 77777")
        other.execute("CREATE MACRO main.nullif(x, y) AS 3")
        try:
            for form, wanted in zip(forms, before, strict=True):
                found = other.sql(f"FROM {form}").df()
                pd.testing.assert_frame_equal(found, wanted, rtol=1e-12)
        finally:
            for name in (*names, "nullif"):
                other.execute(f"DROP MACRO main.{name}")


def test_names_of_a_with_hide_tables(con: sqlml.Session) -> None:
    form = "ml_evaluate(MODEL answers, TABLE shop, label := 'truth')"
    asked = f"WITH shop AS (SELECT * RENAME (answer AS truth) FROM main.shop) FROM {form}"
    compare(one_row(con, asked), _of_two(ROWS, None))
    with pytest.raises(errors.BindError, match="cannot determine the columns"):
        con.sql("WITH shop AS (SELECT 1 AS z) FROM ml_describe_data(TABLE shop)")


def test_columns_may_be_called_as_ours_are(con: sqlml.Session) -> None:
    rows = (
        "(SELECT *, 0 AS hat, 0 AS p, 0 AS p0, 0 AS p1, 0 AS w, 0 AS y, 0 AS g0, 0 AS k FROM shop)"
    )
    asked = f"FROM ml_evaluate(MODEL answers, {rows}, label := 'answer', by := 'g0')"
    compare(one_row(con, asked), _of_two(ROWS, None))
    with pytest.raises(errors.BindError, match="two columns 'recall'"):
        con.sql(
            "FROM ml_evaluate(MODEL answers, (SELECT *, 1 AS recall FROM shop), "
            "label := 'answer', by := 'recall')"
        )


def test_weights_of_nothing_and_of_any_scale(con: sqlml.Session) -> None:
    rows = "(SELECT *, 0 AS none, worth / 1000 AS small FROM shop WHERE worth > 0)"
    for name, label in (("answers", "answer"), ("grades", "grade"), ("prices", "price")):
        found = one_row(
            con, f"FROM ml_evaluate(MODEL {name}, {rows}, label := '{label}', weight := 'none')"
        )
        assert {v for k, v in found.items() if k not in ("rows", "max_error")} == {None, 0}
    for form in ("ml_lift", "ml_calibration_curve"):
        large, small = (
            con.sql(f"FROM {form}(MODEL answers, {rows}, label := 'answer', weight := '{w}')").df()
            for w in ("worth", "small")
        )
        assert large.bin.tolist() == small.bin.tolist() and large.bin.between(1, 10).all()
    one = con.sql(
        "FROM ml_calibration_curve(MODEL answers, TABLE shop, label := 'answer', bins := 1)"
    )
    assert len(one.fetchall()) == 1


def _model(kind: Any, weights: list[float]) -> Any:
    """A linear model with given weights of one column."""
    fitted = kind().fit([[0.0], [1.0], [2.0]], np.arange(3) if len(weights) != 1 else [0, 1, 1])
    fitted.coef_ = np.array([[w] for w in weights]) if kind is LogisticRegression else [1.0]
    fitted.intercept_ = np.zeros(len(weights)) if kind is LogisticRegression else 0.0
    return fitted


Corner = tuple[list[float], list[float], list[float]]

NUMBERS: Mapping[str, Corner] = {
    "one row": ([1], [2], [1]),
    "one row, exact": ([2], [2], [1]),
    "constant labels": ([1, 2, 3], [2, 2, 2], [1, 1, 1]),
    "constant labels, exact": ([2, 2], [2, 2], [1, 1]),
    "a label above -1": ([1, 2], [-0.5, 2], [1, 1]),
    "a label of -1": ([1, 2], [-1, 2], [1, 1]),
    "a label below -1": ([1, 2], [-3, 2], [1, 1]),
    "a prediction above -1": ([-0.5, 2], [1, 2], [1, 1]),
    "a prediction of -1": ([-1, 2], [1, 2], [1, 1]),
    "a label of 0": ([1, 2], [0, 2], [1, 1]),
    "a row without weight": ([1, 2, 9], [1, 3, 2], [1, 1, 0]),
    "no weights": ([1, 2], [1, 3], [0, 0]),
    "constant but for a row without weight": ([1, 2, 3], [2, 2, 5], [1, 1, 0]),
}
"""Name -> predictions, labels and weights."""

OF_TWO: Mapping[str, Corner] = {
    "no positives": ([-1, 1, 2], [0, 0, 0], [1, 1, 1]),
    "no positives, none predicted": ([-1, -2], [0, 0], [1, 1]),
    "no negatives": ([-1, 1], [1, 1], [1, 1]),
    "none predicted": ([-1, -2], [0, 1], [1, 1]),
    "one positive row": ([1], [1], [1]),
    "one negative row": ([-1], [0], [1]),
    "no weights": ([1, -1], [1, 0], [0, 0]),
    "positives without weight": ([1, -1, 2], [1, 0, 0], [0, 1, 1]),
    "negatives without weight": ([1, -1, 2], [1, 0, 1], [1, 0, 1]),
    "a row without weight": ([1, -1, 2, 3], [1, 0, 0, 1], [1, 1, 0, 1]),
    "equal scores": ([0, 0, 0], [0, 1, 1], [1, 1, 1]),
    "scores of 0 and 1": ([1000, -1000, 1000], [1, 0, 0], [1, 1, 1]),
}

OF_THREE: Mapping[str, Corner] = {
    "one class": ([1, 2], [0, 0], [1, 1]),
    "two of three": ([1, -1, 2], [0, 2, 0], [1, 1, 1]),
    "another predicted": ([1, 0, -1], [1, 1, 1], [1, 1, 1]),
    "a class without weight": ([1, 0, -1], [0, 1, 2], [1, 1, 0]),
    "no weights": ([1, 0], [0, 1], [0, 0]),
    "one row": ([1], [1], [1]),
}


def _defined(metric: Any, *arguments: Any, **options: Any) -> float | None:
    """What scikit-learn says; None for NaN and for an error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = float(metric(*arguments, **options))
    except (ValueError, ZeroDivisionError):
        return None
    return None if np.isnan(value) else value


def _assert_same(made: Mapping[str, Any], want: Mapping[str, float | None]) -> None:
    got, wanted = (
        {key: np.nan if values[key] is None else values[key] for key in want}
        for values in (made, want)
    )
    assert got == pytest.approx(wanted, rel=1e-9, abs=1e-12, nan_ok=True)


def _evaluated(con: sqlml.Session, model: Any, corner: Corner) -> tuple[dict[str, Any], Any]:
    """The metrics of ml_evaluate, and those of a Scorer where all rows have a weight."""
    con.create_model("corner", model, inputs=["x"], or_replace=True, verify=False)
    con.execute("CREATE OR REPLACE TABLE corners (x DOUBLE, y DOUBLE, w DOUBLE)")
    con.executemany("INSERT INTO corners VALUES (?, ?, ?)", list(zip(*corner, strict=True)))
    ask = "FROM ml_evaluate(MODEL corner, TABLE corners, label := 'y', weight := 'w')"
    x, y, w = map(np.array, corner)
    own = sqlml.compile(model, inputs=["x"]).evaluate(x[:, None], y) if w.all() else None
    return one_row(con, ask), own


@pytest.mark.by_day(3)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NUMBERS)
def test_corners_of_regressors_are_those_of_scikit_learn(con: sqlml.Session, name: str) -> None:
    found, own = _evaluated(con, _model(LinearRegression, [1.0]), NUMBERS[name])
    x, y, w = map(np.array, NUMBERS[name])
    want = {
        name: _defined(getattr(metrics, name), y, x, sample_weight=w)
        for name in (
            "mean_absolute_error mean_squared_error mean_squared_log_error r2_score "
            "median_absolute_error mean_absolute_percentage_error".split()
        )
    }
    want["explained_variance"] = _defined(metrics.explained_variance_score, y, x, sample_weight=w)
    for made in [found] if own is None else [found, own]:
        _assert_same(made, want)


@pytest.mark.by_day(3)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*OF_TWO, *(f"three: {name}" for name in OF_THREE)])
def test_corners_of_classifiers_are_those_of_scikit_learn(con: sqlml.Session, name: str) -> None:
    is_two = name in OF_TWO
    corner = OF_TWO[name] if is_two else OF_THREE[name.removeprefix("three: ")]
    model = _model(LogisticRegression, [1.0] if is_two else [1.0, 0.0, -1.0])
    found, own = _evaluated(con, model, corner)
    x, y, w = map(np.array, corner)
    rows, given = x[:, None], {"sample_weight": w}
    hat, p = model.predict(rows), model.predict_proba(rows)
    kind = {"average": "binary" if is_two else "macro", "zero_division": 0.0}
    numbers, several = {"labels": list(range(p.shape[1]))}, {"multi_class": "ovr"}
    score, true = (p[:, 1], y) if is_two else (p, np.eye(3)[y.astype(int)])
    want = {
        "accuracy": _defined(metrics.accuracy_score, y, hat, **given),
        "precision": _defined(metrics.precision_score, y, hat, **kind, **given),
        "recall": _defined(metrics.recall_score, y, hat, **kind, **given),
        "f1_score": _defined(metrics.f1_score, y, hat, **kind, **given),
        "log_loss": _defined(metrics.log_loss, y, p, **numbers, **given),
        "brier_score": _defined(metrics.brier_score_loss, y, p, **numbers, **given),
        "average_precision": _defined(metrics.average_precision_score, true, score, **given),
        "roc_auc": _defined(
            metrics.roc_auc_score, y, score, **({} if is_two else several | numbers), **given
        ),
    }
    for made in [found] if own is None else [found, own]:
        _assert_same(made, want)
    if is_two and w.any():
        ask = "FROM ml_{}(MODEL corner, TABLE corners, label := 'y', weight := 'w', points := 0)"
        roc, pr = (con.sql(ask.format(curve)).df() for curve in ("roc_curve", "pr_curve"))
        false, true, above = metrics.roc_curve(y, score, drop_intermediate=False, **given)
        np.testing.assert_allclose(roc["threshold"], above)
        np.testing.assert_allclose(roc["recall"].astype(float), true)
        np.testing.assert_allclose(roc["false_positive_rate"].astype(float), false)
        precision, recall, above = metrics.precision_recall_curve(y, score, **given)
        np.testing.assert_allclose(pr["threshold"][1:].astype(float), above[::-1])
        np.testing.assert_allclose(pr["precision"].astype(float), precision[::-1])
        np.testing.assert_allclose(pr["recall"].astype(float), recall[::-1])


def test_a_projection_is_not_evaluated_on_rows() -> None:
    with sqlml.connect() as con:
        con.execute("CREATE TABLE numbers AS SELECT i / 7 AS x, i % 5 AS y FROM range(40) AS t(i)")
        con.execute("CREATE MODEL p OPTIONS (model_type = 'pca', n_components = 1) AS FROM numbers")
        assert con.execute("SELECT rows FROM ml_evaluate(MODEL p)").fetchall() == [(40,)]
        with pytest.raises(errors.BindError, match="returns what its training measured"):
            con.execute("FROM ml_evaluate(MODEL p, TABLE numbers)")


def test_a_wish_to_stop_early_without_held_out_rows_is_noticed() -> None:
    with sqlml.connect() as con:
        answer = con.execute(
            "CREATE MODEL m OPTIONS (model_type = 'boosted_tree_regressor', label = 'y', "
            "early_stop = true, max_iterations = 2) "
            "AS SELECT i / 7 AS x, i % 5 AS y FROM range(40) AS t(i)"
        ).fetchall()
    notice = "option early_stop has no effect, because no rows are held out: set eval_fraction"
    assert ("notice", notice) in answer
