"""Fitted pipelines of pyspark.ml beside what their own `transform` says, row for row.

Each is imported from the object and from the folder that it is saved in, which gives one Program.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sqlml
from sqlml import errors
from sqlml.importers.artifact import read_folder
from sqlml.importers.registry import import_model
from sqlml.ir.trees import Ensemble
from sqlml.regular_files import files_below
from sqlml.scorer import Scorer
from sqlml.verifying.asked import Asked
from sqlml.verifying.spark_session import spark_answers

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support")

CITIES = ["Bonn", "Ulm", "Köln", "it's \"x\"", "Hof", ""]
ROWS = 240


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    rng = np.random.default_rng(7)
    a, b = rng.normal(size=ROWS), rng.integers(-3, 4, ROWS) * 0.5
    city = rng.choice(CITIES[:5], ROWS)
    kind = rng.choice(["p", "q"], ROWS)
    return pd.DataFrame(
        {
            "a": a,
            "b": b,
            "same": 4.0,
            "city": city,
            "kind": kind,
            "gap": np.where(rng.random(ROWS) < 0.2, np.nan, a * 3),
            "left": np.where((a + b > 0) ^ (city == "Ulm"), "yes", "no"),
            "grade": np.where(a > 0.6, 2.0, np.where(city < "C", 1.0, 0.0)),
            "y": 3 * a - b + (city == "Hof") + rng.normal(size=ROWS) * 0.1,
        }
    )


@pytest.fixture(scope="module")
def rows(spark: Any, table: pd.DataFrame) -> Any:
    values = table.astype(object).where(table.notna(), None).values.tolist()
    made = spark.createDataFrame(values, list(table.columns)).coalesce(1).cache()
    assert made.count() == ROWS
    return made


def prepared(invalid: str = "keep", **one_hot: Any) -> list[Any]:
    """Texts as codes and as 0 and 1, and numbers, in one vector; the label as a number."""
    from pyspark.ml.feature import OneHotEncoder, StringIndexer, VectorAssembler

    return [
        StringIndexer(
            inputCols=["city", "kind", "left"],
            outputCols=["city_code", "kind_code", "left_code"],
            handleInvalid=invalid,
        ),
        OneHotEncoder(
            inputCols=["city_code", "kind_code"], outputCols=["city_hot", "kind_hot"], **one_hot
        ),
        VectorAssembler(
            inputCols=["a", "b", "city_code", "kind_hot", "same"], outputCol="features"
        ),
    ]


def _of(package: str, name: str, **params: Any) -> Callable[[], list[Any]]:
    def make() -> list[Any]:
        import importlib

        module = importlib.import_module(f"pyspark.ml.{package}")
        return [getattr(module, name)(**params)]

    return make


CODE, GRADE = {"labelCol": "left_code"}, {"labelCol": "grade"}
VALUE = {"labelCol": "y"}
SMALL = {"maxDepth": 4, "seed": 1}

MODELS: dict[str, Callable[[], list[Any]]] = {
    "logistic": _of("classification", "LogisticRegression", maxIter=8, **GRADE),
    "multinomial of two": _of(
        "classification", "LogisticRegression", maxIter=8, family="multinomial", **CODE
    ),
    "linear": _of("regression", "LinearRegression", maxIter=8, regParam=0.01, **VALUE),
    "tree": _of("classification", "DecisionTreeClassifier", **SMALL, **GRADE),
    "tree of values": _of("regression", "DecisionTreeRegressor", **SMALL, **VALUE),
    "forest": _of("classification", "RandomForestClassifier", numTrees=5, **SMALL, **GRADE),
    "forest with thresholds": _of(
        "classification",
        "RandomForestClassifier",
        numTrees=5,
        thresholds=[0.0, 0.3, 0.6],
        **SMALL,
        **GRADE,
    ),
    "forest of values": _of("regression", "RandomForestRegressor", numTrees=5, **SMALL, **VALUE),
    "boosted of values": _of("regression", "GBTRegressor", maxIter=4, **SMALL, **VALUE),
    "clusters": _of("clustering", "KMeans", k=4, seed=1, maxIter=5),
    "clusters by angle": _of(
        "clustering", "KMeans", k=3, seed=1, maxIter=5, distanceMeasure="cosine"
    ),
}


def folder_of(model: Any, folder: Path) -> Path:
    model.write().overwrite().save(f"file://{folder}")
    return folder


def read(folder: Path) -> Any:
    files = {name: (folder / name).read_bytes() for name in files_below(str(folder), 10_000)}
    return read_folder(files, str(folder))


def imported(model: Any, folder: Path, inputs: Sequence[str] | None = None) -> Any:
    """From the object, once the folder has given the same."""
    made = import_model(model, inputs)
    saved = import_model(read(folder_of(model, folder)), inputs)
    assert saved.program.hash == made.program.hash
    assert saved.features == made.features and saved.library == made.library
    return made


def corners(made: Any, table: pd.DataFrame) -> pd.DataFrame:
    """Rows of the table and others: thresholds and their neighbours, texts that nobody has seen."""
    rng = np.random.default_rng(3)
    cells: dict[str, list[float]] = {"a": [0.0, -0.0, 1e300, -1e300], "b": [0.25, 1e-310]}
    names = ["a", "b", "city_code", "kind_hot", "same"]
    for node in made.program.nodes:
        if node.op == "tree_ensemble":
            trees = Ensemble.of(node.attrs)
            for feature, at in zip(trees.feature, trees.threshold, strict=True):
                if feature < 2:
                    beside = [np.nextafter(at, -np.inf), at, np.nextafter(at, np.inf)]
                    cells[names[feature]] += [float(v) for v in beside]
    others = table.sample(160, replace=True, random_state=4).reset_index(drop=True)
    for name, values in cells.items():
        others[name] = rng.choice(values, len(others))
    others["city"] = rng.choice(CITIES, len(others))
    both = pd.concat([table, others], ignore_index=True)
    both.loc[rng.random(len(both)) < 0.1, "kind"] = None
    return both[[f.name for f in made.features]]


def assert_same(model: Any, made: Any, frame: pd.DataFrame, digits: float = 1e-12) -> None:
    """Labels are equal, numbers within `digits` of the largest."""
    asked = Asked.of(made.program)
    theirs = spark_answers(model, frame, asked)
    assert set(theirs) == set(made.program.outputs)
    for backend in ("native", "reference"):
        scorer = Scorer(made.program, made.features, {"backend": backend})
        ways = {
            "label": scorer.predict,
            "proba": scorer.predict_proba,
            "score": scorer.decision_function,
            "transform": scorer.transform,
        }
        for output, expected in theirs.items():
            ours = np.asarray(ways[output](frame))
            if output == "label" and made.program.labels:
                assert ours.tolist() == expected.tolist()
            else:
                ours = ours.reshape(expected.shape)
                np.testing.assert_allclose(ours, expected, rtol=digits, atol=digits)


@pytest.mark.parametrize("name", MODELS)
def test_models_answer_as_spark_does(
    rows: Any, table: pd.DataFrame, tmp_path: Path, name: str
) -> None:
    from pyspark.ml import Pipeline

    model = Pipeline(stages=[*prepared(), *MODELS[name]()]).fit(rows)
    made = imported(model, tmp_path / "model")
    frame = corners(made, table)
    if "linear" in name or "logistic" in name or "multinomial" in name:
        frame = frame[frame["a"].abs() < 1e10]
    assert_same(model, made, frame)
