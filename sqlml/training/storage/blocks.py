"""`Blocks`: rows that are read some at a time, since not all of them fit into memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

BLOCK_BYTES = 32 << 20
"""Bytes of rows that are read at a time."""


def block_rows(row_bytes: int, most: int = BLOCK_BYTES) -> int:
    """How many rows of this size are read at a time: full vectors of the engine.

    >>> block_rows(4), block_rows(3_200), block_rows(1 << 20)
    (122880, 10240, 2048)

    Args:
        most: bytes that they may take together.
    """
    return min(max(most // max(row_bytes, 1) // 2048, 1), 60) * 2048


class Blocks(ABC):
    """(n, k) numbers that are read some rows at a time."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""

    @property
    @abstractmethod
    def block_rows(self) -> int:
        """Rows of a block."""

    @abstractmethod
    def rows(self, start: int, stop: int) -> Any:
        """The rows from one place to another, of their own."""

    def __len__(self) -> int:
        return self.shape[0]

    def blocks(self) -> Iterator[Any]:
        """All rows in blocks of their own."""
        for start in range(0, len(self), self.block_rows):
            yield self.rows(start, min(start + self.block_rows, len(self)))
