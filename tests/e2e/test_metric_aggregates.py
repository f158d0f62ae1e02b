"""Metrics as aggregates in any query, beside scikit-learn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from sklearn import metrics
from sklearn.linear_model import LogisticRegression

import sqlml
from sqlml.errors import BindError
from sqlml.planner.syntax.arguments import METRICS

LIBRARY: Mapping[str, Callable[..., float]] = {
    "roc_auc": metrics.roc_auc_score,
    "average_precision": metrics.average_precision_score,
    "log_loss": metrics.log_loss,
    "brier_score": metrics.brier_score_loss,
    "rmse": metrics.root_mean_squared_error,
    "mae": metrics.mean_absolute_error,
    "r2": metrics.r2_score,
}
CURVES = ("roc_auc", "average_precision")
REGRESSION = ("rmse", "mae", "r2")


def make_rows() -> pd.DataFrame:
    draw = np.random.default_rng(4)
    rows = pd.DataFrame({"g": draw.integers(3, size=900), "w": draw.uniform(0.1, 3, 900)})
    rows["y"] = draw.random(900) < 0.3
    rows["p"] = np.clip(draw.normal(0.4 + 0.2 * rows.y, 0.25), 0, 1).round(2)  # with ties, 0 and 1
    rows["v"] = draw.normal(1e4, 3, 900)
    rows["q"] = rows.v + draw.normal(size=900)
    rows["answer"] = np.where(rows.y, "yes", "no")
    return rows


ROWS = make_rows()


@pytest.fixture(scope="module")
def con() -> Iterator[sqlml.Session]:
    with sqlml.connect() as con:
        con.register("frame", ROWS)
        con.execute("CREATE TABLE t AS FROM frame")
        con.create_model("m", LogisticRegression().fit(ROWS[["p"]], ROWS.y))
        yield con


def arguments(name: str) -> str:
    return "v, q" if name in REGRESSION else "y, p"


def compute(name: str, rows: pd.DataFrame, **options: Any) -> float:
    label, prediction = ("v", "q") if name in REGRESSION else ("y", "p")
    return LIBRARY[name](rows[label], rows[prediction], **options)


def fetch(con: sqlml.Session, sql: str, parameters: Any = None) -> Any:
    ((value,),) = con.execute(sql, parameters).fetchall()
    return value


def close(value: float) -> Any:
    return pytest.approx(value, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("name", METRICS)
def test_groups_have_the_metrics_of_the_library(con: sqlml.Session, name: str) -> None:
    call = f"{name}({arguments(name)})"
    assert fetch(con, f"SELECT {call} FROM t") == close(compute(name, ROWS))
    sql = (
        f"WITH s AS (SELECT * FROM t) SELECT g, {call} AS m, {call} FILTER (WHERE w > $1) AS f "
        f"FROM s GROUP BY ALL HAVING {call} > $2 ORDER BY {call} DESC"
    )
    found = con.execute(sql, [1.5, 0.0]).fetchall()
    assert sorted(g for g, _, _ in found) == [0, 1, 2]
    assert [m for _, m, _ in found] == sorted((m for _, m, _ in found), reverse=True)
    for g, m, f in found:
        group = ROWS[g == ROWS.g]
        assert (m, f) == (close(compute(name, group)), close(compute(name, group[group.w > 1.5])))


@pytest.mark.parametrize("name", METRICS)
def test_weights_are_sample_weights(con: sqlml.Session, name: str) -> None:
    expected = close(compute(name, ROWS, sample_weight=ROWS.w))
    assert fetch(con, f"SELECT {name}({arguments(name)}, w) FROM t") == expected
    assert fetch(con, f"SELECT {name}({arguments(name)}, weight := w) FROM t") == expected


@pytest.mark.parametrize("name", [name for name in METRICS if name not in CURVES])
def test_windows_and_frames(con: sqlml.Session, name: str) -> None:
    call = f"{name}({arguments(name)})"
    frame = "ORDER BY w ROWS BETWEEN 99 PRECEDING AND CURRENT ROW"
    rows = con.execute(
        f"SELECT g, w, {call} OVER (PARTITION BY g) AS a, {call} FILTER (WHERE y) OVER win AS b "
        f"FROM t WINDOW win AS ({frame}) ORDER BY w"
    ).df()
    ordered = ROWS.sort_values("w")
    assert rows.a.tolist() == close([compute(name, ROWS[g == ROWS.g]) for g in rows.g])
    last = ordered.tail(100)
    options = {"labels": [False, True]} if name == "log_loss" else {}
    assert rows.b.iloc[-1] == close(compute(name, last[last.y], **options))


@pytest.mark.parametrize("label", ["y", "y::INTEGER", "y::DOUBLE", "CAST(y::INTEGER AS VARCHAR)"])
def test_kinds_of_labels(con: sqlml.Session, label: str) -> None:
    assert fetch(con, f"SELECT roc_auc({label}, p) FROM t") == close(compute("roc_auc", ROWS))


@pytest.mark.parametrize("name", [name for name in METRICS if name not in REGRESSION])
def test_a_positive_class_is_named(con: sqlml.Session, name: str) -> None:
    expected = close(compute(name, ROWS))
    assert fetch(con, f"SELECT {name}(answer, p, class := 'yes') FROM t") == expected
    sql = f"SELECT {name}(answer, p, class := ?) FROM t WHERE w > ?"
    assert fetch(con, sql, ["yes", 0]) == expected
    with pytest.raises(duckdb.Error, match="name the positive class"):
        con.execute(f"SELECT {name}(answer, p) FROM t").fetchall()


def test_rows_with_null_are_skipped(con: sqlml.Session) -> None:
    for name in METRICS:
        label, prediction = arguments(name).split(", ")
        call = f"{name}({label}, {prediction})"
        sql = (
            f"SELECT {call} FROM (SELECT if(g = 0, NULL, {label}) AS {label}, "
            f"if(g = 1, NULL, {prediction}) AS {prediction} FROM t)"
        )
        assert fetch(con, sql) == close(compute(name, ROWS[ROWS.g == 2]))
        assert fetch(con, f"SELECT {call} FROM t WHERE false") is None


def test_one_class_and_few_rows(con: sqlml.Session) -> None:
    assert fetch(con, "SELECT roc_auc(y, p) FROM t WHERE y") is None
    assert fetch(con, "SELECT average_precision(y, p) FROM t WHERE y") == 1
    assert fetch(con, "SELECT average_precision(y, p) FROM t WHERE NOT y") == 0
    assert fetch(con, "SELECT r2(v, q) FROM (FROM t LIMIT 1)") is None
    assert fetch(con, "SELECT r2(1, q) FROM t") == metrics.r2_score([1.0, 1.0], [2.0, 3.0]) == 0
    assert fetch(con, "SELECT r2(1, 1) FROM t") == metrics.r2_score([1.0, 1.0], [1.0, 1.0]) == 1


def test_many_shapes_of_ties(con: sqlml.Session) -> None:
    draw = np.random.default_rng(1)
    rows = pd.DataFrame({"k": np.repeat(np.arange(200), 12), "y": draw.integers(2, size=2400)})
    rows["p"] = draw.integers(5, size=2400) * rows.k % 7 - 3.0  # Scores need not be probabilities.
    rows["w"] = draw.integers(1, 5, size=2400) / 4
    con.register("ties", rows)
    sql = (
        "SELECT k, roc_auc(y, p), average_precision(y, p), roc_auc(y, p, w), "
        "average_precision(y, p, w) FROM ties GROUP BY k"
    )
    for k, area, precision, weighted_area, weighted_precision in con.execute(sql).fetchall():
        group = rows[rows.k == k]
        both = group.y.nunique() == 2
        assert area == (close(metrics.roc_auc_score(group.y, group.p)) if both else None)
        assert precision == close(metrics.average_precision_score(group.y, group.p))
        arguments = {"y_true": group.y, "y_score": group.p, "sample_weight": group.w}
        assert weighted_area == (close(metrics.roc_auc_score(**arguments)) if both else None)
        assert weighted_precision == close(metrics.average_precision_score(**arguments))


def test_predictions_of_models_and_of_each_class(con: sqlml.Session) -> None:
    proba = LogisticRegression().fit(ROWS[["p"]], ROWS.y).predict_proba(ROWS[["p"]])
    probability = "predict_proba('m', *, class := true)"
    found = fetch(con, f"SELECT roc_auc(y, {probability}) FROM t")
    assert found == close(metrics.roc_auc_score(ROWS.y, proba[:, 1]))
    found = fetch(con, "SELECT log_loss(true, predict_proba('m', *)[y]) FROM t")
    assert found == pytest.approx(metrics.log_loss(ROWS.y, proba), rel=1e-9)


def test_views_and_column_names(tmp_path: Path) -> None:
    path = str(tmp_path / "shop.duckdb")
    with sqlml.connect(path) as con:
        con.register("frame", ROWS)
        con.execute("CREATE TABLE t AS FROM frame")
        con.execute(
            "CREATE VIEW quality AS SELECT g, roc_auc(y,  p), mae(v, q) AS e FROM t GROUP BY g"
        )
        expected = con.execute("FROM quality ORDER BY g").fetchall()
    with duckdb.connect(path) as con:  # The view needs no sqlml.
        view = con.execute("FROM quality ORDER BY g")
        assert [column[0] for column in view.description] == ["g", "roc_auc(y, p)", "e"]
        assert view.fetchall() == expected


def test_a_function_of_the_user_is_called_instead() -> None:
    with sqlml.connect() as con:
        con.execute("CREATE MACRO rmse(a, b) AS a + b")
        assert con.execute("SELECT rmse(1, 2), mae(1, 2)").fetchall() == [(3, 1)]
        con.execute("DROP MACRO rmse")
        assert fetch(con, "SELECT rmse(1, 2)") == 1
        con.execute("CREATE MACRO mae(a, b) AS TABLE SELECT a + b")
        assert fetch(con, "FROM mae(1, 2)") == 3
        assert fetch(con, "WITH r2(a) AS (SELECT 5) FROM r2") == 5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("roc_auc(y, p) OVER ()", "roc_auc takes no OVER; group by the key in a subquery"),
        ("r2(v, q, w) OVER ()", "r2 with a weight takes no OVER"),
        ("average_precision(y, p, w) OVER ()", "average_precision takes no OVER"),
        ("rmse(DISTINCT v, q)", "takes no DISTINCT"),
        ("rmse(v, q ORDER BY w)", "takes no ORDER BY"),
        ("rmse(v)", "takes a label and a prediction"),
        ("rmse(v, q, w, w)", "takes a label, a prediction and a weight"),
        ("rmse(v, q, class := 1)", "unknown option class of rmse; options: weight"),
        ("rmse(v, q, w, weight := w)", "weight is given twice"),
        ("mae(v, predict('m', nothing := 1))", "no feature 'nothing'"),
    ],
)
def test_a_call_that_cannot_be_right(con: sqlml.Session, call: str, message: str) -> None:
    with pytest.raises(BindError, match=message) as error:
        con.execute(f"SELECT {call} FROM t")
    assert error.value.offset is not None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("log_loss(y, p * 2)", "log_loss: a probability is not between 0 and 1"),
        ("brier_score(y, 'nan'::DOUBLE)", "brier_score: a probability is not between 0 and 1"),
        ("roc_auc(y, 'inf'::DOUBLE)", "roc_auc: a score is infinite or NaN"),
        ("log_loss(g, p)", "log_loss: a label is neither 0 nor 1"),
        ("mae(v, nothing)", '"nothing" not found'),
    ],
)
def test_rows_that_cannot_be_right(con: sqlml.Session, call: str, message: str) -> None:
    with pytest.raises(duckdb.Error, match=message):
        con.execute(f"SELECT {call} FROM t").fetchall()


def test_rows_that_a_filter_removes_may_be_wrong(con: sqlml.Session) -> None:
    found = fetch(con, "SELECT roc_auc(g, p) FILTER (WHERE g < 2) FROM t")
    rows = ROWS[ROWS.g < 2]
    assert found == close(metrics.roc_auc_score(rows.g, rows.p))
