"""Functions that DuckDB calls without Python.

DuckDB keeps the addresses of the row path and of a function's state, which are never freed. The
state points to a plan (`plan_bytecode.py`), which is built when the first rows arrive and may be
dropped later. The threads that read a plan are counted, so that a plan in use is not freed.

`register` is for functions of columns. `register_named` is for functions of packed rows that call
the function named by their first argument. Macros for plain connections use such functions:
`sqlml_open_a_session_first_any_double28_integer('sqlml_...', [...]::DOUBLE[28])`. When DuckDB binds
such a call, the bind data of the call becomes the state of the named function.
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
from sqlml.bounded_cache import cache_text_by_program
from sqlml.errors import ArtifactError, ScoringError
from sqlml.ir.program import Program
from sqlml.ir.utf8_column import TextColumn
from sqlml.limits import RECENT_BYTES
from sqlml.passes.split import text_input_name
from sqlml.planner.program.choose import COMPILING
from sqlml.planner.program.function_spec import FunctionSpec, parse_function_name
from sqlml.types import Array
from sqlml.udfs.batch_function import BatchFunction, ParkedFailure, park_error
from sqlml.udfs.duckdb.native import c_api
from sqlml.udfs.duckdb.native import memory_layout as layout
from sqlml.udfs.duckdb.native.c_api import use_type
from sqlml.udfs.engine_function import EngineFunction
from sqlml.udfs.make_function import make_engine_function

if TYPE_CHECKING:
    from sqlml.backends.native.jit.argument_kinds import Signature
    from sqlml.udfs.duckdb.native.plan_bytecode import BytecodePlan
    from sqlml.udfs.metering import FunctionCopy

SEVERAL_NAMES = "the name of a model's function must be the same for all rows"
_NULL_ROW_MESSAGE = b"a row of packed numbers is NULL; pass NULL per column instead"
_NULL_ROW_TEXT = ctypes.create_string_buffer(_NULL_ROW_MESSAGE)
NO_MEMORY_TEXT = ctypes.create_string_buffer(b"out of memory while scoring a batch of rows")
Finder = Callable[[str], BatchFunction]


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    """A plan and its function. `since` is the batch count when the plan was last used."""

    table: Any
    function: BatchFunction
    since: int
    is_temporary: bool  # Python scores until the kernels of a better plan are compiled.


class FunctionState:
    """The integers that DuckDB keeps for a function, and the objects that they refer to.

    If a function of packed rows calls this function by name, the `caller` is that function. Both
    must have the same argument and result types.
    """

    def __init__(
        self,
        name: str,
        find_function: Finder,
        metered: FunctionCopy | None = None,
        row_format: int = layout.COLUMNS_ALONE,
        caller: EngineFunction | None = None,
    ) -> None:
        self.memory = np.zeros(layout.STATE, np.int64)
        self.memory[layout.INDEX] = len(_states)
        _states.append(self)
        self.name = name
        self.find_function = find_function
        self.metered = metered
        self.caller = caller
        self.memory[layout.BUILD_PLAN] = id(_make_plan)
        self.memory[layout.SCORE] = id(_score_in_python)
        self.memory[layout.REPORT] = id(report_interrupt)
        self.memory[layout.MEASURE] = 0 if metered is None else id(_measure)
        self.memory[layout.NO_MEMORY] = ctypes.addressof(NO_MEMORY_TEXT)
        self.memory[layout.ALL_BATCHES] = ctypes.addressof(_batch_counter)
        self.memory[layout.ROW_FORMAT] = row_format
        self.memory[layout.NULL_ROW] = ctypes.addressof(_NULL_ROW_TEXT)
        self.plan: _Plan | None = None

    @property
    def address(self) -> int:
        return int(self.memory.ctypes.data)


_batch_counter = ctypes.c_int64()
_states: list[FunctionState] = []
_states_by_name: dict[str, FunctionState] = {}
_dropped_plans: list[tuple[FunctionState, _Plan]] = []  # Threads may still use these.
LOCK = threading.RLock()

# A forked child must not wait for a thread that it does not have.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=LOCK.release
    )


def register(connection: int, function: EngineFunction, find_function: Finder) -> bool:
    """Register a function of FLOAT or DOUBLE columns on a connection of the C API.

    The function returns INTEGER, DOUBLE, or lists of these types. Unless it is metered,
    `find_function` looks up the scoring function by name when the first rows arrive. Returns False
    if DuckDB rejects the function, or if the row path depends on numba's runtime.
    """
    code_address = compile_row_path()
    if code_address is None:
        return False
    metered = function.metered
    finder = find_function if metered is None else lambda _: metered.find_batch_function()
    state = get_state(function.name, finder, metered)
    return create_native_function(connection, function, state.address, code_address)


def get_state(
    name: str, find_function: Finder, metered: FunctionCopy | None = None
) -> FunctionState:
    with LOCK:
        if name not in _states_by_name:
            _states_by_name[name] = FunctionState(name, find_function, metered)
        return _states_by_name[name]


def create_native_function(
    connection: int, function: EngineFunction, extra_info: int, code: int, binder: int | None = None
) -> bool:
    """Create a function on a connection of the C API; return True if DuckDB accepts the function.

    DuckDB passes `extra_info`, an address, to the machine code at the address `code`. `binder` is
    the address of a function that DuckDB calls when it binds a call.
    """
    api = c_api.load_c_api()
    handle = ctypes.c_void_p(api.duckdb_create_scalar_function())
    try:
        api.duckdb_scalar_function_set_name(handle, function.name.encode())
        for argument_type in function.argument_types:
            use_type(argument_type, partial(api.duckdb_scalar_function_add_parameter, handle))
        use_type(function.result_type, partial(api.duckdb_scalar_function_set_return_type, handle))
        # Without this, DuckDB would return NULL for NULL arguments.
        api.duckdb_scalar_function_set_special_handling(handle)
        if function.volatile:
            api.duckdb_scalar_function_set_volatile(handle)
        api.duckdb_scalar_function_set_extra_info(handle, extra_info, None)
        api.duckdb_scalar_function_set_function(handle, code)
        if binder is not None:
            api.duckdb_scalar_function_set_bind(handle, binder)
        return int(api.duckdb_register_scalar_function(connection, handle)) == 0
    finally:
        api.duckdb_destroy_scalar_function(ctypes.byref(handle))


def register_marker(connection: int, name: str) -> None:
    """Register a function whose name marks a database. Calls of the function fail."""
    marker = EngineFunction(name, None, (), "INTEGER")
    create_native_function(connection, marker, 0, _make_callback(_refuse_call, 3)[0])


def count_batches() -> int:
    return _batch_counter.value


def drop_plans(name_prefixes: tuple[str, ...]) -> None:
    """Drop the plans of functions whose name has one of the prefixes. Later rows rebuild plans."""
    with LOCK:
        for state in _states:
            if state.plan is not None and state.name.startswith(name_prefixes):
                _drop_plan(state)
        _forget_unused_plans()


def _drop_plan(state: FunctionState) -> None:
    plan, state.plan = state.plan, None
    if plan is not None and _exchange_plan(state, 0):
        _dropped_plans.append((state, plan))


def _drop_idle_plans() -> None:
    """If the plans exceed the memory limit, drop the plans not used since the last check."""
    states_and_plans = [(state, state.plan) for state in _states if state.plan is not None]
    if sum(plan.function.nbytes for _, plan in states_and_plans) <= RECENT_BYTES:
        return
    for state, plan in states_and_plans:
        batches = int(state.memory[layout.BATCHES])
        if batches == plan.since:
            _drop_plan(state)
        else:
            state.plan = replace(plan, since=batches)


def _exchange_plan(state: FunctionState, address: int) -> int:
    """Set a function's plan (0: none); return how many threads may still use the previous plan."""
    from sqlml.backends.native.jit.specialise import COUNT, specialise
    from sqlml.udfs.duckdb.native import row_path

    return int(specialise(row_path.put_plan, (COUNT, COUNT))(state.address, address))


def _forget_unused_plans() -> None:
    _dropped_plans[:] = [pair for pair in _dropped_plans if pair[0].memory[layout.USERS] > 0]


def _list_packed_types(function: BatchFunction) -> tuple[str, ...]:
    """Return the argument types of `function` for packed rows, followed by the result type."""
    number_type = "FLOAT" if function.dtype == "float32" else "DOUBLE"
    text_types = ("BLOB[]",) * bool(function.texts)
    result_element = "INTEGER" if function.is_integer else "DOUBLE"
    brackets = "[]" * (function.is_listed + bool(function.groups))
    return (f"{number_type}[{function.packed}]", *text_types, result_element + brackets)


def is_row_path_compiled() -> bool:
    """Return True if the row path is compiled already, in this process or on disk."""
    from sqlml.backends.native.jit.specialise import is_available, list_kernels_in_use
    from sqlml.udfs.duckdb.native import row_path

    kernel_key = row_path.score, row_path.SIGNATURE
    return kernel_key in list_kernels_in_use() or is_available(*kernel_key)


def explain_not_ready(wait: bool) -> str | None:
    """Return COMPILING if the row path is still being compiled, or None if it is ready.

    If `wait`, the function first waits until the row path is compiled.
    """
    try:
        with nullcontext() if wait else no_wait():
            compile_row_path()
    except NotReady:
        return COMPILING
    return None


def explain_python(spec: FunctionSpec, program: Program) -> str | None:
    """Return the reason why Python must score, or None if machine code can."""
    try:
        with no_wait():
            return _explain_python(program, spec)
    except NotReady:
        return COMPILING


@cache_text_by_program
def _explain_python(program: Program, spec: FunctionSpec) -> str | None:
    from sqlml.udfs.duckdb.native import plan_bytecode  # Imported late, since it imports LLVM.

    if spec.backend != "native":
        return f"backend {spec.backend} runs in Python"
    function = make_engine_function(spec, program).function
    assert isinstance(function, BatchFunction)
    return plan_bytecode.explain_obstacle(function)


@cache
def compile_row_path() -> int | None:
    """Compile the row path; return its address, or None if it depends on numba's runtime."""
    from sqlml.backends.native.jit.specialise import COUNT, specialise
    from sqlml.udfs.duckdb.native import row_path

    address = compile_kernel(row_path.score, row_path.SIGNATURE)
    _compile_bind_data_copy()  # A later process then finds everything on disk.
    specialise(row_path.put_plan, (COUNT, COUNT))
    return address


@cache
def _compile_bind_data_copy() -> int | None:
    from sqlml.backends.native.jit.specialise import COUNT
    from sqlml.udfs.duckdb.native import row_path

    return compile_kernel(row_path.same, (COUNT,))


def compile_kernel(kernel: Callable[..., Any], signature: Signature) -> int | None:
    """Compile a kernel and return its address, or None if it depends on numba's runtime.

    Raises NotReady if the kernel is still being compiled and the caller need not wait.
    """
    from sqlml.backends.native.jit.specialise import find_entry, specialise

    entry = find_entry(specialise(kernel, signature))
    return None if entry is None else entry.numbers_address


@cache
def _make_callback(function: Callable[..., None], argument_count: int) -> tuple[int, Any]:
    """Wrap `function` as a C function of 64-bit integers; return the address and the owner."""
    callback = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * argument_count)(function)
    return ctypes.cast(callback, ctypes.c_void_p).value or 0, callback


def _refuse_call(info: int, chunk: int, out: int) -> None:
    report_error(info, ScoringError("this function only marks a database and cannot be called"))


# Machine code calls the following functions by the addresses of their Python objects.
def report_interrupt(info: int, exception_type: type[BaseException]) -> int:
    """Report an exception that a signal handler raised before a callback could catch it."""
    report_error(info, exception_type())
    return 0


def _measure(state_index: int, info: int, rows: int, _: int) -> int:
    """Record that a batch starts (`rows` < 0) or ends on this thread; return 0 on an error."""
    metered = _states[state_index].metered
    try:
        if metered is not None:
            metered.start_batch() if rows < 0 else metered.end_batch(rows)
        return 1
    except BaseException as error:
        report_error(info, error)
        return 0


def _make_plan(state_index: int, info: int, rows: int, _: int) -> int:
    """Build a function's plan for a batch of `rows` rows; return 0 if an error was reported."""
    state = _states[state_index]
    try:
        old_plan = state.plan
        function = state.find_function(state.name) if old_plan is None else old_plan.function
        if state.caller is not None and _list_packed_types(function) != state.caller.types[1:]:
            raise park_error(ArtifactError(f"the types of {state.name} do not match its call"))
        old_table = None if old_plan is None else old_plan.table
        table, is_temporary = _build_available_plan(function, rows, old_table)
        with LOCK:
            if state.plan is old_plan:
                if old_plan is None:
                    _drop_idle_plans()
                else:
                    _dropped_plans.append((state, old_plan))
                since = int(state.memory[layout.BATCHES]) - 1
                state.plan = _Plan(table, function, since, is_temporary)
                _exchange_plan(state, table.address)
            _forget_unused_plans()
        return 1
    except BaseException as error:
        report_error(info, error)
        return 0


def _build_available_plan(
    function: BatchFunction, rows: int, old_plan: BytecodePlan | None
) -> tuple[BytecodePlan, bool]:
    """Build a plan; return the plan, and True if it is temporary until kernels are compiled."""
    from sqlml.udfs.duckdb.native.plan_bytecode import build_plan, build_python_plan

    try:
        with no_wait():
            return build_plan(function, rows, old_plan), False
    except NotReady:
        return build_python_plan(function), True


def _score_in_python(state_index: int, info: int, block_at: int, plan_at: int) -> int:
    """Score a block of rows in Python; return 0 if an error was reported to DuckDB.

    `block_at` is the address of four integers: the address of the rows, the number of rows, the
    address of the results, and the address of an array with the addresses of the text columns.
    """
    state = _states[state_index]
    try:
        with LOCK:
            plans = [state.plan, *(plan for owner, plan in _dropped_plans if owner is state)]
        plan = next(p for p in plans if p is not None and p.table.address == plan_at)
        rows_at, row_count, result_at, texts_at = (ctypes.c_int64 * 4).from_address(block_at)
        block = _read_block(plan.function, plan.table.width, rows_at, row_count, texts_at)
        scores = plan.function.score_numbers(*block)
        dtype = scores.type.to_pandas_dtype()
        values = np.frombuffer(scores.buffers()[1], dtype, len(scores), 0)
        ctypes.memmove(result_at, values.ctypes.data, values.nbytes)
        if plan.is_temporary:
            with LOCK:
                if state.plan is plan:
                    _drop_plan(state)  # The next batch builds a better one.
        return 1
    except BaseException as error:
        report_error(info, error)
        return 0


def _read_block(
    function: BatchFunction, width: int, rows_at: int, row_count: int, texts_at: int
) -> tuple[Array, dict[str, TextColumn]]:
    """Return a block's packed numbers (n, packed), and the text columns by input name.

    The matrix (n, width) is at `rows_at`. The addresses of the text columns are at `texts_at`.
    """
    from sqlml.udfs.duckdb.native.plan_bytecode import copy_to_text_column

    number_type = ctypes.c_float if function.dtype == "float32" else ctypes.c_double
    numbers = (number_type * (row_count * width)).from_address(rows_at)
    matrix = np.ctypeslib.as_array(numbers).reshape(row_count, width)
    if function.lookup is not None and width != function.packed:
        matrix = matrix[:, function.lookup.packed_columns or (0,)]
    texts: dict[str, TextColumn] = {}
    for i, column_at in enumerate((ctypes.c_int64 * function.texts).from_address(texts_at)):
        strings = (ctypes.c_uint64 * (2 * row_count)).from_address(column_at)
        texts[text_input_name(i)] = copy_to_text_column(np.ctypeslib.as_array(strings))
    return matrix, texts


def report_error(info: int, error: BaseException) -> None:
    c_api.load_c_api().duckdb_scalar_function_set_error(info, park_as_message(error))


def park_as_message(error: BaseException) -> bytes:
    """Park `error` for the session; return a message with the token that identifies the error."""
    if isinstance(error, ParkedFailure):
        message = str(error)
    elif isinstance(error, Exception):
        message = str(park_error(error))
    else:  # This is an error such as a Ctrl-C.
        message = f"executing the UDF: {type(error).__name__}"
    return message.encode()


_caller_states: dict[str, FunctionState] = {}
_bound_states: dict[tuple[str, str], FunctionState] = {}
_states_by_address: dict[int, FunctionState] = {}


def register_named(connection: int, function: EngineFunction, find_function: Finder) -> bool:
    """Register a function of VARCHAR and DOUBLE[n] that calls the function named by the VARCHAR.

    Returns False if the row path is not compiled yet, or if DuckDB rejects the function.
    """
    code_address = compile_row_path() if is_row_path_compiled() else None
    if code_address is None or _compile_bind_data_copy() is None:
        return False
    with LOCK:
        state = _caller_states.get(function.name)
        if state is None:
            state = FunctionState(
                function.name, find_function, row_format=layout.CALLS_BY_NAME, caller=function
            )
            _caller_states[function.name] = _states_by_address[state.address] = state
    binder = _make_callback(_bind_named_call, 1)[0]
    return create_native_function(connection, function, state.address, code_address, binder)


def _find_bound_state(caller: FunctionState, name: str) -> FunctionState:
    """Return the state of the function `name` for calls by the function of `caller`."""
    spec = parse_function_name(name)
    if spec is None or spec.name != name:
        raise ArtifactError(f"{name!r} is not the name of a model's function")
    key = caller.name, name
    with LOCK:
        if key not in _bound_states:
            _bound_states[key] = FunctionState(
                name, caller.find_function, row_format=layout.PACKED_ROWS, caller=caller.caller
            )
        return _bound_states[key]


def _bind_named_call(info: int) -> None:
    """Set the bind data of a call to the state of the function named by the first argument."""
    api = c_api.load_c_api()
    try:
        caller = _states_by_address[api.duckdb_scalar_function_bind_get_extra_info(info)]
        state = _find_bound_state(caller, _read_constant_argument(info, 0))
        api.duckdb_scalar_function_set_bind_data(info, state.address, None)
        api.duckdb_scalar_function_set_bind_data_copy(info, _compile_bind_data_copy())
    except BaseException as error:
        api.duckdb_scalar_function_bind_set_error(info, park_as_message(error))


def _read_constant_argument(info: int, index: int) -> str:
    """Return an argument of the bound call; raise ArtifactError unless it is a constant."""
    api = c_api.load_c_api()
    context, value = ctypes.c_void_p(), None
    argument = ctypes.c_void_p(api.duckdb_scalar_function_bind_get_argument(info, index))
    api.duckdb_scalar_function_get_client_context(info, ctypes.byref(context))
    try:
        if api.duckdb_expression_is_foldable(argument):
            value = _fold_text(context, argument)
    finally:
        api.duckdb_destroy_client_context(ctypes.byref(context))
        api.duckdb_destroy_expression(ctypes.byref(argument))
    if value is None:
        raise ArtifactError(SEVERAL_NAMES)
    return value


def _fold_text(context: ctypes.c_void_p, argument: ctypes.c_void_p) -> str | None:
    """Return the value of a constant expression, or None if it is NULL or cannot be computed."""
    api = c_api.load_c_api()
    value = ctypes.c_void_p()
    error = ctypes.c_void_p(api.duckdb_expression_fold(context, argument, ctypes.byref(value)))
    try:
        if error.value is not None or value.value is None or api.duckdb_is_null_value(value):
            return None
        text_at = api.duckdb_get_varchar(value)
        if text_at is None:
            return None
        try:
            return ctypes.string_at(text_at).decode("utf-8", "replace")
        finally:
            api.duckdb_free(text_at)
    finally:
        api.duckdb_destroy_error_data(ctypes.byref(error))
        api.duckdb_destroy_value(ctypes.byref(value))
