"""Stars as arguments: `*`, `t.*`, EXCLUDE, REPLACE, RENAME and COLUMNS become named columns."""

from __future__ import annotations

import re

from sqlml.errors import BindError
from sqlml.planner.binding.column_types import Bound, parenthesize
from sqlml.planner.binding.probe_queries import Column, Scope
from sqlml.planner.syntax.outline import Outline, Star
from sqlml.types import fold

_UNKNOWN_NAME = re.compile(
    r'with name "?([^"\s]+)"? does not exist|Referenced (?:column|table) "([^"]+)" not found'
    r'|does not have a column named "([^"]+)"|with name `([^`]+)` cannot be resolved'
)
"""The engine's messages about an unknown name."""


def find_blamed_offset(outline: Outline, message: str, offset: int) -> int:
    """Return the offset of the name in the engine's message.

    If it occurs several times, the first after `offset` is returned; `offset` itself if it does not
    occur.
    """
    match = _UNKNOWN_NAME.search(message)
    if match is None:
        return offset
    name = fold(next(g for g in match.groups() if g is not None).split(".")[-1])
    offsets = [start for word, start in outline.identifiers if word == name]
    later_offsets = [start for start in offsets if start >= offset]
    return later_offsets[0] if later_offsets else offsets[-1] if offsets else offset


_AMBIGUOUS = re.compile(r"""["']([^"'\s]+\.[^"'\s]+)["']|((?:`[^`]+`\.)+`[^`]+`)""")
"""The candidates in an engine's error: (use: 'a.id' or 'b.id'), or in other quotes."""


def read_candidates(message: str) -> list[str]:
    """Return the columns that an ambiguous name may mean according to the engine's message.

    >>> read_candidates("could be: [`c`.`a`, `x`.`a`]"), read_candidates('use: "c.a" or "x.a"')
    (['c.a', 'x.a'], ['c.a', 'x.a'])
    """
    return [(a or b).replace("`", "") for a, b in _AMBIGUOUS.findall(message)]


def expand_star(star: Star, offset: int, scope: Scope) -> list[tuple[str, Bound]]:
    """Return the columns of a star at `offset`: each name with the expression that reads it.

    Raises:
        BindError: there is nothing to expand; the error points at the star.
    """
    qualifier = "" if star.qualifier is None else scope.text(star.qualifier)
    columns = []
    for column in _describe_star(star, offset, scope):
        folded = fold(column.name)
        if folded in star.replaced:
            column_sql = parenthesize(scope.text(star.replaced[folded]))
        elif folded in star.renamed:
            column_sql = qualifier + scope.text(star.renamed[folded])
        else:
            column_sql = qualifier + scope.dialect.quote_name(column.name)
        columns.append((column.name, Bound(column_sql, column.type)))
    if any("." in e for e in star.excluded) and not qualifier:
        return [_qualify_ambiguous(name, bound, scope, star.excluded) for name, bound in columns]
    return columns


def list_star_names(star: Star, scope: Scope) -> list[str]:
    """Return the names of a star's columns."""
    return [column.name for column in _describe_star(star, star.select.start, scope)]


def _describe_star(star: Star, offset: int, scope: Scope) -> tuple[Column, ...]:
    try:
        (columns,) = scope.columns([star.select])
    except BindError as error:
        if scope.block is None or not (scope.block.sources or scope.block.parent):
            raise BindError(
                "* needs a FROM clause here; name the features, as in tenure := 12",
                scope.sql,
                offset,
            ) from None
        raise BindError(
            error.message, scope.sql, find_blamed_offset(scope.outline, error.message, offset)
        ) from None
    return columns


def _qualify_ambiguous(
    name: str, bound: Bound, scope: Scope, excluded: frozenset[str]
) -> tuple[str, Bound]:
    """Qualify a column with its table: after `* EXCLUDE (b.id)` a bare `id` is still ambiguous to
    the engine.
    """
    try:
        scope.describe_items([bound.sql])
    except BindError as error:
        for choice in read_candidates(error.message):
            if fold(choice) not in excluded:
                qualified = ".".join(map(scope.dialect.quote_name, choice.split(".")))
                return name, Bound(qualified, bound.type)
    return name, bound
