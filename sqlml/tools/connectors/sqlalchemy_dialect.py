"""The dialect for SQLAlchemy: `create_engine("sqlml:///shop.duckdb")`.

SQLAlchemy finds it by the entry point `sqlalchemy.dialects`. It is duckdb_engine's dialect with
Sessions as connections. It reads tables from DuckDB's own catalog, since DuckDB 2.0 lacks some of
PostgreSQL's tables that duckdb_engine reads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from duckdb_engine import ConnectionWrapper, Dialect
from duckdb_engine.config import apply_config, get_core_config
from sqlalchemy import ARRAY, text, types
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.exc import NoSuchTableError

from sqlml.open_session import connect

_DECIMAL = re.compile(r"DECIMAL\((\d+),\s*(\d+)\)")

_WORDS = {
    "double": types.DOUBLE,
    "blob": types.LargeBinary,
    "timestamp with time zone": types.TIMESTAMP,
    "time with time zone": types.TIME,
}
"""DuckDB's type names -> the names that duckdb_engine knows."""

_CONSTRAINTS = """
    SELECT constraint_name, constraint_column_names, referenced_table, referenced_column_names,
           expression
    FROM system.main.duckdb_constraints()
    WHERE constraint_type = :kind
"""


class SqlmlDialect(Dialect):
    """duckdb_engine's dialect, with Sessions for connections.

    `connect_args` are those of `sqlml.connect`; the query of the URL has settings of DuckDB and
    `allow_pickle`, which is false by default.
    """

    supports_statement_cache = False  # as in duckdb_engine

    def connect(self, *cargs: Any, **cparams: Any) -> Any:
        """A new connection, as SQLAlchemy asks for one.

        duckdb_engine would name itself in the settings, and then neither `sqlml.connect` nor
        `duckdb.connect` could open the same file in this process.
        """
        given = {**cparams.pop("config", {}), **cparams.pop("url_config", {})}
        allow_pickle = str(given.pop("allow_pickle", cparams.pop("allow_pickle", False)))
        extensions = cparams.pop("preload_extensions", ())
        filesystems = cparams.pop("register_filesystems", ())
        core = get_core_config()
        config = {name: value for name, value in given.items() if name in core}
        opened = partial(connect, config=config, allow_pickle=allow_pickle.lower() == "true")
        session = opened(*cargs, **cparams)
        for extension in extensions:
            session.load_extension(extension)
        for filesystem in filesystems:
            session.register_filesystem(filesystem)
        others = {name: value for name, value in given.items() if name not in core}
        apply_config(self, session.connection, others)
        return ConnectionWrapper(session)

    # -- what there is

    def get_table_names(self, connection: Any, schema: str | None = None, **kw: Any) -> Any:
        """Return the tables of a schema; None is `main` of the current database."""
        return self._names(connection, "table", schema)

    def get_view_names(
        self, connection: Any, schema: str | None = None, include: Any = None, **kw: Any
    ) -> Any:
        """Return the views of a schema; None is `main` of the current database."""
        return self._names(connection, "view", schema)

    def _names(self, connection: Any, kind: str, schema: str | None) -> list[str]:
        asked = f"SELECT {kind}_name FROM system.main.duckdb_{kind}s() WHERE NOT internal"
        return [name for (name,) in self._asked(connection, asked, None, schema, " ORDER BY 1")]

    def get_columns(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        """Return the columns of a table or view."""
        asked = """
            SELECT column_name, data_type, is_nullable, column_default, comment
            FROM system.main.duckdb_columns() WHERE true
        """
        rows = self._asked(connection, asked, table_name, schema, " ORDER BY column_index")
        if not rows:
            raise NoSuchTableError(table_name)
        return [
            {
                "name": name,
                "type": self._type(kind),
                "nullable": is_nullable,
                "default": default,
                "autoincrement": False,
                "comment": comment,
            }
            for name, kind, is_nullable, default, comment in rows
        ]

    def get_pk_constraint(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        """Return the primary key of a table."""
        for name, columns, *_ in self._constraints(connection, "PRIMARY KEY", table_name, schema):
            return {"constrained_columns": list(columns), "name": name}
        return {"constrained_columns": [], "name": None}

    def get_foreign_keys(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        """Return the foreign keys of a table."""
        return [
            {
                "name": name,
                "constrained_columns": list(columns),
                "referred_schema": schema,
                "referred_table": table,
                "referred_columns": list(referred),
                "options": {},
            }
            for name, columns, table, referred, _ in self._constraints(
                connection, "FOREIGN KEY", table_name, schema
            )
        ]

    def get_unique_constraints(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        """Return the unique constraints of a table."""
        found = self._constraints(connection, "UNIQUE", table_name, schema)
        return [{"name": name, "column_names": list(columns)} for name, columns, *_ in found]

    def get_check_constraints(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        """Return the check constraints of a table."""
        found = self._constraints(connection, "CHECK", table_name, schema)
        return [{"name": name, "sqltext": sql} for name, _, _, _, sql in found]

    def get_table_comment(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        """Return the comment on a table or view."""
        found: list[Any] = []
        for kind in ("table", "view"):
            asked = f"SELECT comment FROM system.main.duckdb_{kind}s() WHERE true"
            found += self._asked(connection, asked, table_name, schema, name=f"{kind}_name")
        return {"text": found[0][0] if found else None}

    def get_table_options(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        """Return no options, since tables have none."""
        return {}

    get_multi_columns = DefaultDialect.get_multi_columns
    get_multi_pk_constraint = DefaultDialect.get_multi_pk_constraint
    get_multi_foreign_keys = DefaultDialect.get_multi_foreign_keys
    get_multi_unique_constraints = DefaultDialect.get_multi_unique_constraints
    get_multi_check_constraints = DefaultDialect.get_multi_check_constraints
    get_multi_table_comment = DefaultDialect.get_multi_table_comment
    get_multi_table_options = DefaultDialect.get_multi_table_options

    def _constraints(
        self, connection: Any, kind: str, table: str, schema: str | None
    ) -> Sequence[Any]:
        return self._asked(connection, _CONSTRAINTS, table, schema, kind=kind)

    def _asked(
        self,
        connection: Any,
        asked: str,
        table: str | None,
        schema: str | None,
        order: str = "",
        name: str = "table_name",
        **values: str,
    ) -> Sequence[Any]:
        """The rows of a question about one table, or all of a schema.

        Args:
            asked: ends in a condition.
            schema: `schema` or `database.schema`; None is `main`.
            name: the column that has the table's name.
        """
        database, within = self.identifier_preparer._separate(schema)
        wanted: Mapping[str, str | None] = {
            name: table,
            "schema_name": within or "main",
            "database_name": database,
        }
        for column, value in wanted.items():
            if value is not None:
                asked += f" AND {column} = :{column}"
                values[column] = value
        if database is None:
            asked += " AND database_name IN (system.main.current_database(), 'temp')"
        found: Sequence[Any] = connection.execute(text(asked + order), values).fetchall()
        return found

    def _type(self, kind: str) -> Any:
        """Return the SQLAlchemy type of a DuckDB type name."""
        if kind.endswith("]"):
            return ARRAY(self._type(kind[: kind.rindex("[")]))
        decimal = _DECIMAL.fullmatch(kind)
        if decimal is not None:
            return types.DECIMAL(int(decimal[1]), int(decimal[2]))
        found = _WORDS.get(kind.lower()) or self.ischema_names.get(kind.lower())
        return types.NullType() if found is None else found()
