"""`Buffer`: an array that grows by batches, without a second copy of what it holds."""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.types import Array


class Buffer:
    """Rows of a fixed width, (n, width) or (n,), that are appended to.

    The memory is reallocated, which the system does by moving pages: at no time are there two
    copies.
    """

    def __init__(self, dtype: Any, width: int | None = None) -> None:
        self._rows = 0
        self._tail = () if width is None else (width,)
        self._held = np.empty((0, *self._tail), dtype)

    def __len__(self) -> int:
        return self._rows

    def grow(self, rows: int) -> Array:
        """The place of so many more rows, to be written."""
        end = self._rows + rows
        if end > len(self._held):
            room = max(end, int(len(self._held) * 1.1))
            self._held.resize((room, *self._tail), refcheck=False)
        made = self._held[self._rows : end]
        self._rows = end
        return made

    def append(self, rows: Array) -> None:
        """Add rows at the end."""
        self.grow(len(rows))[...] = rows

    def array(self) -> Array:
        """All rows; nothing is appended afterwards."""
        self._held.resize((self._rows, *self._tail), refcheck=False)
        return self._held

    def take_out(self, mask: Array) -> Array:
        """The rows of a mask, (n,) bool, as an array of their own; the others stay, in order."""
        held = self.array()
        gone = held[mask]
        end = 0
        for start in range(0, len(held), _BLOCK):
            kept = held[start : start + _BLOCK][~mask[start : start + _BLOCK]]
            held[end : end + len(kept)] = kept
            end += len(kept)
        self._rows = end
        del held
        return gone


_BLOCK = 1 << 16
"""Rows that are moved at a time."""
