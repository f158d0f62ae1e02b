"""Stars as arguments: `*`, `t.*`, EXCLUDE, REPLACE, RENAME and COLUMNS, as named columns."""

from __future__ import annotations

import re

from sqlml.errors import BindError
from sqlml.planner.binding.column_types import Bound, bracket
from sqlml.planner.binding.probe_queries import Column, Scope
from sqlml.planner.syntax.outline import Outline, Star
from sqlml.types import fold

# `blamed_place`: where a name that the engine does not know stands in the user's statement.


_BLAMED = re.compile(
    r'with name "?([^"\s]+)"? does not exist|Referenced (?:column|table) "([^"]+)" not found'
    r'|does not have a column named "([^"]+)"|with name `([^`]+)` cannot be resolved'
)
"""The engine's message about an unknown name."""


def blamed_place(outline: Outline, message: str, place: int) -> int:
    """Where in the statement the name in the engine's message stands.

    Of several places, the first after `place`; `place` itself if there is none.
    """
    blamed = _BLAMED.search(message)
    if blamed is None:
        return place
    name = fold(next(g for g in blamed.groups() if g is not None).split(".")[-1])
    found = [start for word, start in outline.words if word == name]
    behind = [start for start in found if start >= place]
    return behind[0] if behind else found[-1] if found else place


_AMBIGUOUS = re.compile(r"""["']([^"'\s]+\.[^"'\s]+)["']|((?:`[^`]+`\.)+`[^`]+`)""")
"""The choices in an engine's error: (use: 'a.id' or 'b.id'), in other quotes elsewhere."""


def meanings(message: str) -> list[str]:
    """The columns that an engine says an ambiguous name may mean.

    >>> meanings("could be: [`c`.`a`, `x`.`a`]"), meanings('use: "c.a" or "x.a"')
    (['c.a', 'x.a'], ['c.a', 'x.a'])
    """
    return [(a or b).replace("`", "") for a, b in _AMBIGUOUS.findall(message)]


def star_columns(star: Star, place: int, scope: Scope) -> list[tuple[str, Bound]]:
    """What a star, which stands at `place`, yields: column name, and the expression that reads it.

    Raises:
        BindError: there is nothing to expand; the error shows the place.
    """
    qualifier = "" if star.qualifier is None else scope.text(star.qualifier)
    found = []
    for column in _expanded(star, place, scope):
        folded = fold(column.name)
        if folded in star.replaced:
            own = bracket(scope.text(star.replaced[folded]))
        elif folded in star.renamed:
            own = qualifier + scope.text(star.renamed[folded])
        else:
            own = qualifier + scope.dialect.quote_name(column.name)
        found.append((column.name, Bound(own, column.type)))
    if any("." in e for e in star.excluded) and not qualifier:
        return [_resolved(name, bound, scope, star.excluded) for name, bound in found]
    return found


def star_names(star: Star, scope: Scope) -> list[str]:
    """The names of the columns that a star yields."""
    return [column.name for column in _expanded(star, star.select.start, scope)]


def _expanded(star: Star, place: int, scope: Scope) -> tuple[Column, ...]:
    """The columns of a star, or an error at its place when there is nothing to expand."""
    try:
        (columns,) = scope.columns([star.select])
    except BindError as error:
        if scope.block is None or not (scope.block.sources or scope.block.parent):
            raise BindError(
                "* needs a FROM clause here; name the features, as in tenure := 12",
                scope.sql,
                place,
            ) from None
        raise BindError(
            error.message, scope.sql, blamed_place(scope.outline, error.message, place)
        ) from None
    return columns


def _resolved(name: str, bound: Bound, scope: Scope, excluded: frozenset[str]) -> tuple[str, Bound]:
    """After `* EXCLUDE (b.id)` a bare `id` is still ambiguous to the engine; name its table."""
    try:
        scope.ask([bound.sql])
    except BindError as error:
        for choice in meanings(error.message):
            if fold(choice) not in excluded:
                own = ".".join(map(scope.dialect.quote_name, choice.split(".")))
                return name, Bound(own, bound.type)
    return name, bound
