"""Progress lines, which tell a waiting person what is being done, and for how long."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TextIO

from sqlml.terminal import escape_controls

PATIENCE = 2.0
"""Seconds before the line appears."""

_INTERVAL = 0.25
"""Seconds between two updates of the line."""


def watched_stream() -> TextIO | None:
    """Return the output stream that a person is watching, or None if nobody is watching.

    In a terminal it is standard error. In a notebook, which displays standard error like a failure,
    it is standard output.
    """
    try:
        if sys.stderr.isatty():
            return sys.stderr
        return sys.stdout if _in_notebook() else None
    except (AttributeError, ValueError):  # The stream is missing or closed.
        return None


def is_watched() -> bool:
    return watched_stream() is not None


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


class _Line:
    """A progress line on the screen that is redrawn until the work is done.

    While `is_hidden` is set, a progress bar is shown instead of the line.
    """

    def __init__(self, description: str, stream: TextIO) -> None:
        self.description = description
        self.stage = ""
        self.is_hidden = False
        self._stream = stream
        self._begun = time.monotonic()
        self._width = 0
        self._lock = threading.Lock()

    def draw(self) -> None:
        seconds = time.monotonic() - self._begun
        stage = f": {self.stage}" if self.stage else ""
        with self._lock:
            if not self.is_hidden:
                self._write(escape_controls(f"sqlml: {self.description}{stage}, {seconds:.0f} s"))

    def hide(self) -> None:
        with self._lock:
            if not self.is_hidden:
                self._erase()
                self.is_hidden = True

    def clear(self) -> None:
        with self._lock:
            self._erase()

    def _erase(self) -> None:
        if self._width:
            self._write("\r")
            self._width = 0

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # The stream is closed, or nobody reads it any longer.
            self._stream.write(f"\r{' ' * self._width}")
            self._stream.write(f"\r{text}")
            self._stream.flush()
        self._width = len(text)


_LINE: ContextVar[_Line | None] = ContextVar("_LINE", default=None)


@contextmanager
def long_work(description: str) -> Iterator[None]:
    """Show `description`, such as "registering churn", once the block has run `PATIENCE` seconds.

    If nobody is watching, nothing is shown. Inside other long work, the outer line remains.
    """
    stream = watched_stream()
    if _LINE.get() is not None or stream is None:
        yield
        return
    line, is_done = _Line(description, stream), threading.Event()
    thread = threading.Thread(target=_watch, args=(line, is_done), daemon=True)
    token = _LINE.set(line)
    thread.start()
    try:
        yield
    finally:
        _LINE.reset(token)
        is_done.set()
        thread.join()
        line.clear()


def show_stage(name: str) -> None:
    """Show `name` as the current stage in the line of the surrounding `long_work`, if any."""
    line = _LINE.get()
    if line is not None:
        line.stage = name


def hide_line() -> None:
    """Hide the line of the surrounding `long_work`, so that a progress bar can be drawn there."""
    line = _LINE.get()
    if line is not None:
        line.hide()


def show_line() -> None:
    """Show the line of the surrounding `long_work` again, after a progress bar is removed."""
    line = _LINE.get()
    if line is not None:
        line.is_hidden = False


def _watch(line: _Line, is_done: threading.Event) -> None:
    seconds = PATIENCE
    while not is_done.wait(seconds):
        line.draw()
        seconds = _INTERVAL
