"""Run generated statements of the engine through a Session and on a plain connection.

``python -m tests.generated.engine 17`` prints what seed 17 runs and where the two differ.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
from sklearn.linear_model import LinearRegression

import sqlml
from tests.generated.dice import Dice
from tests.generated.engine_grammar import TABLES, text

LENGTH = 40
"""Statements of one seed, each of which finds what the ones before it left."""

NAME = "untouched.duckdb"

_VARYING = re.compile(
    r"(?<=__pivot_enum_)[\w-]+|(?<=unnamed_relation_)\w+|(?<=duckdb_prepare_internal_)[\w-]+"
)
"""Names that DuckDB makes up."""

_TIMES = re.compile(r"\d+(\.\d+)? ?[µm]?s\b|─+|  +")
"""Times, and the boxes that grow with them."""

STATE = (
    "SELECT database_name, schema_name, table_name, sql FROM duckdb_tables() ORDER BY ALL",
    "SELECT database_name, view_name, sql FROM duckdb_views() WHERE NOT internal ORDER BY ALL",
    "SELECT name, value FROM duckdb_settings() ORDER BY ALL",
    "SELECT database_name, path, readonly FROM duckdb_databases() ORDER BY ALL",
    "SELECT sequence_name, last_value FROM duckdb_sequences() ORDER BY ALL",
    "SELECT * FROM duckdb_variables() ORDER BY ALL",
    "SELECT name, statement FROM duckdb_prepared_statements() ORDER BY ALL",
    "SELECT current_schema(), current_database()",
    "FROM untouched.main.t",
)
"""What statements leave behind; asked on the connection itself."""

Way = Callable[[Any, str, Any], Any]
"""How a caller runs a text and reads its result."""


def _fetched(con: Any, sql: str, values: Any) -> Any:
    made = con.execute(sql, values)
    return None if made is None else (made.fetchall(), con.description, con.rowcount)


def _begun(con: Any, sql: str, values: Any) -> Any:
    """One row is read, and others wait."""
    made = con.execute(sql, values)
    return None if made is None else (made.fetchone(), con.description)


def _left(con: Any, sql: str, values: Any) -> Any:
    made = con.execute(sql, values)
    return None if made is None else con.description


def _relation(con: Any, sql: str, values: Any) -> Any:
    found = con.sql(sql, params=values)
    return None if found is None else (found.columns, list(map(str, found.types)), found.fetchall())


def _unread(con: Any, sql: str, values: Any) -> Any:
    found = con.sql(sql, params=values)
    return None if found is None else found.columns


def _many(con: Any, sql: str, values: Any) -> Any:
    made = con.executemany(sql, [values, values] if values else [[], []])
    return None if made is None else con.fetchall()


def _arrow(con: Any, sql: str, values: Any) -> Any:
    found = con.sql(sql, params=values)
    return None if found is None else found.to_arrow_table().to_pylist()


WAYS: Mapping[str, Way] = {
    "execute": _fetched,
    "fetchone": _begun,
    "description": _left,
    "sql": _relation,
    "relation": _unread,
    "executemany": _many,
    "arrow": _arrow,
}
USUAL = ("execute",) * 6 + tuple(WAYS)


@dataclass(frozen=True, slots=True)
class Difference:
    """Where the two sides part: what ran before, the text, and what each gave."""

    seed: int
    before: tuple[str, ...]
    way: str
    text: str
    plain: str
    ours: str

    @property
    def what(self) -> str:
        return f"{self.ours} in place of {self.plain}"

    def __str__(self) -> str:
        ran = "".join(f"\n    {line!r}" for line in self.before[-6:])
        return (
            f"seed {self.seed}, statement {len(self.before)}, by {self.way}: {self.text!r}"
            f"\n  DuckDB: {self.plain}\n  sqlml:  {self.ours}\n  after:{ran}"
        )


class Side:
    """One of the two connections, and its folder."""

    def __init__(self, con: Any, native: duckdb.DuckDBPyConnection, folder: Path) -> None:
        self.con = con
        self.native = native
        self.folder = folder

    def run(self, way: Way, sql: str, values: Any) -> str:
        """All that a caller sees."""
        try:
            seen = repr(way(self.con, sql.replace("FOLDER", str(self.folder)), values))
        except Exception as error:
            seen = f"{type(error).__module__}.{type(error).__qualname__}: {error}"
        return self._same(_TIMES.sub("_", seen) if "ANALYZE" in sql else seen)

    def state(self) -> list[str]:
        """What is left behind, or why nothing can be asked: an aborted transaction."""
        seen = []
        for sql in STATE:
            try:
                seen.append(repr(self.native.execute(sql).fetchall()))
            except duckdb.Error as error:
                seen.append(repr(error))
        return list(map(self._same, seen))

    def _same(self, seen: str) -> str:
        return _VARYING.sub("_", seen.replace(str(self.folder), "FOLDER"))


def make_database(path: Path) -> None:
    """A file with tables, a model, and no macro of ours."""
    with sqlml.connect(path) as con:
        con.execute(TABLES)
        con.create_model("m", LinearRegression().fit([[1.0], [2.0]], [1.0, 3.0]), inputs=["a"])
        con.execute("DROP MACRO predict")


@contextmanager
def sides(database: Path) -> Iterator[tuple[Side, Side]]:
    """DuckDB alone, and with sqlml, on copies of the file in folders of their own."""
    with TemporaryDirectory() as folder:
        places = [Path(folder) / name for name in ("one", "two")]
        for place in places:
            place.mkdir()
            shutil.copy(database, place / NAME)
        with duckdb.connect(places[0] / NAME) as plain, sqlml.connect(places[1] / NAME) as ours:
            for con in (plain, ours):
                con.execute("SET threads = 1")
            yield Side(plain, plain, places[0]), Side(ours, ours.connection, places[1])


def difference(database: Path, seed: int, length: int = LENGTH) -> Difference | None:
    """The first statement of a seed that the two sides answer differently."""
    dice = Dice(seed)
    before: list[str] = []
    with sides(database) as (plain, ours):
        want = ""
        for _ in range(length):
            aborted = "transaction is aborted" in want and dice.chance(0.5)
            sql, way = "ROLLBACK" if aborted else text(dice), dice.pick(USUAL)
            values = _parameters(dice, sql)
            want, got = (side.run(WAYS[way], sql, values) for side in (plain, ours))
            if want != got:
                return Difference(seed, tuple(before), way, sql, want, got)
            before.append(sql)
            if dice.chance(0.1) or len(before) == length:
                for a, b in zip(plain.state(), ours.state(), strict=True):
                    if a != b:
                        return Difference(seed, tuple(before), "state", sql, a, b)
    return None


def _parameters(dice: Dice, sql: str) -> Any:
    if "?" in sql and "PREPARE" not in sql:
        return [dice.pick((3, "import", None))]
    return [dice.number(1, 9)] if "$1" in sql and "PREPARE" not in sql else None


if __name__ == "__main__":
    first, last = int(sys.argv[1]), int(sys.argv[-1])
    with TemporaryDirectory() as folder, suppress(KeyboardInterrupt):
        path = Path(folder) / NAME
        make_database(path)
        for seed in range(first, last + 1):
            print(difference(path, seed) or f"seed {seed}: no difference", flush=True)
