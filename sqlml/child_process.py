"""Child processes that read untrusted files with the libraries that wrote the files.

A hostile file may make the native code of a library crash, hang or fill the memory. Then only the
child process ends, and the parent raises an error. `multiprocessing` is not used, because it would
run the user's main module again. Parent and child exchange frames of bytes over the standard input
and output of the child. Nothing that a child sends is unpickled. Time and memory are limited. A
child ends when the parent ends. The child runs this file as a script.
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
from contextlib import suppress
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

Conversation = Generator[bytes, bytes, None]
"""The code of a child: a generator that yields answers, and receives each question as the value of
`yield`. The first answer has no question."""

SECONDS = 120.0
"""Default time limit for an answer."""

BASE_BYTES, INPUT_FACTOR = 8 << 30, 8
"""Memory limit of a child: a fixed amount, plus a multiple of the inputs and the question."""

MAX_ANSWER_BYTES = 1 << 32
"""Maximum size of an answer."""

_FRAME = struct.Struct("<BQ")
_LIMITS = struct.Struct("<dQ")
_ANSWER, _ERROR = 0, 1


class ChildEnded(Exception):
    """A child process ended before it answered. The message is a phrase such as "ends with ..."."""


class ChildFailed(Exception):
    """An exception was raised in a child process. `name` is the name of the exception class."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name
        self.message = message


class Child:
    """A context manager that runs a child process in a temporary folder.

    `target` is "module:function". The function makes a `Conversation` from `inputs`. `first` is the
    first answer of the child. `seconds` is the time limit for each answer.
    """

    def __init__(self, target: str, *inputs: bytes, seconds: float = SECONDS) -> None:
        self._target = target
        self._inputs = inputs
        self._seconds = seconds
        self._is_late = False

    def __enter__(self) -> Child:
        if not sys.executable or getattr(sys, "frozen", False):
            raise ChildEnded("cannot be started: this program has no Python interpreter of its own")
        command = [sys.executable, "-I" if sys.flags.isolated else "-P", __file__]
        header = {"target": self._target, "path": _list_search_path(), "parent": os.getpid()}
        try:
            self._folder = TemporaryDirectory(prefix="sqlml", ignore_cleanup_errors=True)
            folders = {"TMPDIR": self._folder.name, "TEMP": self._folder.name}
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=self._folder.name,
                env={**os.environ, **folders, "CUDA_VISIBLE_DEVICES": "-1"},  # Use only the CPU.
            )
        except OSError as error:
            raise ChildEnded(f"cannot be started ({error})") from None
        try:
            header_json = json.dumps({**header, "inputs": len(self._inputs)}).encode()
            self.first: bytes = self._exchange(header_json, *self._inputs)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            with suppress(OSError):  # The last write did not arrive.
                stream.close()  # type: ignore[union-attr]
        self._process.wait()
        self._folder.cleanup()

    def ask(self, question: bytes, seconds: float | None = None) -> bytes:
        """Send a question to the child, and return the answer.

        If `seconds` is not None, it becomes the time limit for this answer and later answers.
        """
        if seconds is not None:
            self._seconds = seconds
        return self._exchange(question)

    def _exchange(self, *frames: bytes) -> bytes:
        to_child, from_child = self._process.stdin, self._process.stdout
        assert to_child is not None and from_child is not None
        timer = threading.Timer(self._seconds, self._end)
        timer.daemon = True
        timer.start()
        try:
            max_bytes = BASE_BYTES + INPUT_FACTOR * sum(map(len, frames))
            for frame in (_LIMITS.pack(self._seconds, max_bytes), *frames):
                _send(to_child, _ANSWER, frame)
            frame_kind, content = _receive(from_child, MAX_ANSWER_BYTES)
        except (OSError, EOFError):
            raise ChildEnded(self._describe_end()) from None
        finally:
            timer.cancel()
        if frame_kind == _ERROR:
            report = json.loads(content)
            raise ChildFailed(str(report["error"]), str(report["message"]))
        return content

    def _end(self) -> None:
        self._is_late = True
        self._process.kill()

    def _describe_end(self) -> str:
        status = self._process.wait()
        if self._is_late or status == -getattr(signal, "SIGALRM", 0):
            return f"takes more than {self._seconds:.0f} seconds"
        if status < 0:
            return f"ends with {signal.Signals(-status).name}"
        return f"ends with status {status}"


def _list_search_path() -> list[str]:
    """Return the module search path, without the current directory, which may have changed."""
    project = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    path = [os.path.abspath(folder) for folder in sys.path if folder]
    return path if project in path else [*path, project]


def _send(stream: BinaryIO | Any, kind: int, content: bytes) -> None:
    stream.write(_FRAME.pack(kind, len(content)))
    stream.write(content)
    stream.flush()


def _receive(stream: BinaryIO | Any, max_bytes: int | None = None) -> tuple[int, bytes]:
    kind, length = _FRAME.unpack(_read_exactly(stream, _FRAME.size))
    if max_bytes is not None and length > max_bytes:
        raise EOFError
    return kind, _read_exactly(stream, length)


def _read_exactly(stream: BinaryIO | Any, size: int) -> bytes:
    content: bytes = stream.read(size)
    if len(content) != size:
        raise EOFError
    return content


def main() -> None:
    """Run the child. Ignore Ctrl-C in a terminal, since the parent will end the child."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    questions, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null_device = os.open(os.devnull, os.O_RDWR)
    os.dup2(null_device, 0)
    os.dup2(null_device, 1)
    try:
        _run_conversation(questions, answers)
    except (EOFError, BrokenPipeError):
        return  # The parent needs no more answers.
    except BaseException as error:
        report = {"error": type(error).__name__, "message": str(getattr(error, "message", error))}
        _send(answers, _ERROR, json.dumps(report).encode())


def _run_conversation(questions: BinaryIO, answers: BinaryIO) -> None:
    def receive_question() -> bytes:
        seconds, max_bytes = _LIMITS.unpack(_receive(questions)[1])
        _end_after(seconds + 5)  # A running parent ends the child earlier.
        _limit_memory(max_bytes)
        return _receive(questions)[1]

    header = json.loads(receive_question())
    _end_with_parent(header["parent"])
    inputs = [_receive(questions)[1] for _ in range(header["inputs"])]
    sys.path[:] = header["path"]
    module, _, name = header["target"].partition(":")
    conversation = getattr(importlib.import_module(module), name)(*inputs)
    del inputs
    answer = next(conversation)
    while True:
        if len(answer) > MAX_ANSWER_BYTES:
            raise MemoryError(f"an answer of {len(answer)} bytes")
        _send(answers, _ANSWER, answer)
        question = receive_question()
        try:
            answer = conversation.send(question)
        except StopIteration:
            return


def _end_after(seconds: float) -> None:
    """Let the system kill this process after `seconds`, even if native code hangs."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)


def _end_with_parent(parent: int) -> None:
    if sys.platform == "linux":
        import ctypes

        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
        if os.getppid() != parent:  # The parent has ended already.
            os._exit(1)


def _limit_memory(max_bytes: int) -> None:
    try:
        import resource

        # Limit memory instead of addresses, since threads and GPU libraries reserve addresses.
        memory = resource.RLIMIT_DATA if sys.platform == "linux" else resource.RLIMIT_AS
        for resource_kind, limit in ((memory, max_bytes), (resource.RLIMIT_CORE, 0)):
            hard_limit = resource.getrlimit(resource_kind)[1]
            soft_limit = limit if hard_limit == resource.RLIM_INFINITY else min(limit, hard_limit)
            resource.setrlimit(resource_kind, (soft_limit, hard_limit))
    except (ImportError, ValueError, OSError):
        pass  # The system does not support these limits. The time limit remains.


if __name__ == "__main__":
    main()
