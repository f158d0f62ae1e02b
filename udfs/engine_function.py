"""`EngineFunction`: a function as an engine registers it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from sqlml.planner.program.named_functions import NamedFunction
    from sqlml.udfs.batch_function import BatchFunction


class Measured(Protocol):
    """A function that is measured, as machine code sees it."""

    def batch_function(self) -> BatchFunction:
        """What scores now."""
        ...

    def enter(self) -> None:
        """A batch begins on this thread."""
        ...

    def leave(self, rows: int) -> None:
        """A batch of so many rows ends on this thread."""
        ...


@dataclass(frozen=True, slots=True)
class EngineFunction:
    """A function to register: its name, its batch function, and its types in the engine.

    Without a `function` it is one of ours, to be made from its name when the first batch comes.
    A `volatile` one is evaluated where it is written, and nowhere else. One that is called
    `by_column` may be machine code that the engine calls without Python; that tells `measured`. So
    may one that is `named`, which calls the function whose name is its first argument, and one of
    `models`, which calls that of the model that a row names.
    """

    name: str
    function: Callable[..., Any] | None
    argument_types: tuple[str, ...]
    result_type: str
    volatile: bool = False
    by_column: bool = False
    named: bool = False
    measured: Measured | None = None
    models: NamedFunction | None = None

    @property
    def types(self) -> tuple[str, ...]:
        """Its arguments' types, and that of its result."""
        return (*self.argument_types, self.result_type)


def taking(count: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` as one of `count` columns: an engine looks at the signature."""

    def call(*columns: Any) -> Any:
        return function(*columns)

    named = [
        inspect.Parameter(f"column{k}", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        for k in range(count)
    ]
    call.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]
    return call
