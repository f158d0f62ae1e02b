"""`no_wait`: score without waiting for kernels that are not compiled yet.

Compiling a kernel takes seconds, once on a machine. Within `no_wait`, a missing kernel raises
`NotReady` while another process compiles it, and the caller uses the reference interpreter.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

WAIT = "SQLML_WAIT_FOR_KERNELS"
"""An environment variable that makes all threads wait for kernels if set to "1"."""


class NotReady(Exception):
    """A kernel is being compiled; try again with the next rows."""


class no_wait:
    """A context in which missing kernels raise `NotReady` in this thread."""

    __slots__ = ("_previous",)

    def __enter__(self) -> None:
        self._previous = getattr(_THREAD, "no_wait", False)
        _THREAD.no_wait = True

    def __exit__(self, *_: object) -> None:
        _THREAD.no_wait = self._previous


@contextmanager
def wait_for_kernels() -> Iterator[None]:
    """Make all threads wait for kernels, so that no timing includes the reference interpreter."""
    global _waiting
    with _LOCK:
        _waiting += 1
    try:
        yield
    finally:
        with _LOCK:
            _waiting -= 1


def waits_for_kernels() -> bool:
    """Return True if this thread waits until missing kernels are compiled."""
    must_wait = _waiting > 0 or os.environ.get(WAIT, "0") not in ("", "0")
    return must_wait or not getattr(_THREAD, "no_wait", False)


_THREAD = threading.local()
_LOCK = threading.Lock()
_waiting = 0
