"""`Direct`: a matrix scored without a copy of it, one output, by a kernel that writes the result.

Most of the time of scoring a row goes to what surrounds the kernel; a large batch is cut into one
task after another, each of which fills its own part of the one result.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import numpy as np

from sqlml.backends.base import Filler
from sqlml.backends.no_wait import no_wait
from sqlml.types import Array, Feature

# `tasks`: a batch of rows cut into parts for threads.


LARGEST = 16_384
"""Rows of a part at most."""

GRAIN = 512
"""Kernels score so many rows at a time, so parts are multiples of it."""

SHORTEST = 200_000.0
"""Nanoseconds that a batch must take for threads to be worth waking."""


def tasks(rows: int, threads: int, row_ns: float) -> list[slice]:
    """Parts of `rows` rows, one of which takes about `row_ns` nanoseconds; equal to each thread.

    >>> tasks(10_000, 2, row_ns=500.0)
    [slice(0, 5120, None), slice(5120, 10000, None)]
    >>> tasks(10_000, 2, row_ns=1.0)
    [slice(0, 10000, None)]
    """
    long = threads > 1 and rows * row_ns >= SHORTEST
    rounds = -(-rows // (LARGEST * (threads if long else 1)))
    count = max(1, rounds * (threads if long else 1))
    size = max(GRAIN, -(-rows // (count * GRAIN)) * GRAIN)
    return [slice(a, min(a + size, rows)) for a in range(0, max(rows, 1), size)]


def decodes(filler: Filler, labels: Sequence[Array]) -> bool:
    """Whether the class numbers that `filler` makes are all those of labels of one target."""
    if not labels:
        return True
    return len(labels) == 1 and filler.below is not None and filler.below <= len(labels[0])


class Direct:
    """Scores matrices (n, `width`) of `filler.input`. Thread-safe.

    Args:
        threads: how many (default: all cores).
        row_ns: nanoseconds that a row takes, about.
        labels: the classes of one target, where class numbers shall become labels: (n,).
    """

    __slots__ = ("_dtype", "_fill", "_labels", "_results", "_row_ns", "_threads", "width")

    def __init__(
        self,
        filler: Filler,
        width: int,
        threads: int | None,
        row_ns: float,
        labels: Sequence[Array],
    ) -> None:
        self.width = width
        self._fill = filler.fill
        self._dtype = filler.dtype
        self._results = filler.width
        self._threads = threads or os.cpu_count() or 1
        self._row_ns = row_ns
        self._labels = labels[0] if labels else None

    def score(self, x: Array) -> Array | None:
        """(n, k) or labels (n,); None if the model refuses a row and must report it.

        Raises:
            NotReady: a kernel is still being compiled.
        """
        rows, labels = x.shape[0], self._labels
        parts = tasks(rows, self._threads, self._row_ns) if rows > GRAIN else ()
        if len(parts) < 2:
            made = np.empty((rows, self._results), self._dtype)
            with no_wait():
                if self._fill(x, made) >= 0:
                    return None
            return made if labels is None else labels.take(made.ravel(), mode="clip")
        if labels is None:
            out = np.empty((rows, self._results), self._dtype)
        else:
            out = np.empty(rows, labels.dtype)

        def part(rows: slice) -> int:
            block, to = x[rows], out[rows]
            if labels is None:
                with no_wait():
                    return self._fill(block, to)
            numbers = np.empty((len(block), 1), self._dtype)
            with no_wait():
                failed = self._fill(block, numbers)
            if failed < 0:
                labels.take(numbers[:, 0], out=to, mode="clip")
            return failed

        run = map if self._threads == 1 else pool(self._threads).map
        return out if max(run(part, parts)) < 0 else None


@lru_cache(maxsize=8)
def pool(threads: int) -> ThreadPoolExecutor:
    """Threads that wait for work from one batch to the next."""
    return ThreadPoolExecutor(threads, thread_name_prefix="sqlml")


if hasattr(os, "register_at_fork"):  # a forked child has none of its parent's threads
    os.register_at_fork(after_in_child=pool.cache_clear)


# `DirectTexts`: a few rows of texts scored by one call of machine code.
#
# What else stands between a text and its score, a table of the columns and arrays of each, takes
# ten times as long as a kernel does for a row.


FEW = 16
"""More rows are read as a table: their texts take longer than what stands around them."""


class DirectTexts:
    """Scores a model that reads columns of texts alone. Thread-safe.

    Args:
        filler: what `Compiled.text_filler` gives.
        follower: its calls for a few rows.
        places: where its texts stand among the `features`.
    """

    __slots__ = ("_dtype", "_features", "_names", "_places", "_run", "_width", "_x")

    def __init__(
        self, filler: Any, follower: Any, features: Sequence[Feature], places: Sequence[int]
    ) -> None:
        self._run = follower.run
        self._width, self._dtype = filler.width, filler.dtype
        self._features, self._places = features, places
        self._names = [features[place].name for place in places]
        self._x = np.empty((FEW, filler.columns), filler.input)

    def score(self, x: Any) -> Array | None:
        """(n, k); None for anything but a few rows of texts, or where Python has to score them."""
        columns = self._columns(x)
        if columns is None:
            return None
        rows = len(columns[0])
        if not 0 < rows <= FEW:
            return None
        try:
            encoded = [str.encode(text) for column in columns for text in column]
        except (TypeError, UnicodeEncodeError):  # what is no text, or no Unicode
            return None
        data = np.frombuffer(b"".join(encoded), np.uint8)
        at = data.__array_interface__["data"][0]
        ends = np.empty((2 * len(columns), rows), np.int64)
        k = 0
        for pair in range(0, len(ends), 2):
            for row in range(rows):
                ends[pair, row] = at
                at += len(encoded[k])
                ends[pair + 1, row] = at
                k += 1
        out = np.empty((rows, self._width), self._dtype)
        return out if self._run(self._x[:rows], ends, out, 0, rows, FEW) == rows else None

    def _columns(self, x: Any) -> list[list[Any]] | None:
        """The texts by column; None where another way reads them."""
        kind = type(x)
        if kind is np.ndarray:
            if x.ndim == 2 and x.dtype == object and x.shape[1] == len(self._features):
                return [x[:, place].tolist() for place in self._places] if len(x) <= FEW else None
        elif kind is list:
            if len(self._features) == 1 and x and type(x[0]) is str:
                return [x]
        elif _is_pandas_row(kind, x):
            labels = x.columns
            try:
                if labels.is_unique:
                    return [[x.iat[0, labels.get_loc(name)]] for name in self._names]
            except (KeyError, TypeError):  # another spelling, or labels that are no names
                pass
        return None


def _is_pandas_row(kind: type[Any], x: Any) -> bool:
    named = kind.__name__ == "DataFrame" and kind.__module__.partition(".")[0] == "pandas"
    return named and len(x) == 1
