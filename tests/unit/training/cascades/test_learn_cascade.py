"""A cascade as a whole: what it promises holds on rows that nobody looked at."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from sqlml.catalog.small_models import Cascade
from sqlml.errors import ConfigError
from sqlml.importers.registry import import_model
from sqlml.training.cascades.last_estimator import compute_output
from sqlml.training.cascades.learn import LearningTask, NoGain, learn_cascade
from sqlml.training.cascades.recipe import extract_recipe
from tests.support.cascaded import features, model, table

LOSS = 0.01


def learned(n: int = 6_000, loss: float = LOSS, seed: int = 1) -> Cascade | NoGain:
    frame, labels = table(n, seed)
    recipe = extract_recipe(model()[0])
    assert recipe is not None
    task = LearningTask(model()[1], recipe, rows(frame), "")
    return learn_cascade(task, labels, label="y", loss=loss)


def rows(frame: pd.DataFrame) -> dict[str, np.ndarray]:
    return {"x": frame.x.to_numpy(), "t": frame.t.to_numpy(object)}


def test_fresh_rows_lose_no_more_than_was_allowed() -> None:
    frame, labels = table(100_000, 99)
    held = rows(frame)
    full = compute_output(model()[1], "label", held)[:, 0]
    for seed in range(1, 4):
        result = learned(seed=seed)
        assert isinstance(result, Cascade)
        small = compute_output(result.small, "label", held)[:, 0]
        got = np.where(small >= 0, small, full)
        assert (full == labels).mean() - (got == labels).mean() <= LOSS
        assert (small >= 0).mean() == pytest.approx(result.facts.confident, abs=0.03)


def test_what_is_known_of_it() -> None:
    result = learned()
    assert isinstance(result, Cascade)
    facts = result.facts
    assert {g.name for g in facts.groups if g.chosen} == {"x"}
    assert set(result.small.inputs) == {"x"}
    assert facts.trained == 4_500 and facts.held_out == 1_500
    assert facts.label == "y" and facts.accuracy_loss == LOSS
    assert facts.loss <= facts.most_loss <= LOSS
    assert facts.gain == facts.exact_ns / facts.expected_ns > 1
    costs = {g.name: g.cost for g in facts.groups}
    assert costs["characters of t"] > 100 > costs["x"] == 0
    assert all(g.importance > 0.05 for g in facts.groups)


def test_a_target_that_no_small_model_meets() -> None:
    """The text decides alone, so that x makes no row certain."""
    frame, _ = table(6_000, 1)
    labels = frame.t.str.startswith("yes").to_numpy().astype(int)
    fitted = make_pipeline(features(), LogisticRegression(C=100.0)).fit(frame, labels)
    recipe = extract_recipe(fitted)
    assert recipe is not None
    program = import_model(fitted).program
    task = LearningTask(program, recipe, rows(frame), "")
    result = learn_cascade(task, labels, label="y", loss=LOSS)
    assert isinstance(result, NoGain)
    assert result.reason.endswith("of the time without it")
    assert {g.name for g in result.groups} == {"x", "characters of t"}


def test_nothing_is_gained_where_the_rest_of_the_query_takes_all_the_time() -> None:
    frame, labels = table(6_000, 1)
    recipe = extract_recipe(model()[0])
    assert recipe is not None
    task = LearningTask(model()[1], recipe, rows(frame), "", base_ns=1e9)
    result = learn_cascade(task, labels, label="y", loss=LOSS)
    assert isinstance(result, NoGain)
    assert result.reason == "a query would take 1.00 of the time without it"


def test_too_few_rows_say_how_many_are_needed() -> None:
    with pytest.raises(ConfigError, match=r"400 rows cannot show .* give at least 2,4\d\d rows"):
        learned(n=400)


def test_features_that_cannot_be_separated() -> None:
    frame, labels = table(6_000, 1)
    fitted = make_pipeline(LogisticRegression()).fit(frame[["x"]], labels)
    recipe = extract_recipe(fitted)
    assert recipe is not None
    task = LearningTask(import_model(fitted).program, recipe, {"x": frame.x.to_numpy()}, "")
    with pytest.raises(ConfigError, match=r"computed together \(x\)"):
        learn_cascade(task, labels, label="y", loss=LOSS)
