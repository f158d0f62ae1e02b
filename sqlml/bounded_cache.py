"""Caches with a limit on bytes, and caches of results for the lifetime of the arguments.

`RecentCache` keeps recently used values. `cache_by_program` and `cache_text_by_program` cache the
results of a function for the lifetime of a Program. `cache_by_arrays` caches a result for the
lifetime of arrays.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, Generic, TypeVar

from sqlml.limits import PREPARED_BYTES, RECENT_BYTES
from sqlml.types import Array

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
F = TypeVar("F", bound=Callable[..., Any])


class RecentCache(Generic[K, V]):
    """A thread-safe least-recently-used cache of at most `max_bytes` bytes.

    The most recently used value is kept even if it is larger than `max_bytes`.
    """

    def __init__(self, max_bytes: int = RECENT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        """Return the value for `key`, or None if the value is not cached."""
        return self.get_all((key,))[key]

    def get_all(self, keys: Iterable[K]) -> dict[K, V | None]:
        """Return the values for `keys`, and None for values that are not cached."""
        with self._lock:
            values: dict[K, V | None] = {}
            for key in keys:
                entry = self._entries.get(key)
                values[key] = None if entry is None else entry[0]
                if entry is not None:
                    self._entries.move_to_end(key)
            return values

    def put(self, key: K, value: V, nbytes: int) -> None:
        """Cache a value of `nbytes` bytes, and evict older values that no longer fit."""
        with self._lock:
            previous_entry = self._entries.pop(key, None)
            self._bytes += nbytes - (0 if previous_entry is None else previous_entry[1])
            self._entries[key] = value, nbytes
            while self._bytes > self._max_bytes and len(self._entries) > 1:
                _, (_, freed_bytes) = self._entries.popitem(last=False)
                self._bytes -= freed_bytes

    def take(self, should_remove: Callable[[K], bool]) -> list[tuple[K, V, int]]:
        """Remove entries by key, and return the (key, value, nbytes) of each removed entry."""
        with self._lock:
            removed = [(k, *entry) for k, entry in self._entries.items() if should_remove(k)]
            for key, _, nbytes in removed:
                del self._entries[key]
                self._bytes -= nbytes
        return removed

    def __len__(self) -> int:
        return len(self._entries)


_results_of_arrays: dict[tuple[str | int, ...], tuple[Any, list[weakref.ref[Array]]]] = {}


def cache_by_arrays(kind: str, arrays: Sequence[Array], make: Callable[[], V]) -> V:
    """Return `make()`, a result computed from `arrays`, cached for the lifetime of the arrays.

    `kind` distinguishes results that are computed from the same arrays. If any array is writeable,
    the result is not cached.
    """
    if any(array.flags.writeable for array in arrays):
        return make()
    key: tuple[str | int, ...] = (kind, *map(id, arrays))
    entry = _results_of_arrays.get(key)
    if entry is None:

        def remove_entry(_: Any) -> None:
            _results_of_arrays.pop(key, None)

        entry = _results_of_arrays[key] = make(), [weakref.ref(a, remove_entry) for a in arrays]
    result: V = entry[0]
    return result


def cache_by_program(function: F) -> F:
    """Cache the results of a function of a Program for the lifetime of the Program.

    The first argument of `function` is the Program. Each Program has a cache of `PREPARED_BYTES`,
    in which the size of a result counts as the size of the Program plus a thousand bytes. The
    function receives a copy of the Program, because a result may refer to this copy, but must not
    keep the original Program alive.
    """
    return _cache_with_programs(function, replace)


def cache_text_by_program(function: F) -> F:
    """Cache like `cache_by_program`, for a function whose results do not refer to the Program.

    The function receives the original Program, so that intermediate results are cached.
    """
    return _cache_with_programs(function, lambda program: program)


def _cache_with_programs(function: F, copy_program: Callable[[Any], Any]) -> F:
    caches: weakref.WeakKeyDictionary[Any, RecentCache[Any, tuple[Any]]] = (
        weakref.WeakKeyDictionary()
    )

    @wraps(function)
    def call_cached(program: Any, *args: Any) -> Any:
        cache = caches.get(program)
        if cache is None:
            cache = caches.setdefault(program, RecentCache(PREPARED_BYTES))
        entry = cache.get(args)
        if entry is None:
            entry = (function(copy_program(program), *args),)
            cache.put(args, entry, program.nbytes + 1000)
        return entry[0]

    return call_cached  # type: ignore[return-value]
