"""`register_routed`: functions whose rows name their models, which DuckDB calls without Python."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np

from sqlml.planner.program.named_function import NamedFunction, Scorer
from sqlml.types import Array
from sqlml.udfs.batch_function import park
from sqlml.udfs.duckdb.native import c_api
from sqlml.udfs.duckdb.native.functions import (
    LOCK,
    NO_MEMORY_TEXT,
    Find,
    create,
    died,
    row_path_at,
    state_of,
    tell,
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
        connection: its address.
        function: its result is an INTEGER or a DOUBLE.
        find: finds what scores a model's rows, by the name of its function.

    Returns:
        Whether DuckDB took it; never where numba itself would have to run the machine code.

    Raises:
        NotReady: the machine code is being compiled, and the caller need not wait.
    """
    assert function.models is not None
    code = route_at()
    if code is None or function.result_type not in ("INTEGER", "DOUBLE"):
        return False
    with LOCK:
        router = _routers.get(function.name)
        if router is None:
            router = _routers[function.name] = _Router(function.models, find)
            _by_address[router.words.ctypes.data] = router
    return create(connection, function, router.words.ctypes.data, code)


@cache
def route_at() -> int | None:
    """Where `rows_by_model.route` lies; None where numba itself would have to run it.

    Raises:
        NotReady: it is being compiled, and the caller need not wait.
    """
    import llvmlite.binding as llvm

    from sqlml.backends.native.jit.specialise import entry_of, specialise
    from sqlml.udfs.duckdb.native import rows_by_model

    if row_path_at() is None:
        return None
    for name in rows_by_model.CALLED:
        llvm.add_symbol(name, c_api.address(name))
    entry = entry_of(specialise(rows_by_model.route, rows_by_model.SIGNATURE))
    return None if entry is None else entry.numbers


class _Router:
    """What DuckDB holds of a function whose rows name their models: `layout.ROUTER` words."""

    def __init__(self, function: NamedFunction, find: Find) -> None:
        self.function = function
        known: dict[str, Scorer | int | None] = {**function.scorers, **function.kinds}
        known |= dict.fromkeys(function.nulls)
        scorers = [scorer for scorer in known.values() if isinstance(scorer, Scorer)]
        texts = 1 + function.numbers
        self._taken = [
            np.array([*(1 + k for k in s.numbers), *(texts + k for k in s.texts)], np.int64)
            for s in scorers
        ]
        taken = iter(self._taken)
        self._models = np.zeros((max(1, len(known)), MODEL_WORDS), np.int64)
        for words, found in zip(self._models, known.values(), strict=False):
            if isinstance(found, Scorer):
                own = next(taken)
                state = state_of(found.spec.name, find)
                words[:] = state.address, 0, own.ctypes.data, own.size
            elif found is not None:
                words[:] = 0, found, 0, 0
        self._names, self._slots = _slots(known)
        self.words = np.zeros(ROUTER, np.int64)
        self.words[SLOTS_AT] = self._slots.ctypes.data
        self.words[LAST_SLOT] = self._slots.size // SLOT - 1
        self.words[MODELS_AT] = self._models.ctypes.data
        self.words[MODELS] = len(self._models)
        self.words[MOST_TAKEN] = max((own.size for own in self._taken), default=0)
        self.words[REFUSE], self.words[DIES] = id(_refuse), id(died)
        self.words[OUT_OF_MEMORY] = ctypes.addressof(NO_MEMORY_TEXT)


def _slots(known: Mapping[str, Any]) -> tuple[Array, Array]:
    """The bytes of all names, and the slots that point to them (`layout.SLOT` words each)."""
    from sqlml.backends.native.jit.specialise import COUNT, reads, specialise, writes
    from sqlml.udfs.duckdb.native import rows_by_model

    texts = [name.encode() for name in known]
    data = np.frombuffer(b"".join(texts) + b"\0", np.uint8)
    slots = np.zeros(SLOT << max(1, (2 * len(texts)).bit_length()), np.int64)
    kinds = (reads(np.uint8, 1, "C"), COUNT, writes(np.int64, 1), COUNT)
    put = specialise(rows_by_model.put_name, kinds)
    ends = [0, *accumulate(map(len, texts))]
    for number, found in enumerate(known.values()):
        name = data[ends[number] : ends[number + 1]]
        put(name, -1 if found is None else number, slots, slots.size // SLOT - 1)
    return data, slots


def _refuse(at: int, info: int, name_at: int, length: int) -> int:
    """Say what is wrong with a row of a name without a model; 1 if nothing is: it has NULL."""
    try:
        name = ctypes.string_at(name_at, length).decode("utf-8", "replace")
        error = _by_address[at].function.error(name)
        if error is None:
            return 1
        raise park(type(error)(error.message))
    except BaseException as error:
        tell(info, error)
        return 0
