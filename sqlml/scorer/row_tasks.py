"""`tasks`: a batch of rows cut into parts for threads."""

from __future__ import annotations

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
