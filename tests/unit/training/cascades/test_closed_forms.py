"""Closed forms of small models, which numpy fits without scikit-learn, against scikit-learn's
own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.naive_bayes import BernoulliNB, GaussianNB, MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import sqlml
from sqlml.importers.registry import find_class_key, import_model
from sqlml.training.cascades.recipe import extract_recipe
from sqlml.training.cascades.small_model import CLOSED_FORMS, fit_closed_form

FITTED = [
    LinearRegression(),
    LinearRegression(fit_intercept=False),
    Ridge(),
    Ridge(alpha=7.5, fit_intercept=False),
    GaussianNB(),
    GaussianNB(var_smoothing=0.1),
    MultinomialNB(),
    MultinomialNB(alpha=0.5, fit_prior=False),
    BernoulliNB(),
    BernoulliNB(alpha=2.0, binarize=0.7),
]


@pytest.mark.parametrize("estimator", FITTED, ids=str)
def test_it_is_what_the_library_fits(estimator: Any) -> None:
    random = np.random.default_rng(0)
    x = random.gamma(2.0, 1.0, (500, 4))
    score = x[:, 0] - x[:, 1] + 0.2 * random.normal(size=500)
    classifies = hasattr(estimator, "predict_proba")
    y = np.digitize(score, [-0.5, 0.7]) if classifies else score
    known = estimator.fit(x, y)
    recipe = extract_recipe(known)
    assert recipe is not None and recipe.path == find_class_key(known)
    estimator = fit_closed_form(recipe.path, recipe.parameters, x, y)
    ours, theirs = (sqlml.compile(import_model(m).program) for m in (estimator, known))
    np.testing.assert_allclose(ours.predict(x), theirs.predict(x), rtol=1e-9, atol=1e-9)
    if classifies:
        np.testing.assert_allclose(ours.predict_proba(x), theirs.predict_proba(x), rtol=1e-9)


def test_parameters_that_change_the_formula_have_none() -> None:
    x, y = np.ones((4, 1)), np.arange(4.0)
    for path, parameters in [
        ("sklearn.linear_model._ridge.Ridge", {"positive": True}),
        ("sklearn.linear_model._logistic.LogisticRegression", {}),
        ("sklearn.naive_bayes.GaussianNB", {"priors": [0.5, 0.5]}),
    ]:
        assert fit_closed_form(path, parameters, x, y) is None
    assert fit_closed_form("sklearn.linear_model._base.LinearRegression", {}, [[1.0]], y) is None
    assert all(path.startswith("sklearn.") for path in CLOSED_FORMS)


WITHOUT = """
import sys
sys.modules.update(dict.fromkeys(("sklearn", "scipy", "joblib")))
import sqlml
from sqlml.errors import MissingDependencyError
con = sqlml.connect(sys.argv[1])
con.create_function("far", lambda v: (sum(range(300)), v)[1], ["DOUBLE"], "DOUBLE")
rows = "(SELECT a, far(b) AS b FROM (SELECT sin(i) AS a, cos(i * 3) AS b FROM range(60000) r(i)))"
learn = f"ALTER MODEL {{}} ADD TOP_K FILTER USING (SELECT a, b FROM {rows}) OPTIONS (k = 1)"
print(dict(con.execute(learn.format("line")).fetchall())["stored"])
try:
    con.execute(learn.format("forest"))
except MissingDependencyError as error:
    print(error)
"""


@pytest.mark.nightly
def test_a_filter_is_learned_without_the_library(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(300, 2))
    y = x[:, 0] + 0.01 * x[:, 1]
    file = str(tmp_path / "m.duckdb")
    with sqlml.connect(file) as con:
        line = make_pipeline(StandardScaler(), LinearRegression()).fit(x, y)
        con.create_model("line", line, inputs=["a", "b"])
        con.create_model("forest", RandomForestRegressor(3).fit(x, y), inputs=["a", "b"])
    command = [sys.executable, "-c", WITHOUT, file]
    done = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert done[0] == "yes"
    assert done[1] == (
        "a small model is trained by sklearn, which is not installed: pip install 'sqlml[sklearn]'"
    )
