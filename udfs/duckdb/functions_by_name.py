"""The functions that an engine calls: each finds what scores by its name, when a batch comes.

An engine never forgets a function, and a database may have functions for ten thousand models. So
what it is given is small: a name. What scores is kept for as long as it is in use (`recent`), and
made again from the stored Program where it is not there.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Collection
from dataclasses import replace
from functools import partial

import pyarrow as pa

from sqlml.bounded_cache import Recent
from sqlml.errors import ArtifactError, SqlmlError, UnknownModelError
from sqlml.ir import store
from sqlml.limits import DROPPED_BYTES
from sqlml.planner.program.function_names import HASH_DIGITS, KEPT, PREFIX, parse_name
from sqlml.udfs.batch_function import BatchFunction, arrow_type
from sqlml.udfs.duckdb.native import functions as native
from sqlml.udfs.duckdb.program_sources import stored_programs
from sqlml.udfs.engine_function import EngineFunction, taking
from sqlml.udfs.make_function import engine_function
from sqlml.udfs.parked_errors import park

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
