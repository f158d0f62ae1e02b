"""Many threads score through cursors while the model is replaced under them."""

from __future__ import annotations

import gc
import itertools
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.tree import DecisionTreeRegressor

import sqlml
from sqlml.catalog import lookup
from sqlml.errors import UnknownModelError
from sqlml.planner.plan.plan import Plan
from sqlml.planner.program.function_spec import parse_function_name
from sqlml.session.registered_functions import RegisteredFunctions
from sqlml.udfs.duckdb import functions_by_name

pytestmark = pytest.mark.version

X = np.random.default_rng(0).normal(size=(400, 4))
NAMES = ["a", "b", "c", "d"]


def model(number: int) -> Any:
    """A tree of hundreds of leaves which answers with `number` for every row."""
    tree = DecisionTreeRegressor(random_state=0).fit(X, X[:, 0] * X[:, 1])
    tree.tree_.value[:] = number
    return tree


def resident() -> float:
    """Memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


class Race:
    """One thread replaces the model without end, others score; each query sees one version."""

    def __init__(self, con: sqlml.Session, name: str = "m", current: str = "") -> None:
        self.con = con
        self.name = name
        self.current = current
        self.begun = self.committed = 1
        self.queries = 0
        self.failures: list[str] = []
        self.over = False
        self._lock = threading.Lock()

    def replace(self, keep: int) -> None:
        with self.con.cursor() as own:
            if self.current:
                own.execute(f"USE {self.current}")
            while not self.over:
                self.begun += 1
                own.create_model(self.name, model(self.begun), inputs=NAMES, or_replace=True)
                self.committed = self.begun
                if self.begun > keep:  # so that the database grows no further
                    own.execute(f"ALTER MODEL {self.name} DROP VERSION {self.begun - keep}")

    def score(self, query: str) -> None:
        with self.con.cursor() as own:
            while not self.over:
                before = self.committed
                rows = own.execute(query).fetchall()
                after = self.begun
                ((least, most, count),) = rows
                with self._lock:
                    self.queries += 1
                    if not (before <= least == most <= after and count == 5000):
                        self.failures.append(f"{rows} while {before}..{after}")

    def has_seen(self, queries: int, versions: int) -> bool:
        """Whether that much has happened, or something has failed."""
        return bool(self.failures) or (self.queries > queries and self.committed > versions)

    def wait_for(self, queries: int, versions: int) -> None:
        """A busy machine may take a while; a minute is too long on any."""
        end = time.monotonic() + 60
        while not self.has_seen(queries, versions) and time.monotonic() < end:
            time.sleep(0.05)

    def guarded(self, work: Any, *args: Any) -> threading.Thread:
        def run() -> None:
            try:
                work(*args)
            except Exception as error:
                self.failures.append(f"{type(error).__name__}: {error}")

        return threading.Thread(target=run)


def race(con: sqlml.Session, threads: int, seconds: float) -> tuple[Race, list[float]]:
    """Let them run; the race when it is over, and the memory at each tenth of the time."""
    con.execute(
        "CREATE TABLE t AS SELECT random() AS a, 1.0 AS b, 2.0 AS c, 3 AS d FROM range(5000)"
    )
    con.create_model("m", model(1), inputs=NAMES)
    con.execute("ALTER MODEL m SET OPTIONS (backend = 'native')")
    found = Race(con)
    queries = (
        "SELECT min(p), max(p), count(*) FROM (SELECT predict('m', *) AS p FROM t)",
        "SELECT min(p), max(p), count(*) FROM (SELECT predict('m', a, b, c, d) AS p FROM t) x",
    )
    for query in queries:  # what is compiled once, is compiled now
        con.execute(query).fetchall()
    workers = [found.guarded(found.score, queries[k % 2]) for k in range(threads)]
    workers.append(found.guarded(found.replace, 20))
    for worker in workers:
        worker.start()
    memory = []
    for _ in range(10):
        time.sleep(seconds / 10)
        gc.collect()
        memory.append(resident())
    found.wait_for(50, 2)
    found.over = True
    for worker in workers:
        worker.join(60)
        assert not worker.is_alive(), "a deadlock"
    return found, memory


@pytest.mark.nightly
def test_each_query_sees_one_version_and_none_that_is_older() -> None:
    with sqlml.connect() as con:
        found, _ = race(con, 8, 1.0)
    assert not found.failures, found.failures[:5]
    assert found.has_seen(50, 2)


@pytest.mark.nightly
def test_two_attached_databases_change_from_two_threads(tmp_path: Path) -> None:
    """Each has a model `m`, replaced by a thread of its own: by a full name, and after USE."""
    with sqlml.connect() as con:
        con.execute(
            "CREATE TABLE t AS SELECT random() AS a, 1.0 AS b, 2.0 AS c, 3 AS d FROM range(5000)"
        )
        races = []
        for database, name, current in (("one", "one.m", ""), ("two", "m", "two")):
            con.execute(
                f"ATTACH '{tmp_path / database}.duckdb' AS {database} (STORAGE_VERSION 'v1.4.0')"
            )
            con.create_model(f"{database}.m", model(1), inputs=NAMES)
            races.append(Race(con, name, current))
        threads = []
        for found, database in zip(races, ("one", "two"), strict=True):
            asked = f"(SELECT predict('{database}.m', *) AS p FROM memory.t)"
            query = f"SELECT min(p), max(p), count(*) FROM {asked}"
            threads += [found.guarded(found.score, query) for _ in range(2)]
            threads.append(found.guarded(found.replace, 5))
        for thread in threads:
            thread.start()
        time.sleep(1.0)
        for found in races:
            found.wait_for(20, 2)
            found.over = True
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive(), "a deadlock"
        for found in races:
            assert not found.failures, found.failures[:5]
            assert found.has_seen(20, 2)
        last = con.execute("SELECT max(predict('one.m', *)), max(predict('two.m', *)) FROM t")
        assert last.fetchall() == [(races[0].committed, races[1].committed)]
    with sqlml.connect(tmp_path / "two.duckdb") as con:  # macros too are those of the last model
        row = "{'a': 1.0, 'b': 1.0, 'c': 1.0, 'd': 1.0}"
        plain = con.connection.execute(f"SELECT predict('m', {row})").fetchall()
        assert plain == [(races[1].committed,)]


def dropped_and_created(seconds: float, threads: int) -> None:
    """One connection drops the model and creates it anew, in two statements; others score."""
    with sqlml.connect() as con:
        con.create_model("m", model(1), inputs=NAMES, verify=False)
        found = Race(con)
        ready = threading.Barrier(threads + 1)

        def score(kind: int) -> None:
            with con.cursor() as own:
                for number in itertools.count():
                    row = f"a := {number}, b := 1, c := 1, d := 1"
                    if kind == 0:
                        answer = own.execute(f"SELECT predict('m', {row})")
                    elif kind == 1:
                        answer = own.sql(f"SELECT predict('m', {row})")
                    else:
                        answer = own.execute("SELECT predict('m', ?, 1, 1, 1)", [number])
                    ((value,),) = answer.fetchall()
                    assert 1 <= value <= found.begun
                    if number == 0:  # the model is known; who never saw it is told that it is gone
                        ready.wait()
                    if found.over:
                        return
                    found.queries += 1

        workers = [found.guarded(score, k % 3) for k in range(threads)]
        for worker in workers:
            worker.start()
        ready.wait()
        end = time.monotonic() + seconds
        late = end + 60  # a busy machine may take a while
        while time.monotonic() < (end if found.has_seen(10, 3) else late) and not found.failures:
            found.committed = found.begun
            found.begun += 1
            con.execute("DROP MODEL m")
            con.create_model("m", model(found.begun), inputs=NAMES, verify=False)
        found.over = True
        for worker in workers:
            worker.join(60)
            assert not worker.is_alive(), "a deadlock"
    assert not found.failures, found.failures[:5]
    assert found.has_seen(10, 3)


def test_a_model_that_is_dropped_and_created_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lookup, "RECREATION_TIMEOUT", 30.0)  # whatever the machine's pace
    dropped_and_created(2.0, 3)


@pytest.mark.nightly
def test_a_model_that_is_dropped_and_created_for_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "RECREATION_TIMEOUT", 30.0)
    dropped_and_created(60.0, 24)


@pytest.mark.parametrize("ask", ["execute", "sql"])
def test_a_model_that_is_replaced_behind_its_plan_is_planned_again(
    ask: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No function of the plan is registered yet when its Program goes."""
    registered = RegisteredFunctions.register
    with sqlml.connect() as con, con.cursor() as other:
        con.create_model("m", model(1), inputs=NAMES, verify=False)
        plans = []

        def replaced_before(self: RegisteredFunctions, plan: Plan) -> str:
            plans.append(plan)
            if len(plans) == 1:
                con.execute("DROP MODEL m")
                con.create_model("m", model(2), inputs=NAMES, verify=False)
            return registered(self, plan)

        monkeypatch.setattr(RegisteredFunctions, "register", replaced_before)
        answer = getattr(other, ask)("SELECT predict('m', 1, 1, 1, 1)")
        assert answer.fetchall() == [(2.0,)]
        assert len(plans) == 2


def test_a_model_whose_program_is_missing_is_not_planned_without_end() -> None:
    with sqlml.connect() as con, con.cursor() as other:
        con.create_model("m", model(1), inputs=NAMES, verify=False)
        other.plan("SELECT predict('m', 1, 1, 1, 1)")
        con._services.loaded.take(lambda digest: True)
        con.connection.execute("DELETE FROM sqlml.catalog_programs")
        with pytest.raises(UnknownModelError, match="is not stored"):
            other.execute("SELECT predict('m', 1, 1, 1, 1)")


def test_a_function_is_found_while_its_model_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread looks for it when it is neither among the used ones nor the dropped ones."""
    query = "SELECT predict('m', 1, 1, 1, 1)"
    with sqlml.connect() as con:
        con.create_model("m", model(1), inputs=NAMES, verify=False)
        con.execute(query).fetchall()
        (name,) = con.plan(query).functions
        function = functions_by_name.find_function(name)
        con.execute("DROP MODEL m")
        functions_by_name._dropped.take(lambda key: key == name)
        functions_by_name.cache_function(name, function)
        found: list[Any] = []
        finder = threading.Thread(
            target=lambda: found.append(functions_by_name.find_function(name))
        )
        put = functions_by_name._dropped.put

        def late(*kept: Any) -> None:
            finder.start()
            finder.join(0.2)
            put(*kept)

        monkeypatch.setattr(functions_by_name._dropped, "put", late)
        functions_by_name.drop_functions([parse_function_name(name).program_hash])
        finder.join(60)
        assert found == [function]


def test_a_model_that_is_gone_is_not_waited_for_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    query = "SELECT predict('m', 1, 1, 1, 1)"
    looks: list[float] = []
    with sqlml.connect() as con, con.cursor() as other:
        con.create_model("m", model(1), inputs=NAMES, verify=False)
        assert con.execute(query).fetchall() == other.execute(query).fetchall() == [(1.0,)]
        monkeypatch.setattr(lookup, "RECREATION_TIMEOUT", 0.1)
        clock = SimpleNamespace(monotonic=time.monotonic, sleep=looks.append)
        monkeypatch.setattr(lookup, "time", clock)
        con.execute("DROP MODEL m")
        with pytest.raises(UnknownModelError, match="unknown model 'm'"):
            con.execute(query)
        assert not looks, "it dropped the model itself"
        with pytest.raises(UnknownModelError):
            other.execute(query)
        assert looks, "somebody else did"
        del looks[:]
        with pytest.raises(UnknownModelError):
            other.execute(query)
        assert not looks, "it knows that the model is gone"
        con.create_model("m", model(2), inputs=NAMES, verify=False)
        assert other.execute(query).fetchall() == [(2.0,)]
        con.execute("DROP MODEL m")
        other.execute("BEGIN")
        with pytest.raises(UnknownModelError):
            other.execute(query)
        assert not looks, "nobody changes what a transaction sees"


@pytest.mark.nightly
def test_64_threads_for_a_minute(tmp_path: Path) -> None:
    with sqlml.connect(tmp_path / "models.duckdb") as con:
        found, memory = race(con, 64, 60.0)
    print(f"{found.queries} queries, {found.committed} versions, MB: {[round(m) for m in memory]}")
    assert not found.failures, found.failures[:5]
    assert memory[-1] < memory[4] * 1.05 + 20, memory


@pytest.mark.nightly
def test_a_thousand_versions_leave_no_memory_behind(tmp_path: Path) -> None:
    with sqlml.connect(tmp_path / "models.duckdb") as con:
        con.execute("CREATE TABLE t AS SELECT 0.5 AS a, 1.0 AS b, 2.0 AS c, 3 AS d")
        con.create_model("m", model(0), inputs=NAMES, backend="native")
        memory = []
        for number in range(1, 1001):
            tree = model(number)
            con.create_model("m", tree, inputs=NAMES, backend="native", or_replace=True)
            assert con.execute("SELECT predict('m', *) FROM t").fetchall() == [(number,)]
            con.execute(f"ALTER MODEL m DROP VERSION {number}")
            if number % 100 == 0:
                gc.collect()
                memory.append(resident())
    print(f"MB after each hundred versions: {[round(m) for m in memory]}")
    assert memory[-1] < memory[4] + 40, memory
