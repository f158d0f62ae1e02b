"""Functions whose rows name their models, which DuckDB calls without Python."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np

from sqlml.planner.program.function_spec import ModelScorer, NamedFunction
from sqlml.types import Array
from sqlml.udfs.batch_function import park_error
from sqlml.udfs.duckdb.native import native_functions
from sqlml.udfs.engine_function import EngineFunction

_routers: dict[str, _Router] = {}
_routers_by_address: dict[int, _Router] = {}


def register_router(
    connection: int, function: EngineFunction, find_function: native_functions.Finder
) -> bool:
    """Register a function that takes a model name, numbers and strings on a C API connection.

    Returns False if the function does not return INTEGER or DOUBLE, if DuckDB rejects the function,
    or if the machine code depends on numba's runtime. Raises NotReady if the machine code is still
    being compiled and the caller need not wait.
    """
    assert function.models is not None
    route_address = _compile_route()
    if route_address is None or function.result_type not in ("INTEGER", "DOUBLE"):
        return False
    with native_functions.LOCK:
        router = _routers.get(function.name)
        if router is None:
            router = _routers[function.name] = _Router(function.models, find_function)
            _routers_by_address[router.memory.ctypes.data] = router
    address = router.memory.ctypes.data
    return native_functions.create_native_function(connection, function, address, route_address)


@cache
def _compile_route() -> int | None:
    from sqlml.udfs.duckdb.native import model_router

    if native_functions.compile_row_path() is None:
        return None
    return native_functions.compile_kernel(model_router.route, model_router.SIGNATURE)


class _Router:
    """The state of a function whose rows name their models, in the layout of `ROUTER`."""

    def __init__(self, function: NamedFunction, find_function: native_functions.Finder) -> None:
        from sqlml.udfs.duckdb.native import model_router  # It imports LLVM.

        self.function = function
        models: dict[str, ModelScorer | int | None] = {**function.scorers, **function.groups}
        models |= dict.fromkeys(function.nulls)
        first_text_column = 1 + function.num_numbers
        self._columns: list[Array] = []  # `_models` points to these arrays.
        self._models = np.zeros((max(1, len(models)), model_router.MODEL_WORDS), np.int64)
        for model_words, model in zip(self._models, models.values(), strict=False):
            if isinstance(model, ModelScorer):
                number_columns = [1 + k for k in model.number_positions]
                text_columns = [first_text_column + k for k in model.string_positions]
                columns = np.array([*number_columns, *text_columns], np.int64)
                self._columns.append(columns)
                state = native_functions.get_state(model.spec.name, find_function)
                model_words[:] = state.address, 0, columns.ctypes.data, columns.size
            elif model is not None:
                model_words[:] = 0, model, 0, 0
        self._names, self._slots = _make_slots(models)
        self.memory = np.zeros(model_router.ROUTER, np.int64)
        self.memory[model_router.SLOTS_AT] = self._slots.ctypes.data
        self.memory[model_router.LAST_SLOT] = self._slots.size // model_router.SLOT - 1
        self.memory[model_router.MODELS_AT] = self._models.ctypes.data
        self.memory[model_router.MODELS] = len(self._models)
        self.memory[model_router.MOST_COLUMNS] = max((c.size for c in self._columns), default=0)
        self.memory[model_router.REFUSE] = id(_refuse_name)
        self.memory[model_router.REPORT] = id(native_functions.report_interrupt)
        self.memory[model_router.NO_MEMORY] = ctypes.addressof(native_functions.NO_MEMORY_TEXT)


def _make_slots(models: Mapping[str, Any]) -> tuple[Array, Array]:
    """Return the bytes of all names, and a hash table whose slots point to the names."""
    from sqlml.backends.native.jit.specialise import COUNT, reads, specialise, writes
    from sqlml.udfs.duckdb.native import model_router

    encoded_names = [name.encode() for name in models]
    name_bytes = np.frombuffer(b"".join(encoded_names) + b"\0", np.uint8)
    slots = np.zeros(model_router.SLOT << max(1, (2 * len(encoded_names)).bit_length()), np.int64)
    argument_kinds = (reads(np.uint8, 1, "C"), COUNT, writes(np.int64, 1), COUNT)
    put_name = specialise(model_router.put_name, argument_kinds)
    ends = [0, *accumulate(map(len, encoded_names))]
    for index, model in enumerate(models.values()):
        name = name_bytes[ends[index] : ends[index + 1]]
        put_name(name, -1 if model is None else index, slots, slots.size // model_router.SLOT - 1)
    return name_bytes, slots


def _refuse_name(router_address: int, info: int, name_at: int, length: int) -> int:
    """Report a name without a model; return 1 if the score of rows with this name is NULL."""
    try:
        name = ctypes.string_at(name_at, length).decode("utf-8", "replace")
        error = _routers_by_address[router_address].function.find_error(name)
        if error is None:
            return 1
        raise park_error(type(error)(error.message))
    except BaseException as error:
        native_functions.report_error(info, error)
        return 0
