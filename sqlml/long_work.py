"""Say what is being done, and for how long, where a person waits for it."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TextIO

from sqlml.terminal import escape_controls

# Where a person sees what is drawn while work goes on: a terminal, or the output of a cell.


def watched_stream() -> TextIO | None:
    """Return the stream that a person watches; None if nobody does.

    It is standard error in a terminal, and standard output in a notebook, which shows standard
    error as if something had failed.
    """
    try:
        if sys.stderr.isatty():
            return sys.stderr
        return sys.stdout if _in_notebook() else None
    except (AttributeError, ValueError):  # there is none, or it is closed
        return None


def is_watched() -> bool:
    """Return whether a person sees what is drawn."""
    return watched_stream() is not None


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


PATIENCE = 2.0
"""Seconds before anything is said."""

_LOOK = 0.25
"""Seconds from one line to the next."""


class _Line:
    """A line on the screen that is written over until the work is done.

    `is_covered`: a progress bar stands in its place.
    """

    def __init__(self, what: str, stream: TextIO) -> None:
        self.what = what
        self.stage = ""
        self.is_covered = False
        self._stream = stream
        self._begun = time.monotonic()
        self._width = 0
        self._lock = threading.Lock()

    def draw(self) -> None:
        """Write what is being done, unless a progress bar says it."""
        seconds = time.monotonic() - self._begun
        stage = f": {self.stage}" if self.stage else ""
        with self._lock:
            if not self.is_covered:
                self._write(escape_controls(f"sqlml: {self.what}{stage}, {seconds:.0f} s"))

    def cover(self) -> None:
        """Leave the line to a progress bar."""
        with self._lock:
            if not self.is_covered:
                self._erase()
                self.is_covered = True

    def clear(self) -> None:
        """Remove the line."""
        with self._lock:
            self._erase()

    def _erase(self) -> None:
        if self._width:
            self._write("\r")
            self._width = 0

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # closed, or nobody reads it any more
            self._stream.write(f"\r{' ' * self._width}")
            self._stream.write(f"\r{text}")
            self._stream.flush()
        self._width = len(text)


_LINE: ContextVar[_Line | None] = ContextVar("_LINE", default=None)


@contextmanager
def long_work(what: str) -> Iterator[None]:
    """Say what the block does once that takes `PATIENCE`.

    Nothing is said where nobody sees it, or inside another long work, whose stages go on.

    Args:
        what: as in "registering churn".
    """
    stream = watched_stream()
    if _LINE.get() is not None or stream is None:
        yield
        return
    line, done = _Line(what, stream), threading.Event()
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
    """Say what the long work around this call does from here on; without one, do nothing."""
    line = _LINE.get()
    if line is not None:
        line.stage = name


def cover_line() -> None:
    """Leave the line of the long work around this call to a progress bar."""
    line = _LINE.get()
    if line is not None:
        line.cover()


def uncover_line() -> None:
    """Say again what is being done, once the progress bar is removed."""
    line = _LINE.get()
    if line is not None:
        line.is_covered = False


def _watch(line: _Line, done: threading.Event) -> None:
    waits = PATIENCE
    while not done.wait(waits):
        line.draw()
        waits = _LOOK
