"""What each optional library is for: without it, an error names its extra, and all else runs."""

from __future__ import annotations

import pickle
import tomllib
from pathlib import Path
from typing import Any

import catboost as cb
import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import skops.io
import torch
import xgboost as xgb
from skl2onnx import to_onnx
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

import sqlml
from tests.e2e import child

LIBRARIES = (
    "sklearn", "scipy", "joblib", "pandas", "polars", "xgboost", "lightgbm", "catboost", "onnx",
    "onnxruntime", "skops", "torch",
)  # fmt: skip

_HIDDEN = """
import importlib.abc, sys

class Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {libraries!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name.split(".")[0])
        return None

sys.meta_path.insert(0, Hidden())
import sqlml
"""


def without(code: str, folder: Path, *libraries: str) -> str:
    """What `code` prints where `libraries` are not installed."""
    done = child.run(_HIDDEN.format(libraries=libraries) + code, folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Sorted(nn.Module):
    """What has no operator of ours, so that torch runs it."""

    def forward(self, x: Any) -> Any:
        return x.sort(1).values[:, :1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with models of every library, and a file of each kind."""
    made = tmp_path_factory.mktemp("models")
    rng = np.random.default_rng(0)
    x = pd.DataFrame(rng.normal(size=(80, 2)), columns=["a", "b"])
    y = (x.a + x.b > 0).astype(int)
    small: dict[str, Any] = {"n_estimators": 3, "max_depth": 2, "n_jobs": 1}
    cat = cb.CatBoostClassifier(iterations=3, depth=2, verbose=0, allow_writing_files=False)
    linear = make_pipeline(StandardScaler(), LogisticRegression()).fit(x, y)
    words = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(
        ["so good", "so bad"], [1, 0]
    )
    module = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)).double().eval()
    models: dict[str, Any] = {
        "linear": linear,
        "xgboost": xgb.XGBClassifier(**small).fit(x, y),
        "lightgbm": lgb.LGBMClassifier(**small, verbose=-1).fit(x, y),
        "catboost": cat.fit(x, y),
        "onnx": to_onnx(linear, x.to_numpy(np.float32)[:1]),
        "torch": module,
    }
    with sqlml.connect(made / "models.duckdb") as con:
        con.register("x", x.assign(t="so good"))
        con.execute("CREATE TABLE t AS FROM x")
        con.unregister("x")
        for name, model in models.items():
            con.create_model(
                name, model, inputs=None if hasattr(model, "fit") else ["a", "b"], verify=False
            )
        con.create_model("words", words, inputs=["t"], verify=False)
        con.create_model("sorted", Sorted().double(), inputs=["a", "b"], verify=False)
    models["xgboost"].save_model(made / "m.json")
    models["lightgbm"].booster_.save_model(made / "m.txt")
    models["catboost"].save_model(str(made / "cat.json"), format="json")
    (made / "m.onnx").write_bytes(models["onnx"].SerializeToString())
    skops.io.dump(linear, made / "m.skops")
    (made / "m.pkl").write_bytes(pickle.dumps(linear))
    rows = ({0: torch.export.Dim("rows", min=1)},)
    sample = (torch.zeros(4, 2, dtype=torch.float64),)
    torch.export.save(torch.export.export(module, sample, dynamic_shapes=rows), made / "m.pt2")
    return made


def test_stored_models_of_every_library_score_without_it(folder: Path) -> None:
    code = (
        "con = sqlml.connect('models.duckdb', read_only=True)\n"
        "for m in ('linear', 'xgboost', 'lightgbm', 'catboost', 'onnx', 'torch', 'words'):\n"
        "    rows = con.execute(f\"SELECT predict('{m}', *) FROM t\").fetchall()\n"
        "    print(m, len(rows))\n"
        "scorer = sqlml.compile(con._services.lookup.model('linear').program)\n"
        "print(len(scorer.predict({'a': [1.0], 'b': [2.0]})))\n"
    )
    printed = without(code, folder, *LIBRARIES)
    assert printed.split()[1::2] == ["80"] * 7 and printed.split()[-1] == "1"


@pytest.mark.by_day(2)
@pytest.mark.parametrize("path", ["m.json", "m.txt", "cat.json", "m.pt2"])
def test_files_that_need_no_library(folder: Path, path: str) -> None:
    code = (
        "con = sqlml.connect()\n"
        f"con.execute(\"CREATE MODEL m INPUT (a DOUBLE, b DOUBLE) FROM '{path}'\")\n"
        "print(con.execute(\"SELECT predict('m', a := 1, b := 2)\").fetchall())"
    )
    assert without(code, folder, *LIBRARIES).startswith("[(")


NEEDS = [
    ("CREATE MODEL m INPUT (a DOUBLE, b DOUBLE) FROM 'm.onnx'", "onnx", "onnx"),
    ("CREATE MODEL m FROM 'm.skops'", "skops", "skops"),
    ("CREATE MODEL m FROM 'm.skops'", "sklearn", "skops"),
    ("CREATE MODEL m FROM 'm.pkl' OPTIONS (allow_pickle = true)", "sklearn", "sklearn"),
    ("CREATE MODEL m FROM 'm.json' OPTIONS (backend = 'torch')", "torch", "torch"),
    (
        "CREATE MODEL m FROM 'm.json' OPTIONS (backend = 'onnxruntime')",
        "onnxruntime",
        "onnx",
    ),
    ("CREATE MODEL m FROM 'm.json' OPTIONS (strategy = 'gemm')", "torch", "torch"),
    ("EXPORT MODEL s.linear TO 'out.onnx'", "onnx", "onnx"),
    ("SELECT predict('s.sorted', a := 1, b := 2)", "torch", "torch"),
]
"""Statements, the library that each needs, and its extra."""


@pytest.mark.by_day(3)
@pytest.mark.parametrize(("statement", "missing", "extra"), NEEDS)
def test_a_missing_library_is_named_with_its_extra(
    folder: Path, statement: str, missing: str, extra: str
) -> None:
    code = (
        "from sqlml.errors import MissingDependencyError\n"
        "con = sqlml.connect()\n"
        "con.execute(\"ATTACH 'models.duckdb' AS s (READ_ONLY)\")\n"
        f"try: con.execute({statement!r}).fetchall()\n"
        "except MissingDependencyError as error: print(error)"
    )
    printed = without(code, folder, missing)
    assert missing in printed and "not installed" in printed
    assert f"pip install 'sqlml[{extra}]'" in printed
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert extra in project["optional-dependencies"]
