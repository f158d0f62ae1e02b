"""Models of folds: measured and predicting as scikit-learn's with the same folds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    PredefinedSplit,
    TimeSeriesSplit,
    cross_val_predict,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import sqlml
from sqlml.errors import ConfigError, SqlmlError, UnknownModelError

ROWS = 480
SHOPS = f"""
    CREATE TABLE shops AS SELECT
        (hash(i, 1) % 100_000_007) / 50_000_000.0 - 1 AS a,
        (hash(i, 2) % 1000) / 500.0 - 1 AS b,
        ['x', 'y', 'z'][(hash(i, 3) % 3)::INTEGER + 1] AS plan,
        (hash(i, 4) % 23)::INTEGER AS shop,
        DATE '2024-01-01' + (i % 50)::INTEGER AS day,
        1.0 + hash(i, 6) % 4 AS w,
        CASE WHEN a + b / 2 + (hash(i, 5) % 1000) / 700.0 > 0.7 THEN 'yes' ELSE 'no' END AS y,
        3 * a - b + (hash(i, 5) % 1000) / 500.0 AS z
    FROM range({ROWS}) t(i)
"""
XGBOOST = "model_type = 'boosted_tree_classifier', n_estimators = 5"


@pytest.fixture(scope="module")
def con() -> Iterator[Any]:
    with sqlml.connect() as session:
        session.execute(SHOPS)
        yield session


def read_frame(con: Any, query: str) -> Any:
    return con.connection.execute(query).df()


def create(con: Any, options: str, query: str, name: str = "m") -> None:
    con.execute(f"CREATE OR REPLACE MODEL {name} OPTIONS ({options}) AS {query}")


def read_predictions(con: Any, order: str = "a, b", name: str = "m") -> Any:
    return con.sql(f"FROM ml_cross_predict(MODEL {name}) ORDER BY {order}").df()


@pytest.mark.by_day(2)
@pytest.mark.parametrize(
    "options",
    [
        "model_type = 'logistic_reg'",
        XGBOOST,
        "model_type = 'boosted_tree_classifier', library = 'lightgbm', n_estimators = 5",
        "model_type = 'random_forest_classifier', library = 'sklearn', n_estimators = 5",
    ],
)
def test_classifiers_are_measured_as_by_scikit_learn(con: Any, options: str) -> None:
    create(con, f"{options}, label = 'y', cv = 4", "SELECT a, b, plan, y FROM shops")
    rows = read_predictions(con)
    assert sorted(rows["fold"].value_counts()) == [ROWS // 4] * 4
    # The estimators of some libraries draw rows by their position.
    trained = read_frame(con, "SELECT a, b, plan, y FROM shops")
    merged = trained.merge(rows, on=["a", "b", "plan", "y"], validate="one_to_one")
    assert len(merged) == ROWS
    estimator = clone(con.estimator("m"))
    if options == XGBOOST:  # A fitted estimator has the mean of its own rows as a parameter.
        estimator.set_params(classifier__model__base_score=None)
    X, y, split = merged[["a", "b", "plan"]], merged["y"], PredefinedSplit(merged["fold"] - 1)
    scores = cross_validate(
        estimator, X, y, cv=split, scoring=["accuracy", "roc_auc", "neg_log_loss"]
    )
    metrics = con.sql("FROM ml_cross_validation(MODEL m) ORDER BY fold").df()
    assert list(metrics["rows"]) == [ROWS // 4] * 4
    assert list(metrics["training_rows"]) == [ROWS - ROWS // 4] * 4
    np.testing.assert_allclose(metrics["accuracy"], scores["test_accuracy"], rtol=1e-12)
    np.testing.assert_allclose(metrics["roc_auc"], scores["test_roc_auc"], rtol=1e-6)
    np.testing.assert_allclose(metrics["log_loss"], -scores["test_neg_log_loss"], rtol=1e-6)
    probabilities = cross_val_predict(estimator, X, y, cv=split, method="predict_proba")
    got = [[p["no"], p["yes"]] for p in merged["predicted_y_probs"].map(dict)]
    np.testing.assert_allclose(got, probabilities, rtol=1e-5, atol=1e-7)
    (row,) = con.sql(
        "SELECT accuracy, log_loss, rows, held_out FROM ml_evaluate(MODEL m)"
    ).fetchall()
    assert row[:2] == pytest.approx((metrics["accuracy"].mean(), metrics["log_loss"].mean()))
    assert row[2:] == (ROWS, True)


def test_a_fold_has_weights_of_its_own(con: Any) -> None:
    options = "model_type = 'logistic_reg', label = 'y', weight = 'w', class_weights = 'balanced'"
    create(con, f"{options}, cv = 3, cv_by = 'shop'", "SELECT a, b, y, w, shop FROM shops")
    rows = read_predictions(con)
    estimator = con.estimator("m")
    X, y = rows[["a", "b"]], rows["y"].to_numpy()
    for fold in (1, 2, 3):
        is_fold = (rows["fold"] == fold).to_numpy()
        classes, counts = np.unique(y[~is_fold], return_counts=True)
        of_class = dict(zip(classes, (~is_fold).sum() / (2 * counts), strict=True))
        weights = rows["w"][~is_fold] * [of_class[value] for value in y[~is_fold]]
        pipeline = clone(estimator.classifier)
        pipeline.fit(X[~is_fold], y[~is_fold] == "yes", model__sample_weight=weights)
        expected = pipeline.predict_proba(X[is_fold])[:, 1]
        got = [p["yes"] for p in rows["predicted_y_probs"][is_fold].map(dict)]
        np.testing.assert_allclose(got, expected, rtol=1e-4)


def test_regressions_with_folds_of_groups(con: Any) -> None:
    query = "SELECT a, b, shop, z FROM shops"
    create(con, "model_type = 'linear_reg', label = 'z', cv = 5, cv_by = 'SHOP'", query)
    rows = read_predictions(con)
    assert rows.groupby("shop")["fold"].nunique().max() == 1
    assert set(rows["fold"]) == {1, 2, 3, 4, 5}
    expected = cross_val_predict(
        clone(con.estimator("m")), rows[["a", "b"]], rows["z"], cv=PredefinedSplit(rows["fold"] - 1)
    )
    np.testing.assert_allclose(rows["predicted_z"], expected, rtol=1e-9)
    metrics = con.sql("SELECT fold, mean_squared_error FROM ml_cross_validation(MODEL m)").df()
    errors = (rows["predicted_z"] - rows["z"]) ** 2
    by_fold = errors.groupby(rows["fold"]).mean()
    np.testing.assert_allclose(metrics["mean_squared_error"], by_fold, rtol=1e-9)


@pytest.mark.by_day(3)
@pytest.mark.parametrize(
    "time",
    [
        *(
            "day",
            "day::TIMESTAMPTZ",
            "day::TIMESTAMP_NS",
            "day::VARCHAR",
            "day - DATE '2024-01-30'",
        ),
        "TIME '00:00:01' + INTERVAL 1 SECOND * (day - DATE '2024-01-01')",
        *("(day - DATE '2024-01-30')::DOUBLE / 7", "(day - DATE '2024-01-30')::DECIMAL(9, 3)"),
        "(day - DATE '2024-01-30')::HUGEINT",
    ],
)
def test_folds_of_times_are_those_of_scikit_learn(con: Any, time: str) -> None:
    query = f"SELECT a, b, z, {time} AS t FROM shops"
    create(con, "model_type = 'linear_reg', label = 'z', cv = 3, cv_time = 't'", query)
    rows = read_predictions(con)
    times = np.array(sorted(set(rows["t"])))
    assert len(times) == 50
    metrics = con.sql("FROM ml_cross_validation(MODEL m) ORDER BY fold").df()
    for fold, (before, tested) in enumerate(TimeSeriesSplit(3).split(times), 1):
        is_fold = rows["t"].isin(set(times[tested]))
        assert (is_fold == (rows["fold"] == fold).fillna(False)).all()
        is_before = rows["t"].isin(set(times[before]))
        assert metrics["training_rows"][fold - 1] == is_before.sum()
        assert metrics["rows"][fold - 1] == is_fold.sum()
        model = clone(con.estimator("m")).fit(rows[["a", "b"]][is_before], rows["z"][is_before])
        got = rows["predicted_z"][is_fold]
        np.testing.assert_allclose(got, model.predict(rows[["a", "b"]][is_fold]), rtol=1e-9)
    assert rows["predicted_z"][rows["fold"].isna()].isna().all()
    measured = con.sql("SELECT rows, held_out FROM ml_evaluate(MODEL m)").fetchall()
    assert measured == [(metrics["rows"].sum(), True)]
    assert rows["fold"].isna().sum() == rows["t"].isin(set(times[:14])).sum()


def test_a_row_stays_in_its_fold(con: Any) -> None:
    con.execute("CREATE OR REPLACE TABLE growing AS SELECT a, b, y FROM shops")
    options = "model_type = 'logistic_reg', label = 'y', cv = 5"
    create(con, options, "SELECT * FROM growing")
    before = read_predictions(con)
    metrics = con.sql("FROM ml_cross_validation(MODEL m)").fetchall()
    create(con, options, "SELECT * FROM growing ORDER BY b")
    assert (read_predictions(con)["fold"] == before["fold"]).all()
    again = con.sql("FROM ml_cross_validation(MODEL m)").fetchall()
    np.testing.assert_allclose(again, metrics, rtol=1e-3)
    con.execute("INSERT INTO growing SELECT a + 5, b, y FROM shops")
    con.execute("INSERT INTO growing VALUES (1, 1, NULL)")
    after = con.sql("FROM ml_cross_predict(MODEL m) WHERE a < 3 ORDER BY a, b").df()
    assert after[["fold", "predicted_y"]].equals(before[["fold", "predicted_y"]])
    ((rows, folds),) = con.sql(
        "SELECT count(*), count(DISTINCT fold) FROM ml_cross_predict(MODEL m) WHERE a > 3"
    ).fetchall()
    assert (rows, folds) == (ROWS, 5)


@pytest.mark.by_day(2)
@pytest.mark.parametrize("seed", [0, 7])
def test_rows_that_repeat_are_spread_over_the_folds(con: Any, seed: int) -> None:
    query = "SELECT plan, a > 0 AS c, z > 0 AS y FROM shops"
    create(con, f"{XGBOOST}, label = 'y', cv = 4, seed = {seed}", query)
    counts = con.sql(
        "SELECT fold, count(*), count(DISTINCT (plan, c)) FROM ml_cross_predict(MODEL m) GROUP BY 1"
    ).fetchall()
    assert {(rows, kinds) for _, rows, kinds in counts} == {(ROWS // 4, 6)}
    predicted = con.sql(
        "SELECT fold, avg((predicted_y = y)::DOUBLE) FROM ml_cross_predict(MODEL m) GROUP BY 1 "
        "ORDER BY 1"
    ).fetchall()
    metrics = con.sql("SELECT fold, accuracy FROM ml_cross_validation(MODEL m) ORDER BY 1")
    np.testing.assert_allclose(predicted, metrics.fetchall(), rtol=1e-12)


@pytest.mark.by_day(2)
@pytest.mark.parametrize("form", ["out_of_core = true", "out_of_core = true, split = 'random'"])
def test_rows_in_a_file(con: Any, form: str) -> None:
    options, query = f"{XGBOOST}, label = 'y', cv = 3", "SELECT a, b, plan, y FROM shops"
    create(con, f"{options}, {form}", query, "in_file")
    create(con, f"{options}, {form.replace('true', 'false')}", query)
    folds = [
        con.sql(f"FROM ml_cross_validation(MODEL {name})").fetchall() for name in ("in_file", "m")
    ]
    assert folds[0] == folds[1]


def test_a_held_out_part_is_asked_for(con: Any) -> None:
    options = f"{XGBOOST}, label = 'y', cv = 3, eval_fraction = 0.25, early_stopping_rounds = 2"
    create(con, options, "SELECT a, b, y FROM shops")
    ((rows, held_out),) = con.sql("SELECT rows, held_out FROM ml_evaluate(MODEL m)").fetchall()
    assert held_out and 0.2 * ROWS < rows < 0.3 * ROWS
    metrics = con.sql("FROM ml_cross_validation(MODEL m)").df()
    assert metrics["rows"].sum() == ROWS - rows == len(read_predictions(con))
    predicted = read_predictions(con)
    is_right = predicted["predicted_y"] == predicted["y"]
    np.testing.assert_allclose(is_right.groupby(predicted["fold"]).mean(), metrics["accuracy"])


def test_a_ranker_keeps_its_groups_together(con: Any) -> None:
    options = "model_type = 'boosted_tree_ranker', label = 'r', \"group\" = 'shop', cv = 3"
    query = "SELECT a, b, shop, (a > 0)::INTEGER + (b > 0)::INTEGER AS r FROM shops"
    create(con, f"{options}, n_estimators = 3", query)
    assert read_predictions(con).groupby("shop")["fold"].nunique().max() == 1
    assert len(con.sql("SELECT ndcg FROM ml_cross_validation(MODEL m)").fetchall()) == 3


def test_a_search_compares_means_of_the_folds(con: Any) -> None:
    options = "num_trials = 3, max_depth = hparam_candidates([1, 4]), objective = 'log_loss'"
    query = "SELECT a, b, y FROM shops"
    create(con, f"{XGBOOST}, label = 'y', cv = 3, {options}", query)
    (best,) = con.sql(
        "SELECT objective FROM ml_trial_info(MODEL m) WHERE is_best AND status = 'succeeded'"
    ).fetchall()
    folds = con.sql("SELECT avg(log_loss) FROM ml_cross_validation(MODEL m)").fetchall()
    assert best == pytest.approx(folds[0])


def test_the_query_is_read_once_and_the_final_model_has_all_rows(con: Any) -> None:
    query = "SELECT a + 0 * nextval('numbers') AS a, b, y FROM shops"
    counts = []
    for split in ("cv = 4", "split = 'none'"):
        con.execute("CREATE OR REPLACE SEQUENCE numbers")
        create(con, f"{XGBOOST}, label = 'y', {split}", query)
        counts += con.sql("SELECT nextval('numbers')").fetchall()
    assert counts[0] == counts[1]
    create(con, f"{XGBOOST}, label = 'y', cv = 4", "SELECT a, b, y FROM shops")
    create(con, f"{XGBOOST}, label = 'y', split = 'none'", "SELECT a, b, y FROM shops", "plain")
    same = "predict_proba('m', *) = predict_proba('plain', *)"
    assert con.sql(f"SELECT bool_and({same}) FROM shops").fetchall() == [(True,)]


def test_estimators_of_python(con: Any) -> None:
    estimator = make_pipeline(StandardScaler(), LogisticRegression())
    con.train("p", estimator, "SELECT a, b, shop, y FROM shops", label="y", cv=3, cv_by="shop")
    rows = read_predictions(con, name="p")
    split = PredefinedSplit(rows["fold"] - 1)
    X, y = rows[["a", "b"]], rows["y"]
    assert list(rows["predicted_y"]) == list(cross_val_predict(estimator, X, y, cv=split))
    scores = cross_validate(estimator, X, y, cv=split, scoring="accuracy")["test_score"]
    metrics = con.sql("SELECT accuracy FROM ml_cross_validation(MODEL p) ORDER BY fold").df()
    np.testing.assert_allclose(metrics["accuracy"], scores)


def test_the_folds_belong_to_the_version(con: Any, tmp_path: Path) -> None:
    create(con, "model_type = 'linear_reg', label = 'z', cv = 3", "SELECT a, b, z FROM shops", "v")
    ((_, statement),) = con.sql("SHOW CREATE MODEL v").fetchall()
    assert "cv = 3" in statement
    folds = con.sql("FROM ml_cross_validation(MODEL v)").fetchall()
    con.execute(f"DROP MODEL v; {statement}")
    assert con.sql("FROM ml_cross_validation(MODEL v)").fetchall() == folds
    con.execute("ALTER MODEL v RETRAIN")
    assert con.sql("FROM ml_cross_validation(MODEL v/2)").fetchall() == folds
    described = dict(con.sql("DESCRIBE MODEL v").fetchall())
    assert described["cross-validation: folds"] == "3 random folds of 160 rows"
    mean, deviation = described["cross-validation: r2_score"].split(" +/- ")
    ((exact_mean, exact_deviation),) = con.sql(
        "SELECT avg(r2_score), stddev(r2_score) FROM ml_cross_validation(MODEL v)"
    ).fetchall()
    assert (float(mean), float(deviation)) == pytest.approx((exact_mean, exact_deviation), rel=1e-3)
    path = tmp_path / "v.sqlml"
    con.execute(f"EXPORT MODEL v TO '{path}'")
    with sqlml.connect() as other:
        other.execute(f"CREATE MODEL v FROM '{path}'")
        assert other.sql("FROM ml_cross_validation(MODEL v)").fetchall() == folds
        with pytest.raises(SqlmlError, match="training rows of model v"):
            other.sql("FROM ml_cross_predict(MODEL v)")
    con.execute("ALTER MODEL v CALIBRATE USING (FROM shops)")
    assert con.sql("FROM ml_cross_validation(MODEL v)").fetchall() == folds
    create(con, "model_type = 'linear_reg', label = 'z'", "SELECT a, b, z FROM shops", "plain")
    for function in ("ml_cross_validation", "ml_cross_predict"):
        with pytest.raises(SqlmlError, match="not cross-validated: train it with the option cv"):
            con.sql(f"FROM {function}(MODEL plain)")


def test_predictions_of_folds_stand_anywhere(con: Any) -> None:
    query = 'SELECT a AS "A b", b, z FROM shops'
    create(con, "model_type = 'linear_reg', label = 'z', cv = 3", query, '"odd m"')
    con.execute('CREATE OR REPLACE VIEW out_of_fold AS FROM ml_cross_predict(MODEL "odd m")')
    ((rows,),) = con.sql(
        "WITH f AS (SELECT fold, predicted_z AS p FROM out_of_fold WHERE fold = $1) "
        "SELECT count(p) FROM f",
        params=[2],
    ).fetchall()
    assert rows == ROWS // 3
    con.execute("ALTER TABLE shops RENAME TO sold")
    try:
        with pytest.raises(Exception, match="shops"):
            con.sql('FROM ml_cross_predict(MODEL "odd m")').fetchall()
    finally:
        con.execute("ALTER TABLE sold RENAME TO shops")


Q = "SELECT a, b, plan, y, shop, day FROM shops"


@pytest.mark.parametrize(
    ("options", "query", "message"),
    [
        ("cv = 1", Q, "cv must be from 2 to 100 folds, not 1"),
        ("cv = 0", Q, "cv must be from 2 to 100 folds, not 0"),
        ("cv = -2", Q, "cv must be from 2 to 100 folds, not -2"),
        ("cv = 'five'", Q, "cv must be a number of folds, such as 5, not 'five'"),
        ("cv = 2.5", Q, "cv must be a number of folds"),
        ("cv = true", Q, "cv must be a number of folds"),
        ("cv_by = 'shop'", Q, "cv_by needs cv, the number of folds"),
        ("cv_time = 'day'", Q, "cv_time needs cv, the number of folds"),
        ("cv = 3, cv_by = 'shop', cv_time = 'day'", Q, "cv_by or cv_time, not both"),
        ("cv = 3, cv_by = 'shp'", Q, "option cv_by: .* no column 'shp'; did you mean 'shop'"),
        ("cv = 3, cv_by = 'y'", Q, "column 'y' cannot be label or weight"),
        ("cv = 30, cv_by = 'shop'", Q, "at least 30 groups in column 'shop', .* have 23"),
        ("cv = 50, cv_time = 'day'", Q, "at least 51 times in column 'day', .* have 50"),
        ("cv = 9", f"{Q} LIMIT 8", "9 folds need at least 9 rows, .* have 8: lower cv"),
        ("cv = 3, cv_by = 's'", "SELECT a, y, nullif(shop, 3) AS s FROM shops", "'s' is NULL in"),
        ("cv = 3, cv_time = 's'", "SELECT a, y, nullif(shop, 3) AS s FROM shops", "'s' is NULL in"),
        (
            "cv = 3, cv_time = 't'",
            "SELECT a, y, CASE WHEN b > 0 THEN 'nan'::DOUBLE ELSE b END AS t FROM shops",
            "'t' is NULL in",
        ),
        ("cv = 3, cv_time = 'l'", "SELECT a, y, [b] AS l FROM shops", "cv_time takes a column of"),
        (
            "cv = 3",
            "SELECT a, if(a = (SELECT min(a) FROM shops), 'r', y) AS y FROM shops",
            "no row outside fold . of 3 has the class 'r'",
        ),
        (
            "cv = 3, cv_time = 'b'",
            "SELECT a, b, CASE WHEN b > 0.5 THEN 'yes' ELSE 'no' END AS y FROM shops",
            "no row before fold 1 of 3 has the class 'yes'",
        ),
        (
            "cv = 2, weight = 'w', cv_time = 'day'",
            "SELECT a, y, day, (day > '2024-01-30')::INTEGER::DOUBLE AS w FROM shops",
            "all rows that the model of fold 1 of 2 is fitted to have a weight of 0",
        ),
        ("cv = 3, calibration = 'lac'", Q, "calibration needs held-out rows"),
        ("cv = 3, early_stop = true", Q, "early_stop needs held-out rows"),
        ("cv = 3, checkpoint = 'x'", Q, "checkpoint is for one fit"),
    ],
)
def test_what_no_folds_can_be_made_of(con: Any, options: str, query: str, message: str) -> None:
    with pytest.raises(SqlmlError, match=message):
        con.execute(f"CREATE MODEL bad OPTIONS ({XGBOOST}, label = 'y', {options}) AS {query}")
    assert not [name for (name, *_) in con.sql("SHOW MODELS").fetchall() if name == "bad"]


def test_further_errors(con: Any) -> None:
    with pytest.raises(SqlmlError, match="cv needs a label, and kmeans models take none"):
        create(con, "model_type = 'kmeans', cv = 3", "SELECT a, b FROM shops")
    with pytest.raises(SqlmlError, match="cv is not available with PARTITION BY"):
        con.execute(
            "CREATE MODEL bad PARTITION BY plan "
            "OPTIONS (model_type = 'linear_reg', label = 'z', cv = 3) AS FROM shops"
        )
    with pytest.raises(SqlmlError, match=re.escape("ml_standard_scaler reads all rows")):
        con.execute(
            "CREATE MODEL bad TRANSFORM (ml_standard_scaler(a) OVER () AS a, z) "
            "OPTIONS (model_type = 'linear_reg', label = 'z', cv = 3) AS FROM shops"
        )
    with pytest.raises(SqlmlError, match="rows of a group stay in one fold: leave out cv_by"):
        options = "model_type = 'boosted_tree_ranker', label = 'r', \"group\" = 'shop', cv = 3"
        create(con, f"{options}, cv_by = 'day'", "SELECT a, shop, day, 1 AS r FROM shops")
    with pytest.raises(
        SqlmlError, match="ml_cross_predict adds a column 'fold': rename the column"
    ):
        options = "model_type = 'linear_reg', label = 'z', cv = 3"
        create(con, options, "SELECT a AS fold, z FROM shops")
    with pytest.raises(SqlmlError, match=re.escape("rename the column '(fold)'")):
        create(
            con,
            "model_type = 'linear_reg', label = 'z', cv = 3",
            'SELECT a AS "(fold)", z FROM shops',
        )


def test_transform_of_single_rows(con: Any) -> None:
    con.execute(
        "CREATE OR REPLACE MODEL made TRANSFORM (a * a AS a2, b, day, z) "
        "OPTIONS (model_type = 'linear_reg', label = 'z', cv = 3) AS FROM shops"
    )
    rows = read_predictions(con, name="made")
    errors = (rows["predicted_z"] - rows["z"]) ** 2
    metrics = con.sql("FROM ml_cross_validation(MODEL made) ORDER BY fold").df()
    np.testing.assert_allclose(
        errors.groupby(rows["fold"]).mean(), metrics["mean_squared_error"], rtol=1e-9
    )


@pytest.mark.parametrize(
    "damage",
    [
        "replace(facts, '\"random\"', '\"other\"')",
        'replace(facts, \'"bounds": [\', \'"bounds": ["1", \')',
        'replace(facts, \'"seed": 0\', \'"seed": "0"\')',
        'replace(facts, \'"folds": [[320\', \'"folds": [["x"\')',
        "'[]'",
    ],
)
def test_damaged_facts_are_one_error(con: Any, damage: str) -> None:
    create(con, "model_type = 'linear_reg', label = 'z', cv = 3", "SELECT a, z FROM shops", "d")
    con.connection.execute(
        f"UPDATE sqlml.catalog_small_models SET facts = {damage} WHERE key = 'd' AND "
        "version = (SELECT max(version) FROM sqlml.catalog_small_models WHERE key = 'd')"
    )
    with pytest.raises(SqlmlError, match="cross-validation of model 'd' .*train the model again"):
        con.sql("FROM ml_cross_predict(MODEL d)")
    assert len(con.sql("SELECT predict('d', *) FROM shops").fetchall()) == ROWS
    con.execute("DROP MODEL d")


def test_models_of_folds_only_predict(con: Any) -> None:
    create(con, "model_type = 'linear_reg', label = 'z', cv = 3", "SELECT a, z FROM shops", "o")
    with pytest.raises(SqlmlError, match="names models of folds, which only predict"):
        con.execute('DESCRIBE MODEL "o/1@folds"')
    for name in ("m/1@fold", "o/9@folds", "o@folds"):
        with pytest.raises(SqlmlError):
            con.sql(f"SELECT predict('{name}', *) FROM shops")


@pytest.mark.parametrize("column", ["fold", "Predicted_y", "predicted_y_probs", "sqlml_fold_key"])
def test_columns_that_ml_cross_predict_adds(column: str) -> None:
    with sqlml.connect() as con:
        con.execute("CREATE TABLE numbers AS SELECT i / 7 AS x, i % 5 AS y FROM range(40) AS t(i)")
        with pytest.raises(ConfigError, match=f"adds a column '{column}': rename"):
            con.execute(
                "CREATE MODEL m OPTIONS (model_type = 'linear_reg', label = 'y', cv = 3) "
                f"AS SELECT x AS {column}, y FROM numbers"
            )
        with pytest.raises(UnknownModelError):
            con.execute("DESCRIBE MODEL m")
