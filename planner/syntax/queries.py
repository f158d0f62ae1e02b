"""Queries: what each part of a SELECT, a UNION, VALUES or a PIVOT sees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from sqlglot import exp

from sqlml.parsing.places import Piped, Span, hull, is_written, span
from sqlml.planner.syntax.items import (
    At,
    Reader,
    Rule,
    children,
    clause_of,
    filters_of,
    item_of,
    own_name,
    place_of,
    spans_of,
    together,
)
from sqlml.planner.syntax.outline import Block, Cte


def _select(r: Reader, node: exp.Expr, at: At) -> None:
    r.selects.append(node)
    ctes, recursive = definitions(r, node, at)
    own = _block(r, node, at, ctes, recursive)
    if own.output is not None and any(node.args.get(key) for key in ("group", "distinct")):
        r.comparing.add(own.output)
    inside = replace(at, block=own, clause="", asked=True, queries=at.queries + 1, reads=())
    output = replace(inside, output=own.output)
    items = iter(own.items)
    for key, child in children(node):
        if key == "expressions" and is_written(child):
            item = next(items)
            r.walk(child, replace(output, clause="SELECT", items=(item, *at.items)))
        elif key in ("from_", "joins", "laterals"):
            _read(r, child, replace(inside, clause="FROM"), node)
        elif key != "with_":
            r.walk(child, replace(inside if key == "where" else output, clause=clause_of(key)))


def _read(r: Reader, node: exp.Expr, at: At, query: exp.Expr) -> None:
    """A part of FROM, which sees what stands to its left."""
    place, own = span(node), at.block
    if own is not None and place is not None:
        before = [
            n for n in sources_of(query) if (p := span(n)) is not None and p.end <= place.start
        ]
        at = replace(at, block=replace(own, sources=together(before)))
    r.walk(node, at)


def _join(r: Reader, node: exp.Expr, at: At) -> None:
    """The condition of a join sees its own table, too, and no later join."""
    place, before = place_of(node), at.block
    whole = before
    if before is not None:
        kind = str(node.args.get("kind") or "").upper()
        before = replace(before, sources=(*before.sources, *_joined_to(node)))
        whole = replace(before, joins=(*before.joins, place), half=kind in _HALF)
        if not before.sources:
            whole = replace(whole, sources=(place_of(node.this),), joins=())
    r.walk(node.this, replace(at, block=before))
    for key, child in children(node):
        if key != "this":
            r.walk(child, replace(at, block=whole))


_HALF = frozenset({"SEMI", "ANTI"})
"""Joins after which only one side is in scope."""


def _joined_to(node: exp.Expr) -> tuple[Span, ...]:
    """What stands before a join within brackets, or after a FROM at the beginning."""
    table = node.parent
    if not isinstance(table, exp.Table | exp.Subquery) or table.this is None:
        return ()
    place, own = span(table), place_of(node)
    return () if place is None else (Span(place.start, own.start),)


def sources_of(node: exp.Expr) -> list[exp.Expr]:
    """What FROM holds."""
    from_ = node.args.get("from_")
    first = [] if from_ is None else [from_.this]
    return [*first, *(node.args.get("joins") or []), *(node.args.get("laterals") or [])]


def _block(r: Reader, node: exp.Expr, at: At, ctes: tuple[Cte, ...], recursive: bool) -> Block:
    where, group = node.args.get("where"), node.args.get("group")
    items = [n for n in node.expressions if is_written(n)]
    whole = place_of(node)
    return Block(
        whole,
        together(sources_of(node)) or at.reads,
        hull(node.args.get("windows") or ()),
        tuple(item_of(r, n, whole) for n in items),
        None if where is None else span(where.this),
        None if group is None else span(group),
        () if where is None else filters_of(where.this),
        frozenset(name for n in items if (name := own_name(n))),
        ctes,
        recursive,
        at.block,
        at.clause == "FROM",
        output=at.output or whole,
    )


def definitions(r: Reader, node: exp.Expr, at: At) -> tuple[tuple[Cte, ...], bool]:
    """The definitions of a query's WITH, each of which is walked here."""
    with_ = node.args.get("with_")
    if with_ is None:
        return (), False
    recursive = bool(with_.args.get("recursive"))
    ctes: list[Cte] = []
    for definition in with_.expressions:
        cte = Cte(definition.alias, place_of(definition))
        seen = tuple([*ctes, cte] if recursive else ctes)
        around = at.block
        if seen:
            around = Block(
                cte.span,
                ctes=seen,
                recursive=recursive,
                parent=at.block,
                lateral=at.clause == "FROM",
            )
        unused = at.unused or not r.is_written_beside(cte)
        inside = replace(at, block=around, clause="", queries=at.queries + 1, unused=unused)
        r.walk(definition.this, inside)
        ctes.append(cte)
    return tuple(ctes), recursive


def _set_operation(r: Reader, node: exp.Expr, at: At) -> None:
    ctes, recursive = definitions(r, node, at)
    last = place_of(node.expression)
    tails = [t for key in _TAILS if (t := node.args.get(key))]
    if tails:  # once the last operand's
        last = hull(node.expression.iter_expressions()) or last
    chain = Block(
        place_of(node),
        (Span(place_of(node.this).start, last.end),),
        ctes=ctes,
        recursive=recursive,
        parent=at.block,
        lateral=at.clause == "FROM",
        is_chain=True,
        output=at.output or place_of(node),
    )
    around = replace(chain, sources=(), is_chain=False) if ctes else at.block
    inside = replace(at, block=around, clause="" if ctes else at.clause)
    r.walk(node.this, inside)
    r.walk(node.expression, inside)
    for key in _TAILS:
        child = node.args.get(key)
        if isinstance(child, exp.Expr):
            tail = replace(
                at,
                block=chain,
                clause=clause_of(key),
                queries=at.queries + 1,
                output=chain.output,
            )
            r.walk(child, tail)


def _values(r: Reader, node: exp.Expr, at: At) -> None:
    own = Block(place_of(node), parent=at.block, lateral=at.clause == "FROM")
    r.into(node, replace(at, block=own, clause="", queries=at.queries + 1))


def _pivot(r: Reader, node: exp.Expr, at: At) -> None:
    table = node.args.get("this")
    if table is None:  # after a table, whose columns it sees
        before = None if node.parent is None else span(node.parent)
        if before is not None and at.block is not None:
            seen = Span(before.start, place_of(node).start)
            at = replace(at, block=replace(at.block, sources=(seen,)))
        r.into(node, at)
        return
    ctes, recursive = definitions(r, node, at)
    whole, with_ = place_of(node), node.args.get("with_")
    output = at.output or whole
    own = Block(
        whole,
        spans_of(table),
        ctes=ctes,
        recursive=recursive,
        parent=at.block,
        lateral=at.clause == "FROM",
        output=output,
    )
    r.comparing.add(output)  # the engine makes a query that groups of it
    tails = [tail for key in _TAILS if (tail := node.args.get(key)) is not None]
    start = whole.start if with_ is None else place_of(with_).end
    end = min((place_of(tail).start for tail in tails), default=whole.end)
    chain = replace(own, sources=(Span(start, end),), is_chain=True)
    inside = replace(at, block=own, queries=at.queries + 1)
    for key, child in children(node):
        if key == "this":
            r.walk(child, replace(inside, clause="FROM"))
        elif key in _TAILS:
            r.walk(child, replace(inside, block=chain, clause=clause_of(key), output=output))
        elif key != "with_":
            r.walk(child, replace(inside, clause="", output=output))


_TAILS = ("order", "limit", "offset")
"""What may follow a set operation or a PIVOT, and sees its result."""


# Pipes: Spark's `FROM t |> WHERE .. |> SELECT ..`, whose steps see what came before.


_CHOOSE_ROWS = frozenset("WHERE ORDER SORT CLUSTER DISTRIBUTE LIMIT OFFSET TABLESAMPLE".split())
"""Pipe steps after which the same tables are in scope."""


def _piped(r: Reader, node: exp.Expr, at: At) -> None:
    """A step of a pipe sees the columns that the steps before it make.

    While these only choose rows and join tables, those are the FROM clause itself and the joins,
    with the names of their tables; else they are the result of the last step that made columns,
    which has the name that `|> AS name` gives to it, and the joins after it.
    """
    first = node.this
    ctes: tuple[Cte, ...] = ()
    recursive = False
    if isinstance(first, exp.Query):
        with_ = first.args.get("with_")
        if with_ is not None:
            recursive = bool(with_.args.get("recursive"))
            ctes = tuple(Cte(d.alias, place_of(d)) for d in with_.expressions)
    r.walk(first, at)
    plain = _is_bare(first)
    behind = hull(n for key, n in children(first) if key != "with_")
    begin = behind.start if ctes and behind is not None else place_of(first).start
    end, name, joins = place_of(first).end, "sqlml_chain", list[Span]()
    for step in node.expressions:
        word, own = step.this, place_of(step)
        sources = together(sources_of(first)) if plain else (Span(begin, end),)
        if word == "JOIN":
            joins.append(own)
        items = [n for n in step.expressions if is_written(n)]
        named = word in ("SELECT", "EXTEND")
        block = Block(
            own,
            sources,
            items=tuple(item_of(r, n, place_of(node)) for n in items) if named else (),
            names=frozenset(filter(None, map(own_name, items))),
            ctes=ctes,
            recursive=recursive,
            parent=at.block,
            lateral=at.clause == "FROM",
            is_chain=not plain,
            name=name,
            joins=tuple(joins),
            output=at.output or own,
        )
        inside = replace(at, block=block, clause=_STEPS.get(word, word), queries=at.queries + 1)
        if word == "AGGREGATE":
            r.comparing.add(at.output or own)
            inside = replace(inside, output=block.output)
        for k, child in enumerate(step.expressions):
            own_items = (block.items[k], *at.items) if word == "SELECT" else at.items
            r.walk(child, replace(inside, items=own_items))
        if word == "AS":
            name = "`" + step.args["alias"].name.replace("`", "``") + "`"
        elif word != "JOIN" and word not in _CHOOSE_ROWS:
            name = "sqlml_chain"
        if word != "JOIN" and word not in _CHOOSE_ROWS:
            plain, end, joins = False, own.end, []


_STEPS: Mapping[str, str] = MappingProxyType({"EXTEND": "FROM", "JOIN": "FROM", "SET": "FROM"})
"""Steps whose keyword is that of no clause."""


def _is_bare(node: exp.Expr) -> bool:
    """Whether a query is only a FROM clause."""
    if not isinstance(node, exp.Select):
        return False
    return all(
        key in ("from_", "joins", "laterals", "with_") or not is_written(child)
        for key, child in children(node)
    )


RULES: Mapping[type[exp.Expr], Rule] = MappingProxyType(
    {
        exp.Select: _select,
        exp.Join: _join,
        exp.Union: _set_operation,
        exp.Intersect: _set_operation,
        exp.Except: _set_operation,
        exp.Values: _values,
        exp.Pivot: _pivot,
        Piped: _piped,
    }
)
