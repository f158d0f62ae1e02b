"""`best_times`: contenders in turns, so that a busy moment of the machine hits them all."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

Way = Callable[[], Any]

COMPILING = 10.0
"""So many times as long as there is patience for, a first call may take and be tried again."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one call at best, and over how many rounds."""

    seconds: float
    rounds: int


def best_times(ways: Sequence[Way], rounds: int) -> list[float]:
    """The shortest time in seconds of each way, over `rounds` rounds of all of them."""
    best = [float("inf")] * len(ways)
    for _ in range(rounds):
        for i, way in enumerate(ways):
            best[i] = min(best[i], seconds(way))
    return best


def best_calls(
    ways: Sequence[Way], rounds: int, *, least: float = 0.02, patience: float = 30.0
) -> list[Timing]:
    """`best_times` of calls that may be very short or very long.

    A way that takes less than `least` seconds is called several times in each round, and their
    mean counts; one that takes more than `patience` seconds, also when it is called again, is
    called no more.
    """
    first = [_first(way, patience) for way in ways]
    timings = [Timing(time, 1) for time in first]
    quick = [i for i, time in enumerate(first) if time <= patience]
    repeats = [_repeats(ways[i], first[i], least) for i in quick]
    turns = [partial(_repeat, ways[i], count) for i, count in zip(quick, repeats, strict=True)]
    for i, count, best in zip(quick, repeats, best_times(turns, rounds), strict=True):
        timings[i] = Timing(best / count, rounds)
    return timings


def _first(way: Way, patience: float) -> float:
    """How long a call takes; not what it took to compile, if that can be waited for."""
    time = seconds(way)
    return min(time, seconds(way)) if patience < time <= COMPILING * patience else time


def seconds(way: Way) -> float:
    """How long one call takes."""
    start = time.perf_counter()
    way()
    return time.perf_counter() - start


def _repeats(way: Way, first: float, least: float) -> int:
    """How many calls fill `least` seconds; the first call may have compiled, so ask again."""
    if first >= max(least, 1.0):
        return 1
    return max(1, math.ceil(least / max(seconds(way), 1e-7)))


def _repeat(way: Way, count: int) -> None:
    for _ in range(count):
        way()
