"""A training that is killed goes on, and makes the model of an undisturbed one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlml
from sqlml import errors
from sqlml.training.fitting.checkpoint import Checkpoint, SavedProgress

ROOT = Path(__file__).parents[2]
TABLE = """
    CREATE TABLE t AS SELECT (hash(i, 1) % 1000)::FLOAT AS a, (hash(i, 2) % 1000)::FLOAT AS b,
        CASE WHEN hash(i, 3) % 10 < 8 THEN (a * b > 250000)::INTEGER ELSE hash(i, 4) % 2 END AS y
    FROM range({rows}) r(i)
"""
CREATE = "CREATE MODEL m OPTIONS ({}, label = 'y', checkpoint = '{}') AS FROM t"
SCRIPT = """
import sys, sqlml
con = sqlml.connect()
con.execute(sys.argv[1])
con.execute(sys.argv[2])
"""
CASES = {
    "xgboost": "model_type = 'boosted_tree_classifier', n_estimators = 400, subsample = 0.7, "
    "colsample_bynode = 0.5, early_stop = false",
    "xgboost, early": "model_type = 'boosted_tree_classifier', n_estimators = 4000, eta = 0.02, "
    "early_stopping_rounds = 15, eval_metric = 'auc'",
    "lightgbm": "model_type = 'boosted_tree_classifier', library = 'lightgbm', "
    "n_estimators = 400, bagging_fraction = 0.7, bagging_freq = 1, early_stop = false",
    "lightgbm, early": "model_type = 'boosted_tree_classifier', library = 'lightgbm', "
    "n_estimators = 4000, learning_rate = 0.02, early_stopping_rounds = 15, metric = 'auc'",
    "torch": "model_type = 'dnn_classifier', max_epochs = 12, dropout = 0.2, batch_size = 1000, "
    "early_stop = false",
    "torch, early": "model_type = 'dnn_regressor', max_epochs = 60, early_stopping_rounds = 2, "
    "batch_size = 1000, learn_rate = 0.05",
}
ROWS = 6000


def dumped(trained: Any) -> Any:
    """All that a model has learned."""
    if hasattr(trained, "get_booster"):
        return trained.get_booster().save_raw()  # with its best iteration
    if hasattr(trained, "booster_"):
        return trained.best_iteration_, trained.booster_.model_to_string()
    assert not hasattr(trained, "state_")
    return [p.tolist() for p in trained.module_.parameters()]


def saved(folder: Path) -> bool:
    return any(folder.glob("training-*.checkpoint"))


NIGHTLY = {"xgboost, early", "lightgbm", "lightgbm, early", "torch", "torch, early"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.nightly] * (name in NIGHTLY)) for name in CASES],
)
def test_a_killed_training_goes_on_as_an_undisturbed_one(name: str, tmp_path: Path) -> None:
    folder, other = tmp_path / "killed", tmp_path / "whole"
    command = [sys.executable, "-c", SCRIPT, TABLE.format(rows=ROWS)]
    statement = CREATE.format(CASES[name], folder)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    for _ in range(5):  # a kill may come too late
        with subprocess.Popen([*command, statement], env=environment) as child:
            end = time.monotonic() + 60
            while time.monotonic() < end and child.poll() is None and not saved(folder):
                time.sleep(0.005)
            child.kill()
        if saved(folder):
            break
    made = []
    for where in (folder, other):
        with sqlml.connect() as con:
            con.execute(TABLE.format(rows=ROWS))
            con.execute(CREATE.format(CASES[name], where))
            info = con.execute("FROM ml_training_info(MODEL m)").fetchall()
            predicted = con.execute("SELECT predict('m', *) FROM t").fetchall()
            model = con.estimator("m")
            trained = getattr(model, "classifier_", model).steps[-1][1]
            made.append(([row[:3] for row in info], predicted, dumped(trained)))
            unknown = sum(seconds is None for *_, seconds in info)
            assert (unknown > 0) == (where is folder)
        assert not any(where.iterdir())
    assert made[0] == made[1]


@pytest.fixture
def con() -> Iterator[sqlml.Session]:
    with sqlml.connect() as made:
        made.execute(TABLE.format(rows=700))
        yield made


FEW = "model_type = 'boosted_tree_classifier', n_estimators = 15, early_stop = false"


def test_a_damaged_checkpoint_or_one_of_other_rows_is_not_gone_on_from(
    con: sqlml.Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Checkpoint, "remove", lambda self: None)
    con.execute(CREATE.format(FEW, tmp_path))
    known = con.execute("SELECT predict_proba('m', *) FROM t").fetchall()
    (file,) = tmp_path.iterdir()
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    con.execute(CREATE.format(FEW, tmp_path).replace("CREATE", "CREATE OR REPLACE"))
    assert con.execute("SELECT predict_proba('m', *) FROM t").fetchall() == known
    info = con.execute("FROM ml_training_info(MODEL m)").fetchall()
    assert len(info) == 15 and all(seconds is not None for *_, seconds in info)
    con.execute("UPDATE t SET a = a + 1")
    con.execute(CREATE.format(FEW, tmp_path).replace("CREATE", "CREATE OR REPLACE"))
    assert len(list(tmp_path.iterdir())) == 2
    con.execute(CREATE.format(FEW, tmp_path).replace("CREATE", "CREATE OR REPLACE"))
    info = con.execute("FROM ml_training_info(MODEL m)").fetchall()
    assert all(seconds is None for *_, seconds in info)  # all of them had been made


def xgboost_with(change: Callable[[Any], None], content: bytes) -> bytes:
    """Trees of XGBoost, changed where they are JSON."""
    import xgboost

    model = json.loads(xgboost.Booster(model_file=bytearray(content)).save_raw("json"))
    change(model["learner"]["gradient_booster"]["model"]["trees"][0])
    return json.dumps(model).encode()


@pytest.mark.by_day(9)
@pytest.mark.parametrize(
    ("library", "change"),
    [
        ("xgboost", lambda content: b""),
        ("xgboost", lambda content: content[: len(content) // 2]),
        ("xgboost", lambda content: b"{L" + b"\xff" * 40),
        ("xgboost", partial(xgboost_with, lambda tree: tree["left_children"].__setitem__(0, 9**6))),
        ("xgboost", partial(xgboost_with, lambda tree: tree["split_indices"].__setitem__(0, 99))),
        ("lightgbm", lambda content: content[: len(content) // 2]),
        ("lightgbm", lambda content: content.replace(b"left_child=", b"left_child=99999 ")),
        ("lightgbm", lambda content: content.replace(b"split_feature=", b"split_feature=77 ")),
        pytest.param("torch", lambda content: content[::-1], marks=pytest.mark.nightly),
    ],
)
def test_damaged_content_with_a_valid_digest_is_stepped_over(
    con: sqlml.Session,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    library: str,
    change: Callable[[bytes], bytes],
) -> None:
    options = f"{FEW}, library = '{library}', max_depth = 3"
    if library == "torch":
        options = "model_type = 'dnn_classifier', max_epochs = 2"
    remove = Checkpoint.remove
    monkeypatch.setattr(Checkpoint, "remove", lambda self: None)
    con.execute(CREATE.format(options, tmp_path))
    known = con.execute("SELECT predict_proba('m', *) FROM t").fetchall()
    (file,) = tmp_path.iterdir()
    checkpoint = Checkpoint(file)
    saved = checkpoint.load()
    assert saved is not None
    losses = saved.losses[: len(saved.losses) * 2 // 3]  # as after the last segment but one
    checkpoint.save(SavedProgress(saved.metric, losses, change(saved.content)))
    monkeypatch.setattr(Checkpoint, "remove", remove)
    con.execute(CREATE.format(options, tmp_path).replace("CREATE", "CREATE OR REPLACE"))
    assert con.execute("SELECT predict_proba('m', *) FROM t").fetchall() == known
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    "head", [b"", b"{}", b"[" * 99_999, b'{"metric": "", "losses": [["a", 1]]}']
)
def test_a_damaged_head_is_stepped_over(tmp_path: Path, head: bytes) -> None:
    body = b"sqlml training 1\n" + head + b"\n"
    file = tmp_path / "training-1.checkpoint"
    file.write_bytes(body + sha256(body).digest())
    assert Checkpoint(file).load() is None


@pytest.mark.parametrize(
    "options",
    ["n_estimators = 15", "n_estimators = 5, num_trials = 2, max_depth = hparam_range(2, 3)"],
)
def test_rows_in_a_file_have_checkpoints_too(
    con: sqlml.Session, tmp_path: Path, options: str
) -> None:
    common = f"model_type = 'boosted_tree_classifier', {options}, out_of_core = true"
    con.execute(CREATE.format(common, tmp_path / "c"))
    made = con.execute("SELECT predict_proba('m', *) FROM t").fetchall()
    con.execute(CREATE.format(common, tmp_path / "d").replace("CREATE", "CREATE OR REPLACE"))
    assert con.execute("SELECT predict_proba('m', *) FROM t").fetchall() == made
    assert not any((tmp_path / "c").iterdir())


def test_the_engine_decides_which_folders_a_checkpoint_may_have(tmp_path: Path) -> None:
    with sqlml.connect() as con:
        con.execute(TABLE.format(rows=100))
        con.execute(f"SET allowed_directories = ['{tmp_path / 'allowed'}']")
        con.execute("SET enable_external_access = false")
        for folder in (tmp_path, tmp_path / "allowed" / ".." / "other"):
            with pytest.raises(duckdb.PermissionException, match=r"training\.checkpoint"):
                con.execute(CREATE.format(FEW, folder))
        assert not any(tmp_path.iterdir())
        con.execute(CREATE.format(FEW, tmp_path / "allowed"))
        assert [p.name for p in tmp_path.iterdir()] == ["allowed"]


@pytest.mark.parametrize("folder", ["", "a\0b"])
def test_a_folder_needs_a_name(con: sqlml.Session, folder: str) -> None:
    with pytest.raises(errors.ConfigError, match="checkpoint must be the path of a folder"):
        con.train("n", "boosted_tree_classifier", "FROM t", label="y", checkpoint=folder)


def test_who_cannot_go_on_and_where(con: sqlml.Session, tmp_path: Path) -> None:
    says = "logistic_reg models by sklearn cannot resume from a checkpoint"
    with pytest.raises(errors.ConfigError, match=says):
        con.execute(CREATE.format("model_type = 'logistic_reg'", tmp_path))
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(errors.ConfigError, match="others can write to the folder"):
        con.execute(CREATE.format(FEW, shared))
    search = "model_type = 'boosted_tree_classifier', max_depth = hparam_range(2, 3)"
    with pytest.raises(errors.ConfigError, match="others can write to the folder"):
        con.execute(CREATE.format(search, shared))
    assert not any(shared.iterdir())
    file = tmp_path / "file"
    file.touch()
    for options in (FEW, search):
        says = "folder '.*file/in' cannot be made: Not a directory; name another one"
        with pytest.raises(errors.ConfigError, match=says):
            con.execute(CREATE.format(options, file / "in"))
