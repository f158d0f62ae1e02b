"""imbalanced-learn's pipelines and ensembles, which predict as scikit-learn's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import sqlml

pytest.importorskip("imblearn")

from imblearn import ensemble, over_sampling, pipeline, under_sampling

RANDOM = np.random.default_rng(0)
ROWS = pd.DataFrame(RANDOM.normal(size=(400, 4)), columns=list("abcd"))
LABELS = np.where(ROWS.a + ROWS.b > 1.5, "rare", "usual")

MODELS: list[Any] = [
    pipeline.make_pipeline(
        StandardScaler(), over_sampling.SMOTE(random_state=0), LogisticRegression()
    ),
    pipeline.make_pipeline(
        under_sampling.RandomUnderSampler(random_state=0), StandardScaler(), LogisticRegression()
    ),
    pipeline.Pipeline(
        [("none", "passthrough"), ("over", over_sampling.SMOTE()), ("last", LogisticRegression())]
    ),
    ensemble.BalancedRandomForestClassifier(10, random_state=0),
    ensemble.BalancedBaggingClassifier(n_estimators=3, random_state=0),
    ensemble.EasyEnsembleClassifier(n_estimators=2, random_state=0),
    ensemble.RUSBoostClassifier(n_estimators=5, random_state=0),
]


@pytest.mark.by_day(2)
@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_models(model: Any) -> None:
    model.fit(ROWS, LABELS)
    scorer = sqlml.compile(model)
    assert list(scorer.predict(ROWS)) == list(model.predict(ROWS))
    np.testing.assert_allclose(
        scorer.predict_proba(ROWS), model.predict_proba(ROWS), rtol=1e-12, atol=1e-15
    )
    with sqlml.connect() as con:  # the object itself is asked, too
        con.create_model("m", model)
        told = dict(con.model("m").properties)
        assert told["library"].startswith("imblearn 0")
        assert "label_flips=0" in told["verification"]
        con.register("rows", ROWS)
        found = con.execute("SELECT predict('m', *) FROM rows").fetchall()
    assert [label for (label,) in found] == list(model.predict(ROWS))


def test_a_pipeline_of_texts_and_numbers() -> None:
    rows = pd.DataFrame({"plan": ["x", "y"] * 50, "spent": RANDOM.normal(size=100)})
    labels = np.where(rows.spent > 1, "rare", "usual")
    model = pipeline.make_pipeline(
        OneHotEncoder(handle_unknown="ignore"),
        over_sampling.RandomOverSampler(random_state=0),
        LogisticRegression(),
    ).fit(rows[["plan"]], labels)
    assert list(sqlml.compile(model).predict(rows[["plan"]])) == list(model.predict(rows[["plan"]]))
