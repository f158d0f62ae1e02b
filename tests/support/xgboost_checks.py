"""XGBoost models to import: their data, their files, and the check of all that they predict."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import xgboost as xgb

from sqlml.importers.file_formats import read_artifact
from sqlml.importers.registry import import_model
from sqlml.ir import reference
from tests.support import oracles

ROWS, WIDTH = 1200, 5


def quiet() -> AbstractContextManager[None]:
    """One thread: several, of so little work, would only wait for each other."""
    return xgb.config_context(verbosity=0, nthread=1)


def rows() -> Any:
    """float64 rows with missing values, zeros, ties and small whole numbers."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(ROWS, WIDTH))
    x[:, 3] = rng.integers(0, 9, ROWS)
    x[rng.random(x.shape) < 0.1] = np.nan
    x[rng.random(x.shape) < 0.1] = 0.0
    return x


def classes(x: Any) -> Any:
    """Three classes."""
    filled = np.nan_to_num(x)
    first = (filled[:, 0] + filled[:, 1] * filled[:, 2] > 0).astype(int)
    return first + (filled[:, 3] > 4)


def margins(model: Any, rows: Any) -> Any:
    data = xgb.DMatrix(rows) if isinstance(model, xgb.Booster) else rows
    return model.predict(data, output_margin=True).reshape(len(rows), -1)


def read(path: Path) -> Any:
    return read_artifact(path.read_bytes(), format="AUTO", path=path.name, allow_pickle=False)


def assert_close(ours: Any, theirs: Any) -> None:
    """Within 1e-6 of the float32 that XGBoost returns; 1 - p has only the digits that p has."""
    if ours.ndim == 2 and ours.shape[1] == 2:
        np.testing.assert_allclose(ours[:, 1], theirs[:, 1], rtol=1e-6)
        np.testing.assert_allclose(ours[:, 0], theirs[:, 0], rtol=1e-6, atol=2.0**-22)
    else:
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def hard_rows(program: Any, x: Any) -> Any:
    """Thresholds, their neighbours and special values beside ordinary rows."""
    on_edges = [oracles.threshold_rows(e, x, limit=1500) for e in oracles.ensembles(program)]
    special = oracles.special_rows(WIDTH, infinite=False, largest=3e38)
    return np.concatenate([x, special, *on_edges])


def assert_same(model: Any, x: Any) -> None:
    """Margins bit for bit, labels equal, probabilities within the contract."""
    imported = import_model(model)
    rows = hard_rows(imported.program, x)
    got = reference.run(imported.program, oracles.batch(imported.program, rows))
    np.testing.assert_array_equal(got["score"], margins(model, rows))
    predicted = model.predict(xgb.DMatrix(rows) if isinstance(model, xgb.Booster) else rows)
    labels = imported.program.labels
    if not labels:
        assert_close(got["label"].reshape(predicted.shape), predicted)
    elif isinstance(model, xgb.Booster):
        multi = predicted.ndim == 2
        assert_close(got["proba"] if multi else got["proba"][:, 1], predicted)
        np.testing.assert_array_equal(
            got["label"].ravel(), predicted.argmax(1) if multi else predicted > 0.5
        )
    else:
        decoded = labels[0].array()[got["label"]].reshape(predicted.shape)
        np.testing.assert_array_equal(decoded, predicted)
        assert_close(got["proba"], model.predict_proba(rows))
