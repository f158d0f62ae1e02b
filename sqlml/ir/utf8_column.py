"""`TextColumn`: a column of texts as UTF-8 bytes, as in Arrow, and packed words in that layout.

A Python string may contain a lone surrogate, which is not valid UTF-8. It is stored as three bytes
(Python's "surrogatepass"), so no string of Python is lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from sqlml.types import Array

CODEC = "surrogatepass"


@dataclass(slots=True, eq=False)
class TextColumn:
    """A column of n texts: `data[start[i]:stop[i]]` (uint8) as UTF-8, unless `missing[i]`."""

    data: Array
    start: Array
    stop: Array
    missing: Array

    @classmethod
    def from_values(cls, values: Any) -> TextColumn:
        """Convert an Arrow or numpy array; objects other than str are missing."""
        if isinstance(values, TextColumn):
            return values
        if isinstance(values, pa.Array | pa.ChunkedArray):
            return cls._from_arrow(values)
        flat = np.asarray(values, object).ravel()
        encoded = [v.encode("utf-8", CODEC) if isinstance(v, str) else None for v in flat]
        size = np.array([0 if e is None else len(e) for e in encoded], np.int64)
        stop = np.cumsum(size)
        data = np.frombuffer(b"".join(e for e in encoded if e), np.uint8)
        missing = np.array([e is None for e in encoded], bool)
        return cls(data, stop - size, stop, missing)

    @classmethod
    def _from_arrow(cls, values: Any) -> TextColumn:
        if values.type not in _OFFSET_TYPES:
            text = pa.types.is_string_view(values.type) or pa.types.is_dictionary(values.type)
            values = values.cast(pa.large_string() if text else pa.large_binary())
        if isinstance(values, pa.ChunkedArray):
            if values.num_chunks == 1:
                values = values.chunk(0)
            else:
                wide = values.cast(pa.large_binary())
                values = pa.concat_arrays(wide.chunks) if wide.num_chunks else wide.combine_chunks()
        _, offsets, data = values.buffers()
        count = len(values)
        if not count or offsets is None:
            return cls.from_values(np.empty(0, object))
        width = np.int64 if values.type in _OFFSET_TYPES[2:] else np.int32
        first = values.offset * np.dtype(width).itemsize
        edges = np.frombuffer(offsets, width, count + 1, first).astype(np.int64)
        missing = np.zeros(count, bool)
        if values.null_count:
            missing = values.is_null().to_numpy(zero_copy_only=False)
        has_data = data is not None and data.size
        content = np.frombuffer(data, np.uint8) if has_data else np.zeros(0, np.uint8)
        return cls(content, edges[:-1], edges[1:], missing)

    @property
    def shape(self) -> tuple[int, int]:
        return (self.start.size, 1)

    @property
    def ndim(self) -> int:
        return 2

    def __len__(self) -> int:
        return self.start.size

    def __getitem__(self, rows: slice | Array) -> TextColumn:
        return TextColumn(self.data, self.start[rows], self.stop[rows], self.missing[rows])

    def addresses(self) -> tuple[Array, Array]:
        """Return the addresses of the begin and the end of each text, int64 (n,)."""
        base_address = self.data.ctypes.data
        return self.start + base_address, self.stop + base_address

    def objects(self) -> Array:
        texts = [None if absent else self.text(i) for i, absent in enumerate(self.missing)]
        return np.array(texts, object).reshape(-1, 1)

    def text(self, i: int) -> str:
        """Return the i-th text, which must not be missing."""
        return self.data[self.start[i] : self.stop[i]].tobytes().decode("utf-8", CODEC)


_OFFSET_TYPES = (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())


def pack_words(words: Iterable[str]) -> tuple[Array, Array]:
    """Return words as one uint8 array of UTF-8, and the end of each, int64 (words,)."""
    encoded = [w.encode("utf-8", CODEC) for w in words]
    data = np.frombuffer(b"".join(encoded), np.uint8)
    return data, np.cumsum([len(e) for e in encoded], dtype=np.int64)


def unpack_words(data: Array, ends: Array) -> list[str]:
    content = data.tobytes()
    starts = [0, *ends.tolist()]
    return [content[a:b].decode("utf-8", CODEC) for a, b in zip(starts, starts[1:], strict=False)]


def select_words(data: Array, ends: Array, indices: Array) -> tuple[Array, Array]:
    sizes = np.diff(ends, prepend=0)
    starts, size = (ends - sizes)[indices], sizes[indices]
    stop = np.cumsum(size)
    source = np.arange(size.sum()) + np.repeat(starts - (stop - size), size)
    return data[source], stop


def is_well_formed(data: Array, ends: Array) -> bool:
    """Return whether `unpack_words` can read words: the ends ascend, and each word is UTF-8."""
    if data.dtype != np.uint8 or data.ndim != 1 or ends.dtype != np.int64 or ends.ndim != 1:
        return False
    if not ends.size:
        return data.size == 0
    if ends[0] < 0 or (np.diff(ends) < 0).any() or ends[-1] != data.size:
        return False
    inner = ends[ends < data.size]
    if ((data[inner] & 0xC0) == 0x80).any() or (data.size and (data[0] & 0xC0) == 0x80):
        return False  # A word starts in the middle of a character.
    try:
        data.tobytes().decode("utf-8", CODEC)
    except UnicodeDecodeError:
        return False
    return True
