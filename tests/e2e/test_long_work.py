"""Registering a large model says what it does in a terminal, and nothing elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import numpy as np, sqlml
from sklearn.ensemble import RandomForestRegressor
from sqlml import long_work
long_work.PATIENCE, long_work._INTERVAL = 0.0, 0.001
X = np.random.default_rng(0).normal(size=(50, 3))
with sqlml.connect() as con:
    con.create_model("churn", RandomForestRegressor(300).fit(X, X[:, 0]), inputs=list("abc"))
"""


def ran(stderr: int) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-c", SCRIPT], stderr=stderr, env=environment)


def test_a_terminal_sees_what_is_done_on_one_line() -> None:
    import pty

    ours, theirs = pty.openpty()
    with ran(theirs) as child:
        os.close(theirs)
        shown = b""
        while True:
            try:
                shown += os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
    os.close(ours)
    assert child.returncode == 0
    text = shown.decode()
    # A stage that ends before the line is drawn again is not seen.
    stages = "importing it|comparing it with its source|storing it"
    assert re.search(rf"\rsqlml: registering churn: (?:{stages}), \d+ s\r", text)
    assert text.rsplit("\r", 2)[1].strip() == ""  # the line is cleared at last
    assert "\n" not in text


def test_a_pipe_sees_nothing() -> None:
    with ran(subprocess.PIPE) as child:
        _, told = child.communicate()
    assert child.returncode == 0 and told == b""
