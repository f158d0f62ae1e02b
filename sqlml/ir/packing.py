"""Arrays in fewer bytes before they are compressed, and back. Lossless.

Each array is stored in the narrowest dtype that holds all its numbers (integers in fewer bytes,
float64 as float32 where every value is one, bit for bit), and shuffled where that makes it smaller:
first the lowest byte of all numbers, then the next one, as the bytes of one rank are alike
(F. Alted, "Why modern CPUs are starving", 2010, has the same in Blosc).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from sqlml.types import Array

STORED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "bool": (),
        "uint8": (),
        "int8": (),
        "float16": (),
        "float32": (),
        "int16": ("int8",),
        "int32": ("int8", "int16"),
        "uint32": ("uint8", "uint16"),
        "int64": ("int8", "int16", "int32"),
        "uint64": ("uint8", "uint16", "uint32"),
        "float64": ("float32",),
    }
)
"""dtypes that an array may have, and the narrower ones it may be stored in."""

SAMPLE = 1 << 16
"""Bytes of an array by which the gain of shuffling is judged."""


def pack(array: Array) -> tuple[bytes, str, bool]:
    """The stored bytes of `array`, the dtype they have, and whether they are shuffled."""
    narrow = _narrowed(np.ascontiguousarray(array))
    plain, size = narrow.reshape(-1), narrow.dtype.itemsize
    if size == 1 or plain.size < 16:
        return plain.tobytes(), narrow.dtype.name, False
    some = plain[: SAMPLE // size]
    pays = _compressed(_shuffled(some)) < _compressed(some.tobytes())
    return (_shuffled(plain) if pays else plain.tobytes()), narrow.dtype.name, pays


def unpack(
    stored: memoryview, dtype: str, shape: tuple[int, ...], held: str, shuffled: bool
) -> Array:
    """The array that `pack` stored at the beginning of `stored`.

    Raises:
        ValueError: the array is impossible, or `stored` is too short for it.
    """
    if dtype not in STORED or (held != dtype and held not in STORED[dtype]):
        raise ValueError(f"an array of {dtype} stored as {held}")
    kind = np.dtype(held)
    count = math.prod(shape)
    if count * kind.itemsize > len(stored):
        raise ValueError(f"an array of {dtype} {shape} reaches beyond the payload")
    content = stored[: count * kind.itemsize]
    if shuffled:
        ranks = np.frombuffer(content, np.uint8).reshape(kind.itemsize, count)
        flat = np.ascontiguousarray(ranks.T).reshape(-1).view(kind)
    else:
        flat = np.frombuffer(content, kind)
    array = flat.astype(dtype, copy=False).reshape(shape)
    array.setflags(write=False)
    return array


def _narrowed(array: Array) -> Array:
    """`array` in the narrowest dtype that says the same."""
    names = STORED[array.dtype.name]
    if not array.size or not names:
        return array
    if array.dtype.kind == "f":
        with np.errstate(all="ignore"):
            narrow = array.astype(np.float32)
        same = np.array_equal(narrow.astype(np.float64).view(np.uint64), array.view(np.uint64))
        return narrow if same else array
    low, high = int(array.min()), int(array.max())
    for name in names:
        if np.iinfo(name).min <= low and high <= np.iinfo(name).max:
            return array.astype(name)
    return array


def _shuffled(plain: Array) -> bytes:
    return plain.view(np.uint8).reshape(plain.size, plain.dtype.itemsize).T.tobytes()


def _compressed(content: bytes) -> int:
    made: Any = pa.compress(content, codec="zstd", asbytes=True)
    return len(made)
