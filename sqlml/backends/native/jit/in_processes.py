"""`in_processes`: work of Python's that one lock would keep to one core, such as compiling."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

_T = TypeVar("_T")
_R = TypeVar("_R")


def in_processes(work: Callable[[_T], _R], items: Sequence[_T]) -> list[_R]:
    """What `work` makes of each item, in processes that have the environment of this one."""
    if not items:
        return []
    processes = min(len(items), os.cpu_count() or 1)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context) as pool:
        return list(pool.map(work, items))
