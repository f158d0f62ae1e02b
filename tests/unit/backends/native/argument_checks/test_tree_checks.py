"""Argument checks of the kernels for trees: they accept models, and nothing that leaves arrays."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from catboost import CatBoostClassifier, CatBoostRegressor
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.ensemble import (
    AdaBoostClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    IsolationForest,
    RandomForestClassifier,
)
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from xgboost import XGBClassifier, XGBRegressor

from sqlml.backends.base import BACKENDS
from sqlml.backends.native.jit.specialise import specialise
from sqlml.backends.native.kernel_calls import Call
from tests.support.damaged_calls import damage_call, make_rows
from tests.support.guarded_arrays import (
    SIDES,
    Outcome,
    get_function,
    get_signature,
    is_accepted,
    list_arguments,
    load_guarded_kernel,
    run_call,
    run_cases,
    set_allocation_side,
)
from tests.support.random_trees import Recipe
from tests.support.tree_calls import (
    CALLS,
    call_contributions,
    call_cursors,
    call_descent,
    call_lockstep,
    find_check,
    find_model_calls,
)

WIDTH = 5
STRATEGIES = BACKENDS["native"].strategies

QUIET: dict[str, Any] = {"verbose": 0, "allow_writing_files": False, "thread_count": 1}
LEAVES: dict[str, Any] = {"verbose": -1, "n_jobs": 1, "min_child_samples": 2}

MODELS: dict[str, Callable[[Any, Any], Any]] = {
    "tree": lambda x, y: DecisionTreeClassifier(random_state=0).fit(x, y),
    "stump": lambda x, y: DecisionTreeRegressor(max_depth=1).fit(x, y),
    "constant": lambda x, y: DecisionTreeRegressor().fit(x, 0 * y),
    "forest": lambda x, y: RandomForestClassifier(30, max_depth=5, random_state=0).fit(x, y),
    "deep forest": lambda x, y: ExtraTreesRegressor(9, random_state=0).fit(x, x[:, 0]),
    "many trees": lambda x, y: RandomForestClassifier(300, max_depth=3, random_state=0).fit(x, y),
    "boosting": lambda x, y: GradientBoostingClassifier(n_estimators=9, random_state=0).fit(x, y),
    "histograms": lambda x, y: HistGradientBoostingClassifier(
        max_iter=9, categorical_features=[4], random_state=0
    ).fit(miss(x), y),
    "isolation": lambda x, y: IsolationForest(n_estimators=9, random_state=0).fit(x),
    "weighted trees": lambda x, y: AdaBoostClassifier(
        DecisionTreeClassifier(max_depth=4), n_estimators=5, random_state=0
    ).fit(x, y),
    "xgboost": lambda x, y: XGBClassifier(n_estimators=9, n_jobs=1).fit(miss(x), y),
    "xgboost, categories": lambda x, y: XGBRegressor(
        n_estimators=9, n_jobs=1, enable_categorical=True, feature_types=["q", "q", "q", "q", "c"]
    ).fit(x, x[:, 4] % 3 + x[:, 0]),
    "xgboost, deep": lambda x, y: XGBRegressor(n_estimators=5, max_depth=14, n_jobs=1).fit(
        x, x[:, 0] * x[:, 1]
    ),
    "lightgbm": lambda x, y: LGBMClassifier(n_estimators=9, **LEAVES).fit(miss(x), y),
    "lightgbm, categories": lambda x, y: LGBMRegressor(n_estimators=9, **LEAVES).fit(
        miss(x), x[:, 4] % 3 + x[:, 0], categorical_feature=[4]
    ),
    "lightgbm, linear leaves": lambda x, y: LGBMRegressor(
        n_estimators=5, linear_tree=True, **LEAVES
    ).fit(x, x[:, 0] * x[:, 1]),
    "catboost": lambda x, y: CatBoostClassifier(iterations=9, depth=4, **QUIET).fit(miss(x), y),
    "catboost, uneven": lambda x, y: CatBoostRegressor(
        iterations=9, grow_policy="Depthwise", **QUIET
    ).fit(x, x[:, 0]),
}


def make_table(rows: int = 400) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, WIDTH))
    x[:, 4] = rng.integers(0, 40, rows)
    return x, np.digitize(x[:, 0] * x[:, 1], [-0.3, 0.3])


def miss(x: Any) -> Any:
    """Return x with some values missing."""
    return np.where(np.random.default_rng(1).random(x.shape) < 0.1, np.nan, x)


@pytest.mark.by_day(6)
@pytest.mark.parametrize("name", MODELS)
def test_calls_of_models_are_accepted(name: str) -> None:
    model = MODELS[name](*make_table())
    count = 0
    for strategy in STRATEGIES:
        for call in find_model_calls(model, strategy):
            check = find_check(call)
            assert check is not None and is_accepted(check, call), (strategy, check)
            count += 1
    assert count >= len(STRATEGIES)


@pytest.mark.parametrize("name", CALLS)
def test_calls_of_random_trees_are_accepted(name: str) -> None:
    call = CALLS[name]()
    assert is_accepted(find_check(call), call)


def list_recipes(count: int) -> list[Recipe]:
    rng = np.random.default_rng(5)
    dtypes = (("float32", "float32"), ("float32", "float64"), ("float64", "float64"))
    return [
        Recipe(
            seed,
            int(rng.integers(0, 9)),
            int(rng.integers(0, 11)),
            *dtypes[int(rng.integers(3))],
            values=(values := int(rng.integers(1, 5))),
            outputs=values + int(rng.integers(0, 3)),
            sets=bool(rng.random() < 0.3),
            chain=bool(rng.random() < 0.2),
        )
        for seed in range(count)
    ]


def find_calls(recipe: Recipe) -> list[Call]:
    calls = [call_cursors(recipe), call_cursors(recipe, paged=True), call_lockstep(recipe)]
    calls += [call_descent(recipe, cut) for cut in (0, 2, 99)]
    return [*calls, call_contributions(recipe), call_contributions(recipe, 3)]


@pytest.mark.nightly
def test_calls_of_many_random_trees_are_accepted() -> None:
    for recipe in list_recipes(300):
        for call in find_calls(recipe):
            check = find_check(call)
            assert check is not None and is_accepted(check, call), (recipe, check)


# Damaged calls.

needs_fork = pytest.mark.skipif(sys.platform == "win32", reason="needs fork and mmap")

COUNTS = (1, 7, 64, 700)


def run_damaged(name: str, cases: range, guards_scratch: bool = False) -> Outcome:
    """Damage a call of `CALLS`, and run it in guarded memory if its check accepts it."""
    call = CALLS[name]()
    check, kernel = find_check(call), get_function(call)
    assert check is not None
    functions = [specialise(function, get_signature(call)) for function in (check, kernel)]
    if guards_scratch:
        functions = [load_guarded_kernel(f, get_signature(call)) for f in (check, kernel)]
    assert is_accepted(check, call, functions[0])
    numbers = [a.ravel() for a in list_arguments(call.arguments) if isinstance(a, np.ndarray)]
    pool = np.concatenate([a[:500].astype(np.float64) for a in numbers if a.dtype.kind == "f"])

    def run(case: int) -> bool:
        rng = np.random.default_rng((case, zlib.crc32(name.encode())))
        damaged = damage_call(call, rng)
        set_allocation_side(SIDES[case % 2])
        if not is_accepted(check, damaged, functions[0]):
            return False
        for side in SIDES:
            run_call(
                damaged, COUNTS, lambda rows, n: make_rows(rows, n, rng, pool), side, functions[1]
            )
        return True

    return run_cases(run, cases)


@needs_fork
@pytest.mark.by_day(3)
@pytest.mark.parametrize("name", CALLS)
def test_kernels_stay_inside_their_arrays_if_a_damaged_call_is_accepted(name: str) -> None:
    outcome = run_damaged(name, range(200))
    assert not outcome.failures, str(outcome)
    assert outcome.accepted > 10, str(outcome)


@needs_fork
@pytest.mark.nightly
@pytest.mark.parametrize("name", CALLS)
def test_many_damaged_calls_with_guarded_scratch_arrays(name: str) -> None:
    outcome = run_damaged(name, range(1_000, 5_000), guards_scratch=True)
    print(name, outcome)
    assert not outcome.failures, str(outcome)
    assert outcome.accepted > 100, str(outcome)
