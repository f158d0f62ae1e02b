"""Small model files of every format, to be damaged."""

from __future__ import annotations

import io
from functools import lru_cache
from typing import Any

import numpy as np

from sqlml.ir import store
from sqlml.ir.builder import Builder
from tests.contract.operator_cases import CASES


def rows(count: int, seed: int = 0) -> Any:
    """Three columns of numbers and two of categories, as numbers."""
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=(count, 3)).astype(np.float32)
    return np.hstack([numbers, rng.integers(0, 5, (count, 2)).astype(np.float32)])


X = rows(120)
TWO = (X[:, 0] * X[:, 1] > 0).astype(int)
THREE = TWO + (X[:, 3] > 2)


@lru_cache(maxsize=1)
def xgboost_files() -> tuple[bytes, ...]:
    """JSON documents: trees with categories, dart, several classes, linear, vector leaves."""
    import pandas as pd
    import xgboost

    frame = pd.DataFrame(X[:, :3], columns=["a", "b", "c"])
    frame["d"] = pd.Categorical(np.array(["x", "y", "z", "u", "v"])[X[:, 3].astype(int)])
    small = {"n_estimators": 2, "max_depth": 2}
    models = [
        xgboost.XGBClassifier(**small, enable_categorical=True).fit(frame, TWO),
        xgboost.XGBRegressor(**small, booster="dart", rate_drop=0.5).fit(X, X[:, 0]),
        xgboost.XGBClassifier(**small).fit(X, THREE),
        xgboost.XGBRegressor(booster="gblinear", n_estimators=2).fit(X, X[:, 0]),
        xgboost.XGBRegressor(**small, multi_strategy="multi_output_tree").fit(X, X[:, :2]),
    ]
    return tuple(bytes(m.get_booster().save_raw("json")) for m in models)


@lru_cache(maxsize=1)
def xgboost_sets() -> bytes:
    """A JSON document whose trees test sets of categories."""
    import pandas as pd
    import xgboost

    frame = pd.DataFrame({"a": X[:, 0]})
    frame["d"] = pd.Categorical(np.array(["x", "y", "z", "u", "v"])[X[:, 3].astype(int)])
    y = np.isin(X[:, 3], [0, 2]) + 0.1 * X[:, 3]
    small = {"n_estimators": 1, "max_depth": 3, "max_cat_to_onehot": 1}
    model = xgboost.XGBRegressor(**small, enable_categorical=True).fit(frame, y)
    return bytes(model.get_booster().save_raw("json"))


@lru_cache(maxsize=1)
def ubj_files() -> tuple[bytes, ...]:
    """The same documents as XGBoost's UBJSON."""
    import xgboost

    return tuple(
        bytes(xgboost.Booster(model_file=bytearray(text)).save_raw("ubj"))
        for text in xgboost_files()
    )


@lru_cache(maxsize=1)
def lightgbm_files() -> tuple[bytes, ...]:
    """Text files: categories, several classes, linear leaves."""
    import lightgbm
    import pandas as pd

    frame = pd.DataFrame(X[:, :3], columns=["a", "b", "c"])
    frame["d"] = pd.Categorical(np.array(["x", "y", "z", "u", "v"])[X[:, 3].astype(int)])
    small: dict[str, Any] = {"n_estimators": 2, "num_leaves": 4, "verbose": -1, "n_jobs": 1}
    small |= {"min_child_samples": 5, "min_data_per_group": 5, "cat_smooth": 1}
    models = [
        lightgbm.LGBMClassifier(**small).fit(frame, TWO),
        lightgbm.LGBMClassifier(**small).fit(X, THREE),
        lightgbm.LGBMRegressor(**small, linear_tree=True).fit(X, X[:, 0]),
    ]
    return tuple(m.booster_.model_to_string().encode() for m in models)


@lru_cache(maxsize=1)
def catboost_files() -> tuple[bytes, ...]:
    """JSON documents: symmetric trees, categories, several classes, other trees, statistics of
    categories."""
    import tempfile
    from pathlib import Path

    import catboost
    import pandas as pd

    frame = pd.DataFrame(X[:, :3], columns=["a", "b", "c"])
    frame["d"] = np.array(["x", "y"])[(X[:, 3] > 2).astype(int)]
    small: dict[str, Any] = {"iterations": 2, "depth": 2, "verbose": 0, "one_hot_max_size": 5}
    small |= {"allow_writing_files": False, "thread_count": 1}
    models = [
        catboost.CatBoostClassifier(**small).fit(frame, TWO, cat_features=["d"]),
        catboost.CatBoostClassifier(**small).fit(X, THREE),
        catboost.CatBoostRegressor(**small, grow_policy="Lossguide").fit(X, X[:, 0]),
        catboost.CatBoostClassifier(**{**small, "one_hot_max_size": 1}).fit(
            frame.assign(e=frame["d"] + np.array(["1", "2", "3"])[np.arange(len(X)) % 3]),
            TWO,
            cat_features=["d", "e"],
        ),
    ]
    files = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "m.json")
        for model in models:
            model.save_model(str(path), format="json")
            files.append(path.read_bytes())
    return tuple(files)


@lru_cache(maxsize=1)
def onnx_files() -> tuple[bytes, ...]:
    """Files of skl2onnx that are imported: a linear pipeline, trees, a table of categories."""
    from skl2onnx import to_onnx
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    models = [
        make_pipeline(StandardScaler(), LogisticRegression()).fit(X, THREE),
        RandomForestClassifier(2, max_depth=2, random_state=0).fit(X, THREE),
        make_pipeline(OneHotEncoder(), LogisticRegression()).fit(X[:, 3:], TWO),
    ]
    return tuple(
        to_onnx(m, X[:1, : m.n_features_in_]).SerializeToString(deterministic=True) for m in models
    )


@lru_cache(maxsize=1)
def whole_onnx_files() -> tuple[bytes, ...]:
    """A file of skl2onnx that runs as a whole, so a process of its own tries it first."""
    from skl2onnx import to_onnx
    from sklearn.svm import SVC

    model = SVC().fit(X[:20], THREE[:20])
    return (to_onnx(model, X[:1]).SerializeToString(deterministic=True),)


@lru_cache(maxsize=1)
def skops_files() -> tuple[bytes, ...]:
    """Archives of skops: pipelines of what reads its attributes in a way of its own."""
    import skops.io
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler
    from sklearn.svm import SVC
    from sklearn.tree import DecisionTreeClassifier

    mixed = make_column_transformer(
        (StandardScaler(), [0, 1, 2]), (OneHotEncoder(handle_unknown="ignore"), [3, 4])
    )
    models = [
        make_pipeline(mixed, LogisticRegression()).fit(X, THREE),
        DecisionTreeClassifier(max_depth=3).fit(X, THREE),
        GradientBoostingClassifier(n_estimators=2, max_depth=2).fit(X, TWO),
        HistGradientBoostingRegressor(max_iter=2, max_leaf_nodes=4).fit(X, X[:, 0]),
        KNeighborsClassifier(3, algorithm="kd_tree").fit(X[:20], TWO[:20]),
        SVC().fit(X[:20], TWO[:20]),
    ]
    return tuple(skops.io.dumps(m) for m in models)


def torch_file(module: Any) -> bytes:
    """An archive of torch.export: of a module that takes five numbers a row."""
    import torch

    made = torch.export.export(
        module.eval(), (torch.randn(3, 5),), dynamic_shapes=({0: torch.export.Dim("rows")},)
    )
    out = io.BytesIO()
    torch.export.save(made, out)
    return out.getvalue()


@lru_cache(maxsize=1)
def torch_files() -> tuple[bytes, ...]:
    """An archive of torch.export that is imported layer by layer."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    layers = (nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2), nn.Softmax(dim=1))
    return (torch_file(nn.Sequential(*layers)),)


@lru_cache(maxsize=1)
def whole_torch_files() -> tuple[bytes, ...]:
    """One that runs as a whole, so a process of its own tries it first."""
    import torch
    from torch import nn

    class Odd(nn.Module):
        """An operator that the IR lacks."""

        def forward(self, x: Any) -> Any:
            return torch.cumsum(torch.sin(x), dim=1)[:, 1:]

    torch.manual_seed(0)
    return (torch_file(nn.Sequential(nn.Linear(5, 3), Odd())),)


@lru_cache(maxsize=1)
def program_files() -> tuple[bytes, ...]:
    """One stored Program for each case of each operator."""
    files = []
    for makes in CASES.values():
        for make in makes:
            b = Builder()
            value = make(b)
            if value.type.sparse:
                value = b.op("densify", value, fill=0.0)
            if value.type.rowwise and len(value.type.shape) == 2:
                files.append(store.dumps(b.build({"transform": value})))
    return tuple(files)
