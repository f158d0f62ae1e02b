"""`Direct`: a matrix scored without a copy of it, one output, by a kernel that writes the result.

Most of the time of scoring a row goes to what surrounds the kernel; a large batch is cut into one
task after another, each of which fills its own part of the one result.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import numpy as np

from sqlml.backends.base import Filler
from sqlml.backends.no_wait import no_wait
from sqlml.scorer.row_tasks import GRAIN, tasks
from sqlml.types import Array


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
