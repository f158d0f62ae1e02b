"""Functions that DuckDB calls without Python: in a process whose home is a folder of the test."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sqlml.backends.native.runtime.build_runtime import EXTENSION, detect_duckdb_platform
from sqlml.catalog.catalog_connection import IS_DUCKDB_2

CHILD = Path(__file__).with_name("native_child.py")

pytestmark = [
    pytest.mark.skipif(not IS_DUCKDB_2, reason="needs DuckDB 2.0"),
    pytest.mark.skipif(
        shutil.which("cc") is None or detect_duckdb_platform() is None, reason="needs a C compiler"
    ),
]


@pytest.mark.nightly
def test_they_give_what_the_functions_of_python_give(tmp_path: Path) -> None:
    root = str(Path(__file__).parents[4])
    paths = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    made = subprocess.run(
        [sys.executable, str(CHILD), str(tmp_path)],
        env={**os.environ, "HOME": str(tmp_path), "PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0 and "done" in made.stdout, made.stderr
    (installed,) = (tmp_path / ".duckdb").rglob("*.duckdb_extension")
    assert installed.read_bytes() == (tmp_path / "built" / EXTENSION).read_bytes()
