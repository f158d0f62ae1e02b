"""`stored_programs`: what the databases of this process have stored, found by content hash.

A function outlives the connection that made it, and must not keep its database open; and the same
hash means the same Program in whichever database.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator

import duckdb

Read = Callable[[str], bytes | None]
"""The content of a Program by the beginning of its hash; None if it is not stored."""

_sources: list[weakref.WeakMethod[Read]] = []
_lock = threading.Lock()


def add_source(read: Read) -> None:
    """Let functions find what a method reads, for as long as its object lives."""
    with _lock:
        _sources[:] = [s for s in _sources if s() is not None]
        _sources.append(weakref.WeakMethod(read))


def stored_programs(digest: str) -> Iterator[bytes]:
    """The contents of stored Programs whose hash begins with `digest`, the newest database's first.

    They are not checked.
    """
    with _lock:
        sources = [s() for s in reversed(_sources)]
    for read in sources:
        if read is None:
            continue
        try:
            found = read(digest)
        except duckdb.Error:  # its database was closed
            continue
        if found is not None:
            yield found
