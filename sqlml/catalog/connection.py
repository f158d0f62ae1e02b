"""`Connection`: DuckDB as the catalog reads and writes it.

A failed `execute` aborts an open transaction on 2.0, a failed `sql` (which only binds) does not, so
all questions go through `sql`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any
from uuid import uuid4

import duckdb

from sqlml.catalog.tables import CHOOSERS, MACRO_TABLES, TABLES, TRAINING_TABLES
from sqlml.dialects import DUCKDB
from sqlml.dialects.duckdb import builtin, folded
from sqlml.errors import CatalogError, ConfigError, ConflictError
from sqlml.interruption import interruption_after
from sqlml.types import fold, is_unicode

# `atomic`: a change of a catalog whole or not at all, tried again where another one was faster.


_ATTEMPTS = 10
_CONFLICTS = (duckdb.TransactionException, duckdb.CatalogException)


def atomic(native: duckdb.DuckDBPyConnection, is_open: bool, work: Callable[[], None]) -> None:
    """Run `work` in the transaction that `is_open`, or else in one of its own that it ends.

    All or nothing: a Ctrl-C meanwhile is raised afterwards.

    Raises:
        ConflictError: another transaction changes the same models.
    """
    if is_open:
        try:
            with interruption_after():
                work()
        except _CONFLICTS as error:
            raise _conflict(error, "ROLLBACK, and try again") from None
        return
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            with interruption_after():
                _in_own_transaction(native, work)
            return
        except _CONFLICTS as error:
            # Two connections may make the catalog's schema at the same moment.
            if "conflict" not in str(error).lower() or attempt == _ATTEMPTS:
                raise _conflict(error, "try again") from None
            time.sleep(0.01 * attempt)


def _in_own_transaction(native: duckdb.DuckDBPyConnection, work: Callable[[], None]) -> None:
    native.execute("BEGIN TRANSACTION")
    try:
        work()
    except BaseException:
        native.execute("ROLLBACK")
        raise
    native.execute("COMMIT")


def _conflict(error: duckdb.Error, advice: str) -> Exception:
    """What to raise for an error of a change: one about a conflict names no tables of ours."""
    if "conflict" not in str(error).lower():
        return error
    return ConflictError(f"another transaction changes the same models; {advice}")


# `sound_tables`: the tables of a catalog, which run nothing when they are read or written.
#
# A database may come from a stranger. Instead of a table of ours it may hold a view, whose query
# the engine would run, or a table with generated columns, defaults, checks or indexes of
# expressions, or with triggers (DuckDB 2.0). Only tables that are as `tables.py` makes them are
# used.


Read = Callable[[str, Sequence[Any]], Sequence[tuple[Any, ...]]]
"""Rows of a query with parameters."""

_OF = f"WHERE {folded('database_name')} = {folded('?')} AND {folded('schema_name')} = 'sqlml'"
_SCHEMA = f"SELECT 1 FROM system.main.duckdb_schemas() {_OF}"
_DEFINED = f"SELECT table_name, sql, index_count FROM system.main.duckdb_tables() {_OF}"
_TRIGGERS = f"SELECT table_name, trigger_name, -1 FROM system.main.duckdb_triggers() {_OF}"
_VIEWS = f"SELECT view_name FROM system.main.duckdb_views() {_OF}"

_QUOTED = re.compile(r'"((?:[^"]|"")*)"')
_KEY = re.compile(r",?\s*\bprimary key\b\s*(\([^)]*\))?")
_NAME = re.compile(r"exists \{schema\}\.(\w+)\s*(\(.*\))", re.DOTALL)


def sound_tables(read: Read, database: str, triggers: bool) -> frozenset[str]:
    """The names of those tables of ours that the schema `sqlml` of a database has.

    Args:
        read: asks the engine, in the user's transaction.
        database: the database's name.
        triggers: whether the engine knows triggers.

    Raises:
        CatalogError: one of them is not as sqlml makes it; what it is instead, and what to do.
    """
    if not read(_SCHEMA, [database]):
        return frozenset()  # a tenth of the time that a first look at its tables takes
    ask, values = _DEFINED, [database]
    if triggers:
        ask, values = f"{_DEFINED} UNION ALL {_TRIGGERS}", [database, database]
    found = [(fold(str(name)), str(text), count) for name, text, count in read(ask, values)]
    tables = {name: (text, count) for name, text, count in found if count >= 0 and name in _SHAPES}
    for name, (text, count) in tables.items():
        if _shape(text[text.find("(") :].removesuffix(";")) != _SHAPES[name]:
            raise _unsound(database, name, f"is {_short(text)}")
        if count != ("PRIMARY KEY" in text):
            raise _unsound(database, name, "has an index that sqlml did not make")
    for name, trigger, count in found:
        if count < 0 and name in _SHAPES:
            raise _unsound(database, name, f"has the trigger {trigger!r}")
    if len(tables) < len(_SHAPES):
        for (view,) in read(_VIEWS, [database]):
            if fold(str(view)) in _SHAPES:
                raise _unsound(database, str(view), "is a view")
    return frozenset(tables)


def _unsound(database: str, name: str, found: str) -> CatalogError:
    return CatalogError(
        f"the model catalog of database {database!r} has been altered and could run someone "
        f"else's SQL: sqlml.{name} {found}; inspect it with duckdb.connect and undo the change, "
        "or DROP SCHEMA sqlml CASCADE and create the models again"
    )


def _short(text: str) -> str:
    return text if len(text) <= 300 else f"{text[:297]}..."


def _shape(columns: str) -> str:
    """Columns and types of a table as the engine or we write them.

    Keys and NOT NULL, which only refuse rows, are left out. The engine quotes a name that is a
    keyword, or not a word: one that is not ours keeps its quotes, whatever it holds.

    >>> _shape('("key" VARCHAR PRIMARY KEY, version INTEGER NOT NULL, PRIMARY KEY("key"))')
    '(key varchar,version integer)'
    >>> _shape('("key" VARCHAR, "primary key" INTEGER)')
    '(key varchar,"primary key" integer)'
    """
    plain = " ".join(_QUOTED.sub(_unquoted, fold(columns)).split())
    if '"' not in plain:
        plain = _KEY.sub("", plain).replace(" not null", "")
    return re.sub(r"\s*([(),])\s*", r"\1", plain)


def _unquoted(quoted: re.Match[str]) -> str:
    """A quoted name without its quotes, if it is one of ours."""
    return quoted[1] if quoted[1] in _OUR_WORDS else quoted[0]


def _shapes() -> Mapping[str, str]:
    made = {}
    for statement in _ALL:
        found = _NAME.search(" ".join(statement.split()).replace("EXISTS", "exists"))
        if found is not None:
            made[found[1]] = _shape(found[2])
    return MappingProxyType(made)


_ALL = (*TABLES, *TRAINING_TABLES, *MACRO_TABLES, CHOOSERS)

_OUR_WORDS = frozenset(re.findall(r"\w+", fold(" ".join(_ALL))))
_OUR_WORDS -= {"primary", "not", "null"}
"""Words of our own definitions, without the keywords that `_shape` leaves out."""

_SHAPES = _shapes()
"""Table -> its columns and types."""

OUR_TABLES = frozenset(_SHAPES)
"""The names of the tables of a catalog."""


IS_TWO = hasattr(duckdb.DuckDBPyConnection, "complete")
"""Whether this is DuckDB 2.0: it streams results, tables may have triggers, and a file opens again
whose log has a type in a schema of that log. All that differs between 1.5 and 2.0 asks this."""


_READ_ONLY = re.compile(r'on database "(.*)" which is attached in read-only mode')


def read_only_database(name: str) -> CatalogError:
    """Return the error for a change of the models of a database that is read-only."""
    return CatalogError(
        f"the database {name!r} was opened read-only, so its models cannot be changed; open it "
        "without read_only=True, or attach it without READ_ONLY"
    )


def lacks_our_table(error: duckdb.Error, texts: Sequence[str] = ()) -> bool:
    """Return whether the engine misses a table of a model catalog, which `texts` do not name."""
    missing = re.search(r"Table with name (\w+) does not exist", str(error))
    if missing is None or fold(missing[1]) not in OUR_TABLES:
        return False
    return not any(fold(missing[1]) in fold(text) for text in texts)


def damaged_catalog(error: duckdb.Error) -> CatalogError:
    """Return the error for a model catalog that is not as sqlml leaves it."""
    cause = without_excerpt(error).partition("\n")[0]
    return CatalogError(
        f"the model catalog is damaged ({cause}); DROP SCHEMA sqlml CASCADE and create the models "
        "again"
    )


def _check_unicode(value: Any) -> None:
    """Refuse texts that no engine can store: names and comments may come from anywhere.

    Raises:
        ConfigError: a text is not valid Unicode.
    """
    if isinstance(value, str):
        if not is_unicode(value):
            raise ConfigError(f"{value!r} is not valid Unicode; no text in a database can be that")
    elif isinstance(value, Mapping):
        _check_unicode((*value.keys(), *value.values()))
    elif isinstance(value, list | tuple):
        for part in value:
            _check_unicode(part)


class Connection:
    """The user's connection, in whose transaction the catalog's statements run.

    `native` is DuckDB's own object.
    """

    def __init__(self, native: duckdb.DuckDBPyConnection) -> None:
        self.native = native

    def read(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Rows of a query in the user's transaction.

        Raises:
            CatalogError: a table or column of ours is missing; the transaction goes on.
            ConfigError: a parameter is not valid Unicode.
        """
        _check_unicode(params)
        try:
            relation = self.native.sql(sql, params=list(params))
        except (duckdb.BinderException, duckdb.CatalogException) as error:
            raise damaged_catalog(error) from None
        rows: list[tuple[Any, ...]] = relation.fetchall()
        return rows

    def write(self, sql: str, params: Sequence[Any] = ()) -> None:
        """Run a statement in the user's transaction.

        Raises:
            CatalogError: a table of ours is missing or has a row that it should not have, or the
                database is read-only.
            ConfigError: a parameter is not valid Unicode.
        """
        _check_unicode(params)
        try:
            self.native.execute(sql, list(params)).fetchall()
        except duckdb.CatalogException as error:
            if lacks_our_table(error):
                raise damaged_catalog(error) from None
            raise
        except duckdb.ConstraintException as error:
            raise damaged_catalog(error) from None
        except duckdb.InvalidInputException as error:
            read_only = _READ_ONLY.search(str(error))
            if read_only is not None:
                raise read_only_database(read_only[1]) from None
            raise

    def schema(self, database: str | None) -> str:
        """The qualified schema of the model catalog, in the current database or another.

        The bare name would be ambiguous next to a database that is itself called sqlml.
        """
        if database is None:
            ((database,),) = self.read("SELECT system.main.current_database()")
        return f"{DUCKDB.quote_name(str(database))}.{DUCKDB.quote_name('sqlml')}"

    def tables(self, schema: str) -> frozenset[str]:
        """The catalog's tables that a schema has, as `schema` quoted it.

        Raises:
            CatalogError: one of them is not as sqlml makes it.
        """
        database = schema.removesuffix('."sqlml"').removeprefix('"').removesuffix('"')
        return sound_tables(self.read, database.replace('""', '"'), IS_TWO)

    def type(self, name: str) -> str | None:
        """The definition of a type by its qualified name (already quoted); None if it does not
        exist."""
        if not is_unicode(name):
            return None
        try:
            return str(self.native.sqltype(name))
        except (duckdb.BinderException, duckdb.CatalogException):
            return None

    def parameters(self, function: str, name: str) -> list[str] | None:
        """The lists of parameters of a macro, as the engine shows them when a call fits none; none
        for another function; None if there is no such function.

        duckdb_functions() is not asked: it writes out the bodies of all. No macro has a parameter
        of that name, so none is bound, which could run its body.
        """
        try:
            self.native.sql(f'SELECT {function}("{uuid4().hex}" := NULL)')
        except duckdb.CatalogException:
            return None
        except duckdb.BinderException as error:
            if "Referenced table" in str(error):  # so DuckDB 1.5 calls a function that is not there
                return None
            return re.findall(rf"^\t{name}\((.*)\)$", str(error), re.MULTILINE)
        return []

    def exists(self, schema: str) -> bool:
        """Whether the qualified schema (already quoted) has a model catalog.

        Raises:
            CatalogError: it is not as sqlml makes it.
        """
        return "catalog_models" in self.tables(schema)

    def atomic(self, work: Callable[[], None], is_open: bool | None = None) -> None:
        """Run `work` whole or not at all, in the open transaction or in one of its own.

        Args:
            is_open: whether a transaction is open; None: not known.

        Raises:
            ConflictError: another transaction changes the same models.
        """
        atomic(self.native, self.in_transaction() if is_open is None else is_open, work)

    def in_transaction(self) -> bool:
        """Whether the user has a transaction open: then two statements share its number."""
        ask = "SELECT system.main.txid_current()"
        return self.read(ask) == self.read(ask)

    def has_database(self, name: str) -> bool:
        """Whether a database of this name is attached."""
        ask = "SELECT 1 FROM system.main.duckdb_databases() "
        ask += f"WHERE {folded('database_name')} = ?"
        return bool(self.read(ask, [fold(name)]))


def without_excerpt(error: Exception) -> str:
    """The engine's message without the lines that show the place in our own statement."""
    return str(error).split("\n\nLINE ")[0].split("\nLINE ")[0]


# Stamps: what a model is now, read from a single type.
#
# Each model has a type, an ENUM of one value, which changes with each change of the model. The
# engine reads it without reading a row. A type runs nothing, whoever made it, as a view might: so
# it is looked at without a look at the catalog's shape before. Of two transactions that change
# one model the second fails, as it should; each model has its own type, so those that change
# different ones do not conflict.
#
# DuckDB 1.5 cannot open a file again that has types in the log of a killed process (1.5.6:
# "Failure while replaying WAL file ..: Schema with name sqlml does not exist!"). There are no
# stamps there: the rows of the model are compared (`Catalog.stamp`), and a change of the model
# changes its row, so that two transactions conflict as well.


_PREFIX = "stamp_"


def read_stamp(connection: Connection, schema: str, key: str) -> str | None:
    """The stamp of the model `key`; None if it has none."""
    return connection.type(_type(schema, key)) if IS_TWO else None


def read_stamps(connection: Connection, database: str | None) -> dict[str, str]:
    """The stamps of all models of a database, by key, as `read_stamp` gives them: a query, which
    takes a fifth of the time where there are many."""
    if not IS_TWO:
        return {}
    where, given = f"{folded('database_name')} = {folded('?')}", [database]
    if database is None:
        where, given = "database_name = system.main.current_database()", []
    rows = connection.read(
        f"SELECT type_name, {builtin('array_extract')}(labels, 1) FROM system.main.duckdb_types() "
        f"WHERE schema_name = 'sqlml' AND {where} AND system.main.len(labels) = 1",
        given,
    )
    return {
        name.removeprefix(_PREFIX): f"ENUM('{stamp}')"
        for name, stamp in rows
        if name.startswith(_PREFIX) and "'" not in stamp
    }


def write_stamp(connection: Connection, schema: str, key: str) -> None:
    """Give the model `key` a new stamp."""
    if IS_TWO:
        connection.write(f"CREATE OR REPLACE TYPE {_type(schema, key)} AS ENUM ('{uuid4().hex}')")
        return
    for _ in range(2):  # an update that changes nothing conflicts with none
        connection.write(
            f"UPDATE {schema}.catalog_models SET last_version = {builtin('xor')}(last_version, 1) "
            "WHERE key = ?",
            [key],
        )


def write_stamps(connection: Connection, schema: str, keys: Sequence[str]) -> None:
    """Give several models new stamps."""
    for key in keys:
        write_stamp(connection, schema, key)


def unstamped(connection: Connection, schema: str) -> list[str]:
    """The models of the current database that lack a stamp: an older sqlml or DuckDB made them."""
    if not IS_TWO:
        return []
    rows = connection.read(
        f"SELECT key FROM {schema}.catalog_models WHERE {builtin('||')}('stamp_', key) NOT IN "
        "(SELECT type_name FROM system.main.duckdb_types() WHERE schema_name = 'sqlml' "
        "AND database_name = system.main.current_database())"
    )
    return [str(key) for (key,) in rows]


def drop_stamp(connection: Connection, schema: str, key: str) -> None:
    """Take the stamp away from the model `key`."""
    if IS_TWO:
        connection.write(f"DROP TYPE IF EXISTS {_type(schema, key)}")


def _type(schema: str, key: str) -> str:
    return f"{schema}.{DUCKDB.quote_name(_PREFIX + key)}"
