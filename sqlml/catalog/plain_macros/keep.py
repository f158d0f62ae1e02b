"""Macros with which an unmodified client of the database scores: `predict('churn', t)`.

::

    predict(sqlml_model, sqlml_row)      in schema sqlml, and in main unless the name is taken
      CASE WHEN sqlml_model IS NULL THEN NULL ELSE sqlml.choose_<digest>(..) END
    sqlml.choose_<digest>(n, r, m)       the model of that name (`name_tree.py`)
    sqlml.score_<digest>(r, m)           one model's call, with r's fields as its columns

What a model computes is written down in the transaction that changes the model, beside its name as
one whose macros are stale; these are made in the same transaction, or after it where it is the
user's own. A bare macro that its owner dropped, or replaced by a function of theirs, stays so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from sqlml.catalog.change_stamps import unstamped, write_stamps
from sqlml.catalog.connection import Connection
from sqlml.catalog.plain_macros.name_tree import digest
from sqlml.catalog.plain_macros.rebuild import FUNCTIONS, OURS, rebuild
from sqlml.catalog.tables import MACRO_TABLES
from sqlml.dialects import DUCKDB
from sqlml.dialects.duckdb import folded
from sqlml.types import fold

_TYPED = (1, 4)
"""The storage version of the engine that first keeps the types of a macro's parameters."""


@dataclass(frozen=True, slots=True)
class ModelCall:
    """What one model computes of the row `r`, as SQL, and the engine function in it.

    `kind` is one of those in `FUNCTIONS`; a "class" has the parameter `class`. `function` is None
    if `body` calls none. `helpers` are macros that `body` calls as `sqlml.<name>`: their names,
    made by `helper`, and what follows the name in CREATE MACRO.
    """

    kind: str
    body: str
    function: str | None = None
    arguments: tuple[str, ...] = ()
    result: str = ""
    helpers: tuple[tuple[str, str], ...] = ()


def helper(name: str, definition: str) -> tuple[str, str]:
    """A macro for bodies; its name is `name` and a digest of what it does."""
    return f"{name}_{digest(definition)}", definition


class Macros:
    """Keeps the macros of the databases that one connection sees."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._outdated: dict[str, str] = {}

    def keep(
        self,
        schema: str,
        database: str | None,
        key: str,
        calls: Sequence[ModelCall],
        shared: bool,
    ) -> None:
        """Make `calls` what the macros compute for the model `key`; none: forget the model.

        In a transaction that is the user's own (`shared`) the macros wait for its end, since two
        transactions that change one macro conflict.

        Args:
            schema: the catalog's schema, qualified and quoted.
            database: the database's name; None: the current one.
        """
        name = self._database(database)
        if not _keep(self._connection, schema, name, key, calls):
            return
        if shared:
            self._outdated[name] = schema
        else:
            rebuild(self._connection, schema, name)

    @property
    def outdated(self) -> bool:
        """Whether macros wait for the end of the user's transaction."""
        return bool(self._outdated)

    def refresh(self) -> None:
        """Make the macros that wait for the end of the user's transaction, if it has ended."""
        if not self._outdated or self._connection.in_transaction():
            return
        for database, schema in list(self._outdated.items()):
            if self._connection.has_database(database):
                self._connection.atomic(partial(self._rebuild, schema, database))
            del self._outdated[database]

    def catch_up(self) -> None:
        """Make the macros that a process left stale which ended before it came to them.

        And the stamps of models that an older sqlml made.
        """
        schema = self._connection.schema(None)
        tables = self._connection.tables(schema)
        if "catalog_models" in tables and (keys := unstamped(self._connection, schema)):
            self._connection.atomic(partial(write_stamps, self._connection, schema, keys))
        if "catalog_stale" not in tables:
            return
        if self._connection.read(f"SELECT 1 FROM {schema}.catalog_stale LIMIT 1"):
            self._connection.atomic(partial(self._rebuild, schema, self._database(None)))

    def _rebuild(self, schema: str, database: str) -> None:
        """Make the macros of a database, on tables that are as sqlml makes them."""
        if "catalog_calls" in self._connection.tables(schema):
            rebuild(self._connection, schema, database)

    def make_room(self, name: str) -> None:
        """Drop our bare macro `name`: the user is about to make a function of that name."""
        name = fold(name)
        if name not in FUNCTIONS:
            return
        database = self._database(None)
        found = self._connection.read(
            "SELECT 1 FROM system.main.duckdb_functions() WHERE database_name = ? "
            "AND schema_name = 'main' AND function_name = ? "
            "AND system.main.regexp_matches(coalesce(macro_definition, ''), ?)",
            [database, name, OURS],
        )
        if found:
            self._connection.write(
                f"DROP MACRO IF EXISTS {DUCKDB.quote_name(database)}.main.{name}"
            )

    def _database(self, name: str | None) -> str:
        """The name of a database (None: the current one) as the engine writes it."""
        rows = self._connection.read(
            "SELECT database_name FROM system.main.duckdb_databases() WHERE "
            f"{folded('database_name')} = {folded('coalesce(?, system.main.current_database())')}",
            [name],
        )
        return str(rows[0][0])


def _keep(
    connection: Connection, schema: str, database: str, key: str, calls: Sequence[ModelCall]
) -> bool:
    """Write down `calls` as what the model `key` of a database computes; none: forget it.

    Args:
        schema: the catalog's schema, qualified and quoted.
        database: the database's name.

    Returns:
        Whether `rebuild` has something to do.
    """
    if not calls and "catalog_calls" not in connection.tables(schema):
        return False
    if not _takes_types(connection, database):
        return False
    for statement in MACRO_TABLES:
        connection.write(statement.format(schema=schema))
    own = f"FROM {schema}.catalog_calls WHERE key = ?"
    stale = f"INSERT INTO {schema}.catalog_stale SELECT ?, NULL UNION SELECT key, macro {own}"
    connection.write(stale, [key, key])
    connection.write(f"DELETE {own}", [key])
    for name, definition in {h for call in calls for h in call.helpers}:
        connection.write(f"CREATE MACRO IF NOT EXISTS {schema}.{name}{definition}")
    for call in calls:
        macro = f"score_{digest(call.kind, key, call.body)}"
        extra = ", class" if call.kind == "class" else ""
        connection.write(
            f"CREATE MACRO IF NOT EXISTS {schema}.{macro}(r, m{extra}) AS "
            f"CASE WHEN m IS NULL THEN NULL ELSE {call.body} END"
        )
        connection.write(
            f"INSERT INTO {schema}.catalog_calls VALUES (?, ?, ?, ?, ?, ?)",
            [key, call.kind, macro, call.function, list(call.arguments), call.result],
        )
    return True


def _takes_types(connection: Connection, database: str) -> bool:
    """Whether macros of a database may have typed parameters, and the name sqlml means a schema."""
    if fold(database) == "sqlml":
        return False
    rows = connection.read(
        "SELECT path IS NULL, tags::VARCHAR FROM system.main.duckdb_databases() "
        "WHERE database_name = ?",
        [database],
    )
    for in_memory, tags in rows:
        found = re.search(r"v(\d+)\.(\d+)", str(tags))
        return bool(in_memory) if found is None else (int(found[1]), int(found[2])) >= _TYPED
    return False
