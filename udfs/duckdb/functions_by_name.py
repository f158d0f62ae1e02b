"""Functions that an engine calls, each of which finds its scoring function by name at run time.

An engine never forgets a function, and a database may have functions for ten thousand models. So
the engine gets only a name. The scoring function stays in a cache while it is in use, and is
rebuilt from the stored Program otherwise.

Programs are found by content hash in all databases of this process (`stored_programs`), since a
function outlives the connection that made it and must not keep its database open. The same hash
means the same Program in every database.
"""

from __future__ import annotations

import re
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import duckdb
import pyarrow as pa

from sqlml.bounded_cache import Recent
from sqlml.catalog.connection import Connection
from sqlml.errors import ArtifactError, CatalogError, SqlmlError, UnknownModelError
from sqlml.ir import store
from sqlml.limits import DROPPED_BYTES
from sqlml.planner.program.function_names import HASH_DIGITS, PREFIX, STORED_PREFIX, parse_name
from sqlml.udfs.batch_function import BatchFunction, arrow_type, park
from sqlml.udfs.duckdb.native import functions as native
from sqlml.udfs.engine_function import EngineFunction, with_signature
from sqlml.udfs.make_function import make_engine_function

Read = Callable[[str], bytes | None]
"""Reads the content of a Program by the beginning of its hash; None if it is not stored."""

_sources: list[weakref.WeakMethod[Read]] = []
_lock = threading.Lock()


def add_source(read: Read) -> None:
    """Let functions read stored Programs with a bound method while its object lives."""
    with _lock:
        _sources[:] = [s for s in _sources if s() is not None]
        _sources.append(weakref.WeakMethod(read))


def stored_programs(digest: str) -> Iterator[bytes]:
    """Yield the unchecked contents of stored Programs whose hash begins with `digest`.

    The newest database comes first.
    """
    with _lock:
        sources = [s() for s in reversed(_sources)]
    for read in sources:
        if read is None:
            continue
        try:
            content = read(digest)
        except duckdb.Error:  # The database was closed.
            continue
        if content is not None:
            yield content


ANY = f"{STORED_PREFIX}any_"
"""Prefix of the names of functions that stand for many."""

OLD_ANY = "sqlml_any_"
"""The same prefix in databases of earlier versions."""

_SIGNATURE = re.compile(
    r"(FLOAT|DOUBLE)\[([1-9]\d{0,5})\]( BLOB\[\])? (INTEGER|DOUBLE)((?:\[\]){0,2})"
)
"""SQL types of a function of sqlml (`make_function.engine_function`)."""

_OVERHEAD = 1 << 19
"""Bytes of a dropped function besides its arrays, which bounds how many are kept."""

_ready: Recent[str, BatchFunction] = Recent()
_dropped: Recent[str, BatchFunction] = Recent(DROPPED_BYTES)
_batches = 0
_making = tuple(threading.Lock() for _ in range(16))
_moving = threading.Lock()
"""Held while functions move from `_ready` to `_dropped` and are in neither."""


def cache_function(name: str, function: BatchFunction) -> None:
    """Cache a new function for calls by its name."""
    _ready.put(name, function, function.nbytes)


def count_batches() -> int:
    """Return the approximate number of batches that functions of sqlml got in this process."""
    return _batches + native.count_batches()


def drop_functions(digests: Collection[str]) -> None:
    """Demote the functions of dropped Programs; running queries still use them."""
    starts = [digest[:HASH_DIGITS] for digest in digests]
    names = tuple(f"{prefix}{start}_" for prefix in (PREFIX, STORED_PREFIX) for start in starts)
    with _moving:
        for name, function, nbytes in _ready.take(lambda name: name.startswith(names)):
            _dropped.put(name, function, nbytes + _OVERHEAD)
        native.forget(names)


def find_function(name: str) -> BatchFunction:
    """Return the scoring function of a name, rebuilt from its stored Program if necessary.

    Raises:
        ParkedFailure: with the token of the typed error, which `claim` returns.
    """
    global _batches
    _batches += 1
    function = _ready.get(name) or _dropped.get(name)
    if function is not None:
        return function
    with _making[hash(name) % len(_making)]:
        with _moving:
            function = _ready.get(name) or _dropped.get(name)
        if function is None:
            try:
                function = _rebuild(name)
            except SqlmlError as error:
                raise park(error) from None
            cache_function(name, function)
        return function


def _rebuild(name: str) -> BatchFunction:
    spec = parse_name(name)
    if spec is None:
        raise ArtifactError(f"the catalog refers to {name!r}, which is not a function of sqlml")
    for content in stored_programs(spec.program):
        program = store.loads(content)
        if not program.hash.startswith(spec.program):
            raise ArtifactError(
                f"the stored model {spec.program} does not match its hash; create it again"
            )
        function = make_engine_function(spec, program).function
        assert isinstance(function, BatchFunction)
        return function
    raise UnknownModelError(
        f"the model program {spec.program} is not stored in this database; create the model again"
    )


def _score(name: str, *columns: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Score one batch with the function of a name."""
    function = find_function(name)
    if len(columns) != function.argument_count:
        raise park(ArtifactError(f"the arguments of {name} do not match its call"))
    return function(*columns)


def _score_any(
    result: pa.DataType,
    names: pa.Array | pa.ChunkedArray,
    *columns: pa.Array | pa.ChunkedArray,
) -> pa.Array:
    """Score a batch with the function that all its rows name.

    `result` is the type for a call without rows.
    """
    if not len(names):
        return pa.array([], result)
    name = names[0].as_py()
    if not isinstance(name, str) or names[-1].as_py() != name:
        raise park(ArtifactError("the name of a model's function must be the same for all rows"))
    scores = _score(name, *columns)
    if scores.type != result:
        raise park(ArtifactError(f"the result of {name} does not match its call"))
    return scores


def make_any_function(
    argument_types: tuple[str, ...], result_type: str, prefix: str = ANY
) -> EngineFunction | None:
    """Return the function that calls any function of these types; None if none has such types.

    The first argument of each row names the function, so a database of ten thousand models needs
    only a few functions.

    >>> make_any_function(("DOUBLE[4]", "BLOB[]"), "INTEGER[]").name
    'sqlml_open_a_session_first_any_double4_texts_integerl'
    """
    match = _SIGNATURE.fullmatch(" ".join((*argument_types, result_type)))
    if match is None:
        return None
    kind, width, texts, result, levels = match.groups()
    name = f"{prefix}{kind}{width}{'_texts' if texts else ''}_{result}{'l' * (len(levels) // 2)}"
    all_types = ("VARCHAR", *argument_types)
    call = with_signature(len(all_types), partial(_score_any, arrow_type(result_type)))
    fits = kind == "DOUBLE" and not texts
    return EngineFunction(name.lower(), call, all_types, result_type, named=fits)


def is_signature(argument_types: tuple[str, ...], result_type: str) -> bool:
    """Return whether the types are those of a function of sqlml.

    >>> is_signature(("DOUBLE[4]",), "DOUBLE[]"), is_signature(("VARCHAR",), "DOUBLE")
    (True, False)
    """
    return _SIGNATURE.fullmatch(" ".join((*argument_types, result_type))) is not None


def bind_by_name(function: EngineFunction) -> EngineFunction:
    """Return the function to register: it finds its scoring function by name."""
    if isinstance(function.function, BatchFunction):
        cache_function(function.name, function.function)
    elif function.function is not None:
        return function
    call = with_signature(len(function.argument_types), partial(_score, function.name))
    return replace(function, function=call)


class SqlmlFunctions:
    """The functions of sqlml that views and macros call, as one connection sees them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list_databases(self) -> list[str]:
        """Return the names of all attached databases."""
        ask = "SELECT database_name FROM system.main.duckdb_databases() ORDER BY ALL"
        return [str(name) for (name,) in self._connection.read(ask)]

    def list_catalogs(self) -> list[str]:
        """Return the names of the attached databases that have a schema `sqlml`."""
        ask = "SELECT database_name FROM system.main.duckdb_schemas() WHERE schema_name = 'sqlml'"
        return [str(name) for (name,) in self._connection.read(ask)]

    def list_texts(self) -> list[str]:
        """Return the texts of the users' views and macros that call functions of sqlml."""
        return [
            str(text)
            for (text,) in self._connection.read(
                "SELECT sql FROM system.main.duckdb_views() "
                "WHERE NOT internal AND system.main.contains(sql, 'sqlml_') "
                "UNION ALL SELECT macro_definition FROM system.main.duckdb_functions() "
                "WHERE NOT internal AND system.main.contains(macro_definition, 'sqlml_') "
                "AND NOT (schema_name = 'sqlml' "
                "AND system.main.starts_with(function_name, 'score_'))"
            )
        ]

    def functions_of_macros(self) -> list[EngineFunction]:
        """Return the functions that sqlml's own macros call, each compiled at its first use."""
        schemas = map(self._connection.schema, self.list_catalogs())
        return functions_of_calls(row for schema in schemas for row in self._called(schema))

    def _called(self, schema: str) -> list[tuple[Any, ...]]:
        try:
            if "catalog_calls" not in self._connection.tables(schema):
                return []
            return self._connection.read(
                f"SELECT DISTINCT function, arguments, result FROM {schema}.catalog_calls "
                "WHERE function IS NOT NULL"
            )
        except CatalogError:  # Foreign or damaged: the error is raised when a model is first used.
            return []


def functions_of_calls(calls: Iterable[tuple[Any, Any, Any]]) -> list[EngineFunction]:
    """Return the functions of catalog rows (name, types of arguments, type of the result)."""
    functions = (_called_function(*call) for call in calls if call[0] is not None)
    return [*{f.name: f for f in functions if f is not None}.values()]


def _called_function(name: Any, arguments: Any, result: Any) -> EngineFunction | None:
    """Return the function of a row of the catalog's calls; None if the row is damaged."""
    kinds = tuple(map(str, arguments or ()))
    prefix = next((p for p in (ANY, OLD_ANY) if str(name).startswith(p)), None)
    if prefix is not None:
        function = make_any_function(kinds[1:], str(result), prefix)
        return function if function is not None and function.name == name else None
    spec = parse_name(str(name))
    if spec is None or spec.name != name or not is_signature(kinds, str(result)):
        return None
    return EngineFunction(spec.name, None, kinds, str(result))
