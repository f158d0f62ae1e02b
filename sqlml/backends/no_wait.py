"""`no_wait`: score without machine code that is still to be compiled, by a slower way.

A kernel takes seconds to compile, once on a machine (`native/jit/`). Nobody shall wait that long
for a first row: within `no_wait`, a kernel that is missing raises `NotReady` while another process
compiles it (`native/jit/compile_beside.py`), and who catches that answers by the reference
interpreter. Who measures has to wait (`waiting`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

WAIT = "SQLML_WAIT_FOR_KERNELS"
"""The environment variable with which everybody waits: as "1"."""


class NotReady(Exception):
    """A kernel is being compiled; ask again with the next rows."""


class no_wait:
    """A block whose thread catches `NotReady`."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = getattr(_THREAD, "no_wait", False)
        _THREAD.no_wait = True

    def __exit__(self, *_: object) -> None:
        _THREAD.no_wait = self._before


@contextmanager
def waiting() -> Iterator[None]:
    """A block in which all threads wait for kernels: what it measures is machine code."""
    global _waiting
    with _LOCK:
        _waiting += 1
    try:
        yield
    finally:
        with _LOCK:
            _waiting -= 1


def waits() -> bool:
    """Whether this thread waits for a kernel that is missing."""
    asked_to = _waiting > 0 or os.environ.get(WAIT, "0") not in ("", "0")
    return asked_to or not getattr(_THREAD, "no_wait", False)


_THREAD = threading.local()
_LOCK = threading.Lock()
_waiting = 0
