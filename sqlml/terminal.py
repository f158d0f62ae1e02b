"""Show control characters on a terminal instead of sending them.

Names, values, comments and error messages may come from untrusted files. On a terminal, control
characters can move the cursor, overwrite the screen, set the title or make the terminal type. Pipes
and files receive all characters unchanged.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

_CONTROLS = re.compile(r"\r\n|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""The control characters of C0 and C1, and DEL, without tabs and line ends."""


def escape_controls(text: str) -> str:
    """Escape control characters in `text` as JSON does, except for tabs and line ends.

    >>> escape_controls("a\\x1b[2Jb\\tc\\r\\n")
    'a\\\\u001b[2Jb\\tc\\n'
    """
    return _CONTROLS.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    return "\n" if match[0] == "\r\n" else f"\\u{ord(match[0]):04x}"


class TerminalStream:
    """A text stream of a terminal that escapes control characters.

    Carriage returns at the start of a text are kept, since progress bars redraw a line. A library
    that draws on the terminal, such as prompt_toolkit, writes bytes to `buffer` instead.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write `text` with escaped control characters, and return the length of `text`."""
        unindented = text.lstrip("\r")
        self._stream.write("\r" * (len(text) - len(unindented)) + escape_controls(unindented))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)


@contextmanager
def escaped_on_terminals() -> Iterator[None]:
    """Escape control characters on standard output and standard error if these are terminals.

    After an unexpected error, escaping stays on, since the interpreter prints the error later.
    """
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = map(_escape_on_terminal, streams)
    yield
    sys.stdout, sys.stderr = streams


def _escape_on_terminal(stream: TextIO) -> TextIO:
    is_terminal = stream is not None and not stream.closed and stream.isatty()
    return cast("TextIO", TerminalStream(stream)) if is_terminal else stream
