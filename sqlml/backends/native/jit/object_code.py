"""A kernel's machine code as bytes, made once by numba and loaded by LLVM.

numba's own way to load it from disk needs numba, whose import takes longer than all the rest.
"""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from types import MappingProxyType
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import numpy as np

from sqlml.backends.native.jit.argument_kinds import ENTRY, Signature, numba_type
from sqlml.backends.native.jit.call_wrapper import NUMBERS_ENTRY, WORDS_ENTRY
from sqlml.backends.native.jit.helpers import compilable

# `symbols` of an object file, once it was checked: LLVM itself trusts what it is given.
#
# It reads wherever a file says, and ends the process where that is nowhere, or where it finds no
# function of a name that the file calls.


class DamagedError(Exception):
    """The bytes are not a complete object file of this machine."""


@dataclass(frozen=True, slots=True)
class Symbols:
    """The names of what an object file has, and of what it takes from elsewhere."""

    defined: frozenset[str]
    missing: frozenset[str]


def symbols(content: bytes, like: bytes) -> Symbols:
    """The symbols of an object file.

    Args:
        like: another object file of this machine.

    Raises:
        DamagedError: it is not for this machine, or a part lies outside the file.
    """
    read, head = _FORMATS.get(like[:4], (None, 0))
    if read is None or content[:head] != like[:head]:
        raise DamagedError("not an object file of this machine")
    try:
        named = list(read(content))
    except (struct.error, ValueError, IndexError) as error:
        raise DamagedError(f"the object file is damaged: {error}") from None
    defined = frozenset(name for name, is_here in named if is_here)
    return Symbols(defined, frozenset(name for name, _ in named if name) - defined - _LINKERS)


_LINKERS = frozenset({".TOC.", "_GLOBAL_OFFSET_TABLE_"})
"""Names that whoever loads a file gives a meaning."""


def _demand(holds: bool) -> None:
    if not holds:
        raise ValueError("a part lies outside the file")


def _text(strings: bytes, at: int) -> str:
    return strings[at : strings.index(0, at)].decode()


class _Section(NamedTuple):
    """A section of ELF."""

    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    each: int


_HEADER = struct.Struct("<40xQ10xHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_SYMBOLS, _RELOCATIONS, _ZEROS = 2, 4, 8
_NOWHERE, _RESERVED = 0, 0xFF00
_MOST_ZEROS = 1 << 24


def _elf(content: bytes) -> Iterator[tuple[str, bool]]:
    """Each symbol of an ELF file of 64 bits, and whether it is defined there."""
    table, each, count, names = _HEADER.unpack_from(content)
    _demand(each == _SECTION.size and table + count * each == len(content))
    sections = list(map(_Section._make, _SECTION.iter_unpack(content[table:])))
    for s in sections:
        _text(_bytes(content, sections[names]), s.name)
        part = _bytes(content, s)
        if s.type == _SYMBOLS:
            _demand(s.each == _SYMBOL.size)
            strings = _bytes(content, sections[s.link])
            for name, _, _, where, value, size in _SYMBOL.iter_unpack(part):
                _demand(where >= _RESERVED or value + size <= sections[where].size)
                yield _text(strings, name), where != _NOWHERE
        elif s.type == _RELOCATIONS:
            _demand(s.each == _RELOCATION.size and sections[s.link].type == _SYMBOLS)
            for offset, symbol, _ in _RELOCATION.iter_unpack(part):
                _demand(offset + 4 <= sections[s.info].size)
                _demand(symbol >> 32 < sections[s.link].size // _SYMBOL.size)


def _bytes(content: bytes, s: _Section) -> bytes:
    _demand(s.align <= 4096 and not s.align & (s.align - 1 if s.align else 0))
    if s.type == _ZEROS:
        _demand(s.size <= _MOST_ZEROS)
        return b""
    _demand(s.offset + s.size <= len(content))
    return content[s.offset : s.offset + s.size]


_COMMANDS = struct.Struct("<16xII8x")
_COMMAND = struct.Struct("<II")
_SEGMENT = struct.Struct("<64xI4x")
_PART = struct.Struct("<40xQIIIII12x")
_TABLE = struct.Struct("<8xIIII")
_ENTRY = struct.Struct("<IBBHQ")
_LOAD_SEGMENT, _LOAD_SYMBOLS = 0x19, 2
_KIND, _ZEROFILL = 0xFF, 1
_PLACE = 0x0E


def _mach(content: bytes) -> Iterator[tuple[str, bool]]:
    """Each symbol of a Mach-O file of 64 bits, less an underscore, and whether it is defined."""
    count, room = _COMMANDS.unpack_from(content)
    at, whole = _COMMANDS.size, 0
    for _ in range(count):
        command, size = _COMMAND.unpack_from(content, at)
        _demand(_COMMAND.size <= size <= _COMMANDS.size + room - at)
        part = content[at : at + size]
        at += size
        if command == _LOAD_SEGMENT:
            (parts,) = _SEGMENT.unpack_from(part)
            _demand(_SEGMENT.size + parts * _PART.size == size)
            for held, offset, _, moved, moves, flags in _PART.iter_unpack(part[_SEGMENT.size :]):
                zeros = flags & _KIND == _ZEROFILL
                _demand(held <= _MOST_ZEROS if zeros else offset + held <= len(content))
                _demand(moved + 8 * moves <= len(content))
        elif command == _LOAD_SYMBOLS:
            table, entries, names, whole = _TABLE.unpack_from(part)
            _demand(names + whole == len(content))
            listed = content[table : table + entries * _ENTRY.size]
            _demand(len(listed) == entries * _ENTRY.size)
            for name, kind, _, _, _ in _ENTRY.iter_unpack(listed):
                yield _text(content[names:], name).removeprefix("_"), bool(kind & _PLACE)
    _demand(bool(whole))


Read = Callable[[bytes], Iterator[tuple[str, bool]]]

_FORMATS: Mapping[bytes, tuple[Read, int]] = MappingProxyType(
    {b"\x7fELF": (_elf, 20), b"\xcf\xfa\xed\xfe": (_mach, 16)}
)
"""How a file begins -> what reads it, and how many bytes are the same in all of one machine."""


# What machine code is compiled for: this processor, or the level that it has of its kind.
#
# A package brings machine code for levels (`shipped_code.py`). On a processor that reaches a
# level, kernels use no feature beyond it that Python has to know of, so that machine code for the
# level and for the processor both fit.


_V3 = frozenset(
    "avx avx2 bmi bmi2 cmov cx16 cx8 f16c fma fxsr lzcnt mmx movbe popcnt sahf sse sse2 sse3 "
    "sse4.1 sse4.2 ssse3 xsave".split()
)

LEVELS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "x86-64-v4": _V3 | {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"},
        "x86-64-v3": _V3,
    }
)
"""LLVM's names of levels and of their features; the best level first."""


def settings(level: str) -> dict[str, str]:
    """Environment variables by which numba compiles for a level."""
    features = ",".join(f"+{feature}" for feature in sorted(LEVELS[level]))
    return {"NUMBA_CPU_NAME": level, "NUMBA_CPU_FEATURES": features}


def told() -> dict[str, str]:
    """The environment variables that say how numba compiles."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith("NUMBA_") and not name.startswith("NUMBA_CACHE_")
    }


def target() -> tuple[str, str]:
    """The processor to compile for and its features, as LLVM names them."""
    name, features = (os.environ.get(f"NUMBA_CPU_{part}") for part in ("NAME", "FEATURES"))
    return (
        name or llvm.get_host_cpu_name(),
        llvm.get_host_cpu_features().flatten() if features is None else features,
    )


@cache
def level() -> str | None:
    """The best level that this processor has, or the one that numba is told to compile for.

    None if there is no such level, or numba is told to compile in some other way.
    """
    asked = told()
    if asked:
        return next((name for name in LEVELS if settings(name) == asked), None)
    here = llvm.get_host_cpu_features()
    return next((name for name, own in LEVELS.items() if all(map(here.get, own))), None)


def has(feature: str) -> bool:
    """Whether kernels may use a feature, by LLVM's name for it.

    False where NUMBA_CPU_NAME or NUMBA_CPU_FEATURES ask for no level, but another processor.
    """
    found = level()
    if found is not None:
        return feature in LEVELS[found]
    if any(os.environ.get(f"NUMBA_CPU_{part}") for part in ("NAME", "FEATURES")):
        return False
    return bool(llvm.get_host_cpu_features().get(feature, False))


VECTOR_BYTES = 64 if has("avx512bw") else 32 if has("avx2") else 16
"""Width of a vector of bytes, for kernels that are written in LLVM's own language."""


_FASTCALL = 0x80
"""CPython's METH_FASTCALL."""

_NUMBAS = ("NRT_", "numba_", "_ZN5numba")
"""How the names of functions begin that only numba has."""


@dataclass(frozen=True, slots=True)
class ObjectCode:
    """Two object files: the kernel and its entries (`call_wrapper.py`, `call_wrapper.py`)."""

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
