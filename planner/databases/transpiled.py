"""`transpiled`: expressions of the portable SQL as one database's, by sqlglot."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import sqlglot
from sqlglot import expressions as exp

from sqlml.backends.sql.layers import ROUNDED_SUM, Verbatim
from sqlml.errors import BackendError
from sqlml.planner.databases.range_errors import without_range_errors
from sqlml.planner.databases.targets import Database


def transpiled(sql: str, database: Database, shown: bool = False) -> str:
    """An expression in `Portable`'s SQL as the database has it; `Verbatim` stays as it is.

    Args:
        shown: whether its texts are results; otherwise they are compared with columns.

    Raises:
        BackendError: the database does not nest CASEs as deeply.
    """
    if isinstance(sql, Verbatim):
        return sql
    query = sqlglot.parse_one(f"SELECT {sql}", read="duckdb", into=exp.Select)
    (tree,) = query.selects
    return _spelled(without_range_errors(tree, database.range_errors), database, shown)


def _spelled(tree: exp.Expr, database: Database, shown: bool) -> str:
    if database.scales_results:
        tree = tree.transform(lambda node: _scaled(node, database), copy=False)
    ending = "" if shown else database.ending
    made = tree.transform(lambda node: _own(node, database, ending), copy=False)
    cases = _cases(made)
    if cases > database.cases:
        raise BackendError(
            f"the model takes CASEs that are nested {cases} levels deep; {database.name} nests "
            f"them {database.cases} levels deep"
        )
    text: str = made.sql(dialect=database.dialect)
    return text


def _cases(node: exp.Expression) -> int:
    """How deeply CASEs stand in each other."""
    deepest, left = 0, [(node, 0)]
    while left:
        one, above = left.pop()
        depth = above + isinstance(one, exp.Case)
        deepest = max(deepest, depth)
        left += [(below, depth) for below in one.iter_expressions()]
    return deepest


def _own(node: exp.Expression, database: Database, ending: str) -> exp.Expression:
    if isinstance(node, exp.Anonymous) and node.name == ROUNDED_SUM:
        return _raw(_rounded_sum(node.expressions, database))
    if isinstance(node, exp.Func):
        formula = database.functions.get(node.sql_name().lower())
        if formula is not None:
            return _formula(formula, node.this)
    if isinstance(node, exp.DataType) and node.this is exp.DType.FLOAT and database.float32:
        return exp.DataType(this=exp.DType.USERDEFINED, kind=database.float32)
    if isinstance(node, exp.Boolean) and database.booleans:
        return _raw(database.booleans[node.this])
    if isinstance(node, exp.Literal) and node.is_string:
        text = node.this + ending
        if database.odd_text is None or text.isascii() and "\\" not in text:
            return exp.Literal.string(text)
        return _raw(database.odd_text(text))
    if not (isinstance(node, exp.Cast) and _is_number(node)):
        return node
    value = float(node.this.this)
    if "infinity" in node.this.this and not database.has_infinity:
        return exp.null()
    if value in (float("inf"), float("-inf")):
        text = database.infinity if value > 0 else f"(-{database.infinity})"
        return _raw(text)
    return _raw(database.literal(value))


def _scaled(node: exp.Expression, database: Database) -> exp.Expression:
    """A CASE, as a tree is, of whole numbers times a power of two in place of other numbers."""
    if not isinstance(node, exp.Case) or node.find_ancestor(exp.Case):
        return node
    found = _results(node)
    values = [float(one.this.this) for one in found]
    if len(values) < _MANY or not all(map(math.isfinite, values)):
        return node
    power = scale(values)
    scaled = [math.ldexp(value, -power) for value in values]
    if [math.ldexp(whole, power) for whole in scaled] != values:
        return node
    for one, whole in zip(found, scaled, strict=True):
        one.replace(_raw(str(int(whole)) if whole.is_integer() else database.literal(whole)))
    factor = _raw(database.literal(2.0**power))
    return exp.paren(exp.Mul(this=exp.paren(node, copy=False), expression=factor), copy=False)


_MANY = 4
"""Results that are worth a multiplication."""


def scale(values: Sequence[float]) -> int:
    """The greatest exponent of a power of 2 of which all are multiples; where some are far greater
    than others, a greater one, so that the multiples remain below 2^62.

    >>> scale([0.75, 2.0]), scale([1.0, 2.0**-200]), scale([0.0, 2.0**-100])
    (-2, -61, -100)
    """
    ratios = [value.as_integer_ratio() for value in values if value]
    if not ratios:
        return 0
    least = min(_zeros(top) - _zeros(bottom) for top, bottom in ratios)
    most = max(math.frexp(value)[1] for value in values if value)
    return max(least, most - 62)


def _zeros(whole: int) -> int:
    """How many zeros its bits end with."""
    return (whole & -whole).bit_length() - 1


def _results(case: exp.Case) -> list[exp.Expression]:
    """The literals that a CASE and those in it give; none if they give anything else."""
    made: list[exp.Expression] = []
    for one in [*(when.args["true"] for when in case.args["ifs"]), case.args.get("default")]:
        inner = one.unnest() if isinstance(one, exp.Paren) else one
        if isinstance(inner, exp.Case):
            below = _results(inner)
        elif isinstance(inner, exp.Cast) and _is_number(inner):
            below = [inner]
        else:
            below = []
        if not below:
            return []
        made += below
    return made


def _rounded_sum(terms: Sequence[exp.Expression], database: Database) -> str:
    """The sum of terms, rounded after each addition: far more deeply nested than a tree of sqlglot
    may be."""
    rounded = database.numbers.rounded("sqlml_sum")
    tree = sqlglot.parse_one(f"SELECT {rounded}", read="duckdb", into=exp.Select).selects[0]
    before, after = _spelled(tree, database, shown=False).split("sqlml_sum")
    texts = [
        term.transform(lambda node: _own(node, database, "")).sql(dialect=database.dialect)
        for term in terms
    ]
    opened = before + "("
    made = [opened * (len(texts) - 1), texts[0]]
    made += [f" + {text}){after}" for text in texts[1:]]
    return "".join(made)


def _is_number(node: exp.Cast) -> bool:
    """Whether it is the literal of a number."""
    is_text = isinstance(node.this, exp.Literal) and node.this.is_string
    return is_text and node.to.this in (exp.DType.DOUBLE, exp.DType.FLOAT)


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
