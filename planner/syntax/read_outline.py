"""The entry of this package: `read_outline` walks over sqlglot's tree of a statement once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from sqlglot import exp

from sqlml.errors import ParseError
from sqlml.parsing.parse import parse_trees
from sqlml.parsing.places import Span, find_outermost, is_in_text, overlaps, span
from sqlml.parsing.tokens import run_deeply, tokenize
from sqlml.planner.syntax import change_rules, expression_rules, query_rules
from sqlml.planner.syntax.arguments import ArgumentReader, read_parameters
from sqlml.planner.syntax.outline import Outline, WidenableSource
from sqlml.planner.syntax.outline_walk import (
    Rule,
    WalkContext,
    Walker,
    iterate_children,
    require_span,
)
from sqlml.types import fold


def _find_widenable_source(
    sql: str, select: exp.Expr, arguments: ArgumentReader, calls: Sequence[Span]
) -> WidenableSource | None:
    """Return the FROM clause of a query if it can produce one more column, or else None.

    The clause must be one table, file or subquery, and nothing else may see the new column: stars
    can exclude it, and no expression uses whole rows. The outermost model calls do not matter,
    since they are rewritten anyway.
    """
    from_ = select.args.get("from_")
    if from_ is None or select.args.get("joins") or select.args.get("laterals"):
        return None
    source = from_.this
    source_span, alias = span(source), _find_source_name(source)
    select_items = [node for node in select.expressions if is_in_text(node)]
    if source_span is None or alias is None or not select_items:
        return None
    alias_span = span(alias)
    query_span, with_ = require_span(select), select.args.get("with_")
    body_start = query_span.start if with_ is None else require_span(with_).end
    body_span = Span(body_start, query_span.end)
    if alias_span is None or arguments.uses_row(fold(alias.name), body_span, source_span, calls):
        return None
    alias_sql = sql[alias_span.start : alias_span.end]
    for node in _walk_outside_sources(select, calls):
        if isinstance(node, exp.Anonymous) and fold(node.name) == "columns":
            return None
        is_qualified_star = isinstance(node, exp.Column) and isinstance(node.this, exp.Star)
        if is_qualified_star and node.args.get("table") is not None and node not in select_items:
            return None  # For example `t.*` in a nested query, where it may mean the whole row.
    stars: list[Span] = []
    exclude_lists: list[Span] = []
    for node in select_items:
        star = node.this if isinstance(node, exp.Column) else node
        if not isinstance(star, exp.Star):
            # A filtered star, as in `* LIKE 'a%'`, could select the new column.
            if isinstance(node, exp.Like | exp.ILike | exp.Glob | exp.Not) and any(
                not isinstance(n.parent, exp.Anonymous | exp.Count) for n in node.find_all(exp.Star)
            ):
                return None
            continue
        star_spans = arguments.read_star_spans(span(star))
        if star_spans is None:
            return None
        star_span, exclude_span = star_spans
        if exclude_span is None:
            stars.append(star_span)
        else:
            exclude_lists.append(exclude_span)
    aggregates = _find_unordered_aggregates(select, calls)
    return WidenableSource(source_span, alias_sql, tuple(stars), tuple(exclude_lists), aggregates)


_UNORDERED_AGGREGATES = frozenset({"avg", "count", "max", "min", "sum"})
"""Aggregates whose result, except for rounding, does not depend on the order of the rows."""


def _find_unordered_aggregates(select: exp.Expr, calls: Sequence[Span]) -> frozenset[str] | None:
    """Return the aggregates of a query that computes nothing for which rows need an order, or None.

    The query returns groups, and all its functions except the model calls are aggregates that need
    no order. The names may still belong to functions of the user.
    """
    if select.args.get("distinct") or select.args.get("sample"):
        return None
    starts, names = {call.start for call in calls}, set[str]()
    for node in _walk_outside_sources(select, ()):
        if isinstance(node, exp.Window | exp.Query | exp.Dot):
            return None
        if isinstance(node, exp.Anonymous):
            outer = node.parent if fold(node.name) == "model" else None  # predict(MODEL (m), *)
            if starts & {n.meta.get("start") for n in (node, outer) if n is not None}:
                continue
            name = node.name
        elif isinstance(node, exp.AggFunc):
            name = node.sql_name()
        else:
            continue
        if len(node.expressions) > 1:
            return None
        names.add(fold(name))
    is_grouped = bool(names) or select.args.get("group") is not None
    return frozenset(names) if is_grouped and names <= _UNORDERED_AGGREGATES else None


def _walk_outside_sources(select: exp.Expr, calls: Sequence[Span]) -> Iterator[exp.Expr]:
    """Yield the nodes of a query, except those in FROM, in WITH and in model calls."""
    stack = [child for key, child in iterate_children(select) if key not in ("from_", "with_")]
    while stack:
        node = stack.pop()
        start = node.meta.get("start") if isinstance(node, exp.Anonymous) else None
        if start is None or not overlaps(Span(start, start + 1), calls):
            yield node
            stack.extend(node.iter_expressions())


def _find_source_name(source: exp.Expr) -> exp.Expr | None:
    """Return the name of a source such as `db.t`, `t AS x`, `'file' x`, `f(...) x` or `(...) x`."""
    if not isinstance(source, exp.Table | exp.Subquery):
        return None
    if any(map(source.args.get, ("joins", "laterals", "pivots", "sample", "when", "version"))):
        return None
    alias = source.args.get("alias")
    if alias is not None:
        return None if alias.args.get("columns") or alias.this is None else alias.this
    name = source.this if isinstance(source, exp.Table) else None
    return name if isinstance(name, exp.Identifier) else None


_RULES: Mapping[type[exp.Expr], Rule] = MappingProxyType(
    {**query_rules.RULES, **change_rules.RULES, **expression_rules.RULES}
)


def read_outline(sql: str, dialect: str = "duckdb") -> Outline:
    """Return the outline of the statement `sql`.

    Raises ParseError if sqlglot cannot parse the statement, and BindError if an argument of a call
    cannot be valid.
    """
    return run_deeply(sql, dialect, partial(_read_outline, sql, dialect))


def _read_outline(sql: str, dialect: str) -> Outline:
    tokens = tokenize(sql, dialect)
    walker = Walker(sql, tokens, _RULES)
    statements = parse_trees(sql, dialect)
    for tree in statements:
        if tree.find(exp.Command) is not None:
            raise ParseError(f"sqlglot cannot parse this kind of statement, {tree.name}", sql, 0)
        walker.walk(tree, WalkContext())
    calls = find_outermost(call.span for call in walker.calls)
    widenable_sources = {
        require_span(select): source
        for select in walker.selects
        if (source := _find_widenable_source(sql, select, walker.arguments, calls)) is not None
    }
    return Outline(
        sql,
        walker.created,
        walker.is_stored or walker.created not in ("", "TABLE"),
        change_rules.find_prefix(statements[0]) if len(statements) == 1 else None,
        tuple(sorted(walker.calls, key=lambda call: call.span.start)),
        frozenset(walker.scalar_forms),
        read_parameters(tokens),
        walker.identifiers,
        widenable_sources,
        frozenset(walker.comparing_outputs),
        tuple(walker.metrics),
    )


def find_enclosing_brackets(sql: str, dialect: str, spans: Iterable[Span]) -> dict[Span, Span]:
    """Map each span of `sql` to the text in the innermost brackets around it, if there are any."""
    tokens = tokenize(sql, dialect)
    contents = [
        Span(tokens[opening].end, tokens[closing].start)
        for opening, closing in tokens.closing.items()
        if tokens[opening].text == "("
    ]
    enclosing: dict[Span, Span] = {}
    open_contents: list[Span] = []
    places = [*((content, False) for content in contents), *((inner, True) for inner in spans)]
    for place, is_inner in sorted(places, key=lambda p: (p[0].start, -p[0].end, p[1])):
        while open_contents and open_contents[-1].end < place.end:
            open_contents.pop()
        if not is_inner:
            open_contents.append(place)
        elif open_contents:
            enclosing[place] = open_contents[-1]
    return enclosing
