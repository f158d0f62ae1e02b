"""`route_by_column`: whether a function takes columns, and whether it then needs Python at all."""

from __future__ import annotations

from dataclasses import replace

from sqlml.bounded_cache import of_programs
from sqlml.ir.program import Program
from sqlml.planner.program.function_names import FunctionSpec
from sqlml.planner.program.route import Route
from sqlml.udfs.batch_function import BatchFunction
from sqlml.udfs.make_function import engine_function


def route_by_column(spec: FunctionSpec, program: Program) -> Route:
    """How rows reach a function of a database that has native ones."""
    return _route(program, replace(spec, by_column=True))


@of_programs
def _route(program: Program, spec: FunctionSpec) -> Route:
    from sqlml.udfs.duckdb.native.plan_words import needs_python  # it imports LLVM

    made = engine_function(spec, program).function
    assert isinstance(made, BatchFunction)
    if made.texts or made.lookup is not None:
        return Route(False, "it reads texts")
    if spec.backend != "native":
        return Route(True, f"backend {spec.backend} is Python's")
    return Route(True, needs_python(made))
