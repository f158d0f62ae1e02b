"""Small models: trained by the source library on what the last estimator reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from catboost import CatBoostClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from sqlml.errors import MissingDependencyError, UnsupportedModelError
from sqlml.importers.registry import import_model
from sqlml.training.cascades.last_estimator import CONFIDENCE, compute_output, find_last_estimator
from sqlml.training.cascades.recipe import Recipe, extract_recipe
from sqlml.training.cascades.small_model import (
    reject_uncertain_labels,
    train_small_classifier,
    train_small_scorer,
)
from tests.unit.training.cascades.models import MODELS, arrays, fitted, rows


def expected_matrix(name: str, frame: pd.DataFrame) -> Any:
    """Return the matrix that the model's last estimator reads, computed by its own library."""
    model, columns = fitted(name), MODELS[name][1]
    if name == "boosted":
        return frame[columns].to_numpy()
    return (model[:-1] if name == "texts" else model).transform(frame[columns])


@pytest.mark.parametrize("name", ["texts", "boosted", "stack"])
def test_the_same_class_on_the_same_columns_says_the_same(name: str) -> None:
    model, columns = fitted(name), MODELS[name][1]
    program = import_model(model).program
    last = find_last_estimator(program)
    places = sorted(last.blocks[0].columns + last.blocks[1].columns)
    recipe = extract_recipe(model)
    assert recipe is not None
    frame, labels = rows(600, seed=3)
    held = arrays(frame[columns])
    small = train_small_classifier(last, places, recipe, held, labels)

    wanted = recipe.make_estimator().fit(expected_matrix(name, frame)[:, places], labels)
    fresh, _ = rows(300, seed=4)
    held, matrix = arrays(fresh[columns]), expected_matrix(name, fresh)
    assert (compute_output(small, "label", held)[:, 0] == wanted.predict(matrix[:, places])).all()
    sure = wanted.predict_proba(matrix[:, places]).max(axis=1)
    np.testing.assert_allclose(compute_output(small, CONFIDENCE, held)[:, 0], sure, rtol=1e-5)


def test_labels_that_no_row_has_keep_their_places() -> None:
    """The model knows three classes, the rows to train on have the first and the last."""
    model = fitted("scaled")
    program = import_model(model).program
    last = find_last_estimator(program)
    frame, labels = rows(600, seed=3)
    kept = labels != 1
    recipe = extract_recipe(model)
    assert recipe is not None
    held = arrays(frame.loc[kept, ["x", "y", "z"]])
    small = train_small_classifier(last, [0, 1], recipe, held, labels[kept])
    assert set(np.unique(compute_output(small, "label", held))) == {0, 2}


def test_a_label_below_the_threshold_is_minus_one() -> None:
    model = fitted("scaled")
    program = import_model(model).program
    last = find_last_estimator(program)
    frame, labels = rows(600, seed=3)
    recipe = extract_recipe(model)
    assert recipe is not None
    held = arrays(frame[["x", "y", "z"]])
    small = train_small_classifier(last, [0, 1], recipe, held, labels)
    sure, label = (compute_output(small, name, held)[:, 0] for name in (CONFIDENCE, "label"))
    limit = float(np.median(sure))
    got = compute_output(reject_uncertain_labels(small, limit, program.labels), "label", held)[:, 0]
    assert (got == np.where(sure > limit, label, -1)).all()
    assert 0.4 < (got == -1).mean() < 0.6


def test_a_small_scorer_follows_scores() -> None:
    program = import_model(fitted("scaled")).program
    last = find_last_estimator(program)
    frame, _ = rows(600, seed=3)
    held = arrays(frame[["x", "y", "z"]])
    recipe = Recipe("sklearn.linear_model._base.LinearRegression", {})
    target = frame.x.to_numpy() * 3 - frame.y.to_numpy()
    small = train_small_scorer(last, [0, 1], recipe, held, target)
    np.testing.assert_allclose(compute_output(small, CONFIDENCE, held)[:, 0], target, atol=1e-9)


def test_a_model_that_cannot_be_trained_says_why() -> None:
    program = import_model(fitted("scaled")).program
    last = find_last_estimator(program)
    frame, labels = rows(100, seed=3)
    held = arrays(frame[["x", "y", "z"]])
    recipe = Recipe("sklearn.linear_model._logistic.LogisticRegression", {"C": -1.0})
    with pytest.raises(UnsupportedModelError, match=r"no small LogisticRegression .* 'C'"):
        train_small_classifier(last, [0], recipe, held, labels)


def test_recipes_hold_what_is_not_the_default() -> None:
    recipe = extract_recipe(LogisticRegression(C=0.5, n_jobs=2, max_iter=np.int64(300)))
    assert recipe is not None
    assert recipe.path == "sklearn.linear_model._logistic.LogisticRegression"
    assert dict(recipe.parameters) == {"C": 0.5, "max_iter": 300}
    assert Recipe.from_stored(recipe.to_dict()) == recipe
    assert recipe.make_estimator().C == 0.5


def test_a_function_among_the_parameters_cannot_be_written_down() -> None:
    assert extract_recipe(KNeighborsClassifier(weights=lambda d: d)) is None
    assert extract_recipe(fitted("vote")) is None


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("subprocess.Popen", "no small model can be trained as a subprocess.Popen"),
        ("sklearn.linear_model._logistic.os", "no small model can be trained as"),
        ("sklearn.utils.estimator_checks.check_estimator", "no small model can be trained as"),
        ("torch.nn.modules.linear.Linear", "no small model can be trained as"),
        ("sklearn.pipeline.Pipeline", "no small model can be trained as"),
    ],
)
def test_a_stranger_s_recipe_makes_nothing_but_estimators(path: str, message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        Recipe(path, {"args": "touch x"}).make_estimator()


@pytest.mark.parametrize(
    ("path", "parameter"),
    [
        ("sklearn.linear_model._ridge.Ridge", "no_such"),
        ("lightgbm.sklearn.LGBMClassifier", "output_model"),
        ("catboost.core.CatBoostClassifier", "train_dir"),
    ],
)
def test_a_parameter_that_a_class_lacks_or_that_names_a_file(path: str, parameter: str) -> None:
    with pytest.raises(UnsupportedModelError, match=f"is trained with parameter '{parameter}'"):
        Recipe(path, {parameter: "x"}).make_estimator()


@pytest.mark.parametrize(
    "parameters",
    [
        {"boosting_type": "gbdt forcedsplits_filename=x"},
        {"objective": "binary\toutput_model=x"},
        {"importance_type": ["1 output_model=x"]},
    ],
)
def test_a_string_that_lightgbm_would_read_as_several_parameters(
    parameters: dict[str, Any],
) -> None:
    with pytest.raises(UnsupportedModelError, match="LGBMClassifier is damaged"):
        Recipe("lightgbm.sklearn.LGBMClassifier", parameters).make_estimator()


def test_no_keyword_takes_all_others() -> None:
    with pytest.raises(UnsupportedModelError, match="with parameter 'kwargs'"):
        Recipe(
            "lightgbm.sklearn.LGBMClassifier", {"kwargs": {"output_model": "x"}}
        ).make_estimator()


@pytest.mark.parametrize("said", [{"logging_level": "Silent"}, {"silent": True}, {"verbose": 0}])
def test_how_much_catboost_prints_is_no_part_of_a_recipe(said: dict[str, Any]) -> None:
    recipe = extract_recipe(CatBoostClassifier(iterations=3, train_dir="somewhere", **said))
    assert recipe is not None
    assert dict(recipe.parameters) == {"iterations": 3}
    recipe.make_estimator().fit(np.eye(4), [0, 1, 0, 1])


def test_training_writes_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = Recipe("catboost.core.CatBoostClassifier", {"iterations": 3}).make_estimator()
    made.fit(np.eye(4), [0, 1, 0, 1])
    assert not list(tmp_path.iterdir())


def test_an_absent_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "lightgbm.sklearn", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'sqlml\[lightgbm\]'"):
        Recipe("lightgbm.sklearn.LGBMClassifier", {}).make_estimator()
