"""A database that exported SQL runs in: tables are loaded, queries return frames."""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd

from benchmarks import database_servers as servers


@dataclass
class Connection:
    """An open connection; `types` are those of columns of numbers, of texts and of timestamps."""

    name: str
    driver: Any
    types: tuple[str, str, str]
    place: str

    def load(self, table: str, frame: pd.DataFrame) -> None:
        """Make a table of a frame whose missing values are NULL."""
        number, text, moment = self.types
        kinds = {"f": number, "i": number, "u": number, "M": moment}
        columns = ", ".join(
            f"{self.quoted(name)} {kinds.get(frame[name].dtype.kind, text)}" for name in frame
        )
        self.run(f"DROP TABLE IF EXISTS {table}")
        self.run(f"CREATE TABLE {table} ({columns})")
        if self.name == "duckdb":
            self.driver.register("frame", frame)
            self.driver.execute(f"INSERT INTO {table} FROM frame")
            self.driver.unregister("frame")
            return
        if self.name == "clickhouse":
            with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
                frame.to_parquet(file.name, index=False)
                self.run(f"INSERT INTO {table} SELECT * FROM file('{file.name}', Parquet)")
            return
        rows = [
            tuple(map(self._plain, row)) for row in frame.astype(object).itertuples(index=False)
        ]
        places = ", ".join([self.place] * frame.shape[1])
        self.driver.cursor().executemany(f"INSERT INTO {table} VALUES ({places})", rows)

    def _plain(self, value: Any) -> Any:
        """A value as the driver takes it; sqlite3's own way of writing dates is deprecated."""
        if value != value:
            return None
        if isinstance(value, pd.Timestamp):
            return str(value) if self.name == "sqlite" else value.to_pydatetime()
        return value

    def quoted(self, name: str) -> str:
        mark = "`" if self.name == "mariadb" else '"'
        if self.name == "clickhouse":
            name = name.replace("\\", "\\\\")
        return f"{mark}{name.replace(mark, 2 * mark)}{mark}"

    def run(self, statements: str) -> None:
        """Run statements, each of which ends with a semicolon before a blank line."""
        for statement in filter(None, statements.split(";\n\n")):
            self.driver.cursor().execute(statement)

    def frame(self, query: str) -> pd.DataFrame:
        """What a query returns, run after the statements before it, as `run` has them; its columns
        of objects stay as they are."""
        *before, query = query.strip().split(";\n\n")
        self.run(";\n\n".join(before))
        cursor = self.driver.cursor()
        cursor.execute(query)
        names = [column[0] for column in cursor.description]
        return pd.DataFrame(list(map(tuple, cursor.fetchall())), columns=names, dtype=object)


@contextmanager
def sqlite(folder: Path) -> Iterator[Connection]:
    driver = sqlite3.connect(":memory:")
    yield Connection("sqlite", driver, ("REAL", "TEXT COLLATE NOCASE", "TEXT"), "?")
    driver.close()


@contextmanager
def postgres(folder: Path) -> Iterator[Connection]:
    import psycopg

    with servers.postgres(folder) as socket:
        until = time.monotonic() + 180
        while True:
            try:
                driver = psycopg.connect(
                    host=str(socket), user="postgres", dbname="postgres", autocommit=True
                )
                break
            except psycopg.OperationalError:  # it still starts
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)
        yield Connection("postgres", driver, ("double precision", "text", "timestamp"), "%s")
        driver.close()


@contextmanager
def mariadb(folder: Path) -> Iterator[Connection]:
    import pymysql

    with servers.mariadb(folder) as socket:
        driver = pymysql.connect(
            unix_socket=str(socket), user="root", autocommit=True, charset="utf8mb4"
        )
        types = ("DOUBLE", "VARCHAR(999) CHARACTER SET utf8mb4", "DATETIME(6)")
        made = Connection("mariadb", driver, types, "%s")
        made.run("CREATE DATABASE shop")
        made.run("USE shop")
        yield made
        driver.close()


@contextmanager
def plain_duckdb(folder: Path) -> Iterator[Connection]:
    driver = duckdb.connect()
    yield Connection("duckdb", driver, ("DOUBLE", "VARCHAR", "TIMESTAMP"), "?")
    driver.close()


@contextmanager
def clickhouse(folder: Path) -> Iterator[Connection]:
    from chdb import dbapi

    driver = dbapi.connect(str(folder / "clickhouse"))
    made = Connection("clickhouse", driver, ("Nullable(Float64)", "Nullable(String)", ""), "?")
    made.run("CREATE DATABASE shop")
    made.run("USE shop")
    made.run("SET default_table_engine = 'Memory'")
    yield made
    driver.close()


OPEN: Mapping[str, Callable[[Path], AbstractContextManager[Connection]]] = {
    "sqlite": sqlite,
    "duckdb": plain_duckdb,
    "postgres": postgres,
    "mariadb": mariadb,
    "clickhouse": clickhouse,
}

INSTALLED = [name for name in OPEN if name != "clickhouse" or find_spec("chdb")]
"""ClickHouse has an environment of its own: see `make nightly-clickhouse`."""
