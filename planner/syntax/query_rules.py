"""Rules for queries: the tables and names that parts of SELECT, UNION, PIVOT and pipes see."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from sqlglot import exp

from sqlml.parsing.places import PipedQuery, Span, is_in_text, merge_spans, span
from sqlml.planner.syntax.outline import Block, Cte
from sqlml.planner.syntax.outline_walk import (
    CLAUSES,
    Rule,
    WalkContext,
    Walker,
    find_covering_spans,
    find_item_name,
    iterate_children,
    list_independent_filters,
    list_spans,
    read_item,
    require_span,
)
from sqlml.types import fold

_RESULT_CLAUSES = ("order", "limit", "offset")
"""Clauses that see the result of the set operation or PIVOT before them."""


def read_block(walker: Walker, node: exp.Expr, context: WalkContext) -> Block:
    """Walk the CTEs of the query `node`, and return the block, to which the caller adds sources."""
    block = Block(require_span(node), parent=context.block, is_lateral=context.clause == "FROM")
    with_ = node.args.get("with_")
    if with_ is None:
        return block
    is_recursive = bool(with_.args.get("recursive"))
    ctes: list[Cte] = []
    for definition in with_.expressions:
        cte = Cte(definition.alias, require_span(definition))
        visible = tuple([*ctes, cte] if is_recursive else ctes)
        outer_block = context.block
        if visible:
            outer_block = replace(block, span=cte.span, ctes=visible, is_recursive=is_recursive)
        inner_context = replace(
            context,
            block=outer_block,
            clause="",
            queries=context.queries + 1,
            in_unused_cte=context.in_unused_cte or not walker.is_used_elsewhere(cte),
        )
        walker.walk(definition.this, inner_context)
        ctes.append(cte)
    return replace(block, ctes=tuple(ctes), is_recursive=is_recursive)


def _walk_select(walker: Walker, node: exp.Expr, context: WalkContext) -> None:
    walker.selects.append(node)
    block = _fill_block(walker, node, context, read_block(walker, node, context))
    if block.output is not None and any(node.args.get(key) for key in ("group", "distinct")):
        walker.comparing_outputs.add(block.output)
    inner_context = replace(context.enter(block), is_always_evaluated=True, outer_sources=())
    output_context = replace(inner_context, output=block.output)
    items = iter(block.items)
    for key, child in iterate_children(node):
        clause = CLAUSES.get(key, "")
        if key == "expressions" and is_in_text(child):
            item = next(items)
            walker.walk(child, replace(output_context, clause=clause, items=(item, *context.items)))
        elif key in ("from_", "joins", "laterals"):
            _walk_source(walker, child, replace(inner_context, clause="FROM"), node)
        elif key != "with_":
            clause_context = inner_context if key == "where" else output_context
            walker.walk(child, replace(clause_context, clause=clause))


def _fill_block(walker: Walker, node: exp.Expr, context: WalkContext, block: Block) -> Block:
    where, group = node.args.get("where"), node.args.get("group")
    items = [n for n in node.expressions if is_in_text(n)]
    return replace(
        block,
        sources=find_covering_spans(list_sources(node)) or context.outer_sources,
        window=merge_spans(node.args.get("windows") or ()),
        items=tuple(read_item(walker, n, block.span) for n in items),
        where=None if where is None else span(where.this),
        group=None if group is None else span(group),
        filters=() if where is None else list_independent_filters(where.this),
        names=frozenset(name for n in items if (name := find_item_name(n))),
        output=context.output or block.span,
        literal_keys=() if group is None else _find_literal_keys(group, items),
    )


def _find_literal_keys(group: exp.Expr, items: Sequence[exp.Expr]) -> tuple[Span, ...]:
    """Return the literals that are keys of ROLLUP, CUBE or GROUPING SETS (`Block.literal_keys`)."""
    sets = group.find_all(exp.Rollup, exp.Cube, exp.GroupingSets)
    keys = [key for one in sets for key in _iterate_keys(one)]
    literals: list[exp.Expr] = [key for key in keys if key.is_string]
    names = {fold(key.name) for key in keys if isinstance(key, exp.Column) or key.is_number}
    for position, item in enumerate(items, start=1):
        value = item.unalias()
        number = value.this if isinstance(value, exp.Neg) else value
        is_key = find_item_name(item) in names or str(position) in names
        if is_key and isinstance(number, exp.Literal | exp.Boolean):
            literals.append(value)
    return tuple(map(require_span, literals))


def _iterate_keys(grouping: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the keys in grouping sets, which may be nested and in brackets."""
    if isinstance(grouping, exp.Rollup | exp.Cube | exp.GroupingSets | exp.Tuple | exp.Paren):
        for child in grouping.iter_expressions():
            yield from _iterate_keys(child)
    else:
        yield grouping


def _walk_source(walker: Walker, node: exp.Expr, context: WalkContext, query: exp.Expr) -> None:
    """Walk a table, join or lateral of FROM, which sees the tables to its left."""
    source_span, block = span(node), context.block
    if block is not None and source_span is not None:
        nodes = [n for n in list_sources(query) if (s := span(n)) and s.end <= source_span.start]
        context = replace(context, block=replace(block, sources=find_covering_spans(nodes)))
    walker.walk(node, context)


def list_sources(node: exp.Expr) -> list[exp.Expr]:
    """Return the tables, joins and laterals of FROM."""
    from_ = node.args.get("from_")
    first_source = [] if from_ is None else [from_.this]
    return [*first_source, *(node.args.get("joins") or []), *(node.args.get("laterals") or [])]


def _walk_join(walker: Walker, node: exp.Expr, context: WalkContext) -> None:
    """Walk a join, whose condition sees the joined table but no later join."""
    left_block = on_block = context.block
    if left_block is not None:
        is_half_join = str(node.args.get("kind") or "").upper() in ("SEMI", "ANTI")
        sources = (*left_block.sources, *_find_sources_before_join(node))
        left_block = replace(left_block, sources=sources)
        joins = (*left_block.joins, require_span(node))
        on_block = replace(left_block, joins=joins, is_half_join=is_half_join)
        if not sources:
            on_block = replace(on_block, sources=(require_span(node.this),), joins=())
    for key, child in iterate_children(node):
        walker.walk(child, replace(context, block=left_block if key == "this" else on_block))


def _find_sources_before_join(node: exp.Expr) -> tuple[Span, ...]:
    """Return the span of the tables before a nested join in a 1-tuple, or () for other joins."""
    table = node.parent
    if not isinstance(table, exp.Table | exp.Subquery) or table.this is None:
        return ()
    table_span = span(table)
    return () if table_span is None else (Span(table_span.start, require_span(node).start),)


def _walk_set_operation(walker: Walker, node: exp.Expr, context: WalkContext) -> None:
    """Walk a set operation such as UNION, whose ORDER BY, LIMIT and OFFSET see the result."""
    block = read_block(walker, node, context)
    last_operand_span = require_span(node.expression)
    if any(node.args.get(key) for key in _RESULT_CLAUSES):
        # sqlglot's span of the last operand includes ORDER BY, LIMIT and OFFSET.
        last_operand_span = merge_spans(node.expression.iter_expressions()) or last_operand_span
    output = context.output or block.span
    result_spans = (Span(require_span(node.this).start, last_operand_span.end),)
    result_block = replace(block, sources=result_spans, is_chain=True, output=output)
    operand_context = context
    if block.ctes:
        operand_context = replace(context, block=replace(block, output=output), clause="")
    walker.walk(node.this, operand_context)
    walker.walk(node.expression, operand_context)
    for key in _RESULT_CLAUSES:
        if isinstance(child := node.args.get(key), exp.Expr):
            walker.walk(child, replace(context.enter(result_block, CLAUSES[key]), output=output))


def _walk_values(walker: Walker, node: exp.Expr, context: WalkContext) -> None:
    block = Block(require_span(node), parent=context.block, is_lateral=context.clause == "FROM")
    walker.walk_children(node, context.enter(block))


def _walk_pivot(walker: Walker, node: exp.Expr, context: WalkContext) -> None:
    """Walk a PIVOT, whose expressions see the table. ORDER BY and LIMIT see the result."""
    table = node.args.get("this")
    if table is None:
        # A PIVOT after a table sees the columns of that table.
        table_span = None if node.parent is None else span(node.parent)
        if table_span is not None and context.block is not None:
            sources = (Span(table_span.start, require_span(node).start),)
            context = replace(context, block=replace(context.block, sources=sources))
        walker.walk_children(node, context)
        return
    block, with_ = read_block(walker, node, context), node.args.get("with_")
    output = context.output or block.span
    block = replace(block, sources=list_spans(table), output=output)
    walker.comparing_outputs.add(output)  # The engine turns PIVOT into a GROUP BY.
    result_clauses = [tail for key in _RESULT_CLAUSES if (tail := node.args.get(key)) is not None]
    start = block.span.start if with_ is None else require_span(with_).end
    end = min((require_span(tail).start for tail in result_clauses), default=block.span.end)
    result_block = replace(block, sources=(Span(start, end),), is_chain=True)
    for key, child in iterate_children(node):
        if key == "this":
            walker.walk(child, context.enter(block, "FROM"))
        elif key in _RESULT_CLAUSES:
            walker.walk(child, replace(context.enter(result_block, CLAUSES[key]), output=output))
        elif key != "with_":
            walker.walk(child, replace(context.enter(block), output=output))


_ROW_STEPS = frozenset("WHERE ORDER SORT CLUSTER DISTRIBUTE LIMIT OFFSET TABLESAMPLE JOIN".split())
"""Pipe steps that leave the same tables in scope, or add one."""


def _walk_pipe(walker: Walker, node: exp.Expr, context: WalkContext) -> None:
    """Walk a Spark pipe such as `FROM t |> WHERE ... |> SELECT ...`.

    As long as the earlier steps only choose rows and join tables, a step sees the tables of FROM
    and of the joins by their names. Later steps see the tables that were joined afterwards, and the
    result of the last step that produced columns, under the name that `|> AS name` sets.
    """
    first_query = node.this
    with_ = first_query.args.get("with_") if isinstance(first_query, exp.Query) else None
    cte_definitions = () if with_ is None else with_.expressions
    ctes = tuple(Cte(d.alias, require_span(d)) for d in cte_definitions)
    walker.walk(first_query, context)
    has_only_from = _is_bare_from(first_query)
    span_after_with = merge_spans(n for key, n in iterate_children(first_query) if key != "with_")
    result_span = require_span(first_query)
    if ctes and span_after_with is not None:
        result_span = Span(span_after_with.start, result_span.end)
    result_name = "sqlml_chain"
    joins: list[Span] = []
    for step in node.expressions:
        keyword, step_span = step.this, require_span(step)
        if keyword == "JOIN":
            joins.append(step_span)
        items = [n for n in step.expressions if is_in_text(n)]
        defines_items = keyword in ("SELECT", "EXTEND")
        block = Block(
            step_span,
            find_covering_spans(list_sources(first_query)) if has_only_from else (result_span,),
            items=tuple(read_item(walker, n, require_span(node)) for n in items if defines_items),
            names=frozenset(filter(None, map(find_item_name, items))),
            ctes=ctes,
            is_recursive=with_ is not None and bool(with_.args.get("recursive")),
            parent=context.block,
            is_lateral=context.clause == "FROM",
            is_chain=not has_only_from,
            name=result_name,
            joins=tuple(joins),
            output=context.output or step_span,
        )
        step_context = context.enter(block, "FROM" if keyword in _FROM_STEPS else keyword)
        if keyword == "AGGREGATE":
            walker.comparing_outputs.add(context.output or step_span)
            step_context = replace(step_context, output=block.output)
        for index, child in enumerate(step.expressions):
            all_items = (
                (block.items[index], *context.items) if keyword == "SELECT" else context.items
            )
            walker.walk(child, replace(step_context, items=all_items))
        if keyword not in _ROW_STEPS:
            alias = step.args["alias"].name.replace("`", "``") if keyword == "AS" else ""
            result_name = f"`{alias}`" if keyword == "AS" else "sqlml_chain"
            result_span = Span(result_span.start, step_span.end)
            has_only_from, joins = False, []


_FROM_STEPS = frozenset({"EXTEND", "JOIN", "SET"})
"""Pipe steps whose expressions are treated like expressions in FROM."""


def _is_bare_from(node: exp.Expr) -> bool:
    """Return whether a query has no clause other than FROM, its joins and WITH."""
    return isinstance(node, exp.Select) and all(
        key in ("from_", "joins", "laterals", "with_") or not is_in_text(child)
        for key, child in iterate_children(node)
    )


RULES: Mapping[type[exp.Expr], Rule] = MappingProxyType(
    {
        exp.Select: _walk_select,
        exp.Join: _walk_join,
        **dict.fromkeys((exp.Union, exp.Intersect, exp.Except), _walk_set_operation),
        exp.Values: _walk_values,
        exp.Pivot: _walk_pivot,
        PipedQuery: _walk_pipe,
    }
)
