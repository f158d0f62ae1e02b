"""Pipes: Spark's `FROM t |> WHERE .. |> SELECT ..`, whose steps see what came before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from sqlglot import exp

from sqlml.parsing.nodes import Piped
from sqlml.parsing.places import Span, hull, is_written
from sqlml.planner.syntax.items import item_of, own_name
from sqlml.planner.syntax.outline import Block, Cte
from sqlml.planner.syntax.queries import sources_of
from sqlml.planner.syntax.walk import At, Reader, Rule, children, place_of, together

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


RULES: Mapping[type[exp.Expr], Rule] = MappingProxyType({Piped: _piped})
