"""Fitted pipelines of pyspark.ml beside what their own `transform` says, row for row.

Each is imported from the object and from the folder that it is saved in, which gives one Program.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

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


@pytest.fixture(scope="module")
def stages(rows: Any) -> list[Any]:
    """Fitted: texts as codes and as 0 and 1, and numbers, in one vector; labels as numbers."""
    from pyspark.ml import Pipeline
    from pyspark.ml.feature import OneHotEncoder, StringIndexer, VectorAssembler

    indexer = StringIndexer(
        inputCols=["city", "kind", "left"],
        outputCols=["city_code", "kind_code", "left_code"],
        handleInvalid="keep",
    )
    encoder = OneHotEncoder(inputCols=["kind_code"], outputCols=["kind_hot"])
    assembler = VectorAssembler(
        inputCols=["a", "b", "city_code", "kind_hot", "same"], outputCol="features"
    )
    return list(Pipeline(stages=[indexer, encoder, assembler]).fit(rows).stages)


@pytest.fixture(scope="module")
def features(rows: Any, stages: list[Any]) -> Any:
    """The table with what the stages make of it."""
    from pyspark.ml import PipelineModel

    return PipelineModel(stages=stages).transform(rows).cache()


def fitted(features: Any, module: str, name: str, **params: Any) -> Any:
    """A model of pyspark.ml; `thresholds` are set afterwards, as some constructors lack them."""
    thresholds = params.pop("thresholds", None)
    made = getattr(importlib.import_module(f"pyspark.ml.{module}"), name)(**params)
    return (made.setThresholds(thresholds) if thresholds else made).fit(features)


LEFT, GRADE, VALUE = {"labelCol": "left_code"}, {"labelCol": "grade"}, {"labelCol": "y"}
SMALL = {"maxDepth": 4, "seed": 1}
CLASSES, NUMBERS, CLUSTERS = "classification", "regression", "clustering"

MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "logistic": (CLASSES, "LogisticRegression", {"maxIter": 8, **GRADE}),
    "logistic of few weights": (
        CLASSES,
        "LogisticRegression",
        {"maxIter": 8, "regParam": 0.2, "elasticNetParam": 1.0, **GRADE},
    ),
    "multinomial of two": (
        CLASSES,
        "LogisticRegression",
        {"maxIter": 8, "family": "multinomial", "thresholds": [0.7, 0.2, 0.1], **LEFT},
    ),
    "linear": (NUMBERS, "LinearRegression", {"maxIter": 8, "regParam": 0.01, **VALUE}),
    "tree": (CLASSES, "DecisionTreeClassifier", {**SMALL, **GRADE}),
    "tree of values": (NUMBERS, "DecisionTreeRegressor", {**SMALL, **VALUE}),
    "forest": (
        CLASSES,
        "RandomForestClassifier",
        {"numTrees": 5, "thresholds": [0.0, 0.3, 0.6], **SMALL, **GRADE},
    ),
    "forest of values": (NUMBERS, "RandomForestRegressor", {"numTrees": 5, **SMALL, **VALUE}),
    "boosted of values": (NUMBERS, "GBTRegressor", {"maxIter": 3, **SMALL, **VALUE}),
    "clusters": (CLUSTERS, "KMeans", {"k": 4, "seed": 1, "maxIter": 3}),
    "clusters by angle": (
        CLUSTERS,
        "KMeans",
        {"k": 3, "seed": 1, "maxIter": 3, "distanceMeasure": "cosine"},
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
    features: Any, stages: list[Any], table: pd.DataFrame, tmp_path: Path, name: str
) -> None:
    from pyspark.ml import PipelineModel

    module, kind, params = MODELS[name]
    model = PipelineModel(stages=[*stages, fitted(features, module, kind, **params)])
    made = imported(model, tmp_path / "model")
    frame = corners(made, table)
    if kind.startswith("L"):  # sums of 1e300 and others
        frame = frame[frame["a"].abs() < 1e10]
    assert_same(model, made, frame)


@pytest.fixture(scope="module")
def two(features: Any) -> Any:
    """The rows whose label is one of two."""
    return features.where("left_code < 2").drop("left_code", "features", "kind_hot").selectExpr(
        "*", "double(left = 'yes') AS answer"
    )


@pytest.fixture(scope="module")
def plain(two: Any) -> Any:
    from pyspark.ml.feature import VectorAssembler

    return VectorAssembler(inputCols=["a", "b", "city_code"], outputCol="x").transform(two).cache()


TWO: dict[str, tuple[str, dict[str, Any], Any]] = {
    "logistic": ("LogisticRegression", {"threshold": 0.31, "maxIter": 5}, None),
    "logistic, always": ("LogisticRegression", {"threshold": 0.0, "maxIter": 1}, None),
    "logistic with thresholds": ("LogisticRegression", {"maxIter": 5}, [0.2, 0.7]),
    "boosted": ("GBTClassifier", {"maxIter": 3, **SMALL}, None),
    "boosted with thresholds": ("GBTClassifier", {"maxIter": 1, **SMALL}, [0.7, 0.3]),
    "tree": ("DecisionTreeClassifier", {"maxDepth": 1}, [0.5, 0.5]),
}


@pytest.mark.parametrize("name", TWO)
def test_models_of_two_classes_name_them(
    plain: Any, table: pd.DataFrame, tmp_path: Path, name: str
) -> None:
    """The model alone reads a vector, whose columns `inputs` names; categories that are no codes
    go where Spark sends them."""
    from pyspark.ml import PipelineModel
    from pyspark.ml.feature import IndexToString

    kind, params, thresholds = TWO[name]
    params = {"featuresCol": "x", "labelCol": "answer", **params}
    model = fitted(plain, CLASSES, kind, thresholds=thresholds, **params)
    names = IndexToString(inputCol="prediction", outputCol="said", labels=["no", "yes"])
    named = PipelineModel(stages=[model, names])
    made = imported(named, tmp_path / "model", ["a", "b", "city"])
    rng = np.random.default_rng(1)
    frame = table[["a", "b"]].assign(city=rng.choice([0, 1, 2, 3, 4, 5, 99, -1, 0.5, 2.9], ROWS))
    if not kind.startswith("L"):
        frame.loc[rng.random(ROWS) < 0.2, "city"] = np.nan
        frame.loc[rng.random(ROWS) < 0.2, "a"] = np.nan
    assert_same(named, made, frame)
    assert made.program.labels[0].values == ("no", "yes")
    assert_same(model, import_model(model, ["a", "b", "city"]), frame)
