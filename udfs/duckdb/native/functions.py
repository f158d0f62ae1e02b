"""`register`: functions of ours that DuckDB calls without Python, found by their names.

What DuckDB is given lives for ever: the address of the row path, and a small state that is never
freed. The state points to a plan (`plan_words.py`), which is made when the first rows come, and may
be taken away again: whoever reads it is counted, and what is counted is not freed.
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
from sqlml.ir.utf8_column import Texts
from sqlml.limits import RECENT_BYTES
from sqlml.passes.split import text_input
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
from sqlml.udfs.engine_function import EngineFunction, Measured

if TYPE_CHECKING:
    from sqlml.udfs.duckdb.native.plan_words import PlanWords


_NULL_ROW = ctypes.create_string_buffer(
    b"a row of packed numbers is NULL as a whole; pass NULL per column instead"
)
NO_MEMORY_TEXT = ctypes.create_string_buffer(b"out of memory while scoring a batch of rows")

Find = Callable[[str], BatchFunction]
"""What scores under a name; it raises the exception whose text DuckDB is to show."""


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    """What a state points to: a plan, its function, and the batches that had come before.

    Where kernels are still being compiled, Python scores, and there is a better plan `soon`.
    """

    words: Any
    function: BatchFunction
    since: int
    soon: bool


class State:
    """What DuckDB holds of one function: `layout.STATE` words.

    rows_of: how rows come to it, as layout.py says. wanted: the packed function that calls it by
    its name, whose types it must have.
    """

    def __init__(
        self,
        name: str,
        find: Find,
        measured: Measured | None = None,
        rows_of: int = COLUMNS_ALONE,
        wanted: EngineFunction | None = None,
    ) -> None:
        number = len(_states)
        _states.append(self)
        self.name = name
        self.find = find
        self.measured = measured
        self.wanted = wanted
        self.words = np.zeros(STATE, np.int64)
        self.words[NUMBER] = number
        self.words[MAKE], self.words[ASK], self.words[DIED] = id(_make), id(_ask), id(died)
        self.words[MEASURE] = 0 if measured is None else id(_measure)
        self.words[NO_MEMORY] = ctypes.addressof(NO_MEMORY_TEXT)
        self.words[ALL_BATCHES] = _batches.ctypes.data
        self.words[ROWS_OF] = rows_of
        self.words[NULL_ROW] = ctypes.addressof(_NULL_ROW)
        self.plan: _Plan | None = None

    @property
    def address(self) -> int:
        """Where its words lie."""
        found: int = self.words.ctypes.data
        return found


_batches = np.zeros(1, np.int64)
_states: list[State] = []
_by_name: dict[str, State] = {}
_left: list[tuple[State, _Plan]] = []
"""Plans that were taken away, kept while a thread may still follow one."""
LOCK = threading.RLock()

if hasattr(os, "register_at_fork"):  # a child must not wait for a thread that it does not have
    os.register_at_fork(
        before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=LOCK.release
    )


def register(connection: int, function: EngineFunction, find: Find) -> bool:
    """Register a function of FLOAT or DOUBLE columns on a connection of the C API.

    Args:
        connection: its address.
        function: its result is INTEGER, DOUBLE, or lists of these.
        find: finds what scores, by the name, when the first rows come, unless it is measured.

    Returns:
        Whether DuckDB took it; never where numba cannot compile the row path for it.
    """
    measured, code = function.measured, row_path_at()
    if code is None:
        return False
    finds = find if measured is None else lambda _: measured.batch_function()
    return create(connection, function, state_of(function.name, finds, measured).address, code)


def state_of(name: str, find: Find, measured: Measured | None = None) -> State:
    """The state of a function that takes columns, by its name."""
    with LOCK:
        state = _by_name.get(name)
        if state is None:
            state = _by_name[name] = State(name, find, measured)
        return state


def create(
    connection: int,
    function: EngineFunction,
    given: int,
    code: int,
    bind: ctypes.c_void_p | None = None,
) -> bool:
    """Create a function on a connection of the C API; whether DuckDB took it.

    Args:
        given: the address that is given to its machine code, which lies at `code`.
        bind: what is called when a call is bound.
    """
    api = c_api.library()
    made = ctypes.c_void_p(api.duckdb_create_scalar_function())
    try:
        api.duckdb_scalar_function_set_name(made, function.name.encode())
        for kind in function.argument_types:
            with_type(kind, partial(api.duckdb_scalar_function_add_parameter, made))
        with_type(function.result_type, partial(api.duckdb_scalar_function_set_return_type, made))
        api.duckdb_scalar_function_set_special_handling(made)  # NULL comes as NULL
        if function.volatile:
            api.duckdb_scalar_function_set_volatile(made)
        api.duckdb_scalar_function_set_extra_info(made, given, None)
        api.duckdb_scalar_function_set_function(made, code)
        if bind is not None:
            api.duckdb_scalar_function_set_bind(made, bind)
        return int(api.duckdb_register_scalar_function(connection, made)) == 0
    finally:
        api.duckdb_destroy_scalar_function(ctypes.byref(made))


def mark(connection: int, name: str) -> None:
    """Register a function that is known by its name, and refuses to be called."""
    api = c_api.library()
    made = ctypes.c_void_p(api.duckdb_create_scalar_function())
    api.duckdb_scalar_function_set_name(made, name.encode())
    with_type("INTEGER", partial(api.duckdb_scalar_function_set_return_type, made))
    api.duckdb_scalar_function_set_function(made, _refusing()[0])
    api.duckdb_register_scalar_function(connection, made)
    api.duckdb_destroy_scalar_function(ctypes.byref(made))


def batches() -> int:
    """How many batches came to native functions in this process."""
    return int(_batches[0])


def forget(names: tuple[str, ...]) -> None:
    """Take away the plans of functions whose names begin with one of `names`.

    The next rows that come to one of them make another.
    """
    with LOCK:
        for state in _states:
            if state.plan is not None and state.name.startswith(names):
                _take_away(state)
        _sweep()


def _take_away(state: State) -> None:
    plan, state.plan = state.plan, None
    if plan is not None and _put_plan(state, 0):
        _left.append((state, plan))


def _make_room() -> None:
    """Take away the plans of functions that no rows came to lately, where all take too much."""
    planned = [(state, state.plan) for state in _states if state.plan is not None]
    if sum(plan.function.nbytes for _, plan in planned) <= RECENT_BYTES:
        return
    for state, plan in planned:
        if state.words[BATCHES] == plan.since:
            _take_away(state)
        else:
            now = int(state.words[BATCHES])
            state.plan = replace(plan, since=now)


def _put_plan(state: State, address: int) -> int:
    from sqlml.backends.native.jit.specialise import COUNT, specialise
    from sqlml.udfs.duckdb.native import row_path

    kernel = specialise(row_path.put_plan, (COUNT, COUNT))
    return int(kernel(state.address, address))


def _sweep() -> None:
    _left[:] = [held for held in _left if held[0].words[USERS] > 0]


def types_of(function: BatchFunction) -> tuple[str, ...]:
    """The types of a function of packed rows: its arguments', and that of its result."""
    number = "FLOAT" if function.dtype == "float32" else "DOUBLE"
    texts = ("BLOB[]",) * bool(function.texts)
    result = "INTEGER" if function.integer else "DOUBLE"
    levels = "[]" * (function.listed + bool(function.groups))
    return (f"{number}[{function.given}]", *texts, result + levels)


def is_at_hand() -> bool:
    """Whether the row path is compiled already: nobody who only opens a database should wait for
    it."""
    from sqlml.backends.native.jit.specialise import in_use, is_kept
    from sqlml.udfs.duckdb.native import row_path

    path = row_path.score, row_path.SIGNATURE
    return path in in_use() or is_kept(*path)


def not_ready(wait: bool) -> str | None:
    """Why the row path cannot be taken yet, while it is being compiled; None if it can.

    Args:
        wait: until it is.
    """
    try:
        with nullcontext() if wait else no_wait():
            row_path_at()
    except NotReady:
        return COMPILING
    return None


@cache
def row_path_at() -> int | None:
    """Where the row path lies; None where numba itself would have to run it.

    Raises:
        NotReady: it is being compiled, and the caller need not wait.
    """
    import llvmlite.binding as llvm

    from sqlml.backends.native.jit.specialise import COUNT, entry_of, specialise
    from sqlml.udfs.duckdb.native import row_path

    for name in row_path.CALLED:
        llvm.add_symbol(name, c_api.address(name))
    entry = entry_of(specialise(row_path.score, row_path.SIGNATURE))
    same_at()  # compiled along, so that a later process finds all on disk
    specialise(row_path.put_plan, (COUNT, COUNT))
    return None if entry is None else entry.numbers


@cache
def same_at() -> int | None:
    """Where `row_path.same` lies; None where numba itself would have to run it."""
    from sqlml.backends.native.jit.specialise import COUNT, entry_of, specialise
    from sqlml.udfs.duckdb.native import row_path

    entry = entry_of(specialise(row_path.same, (COUNT,)))
    return None if entry is None else entry.numbers


@cache
def _refusing() -> tuple[int, Any]:
    """The address of `_refuse_call`, and what keeps it."""
    kept = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)(_refuse_call)
    return ctypes.cast(kept, ctypes.c_void_p).value or 0, kept


def _refuse_call(info: int, chunk: int, out: int) -> None:
    tell(info, ScoringError("this function marks a database, and computes nothing"))


# Machine code calls these by the addresses of their objects, which this module keeps.


def died(info: int, kind: type[BaseException]) -> int:
    """One of the others was stopped before it began: a signal's handler raised this."""
    tell(info, kind())
    return 0


def _measure(number: int, info: int, rows: int, _: int) -> int:
    """A batch begins (rows < 0) or ends on this thread."""
    measured = _states[number].measured
    try:
        if measured is not None:
            measured.enter() if rows < 0 else measured.leave(rows)
        return 1
    except BaseException as error:
        tell(info, error)
        return 0


def _make(number: int, info: int, rows: int, _: int) -> int:
    """Make a plan of a function, with the calls for a batch of `rows` rows.

    Returns 0 where that fails, and DuckDB was told why.
    """
    state = _states[number]
    try:
        before = state.plan
        function = state.find(state.name) if before is None else before.function
        if state.wanted is not None and types_of(function) != state.wanted.types[1:]:
            raise park(ArtifactError(f"the types of {state.name} do not match its call"))
        words, soon = _soon_planned(function, rows, None if before is None else before.words)
        with LOCK:
            if state.plan is before:
                if before is None:
                    _make_room()
                else:
                    _left.append((state, before))
                state.plan = _Plan(words, function, int(state.words[BATCHES]) - 1, soon)
                _put_plan(state, words.address)
            _sweep()
        return 1
    except BaseException as error:
        tell(info, error)
        return 0


def _soon_planned(
    function: BatchFunction, rows: int, before: PlanWords | None
) -> tuple[PlanWords, bool]:
    """The plan of a function (`plan_words`), and whether a better one comes soon."""
    from sqlml.udfs.duckdb.native.plan_words import plan_words, python_scores

    try:
        with no_wait():
            return plan_words(function, rows, before), False
    except NotReady:
        return python_scores(function), True


def _ask(number: int, info: int, told: int, plan_at: int) -> int:
    """Score a block of rows by Python, or say what is wrong with it; then it returns 0.

    told: where the rows lie, how many they are, and where their results go.
    """
    state = _states[number]
    try:
        with LOCK:
            plans = [state.plan, *(plan for s, plan in _left if s is state)]
        plan = next(p for p in plans if p is not None and p.words.address == plan_at)
        function = plan.function
        at, rows, result, texts = (ctypes.c_int64 * 4).from_address(told)
        numbers = function.numbers(*_given(function, plan.words.width, at, rows, texts))
        held = np.frombuffer(numbers.buffers()[1], numbers.type.to_pandas_dtype(), len(numbers), 0)
        ctypes.memmove(result, held.ctypes.data, held.nbytes)
        if plan.soon:
            with LOCK:
                if state.plan is plan:
                    _take_away(state)  # the next batch makes another
        return 1
    except BaseException as error:
        tell(info, error)
        return 0


def _given(
    function: BatchFunction, width: int, at: int, rows: int, texts: int
) -> tuple[Array, dict[str, Texts]]:
    """The numbers (n, given) and the texts of a block, whose rows (n, width) lie at an address."""
    number = ctypes.c_float if function.dtype == "float32" else ctypes.c_double
    matrix = np.ctypeslib.as_array((number * (rows * width)).from_address(at)).reshape(rows, width)
    if function.lookup is not None and width != function.given:
        matrix = matrix[:, function.lookup.given or (0,)]
    places = (ctypes.c_int64 * function.texts).from_address(texts)
    return matrix, {text_input(k): _texts(place, rows) for k, place in enumerate(places)}


def _texts(at: int, rows: int) -> Texts:
    """A column of DuckDB's texts at an address."""
    from sqlml.udfs.duckdb.native.plan_words import texts_of

    return texts_of(np.ctypeslib.as_array((ctypes.c_uint64 * (2 * rows)).from_address(at)))


def tell(info: int, error: BaseException) -> None:
    """Let DuckDB fail with the text under which the error is parked."""
    c_api.library().duckdb_scalar_function_set_error(info, text_of(error))


def text_of(error: BaseException) -> bytes:
    """The text under which an error is parked."""
    if isinstance(error, ParkedFailure):
        text = str(error)
    elif isinstance(error, Exception):
        text = str(park(error))
    else:  # a Ctrl-C
        text = f"executing the UDF: {type(error).__name__}"
    return text.encode()


# `register_named`: functions of packed rows that call the function whose name they are given.
#
# Macros for plain connections call them:
# `sqlml_open_a_session_first_any_double28_integer('sqlml_..', [..]::DOUBLE[28])`. When a call is
# bound, the name is looked at, and the state of its function becomes the call's data.


_named: dict[str, State] = {}
_bound: dict[tuple[str, str], State] = {}
_by_address: dict[int, State] = {}


def register_named(connection: int, function: EngineFunction, find: Find) -> bool:
    """Register a function of a name and an array of numbers on a connection of the C API.

    Args:
        connection: its address.
        function: its arguments are VARCHAR and DOUBLE[n].
        find: finds what scores, by the name.

    Returns:
        Whether DuckDB took it; never where the row path has no machine code yet.
    """
    code = row_path_at() if is_at_hand() else None
    if code is None or same_at() is None:
        return False
    with LOCK:
        state = _named.get(function.name)
        if state is None:
            state = _named[function.name] = State(
                function.name, find, rows_of=NAMED, wanted=function
            )
            _by_address[state.address] = state
    return create(connection, function, state.address, code, _binding()[0])


def _state_of(caller: State, name: str) -> State:
    """The state of the function of a name as one of the packed functions calls it."""
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
def _binding() -> tuple[ctypes.c_void_p, Any]:
    """The address of `_bind`, and what keeps it."""
    kept = ctypes.CFUNCTYPE(None, ctypes.c_int64)(_bind)
    return ctypes.cast(kept, ctypes.c_void_p), kept


def _bind(info: int) -> None:
    api = c_api.library()
    try:
        caller = _by_address[api.duckdb_scalar_function_bind_get_extra_info(info)]
        state = _state_of(caller, _constant_text(info, 0))
        api.duckdb_scalar_function_set_bind_data(info, state.address, None)
        api.duckdb_scalar_function_set_bind_data_copy(info, same_at())
    except BaseException as error:
        api.duckdb_scalar_function_bind_set_error(info, text_of(error))


def _constant_text(info: int, place: int) -> str:
    """The text that an argument of a call is.

    Raises:
        ArtifactError: it is no constant, or NULL.
    """
    api = c_api.library()
    context, text = ctypes.c_void_p(), None
    argument = ctypes.c_void_p(api.duckdb_scalar_function_bind_get_argument(info, place))
    api.duckdb_scalar_function_get_client_context(info, ctypes.byref(context))
    try:
        if api.duckdb_expression_is_foldable(argument):
            text = _folded(context, argument)
    finally:
        api.duckdb_destroy_client_context(ctypes.byref(context))
        api.duckdb_destroy_expression(ctypes.byref(argument))
    if text is None:
        raise ArtifactError("the name of a model's function must be the same for all rows")
    return text


def _folded(context: ctypes.c_void_p, argument: ctypes.c_void_p) -> str | None:
    api = c_api.library()
    value = ctypes.c_void_p()
    failed = ctypes.c_void_p(api.duckdb_expression_fold(context, argument, ctypes.byref(value)))
    try:
        if failed.value is not None or value.value is None or api.duckdb_is_null_value(value):
            return None
        held = api.duckdb_get_varchar(value)
        if held is None:
            return None
        try:
            return ctypes.string_at(held).decode("utf-8", "replace")
        finally:
            api.duckdb_free(held)
    finally:
        api.duckdb_destroy_error_data(ctypes.byref(failed))
        api.duckdb_destroy_value(ctypes.byref(value))
