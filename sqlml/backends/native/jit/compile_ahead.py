"""Compile kernels before a model needs them, for `sqlml warm` and for wheels."""

from __future__ import annotations

import errno
import importlib
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import llvmlite.binding as llvm

from sqlml.backends.native.jit import code_store, object_code
from sqlml.backends.native.jit.argument_kinds import Signature, format_kind, parse_kind
from sqlml.backends.native.jit.object_code import LEVELS, ObjectCode, find_level, get_level_settings
from sqlml.backends.native.jit.specialise import is_on_disk, store
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
        # numba needs an address for each function of the engine.
        for name in getattr(importlib.import_module(self.module), "CALLED", ()):
            if llvm.address_of_symbol(name) is None:
                llvm.add_symbol(name, 1)
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
    missing_kernels = [k for k in read_known_kernels() if not is_on_disk(k.function, k.signature)]
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
    with suppress(object_code.NotLoadable):
        store(kernel.function, kernel.signature, kernel.compile())
        return True
    return False


# `build_kernels` compiles the known kernels for a package:
#
#     python -m sqlml.backends.native.jit.compile_ahead FOLDER [all]
#
# It runs while the wheel of a release is built (`hatch_build.py`). It compiles in new processes,
# because numba reads the processor level from environment variables. Without `all`, it compiles
# for the level of this machine; with `all`, for every level in `object_code.LEVELS`.


def build_kernels(folder: Path, levels: Sequence[str], kernels: Sequence[KnownKernel]) -> None:
    """Write the machine code of `kernels` to `folder`, with one file per kernel and level."""
    folder.mkdir(parents=True, exist_ok=True)
    for level_name in levels:
        with _set_environment(get_level_settings(level_name)):
            for _ in map_in_processes(partial(_build_kernel, folder), kernels):
                pass


def _build_kernel(folder: Path, kernel: KnownKernel) -> None:
    with suppress(object_code.NotLoadable):  # Only numba can run some kernels.
        name = code_store.make_shipped_name(kernel.function, kernel.signature)
        (folder / name).write_bytes(code_store.pack(name, kernel.compile()))


@contextmanager
def _set_environment(values: Mapping[str, str]) -> Iterator[None]:
    old_environment = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(old_environment)


if __name__ == "__main__":
    own_level = find_level()
    own_levels = () if own_level is None else (own_level,)
    levels = tuple(LEVELS) if sys.argv[2:] == ["all"] else own_levels
    build_kernels(Path(sys.argv[1]), levels, read_known_kernels())
