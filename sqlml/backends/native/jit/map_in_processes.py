"""`map_in_processes`: use all cores for work that holds Python's lock, such as compiling."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

_T = TypeVar("_T")
_R = TypeVar("_R")


def map_in_processes(work: Callable[[_T], _R], items: Sequence[_T]) -> Iterator[_R]:
    """Yield the result of `work` for each item, from processes with this one's environment."""
    if not items:
        return
    processes = min(len(items), os.cpu_count() or 1)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context) as pool:
        yield from pool.map(work, items)
