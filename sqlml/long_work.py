"""Progress lines, which show a waiting person the current work and the elapsed time."""

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

    In a terminal, this is standard error. In a notebook, this is standard output, since a notebook
    displays standard error like a failure.
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
    """A progress line on the screen. While `is_hidden`, a progress bar replaces the line."""

    def __init__(self, description: str, stream: TextIO) -> None:
        self.description = description
        self.stage = ""
        self.is_hidden = False
        self._stream = stream
        self._start_time = time.monotonic()
        self._width = 0
        self._lock = threading.Lock()

    def draw(self) -> None:
        seconds = time.monotonic() - self._start_time
        suffix = f": {self.stage}" if self.stage else ""
        with self._lock:
            if not self.is_hidden:
                self._write(escape_controls(f"sqlml: {self.description}{suffix}, {seconds:.0f} s"))

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
        with suppress(OSError, ValueError):  # The stream is closed.
            self._stream.write(f"\r{' ' * self._width}")
            self._stream.write(f"\r{text}")
            self._stream.flush()
        self._width = len(text)


_LINE: ContextVar[_Line | None] = ContextVar("_LINE", default=None)


@contextmanager
def long_work(description: str) -> Iterator[None]:
    """Show `description`, such as "registering churn", if the block runs longer than `PATIENCE`.

    Nothing is shown if nobody is watching. Inside other long work, the outer line remains.
    """
    stream = watched_stream()
    if _LINE.get() is not None or stream is None:
        yield
        return
    line = _Line(description, stream)
    done = threading.Event()
    thread = threading.Thread(target=_redraw_until, args=(done, line), daemon=True)
    token = _LINE.set(line)
    thread.start()
    try:
        yield
    finally:
        _LINE.reset(token)
        done.set()
        thread.join()
        line.clear()


def show_stage(name: str) -> None:
    """Show `name` as the current stage in the line of the surrounding `long_work`."""
    line = _LINE.get()
    if line is not None:
        line.stage = name


def hide_line() -> None:
    """Hide the line of the surrounding `long_work`, to make room for a progress bar."""
    line = _LINE.get()
    if line is not None:
        line.hide()


def show_line() -> None:
    """Show the line of the surrounding `long_work` again, after a progress bar is removed."""
    line = _LINE.get()
    if line is not None:
        line.is_hidden = False


def _redraw_until(done: threading.Event, line: _Line) -> None:
    seconds = PATIENCE
    while not done.wait(seconds):
        line.draw()
        seconds = _INTERVAL
