"""The corpus of queries gives on Spark what it gives on DuckDB: what the library's scores give.

`tests/e2e/corpus.py` says how a case is written. What it expects runs on a plain DuckDB connection.
The usual run takes every fifteenth case; `make nightly` takes the others.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlml
from tests.e2e.corpus import Case, cases, check_rows, is_ordered
from tests.e2e.corpus_shop import FEATURES, Shop, make_databases, make_shop

CASES = cases()
TABLES = ("customers", "logins", "haus", "boxes")


@pytest.fixture(scope="module")
def shop() -> Shop:
    return make_shop()


@pytest.fixture(scope="module")
def files(shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_databases(shop, tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def scored(files: tuple[Path, Path]) -> Iterator[duckdb.DuckDBPyConnection]:
    """The plain database, for cases that only read."""
    with duckdb.connect(files[1]) as plain:
        yield plain


class Tables:
    """The tables of the shop in a database of Spark, and the directory of its models."""

    def __init__(self, spark: Any, database: Path, folder: Path) -> None:
        self.spark, self.models = spark, folder / "models"
        with sqlml.connect(database) as duck, sqlml.attach(spark, catalog=self.models) as con:
            self._arrow = {t: duck.connection.sql(f"FROM {t}").to_arrow_table() for t in TABLES}
            for model in FEATURES:
                for number, *_ in duck.execute(f"SHOW VERSIONS IN MODEL {model}").fetchall():
                    file = folder / f"{model}_{number}.sqlml"
                    duck.execute(f"EXPORT MODEL \"{model}/{number}\" TO '{file}'")
                    con.sql(f"CREATE OR REPLACE MODEL {model} FROM '{file}'")
        self._files: dict[str, list[str]] = {}
        self.restore()

    def restore(self) -> None:
        """All tables as they were, and no others."""
        for table in self.spark.catalog.listTables():
            if table.name not in TABLES:
                kind = "VIEW" if table.isTemporary or table.tableType == "VIEW" else "TABLE"
                self.spark.sql(f"DROP {kind} IF EXISTS `{table.name}`")
        for table, rows in self._arrow.items():
            known = self._files.get(table)
            there = self.spark.catalog.tableExists(table)
            if known is None or not there or self._read_files(table) != known:
                self.spark.sql(f"DROP TABLE IF EXISTS `{table}`")
                self.spark.createDataFrame(rows).coalesce(1).write.saveAsTable(table)
                self._files[table] = self._read_files(table)

    def _read_files(self, table: str) -> list[str]:
        return sorted(self.spark.table(table).inputFiles())


@pytest.fixture(scope="module")
def tables(
    spark: Any, files: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Tables]:
    own = {"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "1"}
    before = {key: spark.conf.get(key) for key in own}
    used = spark.catalog.currentDatabase()
    for key, value in own.items():
        spark.conf.set(key, value)
    spark.sql("CREATE DATABASE corpus")
    spark.sql("USE corpus")
    views = {t.name: spark.table(t.name) for t in spark.catalog.listTables() if t.isTemporary}
    for view in views:  # of other tests, by names that are tables here
        spark.catalog.dropTempView(view)
    yield Tables(spark, files[0], tmp_path_factory.mktemp("models"))
    spark.sql(f"USE {used}")
    spark.sql("DROP DATABASE corpus CASCADE")
    for key, value in before.items():
        spark.conf.set(key, value)
    for view, frame in views.items():
        frame.createOrReplaceTempView(view)


@pytest.fixture(scope="module")
def reading(tables: Tables) -> Iterator[Any]:
    """A session for cases that only read."""
    with sqlml.attach(tables.spark, catalog=tables.models) as con:
        yield con


RUNNABLE = [case for case in CASES if case.runs and not case.spark_gap and not case.known]


@pytest.mark.filterwarnings("ignore:.* is not available in plain queries")
@pytest.mark.by_day(120)
@pytest.mark.parametrize("case", RUNNABLE, ids=lambda case: f"{case.file}: {case.name}")
def test_a_query_gives_what_it_gives_on_duckdb(
    case: Case,
    shop: Shop,
    files: tuple[Path, Path],
    scored: duckdb.DuckDBPyConnection,
    tables: Tables,
    reading: Any,
    tmp_path: Path,
) -> None:
    if not case.writes:
        _check(case, shop, reading, scored, tmp_path)
        return
    models = Path(shutil.copytree(tables.models, tmp_path / "models"))
    database = shutil.copy(files[1], tmp_path)
    try:
        with sqlml.attach(tables.spark, catalog=models) as con, duckdb.connect(database) as plain:
            _check(case, shop, con, plain, tmp_path)
    finally:
        tables.restore()


def _check(
    case: Case, shop: Shop, con: Any, plain: duckdb.DuckDBPyConnection, folder: Path
) -> None:
    if case.rows:
        shop.score_given(plain, case.rows)
    (folder / "plain").mkdir()
    (folder / "spark").mkdir()
    with chdir(folder / "plain"):
        for statement, values in (
            (case.setup, None),
            (case.expect, case.expected_parameters),
            (case.then, None),
        ):
            if statement:
                plain.execute(statement, values)
        columns = [d[0] for d in plain.description or ()]
        wanted = [tuple(map(_value, row)) for row in plain.fetchall()]
    with working_in(con, folder / "spark"):
        for statement, values in (
            (case.spark_setup or case.setup, None),
            (case.spark or case.query, case.parameters),
            (case.spark_then or case.then, None),
        ):
            if statement:
                frame = con.sql(statement, values)
        found = [tuple(map(_value, row)) for row in frame.collect()]
    check_rows(found, wanted, is_ordered(case.then or case.expect))
    for name, own in zip(columns, frame.columns, strict=True):
        assert name.lower() == own.lower() or not re.fullmatch(r"\w+", name), (columns, own)


@contextmanager
def working_in(con: Any, folder: Path) -> Iterator[None]:
    """Let relative paths of sqlml and of Spark's JVM begin in a folder."""
    hadoop = con.spark._jvm.org.apache.hadoop.fs
    files = hadoop.FileSystem.get(con.spark._jsc.hadoopConfiguration())
    before = files.getWorkingDirectory()
    files.setWorkingDirectory(hadoop.Path(str(folder)))
    try:
        with chdir(folder):
            yield
    finally:
        files.setWorkingDirectory(before)


def _value(value: Any) -> Any:
    """A value of either engine as the same of Python's: rows are dicts, and decimals floats."""
    if hasattr(value, "asDict"):
        value = value.asDict()
    if isinstance(value, dict):
        return {_value(key): _value(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return list(map(_value, value))
    if isinstance(value, Decimal):
        return float(value)
    return bytes(value) if isinstance(value, bytearray) else value


def test_most_of_the_corpus_runs_on_spark() -> None:
    gaps = [case for case in CASES if case.spark_gap]
    assert len(CASES) - len(gaps) >= 500
    assert all(len(case.spark_gap) > 10 for case in gaps)
    assert not [case.name for case in gaps if case.spark]
