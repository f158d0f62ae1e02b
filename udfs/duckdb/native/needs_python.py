"""Decide whether Python must score the batches of a function that takes columns."""

from __future__ import annotations

from sqlml.backends.no_wait import NotReady, no_wait
from sqlml.bounded_cache import cache_text_by_program
from sqlml.ir.program import Program
from sqlml.planner.program.function_names import FunctionSpec
from sqlml.planner.program.named_function import COMPILING
from sqlml.udfs.batch_function import BatchFunction
from sqlml.udfs.make_function import make_engine_function


def needs_python(spec: FunctionSpec, program: Program) -> str | None:
    """Return why Python scores the batches of a function, or None if machine code does.

    Raises:
        ConfigError, BackendError: the function cannot be compiled.
    """
    try:
        with no_wait():
            return _needs_python(program, spec)
    except NotReady:
        return COMPILING


@cache_text_by_program
def _needs_python(program: Program, spec: FunctionSpec) -> str | None:
    from sqlml.udfs.duckdb.native import plan_words  # Imported late, since it imports LLVM.

    if spec.backend != "native":
        return f"backend {spec.backend} runs in Python"
    function = make_engine_function(spec, program).function
    assert isinstance(function, BatchFunction)
    return plan_words.find_obstacle(function)
