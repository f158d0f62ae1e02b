"""Readers of JSON and UBJSON files that may be hostile.

Nesting, numbers and lengths are limited before memory is allocated. A hook may replace each object
as soon as it is read, so that large lists become arrays at once.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from io import StringIO
from itertools import chain
from typing import Any

import numpy as np

from sqlml.errors import ArtifactError
from sqlml.types import Array

MAX_FEATURES = 1_000_000
MAX_OUTPUTS = 100_000
"""The largest number of classes, targets, or trees per iteration."""

MAX_DEPTH = 64

Hook = Callable[[dict[str, Any]], Any]


def check_count(number: Any, limit: int, library: str, counted: str) -> int:
    """Convert a count in a model file to int; raise ArtifactError if it is over `limit`.

    >>> check_count("3", MAX_OUTPUTS, "XGBoost", "classes")
    3
    """
    if isinstance(number, str) and not number.isascii() or "_" in str(number):
        raise ValueError(f"{number!r} is not a number")
    count = int(number)
    if not 0 <= count <= limit:
        raise ArtifactError(f"the {library} model claims {count} {counted}; the limit is {limit}")
    return count


def read_json(content: bytes, hook: Hook | None = None, *, strict: bool = False) -> Any:
    """Parse a JSON document in UTF-8, using little memory beyond the result.

    `hook` is called with each object, and the result replaces the object. If `strict` is true, NaN
    and Infinity are errors. A damaged document raises ValueError, and a document that is nested too
    deeply raises RecursionError.

    >>> read_json('{"name": "größe"}'.encode())
    {'name': 'größe'}
    """
    text = content.decode() if content.isascii() else _escape_non_ascii(content)
    parse_constant = _reject_constant if strict else None
    return json.loads(text, object_hook=hook, parse_constant=parse_constant)


def _reject_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


_NON_ASCII = re.compile(rb"[\x80-\xff]+")
_CHUNK_BYTES = 1 << 16


def _escape_non_ascii(content: bytes) -> str:
    """Escape non-ASCII characters, for which Python would widen every character of the text."""
    buffer = StringIO()  # The buffer uses one byte per character if all characters are ASCII.
    position = 0
    for match in chain(_NON_ASCII.finditer(content), [None]):
        end = len(content) if match is None else match.start()
        for start in range(position, end, _CHUNK_BYTES):
            buffer.write(content[start : min(start + _CHUNK_BYTES, end)].decode("ascii"))
        if match is not None:
            first_backslash = end
            while first_backslash > position and content[first_backslash - 1] == 0x5C:
                first_backslash -= 1
            if (end - first_backslash) % 2:
                raise ValueError(f"a needless escape at byte {end}")
            buffer.write(json.dumps(match[0].decode())[1:-1])
            position = match.end()
    return buffer.getvalue()


def read_ubjson(content: bytes | bytearray, hook: Hook | None = None) -> Any:
    """Parse a UBJSON document; typed arrays become numpy arrays in the machine's byte order.

    The format is draft 12 of https://ubjson.org, without the parts that XGBoost does not write.
    `hook` is called with each object, and the result replaces the object.

    >>> read_ubjson(b"{U" + b"\\x01" + b"a" + b"[$U#U\\x02" + b"\\x05\\x06" + b"}")
    {'a': array([5, 6], dtype=uint8)}
    """
    reader = _UbjsonReader(content, hook)
    value = reader.read_value(reader.take(1), 0)
    if reader.position != len(content):
        raise reader.make_error("bytes after its end")
    return value


_TYPE_CODES = {b"i": "b", b"U": "B", b"I": "h", b"l": "i", b"L": "q", b"d": "f", b"D": "d"}
"""Maps the marker of each number type to the type code of `struct` and numpy."""
_SCALARS = {marker: struct.Struct(f">{code}") for marker, code in _TYPE_CODES.items()}
_ARRAYS = {marker: np.dtype(f">{code}") for marker, code in _TYPE_CODES.items()}
_LENGTH_MARKERS = frozenset((b"i", b"U", b"I", b"l", b"L"))
_LITERALS = {b"Z": None, b"T": True, b"F": False}


class _UbjsonReader:
    """Reads a UBJSON document; `position` is the offset of the next unread byte."""

    def __init__(self, content: bytes | bytearray, hook: Hook | None) -> None:
        self.content = content
        self.hook = hook
        self.position = 0

    def make_error(self, reason: str) -> ArtifactError:
        return ArtifactError(f"the UBJSON document is damaged at byte {self.position}: {reason}")

    def take(self, size: int) -> bytes:
        end = self.position + size
        if size < 0 or end > len(self.content):
            raise self.make_error(
                f"{size} bytes expected, {len(self.content) - self.position} left"
            )
        chunk = bytes(self.content[self.position : end])
        self.position = end
        return chunk

    def peek(self) -> bytes:
        return bytes(self.content[self.position : self.position + 1])

    def read_length(self) -> int:
        marker = self.take(1)
        if marker not in _LENGTH_MARKERS:
            raise self.make_error(f"a length cannot be {marker!r}")
        size = self.read_scalar(marker)
        if not isinstance(size, int) or not 0 <= size <= len(self.content) - self.position:
            raise self.make_error(f"length {size} reaches beyond the end")
        return size

    def read_scalar(self, marker: bytes) -> int | float:
        scalar = _SCALARS[marker]
        value: int | float = scalar.unpack(self.take(scalar.size))[0]
        return value

    def read_string(self) -> str:
        try:
            return self.take(self.read_length()).decode()
        except UnicodeDecodeError:
            raise self.make_error("a string is not UTF-8") from None

    def read_value(self, marker: bytes, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise self.make_error(f"nested deeper than {MAX_DEPTH}")
        if marker in _SCALARS:
            return self.read_scalar(marker)
        if marker in _LITERALS:
            return _LITERALS[marker]
        if marker == b"S":
            return self.read_string()
        if marker == b"C":
            return self.take(1).decode("latin-1")
        if marker == b"[":
            return self.read_array(depth)
        if marker == b"{":
            members = self.read_object(depth)
            return members if self.hook is None else self.hook(members)
        raise self.make_error(f"unknown marker {marker!r}")

    def read_array(self, depth: int) -> list[Any] | Array:
        if self.peek() == b"$":
            self.take(1)
            return self.read_typed_array(self.take(1))
        if self.peek() == b"#":
            self.take(1)
            return [self.read_value(self.take(1), depth + 1) for _ in range(self.read_length())]
        elements = []
        while (marker := self.take(1)) != b"]":
            elements.append(self.read_value(marker, depth + 1))
        return elements

    def read_typed_array(self, marker: bytes) -> Array:
        dtype = _ARRAYS.get(marker)
        if dtype is None or self.take(1) != b"#":
            raise self.make_error(f"XGBoost does not write arrays of {marker!r}")
        chunk = self.take(self.read_length() * dtype.itemsize)
        return np.frombuffer(chunk, dtype).astype(dtype.newbyteorder("="))

    def read_object(self, depth: int) -> dict[str, Any]:
        if self.peek() == b"$":
            raise self.make_error("XGBoost does not write objects of one type")
        members: dict[str, Any] = {}
        if self.peek() == b"#":
            self.take(1)
            for _ in range(self.read_length()):
                key = self.read_string()
                members[key] = self.read_value(self.take(1), depth + 1)
            return members
        while self.peek() != b"}":
            key = self.read_string()
            members[key] = self.read_value(self.take(1), depth + 1)
        self.take(1)
        return members
