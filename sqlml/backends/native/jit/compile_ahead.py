"""`compile_ahead`: compile kernels for this machine before a model needs them, for `sqlml warm`."""

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
from sqlml.backends.native.jit.argument_kinds import Signature, read_kind, spelled
from sqlml.backends.native.jit.object_code import LEVELS, ObjectCode, level, settings
from sqlml.backends.native.jit.specialise import is_kept, keep
from sqlml.long_work import long_work, show_stage

# `map_in_processes`: use all cores for work that holds Python's lock, such as compiling.


_T = TypeVar("_T")
_R = TypeVar("_R")


def map_in_processes(work: Callable[[_T], _R], items: Sequence[_T]) -> Iterator[_R]:
    """Yield the result of `work` for each item, from processes with this one's environment."""
    if not items:
        return
    processes = min(len(items), os.cpu_count() or 1)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context) as pool:
        yield from pool.map(work, items)


# `known_kernels`: the kernels that models need, with their signatures, from `known_kernels.txt`.
#
# They are compiled ahead: for a package (`compile_ahead.py`), and by `sqlml warm`. What a model
# needs besides them is compiled when it is first used. `tests/contract/test_known_kernels.py`
# says what the file lacks.


FILE = Path(__file__).with_name("known_kernels.txt")


@dataclass(frozen=True, slots=True)
class KnownKernel:
    """A function of a module, and the signature for which it is compiled."""

    module: str
    name: str
    signature: Signature

    @property
    def function(self) -> Callable[..., Any]:
        """The function itself."""
        found: Callable[..., Any] = getattr(importlib.import_module(self.module), self.name)
        return found

    def compiled(self) -> ObjectCode:
        """Its machine code, made now; this process cannot run it.

        Raises:
            NotLoadable: only numba can run it.
        """
        for name in getattr(importlib.import_module(self.module), "CALLED", ()):
            if llvm.address_of_symbol(name) is None:  # the engine's functions: numba wants some
                llvm.add_symbol(name, 1)
        return object_code.compiled(self.function, self.signature)

    def line(self) -> str:
        """The kernel in the file.

        >>> KnownKernel("rows.columns", "_take", ("count",)).line()
        "rows.columns _take ('count',)"
        """
        return f"{self.module} {self.name} {spelled(self.signature)}"


def known_kernels() -> tuple[KnownKernel, ...]:
    """All of them, those of a module together."""
    return tuple(map(read_line, FILE.read_text(encoding="utf-8").splitlines()))


def read_line(line: str) -> KnownKernel:
    """The kernel that a line says.

    >>> read_line("rows.columns _take ('count',)").signature
    ('count',)
    """
    module, name, signature = line.split(" ", 2)
    kinds = read_kind(signature)
    assert isinstance(kinds, tuple)
    return KnownKernel(module, name, kinds)


def compile_ahead(begin: Callable[[int], None]) -> int:
    """Compile the known kernels that this machine lacks, and count those that were compiled.

    Args:
        begin: called with the number of missing kernels before they are compiled.

    Raises:
        OSError: no folder of the user's own can keep them.
    """
    missing = [k for k in known_kernels() if not is_kept(k.function, k.signature)]
    if missing and not code_store.writable():
        folders = ", ".join(map(str, code_store.folders()))
        raise PermissionError(errno.EACCES, "no private folder is writable among", folders)
    begin(len(missing))
    compiled = 0
    with long_work("compiling kernels"):
        for count, is_compiled in enumerate(map_in_processes(_compile, missing), start=1):
            compiled += is_compiled
            show_stage(f"{count} of {len(missing)} are done")
    return compiled


def _compile(kernel: KnownKernel) -> bool:
    """Compile and keep one kernel; return False if only numba can run it."""
    with suppress(object_code.NotLoadable):
        keep(kernel.function, kernel.signature, kernel.compiled())
        return True
    return False


# `build`: compile the known kernels for a package.
#
#     python -m sqlml.backends.native.jit.compile_ahead FOLDER [all]
#
# It runs while the wheel of a release is built (`hatch_build.py`), in processes of its own: numba
# reads from environment variables which level of processors it compiles for. That is the level of
# this machine, or with `all` each of `processor.LEVELS`, one after the other.


def build(folder: Path, levels: Sequence[str], kernels: Sequence[KnownKernel]) -> None:
    """Write the machine code of kernels to a folder, a file for each of them and each level."""
    folder.mkdir(parents=True, exist_ok=True)
    for one in levels:
        with _environment(settings(one)):
            for _ in map_in_processes(partial(_build, folder), kernels):
                pass


def _build(folder: Path, kernel: KnownKernel) -> None:
    """Compile one, in a process that has found its level in the environment."""
    from sqlml.backends.native.jit import object_code, shipped_code

    with suppress(object_code.NotLoadable):  # only numba can run it
        shipped_code.write(folder, kernel.function, kernel.signature, kernel.compiled())


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


if __name__ == "__main__":
    own = level()
    asked = tuple(LEVELS) if sys.argv[2:] == ["all"] else () if own is None else (own,)
    build(Path(sys.argv[1]), asked, known_kernels())
