"""Compile kernels before a model needs them, for `sqlml warm`."""

from __future__ import annotations

import errno
import importlib
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from sqlml.backends.native.jit import code_store, object_code
from sqlml.backends.native.jit.argument_kinds import Signature, format_kind, parse_kind
from sqlml.backends.native.jit.code_store import NotLoadable, ObjectCode
from sqlml.backends.native.jit.compiled_kernels import store
from sqlml.backends.native.jit.specialise import is_available
from sqlml.long_work import long_work, show_stage

_T = TypeVar("_T")
_R = TypeVar("_R")


def map_in_processes(function: Callable[[_T], _R], items: Sequence[_T]) -> Iterator[_R]:
    """Yield `function(item)` for each item, run in new processes because numba holds the GIL."""
    if not items:
        return
    num_processes = min(len(items), os.cpu_count() or 1)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(num_processes, context) as pool:
        yield from pool.map(function, items)


FILE = Path(__file__).with_name("known_kernels.txt")
"""The kernels that models need, with their signatures. Any other kernel is compiled when a model
first uses it. `tests/contract/test_known_kernels.py` reports missing lines."""


@dataclass(frozen=True, slots=True)
class KnownKernel:
    """A kernel: the function `name` of a `module`, and a signature."""

    module: str
    name: str
    signature: Signature

    @property
    def function(self) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(importlib.import_module(self.module), self.name)
        return function

    def compile(self) -> ObjectCode:
        """Compile the kernel for other processes; raise NotLoadable if it needs numba to run."""
        return object_code.compile_kernel(self.function, self.signature)

    def to_line(self) -> str:
        """Return the line that describes the kernel in `known_kernels.txt`.

        >>> KnownKernel("rows.column_kernels", "_take", ("count",)).to_line()
        "rows.column_kernels _take ('count',)"
        """
        return f"{self.module} {self.name} {format_kind(self.signature)}"


def read_known_kernels() -> tuple[KnownKernel, ...]:
    return tuple(map(parse_line, FILE.read_text(encoding="utf-8").splitlines()))


def parse_line(line: str) -> KnownKernel:
    """Parse a line of `known_kernels.txt` into a kernel.

    >>> parse_line("rows.column_kernels _take ('count',)").signature
    ('count',)
    """
    module, name, signature = line.split(" ", 2)
    kinds = parse_kind(signature)
    assert isinstance(kinds, tuple)
    return KnownKernel(module, name, kinds)


def compile_ahead(begin: Callable[[int], None]) -> int:
    """Compile the known kernels that this machine lacks; return how many were compiled.

    `begin` is called first, with the number of missing kernels. Raises OSError if no private folder
    is writable.
    """
    missing_kernels = [k for k in read_known_kernels() if not is_available(k.function, k.signature)]
    if missing_kernels and not code_store.has_writable_folder():
        folders = ", ".join(map(str, code_store.list_kernel_folders()))
        raise PermissionError(errno.EACCES, "no private folder is writable among", folders)
    begin(len(missing_kernels))
    compiled_count = 0
    with long_work("compiling kernels"):
        results = map_in_processes(_compile_and_store, missing_kernels)
        for done_count, is_compiled in enumerate(results, start=1):
            compiled_count += is_compiled
            show_stage(f"{done_count} of {len(missing_kernels)} are done")
    return compiled_count


def _compile_and_store(kernel: KnownKernel) -> bool:
    """Compile and store a kernel; return False if it needs numba to run."""
    with suppress(NotLoadable):
        store(kernel.function, kernel.signature, kernel.compile())
        return True
    return False
