"""`correlated`: subqueries of one number that look at rows by a column of the query around them.

::

    SELECT u.id, (SELECT avg(amount) FROM orders o WHERE o.user = u.id) AS mean FROM users u

Where that column is NULL for a row, the engine looks at no order for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from sqlml.parsing.places import Span, is_written, span
from sqlml.planner.syntax.joins import is_unnest
from sqlml.types import fold


@dataclass(frozen=True, slots=True)
class Correlated:
    """A subquery that is one aggregate, so that it has one row whatever its columns from outside.

    place: with its brackets. outer: its columns from outside; names: by which it calls its tables,
    folded. sources: CTEs among them.
    """

    node: exp.Subquery
    place: Span
    outer: tuple[exp.Column, ...]
    names: frozenset[str]
    sources: tuple[Scope, ...]

    @property
    def spans(self) -> tuple[Span, ...]:
        """The places of its columns from outside."""
        return tuple(place for column in self.outer if (place := span(column)) is not None)


def correlated(sql: str, node: exp.Expr, scope: Scope) -> list[Correlated]:
    """Those of an expression of a query block; the others are not followed."""
    found = []
    for below in scope.subquery_scopes:
        query = below.expression.parent
        if isinstance(query, exp.Subquery) and any(n is query for n in node.walk()):
            made = _correlated(sql, query, below)
            if made is not None:
                found.append(made)
    return found


def outside_of(node: exp.Expr, subqueries: list[Correlated]) -> Iterator[exp.Expr]:
    """The nodes of an expression but for those of subqueries."""
    whole = [s.node for s in subqueries]
    for part in node.walk(prune=lambda n: any(n is query for query in whole)):
        if not any(part is query for query in whole):
            yield part


def _correlated(sql: str, query: exp.Subquery, scope: Scope) -> Correlated | None:
    select, inner, begin = query.this, span(query.this), span(query)
    if not isinstance(select, exp.Select) or inner is None or begin is None:
        return None
    if any(select.args.get(key) for key in _SEVERAL_ROWS) or len(select.selects) != 1:
        return None
    item = list(select.selects[0].walk())
    if not any(map(_is_aggregate, item)) or any(isinstance(n, exp.Window) for n in item):
        return None
    if any(below is not scope for below in scope.traverse()):
        return None  # with queries of its own
    outer = tuple(scope.external_columns)
    if not outer or not all(is_written(column) and span(column) for column in outer):
        return None
    if any(part is column for part in item for column in outer) or any(map(is_unnest, item)):
        return None  # what it selects is of its own rows alone: an aggregate of others is not its
    names = frozenset(fold(name) for name in scope.sources)
    end = sql.find(")", inner.end)
    if end < 0 or any(fold(column.table) in names for column in outer):
        return None
    below = tuple(s for s in scope.sources.values() if isinstance(s, Scope))
    return Correlated(query, Span(begin.start, end + 1), outer, names, below)


_SEVERAL_ROWS = ("group", "having", "qualify", "windows", "distinct", "with_", "limit", "offset")


def _is_aggregate(node: exp.Expr) -> bool:
    named = isinstance(node, exp.Anonymous) and fold(node.name) in _AGGREGATES
    return named or isinstance(node, exp.AggFunc)


_AGGREGATES = frozenset(
    "any_value arg_max arg_min avg bool_and bool_or count first kurtosis last list max max_by "
    "median min min_by mode product quantile_cont quantile_disc skewness stddev stddev_pop "
    "stddev_samp string_agg sum var_pop var_samp variance".split()
)
