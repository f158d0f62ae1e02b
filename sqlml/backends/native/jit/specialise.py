"""`specialise`: compile a kernel for one signature when a model first needs it.

A kernel is compiled only for the dtypes that models have, and once for arrays of any layout. The
machine code is kept on disk (`code_store.py`), and later processes load it without numba
(`object_code.py`). Machine code of an older sqlml might read arrays differently, so each file name
depends on the content of all source files of kernels. The package ships the common kernels.

Why not numba's cache (`njit(cache=True)`)? A later process that scores a forest and a network in
DuckDB takes 2.5 s of CPU with this loader and 3.3 s with that cache (numba 0.68, Python 3.11). With
the cache, numba is imported (0.35 s), and types and wraps each kernel again. `test_kernel_code.py`
fails if a new numba or numpy breaks the assumptions of the loader.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from sqlml.backends.native.jit import argument_kinds, code_store, helpers, object_code
from sqlml.backends.native.jit.argument_kinds import COUNT, FLAG, Signature, reads, to_kinds, writes
from sqlml.backends.native.jit.background_compiler import compile_in_background
from sqlml.backends.native.jit.helpers import compiled_helper, inlined_helper
from sqlml.backends.native.jit.object_code import LoadedKernel, ObjectCode
from sqlml.backends.no_wait import waits_for_kernels
from sqlml.interruption import run_uninterrupted
from sqlml.long_work import watched_stream

# Kernels import these names from here.
__all__ = ["COUNT", "FLAG", "Signature", "reads", "to_kinds", "writes"]
__all__ += ["Entry", "compiled_helper", "find_entry", "inlined_helper", "specialise"]

_ANNOUNCED = threading.Event()


def _announce_compiling(has_folder: bool) -> None:
    """Tell a watching user, once per process, that kernels are being compiled."""
    stream = watched_stream()
    if _ANNOUNCED.is_set() or stream is None:
        return
    _ANNOUNCED.set()
    message = "compiling kernels, once on this machine"
    if not has_folder:
        message = (
            "compiling kernels for this process only: no private cache folder is writable; "
            "set NUMBA_CACHE_DIR to one"
        )
    with suppress(OSError, ValueError):  # The stream may be closed.
        stream.write(f"sqlml: {message}\n")
        stream.flush()


@dataclass(frozen=True, slots=True)
class Entry:
    """The signature of a kernel, and the addresses of the entries (`call_wrapper.py`)."""

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
            if argument_kinds.is_array_layout_known():
                loaded = _load_or_compile(function, signature, must_wait)
            if loaded is None:
                _COMPILED[key] = _compile_with_numba(function, signature)
            else:
                _COMPILED[key] = loaded.call
                addresses = (loaded.words_address, loaded.numbers_address)
                _ENTRIES[loaded.call] = Entry(signature, *addresses)
        return _COMPILED[key]


def list_kernels_in_use() -> tuple[tuple[Callable[..., Any], Signature], ...]:
    return tuple(_COMPILED)


def find_entry(kernel: Callable[..., Any]) -> Entry | None:
    """Return the entry of a specialised kernel, or None if the kernel needs numba to run."""
    return _ENTRIES.get(kernel)


def _load_or_compile(
    function: Callable[..., Any], signature: Signature, must_wait: bool
) -> LoadedKernel | None:
    """Load a kernel from disk, or compile it; return None if the kernel needs numba to run."""
    for code in _find_stored(function, signature):
        with suppress(object_code.NotLoadable):  # This process may lack a function.
            return object_code.load_kernel(code, function.__name__)
    _announce_compiling(code_store.has_writable_folder())
    name = _make_file_name(function, signature)
    try:
        new_code = None if must_wait else compile_in_background(function, signature, name)
        if new_code is None:
            new_code = object_code.compile_kernel(function, signature)
            code_store.write(name, new_code)
        return object_code.load_kernel(new_code, function.__name__)
    except object_code.NotLoadable:
        return None


def _find_stored(function: Callable[..., Any], signature: Signature) -> Iterator[ObjectCode]:
    """Yield the machine code shipped with the package, and the code compiled on this machine."""
    shipped = code_store.read_shipped_code(function, signature)
    if shipped is not None:
        yield shipped
    cached = code_store.read(_make_file_name(function, signature))
    if cached is not None:
        yield cached


def _make_file_name(function: Callable[..., Any], signature: Signature) -> str:
    name, kinds = function.__name__, argument_kinds.format_kind(signature)
    key = (function.__module__, name, helpers.describe_code(function), kinds)
    key_text = "\n".join((*key, *object_code.describe_processor()))
    return code_store.make_file_name(name, code_store.digest_sources(), key_text)


def is_on_disk(function: Callable[..., Any], signature: Signature) -> bool:
    """Return True if the kernel's machine code is stored on disk."""
    return next(_find_stored(function, signature), None) is not None


def store(function: Callable[..., Any], signature: Signature, code: ObjectCode) -> None:
    """Keep a kernel's machine code on disk for later processes, if possible."""
    code_store.write(_make_file_name(function, signature), code)


def _compile_with_numba(function: Callable[..., Any], signature: Signature) -> Callable[..., Any]:
    """Compile a kernel that needs numba to run; each process compiles it again."""
    from numba import njit

    dispatcher: Any = njit(nogil=True, error_model="numpy")(helpers.resolve_helpers(function))
    dispatcher.compile(tuple(argument_kinds.to_numba_type(kind) for kind in signature))
    dispatcher.disable_compile()
    return cast(Callable[..., Any], dispatcher)
