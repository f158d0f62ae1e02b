"""`best_times`: contenders in turns, so that a busy moment of the machine hits them all."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any


def best_times(ways: Sequence[Callable[[], Any]], rounds: int) -> list[float]:
    """The shortest time in seconds of each way, over `rounds` rounds of all of them."""
    best = [float("inf")] * len(ways)
    for _ in range(rounds):
        for i, way in enumerate(ways):
            start = time.perf_counter()
            way()
            best[i] = min(best[i], time.perf_counter() - start)
    return best
