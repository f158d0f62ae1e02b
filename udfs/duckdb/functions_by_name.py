"""Functions to register in an engine that find their scoring functions by name at run time.

An engine never forgets a function, and a database may have functions for ten thousand models. So a
registered function holds only a name. The scoring function of that name stays in a cache while it
is in use, and is rebuilt from the stored Program when it is called again.
"""

from __future__ import annotations

import re
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from sqlml.bounded_cache import RecentCache
from sqlml.catalog.catalog_connection import Connection
from sqlml.errors import ArtifactError, CatalogError, SqlmlError, UnknownModelError
from sqlml.ir import store
from sqlml.ir.utf8_column import TextColumn
from sqlml.limits import DROPPED_BYTES
from sqlml.passes.split import text_input_name
from sqlml.planner.program.function_spec import (
    FUNCTION_PREFIX,
    HASH_DIGITS,
    STORED_PREFIX,
    NamedFunction,
    parse_function_name,
)
from sqlml.types import Array
from sqlml.udfs.batch_function import BatchFunction, arrow_type, park_error, stack_columns, to_arrow
from sqlml.udfs.duckdb.native import native_functions
from sqlml.udfs.engine_function import EngineFunction, add_signature, score_by_name
from sqlml.udfs.make_function import make_engine_function

ReadProgram = Callable[[str], bytes | None]
_program_sources: list[weakref.WeakMethod[ReadProgram]] = []
_lock = threading.Lock()


def add_program_source(read_program: ReadProgram) -> None:
    with _lock:
        _program_sources[:] = [source for source in _program_sources if source() is not None]
        _program_sources.append(weakref.WeakMethod(read_program))


def find_stored_programs(hash_prefix: str) -> Iterator[bytes]:
    """Yield the serialized, unchecked Programs whose hash begins with `hash_prefix`.

    All databases of this process are searched, the newest first, since a function outlives the
    connection that registered it and must not keep its database open. Equal hashes mean equal
    Programs, whichever database they come from.
    """
    with _lock:
        sources = [source() for source in reversed(_program_sources)]
    for read_program in filter(None, sources):
        with suppress(duckdb.Error):  # The database was closed.
            serialized = read_program(hash_prefix)
            if serialized is not None:
                yield serialized


ANY_PREFIX, OLD_ANY_PREFIX = f"{STORED_PREFIX}any_", "sqlml_any_"
"""Name prefixes of functions that can call many others, in this version and in earlier ones."""

_SIGNATURE_PATTERN = re.compile(
    r"(FLOAT|DOUBLE)\[([1-9]\d{0,5})\]( BLOB\[\])? (INTEGER|DOUBLE)((?:\[\]){0,2})"
)
"""The argument and result types of a function made by `make_function.make_engine_function`."""

_FUNCTION_OVERHEAD = 1 << 19  # Bytes that a dropped function takes in addition to its arrays.
_functions: RecentCache[str, BatchFunction] = RecentCache()
_dropped: RecentCache[str, BatchFunction] = RecentCache(DROPPED_BYTES)
_batch_count = 0
_build_locks = tuple(threading.Lock() for _ in range(16))
_drop_lock = threading.Lock()  # Held while functions move from `_functions` to `_dropped`.


def cache_function(name: str, function: BatchFunction) -> None:
    _functions.put(name, function, function.nbytes)


def count_batches() -> int:
    """Return roughly how many batches sqlml's functions have scored in this process."""
    return _batch_count + native_functions.count_batches()


def drop_functions(hashes: Collection[str]) -> None:
    """Drop the functions of Programs with these hashes; running queries may still call them."""
    pairs = product((FUNCTION_PREFIX, STORED_PREFIX), hashes)
    name_prefixes = tuple(f"{prefix}{digest[:HASH_DIGITS]}_" for prefix, digest in pairs)
    with _drop_lock:
        for name, function, nbytes in _functions.take(lambda name: name.startswith(name_prefixes)):
            _dropped.put(name, function, nbytes + _FUNCTION_OVERHEAD)
        native_functions.drop_plans(name_prefixes)


def find_function(name: str) -> BatchFunction:
    """Return the scoring function `name`, rebuilt if necessary; raise ParkedFailure on an error."""
    global _batch_count
    _batch_count += 1
    function = _functions.get(name) or _dropped.get(name)
    if function is not None:
        return function
    with _build_locks[hash(name) % len(_build_locks)]:
        with _drop_lock:
            function = _functions.get(name) or _dropped.get(name)
        if function is None:
            try:
                function = _rebuild_function(name)
            except SqlmlError as error:
                raise park_error(error) from None
            cache_function(name, function)
        return function


def _rebuild_function(name: str) -> BatchFunction:
    spec = parse_function_name(name)
    if spec is None:
        raise ArtifactError(f"the catalog refers to {name!r}, which is not a function of sqlml")
    for serialized in find_stored_programs(spec.program_hash):
        program = store.loads(serialized)
        if not program.hash.startswith(spec.program_hash):
            problem = f"the stored model {spec.program_hash} does not match its hash"
            raise ArtifactError(f"{problem}; create it again")
        function = make_engine_function(spec, program).function
        assert isinstance(function, BatchFunction)
        return function
    raise UnknownModelError(
        f"the model program {spec.program_hash} is not stored in this database; "
        "create the model again"
    )


def _score_batch(name: str, *columns: pa.Array | pa.ChunkedArray) -> pa.Array:
    function = find_function(name)
    argument_count = function.argument_count
    if len(columns) != argument_count:
        problem = f"{name} takes {argument_count} arguments, but its call has {len(columns)}"
        raise park_error(ArtifactError(problem))
    return function(*columns)


def _score_as_named(
    result_type: pa.DataType,
    names: pa.Array | pa.ChunkedArray,
    *columns: pa.Array | pa.ChunkedArray,
) -> pa.Array:
    """Score a batch with the function that all rows of `names` name; return `result_type`."""
    if not len(names):
        return pa.array([], result_type)
    name = names[0].as_py()
    if not isinstance(name, str) or names[-1].as_py() != name:
        raise park_error(ArtifactError(native_functions.SEVERAL_NAMES))
    scores = _score_batch(name, *columns)
    if scores.type != result_type:
        problem = f"has type {scores.type}, but its call expects {result_type}"
        raise park_error(ArtifactError(f"the result of {name} {problem}"))
    return scores


def make_any_function(
    argument_types: tuple[str, ...], result_type: str, prefix: str = ANY_PREFIX
) -> EngineFunction | None:
    """Make a function that calls any scoring function with these argument and result types.

    Its additional first argument is the name of the scoring function, so a database of ten thousand
    models needs only a few functions. Returns None if no scoring function can have these types.

    >>> make_any_function(("DOUBLE[4]", "BLOB[]"), "INTEGER[]").name
    'sqlml_open_a_session_first_any_double4_texts_integerl'
    """
    match = _SIGNATURE_PATTERN.fullmatch(" ".join((*argument_types, result_type)))
    if match is None:
        return None
    number_type, width, text_type, result_element, brackets = match.groups()
    suffix = f"{'_texts' if text_type else ''}_{result_element}{'l' * (len(brackets) // 2)}"
    name = f"{prefix}{number_type}{width}{suffix}"
    types = ("VARCHAR", *argument_types)
    scorer = add_signature(len(types), partial(_score_as_named, arrow_type(result_type)))
    can_run_natively = number_type == "DOUBLE" and not text_type
    return EngineFunction(name.lower(), scorer, types, result_type, named=can_run_natively)


def bind_by_name(function: EngineFunction) -> EngineFunction:
    """Return a copy of `function` that finds its scoring function by name whenever it is called."""
    if isinstance(function.function, BatchFunction):
        cache_function(function.name, function.function)
    elif function.function is not None:
        return function
    scorer = add_signature(len(function.argument_types), partial(_score_batch, function.name))
    return replace(function, function=scorer)


class SqlmlFunctions:
    """The sqlml functions that views and macros call, as one connection sees them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list_databases(self) -> list[str]:
        query = "SELECT database_name FROM system.main.duckdb_databases() ORDER BY ALL"
        return self._read_strings(query)

    def list_catalogs(self) -> list[str]:
        return self._read_strings(
            "SELECT database_name FROM system.main.duckdb_schemas() WHERE schema_name = 'sqlml'"
        )

    def list_definitions(self) -> list[str]:
        return self._read_strings(
            "SELECT sql FROM system.main.duckdb_views() "
            "WHERE NOT internal AND system.main.contains(sql, 'sqlml_') "
            "UNION ALL SELECT macro_definition FROM system.main.duckdb_functions() "
            "WHERE NOT internal AND system.main.contains(macro_definition, 'sqlml_') "
            "AND NOT (schema_name = 'sqlml' AND system.main.starts_with(function_name, 'score_'))"
        )

    def _read_strings(self, query: str) -> list[str]:
        return [str(value) for (value,) in self._connection.read(query)]

    def list_macro_functions(self) -> list[EngineFunction]:
        """Return the functions that sqlml's macros call; each is compiled when it is first used."""
        schemas = map(self._connection.schema, self.list_catalogs())
        return make_functions_of_calls(
            row for schema in schemas for row in self._read_calls(schema)
        )

    def _read_calls(self, schema: str) -> list[tuple[Any, ...]]:
        try:
            if "catalog_calls" not in self._connection.list_tables(schema):
                return []
            return self._connection.read(
                f"SELECT DISTINCT function, arguments, result FROM {schema}.catalog_calls "
                "WHERE function IS NOT NULL"
            )
        except CatalogError:  # The first use of a model reports foreign or damaged tables.
            return []


def make_functions_of_calls(calls: Iterable[tuple[Any, Any, Any]]) -> list[EngineFunction]:
    """Return the functions for catalog rows (function name, argument types, result type)."""
    functions = (_make_function_of_call(*row) for row in calls if row[0] is not None)
    return [*{function.name: function for function in functions if function is not None}.values()]


def _make_function_of_call(name: Any, stored_types: Any, result_type: Any) -> EngineFunction | None:
    """Return the function for a row of the table `catalog_calls`; None if the row is damaged."""
    argument_types = tuple(map(str, stored_types or ()))
    prefix = next((p for p in (ANY_PREFIX, OLD_ANY_PREFIX) if str(name).startswith(p)), None)
    if prefix is not None:
        function = make_any_function(argument_types[1:], str(result_type), prefix)
        return function if function is not None and function.name == name else None
    spec = parse_function_name(str(name))
    signature = " ".join((*argument_types, str(result_type)))
    if spec is None or spec.name != name or not _SIGNATURE_PATTERN.fullmatch(signature):
        return None
    return EngineFunction(spec.name, None, argument_types, str(result_type))


def make_named_function(function: NamedFunction, example: EngineFunction | None) -> EngineFunction:
    """Make the function that scores each row with the model that the row names.

    The function takes a name, numbers (DOUBLE) and strings. `example` is the function of any one of
    the models, since all of them return the same type. If `example` is None, the function returns
    the group number of each row's model instead.
    """
    models = function if function.by_column else None
    if example is None:
        read_groups = partial(_look_up_groups, function)
        return EngineFunction(function.name, read_groups, ("VARCHAR",), "INTEGER", models=models)
    argument_types = (
        "VARCHAR",
        *("DOUBLE",) * function.num_numbers,
        *("VARCHAR",) * function.num_strings,
    )
    result_type = example.result_type
    score_rows = partial(_score_named_rows, function, arrow_type(result_type))
    scorer = add_signature(len(argument_types), score_rows)
    signature = argument_types, result_type
    return EngineFunction(function.name, scorer, *signature, example.volatile, models=models)


def _look_up_groups(function: NamedFunction, names: pa.Array | pa.ChunkedArray) -> pa.Array:
    def fill_group(name: str, rows: Array) -> pa.Array | None:
        if name in function.groups:
            return to_arrow(np.full(len(rows), function.groups[name], np.int32), pa.int32())
        _check_unknown_name(function, name)
        return None

    return score_by_name(names, pa.int32(), fill_group)


def _score_named_rows(
    function: NamedFunction,
    result_type: pa.DataType,
    names: pa.Array | pa.ChunkedArray,
    *columns: pa.Array | pa.ChunkedArray,
) -> pa.Array:
    """Score each row with the model in `names`; `columns` are numeric, then string columns."""
    try:
        matrix = stack_columns(columns[: function.num_numbers], "float64")
        texts = [TextColumn.from_values(column) for column in columns[function.num_numbers :]]
    except SqlmlError as error:
        raise park_error(error) from None

    def score_rows_of_model(name: str, rows: Array) -> pa.Array | None:
        scorer = function.scorers.get(name)
        if scorer is None:
            _check_unknown_name(function, name)
            return None
        try:
            batch_function = find_function(scorer.spec.name)
            numbers = matrix[rows][:, list(scorer.number_positions)].astype(batch_function.dtype)
            positions = enumerate(scorer.string_positions)
            selected = {text_input_name(k): texts[position][rows] for k, position in positions}
            return batch_function.score_in_parts(np.ascontiguousarray(numbers), selected)
        except Exception as error:
            raise park_error(error) from None

    return score_by_name(names, result_type, score_rows_of_model)


def _check_unknown_name(function: NamedFunction, name: str) -> None:
    """Raise ParkedFailure for `name`, which has no model, unless its rows get the score NULL."""
    error = function.find_error(name)
    if error is not None:
        raise park_error(type(error)(error.message))
