"""Options of BigQuery ML's functions: thresholds, standardized weights, trials, training rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import confusion_matrix
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import QuantileTransformer, StandardScaler

import sqlml
from sqlml.errors import SqlmlError

RNG = np.random.default_rng(1)
ROWS = pd.DataFrame(RNG.normal(size=(300, 3)) * [1, 20, 300] + [5, 0, 100], columns=list("abc"))
LABEL = ROWS["a"] + ROWS["b"] / 20 + RNG.normal(size=300) > 5
NUMBER = 2 * ROWS["a"] - ROWS["b"] + RNG.normal(size=300)


@pytest.fixture(scope="module")
def con() -> Iterator[sqlml.Session]:
    with sqlml.connect() as session:
        session.register("pandas_rows", ROWS.assign(y=np.where(LABEL, "yes", "no"), z=NUMBER))
        session.execute("CREATE TABLE t AS SELECT row_number() OVER () AS id, * FROM pandas_rows")
        scaled = make_pipeline(StandardScaler(), LogisticRegression())
        session.create_model("scaled", scaled.fit(ROWS, np.where(LABEL, "yes", "no")))
        session.create_model("plain", LinearRegression().fit(ROWS, NUMBER))
        ranked = make_pipeline(QuantileTransformer(n_quantiles=50), LinearRegression())
        session.create_model("ranked", ranked.fit(ROWS, NUMBER))
        session.execute(
            "CREATE MODEL line OPTIONS (model_type = 'linear_reg', label = 'z', "
            "standardize = false) AS SELECT a, b, c, z FROM t"
        )
        session.execute(
            "CREATE MODEL trees OPTIONS (model_type = 'boosted_tree_regressor', label = 'z', "
            "n_estimators = 5, learning_rate = 0.5, num_trials = 2, "
            "split = 'random', max_depth = hparam_range(2, 4)) AS SELECT a, b, c, z FROM t"
        )
        yield session


@pytest.mark.parametrize(
    "thresholds",
    [
        "[0.25, 0.5, 0.75]",
        "array[0.25, 0.5, 0.75]",
        "GENERATE_ARRAY(0.25, 0.75, 0.25)",
        "thresholds := [0.25, 0.5, 0.75]",
        "STRUCT([0.25, 0.5, 0.75] AS thresholds)",
    ],
)
def test_roc_curve_at_thresholds(con: sqlml.Session, thresholds: str) -> None:
    rows = con.execute(
        f"SELECT * FROM ML.ROC_CURVE(MODEL scaled, TABLE t, {thresholds}, label := 'y')"
    ).fetchall()
    assert [row[0] for row in rows] == [0.75, 0.5, 0.25]
    probabilities = np.array(
        con.execute("SELECT predict_proba('scaled', *)['yes'] FROM t ORDER BY id").fetchall()
    ).ravel()
    for threshold, recall, rate, *counts in rows:
        matrix = confusion_matrix(LABEL, probabilities >= threshold)
        (tn, fp), (fn, tp) = matrix.tolist()
        assert counts == [tp, fp, tn, fn]
        assert (recall, rate) == (tp / (tp + fn), fp / (fp + tn))


def test_roc_curve_at_thresholds_by_group(con: sqlml.Session) -> None:
    rows = con.execute(
        "SELECT g, threshold, true_positives + false_negatives FROM ml_roc_curve(MODEL scaled, "
        "(SELECT *, id % 2 AS g FROM t), [0.1, 0.9], label := 'y', by := 'g')"
    ).fetchall()
    assert [row[:2] for row in rows] == [(0, 0.9), (0, 0.1), (1, 0.9), (1, 0.1)]
    assert rows[0][2] + rows[2][2] == LABEL.sum()


def test_weights_in_other_units(con: sqlml.Session) -> None:
    """Weights with and without standardization are those of fits with and without it."""
    sql = "SELECT weight FROM ML.WEIGHTS(MODEL {}, STRUCT({} AS standardize))"

    def read(model: str, flag: str) -> list[float]:
        return [weight for (weight,) in con.execute(sql.format(model, flag)).fetchall()]

    weights = [w for (w,) in con.execute("SELECT weight FROM ml_weights(MODEL scaled)").fetchall()]
    np.testing.assert_allclose(read("scaled", "true"), weights, rtol=1e-12)
    raw = np.array(read("scaled", "false"))
    score = con.execute("SELECT predict_score('scaled', *) FROM t ORDER BY id").fetchall()
    np.testing.assert_allclose(ROWS.to_numpy() @ raw[1:] + raw[0], np.ravel(score), rtol=1e-9)
    plain = LinearRegression().fit(ROWS, NUMBER)
    expected = [plain.intercept_, *plain.coef_]
    assert read("plain", "false") == expected
    np.testing.assert_allclose(read("line", "false"), expected, rtol=1e-6)
    standard = LinearRegression().fit(StandardScaler().fit_transform(ROWS), NUMBER)
    np.testing.assert_allclose(
        read("line", "true"), [standard.intercept_, *standard.coef_], rtol=1e-2, atol=1e-3
    )


def test_global_explanation_of_the_training_rows(con: sqlml.Session) -> None:
    rows = con.execute("FROM ML.GLOBAL_EXPLAIN(MODEL line)").fetchall()
    assert rows == con.execute("FROM ml_global_explain(MODEL line, TABLE t)").fetchall()


def test_global_explanation_of_a_network(con: sqlml.Session) -> None:
    estimator = MLPRegressor(hidden_layer_sizes=(3,), solver="lbfgs", max_iter=20, random_state=0)
    con.train("net", estimator, "SELECT a, c, z FROM t", label="z")
    rows = con.execute("FROM ML.GLOBAL_EXPLAIN(MODEL net)").fetchall()
    call = "ml_global_explain(MODEL net, TABLE t, background := (FROM t LIMIT 100))"
    assert rows == con.execute(f"FROM {call}").fetchall()


def test_explained_rows_with_a_threshold(con: sqlml.Session) -> None:
    call = "(MODEL scaled, TABLE t, STRUCT(0.2 AS threshold)) ORDER BY id"
    labels = con.execute(f"SELECT predicted_label FROM ML.EXPLAIN_PREDICT{call}").fetchall()
    assert labels == con.execute(f"SELECT predicted_label FROM ML.PREDICT{call}").fetchall()
    assert labels != con.execute("SELECT predict('scaled', *) FROM t ORDER BY id").fetchall()


def test_training_info(con: sqlml.Session) -> None:
    rows = con.execute(
        "SELECT training_run, iteration, learning_rate, duration_ms, seconds "
        "FROM ML.TRAINING_INFO(MODEL trees)"
    ).fetchall()
    assert len(rows) == 5
    for index, (run, iteration, rate, milliseconds, seconds) in enumerate(rows, rows[0][1]):
        assert (run, iteration, rate) == (0, index, 0.5)
        assert milliseconds == round(1000 * seconds)


def test_trials(con: sqlml.Session) -> None:
    (best,) = con.execute(
        "SELECT trial_id FROM ml_trial_info(MODEL trees) WHERE is_best"
    ).fetchone()
    sql = "SELECT predicted_z FROM ML.PREDICT(MODEL trees, TABLE t, STRUCT({} AS trial_id))"
    predicted = con.execute(sql.format(best)).fetchall()
    assert predicted == con.execute("SELECT predict('trees', *) FROM t").fetchall()
    metrics = con.execute(f"FROM ml_evaluate(MODEL trees, trial_id := {best})").fetchall()
    assert metrics == con.execute("FROM ml_evaluate(MODEL trees)").fetchall()
    with pytest.raises(SqlmlError, match=f"is trial {best}, and the models of other trials"):
        con.execute(sql.format(best + 1))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("ml_roc_curve(MODEL scaled, TABLE t, [], label := 'y')", "takes a list of numbers"),
        ("ml_roc_curve(MODEL scaled, TABLE t, ['a'], label := 'y')", "takes a list of numbers"),
        (
            "ml_roc_curve(MODEL scaled, TABLE t, generate_array(0, 1, 0), label := 'y')",
            "must be literals",
        ),
        (
            "ml_roc_curve(MODEL scaled, TABLE t, [0.5], points := 2, label := 'y')",
            "either thresholds or points",
        ),
        ("ml_weights(MODEL ranked, standardize := true)", "that its weights cannot undo"),
        ("ml_weights(MODEL plain, standardize := true)", "does not record the mean and spread"),
        ("ml_explain_predict(MODEL plain, TABLE t, threshold := 0.5)", "no probabilities"),
        ("ml_predict(MODEL plain, TABLE t, trial_id := 1)", "has no trials"),
        ("ml_global_explain(MODEL plain)", "sqlml held out no rows"),
    ],
)
def test_errors(con: sqlml.Session, call: str, message: str) -> None:
    with pytest.raises(SqlmlError, match=message):
        con.execute(f"SELECT * FROM {call}")
