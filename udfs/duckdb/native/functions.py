"""Functions that DuckDB calls without Python.

DuckDB keeps the address of the row path and a small state forever; the state is never freed. It
points to a plan (`plan_words.py`), which is built when the first rows arrive and may be dropped
again. Threads that read a plan are counted, and a plan in use is not freed.

`register` serves functions of columns. `register_named` serves functions of packed rows that call
the function whose name they get; macros for plain connections use them:
`sqlml_open_a_session_first_any_double28_integer('sqlml_...', [...]::DOUBLE[28])`. When DuckDB binds
such a call, the state of the named function becomes the call's bind data.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlml.backends.no_wait import NotReady, no_wait
from sqlml.errors import ArtifactError, ScoringError
from sqlml.ir.utf8_column import TextColumn
from sqlml.limits import RECENT_BYTES
from sqlml.passes.split import text_input_name
from sqlml.planner.program.function_names import parse_name
from sqlml.planner.program.named_function import COMPILING
from sqlml.types import Array
from sqlml.udfs.batch_function import BatchFunction, ParkedFailure, park
from sqlml.udfs.duckdb.native import c_api
from sqlml.udfs.duckdb.native.c_api import with_type
from sqlml.udfs.duckdb.native.memory_layout import (
    ALL_BATCHES,
    ASK,
    BATCHES,
    COLUMNS_ALONE,
    DIED,
    MAKE,
    MEASURE,
    NAMED,
    NO_MEMORY,
    NULL_ROW,
    NUMBER,
    PACKED_ROWS,
    ROWS_OF,
    STATE,
    USERS,
)
from sqlml.udfs.engine_function import EngineFunction, Metered

if TYPE_CHECKING:
    from sqlml.udfs.duckdb.native.plan_words import Plan


_NULL_ROW = ctypes.create_string_buffer(
    b"a row of packed numbers is NULL; pass NULL per column instead"
)
NO_MEMORY_TEXT = ctypes.create_string_buffer(b"out of memory while scoring a batch of rows")

Find = Callable[[str], BatchFunction]
"""Finds the scoring function of a name; its exceptions become DuckDB's error text."""


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    """A plan, its function, and the number of batches before it.

    With `soon`, Python scores until kernels are compiled, and then a better plan replaces this one.
    """

    table: Any
    function: BatchFunction
    since: int
    soon: bool


class State:
    """The part of a function that DuckDB holds: an array of `memory_layout.STATE` integers.

    Args:
        rows_of: how rows arrive (`memory_layout`).
        wanted: the packed function that calls this one by name, whose types it must have.
    """

    def __init__(
        self,
        name: str,
        find: Find,
        measured: Metered | None = None,
        rows_of: int = COLUMNS_ALONE,
        wanted: EngineFunction | None = None,
    ) -> None:
        number = len(_states)
        _states.append(self)
        self.name = name
        self.find = find
        self.measured = measured
        self.wanted = wanted
        self.memory = np.zeros(STATE, np.int64)
        self.memory[NUMBER] = number
        self.memory[MAKE], self.memory[ASK] = id(_make_plan), id(_score_in_python)
        self.memory[DIED] = id(report_interrupt)
        self.memory[MEASURE] = 0 if measured is None else id(_measure)
        self.memory[NO_MEMORY] = ctypes.addressof(NO_MEMORY_TEXT)
        self.memory[ALL_BATCHES] = _batches.ctypes.data
        self.memory[ROWS_OF] = rows_of
        self.memory[NULL_ROW] = ctypes.addressof(_NULL_ROW)
        self.plan: _Plan | None = None

    @property
    def address(self) -> int:
        """Return the address of the state."""
        address: int = self.memory.ctypes.data
        return address


_batches = np.zeros(1, np.int64)
_states: list[State] = []
_by_name: dict[str, State] = {}
_dropped: list[tuple[State, _Plan]] = []
"""Dropped plans that a thread may still follow."""
LOCK = threading.RLock()

# A forked child must not wait for a thread that it does not have.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=LOCK.release
    )


def register(connection: int, function: EngineFunction, find: Find) -> bool:
    """Register a function of FLOAT or DOUBLE columns on a connection of the C API.

    Args:
        connection: address of the connection.
        function: returns INTEGER, DOUBLE, or lists of these.
        find: finds the scoring function by name when the first rows arrive, unless `function` has a
            meter.

    Returns:
        Whether DuckDB accepted it; False where numba cannot compile the row path.
    """
    measured, code = function.metered, compile_row_path()
    if code is None:
        return False
    finds = find if measured is None else lambda _: measured.batch_function()
    return create(connection, function, state_of(function.name, finds, measured).address, code)


def state_of(name: str, find: Find, measured: Metered | None = None) -> State:
    """Return the state of a function of columns by its name."""
    with LOCK:
        state = _by_name.get(name)
        if state is None:
            state = _by_name[name] = State(name, find, measured)
        return state


def create(
    connection: int,
    function: EngineFunction,
    extra_info: int,
    code: int,
    bind: ctypes.c_void_p | None = None,
) -> bool:
    """Create a function on a connection of the C API, and return whether DuckDB accepted it.

    Args:
        extra_info: address that the machine code gets.
        code: address of the machine code.
        bind: called when DuckDB binds a call.
    """
    api = c_api.library()
    handle = ctypes.c_void_p(api.duckdb_create_scalar_function())
    try:
        api.duckdb_scalar_function_set_name(handle, function.name.encode())
        for kind in function.argument_types:
            with_type(kind, partial(api.duckdb_scalar_function_add_parameter, handle))
        with_type(function.result_type, partial(api.duckdb_scalar_function_set_return_type, handle))
        # Without this, DuckDB would return NULL for NULL arguments.
        api.duckdb_scalar_function_set_special_handling(handle)
        if function.volatile:
            api.duckdb_scalar_function_set_volatile(handle)
        api.duckdb_scalar_function_set_extra_info(handle, extra_info, None)
        api.duckdb_scalar_function_set_function(handle, code)
        if bind is not None:
            api.duckdb_scalar_function_set_bind(handle, bind)
        return int(api.duckdb_register_scalar_function(connection, handle)) == 0
    finally:
        api.duckdb_destroy_scalar_function(ctypes.byref(handle))


def mark(connection: int, name: str) -> None:
    """Register a function that marks a database by its name and fails when called."""
    api = c_api.library()
    handle = ctypes.c_void_p(api.duckdb_create_scalar_function())
    api.duckdb_scalar_function_set_name(handle, name.encode())
    with_type("INTEGER", partial(api.duckdb_scalar_function_set_return_type, handle))
    api.duckdb_scalar_function_set_function(handle, _refusing_callback()[0])
    api.duckdb_register_scalar_function(connection, handle)
    api.duckdb_destroy_scalar_function(ctypes.byref(handle))


def count_batches() -> int:
    """Return the number of batches that native functions got in this process."""
    return int(_batches[0])


def forget(names: tuple[str, ...]) -> None:
    """Drop the plans of functions whose names begin with one of `names`.

    The next rows of such a function build a new plan.
    """
    with LOCK:
        for state in _states:
            if state.plan is not None and state.name.startswith(names):
                _drop_plan(state)
        _sweep()


def _drop_plan(state: State) -> None:
    plan, state.plan = state.plan, None
    if plan is not None and _exchange_plan(state, 0):
        _dropped.append((state, plan))


def _make_room() -> None:
    """Drop the plans of idle functions if all plans together exceed the memory limit."""
    planned = [(state, state.plan) for state in _states if state.plan is not None]
    if sum(plan.function.nbytes for _, plan in planned) <= RECENT_BYTES:
        return
    for state, plan in planned:
        if state.memory[BATCHES] == plan.since:
            _drop_plan(state)
        else:
            now = int(state.memory[BATCHES])
            state.plan = replace(plan, since=now)


def _exchange_plan(state: State, address: int) -> int:
    from sqlml.backends.native.jit.specialise import COUNT, specialise
    from sqlml.udfs.duckdb.native import row_path

    kernel = specialise(row_path.put_plan, (COUNT, COUNT))
    return int(kernel(state.address, address))


def _sweep() -> None:
    _dropped[:] = [entry for entry in _dropped if entry[0].memory[USERS] > 0]


def types_of(function: BatchFunction) -> tuple[str, ...]:
    """Return the types of a function of packed rows: the arguments', then the result's."""
    number = "FLOAT" if function.dtype == "float32" else "DOUBLE"
    texts = ("BLOB[]",) * bool(function.texts)
    result = "INTEGER" if function.integer else "DOUBLE"
    levels = "[]" * (function.listed + bool(function.groups))
    return (f"{number}[{function.packed}]", *texts, result + levels)


def is_compiled() -> bool:
    """Return whether the row path is compiled already, since opening a database must not wait."""
    from sqlml.backends.native.jit.specialise import in_use, is_kept
    from sqlml.udfs.duckdb.native import row_path

    path = row_path.score, row_path.SIGNATURE
    return path in in_use() or is_kept(*path)


def not_ready(wait: bool) -> str | None:
    """Return why the row path is not ready while it is being compiled; None if it is ready.

    Args:
        wait: wait until it is ready.
    """
    try:
        with nullcontext() if wait else no_wait():
            compile_row_path()
    except NotReady:
        return COMPILING
    return None


@cache
def compile_row_path() -> int | None:
    """Return the address of the row path; None where numba itself would have to run it.

    Raises:
        NotReady: it is being compiled, and the caller need not wait.
    """
    import llvmlite.binding as llvm

    from sqlml.backends.native.jit.specialise import COUNT, entry_of, specialise
    from sqlml.udfs.duckdb.native import row_path

    for name in row_path.CALLED:
        llvm.add_symbol(name, c_api.address(name))
    entry = entry_of(specialise(row_path.score, row_path.SIGNATURE))
    compile_copy()  # Compiled as well, so that a later process finds everything on disk.
    specialise(row_path.put_plan, (COUNT, COUNT))
    return None if entry is None else entry.numbers


@cache
def compile_copy() -> int | None:
    """Return the address of `row_path.same`; None where numba itself would have to run it."""
    from sqlml.backends.native.jit.specialise import COUNT, entry_of, specialise
    from sqlml.udfs.duckdb.native import row_path

    entry = entry_of(specialise(row_path.same, (COUNT,)))
    return None if entry is None else entry.numbers


@cache
def _refusing_callback() -> tuple[int, Any]:
    """Return the address of `_refuse_call`, and the object that keeps it alive."""
    callback = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)(_refuse_call)
    return ctypes.cast(callback, ctypes.c_void_p).value or 0, callback


def _refuse_call(info: int, chunk: int, out: int) -> None:
    report_error(info, ScoringError("this function only marks a database and cannot be called"))


# Machine code calls this and the next functions by the addresses of their objects, which this
# module keeps alive.
def report_interrupt(info: int, kind: type[BaseException]) -> int:
    """Report the exception that a signal handler raised before one of the others began."""
    report_error(info, kind())
    return 0


def _measure(number: int, info: int, rows: int, _: int) -> int:
    """Record the start (rows < 0) or the end of a batch on this thread."""
    measured = _states[number].measured
    try:
        if measured is not None:
            measured.enter() if rows < 0 else measured.leave(rows)
        return 1
    except BaseException as error:
        report_error(info, error)
        return 0


def _make_plan(number: int, info: int, rows: int, _: int) -> int:
    """Build a plan of a function with the calls for a batch of `rows` rows.

    Returns 0 after an error, which DuckDB gets.
    """
    state = _states[number]
    try:
        before = state.plan
        function = state.find(state.name) if before is None else before.function
        if state.wanted is not None and types_of(function) != state.wanted.types[1:]:
            raise park(ArtifactError(f"the types of {state.name} do not match its call"))
        words, soon = _plan_or_python(function, rows, None if before is None else before.table)
        with LOCK:
            if state.plan is before:
                if before is None:
                    _make_room()
                else:
                    _dropped.append((state, before))
                state.plan = _Plan(words, function, int(state.memory[BATCHES]) - 1, soon)
                _exchange_plan(state, words.address)
            _sweep()
        return 1
    except BaseException as error:
        report_error(info, error)
        return 0


def _plan_or_python(function: BatchFunction, rows: int, before: Plan | None) -> tuple[Plan, bool]:
    """Return the plan of a function, and whether a better one follows soon."""
    from sqlml.udfs.duckdb.native.plan_words import build_plan, plan_for_python

    try:
        with no_wait():
            return build_plan(function, rows, before), False
    except NotReady:
        return plan_for_python(function), True


def _score_in_python(number: int, info: int, block_at: int, plan_at: int) -> int:
    """Score a block of rows in Python. Returns 0 after an error, which DuckDB gets.

    `block_at` is the address of four integers: the addresses of the rows, their count, the address
    of the results, and that of the addresses of the text columns.
    """
    state = _states[number]
    try:
        with LOCK:
            plans = [state.plan, *(plan for s, plan in _dropped if s is state)]
        plan = next(p for p in plans if p is not None and p.table.address == plan_at)
        function = plan.function
        at, rows, result, texts = (ctypes.c_int64 * 4).from_address(block_at)
        numbers = function.score_numbers(*_read_block(function, plan.table.width, at, rows, texts))
        dtype = numbers.type.to_pandas_dtype()
        values = np.frombuffer(numbers.buffers()[1], dtype, len(numbers), 0)
        ctypes.memmove(result, values.ctypes.data, values.nbytes)
        if plan.soon:
            with LOCK:
                if state.plan is plan:
                    _drop_plan(state)  # The next batch builds a better one.
        return 1
    except BaseException as error:
        report_error(info, error)
        return 0


def _read_block(
    function: BatchFunction, width: int, at: int, rows: int, texts: int
) -> tuple[Array, dict[str, TextColumn]]:
    """Return the packed numbers (n, given) and the texts of a block of rows (n, width)."""
    number = ctypes.c_float if function.dtype == "float32" else ctypes.c_double
    matrix = np.ctypeslib.as_array((number * (rows * width)).from_address(at)).reshape(rows, width)
    if function.lookup is not None and width != function.packed:
        matrix = matrix[:, function.lookup.packed or (0,)]
    addresses = (ctypes.c_int64 * function.texts).from_address(texts)
    return matrix, {text_input_name(k): _read_texts(at, rows) for k, at in enumerate(addresses)}


def _read_texts(at: int, rows: int) -> TextColumn:
    """Read a column of DuckDB's texts at an address."""
    from sqlml.udfs.duckdb.native.plan_words import texts_of

    return texts_of(np.ctypeslib.as_array((ctypes.c_uint64 * (2 * rows)).from_address(at)))


def report_error(info: int, error: BaseException) -> None:
    """Make DuckDB fail with the token of a parked error."""
    c_api.library().duckdb_scalar_function_set_error(info, park_text(error))


def park_text(error: BaseException) -> bytes:
    """Park an error and return the text with its token."""
    if isinstance(error, ParkedFailure):
        text = str(error)
    elif isinstance(error, Exception):
        text = str(park(error))
    else:  # For example, a Ctrl-C.
        text = f"executing the UDF: {type(error).__name__}"
    return text.encode()


_named: dict[str, State] = {}
_bound: dict[tuple[str, str], State] = {}
_by_address: dict[int, State] = {}


def register_named(connection: int, function: EngineFunction, find: Find) -> bool:
    """Register a function of a name and an array of numbers on a connection of the C API.

    Args:
        connection: address of the connection.
        function: its arguments are VARCHAR and DOUBLE[n].
        find: finds the scoring function by name.

    Returns:
        Whether DuckDB accepted it; False where the row path is not compiled yet.
    """
    code = compile_row_path() if is_compiled() else None
    if code is None or compile_copy() is None:
        return False
    with LOCK:
        state = _named.get(function.name)
        if state is None:
            state = _named[function.name] = State(
                function.name, find, rows_of=NAMED, wanted=function
            )
            _by_address[state.address] = state
    return create(connection, function, state.address, code, _bind_callback()[0])


def _state_of(caller: State, name: str) -> State:
    """Return the state of a named function that one of the packed functions calls."""
    spec = parse_name(name)
    if spec is None or spec.name != name:
        raise ArtifactError(f"{name!r} is not the name of a model's function")
    with LOCK:
        state = _bound.get((caller.name, name))
        if state is None:
            state = _bound[caller.name, name] = State(
                name, caller.find, rows_of=PACKED_ROWS, wanted=caller.wanted
            )
        return state


@cache
def _bind_callback() -> tuple[ctypes.c_void_p, Any]:
    """Return the address of `_bind`, and the object that keeps it alive."""
    callback = ctypes.CFUNCTYPE(None, ctypes.c_int64)(_bind)
    return ctypes.cast(callback, ctypes.c_void_p), callback


def _bind(info: int) -> None:
    api = c_api.library()
    try:
        caller = _by_address[api.duckdb_scalar_function_bind_get_extra_info(info)]
        state = _state_of(caller, _constant_text(info, 0))
        api.duckdb_scalar_function_set_bind_data(info, state.address, None)
        api.duckdb_scalar_function_set_bind_data_copy(info, compile_copy())
    except BaseException as error:
        api.duckdb_scalar_function_bind_set_error(info, park_text(error))


def _constant_text(info: int, index: int) -> str:
    """Return the constant text of a call's argument.

    Raises:
        ArtifactError: the argument is NULL or not constant.
    """
    api = c_api.library()
    context, text = ctypes.c_void_p(), None
    argument = ctypes.c_void_p(api.duckdb_scalar_function_bind_get_argument(info, index))
    api.duckdb_scalar_function_get_client_context(info, ctypes.byref(context))
    try:
        if api.duckdb_expression_is_foldable(argument):
            text = _fold_text(context, argument)
    finally:
        api.duckdb_destroy_client_context(ctypes.byref(context))
        api.duckdb_destroy_expression(ctypes.byref(argument))
    if text is None:
        raise ArtifactError("the name of a model's function must be the same for all rows")
    return text


def _fold_text(context: ctypes.c_void_p, argument: ctypes.c_void_p) -> str | None:
    api = c_api.library()
    value = ctypes.c_void_p()
    failed = ctypes.c_void_p(api.duckdb_expression_fold(context, argument, ctypes.byref(value)))
    try:
        if failed.value is not None or value.value is None or api.duckdb_is_null_value(value):
            return None
        text = api.duckdb_get_varchar(value)
        if text is None:
            return None
        try:
            return ctypes.string_at(text).decode("utf-8", "replace")
        finally:
            api.duckdb_free(text)
    finally:
        api.duckdb_destroy_error_data(ctypes.byref(failed))
        api.duckdb_destroy_value(ctypes.byref(value))
