"""`compiled_beside`: kernels that another process compiles while this one scores without them.

numba holds Python's lock while it compiles, so a thread of this process would keep all others from
scoring. The process is a `Child`: it runs no module of the user's, and ends with this one.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sqlml.backends.native.jit import code_store
from sqlml.backends.native.jit.argument_kinds import Signature
from sqlml.backends.native.jit.object_code import NotLoadable, ObjectCode
from sqlml.backends.no_wait import NotReady
from sqlml.child_process import Child, ChildEnded, ChildFailed, Conversation

IDLE = 10.0
"""Seconds after which the process ends when no kernel is asked for."""


@dataclass(slots=True)
class _Job:
    """A kernel that was asked for; `code` is its machine code, None where there was none to get."""

    line: bytes
    name: str
    done: threading.Event = field(default_factory=threading.Event)
    code: ObjectCode | None = None


def compiled_beside(
    function: Callable[..., Any], signature: Signature, name: str
) -> ObjectCode | None:
    """The machine code of a kernel, where the other process has compiled it.

    Args:
        name: of its file in `code_store`.

    Returns:
        None where this process has to compile it: the other one failed, or cannot find it.

    Raises:
        NotReady: it is being compiled.
    """
    with _LOCK:
        job = _jobs.get(name)
        if job is None:
            line = _line(function, signature)
            if line is None:
                return None
            try:
                _start()
            except RuntimeError:  # no thread starts any more: Python is ending
                return None
            job = _jobs[name] = _Job(line, name)
            _asked.put(job)
        if not job.done.is_set():
            raise NotReady(name)
        return _jobs.pop(name).code


def pending() -> int:
    """How many kernels were asked for and are not there yet."""
    with _LOCK:
        return sum(not job.done.is_set() for job in _jobs.values())


def _line(function: Callable[..., Any], signature: Signature) -> bytes | None:
    """The kernel as text; None where another process would not find it by its name."""
    from sqlml.backends.native.jit.compile_ahead import KnownKernel

    kernel = KnownKernel(function.__module__, function.__name__, signature)
    module = sys.modules.get(kernel.module)
    found = getattr(module, kernel.name, None) is function
    return kernel.line().encode() if found else None


def _start() -> None:
    """Start the thread that speaks with the other process, unless it runs."""
    global _thread
    if _thread is None:
        made = threading.Thread(target=_compile_all, name="sqlml-compiling", daemon=True)
        made.start()
        _thread = made


def _compile_all() -> None:
    """Have the other process compile what is asked for, until nothing is."""
    global _thread
    while True:
        try:
            with Child(f"{__name__}:conversation") as child:
                while (job := _next()) is not None:
                    _finish(job, child)
        except (
            ChildEnded,
            ChildFailed,
            OSError,
            RuntimeError,
        ):  # it cannot start, or a kernel ended it
            with _LOCK:
                while not _asked.empty():
                    _asked.get().done.set()
        with _LOCK:
            if _asked.empty():
                _thread = None
                return


def _next() -> _Job | None:
    try:
        return _asked.get(timeout=IDLE)
    except queue.Empty:
        return None


def _finish(job: _Job, child: Child) -> None:
    try:
        job.code = code_store.unpacked(job.name, child.ask(job.name.encode() + b"\n" + job.line))
        if job.code is not None:
            code_store.write(job.name, job.code)
    finally:
        job.done.set()


def conversation() -> Conversation:
    """What the other process does: it answers a file's name and a kernel with the file's content,
    empty where only numba can run the kernel."""
    from sqlml.backends.native.jit.compile_ahead import read_line

    answer = b""
    while True:
        name, line = (yield answer).decode().split("\n")
        try:
            answer = code_store.packed(name, read_line(line).compiled())
        except NotLoadable:
            answer = b""


_LOCK = threading.Lock()
_jobs: dict[str, _Job] = {}
_asked: queue.Queue[_Job] = queue.Queue()
_thread: threading.Thread | None = None


def _forget() -> None:
    """A forked child has none of its parent's threads, and asks for itself."""
    global _LOCK, _jobs, _asked, _thread
    _LOCK, _jobs, _asked, _thread = threading.Lock(), {}, queue.Queue(), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
