"""The number of rows in the choice of a way to run: whether it matters, and what ways take then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlml.backends.costs import current
from sqlml.bounded_cache import of_programs
from sqlml.ir.program import Program
from sqlml.planner.choice.choose import Choice, choose
from sqlml.planner.choice.cost import ROWS, Estimate, estimates
from sqlml.planner.choice.settings import OPTIONS, SQL

FEW, MANY = 1, 1_000_000_000
"""Between these the choice is made."""


def depends_on_rows(program: Program, options: Mapping[str, Any]) -> bool:
    """Whether another way is best for few rows, or for very many, under the user's options.

    Times are nearly lines over the rows: what is best at both ends is so in between.
    """
    asked = tuple(str(options.get(name, "auto")).lower() for name in OPTIONS)
    return "auto" in asked and _depends(program, asked)


@of_programs
def _depends(program: Program, asked: tuple[str, ...]) -> bool:
    options = dict(zip(OPTIONS, asked, strict=True))
    made = [choose(program, options, rows) for rows in (ROWS, FEW, MANY)]
    return len({(c.backend, c.strategy, c.device) for c in made}) > 1


def for_rows(program: Program, choice: Choice, rows: int, by_column: bool) -> Choice:
    """A choice with its estimates for another number of rows, given by Arrow or `by_column`."""
    if not choice.estimates or choice.rows == rows:
        return choice
    weighed = estimates(program, current(), rows, by_column=by_column)
    new = {_way(e): e for e in weighed}

    def again(e: Estimate) -> Estimate:
        if e.backend == SQL:  # the engine takes as long for each row
            return replace(e, seconds=e.seconds * rows / choice.rows)
        return new.get(_way(e), e)

    first, *rest = map(again, choice.estimates)
    rest.sort(key=lambda e: e.start + e.seconds)
    return replace(choice, estimates=(first, *rest), rows=rows)


def _way(e: Estimate) -> tuple[str, str, str]:
    return e.backend, e.strategy, e.device
