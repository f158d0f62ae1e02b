"""`Session`: a DuckDB connection that knows models; the one module that sees every stage.

::

    text -> statement -> importer -> Program -> catalog                      CREATE MODEL
    text -> query -> planner -> Plan -> engine function -> rewritten SQL     SELECT predict(..)
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import duckdb

from sqlml import answers
from sqlml.arrivals import Arrivals
from sqlml.calling import Calling
from sqlml.catalog.catalog import Catalog
from sqlml.catalog.changes import Changes
from sqlml.catalog.macros import Macros, defined_functions
from sqlml.catalog.programs import Loaded, TablePrograms
from sqlml.errors import CatalogError, ParseError, SqlmlError
from sqlml.exporting import export_to_file
from sqlml.first_look import ends_a_transaction, is_one_query, is_the_engines
from sqlml.front.parse import mentions_models, parse
from sqlml.front.statements import (
    AlterModel,
    CreateModel,
    DropModel,
    Explain,
    Query,
    SetOption,
    Statement,
)
from sqlml.life_cycle import LifeCycle
from sqlml.lookup import Lookup
from sqlml.planner.plan import Plan
from sqlml.planner.syntax.arguments import seems_to_call
from sqlml.planner.table_form import parsable
from sqlml.registration import calls_of
from sqlml.relation import typed, unwrap, wrap
from sqlml.rewording import reworded_errors
from sqlml.scoring import Scoring
from sqlml.udfs.duckdb import DuckDBEngine
from sqlml.udfs.registry import Registry


class Session:
    """A DuckDB connection on which models are statements and functions.

    Everything a DuckDBPyConnection does is delegated to it, errors included; `execute` and `sql`
    also take the statements about models (CREATE, DROP, SHOW, DESCRIBE, EXPORT MODEL, EXPLAIN) and
    the functions `predict`, `predict_proba`, `predict_score` and `transform`. Models live in the
    schema `sqlml` of their database, in the user's transaction. Use `cursor()` for each further
    thread. Made by `sqlml.connect` and `sqlml.attach`; it closes with `with` or `close()`.

    Errors are sqlml's own (`sqlml.errors`, all `SqlmlError`s) where a model is concerned, and
    DuckDB's elsewhere.

    Args:
        connection: an open DuckDB connection; the Session closes it when it is closed itself.
        allow_pickle: let CREATE MODEL read pickles, which execute code.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        *,
        allow_pickle: bool = False,
        _registry: Registry | None = None,
        _loaded: Loaded | None = None,
    ) -> None:
        self._connection = connection
        self._allow_pickle = allow_pickle
        self._loaded = Loaded() if _loaded is None else _loaded
        self._owns_registry = _registry is None
        self._engine = DuckDBEngine(connection, _registry or Registry(connection))
        self._catalog = Catalog(self._engine, TablePrograms(self._engine, self._loaded))
        self._macros = Macros(self._engine)
        changes = Changes(self._engine, self._catalog, self._macros, calls_of)
        self._life_cycle = LifeCycle(self._engine, self._catalog, changes, allow_pickle)
        self._lookup = Lookup(self._catalog)
        self._scoring = Scoring(self._engine, self._catalog, self._lookup)
        beside = partial(_scoring_beside, connection, self._engine.registry, self._loaded)
        self._arrivals = Arrivals(self._scoring, beside)  # holds no session: a cycle goes late
        if self._owns_registry:
            with suppress(CatalogError):  # who asks for its models is told what is wrong with it
                if self._catalog.schema_exists():
                    self._scoring.register_for_views()
                    with suppress(duckdb.Error, SqlmlError):  # read-only, or others are at it
                        self._macros.catch_up()
            self._scoring.register_for_macros()

    # -- statements

    def execute(self, query: Any, parameters: Any = None) -> Any:
        """Run one or more statements; fetch the last one's result from the returned Session."""
        with self._calling(query) as calling:
            settled = not self._macros.outdated and not self._arrivals.unseen
            if settled and is_the_engines(query):
                made = self._scoring.retrying(
                    lambda: self._engine.execute(query, parameters), query
                )
                return None if made is None else self  # 2.0 returns None for an empty text
            if settled and isinstance(query, str) and is_one_query(query):
                self._engine.finish()
                self._run(Query(query), parameters)
                return self
            statements = self._statements(query)
            self._make_room(query)
            self._catch_up()
            if not statements:
                with self._arrivals.of(query):
                    made = self._scoring.retrying(
                        lambda: self._engine.execute(query, parameters), query
                    )
                self._refresh(query)
                return None if made is None else self
            self._engine.finish()
            for statement in statements[:-1]:
                calling.comes_to(statement)
                self._run(statement, None)
                self._engine.finish()
            calling.comes_to(statements[-1])
            self._run(statements[-1], parameters)
            self._refresh(query)
        return self

    def executemany(self, query: Any, parameters: Any = None) -> Any:
        """Run a statement once for each set of parameters."""
        with self._calling(query):
            statements = self._statements(query)
            if all(isinstance(s, Query) for s in statements) and not seems_to_call(query):
                made = self._scoring.retrying(lambda: self._engine.executemany(query, parameters))
                return None if made is None else self
        for one in parameters:
            self.execute(query, one)
        return self

    def sql(self, query: Any, *, alias: str = "", params: Any = None) -> Any:
        """A query as a lazy relation; None for a statement that has no result.

        Where models are called, it is a `Relation` around DuckDB's own, whose results raise
        sqlml's typed errors.
        """
        with self._calling(query) as calling:
            statements = self._statements(query)
            self._make_room(query)
            self._catch_up()
            if not statements:
                with self._arrivals.of(query):
                    native = self._scoring.retrying(
                        lambda: self._engine.relation(query, params, alias), query
                    )
                self._refresh(query)
                return native
            for statement in statements[:-1]:
                calling.comes_to(statement)
                self._run(statement, None)
                self._engine.finish()
            calling.comes_to(statements[-1])
            made = wrap(self._relation(statements[-1], params, alias))
            self._refresh(query)
            return made

    query = sql

    def explain(self, query: str, params: Any = None, analyze: bool = False) -> str:
        """The model plan of a query above the engine's own plan, as text.

        Args:
            analyze: run the query once, as EXPLAIN ANALYZE does, and tell what was measured.

        Raises:
            ParseError: several statements, or one that is no query.
        """
        with self._calling(query):
            statements = self._statements(query) or (Query(query),)
            if len(statements) != 1 or not isinstance(statements[0], Query | Explain):
                raise ParseError("explain takes one query; CREATE MODEL and the like have no plan")
            statement = statements[0]
            sql = statement.query if isinstance(statement, Explain) else statement.sql
            analyze = analyze or (isinstance(statement, Explain) and statement.analyze)
            self._engine.about_models = True
            self._engine.finish()
            rows = self._scoring.explained(sql, params, analyze)
        return "\n\n".join(text for _, text in rows)

    def plan(self, query: str, params: Any = None, analyze: bool = False) -> Plan | None:
        """The Plan of a query that calls models; None when it calls none.

        Args:
            analyze: run the query once, and add to the Plan what was measured.
        """
        with self._calling():
            if analyze:
                self._engine.finish()
                return self._scoring.analysed(query, params)
            return self._scoring.told(query, params)

    def create_model(
        self,
        name: str,
        model: Any,
        *,
        inputs: Sequence[str] | Mapping[str, str] | None = None,
        or_replace: bool = False,
        if_not_exists: bool = False,
        comment: str | None = None,
        **options: Any,
    ) -> Session:
        """Register a fitted object (any that the README lists), as CREATE MODEL does a file.

        Args:
            name: `model` or `database.model`.
            inputs: names of the columns in training order, or name -> SQL type, where the object
                was fitted without names.
            options: `backend`, `strategy`, `device`; and `verify`: True compares the stored model
                with the object on rows made for that, and refuses one that answers otherwise,
                "record" only keeps what was found, False compares nothing.

        Raises:
            UnsupportedModelError, ModelExistsError, ConfigError, VerificationError.
        """
        with self._calling():
            self._engine.finish()
            self._life_cycle.create_from_object(
                name,
                model,
                inputs=inputs,
                comment=comment,
                or_replace=or_replace,
                if_not_exists=if_not_exists,
                options=options,
            )
            self._scoring.register_for_macros()
        return self

    def add_version(
        self,
        name: str,
        model: Any,
        *,
        number: int | None = None,
        inputs: Sequence[str] | Mapping[str, str] | None = None,
        comment: str | None = None,
        **options: Any,
    ) -> Session:
        """Add a version to a model, as ALTER MODEL .. ADD VERSION does; the default one stays.

        Args:
            name: `model` or `database.model`.
            number: of the version; None: one more than the last one ever made.
            inputs, options: as `create_model` takes them.

        Raises:
            UnknownModelError, UnsupportedModelError, ModelExistsError, ConfigError.
        """
        with self._calling():
            self._engine.finish()
            self._life_cycle.add_object(
                name, model, number=number, inputs=inputs, comment=comment, options=options
            )
        return self

    def export_model(
        self, name: str, path: str | os.PathLike[str], *, format: str | None = None
    ) -> Session:
        """Write a model to a file, as EXPORT MODEL does.

        Args:
            name: `model` or `database.model`, also of a version: `model/2`.
            format: "ONNX", "SQLML" or "SQL" (macros); by default what the ending of the path says.

        Raises:
            UnknownModelError, ConfigError.
            BackendError: the model has no form in that format; the message says why.
        """
        with self._calling():
            self._engine.finish()
            model = self._lookup.model(name)
            export_to_file(model, os.fspath(path), format, self._engine)
        return self

    # -- connection

    def cursor(self) -> Session:
        """A second connection to the same database, for another thread."""
        return Session(
            self._connection.cursor(),
            allow_pickle=self._allow_pickle,
            _registry=self._engine.registry,
            _loaded=self._loaded,
        )

    duplicate = cursor

    def close(self) -> None:
        """Close the connection."""
        with suppress(duckdb.Error):  # it may be closed already, or its transaction have failed
            self._refresh()
        if self._owns_registry:
            self._engine.registry.close()
        self._connection.close()

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The DuckDB connection itself."""
        return self._connection

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def arrow(self, rows_per_batch: int = 1_000_000) -> Any:
        """The result as a pyarrow Table, on every version of DuckDB."""
        for method in ("to_arrow_table", "fetch_arrow_table"):
            if hasattr(self._connection, method):
                return self._delegated(getattr(self._connection, method))(rows_per_batch)
        raise AttributeError("arrow")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        value = getattr(self._connection, name)
        return self._delegated(value) if callable(value) else value

    def _delegated(self, method: Any) -> Any:
        name = getattr(method, "__name__", "")

        def call(*args: Any, **kwargs: Any) -> Any:
            texts: list[str] = []
            if args or kwargs:
                texts = [a for a in (*args, *kwargs.values()) if isinstance(a, str)]
                args = tuple(map(unwrap, args))
                kwargs = {k: unwrap(v) for k, v in kwargs.items()}
            if texts and name == "create_function":
                self._macros.make_room(texts[0])
            try:
                result = self._scoring.retrying(lambda: method(*args, **kwargs))
            except (duckdb.Error, RuntimeError) as error:
                engine = self._engine
                raise typed(error, texts, engine.knows_function, engine.is_interrupt) from None
            if name == "commit":
                self._refresh()
            return self if result is self._connection else result

        return call

    # -- the stages

    def _calling(self, query: Any = None) -> Calling:
        return Calling(self._engine, query)

    def _statements(self, query: Any) -> tuple[Statement, ...]:
        """The statements of a text that concerns models; none when it is all the engine's.

        Raises:
            ParseError: a statement about models breaks the grammar.
            duckdb.ParserException: another one does; then none of them is run (as in DuckDB 1.5).
        """
        if not isinstance(query, str) or not mentions_models(query):
            return ()
        try:
            found = parse(query)
        except ParseError as error:
            if error.sql is None:  # not even tokens: the engine says what is wrong
                return ()
            raise
        if len(found) > 1:
            if all(isinstance(s, Query | Explain) for s in found) and not seems_to_call(query):
                return ()  # as one text, so that the places in the engine's errors are right
            for statement in found:
                if isinstance(statement, Query):
                    self._connection.extract_statements(parsable(statement.sql))
        return found

    def _catch_up(self) -> None:
        """Before a statement: what waited for the end of the one before it."""
        if self._arrivals.unseen:
            self._engine.finish()
            self._arrivals.catch_up()
        self._refresh()

    def _refresh(self, query: Any = "COMMIT") -> None:
        """Before a statement, and after one that ends a transaction: macros that waited for it."""
        if self._macros.outdated and ends_a_transaction(query):
            self._engine.finish()
            with suppress(duckdb.Error):  # others are at it all the time: the next statement tries
                self._macros.refresh()

    def _make_room(self, query: Any) -> None:
        """A user's own function takes the place of the macro that we made for plain connections."""
        if isinstance(query, str):
            for name in defined_functions(query):
                self._macros.make_room(name)

    def _run(self, statement: Statement, parameters: Any) -> None:
        self._engine.about_models = True
        if isinstance(statement, Query):
            sql, parameters = self._scoring.rewritten(statement.sql, parameters, runs=True)
            with self._arrivals.of(sql), reworded_errors(sql, statement.sql):
                self._scoring.retrying(lambda: self._engine.execute(sql, parameters))
            return
        answer = self._answer(statement, parameters)
        if answer is not None:
            self._engine.execute(*answer)

    def _relation(self, statement: Statement, parameters: Any, alias: str) -> Any:
        self._engine.about_models = True
        if isinstance(statement, Query):
            sql, parameters = self._scoring.rewritten(statement.sql, parameters)
            with reworded_errors(sql, statement.sql):
                made = self._scoring.retrying(lambda: self._engine.relation(sql, parameters, alias))
            return made
        answer = self._answer(statement, parameters)
        return None if answer is None else self._engine.relation(*answer, alias)

    def _answer(self, statement: Statement, parameters: Any) -> tuple[str, Any] | None:
        """Carry out a statement about models; the query whose result is its answer, if any."""
        if isinstance(statement, SetOption):
            self._scoring.set(statement.option, statement.value)
            return "SELECT true AS Success LIMIT 0", None
        if isinstance(statement, Explain):
            if self._scoring.plan(statement.query, parameters) is None:
                return statement.sql, parameters
            rows = self._scoring.explained(statement.query, parameters, statement.analyze)
            return answers.rows(("explain_key", "explain_value"), rows)
        answer = self._life_cycle.carry_out(statement)
        if isinstance(statement, AlterModel | DropModel):
            self._lookup.forget()
        if isinstance(statement, CreateModel | AlterModel):
            self._scoring.register_for_macros()
        return answer


@contextmanager
def _scoring_beside(
    connection: duckdb.DuckDBPyConnection, registry: Registry, loaded: Loaded
) -> Iterator[Scoring]:
    """The scoring of another connection to the same database."""
    with Session(connection.cursor(), _registry=registry, _loaded=loaded) as other:
        yield other._scoring
