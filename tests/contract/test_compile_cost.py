"""What import and passes cost in memory and what a stored model costs in bytes, at most.

tracemalloc counts what Python and numpy allocate, so these numbers hardly differ between runs.
Each model has some hundred trees: below that the fixed cost of an import counts for more.
"""

from __future__ import annotations

import gc
import pickle
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from catboost import CatBoostClassifier
from lightgbm import LGBMClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC
from xgboost import XGBClassifier

from sqlml.importers.file_formats import read_artifact
from sqlml.importers.registry import Imported, import_model
from sqlml.ir import store
from sqlml.planner.program.prepare_program import prepare_output

MOST_COPIES = 3.3
"""Three, and a little for what does not grow with the model."""


def data(rows: int, features: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, features)).astype(np.float32)
    return x, (x[:, 0] * x[:, 1] + rng.normal(scale=0.3, size=rows) > 0).astype(np.int64)


def fitted() -> dict[str, Any]:
    x, y = data(4000, 12)
    return {
        "forest": RandomForestClassifier(200, max_depth=8, random_state=0).fit(x, y),
        "xgboost": XGBClassifier(n_estimators=300, max_depth=8, n_jobs=1).fit(x, y),
        "lightgbm": LGBMClassifier(
            n_estimators=300, num_leaves=127, max_depth=8, verbose=-1, n_jobs=1
        ).fit(x, y),
        "catboost": CatBoostClassifier(
            iterations=200, depth=8, verbose=False, allow_writing_files=False, thread_count=1
        ).fit(x, y),
    }


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    return fitted()


def save(model: Any, path: Path) -> None:
    if isinstance(model, LGBMClassifier):
        model.booster_.save_model(path)
    elif isinstance(model, CatBoostClassifier):
        model.save_model(str(path), format="json")
    else:
        model.save_model(path)


def peak(make: Callable[[], Imported]) -> int:
    """Most bytes that import and passes hold at once."""
    make()  # what is imported and cached once does not count
    gc.collect()
    tracemalloc.start()
    try:
        prepare_output(make().program, "label")
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def from_file(path: Path) -> Imported:
    content = path.read_bytes()
    return import_model(read_artifact(content, format="AUTO", path=path.name, allow_pickle=False))


FILES = [
    ("xgboost", "ubj"),
    ("xgboost", "json"),
    ("lightgbm", "txt"),
    ("catboost", "json"),
]


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "suffix"), FILES)
def test_a_file_is_imported_without_many_copies(
    models: dict[str, Any], tmp_path: Path, name: str, suffix: str
) -> None:
    """The peak has the file itself in it."""
    path = tmp_path / f"model.{suffix}"
    save(models[name], path)
    program = from_file(path).program
    most = peak(lambda: from_file(path))
    assert most <= MOST_COPIES * max(path.stat().st_size, program.nbytes)


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "suffix"), FILES)
def test_a_booster_is_imported_without_many_copies(
    models: dict[str, Any], tmp_path: Path, name: str, suffix: str
) -> None:
    path = tmp_path / f"model.{suffix}"
    save(models[name], path)
    model = models[name]
    most = peak(lambda: import_model(model))
    assert most <= MOST_COPIES * max(path.stat().st_size, import_model(model).program.nbytes)


@pytest.mark.nightly
def test_a_forest_is_imported_without_many_copies(models: dict[str, Any]) -> None:
    model = models["forest"]
    states = [tree.tree_.__getstate__() for tree in model.estimators_]
    held = sum(state["nodes"].nbytes + state["values"].nbytes for state in states)
    assert peak(lambda: import_model(model)) <= 1.5 * held


@pytest.mark.parametrize(("name", "suffix"), FILES)
def test_a_stored_booster_is_smaller_than_its_own_file(
    models: dict[str, Any], tmp_path: Path, name: str, suffix: str
) -> None:
    path = tmp_path / f"model.{suffix}"
    save(models[name], path)
    stored = store.dumps(from_file(path).program)
    assert len(stored) < 0.25 * path.stat().st_size
    assert store.loads(stored).hash == from_file(path).program.hash


def others() -> dict[str, Any]:
    x, y = data(600, 10)
    words = np.array([f"word number {i}" for i in range(300)], object)[:, None]
    many = np.arange(600) % 100
    return {
        "linear": Ridge().fit(x, y),
        "scaled": make_pipeline(StandardScaler(), LogisticRegression()).fit(x, y),
        "100 classes": LogisticRegression(max_iter=3).fit(x, many),
        "vocabulary": OneHotEncoder(handle_unknown="ignore").fit(words),
        "svm": SVC().fit(x, y),
        "forest": RandomForestClassifier(50, random_state=0).fit(x, y),
    }


@pytest.mark.filterwarnings("ignore")
def test_a_stored_model_is_smaller_than_its_pickle() -> None:
    for name, model in others().items():
        program = import_model(model).program
        stored = store.dumps(program)
        assert len(stored) < len(pickle.dumps(model)), name
        assert store.loads(stored).hash == program.hash
