"""A top-K filter as a whole: queries over rows that nobody looked at are precise enough."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingRegressor

from sqlml.catalog.small_models import TopKFilter
from sqlml.errors import ConfigError, UnsupportedModelError
from sqlml.importers.registry import import_model
from sqlml.ir.program import Program
from sqlml.training.cascades.feature_groups import Sources
from sqlml.training.cascades.last_estimator import CONFIDENCE, compute_output
from sqlml.training.cascades.learn import LearningTask, NoGain, RankingGoal, learn_filter
from sqlml.training.cascades.recipe import Recipe, extract_recipe

NAMES = ["a", "b", "far"]
DEAR = Sources({"far": frozenset({"join far"})}, {"join far": 10_000.0})


def table(n: int, seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {name: random.normal(size=n) for name in NAMES}


@cache
def model() -> tuple[GradientBoostingRegressor, Program]:
    """Two columns tell most of the value, a third one the rest."""
    rows = table(3_000, 0)
    y = 3 * rows["a"] + rows["b"] ** 2 + 0.3 * rows["far"]
    fitted = GradientBoostingRegressor(n_estimators=60, random_state=0)
    fitted.fit(np.stack([rows[n] for n in NAMES], axis=1), y)
    return fitted, import_model(fitted, NAMES).program


def learned(
    rows: int = 40_000, k: int = 10, sources: Sources = DEAR, base_ns: float = 0.0
) -> TopKFilter | NoGain:
    recipe = extract_recipe(model()[0])
    assert recipe is not None
    task = LearningTask(model()[1], recipe.to_regression(), table(rows, 1), "", sources, base_ns)
    return learn_filter(task, RankingGoal("label", 0, "", k, precision=0.9))


def test_fresh_queries_are_as_precise_as_was_asked_for() -> None:
    result = learned()
    assert isinstance(result, TopKFilter)
    facts = result.facts
    assert set(result.small.inputs) == {"a", "b"}
    assert facts.rows == 200 and facts.trials == 100 and facts.low > 0.95
    rows = table(60_000, 99)
    full = compute_output(model()[1], "label", rows)[:, 0]
    small = compute_output(result.small, CONFIDENCE, {n: rows[n] for n in "ab"})[:, 0]
    random, precise = np.random.default_rng(5), []
    for _ in range(300):
        sample = random.choice(full.size, facts.rows, replace=False)
        best = set(sample[np.argsort(-full[sample])[:10]])
        left = sample[np.argsort(-small[sample])[: int(np.ceil(facts.ratio * 10))]]
        remaining = left[np.argsort(-full[left])[:10]]
        precise.append(len(best & set(remaining)) >= 9)
    assert np.mean(precise) >= 0.95
    assert 1 <= facts.ratio < 20 and facts.gain > 2


def test_nothing_is_gained_where_the_rest_of_the_query_takes_all_the_time() -> None:
    sources = Sources({name: frozenset({name}) for name in NAMES}, dict.fromkeys(NAMES, 1.0))
    result = learned(sources=sources, base_ns=1e6)
    assert isinstance(result, NoGain) and result.groups


def test_too_few_rows() -> None:
    with pytest.raises(ConfigError, match="give at least 28,800 rows"):
        learned(rows=20_000)


@pytest.mark.parametrize(
    ("path", "parameters", "regression"),
    [
        ("sklearn.linear_model._logistic.LogisticRegression", {"C": 3.0}, ("Ridge", {})),
        (
            "sklearn.ensemble._forest.RandomForestClassifier",
            {"n_estimators": 5, "criterion": "entropy", "class_weight": "balanced"},
            ("RandomForestRegressor", {"n_estimators": 5}),
        ),
        ("xgboost.sklearn.XGBClassifier", {"max_depth": 2}, ("XGBRegressor", {"max_depth": 2})),
        ("sklearn.svm._classes.SVR", {"C": 3.0}, ("SVR", {"C": 3.0})),
    ],
)
def test_regressions_are_like_their_classifiers(
    path: str, parameters: dict[str, object], regression: tuple[str, dict[str, object]]
) -> None:
    result = Recipe(path, parameters).to_regression()
    assert (result.path.rpartition(".")[2], dict(result.parameters)) == regression
    assert type(result.make_estimator()).__name__ == regression[0]


def test_a_classifier_without_a_regression() -> None:
    recipe = Recipe("sklearn.naive_bayes.GaussianNB", {})
    with pytest.raises(UnsupportedModelError, match="no regression that corresponds to Gau"):
        recipe.to_regression()
