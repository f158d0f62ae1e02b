"""`transpiled`: expressions of the portable SQL as one database's, by sqlglot."""

from __future__ import annotations

import re
from collections.abc import Sequence

import sqlglot
from sqlglot import expressions as exp

from sqlml.backends.sql.layers import ROUNDED_SUM
from sqlml.planner.databases.database import Database


def transpiled(sql: str, database: Database) -> str:
    """An expression in `Portable`'s SQL as the database has it."""
    query = sqlglot.parse_one(f"SELECT {sql}", read="duckdb", into=exp.Select)
    (tree,) = query.selects
    made = tree.transform(lambda node: _own(node, database), copy=False)
    text: str = made.sql(dialect=database.dialect)
    return text


def _own(node: exp.Expression, database: Database) -> exp.Expression:
    if isinstance(node, exp.Anonymous) and node.name == ROUNDED_SUM:
        return _raw(_rounded_sum(node.expressions, database))
    if isinstance(node, exp.Func):
        formula = database.functions.get(node.sql_name().lower())
        if formula is not None:
            return _formula(formula, node.this)
    if isinstance(node, exp.Literal) and node.is_string and database.odd_text is not None:
        text = node.this
        return node if text.isascii() and "\\" not in text else _raw(database.odd_text(text))
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


def _rounded_sum(terms: Sequence[exp.Expression], database: Database) -> str:
    """The sum of terms, rounded after each addition: far more deeply nested than a tree of sqlglot
    may be."""
    before, after = transpiled(database.numbers.rounded("sqlml_sum"), database).split("sqlml_sum")
    texts = [
        term.transform(lambda node: _own(node, database)).sql(dialect=database.dialect)
        for term in terms
    ]
    opened = before + "("
    made = [opened * (len(texts) - 1), texts[0]]
    made += [f" + {text}){after}" for text in texts[1:]]
    return "".join(made)


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


def quoted_name(name: str, database: Database) -> str:
    """A name in the database's quotes, or without where it would be another name in them."""
    plain = database.reserved is not None and _PLAIN.fullmatch(name) is not None
    if plain and name.upper() in (database.reserved or ()):
        name, plain = name.upper(), False  # as such a name is kept there
    made: str = exp.to_identifier(name, quoted=not plain).sql(dialect=database.dialect)
    return made


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
