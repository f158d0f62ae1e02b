"""Registered functions that find their scoring functions by name at run time.

An engine never forgets a function, and a database may have functions for ten thousand models. So a
registered function holds only the name of its scoring function. Scoring functions are cached while
they are in use, and rebuilt from the stored Program when they are called again.
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
from sqlml.catalog.scoring_macros import CLIENT
from sqlml.catalog.tables import HASH_DIGITS, STORED_PREFIX
from sqlml.errors import ArtifactError, CatalogError, SqlmlError, UnknownModelError
from sqlml.ir import store
from sqlml.ir.utf8_column import TextColumn
from sqlml.limits import DROPPED_BYTES
from sqlml.passes.split import text_input_name
from sqlml.planner.program.function_spec import (
    FUNCTION_PREFIX,
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

    All databases of this process are searched, the newest first, because a function outlives the
    connection that registered it, but must not keep the database open. Programs with equal hashes
    are equal in all databases.
    """
    with _lock:
        sources = [source() for source in reversed(_program_sources)]
    for read_program in filter(None, sources):
        with suppress(duckdb.Error):  # The database was closed.
            serialized = read_program(hash_prefix)
            if serialized is not None:
                yield serialized


ANY_PREFIX, OLD_ANY_PREFIX = f"{STORED_PREFIX}any_", "sqlml_any_"
"""Prefixes for functions that call any scoring function, in this version and earlier versions."""

_SIGNATURE_PATTERN = re.compile(
    r"(FLOAT|DOUBLE)\[([1-9]\d{0,5})\]( BLOB\[\])? (INTEGER|DOUBLE)((?:\[\]){0,2})"
)
"""The argument and result types of a function made by `make_function.make_engine_function`."""

_FUNCTION_OVERHEAD = 1 << 19  # Bytes that a dropped function uses in addition to its arrays.
_functions: RecentCache[str, BatchFunction] = RecentCache()
_dropped: RecentCache[str, BatchFunction] = RecentCache(DROPPED_BYTES)
_batch_count = 0
_build_locks = tuple(threading.Lock() for _ in range(16))
_drop_lock = threading.Lock()  # Held while functions move from `_functions` to `_dropped`.


def cache_function(name: str, function: BatchFunction) -> None:
    _functions.put(name, function, function.nbytes)


def count_batches() -> int:
    """Return the approximate number of batches that this process has scored in SQL functions."""
    return _batch_count + native_functions.count_batches()


def drop_functions(hashes: Collection[str]) -> None:
    """Drop the functions of the Programs with these hashes. Running queries may still call them."""
    prefix_pairs = product((FUNCTION_PREFIX, STORED_PREFIX), hashes)
    name_prefixes = tuple(f"{prefix}{digest[:HASH_DIGITS]}_" for prefix, digest in prefix_pairs)
    with _drop_lock:
        for name, function, nbytes in _functions.take(lambda name: name.startswith(name_prefixes)):
            _dropped.put(name, function, nbytes + _FUNCTION_OVERHEAD)
        native_functions.drop_plans(name_prefixes)


def find_function(name: str) -> BatchFunction:
    """Return the scoring function `name`; rebuild it if necessary, or raise ParkedFailure."""
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
    for serialized_program in find_stored_programs(spec.program_hash):
        program = store.loads(serialized_program)
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


def _score_with_named_function(
    result_type: pa.DataType,
    names: pa.Array | pa.ChunkedArray,
    *columns: pa.Array | pa.ChunkedArray,
) -> pa.Array:
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

    The name of the scoring function becomes the first argument, so a database of ten thousand
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
    score_batch = partial(_score_with_named_function, arrow_type(result_type))
    scorer = add_signature(len(types), score_batch)
    can_run_natively = number_type == "DOUBLE" and not text_type
    return EngineFunction(name.lower(), scorer, types, result_type, named=can_run_natively)


def make_client_function() -> EngineFunction:
    """Make the function whose type tells macros that a session scores."""
    return EngineFunction(CLIENT, _name_client, (), "INTEGER")


def _name_client() -> pa.Array:
    return pa.array([0], pa.int32())


def bind_by_name(function: EngineFunction) -> EngineFunction:
    """Return a copy of `function` that looks up the scoring function by name in each call."""
    if isinstance(function.function, BatchFunction):
        cache_function(function.name, function.function)
    elif function.function is not None:
        return function
    scorer = add_signature(len(function.argument_types), partial(_score_batch, function.name))
    return replace(function, function=scorer)


class SqlmlFunctions:
    """Lists the sqlml functions that views and macros call, for one connection."""

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
            "AND NOT (schema_name = 'sqlml' AND "
            "system.main.regexp_matches(function_name, '^(run|score|sqlml)_'))"
        )

    def _read_strings(self, query: str) -> list[str]:
        return [str(value) for (value,) in self._connection.read(query)]

    def list_macro_functions(self) -> list[EngineFunction]:
        """Return the functions that sqlml's macros call; a function is compiled at first use."""
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
        except CatalogError:  # Foreign or damaged tables are reported when a model is first used.
            return []


def make_functions_of_calls(calls: Iterable[tuple[Any, Any, Any]]) -> list[EngineFunction]:
    """Return the functions for rows (function name, argument types, result type) of a catalog."""
    functions = (_make_function_of_call(*row) for row in calls if row[0] is not None)
    return [*{function.name: function for function in functions if function is not None}.values()]


def _make_function_of_call(name: Any, stored_types: Any, result_type: Any) -> EngineFunction | None:
    """Return the function for a row of the table `catalog_calls`, or None if the row is damaged."""
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
    """Make a function that scores each row with the model named in the row.

    The function takes a name, numbers (DOUBLE) and strings. `example` is the function of any of the
    models, since all models return the same type. If `example` is None, the function returns the
    group number of the model instead.
    """
    models = function if function.by_column else None
    if example is None:
        read_groups = partial(_look_up_groups, function)
        return EngineFunction(function.name, read_groups, ("VARCHAR",), "INTEGER", models=models)
    number_types = ("DOUBLE",) * function.num_numbers
    argument_types = ("VARCHAR", *number_types, *("VARCHAR",) * function.num_strings)
    result_type = example.result_type
    score_rows = partial(_score_named_rows, function, arrow_type(result_type))
    scorer = add_signature(len(argument_types), score_rows)
    types = argument_types, result_type
    return EngineFunction(function.name, scorer, *types, example.volatile, models=models)


def _look_up_groups(function: NamedFunction, names: pa.Array | pa.ChunkedArray) -> pa.Array:
    def repeat_group(name: str, row_indexes: Array) -> pa.Array | None:
        if name in function.groups:
            groups = np.full(len(row_indexes), function.groups[name], np.int32)
            return to_arrow(groups, pa.int32())
        _check_unknown_name(function, name)
        return None

    return score_by_name(names, pa.int32(), repeat_group)


def _score_named_rows(
    function: NamedFunction,
    result_type: pa.DataType,
    names: pa.Array | pa.ChunkedArray,
    *columns: pa.Array | pa.ChunkedArray,
) -> pa.Array:
    """Score each row with the model in `names`; `columns` has numeric columns, then strings."""
    try:
        matrix = stack_columns(columns[: function.num_numbers], "float64")
        texts = [TextColumn.from_values(column) for column in columns[function.num_numbers :]]
    except SqlmlError as error:
        raise park_error(error) from None

    def score_rows_of_model(name: str, row_indexes: Array) -> pa.Array | None:
        scorer = function.scorers.get(name)
        if scorer is None:
            _check_unknown_name(function, name)
            return None
        try:
            batch_function = find_function(scorer.spec.name)
            numbers = matrix[row_indexes][:, list(scorer.number_positions)]
            named_texts = {
                text_input_name(k): texts[position][row_indexes]
                for k, position in enumerate(scorer.string_positions)
            }
            packed_matrix = np.ascontiguousarray(numbers, batch_function.dtype)
            return batch_function.score_in_parts(packed_matrix, named_texts)
        except Exception as error:
            raise park_error(error) from None

    return score_by_name(names, result_type, score_rows_of_model)


def _check_unknown_name(function: NamedFunction, name: str) -> None:
    """Raise ParkedFailure for the unknown model `name`, unless unknown models score as NULL."""
    error = function.find_error(name)
    if error is not None:
        raise park_error(type(error)(error.message))
