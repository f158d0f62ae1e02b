"""Compile kernels with numba to bytes of machine code, and load such bytes with LLVM.

numba's loader needs numba, and importing numba takes longer than everything else.
"""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import struct
import sys
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from sqlml.backends.native.jit.argument_kinds import Signature, to_numba_type
from sqlml.backends.native.jit.call_wrapper import NUMBERS_ENTRY, RESULT_KIND, WORDS_ENTRY
from sqlml.backends.native.jit.code_store import NotLoadable, ObjectCode
from sqlml.backends.native.jit.helpers import resolve_helpers
from sqlml.backends.native.jit.processor_levels import X86, read_numba_settings
from sqlml.backends.native.jit.runtime_library import (
    CALLED,
    LoadedKernel,
    find_symbol,
    make_function,
)

# Object files are checked before they are loaded, because LLVM trusts them. LLVM ends the process
# if an offset in a file is invalid, or if the file calls an unknown function.


class DamagedError(Exception):
    """The bytes are not a complete object file for this machine."""


@dataclass(frozen=True, slots=True)
class Symbols:
    """The names that an object file defines, and the names that the file needs from elsewhere."""

    defined: frozenset[str]
    missing: frozenset[str]


def read_symbols(content: bytes, sample: bytes) -> Symbols:
    """Read the symbols of an object file; `sample` is a valid object file for this machine.

    Raises DamagedError if the file is not for this machine, or if a part lies outside the file.
    """
    read_format, header_size = _FORMATS.get(sample[:4], (None, 0))
    if read_format is None or content[:header_size] != sample[:header_size]:
        raise DamagedError("not an object file of this machine")
    try:
        symbols = list(read_format(content))
    except (struct.error, ValueError, IndexError) as error:
        raise DamagedError(f"the object file is damaged: {error}") from None
    defined = frozenset(name for name, is_here in symbols if is_here)
    return Symbols(defined, frozenset(n for n, _ in symbols if n) - defined - _LOADER_SYMBOLS)


_LOADER_SYMBOLS = frozenset({".TOC.", "_GLOBAL_OFFSET_TABLE_"})
"""Names that the loader defines."""


def _require(condition: bool) -> None:
    if not condition:
        raise ValueError("a part lies outside the file")


def _read_text(strings: bytes, start: int) -> str:
    return strings[start : strings.index(0, start)].decode()


_Section = namedtuple("_Section", "name type flags address offset size link info align each")

_HEADER = struct.Struct("<40xQ10xHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_SYMBOLS, _RELOCATIONS, _ZEROS = 2, 4, 8
_NOWHERE, _RESERVED = 0, 0xFF00
_MAX_ZEROS = 1 << 24


def _read_elf_symbols(content: bytes) -> Iterator[tuple[str, bool]]:
    """Yield the name of each symbol of a 64-bit ELF file, and True if the file defines it."""
    table, entry_size, section_count, names_index = _HEADER.unpack_from(content)
    _require(entry_size == _SECTION.size and table + section_count * entry_size == len(content))
    sections = list(map(_Section._make, _SECTION.iter_unpack(content[table:])))
    for section in sections:
        _read_text(_read_section(content, sections[names_index]), section.name)
        body = _read_section(content, section)
        if section.type == _SYMBOLS:
            _require(section.each == _SYMBOL.size)
            strings = _read_section(content, sections[section.link])
            for name, _, _, section_index, value, size in _SYMBOL.iter_unpack(body):
                _require(section_index >= _RESERVED or value + size <= sections[section_index].size)
                yield _read_text(strings, name), section_index != _NOWHERE
        elif section.type == _RELOCATIONS:
            _require(section.each == _RELOCATION.size and sections[section.link].type == _SYMBOLS)
            for offset, symbol, _ in _RELOCATION.iter_unpack(body):
                _require(offset + 4 <= sections[section.info].size)
                _require(symbol >> 32 < sections[section.link].size // _SYMBOL.size)


def _read_section(content: bytes, section: _Section) -> bytes:
    _require(section.align <= 4096 and section.align.bit_count() <= 1)
    if section.type == _ZEROS:
        _require(section.size <= _MAX_ZEROS)
        return b""
    _require(section.offset + section.size <= len(content))
    return content[section.offset : section.offset + section.size]


_COMMANDS = struct.Struct("<16xII8x")
_COMMAND = struct.Struct("<II")
_SEGMENT = struct.Struct("<64xI4x")
_MACH_SECTION = struct.Struct("<40xQIIIII12x")
_TABLE = struct.Struct("<8xIIII")
_ENTRY = struct.Struct("<IBBHQ")
_LOAD_SEGMENT, _LOAD_SYMBOLS = 0x19, 2
_SECTION_TYPE, _ZEROFILL = 0xFF, 1
_N_TYPE = 0x0E


def _read_mach_symbols(content: bytes) -> Iterator[tuple[str, bool]]:
    """Yield the name of each symbol of a 64-bit Mach-O file, and True if the file defines it."""
    command_count, commands_size = _COMMANDS.unpack_from(content)
    offset, string_size = _COMMANDS.size, 0
    for _ in range(command_count):
        command, size = _COMMAND.unpack_from(content, offset)
        _require(_COMMAND.size <= size <= _COMMANDS.size + commands_size - offset)
        body = content[offset : offset + size]
        offset += size
        if command == _LOAD_SEGMENT:
            (section_count,) = _SEGMENT.unpack_from(body)
            _require(_SEGMENT.size + section_count * _MACH_SECTION.size == size)
            for section in _MACH_SECTION.iter_unpack(body[_SEGMENT.size :]):
                length, start, _, relocation_start, relocation_count, flags = section
                has_content = flags & _SECTION_TYPE != _ZEROFILL
                _require(start + length <= len(content) if has_content else length <= _MAX_ZEROS)
                _require(relocation_start + 8 * relocation_count <= len(content))
        elif command == _LOAD_SYMBOLS:
            table_offset, entry_count, names, string_size = _TABLE.unpack_from(body)
            _require(names + string_size == len(content))
            symbol_table = content[table_offset : table_offset + entry_count * _ENTRY.size]
            _require(len(symbol_table) == entry_count * _ENTRY.size)
            for name, kind, _, _, _ in _ENTRY.iter_unpack(symbol_table):
                yield _read_text(content[names:], name).removeprefix("_"), bool(kind & _N_TYPE)
    _require(bool(string_size))


ReadSymbols = Callable[[bytes], Iterator[tuple[str, bool]]]

_FORMATS: Mapping[bytes, tuple[ReadSymbols, int]] = {
    b"\x7fELF": (_read_elf_symbols, 20),
    b"\xcf\xfa\xed\xfe": (_read_mach_symbols, 16),
}
"""Maps the first bytes of an object file to a reader and the length of the header."""


def find_target() -> tuple[str, str]:
    """Return LLVM's name and features of the processor to compile for."""
    name, features = (os.environ.get(f"NUMBA_CPU_{part}") for part in ("NAME", "FEATURES"))
    if features is None:
        features = llvm.get_host_cpu_features().flatten()
    return name or llvm.get_host_cpu_name(), features


_NUMBA_PREFIXES = ("NRT_", "numba_", "_ZN5numba")
"""Prefixes of the names of functions that only numba defines."""


_IMMORTAL: list[Any] = []
"""LLVM's engines, which own the code and are never freed."""


def describe_processor() -> tuple[str, ...]:
    """Return the processor, library versions and settings that machine code depends on."""
    settings = sorted(read_numba_settings().items())
    return (*_describe_host(), *(f"{name}={value}" for name, value in settings))


@cache
def _describe_host() -> tuple[str, ...]:
    return (
        llvm.get_process_triple(),
        llvm.get_host_cpu_name(),
        llvm.get_host_cpu_features().flatten(),
        version("numba"),
        version("llvmlite"),
        np.__version__,
        platform.python_version(),
        sys.implementation.cache_tag or "",
    )


def compile_kernel(function: Callable[..., Any], signature: Signature) -> ObjectCode:
    """Compile `function` for `signature`, without fastmath: the order of sums is part of a model.

    Raises NotLoadable if the kernel calls functions that only numba defines.
    """
    from sqlml.backends.native.jit.call_wrapper import emit_entries

    _declare_functions()
    result = compile_with_numba(function, signature)
    kernel = bytes(result.library._get_compiled_object())
    entry = llvm.parse_assembly(emit_entries(result, signature))
    entry.verify()
    code = ObjectCode(kernel, _make_target_machine().emit_object(entry))
    if numba_functions := [n for n in _find_callees(code) if n.startswith(_NUMBA_PREFIXES)]:
        raise NotLoadable(f"{function.__name__} calls {', '.join(numba_functions)}")
    return code


def compile_with_numba(function: Callable[..., Any], signature: Signature) -> Any:
    """Return numba's compile result of a kernel.

    LLVM must know an address of each function of the runtime that the kernel calls.
    """
    from numba import njit
    from numba.core.compiler_lock import global_compiler_lock

    options: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    dispatcher: Any = njit(nogil=True, error_model="numpy", **options)(resolve_helpers(function))
    with global_compiler_lock, _pause_garbage_collection():
        types = tuple(to_numba_type(kind) for kind in signature)
        return dispatcher._compiler.compile(types, None)


def load_kernel(code: ObjectCode, name: str, signature: Signature) -> LoadedKernel:
    """Load a kernel as a Python function called `name`, which runs without the GIL.

    Raises NotLoadable if the code is damaged, or if the process lacks a function that it calls.
    """
    callees = _find_callees(code)
    _declare_functions()
    engine = llvm.create_mcjit_compiler(_parse_empty_module(), _make_target_machine())
    for callee in callees:
        # LLVM can search the process only after creating an engine.
        if llvm.address_of_symbol(callee) is None:
            raise NotLoadable(f"{name} calls {callee}")
    for content in (code.kernel, code.entry):
        engine.add_object_file(llvm.ObjectFileRef.from_data(content))
    engine.finalize_object()
    _IMMORTAL.append(engine)
    words_address, numbers_address = map(engine.get_function_address, (WORDS_ENTRY, NUMBERS_ENTRY))
    result_kind = ctypes.c_int64.from_address(engine.get_global_value_address(RESULT_KIND)).value
    call = make_function(name, words_address, signature, result_kind)
    return LoadedKernel(call, words_address, numbers_address)


@cache
def _declare_functions() -> None:
    """Tell LLVM the addresses of the functions of the runtime that kernels call."""
    for name in CALLED:
        llvm.add_symbol(name, find_symbol(name))


@contextmanager
def _pause_garbage_collection() -> Iterator[None]:
    """Pause the garbage collector, which takes a fifth of numba's compile time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _find_callees(code: ObjectCode) -> list[str]:
    """Return the functions that `code` calls; raise NotLoadable if the code is damaged."""
    try:
        sample = _make_empty_object()
        kernel, entry = (read_symbols(content, sample) for content in (code.kernel, code.entry))
    except DamagedError as error:
        raise NotLoadable(str(error)) from None
    if not {RESULT_KIND, WORDS_ENTRY} <= entry.defined:
        raise NotLoadable("the machine code lacks an entry")
    return sorted((kernel.missing | entry.missing) - kernel.defined - entry.defined)


def _make_target_machine() -> Any:
    """Return a new LLVM target machine with numba's settings; engines cannot share one."""
    _initialise_llvm()
    cpu, features = find_target()
    return llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
        cpu=cpu,
        features=features,
        opt=2,
        reloc="static" if platform.machine() in X86 else "default",
        codemodel="jitdefault",
        jit=True,
    )


@cache
def _make_empty_object() -> bytes:
    content: bytes = _make_target_machine().emit_object(_parse_empty_module())
    return content


def _parse_empty_module() -> Any:
    return llvm.parse_assembly(f'target triple = "{llvm.get_process_triple()}"')


@cache
def _initialise_llvm() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
