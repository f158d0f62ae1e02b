"""`HashTable`: what a CatBoost model counted in training, by the hash of categories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.errors import ArtifactError
from sqlml.importers.catboost.document_numbers import floats
from sqlml.types import Array

_EMPTY = (1 << 64) - 1
"""What stands in a slot of CatBoost's own table without a hash; it is never found."""


@dataclass(frozen=True, slots=True, eq=False)
class HashTable:
    """hashes: int64 (k,), bit patterns of 64 bits, ascending; numbers: float64 (k, m) of each."""

    hashes: Array
    numbers: Array

    @classmethod
    def read(cls, entries: Sequence[Any], stride: Any) -> HashTable:
        """A "hash_map" of the document: each hash as a text, then `stride` - 1 numbers.

        Raises:
            ArtifactError: it is none.
        """
        if type(stride) is not int or stride < 2 or not entries or len(entries) % stride:
            raise ArtifactError("a table of the CatBoost model does not fit its stride")
        texts = entries[::stride]
        if not all(type(text) is str and text.isascii() and text.isdecimal() for text in texts):
            raise ArtifactError("a hash in the CatBoost model is not a number")
        numbers = np.stack([floats(entries[i::stride]) for i in range(1, stride)], axis=1)
        hashes = np.array([int(text) for text in texts], np.uint64)
        kept = hashes != np.uint64(_EMPTY)
        bits = hashes[kept].view(np.int64)
        order = np.argsort(bits, kind="stable")
        if (np.diff(bits[order]) == 0).any():
            raise ArtifactError("a hash stands twice in a table of the CatBoost model")
        return cls(bits[order], numbers[kept][order])
