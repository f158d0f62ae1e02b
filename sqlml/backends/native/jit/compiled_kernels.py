"""Kernels that the runtime lacks: compiled by numba once on this machine, and kept on disk.

Later processes load them without numba (`object_code.py`). Machine code of an older sqlml might
read arrays differently, so each file name depends on the source files of the kernel.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from sqlml.backends.native.jit import (
    argument_kinds,
    code_store,
    helpers,
    kernel_keys,
    object_code,
)
from sqlml.backends.native.jit.argument_kinds import Signature
from sqlml.backends.native.jit.background_compiler import compile_in_background
from sqlml.backends.native.jit.code_store import NotLoadable, ObjectCode
from sqlml.backends.native.jit.runtime_library import LoadedKernel
from sqlml.long_work import watched_stream


def load_or_compile(
    function: Callable[..., Any], signature: Signature, must_wait: bool
) -> LoadedKernel | None:
    """Load a kernel from disk, or compile it and keep it there; return None if it needs numba.

    Unless `must_wait`, raises NotReady while another process compiles the kernel.
    """
    stored = code_store.read(_make_file_name(function, signature))
    if stored is not None:
        with suppress(NotLoadable):  # This process may lack a function.
            return object_code.load_kernel(stored, function.__name__, signature)
    _announce_compiling(code_store.has_writable_folder())
    name = _make_file_name(function, signature)
    try:
        new_code = None if must_wait else compile_in_background(function, signature, name)
        if new_code is None:
            new_code = object_code.compile_kernel(function, signature)
            code_store.write(name, new_code)
        return object_code.load_kernel(new_code, function.__name__, signature)
    except NotLoadable:
        return None


def _make_file_name(function: Callable[..., Any], signature: Signature) -> str:
    module, name = function.__module__, function.__name__
    key = (module, name, helpers.describe_code(function), argument_kinds.format_kind(signature))
    key_text = "\n".join((*key, *object_code.describe_processor()))
    full_name = f"{module.rpartition('.')[2]}.{name}"
    return code_store.make_file_name(full_name, kernel_keys.digest_sources(function), key_text)


def is_stored(function: Callable[..., Any], signature: Signature) -> bool:
    return code_store.read(_make_file_name(function, signature)) is not None


def store(function: Callable[..., Any], signature: Signature, code: ObjectCode) -> None:
    """Keep a kernel's machine code on disk for later processes, if possible."""
    code_store.write(_make_file_name(function, signature), code)


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
