"""Large models: they import, pass, are stored and loaded, and score as the source does.

10,000 trees, 2,000 features, 1,000 classes, depth 60, a vocabulary of 1,000,000 words; and what
exceeds a limit of `sqlml.limits` says which.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import xgboost
from lightgbm import LGBMRegressor
from scipy import sparse
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier
from xgboost import XGBClassifier

from sqlml import limits
from sqlml.errors import ArtifactError, ModelError, ProgramError
from sqlml.importers.file_formats import read_artifact
from sqlml.importers.registry import import_model
from sqlml.ir import reference, store
from sqlml.ir.builder import Builder
from sqlml.planner.program.choose import choose_way
from sqlml.planner.program.prepare_program import compile_core, prepare_output
from tests.contract.test_hostile_xgboost import chained
from tests.support import hostile, small_files
from tests.support.oracles import ensembles


def rows(count: int, features: int, classes: int = 2) -> tuple[Any, Any]:
    """Random rows whose class depends on a few features together; every class is there."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(count, features)).astype(np.float32)
    signal = x[:, 0] * x[:, 1] + np.sin(2 * x[:, 2]) + rng.normal(scale=0.3, size=count)
    return x, (np.argsort(np.argsort(signal)) * classes // count).astype(np.int64)


def agree(model: Any, x: Any, rtol: float = 1e-6) -> None:
    """Labels and probabilities of the source, after passes and after storing."""
    imported = import_model(model)
    program = store.loads(store.dumps(imported.program))
    assert program.hash == imported.program.hash
    names = [feature.name for feature in imported.features]
    inputs = dict(zip(names, x.T.astype(np.float64), strict=True))
    read = {name: inputs[name] for name in program.inputs}
    want = np.asarray(model.predict(x))
    made = hostile.base.load_backend("native").compile(program).run(read)
    if program.labels:
        assert (program.labels[0].array()[made["label"][:, 0]] == want).all()
        np.testing.assert_allclose(made["proba"], model.predict_proba(x), rtol=rtol, atol=1e-9)
    else:
        np.testing.assert_allclose(made["label"][:, 0], want, rtol=rtol)
    passed = prepare_output(program, "label").split.core
    core = compile_core(passed, choose_way(passed, {}))
    (name,) = passed.inputs  # the columns that the passes have left, as one matrix
    assert 0 < passed.input_type(name).width <= x.shape[1]
    assert core.run({name: np.zeros((1, passed.input_type(name).width))})


@pytest.mark.nightly
def test_ten_thousand_trees() -> None:
    x, y = rows(2000, 10)
    agree(ExtraTreesClassifier(10_000, max_depth=6, n_jobs=-1, random_state=0).fit(x, y), x[:50])
    agree(XGBClassifier(n_estimators=10_000, max_depth=2).fit(x, y), x[:50], 2e-5)
    model = LGBMRegressor(n_estimators=10_000, num_leaves=4, verbose=-1).fit(x, x[:, 0])
    agree(model, x[:50].astype(np.float64))


@pytest.mark.nightly
def test_two_thousand_features() -> None:
    x, y = rows(2000, 2000)
    agree(RandomForestClassifier(100, max_depth=8, n_jobs=-1, random_state=0).fit(x, y), x[:50])
    agree(XGBClassifier(n_estimators=50, max_depth=4).fit(x, y), x[:50], 2e-5)
    agree(LogisticRegression(max_iter=20).fit(x.astype(np.float64), y), x[:50].astype(np.float64))


@pytest.mark.nightly
def test_a_thousand_classes() -> None:
    x, y = rows(4000, 20, 1000)
    wide = x.astype(np.float64)
    agree(LogisticRegression(max_iter=3).fit(wide, y), wide[:50])
    agree(RandomForestClassifier(5, random_state=0).fit(x, y), x[:50])
    agree(XGBClassifier(n_estimators=2, max_depth=2).fit(x, y), x[:50], 2e-5)


def staircase(depth: int) -> tuple[Any, Any, Any]:
    """Rows, classes and weights that make one chain of `depth` tests."""
    x = np.arange(depth + 1, dtype=np.float32)[:, None]
    return x, np.arange(depth + 1) % 2, 4.0 ** -np.arange(depth + 1)


def test_depth_sixty() -> None:
    x, y, weights = staircase(60)
    model = DecisionTreeClassifier(random_state=0).fit(x, y, weights)
    assert model.get_depth() == 60
    agree(model, x)


@pytest.mark.nightly
def test_depth_sixty_of_lightgbm() -> None:
    x = np.arange(70, dtype=np.float64)[:, None]
    y = 3.0 ** np.arange(70)  # each split takes the largest away
    model = LGBMRegressor(
        n_estimators=1,
        num_leaves=70,
        min_child_samples=1,
        min_child_weight=0,
        min_data_in_bin=1,
        boost_from_average=False,
        verbose=-1,
    ).fit(x, y)
    assert max(trees.depth for trees in ensembles(import_model(model).program)) >= 60
    agree(model, x)


@pytest.mark.by_day(2)
@pytest.mark.parametrize("depth", [60, 1000])
def test_a_chain_of_xgboost(depth: int) -> None:
    content = chained(depth)
    booster = xgboost.Booster(model_file=bytearray(content))
    x = np.random.default_rng(0).random((200, 5)).astype(np.float32)
    imported = import_model(read_artifact(content, format="xgboost", path="m", allow_pickle=False))
    assert max(trees.depth for trees in ensembles(imported.program)) == depth
    inputs = {f"f{i}": x[:, i] for i in range(5)}
    for name in hostile.BACKENDS:
        made = hostile.base.load_backend(name).compile(imported.program).run(inputs)
        want = booster.predict(xgboost.DMatrix(x), output_margin=True)
        np.testing.assert_array_equal(made["score"], want)


@pytest.mark.nightly
def test_a_vocabulary_of_a_million_words() -> None:
    words = [f"w{i:06d}" for i in range(1_000_000)]
    vectorizer = CountVectorizer(vocabulary=words)
    texts = np.array(
        ["w000000 w999999", "w000001 w000001 nothing", "", "w500000 w123456 W123456"], object
    )
    model = SGDClassifier(random_state=0).fit(vectorizer.fit_transform(texts), [0, 1, 0, 1])
    assert sparse.issparse(vectorizer.transform(texts))
    pipe = make_pipeline(vectorizer, model)
    imported = import_model(pipe, ["text"])
    program = store.loads(store.dumps(imported.program))
    for name in hostile.BACKENDS:
        made = hostile.base.load_backend(name).compile(program).run({"text": texts})
        np.testing.assert_allclose(made["score"][:, 0], pipe.decision_function(texts), rtol=1e-12)


def test_a_row_that_is_too_wide_says_the_limit() -> None:
    b = Builder()
    with pytest.raises(ProgramError, match=str(limits.MAX_ROW_VALUES)):
        b.input("x", "float64", limits.MAX_ROW_VALUES + 1)


def test_a_file_that_is_too_large_says_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sqlml.importers.file_formats.MAX_ARTIFACT_BYTES", 10)
    with pytest.raises(ArtifactError, match="m.json has 11 bytes; the limit is 10"):
        read_artifact(b"{" + b" " * 10, format="auto", path="m.json", allow_pickle=False)


def test_a_stored_program_that_is_too_large_says_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    blob = small_files.program_files()[0]
    monkeypatch.setattr("sqlml.ir.store.MAX_NODES", 0)
    with pytest.raises(ArtifactError, match="more than 0 operators"):
        store.loads(blob)


@pytest.mark.parametrize(
    ("key", "limit"), [("num_feature", 1_000_000), ("num_class", 100_000), ("num_target", 100_000)]
)
def test_a_booster_beyond_the_limits_says_which(key: str, limit: int) -> None:
    document = json.loads(small_files.xgboost_files()[2])
    document["learner"]["learner_model_param"][key] = str(limit + 1)
    with pytest.raises(ModelError, match=f"claims {limit + 1} .*the limit is {limit}"):
        read_artifact(json.dumps(document).encode(), format="xgboost", path="m", allow_pickle=False)


def test_the_reference_scores_a_thousand_classes_too() -> None:
    x, y = rows(1500, 5, 1000)
    model = DecisionTreeClassifier(random_state=0).fit(x, y)
    program = import_model(model).program
    made = reference.run(program, {f"x{i}": x[:9, i].astype(np.float64) for i in range(5)})
    assert (made["label"][:, 0] == model.predict(x[:9])).all()
    assert made["proba"].shape == (9, 1000)
