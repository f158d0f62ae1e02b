"""Centroids, components, reconstruction losses and anomalies, compared with scikit-learn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import BisectingKMeans, KMeans
from sklearn.decomposition import PCA, FastICA, IncrementalPCA, TruncatedSVD
from sklearn.ensemble import IsolationForest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import mean_absolute_error, mean_squared_error
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import LocalOutlierFactor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import sqlml
from sqlml.errors import BindError, SqlmlError

RNG = np.random.default_rng(0)
ROWS = pd.DataFrame(RNG.normal(size=(200, 4)) * [1, 5, 0.1, 30], columns=list("abcd"))
ROWS["a"] += 10 * (np.arange(200) % 3)


@pytest.fixture(scope="module")
def con() -> Iterator[sqlml.Session]:
    with sqlml.connect() as session:
        session.register("pandas_rows", ROWS)
        session.execute("CREATE TABLE t AS SELECT row_number() OVER () AS id, * FROM pandas_rows")
        session.execute("CREATE TABLE u AS SELECT id, a, ['x', 'y'][1 + id % 2] AS s FROM t")
        session.create_model("line", LogisticRegression().fit(ROWS, ROWS["a"] > 5))
        session.create_model("mixture", GaussianMixture(2, random_state=0).fit(ROWS))
        session.create_model("ica", FastICA(2, random_state=0).fit(ROWS))
        yield session


def create(con: sqlml.Session, name: str, model: Any) -> Any:
    con.create_model(name, model.fit(ROWS), or_replace=True)
    return model


@pytest.mark.parametrize("model", [KMeans(3, random_state=0), BisectingKMeans(3, random_state=0)])
@pytest.mark.parametrize("scaled", [False, True])
def test_clusters(con: sqlml.Session, model: Any, scaled: bool) -> None:
    """The columns of BigQuery agree with predict and transform of scikit-learn."""
    fitted = create(con, "m", make_pipeline(StandardScaler(), model) if scaled else model)
    sql = "SELECT predicted_label, CENTROID_ID, NEAREST_CENTROIDS_DISTANCE FROM {} ORDER BY id"
    rows = con.execute(sql.format("ml_predict(MODEL m, TABLE t)")).fetchall()
    assert rows == con.execute(sql.format("ML.PREDICT(MODEL m, TABLE t)")).fetchall()
    distances = fitted.transform(ROWS)
    for (label, centroid, nearest), expected, row in zip(
        rows, fitted.predict(ROWS), distances, strict=True
    ):
        assert (label, centroid) == (expected, expected + 1)
        assert [d["CENTROID_ID"] - 1 for d in nearest] == np.argsort(row).tolist()
        np.testing.assert_allclose([d["DISTANCE"] for d in nearest], np.sort(row), rtol=1e-6)
    centres = model.cluster_centers_
    if scaled:
        centres = fitted[0].inverse_transform(centres)
    centroids = con.execute("FROM ML.CENTROIDS(MODEL m)").fetchall()
    assert [row[:2] for row in centroids] == [(k, f) for k in (1, 2, 3) for f in "abcd"]
    np.testing.assert_allclose([row[2] for row in centroids], centres.ravel(), rtol=1e-9)


def test_centroids_of_categories(con: sqlml.Session) -> None:
    con.execute(
        "CREATE OR REPLACE MODEL m OPTIONS (model_type = 'kmeans', num_clusters = 1) "
        "AS SELECT a, s FROM u"
    )
    rows = con.execute("FROM ml_centroids(MODEL m)").fetchall()
    shares = [{"category": "x", "value": 0.5}, {"category": "y", "value": 0.5}]
    assert [(k, f) for k, f, _, _ in rows] == [(1, "a"), (1, "s")]
    assert rows[0][2] == pytest.approx(ROWS["a"].mean()) and rows[0][3] is None
    assert rows[1][2] is None
    assert [d["category"] for d in rows[1][3]] == ["x", "y"]
    assert [d["value"] for d in rows[1][3]] == pytest.approx([d["value"] for d in shares])
    predicted = con.execute("SELECT DISTINCT CENTROID_ID FROM ml_predict(MODEL m, TABLE u)")
    assert predicted.fetchall() == [(1,)]
    assert con.execute(
        "SELECT count(*) FILTER (is_anomaly) FROM ml_detect_anomalies(MODEL m, TABLE u, "
        "contamination := 0.1)"
    ).fetchone() == (20,)


def test_centroids_behind_steps_without_inverse(con: sqlml.Session) -> None:
    model = make_pipeline(FunctionTransformer(np.exp), KMeans(2, random_state=0))
    con.create_model("m", model.fit(ROWS[["c"]]), or_replace=True)
    assert con.execute("SELECT numerical_value FROM ml_centroids(MODEL m)").fetchall() == [
        (None,),
        (None,),
    ]


@pytest.mark.parametrize(
    "model",
    [
        PCA(2),
        PCA(3, whiten=True),
        PCA(),
        IncrementalPCA(2),
        TruncatedSVD(2, random_state=0),
    ],
)
@pytest.mark.parametrize("scaled", [False, True])
def test_components(con: sqlml.Session, model: Any, scaled: bool) -> None:
    """Components, variances and losses equal scikit-learn's."""
    fitted = create(con, "m", make_pipeline(StandardScaler(), model) if scaled else model)
    rows = con.execute("FROM ML.PRINCIPAL_COMPONENTS(MODEL m)").fetchall()
    count = len(model.components_)
    assert [row[:2] for row in rows] == [(k, f) for k in range(count) for f in "abcd"]
    assert [row[2] for row in rows] == model.components_.ravel().tolist()
    info = con.execute("FROM ml_principal_component_info(MODEL m)").fetchall()
    ratios = model.explained_variance_ratio_
    expected = zip(range(count), model.explained_variance_, ratios, np.cumsum(ratios), strict=True)
    assert info == list(expected)
    x = StandardScaler().fit_transform(ROWS) if scaled else ROWS.to_numpy()
    restored = model.inverse_transform(fitted.transform(ROWS))
    sql = "SELECT * FROM ML.RECONSTRUCTION_LOSS(MODEL m, TABLE t) ORDER BY id"
    losses = con.execute(sql).fetchall()
    np.testing.assert_allclose(
        [row[0] for row in losses],
        mean_absolute_error(x.T, restored.T, multioutput="raw_values"),
        atol=1e-9,
    )
    squared = mean_squared_error(x.T, restored.T, multioutput="raw_values")
    np.testing.assert_allclose([row[1] for row in losses], squared, atol=1e-9)
    logs = np.log1p(np.maximum(restored, 0)) - np.log1p(np.maximum(x, 0))
    np.testing.assert_allclose([row[2] for row in losses], (logs**2).mean(axis=1), atol=1e-9)
    assert losses[0][3] == 1  # The rows' own columns follow.
    scalar = con.execute("SELECT reconstruction_loss('m', *)[2] FROM t ORDER BY id").fetchall()
    assert [row[0] for row in scalar] == [row[1] for row in losses]
    check_anomalies(con, "mean_squared_error", squared)


def check_anomalies(
    con: sqlml.Session, column: str, measure: Any, share: float = 0.1, low: bool = False
) -> None:
    """Compare a result with the quantile of the measure over the rows."""
    rows = con.execute(
        f"SELECT is_anomaly, {column} FROM ML.DETECT_ANOMALIES(MODEL m, "
        f"STRUCT({share} AS contamination), TABLE t) ORDER BY id"
    ).fetchall()
    np.testing.assert_allclose([value for _, value in rows], measure, rtol=1e-6, atol=1e-9)
    limit = np.quantile(measure, share if low else 1 - share)
    clear = np.abs(np.asarray(measure) - limit) > 1e-6
    expected = measure < limit if low else measure > limit
    assert np.array([flag for flag, _ in rows])[clear].tolist() == expected[clear].tolist()


def test_anomalies_of_clusters(con: sqlml.Session) -> None:
    model = create(con, "m", KMeans(3, random_state=0))
    distances = model.transform(ROWS)
    nearest = distances.argmin(axis=1)
    radii = [np.sqrt((distances[nearest == k, k] ** 2).mean()) for k in range(3)]
    check_anomalies(con, "normalized_distance", (distances / radii).min(axis=1))


def test_anomalies_of_few_rows(con: sqlml.Session) -> None:
    """Clusters without rows have no radius, and those of equal rows the radius 0."""
    con.create_model("m", KMeans(2, n_init=1).fit([[0.0], [10.0]]), or_replace=True)
    sql = (
        "SELECT normalized_distance, is_anomaly FROM ml_detect_anomalies(MODEL m, "
        "(SELECT unnest([10.0, 10.0, NULL]) AS x0), contamination := 0.5)"
    )
    with pytest.raises(SqlmlError):
        con.execute(sql.replace("contamination := 0.5", "contamination := 0.6"))
    rows = con.execute(sql.replace(", NULL", "")).fetchall()
    assert rows == [(0.0, False), (0.0, False)]


@pytest.mark.parametrize(
    ("model", "column", "function"),
    [
        (IsolationForest(n_estimators=20, random_state=0), "decision_score", "decision_function"),
        (LocalOutlierFactor(novelty=True), "decision_score", "decision_function"),
        (GaussianMixture(2, random_state=0), "log_density", "score_samples"),
    ],
)
def test_anomalies_of_scores(con: sqlml.Session, model: Any, column: str, function: str) -> None:
    create(con, "m", model)
    check_anomalies(con, column, getattr(model, function)(ROWS), low=True)
    if column == "decision_score":
        sql = "SELECT is_anomaly FROM ml_detect_anomalies(MODEL m, TABLE t) ORDER BY id"
        flags = [flag for (flag,) in con.execute(sql).fetchall()]
        assert flags == (model.predict(ROWS) == -1).tolist()


def test_threshold_of_the_training_rows(con: sqlml.Session) -> None:
    """As in BigQuery, the share refers to the training rows of a model that sqlml trained."""
    con.execute(
        "CREATE OR REPLACE MODEL m OPTIONS (model_type = 'pca', num_principal_components = 1) "
        "AS SELECT a, b FROM t"
    )
    call = "ml_detect_anomalies(MODEL m, {}, contamination := 0.1)"
    counts = "SELECT count(*) FILTER (is_anomaly) FROM "
    assert con.execute(counts + call.format("TABLE t")).fetchone() == (20,)
    far = "(SELECT 1000 + a AS a, b FROM t)"
    assert con.execute(counts + call.format(far)).fetchone() == (200,)
    with pytest.raises(BindError, match="WITH clause of this statement redefines"):
        con.execute(f"WITH t AS (SELECT 1 AS a, 2 AS b) {counts} {call.format('TABLE t')}")
    con.execute("CREATE VIEW flagged AS SELECT * FROM " + call.format("TABLE t"))
    assert con.execute("SELECT count(*) FILTER (is_anomaly) FROM flagged").fetchone() == (20,)
    con.execute("DROP VIEW flagged")


def test_transformed_rows(con: sqlml.Session) -> None:
    con.execute(
        "CREATE OR REPLACE MODEL m TRANSFORM (ml_standard_scaler(a) OVER () AS a, 2 * b AS double, "
        "c) OPTIONS (model_type = 'pca', num_principal_components = 1) AS SELECT a, b, c FROM t"
    )
    relation = con.execute("SELECT * FROM ML.TRANSFORM(MODEL m, TABLE t)")
    assert [column[0] for column in relation.description] == ["a", "double", "c"]
    values = np.array(relation.fetchall())
    scaled = (ROWS["a"] - ROWS["a"].mean()) / ROWS["a"].std(ddof=1)
    np.testing.assert_allclose(values, np.c_[scaled, 2 * ROWS["b"], ROWS["c"]], rtol=1e-9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("ml_centroids(MODEL line)", "has no centroids"),
        ("ml_centroids(MODEL mixture)", "has no centroids"),
        ("ml_principal_components(MODEL line)", "has no components"),
        ("ml_principal_component_info(MODEL ica)", "does not record the variances"),
        ("ml_reconstruction_loss(MODEL ica, TABLE t)", "only autoencoders and decompositions"),
        ("ml_transform(MODEL line, TABLE t)", "has no TRANSFORM clause"),
        ("ml_detect_anomalies(MODEL line, TABLE t)", "does not detect anomalies"),
        ("ml_detect_anomalies(MODEL mixture, TABLE t)", "name the share of anomalies"),
        (
            "ml_detect_anomalies(MODEL mixture, TABLE t, contamination := -0.1)",
            "contamination takes a number from 0 to 0.5",
        ),
        (
            "ml_detect_anomalies(MODEL mixture, (SELECT *, 1 AS Is_Anomaly FROM t), "
            "contamination := 0.1)",
            "already have a column 'is_anomaly'",
        ),
        ("ml_detect_anomalies(MODEL mixture)", "takes a model and its rows"),
    ],
)
def test_errors(con: sqlml.Session, call: str, message: str) -> None:
    with pytest.raises(SqlmlError, match=message):
        con.execute(f"SELECT * FROM {call}")
