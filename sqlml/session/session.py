"""The `Session`: a DuckDB connection that understands models.

::

    text -> statement -> importer -> Program -> catalog                      CREATE MODEL
    text -> query -> planner -> Plan -> engine function -> rewritten SQL     SELECT predict(...)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

import duckdb

from sqlml.catalog.model import Reference
from sqlml.errors import ParseError
from sqlml.parsing.statements import AlterModel, Explain, Query, SetOption, Statement, TrainModel
from sqlml.planner.plan.plan import Plan
from sqlml.planner.rewrites.table_form import replace_table_forms
from sqlml.planner.syntax.statement_text import Text, classify_text
from sqlml.session.engine_errors import UserCall, reworded_errors, user_errors
from sqlml.session.relation import PlanText, render_session_html, unwrap, wrap
from sqlml.session.services import Services, open_services
from sqlml.statements.connection_models import format_pairs_answer
from sqlml.statements.dispatch import bind_parameters, carry_out
from sqlml.statements.model_methods import ModelMethods

T = TypeVar("T")

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlml.report.make_report import Report

    # Type checkers see the methods of DuckDB, which `_add_delegates` adds. But a Session is
    # not a DuckDBPyConnection. Pass `Session.connection` where one is required.
    _DuckDBMethods = duckdb.DuckDBPyConnection
else:
    _DuckDBMethods = object


class Session(ModelMethods[duckdb.DuckDBPyRelation], _DuckDBMethods):
    """A DuckDB connection with statements and functions for models.

    A Session has all methods of a DuckDBPyConnection. `execute` and `sql` also accept statements
    about models (CREATE MODEL, SHOW MODELS, ...) and functions that call models (`predict`,
    `explain`, `ml_evaluate`, ...). Models are stored in the schema `sqlml` of their database, in
    the user's transaction. Use a separate `cursor()` in each additional thread. `sqlml.connect` and
    `sqlml.attach` open sessions. `close()` or the end of a `with` block closes a session.

    Errors about models are instances of `sqlml.errors.SqlmlError`. All other errors are DuckDB's.

    Args:
        connection: an open DuckDB connection. Closing the Session closes this connection.
        allow_pickle: whether CREATE MODEL may read pickles, which can execute code.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, *, allow_pickle: bool = False
    ) -> None:
        services = open_services(connection, allow_pickle=allow_pickle)
        self._set_services(connection, services, owns_registry=True)

    def _set_services(
        self, connection: duckdb.DuckDBPyConnection, services: Services, owns_registry: bool
    ) -> None:
        self._connection = connection
        self._services = services
        self._models = services.models
        self._owns_registry = owns_registry
        # Whether an open result makes `sql` fail, as DuckDB 2.0 does for every open result. The
        # result of SHOW does so only after the user has begun to read rows.
        self._open_result: Literal["ignored", "blocks once read", "blocks"] = "blocks"

    # Statements

    def execute(self, query: str | duckdb.Statement, parameters: object = None) -> Self:
        """Run one or more statements, as DuckDB's `execute` does.

        Args:
            query: the SQL, or a statement from `duckdb.extract_statements`.
            parameters: values for the parameters of the last statement, as a list for `?` and `$1`,
                or as a dict for `$name`.

        Returns:
            The session. Methods such as `fetchall()` return the result of the last statement.

        Raises:
            SqlmlError: a statement or call about a model fails. `sqlml.errors` has the subclasses.
            duckdb.Error: anything else fails.
        """
        run_native = partial(self._services.engine.execute, query, parameters)  # type: ignore[arg-type]
        result = self._run(query, run_native, partial(self._execute_one, parameters=parameters))
        return None if result is None else self  # type: ignore[return-value]  # None: empty SQL

    def executemany(self, query: str | duckdb.Statement, parameters: Any = None) -> Self:
        """Run a statement once for each set of parameters.

        Args:
            query: one statement.
            parameters: a list of the parameters of each run, in a form that `execute` accepts.
        """
        text = classify_text(query)
        if text.calls_models or not all(isinstance(s, Query) for s in text.statements):
            for row in parameters:
                self.execute(query, row)
            return self
        run_native = partial(self._services.engine.executemany, query, parameters)  # type: ignore[arg-type]
        functions = self._services.functions
        result = self._run(query, run_native, lambda _: functions.run_registering(run_native))
        return None if result is None else self  # type: ignore[return-value]

    def sql(
        self, query: str | duckdb.Statement, *, alias: str = "", params: object = None
    ) -> duckdb.DuckDBPyRelation:
        """Make a lazy relation from a query, like the `sql` method of DuckDB.

        Args:
            query: one or more statements. The last one makes the relation.
            alias: the name of the relation in SQL.
            params: values for the parameters of the last statement.

        Returns:
            A DuckDB relation (`show()`, `df()`, `fetchall()`, ...), or None if the last statement
            has no result. If the query calls models, reading the relation may raise `SqlmlError`.
        """
        run_native = partial(self._services.engine.make_relation, query, params, alias)  # type: ignore[arg-type]
        make_relation = partial(self._make_relation, parameters=params, alias=alias)
        relation = self._run(query, run_native, make_relation)
        if isinstance(query, str) and query.lstrip()[:7].lower() == "explain":
            relation = wrap(relation, self._connection.interrupt)  # A notebook shows the plan.
        return relation  # type: ignore[no-any-return]

    query = sql

    def explain(self, query: str, params: object = None, analyze: bool = False) -> str:
        """Return the model plan of a query, followed by the plan of the engine, as text.

        In contrast, `Scorer.explain` explains predictions.

        Args:
            query: one query, with or without a leading EXPLAIN.
            params: values for the parameters of the query.
            analyze: run the query once, as EXPLAIN ANALYZE does, and report the measurements.

        Raises:
            ParseError: `query` contains several statements, or a statement that is not a query.
        """
        with self._calling(query):
            statements = self._prepare(classify_text(query)) or (Query(query),)
            if len(statements) != 1 or not isinstance(statements[0], Query | Explain):
                raise ParseError("explain takes one query; CREATE MODEL and the like have no plan")
            statement = statements[0]
            sql = statement.query if isinstance(statement, Explain) else statement.sql
            analyze = analyze or (isinstance(statement, Explain) and statement.analyze)
            self._services.engine.uses_models = True
            self._services.engine.finish_result()
            rows = self._services.queries.explain(sql, params, analyze)
        return PlanText("\n\n".join(text for _, text in rows))

    def plan(self, query: str, params: object = None, analyze: bool = False) -> Plan | None:
        """Return the Plan of a query, or None if the query calls no model.

        `Plan.to_dict()` returns plain values. A notebook draws the Plan.

        Args:
            query: one query.
            params: values for the parameters of the query.
            analyze: run the query once, and add the measurements to the Plan.
        """
        with self._calling():
            if analyze:
                self._services.engine.finish_result()
                return self._services.queries.analyze(query, params)
            return self._services.queries.plan_with_rows(query, params)

    def report(
        self,
        model: str,
        data: str,
        *,
        label: str | Sequence[str] | None = None,
        by: str | Sequence[str] | None = None,
        parameters: Sequence[object] | dict[str, object] | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> Report:
        """Make a report on how a model performs on the rows of `data`.

        The report shows the model and the inputs, metrics, the importance of columns, metrics by
        group, the distribution of scores, drift since training, cost and plan. The query runs once,
        its rows are stored in a temporary table, and the model scores the rows once.

        Args:
            model: `model` or `database.model`, or a version such as `model/2` or `model@alias`.
            data: a query, or the name of a table.
            label: the column with the true values, or one column per target. The default is the
                label on which sqlml trained the model, if `data` contains this column. Without
                labels, the report does not measure quality.
            by: one or more columns that divide the rows into groups.
            parameters: values for the parameters of the query.
            progress: a function that is called with a short text at each step.

        Raises:
            UnknownModelError: the model or version does not exist.
            ParseError: `data` is neither one query nor the name of a table.
            BindError: `data` lacks a column that the model, `label` or `by` needs.
            MissingDependencyError: the extra `report` is not installed.
            ScoringError, duckdb.Error: the query fails, or its rows cannot be scored.
        """
        from sqlml.report.make_report import make_report  # Most sessions make no report.

        with self._calling():
            self._before_change()  # This finishes an open result.
            if parameters:
                data = self._models.host.with_values(data, parameters)
            report_step = progress or (lambda step: None)
            return make_report(self, self._models, model, data, label, by, report_step)

    # The connection

    def compile_for_clients(self) -> int:
        """Compile the models of the current database for DuckDB's clients without Python.

        CREATE MODEL and CREATE VIEW do this for the version of sqlml that runs them. Call this
        method for models and views of an earlier version. Return the number of models.

        Raises:
            CatalogError: the database is read-only, or another session changes a model.
        """
        names = [str(row[0]) for row in self.sql("SHOW MODELS").fetchall()]
        with self._calling():
            self._before_change()
            for name in names:
                self._models.changes.compile_again(Reference(name, None))
            self._services.client_views.compile_again()
        return len(names)

    def cursor(self) -> Session:
        """Open another Session on the same database, for use in another thread."""
        cursor = self._connection.cursor()
        services = open_services(
            cursor,
            allow_pickle=self._models.allow_pickle,
            registry=self._services.engine.registry,
            loaded=self._services.loaded,
        )
        session = Session.__new__(Session)
        session._set_services(cursor, services, owns_registry=False)
        return session

    duplicate = cursor

    def close(self) -> None:
        """Close the session and its DuckDB connection."""
        with suppress(duckdb.Error):  # Already closed, or in a failed transaction.
            self._refresh_macros()
        if self._owns_registry:
            self._services.engine.registry.close()
        self._connection.close()

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The DuckDB connection that this session wraps."""
        return self._connection

    def arrow(self, rows_per_batch: int = 1_000_000) -> pa.Table:
        """Return the result as a pyarrow Table. This method works on every version of DuckDB."""
        is_new = hasattr(self._connection, "to_arrow_table")
        name = "to_arrow_table" if is_new else "fetch_arrow_table"
        return self._call_native(name, getattr(self._connection, name), (rows_per_batch,), {})

    def _repr_html_(self) -> str:
        return render_session_html(self)

    def __dir__(self) -> list[str]:
        names = {*object.__dir__(self), *dir(self._connection)}
        return sorted(n for n in names if not n.startswith("_") or n.startswith("__"))

    if not TYPE_CHECKING:  # Otherwise, type checkers would accept misspelled methods.

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            return getattr(self._connection, name)

    def _call_native(
        self, name: str, method: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Call a method of the connection; register missing functions and translate errors."""
        engine = self._services.engine
        texts: list[str] = []
        call = method
        if args or kwargs:
            texts = [a for a in (*args, *kwargs.values()) if isinstance(a, str)]
            unwrapped = {key: unwrap(value) for key, value in kwargs.items()}
            call = partial(method, *map(unwrap, args), **unwrapped)
        if texts and name == "create_function":
            self._services.macros.drop_bare_macro(texts[0])
        is_fetchone = name == "fetchone"
        # Only the first row may be slow. After that, DuckDB works only a little ahead.
        stop = None if is_fetchone and engine.is_result_read else self._connection.interrupt
        with user_errors(stop, texts, engine):
            result = self._services.functions.run_registering(call)
        engine.is_result_read = is_fetchone
        if self._open_result == "blocks once read" and name.startswith("fetch"):
            self._open_result = "blocks"
        if name == "commit":
            self._refresh_macros()
        return self if result is self._connection else result

    # The stages of a statement

    def _calling(self, query: Any = None) -> UserCall:
        return UserCall(self._services.engine, query)

    def _before_change(self) -> None:
        self._services.engine.finish_result()

    def _run(
        self, query: Any, run_native: Callable[[], Any], run_last: Callable[[Statement], Any]
    ) -> Any:
        """Run the statements of `query` one by one, and return the result of the last statement.

        If all statements are plain SQL of the engine, `run_native` runs them together. Otherwise,
        `run_last` runs the last statement and returns the result.
        """
        text = classify_text(query)
        services = self._services
        with self._calling(query) as call:
            if self._open_result != "blocks":
                services.engine.finish_result()
                self._open_result = "blocks"
            is_pending = services.macros.has_outdated or services.arrivals.unseen
            if text.is_engine_sql and not is_pending:
                return services.functions.run_registering(run_native, query)
            statements = self._prepare(text)
            for name in text.defined_functions:  # The user's function replaces sqlml's macro.
                services.macros.drop_bare_macro(name)
            if not statements:
                with services.arrivals.watch(query):
                    result = services.functions.run_registering(run_native, query)
            else:
                *earlier_statements, last_statement = statements
                for statement in earlier_statements:
                    call.begin_statement(statement)
                    self._execute_one(statement, None)
                    services.engine.finish_result()
                call.begin_statement(last_statement)
                result = run_last(last_statement)
            if services.macros.has_outdated and text.ends_transaction:
                self._refresh_macros()
            return result

    def _prepare(self, text: Text) -> tuple[Statement, ...]:
        """Return the statements of a text, after work that waited for the previous statement.

        Like DuckDB 1.5, check the syntax of all statements before any statement runs.
        """
        statements = text.statements
        for statement in statements if len(statements) > 1 else ():
            if isinstance(statement, Query):
                self._connection.extract_statements(replace_table_forms(statement.sql))
        if self._services.arrivals.unseen:
            self._services.engine.finish_result()
            self._services.arrivals.register_unseen()
        self._refresh_macros()
        return statements

    def _refresh_macros(self) -> None:
        """Rebuild outdated macros if the transaction that delayed them has ended."""
        if self._services.macros.has_outdated:
            self._services.engine.finish_result()
            with suppress(duckdb.Error):  # After a conflict, the next statement tries again.
                self._services.macros.refresh()

    def _execute_one(self, statement: Statement, parameters: Any) -> Session:
        services = self._services
        services.engine.finish_result()
        services.engine.uses_models = True
        if isinstance(statement, Query):
            sql, parameters = services.queries.rewrite(statement.sql, parameters, runs=True)
            with services.arrivals.watch(statement.sql):
                execute = partial(services.engine.execute, parameters=parameters)
                self._run_planned(statement.sql, sql, execute)
        else:
            answer = self._carry_out(statement, parameters)
            if answer is not None:
                services.engine.execute(*answer)
                is_change = isinstance(statement, AlterModel | TrainModel)
                self._open_result = "ignored" if is_change else "blocks once read"
        return self

    def _make_relation(self, statement: Statement, parameters: Any, alias: str) -> Any:
        services = self._services
        services.engine.uses_models = True
        if isinstance(statement, Query):
            sql, parameters = services.queries.rewrite(statement.sql, parameters)
            make_native = partial(services.engine.make_relation, parameters=parameters, alias=alias)
            relation = self._run_planned(statement.sql, sql, make_native)
        else:
            answer = self._carry_out(statement, parameters)
            relation = None if answer is None else services.engine.make_relation(*answer, alias)
        return wrap(relation, self._connection.interrupt)

    def _run_planned(self, statement: str, planned_sql: str, execute: Callable[[str], T]) -> T:
        """Run `execute` with the planned form of a statement, or with a form for clients."""

        def run(sql: str) -> T:
            with reworded_errors(sql, statement):
                return self._services.functions.run_registering(partial(execute, sql))

        return self._services.client_views.run(statement, planned_sql, run)

    def _carry_out(self, statement: Statement, parameters: Any) -> tuple[str, Any] | None:
        """Carry out a statement; return the query and the parameters of the answer, or None."""
        services = self._services
        if isinstance(statement, SetOption):
            services.queries.set(statement.option, statement.value)
            return "SELECT true AS Success LIMIT 0", None
        if isinstance(statement, Explain):
            if services.queries.plan(statement.query, parameters) is None:
                return statement.sql, parameters
            rows = services.queries.explain(statement.query, parameters, statement.analyze)
            return format_pairs_answer(("explain_key", "explain_value"), rows)
        return carry_out(self._models, bind_parameters(self._models.host, statement, parameters))


def _make_delegate(name: str, doc: str | None) -> Callable[..., Any]:
    """Return a method of a Session that calls the method `name` of its connection."""

    def delegate(self: Session, *args: Any, **kwargs: Any) -> Any:
        return self._call_native(name, getattr(self._connection, name), args, kwargs)

    delegate.__name__, delegate.__qualname__, delegate.__doc__ = name, f"Session.{name}", doc
    return delegate


def _add_delegates() -> None:
    """Give Session the methods of DuckDB's connection that it does not have.

    They are found faster than by `__getattr__`, and help() shows them.
    """
    own_names = set(dir(Session))  # Without those of the metaclass, which has a `register`.
    for name in dir(duckdb.DuckDBPyConnection):
        native = getattr(duckdb.DuckDBPyConnection, name)
        if not name.startswith("_") and callable(native) and name not in own_names:
            setattr(Session, name, _make_delegate(name, native.__doc__))


_add_delegates()
