"""Parameters that are searched for on the rows held out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest

import sqlml
from sqlml import errors

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


SCRIPT = """
import sys, sqlml
con = sqlml.connect()
con.execute(sys.argv[1])
con.execute(sys.argv[2])
"""


@pytest.mark.nightly
def test_a_search_that_was_killed_goes_on(con: sqlml.Session, tmp_path: Path) -> None:
    options = (
        "model_type = 'boosted_tree_classifier', n_estimators = 60, early_stop = false, "
        f"learning_rate = hparam_range(0.01, 0.5), num_trials = {{}}, checkpoint = '{tmp_path}'"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    statement = CREATE.format(options.format(1000))
    command = [sys.executable, "-c", SCRIPT, TABLE, statement]
    log = tmp_path / "trials.log"
    with subprocess.Popen(command, env=environment) as child:
        end = time.monotonic() + 60
        while time.monotonic() < end and not (log.exists() and log.read_text().count("\n") > 200):
            time.sleep(0.05)
        os.kill(child.pid, signal.SIGKILL)
    backend = optuna.storages.journal.JournalFileBackend(str(log))
    (study,) = optuna.study.get_all_study_summaries(optuna.storages.JournalStorage(backend))
    known = optuna.load_study(
        study_name=study.study_name, storage=optuna.storages.JournalStorage(backend)
    )
    before = sum(trial.state.is_finished() for trial in known.trials)
    con.execute(CREATE.format(options.format(before + 4)))
    found = trials(con)
    assert before > 0 and len(found) == before + 4
    (chosen,) = [t for t in found if t["is_best"]]
    assert chosen["objective"] == min(t["objective"] for t in found if t["objective"] is not None)
    metrics = con.sql("FROM ml_evaluate(MODEL m)").to_arrow_table().to_pylist()[0]
    assert metrics["log_loss"] == pytest.approx(chosen["objective"], rel=1e-12)


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
        ("max_depth = hparam_range(2, 8), split = 'none'", "none are: set split"),
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
