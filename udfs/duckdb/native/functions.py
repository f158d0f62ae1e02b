"""`register`: functions of ours that DuckDB calls without Python, found by their names.

What DuckDB is given lives for ever: the address of the row path, and a small state that is never
freed. The state points to a plan (`plan_words.py`), which is made when the first rows come, and may
be taken away again: whoever reads it is counted, and what is counted is not freed.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pyarrow as pa

from sqlml.backends.native.jit.specialise import COUNT, entry_of, specialise
from sqlml.errors import ScoringError
from sqlml.types import Array
from sqlml.udfs.batch_function import BatchFunction
from sqlml.udfs.duckdb.native import c_api, row_path
from sqlml.udfs.duckdb.native.plan_words import PlanWords, plan_words
from sqlml.udfs.parked_errors import park

_KINDS = {"FLOAT": 10, "DOUBLE": 11, "INTEGER": 4}
"""DuckDB's numbers of types (`duckdb_type`)."""

Find = Callable[[str], BatchFunction]
"""What scores under a name; it raises the exception whose text DuckDB is to show."""


class _State:
    """What DuckDB holds of one function: `row_path.STATE` words."""

    def __init__(self, name: str, number: int, find: Find) -> None:
        self.name = name
        self.find = find
        self.words = np.zeros(row_path.STATE, np.int64)
        self.words[row_path.NUMBER] = number
        self.words[row_path.MAKE], self.words[row_path.REFUSE] = _callbacks()[:2]
        self.plan: PlanWords | None = None
        self.function: BatchFunction | None = None


_states: list[_State] = []
_by_name: dict[str, _State] = {}
_left: list[tuple[_State, PlanWords | None, BatchFunction | None]] = []
"""Plans that were taken away, kept while a thread may still follow one."""
_lock = threading.RLock()


def fits(function: BatchFunction) -> bool:
    """Whether a function runs without Python. It compiles its kernels."""
    return plan_words(function) is not None


def register(
    connection: int,
    name: str,
    argument_types: tuple[str, ...],
    result_type: str,
    find: Find,
    volatile: bool = False,
) -> bool:
    """Register a function of FLOAT or DOUBLE columns on a connection of the C API.

    Args:
        connection: its address.
        result_type: INTEGER, DOUBLE, or lists of these.
        find: finds what scores, by the name, when the first rows come.

    Returns:
        Whether DuckDB took it.
    """
    api = c_api.library()
    with _lock:
        state = _by_name.get(name)
        if state is None:
            state = _by_name[name] = _State(name, len(_states), find)
            _states.append(state)
    made = ctypes.c_void_p(api.duckdb_create_scalar_function())
    try:
        api.duckdb_scalar_function_set_name(made, name.encode())
        for kind in argument_types:
            with_type(kind, partial(api.duckdb_scalar_function_add_parameter, made))
        with_type(result_type, partial(api.duckdb_scalar_function_set_return_type, made))
        api.duckdb_scalar_function_set_special_handling(made)  # NULL comes as NULL
        if volatile:
            api.duckdb_scalar_function_set_volatile(made)
        api.duckdb_scalar_function_set_extra_info(made, state.words.ctypes.data, None)
        api.duckdb_scalar_function_set_function(made, _row_path())
        return int(api.duckdb_register_scalar_function(connection, made)) == 0
    finally:
        api.duckdb_destroy_scalar_function(ctypes.byref(made))


def mark(connection: int, name: str) -> None:
    """Register a function that is known by its name, and refuses to be called."""
    api = c_api.library()
    made = ctypes.c_void_p(api.duckdb_create_scalar_function())
    api.duckdb_scalar_function_set_name(made, name.encode())
    with_type("INTEGER", partial(api.duckdb_scalar_function_set_return_type, made))
    api.duckdb_scalar_function_set_function(made, _callbacks()[2])
    api.duckdb_register_scalar_function(connection, made)
    api.duckdb_destroy_scalar_function(ctypes.byref(made))


def forget(name: str) -> None:
    """Take a function's plan away; the next rows that come make another."""
    with _lock:
        state = _by_name.get(name)
        if state is not None and state.plan is not None:
            if _put_plan(state, 0):
                _left.append((state, state.plan, state.function))
            state.plan = state.function = None
        _sweep()


def _put_plan(state: _State, address: int) -> int:
    kernel = specialise(row_path.put_plan, (COUNT, COUNT))
    return int(kernel(state.words.ctypes.data, address))


def _sweep() -> None:
    _left[:] = [held for held in _left if held[0].words[row_path.USERS] > 0]


def with_type(name: str, use: Callable[[ctypes.c_void_p], Any]) -> None:
    """Call `use` with a logical type, such as DOUBLE or INTEGER[][], which is freed after it."""
    api = c_api.library()
    element = name.removesuffix("[]")
    if element != name:

        def listed(inner: ctypes.c_void_p) -> None:
            _with(ctypes.c_void_p(api.duckdb_create_list_type(inner)), use)

        with_type(element, listed)
        return
    _with(ctypes.c_void_p(api.duckdb_create_logical_type(_KINDS[name])), use)


def _with(made: ctypes.c_void_p, use: Callable[[ctypes.c_void_p], Any]) -> None:
    use(made)
    c_api.library().duckdb_destroy_logical_type(ctypes.byref(made))


@cache
def _row_path() -> int:
    """Where the row path lies."""
    for name in row_path.CALLED:
        llvm.add_symbol(name, c_api.address(name))
    entry = entry_of(specialise(row_path.score, row_path.SIGNATURE))
    assert entry is not None and entry.numbers
    return entry.numbers


@cache
def _callbacks() -> tuple[int, int, int, Any]:
    """The addresses of `_make`, `_refuse` and `_refuse_call`, and what keeps them."""
    word = ctypes.c_int64
    make = ctypes.CFUNCTYPE(word, word, word)(_make)
    refuse = ctypes.CFUNCTYPE(word, *[word] * 4)(_refuse)
    refused = ctypes.CFUNCTYPE(None, word, word, word)(_refuse_call)
    kept = (make, refuse, refused)
    first, second, third = (ctypes.cast(f, ctypes.c_void_p).value or 0 for f in kept)
    return first, second, third, kept


def _refuse_call(info: int, chunk: int, out: int) -> None:
    _tell(info, ScoringError("this function marks a database, and computes nothing"))


def _make(number: int, info: int) -> int:
    """Make the plan of a function; 0 where that fails, and DuckDB was told why."""
    state = _states[number]
    try:
        function = state.find(state.name)
        with _lock:
            if state.plan is None:
                plan = plan_words(function)
                if plan is None:
                    raise ScoringError(f"{state.name} takes steps that need Python")
                state.plan, state.function = plan, function
                _put_plan(state, plan.address)
            _sweep()
        return 1
    except BaseException as error:
        _tell(info, error)
        return 0


def _refuse(number: int, info: int, told: int, plan: int) -> int:
    """Say what is wrong with a block of rows; 0 where nothing is, and their numbers are written."""
    state = _states[number]
    try:
        with _lock:
            function = state.function or next(
                f for s, p, f in _left if s is state and p is not None and p.address == plan
            )
        assert function is not None
        words = np.ctypeslib.as_array((ctypes.c_int64 * 4).from_address(told))
        at, rows, result, _ = words.tolist()
        matrix = _copied(at, rows, function)
        numbers = function.of_matrix(matrix, {})
        while pa.types.is_list(numbers.type):
            numbers = numbers.flatten()
        held = np.ascontiguousarray(numbers.to_numpy(zero_copy_only=False))
        ctypes.memmove(result, held.ctypes.data, held.nbytes)
        return 0
    except BaseException as error:
        _tell(info, error)
        return 1


def _copied(at: int, rows: int, function: BatchFunction) -> Array:
    dtype = np.dtype(function.dtype)
    matrix = np.empty((rows, function.width), dtype)
    ctypes.memmove(matrix.ctypes.data, at, matrix.nbytes)
    return matrix


def _tell(info: int, error: BaseException) -> None:
    """Let DuckDB fail with the text under which the error is parked."""
    text = str(park(error)) if isinstance(error, Exception) else f"{type(error).__name__}: "
    c_api.library().duckdb_scalar_function_set_error(info, text.encode())
