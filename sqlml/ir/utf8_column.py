"""`TextColumn`: a string column as UTF-8 bytes, as in Arrow, and packed words in the same layout.

A Python string may contain a lone surrogate, which is not valid UTF-8. A surrogate is stored as
three bytes (Python's "surrogatepass"), so that every Python string can be stored.
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
    """A column of n strings: `data[start[i]:stop[i]]` (uint8) in UTF-8, unless `missing[i]`."""

    data: Array
    start: Array
    stop: Array
    missing: Array

    @classmethod
    def from_values(cls, values: Any) -> TextColumn:
        """Convert an Arrow or numpy array; an entry that is not a string becomes missing."""
        if isinstance(values, TextColumn):
            return values
        if isinstance(values, pa.Array | pa.ChunkedArray):
            return cls._from_arrow(values)
        flat = np.asarray(values, object).ravel()
        encoded = [v.encode("utf-8", CODEC) if isinstance(v, str) else None for v in flat]
        sizes = np.array([0 if string is None else len(string) for string in encoded], np.int64)
        stop = np.cumsum(sizes)
        data = np.frombuffer(b"".join(string for string in encoded if string), np.uint8)
        missing = np.array([string is None for string in encoded], bool)
        return cls(data, stop - sizes, stop, missing)

    @classmethod
    def _from_arrow(cls, values: Any) -> TextColumn:
        if values.type not in _OFFSET_TYPES:
            is_string = pa.types.is_string_view(values.type) or pa.types.is_dictionary(values.type)
            values = values.cast(pa.large_string() if is_string else pa.large_binary())
        if isinstance(values, pa.ChunkedArray) and values.num_chunks == 1:
            values = values.chunk(0)
        elif isinstance(values, pa.ChunkedArray):
            chunks = values.cast(pa.large_binary()).chunks
            values = pa.concat_arrays(chunks) if chunks else pa.array([], pa.large_binary())
        _, offsets, data = values.buffers()
        count = len(values)
        if not count or offsets is None:
            return cls.from_values(np.empty(0, object))
        offset_dtype = np.int64 if values.type in _OFFSET_TYPES[2:] else np.int32
        first_byte = values.offset * np.dtype(offset_dtype).itemsize
        ends = np.frombuffer(offsets, offset_dtype, count + 1, first_byte).astype(np.int64)
        missing = np.zeros(count, bool)
        if values.null_count:
            missing = values.is_null().to_numpy(zero_copy_only=False)
        has_data = data is not None and data.size
        content = np.frombuffer(data, np.uint8) if has_data else np.zeros(0, np.uint8)
        return cls(content, ends[:-1], ends[1:], missing)

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
        """Return the memory addresses where each string starts and ends, int64 (n,) each."""
        base_address = self.data.ctypes.data
        return self.start + base_address, self.stop + base_address

    def objects(self) -> Array:
        strings = [None if missing else self.text(i) for i, missing in enumerate(self.missing)]
        return np.array(strings, object).reshape(-1, 1)

    def text(self, i: int) -> str:
        """Return the i-th string, which must not be missing."""
        return self.data[self.start[i] : self.stop[i]].tobytes().decode("utf-8", CODEC)


_OFFSET_TYPES = (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())


def pack_words(words: Iterable[str]) -> tuple[Array, Array]:
    """Return the UTF-8 bytes of all words, uint8, and the end offset of each word, int64."""
    encoded = [word.encode("utf-8", CODEC) for word in words]
    data = np.frombuffer(b"".join(encoded), np.uint8)
    return data, np.cumsum([len(e) for e in encoded], dtype=np.int64)


def unpack_words(data: Array, ends: Array) -> list[str]:
    content = data.tobytes()
    offsets = [0, *ends.tolist()]
    return [content[a:b].decode("utf-8", CODEC) for a, b in zip(offsets, offsets[1:], strict=False)]


def select_words(data: Array, ends: Array, indices: Array) -> tuple[Array, Array]:
    """Select words by index; arguments and result have the form of `pack_words`."""
    selected_sizes = np.diff(ends, prepend=0)[indices]
    selected_ends = np.cumsum(selected_sizes)
    shifts = ends[indices] - selected_ends
    return data[np.arange(selected_sizes.sum()) + np.repeat(shifts, selected_sizes)], selected_ends


def is_well_formed(data: Array, ends: Array) -> bool:
    """Return whether `unpack_words` can read the words."""
    if data.dtype != np.uint8 or data.ndim != 1 or ends.dtype != np.int64 or ends.ndim != 1:
        return False
    if not ends.size:
        return data.size == 0
    if ends[0] < 0 or (np.diff(ends) < 0).any() or ends[-1] != data.size:
        return False
    inner_ends = ends[ends < data.size]
    if ((data[inner_ends] & 0xC0) == 0x80).any() or (data.size and (data[0] & 0xC0) == 0x80):
        return False  # A word starts in the middle of a character.
    try:
        data.tobytes().decode("utf-8", CODEC)
    except UnicodeDecodeError:
        return False
    return True
