"""Categories known only by their hash: CatBoost's files keep nothing else of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sqlml.ir.city_hash import city_hash64
from sqlml.ir.operators.op import Op, Types, array, need
from sqlml.ir.program import Attrs
from sqlml.ir.utf8_column import Texts
from sqlml.types import Array, TensorType

HASHED: frozenset[str] = frozenset({"encode_hashed", "hash_categories"})
"""Operators that hash texts, which SQL cannot do for them."""

MOST_WHOLE = 1 << 53
"""Up to here float64 holds every integer, so that its text is known."""


def _encode_hashed_type(types: Types, attrs: Attrs) -> TensorType:
    hashes, missing = array(attrs, "hashes"), attrs["missing"]
    need(types[0].dtype == "string", "encode_hashed takes strings")
    need(len(types[0].shape) == 2 and types[0].width == 1, "encode_hashed takes one column")
    need(hashes.dtype == np.int64 and hashes.ndim == 1, "hashes must be int64, one axis")
    need(
        hashes.size == 0 or (hashes.min() >= 0 and hashes.max() < 1 << 32),
        "a hash has 32 bits",
    )
    need(-1 <= missing <= hashes.size, "missing must be a code or -1")
    return TensorType("int64", types[0].shape)


def _hash_categories_type(types: Types, attrs: Attrs) -> TensorType:
    need(types[0].dtype in ("string", "float64"), "hash_categories takes strings or float64")
    need(len(types[0].shape) == 2 and types[0].width == 1, "hash_categories takes one column")
    need(types[0].rowwise, "hash_categories takes rows")
    return TensorType("float64", types[0].shape)


def _encode_hashed(args: Sequence[Any], attrs: Attrs) -> Array:
    code_of = {h: code for code, h in enumerate(attrs["hashes"].tolist())}
    hashes = _hashes_of_texts(args[0])
    gone = np.isnan(hashes)
    low = np.where(gone, 0, hashes).astype(np.int64) & _LOW
    known = np.array([code_of.get(h, -1) for h in low.tolist()], np.int64)
    return np.where(gone, attrs["missing"], known).reshape(-1, 1)


def _hash_categories(args: Sequence[Any], attrs: Attrs) -> Array:
    """The signed 32-bit hash of each category as float64, and NaN for one that is missing.

    The category of a whole number is its decimal text; other numbers count as missing.
    """
    x = args[0]
    texts = isinstance(x, Texts) or x.dtype == object
    return (_hashes_of_texts(x) if texts else _hashes_of_numbers(x[:, 0])).reshape(-1, 1)


def _hashes_of_texts(given: Any) -> Array:
    """float64 (n,): NaN for a text that is missing."""
    texts = Texts.of(given)
    content, seen = texts.data.tobytes(), dict[bytes, float]()
    made = np.full(len(texts), np.nan)
    for row in np.flatnonzero(~texts.missing).tolist():
        category = content[texts.start[row] : texts.stop[row]]
        found = seen.get(category)
        if found is None:
            found = seen[category] = _signed(category)
        made[row] = found
    return made


def _hashes_of_numbers(x: Array) -> Array:
    """float64 (n,): NaN for what is not a whole number."""
    whole = (np.abs(x) <= MOST_WHOLE) & (np.trunc(x) == x)
    distinct, place = np.unique(x[whole].astype(np.int64), return_inverse=True)
    made = np.full(x.shape, np.nan)
    made[whole] = np.array([_signed(str(n).encode()) for n in distinct.tolist()])[place]
    return made


_LOW = 0xFFFFFFFF


def _signed(category: bytes) -> float:
    """The lower 32 bits of a hash, as a signed number."""
    low = city_hash64(category) & _LOW
    return float(low - (1 << 32) if low >> 31 else low)


OPERATORS: tuple[Op, ...] = (
    Op(
        "encode_hashed",
        "model",
        "injective",
        _encode_hashed_type,
        _encode_hashed,
        {"hashes": "array", "missing": "int"},
    ),
    Op("hash_categories", "model", "injective", _hash_categories_type, _hash_categories),
)
