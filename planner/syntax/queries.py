"""Rules for queries: what each part of a SELECT, a set operation, VALUES, a PIVOT or a pipe
sees.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from sqlglot import exp

from sqlml.parsing.places import PipedQuery, Span, hull, is_written, span
from sqlml.planner.syntax.outline import Block, Cte
from sqlml.planner.syntax.outline_walk import (
    Reader,
    Rule,
    WalkContext,
    clause_of,
    covering_span,
    existing_spans,
    independent_filters,
    item_name,
    iterate_children,
    read_item,
    span_of,
)


def _read_select(reader: Reader, node: exp.Expr, context: WalkContext) -> None:
    reader.selects.append(node)
    ctes, recursive = read_ctes(reader, node, context)
    own = _build_block(reader, node, context, ctes, recursive)
    if own.output is not None and any(node.args.get(key) for key in ("group", "distinct")):
        reader.comparing_outputs.add(own.output)
    inside = replace(
        context,
        block=own,
        clause="",
        is_always_evaluated=True,
        queries=context.queries + 1,
        outer_sources=(),
    )
    output = replace(inside, output=own.output)
    items = iter(own.items)
    for key, child in iterate_children(node):
        if key == "expressions" and is_written(child):
            item = next(items)
            reader.walk(child, replace(output, clause="SELECT", items=(item, *context.items)))
        elif key in ("from_", "joins", "laterals"):
            _read_source(reader, child, replace(inside, clause="FROM"), node)
        elif key != "with_":
            reader.walk(child, replace(inside if key == "where" else output, clause=clause_of(key)))


def _read_source(reader: Reader, node: exp.Expr, context: WalkContext, query: exp.Expr) -> None:
    """Walk a part of FROM, which sees the tables to its left."""
    place, own = span(node), context.block
    if own is not None and place is not None:
        before = [
            n for n in sources_of(query) if (p := span(n)) is not None and p.end <= place.start
        ]
        context = replace(context, block=replace(own, sources=covering_span(before)))
    reader.walk(node, context)


def _read_join(reader: Reader, node: exp.Expr, context: WalkContext) -> None:
    """Walk a join, whose condition sees the joined table, and no later join."""
    place, before = span_of(node), context.block
    whole = before
    if before is not None:
        kind = str(node.args.get("kind") or "").upper()
        before = replace(before, sources=(*before.sources, *_sources_before_join(node)))
        whole = replace(before, joins=(*before.joins, place), is_half_join=kind in _HALF_JOINS)
        if not before.sources:
            whole = replace(whole, sources=(span_of(node.this),), joins=())
    reader.walk(node.this, replace(context, block=before))
    for key, child in iterate_children(node):
        if key != "this":
            reader.walk(child, replace(context, block=whole))


_HALF_JOINS = frozenset({"SEMI", "ANTI"})
"""Joins after which only one side is in scope."""


def _sources_before_join(node: exp.Expr) -> tuple[Span, ...]:
    """Return the text before a join in brackets, or before one after a table at the beginning of
    FROM.
    """
    table = node.parent
    if not isinstance(table, exp.Table | exp.Subquery) or table.this is None:
        return ()
    place, own = span(table), span_of(node)
    return () if place is None else (Span(place.start, own.start),)


def sources_of(node: exp.Expr) -> list[exp.Expr]:
    """Return the tables, joins and laterals of FROM."""
    from_ = node.args.get("from_")
    first = [] if from_ is None else [from_.this]
    return [*first, *(node.args.get("joins") or []), *(node.args.get("laterals") or [])]


def _build_block(
    reader: Reader, node: exp.Expr, context: WalkContext, ctes: tuple[Cte, ...], recursive: bool
) -> Block:
    where, group = node.args.get("where"), node.args.get("group")
    items = [n for n in node.expressions if is_written(n)]
    whole = span_of(node)
    return Block(
        whole,
        covering_span(sources_of(node)) or context.outer_sources,
        hull(node.args.get("windows") or ()),
        tuple(read_item(reader, n, whole) for n in items),
        None if where is None else span(where.this),
        None if group is None else span(group),
        () if where is None else independent_filters(where.this),
        frozenset(name for n in items if (name := item_name(n))),
        ctes,
        recursive,
        context.block,
        context.clause == "FROM",
        output=context.output or whole,
    )


def read_ctes(reader: Reader, node: exp.Expr, context: WalkContext) -> tuple[tuple[Cte, ...], bool]:
    """Walk the definitions of a query's WITH; return them, and whether they are recursive."""
    with_ = node.args.get("with_")
    if with_ is None:
        return (), False
    recursive = bool(with_.args.get("recursive"))
    ctes: list[Cte] = []
    for definition in with_.expressions:
        cte = Cte(definition.alias, span_of(definition))
        seen = tuple([*ctes, cte] if recursive else ctes)
        around = context.block
        if seen:
            around = Block(
                cte.span,
                ctes=seen,
                is_recursive=recursive,
                parent=context.block,
                is_lateral=context.clause == "FROM",
            )
        unused = context.in_unused_cte or not reader.is_used_elsewhere(cte)
        inside = replace(
            context, block=around, clause="", queries=context.queries + 1, in_unused_cte=unused
        )
        reader.walk(definition.this, inside)
        ctes.append(cte)
    return tuple(ctes), recursive


def _read_set_operation(reader: Reader, node: exp.Expr, context: WalkContext) -> None:
    ctes, recursive = read_ctes(reader, node, context)
    last = span_of(node.expression)
    tails = [t for key in _RESULT_CLAUSES if (t := node.args.get(key))]
    if tails:
        # sqlglot's span of the last operand includes them.
        last = hull(node.expression.iter_expressions()) or last
    chain = Block(
        span_of(node),
        (Span(span_of(node.this).start, last.end),),
        ctes=ctes,
        is_recursive=recursive,
        parent=context.block,
        is_lateral=context.clause == "FROM",
        is_chain=True,
        output=context.output or span_of(node),
    )
    around = replace(chain, sources=(), is_chain=False) if ctes else context.block
    inside = replace(context, block=around, clause="" if ctes else context.clause)
    reader.walk(node.this, inside)
    reader.walk(node.expression, inside)
    for key in _RESULT_CLAUSES:
        child = node.args.get(key)
        if isinstance(child, exp.Expr):
            tail = replace(
                context,
                block=chain,
                clause=clause_of(key),
                queries=context.queries + 1,
                output=chain.output,
            )
            reader.walk(child, tail)


def _read_values(reader: Reader, node: exp.Expr, context: WalkContext) -> None:
    own = Block(span_of(node), parent=context.block, is_lateral=context.clause == "FROM")
    reader.walk_children(node, replace(context, block=own, clause="", queries=context.queries + 1))


def _read_pivot(reader: Reader, node: exp.Expr, context: WalkContext) -> None:
    table = node.args.get("this")
    if table is None:
        # A PIVOT after a table sees the columns of that table.
        before = None if node.parent is None else span(node.parent)
        if before is not None and context.block is not None:
            seen = Span(before.start, span_of(node).start)
            context = replace(context, block=replace(context.block, sources=(seen,)))
        reader.walk_children(node, context)
        return
    ctes, recursive = read_ctes(reader, node, context)
    whole, with_ = span_of(node), node.args.get("with_")
    output = context.output or whole
    own = Block(
        whole,
        existing_spans(table),
        ctes=ctes,
        is_recursive=recursive,
        parent=context.block,
        is_lateral=context.clause == "FROM",
        output=output,
    )
    reader.comparing_outputs.add(output)  # the engine turns it into a GROUP BY
    tails = [tail for key in _RESULT_CLAUSES if (tail := node.args.get(key)) is not None]
    start = whole.start if with_ is None else span_of(with_).end
    end = min((span_of(tail).start for tail in tails), default=whole.end)
    chain = replace(own, sources=(Span(start, end),), is_chain=True)
    inside = replace(context, block=own, queries=context.queries + 1)
    for key, child in iterate_children(node):
        if key == "this":
            reader.walk(child, replace(inside, clause="FROM"))
        elif key in _RESULT_CLAUSES:
            reader.walk(child, replace(inside, block=chain, clause=clause_of(key), output=output))
        elif key != "with_":
            reader.walk(child, replace(inside, clause="", output=output))


_RESULT_CLAUSES = ("order", "limit", "offset")
"""Clauses after a set operation or a PIVOT, which see its result."""


_ROW_STEPS = frozenset("WHERE ORDER SORT CLUSTER DISTRIBUTE LIMIT OFFSET TABLESAMPLE".split())
"""Pipe steps that leave the same tables in scope."""


def _read_pipe(reader: Reader, node: exp.Expr, context: WalkContext) -> None:
    """Walk a pipe of Spark, `FROM t |> WHERE ... |> SELECT ...`, whose steps see the results of
    earlier steps.

    While the earlier steps only choose rows and join tables, the tables of FROM and of the joins
    are in scope by their names. Afterwards the scope is the result of the last step that produced
    columns, by the name that `|> AS name` gives to it, and the joins after it.
    """
    first = node.this
    ctes: tuple[Cte, ...] = ()
    recursive = False
    if isinstance(first, exp.Query):
        with_ = first.args.get("with_")
        if with_ is not None:
            recursive = bool(with_.args.get("recursive"))
            ctes = tuple(Cte(d.alias, span_of(d)) for d in with_.expressions)
    reader.walk(first, context)
    plain = _is_only_from(first)
    behind = hull(n for key, n in iterate_children(first) if key != "with_")
    begin = behind.start if ctes and behind is not None else span_of(first).start
    end, name, joins = span_of(first).end, "sqlml_chain", list[Span]()
    for step in node.expressions:
        word, own = step.this, span_of(step)
        sources = covering_span(sources_of(first)) if plain else (Span(begin, end),)
        if word == "JOIN":
            joins.append(own)
        items = [n for n in step.expressions if is_written(n)]
        named = word in ("SELECT", "EXTEND")
        block = Block(
            own,
            sources,
            items=tuple(read_item(reader, n, span_of(node)) for n in items) if named else (),
            names=frozenset(filter(None, map(item_name, items))),
            ctes=ctes,
            is_recursive=recursive,
            parent=context.block,
            is_lateral=context.clause == "FROM",
            is_chain=not plain,
            name=name,
            joins=tuple(joins),
            output=context.output or own,
        )
        inside = replace(
            context, block=block, clause=_STEP_CLAUSES.get(word, word), queries=context.queries + 1
        )
        if word == "AGGREGATE":
            reader.comparing_outputs.add(context.output or own)
            inside = replace(inside, output=block.output)
        for k, child in enumerate(step.expressions):
            own_items = (block.items[k], *context.items) if word == "SELECT" else context.items
            reader.walk(child, replace(inside, items=own_items))
        if word == "AS":
            name = "`" + step.args["alias"].name.replace("`", "``") + "`"
        elif word != "JOIN" and word not in _ROW_STEPS:
            name = "sqlml_chain"
        if word != "JOIN" and word not in _ROW_STEPS:
            plain, end, joins = False, own.end, []


_STEP_CLAUSES: Mapping[str, str] = MappingProxyType(
    {"EXTEND": "FROM", "JOIN": "FROM", "SET": "FROM"}
)
"""The clauses of steps whose keyword is not that of a clause."""


def _is_only_from(node: exp.Expr) -> bool:
    """Return whether a query consists only of a FROM clause."""
    if not isinstance(node, exp.Select):
        return False
    return all(
        key in ("from_", "joins", "laterals", "with_") or not is_written(child)
        for key, child in iterate_children(node)
    )


RULES: Mapping[type[exp.Expr], Rule] = MappingProxyType(
    {
        exp.Select: _read_select,
        exp.Join: _read_join,
        exp.Union: _read_set_operation,
        exp.Intersect: _read_set_operation,
        exp.Except: _read_set_operation,
        exp.Values: _read_values,
        exp.Pivot: _read_pivot,
        PipedQuery: _read_pipe,
    }
)
