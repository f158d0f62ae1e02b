"""The contract of a backend, and the literal table of those there are."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from sqlml.errors import ConfigError, MissingDependencyError
from sqlml.interruption import uninterrupted
from sqlml.ir.operators.opaque import OWNERS
from sqlml.ir.ops import OPS
from sqlml.ir.program import Program
from sqlml.types import Array


class Compiled(Protocol):
    """A Program made ready to run. Thread-safe; picklable (it carries its Program)."""

    @property
    def program(self) -> Program:
        """What it runs."""
        ...

    def run(
        self, inputs: Mapping[str, Array], outputs: Sequence[str] | None = None
    ) -> dict[str, Array]:
        """Score a batch: name -> (n,) or (n, width) array in, name -> (n, k) array out.

        Raises:
            InputTypeError, MissingValueError, UnknownCategoryError: as `ir.reference.run`.
        """
        ...


class Filler(Protocol):
    """One output of a compiled Program, written to a given array. Thread-safe.

    What a Compiled's method `filler(output, columns, width)` gives, where there is one: for rows
    (n, width) of dtype `input` in whose `columns` the Program's only input lies. Integers
    are from 0 to less than `below`, where that is known.
    """

    input: np.dtype[Any]
    dtype: np.dtype[Any]
    width: int
    below: int | None

    def fill(self, x: Array, out: Array) -> int:
        """Write (n, `width`) of `dtype` to `out`; returns a number below 0 unless a row must be
        refused."""
        ...


def filler_of(compiled: Compiled, output: str, columns: Sequence[int], width: int) -> Filler | None:
    """The result of its method `filler`; None if it has none, or none for this output."""
    make = getattr(compiled, "filler", None)
    found: Filler | None = None if make is None else make(output, columns, width)
    return found


def text_filler_of(compiled: Compiled, output: str) -> Any:
    """The result of its method `text_filler`, where it has one: what writes an output of a matrix
    and columns of texts as calls of kernels alone; else None."""
    make = getattr(compiled, "text_filler", None)
    return None if make is None else make(output)


class Backend(Protocol):
    """Something that runs Programs. It never changes one."""

    def supports(self, program: Program) -> str | None:
        """None when it can run the (lowered) Program, else the reason why not."""
        ...

    def compile(
        self, program: Program, *, device: str = "cpu", strategy: str = "traverse"
    ) -> Compiled:
        """Make a (lowered) Program ready to run, trees that were left whole by `strategy`.

        Raises:
            BackendError: `supports` gives a reason, or the device is not there.
        """
        ...


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a backend lives, and what must be installed for it.

    `level` is the level of operators that it runs: "model" as imported, "tensor" once lowered.
    `strategies` are the ways that it has for trees: a lowering of `passes` each, or a kernel of its
    own.
    """

    module: str
    attribute: str
    level: str
    strategies: tuple[str, ...]
    extra: str | None = None


BACKENDS: Mapping[str, Entry] = MappingProxyType(
    {
        "native": Entry(
            "sqlml.backends.native",
            "NativeBackend",
            "model",
            # Whatever is fastest for a batch, or one kernel for all batches.
            ("traverse", "cursor", "descent", "lockstep"),
        ),
        "reference": Entry("sqlml.backends.reference", "ReferenceBackend", "model", ("traverse",)),
        "torch": Entry(
            "sqlml.backends.torch",
            "TorchBackend",
            "tensor",
            ("gemm", "tt", "ptt", "fused"),
            "torch",
        ),
        "onnxruntime": Entry(
            "sqlml.backends.onnxruntime",
            "OnnxRuntimeBackend",
            "tensor",
            ("traverse", "gemm", "tt", "ptt"),
            "onnx",
        ),
    }
)


def load(name: str) -> Backend:
    """The backend called `name`; its library is imported here and not before.

    Raises:
        ConfigError: unknown backend.
        MissingDependencyError: its library is not installed.
    """
    entry = BACKENDS.get(name)
    if entry is None:
        raise ConfigError(
            f"unknown backend {name!r}; backends: auto, {', '.join(sorted(BACKENDS))}"
        )
    named = partial(importlib.import_module, entry.module)
    try:
        module = named() if entry.module in sys.modules else uninterrupted(named)
    except ModuleNotFoundError as error:
        if entry.extra is None or (error.name or "").startswith("sqlml"):
            raise
        raise MissingDependencyError(
            f"backend {name!r} needs {error.name}, which is not installed: "
            f"pip install 'sqlml[{entry.extra}]'"
        ) from None
    backend: Backend = getattr(module, entry.attribute)()
    return backend


def sparse(program: Program, i: int) -> bool:
    """Whether node i reads or makes sparse rows: backends of tensors let the host do that."""
    node = program.nodes[i]
    return node.type.sparse or any(program.nodes[j].type.sparse for j in node.inputs)


def unsupported(program: Program, names: frozenset[str] | set[str]) -> str | None:
    """The reason why a backend with functions for `names` cannot run `program`, or None."""
    missing = sorted({node.op for node in program.nodes} - names)
    if not missing:
        return None
    unknown = [op for op in missing if op not in OPS]
    owners = sorted({OWNERS[op] for op in missing if op in OWNERS})
    if owners and not unknown:
        return f"{', '.join(missing)} runs only on backend {' and '.join(map(repr, owners))}"
    return f"no function for operator {', '.join(unknown or missing)}"
