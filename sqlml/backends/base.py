"""The contract of a backend, and the table of all backends."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from sqlml.backends.row_blocks import Batch
from sqlml.errors import BackendError, ConfigError, MissingDependencyError
from sqlml.interruption import run_uninterrupted
from sqlml.ir import reference
from sqlml.ir.operators.opaque import OWNING_BACKENDS
from sqlml.ir.ops import OPS
from sqlml.ir.program import Program
from sqlml.types import Array


class CompiledProgram(Protocol):
    """A Program that is ready to run. It is thread-safe and can be pickled."""

    @property
    def program(self) -> Program: ...

    def run(self, inputs: Batch, outputs: Sequence[str] | None = None) -> dict[str, Array]:
        """Score a batch as `ir.reference.run` does, with the same errors."""
        ...


class Filler(Protocol):
    """A thread-safe object that writes one output of a compiled Program into an array.

    A CompiledProgram may have a method `filler(output, columns, width)` that returns a Filler. The
    Filler reads rows (n, width) of dtype `input`, in which `columns` are the only input of the
    Program. Integer results are at least 0, and less than `below` unless `below` is None.
    """

    input: np.dtype[Any]
    dtype: np.dtype[Any]
    width: int
    below: int | None

    def fill(self, x: Array, out: Array) -> int:
        """Write results (n, `width`) to `out`; return a negative number if no row is rejected."""
        ...


def find_filler(
    compiled: CompiledProgram, output: str, columns: Sequence[int], width: int
) -> Filler | None:
    """Return the Filler of `compiled` for `output`, or None if there is no such Filler."""
    make_filler: Callable[..., Filler | None] | None = getattr(compiled, "filler", None)
    return None if make_filler is None else make_filler(output, columns, width)


def find_text_filler(compiled: CompiledProgram, output: str) -> Any:
    """Return a filler that reads a matrix and string columns, or None if unsupported."""
    make_filler = getattr(compiled, "text_filler", None)
    return None if make_filler is None else make_filler(output)


class Backend(Protocol):
    """An engine that runs Programs and never changes them."""

    def supports(self, program: Program) -> str | None:
        """Return why the backend cannot run the Program, or None if it can."""
        ...

    def compile(
        self, program: Program, *, device: str = "cpu", strategy: str = "traverse"
    ) -> CompiledProgram:
        """Compile a Program; `strategy` selects how trees that were not lowered run."""
        ...


@dataclass(frozen=True, slots=True)
class BackendEntry:
    """The module of a backend, and the extra of sqlml that the backend needs.

    A backend of `level` "model" runs operators as imported; a backend of level "tensor" needs
    lowered operators. Each of the `strategies` for trees is a lowering in `passes` or a kernel.
    """

    module: str
    attribute: str
    level: str
    strategies: tuple[str, ...]
    extra: str | None = None


@dataclass(frozen=True, slots=True)
class ReferenceCompiled:
    """A Program that the reference interpreter runs."""

    program: Program

    def run(self, inputs: Batch, outputs: Sequence[str] | None = None) -> dict[str, Array]:
        return reference.run(self.program, inputs, outputs)


class ReferenceBackend:
    """The reference interpreter as a backend, slow but correct by definition."""

    def supports(self, program: Program) -> str | None:
        return explain_unsupported(program, {*reference.FUNCTIONS, "input"})

    def compile(
        self, program: Program, *, device: str = "cpu", strategy: str = "traverse"
    ) -> ReferenceCompiled:
        require_support("reference", self.supports(program))
        if device not in ("cpu", "auto"):
            raise BackendError(f"the reference backend runs on the cpu, not on {device!r}")
        return ReferenceCompiled(program)


# Strategy "traverse" selects the fastest kernel for each batch; the others name one kernel.
_NATIVE = ("traverse", "cursor", "descent", "lockstep")
_LOWERED = ("gemm", "tt", "ptt")

BACKENDS: Mapping[str, BackendEntry] = {
    "native": BackendEntry("sqlml.backends.native.backend", "NativeBackend", "model", _NATIVE),
    "reference": BackendEntry("sqlml.backends.base", "ReferenceBackend", "model", ("traverse",)),
    "torch": BackendEntry(
        "sqlml.backends.torch.backend", "TorchBackend", "tensor", (*_LOWERED, "fused"), "torch"
    ),
    "onnxruntime": BackendEntry(
        "sqlml.backends.onnxruntime.backend",
        "OnnxRuntimeBackend",
        "tensor",
        ("traverse", *_LOWERED),
        "onnx",
    ),
}


def load_backend(name: str) -> Backend:
    entry = BACKENDS.get(name)
    if entry is None:
        names = ", ".join(sorted(BACKENDS))
        raise ConfigError(f"unknown backend {name!r}; backends: auto, {names}")
    import_module = partial(importlib.import_module, entry.module)
    is_loaded = entry.module in sys.modules
    try:
        module = import_module() if is_loaded else run_uninterrupted(import_module)
    except ModuleNotFoundError as error:
        if entry.extra is None or (error.name or "").startswith("sqlml"):
            raise
        raise MissingDependencyError(
            f"backend {name!r} needs {error.name}, which is not installed: "
            f"pip install 'sqlml[{entry.extra}]'"
        ) from None
    backend: Backend = getattr(module, entry.attribute)()
    return backend


def touches_sparse_rows(program: Program, i: int) -> bool:
    """Return True if node i reads or returns sparse rows; tensor backends run it on the host."""
    node = program.nodes[i]
    return node.type.sparse or any(program.nodes[j].type.sparse for j in node.inputs)


def require_support(backend: str, reason: str | None, hint: str = "") -> None:
    """Raise BackendError unless `reason`, the result of `Backend.supports`, is None."""
    if reason is not None:
        raise BackendError(f"the {backend} backend cannot run this model: {reason}{hint}")


def explain_unsupported(program: Program, operators: frozenset[str] | set[str]) -> str | None:
    """Return why a backend of these `operators` cannot run `program`, or None if it can."""
    missing = sorted({node.op for node in program.nodes} - operators)
    if not missing:
        return None
    unknown = [op for op in missing if op not in OPS]
    owners = sorted({OWNING_BACKENDS[op] for op in missing if op in OWNING_BACKENDS})
    if owners and not unknown:
        return f"{', '.join(missing)} runs only on backend {' and '.join(map(repr, owners))}"
    return f"no function for operator {', '.join(unknown or missing)}"
