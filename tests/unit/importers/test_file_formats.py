"""Model files: what they hold is what the library would load; damage is an ArtifactError."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import catboost
import joblib
import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from sklearn.linear_model import LinearRegression

from sqlml.errors import (
    ArtifactError,
    ConfigError,
    ModelError,
    UnsupportedModelError,
    UntrustedArtifactError,
)
from sqlml.importers import file_formats
from sqlml.importers.file_formats import read_artifact
from sqlml.importers.registry import import_model
from sqlml.importers.untrusted_documents import read_ubjson
from sqlml.ir import reference, store
from sqlml.ir.program import Program
from tests.support import oracles
from tests.support.sklearn_checks import count_calls

ROWS = 300


def read(content: bytes, format: str = "auto", allow_pickle: bool = False) -> Any:
    return read_artifact(content, format=format, path="model.bin", allow_pickle=allow_pickle)


def saved(model: Any, suffix: str) -> bytes:
    """What save_model writes into a file with this suffix."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"model{suffix}"
        model.save_model(path)
        return path.read_bytes()


@pytest.fixture(scope="module")
def x() -> Any:
    x = np.random.default_rng(8).normal(size=(ROWS, 4))
    x[:40, 1] = np.nan
    return x


@pytest.fixture(scope="module")
def y(x: Any) -> Any:
    return (x[:, 0] > 0).astype(int) + (x[:, 2] > 0.5)


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """A frame with a column of categories."""
    frame = oracles.mixed_frame(ROWS, nulls=0.05)
    return pd.DataFrame({"age": frame["age"], "plan": frame["plan"].astype("category")})


def score(content: bytes, rows: Any) -> dict[str, Any]:
    program = import_model(read(content)).program
    return reference.run(program, oracles.batch(program, rows))


@pytest.mark.parametrize("suffix", [".json", ".ubj"])
@pytest.mark.parametrize("booster", ["gbtree", "dart", "gblinear"])
def test_xgboost_file_scores_as_the_estimator_that_loads_it(
    x: Any, y: Any, suffix: str, booster: str
) -> None:
    content = saved(xgb.XGBClassifier(n_estimators=5, booster=booster, n_jobs=1).fit(x, y), suffix)
    loaded = xgb.XGBClassifier()
    loaded.load_model(bytearray(content))
    got = score(content, x)
    np.testing.assert_array_equal(got["score"], loaded.predict(x, output_margin=True))
    np.testing.assert_array_equal(got["label"].ravel(), loaded.predict(x))
    np.testing.assert_allclose(got["proba"], loaded.predict_proba(x), rtol=1e-6)


@pytest.mark.parametrize("suffix", [".json", ".ubj"])
def test_file_of_a_booster_scores_as_the_booster(x: Any, y: Any, suffix: str) -> None:
    data = xgb.DMatrix(x, y > 0, nthread=1)
    booster = xgb.train({"objective": "binary:logistic"}, data, 4)
    imported = import_model(read(saved(booster, suffix)))
    assert imported.library == f"xgboost {xgb.__version__}"
    got = reference.run(imported.program, oracles.batch(imported.program, x))
    np.testing.assert_array_equal(
        got["score"].ravel(), booster.predict(xgb.DMatrix(x), output_margin=True)
    )
    (labels,) = imported.program.labels
    assert labels.values == (0, 1)


def test_file_of_an_early_stopped_estimator_keeps_its_best_iteration(x: Any, y: Any) -> None:
    model = xgb.XGBClassifier(n_estimators=30, early_stopping_rounds=2, n_jobs=1)
    noise = np.random.default_rng(0).permutation(y)
    model.fit(x, y, eval_set=[(x, noise)], verbose=False)
    assert model.best_iteration + 1 < model.get_booster().num_boosted_rounds()
    got = score(saved(model, ".json"), x)
    np.testing.assert_array_equal(got["score"], model.predict(x, output_margin=True))


def test_json_and_ubj_of_a_model_make_the_same_program(table: pd.DataFrame) -> None:
    model = xgb.XGBRegressor(n_estimators=4, enable_categorical=True, max_cat_to_onehot=1)
    model.fit(table, table["plan"].cat.codes)
    hashes = {import_model(read(saved(model, s))).program.hash for s in (".json", ".ubj")}
    assert hashes == {import_model(model).program.hash}


def test_names_and_categories_are_in_the_file(table: pd.DataFrame) -> None:
    model = xgb.XGBRegressor(n_estimators=4, enable_categorical=True)
    model.fit(table, table["plan"].cat.codes)
    imported = import_model(read(saved(model, ".ubj")))
    assert [(f.name, f.kind) for f in imported.features] == [("age", "number"), ("plan", "string")]
    got = score(saved(model, ".ubj"), table.astype({"plan": object}))
    np.testing.assert_array_equal(got["label"].ravel(), model.predict(table))


@pytest.mark.parametrize(
    ("base", "trees"), [("5E-1", 3), ("[5E-1]", 3), ("0.25", 3), ("2.5E-1", 0)]
)
def test_base_score_is_a_scalar_in_older_files(x: Any, y: Any, base: str, trees: int) -> None:
    model = xgb.XGBClassifier(n_estimators=trees, base_score=0.5, n_jobs=1).fit(x, y > 0)
    document = json.loads(saved(model, ".json"))
    document["learner"]["learner_model_param"]["base_score"] = base
    content = json.dumps(document).encode()
    booster = xgb.Booster(model_file=bytearray(content))
    margin = booster.predict(xgb.DMatrix(x), output_margin=True)
    np.testing.assert_array_equal(score(content, x)["score"].ravel(), margin)


def test_files_without_the_entries_of_later_versions_are_read(x: Any, y: Any) -> None:
    model = xgb.XGBClassifier(n_estimators=4, base_score=0.5, n_jobs=1).fit(x, y)
    document = json.loads(saved(model, ".json"))
    trees = document["learner"]["gradient_booster"]["model"]
    del trees["cats"], trees["iteration_indptr"], document["learner"]["feature_names"]
    params = document["learner"]["learner_model_param"]
    del params["num_target"], params["boost_from_average"]
    for tree in trees["trees"]:
        tree["default_left"] = [bool(d) for d in tree["default_left"]]
        for name in ("categories", "categories_nodes", "categories_segments", "categories_sizes"):
            del tree[name]
    got = score(json.dumps(document, indent=1).encode(), x)
    np.testing.assert_array_equal(got["score"], model.predict(x, output_margin=True))
    for tree in trees["trees"]:  # as XGBoost 1.0 to 1.2 wrote it
        del tree["split_type"]
    content = json.dumps(document).encode()
    margin = xgb.Booster(model_file=bytearray(content)).predict(xgb.DMatrix(x), output_margin=True)
    np.testing.assert_array_equal(score(content, x)["score"], margin)


def test_lightgbm_text_scores_as_the_booster_that_loads_it(x: Any, y: Any) -> None:
    content = saved(lgb.LGBMClassifier(n_estimators=5, verbose=-1, n_jobs=1).fit(x, y).booster_, "")
    loaded = lgb.Booster(model_str=content.decode())
    got = score(content, x)
    np.testing.assert_array_equal(got["score"], loaded.predict(x, raw_score=True))
    np.testing.assert_allclose(got["proba"], loaded.predict(x), rtol=1e-12)


def test_lightgbm_text_may_have_windows_line_ends(x: Any, y: Any) -> None:
    booster = lgb.LGBMRegressor(n_estimators=3, verbose=-1, n_jobs=1).fit(x, y).booster_
    content = booster.model_to_string().encode().replace(b"\n", b"\r\n")
    np.testing.assert_array_equal(score(content, x)["label"].ravel(), booster.predict(x))


@pytest.mark.parametrize("sizes", [True, False], ids=["with sizes", "without sizes"])
def test_lightgbm_text_of_version_2_ends_its_trees_otherwise(x: Any, y: Any, sizes: bool) -> None:
    booster = lgb.LGBMRegressor(n_estimators=3, verbose=-1, n_jobs=1).fit(x, y).booster_
    text = booster.model_to_string()
    head, _, rest = text.partition("end of trees\n")
    importances = rest.partition("feature_importances:\n")[2].partition("\nparameters:")[0]
    old = f"{head}\nfeature importances:\n{importances}\npandas_categorical:null\n"
    old = old.replace("version=v4", "version=v2")
    if not sizes:
        old = re.sub("tree_sizes=.*\n", "", old)
    loaded = lgb.Booster(model_str=old)
    np.testing.assert_array_equal(score(old.encode(), x)["label"].ravel(), loaded.predict(x))
    np.testing.assert_array_equal(loaded.predict(x), booster.predict(x))


UNREAD = {
    "xgboost: with a word": (b"binf" + bytes(140), "XGBoost's old binary format; load it"),
    "xgboost: bare": (
        bytes(136) + b"\x0f" + bytes(7) + b"binary:logistic\x06" + bytes(7) + b"gbtree" + bytes(99),
        "XGBoost's old binary format; load it with XGBoost before 3.1",
    ),
    "xgboost: dumped as text": (
        b"booster[0]:\n0:[f2<2.45] yes=1,no=2\n",
        "dump of XGBoost's trees",
    ),
    "xgboost: dumped as JSON": (b'[\n  { "nodeid": 0, "leaf": 1 }]', "dump of XGBoost's trees"),
    "pmml": (
        b'<?xml version="1.0"?>\n<!-- x -->\n<PMML xmlns="x" version="4.4"></PMML>',
        "is PMML, which sqlml does not read; save the model in its library's own format",
    ),
    "pmml with a prefix": (b"<p:PMML version='4.2'/>", "is PMML"),
}


@pytest.mark.parametrize(("content", "says"), UNREAD.values(), ids=UNREAD)
@pytest.mark.parametrize("format", ["auto", "xgboost", "lightgbm"])
def test_formats_that_are_not_read_are_named(content: bytes, says: str, format: str) -> None:
    with pytest.raises(ArtifactError, match=says):
        read(content, format)


@pytest.mark.parametrize("format", ["auto", "xgboost", "lightgbm"])
def test_lightgbms_dump_is_named(x: Any, y: Any, format: str) -> None:
    booster = lgb.LGBMRegressor(n_estimators=2, verbose=-1, n_jobs=1).fit(x, y).booster_
    for sort in (False, True):
        content = json.dumps(booster.dump_model(), sort_keys=sort).encode()
        with pytest.raises(ArtifactError, match=r"LightGBM's JSON dump.*save_model\('model.txt'\)"):
            read(content, format)


def test_models_without_names_get_those_of_their_library(x: Any, y: Any, tmp_path: Path) -> None:
    width = x.shape[1]
    boosted = lgb.LGBMRegressor(n_estimators=2, verbose=-1, n_jobs=1).fit(x, y)
    xgboosted = xgb.XGBRegressor(n_estimators=2, n_jobs=1).fit(x, y)
    cat = catboost.CatBoostRegressor(iterations=2, verbose=0, allow_writing_files=False).fit(x, y)
    cat.save_model(str(tmp_path / "m.json"), format="json")
    cat.save_model(str(tmp_path / "m.cbm"))
    for stem, models in (
        ("Column_", (boosted, boosted.booster_, read(boosted.booster_.model_to_string().encode()))),
        ("f", (xgboosted, xgboosted.get_booster(), read(saved(xgboosted, ".ubj")))),
        ("", (cat, *(read((tmp_path / name).read_bytes()) for name in ("m.json", "m.cbm")))),
    ):
        for model in models:
            imported = import_model(model)
            assert [f.name for f in imported.features] == [f"{stem}{i}" for i in range(width)]
            assert imported.has_default_names and not imported.is_named
            named = import_model(model, [f"a{i}" for i in range(width)])
            assert named.is_named and not named.has_default_names and named.features[0].name == "a0"


def test_lightgbm_text_brings_its_pandas_categories(table: pd.DataFrame) -> None:
    model = lgb.LGBMRegressor(n_estimators=4, verbose=-1, n_jobs=1, min_data_per_group=1)
    booster = model.fit(table, table["plan"].cat.codes).booster_
    got = score(booster.model_to_string().encode(), table.astype({"plan": object}))
    np.testing.assert_array_equal(got["label"].ravel(), booster.predict(table))


def test_files_are_read_where_neither_library_is_installed(x: Any, y: Any, tmp_path: Path) -> None:
    xgb.XGBClassifier(n_estimators=2, n_jobs=1).fit(x, y).save_model(tmp_path / "a.json")
    lgb.LGBMClassifier(n_estimators=2, verbose=-1).fit(x, y).booster_.save_model(tmp_path / "b.txt")
    code = (
        "import sys, pathlib\n"
        "for name in ('xgboost', 'lightgbm', 'sklearn', 'pandas'): sys.modules[name] = None\n"
        "from sqlml.importers.file_formats import read_artifact\n"
        "from sqlml.importers.registry import import_model\n"
        "for path in sys.argv[1:]:\n"
        "    content = pathlib.Path(path).read_bytes()\n"
        "    made = read_artifact(content, format='AUTO', path=path, allow_pickle=False)\n"
        "    print(len(import_model(made).program.labels[0]))\n"
    )
    files = [str(tmp_path / "a.json"), str(tmp_path / "b.txt")]
    done = subprocess.run(
        [sys.executable, "-c", code, *files], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["3", "3"]


def test_stored_program_is_read_back(x: Any, y: Any) -> None:
    program = import_model(lgb.LGBMRegressor(n_estimators=2, verbose=-1).fit(x, y)).program
    back = read(store.dumps(program))
    assert isinstance(back, Program)
    assert back.hash == program.hash


def pickles() -> dict[str, bytes]:
    model = LinearRegression().fit([[0.0], [1.0]], [0.0, 2.0])
    found = {f"protocol {p}": pickle.dumps(model, protocol=p) for p in range(6)}
    for name, compress in (("joblib", 0), ("zlib", ("zlib", 3)), ("gzip", ("gzip", 3)),
                           ("bz2", ("bz2", 3)), ("xz", ("xz", 3))):  # fmt: skip
        buffer = io.BytesIO()
        joblib.dump(model, buffer, compress=compress)
        found[name] = buffer.getvalue()
    return found


@pytest.mark.parametrize("content", pickles().values(), ids=pickles())
def test_a_pickle_is_read_only_when_that_is_allowed(content: bytes) -> None:
    for format in ("auto", "pickle"):
        with pytest.raises(UntrustedArtifactError, match=r"OPTIONS \(allow_pickle = true\)"):
            read(content, format)
    model = read(content, allow_pickle=True)
    assert model.predict([[3.0]]) == pytest.approx(6.0)


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (Path(self.path),)


@pytest.mark.parametrize("format", ["auto", "pickle", "xgboost", "lightgbm", "sqlml"])
def test_no_format_runs_the_code_of_a_pickle(tmp_path: Path, format: str) -> None:
    content = pickle.dumps(Bomb(str(tmp_path / "harm")))
    with pytest.raises(ModelError):
        read(content, format)
    with pytest.raises(ModelError):
        read(gzip.compress(content), format)
    assert not (tmp_path / "harm").exists()


def test_unknown_format_names_those_there_are() -> None:
    with pytest.raises(ConfigError, match="LIGHTGBM, ONNX"):
        read(b"anything", "pmml")


HOSTILE = {
    "empty": b"",
    "text": b"hello",
    "zeros": bytes(100),
    "json list": b"[1, 2]",
    "json without learner": b'{"version": [3, 2, 0]}',
    "json learner of another type": b'{"learner": 7}',
    "json nested deeply": b'{"learner":' * 100_000,
    "json nested lists": b'{"learner":' + b"[" * 100_000,
    "json long number": b'{"learner": ' + b"9" * 10_000 + b"}",
    "ubj nested deeply": b"{" + b"U\x01a{" * 10_000,
    "ubj nested arrays": b"{U\x01a" + b"[" * 10_000,
    "ubj array that claims a petabyte": b"{U\x01a[$d#L\x00\x04\x00\x00\x00\x00\x00\x00}",
    "ubj array of nothing that claims much": b"{U\x01a[$Z#L\x00\x04\x00\x00\x00\x00\x00\x00}",
    "ubj negative length": b"{U\x01a[$d#L\xff\xff\xff\xff\xff\xff\xff\xff}",
    "ubj string beyond the end": b"{L\x00\x00\x00\x00\x00\x00\xff\xffab",
    "tree alone": b"tree\n",
    "tree without header": b"tree\nend of trees\n",
    "old binary": b"binf" + bytes(40),
    "stored": store.MAGIC + bytes(60),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("format", ["auto", "xgboost", "lightgbm", "sqlml"])
def test_hostile_content_is_an_artifact_error(content: bytes, format: str) -> None:
    def read_content() -> None:
        with pytest.raises(ArtifactError, match="model"):
            read(content, format)

    read_content()  # it may import a library
    assert count_calls(read_content) < 20_000


def xgboost_document(x: Any, y: Any) -> dict[str, Any]:
    model = xgb.XGBClassifier(n_estimators=2, max_depth=3, n_jobs=1).fit(x, y > 0)
    document: dict[str, Any] = json.loads(saved(model, ".json"))
    return document


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("left_children", 0), ("left_children", 10**6), ("left_children", -7),
        ("right_children", 1), ("split_indices", 99), ("split_indices", -1),
        ("split_conditions", float("nan")), ("left_children", 2**70), ("left_children", "x"),
        ("split_type", 1),
    ],
)  # fmt: skip
def test_a_tree_that_is_none_is_refused(x: Any, y: Any, name: str, value: Any) -> None:
    document = xgboost_document(x, y)
    document["learner"]["gradient_booster"]["model"]["trees"][1][name][0] = value
    with pytest.raises(ArtifactError):
        import_model(read(json.dumps(document).encode()))


@pytest.mark.parametrize("name", ["num_feature", "num_class"])
def test_a_size_that_nobody_has_is_refused_before_memory_is_taken(
    x: Any, y: Any, name: str
) -> None:
    document = xgboost_document(x, y)
    document["learner"]["learner_model_param"][name] = "900000000000"
    with pytest.raises(ArtifactError, match="limit"):
        read(json.dumps(document).encode())


def test_category_sets_that_would_fill_memory_are_refused(x: Any, y: Any) -> None:
    document = xgboost_document(x, y)
    tree = document["learner"]["gradient_booster"]["model"]["trees"][0]
    tree |= {"categories": [2**31], "categories_nodes": [0], "categories_segments": [0]}
    tree["categories_sizes"] = [1]
    with pytest.raises(ArtifactError, match="out of range"):
        read(json.dumps(document).encode())


def test_an_objective_that_we_do_not_know_is_refused_by_name(x: Any, y: Any) -> None:
    document = xgboost_document(x, y)
    document["learner"]["objective"]["name"] = "reg:future"
    with pytest.raises(UnsupportedModelError, match="reg:future"):
        import_model(read(json.dumps(document).encode()))


@pytest.fixture(scope="module")
def files(x: Any, y: Any, table: pd.DataFrame) -> dict[str, bytes]:
    """One small file of each reader, with categories and all."""
    boosted = xgb.XGBClassifier(n_estimators=2, max_depth=3, enable_categorical=True, n_jobs=1)
    boosted.fit(table, table["plan"].cat.codes + 1)
    light = lgb.LGBMClassifier(
        n_estimators=2, num_leaves=5, min_data_per_group=1, verbose=-1, n_jobs=1
    ).fit(table, table["plan"].cat.codes > 0)
    return {
        "json": saved(boosted, ".json"),
        "ubj": saved(boosted, ".ubj"),
        "text": light.booster_.model_to_string().encode(),
        "stored": store.dumps(import_model(light).program),
    }


@pytest.mark.parametrize("kind", ["json", "ubj", "text", "stored"])
def test_a_file_that_is_cut_off_or_flipped_gives_a_typed_error_or_a_model(
    files: dict[str, bytes], kind: str
) -> None:
    content = files[kind]
    assert import_or_program(content) is not None
    rng = np.random.default_rng(11)
    outcomes = set()
    for _ in range(150):
        damaged = bytearray(content)
        if rng.random() < 0.3:
            del damaged[int(rng.integers(0, len(content))) :]
        else:
            for at in rng.integers(0, len(content), int(rng.integers(1, 4))):
                damaged[at] ^= 1 << int(rng.integers(0, 8))
        try:
            import_or_program(bytes(damaged))
            outcomes.add("model")
        except (ArtifactError, UnsupportedModelError, UntrustedArtifactError) as error:
            outcomes.add(type(error).__name__)
    assert "ArtifactError" in outcomes


def import_or_program(content: bytes) -> Program:
    made = read(content)
    return made if isinstance(made, Program) else import_model(made).program


@pytest.mark.parametrize("kind", ["json", "ubj", "text", "stored"])
def test_every_prefix_of_a_file_is_refused(files: dict[str, bytes], kind: str) -> None:
    content = files[kind]
    # After the trees, LightGBM's text has only what predictions can do without.
    end = content.index(b"end of trees") if kind == "text" else len(content)
    for size in np.linspace(0, end - 1, 60).astype(int):
        with pytest.raises(ArtifactError):
            import_or_program(content[:size])


def test_a_file_over_the_limit_is_refused(
    files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_formats, "MAX_ARTIFACT_BYTES", 100)
    with pytest.raises(ArtifactError, match="limit is 100"):
        read(files["json"])


def test_ubjson_reads_every_type_that_the_format_has() -> None:
    content = (
        b"{i\x01a[ZTFi\xfeU\xfeI\xff\xfel\xff\xff\xff\xfeL\xff\xff\xff\xff\xff\xff\xff\xfe"
        b"d\x3f\x00\x00\x00D\x3f\xe0\x00\x00\x00\x00\x00\x00CxSU\x02hi]"
        b"U\x01b[#U\x02U\x01U\x02U\x01c{#U\x01U\x01dT}"
    )
    assert read_ubjson(content) == {
        "a": [None, True, False, -2, 254, -2, -2, -2, 0.5, 0.5, "x", "hi"],
        "b": [1, 2],
        "c": {"d": True},
    }
    for kind, width, value in (("i", 1, -1), ("I", 2, -1), ("l", 4, -1), ("L", 8, -1)):
        array = read_ubjson(b"[$" + kind.encode() + b"#U\x03" + b"\xff" * 3 * width)
        assert array.tolist() == [value] * 3
        assert array.dtype == f"int{width * 8}"
