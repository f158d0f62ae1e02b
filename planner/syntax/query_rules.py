"""Rules for queries: what the parts of SELECT, UNION, VALUES, PIVOT and of a pipe see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from sqlglot import exp

from sqlml.parsing.places import PipedQuery, Span, hull, is_written, span
from sqlml.planner.syntax.outline import Block, Cte
from sqlml.planner.syntax.outline_walk import (
    CLAUSES,
    Reader,
    Rule,
    WalkContext,
    find_covering_span,
    find_item_name,
    iterate_children,
    list_independent_filters,
    list_spans,
    read_item,
    require_span,
)

_RESULT_CLAUSES = ("order", "limit", "offset")
"""Clauses after a set operation or a PIVOT, which see its result."""


def read_block(reader: Reader, node: exp.Expr, context: WalkContext) -> Block:
    """Walk the definitions of a query's WITH, and return the query's block without sources."""
    block = Block(require_span(node), parent=context.block, is_lateral=context.clause == "FROM")
    with_ = node.args.get("with_")
    if with_ is None:
        return block
    is_recursive = bool(with_.args.get("recursive"))
    ctes: list[Cte] = []
    for definition in with_.expressions:
        cte = Cte(definition.alias, require_span(definition))
        visible = tuple([*ctes, cte] if is_recursive else ctes)
        around = context.block
        if visible:
            around = replace(block, span=cte.span, ctes=visible, is_recursive=is_recursive)
        inside = replace(
            context,
            block=around,
            clause="",
            queries=context.queries + 1,
            in_unused_cte=context.in_unused_cte or not reader.is_used_elsewhere(cte),
        )
        reader.walk(definition.this, inside)
        ctes.append(cte)
    return replace(block, ctes=tuple(ctes), is_recursive=is_recursive)


def _read_select(reader: Reader, node: exp.Expr, context: WalkContext) -> None:
    reader.selects.append(node)
    block = _fill_block(reader, node, context, read_block(reader, node, context))
    if block.output is not None and any(node.args.get(key) for key in ("group", "distinct")):
        reader.comparing_outputs.add(block.output)
    inside = replace(context.enter(block), is_always_evaluated=True, outer_sources=())
    output = replace(inside, output=block.output)
    items = iter(block.items)
    for key, child in iterate_children(node):
        clause = CLAUSES.get(key, "")
        if key == "expressions" and is_written(child):
            item = next(items)
            reader.walk(child, replace(output, clause=clause, items=(item, *context.items)))
        elif key in ("from_", "joins", "laterals"):
            _read_source(reader, child, replace(inside, clause="FROM"), node)
        elif key != "with_":
            reader.walk(child, replace(inside if key == "where" else output, clause=clause))


def _fill_block(reader: Reader, node: exp.Expr, context: WalkContext, block: Block) -> Block:
    where, group = node.args.get("where"), node.args.get("group")
    items = [n for n in node.expressions if is_written(n)]
    return replace(
        block,
        sources=find_covering_span(list_sources(node)) or context.outer_sources,
        window=hull(node.args.get("windows") or ()),
        items=tuple(read_item(reader, n, block.span) for n in items),
        where=None if where is None else span(where.this),
        group=None if group is None else span(group),
        filters=() if where is None else list_independent_filters(where.this),
        names=frozenset(name for n in items if (name := find_item_name(n))),
        output=context.output or block.span,
    )


def _read_source(reader: Reader, node: exp.Expr, context: WalkContext, query: exp.Expr) -> None:
    """Walk a part of FROM, which sees the tables to its left."""
    source_span, block = span(node), context.block
    if block is not None and source_span is not None:
        earlier_sources = [
            n
            for n in list_sources(query)
            if (p := span(n)) is not None and p.end <= source_span.start
        ]
        context = replace(
            context, block=replace(block, sources=find_covering_span(earlier_sources))
        )
    reader.walk(node, context)


def list_sources(node: exp.Expr) -> list[exp.Expr]:
    """Return the tables, joins and laterals of FROM."""
    from_ = node.args.get("from_")
    first_source = [] if from_ is None else [from_.this]
    return [*first_source, *(node.args.get("joins") or []), *(node.args.get("laterals") or [])]


def _read_join(reader: Reader, node: exp.Expr, context: WalkContext) -> None:
    """Walk a join, whose condition sees the joined table, and no later join."""
    left = joined = context.block
    if left is not None:
        is_half_join = str(node.args.get("kind") or "").upper() in ("SEMI", "ANTI")
        left = replace(left, sources=(*left.sources, *_find_sources_before_join(node)))
        joined = replace(left, joins=(*left.joins, require_span(node)), is_half_join=is_half_join)
        if not left.sources:
            joined = replace(joined, sources=(require_span(node.this),), joins=())
    for key, child in iterate_children(node):
        reader.walk(child, replace(context, block=left if key == "this" else joined))


def _find_sources_before_join(node: exp.Expr) -> tuple[Span, ...]:
    """Return the span before a join in brackets, or after a table at the beginning of FROM."""
    table = node.parent
    if not isinstance(table, exp.Table | exp.Subquery) or table.this is None:
        return ()
    place = span(table)
    return () if place is None else (Span(place.start, require_span(node).start),)


def _read_set_operation(reader: Reader, node: exp.Expr, context: WalkContext) -> None:
    block = read_block(reader, node, context)
    last_operand = require_span(node.expression)
    if any(node.args.get(key) for key in _RESULT_CLAUSES):
        # sqlglot's span of the last operand includes them.
        last_operand = hull(node.expression.iter_expressions()) or last_operand
    output = context.output or block.span
    result = (Span(require_span(node.this).start, last_operand.end),)
    chain = replace(block, sources=result, is_chain=True, output=output)
    around = context
    if block.ctes:
        around = replace(context, block=replace(block, output=output), clause="")
    reader.walk(node.this, around)
    reader.walk(node.expression, around)
    for key in _RESULT_CLAUSES:
        child = node.args.get(key)
        if isinstance(child, exp.Expr):
            reader.walk(child, replace(context.enter(chain, CLAUSES[key]), output=output))


def _read_values(reader: Reader, node: exp.Expr, context: WalkContext) -> None:
    block = Block(require_span(node), parent=context.block, is_lateral=context.clause == "FROM")
    reader.walk_children(node, context.enter(block))


def _read_pivot(reader: Reader, node: exp.Expr, context: WalkContext) -> None:
    table = node.args.get("this")
    if table is None:
        # A PIVOT after a table sees the columns of that table.
        before = None if node.parent is None else span(node.parent)
        if before is not None and context.block is not None:
            sources = (Span(before.start, require_span(node).start),)
            context = replace(context, block=replace(context.block, sources=sources))
        reader.walk_children(node, context)
        return
    block, with_ = read_block(reader, node, context), node.args.get("with_")
    output = context.output or block.span
    block = replace(block, sources=list_spans(table), output=output)
    reader.comparing_outputs.add(output)  # the engine turns it into a GROUP BY
    tails = [tail for key in _RESULT_CLAUSES if (tail := node.args.get(key)) is not None]
    start = block.span.start if with_ is None else require_span(with_).end
    end = min((require_span(tail).start for tail in tails), default=block.span.end)
    chain = replace(block, sources=(Span(start, end),), is_chain=True)
    for key, child in iterate_children(node):
        if key == "this":
            reader.walk(child, context.enter(block, "FROM"))
        elif key != "with_":
            is_tail = key in _RESULT_CLAUSES
            inside = context.enter(chain, CLAUSES[key]) if is_tail else context.enter(block)
            reader.walk(child, replace(inside, output=output))


_ROW_STEPS = frozenset("WHERE ORDER SORT CLUSTER DISTRIBUTE LIMIT OFFSET TABLESAMPLE JOIN".split())
"""Pipe steps that leave the same tables in scope, or add one."""


def _read_pipe(reader: Reader, node: exp.Expr, context: WalkContext) -> None:
    """Walk a pipe of Spark, `FROM t |> WHERE ... |> SELECT ...`.

    While the steps before one only choose rows and join tables, the tables of FROM and of the joins
    are in scope by their names. Afterwards the scope is the result of the last step that produced
    columns, by the name that `|> AS name` gives to it, and the joins after it.
    """
    first_query = node.this
    with_ = first_query.args.get("with_") if isinstance(first_query, exp.Query) else None
    definitions = () if with_ is None else with_.expressions
    ctes = tuple(Cte(d.alias, require_span(d)) for d in definitions)
    reader.walk(first_query, context)
    is_plain = _is_only_from(first_query)
    without_with = hull(n for key, n in iterate_children(first_query) if key != "with_")
    result = without_with if ctes and without_with is not None else require_span(first_query)
    result = Span(result.start, require_span(first_query).end)
    name, joins = "sqlml_chain", list[Span]()
    for step in node.expressions:
        word, step_span = step.this, require_span(step)
        if word == "JOIN":
            joins.append(step_span)
        items = [n for n in step.expressions if is_written(n)]
        defines_items = word in ("SELECT", "EXTEND")
        block = Block(
            step_span,
            find_covering_span(list_sources(first_query)) if is_plain else (result,),
            items=tuple(read_item(reader, n, require_span(node)) for n in items if defines_items),
            names=frozenset(filter(None, map(find_item_name, items))),
            ctes=ctes,
            is_recursive=with_ is not None and bool(with_.args.get("recursive")),
            parent=context.block,
            is_lateral=context.clause == "FROM",
            is_chain=not is_plain,
            name=name,
            joins=tuple(joins),
            output=context.output or step_span,
        )
        inside = context.enter(block, _STEP_CLAUSES.get(word, word))
        if word == "AGGREGATE":
            reader.comparing_outputs.add(context.output or step_span)
            inside = replace(inside, output=block.output)
        for k, child in enumerate(step.expressions):
            around = (block.items[k], *context.items) if word == "SELECT" else context.items
            reader.walk(child, replace(inside, items=around))
        if word not in _ROW_STEPS:
            alias = step.args["alias"].name.replace("`", "``") if word == "AS" else ""
            name = f"`{alias}`" if word == "AS" else "sqlml_chain"
            is_plain, result, joins = False, Span(result.start, step_span.end), []


_STEP_CLAUSES: Mapping[str, str] = MappingProxyType(
    {"EXTEND": "FROM", "JOIN": "FROM", "SET": "FROM"}
)
"""The clauses of steps whose keyword is not that of a clause."""


def _is_only_from(node: exp.Expr) -> bool:
    """Return whether a query consists only of a FROM clause."""
    return isinstance(node, exp.Select) and all(
        key in ("from_", "joins", "laterals", "with_") or not is_written(child)
        for key, child in iterate_children(node)
    )


RULES: Mapping[type[exp.Expr], Rule] = MappingProxyType(
    {
        exp.Select: _read_select,
        exp.Join: _read_join,
        **dict.fromkeys((exp.Union, exp.Intersect, exp.Except), _read_set_operation),
        exp.Values: _read_values,
        exp.Pivot: _read_pivot,
        PipedQuery: _read_pipe,
    }
)
