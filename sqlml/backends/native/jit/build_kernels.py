"""`build`: compile the known kernels for a package.

    python -m sqlml.backends.native.jit.build_kernels FOLDER [all]

It runs while the wheel of a release is built (`hatch_build.py`), in processes of its own: numba
reads from environment variables which level of processors it compiles for. That is the level of
this machine, or with `all` each of `processor.LEVELS`, one after the other.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from sqlml.backends.native.jit.known_kernels import KnownKernel, known_kernels
from sqlml.backends.native.jit.map_in_processes import map_in_processes
from sqlml.backends.native.jit.processor import LEVELS, level, settings


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
