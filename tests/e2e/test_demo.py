"""The main job, on a part of the real data, and what it does when something is wrong."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from sklearn.metrics import roc_auc_score, root_mean_squared_error

import sqlml
from sqlml.backends.native.jit.processor_levels import LIBRARY
from sqlml.backends.native.runtime.build_runtime import CONNECTION
from sqlml.catalog.catalog_connection import IS_DUCKDB_2
from sqlml.errors import ConfigError, ScoringError
from sqlml.tools.cli import demo as main
from sqlml.tools.demo.job import (
    SCORES,
    DemoPrinter,
    check,
    compare,
    export_models,
    find_shell,
    read_query,
    run,
    run_shell,
    score_without_python,
)
from sqlml.udfs.duckdb.native import export_extension

ROWS = 6000
MODELS = ("delay_sklearn", "delay_xgboost", "delay_lightgbm")


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The database that the demo makes of some flights, and what it prints."""
    path = tmp_path_factory.mktemp("demo") / "flights.duckdb"
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        run(path, rows=ROWS)
    return path, printed.getvalue().rstrip()


def fetch(path: Path, sql: str) -> list[Any]:
    with duckdb.connect(str(path), read_only=True) as plain:
        return plain.execute(sql).fetchall()


def test_demo_prints_every_step(job: tuple[Path, str]) -> None:
    _, printed = job
    assert f"{ROWS:,} flights" in printed
    for step in (
        "Load",
        "Fit",
        "Register",
        "Score",
        "Evaluate",
        "Predict with an interval",
        "A model per airline",
        "Explain",
        "EXPLAIN",
        "Compare",
        "Rows",
        "Score without Python",
    ):
        assert f". {step}" in printed
    for model in MODELS:
        assert printed.count(model) >= 5
    assert printed.endswith("s in all.")


def test_demo_scores_every_flight_of_the_last_three_months(job: tuple[Path, str]) -> None:
    with duckdb.connect(str(job[0]), read_only=True) as plain:
        flights = plain.execute("SELECT count(*) FROM flights WHERE month >= 10").fetchone()
        counts = plain.execute(
            "SELECT count(*), count(label_sklearn), count(score_xgboost), "
            "count(score_lightgbm), count(late) FROM scores"
        ).fetchone()
    assert flights is not None and counts is not None
    assert counts[:4] == flights * 4
    # Flights that never arrived are scored too, and have no outcome.
    assert 0 < counts[4] < counts[0]


def test_labels_are_the_more_likely_class(job: tuple[Path, str]) -> None:
    with duckdb.connect(str(job[0]), read_only=True) as plain:
        wrong = plain.execute(
            "SELECT count(*) FROM scores WHERE (score_sklearn > 0.5) <> (label_sklearn = 'late') "
            "OR (score_xgboost > 0.5) <> (label_xgboost = 1) "
            "OR (score_lightgbm > 0.5) <> (label_lightgbm = 'late')"
        ).fetchone()
    assert wrong == (0,)


def test_metrics_in_sql_are_scikit_learns(job: tuple[Path, str]) -> None:
    with sqlml.connect(str(job[0])) as con:
        computed = con.sql(read_query("evaluate")).df().set_index("model")
        known = con.execute("SELECT * FROM scores WHERE late IS NOT NULL").fetchnumpy()
    assert set(computed.index) == {"sklearn", "xgboost", "lightgbm"}
    for model, found in computed.iterrows():
        expected = roc_auc_score(known["late"], known[f"score_{model}"])
        assert found["roc_auc"] == pytest.approx(expected, rel=1e-12)
        assert found["roc_auc"] > 0.8 and found["rows"] == len(known["late"])


def test_intervals_cover_most_flights(job: tuple[Path, str]) -> None:
    with sqlml.connect(str(job[0])) as con:
        con.execute(read_query("evaluate")).fetchall()
        rows = con.sql(read_query("intervals")).fetchall()
        ((predicted, delay),) = con.execute(
            "SELECT list(predict('arrival', *)), list(arr_delay) FROM arrivals WHERE origin = 'EWR'"
        ).fetchall()
    assert [row[0] for row in rows] == ["EWR", "JFK", "LGA"]
    assert all(0.75 < covered < 1 and width > 0 for _, _, covered, width, _ in rows)
    assert rows[0][-1] == pytest.approx(root_mean_squared_error(delay, predicted), rel=1e-12)


def test_explanations_name_the_delay_at_departure(job: tuple[Path, str]) -> None:
    path, printed = job
    with sqlml.connect(str(path)) as con:
        con.execute(read_query("evaluate")).fetchall()
        first, *_ = con.sql(read_query("global_explain")).fetchall()
        rows = con.sql(read_query("contributions")).fetchall()
    assert first[0] == "dep_delay" and len(rows) == 3
    assert all(len(row[3]) == 2 for row in rows)
    assert f"flight {rows[0][0]:,} of {rows[0][1]}: score " in printed


def test_models_stay_in_the_file_and_score_again(job: tuple[Path, str]) -> None:
    path, _ = job
    with sqlml.connect(str(path)) as con:
        first = con.execute("SELECT * FROM scores ORDER BY flight_id").fetchall()
        con.execute(read_query("score"))
        assert con.execute("SELECT * FROM scores ORDER BY flight_id").fetchall() == first


def test_the_demo_ends_in_the_shell(job: tuple[Path, str]) -> None:
    path, printed = job
    assert "left out" not in printed
    last_step = printed.partition(". Score without Python")[2]
    (count,) = fetch(path, "SELECT count(*) FROM scores")[0]
    scored = re.search(r"DuckDB v1\.\d\.\d scored ([\d,]+) flights", last_step)
    assert scored is not None and scored[1] == f"{count:,}"
    for model in MODELS:
        assert re.search(rf"^ +{model} +{count:,} +[\de.-]+$", last_step, re.MULTILINE), last_step


def test_the_shell_has_the_scores_of_the_session(job: tuple[Path, str], tmp_path: Path) -> None:
    path, _ = job
    with sqlml.connect(str(path)) as con:
        export_models(con, MODELS, tmp_path)
    version, count = run_shell(find_shell(), tmp_path)
    assert version.startswith("v1.")
    columns = [model.replace("delay_", "score_") for model in MODELS]
    # DuckDB 1.5 sends rows to Python, where numpy's exp differs in the last digit.
    tolerance = 0 if IS_DUCKDB_2 else 1e-14
    differing = " OR ".join(f"NOT abs(shell.{c} - scores.{c}) <= {tolerance}" for c in columns)
    query = f"FROM scores JOIN '{tmp_path / SCORES}' AS shell USING (flight_id)"
    assert fetch(path, f"SELECT count(*), count(*) FILTER ({differing}) {query}") == [(count, 0)]
    assert fetch(path, "SELECT count(*) FROM scores") == [(count,)]


def test_an_error_of_the_shell_is_shown(tmp_path: Path) -> None:
    with pytest.raises(ScoringError, match="delays.duckdb_extension"):
        run_shell(find_shell(), tmp_path)


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        ("kernels", "no compiled kernels for .* run `make runtime`"),
        ("shell", "the demo needs duckdb-cli, .*: make demo"),
    ],
)
def test_a_missing_part_is_named_and_the_demo_goes_on(
    job: tuple[Path, str],
    missing: str,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if missing == "kernels":
        library = LIBRARY.parent / CONNECTION / LIBRARY.name
        monkeypatch.setattr(export_extension, "find_runtime", lambda platform: library)
    else:
        monkeypatch.setattr("sqlml.tools.demo.job.find_spec", lambda name: None)
    with sqlml.connect(str(job[0])) as con:
        score_without_python(con, DemoPrinter(), MODELS)
    step, line = capsys.readouterr().out.strip().splitlines()
    assert "Score without Python" in step
    assert re.search(f"left out: .*{reason}", line)


def test_demo_does_not_touch_a_database_that_exists(tmp_path: Path) -> None:
    path = tmp_path / "mine.duckdb"
    with duckdb.connect(str(path)) as plain:
        plain.execute("CREATE TABLE flights AS SELECT 1 AS mine")
    with pytest.raises(ConfigError, match="name another file"):
        run(path)
    with duckdb.connect(str(path)) as plain:
        assert plain.execute("FROM flights").fetchall() == [(1,)]


def test_too_few_rows_is_an_error_that_names_the_option() -> None:
    with pytest.raises(ConfigError, match="--rows 1000"):
        run(rows=10)


def test_command_ends_with_1_and_says_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = tmp_path / "taken.duckdb"
    taken.touch()
    assert main(["--database", str(taken)]) == 1
    assert main(["--rows", "5"]) == 1
    assert capsys.readouterr().err.count("ConfigError: ") == 2


def test_equal_scores_agree() -> None:
    scores = np.array([0.0, 0.25, 1.0])
    found = compare("m", ["a", "b", "a"], scores, np.array(["a", "b", "a"]), scores)
    assert (found.rows, found.flips, found.relative) == (3, 0, 0.0)
    check(found)


@pytest.mark.parametrize(
    ("labels", "scores"),
    [
        (["a", "a"], [0.25, 0.5]),
        (["a", "b"], [0.25, 0.5000011]),
        (["a", "b"], [0.25, np.nan]),
        ([None, "b"], [0.25, 0.5]),
    ],
    ids=["label", "score", "missing score", "missing label"],
)
def test_a_difference_fails_loudly(labels: list[str], scores: list[float]) -> None:
    found = compare("m", labels, scores, ["a", "b"], [0.25, 0.5])
    with pytest.raises(ScoringError, match="differ from the source"):
        check(found)
