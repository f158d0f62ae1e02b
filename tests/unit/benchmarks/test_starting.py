"""The times of first predictions: what the processes say, and what the report shows of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import starting
from benchmarks.report import TABLES


@pytest.mark.nightly
def test_only_a_process_without_kernels_compiles_them(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    chosen = ["--model", "text", "--train", "200", "--trees", "3", "--rounds", "1"]
    assert starting.main([*chosen, "--write", str(path)]) == 0
    result = json.loads(path.read_text())
    seen = {(r["case"]["way"], r["case"]["process"]): r for r in result["rows"]}
    processes = ("first", "first, compiling", "later")
    assert set(seen) == {(w, p) for w in ("scorer", "query") for p in processes}
    for (_, process), row in seen.items():
        assert row["exact"]
        compiles = process == "first, compiling"
        assert row["compiled"] == compiles and (compiles or not row["numba"])
        assert row["first"] > row["second"] > 0
    table = TABLES["starting"]({"starting": result})
    assert table.count("| text |") == 6
