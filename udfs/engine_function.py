"""`EngineFunction`: a function as an engine registers it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class EngineFunction:
    """A function to register: its name, its batch function, and its types in the engine.

    Without a `function` it is one of ours, to be made from its name when the first batch comes.
    A `volatile` one is evaluated where it is written, and nowhere else.
    """

    name: str
    function: Callable[..., Any] | None
    argument_types: tuple[str, ...]
    result_type: str
    volatile: bool = False


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
