"""Statements that change or define something: what each of their parts sees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from sqlglot import exp

from sqlml.parsing.places import Kept, Span, span
from sqlml.planner.syntax.items import (
    At,
    Reader,
    Rule,
    children,
    clause_of,
    filters_of,
    place_of,
    spans_of,
    together,
)
from sqlml.planner.syntax.outline import Block
from sqlml.planner.syntax.queries import definitions
from sqlml.types import fold


def _change(sources: Callable[[exp.Expr], tuple[Span, ...]]) -> Callable[..., None]:
    def rule(r: Reader, node: exp.Expr, at: At) -> None:
        ctes, recursive = definitions(r, node, at)
        own = Block(place_of(node), sources(node), ctes=ctes, recursive=recursive, parent=at.block)
        where = node.args.get("where")
        if where is not None:
            own = replace(own, where=span(where.this), filters=filters_of(where.this))
        r.parts(node, replace(at, block=own, queries=at.queries + 1), _clause_of_change)

    return rule


def _of_update(node: exp.Expr) -> tuple[Span, ...]:
    from_ = node.args.get("from_")
    return spans_of(node.this, None if from_ is None else from_.this)


def _of_delete(node: exp.Expr) -> tuple[Span, ...]:
    using = node.args.get("using") or []
    return spans_of(node.this, *(using if isinstance(using, list) else [using]))


def _merge(r: Reader, node: exp.Expr, at: At) -> None:
    ctes, recursive = definitions(r, node, at)
    using = node.args.get("using")
    own = Block(
        place_of(node), spans_of(node.this, using), ctes=ctes, recursive=recursive, parent=at.block
    )
    acted = replace(own, changed=_name_of(node.this), matches=_matches(node))
    alone = replace(own, sources=()) if ctes else at.block
    for key, child in children(node):
        if key == "using":
            r.walk(child, replace(at, block=alone, clause="FROM" if ctes else at.clause))
        elif key != "with_":
            block = acted if key == "whens" else own
            clause = _clause_of_change(key)
            r.walk(child, replace(at, block=block, queries=at.queries + 1, clause=clause))


def _matches(node: exp.Expr) -> Span | None:
    """The condition of a MERGE that does something with rows of the table without a partner.

    None where it does not, or where the condition may not be written twice.
    """
    on = node.args.get("on")
    alone = any(w.args.get("source") and not w.args.get("matched") for w in node.find_all(exp.When))
    if not alone or not isinstance(on, exp.Expr):
        return None
    once = on.find(exp.Anonymous, exp.Placeholder, exp.Parameter, exp.Query)
    return span(on) if once is None else None


def _name_of(table: exp.Expr | None) -> Span | None:
    """How a table is called in the statement that changes it."""
    return None if table is None else span((table.args.get("alias") or table).this)


def _when(r: Reader, node: exp.Expr, at: At) -> None:
    """What a row of MERGE without a partner sees: its own side."""
    own = at.block
    if own is not None and len(own.sources) == 2 and not node.args.get("matched"):
        target, source = own.sources
        own = replace(own, matches=None)
        if node.args.get("source"):
            own = replace(own, sources=(target,))
        else:
            own = replace(own, sources=(source,), changed=None)
    at = replace(at, block=own)
    for _, child in children(node):
        (r.into if isinstance(child, exp.Insert | exp.Update) else r.walk)(child, at)


def _returning(r: Reader, node: exp.Expr, at: At) -> None:
    """RETURNING sees the rows that were changed."""
    own = at.block
    if own is not None:
        own = replace(own, sources=own.sources[:1])
    r.into(node, replace(at, block=own))


def _insert(r: Reader, node: exp.Expr, at: At) -> None:
    ctes, recursive = definitions(r, node, at)
    table = node.this.this if isinstance(node.this, exp.Schema) else node.this
    own = Block(place_of(node), _target(node), ctes=ctes, recursive=recursive, parent=at.block)
    for key, child in children(node):
        if key == "expression":
            block = replace(own, sources=()) if ctes else at.block
            r.walk(child, replace(at, block=block, clause=""))
        elif key == "conflict":
            name = _name_of(table)
            held = replace(own, excluded=name, changed=name)
            r.walk(child, replace(at, block=held, clause="ON", queries=at.queries + 1))
        elif key != "with_":
            r.walk(child, replace(at, block=own, clause=clause_of(key), queries=at.queries + 1))


def _target(node: exp.Expr) -> tuple[Span, ...]:
    """The table of an INSERT with its alias, without its columns."""
    table = node.this.this if isinstance(node.this, exp.Schema) else node.this
    if table is None:
        return ()
    return together([table, *([table.args["alias"]] if table.args.get("alias") else [])])


def _clause_of_change(key: str) -> str:
    return "" if key == "expressions" else clause_of(key)


def _inserts(r: Reader, node: exp.Expr, at: At) -> None:
    """FROM t INSERT INTO u SELECT .. INSERT INTO v SELECT ..: each query reads t."""
    source = node.args["source"]
    r.walk(source, replace(at, clause="FROM"))
    seen = together([source, *(source.args.get("laterals") or [])])
    for child in node.expressions:
        r.walk(child, replace(at, reads=seen))


def _alter(r: Reader, node: exp.Expr, at: At) -> None:
    own = Block(place_of(node), spans_of(node.this), parent=at.block)
    r.into(node, replace(at, block=own, defines=True))


def _of_altered(r: Reader, node: exp.Expr, at: At) -> None:
    """USING says what the rows become; DEFAULT and the like define the table."""
    for key, child in children(node):
        r.walk(child, replace(at, defines=key != "using"))


def _create(r: Reader, node: exp.Expr, at: At) -> None:
    r.created = r.created or str(node.args.get("kind") or "").upper()
    names = at.names
    for key, child in children(node):
        if isinstance(child, exp.UserDefinedFunction):
            names = frozenset(fold(p.name or p.this.name) for p in child.expressions)
        r.walk(child, replace(at, names=names, defines=key == "this"))


def _kept(r: Reader, node: exp.Expr, at: At) -> None:
    r.kept = r.kept or node.args["kind"] == "PREPARE"
    r.into(node, at)


def _overload(r: Reader, node: exp.Expr, at: At) -> None:
    names = frozenset(fold(p.name or p.this.name) for p in node.expressions)
    r.into(node, replace(at, names=names))


def prefix_of(tree: exp.Expr) -> Span | None:
    """What stands before the query whose rows a statement makes or moves."""
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
    start = place_of(tree).start
    with_ = tree.args.get("with_") if isinstance(tree, exp.Insert) else None
    if with_ is not None:
        start = place_of(with_).end
    return Span(start, place_of(query).start)


RULES: Mapping[type[exp.Expr], Rule] = MappingProxyType(
    {
        exp.Update: _change(_of_update),
        exp.Delete: _change(_of_delete),
        exp.Merge: _merge,
        exp.When: _when,
        exp.Returning: _returning,
        exp.Insert: _insert,
        exp.MultitableInserts: _inserts,
        exp.Alter: _alter,
        exp.AlterColumn: _of_altered,
        exp.Create: _create,
        exp.MacroOverload: _overload,
        Kept: _kept,
    }
)
