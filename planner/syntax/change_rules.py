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
    Reader,
    Rule,
    WalkContext,
    find_covering_span,
    iterate_children,
    list_independent_filters,
    list_spans,
    require_span,
)
from sqlml.planner.syntax.query_rules import read_block
from sqlml.types import fold


def _make_change_rule(sources: Callable[[exp.Expr], tuple[Span, ...]]) -> Rule:
    def read_change(reader: Reader, node: exp.Expr, context: WalkContext) -> None:
        block = replace(read_block(reader, node, context), sources=sources(node))
        where = node.args.get("where")
        if where is not None:
            filters = list_independent_filters(where.this)
            block = replace(block, where=span(where.this), filters=filters)
        for key, child in iterate_children(node):
            if key != "with_":
                reader.walk(child, context.enter(block, _find_clause(key)))

    return read_change


def _find_clause(key: str) -> str:
    """Return the keyword of a part of a change, whose expressions are not a SELECT list."""
    return "" if key == "expressions" else CLAUSES.get(key, "")


def _list_sources_of_update(node: exp.Expr) -> tuple[Span, ...]:
    from_ = node.args.get("from_")
    return list_spans(node.this, None if from_ is None else from_.this)


def _list_sources_of_delete(node: exp.Expr) -> tuple[Span, ...]:
    using = node.args.get("using") or []
    return list_spans(node.this, *(using if isinstance(using, list) else [using]))


def _read_merge(reader: Reader, node: exp.Expr, context: WalkContext) -> None:
    block = read_block(reader, node, context)
    if block.ctes:
        using_context = replace(context, block=block, clause="FROM")
    else:
        using_context = context
    block = replace(block, sources=list_spans(node.this, node.args.get("using")))
    whens_block = replace(
        block,
        changed_table=_find_table_name_span(node.this),
        merge_condition=_find_merge_condition(node),
    )
    for key, child in iterate_children(node):
        if key == "using":
            reader.walk(child, using_context)
        elif key != "with_":
            inner_block = whens_block if key == "whens" else block
            reader.walk(child, context.enter(inner_block, _find_clause(key)))


def _find_merge_condition(node: exp.Expr) -> Span | None:
    """Return the condition of a MERGE that also changes rows of the table without a partner.

    Returns None if it does not change them, or if the condition must not be written twice.
    """
    on = node.args.get("on")
    acts_on_unmatched = any(
        w.args.get("source") and not w.args.get("matched") for w in node.find_all(exp.When)
    )
    if not acts_on_unmatched or not isinstance(on, exp.Expr):
        return None
    must_run_once = on.find(exp.Anonymous, exp.Placeholder, exp.Parameter, exp.Query)
    return span(on) if must_run_once is None else None


def _find_table_name_span(table: exp.Expr | None) -> Span | None:
    """Return the span of the name or alias of the table that a statement changes."""
    return None if table is None else span((table.args.get("alias") or table).this)


def _read_when(reader: Reader, node: exp.Expr, context: WalkContext) -> None:
    """Walk a WHEN clause of MERGE, which sees only one side for a row without a partner."""
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
        walk = reader.walk_children if is_change else reader.walk
        walk(child, replace(context, block=block))


def _read_returning(reader: Reader, node: exp.Expr, context: WalkContext) -> None:
    """Walk RETURNING, which sees the rows that were changed."""
    block = context.block
    if block is not None:
        block = replace(block, sources=block.sources[:1])
    reader.walk_children(node, replace(context, block=block))


def _read_insert(reader: Reader, node: exp.Expr, context: WalkContext) -> None:
    block = read_block(reader, node, context)
    table = node.this.this if isinstance(node.this, exp.Schema) else node.this
    query_context = replace(context, block=block if block.ctes else context.block, clause="")
    if table is not None:
        alias = table.args.get("alias")
        block = replace(block, sources=find_covering_span([table, *([alias] if alias else [])]))
    for key, child in iterate_children(node):
        if key == "expression":
            reader.walk(child, query_context)
        elif key == "conflict":
            name = _find_table_name_span(table)
            conflict_block = replace(block, excluded_table=name, changed_table=name)
            reader.walk(child, context.enter(conflict_block, "ON"))
        elif key != "with_":
            reader.walk(child, context.enter(block, CLAUSES.get(key, "")))


def _read_multitable_insert(reader: Reader, node: exp.Expr, context: WalkContext) -> None:
    """Walk `FROM t INSERT INTO u SELECT ... INSERT INTO v SELECT ...`, whose queries all read t."""
    source = node.args["source"]
    reader.walk(source, replace(context, clause="FROM"))
    sources = find_covering_span([source, *(source.args.get("laterals") or [])])
    for child in node.expressions:
        reader.walk(child, replace(context, outer_sources=sources))


def _read_alter(reader: Reader, node: exp.Expr, context: WalkContext) -> None:
    block = Block(require_span(node), list_spans(node.this), parent=context.block)
    reader.walk_children(node, replace(context, block=block, in_definition=True))


def _read_altered_column(reader: Reader, node: exp.Expr, context: WalkContext) -> None:
    """Walk ALTER COLUMN: USING converts the rows, DEFAULT and others define the table."""
    for key, child in iterate_children(node):
        reader.walk(child, replace(context, in_definition=key != "using"))


def _read_create(reader: Reader, node: exp.Expr, context: WalkContext) -> None:
    reader.created = reader.created or str(node.args.get("kind") or "").upper()
    names = context.local_names
    for key, child in iterate_children(node):
        if isinstance(child, exp.UserDefinedFunction):
            names = _collect_parameter_names(child)
        reader.walk(child, replace(context, local_names=names, in_definition=key == "this"))


def _read_macro_overload(reader: Reader, node: exp.Expr, context: WalkContext) -> None:
    reader.walk_children(node, replace(context, local_names=_collect_parameter_names(node)))


def _collect_parameter_names(macro: exp.Expr) -> frozenset[str]:
    return frozenset(fold(p.name or p.this.name) for p in macro.expressions)


def _read_prepare(reader: Reader, node: exp.Expr, context: WalkContext) -> None:
    reader.is_stored = reader.is_stored or node.args["kind"] == "PREPARE"
    reader.walk_children(node, context)


def find_prefix(tree: exp.Expr) -> Span | None:
    """Return the span before the query whose rows a statement stores; None without such a query."""
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
        exp.Merge: _read_merge,
        exp.When: _read_when,
        exp.Returning: _read_returning,
        exp.Insert: _read_insert,
        exp.MultitableInserts: _read_multitable_insert,
        exp.Alter: _read_alter,
        exp.AlterColumn: _read_altered_column,
        exp.Create: _read_create,
        exp.MacroOverload: _read_macro_overload,
        WrappedStatement: _read_prepare,
    }
)
