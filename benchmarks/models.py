"""The ensembles of Hummingbird's table 7, fitted once and kept.

500 trees of depth at most 8, all other settings the library's own. Fitting takes minutes, so what
was fitted lies in `benchmarks/.cache`, under a name that follows from everything it depends on:
parameters, table, rows, seed, versions, and the code that makes the rows.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import benchmarks.tables
from benchmarks.machine import versions
from benchmarks.tables import TABLES, Matrix, Shape, Target, shaped

FITTED_WITH = ("numpy", "scikit-learn", "lightgbm", "xgboost-cpu", "xgboost", "catboost")
CACHE = Path(__file__).parent / ".cache"
LEAVES = 256
"""LightGBM grows by leaves: enough of them that the depth alone ends a tree."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A fitted model, and what contenders need of it.

    library: the key of `peers.LIBRARY`. method: what is asked of it. labels: whether it
    classifies. key: names everything that it depends on. train: the rows that it was fitted on.
    """

    model: Any
    library: str
    method: str
    labels: bool
    key: str
    train: tuple[Matrix, Target]


@dataclass(frozen=True, slots=True)
class Kind:
    """library: where the model comes from. make: classifies?, trees, depth, threads -> unfitted."""

    library: str
    make: Callable[[bool, int, int | None, int], Any]


def _forest(classifies: bool, trees: int, depth: int | None, threads: int) -> Any:
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    cls = RandomForestClassifier if classifies else RandomForestRegressor
    # a classifier's default; a regressor looks at all features, and takes ten times as long to fit
    return cls(trees, max_depth=depth, max_features="sqrt", random_state=0, n_jobs=threads)


def _xgboost(classifies: bool, trees: int, depth: int | None, threads: int) -> Any:
    from xgboost import XGBClassifier, XGBRegressor

    cls = XGBClassifier if classifies else XGBRegressor
    return cls(n_estimators=trees, max_depth=depth or 0, random_state=0, n_jobs=threads)


def _lightgbm(classifies: bool, trees: int, depth: int | None, threads: int) -> Any:
    from lightgbm import LGBMClassifier, LGBMRegressor

    return (LGBMClassifier if classifies else LGBMRegressor)(
        n_estimators=trees,
        max_depth=depth or -1,
        num_leaves=LEAVES if depth is None else min(2**depth, 2**16),
        random_state=0,
        n_jobs=threads,
        verbose=-1,
    )


def _catboost(classifies: bool, trees: int, depth: int | None, threads: int) -> Any:
    from catboost import CatBoostClassifier, CatBoostRegressor

    return (CatBoostClassifier if classifies else CatBoostRegressor)(
        iterations=trees,
        depth=depth,
        random_seed=0,
        thread_count=threads,
        allow_writing_files=False,
        verbose=False,
    )


KINDS: Mapping[str, Kind] = {
    "random forest": Kind("scikit-learn", _forest),
    "lightgbm": Kind("lightgbm", _lightgbm),
    "xgboost": Kind("xgboost", _xgboost),
    "unlimited forest": Kind("scikit-learn", _forest),
    "catboost": Kind("catboost", _catboost),
}


def ensemble(
    kind: str,
    shape: Shape | str,
    *,
    trees: int,
    depth: int | None,
    rows: int,
    seed: int,
    threads: int,
    cache: Path = CACHE,
) -> Subject:
    """A fitted ensemble, from the cache where it lies there."""
    name = shape if isinstance(shape, str) else f"{shape.make.__name__}-{shape.features}"
    shape = TABLES[shape] if isinstance(shape, str) else shape
    made = KINDS[kind]
    depth = None if kind == "unlimited forest" else depth
    unfitted = made.make(shape.classifies, trees, depth, threads)
    x, y = shaped(shape, rows, seed)
    method = "predict_proba" if shape.classifies else "predict"
    parts = {
        "model": type(unfitted).__qualname__,
        "parameters": {
            k: repr(v)
            for k, v in sorted(unfitted.get_params().items())
            if k not in ("n_jobs", "thread_count")  # how fast it is fitted, not what comes out
        },
        "table": name,
        "shares": shape.shares,
        "rows": rows,
        "seed": seed,
        "versions": {name: v for name, v in versions().items() if name in FITTED_WITH},
        "code": Path(benchmarks.tables.__file__).read_text(),
    }
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
    key = f"{kind}-{name}-{trees}x{depth}-{digest}".replace(" ", "-")
    model = kept(cache / f"{key}.pickle", lambda: unfitted.fit(x, y))
    return Subject(model, made.library, method, shape.classifies, key, (x, y))


def kept(path: Path, fit: Callable[[], Any]) -> Any:
    """What `fit` makes, from the file where it was kept or else made now and kept."""
    if path.exists():
        return pickle.loads(path.read_bytes())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = fit()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(model))
    return model
