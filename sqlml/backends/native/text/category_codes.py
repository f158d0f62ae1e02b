"""`encode` and `fill` of texts as their bytes, without a Python object for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sqlml.backends.native.jit.specialise import specialise, writes
from sqlml.backends.native.text import token_kernels as kernels
from sqlml.backends.native.text.count_tokens import TABLE, TEXTS, table
from sqlml.ir.program import Attrs
from sqlml.ir.utf8_column import CODEC, Texts, pack
from sqlml.types import Array


def text_encoder(categories: Array, missing: int) -> Callable[[Texts], Array]:
    """A function that does what `reference.FUNCTIONS["encode"]` does, for Texts: codes (n, 1).

    The categories are looked up in a hash table of their bytes.
    """
    is_text = np.fromiter((isinstance(c, str) for c in categories), bool, categories.size)
    known = table(*pack(categories[is_text]))
    codes = np.append(np.flatnonzero(is_text), -1)  # the last for non-categories

    def encode(x: Texts) -> Array:
        found = np.empty(len(x), np.int64)
        _finder()((np.ascontiguousarray(x.data), x.start, x.stop), known, found)
        found = codes[found]
        found[x.missing] = missing
        return found.reshape(-1, 1)

    return encode


def text_filler(attrs: Attrs) -> Callable[[Texts], Texts]:
    """A function that does what `reference.FUNCTIONS["fill"]` does, for Texts."""
    value = np.frombuffer(attrs["value"].encode("utf-8", CODEC), np.uint8)
    gone = attrs.get("missing")

    def fill(x: Texts) -> Texts:
        filled = x.missing if gone is None else _equal(x, gone)
        start, end = x.data.size, x.data.size + value.size
        return Texts(
            np.concatenate([x.data, value]),
            np.where(filled, start, x.start),
            np.where(filled, end, x.stop),
            x.missing & ~filled,
        )

    return fill


def _equal(x: Texts, text: str) -> Array:
    """bool (n,): the texts that are `text`."""
    wanted = np.frombuffer(text.encode("utf-8", CODEC), np.uint8)
    same: Array = ~x.missing & (x.stop - x.start == wanted.size)
    rows = np.flatnonzero(same)
    if wanted.size:
        bytes_of = x.data[x.start[rows, None] + np.arange(wanted.size)]
        same[rows] = (bytes_of == wanted).all(axis=1)
    return same


def _finder() -> Any:
    return specialise(kernels.look_up, (TEXTS, TABLE, writes(np.int64, 1)))
