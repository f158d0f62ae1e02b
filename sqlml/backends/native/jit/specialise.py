"""`specialise`: compile a kernel for one signature when a model first needs it.

A kernel is compiled only for the dtypes that models have, and once for arrays of any layout. The
runtime has the common kernels. Others are compiled when they are first used, and kept on disk
(`compiled_kernels.py`).

Why not numba's cache (`njit(cache=True)`)? A later process that scores a forest and a network in
DuckDB takes 2.5 s of CPU with this loader and 3.3 s with that cache (numba 0.68, Python 3.11). With
the cache, numba is imported (0.35 s), and types and wraps each kernel again. `test_kernel_code.py`
fails if a new numba or numpy breaks the assumptions of the loader.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from sqlml.backends.native.jit import argument_kinds, helpers, runtime_library
from sqlml.backends.native.jit.argument_kinds import COUNT, FLAG, Signature, reads, to_kinds, writes
from sqlml.backends.native.jit.helpers import compiled_helper, inlined_helper
from sqlml.backends.native.jit.runtime_library import LoadedKernel
from sqlml.backends.no_wait import waits_for_kernels
from sqlml.interruption import run_uninterrupted

# Kernels import these names from here.
__all__ = ["COUNT", "FLAG", "Signature", "reads", "to_kinds", "writes"]
__all__ += ["Entry", "bind_constants", "compiled_helper", "find_entry", "inlined_helper"]
__all__ += ["specialise"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A kernel, and the addresses of the entries (`call_wrapper.py`)."""

    function: Callable[..., Any]
    signature: Signature
    words_address: int
    numbers_address: int


_COMPILED: dict[tuple[Callable[..., Any], Signature], Callable[..., Any]] = {}
_ENTRIES: dict[Callable[..., Any], Entry] = {}
_LOCK = threading.Lock()

if hasattr(os, "register_at_fork"):  # A child must not wait for a thread that it lacks.
    os.register_at_fork(
        before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release
    )


def specialise(function: Callable[..., Any], signature: Signature) -> Callable[..., Any]:
    """Compile `function` for `signature`, once per process; the kernel runs without the GIL.

    The kernel takes positional arguments, and raises TypeError if an argument is of another kind.
    It returns None, a bool or an int. Fastmath is off, because the order of sums is part of a
    model. Within `no_wait`, raises NotReady while another process compiles the kernel.
    """
    kernel = _COMPILED.get((function, signature))
    if kernel is not None:
        return kernel
    must_wait = waits_for_kernels()
    return run_uninterrupted(lambda: _compile_once(function, signature, must_wait))


def _compile_once(
    function: Callable[..., Any], signature: Signature, must_wait: bool
) -> Callable[..., Any]:
    key = (function, signature)
    with _LOCK:
        if key not in _COMPILED:
            loaded = None
            if runtime_library.can_call_kernels():
                loaded = _load_or_compile(function, signature, must_wait)
            if loaded is None:
                _COMPILED[key] = _compile_with_numba(function, signature)
            else:
                _COMPILED[key] = loaded.call
                addresses = (loaded.words_address, loaded.numbers_address)
                _ENTRIES[loaded.call] = Entry(function, signature, *addresses)
        return _COMPILED[key]


def list_kernels_in_use() -> tuple[tuple[Callable[..., Any], Signature], ...]:
    return tuple(_COMPILED)


def find_entry(kernel: Callable[..., Any]) -> Entry | None:
    """Return the entry of a specialised kernel, or None if the kernel needs numba to run."""
    return _ENTRIES.get(kernel)


def bind_constants(
    kernel: Callable[..., Any], first: int, constants: Sequence[Any]
) -> Callable[..., Any]:
    """Return a specialised kernel without the arguments `constants`, the first at position `first`.

    A call then takes less time, because these arguments are neither passed nor checked. They must
    be what the kernel was specialised for, and must not be the last arguments.
    """
    entry = find_entry(kernel)
    if entry is not None:
        return runtime_library.bind_constants(kernel, entry.signature, first, constants)
    return lambda *others: kernel(*others[:first], *constants, *others[first:])


def _load_or_compile(
    function: Callable[..., Any], signature: Signature, must_wait: bool
) -> LoadedKernel | None:
    """Find a kernel in the runtime, or compile it; return None if it needs numba."""
    loaded = runtime_library.find_kernel(function, signature)
    if loaded is not None:
        return loaded
    from sqlml.backends.native.jit import compiled_kernels  # Imported late, since it imports LLVM.

    return compiled_kernels.load_or_compile(function, signature, must_wait)


def is_available(function: Callable[..., Any], signature: Signature) -> bool:
    """Return True if the kernel is in the runtime, or its machine code is stored on disk."""
    if runtime_library.find_kernel(function, signature) is not None:
        return True
    from sqlml.backends.native.jit import compiled_kernels  # Imported late, since it imports LLVM.

    return compiled_kernels.is_stored(function, signature)


def _compile_with_numba(function: Callable[..., Any], signature: Signature) -> Callable[..., Any]:
    """Compile a kernel that needs numba to run; each process compiles it again."""
    from numba import njit

    dispatcher: Any = njit(nogil=True, error_model="numpy")(helpers.resolve_helpers(function))
    dispatcher.compile(tuple(argument_kinds.to_numba_type(kind) for kind in signature))
    dispatcher.disable_compile()
    return cast(Callable[..., Any], dispatcher)
