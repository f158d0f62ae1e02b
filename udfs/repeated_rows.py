"""`LastRows`: the batch that each thread scored last, for rows of it that come again.

An engine evaluates a call in WHERE before it evaluates the same call in SELECT, for the rows that
are left: some of those of the batch before, in their order. To find them by their bytes takes a
few nanoseconds per row, and the same bytes have the same score.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import numpy as np

from sqlml.types import Array

MOST_THREADS = 64
"""Threads whose last batches are kept."""


class LastRows:
    """Thread-safe; it keeps a batch a thread. `found` counts the rows that came again."""

    def __init__(self) -> None:
        self.found = 0
        self._last: OrderedDict[int, tuple[Array, Array]] = OrderedDict()
        self._lock = threading.Lock()

    def twin(self) -> LastRows:
        """Another with the same rows, and a count of its own."""
        made = LastRows()
        made._last, made._lock = self._last, self._lock
        return made

    def find(self, rows: Array) -> Array | None:
        """The results of `rows` (n, k), if all of them come again: (n, outputs)."""
        with self._lock:
            kept = self._last.get(threading.get_ident())
        if kept is None or kept[0].shape[1] != rows.shape[1] or not rows.size:
            return None
        words, place = _words(rows), np.empty(len(rows), np.int64)
        if not _finder(words.dtype)(kept[0], words, place):
            return None
        with self._lock:
            self.found += len(rows)
        return kept[1][place]

    def keep(self, rows: Array, results: Array) -> None:
        """Remember `rows` (n, k) and their results (n, outputs)."""
        with self._lock:
            self._last[threading.get_ident()] = (_words(rows).copy(), results)
            self._last.move_to_end(threading.get_ident())
            while len(self._last) > MOST_THREADS:
                self._last.popitem(last=False)

    def clear(self) -> None:
        """Forget all rows, and their count."""
        with self._lock:
            self._last.clear()
            self.found = 0


def _words(rows: Array) -> Array:
    """The bits of rows of floats, as integers: NaN equals itself, and 0.0 is not -0.0."""
    return np.ascontiguousarray(rows).view(np.uint32 if rows.itemsize == 4 else np.uint64)


def _finder(dtype: np.dtype[Any]) -> Any:
    from sqlml.backends.native.jit.specialise import (  # only where rows come again
        reads,
        specialise,
        writes,
    )

    return specialise(find, (reads(dtype, 2, "C"), reads(dtype, 2, "C"), writes(np.int64, 1)))


def find(known: Any, rows: Any, place: Any) -> Any:
    """Whether all of `rows` are among `known`, in the same order; `place` is where."""
    at, width = 0, rows.shape[1]
    for r in range(rows.shape[0]):
        while True:
            if at == known.shape[0]:
                return False
            k = 0
            while k < width and known[at, k] == rows[r, k]:
                k += 1
            if k == width:
                break
            at += 1
        place[r] = at
    return True
