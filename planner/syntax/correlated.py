"""Correlated subqueries and LATERAL joins of one row, whose sources a `Lineage` follows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from sqlml.parsing.places import Span, is_written, span
from sqlml.planner.syntax.joins import is_unnest
from sqlml.types import fold


@dataclass(frozen=True, slots=True)
class CorrelatedSubquery:
    """A correlated subquery that has exactly one row for each outer row, as an aggregate has.

    ::

        SELECT u.id, (SELECT avg(amount) FROM orders o WHERE o.user = u.id) AS mean FROM users u
        SELECT u.id, l.mean FROM users u, LATERAL (SELECT avg(...) AS mean FROM orders ...) AS l

    If the outer column is NULL for a row, the engine reads no order for it. A LATERAL without FROM
    has none of these attributes: its items behave as if they stood outside.

    Attributes:
        span: the subquery with its brackets.
        outer: its columns of outer tables.
        names: the folded names of its own tables.
        sources: the CTEs among its tables.
    """

    node: exp.Expr
    span: Span
    outer: tuple[exp.Column, ...]
    names: frozenset[str]
    sources: tuple[Scope, ...]

    @property
    def outer_spans(self) -> tuple[Span, ...]:
        """The spans of its outer columns."""
        return tuple(place for column in self.outer if (place := span(column)) is not None)


def find_correlated(sql: str, node: exp.Expr, scope: Scope) -> list[CorrelatedSubquery]:
    """Return the correlated subqueries of an expression that can be followed."""
    subqueries = []
    for below in scope.subquery_scopes:
        query = below.expression.parent
        if isinstance(query, exp.Subquery) and any(n is query for n in node.walk()):
            subquery = _read_correlated(sql, query, below)
            if subquery is not None:
                subqueries.append(subquery)
    return subqueries


def walk_outside(node: exp.Expr, subqueries: list[CorrelatedSubquery]) -> Iterator[exp.Expr]:
    """Yield the nodes of an expression outside of subqueries."""
    nodes = [s.node for s in subqueries]
    for part in node.walk(prune=lambda n: any(n is query for query in nodes)):
        if not any(part is query for query in nodes):
            yield part


def find_laterals(sql: str, scope: Scope) -> dict[int, tuple[CorrelatedSubquery, Scope]]:
    """Return the joined subqueries of a block that use earlier tables, with their scopes, by `id`
    of the joined node.

    Raises:
        ValueError: a subquery may have several rows, or none, for a row.
    """
    result = {}
    for join in scope.expression.args.get("joins") or ():
        table = join.this
        below = scope.sources.get(table.alias_or_name)
        if not isinstance(below, Scope):
            continue
        if isinstance(table, exp.Lateral):
            inner = below.subquery_scopes
            inner_scope = inner[0] if len(inner) == 1 else None
        elif isinstance(table, exp.Subquery) and below.external_columns:
            inner_scope = below
        else:
            continue
        subquery = None if inner_scope is None else _read_lateral(sql, join, inner_scope)
        if inner_scope is None or subquery is None:
            raise ValueError("a LATERAL of several rows, or none")
        result[id(table)] = subquery, inner_scope
    return result


def _read_lateral(sql: str, join: exp.Join, scope: Scope) -> CorrelatedSubquery | None:
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
    is_cross = _is_cross_join(join)
    names = frozenset(fold(name) for name in scope.sources)
    if select.args.get("from_") is None:
        makes_rows = any(is_unnest(n) for item in select.selects for n in item.walk())
        if makes_rows or select.args.get("where") or any(select.args.get(k) for k in _ROW_CLAUSES):
            return None
        return (
            CorrelatedSubquery(query, Span(0, 0), (), names, ())
            if is_cross or _is_left_join_on_true(join)
            else None
        )
    if any(fold(column.table) in names for column in outer):
        return None
    outer_span, inner = span(query), span(select)
    end = -1 if inner is None else sql.find(")", inner.end)
    if outer_span is None or end < 0 or not outer:
        return None
    below = tuple(s for s in scope.sources.values() if isinstance(s, Scope))
    subquery = CorrelatedSubquery(query, Span(outer_span.start, end + 1), outer, names, below)
    if _is_left_join_on_true(join) and _is_limited_to_one(select):
        return subquery
    rows = [select.args.get(key) for key in _ROW_CLAUSES]
    items = [list(item.walk()) for item in select.selects]
    if any(rows) or not (is_cross or _is_left_join_on_true(join)):
        return None
    if not all(any(map(_is_aggregate, item)) for item in items):
        return None
    mixes_rows = any(
        part is column or is_unnest(part) for i in items for part in i for column in outer
    )
    return (
        None if mixes_rows or any(isinstance(n, exp.Window) for i in items for n in i) else subquery
    )


_ROW_CLAUSES = ("group", "having", "limit", "offset", "sample")


def _is_cross_join(join: exp.Join) -> bool:
    """Return whether a join is a comma or CROSS JOIN."""
    has_condition = any(join.args.get(key) for key in ("on", "using", "side", "method"))
    return not has_condition and join.args.get("kind") in (None, "", "CROSS")


def _is_left_join_on_true(join: exp.Join) -> bool:
    """Return whether a join is LEFT JOIN ... ON true, which keeps each row."""
    on = join.args.get("on")
    is_true = isinstance(on, exp.Boolean) and bool(on.this)
    return is_true and str(join.args.get("side") or "").upper() == "LEFT"


def _is_limited_to_one(select: exp.Select) -> bool:
    """Return whether LIMIT 1 is the only restriction of the number of rows."""
    limit = select.args.get("limit")
    if not isinstance(limit, exp.Limit) or limit.args.get("limit_options") is not None:
        return False
    number = limit.expression
    return isinstance(number, exp.Literal) and number.this == "1" and not select.args.get("offset")


def _read_correlated(sql: str, query: exp.Subquery, scope: Scope) -> CorrelatedSubquery | None:
    select, inner, begin = query.this, span(query.this), span(query)
    if not isinstance(select, exp.Select) or inner is None or begin is None:
        return None
    if any(select.args.get(key) for key in _NOT_ONE_ROW_CLAUSES) or len(select.selects) != 1:
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
    return CorrelatedSubquery(query, Span(begin.start, end + 1), outer, names, below)


_NOT_ONE_ROW_CLAUSES = (
    "group",
    "having",
    "qualify",
    "windows",
    "distinct",
    "with_",
    "limit",
    "offset",
)


def _is_aggregate(node: exp.Expr) -> bool:
    is_function = isinstance(node, exp.Anonymous) and fold(node.name) in _AGGREGATES
    return is_function or isinstance(node, exp.AggFunc)


_AGGREGATES = frozenset(
    "any_value arg_max arg_min avg bool_and bool_or count first kurtosis last list max max_by "
    "median min min_by mode product quantile_cont quantile_disc skewness stddev stddev_pop "
    "stddev_samp string_agg sum var_pop var_samp variance".split()
)
