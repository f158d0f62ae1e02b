"""`outline_of`: one walk over sqlglot's tree of a statement, which gives its `Outline`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from sqlglot import exp

from sqlml.errors import ParseError
from sqlml.parsing.places import outermost
from sqlml.parsing.recursion_limit import deeply
from sqlml.parsing.tokens import tokenize
from sqlml.parsing.trees import trees
from sqlml.planner.syntax import changes, expressions, pipes, queries
from sqlml.planner.syntax.outline import Outline
from sqlml.planner.syntax.walk import At, Reader, Rule, place_of
from sqlml.planner.syntax.widenable_from import single_source

_RULES: Mapping[type[exp.Expr], Rule] = MappingProxyType(
    {**queries.RULES, **pipes.RULES, **changes.RULES, **expressions.RULES}
)


def outline_of(sql: str, dialect: str = "duckdb") -> Outline:
    """The outline of one statement.

    Args:
        dialect: the name of a `Dialect`.

    Raises:
        ParseError: sqlglot cannot read it.
        BindError: an argument of a call that cannot be meant.
    """
    return deeply(sql, dialect, partial(_outline, sql, dialect))


def _outline(sql: str, dialect: str) -> Outline:
    reader = Reader(sql, tokenize(sql, dialect), _RULES)
    found = trees(sql, dialect)
    for tree in found:
        if tree.find(exp.Command) is not None:
            raise ParseError(f"sqlglot cannot parse this kind of statement, {tree.name}", sql, 0)
        reader.walk(tree, At())
    calls = outermost(call.span for call in reader.calls)
    singles = {place_of(n): single_source(n, reader.arguments, calls) for n in reader.selects}
    return Outline(
        sql,
        reader.created,
        reader.kept or reader.created not in ("", "TABLE"),
        changes.prefix_of(found[0]) if len(found) == 1 else None,
        tuple(sorted(reader.calls, key=lambda call: call.span.start)),
        frozenset(reader.values),
        reader.arguments.parameters,
        reader.words,
        {place: single for place, single in singles.items() if single is not None},
        frozenset(reader.comparing),
    )
