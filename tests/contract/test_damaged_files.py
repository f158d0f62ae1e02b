"""Damaged model files of every format: one clear error each, or a model that works.

Never another exception, a crash, a hang or exhausted memory. In `tests/support/`, `small_files.py`
has the files, `mutations.py` the damage and `hostile.py` the outcomes that are allowed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import fields, hostile

NIGHTLY = {
    "program": 39_600,
    "xgboost-json": 12_000,
    "xgboost-ubj": 12_000,
    "lightgbm": 11_000,
    "catboost": 11_000,
    "skops": 8_000,
    "spark": 400,
    "torch": 3_600,
    "onnx": 1_500,
    "onnx-whole": 500,
    "torch-whole": 400,
}
USUAL = dict.fromkeys(NIGHTLY, 30) | {"onnx-whole": 4, "spark": 3, "torch-whole": 2}
"""Files of a format in the usual run; the nightly one begins where it ends."""


@pytest.mark.by_day(6)
@pytest.mark.parametrize("name", hostile.FORMATS)
def test_the_files_are_models_before_they_are_damaged(name: str) -> None:
    files, _, format = hostile.FORMATS[name]
    for content in files():
        assert hostile.outcome(content, format) != "refused"


@pytest.mark.by_day(6)
@pytest.mark.parametrize("name", hostile.FORMATS)
def test_a_damaged_file_is_refused_or_works(name: str) -> None:
    assert hostile.findings(name, range(USUAL[name])) == []


@pytest.mark.nightly
@pytest.mark.parametrize("name", NIGHTLY)
def test_many_damaged_files_in_a_process_of_their_own(name: str, tmp_path: Path) -> None:
    progress = tmp_path / "seed"
    for first in range(USUAL[name], NIGHTLY[name], 4000):
        end = min(first + 4000, NIGHTLY[name])
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "tests.support.hostile",
                name,
                str(first),
                str(end),
                str(progress),
            ],
            capture_output=True,
            text=True,
            timeout=3600,
            cwd=Path(__file__).parents[2],
        )
        assert done.returncode == 0, f"ends at {progress.read_text()}: {done.stderr[-2000:]}"
        assert done.stdout == ""


@pytest.mark.nightly
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks a process a file")
@pytest.mark.parametrize("kind", fields.FORMATS)
def test_no_library_dies_of_a_file_that_is_a_model_or_answers_otherwise(kind: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.fields", kind],
        capture_output=True,
        text=True,
        timeout=3600,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    *findings, count = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr[-2000:]
    assert findings == [] and int(count) > 1000


def test_a_hundred_thousand_files_make_a_night() -> None:
    assert set(NIGHTLY) == set(hostile.FORMATS)
    assert sum(NIGHTLY.values()) == 100_000
