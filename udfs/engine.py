"""`Engine`: what planning and scoring ask of a SQL engine.

A further engine is a file with a class of this form, which knows nothing of models; mypy checks it
where a session makes a `Context` of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from sqlml.catalog.model import Model
from sqlml.dialects import Dialect
from sqlml.ir.program import Program
from sqlml.planner.binding.context import Context, UniqueKeys
from sqlml.planner.binding.probe_queries import Column
from sqlml.planner.plan.plan import Plan
from sqlml.planner.program.function_names import FunctionSpec


class Engine(Protocol):
    """One connection of a SQL engine. What it cannot say it answers by None."""

    @property
    def dialect(self) -> Dialect:
        """The SQL that it reads."""
        ...

    @property
    def unique_keys(self) -> UniqueKeys | None:
        """Asks for the declared keys of a table; None if joins are never left out."""
        ...

    def bind(self, query: str) -> tuple[Column, ...]:
        """Names and types of a query's result, without running it.

        Raises:
            ProbeError: the query does not bind.
        """
        ...

    def rows(self, query: str) -> int | None:
        """How many rows it expects of a query.

        Raises:
            ProbeError: the query does not bind.
        """
        ...

    def has_function(self, name: str) -> bool:
        """Whether the user has a function of this name."""
        ...

    def column_name(self, expression: str) -> str | None:
        """How it names the column of an unnamed expression."""
        ...

    def type_of(self, value: Any) -> str | None:
        """The SQL type of a parameter's value."""
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


def context_of(engine: Engine, model: Callable[[str], Model]) -> Context:
    """What the planner may ask: the engine, and `model` for the models that references mean."""
    return Context(
        describe=engine.bind,
        model=model,
        is_user_function=engine.has_function,
        unique_keys=engine.unique_keys,
        rows=engine.rows,
        column_name=engine.column_name,
        type_of=engine.type_of,
        dialect=engine.dialect,
    )


def names_to_call(
    engine: Engine, plan: Plan, program: Callable[[str], Program]
) -> Mapping[str, str]:
    """The names of a plan's functions -> the names to call them by, all of them registered.

    Args:
        program: finds a Program by its hash.
    """
    names: dict[str, str] = {}
    for name, (place, *_) in plan.functions.items():
        if f"{name}(" in plan.sql:  # else all rows of its calls are computed in SQL
            call = plan.calls[place]
            known = engine.registered(name)
            names[name] = known or engine.register(call.spec, program(call.program))
    return names
