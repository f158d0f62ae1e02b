"""Rename the function that DuckDB calls when it loads a copy of the runtime.

DuckDB calls `<name>_init_c_api`, where `<name>` is the name of the extension's file without its
suffix. The runtime exports that function under a second, long name, whose characters are reserved
for the name of an exported file. The tables in which the loader of each system looks names up are
rewritten in place, since they depend on the names.
"""

from __future__ import annotations

import hashlib
import os.path
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby

RESERVED = "sqlml_reserved_" + "_" * 240 + "init_c_api"
"""The second name of the function, `SECOND_NAME` in `runtime.c`."""

SUFFIX = "_init_c_api"


class LongNameError(ValueError):
    """The name of an extension has too many bytes."""


def rename_init_function(library: bytes, name: str) -> bytes:
    """Return `library` with the function `<name>_init_c_api`; raise LongNameError if it is long."""
    new_name = (name + SUFFIX).encode()
    if len(new_name) > len(RESERVED) or b"\0" in new_name:
        longest = len(RESERVED) - len(SUFFIX)
        raise LongNameError(f"the name {name!r} of an extension has more than {longest} bytes")
    content = bytearray(library)
    if library[:4] == b"\x7fELF":
        _rename_in_elf(content, new_name)
    elif library[:2] == b"MZ":
        _rename_in_pe(content, new_name)
    else:
        _rename_in_mach(content, new_name)
    return bytes(content)


def _replace_text(content: bytearray, start: int, new_name: bytes) -> None:
    """Write `new_name` over the reserved name at `start`, and fill the rest with zeros."""
    content[start : start + len(RESERVED)] = new_name.ljust(len(RESERVED), b"\0")


# ELF: `.gnu.hash` has a Bloom filter, buckets, and the hashes of the symbols from `first_symbol`
# on. With one bucket, the symbols need no order, and a filter of ones lets every name through.

_PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
_DYNAMIC_ENTRY = struct.Struct("<qQ")
_ELF_SYMBOL = struct.Struct("<IBBHQQ")
_LOAD, _DYNAMIC = 1, 2
_HASH, _STRINGS, _SYMBOLS, _GNU_HASH = 4, 5, 6, 0x6FFFFEF5


def _rename_in_elf(content: bytearray, new_name: bytes) -> None:
    (table_offset,), (header_size, header_count) = (
        struct.unpack_from("<Q", content, 32),
        struct.unpack_from("<HH", content, 54),
    )
    headers = [
        _PROGRAM_HEADER.unpack_from(content, table_offset + i * header_size)
        for i in range(header_count)
    ]

    def find_offset(address: int) -> int:
        for kind, _, offset, start, _, size, _, _ in headers:
            if kind == _LOAD and start <= address < start + size:
                return int(offset + address - start)
        raise ValueError("an address lies outside the library")

    (dynamic,) = (h for h in headers if h[0] == _DYNAMIC)
    entries = dict(_DYNAMIC_ENTRY.iter_unpack(content[dynamic[2] : dynamic[2] + dynamic[5]]))
    strings, symbols = find_offset(entries[_STRINGS]), find_offset(entries[_SYMBOLS])
    table = find_offset(entries[_GNU_HASH])
    bucket_count, first_symbol, filter_size, _ = struct.unpack_from("<IIII", content, table)
    buckets = struct.unpack_from(f"<{bucket_count}I", content, table + 16 + 8 * filter_size)
    chains = table + 16 + 8 * filter_size + 4 * bucket_count - 4 * first_symbol
    last_symbol = max(buckets)
    while not struct.unpack_from("<I", content, chains + 4 * last_symbol)[0] & 1:
        last_symbol += 1
    text_start = content.index(RESERVED.encode() + b"\0", strings)
    _replace_text(content, text_start, new_name)
    names = [
        _read_text(content, strings + _ELF_SYMBOL.unpack_from(content, symbols + 24 * i)[0])
        for i in range(first_symbol, last_symbol + 1)
    ]
    hashes = [_hash_gnu(name) & ~1 for name in names]
    hashes[-1] |= 1
    words = (1, first_symbol, 1, 0, 0xFFFFFFFF, 0xFFFFFFFF, first_symbol, *hashes)
    struct.pack_into(f"<{len(words)}I", content, table, *words)


def _read_text(content: bytearray, start: int) -> bytes:
    return bytes(content[start : content.index(0, start)])


def _hash_gnu(name: bytes) -> int:
    value = 5381
    for byte in name:
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


# PE: the export directory has the names in alphabetical order.


def _rename_in_pe(content: bytearray, new_name: bytes) -> None:
    (header,) = struct.unpack_from("<I", content, 0x3C)
    section_count, optional_size = struct.unpack_from("<H12xH", content, header + 6)
    sections = [
        struct.unpack_from("<IIII", content, header + 24 + optional_size + 40 * i + 8)
        for i in range(section_count)
    ]

    def find_offset(address: int) -> int:
        for size, start, raw_size, offset in sections:
            if start <= address < start + max(size, raw_size):
                return int(offset + address - start)
        raise ValueError("an address lies outside the library")

    (directory,) = struct.unpack_from("<I", content, header + 24 + 112)
    exports = find_offset(directory)
    (count,) = struct.unpack_from("<I", content, exports + 24)
    names_at, ordinals_at = map(find_offset, struct.unpack_from("<II", content, exports + 32))
    start = content.index(RESERVED.encode() + b"\0")
    _replace_text(content, start, new_name)
    names = struct.unpack_from(f"<{count}I", content, names_at)
    ordinals = struct.unpack_from(f"<{count}H", content, ordinals_at)
    pairs = sorted(
        zip(names, ordinals, strict=True), key=lambda p: _read_text(content, find_offset(p[0]))
    )
    struct.pack_into(f"<{count}I", content, names_at, *(name for name, _ in pairs))
    struct.pack_into(f"<{count}H", content, ordinals_at, *(ordinal for _, ordinal in pairs))


# Mach-O: the texts on the way from the root of a tree to a node make up a name. The tree is packed
# as tightly as a linker packs it, so that the reserved characters leave room for any name. The
# ad-hoc signature has the hash of each page.

_SYMBOL_TABLE, _SIGNATURE, _EXPORTS = 0x2, 0x1D, 0x80000033
_INFO = (0x22, 0x80000022)
_CODE_DIRECTORY = 0xFADE0C02


@dataclass(frozen=True, slots=True)
class _Part:
    offset: int
    size: int


def _rename_in_mach(content: bytearray, new_name: bytes) -> None:
    parts = dict(_list_mach_parts(content))
    tree = parts["exports"]
    reserved, new = b"_" + RESERVED.encode(), b"_" + new_name
    exports = dict(_list_exports(content, tree.offset, tree.offset, b""))
    exports[new] = exports.pop(reserved)
    packed = _pack_exports(exports)
    if len(packed) > tree.size:
        raise ValueError("the names of the library's functions do not fit")
    content[tree.offset : tree.offset + tree.size] = packed.ljust(tree.size, b"\0")
    strings = parts["strings"]
    start = content.find(reserved + b"\0", strings.offset, strings.offset + strings.size)
    if start >= 0:
        _replace_text(content, start + 1, new_name)
    if "signature" in parts:  # Processors of Intel need none.
        _sign_again(content, parts["signature"])


def _list_mach_parts(content: bytearray) -> Iterator[tuple[str, _Part]]:
    (command_count,) = struct.unpack_from("<I", content, 16)
    offset = 32
    for _ in range(command_count):
        command, size = struct.unpack_from("<II", content, offset)
        if command == _SYMBOL_TABLE:
            yield "strings", _Part(*struct.unpack_from("<II", content, offset + 16))
        elif command == _SIGNATURE:
            yield "signature", _Part(*struct.unpack_from("<II", content, offset + 8))
        elif command == _EXPORTS:
            yield "exports", _Part(*struct.unpack_from("<II", content, offset + 8))
        elif command in _INFO:
            yield "exports", _Part(*struct.unpack_from("<II", content, offset + 40))
        offset += size


def _list_exports(
    content: bytearray, root: int, node: int, prefix: bytes
) -> Iterator[tuple[bytes, bytes]]:
    """Yield the names below a node of the tree, with what the tree says of each."""
    size, offset = _read_number(content, node)
    if size:
        yield prefix, bytes(content[offset : offset + size])
    offset += size
    child_count, offset = content[offset], offset + 1
    for _ in range(child_count):
        edge = _read_text(content, offset)
        child, offset = _read_number(content, offset + len(edge) + 1)
        yield from _list_exports(content, root, root + child, prefix + edge)


def _pack_exports(exports: Mapping[bytes, bytes]) -> bytes:
    """Return the smallest tree of names, which names the children of a node by their offsets."""
    nodes: list[_Node] = []
    _add_node(nodes, sorted(exports.items()), 0)
    # The larger an offset is, the more bytes it takes, which in turn moves later nodes.
    offsets = [0] * len(nodes)
    while True:
        packed = [node.pack(offsets) for node in nodes]
        ends = [*accumulate(map(len, packed))]
        if offsets[1:] == ends[:-1]:
            return b"".join(packed)
        offsets = [0, *ends[:-1]]


@dataclass(slots=True)
class _Node:
    """A node: what is known of the name that ends here, if any, and the edges to other nodes."""

    info: bytes
    edges: list[tuple[bytes, int]] = field(default_factory=list)

    def pack(self, offsets: Sequence[int]) -> bytes:
        edges = (text + b"\0" + _pack_number(offsets[index]) for text, index in self.edges)
        info = _pack_number(len(self.info)) + self.info
        return info + bytes((len(self.edges),)) + b"".join(edges)


def _add_node(nodes: list[_Node], exports: list[tuple[bytes, bytes]], start: int) -> int:
    """Add the node of names that are equal up to `start`, and those below; return its index."""
    ends_here = len(exports[0][0]) == start
    node, index = _Node(exports[0][1] if ends_here else b""), len(nodes)
    nodes.append(node)
    for _, group in groupby(exports[ends_here:], lambda export: export[0][start]):
        below = list(group)
        stop = len(os.path.commonprefix([name for name, _ in below]))
        node.edges.append((below[0][0][start:stop], _add_node(nodes, below, stop)))
    return index


def _read_number(content: bytearray, offset: int) -> tuple[int, int]:
    """Return a number in ULEB128 form, and the offset after it."""
    value = shift = 0
    while True:
        byte = content[offset]
        value |= (byte & 0x7F) << shift
        offset, shift = offset + 1, shift + 7
        if not byte & 0x80:
            return value, offset


def _pack_number(value: int) -> bytes:
    packed = bytearray()
    while value >= 0x80:
        packed.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*packed, value))


def _sign_again(content: bytearray, signature: _Part) -> None:
    """Write the hashes of all pages into the ad-hoc signature."""
    (blob_count,) = struct.unpack_from(">I", content, signature.offset + 8)
    for i in range(blob_count):
        (offset,) = struct.unpack_from(">I", content, signature.offset + 12 + 8 * i + 4)
        directory = signature.offset + offset
        if struct.unpack_from(">I", content, directory)[0] != _CODE_DIRECTORY:
            continue
        hashes_at, _, _, page_count, limit = struct.unpack_from(">5I", content, directory + 16)
        hash_size, hash_type, _, page_bits = content[directory + 36 : directory + 40]
        if hash_type != 2:
            raise ValueError("the library's signature has hashes of another kind")
        for page in range(page_count):
            start = page << page_bits
            stop = min(start + (1 << page_bits), limit)
            digest = hashlib.sha256(content[start:stop]).digest()[:hash_size]
            place = directory + hashes_at + page * hash_size
            content[place : place + hash_size] = digest
