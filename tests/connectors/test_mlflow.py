"""CREATE MODEL FROM a folder that MLflow saved: the library's own file in it, and the signature."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import catboost
import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost
from sklearn.linear_model import LogisticRegression

import sqlml
from sqlml import errors
from sqlml.importers.mlflow_folder import read_mlmodel

with_mlflow = pytest.mark.skipif(find_spec("mlflow") is None, reason="needs MLflow")

ROWS = pd.DataFrame(np.random.default_rng(0).random((60, 3)), columns=["a", "b", "c"])
CLASSES = (ROWS.a > ROWS.b).astype(int)
Y = ROWS.a + ROWS.b

SAVED: dict[str, Callable[[], tuple[Any, dict[str, Any]]]] = {
    "xgboost": lambda: (xgboost.XGBRegressor(n_estimators=5).fit(ROWS.to_numpy(), Y), {}),
    "lightgbm": lambda: (
        lightgbm.LGBMRegressor(n_estimators=5, min_child_samples=5, verbose=-1)
        .fit(ROWS, Y)
        .booster_,
        {},
    ),
    "catboost": lambda: (
        catboost.CatBoostRegressor(iterations=5, verbose=0, allow_writing_files=False).fit(ROWS, Y),
        {},
    ),
    "sklearn": lambda: (
        LogisticRegression().fit(ROWS.to_numpy(), CLASSES),
        {"serialization_format": "skops"},
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import importlib

    from mlflow.models import infer_signature

    made = tmp_path_factory.mktemp("saved")
    signature = infer_signature(ROWS)
    for flavour, build in SAVED.items():
        model, options = build()
        module = importlib.import_module(f"mlflow.{flavour}")
        place = str(made / flavour)
        module.save_model(model, place, signature=signature, pip_requirements=[], **options)
    return made


@pytest.fixture
def con() -> sqlml.Session:
    made = sqlml.connect()
    made.register("rows", ROWS)
    return made


@with_mlflow
@pytest.mark.nightly
@pytest.mark.parametrize("flavour", SAVED)
def test_flavours(con: sqlml.Session, folder: Path, flavour: str) -> None:
    con.execute(f"CREATE MODEL m FROM '{folder / flavour}'")
    found = con.execute("SELECT predict('m', *) FROM rows").fetchnumpy()
    (got,) = found.values()
    want = SAVED[flavour]()[0].predict(ROWS.to_numpy())
    np.testing.assert_allclose(got, want, rtol=1e-6)
    assert list(con.model("m").inputs) == ["a", "b", "c"]
    path = dict(con.model("m").properties)["path"]
    assert Path(path).parent == folder / flavour


@with_mlflow
@pytest.mark.nightly
def test_pickled_flavours_need_trust(con: sqlml.Session, tmp_path: Path) -> None:
    import mlflow.lightgbm
    import mlflow.sklearn

    model = LogisticRegression().fit(ROWS, CLASSES)
    mlflow.sklearn.save_model(
        model, tmp_path / "pickled", pip_requirements=[], serialization_format="cloudpickle"
    )
    boosted = lightgbm.LGBMClassifier(n_estimators=5, verbose=-1).fit(ROWS, CLASSES)
    mlflow.lightgbm.save_model(boosted, tmp_path / "wrapped", pip_requirements=[])
    for name, fitted in (("pickled", model), ("wrapped", boosted)):
        made = f"CREATE MODEL {name} FROM '{tmp_path / name}'"
        with pytest.raises(errors.UntrustedArtifactError, match="allow_pickle = true"):
            con.execute(made)
        con.execute(f"{made} OPTIONS (allow_pickle = true)")
        (got,) = con.execute(f"SELECT predict('{name}', *) FROM rows").fetchnumpy().values()
        assert list(got) == list(fitted.predict(ROWS))


@with_mlflow
@pytest.mark.nightly
def test_uris_and_functions(
    con: sqlml.Session, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "runs").as_uri())
    client = mlflow.MlflowClient()
    client.create_registered_model("shop")
    client.create_model_version("shop", (folder / "xgboost").as_uri())
    con.execute("CREATE MODEL m FROM 'models:/shop/1'")
    assert con.execute("SELECT count(predict('m', *)) FROM rows").fetchone() == (60,)
    with pytest.raises(errors.ArtifactError, match="MLflow does not find 'models:/nothing/1'"):
        con.execute("CREATE MODEL n FROM 'models:/nothing/1'")
    con.execute("SET enable_external_access = false")
    with pytest.raises(Exception, match="disabled|external"):
        con.execute("CREATE MODEL n FROM 'models:/shop/1'")
    loaded = mlflow.pyfunc.load_model(str(folder / "xgboost"))
    with pytest.raises(errors.UnsupportedModelError, match="load the model itself"):
        con.create_model("n", loaded)


HOSTILE = (
    ("flavors: {xgboost: {data: ../../etc/passwd}}", errors.ArtifactError, "not below it"),
    ("flavors: {xgboost: {data: /etc/passwd}}", errors.ArtifactError, "not below it"),
    ("flavors: {xgboost: {data: 'http://x/y'}}", errors.ArtifactError, "not below it"),
    ("flavors: {xgboost: {data: .}}", errors.ArtifactError, "not below it"),
    ("flavors: {xgboost: {data: 'a/./b'}}", errors.ArtifactError, "not below it"),
    ("flavors: {xgboost: {data: '*.ubj'}}", errors.ArtifactError, "not below it"),
    ("flavors: [1]", errors.ArtifactError, "names no flavors"),
    ("- 1", errors.ArtifactError, "not a mapping"),
    ("{", errors.ArtifactError, "damaged"),
    ("[" * 100_000, errors.ArtifactError, "damaged"),
    ("!!python/object/apply:os.system ['true']", errors.ArtifactError, "damaged"),
    ("a: &a [x]\nb: *a\nflavors: {pytorch: {}}", errors.UnsupportedModelError, "flavors pytorch"),
    ("x: " + "y" * (1 << 20), errors.ArtifactError, "over"),
    ("[" * 5_000, errors.ArtifactError, "damaged|nested deeper"),
    ("[\n" * 5_000, errors.ArtifactError, "nested deeper than 50"),
    ("{a: " * 5_000, errors.ArtifactError, "nested deeper than 50"),
    ("- " * 5_000, errors.ArtifactError, "nested deeper than 50"),
)


@pytest.mark.parametrize(("text", "error", "words"), HOSTILE)
def test_hostile_documents(text: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        read_mlmodel(text.encode(), "m")


def test_aliases_are_not_written_out() -> None:
    doubled = "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 40))
    flavour = "flavors: {sklearn: {pickled_model: m, data: *a39}}"
    assert read_mlmodel(f"a0: &a0 [x, x]\n{doubled}{flavour}".encode(), "m").path == "m"


def test_links_that_lead_out_of_a_folder_are_not_followed(
    con: sqlml.Session, tmp_path: Path
) -> None:
    model = xgboost.XGBRegressor(n_estimators=2).fit(ROWS, np.arange(60.0))
    folder, outside = tmp_path / "m", tmp_path / "outside"
    (folder / "inside").mkdir(parents=True)
    outside.mkdir()
    for place in (outside, folder / "inside"):
        model.save_model(place / "model.json")
    (folder / "out.json").symlink_to(outside / "model.json")
    (folder / "out").symlink_to(outside)
    (folder / "in.json").symlink_to(folder / "inside" / "model.json")
    for name, is_read in (("out.json", 0), ("out/model.json", 0), ("in.json", 1)):
        (folder / "MLmodel").write_text(f"flavors: {{xgboost: {{data: {name}}}}}")
        statement = f"CREATE OR REPLACE MODEL m FROM '{folder}'"
        if is_read:
            con.execute(statement)
            continue
        with pytest.raises(errors.ArtifactError, match="is a link that leads out of its folder"):
            con.execute(statement)
    (folder / "MLmodel").rename(outside / "MLmodel")
    (folder / "MLmodel").symlink_to(outside / "MLmodel")
    with pytest.raises(errors.ArtifactError, match="is a link that leads out of its folder"):
        con.execute(f"CREATE OR REPLACE MODEL m FROM '{folder}'")


@pytest.mark.by_day(3)
@with_mlflow
@pytest.mark.parametrize("uri", ["models:/x/1", "runs:/abc/model", "models:/m-1"])
def test_a_uri_creates_no_store(
    con: sqlml.Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for store in ("sqlite:///mlflow.db", "file:mlruns", f"sqlite:///{tmp_path}/other.db"):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
        with pytest.raises(errors.ArtifactError, match="does not exist; set MLFLOW_TRACKING_URI"):
            con.execute(f"CREATE MODEL m FROM '{uri}'")
    assert list(tmp_path.iterdir()) == []


@with_mlflow
@pytest.mark.nightly
def test_folders_without_what_they_name(con: sqlml.Session, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "xgboost", tmp_path / "m")
    (tmp_path / "m" / "model.ubj").unlink()
    with pytest.raises(errors.ArtifactError, match=r"no such file: .*model\.ubj"):
        con.execute(f"CREATE MODEL m FROM '{tmp_path / 'm'}'")
