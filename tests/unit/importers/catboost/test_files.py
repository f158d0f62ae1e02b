"""CatBoost's JSON files: scored without CatBoost, and damaged ones refused."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import catboost as cb
import numpy as np
import pandas as pd
import pytest

from sqlml.errors import (
    ArtifactError,
    MissingValueError,
    ModelError,
)
from sqlml.importers.registry import import_model
from sqlml.ir import reference
from tests.support import oracles, small_files
from tests.support.catboost_checks import (
    SMALL,
    classes,
    read,
    rows,
    saved,
)


@pytest.fixture(scope="module")
def x() -> Any:
    return rows()


@pytest.fixture(scope="module")
def y(x: Any) -> Any:
    return classes(x)


WITHOUT = """
import sys
import numpy as np
from sqlml.importers.file_formats import read_artifact
from sqlml.importers.registry import import_model
from sqlml.ir import reference
content = open(sys.argv[1], "rb").read()
program = import_model(read_artifact(content, format="AUTO", path="m", allow_pickle=False)).program
x = np.load(sys.argv[2])
got = reference.run(program, {n: x[:, int(n)] for n in program.inputs})
np.save(sys.argv[3], got["score"])
assert not {"catboost", "sklearn", "pandas", "torch", "xgboost"} & set(sys.modules)
"""


def test_a_file_is_scored_without_the_library(x: Any, y: Any, tmp_path: Path) -> None:
    model = cb.CatBoostClassifier(**SMALL).fit(x, y)
    (tmp_path / "m.json").write_bytes(saved(model))
    np.save(tmp_path / "x.npy", x)
    files = [str(tmp_path / n) for n in ("m.json", "x.npy", "got.npy")]
    subprocess.run([sys.executable, "-c", WITHOUT, *files], check=True, cwd=Path.cwd())
    raw = model.predict(x, prediction_type="RawFormulaVal")
    np.testing.assert_array_equal(np.load(tmp_path / "got.npy"), raw)


@pytest.mark.parametrize("lacks", ["loss", "name of the loss", "parameters"])
def test_a_file_that_does_not_say_its_loss_gives_raw_values(
    x: Any, y: Any, tmp_path: Path, lacks: str
) -> None:
    model = cb.CatBoostRegressor(**SMALL).fit(x, y)
    document = json.loads(saved(model))
    if lacks == "loss":
        del document["model_info"]["params"]["loss_function"]
    elif lacks == "name of the loss":
        document["model_info"]["params"]["loss_function"] = ""
    else:
        del document["model_info"]
    (tmp_path / "m.json").write_text(json.dumps(document))
    loaded = cb.CatBoost().load_model(str(tmp_path / "m.json"), format="json")
    program = import_model(read((tmp_path / "m.json").read_bytes())).program
    got = reference.run(program, {n: x[:, int(n)] for n in program.inputs})
    np.testing.assert_allclose(got["label"][:, 0], loaded.predict(x), rtol=1e-12)


@pytest.mark.nightly
def test_binary_files_are_read_by_the_library(x: Any, y: Any, tmp_path: Path) -> None:
    place = tmp_path / "m.cbm"
    frame = pd.DataFrame(x[:, :3], columns=["a", "b", "c"])
    texts = pd.DataFrame({"a": x[:, 0], "t": np.where(x[:, 1] > 0, "up", "down")})
    model = cb.CatBoostClassifier(**SMALL).fit(frame, np.array(["no", "yes"])[y % 2])
    model.save_model(str(place))
    made = import_model(read(place.read_bytes())).program
    got = reference.run(made, {n: frame[n].to_numpy()[:, None] for n in made.inputs})
    raw = model.predict(frame, prediction_type="RawFormulaVal")
    np.testing.assert_allclose(got["score"][:, 0], raw, rtol=1e-12)
    assert made.labels[0].values == ("no", "yes")
    chosen = cb.CatBoostRegressor(**SMALL, cat_features=["t"]).fit(texts, y)
    chosen.save_model(str(place))
    made = import_model(read(place.read_bytes())).program
    got = reference.run(made, {n: texts[[n]].to_numpy() for n in made.inputs})
    np.testing.assert_allclose(got["label"][:, 0], chosen.predict(texts), rtol=1e-12)
    for damaged in (b"CBM1", place.read_bytes()[:200], place.read_bytes()[:-50]):
        with pytest.raises(ArtifactError, match="CatBoost cannot read|a process in which"):
            read(damaged)


def document(x: Any, y: Any, grow: str) -> Any:
    table = pd.DataFrame(x[:, :3], columns=["a", "b", "c"])
    table["d"] = np.nan_to_num(x[:, 3]).astype(int)
    params = {**SMALL, "iterations": 2, "depth": 2, "one_hot_max_size": 9, "grow_policy": grow}
    model = cb.CatBoostClassifier(**params, cat_features=["d"]).fit(table, y)
    return json.loads(saved(model))


@pytest.fixture(scope="module")
def documents(x: Any, y: Any) -> list[Any]:
    return [document(x, y, grow) for grow in ("SymmetricTree", "Lossguide")]


def refused(doc: Any, match: str = ".") -> None:
    with pytest.raises(ArtifactError, match=match):
        import_model(read(json.dumps(doc).encode(), "CATBOOST"))


def test_damaged_documents_end_in_one_error(documents: list[Any]) -> None:
    plain, nested = documents
    whole = json.dumps(plain).encode()
    for cut in (1, 40, len(whole) // 2, len(whole) - 1):
        with pytest.raises(ArtifactError):
            read(whole[:cut], "CATBOOST")
    for content in (b"{}", b"[]", b"null", b'{"trees": 5}', b'{"trees": null}', b"\xff"):
        with pytest.raises(ArtifactError):
            read(content, "CATBOOST")
    with pytest.raises(ArtifactError, match="nested too deeply"):
        read(b'{"trees": ' + b"[" * 200_000, "CATBOOST")

    def changed(source: Any, change: Any) -> Any:
        doc = copy.deepcopy(source)
        change(doc)
        return doc

    def tree(doc: Any) -> Any:
        return doc["oblivious_trees"][0]

    refused(changed(plain, lambda d: tree(d)["leaf_values"].pop()), "leaf values")
    refused(changed(plain, lambda d: tree(d)["splits"].pop()), "different widths|outputs")
    refused(changed(plain, lambda d: tree(d)["splits"].extend(tree(d)["splits"] * 40)))
    refused(changed(plain, lambda d: tree(d)["leaf_values"].__setitem__(0, "x")), "not numbers")
    split = next(s for s in tree(plain)["splits"] if "border" in s)
    place = tree(plain)["splits"].index(split)
    for key, value in (("border", float("nan")), ("float_feature_index", 99), ("border", None)):
        refused(changed(plain, lambda d, k=key, v=value: tree(d)["splits"][place].update({k: v})))
    refused(changed(plain, lambda d: d["scale_and_bias"].__setitem__(1, [0.1, 0.2])), "biases")
    refused(
        changed(plain, lambda d: d["scale_and_bias"].__setitem__(0, float("inf"))),
        "not a JSON number",
    )
    info = plain["features_info"]["float_features"]
    for key, value in (("flat_feature_index", 1 << 40), ("nan_value_treatment", "Odd")):
        edit = copy.deepcopy(info)
        edit[0][key] = value
        refused(changed(plain, lambda d, e=edit: d["features_info"].update(float_features=e)))
    refused(changed(nested, lambda d: d["trees"][0].pop("left")))
    refused(changed(nested, lambda d: d["trees"][0].update(left={"value": [1.0]})), "width")


def test_columns_out_of_order_are_refused() -> None:
    """CatBoost itself dies of categorical ones."""
    doc = json.loads(small_files.catboost_files()[-1])
    for kind in ("categorical_features", "float_features"):
        turned = copy.deepcopy(doc)
        turned["features_info"][kind].reverse()
        refused(turned, "columns of the CatBoost model are not in order")


def test_a_tree_as_deep_as_json_allows_is_read_without_recursion(documents: list[Any]) -> None:
    doc = copy.deepcopy(documents[1])
    leaf = {"value": [0.1, 0.2, 0.3], "weight": 1}
    split = next(t["split"] for t in doc["trees"] if "border" in t["split"])
    node = leaf
    for _ in range(300):
        node = {"left": leaf, "right": node, "split": split}
    doc["trees"] = [node]
    program = import_model(read(json.dumps(doc).encode())).program
    assert oracles.ensembles(program)[0].depth == 300


def test_mutations_are_read_or_refused(documents: list[Any]) -> None:
    rng = np.random.default_rng(11)
    odd = [None, -1, 0, 7, 1 << 70, 1e308, float("nan"), float("inf"), "", "x", [], {}, True, [[1]]]

    def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        if isinstance(value, dict):
            children = list(value.items())
        elif isinstance(value, list):
            children = list(enumerate(value))
        else:
            return [path]
        return [path, *(p for key, child in children for p in places(child, (*path, key)))]

    sources = []
    for doc in documents:
        slim = {k: v for k, v in doc.items() if k != "model_info"}
        about = doc["model_info"]
        loss = {"loss_function": about["params"]["loss_function"]}
        slim["model_info"] = {"class_params": about["class_params"], "params": loss}
        sources.append((slim, places(slim)[1:]))
    read_anyway = 0
    for case in range(2000):
        source, all_places = sources[case % 2]
        doc = copy.deepcopy(source)
        for _ in range(rng.integers(1, 3)):
            *path, last = all_places[rng.integers(len(all_places))]
            at = doc
            try:
                for key in path:
                    at = at[key]
                if rng.random() < 0.3:
                    del at[last]
                else:
                    at[last] = odd[rng.integers(len(odd))]
            except (KeyError, IndexError, TypeError):
                continue  # the first change took the place of the second away
        try:
            program = import_model(read(json.dumps(doc).encode(), "CATBOOST")).program
            reference.run(program, oracles.batch(program, np.ones((2, 4)), ["a", "b", "c", "d"]))
            read_anyway += 1
        except (ModelError, MissingValueError):
            continue  # a changed hash makes strings of a column of numbers
        except KeyError as error:  # this test's own: the change renamed a column
            assert str(error).strip("'") not in "abcd"
    assert 50 < read_anyway < 1900
