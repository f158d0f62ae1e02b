"""Functions whose rows name their models, which DuckDB calls without Python."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np

from sqlml.planner.program.named_function import ModelScorer, NamedFunction
from sqlml.types import Array
from sqlml.udfs.batch_function import park
from sqlml.udfs.duckdb.native import c_api
from sqlml.udfs.duckdb.native.functions import (
    LOCK,
    NO_MEMORY_TEXT,
    Find,
    compile_row_path,
    create,
    report_error,
    report_interrupt,
    state_of,
)
from sqlml.udfs.duckdb.native.memory_layout import (
    DIES,
    LAST_SLOT,
    MODEL_WORDS,
    MODELS,
    MODELS_AT,
    MOST_TAKEN,
    OUT_OF_MEMORY,
    REFUSE,
    ROUTER,
    SLOT,
    SLOTS_AT,
)
from sqlml.udfs.engine_function import EngineFunction

_routers: dict[str, _Router] = {}
_by_address: dict[int, _Router] = {}


def register_routed(connection: int, function: EngineFunction, find: Find) -> bool:
    """Register a function of names, columns of numbers and of texts on a connection of the C API.

    Args:
        connection: address of the connection.
        function: returns an INTEGER or a DOUBLE.
        find: finds the function that scores a model's rows by its name.

    Returns:
        Whether DuckDB accepted it; False where numba itself would have to run the machine code.

    Raises:
        NotReady: the machine code is being compiled, and the caller need not wait.
    """
    assert function.models is not None
    code = compile_route()
    if code is None or function.result_type not in ("INTEGER", "DOUBLE"):
        return False
    with LOCK:
        router = _routers.get(function.name)
        if router is None:
            router = _routers[function.name] = _Router(function.models, find)
            _by_address[router.memory.ctypes.data] = router
    return create(connection, function, router.memory.ctypes.data, code)


@cache
def compile_route() -> int | None:
    """Return the address of `rows_by_model.route`; None where numba itself would have to run it.

    Raises:
        NotReady: it is being compiled, and the caller need not wait.
    """
    import llvmlite.binding as llvm

    from sqlml.backends.native.jit.specialise import entry_of, specialise
    from sqlml.udfs.duckdb.native import rows_by_model

    if compile_row_path() is None:
        return None
    for name in rows_by_model.CALLED:
        llvm.add_symbol(name, c_api.address(name))
    entry = entry_of(specialise(rows_by_model.route, rows_by_model.SIGNATURE))
    return None if entry is None else entry.numbers


class _Router:
    """The part of such a function that DuckDB holds: `memory_layout.ROUTER` integers."""

    def __init__(self, function: NamedFunction, find: Find) -> None:
        self.function = function
        models: dict[str, ModelScorer | int | None] = {**function.scorers, **function.groups}
        models |= dict.fromkeys(function.nulls)
        scorers = [scorer for scorer in models.values() if isinstance(scorer, ModelScorer)]
        texts = 1 + function.numbers
        self._columns = [
            np.array([*(1 + k for k in s.numbers), *(texts + k for k in s.texts)], np.int64)
            for s in scorers
        ]
        columns_of_scorers = iter(self._columns)
        self._models = np.zeros((max(1, len(models)), MODEL_WORDS), np.int64)
        for words, model in zip(self._models, models.values(), strict=False):
            if isinstance(model, ModelScorer):
                columns = next(columns_of_scorers)
                state = state_of(model.spec.name, find)
                words[:] = state.address, 0, columns.ctypes.data, columns.size
            elif model is not None:
                words[:] = 0, model, 0, 0
        self._names, self._slots = _slots(models)
        self.memory = np.zeros(ROUTER, np.int64)
        self.memory[SLOTS_AT] = self._slots.ctypes.data
        self.memory[LAST_SLOT] = self._slots.size // SLOT - 1
        self.memory[MODELS_AT] = self._models.ctypes.data
        self.memory[MODELS] = len(self._models)
        self.memory[MOST_TAKEN] = max((columns.size for columns in self._columns), default=0)
        self.memory[REFUSE], self.memory[DIES] = id(_refuse), id(report_interrupt)
        self.memory[OUT_OF_MEMORY] = ctypes.addressof(NO_MEMORY_TEXT)


def _slots(models: Mapping[str, Any]) -> tuple[Array, Array]:
    """Return the bytes of all names, and the hash table of slots that point to them."""
    from sqlml.backends.native.jit.specialise import COUNT, reads, specialise, writes
    from sqlml.udfs.duckdb.native import rows_by_model

    texts = [name.encode() for name in models]
    data = np.frombuffer(b"".join(texts) + b"\0", np.uint8)
    slots = np.zeros(SLOT << max(1, (2 * len(texts)).bit_length()), np.int64)
    kinds = (reads(np.uint8, 1, "C"), COUNT, writes(np.int64, 1), COUNT)
    put = specialise(rows_by_model.put_name, kinds)
    ends = [0, *accumulate(map(len, texts))]
    for number, model in enumerate(models.values()):
        name = data[ends[number] : ends[number + 1]]
        put(name, -1 if model is None else number, slots, slots.size // SLOT - 1)
    return data, slots


def _refuse(at: int, info: int, name_at: int, length: int) -> int:
    """Report the error of a row that names no model; return 1 if the row is NULL instead."""
    try:
        name = ctypes.string_at(name_at, length).decode("utf-8", "replace")
        error = _by_address[at].function.find_error(name)
        if error is None:
            return 1
        raise park(type(error)(error.message))
    except BaseException as error:
        report_error(info, error)
        return 0
