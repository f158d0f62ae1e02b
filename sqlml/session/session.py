"""`Session`: a DuckDB connection that knows models; the one module that sees every stage.

::

    text -> statement -> importer -> Program -> catalog                      CREATE MODEL
    text -> query -> planner -> Plan -> engine function -> rewritten SQL     SELECT predict(..)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import duckdb

from sqlml.catalog.lookup import Catalog, Lookup
from sqlml.catalog.model import Reference
from sqlml.catalog.model_changes import ModelChanges, VersionChanges
from sqlml.catalog.scoring_macros import Macros, ModelCall
from sqlml.catalog.stored_programs import Loaded, TablePrograms
from sqlml.errors import CatalogError, ParseError, SqlmlError
from sqlml.parsing.statements import (
    AlterModel,
    Explain,
    Query,
    SetOption,
    Statement,
    TrainModel,
)
from sqlml.planner.plan.plan import Plan
from sqlml.planner.rewrites.table_form import parsable
from sqlml.planner.syntax.text import Text, text_of
from sqlml.session.engine_errors import Calling, reworded_errors, user_errors
from sqlml.session.queries import Explaining, Queries
from sqlml.session.registered_functions import Arrivals, Functions
from sqlml.session.relation import PlanText, session_html, unwrap, wrap
from sqlml.statements.background import calls_of, with_parameters
from sqlml.statements.model_methods import ModelMethods
from sqlml.statements.models import Models
from sqlml.statements.models import rows as answer_of
from sqlml.statements.run import carry_out
from sqlml.training.train_estimator import RowTrainers
from sqlml.udfs.duckdb.engine import DuckDBEngine
from sqlml.udfs.duckdb.function_registry import Registry
from sqlml.udfs.duckdb.functions_by_name import dropped
from sqlml.udfs.duckdb.host import DuckDBHost

if TYPE_CHECKING:
    from sqlml.report.make_report import Report


class Session(ModelMethods):
    """A DuckDB connection on which models are statements and functions.

    Everything a DuckDBPyConnection does is delegated to it, errors included; `execute` and `sql`
    also take the statements about models (CREATE MODEL, SHOW MODELS, ..) and the functions that
    call them (`predict`, `explain`, `ml_evaluate`, ..). Models live in the schema `sqlml` of their
    database, in the user's transaction. Use `cursor()` for each further
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
        # When the open result makes `sql` fail, as an open result does in DuckDB 2.0. What SHOW
        # answers must not, unless somebody has begun to read it, who would miss the other rows.
        self._in_the_way: Literal["never", "once read", "as in DuckDB"] = "as in DuckDB"
        self._engine = DuckDBEngine(connection, _registry or Registry(connection))
        host = DuckDBHost(self._engine)
        own = self._engine.connection
        self._catalog = Catalog(own, TablePrograms(own, self._loaded, dropped))
        self._macros = Macros(own)
        self._lookup = Lookup(self._catalog)
        self._functions = Functions(self._engine, self._catalog, host)
        changed = partial(_model_changed, self._lookup, self._functions)
        writer = own, self._catalog, self._macros, calls_of, changed
        changes, versions = ModelChanges(*writer), VersionChanges(*writer)
        programs = self._catalog.programs
        queries = Queries(self._engine, self._functions, self._lookup, host, programs)
        trainers = RowTrainers(host)
        self._models = Models(
            host, self._catalog, changes, versions, allow_pickle, queries.runnable, trainers
        )
        self._queries = queries
        self._explaining = Explaining(self._engine, self._functions, self._queries)
        beside = partial(_functions_beside, connection, self._engine.registry, self._loaded)
        self._arrivals = Arrivals(self._functions, beside)  # holds no session: a cycle goes late
        if self._owns_registry:
            with suppress(CatalogError):  # who asks for its models is told what is wrong with it
                if self._catalog.schema_exists():
                    self._functions.register_for_views()
                    with suppress(duckdb.Error, SqlmlError):  # read-only, or others are at it
                        self._macros.catch_up()
            self._functions.register_for_macros()

    # -- statements

    def execute(self, query: Any, parameters: Any = None) -> Any:
        """Run one or more statements, as DuckDB's `execute` does.

        Args:
            query: the text, or a statement of `duckdb.extract_statements`.
            parameters: values of the last statement's parameters: a list for `?` and `$1`, a dict
                for `$name`.

        Returns:
            The session, from which the last result is fetched (`fetchall()`, `df()`, ..).

        Raises:
            SqlmlError: a model is concerned; which class of `sqlml.errors` says what is wrong.
            duckdb.Error: anything else.
        """
        whole = partial(self._engine.execute, query, parameters)
        made = self._run(query, whole, partial(self._executed, parameters=parameters))
        return None if made is None else self  # 2.0 returns None for an empty text

    def executemany(self, query: Any, parameters: Any = None) -> Any:
        """Run a statement once for each set of parameters.

        Args:
            query: one statement.
            parameters: a list of what `execute` takes as parameters.
        """
        text = text_of(query)
        if text.calls_models or not all(isinstance(s, Query) for s in text.statements):
            for one in parameters:
                self.execute(query, one)
            return self
        whole = partial(self._engine.executemany, query, parameters)
        made = self._run(query, whole, lambda statement: self._functions.retrying(whole))
        return None if made is None else self

    def sql(self, query: Any, *, alias: str = "", params: Any = None) -> Any:
        """A query as a lazy relation, as DuckDB's `sql` gives it.

        Args:
            query: one or more statements; the last one makes the relation.
            alias: the relation's name in SQL.
            params: values of the last statement's parameters.

        Returns:
            A relation of DuckDB (`show()`, `df()`, `fetchall()`, ..); of a query that calls models
            one whose results raise sqlml's typed errors. None for a statement without a result.
        """
        whole = partial(self._engine.relation, query, params, alias)
        found = self._run(query, whole, partial(self._relation, parameters=params, alias=alias))
        if isinstance(query, str) and query.lstrip()[:7].lower() == "explain":
            return wrap(found, self._connection.interrupt)  # a notebook shows it as it is printed
        return found

    query = sql

    def explain(self, query: str, params: Any = None, analyze: bool = False) -> str:
        """The model plan of a query above the engine's own plan, as text.

        Args:
            query: one query; it need not begin with EXPLAIN.
            params: values of its parameters.
            analyze: run the query once, as EXPLAIN ANALYZE does, and report the measurements.

        Raises:
            ParseError: several statements, or one that is not a query.
        """
        with self._calling(query):
            statements = self._prepared(text_of(query)) or (Query(query),)
            if len(statements) != 1 or not isinstance(statements[0], Query | Explain):
                raise ParseError("explain takes one query; CREATE MODEL and the like have no plan")
            statement = statements[0]
            sql = statement.query if isinstance(statement, Explain) else statement.sql
            analyze = analyze or (isinstance(statement, Explain) and statement.analyze)
            self._engine.about_models = True
            self._engine.finish()
            rows = self._explaining.explained(sql, params, analyze)
        return PlanText("\n\n".join(text for _, text in rows))

    def plan(self, query: str, params: Any = None, analyze: bool = False) -> Plan | None:
        """The Plan of a query that calls models; None when it calls none.

        `to_dict()` has it as plain values, and a notebook draws it.

        Args:
            query: one query.
            params: values of its parameters.
            analyze: run the query once, and add to the Plan what was measured.
        """
        with self._calling():
            if analyze:
                self._engine.finish()
                return self._explaining.analysed(query, params)
            return self._queries.told(query, params)

    def report(
        self,
        model: str,
        data: str,
        *,
        label: str | Sequence[str] | None = None,
        by: str | Sequence[str] | None = None,
        parameters: Any = None,
        progress: Callable[[str], None] | None = None,
    ) -> Report:
        """A page about a model on some rows: what it is and reads, how good it is, which columns
        matter, groups, the distribution of its scores, drift since training, cost and plan.

        The query runs once, into a temporary table, and the model scores its rows once.

        Args:
            model: `model` or `database.model`, also of a version: `model/2`, `model@alias`.
            data: a query, or the name of a table.
            label: the column with the true values, of several targets one each; by default the one
                that sqlml trained the model on, where the rows have it. Without labels the page
                tells nothing of quality.
            by: one or more columns that tell groups of rows apart.
            parameters: values of the query's parameters.
            progress: is called with a few words at each step.

        Raises:
            UnknownModelError: no such model or version.
            ParseError: the data is neither one query nor the name of a table.
            BindError: the rows lack a column that the model, `label` or `by` names.
            MissingDependencyError: the extra `report` is not installed.
            ScoringError, duckdb.Error: the query fails, or its rows cannot be scored.
        """
        from sqlml.report.make_report import make_report  # few sessions make any

        with self._calling():
            self._before_change()  # which lets go of an open result
            if parameters:
                data = self._models.host.with_values(data, parameters)
            told = progress or (lambda doing: None)
            return make_report(self, self._models, model, data, label, by, told)

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

    def _repr_html_(self) -> str:
        return session_html(self)

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The DuckDB connection itself."""
        return self._connection

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
            # A result's first row may take long, but then DuckDB works only a little ahead.
            stop = (
                None if name == "fetchone" and self._engine.is_read else self._connection.interrupt
            )
            with user_errors(stop, texts, self._engine):
                result = self._functions.retrying(lambda: method(*args, **kwargs))
            self._engine.is_read = name == "fetchone"
            if name.startswith("fetch") and self._in_the_way == "once read":
                self._in_the_way = "as in DuckDB"
            if name == "commit":
                self._refresh()
            return self if result is self._connection else result

        return call

    # -- the stages

    def _calling(self, query: Any = None) -> Calling:
        return Calling(self._engine, query)

    def _before_change(self) -> None:
        self._engine.finish()

    def _run(self, query: Any, whole: Callable[[], Any], last: Callable[[Statement], Any]) -> Any:
        """A text, statement by statement.

        Args:
            whole: what is done with a text that is the engine's own.
            last: what is done with the last statement of another one; it makes the result.
        """
        text = text_of(query)
        with self._calling(query) as calling:
            if self._in_the_way != "as in DuckDB":
                self._engine.finish()
                self._in_the_way = "as in DuckDB"
            if text.is_the_engines and not self._macros.outdated and not self._arrivals.unseen:
                return self._functions.retrying(whole, query)
            statements = self._prepared(text)
            for name in text.defines:  # the user's own takes the place of our macro
                self._macros.make_room(name)
            if not statements:
                with self._arrivals.of(query):
                    made = self._functions.retrying(whole, query)
            else:
                *before, at_last = statements
                for statement in before:
                    calling.comes_to(statement)
                    self._executed(statement, None)
                    self._engine.finish()
                calling.comes_to(at_last)
                made = last(at_last)
            if self._macros.outdated and text.ends_transaction:
                self._refresh()
            return made

    def _prepared(self, text: Text) -> tuple[Statement, ...]:
        """The statements of a text, once all is done that waited for the one before it.

        Raises:
            ParseError: a statement about models breaks the grammar.
            duckdb.ParserException: another one does; then none of them is run (as in DuckDB 1.5).
        """
        statements = text.statements
        for statement in statements if len(statements) > 1 else ():
            if isinstance(statement, Query):
                self._connection.extract_statements(parsable(statement.sql))
        if self._arrivals.unseen:
            self._engine.finish()
            self._arrivals.catch_up()
        self._refresh()
        return statements

    def _refresh(self) -> None:
        """Make the macros that waited for the end of a transaction, if it has ended."""
        if self._macros.outdated:
            self._engine.finish()
            with suppress(duckdb.Error):  # others are at it all the time: the next statement tries
                self._macros.refresh()

    def _executed(self, statement: Statement, parameters: Any) -> Session:
        self._engine.finish()
        self._engine.about_models = True
        if isinstance(statement, Query):
            sql, parameters = self._queries.rewritten(statement.sql, parameters, runs=True)
            with self._arrivals.of(statement.sql), reworded_errors(sql, statement.sql):
                self._functions.retrying(lambda: self._engine.execute(sql, parameters))
        else:
            answer = self._answer(statement, parameters)
            if answer is not None:
                self._engine.execute(*answer)
                is_change = isinstance(statement, AlterModel | TrainModel)
                self._in_the_way = "never" if is_change else "once read"
        return self

    def _relation(self, statement: Statement, parameters: Any, alias: str) -> Any:
        self._engine.about_models = True
        if isinstance(statement, Query):
            sql, parameters = self._queries.rewritten(statement.sql, parameters)
            with reworded_errors(sql, statement.sql):
                made = self._functions.retrying(
                    lambda: self._engine.relation(sql, parameters, alias)
                )
        else:
            answer = self._answer(statement, parameters)
            made = None if answer is None else self._engine.relation(*answer, alias)
        return wrap(made, self._connection.interrupt)

    def _answer(self, statement: Statement, parameters: Any) -> tuple[str, Any] | None:
        """Carry out a statement about models; the query whose result is its answer, if any."""
        if isinstance(statement, SetOption):
            self._queries.set(statement.option, statement.value)
            return "SELECT true AS Success LIMIT 0", None
        if isinstance(statement, Explain):
            if self._queries.plan(statement.query, parameters) is None:
                return statement.sql, parameters
            rows = self._explaining.explained(statement.query, parameters, statement.analyze)
            return answer_of(("explain_key", "explain_value"), rows)
        statement = with_parameters(self._models.host, statement, parameters)
        return carry_out(self._models, statement)


def _model_changed(
    lookup: Lookup, functions: Functions, reference: Reference, calls: Sequence[ModelCall]
) -> None:
    """What a change of a model is to the session that made it."""
    lookup.forget()
    functions.register_for_calls(calls)


@contextmanager
def _functions_beside(
    connection: duckdb.DuckDBPyConnection, registry: Registry, loaded: Loaded
) -> Iterator[Functions]:
    """The functions that another connection to the same database sees."""
    with Session(connection.cursor(), _registry=registry, _loaded=loaded) as other:
        yield other._functions
