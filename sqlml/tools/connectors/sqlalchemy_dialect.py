"""The dialect for SQLAlchemy: `create_engine("sqlml:///shop.duckdb")`.

SQLAlchemy finds the dialect through the entry point `sqlalchemy.dialects`. The dialect extends
duckdb_engine's dialect, with Sessions as connections. It calls DuckDB's catalog functions, because
DuckDB 2.0 lacks some of the PostgreSQL tables that duckdb_engine reads.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from duckdb_engine import ConnectionWrapper, Dialect
from duckdb_engine.config import apply_config, get_core_config
from sqlalchemy import ARRAY, text, types
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.exc import NoSuchTableError

from sqlml.open_session import connect

_DECIMAL = re.compile(r"DECIMAL\((\d+),\s*(\d+)\)")

_TYPES = {
    "double": types.DOUBLE,
    "blob": types.LargeBinary,
    "timestamp with time zone": types.TIMESTAMP,
    "time with time zone": types.TIME,
}
"""Maps DuckDB's types to SQLAlchemy's types, if duckdb_engine has other names for the types."""

_CONSTRAINTS = """
    SELECT constraint_name, constraint_column_names, referenced_table, referenced_column_names,
           expression
    FROM system.main.duckdb_constraints()
    WHERE constraint_type = :kind
"""


class SqlmlDialect(Dialect):
    """duckdb_engine's dialect, with Sessions as connections.

    `connect_args` are the arguments of `sqlml.connect`. The query part of the URL may set DuckDB's
    settings and `allow_pickle`, which is false by default.
    """

    supports_statement_cache = False

    def connect(self, *cargs: Any, **cparams: Any) -> Any:
        """Open a connection for SQLAlchemy.

        Unlike duckdb_engine, do not add a user agent to the settings. This would prevent
        `sqlml.connect` and `duckdb.connect` from opening the same file.
        """
        settings = {**cparams.pop("config", {}), **cparams.pop("url_config", {})}
        allow_pickle = str(settings.pop("allow_pickle", cparams.pop("allow_pickle", False)))
        extensions = cparams.pop("preload_extensions", ())
        filesystems = cparams.pop("register_filesystems", ())
        config = {name: settings.pop(name) for name in settings.keys() & get_core_config()}
        open_session = partial(connect, config=config, allow_pickle=allow_pickle.lower() == "true")
        session = open_session(*cargs, **cparams)
        for extension in extensions:
            session.load_extension(extension)
        for filesystem in filesystems:
            session.register_filesystem(filesystem)
        apply_config(self, session.connection, settings)
        return ConnectionWrapper(session)

    def get_table_names(self, connection: Any, schema: str | None = None, **kw: Any) -> Any:
        return self._list_names(connection, "table", schema)

    def get_view_names(
        self, connection: Any, schema: str | None = None, include: Any = None, **kw: Any
    ) -> Any:
        return self._list_names(connection, "view", schema)

    def _list_names(self, connection: Any, kind: str, schema: str | None) -> list[str]:
        query = f"SELECT {kind}_name FROM system.main.duckdb_{kind}s() WHERE NOT internal"
        return [name for (name,) in self._query(connection, query, None, schema, " ORDER BY 1")]

    def get_columns(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        query = """
            SELECT column_name, data_type, is_nullable, column_default, comment
            FROM system.main.duckdb_columns() WHERE true
        """
        rows = self._query(connection, query, table_name, schema, " ORDER BY column_index")
        if not rows:
            raise NoSuchTableError(table_name)
        return [
            {
                "name": name,
                "type": self._convert_type(sql_type),
                "nullable": is_nullable,
                "default": default,
                "autoincrement": False,
                "comment": comment,
            }
            for name, sql_type, is_nullable, default, comment in rows
        ]

    def get_pk_constraint(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        constraints = self._query(connection, _CONSTRAINTS, table_name, schema, kind="PRIMARY KEY")
        name, columns, *_ = constraints[0] if constraints else (None, ())
        return {"constrained_columns": list(columns), "name": name}

    def get_foreign_keys(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        constraints = self._query(connection, _CONSTRAINTS, table_name, schema, kind="FOREIGN KEY")
        return [
            {
                "name": name,
                "constrained_columns": list(columns),
                "referred_schema": schema,
                "referred_table": table,
                "referred_columns": list(referred_columns),
                "options": {},
            }
            for name, columns, table, referred_columns, _ in constraints
        ]

    def get_unique_constraints(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        constraints = self._query(connection, _CONSTRAINTS, table_name, schema, kind="UNIQUE")
        return [{"name": name, "column_names": list(columns)} for name, columns, *_ in constraints]

    def get_check_constraints(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        constraints = self._query(connection, _CONSTRAINTS, table_name, schema, kind="CHECK")
        return [{"name": name, "sqltext": sql} for name, *_, sql in constraints]

    def get_table_comment(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        comments: list[Any] = []
        for kind in ("table", "view"):
            query = f"SELECT comment FROM system.main.duckdb_{kind}s() WHERE true"
            comments += self._query(connection, query, table_name, schema, name=f"{kind}_name")
        return {"text": comments[0][0] if comments else None}

    def get_table_options(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        return {}

    get_multi_columns = DefaultDialect.get_multi_columns
    get_multi_pk_constraint = DefaultDialect.get_multi_pk_constraint
    get_multi_foreign_keys = DefaultDialect.get_multi_foreign_keys
    get_multi_unique_constraints = DefaultDialect.get_multi_unique_constraints
    get_multi_check_constraints = DefaultDialect.get_multi_check_constraints
    get_multi_table_comment = DefaultDialect.get_multi_table_comment
    get_multi_table_options = DefaultDialect.get_multi_table_options

    def _query(
        self,
        connection: Any,
        query: str,
        table: str | None,
        schema: str | None,
        order: str = "",
        name: str = "table_name",
        **values: str,
    ) -> Sequence[Any]:
        """Run a catalog query about one table, or about all tables of a schema.

        `query` must end with a WHERE condition, to which this method adds conditions. `name` is the
        column with the table name. If `schema` is None, the schema is `main`.
        """
        database, schema_name = self.identifier_preparer._separate(schema)
        conditions = {name: table, "schema_name": schema_name or "main", "database_name": database}
        for column, value in conditions.items():
            if value is not None:
                query += f" AND {column} = :{column}"
                values[column] = value
        if database is None:
            query += " AND database_name IN (system.main.current_database(), 'temp')"
        return connection.execute(text(query + order), values).fetchall()

    def _convert_type(self, sql_type: str) -> Any:
        if sql_type.endswith("]"):
            return ARRAY(self._convert_type(sql_type[: sql_type.rindex("[")]))
        match = _DECIMAL.fullmatch(sql_type)
        if match is not None:
            return types.DECIMAL(int(match[1]), int(match[2]))
        type_class = _TYPES.get(sql_type.lower()) or self.ischema_names.get(sql_type.lower())
        return types.NullType() if type_class is None else type_class()
