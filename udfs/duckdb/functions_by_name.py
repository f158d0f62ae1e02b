"""The functions that an engine calls: each finds what scores by its name, when a batch comes.

An engine never forgets a function, and a database may have functions for ten thousand models. So
what it is given is small: a name. What scores is kept for as long as it is in use (`recent`), and
made again from the stored Program where it is not there.
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
from sqlml.planner.program.function_names import HASH_DIGITS, KEPT, PREFIX, parse_name
from sqlml.udfs.batch_function import BatchFunction, arrow_type, park
from sqlml.udfs.duckdb.native import functions as native
from sqlml.udfs.engine_function import EngineFunction, taking
from sqlml.udfs.make_function import engine_function

# `stored_programs`: what the databases of this process have stored, found by content hash.
#
# A function outlives the connection that made it, and must not keep its database open; and the
# same hash means the same Program in whichever database.


Read = Callable[[str], bytes | None]
"""The content of a Program by the beginning of its hash; None if it is not stored."""

_sources: list[weakref.WeakMethod[Read]] = []
_lock = threading.Lock()


def add_source(read: Read) -> None:
    """Let functions find what a method reads, for as long as its object lives."""
    with _lock:
        _sources[:] = [s for s in _sources if s() is not None]
        _sources.append(weakref.WeakMethod(read))


def stored_programs(digest: str) -> Iterator[bytes]:
    """The contents of stored Programs whose hash begins with `digest`, the newest database's first.

    They are not checked.
    """
    with _lock:
        sources = [s() for s in reversed(_sources)]
    for read in sources:
        if read is None:
            continue
        try:
            found = read(digest)
        except duckdb.Error:  # its database was closed
            continue
        if found is not None:
            yield found


ANY = f"{KEPT}any_"
"""What the names of functions begin with that stand for many."""

OLD_ANY = "sqlml_any_"
"""What they began with in databases of earlier versions."""

_SIGNATURE = re.compile(
    r"(FLOAT|DOUBLE)\[([1-9]\d{0,5})\]( BLOB\[\])? (INTEGER|DOUBLE)((?:\[\]){0,2})"
)
"""The types of a function of ours (`make_function.engine_function`)."""

_BESIDE = 1 << 19
"""Bytes that a dropped function takes besides its arrays: a few are kept."""

_ready: Recent[str, BatchFunction] = Recent()
_dropped: Recent[str, BatchFunction] = Recent(DROPPED_BYTES)
_batches = 0
_making = tuple(threading.Lock() for _ in range(16))
_moving = threading.Lock()
"""Held while functions go from `_ready` to `_dropped`, and are in neither."""


def ready(name: str, function: BatchFunction) -> None:
    """Keep a function that was made just now, for the callee of its name."""
    _ready.put(name, function, function.nbytes)


def batches() -> int:
    """How many batches came to functions of ours in this process, about."""
    return _batches + native.batches()


def dropped(digests: Collection[str]) -> None:
    """The functions of these Programs are of no use, but to queries that run already."""
    starts = [digest[:HASH_DIGITS] for digest in digests]
    names = tuple(f"{prefix}{start}_" for prefix in (PREFIX, KEPT) for start in starts)
    with _moving:
        for name, function, nbytes in _ready.take(lambda name: name.startswith(names)):
            _dropped.put(name, function, nbytes + _BESIDE)
        native.forget(names)


def found(name: str) -> BatchFunction:
    """What scores under a name, made from its stored Program where it is not at hand.

    Raises:
        ParkedFailure: stands for the typed error that `parked_errors.claim` gives back.
    """
    global _batches
    _batches += 1
    known = _ready.get(name) or _dropped.get(name)
    if known is not None:
        return known
    with _making[hash(name) % len(_making)]:
        with _moving:
            known = _ready.get(name) or _dropped.get(name)
        if known is None:
            try:
                known = _made(name)
            except SqlmlError as error:
                raise park(error) from None
            ready(name, known)
        return known


def _made(name: str) -> BatchFunction:
    spec = parse_name(name)
    if spec is None:
        raise ArtifactError(f"the catalog names {name!r}, which is not a function")
    for content in stored_programs(spec.program):
        program = store.loads(content)
        if not program.hash.startswith(spec.program):
            raise ArtifactError(
                f"the stored model {spec.program} does not match its hash; create it again"
            )
        made = engine_function(spec, program).function
        assert isinstance(made, BatchFunction)
        return made
    raise UnknownModelError(
        f"the model program {spec.program} is not stored in this database; create the model again"
    )


def _score(name: str, *columns: pa.Array | pa.ChunkedArray) -> pa.Array:
    """What the function of a name makes of one batch."""
    made = found(name)
    if len(columns) != made.arguments:
        raise park(ArtifactError(f"the arguments of {name} do not match its call"))
    return made(*columns)


def _score_any(
    result: pa.DataType,
    names: pa.Array | pa.ChunkedArray,
    *columns: pa.Array | pa.ChunkedArray,
) -> pa.Array:
    """What the function that all rows of a batch name makes of it; `result` is what is known of it
    where an engine asks for no rows."""
    if not len(names):
        return pa.array([], result)
    name = names[0].as_py()
    if not isinstance(name, str) or names[-1].as_py() != name:
        raise park(ArtifactError("the name of a model's function must be the same for all rows"))
    scored = _score(name, *columns)
    if scored.type != result:
        raise park(ArtifactError(f"the result of {name} does not match its call"))
    return scored


def any_function(
    argument_types: tuple[str, ...], result_type: str, prefix: str = ANY
) -> EngineFunction | None:
    """The function that calls all functions of such types; None if no function of ours has them.

    A row's first value says which, so a database of ten thousand models needs a few functions.

    >>> any_function(("DOUBLE[4]", "BLOB[]"), "INTEGER[]").name
    'sqlml_open_a_session_first_any_double4_texts_integerl'
    """
    made = _SIGNATURE.fullmatch(" ".join((*argument_types, result_type)))
    if made is None:
        return None
    kind, width, texts, result, levels = made.groups()
    name = f"{prefix}{kind}{width}{'_texts' if texts else ''}_{result}{'l' * (len(levels) // 2)}"
    taken = ("VARCHAR", *argument_types)
    call = taking(len(taken), partial(_score_any, arrow_type(result_type)))
    fits = kind == "DOUBLE" and not texts
    return EngineFunction(name.lower(), call, taken, result_type, named=fits)


def is_signature(argument_types: tuple[str, ...], result_type: str) -> bool:
    """Whether the types are those of a function of ours.

    >>> is_signature(("DOUBLE[4]",), "DOUBLE[]"), is_signature(("VARCHAR",), "DOUBLE")
    (True, False)
    """
    return _SIGNATURE.fullmatch(" ".join((*argument_types, result_type))) is not None


def callee(function: EngineFunction) -> EngineFunction:
    """What to register for a function of ours: it finds what scores by its name."""
    if isinstance(function.function, BatchFunction):
        ready(function.name, function.function)
    elif function.function is not None:
        return function
    call = taking(len(function.argument_types), partial(_score, function.name))
    return replace(function, function=call)


# `OurFunctions`: which functions of ours the views and macros of the databases call.


class OurFunctions:
    """What one connection sees of ours in its databases."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def attached(self) -> list[str]:
        """Names of all attached databases."""
        ask = "SELECT database_name FROM system.main.duckdb_databases() ORDER BY ALL"
        return [str(name) for (name,) in self._connection.read(ask)]

    def catalogs(self) -> list[str]:
        """Names of the attached databases that have a schema `sqlml`."""
        ask = "SELECT database_name FROM system.main.duckdb_schemas() WHERE schema_name = 'sqlml'"
        return [str(name) for (name,) in self._connection.read(ask)]

    def texts(self) -> list[str]:
        """Texts of the users' views and macros that call functions of ours."""
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

    def of_plain_macros(self) -> list[EngineFunction]:
        """The functions that our own macros call, each to be compiled when it is first used."""
        schemas = map(self._connection.schema, self.catalogs())
        return of_calls(row for schema in schemas for row in self._called(schema))

    def _called(self, schema: str) -> list[tuple[Any, ...]]:
        try:
            if "catalog_calls" not in self._connection.tables(schema):
                return []
            return self._connection.read(
                f"SELECT DISTINCT function, arguments, result FROM {schema}.catalog_calls "
                "WHERE function IS NOT NULL"
            )
        except CatalogError:  # not ours, or damaged: whoever asks for its models is told
            return []


def of_calls(calls: Iterable[tuple[Any, Any, Any]]) -> list[EngineFunction]:
    """The functions that macros of ours call: their names, types of arguments, and of results."""
    made = (_called_function(*call) for call in calls if call[0] is not None)
    return list({function.name: function for function in made if function is not None}.values())


def _called_function(name: Any, arguments: Any, result: Any) -> EngineFunction | None:
    """The function that a row of the catalog's calls names; None if the row is damaged."""
    kinds = tuple(map(str, arguments or ()))
    prefix = next((p for p in (ANY, OLD_ANY) if str(name).startswith(p)), None)
    if prefix is not None:
        made = any_function(kinds[1:], str(result), prefix)
        return made if made is not None and made.name == name else None
    spec = parse_name(str(name))
    if spec is None or spec.name != name or not is_signature(kinds, str(result)):
        return None
    return EngineFunction(spec.name, None, kinds, str(result))
