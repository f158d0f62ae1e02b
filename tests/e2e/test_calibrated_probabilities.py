"""ALTER MODEL ... CALIBRATE with a method for probabilities, beside scikit-learn's own classes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from lightgbm import LGBMClassifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from xgboost import XGBClassifier

import sqlml
from sqlml.errors import ConfigError, MissingColumnError
from sqlml.session.session import Session
from tests.e2e.test_conformal import CALIBRATION, FEATURES, FRESH, fetch, make_rows

TRAIN = make_rows(300, 9)
METHODS = ("isotonic", "sigmoid", "temperature")
BINARY = {"high": "yes", "low": "no", "mid": "no"}


@pytest.fixture
def con() -> Iterator[Session]:
    with sqlml.connect() as connection:
        for name, rows in (("calibration", CALIBRATION), ("fresh", FRESH)):
            rows = rows.assign(
                two=rows.k.map(BINARY), number=rows.k.map({"low": 3, "mid": 7, "high": 9})
            )
            connection.register("frame", rows)
            connection.execute(f"CREATE TABLE {name} AS FROM frame")
        yield connection


def fetch_probabilities(con: Session, classes: np.ndarray, model: str = "m/2") -> np.ndarray:
    rows = fetch(con, f"SELECT predict_proba('{model}', *) FROM fresh ORDER BY rowid")
    return np.array([[row[0][label] for label in classes.tolist()] for row in rows])


@pytest.mark.by_day(4)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("label", ["two", "k", "number"])
@pytest.mark.parametrize(
    "estimator",
    [
        make_pipeline(StandardScaler(), LogisticRegression()),
        RandomForestClassifier(10, random_state=0),
        GaussianNB(),
        LGBMClassifier(n_estimators=10, verbose=-1),
    ],
    ids=["pipeline", "forest", "bayes", "lightgbm"],
)
def test_they_are_those_of_scikit_learn(
    con: Session, estimator: Any, label: str, method: str
) -> None:
    if (label, method) == ("number", "temperature"):
        pytest.skip("scikit-learn 1.9.1 takes integer classes for indices in temperature scaling")
    train = TRAIN.assign(
        two=TRAIN.k.map(BINARY), number=TRAIN.k.map({"low": 3, "mid": 7, "high": 9})
    )
    rows = con.sql("FROM calibration").df()
    fitted = estimator.fit(train[FEATURES], train[label])
    con.create_model("m", fitted)
    con.execute(
        f"ALTER MODEL m CALIBRATE USING (FROM calibration) OPTIONS (label = '{label}', "
        f"method = '{method}', weight = 'weight')"
    )
    expected = CalibratedClassifierCV(FrozenEstimator(fitted), method=method)
    expected.fit(rows[FEATURES], rows[label], sample_weight=rows.weight)
    np.testing.assert_allclose(
        fetch_probabilities(con, expected.classes_),
        expected.predict_proba(FRESH[FEATURES]),
        rtol=1e-4 if method == "temperature" else 1e-9,  # An iteration ends at a tolerance.
        atol=1e-12,
    )
    labels = fetch(con, "SELECT predict('m/2', *) FROM fresh ORDER BY rowid")
    assert [value for (value,) in labels] == expected.predict(FRESH[FEATURES]).tolist()


def test_boosted_trees_are_calibrated_by_their_probabilities(con: Session) -> None:
    fitted = XGBClassifier(n_estimators=10).fit(TRAIN[FEATURES], TRAIN.k == "high")
    con.create_model("m", fitted)
    con.execute("CREATE TABLE truth AS SELECT *, k = 'high' AS high FROM calibration")
    con.execute(
        "ALTER MODEL m CALIBRATE USING (SELECT a, b, high::INT AS high FROM truth) "
        "OPTIONS (label = 'high', method = 'sigmoid')"
    )
    expected = CalibratedClassifierCV(FrozenEstimator(fitted), method="sigmoid")
    expected.fit(CALIBRATION[FEATURES], (CALIBRATION.k == "high").astype(int))
    np.testing.assert_allclose(
        fetch_probabilities(con, np.array([0, 1])),
        expected.predict_proba(FRESH[FEATURES]),
        rtol=1e-6,
    )


def test_a_new_version_is_not_the_default(con: Session) -> None:
    con.create_model("m", LogisticRegression().fit(TRAIN[FEATURES], TRAIN.k))
    before = fetch(con, "SELECT predict_proba('m', *) FROM fresh")
    answer = con.execute(
        "ALTER MODEL m CALIBRATE USING (FROM calibration) "
        "OPTIONS (label = 'k', method = 'isotonic')"
    )
    assert "SET DEFAULT_VERSION = 2" in dict(answer.fetchall())["default"]
    assert fetch(con, "SELECT predict_proba('m', *) FROM fresh") == before
    con.execute("ALTER MODEL m SET DEFAULT_VERSION = 2")
    assert fetch(con, "SELECT predict_proba('m', *) FROM fresh") != before
    con.execute("ALTER MODEL m CALIBRATE USING (FROM calibration) OPTIONS (label = 'k')")
    assert len(fetch(con, "SELECT predict_set('m', *) FROM fresh")) == len(FRESH)


def test_a_model_trained_in_sql(con: Session) -> None:
    con.register("train_frame", TRAIN)
    con.execute(
        "CREATE MODEL m TRANSFORM (a * 2 AS doubled, b, k) OPTIONS (model_type = "
        "'boosted_tree_classifier', label = 'k', n_estimators = 20, split = 'random') "
        "AS SELECT a, b, k FROM train_frame"
    )
    con.execute("ALTER MODEL m CALIBRATE OPTIONS (method = 'sigmoid')")
    losses = [
        fetch(
            con, f"SELECT log_loss FROM ml_evaluate(MODEL 'm/{version}', TABLE fresh, label := 'k')"
        )
        for version in (1, 2)
    ]
    assert losses[0] != losses[1]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ("label = 'k', method = 'isotonic', by = 'region'", ConfigError, "unknown option 'by'"),
        ("label = 'nowhere', method = 'isotonic'", MissingColumnError, "no column 'nowhere'"),
        (
            "label = 'k', method = 'isotonic', weight = 'a'",
            ConfigError,
            "weights, which must be pos",
        ),
        (
            "label = 'k', method = 'beta'",
            ConfigError,
            "methods: mondrian, lac, aps, isotonic, sigm",
        ),
    ],
)
def test_bad_options(con: Session, options: str, error: type[Exception], message: str) -> None:
    con.create_model("m", LogisticRegression().fit(TRAIN[FEATURES], TRAIN.k))
    with pytest.raises(error, match=message):
        con.execute(f"ALTER MODEL m CALIBRATE USING (FROM calibration) OPTIONS ({options})")
    assert len(fetch(con, "SHOW VERSIONS IN MODEL m")) == 1


def test_models_and_rows_that_cannot_be_calibrated(con: Session) -> None:
    con.create_model("r", LinearRegression().fit(TRAIN[FEATURES], TRAIN.y))
    with pytest.raises(ConfigError, match="has no probabilities of classes"):
        con.execute(
            "ALTER MODEL r CALIBRATE USING (FROM calibration) "
            "OPTIONS (label = 'y', method = 'sigmoid')"
        )
    con.create_model("m", LogisticRegression().fit(TRAIN[FEATURES], TRAIN.k))
    with pytest.raises(ConfigError, match="no calibration row has the class 'mid'"):
        con.execute(
            "ALTER MODEL m CALIBRATE USING (FROM calibration WHERE k <> 'mid') "
            "OPTIONS (label = 'k', method = 'sigmoid')"
        )
