"""`Recent`: what was used lately, within a number of bytes; the rest is made again when needed."""

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


class Recent(Generic[K, V]):
    """Values by keys; those that were not used for longest go when all take too much. Thread-safe.

    Args:
        most_bytes: what all together may take; the one that was used last stays, however large.
    """

    def __init__(self, most_bytes: int = RECENT_BYTES) -> None:
        self._most = most_bytes
        self._kept: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        """The value of a key; None if it is not cached (any more)."""
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            return found[0]

    def put(self, key: K, value: V, nbytes: int) -> None:
        """Keep a value, which takes `nbytes`."""
        with self._lock:
            before = self._kept.pop(key, None)
            self._bytes += nbytes - (0 if before is None else before[1])
            self._kept[key] = value, nbytes
            while self._bytes > self._most and len(self._kept) > 1:
                _, (_, freed) = self._kept.popitem(last=False)
                self._bytes -= freed

    def take(self, is_wanted: Callable[[K], bool]) -> list[tuple[K, V, int]]:
        """Remove and return the entries with such a key, and their bytes."""
        with self._lock:
            found = [(k, *kept) for k, kept in self._kept.items() if is_wanted(k)]
            for key, _, nbytes in found:
                del self._kept[key]
                self._bytes -= nbytes
        return found

    def __len__(self) -> int:
        return len(self._kept)


def while_alive(what: str, arrays: Sequence[Array], make: Callable[[], V]) -> V:
    """What `make` makes of arrays, once for as long as all of them live.

    It is made each time where one of them may be written to.
    """
    if any(array.flags.writeable for array in arrays):
        return make()
    key: tuple[str | int, ...] = (what, *map(id, arrays))
    found = _of_arrays.get(key)
    if found is None:
        ends = [weakref.ref(array, lambda _: _of_arrays.pop(key, None)) for array in arrays]
        found = _of_arrays[key] = make(), ends
    made: V = found[0]
    return made


_of_arrays: dict[tuple[str | int, ...], tuple[Any, list[weakref.ref[Array]]]] = {}


def of_programs(function: F) -> F:
    """Keep what a function makes of its arguments, the first of which is a Program.

    It is kept for as long as that Program lives, of each Program the latest within a number of
    bytes: a result is taken to be as large as the Program, plus a thousand bytes.
    The function is given a twin of the Program, so that no result holds what it is kept for.
    """
    return _kept_with_programs(function, replace)


def words_of_programs(function: F) -> F:
    """`of_programs` for a function whose results are words or numbers, which hold no Program.

    It is given the Program itself, so that what it makes on the way is kept, too.
    """
    return _kept_with_programs(function, lambda program: program)


def _kept_with_programs(function: F, given: Callable[[Any], Any]) -> F:
    of: weakref.WeakKeyDictionary[Any, Recent[Any, tuple[Any]]] = weakref.WeakKeyDictionary()

    @wraps(function)
    def made(program: Any, *rest: Any) -> Any:
        kept = of.get(program)
        if kept is None:
            kept = of.setdefault(program, Recent(PREPARED_BYTES))
        found = kept.get(rest)
        if found is None:
            found = (function(given(program), *rest),)
            kept.put(rest, found, program.nbytes + 1000)
        return found[0]

    return made  # type: ignore[return-value]
