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
    """Seconds of one call, at best or in the median, and over how many rounds."""

    seconds: float
    rounds: int


def best_times(ways: Sequence[Way], rounds: int) -> list[float]:
    """The shortest time in seconds of each way, over `rounds` rounds of all of them."""
    return [min(times, default=math.inf) for times in round_times(ways, rounds)]


def round_times(ways: Sequence[Way], rounds: int) -> list[list[float]]:
    """Return the time in seconds of each way in each of `rounds` rounds of all of them."""
    times: list[list[float]] = [[] for _ in ways]
    for _ in range(rounds):
        for way, own_times in zip(ways, times, strict=True):
            own_times.append(seconds(way))
    return times


def best_calls(
    ways: Sequence[Way],
    rounds: int,
    *,
    least: float = 0.02,
    patience: float = 30.0,
    of: Callable[[Sequence[float]], float] = min,
) -> list[Timing]:
    """`best_times` of calls that may be very short or very long.

    `of` summarises the times of all rounds: `min`, or for example `statistics.median`.

    A way that takes less than `least` seconds is called several times in each round, and their
    mean counts; one that takes more than `patience` seconds, also when it is called again, is
    called no more.
    """
    first = [_first(way, patience) for way in ways]
    timings = [Timing(time, 1) for time in first]
    quick = [i for i, time in enumerate(first) if time <= patience]
    repeats = [_repeats(ways[i], first[i], least) for i in quick]
    turns = [partial(_repeat, ways[i], count) for i, count in zip(quick, repeats, strict=True)]
    for i, count, times in zip(quick, repeats, round_times(turns, rounds), strict=True):
        timings[i] = Timing(of(times) / count, rounds)
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
