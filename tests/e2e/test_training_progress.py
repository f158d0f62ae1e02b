"""Training shows a bar in a terminal, stops at a Ctrl-C, and is silent elsewhere."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

import sqlml

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import sys, sqlml
from sqlml.training import progress
progress.MIN_SECONDS = 0.0
con = sqlml.connect(sys.argv[1])
con.execute("CREATE TABLE IF NOT EXISTS t AS SELECT hash(i) % 97 AS a, hash(i, 1) % 89 AS b, "
            "hash(i, 2) % 2 AS y FROM range(20000) r(i)")
print("ready", flush=True)
con.execute("CREATE MODEL m OPTIONS (model_type = 'boosted_tree_classifier', label = 'y', "
            f"n_estimators = {sys.argv[2]}, early_stop = false) AS FROM t")
"""


def started(path: Path, rounds: int, terminal: int | None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(path), str(rounds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if terminal is None else terminal,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


def test_a_terminal_sees_rows_and_rounds(tmp_path: Path) -> None:
    import fcntl
    import pty
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    with started(tmp_path / "shop.duckdb", 200, theirs) as child:
        os.close(theirs)
        shown = b""
        while True:
            try:
                read = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not read:
                break
            shown += read
        child.communicate()
        assert child.returncode == 0, shown
    os.close(ours)
    assert b"reading" in shown and b"row" in shown
    assert b"fitting" in shown and b"/200" in shown and b"eval_loss 0." in shown


PHASES = """
import sqlml
from sqlml import long_work
from sqlml.training import progress
long_work.PATIENCE, long_work._INTERVAL, progress.MIN_SECONDS = 0.0, 0.001, 0.0
con = sqlml.connect()
con.execute("CREATE TABLE t AS SELECT hash(i) % 97 AS a, hash(i, 2) % 2 AS y FROM range(3000) r(i)")
con.execute("CREATE MODEL m OPTIONS (model_type = 'random_forest_classifier', label = 'y', "
            "split = 'random', n_estimators = 50) AS FROM t")
con.execute("ALTER MODEL m RETRAIN PROMOTE IF accuracy >= CURRENT")
"""


@pytest.mark.nightly
def test_each_phase_is_named_without_rounds(tmp_path: Path) -> None:
    import pty

    script = tmp_path / "phases.py"
    script.write_text(PHASES)
    ours, theirs = pty.openpty()
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, script], stderr=theirs, env=environment) as child:
        os.close(theirs)
        shown = b""
        while True:
            try:
                shown += os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
    os.close(ours)
    assert child.returncode == 0, shown
    for what in (b"training m", b"retraining m"):
        for phase in (b"fitting", b"comparing it with its source"):
            assert b"sqlml: " + what + b": " + phase in shown, shown
    assert b"retraining m: comparing it with the current version" in shown
    assert shown.rsplit(b"\r", 2)[1].strip() == b""  # the line is cleared at last


@pytest.mark.nightly
def test_nobody_else_sees_anything(tmp_path: Path) -> None:
    with started(tmp_path / "shop.duckdb", 20, None) as child:
        _, told = child.communicate()
    assert (child.returncode, told) == (0, b"")


@pytest.mark.by_day(2)
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_what_is_stopped_leaves_no_model_and_no_file(tmp_path: Path, sent: signal.Signals) -> None:
    path = tmp_path / "shop.duckdb"
    with started(path, 1_000_000, None) as child:
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        time.sleep(1.5)
        os.kill(child.pid, sent)
        _, told = child.communicate(timeout=30)
    assert child.returncode != 0
    if sent == signal.SIGINT:
        assert told.rstrip().endswith(b"KeyboardInterrupt")
    with sqlml.connect(path) as con:
        assert con.execute("SHOW MODELS").fetchall() == []
        assert con.execute("SELECT count(*) FROM t").fetchall() == [(20_000,)]
    assert {p.name for p in tmp_path.iterdir()} <= {"shop.duckdb", "shop.duckdb.wal"}
