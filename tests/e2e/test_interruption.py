"""Ctrl-C is a KeyboardInterrupt, which `except Exception` does not take for an error of a query."""

from __future__ import annotations

import _thread
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from sklearn.linear_model import LinearRegression

import sqlml
from sqlml.interruption import interruption_after, run_uninterrupted
from tests.e2e import child as script
from tests.e2e import interrupted_child
from tests.e2e.interrupted_child import TENSORS, WAYS

pytestmark = [
    pytest.mark.version,
    pytest.mark.skipif(sys.platform == "win32", reason="signals are sent by kill"),
]

INTERRUPTED = "KeyboardInterrupt"
LATE = 2.0
"""CPU seconds of all threads within which an interrupt must be raised."""

Row = tuple[str, str, float, bool]


@pytest.fixture(autouse=True)
def heeded() -> Iterator[None]:
    """SIGINT reaches the tests also where it was ignored, as in a run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def met(
    folder: Path, names: str = "", seconds: float = 0.2, rounds: int = 1, cache: bool = False
) -> list[Row]:
    """What a SIGINT makes of the child's queries."""
    command = [sys.executable, interrupted_child.__file__, names, str(seconds), str(rounds)]
    own = {"NUMBA_CACHE_DIR": str(folder)} if cache else {}
    path = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, **own},
    )
    assert done.returncode == 0, done.stderr
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


OFTEN = (
    "execute",
    "execute, a frame",
    "execute, rows one by one",
    "a relation",
    "a view",
    "EXPLAIN ANALYZE",
    "a statement after an unread result",
)
"""Ways of `WAYS`, the first two met by day; each night meets all ways of `WAYS` thirty times."""


@pytest.mark.parametrize("ways", [OFTEN[:2], pytest.param(OFTEN, marks=pytest.mark.nightly)])
def test_a_query_that_scores_is_interrupted(ways: tuple[str, ...], tmp_path: Path) -> None:
    found = met(tmp_path, ";".join(ways))
    assert tuple(name for name, *_ in found) == ways
    for name, came, took, answers in found:
        assert (came, answers) == (INTERRUPTED, True), name
        assert took < LATE, name


def stopped(values: pa.Array) -> pa.Array:
    """A user's own Arrow function, which a Ctrl-C meets."""
    signal.raise_signal(signal.SIGINT)
    return values


def test_a_query_without_models_ends_as_the_engine_ends_it() -> None:
    said = []
    for connect in (duckdb.connect, sqlml.connect):
        with connect() as con:
            con.execute("SET threads = 1")  # with more, what the engine says varies
            con.create_function("stopped", stopped, ["DOUBLE"], "DOUBLE", type="arrow")
            with pytest.raises(BaseException, match="nterrupt|^$") as error:
                con.execute("SELECT stopped(range::DOUBLE) FROM range(3)").fetchall()
            said.append((error.type, str(error.value).split(chr(10))[0]))
    assert said[0] == said[1]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("run", ["execute", "sql"])
def test_a_users_function_beside_a_model_is_interrupted(run: str, threads: int) -> None:
    with sqlml.connect() as con:
        con.execute(f"SET threads = {threads}")
        con.create_model("m", LinearRegression().fit([[1.0], [2.0]], [3.0, 4.0]), inputs=["a"])
        con.create_function("stopped", stopped, ["DOUBLE"], "DOUBLE", type="arrow")
        query = "SELECT predict('m', a := stopped(range::DOUBLE)) FROM range(3)"
        with pytest.raises(KeyboardInterrupt):
            getattr(con, run)(query).fetchall()
        assert con.execute("SELECT round(predict('m', a := 3.0), 6)").fetchall() == [(5.0,)]


@pytest.mark.parametrize("run", ["execute", "sql"])
def test_a_handler_that_raises_nothing_lets_the_query_go_on(run: str) -> None:
    came: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    with sqlml.connect() as con:
        con.create_model("m", LinearRegression().fit([[1.0], [2.0]], [3.0, 4.0]), inputs=["a"])
        con.create_function("stopped", stopped, ["DOUBLE"], "DOUBLE", type="arrow")
        query = "SELECT sum(predict('m', a := stopped(range::DOUBLE))) FROM range(100_000)"
        ((total,),) = getattr(con, run)(query).fetchall()
        assert came
        assert round(total) == 100_000 * 99_999 // 2 + 2 * 100_000


@pytest.mark.parametrize("argument", ["late(range)", "predict('m', a := late(range))"])
def test_an_unread_result_is_interrupted_while_it_is_finished(argument: str) -> None:
    """DuckDB 2.0 streams results; the next statement about models runs them to their end."""
    with sqlml.connect() as con:
        con.execute("SET threads = 1")
        con.create_model("m", LinearRegression().fit([[1.0], [2.0]], [3.0, 4.0]), inputs=["a"])
        finishing = False
        met = []

        def late(values: pa.Array) -> pa.Array:
            if finishing:
                met.append(len(values))
                signal.raise_signal(signal.SIGINT)
            return values

        con.create_function("late", late, ["DOUBLE"], "DOUBLE", type="arrow")
        con.execute(f"SELECT {argument} FROM range(100_000_000)").fetchone()
        finishing = True
        score = "SELECT round(predict('m', a := 3.0), 6)"
        if hasattr(duckdb.DuckDBPyConnection, "complete"):
            with pytest.raises(KeyboardInterrupt):
                con.execute(score)
            assert len(met) == 1
        assert con.execute(score).fetchall() == [(5.0,)]


@pytest.mark.nightly
def test_the_first_query_compiles_its_kernel_and_is_interrupted(tmp_path: Path) -> None:
    ((_, came, _, answers),) = met(tmp_path, "execute", 0.5, cache=True)
    assert (came, answers) == (INTERRUPTED, True)


@pytest.mark.nightly
def test_a_library_is_imported_whole_though_its_query_is_interrupted(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the torch backend needs torch")
    ((_, came, _, answers),) = met(tmp_path, TENSORS, 0.3)
    assert (came, answers) == (INTERRUPTED, True)


@pytest.mark.nightly
def test_interrupts_at_any_moment(tmp_path: Path) -> None:
    found = met(tmp_path, seconds=0.4, rounds=30)
    assert len(found) == 30 * len(WAYS)
    early = ("a view", "RuntimeError: Query interrupted")  # as ever, before models have their turn
    assert {(name, came) for name, came, *_ in found} - {early} == {(w, INTERRUPTED) for w in WAYS}
    assert max(took for _, _, took, _ in found) < LATE
    assert all(answers for *_, answers in found)


def test_work_that_is_not_interrupted_goes_on_though_its_caller_is() -> None:
    done = threading.Event()

    def work() -> None:
        _thread.interrupt_main()
        time.sleep(0.2)
        done.set()

    with pytest.raises(KeyboardInterrupt):
        run_uninterrupted(work)
    assert not done.is_set()
    assert done.wait(10)
    assert run_uninterrupted(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        run_uninterrupted(lambda: 1 // 0)


@pytest.mark.parametrize("stops", [False, True])
def test_an_interrupt_is_raised_behind_a_block(stops: bool) -> None:
    steps = []
    with pytest.raises(KeyboardInterrupt):
        with interruption_after(stops):
            try:
                signal.raise_signal(signal.SIGINT)
                steps.append("on")
            except BaseException as error:
                steps.append(type(error).__name__)
    assert steps == ["KeyboardInterrupt" if stops else "on"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("begun", [False, True])
def test_a_model_is_created_whole_or_not_at_all(
    begun: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interrupt comes between two writes of the catalog."""
    with sqlml.connect() as con:
        con.create_model("first", LinearRegression().fit([[1.0], [2.0]], [3.0, 4.0]), inputs=["a"])
        if begun:
            con.execute("BEGIN")
        written = con._services.engine.connection.write
        interrupted: list[str] = []

        def write(sql: str, params: tuple[object, ...] = ()) -> None:
            if "catalog_versions" in sql and not interrupted:
                interrupted.append(sql)
                signal.raise_signal(signal.SIGINT)
            written(sql, params)

        monkeypatch.setattr(con._services.engine.connection, "write", write)
        model = LinearRegression().fit([[1.0], [2.0]], [5.0, 7.0])
        with pytest.raises(KeyboardInterrupt):
            con.create_model("second", model, inputs=["a"])
        assert interrupted
        if begun:
            con.execute("COMMIT")
        assert con.execute("SELECT round(predict('second', a := 10), 6)").fetchall() == [(23.0,)]
        con.execute("DROP MODEL second")


def test_a_terminal_interrupts_the_parent_and_its_child_says_nothing(tmp_path: Path) -> None:
    """Ctrl-C in a terminal goes to all processes of the group."""
    code = (
        "import json, os, signal, threading\n"
        "from sqlml.child_process import Child\n"
        "os.setsid()\n"
        "try:\n"
        "    with Child('tests.e2e.talking:talk', b'where') as child:\n"
        "        print(json.loads(child.first)[1], flush=True)\n"
        "        threading.Timer(0.5, os.killpg, (os.getpgrp(), signal.SIGINT)).start()\n"
        "        child.ask(b'hang')\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted', flush=True)\n"
    )
    done = script.run(code, tmp_path)
    pid, came = done.stdout.split()
    assert (came, done.stderr) == ("interrupted", "")
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)
