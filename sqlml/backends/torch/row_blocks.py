"""`in_turn`: blocks of rows one after the other, two under way, smaller ones when memory is short.

While block i is computed, block i + 1 is on its way to the device and the results of block i - 1
are on their way back; `load` and `start` must therefore return before their work is done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sqlml.backends.torch.failures import is_out_of_memory
from sqlml.errors import BackendError

Loaded = TypeVar("Loaded")
Store = Callable[[], None]
"""Waits for the results of a block and puts them in their place."""


def in_turn(
    rows: int,
    size: int,
    fewest: int,
    load: Callable[[int, int], Loaded],
    start: Callable[[Loaded, int, int], Store],
    release: Callable[[], None],
) -> None:
    """Score rows 0 .. `rows` in blocks of `size`, or less where that is too much.

    `load(a, b)` sends rows a .. b to the device, `start(loaded, a, b)` computes them. Either may
    raise torch's OutOfMemoryError: then the block is halved and restarted, after `release`.

    Raises:
        BackendError: not even `fewest` rows fit.
    """
    begin = 0
    ahead: Loaded | None = None
    behind: Store | None = None
    now: Loaded | None
    made: Store | None
    while begin < rows:
        end = min(begin + size, rows)
        try:
            now = load(begin, end) if ahead is None else ahead
            ahead = load(end, min(end + size, rows)) if end < rows else None
            made = start(now, begin, end)
            if behind is not None:
                behind()
            behind = made
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            if size <= fewest:
                raise BackendError(_too_small(fewest)) from error
            now = ahead = made = None  # their memory is what the smaller block needs
            size = max(fewest, size // 2)
        else:
            begin = end
            continue
        if behind is not None:
            behind()
            behind = None
        release()
    if behind is not None:
        behind()


def _too_small(fewest: int) -> str:
    return (
        f"the device has not enough memory for {fewest} rows of this model; free memory on it "
        "(other processes show in nvidia-smi), choose strategy='tt', or use device='cpu'"
    )
