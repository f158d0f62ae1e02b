"""CatBoost models to import: their data, their files, and the check of all that they predict."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import catboost as cb
import numpy as np

from sqlml.importers.file_formats import read_artifact
from sqlml.importers.registry import import_model
from sqlml.ir import reference, store
from sqlml.passes.simplify_trees import drop_statistics
from tests.support import oracles

ROWS, WIDTH = 800, 5
SMALL: dict[str, Any] = {
    "iterations": 8,
    "depth": 4,
    "verbose": 0,
    "allow_writing_files": False,
    "random_seed": 0,
    "thread_count": 1,
}


def rows() -> Any:
    """Rows with missing values, few values and a constant."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(ROWS, WIDTH))
    x[:, 3] = rng.integers(0, 7, ROWS)
    x[rng.random(x.shape) < 0.1] = np.nan
    x[:, 4] = 7.25
    return x


def classes(x: Any) -> Any:
    """Three classes that depend on missing values too."""
    filled = np.nan_to_num(x)
    return (filled[:, 0] + filled[:, 1] > 0).astype(int) + (np.isnan(x[:, 3]) | (filled[:, 3] > 4))


def saved(model: Any, pool: Any = None) -> bytes:
    """What save_model writes as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        model.save_model(str(path), format="json", pool=pool)
        return path.read_bytes()


def read(content: bytes, format: str = "auto") -> Any:
    return read_artifact(content, format=format, path="model.json", allow_pickle=False)


def hard_rows(program: Any, x: Any) -> Any:
    """Borders, their neighbours in both float widths and special values, beside plain rows."""
    parts = [x, oracles.special_rows(x.shape[1])]
    parts += [oracles.threshold_rows(trees, x) for trees in oracles.ensembles(program)]
    return np.concatenate(parts)


def assert_same(model: Any, x: Any) -> Any:
    """Raw values bit for bit, labels equal, predictions within 1e-12; the file says the same."""
    imported = import_model(model)
    program = imported.program
    assert store.loads(store.dumps(program)).hash == program.hash
    rows = hard_rows(program, np.asarray(x, np.float64)) if isinstance(x, np.ndarray) else x
    got = reference.run(program, oracles.batch(program, rows))
    raw = cb.CatBoost.predict(model, rows, prediction_type="RawFormulaVal")
    np.testing.assert_array_equal(got["score"], np.reshape(raw, (len(rows), -1)))
    predicted = np.reshape(model.predict(rows), (len(rows), -1))
    if not program.labels:
        np.testing.assert_allclose(got["label"], predicted, rtol=1e-12)
    else:
        label = program.labels[0].array()[got["label"]]
        if type(model) is not cb.CatBoost:
            np.testing.assert_array_equal(label, predicted)
        proba = cb.CatBoostClassifier.predict_proba(model, rows)
        np.testing.assert_allclose(got["proba"], proba, rtol=1e-12, atol=1e-300)
    if type(model) is not cb.CatBoost:
        # A file does not have CatBoost's numbers of the leaves, unless the trees are symmetric.
        from_file = import_model(read(saved(model))).program
        assert drop_statistics(from_file).hash == drop_statistics(program).hash
    return imported


GROWTH = ["SymmetricTree", "Depthwise", "Lossguide"]
