"""A statement without a model call reaches DuckDB byte for byte, and answers as DuckDB does.

Two copies of one database with a model in it, one opened by DuckDB and one by sqlml, run the same
statements in the same order. What reached DuckDB is in its own query log.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlml
from tests.e2e import tpch_tables
from tests.e2e.statement_groups import groups

pytestmark = pytest.mark.version

IS_2 = not duckdb.__version__.startswith("1.")
UNTOUCHED = groups("untouched.sql")
TPCH = groups("tpch.sql")[""]

WAKING = "/* predict('churn', *), CREATE MODEL churn */ "
"""A comment that makes sqlml read a statement to its end, as if it might call a model."""

OWN = re.compile(r"\bsqlml\b|\bsystem\"?\.main\.|AS unnamed_relation__\(")
"""sqlml's own questions: which models there are, and whether a function is the user's.

1.5 logs the result of a relation with parameters as a second query, of values.
"""

VARYING = re.compile(
    r"\d+\.\d+ ?s\b|(?<=__duckdb_source_)\w+|(?<=unnamed_relation_)\w+|(?<=__pivot_enum_)[\w-]+"
)
"""Times, and names that DuckDB makes up."""


ASK = "SELECT message FROM duckdb_logs(denormalized_table = false) WHERE type = 'QueryLog'"
FORGET = "CALL truncate_duckdb_logs()"


@dataclass(frozen=True)
class Outcome:
    """All that a caller sees of a statement, and what of it stands in DuckDB's query log."""

    error: str
    rows: str
    columns: str
    rowcount: int
    log: tuple[str, ...]


class Side:
    """One of the two connections, its folder, and a second connection that reads the log."""

    def __init__(self, con: Any, native: duckdb.DuckDBPyConnection, folder: Path) -> None:
        self.con = con
        self.folder = folder
        self.watch = native.cursor()
        self.watch.execute("CALL enable_logging('QueryLog')").fetchall()
        self._log()

    def run(self, text: str, parameters: Any = None) -> Outcome:
        """Through `execute`, and fetched from the connection."""

        def work(sql: str) -> tuple[Any, Any]:
            made = self.con.execute(sql, parameters)
            rows = None if made is None else made.fetchall()
            return rows, self.con.description

        return self._outcome(text, work)

    def relation(self, text: str, parameters: Any = None) -> Outcome:
        """Through `sql`, as a lazy relation."""

        def work(sql: str) -> tuple[Any, Any]:
            found = self.con.sql(sql, params=parameters)
            if found is None:
                return None, None
            return found.fetchall(), (found.columns, [str(kind) for kind in found.types])

        return self._outcome(text, work)

    def _outcome(self, text: str, work: Callable[[str], tuple[Any, Any]]) -> Outcome:
        error, rows, columns = "", None, None
        try:
            rows, columns = work(text.replace("{folder}", str(self.folder)))
        except Exception as raised:
            error = f"{type(raised).__module__}.{type(raised).__qualname__}: {raised}"
        if isinstance(rows, list) and "order by" not in text.lower():
            rows.sort(key=repr)  # groups come in any order from several threads
        seen = [self._same(str(part)) for part in (error, rows, columns)]
        log = tuple(map(self._same, self._log()))
        return Outcome(seen[0], seen[1], seen[2], self.con.rowcount, log)

    def _same(self, text: str) -> str:
        """The text as both sides have it: folders, times and made-up names vary."""
        return VARYING.sub("_", text.replace(str(self.folder), "{folder}"))

    def _log(self) -> list[str]:
        """What the whole database was given since the last time."""
        found = [text for (text,) in self.watch.execute(ASK).fetchall()]
        self.watch.execute(FORGET).fetchall()
        return [text for text in found if text not in (ASK, FORGET)]


@dataclass(frozen=True)
class Pair:
    """DuckDB alone, and DuckDB with sqlml, on equal databases."""

    plain: Side
    ours: Side

    def differences(self, text: str, parameters: Any = None, *, fails: bool) -> Iterator[str]:
        """In what the two differ on one statement."""
        want, got = self.plain.run(text, parameters), self.ours.run(text, parameters)
        if IS_2:
            assert bool(want.error) == fails, f"{text!r} in DuckDB: {want}"
        yield from compared(want, got)
        select = self._is_select(text)
        if IS_2 and select and not fails and not (got.log and text.endswith(got.log[-1])):
            yield f"log: {got.log!r} is not the end of the text"
        if fails or select:
            want, got = (side.relation(text, parameters) for side in (self.plain, self.ours))
            yield from compared(want, got)

    def _is_select(self, text: str) -> bool:
        try:
            found = self.plain.watch.extract_statements(text)
        except duckdb.Error:
            return False
        return [statement.type for statement in found] == [duckdb.StatementType.SELECT]


def compared(want: Outcome, got: Outcome) -> Iterator[str]:
    for field in ("error", "rows", "columns", "rowcount"):
        if getattr(want, field) != getattr(got, field):
            yield f"{field}: {getattr(want, field)!r} became {getattr(got, field)!r}"
    seen = [m for m in got.log if m in want.log or not OWN.search(m)]
    ends = "" if IS_2 else "; \n"  # 1.5 cuts a text of several statements before their semicolons
    if [m.strip(ends) for m in seen] != [m.strip(ends) for m in want.log]:
        yield f"log: {want.log!r} became {got.log!r}"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory, value_model: object) -> Path:
    """A database with a model, and nothing else."""
    path = tmp_path_factory.mktemp("made") / "untouched.duckdb"
    with sqlml.connect(path) as con:
        con.create_model("churn", value_model, verify=False)
        con.execute("DROP MACRO IF EXISTS predict")  # ours, for plain connections
    return path


@pytest.fixture
def pair(database: Path, tmp_path: Path) -> Iterator[Pair]:
    paths = [tmp_path / side / database.name for side in ("one", "two")]
    for path in paths:
        path.parent.mkdir()
        shutil.copy(database, path)
    with duckdb.connect(paths[0]) as plain, sqlml.connect(paths[1]) as ours:
        ours.execute("SELECT predict('churn', charges := 1, tenure := 2)").fetchall()
        plain.execute("SELECT 1").fetchall()
        native = ours.connection
        yield Pair(Side(plain, plain, paths[0].parent), Side(ours, native, paths[1].parent))


@pytest.mark.by_day(6)
@pytest.mark.parametrize("waking", ["", WAKING], ids=["as it is", "waking"])
@pytest.mark.parametrize("group", UNTOUCHED)
def test_statements(pair: Pair, group: str, waking: str) -> None:
    found = {}
    for statement in UNTOUCHED[group]:
        if differences := list(pair.differences(waking + statement.text, fails=statement.fails)):
            found[statement] = differences
    unexpected = {s.text: d for s, d in found.items() if s.known is None}
    assert not unexpected
    assert set(found) == {s for s in UNTOUCHED[group] if s.known is not None}


PARAMETERS: tuple[tuple[str, Any], ...] = (
    ("SELECT ? AS a, ? AS b", [1, "it's"]),
    ("SELECT $2 AS a, $1 AS b, current_query()", [1.5, None]),
    ('SELECT $low AS predict, $high + 1 AS "create model"', {"low": [1, 2], "high": 3}),
    ("SELECT 'predict(' || ?, transform(?), current_query()", ["m", 4]),
    ("SELECT predict('mine', ?), predict(?, 1), predict($1, 2)", None),
    ("SELECT predict($name, $x), $x AS x", {"name": "mine", "x": 5}),
    ("SELECT predict($1, $2), transform($2), $1", ["mine", 6]),
    ("SELECT 1; SELECT transform(?) AS t", [7]),
    ("SELECT ?", []),
    ("SELECT ?", [1, 2]),
    ("SELECT $a", {"b": 1}),
    ("SELECT transform(?)", []),
    ("SELECT transform($a)", {"b": 1}),
    ("SELECT predict(?, ?)", ["mine"]),
    ("INSERT INTO t VALUES (?, 'drop model m') RETURNING a", [5]),
)


@pytest.mark.parametrize("waking", ["", WAKING], ids=["as it is", "waking"])
def test_parameters(pair: Pair, waking: str) -> None:
    for side in (pair.plain, pair.ours):
        side.run("CREATE MACRO predict(m, x) AS m || ' of ' || x")
        side.run("CREATE MACRO transform(x) AS x * 3")
        side.run("CREATE TABLE t (a INTEGER, b VARCHAR)")
    for text, parameters in PARAMETERS:
        for way in (Side.run, Side.relation):
            want, got = (way(s, waking + text, parameters) for s in (pair.plain, pair.ours))
            assert not list(compared(want, got)), text


def test_a_python_function_of_the_user(pair: Pair) -> None:
    for side, con in ((pair.plain, pair.plain.con), (pair.ours, pair.ours.con)):
        con.create_function("predict", lambda m, x: f"{m}:{x}", ["VARCHAR", "BIGINT"], "VARCHAR")
        con.create_function("transform", lambda x: x + 1, ["BIGINT"], "BIGINT")
        side.run("CREATE TABLE t AS SELECT range AS a FROM range(3)")
    for text in (
        "SELECT predict('mine', a), current_query() FROM t",
        "SELECT transform(a) FROM t WHERE predict('mine', a) <> 'mine:1'",
        "CREATE VIEW v AS SELECT predict('mine', a) AS y FROM t; FROM v",
    ):
        assert not list(pair.differences(text, fails=False))
    assert not list(pair.differences("SELECT predict('mine', 'x', 1)", fails=True))


def test_executemany(pair: Pair) -> None:
    for side in (pair.plain, pair.ours):
        side.run("CREATE TABLE t (a INTEGER, b VARCHAR)")
        for text in (
            "INSERT INTO t VALUES (?, ?)",
            "INSERT INTO t VALUES (?, 'create model' || ?)",
        ):
            side.con.executemany(WAKING + text, [[1, "x"], [2, "y"]])
    assert not list(pair.differences("FROM t ORDER BY ALL", fails=False))
    none = [
        side.con.executemany("-- no statement", [[]]) is None for side in (pair.plain, pair.ours)
    ]
    assert none[0] == none[1]


@pytest.mark.parametrize("given", [5, b"SELECT 1", ["SELECT 1"]])
def test_what_is_no_text(pair: Pair, given: Any) -> None:
    told = []
    for side in (pair.plain, pair.ours):
        for method in (side.con.execute, side.con.sql):
            with pytest.raises(Exception) as raised:
                method(given).fetchall()
            told.append((raised.type, str(raised.value)))
    assert told[:2] == told[2:]


def test_a_statement_object(pair: Pair) -> None:
    for side in (pair.plain, pair.ours):
        _, second = side.con.extract_statements("SELECT 1; SELECT 'predict(' AS x, current_query()")
        assert side.con.execute(second).fetchall()[0][0] == "predict("
        assert side.con.sql(second).columns[0] == "x"


def test_there_are_many_statements() -> None:
    every = [s for group in UNTOUCHED.values() for s in group]
    assert len(every) >= 400
    assert sum(s.fails for s in every) >= 80
    assert len(TPCH) == 22


@pytest.mark.parametrize("waking", ["", WAKING], ids=["as it is", "waking"])
def test_tpch(pair: Pair, waking: str) -> None:
    for side in (pair.plain, pair.ours):
        tpch_tables.fill(side.watch)
    for statement in TPCH:
        text = waking + statement.text
        assert not list(pair.differences(text, fails=False))
        again = pair.ours.run(text)
        assert again.log[-1].removeprefix(waking) == statement.text
        assert again.rows != "[]"
