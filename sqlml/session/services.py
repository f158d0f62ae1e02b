"""The services behind one connection, created in one place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

import duckdb

from sqlml.catalog.lookup import Catalog, ModelCache
from sqlml.catalog.model import NewVersion, Reference, extend_version
from sqlml.catalog.model_changes import ModelChanges, VersionChanges
from sqlml.catalog.scoring_macros import Macros, ModelCall
from sqlml.catalog.stored_programs import Loaded, TablePrograms
from sqlml.errors import CatalogError, SqlmlError
from sqlml.planner.model_sql.macro_bodies import (
    HELPER_MACROS,
    build_calibrated_bodies,
    build_macro_bodies,
)
from sqlml.session.client_views import ClientViews
from sqlml.session.planned_queries import PlannedQueries
from sqlml.session.registered_functions import NewViewWatcher, RegisteredFunctions
from sqlml.statements.connection_models import Models
from sqlml.training.train_estimator import RowTrainers
from sqlml.udfs.duckdb.engine import DuckDBEngine
from sqlml.udfs.duckdb.function_registry import Registry
from sqlml.udfs.duckdb.functions_by_name import drop_functions, make_any_function
from sqlml.udfs.duckdb.host import DuckDBHost
from sqlml.udfs.duckdb.native.compiled_models import compile_for_clients
from sqlml.udfs.make_function import make_engine_function


@dataclass(frozen=True, slots=True, eq=False)
class Services:
    """The services of a Session on one connection.

    All connections to a database share `engine.registry`. All cursors of a session share the
    Programs in `loaded`. `functions` registers the functions that plans, views and macros call.
    `arrivals` registers the functions of views that ATTACH and IMPORT add.
    """

    engine: DuckDBEngine
    loaded: Loaded
    lookup: ModelCache
    macros: Macros
    functions: RegisteredFunctions
    queries: PlannedQueries
    client_views: ClientViews
    arrivals: NewViewWatcher
    models: Models


def open_services(
    connection: duckdb.DuckDBPyConnection,
    *,
    allow_pickle: bool,
    registry: Registry | None = None,
    loaded: Loaded | None = None,
) -> Services:
    """Create the services of a Session on a connection.

    For a second connection to the same database, pass `registry` and `loaded` of the first one.
    """
    engine = DuckDBEngine(connection, registry or Registry(connection))
    loaded = Loaded() if loaded is None else loaded
    host = DuckDBHost(engine)
    catalog = Catalog(engine.connection, TablePrograms(engine.connection, loaded, drop_functions))
    lookup = ModelCache(catalog)
    macros = Macros(engine.connection)
    functions = RegisteredFunctions(engine, catalog, host)
    queries = PlannedQueries(engine, functions, lookup, host)

    def report_change(reference: Reference, calls: Sequence[ModelCall]) -> None:
        lookup.clear()
        functions.register_for_calls(calls)

    builders = build_macro_calls, _compile_version, report_change
    writer = engine.connection, catalog, macros, *builders
    changes = ModelChanges(*writer), VersionChanges(*writer)
    models = Models(host, catalog, *changes, allow_pickle, queries.runnable, RowTrainers(host))
    # No service refers to the session, because reference cycles are freed late.
    open_other_connection = partial(_open_other_connection, connection, engine.registry, loaded)
    arrivals = NewViewWatcher(functions, open_other_connection)
    if registry is None:
        with suppress(CatalogError):  # The error is raised when a model is first used.
            if catalog.schema_exists():
                functions.register_for_views()
                # The database may be read-only, or another session may be writing.
                with suppress(duckdb.Error, SqlmlError):
                    macros.refresh_stale_macros()
        functions.register_for_macros()
    views = ClientViews(engine, catalog, macros, functions)
    return Services(engine, loaded, lookup, macros, functions, queries, views, arrivals, models)


@contextmanager
def _open_other_connection(
    connection: duckdb.DuckDBPyConnection, registry: Registry, loaded: Loaded
) -> Iterator[RegisteredFunctions]:
    cursor = connection.cursor()
    try:
        services = open_services(cursor, allow_pickle=False, registry=registry, loaded=loaded)
        yield services.functions
    finally:
        cursor.close()


def _compile_version(version: NewVersion) -> str:
    return compile_for_clients(version.program, version.features, version.options)


def build_macro_calls(key: str, version: NewVersion) -> list[ModelCall]:
    """Build the calls in the macros of a model's version, for connections without sqlml."""
    calls = []
    bodies = build_macro_bodies(
        version.features, version.program, version.options, version.transform, key
    )
    programs = dict.fromkeys((body.kind for body in bodies), version.program)
    calibration = version.calibration
    if calibration is not None:
        extended = extend_version(version, calibration.small)
        calibrated_bodies = build_calibrated_bodies(
            extended.features, calibration, version.options, extended.transform
        )
        programs |= dict.fromkeys((body.kind for body in calibrated_bodies), calibration.small)
        bodies += calibrated_bodies
    for body in bodies:
        if body.function is None:
            calls.append(ModelCall(body.kind, body.sql, body.client_sql))
            continue
        function = make_engine_function(body.function, programs[body.kind], on_use=True)
        shared = make_any_function(function.argument_types, function.result_type)
        assert shared is not None
        sql = body.sql.replace(f"{function.name}(", f"{shared.name}('{function.name}', ")
        signature = shared.name, shared.argument_types, shared.result_type
        calls.append(ModelCall(body.kind, sql, body.client_sql, *signature, HELPER_MACROS))
    return calls
