"""`Child`: a process of its own that reads a stranger's file with the library that it is made for.

Such a library is native code: a hostile file may crash it, hang it or fill the memory. In a child
that ends the child, and the answer is an error. It is started by itself and not by
`multiprocessing`, which would run the user's main module again. Parent and child speak in frames of
bytes over the child's standard input and output, whatever the libraries print; nothing that comes
from a child is unpickled. Time and memory are bounded, and a child ends with its parent.

Run as a script, this file is the child.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Generator
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

Conversation = Generator[bytes, bytes, None]
"""What a child runs: a generator that yields answers, the first one of its own accord, and gets
each question as the value of `yield`."""

SECONDS = 120.0
"""What an answer may take, unless more is allowed."""

BYTES, TIMES = 8 << 30, 8
"""Memory that a child may take: so much, and so many times what it is given and asked."""

MOST = 1 << 32
"""Bytes that an answer may have."""

_FRAME = struct.Struct("<BQ")
_ALLOWED = struct.Struct("<dQ")
_ANSWER, _ERROR = 0, 1
_DEATH_OF_PARENT = 1
"""prctl's PR_SET_PDEATHSIG."""


class Ended(Exception):
    """A child that ended, or was ended, without an answer; the text says how: "ends with .."."""


class Failed(Exception):
    """An exception in a child: the `name` of its class, and its message."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name
        self.message = message


class Child:
    """A conversation with a process of its own, in a folder of its own; leaving the context ends
    the one and removes the other.

    Args:
        target: "module:function", where the function makes a `Conversation` of `given`.
        given: what it begins with.
        seconds: what each answer may take.
    """

    def __init__(self, target: str, *given: bytes, seconds: float = SECONDS) -> None:
        self._target = target
        self._given = given
        self._seconds = seconds
        self._late = False

    def __enter__(self) -> Child:
        """Start the process, and have its first answer as `first`.

        Raises:
            Ended, Failed.
        """
        if not sys.executable or getattr(sys, "frozen", False):
            raise Ended("cannot be started: this program has no Python interpreter of its own")
        command = [sys.executable, "-I" if sys.flags.isolated else "-P", __file__]
        about = {
            "target": self._target,
            "path": _search_path(),
            "parent": os.getpid(),
            "given": len(self._given),
        }
        try:
            self._folder = TemporaryDirectory(prefix="sqlml", ignore_cleanup_errors=True)
            place = {"TMPDIR": self._folder.name, "TEMP": self._folder.name}
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=self._folder.name,
                env={**os.environ, **place, "CUDA_VISIBLE_DEVICES": "-1"},  # the CPU suffices
            )
        except OSError as error:
            raise Ended(f"cannot be started ({error})") from None
        try:
            self.first = self._answer(json.dumps(about).encode(), *self._given)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            try:
                stream.close()  # type: ignore[union-attr]
            except OSError:  # what was written last did not arrive
                pass
        self._process.wait()
        self._folder.cleanup()

    def ask(self, question: bytes, seconds: float | None = None) -> bytes:
        """The answer to a question.

        Args:
            seconds: what it may take, in place of what the others may.

        Raises:
            Ended, Failed.
        """
        if seconds is not None:
            self._seconds = seconds
        return self._answer(question)

    def _answer(self, *frames: bytes) -> bytes:
        written, read = self._process.stdin, self._process.stdout
        assert written is not None and read is not None
        watch = threading.Timer(self._seconds, self._end)
        watch.daemon = True
        watch.start()
        try:
            allowed = _ALLOWED.pack(self._seconds, BYTES + TIMES * sum(map(len, frames)))
            for frame in (allowed, *frames):
                _send(written, _ANSWER, frame)
            kind, content = _receive(read, MOST)
        except (OSError, EOFError):
            raise Ended(self._how()) from None
        finally:
            watch.cancel()
        if kind == _ERROR:
            about = json.loads(content)
            raise Failed(str(about["error"]), str(about["message"]))
        return content

    def _end(self) -> None:
        self._late = True
        self._process.kill()

    def _how(self) -> str:
        if self._late:
            return f"takes more than {self._seconds:.0f} seconds"
        status = self._process.wait()
        if status == -getattr(signal, "SIGALRM", 0):
            return f"takes more than {self._seconds:.0f} seconds"
        if status < 0:
            return f"ends with {signal.Signals(-status).name}"
        return f"ends with status {status}"


def _search_path() -> list[str]:
    """Where a child finds modules: as this process does, but for its current directory, which may
    be another than when it found them."""
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    path = [os.path.abspath(p) for p in sys.path if p]
    return path if ours in path else [*path, ours]


def _send(stream: BinaryIO | Any, kind: int, content: bytes) -> None:
    stream.write(_FRAME.pack(kind, len(content)))
    stream.write(content)
    stream.flush()


def _receive(stream: BinaryIO | Any, most: int | None = None) -> tuple[int, bytes]:
    kind, length = _FRAME.unpack(_exactly(stream, _FRAME.size))
    if most is not None and length > most:
        raise EOFError
    return kind, _exactly(stream, length)


def _exactly(stream: BinaryIO | Any, size: int) -> bytes:
    content: bytes = stream.read(size)
    if len(content) != size:
        raise EOFError
    return content


def main() -> None:
    """The child. Ctrl-C in a terminal is meant for the parent, which ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    questions, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    try:
        _converse(questions, answers)
    except (EOFError, BrokenPipeError):
        return  # the parent has heard enough
    except BaseException as error:
        told = {"error": type(error).__name__, "message": str(getattr(error, "message", error))}
        _send(answers, _ERROR, json.dumps(told).encode())


def _converse(questions: BinaryIO, answers: BinaryIO) -> None:
    def asked() -> bytes:
        seconds, most = _ALLOWED.unpack(_receive(questions)[1])
        _end_after(seconds + 5)  # the parent, if it is there, says so before
        _limit(most)
        return _receive(questions)[1]

    about = json.loads(asked())
    _end_with(about["parent"])
    given = [_receive(questions)[1] for _ in range(about["given"])]
    sys.path[:] = about["path"]
    module, _, name = about["target"].partition(":")
    conversation = getattr(importlib.import_module(module), name)(*given)
    del given
    answer = next(conversation)
    while True:
        if len(answer) > MOST:
            raise MemoryError(f"an answer of {len(answer)} bytes")
        _send(answers, _ANSWER, answer)
        question = asked()
        try:
            answer = conversation.send(question)
        except StopIteration:
            return


def _end_after(seconds: float) -> None:
    """The system ends this process then, even where native code hangs and nobody is left to."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)


def _end_with(parent: int) -> None:
    """This process ends when its parent does."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_DEATH_OF_PARENT, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before
            os._exit(1)


def _limit(most: int) -> None:
    try:
        import resource

        # Memory, not addresses: threads and GPU libraries reserve many that they never use.
        kinds = (resource.RLIMIT_DATA,) if sys.platform == "linux" else (resource.RLIMIT_AS,)
        for kind, value in (*((k, most) for k in kinds), (resource.RLIMIT_CORE, 0)):
            hard = resource.getrlimit(kind)[1]
            least = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(kind, (least, hard))
    except (ImportError, ValueError, OSError):
        pass  # no such limits on this system; that of time remains


if __name__ == "__main__":
    main()
