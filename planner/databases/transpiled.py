"""`transpiled`: expressions of the portable SQL as one database's, by sqlglot."""

from __future__ import annotations

from functools import cache

import sqlglot
from sqlglot import expressions as exp

from sqlml.planner.databases.targets import Database


def transpiled(sql: str, database: Database) -> str:
    """An expression in `Portable`'s SQL as the database has it."""
    query = sqlglot.parse_one(f"SELECT {sql}", read="duckdb", into=exp.Select)
    (tree,) = query.selects
    made = tree.transform(lambda node: _own(node, database), copy=False)
    text: str = made.sql(dialect=database.dialect)
    return text


def _own(node: exp.Expression, database: Database) -> exp.Expression:
    if isinstance(node, exp.Func):
        formula = database.functions.get(node.sql_name().lower())
        if formula is not None:
            return _formula(formula, node.this)
    if not (isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal)):
        return node
    if not (node.this.is_string and node.to.is_type("double", "float")):
        return node
    value = float(node.this.this)
    if "infinity" in node.this.this and not database.has_infinity:
        return exp.null()
    if value in (float("inf"), float("-inf")):
        text = database.infinity if value > 0 else f"(-{database.infinity})"
        return _raw(text)
    return _raw(database.literal(value))


def _formula(formula: str, x: exp.Expression) -> exp.Expression:
    """A formula of `x`."""
    tree = sqlglot.parse_one(f"SELECT {formula}", read="duckdb", into=exp.Select).selects[0]
    made: exp.Expression = tree.transform(
        lambda node: x.copy() if isinstance(node, exp.Column) else node
    )
    return exp.paren(made, copy=False)


def _raw(text: str) -> exp.Expression:
    """A text that is printed as it is."""
    return exp.Literal(this=text, is_string=False)


@cache
def quoted_name(name: str, dialect: str) -> str:
    """A name in the database's quotes."""
    return exp.to_identifier(name, quoted=True).sql(dialect=dialect)
