"""`specialise`: kernels that numba compiles for one signature when a model first needs it.

A kernel is compiled for arrays of any layout, once, rather than for each layout and each read-only
flag that a caller happens to pass; and only for the dtypes that models have. Its machine code is
kept on disk (`code_store.py`), and later processes load it without numba (`object_code.py`).
Machine code of an older sqlml would read arrays of another meaning, so the content of all kernels'
source files is part of the name of each. The machine code of common kernels comes with the package
(`shipped_code.py`).

Why not numba's own cache (`njit(cache=True)`)? A later process that scores a forest and a network
in DuckDB takes 2.5 s of CPU with this loader and 3.3 s with that cache (numba 0.68, Python 3.11):
numba is imported (0.35 s), and types and wraps each kernel again. `test_kernel_code.py` fails where
a new numba or numpy breaks what the loader takes for granted.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sqlml.backends.native.jit import argument_kinds, code_store, object_code, shipped_code
from sqlml.backends.native.jit.argument_kinds import (
    COUNT,
    FLAG,
    NOTHING,
    Kind,
    Signature,
    kinds_of,
    numba_type,
    reads,
    spelled,
    writes,
)
from sqlml.backends.native.jit.compile_beside import compiled_beside
from sqlml.backends.native.jit.helpers import (
    called,
    compilable,
    helper,
    intrinsic,
    literal_intrinsic,
    spelled_out,
)
from sqlml.backends.native.jit.object_code import Loaded, ObjectCode
from sqlml.backends.native.jit.shipped_code import sources
from sqlml.backends.no_wait import waits_for_kernels
from sqlml.interruption import run_uninterrupted
from sqlml.long_work import watched_stream

# Say why the first answer takes seconds, where somebody is watching.


_TOLD = threading.Event()


def tell(kept: bool) -> None:
    """Write once per process, to a terminal or a notebook, that kernels are being compiled.

    Args:
        kept: whether their machine code will be kept for later processes.
    """
    stream = watched_stream()
    if _TOLD.is_set() or stream is None:
        return
    _TOLD.set()
    text = "compiling kernels, once on this machine"
    if not kept:
        text = (
            "compiling kernels for this process only: no private cache folder is writable; "
            "set NUMBA_CACHE_DIR to one"
        )
    with suppress(OSError, ValueError):  # closed, or nobody reads it any more
        stream.write(f"sqlml: {text}\n")
        stream.flush()


__all__ = [
    "COUNT",
    "FLAG",
    "NOTHING",
    "Entry",
    "Kind",
    "Signature",
    "called",
    "entry_of",
    "helper",
    "intrinsic",
    "kinds_of",
    "literal_intrinsic",
    "reads",
    "specialise",
    "writes",
]


@dataclass(frozen=True, slots=True)
class Entry:
    """The signature of a kernel, and the addresses of its entries (`call_wrapper.py`)."""

    signature: Signature
    words: int
    numbers: int


_COMPILED: dict[tuple[Callable[..., Any], Signature], Callable[..., Any]] = {}
_ENTRIES: dict[Callable[..., Any], Entry] = {}
_LOCK = threading.Lock()

if hasattr(os, "register_at_fork"):  # a child must not wait for a thread that it does not have
    os.register_at_fork(
        before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release
    )


def specialise(function: Callable[..., Any], signature: Signature) -> Callable[..., Any]:
    """`function` as machine code for `signature`, without the GIL; made once per process.

    It takes its arguments by place, and raises TypeError where one is not of its kind. It may
    return None, a bool or an int. Floating-point arithmetic is as written (no fastmath): the order
    of sums is part of a model.

    Raises:
        NotReady: it is being compiled, and the caller need not wait (`no_wait.py`).
    """
    found = _COMPILED.get((function, signature))
    if found is not None:
        return found
    wait = waits_for_kernels()
    return run_uninterrupted(lambda: _once(function, signature, wait))


def _once(function: Callable[..., Any], signature: Signature, wait: bool) -> Callable[..., Any]:
    key = (function, signature)
    with _LOCK:
        if key not in _COMPILED:
            made = _loaded(function, signature, wait) if argument_kinds.known() else None
            if made is None:
                _COMPILED[key] = _by_numba(function, signature)
            else:
                _COMPILED[key] = made.call
                _ENTRIES[made.call] = Entry(signature, made.words, made.numbers)
        return _COMPILED[key]


def in_use() -> tuple[tuple[Callable[..., Any], Signature], ...]:
    """The kernels of this process so far, with their signatures."""
    return tuple(_COMPILED)


def entry_of(kernel: Callable[..., Any]) -> Entry | None:
    """The entry of what `specialise` made; None where numba itself runs the kernel."""
    return _ENTRIES.get(kernel)


def _loaded(function: Callable[..., Any], signature: Signature, wait: bool) -> Loaded | None:
    """The kernel's machine code, from disk or made now; None if only numba can run it.

    Raises:
        NotReady: it is being compiled, and need not be waited for.
    """
    for code in _kept(function, signature):
        with suppress(object_code.NotLoadable):  # this process lacks what another one had
            return object_code.loaded(code, function.__name__)
    tell(code_store.writable())
    name = _file(function, signature)
    try:
        made = None if wait else compiled_beside(function, signature, name)
        if made is None:
            made = object_code.compiled(function, signature)
            code_store.write(name, made)
        return object_code.loaded(made, function.__name__)
    except object_code.NotLoadable:
        return None


def _kept(function: Callable[..., Any], signature: Signature) -> Iterator[ObjectCode]:
    """The kernel's machine code that came with the package, and what this machine has made."""
    shipped = shipped_code.read(function, signature)
    if shipped is not None:
        yield shipped
    made = code_store.read(_file(function, signature))
    if made is not None:
        yield made


def _file(function: Callable[..., Any], signature: Signature) -> str:
    name = function.__name__
    key = (function.__module__, name, spelled_out(function), spelled(signature))
    return code_store.file_name(name, sources(), "\n".join((*key, *object_code.processor())))


def is_kept(function: Callable[..., Any], signature: Signature) -> bool:
    """Whether a process would find the kernel's machine code on disk."""
    return next(_kept(function, signature), None) is not None


def keep(function: Callable[..., Any], signature: Signature, code: ObjectCode) -> None:
    """Keep a kernel's machine code on disk for later processes, where that is possible."""
    code_store.write(_file(function, signature), code)


def _by_numba(function: Callable[..., Any], signature: Signature) -> Callable[..., Any]:
    """A kernel that numba calls, compiled in each process."""
    from numba import njit

    dispatcher: Any = njit(nogil=True, error_model="numpy")(compilable(function))
    dispatcher.compile(tuple(numba_type(kind) for kind in signature))
    dispatcher.disable_compile()
    compiled: Callable[..., Any] = dispatcher
    return compiled
