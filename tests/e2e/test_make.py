"""`make test` runs all of its parts, and fails if one of them does; other machines have tests."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.machines import MACHINES

ROOT = Path(__file__).resolve().parents[2]

PYTHON = """#!/bin/sh
echo "$0 $*" >> calls.txt
case "$0 $*" in {failing}) exit 1;; esac
"""

PARTS = {
    "DuckDB 2.0": ".venv/bin/python*--ignore\\ tests/spark*",
    "Spark": ".venv/bin/python*=50\\ tests/spark",
    "DuckDB 1.5": ".venv15/bin/python*",
}
"""Patterns of the shell for the commands that run the tests."""


@pytest.mark.skipif(shutil.which("make") is None, reason="the system has no make")
@pytest.mark.parametrize("failing", [None, *PARTS])
def test_the_parts_run_though_one_fails(tmp_path: Path, failing: str | None) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    (tmp_path / "tests" / "e2e").mkdir()
    (tmp_path / "tests" / "unit" / "test_a.py").write_text("pytest.mark.version")
    stamps = ("pyproject.toml", "constraints.txt", ".venv/.demo", ".venv/.openmp", ".venv/.dev")
    for second, name in enumerate((*stamps, ".venv15/.duckdb")):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
        os.utime(path, (second, second))
    for environment in (".venv", ".venv15"):
        python = tmp_path / environment / "bin" / "python"
        python.parent.mkdir()
        python.write_text(PYTHON.format(failing=PARTS[failing] if failing else "nothing"))
        python.chmod(0o755)
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
    made = subprocess.run(
        ["make", "test"], cwd=tmp_path, env=variables, capture_output=True, text=True
    )
    assert (made.returncode == 0) == (failing is None), made.stderr
    first, *calls = (tmp_path / "calls.txt").read_text().splitlines()
    assert first.endswith("-m sqlml.backends.native.runtime")
    assert len(calls) == len(PARTS), made.stderr
    assert sum(call.startswith(".venv15/bin/python ") for call in calls) == 1


def test_the_tests_of_other_machines_exist() -> None:
    folders = {test.removeprefix("--ignore=") for m in MACHINES.values() for test in m.tests}
    assert "tests/spark" in folders
    assert all((ROOT / folder).is_dir() for folder in folders)
