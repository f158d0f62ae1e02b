"""DuckDB as an engine: binding, registration, execution, and all that differs by version.

A failed `execute` aborts an open transaction on 2.0, a failed `sql` (which only binds) does not, so
all questions go through `sql`. Functions are made on the registry's cursor (`registry.py`); only a
transaction that cannot see one gets a twin of it under another name.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any
from uuid import uuid4

import duckdb
from duckdb import StatementType

from sqlml.catalog.rebuild import OURS
from sqlml.catalog.shape import sound_tables
from sqlml.dialects.duckdb import builtin, folded
from sqlml.errors import CatalogError, ConflictError, ParseError
from sqlml.interruption import interruption_after
from sqlml.parsing.tokens import tokenize
from sqlml.planner.names import parse_name
from sqlml.planner.probe import Column, ProbeError
from sqlml.regular_files import check_regular, local_path
from sqlml.types import fold
from sqlml.udfs.callee import ANY, any_function, batches, dropped, is_signature
from sqlml.udfs.caller import call_from
from sqlml.udfs.cardinality import top_cardinality
from sqlml.udfs.engine import EngineFunction
from sqlml.udfs.failures import is_interrupt, pass_interrupt
from sqlml.udfs.registry import HAS_TRIGGERS, Registry, create

_twins = itertools.count(1)
_ATTEMPTS = 10


class DuckDBEngine:
    """One connection of a database.

    `frame` is the user's frame while one of their calls is carried out (`caller.py`).
    `about_models` is whether the statement that was run last, whose result may be open, says so.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, registry: Registry) -> None:
        self.connection = connection
        self.registry = registry
        self.frame: FrameType | None = None
        self.about_models = False
        self._batches = 0
        self._visible: set[str] = set()
        self._twins: dict[str, str] = {}

    def begin(self, about_models: bool) -> None:
        """Another call of the user's begins."""
        self.about_models, self._batches = about_models, batches()

    def is_interrupt(self, error: BaseException) -> bool:
        """Whether it is a Ctrl-C during a statement that is about models, or scores by a view."""
        return is_interrupt(error) and (self.about_models or batches() > self._batches)

    def bind(self, query: str) -> tuple[Column, ...]:
        """See `Engine.bind`.

        Raises:
            ProbeError: the query does not bind.
        """
        relation = self._bound(query)
        return tuple(map(Column, relation.columns, map(str, relation.types)))

    def type_of(self, value: Any) -> str | None:
        """The type of a parameter's value; None where the engine takes no such value.

        Another connection is asked, since an error would end the user's transaction.
        """
        with self.connection.cursor() as own, suppress(duckdb.Error, TypeError, ValueError):
            ((kind,),) = own.execute("SELECT system.main.typeof(?)", [value]).fetchall()
            return str(kind)
        return None

    def _bound(self, query: str) -> Any:
        """The lazy relation of a probe. Raises ProbeError where the engine cannot bind it.

        Of what does not parse, and of what is no query, only the parser hears: on 2.0 either ends
        the user's transaction.
        """
        try:
            (statement,) = self.connection.extract_statements(query)
        except (duckdb.Error, ValueError) as error:
            raise ProbeError(_first_line(error)) from None
        if statement.type not in (StatementType.SELECT, StatementType.MULTI):
            raise ProbeError("not a query")
        try:
            if statement.type == StatementType.MULTI and self.in_transaction():
                self._try_beside(statement)
            relation = call_from(self.frame, partial(self.connection.sql, statement))
        except duckdb.Error as error:
            pass_interrupt(error)
            raise ProbeError(_first_line(error)) from None
        if relation is None:
            raise ProbeError("not a query")
        return relation

    def _try_beside(self, statement: duckdb.Statement) -> None:
        """Let a PIVOT, which is carried out to be bound, fail on another connection first.

        What that one lacks may be a table of the open transaction.
        """
        with self.connection.cursor() as own, suppress(duckdb.CatalogException):
            own.sql(statement)

    def rows(self, query: str) -> int | None:
        """The engine's own estimate of the rows of a query; None where it has none.

        Raises:
            ProbeError: the query does not bind, and was not run: a transaction goes on.
        """
        relation = self._bound(query)
        try:
            if hasattr(self.connection, "complete"):
                plan = relation.explain(format="json")
            else:
                ask = partial(self.connection.sql, f"EXPLAIN (FORMAT json) {query}")
                plan = call_from(self.frame, ask).fetchall()[-1][1]
            return top_cardinality(plan)
        except duckdb.Error as error:
            pass_interrupt(error)
            return None  # an unfinished result, say: it is but an estimate

    def has_function(self, name: str) -> bool:
        """Whether a user's own function or macro has this name."""
        rows = self.read(
            "SELECT 1 FROM system.main.duckdb_functions() "
            f"WHERE {folded('function_name')} = ? "
            "AND NOT system.main.regexp_matches(coalesce(macro_definition, ''), ?) LIMIT 1",
            [fold(name), OURS],
        )
        return bool(rows)

    def unique_keys(self, table: str) -> tuple[frozenset[str], ...]:
        """The sets of columns that are declared unique in a table as a query names it, folded.

        None where another table or view of that name might be meant.
        """
        try:
            names = [fold(t.text) for t in tokenize(table) if t.is_identifier]
        except ParseError:
            return ()
        if not 1 <= len(names) <= 3 or table.lstrip().startswith("("):
            return ()
        fields = ("table_name", "schema_name", "database_name")
        given = dict(zip(fields, reversed(names), strict=False))
        if len(names) == 2:  # a schema, or a database with its main schema
            del given["schema_name"]
            either = f" AND ? IN ({folded('schema_name')}, {folded('database_name')})"
            values = [names[1], names[0]]
        else:
            either, values = "", list(given.values())
        where = " AND ".join(f"{folded(field)} = ?" for field in given) + either
        meant = self.read(
            "SELECT database_name, schema_name, table_name FROM (SELECT database_name, "
            "schema_name, table_name FROM system.main.duckdb_tables() UNION ALL SELECT "
            "database_name, schema_name, view_name FROM system.main.duckdb_views()) "
            f"WHERE {where}",
            values,
        )
        if len(meant) != 1:
            return ()
        found = self.read(
            "SELECT constraint_column_names FROM system.main.duckdb_constraints() "
            "WHERE database_name = ? AND schema_name = ? AND table_name = ? "
            "AND constraint_type IN ('PRIMARY KEY', 'UNIQUE')",
            list(meant[0]),
        )
        return tuple(frozenset(fold(str(c)) for c in columns) for (columns,) in found)

    def knows_function(self, name: str) -> bool:
        """The same after a statement failed, when its transaction may answer no more (2.0)."""
        try:
            return self.has_function(name)
        except (duckdb.Error, CatalogError):
            return False

    def registered(self, name: str) -> str | None:
        """The name to call a function by that was registered for good; None: register it."""
        return name if name in self._visible else None

    def register(self, function: EngineFunction) -> str:
        """See `Engine.register`."""
        self.registry.add(function)
        if function.name in self._visible or self._sees(function.name, function):
            self._visible.add(function.name)
            return function.name
        twin = self._twins.get(function.name)
        if twin is None or not self._sees(twin, function):
            twin = self._twins[function.name] = f"{function.name}_t{next(_twins)}"
            create(self.connection, twin, function)
        return twin

    def _sees(self, name: str, function: EngineFunction) -> bool:
        try:
            nulls = ", ".join(f"NULL::{kind}" for kind in function.argument_types)
            self.bind(f"SELECT {builtin(name)}({nulls})")
        except ProbeError:
            return False
        return True

    def execute(self, sql: str, parameters: Any = None) -> Any:
        """See `Engine.execute`."""
        arguments = (sql,) if parameters is None else (sql, parameters)
        return call_from(self.frame, partial(self.connection.execute, *arguments))

    def executemany(self, sql: str, parameters: Any) -> Any:
        """A statement once for each of the sets of parameters."""
        return call_from(self.frame, partial(self.connection.executemany, sql, parameters))

    def relation(self, sql: str, parameters: Any = None, alias: str = "") -> Any:
        """The lazy relation of a query; None for a statement without a result."""
        options: dict[str, Any] = {} if parameters is None else {"params": parameters}
        if alias:
            options["alias"] = alias
        return call_from(self.frame, partial(self.connection.sql, sql, **options))

    def finish(self) -> None:
        """Let go of an unfinished result, as DuckDB's own next execute() does.

        2.0 streams results and refuses planning's own reads meanwhile. The result is run to its
        end and not cancelled, since cancelling an INSERT .. RETURNING fails its transaction.
        """
        if hasattr(self.connection, "complete"):
            with interruption_after(stops=True), suppress(duckdb.Error):
                self.connection.complete()  # errors are for who read it, and had or left them

    def catch_up(self) -> bool:
        """Let go of what `finish` leaves open on 1.5, so that all that is committed is in sight.

        There a query is bound in the transaction of a result that was not read to its end. It
        takes a statement, which shows in the user's log: for queries of models alone.

        Returns:
            Whether there may be more in sight now.
        """
        if hasattr(self.connection, "complete"):
            return False
        with suppress(duckdb.Error):
            self.connection.execute("SELECT 1").fetchall()
        return True

    def view_texts(self) -> list[str]:
        """Texts of the views and macros that call functions of ours."""
        return [
            str(text)
            for (text,) in self.read(
                "SELECT sql FROM system.main.duckdb_views() "
                "WHERE NOT internal AND system.main.contains(sql, 'sqlml_') "
                "UNION ALL SELECT macro_definition FROM system.main.duckdb_functions() "
                "WHERE NOT internal AND system.main.contains(macro_definition, 'sqlml_') "
                "AND NOT (schema_name = 'sqlml' "
                "AND system.main.starts_with(function_name, 'score_'))"
            )
        ]

    def model_functions(self) -> list[EngineFunction]:
        """The functions that our own macros call, each to be compiled when it is first used."""
        functions = {}
        for (database,) in self.read(
            "SELECT database_name FROM system.main.duckdb_tables() "
            "WHERE schema_name = 'sqlml' AND table_name = 'catalog_calls'"
        ):
            for row in self._called(self.schema(str(database))):
                made = _called_function(*row)
                if made is not None:
                    functions[made.name] = made
        return list(functions.values())

    def _called(self, schema: str) -> list[tuple[Any, ...]]:
        try:
            self.tables(schema)
            return self.read(
                f"SELECT DISTINCT function, arguments, result FROM {schema}.catalog_calls "
                "WHERE function IS NOT NULL"
            )
        except CatalogError:  # not ours, or damaged: whoever asks for its models is told
            return []

    def attached(self) -> list[str]:
        """Names of all attached databases."""
        rows = self.read("SELECT database_name FROM system.main.duckdb_databases() ORDER BY ALL")
        return [str(row[0]) for row in rows]

    def has_several(self, text: Any) -> bool:
        """Whether a text is several statements.

        1.5 reads IMPORT DATABASE as what it imports, between a BEGIN and a COMMIT without text.
        """
        if not isinstance(text, str):
            return False
        count, imports = 0, False
        for statement in self.connection.extract_statements(text):
            if statement.query:
                count += not imports
            else:
                imports = not imports
                count += imports
        return count > 1

    def databases(self) -> list[str]:
        """Names of the attached databases that have a model catalog."""
        rows = self.read(
            "SELECT database_name FROM system.main.duckdb_tables() "
            "WHERE schema_name = 'sqlml' AND table_name = 'catalog_models'"
        )
        return [str(row[0]) for row in rows]

    # -- what the catalog needs (catalog.Connection)

    def read(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Rows of a query in the user's transaction.

        Raises:
            CatalogError: a table or column of ours is missing; the transaction goes on.
        """
        try:
            relation = self.connection.sql(sql, params=list(params))
        except (duckdb.BinderException, duckdb.CatalogException) as error:
            raise CatalogError(
                f"the model catalog is damaged ({_first_line(error)}); DROP SCHEMA sqlml CASCADE "
                "and create the models again"
            ) from None
        rows: list[tuple[Any, ...]] = relation.fetchall()
        return rows

    def write(self, sql: str, params: Sequence[Any] = ()) -> None:
        """Run a statement in the user's transaction."""
        self.connection.execute(sql, list(params)).fetchall()

    def schema(self, database: str | None) -> str:
        """The qualified schema of the model catalog, in the current database or another.

        The bare name would be ambiguous beside a database that is itself called sqlml.
        """
        if database is None:
            ((database,),) = self.read("SELECT system.main.current_database()")
        return f"{self.quote(str(database))}.{self.quote('sqlml')}"

    def tables(self, schema: str) -> frozenset[str]:
        """See `Connection`."""
        database = schema.removesuffix('."sqlml"').removeprefix('"').removesuffix('"')
        return sound_tables(self.read, database.replace('""', '"'), HAS_TRIGGERS)

    @property
    def keeps_types(self) -> bool:
        """See `Connection`: 1.5 opens no file whose log has a type in a schema of that log."""
        return hasattr(self.connection, "complete")

    def type(self, name: str) -> str | None:
        """See `Connection`."""
        try:
            (found,) = self.connection.sql(f"SELECT CAST(NULL AS {name})").types
        except (duckdb.BinderException, duckdb.CatalogException):
            return None
        return str(found)

    def parameters(self, function: str, name: str) -> list[str]:
        """The lists of parameters of a macro, as the engine shows them when a call fits none.

        It takes no look at other functions: duckdb_functions() writes out the bodies of all. No
        macro has a parameter of that name, so that none is bound, which might run what it holds.
        """
        try:
            self.connection.sql(f'SELECT {function}("{uuid4().hex}" := NULL)')
        except (duckdb.BinderException, duckdb.CatalogException) as error:
            return re.findall(rf"^\t{name}\((.*)\)$", str(error), re.MULTILINE)
        return []

    def exists(self, schema: str) -> bool:
        """See `Connection`."""
        return "catalog_models" in self.tables(schema)

    def atomic(self, work: Callable[[], None]) -> None:
        """Run `work` in the open transaction, or in one of its own that it ends.

        Whole or not at all: a Ctrl-C meanwhile is raised behind it.
        """
        if self.in_transaction():
            try:
                with interruption_after():
                    work()
            except _CONFLICTS as error:
                raise _conflict(error, "ROLLBACK, and try again") from None
            return
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with interruption_after():
                    self._in_own_transaction(work)
                return
            except _CONFLICTS as error:
                # Two connections may make the catalog's schema at the same moment.
                if "conflict" not in str(error).lower() or attempt == _ATTEMPTS:
                    raise _conflict(error, "try again") from None
                time.sleep(0.01 * attempt)

    def _in_own_transaction(self, work: Callable[[], None]) -> None:
        self.connection.execute("BEGIN TRANSACTION")
        try:
            work()
        except BaseException:
            self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")

    def in_transaction(self) -> bool:
        """Whether the user has a transaction open: then two statements share its number."""
        ask = "SELECT system.main.txid_current()"
        return self.read(ask) == self.read(ask)

    def quote(self, name: str) -> str:
        """A name as a quoted identifier."""
        return '"' + name.replace('"', '""') + '"'

    def collected(self, digests: Sequence[str]) -> None:
        """See `catalog.Connection`: their functions may go."""
        dropped(digests)

    def has_database(self, name: str) -> bool:
        """Whether a database of this name is attached."""
        ask = "SELECT 1 FROM system.main.duckdb_databases() "
        ask += f"WHERE {folded('database_name')} = ?"
        return bool(self.read(ask, [fold(name)]))

    def read_file(self, path: str) -> list[tuple[str, int]]:
        """Names and sizes of the files that `path` means, as the engine sees them.

        Raises:
            ArtifactError: one of them is no regular file.
        """
        self._check_regular(path)
        return [
            (str(name), int(size))
            for name, size in self.read(
                "SELECT filename, size FROM system.main.read_blob(?)", [path]
            )
        ]

    def file_content(self, path: str) -> bytes:
        """The bytes of one file, read by the engine under its own access settings.

        Raises:
            ArtifactError: it is no regular file.
        """
        self._check_regular(path)
        ((content,),) = self.read("SELECT content FROM system.main.read_blob(?)", [path])
        return bytes(content)

    def _check_regular(self, path: str) -> None:
        """The engine says what `path` means, if it may look there, and opens nothing for that."""
        if local_path(path) is None:
            return
        for (name,) in self.read("SELECT filename FROM system.main.read_blob(?)", [path]):
            check_regular(str(name))

    def write_file(self, path: str, content: bytes) -> None:
        """Write one file through the engine, under its own access settings.

        Raises:
            ArtifactError: something is there that is no regular file.
        """
        self._check_regular(path)  # which first asks whether the engine may look there
        check_regular(path)  # the path itself: what is written to is no pattern
        target = "'" + path.replace("'", "''") + "'"
        self.write(f"COPY (SELECT ?::BLOB AS content) TO {target} (FORMAT BLOB)", [content])

    def fetch_frame(self, query: str) -> Any:
        """See `Host`: as a subquery, since what is no query is none there either."""
        try:
            return self.relation(f"FROM (\n{query}\n)").df()
        except duckdb.ParserException as error:
            raise ParseError(str(error)) from None


_CONFLICTS = (duckdb.TransactionException, duckdb.CatalogException)


def _conflict(error: duckdb.Error, advice: str) -> Exception:
    """What to raise for an error of a change: one about a conflict names no tables of ours."""
    if "conflict" not in str(error).lower():
        return error
    return ConflictError(f"another transaction changes the same models; {advice}")


def _called_function(name: Any, arguments: Any, result: Any) -> EngineFunction | None:
    """The function that a row of the catalog's calls names; None where the row is damaged."""
    kinds = tuple(map(str, arguments or ()))
    if str(name).startswith(ANY):
        made = any_function(kinds[1:], str(result))
        return made if made is not None and made.name == name else None
    spec = parse_name(str(name))
    if spec is None or spec.name != name or not is_signature(kinds, str(result)):
        return None
    return EngineFunction(spec.name, None, kinds, str(result))


def _first_line(error: Exception) -> str:
    """The engine's message without the excerpt of our probe."""
    return str(error).split("\n\nLINE ")[0].split("\nLINE ")[0]
