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

import sqlml
from sqlml import errors
from sqlml.importers.file_formats import read_folder
from sqlml.importers.registry import import_model
from sqlml.ir.trees import Ensemble
from sqlml.regular_files import list_files_below
from sqlml.scorer.scorer import Scorer
from sqlml.verifying.ask_library import PredictionRequest
from sqlml.verifying.spark_session import predict_with_spark

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support")

CITIES = ["Bonn", "Ulm", "Köln", 'it\'s "x"', "Hof", ""]
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
    files = {name: (folder / name).read_bytes() for name in list_files_below(str(folder), 10_000)}
    return read_folder(files, str(folder))


def imported(model: Any, folder: Path, inputs: Sequence[str] | None = None) -> Any:
    """From the object, once the folder has given the same."""
    made = import_model(model, inputs)
    saved = import_model(read(folder_of(model, folder)), inputs)
    assert saved.program.hash == made.program.hash
    assert saved.features == made.features and saved.library == made.library
    return made


def width_of(features: Any) -> int:
    return len(features.first()["features"])


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
    asked = PredictionRequest.for_program(made.program)
    theirs = predict_with_spark(model, frame, asked)
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
                assert ours.tolist() == expected.ravel().tolist()
            else:
                ours = ours.reshape(expected.shape)
                np.testing.assert_allclose(ours, expected, rtol=digits, atol=digits)


@pytest.mark.by_day(8)
@pytest.mark.parametrize("name", MODELS)
def test_models_answer_as_spark_does(
    features: Any, stages: list[Any], table: pd.DataFrame, tmp_path: Path, name: str
) -> None:
    from pyspark.ml import PipelineModel

    module, kind, params = MODELS[name]
    last = fitted(features, module, kind, **params)
    imported(last, tmp_path / "model", list("abcdefg")[: width_of(features)])
    model = PipelineModel(stages=[*stages, last])
    made = import_model(model)
    frame = corners(made, table)
    if kind.startswith("L"):  # sums of 1e300 and others
        frame = frame[frame["a"].abs() < 1e10]
    assert_same(model, made, frame)


@pytest.fixture(scope="module")
def two(features: Any) -> Any:
    """The rows whose label is one of two."""
    return (
        features.where("left_code < 2")
        .drop("left_code", "features", "kind_hot")
        .selectExpr("*", "double(left = 'yes') AS answer")
    )


@pytest.fixture(scope="module")
def plain(two: Any) -> Any:
    from pyspark.ml.feature import VectorAssembler

    return VectorAssembler(inputCols=["a", "b", "city_code"], outputCol="x").transform(two).cache()


TWO: dict[str, tuple[str, dict[str, Any], Any]] = {
    "logistic": ("LogisticRegression", {"threshold": 0.31, "maxIter": 5}, None),
    "logistic with thresholds": ("LogisticRegression", {"maxIter": 5}, [0.2, 0.7]),
    "boosted": ("GBTClassifier", {"maxIter": 3, **SMALL}, None),
    "boosted with thresholds": ("GBTClassifier", {"maxIter": 1, **SMALL}, [0.7, 0.3]),
    "tree": ("DecisionTreeClassifier", {"maxDepth": 1}, [0.5, 0.5]),
}


@pytest.mark.by_day(6)
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
    frame.loc[rng.random(ROWS) < 0.2, "city"] = np.nan
    frame.loc[rng.random(ROWS) < 0.2, "a"] = np.nan
    assert_same(named, made, frame)
    assert made.program.labels[0].values == ("no", "yes")
    assert_same(model, import_model(model, ["a", "b", "city"]), frame)


@pytest.mark.nightly
def test_scalers_compute_in_their_own_order(rows: Any, tmp_path: Path) -> None:
    """Columns that did not vary, and NaN, which passes."""
    from pyspark.ml import Pipeline
    from pyspark.ml.feature import (
        MaxAbsScaler,
        MinMaxScaler,
        Normalizer,
        RobustScaler,
        StandardScaler,
        VectorAssembler,
    )

    def step(cls: Any, i: int, **params: Any) -> Any:
        return cls(inputCol=f"v{i}", outputCol=f"v{i + 1}", **params)

    names = ["a", "b", "same", "y"]
    scalers = [
        VectorAssembler(inputCols=names, outputCol="v0", handleInvalid="keep"),
        step(MaxAbsScaler, 0),
        step(StandardScaler, 1),
        step(MinMaxScaler, 2, min=-1.5, max=4.0),
        step(RobustScaler, 3, withCentering=True),
        step(StandardScaler, 4, withMean=True),
        step(Normalizer, 5, p=1.0),
        step(Normalizer, 6),
        step(Normalizer, 7, p=float("inf")),
    ]
    model = Pipeline(stages=scalers).fit(rows)
    made = imported(model, tmp_path / "model")
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({name: rng.normal(size=60) * 9 for name in names})
    frame.loc[:20, "same"] = 4.0
    frame.iloc[30] = 0.0
    assert_same(model, made, frame)
    before = type(model)(stages=model.stages[:6])  # where a NaN has not yet reached its row's norm
    assert_same(before, import_model(before), frame.mask(rng.random(frame.shape) < 0.1))
    alone = import_model(model.stages[3], names)
    assert_same(model.stages[3], alone, frame.mask(rng.random(frame.shape) < 0.1))


def test_missing_values_are_imputed_and_put_into_buckets(rows: Any, tmp_path: Path) -> None:
    from pyspark.ml import Pipeline
    from pyspark.ml.feature import Binarizer, Bucketizer, Imputer, VectorAssembler

    steps = [
        Imputer(inputCols=["gap", "b"], outputCols=["gap_full", "b_full"], strategy="median"),
        Bucketizer(inputCol="b_full", outputCol="bucket", splits=[-9.0, 0.0, 0.5, 9.0]),
        Binarizer(inputCols=["gap_full", "a"], outputCols=["big", "above"], thresholds=[0.25, 0.5]),
        VectorAssembler(inputCols=["gap_full", "bucket", "big", "above"], outputCol="f"),
    ]
    model = Pipeline(stages=steps).fit(rows)
    with pytest.warns(UserWarning, match="fills 'gap' with .* cast it to DOUBLE before fit"):
        made = imported(model, tmp_path / "model")
    frame = pd.DataFrame({"gap": [0.25, np.nan, 3.0, -1.0], "b": [0.5, 9.0, np.nan, -9.0]})
    frame["a"] = [0.5, np.nan, 7.0, np.inf]
    assert_same(model, made, frame[[f.name for f in made.features]])
    with pytest.raises(errors.MissingValueError, match="'b' has infinity"):
        Scorer(made.program, made.features, {}).transform(frame.assign(b=9.5))


@pytest.mark.parametrize(("invalid", "drop_last"), [("error", True), ("keep", False)])
def test_numbers_become_zeros_and_ones(
    spark: Any, tmp_path: Path, invalid: str, drop_last: bool
) -> None:
    from pyspark.ml.feature import OneHotEncoder

    known = spark.createDataFrame([(0.0,), (2.0,)], ["k"])
    encoder = OneHotEncoder(
        inputCols=["k"], outputCols=["hot"], handleInvalid=invalid, dropLast=drop_last
    )
    model = encoder.fit(known)
    made = imported(model, tmp_path / "model")
    fine = pd.DataFrame({"k": [0.0, 1.0, 2.0, 0.9, 2.5]})
    assert_same(model, made, fine)
    other = pd.DataFrame({"k": [3.0, -1.0, 1e300, -0.5]})
    if invalid == "keep":
        assert_same(model, made, other)
        return
    for row in range(len(other)):
        with pytest.raises(errors.UnknownCategoryError, match="OneHotEncoderModel"):
            Scorer(made.program, made.features, {}).transform(other.iloc[[row]])
    with pytest.raises(Exception, match="SparkException|Unseen|FAILED"):
        predict_with_spark(model, other.head(1), PredictionRequest.for_program(made.program))


def test_what_spark_refuses_is_refused(rows: Any, table: pd.DataFrame) -> None:
    from pyspark.ml import Pipeline
    from pyspark.ml.feature import StringIndexer, VectorAssembler

    indexer = StringIndexer(inputCol="city", outputCol="code")
    assembler = VectorAssembler(inputCols=["code", "a"], outputCol="f")
    model = Pipeline(stages=[indexer, assembler]).fit(rows)
    made = import_model(model)
    frame = table[["city", "a"]].head(4)
    assert_same(model, made, frame)
    for column, value, error in (
        ("city", "Hof?", errors.UnknownCategoryError),
        ("city", None, errors.UnknownCategoryError),
        ("a", None, errors.MissingValueError),
    ):
        bad = frame.assign(**{column: [*frame[column][:3], value]})
        with pytest.raises(error, match=f"'{column}'"):
            Scorer(made.program, made.features, {}).transform(bad)
        with pytest.raises(Exception, match="SparkException|Unseen|null|FAILED"):
            predict_with_spark(model, bad, PredictionRequest.for_program(made.program))


@pytest.mark.nightly
def test_a_model_reads_what_another_predicts(
    features: Any, stages: list[Any], table: pd.DataFrame, tmp_path: Path
) -> None:
    from pyspark.ml import Pipeline, PipelineModel
    from pyspark.ml.clustering import KMeans
    from pyspark.ml.feature import VectorAssembler
    from pyspark.ml.regression import DecisionTreeRegressor

    steps = [
        KMeans(k=3, seed=2, predictionCol="cluster", maxIter=2),
        VectorAssembler(inputCols=["cluster", "features"], outputCol="both"),
        DecisionTreeRegressor(featuresCol="both", labelCol="y", maxDepth=3),
    ]
    inner = Pipeline(stages=steps).fit(features)
    model = PipelineModel(stages=[PipelineModel(stages=stages), inner])
    made = imported(model, tmp_path / "model")
    assert_same(model, made, table[[f.name for f in made.features]])


def test_what_is_not_covered_is_named(rows: Any, stages: list[Any], features: Any) -> None:
    from pyspark.ml import Pipeline, PipelineModel
    from pyspark.ml.classification import LogisticRegression, NaiveBayes
    from pyspark.ml.feature import PCA, Imputer, StringIndexer, VectorAssembler

    def refused(model: Any, match: str) -> None:
        with pytest.raises(errors.UnsupportedModelError, match=match):
            import_model(model)

    refused(Pipeline(stages=[]), "Pipeline is not fitted; call its fit.. first")
    refused(LogisticRegression(), "LogisticRegression is not fitted; call its fit.. first")
    refused(StringIndexer(inputCol="a", outputCol="b"), "StringIndexer is not fitted")
    pca = PCA(k=1, inputCol="features", outputCol="p").fit(features)
    refused(PipelineModel(stages=[*stages, pca]), "the stage PCAModel .*it imports Binarizer,")
    refused(pca, "the stage PCAModel")
    bayes = NaiveBayes(labelCol="left_code", modelType="gaussian").fit(features)
    refused(bayes, "the stage NaiveBayesModel")
    skipping = VectorAssembler(inputCols=["a"], outputCol="f", handleInvalid="skip")
    refused(skipping, r"drops rows.*call setHandleInvalid\('error'\)")
    refused(
        Imputer(inputCols=["b"], outputCols=["c"], missingValue=0.5).fit(rows),
        "missingValue=0.5 .* write such values as NULL",
    )
    refused(PipelineModel(stages=[]), "has no stages")


@pytest.mark.nightly
def test_sql_scores_and_verifies_them(
    spark: Any, features: Any, stages: list[Any], table: pd.DataFrame, tmp_path: Path
) -> None:
    """From the object, which is compared with Spark when it is registered, and from the folder,
    in DuckDB and in Spark."""
    from pyspark.ml import PipelineModel
    from pyspark.ml.feature import IndexToString

    tree = fitted(features, CLASSES, "RandomForestClassifier", numTrees=3, **SMALL, **GRADE)
    named = IndexToString(inputCol="prediction", outputCol="said", labels=["low", "mid", "high"])
    model = PipelineModel(stages=[*stages, tree, named])
    folder = folder_of(model, tmp_path / "m")
    rows = table[["a", "b", "same", "city", "kind"]]
    truth = predict_with_spark(
        model, rows, PredictionRequest(("label",), True, ("city", "kind"), False)
    )["label"].ravel()
    with sqlml.connect() as con:
        con.create_model("live", model)
        con.execute(f"CREATE MODEL saved FROM '{folder}'")
        con.connection.register("t", rows)
        for name in ("live", "saved"):
            found = con.execute(f"SELECT predict('{name}', *) FROM t").fetchall()
            assert [row[0] for row in found] == truth.tolist()
        verified = con.execute("VERIFY MODEL saved USING (FROM t)").fetchall()
        assert {row[0]: row[-1] for row in verified} == dict.fromkeys(
            ("label", "proba", "score"), True
        )
        (told,) = con.execute(
            "SELECT verification FROM sqlml.model_versions WHERE name = 'live'"
        ).fetchall()
        assert "deviation" in str(told)
    with sqlml.attach(spark, catalog=tmp_path / "models") as con:
        con.execute(f"CREATE MODEL saved FROM '{folder}'")
        spark.createDataFrame(rows.values.tolist(), list(rows.columns)).createOrReplaceTempView("t")
        found = con.sql("SELECT predict('saved', *) FROM t").collect()
        assert sorted(row[0] for row in found) == sorted(truth.tolist())
