"""`explain` and the forms that explain in Spark: the numbers that they have in DuckDB."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.ensemble import IsolationForest, RandomForestClassifier, RandomForestRegressor
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import sqlml

SMALL: dict[str, Any] = {"n_estimators": 5, "max_depth": 3, "random_state": 0}
FORMS = (
    "ml_explain_predict(MODEL grades, TABLE shop, top_k_features := 2)",
    "ml_global_explain(MODEL grades, TABLE shop, class := 5)",
    "ml_feature_importance(MODEL grades)",
    "ml_tree(MODEL grades, 1)",
    "ml_partial_dependence(MODEL grades, TABLE shop, 'b', points := 4, class := 5)",
    "ml_predict(MODEL groups, TABLE shop)",
    "ml_centroids(MODEL groups)",
    "ML.DETECT_ANOMALIES(MODEL groups, STRUCT(0.1 AS contamination), TABLE shop)",
    "ml_principal_components(MODEL parts)",
    "ml_principal_component_info(MODEL parts)",
    "ml_reconstruction_loss(MODEL parts, TABLE shop)",
    "ml_detect_anomalies(MODEL parts, TABLE shop, contamination := 0.1)",
    "ml_detect_anomalies(MODEL isolated, TABLE shop)",
    "ml_roc_curve(MODEL bayes, TABLE shop, generate_array(0.2, 0.8, 0.2), label := 'grade')",
)


@pytest.fixture(scope="module")
def sessions(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    draw = np.random.default_rng(2)
    rows = pd.DataFrame(draw.normal(size=(200, 3)), columns=["a", "b", "c"])
    rows["grade"] = (rows.b + draw.normal(size=200)).clip(-1, 1).round().astype(int) + 5
    X = rows[["a", "b", "c"]]
    models = {
        "grades": RandomForestClassifier(**SMALL).fit(X, rows.grade),
        "bayes": GaussianNB().fit(X, rows.grade),
        "groups": KMeans(2, random_state=0).fit(X),
        "parts": make_pipeline(StandardScaler(), PCA(2)).fit(X),
        "isolated": IsolationForest(n_estimators=5, random_state=0).fit(X),
        "both": RandomForestRegressor(**SMALL).fit(X, rows[["a", "grade"]]),
    }
    there = sqlml.attach(spark, catalog=tmp_path_factory.mktemp("explained"))
    with sqlml.connect() as here:
        for name, model in models.items():
            for session in (there, here):
                session.create_model(name, model, verify=False)
        spark.createDataFrame(rows).createOrReplaceTempView("shop")
        here.register("shop", rows)
        yield there, here


def _plain(value: Any) -> Any:
    """A value of either engine as dicts, lists and rounded numbers."""
    if isinstance(value, float | np.floating):
        return round(float(value), 10)
    if hasattr(value, "asDict"):
        value = value.asDict()
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value


def _same(sessions: Any, query: str) -> None:
    there, here = sessions
    got = [_plain(list(row)) for row in there.sql(query).collect()]
    want = [_plain(list(row)) for row in here.sql(query).fetchall()]
    assert sorted(map(repr, got)) == sorted(map(repr, want))


@pytest.mark.nightly
def test_contributions_of_each_row(sessions: Any) -> None:
    _same(
        sessions,
        "SELECT a, predict('grades', *) AS p, explain('grades', *, baseline := true) AS e, "
        "explain('both', *) AS both FROM shop WHERE explain('grades', *, class := 4)['b'] > 0",
    )


@pytest.mark.nightly
def test_rows_to_compare_with(sessions: Any) -> None:
    _same(
        sessions,
        "SELECT a, explain('bayes', *, baseline := true, background := (SELECT * FROM shop "
        "WHERE a > 1)) AS e FROM shop WHERE b > 1",
    )


@pytest.mark.nightly
def test_columns_with_the_values_of_other_rows(sessions: Any) -> None:
    query = (
        "SELECT feature, importance FROM ml_permutation_importance(MODEL grades, TABLE shop, "
        "label := 'grade', repeats := 4)"
    )
    there, here = sessions
    got = {row[0]: row[1] for row in there.sql(query).collect()}  # its hashes are others
    want = dict(here.sql(query).fetchall())
    assert got == pytest.approx(want, abs=0.1)
    assert max(got, key=got.__getitem__) == max(want, key=want.__getitem__) == "b"


@pytest.mark.nightly
@pytest.mark.parametrize("form", FORMS)
def test_forms(sessions: Any, form: str) -> None:
    _same(sessions, f"SELECT * FROM {form}")
