"""Functions that an engine calls, each of which finds its scoring function by name at run time.

An engine never forgets a function, and a database may have functions for ten thousand models. So
the engine gets only a name. The scoring function stays in a cache while it is in use, and is
rebuilt from the stored Program otherwise.
"""

from __future__ import annotations

import re
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from sqlml.bounded_cache import Recent
from sqlml.catalog.catalog_connection import Connection
from sqlml.errors import ArtifactError, CatalogError, SqlmlError, UnknownModelError
from sqlml.ir import store
from sqlml.ir.utf8_column import TextColumn
from sqlml.limits import DROPPED_BYTES
from sqlml.passes.split import text_input_name
from sqlml.planner.program.function_names import (
    HASH_DIGITS,
    PREFIX,
    STORED_PREFIX,
    NamedFunction,
    parse_name,
)
from sqlml.types import Array
from sqlml.udfs.batch_function import BatchFunction, arrow_of, arrow_type, matrix_of, park
from sqlml.udfs.duckdb.native import native_functions
from sqlml.udfs.engine_function import EngineFunction, score_by_name, with_signature
from sqlml.udfs.make_function import make_engine_function

Read = Callable[[str], bytes | None]
_sources: list[weakref.WeakMethod[Read]] = []
_lock = threading.Lock()


def add_source(read: Read) -> None:
    with _lock:
        _sources[:] = [s for s in _sources if s() is not None]
        _sources.append(weakref.WeakMethod(read))


def stored_programs(digest: str) -> Iterator[bytes]:
    """Yield the unchecked contents of stored Programs by the beginning of their hash.

    All databases of this process are searched, the newest first, since a function outlives the
    connection that made it and must not keep its database open. The same hash means the same
    Program in every database.
    """
    with _lock:
        sources = [s() for s in reversed(_sources)]
    for read in filter(None, sources):
        with suppress(duckdb.Error):  # The database was closed.
            content = read(digest)
            if content is not None:
                yield content


ANY, OLD_ANY = f"{STORED_PREFIX}any_", "sqlml_any_"
"""Prefixes of the names of functions that stand for many, now and in earlier versions."""

_SIGNATURE = re.compile(
    r"(FLOAT|DOUBLE)\[([1-9]\d{0,5})\]( BLOB\[\])? (INTEGER|DOUBLE)((?:\[\]){0,2})"
)
"""SQL types of a function of sqlml (`make_function.make_engine_function`)."""

_OVERHEAD = 1 << 19  # Bytes of a dropped function besides its arrays.
_ready: Recent[str, BatchFunction] = Recent()
_dropped: Recent[str, BatchFunction] = Recent(DROPPED_BYTES)
_batches = 0
_making = tuple(threading.Lock() for _ in range(16))
_moving = threading.Lock()  # Held while functions move from `_ready` to `_dropped`.


def cache_function(name: str, function: BatchFunction) -> None:
    _ready.put(name, function, function.nbytes)


def count_batches() -> int:
    """Return the approximate number of batches that functions of sqlml got in this process."""
    return _batches + native_functions.count_batches()


def drop_functions(digests: Collection[str]) -> None:
    """Demote the functions of dropped Programs; running queries still use them."""
    starts = [digest[:HASH_DIGITS] for digest in digests]
    names = tuple(f"{prefix}{start}_" for prefix in (PREFIX, STORED_PREFIX) for start in starts)
    with _moving:
        for name, function, nbytes in _ready.take(lambda name: name.startswith(names)):
            _dropped.put(name, function, nbytes + _OVERHEAD)
        native_functions.forget(names)


def find_function(name: str) -> BatchFunction:
    """Return the scoring function of a name, rebuilt if necessary, or raise ParkedFailure."""
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
    function = find_function(name)
    if len(columns) != function.argument_count:
        raise park(ArtifactError(f"the arguments of {name} do not match its call"))
    return function(*columns)


def _score_any(
    result: pa.DataType, names: pa.Array | pa.ChunkedArray, *columns: pa.Array | pa.ChunkedArray
) -> pa.Array:
    """Score a batch with the function that all its rows name; `result` is its type."""
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
        return self._read_texts(
            "SELECT database_name FROM system.main.duckdb_databases() ORDER BY ALL"
        )

    def list_catalogs(self) -> list[str]:
        return self._read_texts(
            "SELECT database_name FROM system.main.duckdb_schemas() WHERE schema_name = 'sqlml'"
        )

    def list_texts(self) -> list[str]:
        return self._read_texts(
            "SELECT sql FROM system.main.duckdb_views() "
            "WHERE NOT internal AND system.main.contains(sql, 'sqlml_') "
            "UNION ALL SELECT macro_definition FROM system.main.duckdb_functions() "
            "WHERE NOT internal AND system.main.contains(macro_definition, 'sqlml_') "
            "AND NOT (schema_name = 'sqlml' AND system.main.starts_with(function_name, 'score_'))"
        )

    def _read_texts(self, query: str) -> list[str]:
        return [str(text) for (text,) in self._connection.read(query)]

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
    signature = " ".join((*kinds, str(result)))
    if spec is None or spec.name != name or not _SIGNATURE.fullmatch(signature):
        return None
    return EngineFunction(spec.name, None, kinds, str(result))


def make_named_function(function: NamedFunction, example: EngineFunction | None) -> EngineFunction:
    """Build the function that scores each row with the model that the row names.

    It takes a name, numbers (DOUBLE), and texts. `example` is the function of one of the models,
    since all return the same type; None builds a function that returns the kind of each row's
    model.
    """
    models = function if function.by_column else None
    if example is None:
        kinds = partial(_kinds, function)
        return EngineFunction(function.name, kinds, ("VARCHAR",), "INTEGER", models=models)
    argument_types = ("VARCHAR", *("DOUBLE",) * function.numbers, *("VARCHAR",) * function.texts)
    result = example.result_type
    call = with_signature(len(argument_types), partial(_score_rows, function, arrow_type(result)))
    return EngineFunction(
        function.name, call, argument_types, result, example.volatile, models=models
    )


def _kinds(function: NamedFunction, names: pa.Array | pa.ChunkedArray) -> pa.Array:
    def kind_of(name: str, rows: Array) -> pa.Array | None:
        if name in function.groups:
            return arrow_of(np.full(len(rows), function.groups[name], np.int32), pa.int32())
        _refuse(function, name)
        return None

    return score_by_name(names, pa.int32(), kind_of)


def _score_rows(
    function: NamedFunction,
    kind: pa.DataType,
    names: pa.Array | pa.ChunkedArray,
    *columns: pa.Array | pa.ChunkedArray,
) -> pa.Array:
    try:
        matrix = matrix_of(columns[: function.numbers], "float64")
        texts = [TextColumn.from_values(column) for column in columns[function.numbers :]]
    except SqlmlError as error:
        raise park(error) from None

    def score(name: str, rows: Array) -> pa.Array | None:
        scorer = function.scorers.get(name)
        if scorer is None:
            _refuse(function, name)
            return None
        try:
            batch = find_function(scorer.spec.name)
            numbers = matrix[rows][:, list(scorer.numbers)].astype(batch.dtype)
            selected = {text_input_name(k): texts[t][rows] for k, t in enumerate(scorer.texts)}
            return batch.score_in_parts(np.ascontiguousarray(numbers), selected)
        except Exception as error:
            raise park(error) from None

    return score_by_name(names, kind, score)


def _refuse(function: NamedFunction, name: str) -> None:
    """Raise ParkedFailure if a name without a model is an error; otherwise its rows are NULL."""
    error = function.find_error(name)
    if error is not None:
        raise park(type(error)(error.message))
