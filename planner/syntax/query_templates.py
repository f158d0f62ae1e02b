"""The SQL of sqlml's own queries: templates rendered for an engine, and rows as literals.

Templates are plain SQL with bare function names and operators, so that they are easy to read. But a
bare name may resolve to a user's macro, and engines have different names for some functions. Here
each function and operator gets the name that resolves to the engine's built-in only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from sqlglot import exp

from sqlml.dialects import DUCKDB, Dialect
from sqlml.dialects.duckdb import builtin
from sqlml.errors import BindError
from sqlml.parsing.parse import parse_trees

_OPERATORS: Mapping[type[exp.Expr], str] = MappingProxyType(
    {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Neg: "-", exp.Mod: "%"}
)
"""Operators of templates that DuckDB resolves by their symbol."""

_SYNTAX = frozenset({"coalesce"})
_SYNTAX_NODES = (exp.Cast, exp.Case, exp.If, exp.Coalesce, exp.And, exp.Or, exp.Exists)
"""Nodes that look like functions in SQL or in sqlglot but are syntax."""

_SPARK_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "fsum": "sum",
        "error": "raise_error",
        "array_extract": "element_at",
        "list": "collect_list",
        "list_value": "array",
        "approx_quantile": "approx_percentile",
    }
)
"""Functions in templates that have a different name in Spark."""


@lru_cache(maxsize=256)
def render_for_engine(template: str, dialect: str = "duckdb") -> str:
    """Translate a query template from DuckDB's SQL to SQL with the built-in names of an engine.

    >>> render_for_engine("SELECT fsum(a * 2) AS b FROM rows_seen")
    'SELECT system.main.fsum(system.main."*"(a, 2)) AS b FROM rows_seen'
    >>> render_for_engine("SELECT fsum(a * 2) AS b FROM rows_seen", "spark")
    'SELECT sum(a * 2) AS b FROM rows_seen'
    """
    (tree,) = parse_trees(template, DUCKDB.name)
    for node in reversed(list(tree.walk())):  # The innermost nodes come first.
        replacement = _ADAPTERS[dialect](node)
        if replacement is not node:
            node.replace(replacement)
    return str(tree.sql(dialect=dialect, normalize_functions=False))


def _adapt_to_duckdb(node: exp.Expr) -> exp.Expr:
    operator = _OPERATORS.get(type(node))
    if operator is not None:
        operands = [node.this] if isinstance(node, exp.Neg) else [node.this, node.expression]
        unwrapped_operands = [o.this if isinstance(o, exp.Paren) else o for o in operands]
        return exp.Anonymous(this=builtin(operator), expressions=unwrapped_operands)
    if isinstance(node, exp.Func) and not isinstance(node, (exp.Anonymous, *_SYNTAX_NODES)):
        operands = [argument for key in node.arg_types for argument in _as_list(node.args.get(key))]
        return exp.Anonymous(this=builtin(node.sql_name().lower()), expressions=operands)
    if isinstance(node, exp.Anonymous) and node.name not in _SYNTAX and "." not in node.name:
        return exp.Anonymous(this=builtin(node.name), expressions=node.expressions)
    return node


def _as_list(argument: Any) -> list[Any]:
    if argument is None or isinstance(argument, bool):
        return []
    return argument if isinstance(argument, list) else [argument]


def _adapt_to_spark(node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.Anonymous) and node.name == "struct_pack":
        pairs = [(exp.Literal.string(field.name), field.expression) for field in node.expressions]
        return exp.Anonymous(this="named_struct", expressions=[e for pair in pairs for e in pair])
    if isinstance(node, exp.Anonymous) and node.name in _SPARK_NAMES:
        return exp.Anonymous(this=_SPARK_NAMES[node.name], expressions=node.expressions)
    return node


_ADAPTERS: Mapping[str, Callable[[exp.Expr], exp.Expr]] = MappingProxyType(
    {"duckdb": _adapt_to_duckdb, "spark": _adapt_to_spark}
)

MAX_VALUES = 200_000
"""The maximum number of values in a statement, which the engine has to parse."""


def build_literal_table(
    columns: Mapping[str, str], rows: Sequence[Sequence[Any]], dialect: Dialect
) -> str:
    """Build a query in brackets that yields `rows`. `columns` maps column names to types.

    The rows are part of the statement. If the engine read them from a catalog table, a forged table
    would be read unchecked. Raises BindError for too many rows.
    """
    if len(rows) * len(columns) > MAX_VALUES:
        max_rows = MAX_VALUES // len(columns)
        raise BindError(f"the result has {len(rows):,} rows; the maximum is {max_rows:,}")
    aliases = [f"c{n}" for n in range(len(columns))]
    typed_columns = ", ".join(
        f"CAST({alias if rows else 'NULL'} AS {dialect.type(sql_type)}) AS "
        f"{dialect.quote_name(name)}"
        for alias, (name, sql_type) in zip(aliases, columns.items(), strict=True)
    )
    if not rows:
        return f"(SELECT {typed_columns} WHERE 1 = 0)"
    rows_sql = ", ".join(f"({', '.join(_build_literal(v, dialect) for v in row)})" for row in rows)
    return f"(SELECT {typed_columns} FROM (VALUES {rows_sql}) AS sqlml_facts({', '.join(aliases)}))"


def _build_literal(value: Any, dialect: Dialect) -> str:
    """Build the SQL literal of a value, which may come from an untrusted user."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return dialect.array([_build_literal(item, dialect) for item in value])
    if isinstance(value, Mapping):
        return dialect.struct({name: _build_literal(v, dialect) for name, v in value.items()})
    return dialect.text(repr(value) if isinstance(value, int | float) else str(value))
