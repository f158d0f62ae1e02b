"""`long_work` and `stage`: say what is being done, where a person waits for it."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

from sqlml.terminal import escape_controls
from sqlml.watched import is_watched

PATIENCE = 2.0
"""Seconds before anything is said."""

_LOOK = 0.25
"""Seconds from one line to the next."""


class _Line:
    """One line on standard error, written over until the work is done."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.stage = ""
        self._begun = time.monotonic()
        self._width = 0

    def draw(self) -> None:
        seconds = time.monotonic() - self._begun
        stage = f": {self.stage}" if self.stage else ""
        self._write(escape_controls(f"sqlml: {self.what}{stage}, {seconds:.0f} s"))

    def clear(self) -> None:
        if self._width:
            self._write("\r")

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # closed, or nobody reads it any more
            sys.stderr.write(f"\r{' ' * self._width}")
            sys.stderr.write(f"\r{text}")
            sys.stderr.flush()
        self._width = len(text)


_LINE: ContextVar[_Line | None] = ContextVar("_LINE", default=None)


@contextmanager
def long_work(what: str) -> Iterator[None]:
    """While the block runs, say what it does on standard error once that takes `PATIENCE`.

    Nothing is said where nobody sees it, or inside another long work, whose stages go on.

    Args:
        what: as in "registering churn".
    """
    if _LINE.get() is not None or not is_watched():
        yield
        return
    line, done = _Line(what), threading.Event()
    watching = threading.Thread(target=_watch, args=(line, done), daemon=True)
    token = _LINE.set(line)
    watching.start()
    try:
        yield
    finally:
        _LINE.reset(token)
        done.set()
        watching.join()
        line.clear()


def stage(name: str) -> None:
    """What the long work around this call does from here on; without one it means nothing."""
    line = _LINE.get()
    if line is not None:
        line.stage = name


def _watch(line: _Line, done: threading.Event) -> None:
    waits = PATIENCE
    while not done.wait(waits):
        line.draw()
        waits = _LOOK
