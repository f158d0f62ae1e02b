"""skops files: scored as the object that was dumped; forged ones are refused, none runs code."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import skops.io
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier
from xgboost import XGBClassifier

from sqlml.errors import ArtifactError, ModelError, UntrustedArtifactError
from sqlml.importers import skops as importer
from sqlml.importers.file_formats import read_artifact
from sqlml.importers.registry import import_model
from tests.support import oracles
from tests.support.sklearn_checks import scored


def read(content: bytes, format: str = "auto") -> Any:
    return read_artifact(content, format=format, path="model.skops", allow_pickle=False)


@pytest.fixture(scope="module")
def x() -> Any:
    return np.random.default_rng(3).normal(size=(200, 4))


@pytest.fixture(scope="module")
def y(x: Any) -> Any:
    return np.where(x[:, 0] * x[:, 1] > 0, "yes", "no")


MODELS: dict[str, Callable[[], Any]] = {
    "linear": lambda: make_pipeline(StandardScaler(), LogisticRegression()),
    "tree": lambda: DecisionTreeClassifier(max_depth=3),
    "forest": lambda: RandomForestClassifier(4, max_depth=3, random_state=0),
    "boosting": lambda: GradientBoostingClassifier(n_estimators=3),
}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_file_is_scored_as_the_object(x: Any, y: Any, make: Any, compression: int) -> None:
    model = make().fit(x, y)
    content = skops.io.dumps(model, compression=compression)
    for format in ("auto", "SKOPS"):
        imported = import_model(read(content, format))
        assert imported.program.hash == import_model(model).program.hash
    got = scored(imported, x)
    np.testing.assert_allclose(got["proba"], model.predict_proba(x), rtol=1e-12)


def test_histogram_boosting_and_frames(x: Any) -> None:
    model = HistGradientBoostingRegressor(max_iter=3).fit(x, x[:, 0])
    got = scored(import_model(read(skops.io.dumps(model))), x)
    np.testing.assert_array_equal(got["label"][:, 0], model.predict(x))
    table = oracles.mixed_frame(200, nulls=0)
    encoder = (OneHotEncoder(), ["city", "plan"])
    pipeline = make_pipeline(make_column_transformer(encoder), LogisticRegression())
    pipeline.fit(table, table["active"])
    imported = import_model(read(skops.io.dumps(pipeline)))
    assert imported.is_named
    assert imported.program.hash == import_model(pipeline).program.hash


def test_types_that_skops_does_not_trust_are_refused_by_name(x: Any, y: Any) -> None:
    booster = XGBClassifier(n_estimators=2).fit(x, y == "yes")
    with pytest.raises(UntrustedArtifactError, match=r"model\.skops.*xgboost\.core\.Booster"):
        read(skops.io.dumps(booster))
    function = make_pipeline(FunctionTransformer(partial(subprocess.run)), LogisticRegression())
    with pytest.raises(UntrustedArtifactError, match=r"subprocess\.run"):
        read(skops.io.dumps(function))


def test_what_is_called_harmless_is_what_scikit_learn_has() -> None:
    for name in importer.HARMLESS:
        module, _, attribute = name.rpartition(".")
        __import__(module)
        assert module.split(".")[0] in ("numpy", "scipy", "sklearn")
        assert callable(getattr(sys.modules[module], attribute))


def edited(content: bytes, change: Callable[[Any], None]) -> bytes:
    """The archive with a change made in its schema."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "schema.json":
                schema = json.loads(data)
                change(schema)
                data = json.dumps(schema).encode()
            new.writestr(name, data)
    return out.getvalue()


def _claim(node: Any, number: int) -> Any:
    return {**node, "content": str(number), "__id__": number}


def _more_nodes(arguments: list[Any], state: Any) -> None:
    state["node_count"] = _claim(state["node_count"], 10**9)


def _fewer_nodes(arguments: list[Any], state: Any) -> None:
    state["node_count"] = _claim(state["node_count"], 1)


def _more_targets(arguments: list[Any], state: Any) -> None:
    arguments[2] = _claim(arguments[2], 10**6)


def _classes_that_are_nodes(arguments: list[Any], state: Any) -> None:
    arguments[1] = state["nodes"]


def _one_number_for_nodes(arguments: list[Any], state: Any) -> None:
    state["nodes"] = {**state["nodes"], "file": "number.npy", "__id__": 1}


def _no_state(arguments: list[Any], state: Any) -> None:
    state.clear()


@pytest.mark.parametrize(
    "forge",
    [
        _more_nodes,
        _fewer_nodes,
        _more_targets,
        _classes_that_are_nodes,
        _one_number_for_nodes,
        _no_state,
    ],
)
def test_a_tree_that_does_not_fit_itself_is_not_given_to_scikit_learn(
    x: Any, y: Any, forge: Callable[[list[Any], Any], None]
) -> None:
    """Some of these would end the process inside scikit-learn."""
    content = io.BytesIO(skops.io.dumps(DecisionTreeClassifier(max_depth=3).fit(x, y)))
    number = io.BytesIO()
    np.save(number, np.array(7))
    with zipfile.ZipFile(content, "a") as archive:
        archive.writestr("number.npy", number.getvalue())

    def change(schema: Any) -> None:
        tree = schema["content"]["content"]["tree_"]
        forge(tree["__reduce__"]["args"]["content"], tree["content"]["content"])

    assert read(edited(content.getvalue(), lambda schema: None)).tree_.node_count > 1
    with pytest.raises(ArtifactError, match="is inconsistent"):
        read(edited(content.getvalue(), change))


def test_a_forged_type_is_named_and_not_called(x: Any, y: Any) -> None:
    content = skops.io.dumps(LogisticRegression().fit(x, y))

    def forge(schema: Any) -> None:
        schema["__module__"], schema["__class__"] = "os", "system"

    with pytest.raises(UntrustedArtifactError, match=r"os\.system"):
        read(edited(content, forge))


def test_bombs_and_damage_end_in_one_error(x: Any, y: Any) -> None:
    content = skops.io.dumps(LogisticRegression().fit(x, y))
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("schema.json", "{}")
        archive.writestr("zeros.npy", bytes(100 << 20))
    assert len(bomb.getvalue()) < 200_000
    with pytest.raises(ArtifactError, match="over the limit"):
        read(bomb.getvalue())
    for damaged in (content[:200], content[:-40], content[:-22], b"PK\x03\x04", b"no archive"):
        with pytest.raises(ArtifactError, match=r"^model\.skops"):
            read(damaged, "SKOPS")
    deep = json.loads('{"content": {}}')
    node = deep
    for _ in range(400):
        node["content"] = {"__class__": "list", "__module__": "builtins", "content": []}
        node = node["content"]
    with pytest.raises(ArtifactError):
        read(edited(content, lambda schema: schema.update(deep)), "SKOPS")
    with pytest.raises(ArtifactError):
        read(edited(content, lambda schema: schema.clear()), "SKOPS")
    other = io.BytesIO()
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("hello.txt", "hello")
    with pytest.raises(ArtifactError):
        read(other.getvalue())


def test_mutated_files_are_read_or_refused(x: Any, y: Any) -> None:
    content = skops.io.dumps(DecisionTreeClassifier(max_depth=2).fit(x, y))
    rng = np.random.default_rng(5)
    for _ in range(300):
        changed = bytearray(content)
        for place in rng.integers(0, len(content), rng.integers(1, 4)):
            changed[place] = rng.integers(256)
        try:
            read(bytes(changed), "SKOPS")
        except ModelError as error:
            assert str(error).startswith("model.skops")


WITHOUT = """
import sys
sys.modules["skops"] = None
from sqlml.errors import MissingDependencyError
from sqlml.importers.file_formats import read_artifact
try:
    read_artifact(open(sys.argv[1], "rb").read(), format="SKOPS", path="m", allow_pickle=False)
except MissingDependencyError as error:
    assert "sqlml[skops]" in str(error), error
else:
    raise AssertionError
"""


def test_missing_library_names_the_extra(x: Any, y: Any, tmp_path: Any) -> None:
    (tmp_path / "m.skops").write_bytes(skops.io.dumps(LogisticRegression().fit(x, y)))
    arguments = [sys.executable, "-c", WITHOUT, str(tmp_path / "m.skops")]
    subprocess.run(arguments, check=True)
