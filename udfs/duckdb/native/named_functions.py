"""`register_named`: functions of packed rows that call the function whose name they are given.

Macros for plain connections call them:
`sqlml_open_a_session_first_any_double28_integer('sqlml_..', [..]::DOUBLE[28])`. When a call is
bound, the name is looked at, and the state of its function becomes the call's data.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from sqlml.errors import ArtifactError
from sqlml.planner.program.function_names import parse_name
from sqlml.udfs.duckdb.native import c_api
from sqlml.udfs.duckdb.native.functions import (
    LOCK,
    Find,
    State,
    create,
    is_at_hand,
    row_path_at,
    same_at,
    text_of,
)
from sqlml.udfs.duckdb.native.layout import NAMED, PACKED_ROWS
from sqlml.udfs.engine_function import EngineFunction

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
