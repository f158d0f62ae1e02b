"""A terminal for tests: `Terminal` runs `sqlml` in one and shows its screen."""

from __future__ import annotations

import os
import sys
import time

import pytest

pexpect = pytest.importorskip("pexpect")
pyte = pytest.importorskip("pyte")

ROWS, COLUMNS = 40, 90


class Terminal:
    """A shell in a terminal, whose screen is read as a person would read it.

    `sent` holds all bytes that the terminal was sent.
    """

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.sent = b""
        self._screen = pyte.Screen(COLUMNS, ROWS)
        self._stream = pyte.ByteStream(self._screen)
        self.process = pexpect.spawn(
            sys.executable,
            ["-m", "sqlml", *arguments],
            dimensions=(ROWS, COLUMNS),
            timeout=60,
            env={**os.environ, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", **environment},
        )

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self._screen.display)

    def sees(self, *texts: str, within: float = 10.0) -> str:
        """The screen, once it shows all of these."""
        end = time.monotonic() + within
        while not all(text in self.text for text in texts):
            assert time.monotonic() < end, f"no {texts} in:\n{self.text}"
            self.reads()
        return self.text

    def gets(self, words: bytes, after: int, within: float = 30.0) -> None:
        """Wait until the terminal was sent these bytes, behind the first `after` bytes."""
        end = time.monotonic() + within
        while words not in self.sent[after:]:
            assert time.monotonic() < end, self.sent[after:]
            self.reads()

    @property
    def title(self) -> str:
        title: str = self._screen.title
        return title

    def types(self, keys: str) -> None:
        self.process.send(keys)

    def clears(self) -> None:
        self._screen.reset()

    def ends(self) -> int:
        """The exit status, once the shell has left."""
        end = time.monotonic() + 60
        while self.reads() and time.monotonic() < end:
            pass
        self.process.wait()
        self.process.close()
        status: int = self.process.exitstatus
        return status

    def reads(self) -> bool:
        """Read what is there; return whether more may come."""
        try:
            read = self.process.read_nonblocking(65536, 0.2)
            self.sent += read
            self._stream.feed(read)
        except pexpect.TIMEOUT:
            pass
        except pexpect.EOF:
            time.sleep(0.05)
            return False
        return True
