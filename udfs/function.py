"""From a FunctionSpec and its Program to the EngineFunction that scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlml.ir.program import Program
from sqlml.passes.split import PACKED
from sqlml.planner.build import compile_core, prepare
from sqlml.planner.choice import Choice
from sqlml.planner.names import FunctionSpec
from sqlml.types import Array
from sqlml.udfs.arrow import BatchFunction
from sqlml.udfs.engine import EngineFunction

_TYPES = {"f32": ("float32", "FLOAT"), "f64": ("float64", "DOUBLE")}


@dataclass(frozen=True, slots=True, eq=False)
class CompiledOnUse:
    """A core that is compiled when the first batch comes: opening a database stays quick."""

    program: Program
    choice: Choice

    def run(
        self, inputs: Mapping[str, Array], outputs: Sequence[str] | None = None
    ) -> dict[str, Array]:
        """See `Compiled.run`."""
        return compile_core(self.program, self.choice).run(inputs, outputs)


def engine_function(spec: FunctionSpec, program: Program, on_use: bool = False) -> EngineFunction:
    """Compile what `spec` asks of `program`, now or (`on_use`) when it is first called.

    Raises:
        ConfigError: the Program has no such output, or there is no such backend.
        BackendError: its backend cannot run it.
    """
    prepared = prepare(program, spec.output, spec.column, spec.layout)
    core = prepared.split.core
    choice = Choice(spec.backend, spec.strategy, spec.device, "function name")
    compiled = CompiledOnUse(core, choice) if on_use else compile_core(core, choice)
    dtype, sql_type = _TYPES[spec.layout]
    made = core.output_type(spec.output)
    integer = made.dtype == "int64"
    width = core.input_type(PACKED).width
    listed = not integer and (spec.output == "proba" and spec.column is None or made.width > 1)
    result = "INTEGER" if integer else "DOUBLE[]" if listed else "DOUBLE"
    batch = BatchFunction(compiled, PACKED, spec.output, width, dtype, integer, made.width)
    return EngineFunction(spec.name, batch, f"{sql_type}[{width}]", result)
