"""`needs_python`: why Python scores the batches of a function that takes columns, if it does."""

from __future__ import annotations

from sqlml.backends.no_wait import NotReady, no_wait
from sqlml.bounded_cache import words_of_programs
from sqlml.ir.program import Program
from sqlml.planner.program.function_names import FunctionSpec
from sqlml.planner.program.named_function import COMPILING
from sqlml.udfs.batch_function import BatchFunction
from sqlml.udfs.make_function import engine_function


def needs_python(spec: FunctionSpec, program: Program) -> str | None:
    """Why Python scores the batches of a function; None if machine code does.

    Raises:
        ConfigError, BackendError: it cannot be compiled.
    """
    try:
        with no_wait():
            return _needs_python(program, spec)
    except NotReady:
        return COMPILING


@words_of_programs
def _needs_python(program: Program, spec: FunctionSpec) -> str | None:
    from sqlml.udfs.duckdb.native import plan_words  # it imports LLVM

    if spec.backend != "native":
        return f"backend {spec.backend} is Python's"
    made = engine_function(spec, program).function
    assert isinstance(made, BatchFunction)
    return plan_words.obstacle(made)
