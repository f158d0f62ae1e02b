"""`correlated`: subqueries of one row that look at others by a column of the query around them.

::

    SELECT u.id, (SELECT avg(amount) FROM orders o WHERE o.user = u.id) AS mean FROM users u
    SELECT u.id, l.mean FROM users u, LATERAL (SELECT avg(..) AS mean FROM orders ..) AS l

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
    """A subquery that has one row whatever its columns from outside, as an aggregate does.

    place: with its brackets. outer: its columns from outside; names: by which it calls its tables,
    folded. sources: CTEs among them. A LATERAL without FROM has none of all this: its items are as
    if they stood outside.
    """

    node: exp.Expr
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


def laterals(sql: str, scope: Scope) -> dict[int, tuple[Correlated, Scope]]:
    """The joined subqueries of a block that see the tables before them: by the identity of what is
    joined, with their blocks.

    Raises:
        ValueError: one may have several rows, or none, for a row.
    """
    found = {}
    for join in scope.expression.args.get("joins") or ():
        table = join.this
        below = scope.sources.get(table.alias_or_name)
        if not isinstance(below, Scope):
            continue
        if isinstance(table, exp.Lateral):
            inner = below.subquery_scopes
            own = inner[0] if len(inner) == 1 else None
        elif isinstance(table, exp.Subquery) and below.external_columns:
            own = below
        else:
            continue
        made = None if own is None else _lateral(sql, join, own)
        if own is None or made is None:
            raise ValueError("a LATERAL of several rows, or none")
        found[id(table)] = made, own
    return found


def _lateral(sql: str, join: exp.Join, scope: Scope) -> Correlated | None:
    table = join.this
    query = table.this if isinstance(table, exp.Lateral) else table
    select = scope.expression
    if not isinstance(query, exp.Subquery) or not isinstance(select, exp.Select):
        return None
    if any(select.args.get(key) for key in ("with_", "joins", "qualify", "windows", "distinct")):
        return None
    outer = tuple(scope.external_columns)
    if not all(is_written(column) and span(column) for column in outer):
        return None
    if any(below is not scope for below in scope.traverse()):
        return None  # with queries of its own
    always = _is_cross(join)
    names = frozenset(fold(name) for name in scope.sources)
    if select.args.get("from_") is None:
        several = any(is_unnest(n) for item in select.selects for n in item.walk())
        if several or select.args.get("where") or any(select.args.get(k) for k in _FEWER_ROWS):
            return None
        return Correlated(query, Span(0, 0), (), names, ()) if always or _is_left(join) else None
    if any(fold(column.table) in names for column in outer):
        return None
    begin, inner = span(query), span(select)
    end = -1 if inner is None else sql.find(")", inner.end)
    if begin is None or end < 0 or not outer:
        return None
    below = tuple(s for s in scope.sources.values() if isinstance(s, Scope))
    made = Correlated(query, Span(begin.start, end + 1), outer, names, below)
    if _is_left(join) and _is_of_one_row(select):
        return made
    rows = [select.args.get(key) for key in _FEWER_ROWS]
    items = [list(item.walk()) for item in select.selects]
    if any(rows) or not (always or _is_left(join)):
        return None
    if not all(any(map(_is_aggregate, item)) for item in items):
        return None
    mixed = any(part is column or is_unnest(part) for i in items for part in i for column in outer)
    return None if mixed or any(isinstance(n, exp.Window) for i in items for n in i) else made


_FEWER_ROWS = ("group", "having", "limit", "offset", "sample")


def _is_cross(join: exp.Join) -> bool:
    """Whether it is a comma or CROSS JOIN."""
    told = any(join.args.get(key) for key in ("on", "using", "side", "method"))
    return not told and join.args.get("kind") in (None, "", "CROSS")


def _is_left(join: exp.Join) -> bool:
    """Whether it is LEFT JOIN .. ON true, which keeps each row."""
    on = join.args.get("on")
    told = isinstance(on, exp.Boolean) and bool(on.this)
    return told and str(join.args.get("side") or "").upper() == "LEFT"


def _is_of_one_row(select: exp.Select) -> bool:
    """Whether LIMIT 1 is all that says how many rows there are."""
    limit = select.args.get("limit")
    if not isinstance(limit, exp.Limit) or limit.args.get("limit_options") is not None:
        return False
    number = limit.expression
    return isinstance(number, exp.Literal) and number.this == "1" and not select.args.get("offset")


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
