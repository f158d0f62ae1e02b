"""`Functions`: the functions that plans, views and macros call, registered before they are called.

A view holds rewritten text, and outlives the process that made it: its functions are registered
when a database is opened or attached, and where one is missing all the same, when the engine says
so.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, TypeVar

import duckdb

from sqlml.catalog.connection import Connection
from sqlml.catalog.lookup import Catalog
from sqlml.catalog.scoring_macros import ModelCall
from sqlml.dialects.duckdb import builtin
from sqlml.errors import SqlmlError, UnknownModelError
from sqlml.host import Host
from sqlml.ir import store
from sqlml.ir.program import Program
from sqlml.parsing.parse import is_several
from sqlml.planner.plan.plan import Plan
from sqlml.planner.program.function_names import REFUSED_TEXT, parse_name, refused_text_names
from sqlml.planner.syntax.text import text_of
from sqlml.udfs.duckdb.engine import DuckDBEngine
from sqlml.udfs.duckdb.functions_by_name import OurFunctions, of_calls
from sqlml.udfs.engine import names_to_call
from sqlml.udfs.engine_function import EngineFunction
from sqlml.udfs.make_function import engine_function, refused_text_functions

# `exported_program`: a Program out of what EXPORT DATABASE wrote, before it is imported.
#
# IMPORT DATABASE makes the views first and loads the tables then. A view that calls a model binds
# to its function, so the function must be there while the model is in a file still. The engine
# reads the folder, under its own access settings; no statement of the folder is run here.


_TEXT = r"'((?:[^']|'')*)'"
_COPY = re.compile(
    rf"^COPY\s+\S*sqlml\S*\.\"?catalog_programs\"?\s+FROM\s+{_TEXT}(.*);\s*$",
    re.IGNORECASE | re.MULTILINE,
)
_OPTION = re.compile(rf"\b(\w+)\s+(?:{_TEXT}|(\w+))")

# COPY's and read_csv's names for the options that EXPORT DATABASE may give a CSV file.
_CSV = {
    "delimiter": "delim",
    "delim": "delim",
    "sep": "delim",
    "quote": "quote",
    "escape": "escape",
    "header": "header",
    "null": "nullstr",
    "nullstr": "nullstr",
}


def exported_program(
    connection: Connection, host: Host, statement: str, digest: str
) -> Program | None:
    """The Program whose hash begins with `digest`, of the folder that a statement imports.

    None if it imports none, or the folder has no such Program.
    """
    folder = text_of(statement).imported_folder
    if folder is None:
        return None
    try:
        load = host.file_content(os.path.join(folder, "load.sql")).decode()
        copy = _COPY.search(load)
        if copy is None:
            return None
        # As DuckDB does it: the folder may have been moved since.
        path = os.path.join(folder, os.path.basename(_unquoted(copy[1])))
        return _loaded(connection, path, copy[2], digest)
    except (UnicodeDecodeError, duckdb.Error, SqlmlError):
        return None  # IMPORT says what is wrong with the folder


def _loaded(connection: Connection, path: str, options: str, digest: str) -> Program | None:
    values = {name.lower(): text or word for name, text, word in _OPTION.findall(options)}
    params: list[object] = [path]
    if values.get("format", "csv").lower() == "csv":
        named = {_CSV[name]: _unquoted(value) for name, value in values.items() if name in _CSV}
        if "header" in named:
            named["header"] = str(named["header"].lower() in ("1", "true"))
        settings = "".join(f", {name} = ?" for name in named)
        columns = "hash := 'VARCHAR', format := 'INTEGER', content := 'BLOB'"
        columns = f"{builtin('struct_pack')}({columns})"
        rows = f"{builtin('read_csv')}(?, columns = {columns}, auto_detect = false{settings})"
        params += named.values()
    else:
        rows = f"{builtin('read_parquet')}(?)"
    wanted = f"{builtin('starts_with')}(hash, ?)"
    found = connection.read(f"SELECT content FROM {rows} WHERE {wanted}", [*params, digest])
    for (content,) in found:
        program = store.loads(bytes(content))
        if program.hash.startswith(digest):
            return program
    return None


def _unquoted(text: str) -> str:
    return text.replace("''", "'")


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


# `Arrivals`: ATTACH and IMPORT bring views that call models, whose functions must be there to
# read them, on connections without a session too.
#
# New views are inspected on a separate connection, so that no statement comes between the user's
# own: no open result is in the way, and their profile, log and memory limit stay as they were. A
# transaction hides others' changes until it ends; then the user's connection itself is asked,
# before their next statement.


class Arrivals:
    """The arrivals on one connection, whose `functions` it has; `beside` makes those of another
    one. `unseen`: something may have arrived that has not been inspected.
    """

    def __init__(
        self, functions: Functions, beside: Callable[[], AbstractContextManager[Functions]]
    ) -> None:
        self._functions = functions
        self._beside = beside
        self.unseen = False

    def of(self, query: Any) -> AbstractContextManager[None]:
        """While a text is run: afterwards the functions are known of what it brought."""
        return self._watched() if text_of(query).brings_models else nullcontext()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        before = self._look()
        yield
        self.unseen = self._look() == before

    def catch_up(self) -> None:
        """Look at what came in the user's transaction, before their next statement."""
        if self.unseen:
            self.unseen = False
            with suppress(duckdb.Error, SqlmlError):
                self._functions.take_in()

    def _look(self) -> object:
        with suppress(duckdb.Error, SqlmlError), self._beside() as functions:
            return functions.take_in()
        return None
