"""Rules for statements that change or define something: UPDATE, DELETE, MERGE, INSERT, ALTER,
CREATE and PREPARE.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from sqlglot import exp

from sqlml.parsing.places import Span, WrappedStatement, span
from sqlml.planner.syntax.outline import Block
from sqlml.planner.syntax.outline_walk import (
    Reader,
    Rule,
    WalkContext,
    clause_of,
    covering_span,
    existing_spans,
    independent_filters,
    iterate_children,
    span_of,
)
from sqlml.planner.syntax.queries import read_ctes
from sqlml.types import fold


def _change_rule(sources: Callable[[exp.Expr], tuple[Span, ...]]) -> Callable[..., None]:
    def rule(reader: Reader, node: exp.Expr, context: WalkContext) -> None:
        ctes, recursive = read_ctes(reader, node, context)
        own = Block(
            span_of(node), sources(node), ctes=ctes, is_recursive=recursive, parent=context.block
        )
        where = node.args.get("where")
        if where is not None:
            own = replace(own, where=span(where.this), filters=independent_filters(where.this))
        reader.walk_clauses(
            node, replace(context, block=own, queries=context.queries + 1), _clause_of_change
        )

    return rule


def _sources_of_update(node: exp.Expr) -> tuple[Span, ...]:
    from_ = node.args.get("from_")
    return existing_spans(node.this, None if from_ is None else from_.this)


def _sources_of_delete(node: exp.Expr) -> tuple[Span, ...]:
    using = node.args.get("using") or []
    return existing_spans(node.this, *(using if isinstance(using, list) else [using]))


def _read_merge(reader: Reader, node: exp.Expr, context: WalkContext) -> None:
    ctes, recursive = read_ctes(reader, node, context)
    using = node.args.get("using")
    own = Block(
        span_of(node),
        existing_spans(node.this, using),
        ctes=ctes,
        is_recursive=recursive,
        parent=context.block,
    )
    whens_block = replace(
        own, changed_table=_table_name_span(node.this), merge_condition=_merge_condition(node)
    )
    using_block = replace(own, sources=()) if ctes else context.block
    for key, child in iterate_children(node):
        if key == "using":
            reader.walk(
                child,
                replace(context, block=using_block, clause="FROM" if ctes else context.clause),
            )
        elif key != "with_":
            block = whens_block if key == "whens" else own
            clause = _clause_of_change(key)
            reader.walk(
                child, replace(context, block=block, queries=context.queries + 1, clause=clause)
            )


def _merge_condition(node: exp.Expr) -> Span | None:
    """Return the condition of a MERGE that also acts on rows of the table without a partner.

    Returns None if it does not act on them, or if the condition must not be written twice.
    """
    on = node.args.get("on")
    alone = any(w.args.get("source") and not w.args.get("matched") for w in node.find_all(exp.When))
    if not alone or not isinstance(on, exp.Expr):
        return None
    once = on.find(exp.Anonymous, exp.Placeholder, exp.Parameter, exp.Query)
    return span(on) if once is None else None


def _table_name_span(table: exp.Expr | None) -> Span | None:
    """Return the span of the name by which a statement calls the table that it changes."""
    return None if table is None else span((table.args.get("alias") or table).this)


def _read_when(reader: Reader, node: exp.Expr, context: WalkContext) -> None:
    """Walk a WHEN clause of MERGE, which sees only one side for a row without a partner."""
    own = context.block
    if own is not None and len(own.sources) == 2 and not node.args.get("matched"):
        target, source = own.sources
        own = replace(own, merge_condition=None)
        if node.args.get("source"):
            own = replace(own, sources=(target,))
        else:
            own = replace(own, sources=(source,), changed_table=None)
    context = replace(context, block=own)
    for _, child in iterate_children(node):
        (reader.walk_children if isinstance(child, exp.Insert | exp.Update) else reader.walk)(
            child, context
        )


def _returning(reader: Reader, node: exp.Expr, context: WalkContext) -> None:
    """RETURNING sees the rows that were changed."""
    own = context.block
    if own is not None:
        own = replace(own, sources=own.sources[:1])
    reader.walk_children(node, replace(context, block=own))


def _insert(reader: Reader, node: exp.Expr, context: WalkContext) -> None:
    ctes, recursive = read_ctes(reader, node, context)
    table = node.this.this if isinstance(node.this, exp.Schema) else node.this
    own = Block(
        span_of(node), _target_span(node), ctes=ctes, is_recursive=recursive, parent=context.block
    )
    for key, child in iterate_children(node):
        if key == "expression":
            block = replace(own, sources=()) if ctes else context.block
            reader.walk(child, replace(context, block=block, clause=""))
        elif key == "conflict":
            name = _table_name_span(table)
            held = replace(own, excluded_table=name, changed_table=name)
            reader.walk(
                child, replace(context, block=held, clause="ON", queries=context.queries + 1)
            )
        elif key != "with_":
            reader.walk(
                child,
                replace(context, block=own, clause=clause_of(key), queries=context.queries + 1),
            )


def _target_span(node: exp.Expr) -> tuple[Span, ...]:
    """Return the span of the table of an INSERT with its alias and without its columns."""
    table = node.this.this if isinstance(node.this, exp.Schema) else node.this
    if table is None:
        return ()
    return covering_span([table, *([table.args["alias"]] if table.args.get("alias") else [])])


def _clause_of_change(key: str) -> str:
    return "" if key == "expressions" else clause_of(key)


def _read_multitable_insert(reader: Reader, node: exp.Expr, context: WalkContext) -> None:
    """Walk `FROM t INSERT INTO u SELECT ... INSERT INTO v SELECT ...`, whose queries all read t."""
    source = node.args["source"]
    reader.walk(source, replace(context, clause="FROM"))
    seen = covering_span([source, *(source.args.get("laterals") or [])])
    for child in node.expressions:
        reader.walk(child, replace(context, outer_sources=seen))


def _read_alter(reader: Reader, node: exp.Expr, context: WalkContext) -> None:
    own = Block(span_of(node), existing_spans(node.this), parent=context.block)
    reader.walk_children(node, replace(context, block=own, in_definition=True))


def _read_altered_column(reader: Reader, node: exp.Expr, context: WalkContext) -> None:
    """Walk the parts of ALTER COLUMN: USING converts the rows, DEFAULT and others define the
    table.
    """
    for key, child in iterate_children(node):
        reader.walk(child, replace(context, in_definition=key != "using"))


def _read_create(reader: Reader, node: exp.Expr, context: WalkContext) -> None:
    reader.created = reader.created or str(node.args.get("kind") or "").upper()
    names = context.local_names
    for key, child in iterate_children(node):
        if isinstance(child, exp.UserDefinedFunction):
            names = frozenset(fold(p.name or p.this.name) for p in child.expressions)
        reader.walk(child, replace(context, local_names=names, in_definition=key == "this"))


def _read_prepare(reader: Reader, node: exp.Expr, context: WalkContext) -> None:
    reader.is_stored = reader.is_stored or node.args["kind"] == "PREPARE"
    reader.walk_children(node, context)


def _read_macro_overload(reader: Reader, node: exp.Expr, context: WalkContext) -> None:
    names = frozenset(fold(p.name or p.this.name) for p in node.expressions)
    reader.walk_children(node, replace(context, local_names=names))


def find_prefix(tree: exp.Expr) -> Span | None:
    """Return the text before the query whose rows a statement stores; None if there is no such
    query.
    """
    query: exp.Expr | None = tree
    if isinstance(tree, exp.Create | exp.Insert):
        query = tree.args.get("expression")
        if isinstance(tree, exp.Create) and str(tree.args.get("kind")).upper() not in (
            "TABLE",
            "VIEW",
        ):
            return None
    if not isinstance(query, exp.Query) or isinstance(query, exp.Values):
        return None
    start = span_of(tree).start
    with_ = tree.args.get("with_") if isinstance(tree, exp.Insert) else None
    if with_ is not None:
        start = span_of(with_).end
    return Span(start, span_of(query).start)


RULES: Mapping[type[exp.Expr], Rule] = MappingProxyType(
    {
        exp.Update: _change_rule(_sources_of_update),
        exp.Delete: _change_rule(_sources_of_delete),
        exp.Merge: _read_merge,
        exp.When: _read_when,
        exp.Returning: _returning,
        exp.Insert: _insert,
        exp.MultitableInserts: _read_multitable_insert,
        exp.Alter: _read_alter,
        exp.AlterColumn: _read_altered_column,
        exp.Create: _read_create,
        exp.MacroOverload: _read_macro_overload,
        WrappedStatement: _read_prepare,
    }
)
