"""A process that is killed while it changes models leaves the state before a statement or after."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import duckdb
import pytest

import sqlml
from tests.e2e.killed_child import STEPS, state

pytestmark = pytest.mark.version

KILLS = 5
MANY_KILLS = 50
"""Of each of four runs at night."""

SCRIPT = Path(__file__).with_name("killed_child.py")
ROOT = SCRIPT.parents[2]


@pytest.fixture(scope="module")
def server() -> Iterator[subprocess.Popen[str]]:
    """A process whose children open databases; it has all imported that they need."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, str(SCRIPT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as made:
        yield made
        assert made.stdin is not None
        made.stdin.close()


def said(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline().strip()


def told(stream: IO[str] | None, line: str) -> None:
    assert stream is not None
    stream.write(line + "\n")
    stream.flush()


def states(path: Path) -> tuple[list[tuple[object, ...]], list[float]]:
    """The state after each step of an undisturbed run, and the one before; seconds of each step."""
    with sqlml.connect(path) as con:
        found, took = [state(con)], []
        for step in STEPS:
            begin = time.perf_counter()
            step(con)
            took.append(time.perf_counter() - begin)
            found.append(state(con))
    return found, took


def test_a_kill_leaves_the_old_state_or_the_new_one(
    server: subprocess.Popen[str], tmp_path: Path
) -> None:
    check(server, tmp_path, 9, KILLS)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(4))
def test_many_kills(server: subprocess.Popen[str], tmp_path: Path, seed: int) -> None:
    check(server, tmp_path, seed, MANY_KILLS)


def check(server: subprocess.Popen[str], tmp_path: Path, seed: int, kills: int) -> None:
    states(tmp_path / "first.db")
    wanted, took = states(tmp_path / "undisturbed.db")
    assert len(set(wanted)) == len(wanted), "each step changes something"
    rng = random.Random(seed)
    seen = set()
    for number in range(kills):
        path = tmp_path / f"{number}.db"
        told(server.stdin, str(path))
        child = int(said(server.stdout))
        done = number * len(STEPS) // kills
        for _ in range(done):
            assert said(server.stdout) == "done"
        time.sleep(rng.random() * took[done])
        os.kill(child, signal.SIGKILL)
        while not (line := said(server.stdout)).endswith("gone"):  # a last word may be cut off
            assert line, "the server ended"
        with sqlml.connect(path) as con:
            found = state(con)
            assert found in wanted[done:], f"after kill {number}, in step {done}"
            seen.add(wanted.index(found))
            if number % 5 == 0:
                whole(con)
        with duckdb.connect(str(path)) as plain:
            plain.execute("SELECT 1")
        path.unlink()
        path.with_suffix(".db.wal").unlink(missing_ok=True)
    assert len(seen) > min(len(wanted), kills) // 3, "kills came at many steps"


def whole(con: sqlml.Session) -> None:
    """Every model there is can be scored, altered and dropped."""
    names = [row[0] for row in con.execute("SHOW MODELS").fetchall()]
    for name in names:
        assert con.execute(f"SELECT predict('{name}', a := 1.0, b := 0.0)").fetchone() is not None
        for row in con.execute(f"SHOW VERSIONS IN MODEL {name}").fetchall():
            con.execute(f"DESCRIBE MODEL {name}/{row[0]}").fetchall()
        con.execute(f"ALTER MODEL {name} SET TAG checked = 'yes'")
        con.execute(f"DROP MODEL {name}")
    if names:
        for table in ("versions", "aliases", "tags", "programs"):
            assert con.execute(f"SELECT count(*) FROM sqlml.catalog_{table}").fetchall() == [(0,)]
        ask = "SELECT count(*) FROM duckdb_types() WHERE starts_with(type_name, 'stamp_')"
        assert con.execute(ask).fetchall() == [(0,)]
