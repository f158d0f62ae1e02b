"""CREATE MODEL .. AS SELECT: trained models equal those that their libraries make by hand."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import sqlml
from sqlml import errors
from tests.support.trained_by_hand import fitted, fitted_ranker, rows_of

TABLE = """
    CREATE TABLE people AS SELECT
        (hash(i, 1) % 70)::INTEGER AS tenure,
        ((hash(i, 2) % 10000) / 100)::FLOAT AS charges,
        ['basic', 'pro', 'max', NULL][(hash(i, 3) % 4)::INTEGER + 1] AS plan,
        hash(i, 4) % 2 = 0 AS flag,
        CASE WHEN hash(i, 5) % 10 > 0 THEN ((hash(i, 6) % 1000) / 7)::DECIMAL(9, 3) END AS gap,
        (hash(i, 7) % 60)::VARCHAR::ENUM('0', {towns}) AS town
    FROM range(900) t(i);
    CREATE TABLE customers AS SELECT *,
        CASE WHEN tenure + charges / 10 + CASE WHEN plan = 'pro' THEN 30 ELSE 0 END
            + hash(charges) % 20 > 60 THEN 'yes' ELSE 'no' END AS churned
    FROM people;
""".format(towns=", ".join(f"'{n}'" for n in range(1, 60)))


@pytest.fixture(scope="module")
def shop() -> Any:
    with sqlml.connect() as made:
        made.execute(TABLE)
        yield made


CLASSIFIERS = [
    "model_type = 'boosted_tree_classifier', library = 'xgboost', n_estimators = 30",
    "model_type = 'boosted_tree_classifier', tree_method = 'exact', encoding = 'target', eta = 1, "
    "n_estimators = 3",
    "model_type = 'boosted_tree_classifier', booster = 'gblinear', encoding = 'target', "
    "updater = 'coord_descent', n_estimators = 5",
    "model_type = 'boosted_tree_classifier', booster_type = 'DART', rate_drop = 0.5, "
    "n_estimators = 5",
    "model_type = 'boosted_tree_classifier', library = 'lightgbm', n_estimators = 30",
    "model_type = 'boosted_tree_classifier', library = 'catboost', iterations = 30",
    "model_type = 'boosted_tree_classifier', library = 'sklearn', max_iter = 5",
    "model_type = 'boosted_tree_classifier', encoding = 'target', n_estimators = 5",
    "model_type = 'random_forest_classifier', n_estimators = 5, max_depth = 6",
    "model_type = 'random_forest_classifier', library = 'xgboost', n_estimators = 5",
    "model_type = 'logistic_reg'",
    "model_type = 'logistic_reg', l2_reg = 0.5, encoding = 'one_hot'",
    "model_type = 'dnn_classifier', hidden_units = [8, 8], max_epochs = 3",
    "model_type = 'dnn_linear_combined_classifier', hidden_units = [8], max_epochs = 3",
]
REGRESSORS = [
    "model_type = 'boosted_tree_regressor', library = 'xgboost', n_estimators = 20",
    "model_type = 'boosted_tree_regressor', library = 'lightgbm', n_estimators = 20",
    "model_type = 'boosted_tree_regressor', library = 'catboost', iterations = 20",
    "model_type = 'boosted_tree_regressor', library = 'sklearn', max_iter = 5",
    "model_type = 'random_forest_regressor', n_estimators = 3, max_depth = 6",
    "model_type = 'random_forest_regressor', library = 'xgboost', n_estimators = 3",
    "model_type = 'linear_reg'",
    "model_type = 'linear_reg', l2_reg = 1",
    "model_type = 'linear_reg', l1_reg = 0.1, l2_reg = 0.1",
    "model_type = 'dnn_regressor', hidden_units = [8], max_epochs = 3",
    "model_type = 'dnn_linear_combined_regressor', hidden_units = [8], max_epochs = 3",
]


@pytest.mark.by_day(6)
@pytest.mark.parametrize("options", CLASSIFIERS)
def test_a_classifier_equals_the_librarys_own(shop: sqlml.Session, options: str) -> None:
    query = "SELECT * FROM customers"
    shop.execute(
        f"CREATE OR REPLACE MODEL m OPTIONS ({options}, label = 'churned', eval_fraction = 0.2, "
        f"seed = 7) AS {query}"
    )
    frame, y, held = rows_of(shop, query, "churned")
    model = shop.estimator("m")
    features, hand = fitted(model, frame, y, held)
    assert np.array_equal(model.predict_proba(frame), hand.predict_proba(features.transform(frame)))
    rows = shop.execute(
        f"SELECT predict('m', *), predict_proba('m', *)['yes'] FROM ({query})"
    ).fetchall()
    assert [label for label, _ in rows] == model.predict(frame).tolist()
    bound = 1e-6 if "dnn" in options else 1e-12  # torch's sums are of float32
    assert np.allclose([p for _, p in rows], model.predict_proba(frame)[:, 1], rtol=0, atol=bound)


@pytest.mark.by_day(3)
@pytest.mark.parametrize("options", REGRESSORS)
def test_a_regressor_equals_the_librarys_own(shop: sqlml.Session, options: str) -> None:
    query = "SELECT * FROM people"
    shop.execute(
        f"CREATE OR REPLACE MODEL m OPTIONS ({options}, label = 'tenure', eval_fraction = 0.2, "
        f"seed = 7) AS {query}"
    )
    frame, y, held = rows_of(shop, query, "tenure")
    model = shop.estimator("m")
    features, hand = fitted(model, frame, y.astype(float), held)
    assert np.array_equal(model.predict(frame), hand.predict(features.transform(frame)))
    ours = shop.execute(f"SELECT predict('m', *) FROM ({query})").fetchnumpy()
    bound = 1e-5 if "dnn" in options else 1e-12
    assert np.allclose(next(iter(ours.values())), model.predict(frame), rtol=bound, atol=bound)


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        ("model_type = 'kmeans', num_clusters = 3", "predict('m', *)"),
        ("model_type = 'pca', n_components = 2", "transform('m', *)"),
        ("model_type = 'isolation_forest', n_estimators = 10", "predict('m', *)"),
    ],
)
def test_what_learns_from_no_label(shop: sqlml.Session, options: str, answer: str) -> None:
    query = "SELECT * FROM people"
    shop.execute(f"CREATE OR REPLACE MODEL m OPTIONS ({options}, seed = 7) AS {query}")
    frame, y, _ = rows_of(shop, query, None)
    model = shop.estimator("m")
    hand = clone(model).fit(frame)
    known = hand.transform(frame) if "pca" in options else hand.predict(frame)
    own = model.transform(frame) if "pca" in options else model.predict(frame)
    assert np.allclose(own, known, rtol=1e-9, atol=1e-9)
    ours = np.array([row for (row,) in shop.execute(f"SELECT {answer} FROM ({query})").fetchall()])
    assert np.allclose(ours, known, rtol=1e-9, atol=1e-9)


def test_autoencoders_and_pca_predict_the_columns_they_project_to(shop: sqlml.Session) -> None:
    query = "SELECT * FROM people"
    options = "model_type = 'autoencoder', hidden_units = [8, 2, 8], max_iterations = 3"
    shop.execute(f"CREATE OR REPLACE MODEL m OPTIONS ({options}, seed = 7) AS {query}")
    model, frame = shop.estimator("m"), shop.execute(query).df()
    rows = shop.execute("FROM ML.PREDICT(MODEL m, TABLE people)").df()
    assert list(rows.columns)[-2:] == ["latent_col_1", "latent_col_2"]
    latent = model.transform(frame)
    assert np.allclose(rows[["latent_col_1", "latent_col_2"]], latent, rtol=0, atol=1e-5)
    errors_of_rows = shop.execute(f"SELECT predict_score('m', *) FROM ({query})").fetchnumpy()
    found = next(iter(errors_of_rows.values()))
    assert np.allclose(found, model.score_samples(frame), rtol=1e-4, atol=1e-6)
    metrics = shop.execute("FROM ML.EVALUATE(MODEL m)").df()
    assert metrics["mean_squared_error"][0] == pytest.approx(-found.mean(), rel=1e-4)
    shop.execute(
        f"CREATE OR REPLACE MODEL m OPTIONS (model_type = 'pca', n_components = 1) AS {query}"
    )
    rows = shop.execute("FROM ML.PREDICT(MODEL m, TABLE people)").df()
    assert np.allclose(rows["principal_component_1"], shop.estimator("m").transform(frame)[:, 0])
    with pytest.raises(errors.BindError, match="predicts nothing"):
        shop.execute("FROM ML.PREDICT(MODEL m, TABLE people, STRUCT(0.5 AS threshold))")


@pytest.mark.parametrize("library", ["xgboost", "lightgbm", "catboost", "sklearn"])
@pytest.mark.parametrize("kind", ["classifier", "regressor"])
def test_a_clone_of_the_estimator_can_be_fitted_to_a_frame(
    shop: sqlml.Session, library: str, kind: str
) -> None:
    label = "churned" if kind == "classifier" else "charges"
    shop.execute(
        f"CREATE OR REPLACE MODEL m OPTIONS (model_type = 'boosted_tree_{kind}', "
        f"label = '{label}', library = '{library}', max_iterations = 5) AS "
        "SELECT plan, town, tenure, gap, charges, churned FROM customers"
    )
    frame = shop.execute("SELECT plan, town, tenure, gap, charges, churned FROM customers").df()
    y = frame.pop(label)
    fitted_again = clone(shop.estimator("m")).fit(frame, y)
    predictions = fitted_again.predict(frame)
    assert len(predictions) == len(frame) and len(set(predictions)) > 1


@pytest.mark.parametrize("library", ["xgboost", "lightgbm", "catboost"])
def test_a_ranker_ranks_within_groups(shop: sqlml.Session, library: str) -> None:
    shop.execute(
        f"CREATE OR REPLACE MODEL m OPTIONS (model_type = 'boosted_tree_ranker', label = 'grade', "
        f"\"group\" = 'town', library = '{library}', eval_fraction = 0.2, seed = 7) AS "
        "SELECT charges, gap, town, tenure // 20 AS grade FROM people"
    )
    told = dict(shop.execute("DESCRIBE MODEL m").fetchall())
    assert told["input 1"] == "charges DOUBLE" and "ndcg=" in told["metrics"]
    frame = shop.execute("SELECT charges, gap FROM people").df()
    known = shop.estimator("m").predict(frame)
    ours = shop.execute("SELECT predict('m', *) AS p FROM people").df()["p"]
    assert np.allclose(ours, known, rtol=1e-6)
    groups = "SELECT town, hash(town, 7) >> 33 < 0.2 * 2 ** 31 FROM people GROUP BY town"
    held = sum(h for _, h in shop.execute(groups).fetchall())
    assert 0 < held < 60
    by_group = shop.execute(
        "SELECT charges, gap, tenure // 20 AS grade, dense_rank() OVER (ORDER BY town::VARCHAR) AS "
        "place, hash(town::VARCHAR, 7) >> 33 < 0.2 * 2 ** 31 AS held FROM people "
        "ORDER BY town::VARCHAR, hash(charges, gap, town::VARCHAR, grade)"
    ).df()
    features, hand = fitted_ranker(
        shop.estimator("m"),
        by_group[["charges", "gap"]],
        by_group["grade"].to_numpy(np.float64),
        by_group["place"].to_numpy(),
        by_group["held"].to_numpy(bool),
    )
    assert np.array_equal(hand.predict(features.transform(frame)), known)


LABELS: list[tuple[str, Any, str]] = [
    ("churned", "yes", "VARCHAR"),
    ("churned = 'yes'", True, "BOOLEAN"),
    ("(churned = 'yes')::TINYINT", 1, "TINYINT"),
    ("CASE churned WHEN 'yes' THEN 40 ELSE 30 END", 40, "INTEGER"),
    ("CASE churned WHEN 'yes' THEN 40 ELSE 30 END::BIGINT", 40, "BIGINT"),
    ("churned::ENUM('yes', 'no', 'other')", "yes", "ENUM('yes', 'no', 'other')"),
    (
        "CASE churned WHEN 'yes' THEN DATE '2026-02-01' ELSE DATE '2026-01-01' END",
        datetime.date(2026, 2, 1),
        "DATE",
    ),
    (
        "CASE churned WHEN 'yes' THEN TIMESTAMP '2026-02-01 10:00:00.5' ELSE '2026-01-01' END",
        datetime.datetime(2026, 2, 1, 10, 0, 0, 500_000),
        "TIMESTAMP",
    ),
    ("CASE churned WHEN 'yes' THEN 1.5 ELSE 0.5 END::DECIMAL(3, 1)", 1.5, "DECIMAL(3,1)"),
]


@pytest.mark.by_day(3)
@pytest.mark.parametrize("library", ["xgboost", "sklearn"])
@pytest.mark.parametrize(("label", "value", "sql_type"), LABELS)
def test_classes_have_the_labels_own_type(
    shop: sqlml.Session, library: str, label: str, value: Any, sql_type: str
) -> None:
    kind = "logistic_reg" if library == "sklearn" else "boosted_tree_classifier"
    rounds = "" if library == "sklearn" else ", n_estimators = 3"
    shop.execute(
        f"CREATE OR REPLACE MODEL m OPTIONS (model_type = '{kind}', library = '{library}', "
        f"label = 'y'{rounds}) AS SELECT tenure, charges, plan, {label} AS y FROM customers"
    )
    asked = (
        "SELECT predict('m', *) AS p, typeof(p), typeof(predict_proba('m', *)), "
        "predict_proba('m', *)[p] FROM customers WHERE tenure > 60 AND plan = 'pro' LIMIT 1"
    )
    ((found, kind, map_kind, share),) = shop.execute(asked).fetchall()
    assert (float(found) if sql_type.startswith("DECIMAL") else found) == value
    assert kind == sql_type and map_kind == f"MAP({sql_type}, DOUBLE)" and share > 0.5


def test_a_stored_model_predicts_in_its_type_on_a_plain_connection(tmp_path: Path) -> None:
    path = tmp_path / "shop.duckdb"
    with sqlml.connect(path) as con:
        con.execute(TABLE)
        con.execute(
            "CREATE MODEL m OPTIONS (model_type = 'boosted_tree_classifier', label = 'day', "
            "n_estimators = 3) AS SELECT tenure, charges, "
            "CASE churned WHEN 'yes' THEN DATE '2026-02-01' ELSE DATE '2026-01-01' END AS day "
            "FROM customers"
        )
        con.execute("CREATE VIEW scored AS SELECT predict('m', *) AS day FROM people")
        known = con.execute("SELECT day, count(*) FROM scored GROUP BY day ORDER BY day").fetchall()
        assert len(known) == 2 and known[0][0] == datetime.date(2026, 1, 1)
    with sqlml.connect(path) as con:
        again = con.execute("SELECT day, count(*) FROM scored GROUP BY day ORDER BY day").fetchall()
        assert again == known
        assert len(con.estimator("m").predict(con.execute("FROM people").df())) == 900
    with duckdb.connect(str(path)) as plain:  # another process's, as far as this one can tell
        plain.execute("UPDATE sqlml.catalog_estimators SET pickled = pickled || '\\x00'::BLOB")
    with sqlml.connect(path) as con:
        with pytest.raises(errors.UntrustedArtifactError, match="allow_pickle=True"):
            con.estimator("m")
    with sqlml.connect(path, allow_pickle=True) as con:
        assert len(con.estimator("m").predict(con.execute("FROM people").df())) == 900


def test_the_statement_answers_what_it_made(shop: sqlml.Session) -> None:
    told = shop.execute(
        "CREATE OR REPLACE MODEL m OPTIONS (model_type = 'boosted_tree_classifier', "
        "label = 'CHURNED', n_estimators = 5, seed = 7) AS SELECT customers.*, 1 AS one, "
        "n AS id, tenure::VARCHAR || '-' || n AS code FROM customers POSITIONAL JOIN "
        "(SELECT range AS n FROM range(900))"
    ).fetchall()
    facts = dict(told)
    assert facts["model_type"] == "boosted_tree_classifier by xgboost"
    rows, held_out = int(facts["rows"]), int(facts["held_out"])
    assert rows + held_out == 900 and 120 < held_out < 240
    assert 0.5 < float(facts["accuracy"]) <= 1 and 0.5 < float(facts["roc_auc"]) <= 1
    notices = [text for name, text in told if name == "notice"]
    assert [text.split("'")[1] for text in notices] == ["one", "id", "code"]
    assert "one value in all rows" in notices[0] and "like a key" in notices[1]
    assert "is left out" in notices[2]


def test_show_create_makes_the_same_model_again(shop: sqlml.Session) -> None:
    shop.execute(
        "CREATE OR REPLACE MODEL m OPTIONS (model_type = 'boosted_tree_classifier', "
        "label = 'churned', class_weights = [('yes', 2.0), ('no', 1)], eval_fraction = 0.25, "
        "n_estimators = 5, positive_class = 'yes', seed = 3) COMMENT 'it''s' AS "
        "SELECT * FROM customers WHERE tenure > $least AND plan <> $plan",
        {"least": 5, "plan": "it's"},
    )
    ((_, text),) = shop.execute("SHOW CREATE MODEL m").fetchall()
    assert "WHERE tenure > 5 AND plan <> 'it''s'" in text
    assert "class_weights = [['yes', 2.0], ['no', 1]]" in text and "COMMENT 'it''s'" in text
    (before,) = shop.execute(
        "SELECT program FROM sqlml.catalog_versions ORDER BY created_at DESC LIMIT 1"
    ).fetchall()
    shop.execute(text.replace("CREATE MODEL", "CREATE OR REPLACE MODEL"))
    (after,) = shop.execute(
        "SELECT program FROM sqlml.catalog_versions ORDER BY created_at DESC LIMIT 1"
    ).fetchall()
    assert before == after
    assert shop.execute("SHOW CREATE MODEL m").fetchall() == [("m", text)]


def test_explain_model_prints_the_pipeline(shop: sqlml.Session) -> None:
    shop.execute(
        "CREATE OR REPLACE MODEL m OPTIONS (model_type = 'logistic_reg', label = 'churned') AS "
        "SELECT * FROM customers"
    )
    rows = dict(shop.execute("EXPLAIN MODEL m").fetchall())
    for step in ("SimpleImputer", "StandardScaler", "OneHotEncoder", "LogisticRegression"):
        assert step in rows["pipeline"]


def test_versions_are_trained_and_dropped(shop: sqlml.Session) -> None:
    con = shop.cursor()
    options = "OPTIONS (model_type = 'logistic_reg', label = 'churned')"
    con.execute(f"CREATE OR REPLACE MODEL versions {options} AS SELECT * FROM customers")
    told = con.execute(
        f"ALTER MODEL versions ADD VERSION 7 {options} AS SELECT * FROM customers WHERE flag"
    ).fetchall()
    assert dict(told)["model_type"] == "logistic_reg by sklearn"
    found = con.execute("SHOW VERSIONS IN MODEL versions").fetchall()
    assert [row[0] for row in found] == [1, 7]
    count = "SELECT count(*) FROM sqlml.catalog_trainings WHERE key IN ('versions', 'others')"
    con.execute("ALTER MODEL versions RENAME TO others")
    assert con.execute(count).fetchall() == [(2,)]
    assert con.estimator("others/7") is not None
    con.execute("ALTER MODEL others DROP VERSION 7")
    assert con.execute(count).fetchall() == [(1,)]
    con.execute("DROP MODEL others")
    assert con.execute(count).fetchall() == [(0,)]


def test_training_is_part_of_the_users_transaction(shop: sqlml.Session) -> None:
    con = shop.cursor()
    con.execute("BEGIN")
    con.execute("CREATE TABLE fresh AS SELECT * FROM customers")
    con.execute(
        "CREATE MODEL fleeting OPTIONS (model_type = 'logistic_reg', label = 'churned') AS "
        "SELECT * FROM fresh"
    )
    assert con.execute("SELECT count(predict('fleeting', *)) FROM fresh").fetchall() == [(900,)]
    con.execute("ROLLBACK")
    with pytest.raises(errors.UnknownModelError):
        con.execute("SELECT predict('fleeting', *) FROM customers")


def test_rows_come_from_anywhere(shop: sqlml.Session, tmp_path: Path) -> None:
    con = shop.cursor()
    con.execute(f"COPY customers TO '{tmp_path}/c.parquet'")
    con.execute(f"ATTACH '{tmp_path}/other.duckdb' AS other")
    con.execute("CREATE TABLE other.main.customers AS SELECT * FROM customers")
    con.execute("CREATE OR REPLACE VIEW seen AS SELECT * FROM customers")
    frame = con.execute("SELECT * FROM customers").df()
    assert len(frame) == 900
    known: Any = None
    for source in ("customers", f"'{tmp_path}/c.parquet'", "other.main.customers", "seen", "frame"):
        con.execute(
            "CREATE OR REPLACE MODEL anywhere OPTIONS (model_type = 'logistic_reg', "
            f"label = 'churned', split = 'none') AS FROM {source}"
        )
        found = con.execute("SELECT sum(predict_proba('anywhere', *)['yes']) FROM customers")
        known = known or found.fetchall()
        assert source == "customers" or found.fetchall() == known
    con.execute("DETACH other")


def test_a_query_may_call_models(shop: sqlml.Session) -> None:
    con = shop.cursor()
    con.execute(
        "CREATE OR REPLACE MODEL first OPTIONS (model_type = 'linear_reg', label = 'tenure') AS "
        "SELECT tenure, charges, plan FROM people"
    )
    con.execute(
        "CREATE OR REPLACE MODEL second OPTIONS (model_type = 'logistic_reg', label = 'churned') "
        "AS SELECT predict('first', *) AS expected, charges, churned FROM customers"
    )
    rows = con.execute(
        "SELECT predict('second', expected, charges) FROM "
        "(SELECT predict('first', *) AS expected, charges FROM customers)"
    ).fetchall()
    assert {label for (label,) in rows} <= {"yes", "no"}


def test_estimators_of_python_are_trained(shop: sqlml.Session) -> None:
    con = shop.cursor()
    pipeline = make_pipeline(StandardScaler(), LogisticRegression())
    con.train(
        *("scaled", pipeline, "SELECT tenure, charges, churned FROM customers WHERE tenure < ?"),
        label="churned",
        parameters=[60],
        eval_fraction=0.2,
        seed=7,
        or_replace=True,
    )
    assert not hasattr(pipeline[-1], "coef_")
    query = "SELECT tenure, charges, churned FROM customers WHERE tenure < 60"
    frame, y, held = rows_of(con, query, "churned")
    hand = make_pipeline(StandardScaler(), LogisticRegression()).fit(frame[~held], y[~held])
    assert np.array_equal(con.estimator("scaled").predict_proba(frame), hand.predict_proba(frame))
    told = dict(con.execute("DESCRIBE MODEL scaled").fetchall())
    assert told["model_type"] == "Pipeline by sklearn"
    right = hand.score(frame[held], y[held])
    assert f"accuracy={right:.6g}" in told["metrics"]
    search = GridSearchCV(LogisticRegression(), {"C": [0.1, 1]}, cv=2)
    con.train("searched", search, query, label="churned", or_replace=True)
    con.train("margins", LinearSVC(), query, label="churned", or_replace=True)
    assert con.execute("SELECT count(predict('margins', *)) FROM customers").fetchall() == [(900,)]


def test_a_model_type_is_trained_from_python_with_warnings(shop: sqlml.Session) -> None:
    con = shop.cursor()
    says = "'twin' determines the label 'churned' exactly"
    with pytest.warns(errors.TrainingWarning, match=says):
        con.train(
            "leaky",
            "boosted_tree_classifier",
            "SELECT tenure, churned, churned AS twin FROM customers",
            label="churned",
            n_estimators=2,
            or_replace=True,
        )
    with pytest.raises(errors.ConfigError, match="'twin' determines the label .* leave it out"):
        con.train(
            "leaky",
            "logistic_reg",
            "SELECT tenure, churned, churned AS twin FROM customers",
            label="churned",
            leaks="error",
            or_replace=True,
        )


def test_weights_of_rows_and_classes(shop: sqlml.Session) -> None:
    con = shop.cursor()
    query = "SELECT tenure, charges, flag::INTEGER + 1 AS w, churned FROM customers"
    shop.execute(
        "CREATE OR REPLACE MODEL m OPTIONS (model_type = 'logistic_reg', label = 'churned', "
        f"weight = 'w', class_weights = [('yes', 3)], split = 'none') AS {query}"
    )
    frame = con.execute(query).df()
    y, w = frame.pop("churned").to_numpy(), frame.pop("w").to_numpy()
    model = shop.estimator("m")
    inner = model.classifier
    inner.fit(frame, (y == "yes").astype(int), model__sample_weight=w * np.where(y == "yes", 3, 1))
    assert np.array_equal(model.predict_proba(frame), inner.predict_proba(frame))


def test_a_file_of_an_older_sqlml_gets_the_tables(tmp_path: Path) -> None:
    path = tmp_path / "shop.duckdb"
    with sqlml.connect(path) as con:
        con.execute(TABLE)
        con.train("m", "logistic_reg", "SELECT tenure, churned FROM customers", label="churned")
    with duckdb.connect(str(path)) as plain:
        plain.execute("DROP TABLE sqlml.catalog_trainings; DROP TABLE sqlml.catalog_estimators")
    with sqlml.connect(path) as con:
        assert "query" not in dict(con.execute("DESCRIBE MODEL m").fetchall())
        with pytest.raises(errors.CatalogError, match="no fitted object is stored"):
            con.estimator("m")
        con.train(
            *("m", "logistic_reg", "SELECT tenure, churned FROM customers"),
            label="churned",
            or_replace=True,
        )
        assert con.estimator("m/2") is not None


def test_a_label_in_a_list_as_bigquery_writes_it(shop: sqlml.Session) -> None:
    rows = "SELECT hash(i) % 9 AS a, hash(i) % 9 > 4 AS y FROM range(200) r(i)"
    shop.execute(
        "CREATE MODEL listed OPTIONS (model_type = 'logistic_reg', input_label_cols = ['y']) AS "
        + rows
    )
    shop.train("again", "logistic_reg", rows, label=["y"])
    for name in ("listed", "again"):
        told = shop.sql(f"SELECT accuracy FROM ML.EVALUATE(MODEL {name}, ({rows}))").fetchall()
        named = f"ml_evaluate(MODEL {name}, ({rows}), label := 'y')"
        assert told == shop.sql(f"SELECT accuracy FROM {named}").fetchall()
