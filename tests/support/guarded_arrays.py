"""Arrays between pages without access, to show that a kernel stays inside its arrays.

A kernel that reads or writes outside an array usually does so unnoticed. Here each array has memory
of its own that ends (side "end") or begins (side "begin") at a page without access, so such a
kernel dies. Constants are read-only, and may be read up to `PADDING` bytes beyond their end, like
the arrays of an exported model. Rows have no padding.

How to test an argument check:

1. Get a real `Call`, as the compilers of sqlml make it. The arguments that are rows must be `Rows`;
   see `kernel_calls.py`.
2. Write `run(case)`. It makes a damaged copy of the call with `np.random.default_rng(case)` and
   `damage_call` of `damaged_calls.py`. If `is_accepted(check, call)`, it calls `run_call` for
   several numbers of rows and both sides. It returns whether the check accepted the call.
3. `run_cases(run, range(1000))` runs the cases in child processes. The `failures` of the result
   name the cases that ended a child: by a signal, after the time limit, or with an exception.

A kernel allocates scratch arrays with `malloc`. `load_guarded_kernel` compiles the kernel for this
machine, and loads it with an allocator whose memory lies between such pages, too. That takes some
seconds per kernel, unless the code is in the cache, so it suits tests marked `nightly`.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import resource
import signal
import struct
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, NoReturn

import numpy as np

from sqlml.backends.native.jit.argument_kinds import Signature
from sqlml.backends.native.jit.specialise import find_entry, specialise
from sqlml.backends.native.kernel_calls import Call, Rows

Array = np.ndarray[Any, Any]
Side = Literal["begin", "end"]
SIDES: tuple[Side, ...] = ("end", "begin")

PAGE = mmap.PAGESIZE

PADDING = 64
"""Bytes that may be read beyond the end of a constant; see `DataWriter.add_array`."""

GUARD = 1 << 30
"""Bytes without access on both sides of an array, so that accesses far outside are seen, too."""

GARBAGE = 0xA5
"""The byte that fills memory whose content is not defined."""

MAX_BYTES = 1 << 31
"""The most memory that a child process may allocate."""

_READ, _WRITE = 1, 2  # PROT_READ and PROT_WRITE


@functools.cache
def _load_libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return libc


def _map_forbidden(size: int) -> int:
    """Return the address of new memory without access."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    address = _load_libc().mmap(None, size, 0, flags, -1, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        raise MemoryError(f"{size} bytes")
    return int(address)


class GuardedMemory:
    """Blocks of memory between pages without access, until `close`."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self._mappings: list[tuple[int, int]] = []

    def allocate(self, size: int, padding: int = 0, align: int = 1) -> int:
        """Return the address of `size` bytes, with `padding` more bytes before the next page."""
        pages = -(-(size + padding + align) // PAGE) * PAGE
        mapped = pages + 2 * GUARD
        begin = _map_forbidden(mapped) + GUARD
        self._mappings.append((begin - GUARD, mapped))
        self._protect(begin, pages, _READ | _WRITE)
        if self.side == "begin":
            return begin
        return (begin + pages - size - padding) // align * align

    def place(self, array: Array, padding: int = PADDING) -> Array:
        """Return a read-only copy of a contiguous array."""
        array = np.ascontiguousarray(array)
        address = self.allocate(array.nbytes, padding)
        ctypes.memmove(address, array.ctypes.data, array.nbytes)
        start = address // PAGE * PAGE
        self._protect(start, -(-(address + array.nbytes + padding - start) // PAGE) * PAGE, _READ)
        return view_memory(address, array.shape, array.dtype)

    def _protect(self, address: int, size: int, access: int) -> None:
        if size and _load_libc().mprotect(address, size, access):
            raise OSError(ctypes.get_errno(), "mprotect failed")

    def close(self) -> None:
        for address, size in self._mappings:
            _load_libc().munmap(address, size)
        self._mappings.clear()


@contextmanager
def guard(side: Side) -> Iterator[GuardedMemory]:
    """Yield memory that is freed at the end."""
    memory = GuardedMemory(side)
    try:
        yield memory
    finally:
        memory.close()


def view_memory(
    address: int, shape: tuple[int, ...], dtype: np.dtype[Any], strides: Any = None
) -> Array:
    """Return an array at an address, which need not be accessible."""
    size = 1 << 30  # numpy wants a buffer that is long enough; nothing is read.
    buffer: Any = (ctypes.c_ubyte * size).from_address(address)
    return np.ndarray(shape, dtype, buffer, strides=strides)


FillRows = Callable[[Rows, int], Array]
"""Returns the content (n, stride) of a buffer for n rows, of the dtype of the `Rows`."""


def _view_rows(rows: Rows, count: int, address: int) -> Array:
    """Return the array that a kernel gets for `rows`, in a buffer at an address."""
    itemsize = rows.dtype.itemsize
    address += rows.first_column * itemsize
    if rows.is_flat:
        return view_memory(address, (count * rows.width,), rows.dtype)
    strides = (_measure_row(rows), itemsize)
    return view_memory(address, (count, rows.width), rows.dtype, strides)


def map_arguments(arguments: tuple[Any, ...], change: Callable[[Any], Any]) -> tuple[Any, ...]:
    """Apply `change` to all arguments that are not tuples, also within tuples."""
    return tuple(
        map_arguments(argument, change) if isinstance(argument, tuple) else change(argument)
        for argument in arguments
    )


def list_arguments(arguments: tuple[Any, ...]) -> list[Any]:
    """Return all arguments that are not tuples, also within tuples, in order."""
    items: list[Any] = []
    map_arguments(arguments, items.append)
    return items


def replace_constants(call: Call, changed: dict[int, Any]) -> Call:
    """Return a call with other constants; the keys are indices in `list_arguments`."""
    items = iter(enumerate(list_arguments(call.arguments)))

    def change(_: Any) -> Any:
        index, item = next(items)
        return changed.get(index, item)

    return replace(call, arguments=map_arguments(call.arguments, change))


def get_function(call: Call) -> Callable[..., Any]:
    """Return the function from which the kernel of a call was compiled."""
    entry = find_entry(call.kernel)
    assert entry is not None, "the kernel needs numba to run"
    return entry.function


def get_signature(call: Call) -> Signature:
    entry = find_entry(call.kernel)
    assert entry is not None, "the kernel needs numba to run"
    return entry.signature


@functools.cache
def _find_forbidden_address() -> int:
    return _map_forbidden(2 * GUARD)


def is_accepted(
    check: Callable[..., Any],
    call: Call,
    compiled: Callable[..., Any] | None = None,
    padding: int = PADDING,
) -> bool:
    """Return what an argument check says; its rows are one row each, and must not be read.

    The constants lie in guarded memory, since a check must stay inside them, too. `compiled`
    replaces the compiled check, for example by that of `load_guarded_kernel`. It may read up to
    `padding` bytes beyond the end of a constant.
    """
    address = _find_forbidden_address()
    compiled = compiled or specialise(check, get_signature(call))
    results = []
    for side in SIDES:
        with guard(side) as memory:
            arguments = map_arguments(
                _place_constants(call, memory, padding),
                lambda a: _view_rows(a, 1, address) if isinstance(a, Rows) else a,
            )
            results.append(bool(compiled(*arguments)))
    assert results[0] == results[1], "the check depends on memory outside the arrays"
    return results[0]


def _place_constants(call: Call, memory: GuardedMemory, padding: int) -> tuple[Any, ...]:
    return map_arguments(
        call.arguments, lambda a: memory.place(a, padding) if isinstance(a, np.ndarray) else a
    )


def run_call(
    call: Call,
    counts: Iterable[int],
    fill: FillRows,
    side: Side = "end",
    kernel: Callable[..., Any] | None = None,
    padding: int = PADDING,
) -> None:
    """Call a kernel for each number of rows in guarded memory; an access outside ends the process.

    `kernel` replaces the kernel of the call, for example by that of `load_guarded_kernel`. It may
    read up to `padding` bytes beyond the end of a constant.
    """
    with guard(side) as memory:
        placed = _place_constants(call, memory, padding)
        for count in counts:
            with guard(side) as row_memory:
                arguments = _place_rows(placed, count, fill, row_memory)
                with suppress(MemoryError):  # A kernel may fail to allocate its scratch arrays.
                    (kernel or call.kernel)(*arguments)


def _place_rows(
    arguments: tuple[Any, ...], count: int, fill: FillRows, memory: GuardedMemory
) -> tuple[Any, ...]:
    """Replace `Rows` by arrays of `count` rows; the first is filled, others have any content."""
    rows = [argument for argument in list_arguments(arguments) if isinstance(argument, Rows)]
    buffers: dict[int, int] = {}
    for number in {r.buffer for r in rows}:
        size = count * max(_measure_row(r) for r in rows if r.buffer == number)
        buffers[number] = memory.allocate(size)
        ctypes.memset(buffers[number], GARBAGE, size)
    content = np.ascontiguousarray(fill(rows[0], count), rows[0].dtype)
    ctypes.memmove(buffers[rows[0].buffer], content.ctypes.data, content.nbytes)
    return map_arguments(
        arguments, lambda a: _view_rows(a, count, buffers[a.buffer]) if isinstance(a, Rows) else a
    )


def _measure_row(rows: Rows) -> int:
    return (rows.stride or rows.width) * rows.dtype.itemsize


# A guarded allocator for the scratch arrays of kernels.

_ALIGN = 32
"""The alignment of the data of an array."""

_allocations: dict[int, tuple[GuardedMemory, int, int]] = {}
_allocation: dict[str, Any] = {"side": "end", "slack": _ALIGN}


_Allocate: Any = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)
_Free: Any = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@_Allocate
def _allocate_guarded(size: int) -> int:
    """Allocate as `malloc` does, with the data of the array next to a page without access."""
    memory = GuardedMemory(_allocation["side"])
    try:
        if size > MAX_BYTES:
            return 0
        # The data begins after the header and what aligns it: nothing, since the block is aligned.
        used = size - _allocation["slack"]
        address = memory.allocate(used, align=_ALIGN)
    except (MemoryError, OSError):
        return 0
    # What the alignment leaves free after the data must keep its content.
    end = -(-(address + used) // PAGE) * PAGE if memory.side == "end" else address + used
    ctypes.memset(address, GARBAGE, end - address)
    _allocations[address] = (memory, address + used, end)
    return address


@_Free
def _free_guarded(address: int | None) -> None:
    if not address:
        return
    memory, end, block_end = _allocations.pop(address)
    if ctypes.string_at(end, block_end - end) != bytes([GARBAGE]) * (block_end - end):
        os.write(2, b"a kernel wrote beyond the end of a scratch array\n")
        os.abort()
    memory.close()


def set_allocation_side(side: Side, slack: int = _ALIGN) -> None:
    """Choose where the scratch arrays of guarded kernels lie.

    `slack` is how many bytes numba allocates to align an array. Kernels that call `malloc`
    themselves use all bytes.
    """
    _allocation.update(side=side, slack=slack)


def load_guarded_kernel(function: Callable[..., Any], signature: Signature) -> Callable[..., Any]:
    """Return a kernel or a check, loaded so that its scratch arrays are guarded."""
    import llvmlite.binding as llvm

    from sqlml.backends.native.jit import code_store, compiled_kernels, object_code

    code = code_store.read(compiled_kernels._make_file_name(function, signature))
    if code is None:
        code = object_code.compile_kernel(function, signature)
        compiled_kernels.store(function, signature, code)
    object_code.load_kernel(code, function.__name__, signature)  # LLVM is ready after this.
    replaced = {"malloc": _allocate_guarded, "free": _free_guarded}
    addresses = {name: llvm.address_of_symbol(name) for name in replaced}
    for name, callback in replaced.items():
        llvm.add_symbol(name, ctypes.cast(callback, ctypes.c_void_p).value)
    try:
        return object_code.load_kernel(code, function.__name__, signature).call
    finally:
        for name, address in addresses.items():
            llvm.add_symbol(name, address)


# Cases that run in child processes.


@dataclass(frozen=True, slots=True)
class Outcome:
    """How many cases ran, how many of them were accepted, and why others ended their process."""

    cases: int
    accepted: int
    failures: tuple[tuple[int, str], ...]

    def __str__(self) -> str:
        lines = (f"case {case}: {reason}" for case, reason in self.failures)
        return "\n".join([f"{self.cases} cases, {self.accepted} accepted", *lines])


MAX_FAILURES = 5
"""After so many failures, no more cases are run."""

_PROGRESS = struct.Struct("<qq")


def run_cases(
    run: Callable[[int], bool],
    cases: Iterable[int],
    case_seconds: float = 20.0,
    total_seconds: float | None = None,
) -> Outcome:
    """Run `run(case)` for each case in child processes.

    A child that ends before the last case is replaced. `case_seconds` limits each case, and no case
    begins after `total_seconds`.
    """
    remaining = list(cases)
    deadline = None if total_seconds is None else time.monotonic() + total_seconds
    total = accepted = 0
    failures: list[tuple[int, str]] = []
    progress = mmap.mmap(-1, PAGE)
    while remaining and len(failures) < MAX_FAILURES:
        progress[: _PROGRESS.size] = _PROGRESS.pack(0, 0)
        reading, writing = os.pipe()
        sys.stdout.flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # The process may have threads, which the child lacks.
            child = os.fork()
        if child == 0:
            _run_in_child(run, remaining, case_seconds, deadline, progress, writing)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            message = pipe.read().decode(errors="replace")
        _, status = os.waitpid(child, 0)
        done, good = _PROGRESS.unpack(progress[: _PROGRESS.size])
        total, accepted = total + done, accepted + good
        if status == 0:
            break
        reason = message.strip() or _describe_status(status)
        failures.append((remaining[done], reason))
        total += 1
        remaining = remaining[done + 1 :]
    return Outcome(total, accepted, tuple(failures))


def _describe_status(status: int) -> str:
    if not os.WIFSIGNALED(status):
        return f"exit status {os.waitstatus_to_exitcode(status)}"
    number = os.WTERMSIG(status)
    return "time limit" if number == signal.SIGALRM else signal.Signals(number).name


def _run_in_child(
    run: Callable[[int], bool],
    cases: list[int],
    case_seconds: float,
    deadline: float | None,
    progress: mmap.mmap,
    pipe: int,
) -> NoReturn:
    status = 1
    try:
        _prepare_child()
        accepted = 0
        for done, case in enumerate(cases):
            if deadline is not None and time.monotonic() > deadline:
                break
            signal.setitimer(signal.ITIMER_REAL, case_seconds)
            accepted += run(case)
            progress[: _PROGRESS.size] = _PROGRESS.pack(done + 1, accepted)
        status = 0
    except BaseException:
        os.write(pipe, traceback.format_exc()[-4000:].encode())
    finally:
        os._exit(status)


def _prepare_child() -> None:
    """Let signals end the process at once, and bound its memory."""
    import faulthandler

    faulthandler.disable()
    for number in (signal.SIGALRM, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError, ValueError), open("/proc/self/statm") as statm:
        used = int(statm.read().split()[5]) * PAGE
        resource.setrlimit(resource.RLIMIT_DATA, (used + MAX_BYTES, resource.RLIM_INFINITY))
