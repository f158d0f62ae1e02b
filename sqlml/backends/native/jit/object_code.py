"""A kernel's machine code as bytes, made once by numba and loaded by LLVM.

numba's own way to load it from disk needs numba, whose import takes longer than all the rest.
"""

from __future__ import annotations

import ctypes
import gc
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from sqlml.backends.native.jit.argument_kinds import Signature, numba_type
from sqlml.backends.native.jit.array_fields import ENTRY
from sqlml.backends.native.jit.helpers import compilable
from sqlml.backends.native.jit.object_files import DamagedError, symbols
from sqlml.backends.native.jit.processor import target, told
from sqlml.backends.native.jit.words_entry import NUMBERS_ENTRY, WORDS_ENTRY

_FASTCALL = 0x80
"""CPython's METH_FASTCALL."""

_NUMBAS = ("NRT_", "numba_", "_ZN5numba")
"""How the names of functions begin that only numba has."""


@dataclass(frozen=True, slots=True)
class ObjectCode:
    """Two object files: the kernel and its entries (`call_wrapper.py`, `words_entry.py`)."""

    kernel: bytes
    entry: bytes


@dataclass(frozen=True, slots=True)
class Loaded:
    """A kernel in this process: a function of Python, and where its other entries lie.

    Only a kernel of counts alone has one of numbers.
    """

    call: Callable[..., Any]
    words: int
    numbers: int


class NotLoadable(Exception):
    """Machine code calls something that is not in this process, or is damaged."""


class _Method(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("text", ctypes.c_char_p),
    )


_KEPT: list[Any] = []
"""LLVM's engines, whose memory the code lies in, and what CPython points to: never freed."""


def processor() -> tuple[str, ...]:
    """What machine code depends on besides its source: processor, libraries, and settings."""
    return (
        llvm.get_process_triple(),
        llvm.get_host_cpu_name(),
        llvm.get_host_cpu_features().flatten(),
        version("numba"),
        version("llvmlite"),
        np.__version__,
        platform.python_version(),
        sys.implementation.cache_tag or "",
        *(f"{name}={value}" for name, value in sorted(told().items())),
    )


def compiled(function: Callable[..., Any], signature: Signature) -> ObjectCode:
    """Compile a kernel. It has no fastmath: the order of sums is part of a model.

    Raises:
        NotLoadable: it needs more of numba than an entry brings with it.
    """
    from numba import njit
    from numba.core.compiler_lock import global_compiler_lock

    from sqlml.backends.native.jit.call_wrapper import wrapper

    options: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    dispatcher: Any = njit(nogil=True, error_model="numpy", **options)(compilable(function))
    with global_compiler_lock, _no_collection():
        types = tuple(numba_type(kind) for kind in signature)
        result = dispatcher._compiler.compile(types, None)
        kernel = bytes(result.library._get_compiled_object())
        entry = llvm.parse_assembly(wrapper(result, signature))
        entry.verify()
        made = ObjectCode(kernel, _target().emit_object(entry))
    foreign = [name for name in _called(made) if name.startswith(_NUMBAS)]
    if foreign:
        raise NotLoadable(f"{function.__name__} calls {', '.join(foreign)}")
    return made


def loaded(code: ObjectCode, name: str) -> Loaded:
    """Load a kernel. It runs without the GIL.

    Raises:
        NotLoadable: what it calls is not in this process, or it is damaged.
    """
    called = _called(code)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(_nothing()), _target())
    for other in called:
        if llvm.address_of_symbol(other) is None:  # the process is searched once it has an engine
            raise NotLoadable(f"{name} calls {other}")
    for part in (code.kernel, code.entry):
        engine.add_object_file(llvm.ObjectFileRef.from_data(part))
    engine.finalize_object()
    address = engine.get_function_address(ENTRY)
    method = _Method(name.encode(), address, _FASTCALL, None)
    own = (np.ndarray, None, TypeError)
    make = ctypes.PYFUNCTYPE(
        ctypes.py_object, ctypes.POINTER(_Method), ctypes.py_object, ctypes.c_void_p
    )(("PyCFunction_NewEx", ctypes.pythonapi))
    function: Callable[..., Any] = make(ctypes.byref(method), own, None)
    _KEPT.extend((engine, method))
    return Loaded(function, *map(engine.get_function_address, (WORDS_ENTRY, NUMBERS_ENTRY)))


@contextmanager
def _no_collection() -> Iterator[None]:
    """numba makes so many objects that looking for garbage takes a fifth of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _called(code: ObjectCode) -> list[str]:
    """The functions that machine code takes from the process. Raises NotLoadable: it is damaged."""
    try:
        kernel, entry = (symbols(part, _empty()) for part in (code.kernel, code.entry))
    except DamagedError as error:
        raise NotLoadable(str(error)) from None
    if not {ENTRY, WORDS_ENTRY} <= entry.defined:
        raise NotLoadable("the machine code lacks an entry")
    defined = kernel.defined | entry.defined
    return sorted((kernel.missing | entry.missing) - defined)


def _target() -> Any:
    """LLVM's machine for the processor, as numba makes it. Each engine takes one for itself."""
    _initialise()
    cpu, features = target()
    return llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
        cpu=cpu,
        features=features,
        opt=2,
        reloc="static" if platform.machine() in ("x86_64", "AMD64") else "default",
        codemodel="jitdefault",
        jit=True,
    )


@cache
def _empty() -> bytes:
    """An object file of this machine."""
    made: bytes = _target().emit_object(llvm.parse_assembly(_nothing()))
    return made


def _nothing() -> str:
    return f'target triple = "{llvm.get_process_triple()}"'


@cache
def _initialise() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
