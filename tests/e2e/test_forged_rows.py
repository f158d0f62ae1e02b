"""Catalog rows that an attacker or a fault wrote: an error of ours, or a model that works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.forged_rows import findings

NIGHTLY = 60_000
"""With 40,000 stored Programs (tests/contract/test_damaged_files.py) a hundred thousand."""


@pytest.mark.parametrize("first", [0])
def test_a_forged_row_is_refused_or_works(first: int) -> None:
    assert findings(first, first + 100) == []


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(200, NIGHTLY, 5980))
def test_many_forged_rows_in_a_process_of_their_own(first: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.forged_rows", str(first), str(first + 5980)],
        capture_output=True,
        text=True,
        timeout=3600,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == ""
