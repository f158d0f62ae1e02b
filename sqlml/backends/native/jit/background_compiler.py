"""Compile kernels in another process, while this process scores without them.

numba holds the GIL while it compiles, so a compiling thread would block all scoring threads. The
process is a `Child`: it runs no module of the user, and ends with this process.
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
from sqlml.backends.native.jit.code_store import NotLoadable, ObjectCode
from sqlml.backends.no_wait import NotReady
from sqlml.child_process import Child, ChildEnded, ChildFailed, Conversation

IDLE_SECONDS = 10.0
"""The compiling process ends when no kernel is requested for this long."""


@dataclass(slots=True)
class _Job:
    """A requested kernel. `code` is None until the kernel is compiled, and after a failure."""

    line: bytes
    name: str
    done: threading.Event = field(default_factory=threading.Event)
    code: ObjectCode | None = None


def compile_in_background(
    function: Callable[..., Any], signature: Signature, name: str
) -> ObjectCode | None:
    """Return the machine code of a kernel; raise NotReady until the compiling process has it.

    Returns None if the compiling process failed or cannot import the kernel. This process must then
    compile the kernel.
    """
    with _LOCK:
        job = _jobs.get(name)
        if job is None:
            line = _describe_kernel(function, signature)
            if line is None:
                return None
            try:
                _start_thread()
            except RuntimeError:  # Python is shutting down and starts no threads
                return None
            job = _jobs[name] = _Job(line, name)
            _queue.put(job)
        if not job.done.is_set():
            raise NotReady(name)
        return _jobs.pop(name).code


def count_pending() -> int:
    with _LOCK:
        return sum(not job.done.is_set() for job in _jobs.values())


def _describe_kernel(function: Callable[..., Any], signature: Signature) -> bytes | None:
    """Return the line for `parse_line`, or None if the kernel cannot be imported by name."""
    from sqlml.backends.native.jit.compile_ahead import KnownKernel

    kernel = KnownKernel(function.__module__, function.__name__, signature)
    module = sys.modules.get(kernel.module)
    is_importable = getattr(module, kernel.name, None) is function
    return kernel.to_line().encode() if is_importable else None


def _start_thread() -> None:
    global _thread
    if _thread is None:
        thread = threading.Thread(
            target=_compile_queued_kernels, name="sqlml-compiling", daemon=True
        )
        thread.start()
        _thread = thread


def _compile_queued_kernels() -> None:
    global _thread
    while True:
        try:
            with Child(f"{__name__}:serve") as child:
                while (job := _get_next_job()) is not None:
                    _finish_job(job, child)
        except (ChildEnded, ChildFailed, OSError, RuntimeError):
            # The process cannot start, or a kernel crashed it.
            with _LOCK:
                while not _queue.empty():
                    _queue.get().done.set()
        with _LOCK:
            if _queue.empty():
                _thread = None
                return


def _get_next_job() -> _Job | None:
    try:
        return _queue.get(timeout=IDLE_SECONDS)
    except queue.Empty:
        return None


def _finish_job(job: _Job, child: Child) -> None:
    try:
        job.code = code_store.unpack(job.name, child.ask(job.name.encode() + b"\n" + job.line))
        if job.code is not None:
            code_store.write(job.name, job.code)
    finally:
        job.done.set()


def serve() -> Conversation:
    """Receive file names with kernel lines, and reply with the content of each file.

    The reply is empty if only numba can run the kernel.
    """
    from sqlml.backends.native.jit.compile_ahead import parse_line

    reply = b""
    while True:
        name, line = (yield reply).decode().split("\n")
        try:
            reply = code_store.pack(name, parse_line(line).compile())
        except NotLoadable:
            reply = b""


_LOCK = threading.Lock()
_jobs: dict[str, _Job] = {}
_queue: queue.Queue[_Job] = queue.Queue()
_thread: threading.Thread | None = None


def _reset_after_fork() -> None:
    """Reset the module's state in a forked child, which lacks the parent's threads."""
    global _LOCK, _jobs, _queue, _thread
    _LOCK, _jobs, _queue, _thread = threading.Lock(), {}, queue.Queue(), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
