"""Parameters that are searched for on the rows held out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sqlml
from sqlml import errors
from sqlml.training.fitting.checkpoint import Checkpoint, SavedProgress

ROOT = Path(__file__).resolve().parents[2]
TABLE = """
    CREATE TABLE t AS SELECT (hash(i, 1) % 70)::INTEGER AS a,
        ['x', 'y', NULL][(hash(i, 2) % 3)::INTEGER + 1] AS b,
        CASE WHEN a + hash(i, 9) % 30 > 45 THEN 'p' ELSE 'q' END AS y
    FROM range(1000) r(i)
"""
CREATE = "CREATE OR REPLACE MODEL m OPTIONS (label = 'y', seed = 7, {}) AS FROM t"


@pytest.fixture(scope="module")
def con() -> Iterator[sqlml.Session]:
    with sqlml.connect() as made:
        made.execute(TABLE)
        yield made


def trials(con: sqlml.Session) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = con.sql("FROM ml_trial_info(MODEL m)").to_arrow_table().to_pylist()
    return made


@pytest.mark.parametrize(
    ("options", "within"),
    [
        (
            "model_type = 'boosted_tree_classifier', library = 'xgboost', n_estimators = 10, "
            "max_tree_depth = hparam_range(2, 6), eta = hparam_range(0.01, 0.5), "
            "subsample = hparam_candidates([0.5, 1.0])",
            {"max_depth": (2, 6), "learning_rate": (0.01, 0.5), "subsample": (0.5, 1.0)},
        ),
        (
            "model_type = 'boosted_tree_classifier', library = 'lightgbm', n_estimators = 10, "
            "num_leaves = hparam_range(4, 30)",
            {"num_leaves": (4, 30)},
        ),
        (
            "model_type = 'boosted_tree_classifier', library = 'catboost', iterations = 10, "
            "depth = hparam_range(2, 5)",
            {"depth": (2, 5)},
        ),
        ("model_type = 'logistic_reg', C = hparam_range(0.01, 10)", {"C": (0.01, 10)}),
    ],
)
def test_the_best_trial_is_the_model(
    con: sqlml.Session, options: str, within: dict[str, tuple[float, float]]
) -> None:
    con.execute(CREATE.format(f"{options}, num_trials = 7, objective = 'roc_auc'"))
    found = trials(con)
    assert [t["trial_id"] for t in found] == list(range(1, 8))
    assert {t["status"] for t in found} <= {"succeeded", "pruned"}
    parameters = [json.loads(t["hyperparameters"]) for t in found]
    for name, (low, high) in within.items():
        assert all(low <= p[name] <= high for p in parameters)
    (best,) = [t for t in found if t["is_best"]]
    done = [t["objective"] for t in found if t["status"] == "succeeded"]
    assert best["objective"] == max(done)
    metrics = con.sql("FROM ml_evaluate(MODEL m)").to_arrow_table().to_pylist()[0]
    assert metrics["roc_auc"] == best["objective"]
    estimator = con.estimator("m").classifier_.named_steps["model"]
    chosen = json.loads(best["hyperparameters"])
    assert {name: estimator.get_params()[name] for name in chosen} == chosen


def test_two_searches_find_the_same(con: sqlml.Session) -> None:
    options = (
        "model_type = 'boosted_tree_classifier', n_estimators = 5, num_trials = 6, "
        "max_depth = hparam_range(2, 6), tuning_objective = 'log_loss'"
    )
    con.execute(CREATE.format(options))
    first = [(t["hyperparameters"], t["objective"], t["is_best"]) for t in trials(con)]
    ((_, text),) = con.execute("SHOW CREATE MODEL m").fetchall()
    assert "max_depth = hparam_range(2, 6)" in text
    con.execute(text.replace("CREATE MODEL", "CREATE OR REPLACE MODEL"))
    assert first == [(t["hyperparameters"], t["objective"], t["is_best"]) for t in trials(con)]
    assert min(o for _, o, _ in first if o is not None) in [o for _, o, best in first if best]


def told(con: sqlml.Session) -> list[tuple[Any, ...]]:
    return [(t["hyperparameters"], t["objective"], t["status"], t["is_best"]) for t in trials(con)]


SEARCH = (
    "model_type = 'boosted_tree_classifier', n_estimators = 30, early_stop = false, "
    "learning_rate = hparam_range(0.01, 0.5), booster_type = hparam_candidates(['GBTREE', 'DART']),"
    " num_trials = 14, checkpoint = '{}'"
)


@pytest.mark.parametrize("after", [3, 12])
def test_a_search_that_was_interrupted_makes_the_trials_of_an_undisturbed_one(
    con: sqlml.Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    statement = CREATE.format(SEARCH.format(tmp_path))
    con.execute(statement)
    undisturbed = told(con)
    assert "pruned" in {status for *_, status, _ in undisturbed}
    assert not any(tmp_path.iterdir()), "what is done needs no checkpoint"
    save, saved = Checkpoint.save, []

    def interrupted(self: Checkpoint, trials: SavedProgress) -> None:
        save(self, trials)
        saved.append(trials)
        if len(saved) == after:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", interrupted)
        with pytest.raises(KeyboardInterrupt):
            con.execute(statement)
    assert len(list(tmp_path.iterdir())) == 1
    con.execute(statement)
    assert told(con) == undisturbed
    assert not any(tmp_path.iterdir())


def test_a_search_of_other_rows_starts_over(
    con: sqlml.Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = (
        "model_type = 'boosted_tree_classifier', n_estimators = 3, num_trials = 3, "
        "max_depth = hparam_range(2, 6), split = 'custom', split_column = 'late', "
        f"checkpoint = '{tmp_path}'"
    )
    statement = CREATE.format(options).replace("FROM t", "FROM rows")
    con.execute("CREATE OR REPLACE TABLE rows AS SELECT *, a % 5 = 0 AS late FROM t")
    monkeypatch.setattr(Checkpoint, "remove", lambda self: None)
    con.execute(statement)
    before = told(con)
    con.execute("UPDATE rows SET y = CASE WHEN hash(a) % 3 = 0 THEN 'p' ELSE 'q' END")
    con.execute(statement)
    assert len(list(tmp_path.iterdir())) == 2
    assert [o for _, o, *_ in told(con)] != [o for _, o, *_ in before]


def test_a_damaged_file_of_trials_is_one_clear_error(
    con: sqlml.Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = SEARCH.replace("14", "2").format(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "remove", lambda self: None)
        con.execute(CREATE.format(options))
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(errors.ConfigError, match=f"file '{file}' is damaged; remove it, and the"):
        con.execute(CREATE.format(options))
    file.unlink()
    con.execute(CREATE.format(options))


def test_catboosts_rows_are_told_apart_too(con: sqlml.Session, tmp_path: Path) -> None:
    options = (
        "model_type = 'boosted_tree_classifier', library = 'catboost', iterations = 3, "
        f"depth = hparam_range(2, 3), num_trials = 2, checkpoint = '{tmp_path}'"
    )
    con.execute(CREATE.format(options))
    assert len(trials(con)) == 2 and not any(tmp_path.iterdir())


SCRIPT = """
import sys, sqlml
con = sqlml.connect()
con.execute(sys.argv[1])
con.execute(sys.argv[2])
"""


@pytest.mark.nightly
def test_a_search_that_was_killed_goes_on(con: sqlml.Session, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    statement = CREATE.format(SEARCH.format(tmp_path))
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, TABLE, statement], env=environment
    ) as child:
        end = time.monotonic() + 60
        while time.monotonic() < end and not any(tmp_path.glob("*.checkpoint")):
            time.sleep(0.005)
        child.kill()
    con.execute(statement)
    found = told(con)
    con.execute(CREATE.format(SEARCH.format(tmp_path / "other")))
    assert found == told(con)


@pytest.mark.parametrize("model_type", ["linear_reg", "logistic_reg"])
def test_regularisation_is_searched_for(con: sqlml.Session, model_type: str) -> None:
    query = "SELECT a, b, (y = 'p')::INTEGER AS y FROM t"
    options = f"model_type = '{model_type}', l2_reg = hparam_range(0.0, 5), num_trials = 3"
    con.execute(CREATE.format(options).replace("FROM t", query))
    parameters = [json.loads(t["hyperparameters"]) for t in trials(con)]
    assert all(0 <= p["l2_reg"] <= 5 for p in parameters)
    (best,) = [json.loads(t["hyperparameters"]) for t in trials(con) if t["is_best"]]
    model = con.estimator("m")
    estimator = getattr(model, "classifier_", model).named_steps["model"]
    weight = estimator.alpha if model_type == "linear_reg" else 1 / estimator.C
    assert weight == pytest.approx(best["l2_reg"])


def test_candidates_may_be_lists(con: sqlml.Session, recwarn: pytest.WarningsRecorder) -> None:
    options = (
        "model_type = 'dnn_classifier', max_iterations = 1, num_trials = 3, "
        "hidden_units = hparam_candidates([[3], [4, 4], 5]), "
        "activation_fn = hparam_candidates(['RELU'])"
    )
    con.execute(CREATE.format(options))
    layers = [json.loads(t["hyperparameters"])["hidden_units"] for t in trials(con)]
    assert all(one in ([3], [4, 4], [5]) for one in layers)
    assert not [w for w in recwarn if "optuna" in str(w.filename)]


def test_a_failed_trial_prints_nothing_and_tells_its_reason(
    con: sqlml.Session, capfd: pytest.CaptureFixture[str]
) -> None:
    options = (
        "model_type = 'boosted_tree_classifier', n_estimators = 2, num_trials = 6, "
        "grow_policy = hparam_candidates(['depthwise', 'nope'])"
    )
    con.execute(CREATE.format(options))
    assert {t["status"] for t in trials(con)} == {"succeeded", "fail"}
    says = "no trial was completed; the last error: XGBClassifier cannot be trained: .*'nope', val"
    with pytest.raises(errors.ConfigError, match=says) as failed:
        con.execute(CREATE.format(options.replace("depthwise", "nope")))
    assert "\n" not in str(failed.value)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("max_depth = hparam_range(8, 2)", "two numbers in order"),
        ("max_depth = hparam_range(2)", "two numbers in order"),
        ("max_depth = hparam_candidates([])", "one value or more"),
        ("max_depth = hparam_rang(2, 8)", "unknown function hparam_rang; functions: hparam_range"),
        ("max_dept = hparam_range(2, 8)", "unknown option 'max_dept'"),
        ("max_depth = hparam_range(2, 8), num_trials = 0", "num_trials must be at least 1"),
        ("num_trials = 5", "num_trials needs a parameter to search for"),
        ("max_depth = hparam_range(2, 8), split = 'none'", "no rows are held out: set split"),
        (
            "max_depth = hparam_range(2, 8), tuning_objective = 'auc'",
            "unknown objective 'auc'; objectives: precision",
        ),
        ("grow_policy = hparam_candidates(['no', 'nope'])", "no trial was completed"),
    ],
)
def test_a_search_that_cannot_be_made(con: sqlml.Session, options: str, says: str) -> None:
    options = f"model_type = 'boosted_tree_classifier', n_estimators = 2, {options}"
    with pytest.raises(errors.ConfigError, match=says):
        con.execute(CREATE.format(options))
