"""`Engine`: what planning and scoring ask of a SQL engine.

A further engine is a file with a class of this form, which knows nothing of models; mypy checks it
where a session asks for the names to call.
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

    def context(self, model: Callable[[str], Model]) -> Context:
        """What the planner may ask: the engine, and `model` for the models that references mean."""
        ...

    def registered(self, name: str) -> str | None:
        """The name to call a function by that is registered for good; None: register it."""
        ...

    def register(self, spec: FunctionSpec, program: Program) -> str:
        """Make what `spec` asks of a Program callable; returns the name to call.

        Raises:
            ConfigError, BackendError: it cannot be compiled.
        """
        ...

    def register_named(self, function: NamedFunction, program: Callable[[str], Program]) -> str:
        """Make a function callable that scores each row with the model that it names; returns the
        name to call.

        Args:
            program: finds a Program by its hash.

        Raises:
            ConfigError, BackendError: a model cannot be compiled.
        """
        ...


def names_to_call(
    engine: Engine, plan: Plan, program: Callable[[str], Program]
) -> Mapping[str, str]:
    """The names of a plan's functions -> the names to call them by, all of them registered.

    Args:
        program: finds a Program by its hash.
    """
    names: dict[str, str] = {}
    for name, spec in plan.specs.items():
        if f"{name}(" in plan.sql:  # else all rows of its calls are computed in SQL
            known = engine.registered(name)
            names[name] = known or engine.register(spec, program(spec.program))
    for function in plan.named:
        known = engine.registered(function.name)
        names[function.name] = known or engine.register_named(function, program)
    return names
