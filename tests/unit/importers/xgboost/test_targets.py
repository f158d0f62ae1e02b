"""XGBoost's models of several targets, of a tree per target and of vector leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost as xgb

from sqlml.importers.registry import import_model
from sqlml.ir import reference
from tests.support import oracles
from tests.support.xgboost_checks import (
    assert_close,
    assert_same,
    classes,
    margins,
    quiet,
    read,
    rows,
)


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    with quiet():
        yield


@pytest.fixture(scope="module")
def x() -> Any:
    return rows()


@pytest.fixture(scope="module")
def y(x: Any) -> Any:
    return classes(x)


SEVERAL: dict[str, dict[str, Any]] = {
    "a tree per target": {},
    "vector leaves": {"multi_strategy": "multi_output_tree"},
    "forest of vector leaves": {"multi_strategy": "multi_output_tree", "num_parallel_tree": 3},
    "dart": {"booster": "dart", "rate_drop": 0.4},
    "gblinear": {"booster": "gblinear"},
    "base_score": {"base_score": 0.2},
    "no rounds": {"n_estimators": 0},
}


@pytest.mark.parametrize("objective", ["reg:squarederror", "reg:absoluteerror", "reg:logistic"])
@pytest.mark.parametrize("kind", SEVERAL)
def test_regressor_of_several_targets(x: Any, y: Any, objective: str, kind: str) -> None:
    targets = np.stack([y, 1 - y, y * 0.5], axis=1).clip(0, 1)
    params = {"n_estimators": 5, "max_depth": 3, "n_jobs": 1, **SEVERAL[kind]}
    model = xgb.XGBRegressor(objective=objective, **params).fit(x, targets)
    assert_same(model, x)
    assert_same(model.get_booster(), x)
    program = import_model(model).program
    assert (program.labels, program.output_type("label").width) == ((), 3)


@pytest.mark.parametrize("kind", ["a tree per target", "vector leaves"])
def test_several_quantiles_are_several_targets(x: Any, y: Any, kind: str) -> None:
    model = xgb.XGBRegressor(
        objective="reg:quantileerror", quantile_alpha=[0.1, 0.5, 0.9], n_estimators=4,
        **SEVERAL[kind],
    )  # fmt: skip
    assert_same(model.fit(x, y + np.nan_to_num(x[:, 0])), x)
    assert import_model(model).program.target_count == 3


@pytest.mark.parametrize("targets", [2, 3])
@pytest.mark.parametrize("kind", [k for k in SEVERAL if k != "gblinear"])
def test_classifier_of_several_labels(x: Any, y: Any, kind: str, targets: int) -> None:
    flags = np.stack([y > 0, np.nan_to_num(x[:, 0]) > 0, y > 1], axis=1)[:, :targets].astype(int)
    params = {"n_estimators": 5, "max_depth": 3, "n_jobs": 1, **SEVERAL[kind]}
    model = xgb.XGBClassifier(**params).fit(x, flags)
    assert_same(model, x)
    program = import_model(model).program
    assert [labels.values for labels in program.labels] == [(0, 1)] * targets
    assert program.has_one_probability_per_target
    booster = model.get_booster()
    got = reference.run(import_model(booster).program, oracles.batch(program, x))
    assert_close(got["proba"], booster.predict(xgb.DMatrix(x)))


@pytest.mark.parametrize("suffix", ["json", "ubj"])
@pytest.mark.parametrize("kind", ["a tree per target", "vector leaves"])
def test_several_targets_from_a_file(
    x: Any, y: Any, tmp_path: Path, kind: str, suffix: str
) -> None:
    path = tmp_path / f"model.{suffix}"
    params = {"n_estimators": 3, **SEVERAL[kind]}
    flags = np.stack([y > 0, y > 1], axis=1).astype(int)
    for model in (
        xgb.XGBRegressor(**params).fit(x, flags * 1.5),
        xgb.XGBClassifier(**params).fit(x, flags),
    ):
        model.save_model(path)
        program = import_model(read(path)).program
        got = reference.run(program, oracles.batch(program, x))
        assert_close(got["label"], model.predict(x))
        np.testing.assert_array_equal(got["score"], margins(model, x))
        if program.labels:
            assert_close(got["proba"], model.predict_proba(x))
