"""`known_kernels`: the kernels that models need, with their signatures, from `known_kernels.txt`.

They are compiled ahead: for a package (`build_kernels.py`), and by `sqlml warm`. What a model needs
besides them is compiled when it is first used. `tests/contract/test_known_kernels.py` says what the
file lacks.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from sqlml.backends.native.jit import object_code
from sqlml.backends.native.jit.argument_kinds import Signature, read_kind, spelled
from sqlml.backends.native.jit.object_code import ObjectCode

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
