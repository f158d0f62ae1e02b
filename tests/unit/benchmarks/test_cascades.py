"""Benchmarks of texts and of approximate queries: what they measure, and what the page shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import cascades, texts
from benchmarks.report import TABLES

ROW = {
    "case": {"workload": "toxic", "kind": "cascade", "seed": 0, "rows": 100},
    "contender": "sqlml cascade",
    "exact": True,
    "bar": 2.5,
    "exact_ns": 900.0,
    "ns": 300.0,
    "ratio": 3.0,
    "loss": 0.0002,
}


def test_the_page_counts_the_seeds_that_kept_their_promise() -> None:
    second = {**ROW, "case": {**ROW["case"], "seed": 1}, "exact": False, "loss": 0.002}
    none = {**ROW, "case": {**ROW["case"], "workload": "price"}, "reason": "nothing is cheap"}
    table = TABLES["cascades"]({"cascades": {"rows": [ROW, second, none]}})
    assert (
        "| toxic | cascade | 900 | 300 | 3 | 2.5 | 1 of 2 seeds; loses at most 0.00200 |" in table
    )
    assert "| price | cascade | | | nothing is cheap | | |" in table


def written(main: Any, folder: Path, arguments: list[str]) -> list[dict[str, Any]]:
    """The rows that a benchmark writes."""
    path = folder / "result.json"
    assert main([*arguments, "--rounds", "1", "--least", "0", "--write", str(path)]) == 0
    rows: list[dict[str, Any]] = json.loads(path.read_text())["rows"]
    return rows


@pytest.mark.nightly
def test_texts(tmp_path: Path) -> None:
    rows = written(texts.main, tmp_path, ["--model", "words", "--train", "300", "--rows", "50"])
    assert [(r["case"]["mode"], r["contender"]) for r in rows] == [
        *(("many", way) for way in ("sqlml", "library")),
        *(("one", way) for way in ("sqlml", "library")),
    ]
    assert all(r["exact"] for r in rows if r["contender"] == "sqlml")
    assert "| words | one | " in TABLES["texts"]({"texts": {"rows": rows}})


@pytest.mark.nightly
@pytest.mark.parametrize("workload", ["product", "instant", "credit"])
def test_cascades(workload: str, tmp_path: Path) -> None:
    if workload == "credit":
        pytest.importorskip("psycopg")
    small = ["--train", "2000", "--learn", "12000", "--rows", "5000", "--loss", "0.01", "-k", "1"]
    rows = written(cascades.main, tmp_path, ["--workload", workload, *small])
    kinds = [row["case"]["kind"] for row in rows]
    assert kinds == (["top_k"] if workload == "credit" else ["cascade", "top_k"])
    assert all(row["exact"] for row in rows)
    assert TABLES["cascades"]({"cascades": {"rows": rows}}).count(f"| {workload} |") == len(rows)
