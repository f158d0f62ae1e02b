"""The entry of this package: `outline_of` walks over sqlglot's tree of a statement once and returns
its `Outline`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from sqlglot import exp

from sqlml.errors import ParseError
from sqlml.parsing.parse import parse_trees
from sqlml.parsing.places import Span, find_outermost, is_written, overlaps, span
from sqlml.parsing.tokens import run_deeply, tokenize
from sqlml.planner.syntax import changes, expressions, queries
from sqlml.planner.syntax.arguments import Arguments
from sqlml.planner.syntax.outline import Outline, SingleSource
from sqlml.planner.syntax.outline_walk import Reader, Rule, WalkContext, iterate_children, span_of
from sqlml.types import fold


def find_single_source(
    select: exp.Expr, arguments: Arguments, calls: Sequence[Span]
) -> SingleSource | None:
    """Return the FROM clause of a query if it can produce one more column; None if it must stay as
    it is.

    It must be one table, file or subquery, and nothing may notice the new column: stars leave it
    out, and no expression uses whole rows.

    Args:
        calls: the `outermost` model calls, whose content is rewritten anyway.
    """
    from_ = select.args.get("from_")
    if from_ is None or select.args.get("joins") or select.args.get("laterals"):
        return None
    source = from_.this
    source_span, alias = span(source), _source_name(source)
    items = [node for node in select.expressions if is_written(node)]
    if source_span is None or alias is None or not items:
        return None
    alias_span = span(alias)
    if alias_span is None or arguments.uses_row(
        fold(alias.name), _span_without_with(select), source_span, calls
    ):
        return None
    for node in _walk_outside_sources(select, from_, calls):
        if isinstance(node, exp.Anonymous) and fold(node.name) == "columns":
            return None
        is_qualified_star = isinstance(node, exp.Column) and isinstance(node.this, exp.Star)
        if is_qualified_star and node.args.get("table") is not None and node not in items:
            return None  # of a nested query, say, which may be the whole row too
    stars: list[Span] = []
    exclude_lists: list[Span] = []
    for node in items:
        star = node.this if isinstance(node, exp.Column) else node
        if not isinstance(star, exp.Star):
            if any(isinstance(n, exp.Star) and _is_item_star(n) for n in node.walk()):
                if any(isinstance(node, kind) for kind in (exp.Like, exp.ILike, exp.Glob, exp.Not)):
                    return None
            continue
        star_parts = arguments.read_star_mark(span(star))
        if star_parts is None:
            return None
        mark, exclude_list = star_parts
        if exclude_list is not None:
            exclude_lists.append(exclude_list)
        else:
            stars.append(mark)
    return SingleSource(source_span, alias_span, tuple(stars), tuple(exclude_lists))


def _is_item_star(node: exp.Expr) -> bool:
    return not isinstance(node.parent, exp.Anonymous | exp.Count)


def _span_without_with(select: exp.Expr) -> Span:
    """Return the span of a query without its WITH."""
    place, with_ = span(select), select.args.get("with_")
    before = None if with_ is None else span(with_)
    assert place is not None
    return place if before is None else Span(before.end, place.end)


def _walk_outside_sources(
    select: exp.Expr, from_: exp.Expr, calls: Sequence[Span]
) -> Iterator[exp.Expr]:
    """Yield the nodes of a query outside of its FROM, its WITH and its model calls."""
    stack = [child for key, child in iterate_children(select) if key not in ("from_", "with_")]
    while stack:
        node = stack.pop()
        if isinstance(node, exp.Anonymous) and _is_model_call(node, calls):
            continue
        yield node
        stack.extend(node.iter_expressions())


def _is_model_call(node: exp.Expr, calls: Sequence[Span]) -> bool:
    start = node.meta.get("start")
    return start is not None and overlaps(Span(start, start + 1), calls)


def _source_name(source: exp.Expr) -> exp.Expr | None:
    """Return the name of a source: `db.t`, `t AS x`, `'file' x`, `f(...) x` or `(...) x`."""
    if not isinstance(source, exp.Table | exp.Subquery):
        return None
    if any(
        source.args.get(k) for k in ("joins", "laterals", "pivots", "sample", "when", "version")
    ):
        return None
    alias = source.args.get("alias")
    if alias is not None:
        columns = alias.args.get("columns")
        return None if columns or alias.this is None else alias.this
    name = source.this if isinstance(source, exp.Table) else None
    return name if isinstance(name, exp.Identifier) else None


_RULES: Mapping[type[exp.Expr], Rule] = MappingProxyType(
    {**queries.RULES, **changes.RULES, **expressions.RULES}
)


def read_outline(sql: str, dialect: str = "duckdb") -> Outline:
    """Return the outline of one statement.

    Args:
        dialect: the name of a `Dialect`.

    Raises:
        ParseError: sqlglot cannot read the statement.
        BindError: an argument of a call cannot be valid.
    """
    return run_deeply(sql, dialect, partial(_read_outline, sql, dialect))


def _read_outline(sql: str, dialect: str) -> Outline:
    reader = Reader(sql, tokenize(sql, dialect), _RULES)
    statements = parse_trees(sql, dialect)
    for tree in statements:
        if tree.find(exp.Command) is not None:
            raise ParseError(f"sqlglot cannot parse this kind of statement, {tree.name}", sql, 0)
        reader.walk(tree, WalkContext())
    calls = find_outermost(call.span for call in reader.calls)
    single_sources = {
        span_of(n): find_single_source(n, reader.arguments, calls) for n in reader.selects
    }
    return Outline(
        sql,
        reader.created,
        reader.is_stored or reader.created not in ("", "TABLE"),
        changes.find_prefix(statements[0]) if len(statements) == 1 else None,
        tuple(sorted(reader.calls, key=lambda call: call.span.start)),
        frozenset(reader.scalar_forms),
        reader.arguments.parameters,
        reader.identifiers,
        {place: single for place, single in single_sources.items() if single is not None},
        frozenset(reader.comparing_outputs),
    )
