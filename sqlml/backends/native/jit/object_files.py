"""`symbols` of an object file, once it was checked: LLVM itself trusts what it is given.

It reads wherever a file says, and ends the process where that is nowhere, or where it finds no
function of a name that the file calls.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple


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
