"""The interface between the planner and a SQL engine.

An engine is a class with the methods of `Engine`. It knows nothing about models; mypy checks it
where a session calls `names_to_call`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from sqlml.catalog.model import Model
from sqlml.ir.program import Program
from sqlml.planner.binding.context import Context
from sqlml.planner.plan.plan import Plan
from sqlml.planner.program.function_names import FunctionSpec
from sqlml.planner.program.named_function import NamedFunction


class Engine(Protocol):
    """One connection of a SQL engine."""

    def make_context(self, model: Callable[[str], Model]) -> Context:
        """Return the planner's view of the engine, with `model` to resolve model references."""
        ...

    def find_registered(self, name: str) -> str | None:
        """Return the name to call a permanently registered function by, or None."""
        ...

    def register(self, spec: FunctionSpec, program: Program) -> str:
        """Make the Program parts that `spec` selects callable, and return the name to call.

        Raises:
            ConfigError, BackendError: the function cannot be compiled.
        """
        ...

    def register_named(self, function: NamedFunction, program: Callable[[str], Program]) -> str:
        """Register a function that scores each row with the model named in it.

        Returns the name to call.

        Args:
            program: finds a Program by its hash.

        Raises:
            ConfigError, BackendError: a model cannot be compiled.
        """
        ...


def register_functions(
    engine: Engine, plan: Plan, program: Callable[[str], Program]
) -> Mapping[str, str]:
    """Register the functions of a plan, and return the name to call for each.

    Args:
        program: finds a Program by its hash.
    """
    names: dict[str, str] = {}
    for name, spec in plan.specs.items():
        # If the SQL does not contain the call, SQL alone computes all of its rows.
        if f"{name}(" in plan.sql:
            names[name] = engine.find_registered(name) or engine.register(
                spec, program(spec.program)
            )
    for function in plan.functions_of_models:
        registered = engine.find_registered(function.name)
        names[function.name] = registered or engine.register_named(function, program)
    return names
