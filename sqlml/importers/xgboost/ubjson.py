"""`loads`: a reader of UBJSON, the binary form of XGBoost's model documents.

The input is not trusted: nesting is bounded, and a length is compared with the bytes that are
left before memory is taken for it. Format: https://ubjson.org, draft 12.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sqlml.errors import ArtifactError
from sqlml.types import Array

MAX_DEPTH = 64

Hook = Callable[[dict[str, Any]], Any]

_SCALARS = {
    b"i": struct.Struct(">b"),
    b"U": struct.Struct(">B"),
    b"I": struct.Struct(">h"),
    b"l": struct.Struct(">i"),
    b"L": struct.Struct(">q"),
    b"d": struct.Struct(">f"),
    b"D": struct.Struct(">d"),
}
_LENGTHS = frozenset((b"i", b"U", b"I", b"l", b"L"))
_ARRAYS: Mapping[bytes, np.dtype[Any]] = {
    b"i": np.dtype(">i1"),
    b"U": np.dtype(">u1"),
    b"I": np.dtype(">i2"),
    b"l": np.dtype(">i4"),
    b"L": np.dtype(">i8"),
    b"d": np.dtype(">f4"),
    b"D": np.dtype(">f8"),
}
_LITERALS = {b"Z": None, b"T": True, b"F": False}


def loads(content: bytes | bytearray, hook: Hook | None = None) -> Any:
    """The value in `content`; typed arrays become numpy arrays of the machine's byte order.

    Each object goes through `hook` as soon as it is read, so that what it leaves out is not held.

    >>> loads(b"{U" + b"\\x01" + b"a" + b"[$U#U\\x02" + b"\\x05\\x06" + b"}")
    {'a': array([5, 6], dtype=uint8)}

    Raises:
        ArtifactError: `content` is cut off, too deeply nested or no UBJSON.
    """
    reader = _Reader(content, hook)
    value = reader.value(reader.take(1), 0)
    if reader.at != len(content):
        raise reader.error("bytes after its end")
    return value


class _Reader:
    """A place in the content; every method reads on from there."""

    def __init__(self, content: bytes | bytearray, hook: Hook | None) -> None:
        self.content = content
        self.hook = hook
        self.at = 0

    def error(self, what: str) -> ArtifactError:
        return ArtifactError(f"the UBJSON document is damaged at byte {self.at}: {what}")

    def take(self, size: int) -> bytes:
        end = self.at + size
        if size < 0 or end > len(self.content):
            raise self.error(f"{size} bytes wanted, {len(self.content) - self.at} are left")
        chunk = bytes(self.content[self.at : end])
        self.at = end
        return chunk

    def peek(self) -> bytes:
        return bytes(self.content[self.at : self.at + 1])

    def length(self) -> int:
        marker = self.take(1)
        if marker not in _LENGTHS:
            raise self.error(f"a length cannot be {marker!r}")
        size = self.scalar(marker)
        if not isinstance(size, int) or not 0 <= size <= len(self.content) - self.at:
            raise self.error(f"length {size} reaches beyond the end")
        return size

    def scalar(self, marker: bytes) -> int | float:
        form = _SCALARS[marker]
        value: int | float = form.unpack(self.take(form.size))[0]
        return value

    def text(self) -> str:
        try:
            return self.take(self.length()).decode()
        except UnicodeDecodeError:
            raise self.error("a string is not UTF-8") from None

    def value(self, marker: bytes, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise self.error(f"nested deeper than {MAX_DEPTH}")
        if marker in _SCALARS:
            return self.scalar(marker)
        if marker in _LITERALS:
            return _LITERALS[marker]
        if marker == b"S":
            return self.text()
        if marker == b"C":
            return self.take(1).decode("latin-1")
        if marker == b"[":
            return self.array(depth)
        if marker == b"{":
            items = self.object(depth)
            return items if self.hook is None else self.hook(items)
        raise self.error(f"unknown marker {marker!r}")

    def array(self, depth: int) -> list[Any] | Array:
        if self.peek() == b"$":
            self.take(1)
            return self.typed_array(self.take(1))
        if self.peek() == b"#":
            self.take(1)
            return [self.value(self.take(1), depth + 1) for _ in range(self.length())]
        items = []
        while (marker := self.take(1)) != b"]":
            items.append(self.value(marker, depth + 1))
        return items

    def typed_array(self, kind: bytes) -> Array:
        dtype = _ARRAYS.get(kind)
        if dtype is None or self.take(1) != b"#":
            raise self.error(f"an array of {kind!r} is not something that XGBoost writes")
        chunk = self.take(self.length() * dtype.itemsize)
        return np.frombuffer(chunk, dtype).astype(dtype.newbyteorder("="))

    def object(self, depth: int) -> dict[str, Any]:
        if self.peek() == b"$":
            raise self.error("an object of one type is not something that XGBoost writes")
        items: dict[str, Any] = {}
        if self.peek() == b"#":
            self.take(1)
            for _ in range(self.length()):
                key = self.text()
                items[key] = self.value(self.take(1), depth + 1)
            return items
        while self.peek() != b"}":
            key = self.text()
            items[key] = self.value(self.take(1), depth + 1)
        self.take(1)
        return items
