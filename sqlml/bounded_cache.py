"""Caches bounded by bytes, and caches of results for the lifetime of their arguments.

`RecentCache` keeps the values that were used last. `cache_by_program` and `cache_text_by_program`
cache the results of a function while its Program lives, and `cache_by_arrays` caches a result that
depends on arrays.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, Generic, TypeVar

from sqlml.limits import PREPARED_BYTES, RECENT_BYTES
from sqlml.types import Array

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
F = TypeVar("F", bound=Callable[..., Any])


class RecentCache(Generic[K, V]):
    """A thread-safe least-recently-used cache whose values have at most `max_bytes` in total.

    The most recently used value is kept even if it is larger than `max_bytes`.
    """

    def __init__(self, max_bytes: int = RECENT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        """Return the value for `key`; None if it was never cached or has been evicted."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: K, value: V, nbytes: int) -> None:
        """Cache a value of `nbytes` bytes, and evict older values that no longer fit."""
        with self._lock:
            previous = self._entries.pop(key, None)
            self._bytes += nbytes - (0 if previous is None else previous[1])
            self._entries[key] = value, nbytes
            while self._bytes > self._max_bytes and len(self._entries) > 1:
                _, (_, freed_bytes) = self._entries.popitem(last=False)
                self._bytes -= freed_bytes

    def take(self, is_wanted: Callable[[K], bool]) -> list[tuple[K, V, int]]:
        """Remove entries whose keys satisfy `is_wanted`; return their (key, value, nbytes)."""
        with self._lock:
            taken = [(k, *entry) for k, entry in self._entries.items() if is_wanted(k)]
            for key, _, nbytes in taken:
                del self._entries[key]
                self._bytes -= nbytes
        return taken

    def __len__(self) -> int:
        return len(self._entries)


_results_of_arrays: dict[tuple[str | int, ...], tuple[Any, list[weakref.ref[Array]]]] = {}


def cache_by_arrays(kind: str, arrays: Sequence[Array], make: Callable[[], V]) -> V:
    """Return `make()`, a result computed from `arrays`, and cache it while these are all alive.

    `kind` distinguishes different results that are computed from the same arrays. If any of the
    arrays is writeable, nothing is cached.
    """
    if any(array.flags.writeable for array in arrays):
        return make()
    key: tuple[str | int, ...] = (kind, *map(id, arrays))
    entry = _results_of_arrays.get(key)
    if entry is None:

        def forget(_: Any) -> None:
            _results_of_arrays.pop(key, None)

        entry = _results_of_arrays[key] = make(), [weakref.ref(a, forget) for a in arrays]
    result: V = entry[0]
    return result


def cache_by_program(function: F) -> F:
    """Cache the results of a function whose first argument is a Program, while the Program lives.

    Each Program has a cache bounded by `PREPARED_BYTES`, in which a result counts as the size of
    the Program plus a thousand bytes. The function receives a copy of the Program, so that a result
    that refers to its argument does not keep the Program, which is the key of the cache, alive.
    """
    return _cache_with_programs(function, replace)


def cache_text_by_program(function: F) -> F:
    """Cache like `cache_by_program`, for a function whose results do not refer to the Program.

    The function receives the Program itself, not a copy, so that intermediate results are cached.
    """
    return _cache_with_programs(function, lambda program: program)


def _cache_with_programs(function: F, copy_program: Callable[[Any], Any]) -> F:
    caches: weakref.WeakKeyDictionary[Any, RecentCache[Any, tuple[Any]]] = (
        weakref.WeakKeyDictionary()
    )

    @wraps(function)
    def cached(program: Any, *args: Any) -> Any:
        cache = caches.get(program)
        if cache is None:
            cache = caches.setdefault(program, RecentCache(PREPARED_BYTES))
        entry = cache.get(args)
        if entry is None:
            entry = (function(copy_program(program), *args),)
            cache.put(args, entry, program.nbytes + 1000)
        return entry[0]

    return cached  # type: ignore[return-value]
