"""`Connection`: DuckDB as the catalog reads and writes it.

A failed `execute` aborts an open transaction on 2.0, a failed `sql` (which only binds) does not, so
all questions go through `sql`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

import duckdb

from sqlml.catalog.sound_tables import OUR_TABLES, sound_tables
from sqlml.catalog.transaction import atomic
from sqlml.dialects import DUCKDB
from sqlml.dialects.duckdb import folded
from sqlml.errors import CatalogError, ConfigError
from sqlml.types import fold, is_unicode

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
