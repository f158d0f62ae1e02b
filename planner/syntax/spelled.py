"""`spelled`: a query that sqlml writes itself, in an engine's own spelling.

Templates are plain SQL with bare function names and operators, so that they can be read. A bare
name may mean a macro of somebody's database, though, and engines call some functions by other
names: here every function and operator gets the name by which only the engine's own is found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from sqlglot import exp

from sqlml.dialects import DUCKDB
from sqlml.dialects.duckdb import builtin
from sqlml.parsing.parse import trees

_OPERATORS: Mapping[type[exp.Expr], str] = MappingProxyType(
    {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Neg: "-", exp.Mod: "%"}
)
"""What of a template DuckDB looks up by its sign."""

_SYNTAX = frozenset({"coalesce"})
_SYNTAX_NODES = (exp.Cast, exp.Case, exp.If, exp.Coalesce, exp.And, exp.Or, exp.Exists)
"""What is written as a function is, or what sqlglot takes for one, and is none."""

_SPARK: Mapping[str, str] = MappingProxyType(
    {
        "fsum": "sum",
        "error": "raise_error",
        "array_extract": "element_at",
        "list": "collect_list",
        "list_value": "array",
        "approx_quantile": "approx_percentile",
    }
)
"""Functions of templates that Spark calls by another name."""


@lru_cache(maxsize=256)
def spelled(template: str, dialect: str = "duckdb") -> str:
    """The query as an engine takes it.

    Args:
        template: one query in DuckDB's SQL, without names from outside.
        dialect: the name of a `Dialect`.

    >>> spelled("SELECT fsum(a * 2) AS b FROM rows_seen")
    'SELECT system.main.fsum(system.main."*"(a, 2)) AS b FROM rows_seen'
    >>> spelled("SELECT fsum(a * 2) AS b FROM rows_seen", "spark")
    'SELECT sum(a * 2) AS b FROM rows_seen'
    """
    (tree,) = trees(template, DUCKDB.name)
    for node in reversed(list(tree.walk())):  # what is inside of others first
        made = _FOR[dialect](node)
        if made is not node:
            node.replace(made)
    return str(tree.sql(dialect=dialect, normalize_functions=False))


def _for_duckdb(node: exp.Expr) -> exp.Expr:
    sign = _OPERATORS.get(type(node))
    if sign is not None:
        operands = [node.this] if isinstance(node, exp.Neg) else [node.this, node.expression]
        plain = [o.this if isinstance(o, exp.Paren) else o for o in operands]
        return exp.Anonymous(this=builtin(sign), expressions=plain)
    if isinstance(node, exp.Func) and not isinstance(node, (exp.Anonymous, *_SYNTAX_NODES)):
        return _named(node)  # which sqlglot reads in a way of its own
    if isinstance(node, exp.Anonymous) and node.name not in _SYNTAX and "." not in node.name:
        return exp.Anonymous(this=builtin(node.name), expressions=node.expressions)
    return node


def _named(node: exp.Func) -> exp.Expr:
    """A function that sqlglot knows, as a call by its full name."""
    name = node.sql_name().lower()
    operands = [a for key in node.arg_types for a in _listed(node.args.get(key))]
    return exp.Anonymous(this=builtin(name), expressions=operands)


def _listed(argument: Any) -> list[Any]:
    if argument is None or isinstance(argument, bool):
        return []
    return argument if isinstance(argument, list) else [argument]


def _for_spark(node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.Anonymous) and node.name == "struct_pack":
        fields = [(exp.Literal.string(f.name), f.expression) for f in node.expressions]
        return exp.Anonymous(this="named_struct", expressions=[e for f in fields for e in f])
    if isinstance(node, exp.Anonymous) and node.name in _SPARK:
        return exp.Anonymous(this=_SPARK[node.name], expressions=node.expressions)
    return node


_FOR: Mapping[str, Callable[[exp.Expr], exp.Expr]] = MappingProxyType(
    {"duckdb": _for_duckdb, "spark": _for_spark}
)
