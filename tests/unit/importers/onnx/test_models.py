"""ONNX files that skl2onnx and onnxmltools write: the oracle is onnxruntime on the same file."""

from __future__ import annotations

import warnings
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from onnxmltools import convert_lightgbm, convert_xgboost
from onnxmltools.convert.common.data_types import FloatTensorType
from skl2onnx import to_onnx
from skl2onnx.common.data_types import FloatTensorType as Floats
from skl2onnx.common.data_types import StringTensorType
from sklearn import (
    calibration,
    cluster,
    compose,
    decomposition,
    discriminant_analysis,
    ensemble,
    feature_selection,
    impute,
    linear_model,
    mixture,
    multiclass,
    naive_bayes,
    neighbors,
    neural_network,
    pipeline,
    preprocessing,
    svm,
    tree,
)

import sqlml
from sqlml.backends import base
from sqlml.errors import MissingValueError
from sqlml.importers.registry import import_model
from sqlml.ir import reference
from tests.support.onnx_checks import agree, graph, load, node, theirs

warnings.filterwarnings("ignore")
RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 4)).astype(np.float32)
Y3 = np.digitize(X[:, 0] + X[:, 1] / 2, [-0.5, 0.5])
Y2 = (Y3 > 0).astype(int)
TEXT = np.array(["low", "mid", "high"], object)
REAL = X @ np.arange(4) + RNG.normal(size=200)
LINEAR = linear_model.LogisticRegression()
SMALL = tree.DecisionTreeClassifier(max_depth=3, random_state=0)

CLASSIFIERS = [
    LINEAR,
    linear_model.SGDClassifier(loss="log_loss", random_state=0),
    linear_model.RidgeClassifier(),
    svm.LinearSVC(),
    tree.DecisionTreeClassifier(max_depth=5, random_state=0),
    ensemble.RandomForestClassifier(6, max_depth=4, random_state=0),
    ensemble.GradientBoostingClassifier(n_estimators=5, random_state=0),
    ensemble.AdaBoostClassifier(n_estimators=3, random_state=0),
    naive_bayes.GaussianNB(),
    neural_network.MLPClassifier((5,), max_iter=30, random_state=0),
    naive_bayes.BernoulliNB(),
    svm.SVC(),
    svm.SVC(kernel="poly", probability=True),
    svm.SVC(kernel="sigmoid", decision_function_shape="ovo"),
    svm.NuSVC(nu=0.2),
    neighbors.KNeighborsClassifier(),
    neighbors.KNeighborsClassifier(weights="distance"),
    discriminant_analysis.LinearDiscriminantAnalysis(),
    discriminant_analysis.QuadraticDiscriminantAnalysis(),
    ensemble.BaggingClassifier(n_estimators=3, random_state=0),
    calibration.CalibratedClassifierCV(LINEAR, cv=2),
    multiclass.OneVsRestClassifier(LINEAR),
    ensemble.StackingClassifier([("a", LINEAR), ("b", SMALL)], cv=2),
]
REGRESSORS = [
    linear_model.Ridge(),
    linear_model.PoissonRegressor(),
    tree.DecisionTreeRegressor(max_depth=5, random_state=0),
    ensemble.RandomForestRegressor(6, max_depth=4, random_state=0),
    ensemble.GradientBoostingRegressor(n_estimators=6, random_state=0),
    svm.SVR(),
    svm.NuSVR(kernel="poly", degree=2, coef0=1.0),
    neighbors.KNeighborsRegressor(weights="distance"),
    neural_network.MLPRegressor(hidden_layer_sizes=(5,), max_iter=30, random_state=0),
    ensemble.VotingRegressor([("a", linear_model.Ridge()), ("b", tree.DecisionTreeRegressor())]),
]
TRANSFORMERS = [
    preprocessing.StandardScaler(),
    preprocessing.MinMaxScaler(clip=True),
    preprocessing.RobustScaler(),
    preprocessing.Normalizer(),
    preprocessing.Binarizer(),
    preprocessing.PolynomialFeatures(2),
    preprocessing.KBinsDiscretizer(3, encode="ordinal"),
    preprocessing.PowerTransformer(),
    decomposition.PCA(2),
    feature_selection.SelectKBest(k=2),
]
WHOLE = [
    neighbors.KNeighborsClassifier(metric="manhattan"),
    neighbors.KNeighborsClassifier(metric="cosine"),
]


def is_whole(imported: Any) -> bool:
    return any(n.op == "onnx_graph" for n in imported.program.nodes)


@pytest.mark.parametrize("model", CLASSIFIERS, ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("labels", ["two", "three", "text"])
def test_classifiers(model: Any, labels: str) -> None:
    y = {"two": Y2, "three": Y3, "text": TEXT[Y3]}[labels]
    content = to_onnx(model.fit(X, y), X[:1]).SerializeToString()
    imported = agree(content, {"X": X}, rtol=1e-5)
    assert not is_whole(imported)
    assert imported.program.labels[0].values == tuple(sorted(set(y.tolist())))
    assert not imported.is_named and imported.library.startswith("onnx (skl2onnx")


@pytest.mark.parametrize("model", REGRESSORS, ids=lambda m: type(m).__name__)
def test_regressors(model: Any) -> None:
    content = to_onnx(model.fit(X, np.abs(REAL)), X[:1]).SerializeToString()
    imported = agree(content, {"X": X}, rtol=1e-5)
    assert list(imported.program.outputs) == ["label"] and not is_whole(imported)


@pytest.mark.parametrize("model", TRANSFORMERS, ids=lambda m: type(m).__name__)
def test_transformers(model: Any) -> None:
    content = to_onnx(model.fit(X, Y2), X[:1]).SerializeToString()
    imported = agree(content, {"X": X}, rtol=1e-5)
    assert list(imported.program.outputs) == ["transform"] and not is_whole(imported)


@pytest.mark.parametrize("zipmap", [True, False])
def test_zipmap_makes_no_difference(zipmap: bool) -> None:
    model = LINEAR.fit(X, TEXT[Y3])
    made = to_onnx(model, X[:1], options={id(model): {"zipmap": zipmap}})
    program = agree(made.SerializeToString(), {"X": X}).program
    assert list(program.outputs) == ["label", "proba", "score"]
    scores = reference.run(program, dict(zip(program.inputs, X.T, strict=True)))["score"]
    np.testing.assert_allclose(scores, model.decision_function(X), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("model", WHOLE, ids=lambda m: type(m).__name__)
def test_a_graph_with_other_operators_runs_whole(model: Any) -> None:
    content = to_onnx(model.fit(X, TEXT[Y3]), X[:1]).SerializeToString()
    imported = agree(content, {"X": X}, rtol=1e-5)
    assert is_whole(imported)
    assert set(imported.program.outputs) >= {"label"}


def test_clusters_and_mixtures_have_numbers_for_labels() -> None:
    for model in (cluster.KMeans(3, n_init=1, random_state=0), mixture.GaussianMixture(2)):
        made = to_onnx(model.fit(X), X[:1]).SerializeToString()
        imported = agree(made, {"X": X}, rtol=1e-4)
        assert imported.program.labels[0].values in ((0, 1), (0, 1, 2))


def test_strings_and_numbers_as_columns_of_their_own() -> None:
    frame = pd.DataFrame(
        {"age": X[:, 0], "visits": X[:, 1], "city": RNG.choice(["Bern", "Oslo", "Lima"], 200)}
    )
    numeric = pipeline.make_pipeline(impute.SimpleImputer(), preprocessing.StandardScaler())
    prepare = compose.make_column_transformer(
        (numeric, ["age", "visits"]),
        (preprocessing.OneHotEncoder(handle_unknown="ignore"), ["city"]),
    )
    model = pipeline.make_pipeline(prepare, linear_model.LogisticRegression()).fit(frame, TEXT[Y3])
    types = [("age", Floats([None, 1])), ("visits", Floats([None, 1]))]
    made = to_onnx(model, initial_types=[*types, ("city", StringTensorType([None, 1]))])
    feed = {"age": X[:, :1], "visits": X[:, 1:2], "city": frame[["city"]].to_numpy(object)}
    imported = agree(made.SerializeToString(), feed, rtol=1e-5)
    assert [(f.name, f.kind) for f in imported.features] == [
        ("age", "number"),
        ("visits", "number"),
        ("city", "string"),
    ]
    assert imported.is_named and not is_whole(imported)


def test_inputs_rename_the_columns_of_a_matrix() -> None:
    made = to_onnx(LINEAR.fit(X, Y2), X[:1])
    numbered = import_model(made)
    assert [f.name for f in numbered.features] == ["X_0", "X_1", "X_2", "X_3"]
    assert numbered.has_default_names and not numbered.is_named
    imported = load(made.SerializeToString(), inputs=["a", "b", "c", "d"])
    assert [f.name for f in imported.features] == ["a", "b", "c", "d"]
    assert imported.is_named and not imported.has_default_names


def gaps() -> np.ndarray:
    return np.where(RNG.random(X.shape) < 0.1, np.nan, X).astype(np.float32)


def converted(convert: Any, model: Any, **options: Any) -> bytes:
    types = [("X", FloatTensorType([None, X.shape[1]]))]
    content: bytes = convert(model, initial_types=types, **options).SerializeToString()
    return content


@pytest.mark.parametrize("y", [Y2, Y3], ids=["two", "three"])
def test_xgboost_and_lightgbm_classifiers(y: np.ndarray) -> None:
    x = gaps()
    booster = xgb.XGBClassifier(n_estimators=8, max_depth=3, n_jobs=1).fit(x, y)
    assert not is_whole(agree(converted(convert_xgboost, booster), {"X": x}))
    for target, zipmap in ((y, False), (TEXT[y].astype(str), True)):
        forest = lgb.LGBMClassifier(n_estimators=3, n_jobs=1, verbose=-1).fit(x, target)
        content = converted(convert_lightgbm, forest, zipmap=zipmap)
        assert not is_whole(agree(content, {"X": x}))


@pytest.mark.parametrize("objective", ["reg:squarederror", "reg:logistic", "count:poisson"])
def test_xgboost_regressors(objective: str) -> None:
    x = gaps()
    y = Y2 if objective == "reg:logistic" else np.abs(REAL)
    model = xgb.XGBRegressor(objective=objective, n_estimators=8, n_jobs=1).fit(x, y)
    assert not is_whole(agree(converted(convert_xgboost, model), {"X": x}))


def test_lightgbm_with_categories() -> None:
    x = X.copy()
    x[:, 0] = RNG.integers(0, 9, 200)
    y = (np.isin(x[:, 0], [1, 4, 6]) + x[:, 2] * 0.3 > 0.5).astype(int)
    options: dict[str, Any] = {"min_data_per_group": 5, "cat_smooth": 1, "min_child_samples": 5}
    for kind in (lgb.LGBMClassifier, lgb.LGBMRegressor):
        model = kind(n_estimators=4, n_jobs=1, verbose=-1, **options).fit(
            x, y, categorical_feature=[0]
        )
        content = converted(convert_lightgbm, model)
        assert b"BRANCH_EQ" in content
        rows = x.copy()
        rows[:40, 0] = np.resize([-1, 0.5, 1.5, 100, np.inf], 40)
        assert not is_whole(agree(content, {"X": rows}))


def test_a_graph_of_strings_and_numbers_runs_whole() -> None:
    inputs: dict[str, Any] = {
        "word": ("string", (None, 1)),
        "x": ("float32", (None, 2)),
        "pair": ("string", (None, 2)),
    }
    keys: dict[str, Any] = {"keys_strings": ["a", "one", "b"], "values_floats": [1.0, 2.0, 3.0]}
    nodes = [
        node("LabelEncoder", "word", "w", ml=True, **keys),
        node("LabelEncoder", "pair", "p", ml=True, **keys),
        node("Erf", "x", "e"),
        node("Concat", "e p w", "y", axis=1),
    ]
    content = graph(nodes, inputs, {"y": "float32"})
    imported = load(content)
    program = imported.program
    assert [n.op for n in program].count("onnx_graph") == 1
    assert [f.kind for f in imported.features] == ["string", "number", "number", "string", "string"]
    words = RNG.choice(np.array(["a", "one", "b", "?"], object), (30, 3))
    numbers = RNG.normal(size=(30, 2))
    want = theirs(
        content, {"word": words[:, :1], "x": numbers.astype(np.float32), "pair": words[:, 1:]}
    )[0]
    columns = [words[:, :1], numbers[:, :1], numbers[:, 1:], words[:, 1:2], words[:, 2:]]
    names = [f.name for f in imported.features]
    feed = {n: columns[names.index(n)] for n in program.inputs}
    for name in ("reference", "onnxruntime"):
        made = base.load_backend(name).compile(program).run(feed)["transform"]
        np.testing.assert_array_equal(made, want)
    frame = pd.DataFrame({n: c[:, 0] for n, c in zip(names, columns, strict=True)})
    scorer = sqlml.compile(program)
    np.testing.assert_array_equal(scorer.transform(frame), want)
    with pytest.raises(MissingValueError, match="'word' has NULL, which the ONNX graph"):
        scorer.transform(frame.assign(word=None))
    assert scorer.transform(frame.head(0)).shape == (0, 5)
