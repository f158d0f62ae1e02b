"""Fast paths of a Scorer: a matrix scored without copying it, and a few texts scored at once.

Most of the time of scoring a row is spent around the kernel. `MatrixScorer` lets a kernel write one
output into the result; threads score a large batch in parts, each into its own slice of the result.
`FewTextsScorer` does without a table of the columns and arrays of each, which would take ten times
as long as the kernel needs for a row.
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

LARGEST = 16_384
"""Maximum number of rows of a part."""

GRAIN = 512
"""Number of rows that kernels score at a time; parts are multiples of it."""

SHORTEST = 200_000.0
"""Nanoseconds that a batch must take for threads to be worth waking."""

FEW = 16
"""Maximum number of rows for `FewTextsScorer`; the texts of more rows take longer than a table."""


def split_rows(rows: int, threads: int, row_ns: float) -> list[slice]:
    """Split a batch of rows into equal parts for threads.

    Args:
        row_ns: nanoseconds that a row takes, estimated.

    >>> split_rows(10_000, 2, row_ns=500.0)
    [slice(0, 5120, None), slice(5120, 10000, None)]
    >>> split_rows(10_000, 2, row_ns=1.0)
    [slice(0, 10000, None)]
    """
    is_long = threads > 1 and rows * row_ns >= SHORTEST
    rounds = -(-rows // (LARGEST * (threads if is_long else 1)))
    count = max(1, rounds * (threads if is_long else 1))
    size = max(GRAIN, -(-rows // (count * GRAIN)) * GRAIN)
    return [slice(a, min(a + size, rows)) for a in range(0, max(rows, 1), size)]


def can_decode(filler: Filler, labels: Sequence[Array]) -> bool:
    """Return whether all class numbers that `filler` writes are indices of one target's labels."""
    if not labels:
        return True
    return len(labels) == 1 and filler.below is not None and filler.below <= len(labels[0])


class MatrixScorer:
    """Scores matrices (n, `width`) of dtype `filler.input` without copying them. Thread-safe.

    Args:
        threads: number of threads; None: all cores.
        row_ns: nanoseconds that a row takes, estimated.
        labels: the classes of one target, (K,), if class numbers shall become labels.
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
        self.width: int = width
        self._fill = filler.fill
        self._dtype = filler.dtype
        self._results = filler.width
        self._threads = threads or os.cpu_count() or 1
        self._row_ns = row_ns
        self._labels = labels[0] if labels else None

    def score(self, x: Array) -> Array | None:
        """Score a matrix.

        Returns:
            (n, k), or labels (n,); None if the model rejects a row, which `Scorer._run` reports.

        Raises:
            NotReady: a kernel is still being compiled.
        """
        rows, labels = x.shape[0], self._labels
        parts = split_rows(rows, self._threads, self._row_ns) if rows > GRAIN else ()
        if len(parts) < 2:
            result = np.empty((rows, self._results), self._dtype)
            with no_wait():
                if self._fill(x, result) >= 0:
                    return None
            return result if labels is None else labels.take(result.ravel(), mode="clip")
        if labels is None:
            out = np.empty((rows, self._results), self._dtype)
        else:
            out = np.empty(rows, labels.dtype)

        def score_part(rows: slice) -> int:
            """Score some rows; return the first rejected one, or -1."""
            block, out_block = x[rows], out[rows]
            if labels is None:
                with no_wait():
                    return self._fill(block, out_block)
            numbers = np.empty((len(block), 1), self._dtype)
            with no_wait():
                rejected = self._fill(block, numbers)
            if rejected < 0:
                labels.take(numbers[:, 0], out=out_block, mode="clip")
            return rejected

        run = map if self._threads == 1 else thread_pool(self._threads).map
        return out if max(run(score_part, parts)) < 0 else None


@lru_cache(maxsize=8)
def thread_pool(threads: int) -> ThreadPoolExecutor:
    """Return threads that wait for work from one batch to the next."""
    return ThreadPoolExecutor(threads, thread_name_prefix="sqlml")


if hasattr(os, "register_at_fork"):  # a forked child has none of its parent's threads
    os.register_at_fork(after_in_child=thread_pool.cache_clear)


class FewTextsScorer:
    """Scores a few rows of a model that only reads columns of texts. Thread-safe.

    Args:
        filler: the result of `Compiled.text_filler`.
        follower: its calls for a few rows.
        columns: indices of its texts among the `features`.
    """

    __slots__ = ("_columns", "_dtype", "_features", "_names", "_run", "_width", "_x")

    def __init__(
        self, filler: Any, follower: Any, features: Sequence[Feature], columns: Sequence[int]
    ) -> None:
        self._run = follower.run
        self._width: int = filler.width
        self._dtype: np.dtype[Any] = filler.dtype
        self._features, self._columns = features, columns
        self._names = [features[column].name for column in columns]
        self._x = np.empty((FEW, filler.columns), filler.input)

    def score(self, x: Any) -> Array | None:
        """Return (n, k); None for rows that are not a few texts, or that Python has to score."""
        columns = self._read_texts(x)
        if columns is None:
            return None
        rows = len(columns[0])
        if not 0 < rows <= FEW:
            return None
        try:
            encoded = [str.encode(text) for column in columns for text in column]
        except (TypeError, UnicodeEncodeError):  # a value is no text, or not valid Unicode
            return None
        data = np.frombuffer(b"".join(encoded), np.uint8)
        address = data.__array_interface__["data"][0]
        ends = np.empty((2 * len(columns), rows), np.int64)
        k = 0
        for pair in range(0, len(ends), 2):
            for row in range(rows):
                ends[pair, row] = address
                address += len(encoded[k])
                ends[pair + 1, row] = address
                k += 1
        out = np.empty((rows, self._width), self._dtype)
        return out if self._run(self._x[:rows], ends, out, 0, rows, FEW) == rows else None

    def _read_texts(self, x: Any) -> list[list[Any]] | None:
        """Return the texts by column; None for types that this fast path does not read."""
        kind = type(x)
        if kind is np.ndarray:
            if x.ndim == 2 and x.dtype == object and x.shape[1] == len(self._features):
                return [x[:, k].tolist() for k in self._columns] if len(x) <= FEW else None
        elif kind is list:
            if len(self._features) == 1 and x and type(x[0]) is str:
                return [x]
        elif _is_pandas_row(kind, x):
            labels = x.columns
            try:
                if labels.is_unique:
                    return [[x.iat[0, labels.get_loc(name)]] for name in self._names]
            except (KeyError, TypeError):  # spelled differently, or labels that are no names
                pass
        return None


def _is_pandas_row(kind: type[Any], x: Any) -> bool:
    is_frame = kind.__name__ == "DataFrame" and kind.__module__.partition(".")[0] == "pandas"
    return is_frame and len(x) == 1
