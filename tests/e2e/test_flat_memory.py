"""A process that does the same again and again takes no more memory for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e import growing_child

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="the system does not say how much memory is used"
)

FLAT = 20.0
"""Megabytes."""


def grown(kind: str, before: int, rounds: int, folder: Path) -> tuple[int, float]:
    """How many Programs, and megabytes, some rounds leave behind."""
    command = [sys.executable, growing_child.__file__, kind, str(before), str(rounds)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    programs, megabytes = done.stdout.split()[-2:]
    return int(programs), float(megabytes)


@pytest.mark.by_day(9)
@pytest.mark.parametrize("kind", growing_child.KINDS)
def test_no_program_stays(kind: str, tmp_path: Path) -> None:
    assert grown(kind, 3, 4, tmp_path)[0] == 0


@pytest.mark.nightly
@pytest.mark.parametrize("kind", [*growing_child.KINDS, *growing_child.DROPPED])
def test_memory_is_flat_over_300_rounds(kind: str, tmp_path: Path) -> None:
    # It takes a hundred rounds until caches are full and the heap has its holes.
    assert grown(kind, 100, 300, tmp_path)[1] < FLAT
