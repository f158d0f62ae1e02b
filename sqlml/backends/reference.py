"""The reference interpreter as a backend: slow, but correct by definition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlml.backends.base import explain_unsupported
from sqlml.errors import BackendError
from sqlml.ir import reference
from sqlml.ir.program import Program
from sqlml.types import Array


@dataclass(frozen=True, slots=True)
class ReferenceCompiled:
    """A Program that the reference interpreter runs."""

    program: Program

    def run(
        self, inputs: Mapping[str, Array], outputs: Sequence[str] | None = None
    ) -> dict[str, Array]:
        """Score columns with numpy (`Compiled.run`)."""
        return reference.run(self.program, inputs, outputs)


class ReferenceBackend:
    """A backend that runs every operator of the IR with numpy (`ir/reference.py`)."""

    def supports(self, program: Program) -> str | None:
        """Return why it cannot run `program`, or None if it can."""
        return explain_unsupported(program, set(reference.FUNCTIONS) | {"input"})

    def compile(
        self, program: Program, *, device: str = "cpu", strategy: str = "traverse"
    ) -> ReferenceCompiled:
        """Prepare a Program for the CPU; `device` may be "cpu" or "auto"."""
        reason = self.supports(program)
        if reason is not None:
            raise BackendError(f"the reference backend cannot run this model: {reason}")
        if device not in ("cpu", "auto"):
            raise BackendError(f"the reference backend runs on the cpu, not on {device!r}")
        return ReferenceCompiled(program)
