"""`outline_of`: one walk over sqlglot's tree of a statement, which gives its `Outline`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from sqlglot import exp

from sqlml.errors import ParseError
from sqlml.parsing.parse import trees
from sqlml.parsing.places import Span, is_written, outermost, overlaps, span
from sqlml.parsing.tokens import deeply, tokenize
from sqlml.planner.syntax import changes, expressions, queries
from sqlml.planner.syntax.arguments import Arguments
from sqlml.planner.syntax.items import At, Reader, Rule, children, place_of
from sqlml.planner.syntax.outline import Outline, SingleSource
from sqlml.types import fold

# `single_source`: the FROM clause of a query, where it can take a column more.
#
# That is where it is one table, file or subquery, and where nobody can see that it has another
# column now: stars leave it out, and nobody takes whole rows.


def single_source(
    select: exp.Expr, arguments: Arguments, calls: Sequence[Span]
) -> SingleSource | None:
    """The source; None if it must stay as it is.

    Args:
        calls: the `outermost` model calls: what stands inside them is rewritten anyway.
    """
    from_ = select.args.get("from_")
    if from_ is None or select.args.get("joins") or select.args.get("laterals"):
        return None
    source = from_.this
    place, alias = span(source), _name(source)
    written = [node for node in select.expressions if is_written(node)]
    if place is None or alias is None or not written:
        return None
    own = span(alias)
    if own is None or arguments.is_row(fold(alias.name), _whole(select), place, calls):
        return None
    for node in _nodes(select, from_, calls):
        if isinstance(node, exp.Anonymous) and fold(node.name) == "columns":
            return None
        nested = isinstance(node, exp.Column) and isinstance(node.this, exp.Star)
        if nested and node.args.get("table") is not None and node not in written:
            return None  # of a nested query, say, which may be the whole row too
    stars: list[Span] = []
    lists: list[Span] = []
    for node in written:
        star = node.this if isinstance(node, exp.Column) else node
        if not isinstance(star, exp.Star):
            if any(isinstance(n, exp.Star) and _is_item_star(n) for n in node.walk()):
                if any(isinstance(node, kind) for kind in (exp.Like, exp.ILike, exp.Glob, exp.Not)):
                    return None
            continue
        found = arguments.star_at(span(star))
        if found is None:
            return None
        mark, opened = found
        if opened is not None:
            lists.append(opened)
        else:
            stars.append(mark)
    return SingleSource(place, own, tuple(stars), tuple(lists))


def _is_item_star(node: exp.Expr) -> bool:
    return not isinstance(node.parent, exp.Anonymous | exp.Count)


def _whole(select: exp.Expr) -> Span:
    """The query without its WITH."""
    place, with_ = span(select), select.args.get("with_")
    before = None if with_ is None else span(with_)
    assert place is not None
    return place if before is None else Span(before.end, place.end)


def _nodes(select: exp.Expr, from_: exp.Expr, calls: Sequence[Span]) -> Iterator[exp.Expr]:
    """All that a query holds outside of its FROM, its WITH and the calls of models."""
    waiting = [child for key, child in children(select) if key not in ("from_", "with_")]
    while waiting:
        node = waiting.pop()
        if isinstance(node, exp.Anonymous) and _is_call(node, calls):
            continue
        yield node
        waiting.extend(node.iter_expressions())


def _is_call(node: exp.Expr, calls: Sequence[Span]) -> bool:
    start = node.meta.get("start")
    return start is not None and overlaps(Span(start, start + 1), calls)


def _name(source: exp.Expr) -> exp.Expr | None:
    """The name of a source: `db.t`, `t AS x`, `'file' x`, `f(..) x`, `(..) x`."""
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
