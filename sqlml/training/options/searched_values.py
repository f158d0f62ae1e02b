"""`Searched`: the values among which a parameter is searched for: a range, or a list of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlml.errors import ConfigError
from sqlml.parsing.statements import Call

WIDE = 10
"""A range of numbers whose ends differ by so many times is searched by their logarithm."""


@dataclass(frozen=True, slots=True)
class Range:
    """hparam_range(low, high): both ends are among the values; of integers only integers are."""

    low: int | float
    high: int | float

    @property
    def is_wide(self) -> bool:
        """Whether the logarithm is searched."""
        return self.low > 0 and self.high / self.low >= WIDE


@dataclass(frozen=True, slots=True)
class Candidates:
    """hparam_candidates([..])."""

    values: tuple[Any, ...]


Searched = Range | Candidates


def searched(name: str, call: Call) -> Searched:
    """What an option's call says.

    Raises:
        ConfigError: it is another function, or has other arguments.
    """
    given = call.arguments
    if call.name == "hparam_range":
        numbers = [n for n in given if isinstance(n, int | float) and not isinstance(n, bool)]
        if len(given) == len(numbers) == 2 and numbers[0] < numbers[1]:
            return Range(numbers[0], numbers[1])
        raise ConfigError(f"option {name}: write hparam_range(low, high) of two numbers in order")
    if call.name == "hparam_candidates":
        if len(given) == 1 and isinstance(given[0], tuple) and given[0]:
            return Candidates(given[0])
        raise ConfigError(f"option {name}: write hparam_candidates([..]) of one value or more")
    raise ConfigError(
        f"option {name}: unknown function {call.name}; functions: hparam_range, hparam_candidates"
    )
