"""The DuckDB connection as the catalog uses it: transactions, checks of the tables, and stamps.

A failed `execute` aborts an open transaction on DuckDB 2.0, but a failed `sql`, which only binds,
does not. All queries therefore go through `sql`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import duckdb

from sqlml.catalog.row_expressions import Read
from sqlml.catalog.tables import CHOOSERS, MACRO_TABLES, TABLES, TRAINING_TABLES
from sqlml.dialects import DUCKDB
from sqlml.dialects.duckdb import builtin, fold_in_sql
from sqlml.errors import CatalogError, ConfigError, ConflictError
from sqlml.interruption import interruption_after
from sqlml.types import fold, is_unicode

IS_DUCKDB_2 = hasattr(duckdb.DuckDBPyConnection, "complete")
"""True on DuckDB 2.0, which streams results, supports triggers, and can reopen a file whose log
contains a type in a new schema. This is the only switch between 1.5 and 2.0."""


class Connection:
    """The user's connection, in whose transaction the catalog's statements run."""

    def __init__(self, native: duckdb.DuckDBPyConnection) -> None:
        self.native = native
        self._known: dict[str, Any] | None = None

    @contextmanager
    def check_once(self) -> Iterator[None]:
        """Check the tables of a schema once in the block, which runs no statement of the user."""
        self._known = {}
        try:
            yield
        finally:
            self._known = None

    def _find_once(self, key: str, find: Callable[[], Any]) -> Any:
        known = {} if self._known is None else self._known
        if key not in known:
            known[key] = find()
        return known[key]

    def read(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query; an error does not abort the user's transaction."""
        _check_unicode(params)
        try:
            relation = self.native.sql(sql, params=list(params))
        except (duckdb.BinderException, duckdb.CatalogException) as error:
            raise damaged_catalog_error(error) from None
        return relation.fetchall()

    def write(self, sql: str, params: Sequence[Any] = ()) -> None:
        """Run a statement in the user's transaction; raise CatalogError if a table is damaged."""
        _check_unicode(params)
        try:
            self.native.execute(sql, list(params)).fetchall()
        except duckdb.CatalogException as error:
            if is_catalog_table_missing(error):
                raise damaged_catalog_error(error) from None
            raise
        except duckdb.ConstraintException as error:
            raise damaged_catalog_error(error) from None
        except duckdb.InvalidInputException as error:
            match = _READ_ONLY.search(str(error))
            if match is not None:
                raise read_only_error(match[1]) from None
            raise

    def schema(self, database: str | None) -> str:
        """Return the qualified and quoted name of the schema with a database's catalog.

        The bare name `sqlml` would be ambiguous if a database had this name.
        """
        if database is None:
            query = "SELECT system.main.current_database()"
            database = self._find_once("database", lambda: self.read(query)[0][0])
        return f"{DUCKDB.quote_name(str(database))}.{DUCKDB.quote_name('sqlml')}"

    def list_tables(self, schema: str) -> frozenset[str]:
        """Check the definitions of the catalog tables in a schema, and return their names."""
        database = schema.removesuffix('."sqlml"').removeprefix('"').removesuffix('"')
        name = database.replace('""', '"')
        tables = self._find_once(schema, lambda: check_tables(self.read, name))
        return frozenset(tables)

    def create_tables(self, schema: str, definitions: Sequence[str]) -> None:
        """Run those of `definitions` (`tables.py`) whose tables a schema lacks."""
        tables = self.list_tables(schema)
        for definition in definitions:
            match = _TABLE_DEFINITION.search(definition)
            if match is None or match[1] not in tables:
                self.write(definition.format(schema=schema))
                tables |= set() if match is None else {match[1]}
        if self._known is not None:
            self._known[schema] = tables

    def find_type(self, name: str) -> str | None:
        """Return the definition of the type with a qualified, quoted name, or None if missing."""
        if not is_unicode(name):
            return None
        try:
            return str(self.native.sqltype(name))
        except (duckdb.BinderException, duckdb.CatalogException):
            return None

    def list_parameters(self, function: str, name: str) -> list[str] | None:
        """Return the parameter list of each overload of a macro, or None if no function exists.

        `function` is the qualified name, and `name` is its last part. If the function is not a
        macro, return []. The lists are read from the engine's error for a wrong call, because
        duckdb_functions() would render all functions, and a valid call could run the macro's body.
        """
        try:
            self.native.sql(f'SELECT {function}("{uuid4().hex}" := NULL)')
        except duckdb.CatalogException:
            return None
        except duckdb.BinderException as error:
            if "Referenced table" in str(error):  # DuckDB 1.5's message for an unknown function
                return None
            return re.findall(rf"^\t{name}\((.*)\)$", str(error), re.MULTILINE)
        return []

    def has_catalog(self, schema: str) -> bool:
        """Check the catalog tables in a schema, and return whether the catalog exists."""
        return "catalog_models" in self.list_tables(schema)

    def run_atomically(self, function: Callable[[], None], is_open: bool | None = None) -> None:
        """Run `function` entirely or not at all.

        If the user's transaction is open, `function` runs in this transaction. Otherwise, it runs
        in a new transaction, which is retried after a conflict. `is_open` says whether the user's
        transaction is open, or is None if that is unknown. A Ctrl-C is raised after the end of
        `function`. If another transaction changes the same models, ConflictError is raised.
        """
        if self.in_transaction() if is_open is None else is_open:
            try:
                with interruption_after():
                    function()
            except _CONFLICTS as error:
                raise _convert_conflict(error, "ROLLBACK, and try again") from None
            return
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with interruption_after():
                    _run_in_own_transaction(self.native, function)
                return
            except _CONFLICTS as error:
                # Two connections may create the catalog's schema at the same moment.
                if "conflict" not in str(error).lower() or attempt == _ATTEMPTS:
                    raise _convert_conflict(error, "try again") from None
                time.sleep(0.01 * attempt)

    def in_transaction(self) -> bool:
        # Two queries have the same transaction id only if a transaction is open.
        query = "SELECT system.main.txid_current()"
        return self.read(query) == self.read(query)

    def has_database(self, name: str) -> bool:
        condition = f"{fold_in_sql('database_name')} = ?"
        query = f"SELECT 1 FROM system.main.duckdb_databases() WHERE {condition}"
        return bool(self.read(query, [fold(name)]))


def _check_unicode(value: Any) -> None:
    if isinstance(value, str):
        if not is_unicode(value):
            raise ConfigError(f"{value!r} is not valid Unicode, so no database can store it")
    elif isinstance(value, Mapping):
        _check_unicode((*value.keys(), *value.values()))
    elif isinstance(value, list | tuple):
        for element in value:
            _check_unicode(element)


_ATTEMPTS = 10
_CONFLICTS = (duckdb.TransactionException, duckdb.CatalogException)


def _run_in_own_transaction(native: duckdb.DuckDBPyConnection, action: Callable[[], None]) -> None:
    native.execute("BEGIN TRANSACTION")
    try:
        action()
    except BaseException:
        native.execute("ROLLBACK")
        raise
    native.execute("COMMIT")


def _convert_conflict(error: duckdb.Error, advice: str) -> Exception:
    if "conflict" not in str(error).lower():
        return error
    # The engine's message would name tables of the catalog, which users do not know.
    return ConflictError(f"another transaction changes the same models; {advice}")


def check_tables(read: Read, database: str) -> frozenset[str]:
    """Check the catalog tables in the schema `sqlml` of a database, and return their names.

    A database may come from a stranger. Instead of a catalog table, it may contain a view, or a
    table with defaults, checks, generated columns, expression indexes or triggers, whose SQL the
    engine would run. If a table is not defined exactly as in `tables.py`, CatalogError is raised.
    """
    condition = _IN_DATABASE
    parameters = [database]
    if not read(f"SELECT 1 FROM system.main.duckdb_schemas() {condition}", parameters):
        return frozenset()  # This check is 10 times faster than a query on the tables.
    query = (
        f"SELECT table_name, sql, index_count FROM system.main.duckdb_tables() {condition} "
        f"UNION ALL SELECT view_name, NULL, -1 FROM system.main.duckdb_views() {condition}"
    )
    if IS_DUCKDB_2:
        triggers_sql = "SELECT table_name, trigger_name, -1 FROM system.main.duckdb_triggers()"
        query = f"{query} UNION ALL {triggers_sql} {condition}"
    parameters = parameters * query.count(condition)
    tables = set()
    for stored_name, stored_sql, index_count in read(query, parameters):
        name = fold(str(stored_name))
        if name not in OUR_TABLES:
            continue
        definition_sql = str(stored_sql)
        if stored_sql is None:
            raise _altered_table_error(database, name, "is a view")
        if index_count < 0:
            raise _altered_table_error(database, name, f"has the trigger {definition_sql!r}")
        columns = definition_sql[definition_sql.find("(") :].removesuffix(";")
        if _normalize_definition(columns) != _EXPECTED_DEFINITIONS[name]:
            excerpt = definition_sql if len(definition_sql) <= 300 else f"{definition_sql[:297]}..."
            raise _altered_table_error(database, name, f"is {excerpt}")
        if index_count != ("PRIMARY KEY" in definition_sql):
            raise _altered_table_error(database, name, "has an index that sqlml did not create")
        tables.add(name)
    return frozenset(tables)


def _altered_table_error(database: str, name: str, alteration: str) -> CatalogError:
    return CatalogError(
        f"the model catalog of database {database!r} has been altered and could run someone "
        f"else's SQL: sqlml.{name} {alteration}; inspect it with duckdb.connect and undo the "
        "change, or DROP SCHEMA sqlml CASCADE and create the models again"
    )


_IN_DATABASE = (
    f"WHERE {fold_in_sql('database_name')} = {fold_in_sql('?')} "
    f"AND {fold_in_sql('schema_name')} = 'sqlml'"
)


def _normalize_definition(columns: str) -> str:
    """Normalize the columns and types of a table definition for comparison.

    Keys and NOT NULL are left out, because they only reject rows. The engine quotes keywords and
    names that are not identifiers. Only the names of catalog columns lose their quotes.

    >>> _normalize_definition('("key" VARCHAR PRIMARY KEY, version INTEGER NOT NULL)')
    '(key varchar,version integer)'
    >>> _normalize_definition('("key" VARCHAR, "primary key" INTEGER)')
    '(key varchar,"primary key" integer)'
    """
    unquoted = _QUOTED_NAME.sub(lambda m: m[1] if m[1] in _OWN_NAMES else m[0], fold(columns))
    normalized = " ".join(unquoted.split())
    if '"' not in normalized:
        normalized = _KEY_CLAUSE.sub("", normalized).replace(" not null", "")
    return re.sub(r"\s*([(),])\s*", r"\1", normalized)


_QUOTED_NAME = re.compile(r'"((?:[^"]|"")*)"')
_KEY_CLAUSE = re.compile(r",?\s*\bprimary key\b\s*(\([^)]*\))?")
_TABLE_DEFINITION = re.compile(r"EXISTS \{schema\}\.(\w+)\s*(\([^;]*\))")

_ALL_STATEMENTS = " ".join(" ; ".join((*TABLES, *TRAINING_TABLES, *MACRO_TABLES, CHOOSERS)).split())
_OWN_NAMES = {*re.findall(r"\w+", fold(_ALL_STATEMENTS))} - {"primary", "not", "null"}
"""The words in sqlml's definitions, without the keywords that `_normalize_definition` removes."""

_EXPECTED_DEFINITIONS = {
    name: _normalize_definition(columns)
    for name, columns in _TABLE_DEFINITION.findall(_ALL_STATEMENTS)
}
"""Maps each catalog table to its normalized columns and types."""

OUR_TABLES = frozenset(_EXPECTED_DEFINITIONS)

_READ_ONLY = re.compile(r'on database "(.*)" which is attached in read-only mode')


def read_only_error(name: str) -> CatalogError:
    return CatalogError(
        f"the database {name!r} was opened read-only, so its models cannot be changed; open it "
        "without read_only=True, or attach it without READ_ONLY"
    )


def is_catalog_table_missing(error: duckdb.Error, texts: Sequence[str] = ()) -> bool:
    """Return whether a catalog table is missing that the user's SQL `texts` do not mention."""
    match = re.search(r"Table with name (\w+) does not exist", str(error))
    if match is None or fold(match[1]) not in OUR_TABLES:
        return False
    return not any(fold(match[1]) in fold(text) for text in texts)


def damaged_catalog_error(error: duckdb.Error) -> CatalogError:
    cause = strip_excerpt(error).partition("\n")[0]
    advice = "DROP SCHEMA sqlml CASCADE and create the models again"
    return CatalogError(f"the model catalog is damaged ({cause}); {advice}")


def strip_excerpt(error: Exception) -> str:
    """Return the message of an engine error without the excerpt from the SQL that sqlml wrote."""
    return str(error).split("\n\nLINE ")[0].split("\nLINE ")[0]


# A stamp tells whether a model has changed. Each model has a type, an ENUM with one random value,
# which is replaced with every change. The engine reads the type without reading a row. A type never
# runs code, so stamps are read before the catalog's tables are checked. If two transactions change
# the same model, the second one fails. Changes of different models do not conflict.
#
# If a process is killed and the log of its file contains types, DuckDB 1.5 cannot reopen the file
# (1.5.6: "Failure while replaying WAL file ...: Schema with name sqlml does not exist!"). On 1.5,
# sqlml therefore compares the rows of models instead (`Catalog.stamp`). A change of a model updates
# its row, so that two transactions also conflict.
_STAMP_PREFIX = "stamp_"


def read_stamp(connection: Connection, schema: str, key: str) -> str | None:
    """Return the stamp of the model `key`, or None if it has no stamp, as on DuckDB 1.5."""
    return connection.find_type(_name_stamp_type(schema, key)) if IS_DUCKDB_2 else None


def read_stamps(connection: Connection, database: str | None) -> dict[str, str]:
    """Return the stamps of all models in a database, keyed by model; on DuckDB 1.5, return {}.

    This is five times as fast as calling `read_stamp` for each model.
    """
    if not IS_DUCKDB_2:
        return {}
    database_filter = f"{fold_in_sql('database_name')} = {fold_in_sql('?')}"
    if database is None:
        database_filter = "database_name = system.main.current_database()"
    rows = connection.read(
        f"SELECT type_name, {builtin('array_extract')}(labels, 1) FROM system.main.duckdb_types() "
        f"WHERE schema_name = 'sqlml' AND {database_filter} AND system.main.len(labels) = 1",
        [] if database is None else [database],
    )
    return {
        name.removeprefix(_STAMP_PREFIX): f"ENUM('{stamp}')"
        for name, stamp in rows
        if name.startswith(_STAMP_PREFIX) and "'" not in stamp
    }


def write_stamp(connection: Connection, schema: str, key: str) -> None:
    if IS_DUCKDB_2:
        definition = f"{_name_stamp_type(schema, key)} AS ENUM ('{uuid4().hex}')"
        connection.write(f"CREATE OR REPLACE TYPE {definition}")
        return
    for _ in range(2):  # Flip a bit twice, since an update without a change never conflicts.
        connection.write(
            f"UPDATE {schema}.catalog_models SET last_version = {builtin('xor')}(last_version, 1) "
            "WHERE key = ?",
            [key],
        )


def find_unstamped_models(connection: Connection, schema: str) -> list[str]:
    """Return the keys of the models that an older sqlml or DuckDB did not stamp."""
    if not IS_DUCKDB_2:
        return []
    rows = connection.read(
        f"SELECT key FROM {schema}.catalog_models WHERE {builtin('||')}('stamp_', key) NOT IN "
        "(SELECT type_name FROM system.main.duckdb_types() WHERE schema_name = 'sqlml' "
        "AND database_name = system.main.current_database())"
    )
    return [str(key) for (key,) in rows]


def drop_stamp(connection: Connection, schema: str, key: str) -> None:
    if IS_DUCKDB_2:
        connection.write(f"DROP TYPE IF EXISTS {_name_stamp_type(schema, key)}")


def _name_stamp_type(schema: str, key: str) -> str:
    return f"{schema}.{DUCKDB.quote_name(_STAMP_PREFIX + key)}"
