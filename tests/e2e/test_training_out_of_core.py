"""Training from rows that do not fit into memory: in a file, and read block by block."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightgbm
import numpy as np
import pytest
from sklearn.linear_model import SGDRegressor

import sqlml
from sqlml import errors
from sqlml.training import row_store
from sqlml.training.fitting import fit_boosters
from sqlml.training.rows import read_rows
from tests.support.trained_by_hand import rows_of


@pytest.fixture
def con() -> Iterator[sqlml.Session]:
    with sqlml.connect() as made:
        made.execute(
            "CREATE TABLE t AS SELECT range AS id, (hash(range) % 900) / 100 AS a, "
            "CASE WHEN range % 9 > 0 THEN (hash(range, 2) % 1000)::FLOAT END AS x, "
            "['u', 'v', NULL][(hash(range, 3) % 3)::INTEGER + 1] AS c, "
            "(hash(range, 4) % 7)::INTEGER AS k, "
            "a * 3 + coalesce(x, 40) / 100 + (hash(range, 5) % 100) / 50 + "
            "CASE WHEN c = 'u' THEN 5 ELSE 0 END AS y, "
            "(y > 18)::INTEGER AS over, ['no', 'maybe', 'yes'][least(y / 10, 2)::INTEGER + 1] AS w "
            "FROM range(6000)"
        )
        yield made


def trained(con: sqlml.Session, name: str, label: str | None, options: str) -> dict[str, Any]:
    """Train a model of the table, and return what the statement told."""
    others = [n for n in ("y", "over", "w") if n != label]
    told = "" if label is None else f", label = '{label}'"
    query = f"SELECT * EXCLUDE (id, {', '.join(others)}) FROM t"
    found = con.execute(f"CREATE MODEL {name} OPTIONS ({options}{told}) AS {query}").fetchall()
    return {k: v for k, v in found if k != "notice"} | {
        "notices": [v for k, v in found if k == "notice"]
    }


@pytest.mark.parametrize(
    "label, options",
    [
        ("w", "model_type = 'boosted_tree_classifier', n_estimators = 4"),
        ("y", "model_type = 'boosted_tree_regressor', n_estimators = 4, eval_fraction = 0.3"),
        ("y", "model_type = 'random_forest_regressor', library = 'xgboost', num_trees = 3"),
    ],
)
def test_xgboost_makes_the_same_trees_out_of_core(
    con: sqlml.Session, monkeypatch: pytest.MonkeyPatch, label: str, options: str
) -> None:
    trained(con, "whole", label, options)
    monkeypatch.setattr(row_store, "block_rows", lambda *_: 1700)
    trained(con, "blocks", label, f"{options}, out_of_core = true")
    monkeypatch.setattr(read_rows, "MAX_MEMORY_BYTES", 100)
    trained(con, "file", label, options)
    hashes = "SELECT program FROM sqlml.catalog_versions"
    assert len(set(con.execute(hashes).fetchall())) == 1
    told = con.execute("FROM ml_evaluate(MODEL whole)").fetchall()
    assert con.execute("FROM ml_evaluate(MODEL blocks)").fetchall() == told


@pytest.mark.parametrize("task", ["classifier", "regressor"])
def test_lightgbm_is_trained_from_a_file_as_from_a_sequence_by_hand(
    con: sqlml.Session, task: str
) -> None:
    con.execute(
        "CREATE TABLE u AS SELECT range AS id, (hash(range) % 9)::INTEGER AS a, "
        "(hash(range, 2) % 100)::DOUBLE AS x, (a > 4)::INTEGER AS y FROM range(200)"
    )
    query = "SELECT id % 7 AS b, a, x + id / 200 AS x, y FROM u"
    options = f"model_type = 'boosted_tree_{task}', library = 'lightgbm', out_of_core = true"
    con.execute(
        f"CREATE MODEL m OPTIONS ({options}, n_estimators = 5, label = 'y', min_child_samples = 3, "
        f"eval_fraction = 0.2, seed = 7) AS {query}"
    )
    frame, y, held = rows_of(con, query, "y")

    class Rows(lightgbm.Sequence):
        batch_size = 50

        def __init__(self, matrix: Any) -> None:
            self.matrix = matrix

        def __len__(self) -> int:
            return len(self.matrix)

        def __getitem__(self, asked: Any) -> Any:
            return self.matrix[asked]

    matrix = frame.to_numpy(float)
    parameters = {
        "objective": "binary" if task == "classifier" else "regression",
        **{"min_child_samples": 3, "verbosity": -1, "deterministic": True},
        **{"force_col_wise": True, "random_state": 7},
    }
    whole = lightgbm.Dataset(Rows(matrix[~held]), label=y[~held], params=parameters)
    rest = lightgbm.Dataset(Rows(matrix[held]), label=y[held], reference=whole)
    stop = [lightgbm.early_stopping(10, verbose=False)]
    hand = lightgbm.train(parameters, whole, 5, valid_sets=[rest], callbacks=stop)
    scored = f"SELECT predict{'_proba' if task == 'classifier' else ''}('m', *) AS p FROM ({query})"
    if task == "classifier":
        scored = scored.replace("*)", "*)[1]")
    ours = con.execute(scored).df()["p"].to_numpy()
    assert np.allclose(ours, hand.predict(matrix), rtol=1e-12)


def test_a_linear_model_equals_descent_by_hand(con: sqlml.Session) -> None:
    """The 6,000 rows are fewer than a stretch of neighbours, so their order stays."""
    options = "model_type = 'linear_reg', split = 'none'"
    trained(con, "exact", "y", options)
    trained(con, "m", "y", f"{options}, out_of_core = true, max_iter = 4, tol = 0")
    frame = con.execute("SELECT a, x, c, k, y FROM t").df()
    features = con.estimator("exact").named_steps["features"]
    X = features.transform(frame[["a", "x", "c", "k"]])
    X = np.asarray(X.todense()) if hasattr(X, "todense") else X
    hand = SGDRegressor(
        **{"penalty": None, "alpha": 0.0, "average": 6000, "random_state": 0},
        eta0=0.5 / np.mean(np.square(X).sum(axis=1)),
    )
    for _ in range(4):
        hand.partial_fit(X, frame["y"])
    ours = con.execute("SELECT predict('m', *) AS p FROM t").df()["p"].to_numpy()
    assert np.allclose(ours, hand.predict(X), rtol=1e-9)
    exact = con.execute("SELECT predict('exact', *) AS p FROM t").df()["p"].to_numpy()
    assert np.abs(ours - exact).max() < 0.05 * np.std(exact)
    assert "SGDRegressor" in str(con.execute("EXPLAIN MODEL m").fetchall())
    rounds = con.execute("FROM ml_training_info(MODEL m)").fetchall()
    assert len(rounds) == 4 and rounds[-1][1] < rounds[0][1] * 1.5


@pytest.mark.by_day(3)
@pytest.mark.parametrize(
    "label, options, metric, within",
    [
        ("y", "model_type = 'linear_reg', l2_reg = 20", "mean_squared_error", 0.05),
        ("y", "model_type = 'linear_reg', l1_reg = 0.1", "mean_squared_error", 0.1),
        ("y", "model_type = 'linear_reg', l1_reg = 0.1, l2_reg = 0.1", "mean_squared_error", 0.1),
        ("over", "model_type = 'logistic_reg', class_weights = 'balanced'", "roc_auc", 0.01),
        ("w", "model_type = 'logistic_reg', l1_reg = 1, l2_reg = 2", "accuracy", 0.1),
        (None, "model_type = 'kmeans', num_clusters = 3", "mean_squared_distance", 0.1),
        (
            None,
            "model_type = 'pca', num_principal_components = 2",
            "total_explained_variance_ratio",
            0.05,
        ),
    ],
)
def test_models_of_scikit_learn_are_nearly_as_good_out_of_core(
    con: sqlml.Session,
    monkeypatch: pytest.MonkeyPatch,
    label: str | None,
    options: str,
    metric: str,
    within: float,
) -> None:
    whole = trained(con, "whole", label, options)
    monkeypatch.setattr(row_store, "block_rows", lambda *_: 1000)
    blocks = trained(con, "blocks", label, f"{options}, out_of_core = true")
    assert blocks["rows"] == whole["rows"] and blocks["held_out"] == whole["held_out"]
    assert float(blocks[metric]) == pytest.approx(float(whole[metric]), rel=within)
    called = "transform" if "pca" in options else "predict"
    assert len(con.execute(f"SELECT {called}('blocks', *) FROM t").fetchall()) == 6000


@pytest.mark.parametrize("order", ["id", "-id"])
@pytest.mark.parametrize(
    "options",
    [
        "model_type = 'linear_reg'",
        "model_type = 'boosted_tree_regressor', library = 'lightgbm', n_estimators = 3",
        "model_type = 'boosted_tree_regressor', library = 'xgboost', n_estimators = 3",
    ],
)
def test_blocks_may_lie_on_one_side_of_the_split(
    con: sqlml.Session, monkeypatch: pytest.MonkeyPatch, options: str, order: str
) -> None:
    monkeypatch.setattr(row_store, "block_rows", lambda *_: 500)
    told = con.execute(
        f"CREATE MODEL m OPTIONS ({options}, label = 'y', split = 'seq', split_column = 'at', "
        f"out_of_core = true) AS SELECT a, x, c, y, {order} AS at FROM t ORDER BY id"
    ).fetchall()
    assert dict(told)["held_out"] == "1,200" and float(dict(told)["r2_score"]) > 0.3


def test_clusters_are_measured_on_rows_held_out_in_a_file(con: sqlml.Session) -> None:
    options = "model_type = 'kmeans', eval_fraction = 0.3, out_of_core = true"
    found = trained(con, "m", None, options)
    assert 1500 < int(found["held_out"].replace(",", "")) < 2100
    assert float(found["mean_squared_distance"]) > 0


def test_passes_are_those_that_were_asked_for(con: sqlml.Session) -> None:
    """A thousand, the default of scikit-learn's solver in memory, are too many here."""
    found = []
    for asked in ("", ", max_iter = 40", ", max_iterations = 1", ", max_iter = 25"):
        con.execute("DROP MODEL IF EXISTS m")
        options = f"model_type = 'logistic_reg', out_of_core = true, tol = 0{asked}"
        trained(con, "m", "over", options)
        found.append(len(con.execute("FROM ml_training_info(MODEL m)").fetchall()))
    assert found == [20, 40, 1, 25]


def test_texts_are_learned_from_in_memory_unless_asked_not_to(
    con: sqlml.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = "SELECT a, 'some words of ' || id AS note, over FROM t"
    monkeypatch.setattr(read_rows, "MAX_MEMORY_BYTES", 100)
    options = "model_type = 'boosted_tree_classifier', label = 'over', n_estimators = 2"
    told = con.execute(f"CREATE MODEL m OPTIONS ({options}) AS {query}").fetchall()
    assert int(dict(told)["rows"].replace(",", "")) > 4000
    with pytest.raises(errors.ConfigError, match="'note' has 6,000 distinct strings.*in memory"):
        con.execute(f"CREATE MODEL n OPTIONS ({options}, out_of_core = true) AS {query}")


def test_rows_that_take_much_memory_go_to_a_file_and_the_definition_says_so(
    con: sqlml.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = "model_type = 'logistic_reg'"
    monkeypatch.setattr(read_rows, "MAX_MEMORY_BYTES", 100)
    assert trained(con, "whole", "over", options)["notices"] == []  # a quarter of memory_limit
    monkeypatch.setattr(read_rows, "MEMORY_SHARES", {"sklearn": 0.0})
    (notice,) = trained(con, "m", "over", options)["notices"]
    assert notice.startswith("SGDClassifier learns block by block instead of LogisticRegression")
    monkeypatch.undo()
    made = con.execute("SHOW CREATE MODEL m").fetchall()[0][-1]
    assert "out_of_core = true" in made
    con.execute(made.replace('"m"', '"again"'))
    found = con.execute(
        "SELECT predict_proba('m', *) = predict_proba('again', *) FROM t"
    ).fetchall()
    assert found == [(True,)] * 6000


@pytest.mark.parametrize(
    "options, says",
    [
        ("model_type = 'random_forest_regressor', library = 'sklearn'", "RandomForest.*all rows"),
        ("model_type = 'boosted_tree_regressor', booster = 'gblinear'", "XGBRegressor .*all rows"),
        ("model_type = 'linear_reg', positive = true", "LinearRegression needs all rows"),
        ("model_type = 'linear_reg', encoding = 'target'", "'c' has 2 distinct strings.*in memory"),
        (
            "model_type = 'boosted_tree_regressor', tree_method = hparam_candidates(['exact'])",
            "XGBRegressor needs all rows",
        ),
    ],
)
def test_what_needs_all_rows_says_so(con: sqlml.Session, options: str, says: str) -> None:
    with pytest.raises(errors.ConfigError, match=says):
        trained(con, "m", "y", f"{options}, out_of_core = true")


def test_a_disk_without_room_for_bins_is_told_before_they_are_made(
    con: sqlml.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fit_boosters.shutil, "disk_usage", lambda folder: SimpleNamespace(free=999))
    says = r"training needs 0 MiB in .* for the binned data of XGBoost: free some space there, set"
    with pytest.raises(errors.ConfigError, match=says):
        trained(con, "m", "y", "model_type = 'boosted_tree_regressor', out_of_core = true")
    assert con.execute("SHOW MODELS").fetchall() == []


def test_files_of_bins_go_with_a_process_that_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time; from sqlml.training.row_store import open_vanishing_folder\n"
        "with open_vanishing_folder(sys.argv[1]) as folder:\n"
        "    open(folder + '/bins', 'w').close(); print('made', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "made\n"
        assert len(list(tmp_path.glob("*/bins"))) == 1
        os.kill(process.pid, signal.SIGKILL)
    until = time.monotonic() + 20
    while list(tmp_path.iterdir()) and time.monotonic() < until:
        time.sleep(0.05)
    assert list(tmp_path.iterdir()) == []


MEASURED = """
import sys, threading, time, sqlml

peak = 0

def watch():
    # Pages of files that the libraries map are left out: the system drops them when it needs to.
    global peak
    while True:
        with open("/proc/self/status") as status:
            sizes = (line.split() for line in status if line.startswith(("RssAnon", "RssShmem")))
            peak = max(peak, sum(int(size) * 1024 for _, size, _ in sizes))
        time.sleep(0.01)

def train(query):
    global peak
    peak = 0
    con.execute(f"CREATE MODEL m OPTIONS ({sys.argv[2]}) AS {query}")
    con.execute("SELECT predict('m', *) FROM t LIMIT 10").fetchall()
    con.execute("DROP MODEL m")
    return peak

con = sqlml.connect(sys.argv[1])
con.execute("SET memory_limit = '1500MB'")
con.execute("SET threads = 2")
threading.Thread(target=watch, daemon=True).start()
print(-train("SELECT * FROM t LIMIT 2000") + train("SELECT * FROM t"))
con.close()
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with a table of 6.4 GB."""
    made = tmp_path_factory.mktemp("large") / "large.duckdb"
    listed = ", ".join(
        f"hash(range * 100 + {k}) / 18446744073709551615.0 AS x{k}" for k in range(100)
    )
    with sqlml.connect(made) as con:
        con.execute("SET memory_limit = '2GB'")
        con.execute(
            f"CREATE TABLE t AS SELECT *, x0 + x1 * x2 + x3 > 1.2 AS y FROM "
            f"(SELECT {listed} FROM range(8_000_000))"
        )
    return made


@pytest.mark.nightly
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
@pytest.mark.parametrize(
    "options",
    [
        "model_type = 'boosted_tree_classifier', label = 'y', num_trees = 5, library = 'xgboost'",
        "model_type = 'boosted_tree_classifier', label = 'y', num_trees = 5, library = 'lightgbm'",
        "model_type = 'logistic_reg', label = 'y', max_iter = 2",
        "model_type = 'kmeans', num_clusters = 5, max_iter = 2",
    ],
)
def test_a_table_of_four_times_the_memory_limit(large: Path, options: str) -> None:
    told = subprocess.run(
        [sys.executable, "-c", MEASURED, str(large), options], capture_output=True, text=True
    )
    assert told.returncode == 0, told.stderr[-2000:]
    assert int(told.stdout.split()[-1]) < 1.5 * 1500e6, "beside the libraries and a small table"
    assert [p.name for p in large.parent.iterdir()] == [large.name]
