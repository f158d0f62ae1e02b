"""Rules for UPDATE, DELETE, MERGE, INSERT, ALTER, CREATE and PREPARE."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from sqlglot import exp

from sqlml.parsing.places import Span, WrappedStatement, span
from sqlml.planner.syntax.outline import Block
from sqlml.planner.syntax.outline_walk import (
    CLAUSES,
    Rule,
    WalkContext,
    Walker,
    find_covering_spans,
    iterate_children,
    list_independent_filters,
    list_spans,
    require_span,
)
from sqlml.planner.syntax.query_rules import read_block
from sqlml.types import fold


def _make_change_rule(list_sources: Callable[[exp.Expr], tuple[Span, ...]]) -> Rule:
    """Make the rule for UPDATE or DELETE, which sees the tables that `list_sources` returns."""

    def walk_change(walker: Walker, node: exp.Expr, context: WalkContext) -> None:
        block = replace(read_block(walker, node, context), sources=list_sources(node))
        where = node.args.get("where")
        if where is not None:
            filters = list_independent_filters(where.this)
            block = replace(block, where=span(where.this), filters=filters)
        for key, child in iterate_children(node):
            if key != "with_":
                walker.walk(child, context.enter(block, _find_clause(key)))

    return walk_change


def _find_clause(key: str) -> str:
    return "" if key == "expressions" else CLAUSES.get(key, "")


def _list_sources_of_update(node: exp.Expr) -> tuple[Span, ...]:
    from_ = node.args.get("from_")
    return list_spans(node.this, None if from_ is None else from_.this)


def _list_sources_of_delete(node: exp.Expr) -> tuple[Span, ...]:
    using = node.args.get("using") or []
    return list_spans(node.this, *(using if isinstance(using, list) else [using]))


def _walk_merge(walker: Walker, node: exp.Expr, context: WalkContext) -> None:
    block = read_block(walker, node, context)
    using_context = replace(context, block=block, clause="FROM") if block.ctes else context
    block = replace(block, sources=list_spans(node.this, node.args.get("using")))
    when_block = replace(
        block,
        changed_table=_find_table_name_span(node.this),
        merge_condition=_find_merge_condition(node),
    )
    for key, child in iterate_children(node):
        if key == "using":
            walker.walk(child, using_context)
        elif key != "with_":
            inner_block = when_block if key == "whens" else block
            walker.walk(child, context.enter(inner_block, _find_clause(key)))


def _find_merge_condition(node: exp.Expr) -> Span | None:
    """Return the ON condition of a MERGE that also changes target rows without a source row.

    Returns None for any other MERGE, and for a condition that must not be evaluated twice.
    """
    on = node.args.get("on")
    clauses = [when for when in node.find_all(exp.When) if not when.args.get("matched")]
    if not any(when.args.get("source") for when in clauses) or not isinstance(on, exp.Expr):
        return None
    nondeterministic_node = on.find(exp.Anonymous, exp.Placeholder, exp.Parameter, exp.Query)
    return span(on) if nondeterministic_node is None else None


def _find_table_name_span(table: exp.Expr | None) -> Span | None:
    return None if table is None else span((table.args.get("alias") or table).this)


def _walk_when(walker: Walker, node: exp.Expr, context: WalkContext) -> None:
    """Walk a WHEN clause of MERGE, which sees only one of the two tables for unmatched rows."""
    block = context.block
    if block is not None and len(block.sources) == 2 and not node.args.get("matched"):
        target, source = block.sources
        block = replace(block, merge_condition=None)
        if node.args.get("source"):
            block = replace(block, sources=(target,))
        else:
            block = replace(block, sources=(source,), changed_table=None)
    for child in node.iter_expressions():
        is_change = isinstance(child, exp.Insert | exp.Update)
        walk = walker.walk_children if is_change else walker.walk
        walk(child, replace(context, block=block))


def _walk_returning(walker: Walker, node: exp.Expr, context: WalkContext) -> None:
    """Walk RETURNING, which sees only the table that the statement changes."""
    block = context.block
    if block is not None:
        block = replace(block, sources=block.sources[:1])
    walker.walk_children(node, replace(context, block=block))


def _walk_insert(walker: Walker, node: exp.Expr, context: WalkContext) -> None:
    block = read_block(walker, node, context)
    table = node.this.this if isinstance(node.this, exp.Schema) else node.this
    query_context = replace(context, block=block if block.ctes else context.block, clause="")
    if table is not None:
        alias = table.args.get("alias")
        block = replace(block, sources=find_covering_spans([table, *([alias] if alias else [])]))
    for key, child in iterate_children(node):
        if key == "expression":
            walker.walk(child, query_context)
        elif key == "conflict":
            name_span = _find_table_name_span(table)
            conflict_block = replace(block, excluded_table=name_span, changed_table=name_span)
            walker.walk(child, context.enter(conflict_block, "ON"))
        elif key != "with_":
            walker.walk(child, context.enter(block, CLAUSES.get(key, "")))


def _walk_multitable_insert(walker: Walker, node: exp.Expr, context: WalkContext) -> None:
    """Walk `FROM t INSERT INTO u SELECT ... INSERT INTO v SELECT ...`, whose queries all read t."""
    source = node.args["source"]
    walker.walk(source, replace(context, clause="FROM"))
    sources = find_covering_spans([source, *(source.args.get("laterals") or [])])
    for child in node.expressions:
        walker.walk(child, replace(context, outer_sources=sources))


def _walk_alter(walker: Walker, node: exp.Expr, context: WalkContext) -> None:
    block = Block(require_span(node), list_spans(node.this), parent=context.block)
    walker.walk_children(node, replace(context, block=block, in_definition=True))


def _walk_altered_column(walker: Walker, node: exp.Expr, context: WalkContext) -> None:
    """Walk ALTER COLUMN, in which all parts except USING belong to the table's definition."""
    for key, child in iterate_children(node):
        walker.walk(child, replace(context, in_definition=key != "using"))


def _walk_create(walker: Walker, node: exp.Expr, context: WalkContext) -> None:
    walker.created = walker.created or str(node.args.get("kind") or "").upper()
    local_names = context.local_names
    for key, child in iterate_children(node):
        if isinstance(child, exp.UserDefinedFunction):
            local_names = _collect_parameter_names(child)
        walker.walk(child, replace(context, local_names=local_names, in_definition=key == "this"))


def _walk_macro_overload(walker: Walker, node: exp.Expr, context: WalkContext) -> None:
    walker.walk_children(node, replace(context, local_names=_collect_parameter_names(node)))


def _collect_parameter_names(macro: exp.Expr) -> frozenset[str]:
    return frozenset(fold(node.name or node.this.name) for node in macro.expressions)


def _walk_prepare(walker: Walker, node: exp.Expr, context: WalkContext) -> None:
    walker.is_stored = walker.is_stored or node.args["kind"] == "PREPARE"
    walker.walk_children(node, context)


def find_prefix(tree: exp.Expr) -> Span | None:
    """Return the span before the query, such as INSERT INTO t, or None if there is no query."""
    query: exp.Expr | None = tree
    if isinstance(tree, exp.Create | exp.Insert):
        query = tree.args.get("expression")
    kind = str(tree.args.get("kind")).upper() if isinstance(tree, exp.Create) else "TABLE"
    if kind not in ("TABLE", "VIEW"):
        return None
    if not isinstance(query, exp.Query) or isinstance(query, exp.Values):
        return None
    with_ = tree.args.get("with_") if isinstance(tree, exp.Insert) else None
    start = require_span(tree).start if with_ is None else require_span(with_).end
    return Span(start, require_span(query).start)


RULES: Mapping[type[exp.Expr], Rule] = MappingProxyType(
    {
        exp.Update: _make_change_rule(_list_sources_of_update),
        exp.Delete: _make_change_rule(_list_sources_of_delete),
        exp.Merge: _walk_merge,
        exp.When: _walk_when,
        exp.Returning: _walk_returning,
        exp.Insert: _walk_insert,
        exp.MultitableInserts: _walk_multitable_insert,
        exp.Alter: _walk_alter,
        exp.AlterColumn: _walk_altered_column,
        exp.Create: _walk_create,
        exp.MacroOverload: _walk_macro_overload,
        WrappedStatement: _walk_prepare,
    }
)
