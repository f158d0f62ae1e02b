"""The services behind one connection, wired up in one place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

import duckdb

from sqlml.catalog.lookup import Catalog, Lookup
from sqlml.catalog.model import NewVersion, Reference
from sqlml.catalog.model_changes import ModelChanges, VersionChanges
from sqlml.catalog.scoring_macros import Macros, ModelCall
from sqlml.catalog.stored_programs import Loaded, TablePrograms
from sqlml.errors import CatalogError, SqlmlError
from sqlml.planner.model_sql.macro_bodies import HELPERS, write_bodies
from sqlml.session.planned_queries import Explaining, Queries
from sqlml.session.registered_functions import Arrivals, Functions
from sqlml.statements.models import Models
from sqlml.training.train_estimator import RowTrainers
from sqlml.udfs.duckdb.engine import DuckDBEngine
from sqlml.udfs.duckdb.function_registry import Registry
from sqlml.udfs.duckdb.functions_by_name import drop_functions, make_any_function
from sqlml.udfs.duckdb.host import DuckDBHost
from sqlml.udfs.make_function import make_engine_function


@dataclass(frozen=True, slots=True, eq=False)
class Services:
    """The services of a Session on one connection.

    Attributes:
        engine: runs statements, and registers functions in `engine.registry`, which all
            connections to the database share.
        loaded: the Programs in memory, which all cursors of a session share.
        catalog, lookup: read the stored models; `lookup` for the planner.
        macros: with which plain connections call models.
        functions: registers what plans, views and macros call.
        queries: plans queries; explaining: reports their plans.
        arrivals: watches for views that ATTACH and IMPORT bring.
        models: carries out the statements about models.
    """

    engine: DuckDBEngine
    loaded: Loaded
    catalog: Catalog
    lookup: Lookup
    macros: Macros
    functions: Functions
    queries: Queries
    explaining: Explaining
    arrivals: Arrivals
    models: Models


def open_services(
    connection: duckdb.DuckDBPyConnection,
    *,
    allow_pickle: bool,
    registry: Registry | None = None,
    loaded: Loaded | None = None,
) -> Services:
    """Wire up the services of a connection.

    Args:
        connection: an open connection.
        allow_pickle: let CREATE MODEL read pickles, which execute code.
        registry, loaded: those of another connection to the same database; None: new ones.
    """
    engine = DuckDBEngine(connection, registry or Registry(connection))
    loaded = Loaded() if loaded is None else loaded
    host = DuckDBHost(engine)
    internal_connection = engine.connection
    catalog = Catalog(
        internal_connection, TablePrograms(internal_connection, loaded, drop_functions)
    )
    lookup = Lookup(catalog)
    macros = Macros(internal_connection)
    functions = Functions(engine, catalog, host)
    queries = Queries(engine, functions, lookup, host, catalog.programs)
    writer = (
        internal_connection,
        catalog,
        macros,
        plain_macro_calls,
        partial(_forget_model, lookup, functions),
    )
    models = Models(
        host,
        catalog,
        ModelChanges(*writer),
        VersionChanges(*writer),
        allow_pickle,
        queries.runnable,
        RowTrainers(host),
    )
    # No service refers to the session, since reference cycles are freed late.
    open_beside = partial(_open_functions_beside, connection, engine.registry, loaded)
    services = Services(
        engine,
        loaded,
        catalog,
        lookup,
        macros,
        functions,
        queries,
        Explaining(engine, functions, queries),
        Arrivals(functions, open_beside),
        models,
    )
    if registry is None:
        _register_stored_functions(services)
    return services


def _register_stored_functions(services: Services) -> None:
    """Register the functions that views and macros of an opened database call."""
    with suppress(CatalogError):  # the error is raised when a model is first used
        if services.catalog.schema_exists():
            services.functions.register_for_views()
            with suppress(duckdb.Error, SqlmlError):  # read-only, or another connection is writing
                services.macros.catch_up()
    services.functions.register_for_macros()


def _forget_model(
    lookup: Lookup, functions: Functions, reference: Reference, calls: Sequence[ModelCall]
) -> None:
    """Update the session that changed a model."""
    lookup.forget()
    functions.register_for_calls(calls)


@contextmanager
def _open_functions_beside(
    connection: duckdb.DuckDBPyConnection, registry: Registry, loaded: Loaded
) -> Iterator[Functions]:
    """Yield the functions that a second connection to the same database sees."""
    cursor = connection.cursor()
    try:
        services = open_services(cursor, allow_pickle=False, registry=registry, loaded=loaded)
        yield services.functions
    finally:
        cursor.close()


def plain_macro_calls(version: NewVersion) -> list[ModelCall]:
    """Return the expressions that the macros for plain connections call for a version."""
    calls = []
    bodies = write_bodies(version.features, version.program, version.options, version.transform)
    for body in bodies:
        if body.function is None:
            calls.append(ModelCall(body.kind, body.sql))
            continue
        function = make_engine_function(body.function, version.program, on_use=True)
        shared = make_any_function(function.argument_types, function.result_type)
        assert shared is not None
        sql = body.sql.replace(f"{function.name}(", f"{shared.name}('{function.name}', ")
        types = shared.argument_types, shared.result_type
        calls.append(ModelCall(body.kind, sql, shared.name, *types, HELPERS))
    return calls
