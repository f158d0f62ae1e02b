"""The benchmark of exported SQL: what it measures, and what the page shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import databases
from benchmarks.report import TABLES


@pytest.mark.nightly
@pytest.mark.parametrize(
    "database", ["sqlite", pytest.param("postgres", marks=pytest.mark.nightly)]
)
def test_contenders_are_compared_with_the_library(database: str, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    small = ["--rows", "40", "--train", "200", "--trees", "3", "--fewest", "4", "--most", "8"]
    small += ["--rounds", "1", "--least", "0", "--database", database, "--write", str(path)]
    chosen = [f"--model={name}" for name in ("forest", "xgboost", "largest")]
    assert databases.main([*small, *chosen]) == 0
    rows = json.loads(path.read_text())["rows"]
    for row in rows:
        if "reason" not in row:
            assert row["largest"] < 1e-6
            assert row["exact"] or row["contender"] == "orbital"
    made = {(r["case"]["model"], r["contender"]) for r in rows if "ns" in r}
    assert (("xgboost", "nodes of sqlml") in made) == (database == "postgres")
    results = {"databases": {"rows": rows}}
    name = "SQLite" if database == "sqlite" else "PostgreSQL"
    assert f"| {name} | forest | " in TABLES["databases"](results)
    assert f"| {name} | 8 trees, " in TABLES["largest-models"](results)
