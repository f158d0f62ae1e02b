"""Stars as arguments: `*`, `t.*`, EXCLUDE, REPLACE, RENAME and COLUMNS, as named columns."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlml.errors import BindError
from sqlml.front.lexer import Token, closing, split_commas
from sqlml.planner.calls import Argument
from sqlml.planner.column_types import Bound, bracket
from sqlml.planner.probe import Column
from sqlml.planner.scope import Scope
from sqlml.types import fold

_AMBIGUOUS = re.compile(r"""["']([^"'\s]+\.[^"'\s]+)["']|((?:`[^`]+`\.)+`[^`]+`)""")
"""The choices in an engine's error: (use: 'a.id' or 'b.id'), in other quotes elsewhere."""


def meanings(message: str) -> list[str]:
    """The columns that an engine says an ambiguous name may mean.

    >>> meanings("could be: [`c`.`a`, `x`.`a`]"), meanings('use: "c.a" or "x.a"')
    (['c.a', 'x.a'], ['c.a', 'x.a'])
    """
    return [(a or b).replace("`", "") for a, b in _AMBIGUOUS.findall(message)]


_STAR_CLAUSES = frozenset(
    {"EXCLUDE", "EXCEPT", "REPLACE", "RENAME", "LIKE", "ILIKE", "NOT", "GLOB", "SIMILAR"}
)


def is_star(tokens: Sequence[Token], argument: Argument) -> bool:
    """`*` and `t.*`, also with EXCLUDE and the like, and `[*|t.]COLUMNS(..)`."""
    start, end = argument.start, argument.end
    while start + 1 < end and tokens[start].is_identifier and tokens[start + 1].is_symbol("."):
        start += 2
    if tokens[start].is_symbol("*"):
        if start + 1 == end or tokens[start + 1].upper in _STAR_CLAUSES:
            return True
        start += 1
    return (
        tokens[start].upper == "COLUMNS"
        and start + 1 < end
        and tokens[start + 1].is_symbol("(")
        and closing(tokens, start + 1) == end - 1
    )


def star_columns(star: Argument, scope: Scope) -> list[tuple[str, Bound]]:
    """What a star yields: column name, and the expression that reads it."""
    tokens = scope.tokens
    unpacked = tokens[star.start].is_symbol("*") and tokens[star.start + 1].upper == "COLUMNS"
    start = star.start + unpacked
    columns = _expanded(star, start, scope)
    qualifier = _qualifier(scope, start, star.end)
    replaced = _clause_items(tokens, star, "REPLACE")
    renamed = _clause_items(tokens, star, "RENAME")
    expressions = {
        fold(tokens[end - 1].text): bracket(scope.span(begin, end - 2)) for begin, end in replaced
    }
    originals = {fold(tokens[end - 1].text): scope.span(end - 3, end - 2) for _, end in renamed}
    found = []
    for column in columns:
        folded = fold(column.name)
        own = qualifier + originals.get(folded, scope.dialect.quote_name(column.name))
        found.append((column.name, Bound(expressions.get(folded, own), column.type)))
    excluded = frozenset(
        fold(".".join(t.text for t in tokens[begin:end] if t.is_identifier))
        for word in ("EXCLUDE", "EXCEPT")
        for begin, end in _clause_items(tokens, star, word)
    )
    if any("." in e for e in excluded) and not qualifier:
        return [_resolved(name, bound, scope, excluded) for name, bound in found]
    return found


def star_names(star: Argument, scope: Scope) -> list[str]:
    """The names of the columns that a star yields."""
    tokens = scope.tokens
    unpacked = tokens[star.start].is_symbol("*") and tokens[star.start + 1].upper == "COLUMNS"
    return [column.name for column in _expanded(star, star.start + unpacked, scope)]


def _qualifier(scope: Scope, start: int, end: int) -> str:
    """`t.` of `t.*`, `t.COLUMNS(..)` and `COLUMNS(t.*)`; empty where a star names no table."""
    tokens = scope.tokens
    if tokens[start].upper == "COLUMNS" and tokens[start + 1].is_symbol("("):
        start, end = start + 2, end - 1
    stop = start
    while stop + 1 < end and tokens[stop].is_identifier and tokens[stop + 1].is_symbol("."):
        stop += 2
    return scope.span(start, stop) if stop > start else ""


def _expanded(star: Argument, start: int, scope: Scope) -> tuple[Column, ...]:
    """The columns of a star, or an error at its place when there is nothing to expand."""
    try:
        (columns,) = scope.columns([(start, star.end)])
    except BindError as error:
        place = scope.tokens[star.start].start
        if scope.block is None or not (scope.block.sources or scope.block.parent):
            raise BindError(
                "* needs a FROM clause here; name the features, as in tenure := 12",
                scope.sql,
                place,
            ) from None
        raise BindError(error.message, scope.sql, scope.place_of(error.message, place)) from None
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


def _clause_items(tokens: Sequence[Token], star: Argument, word: str) -> list[tuple[int, int]]:
    """Token ranges of the items in `* WORD (item, ..)`, or of the single item without brackets."""
    for k in range(star.start, star.end):
        if tokens[k].upper == word and k + 1 < star.end:
            if tokens[k + 1].is_symbol("("):
                close = closing(tokens, k + 1)
                return split_commas(tokens, k + 2, close) if close is not None else []
            return [(k + 1, star.end)]
    return []
