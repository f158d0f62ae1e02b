"""`Functions`: the functions that plans, views and macros call, registered before they are called.

A view holds rewritten text, and outlives the process that made it: its functions are registered
when a database is opened or attached, and where one is missing all the same, when the engine says
so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import duckdb

from sqlml.catalog.plain_macros.keep import ModelCall
from sqlml.catalog.read import Catalog
from sqlml.errors import SqlmlError, UnknownModelError
from sqlml.host import Host
from sqlml.ir.program import Program
from sqlml.parsing.cut_statements import is_several
from sqlml.planner.plan.plan import Plan
from sqlml.planner.program.function_names import REFUSED_TEXT, parse_name, refused_text_names
from sqlml.session.import_database import exported_program
from sqlml.udfs.duckdb.engine import DuckDBEngine
from sqlml.udfs.duckdb.our_functions import OurFunctions, of_calls
from sqlml.udfs.engine import names_to_call
from sqlml.udfs.engine_function import EngineFunction
from sqlml.udfs.make_function import engine_function
from sqlml.udfs.refused_texts import refused_text_functions

T = TypeVar("T")


class Functions:
    """The functions of ours that one connection sees."""

    def __init__(self, engine: DuckDBEngine, catalog: Catalog, host: Host) -> None:
        self._engine = engine
        self._catalog = catalog
        self._host = host
        self._ours = OurFunctions(engine.connection)

    def ready(self, plan: Plan) -> str:
        """The plan's SQL once all its functions are registered."""
        return self.calling(plan.sql, names_to_call(self._engine, plan, self.find_program))

    def calling(self, sql: str, names: Mapping[str, str]) -> str:
        """A statement that calls functions by other names; those that keep texts are registered."""
        for name, other in {**names, **self._of_refused_texts(sql)}.items():
            if other != name:
                sql = sql.replace(f"{name}(", f"{other}(")
        return sql

    def find_program(self, digest: str) -> Program:
        """The Program, out of the first database that has it whole.

        Raises:
            UnknownModelError: none has it.
            ArtifactError: those that have it are damaged.
        """
        failure: SqlmlError
        try:
            return self._catalog.program(digest)
        except SqlmlError as error:
            failure = error
        for database in self._ours.catalogs():
            try:
                return self._catalog.program(digest, database)
            except SqlmlError as error:
                if isinstance(failure, UnknownModelError):
                    failure = error
        raise failure

    def retrying(self, work: Callable[[], T], statement: Any = None) -> T:
        """Run `work`; when it misses a function of ours (in a view), register that and go on.

        Args:
            statement: the text that is run, which may import a database.
        """
        tried: set[str] = set()
        while True:
            try:
                return work()
            except duckdb.CatalogException as error:
                spec = parse_name(str(error))
                names = {spec.name} if spec is not None else refused_text_names(str(error))
                text = statement if isinstance(statement, str) else ""
                if names <= tried or is_several(text):
                    raise  # what stands before in a text has been done, and would be done again
                tried |= names
                if spec is None:
                    self._of_refused_texts(str(error))
                    continue
                connection = self._engine.connection
                program = exported_program(connection, self._host, text, spec.program)
                self._engine.register(spec, program or self.find_program(spec.program))

    def take_in(self) -> object:
        """Make all functions known that views and macros call; returns what there is to see."""
        texts = self._ours.texts()
        self._register_for(texts)
        self.register_for_macros()
        return self._ours.attached(), texts

    def register_for_macros(self) -> None:
        """Make the functions known that our own macros call, for connections without a session."""
        self._register_called(self._ours.of_plain_macros())

    def register_for_calls(self, calls: Sequence[ModelCall]) -> None:
        """Make the functions known that our macros of one model call."""
        self._register_called(of_calls((c.function, c.arguments, c.result) for c in calls))

    def _register_called(self, functions: Sequence[EngineFunction]) -> None:
        for function in [*functions, *refused_text_functions(REFUSED_TEXT if functions else "")]:
            self._engine.registry.add(function)

    def register_for_views(self) -> None:
        """Make the functions known that views call, before somebody reads these."""
        self._register_for(self._ours.texts())

    def _register_for(self, texts: Sequence[str]) -> None:
        for at in texts:
            self._of_refused_texts(at)
            while (spec := parse_name(at)) is not None:
                at = at[at.index(spec.name) + len(spec.name) :]
                try:
                    program = self.find_program(spec.program)
                    self._engine.add(engine_function(spec, program, on_use=True))
                except SqlmlError:
                    continue  # its model is gone: reading the view says so

    def _of_refused_texts(self, sql: str) -> dict[str, str]:
        """The functions that keep refused texts, registered where `sql` calls them, as names."""
        return {
            f.name: self._engine.registered(f.name) or self._engine.add(f)
            for f in refused_text_functions(sql)
        }
