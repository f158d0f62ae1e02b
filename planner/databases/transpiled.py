"""Translation of expressions from portable SQL to a database's dialect with sqlglot."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import sqlglot
from sqlglot import expressions as exp

from sqlml.backends.sql.layers import ROUNDED_SUM, VerbatimSql
from sqlml.errors import BackendError
from sqlml.planner.databases.range_errors import prevent_range_errors
from sqlml.planner.databases.targets import Database


def transpile(sql: str, database: Database, for_display: bool = False) -> str:
    """Translate an expression from the SQL of `Portable` to a database's dialect.

    If `for_display` is true, users see the strings in the expression. Otherwise the strings are
    compared with columns, so the database's `string_suffix` is appended to them.
    """
    if isinstance(sql, VerbatimSql):
        return sql
    tree = prevent_range_errors(_parse_expression(sql), database.range_errors)
    return _render_expression(tree, database, for_display)


def _parse_expression(sql: str) -> exp.Expr:
    return sqlglot.parse_one(f"SELECT {sql}", read="duckdb", into=exp.Select).selects[0]


def _render_expression(tree: exp.Expr, database: Database, for_display: bool) -> str:
    if database.scales_results:
        tree = tree.transform(lambda node: _scale_results(node, database), copy=False)
    suffix = "" if for_display else database.string_suffix
    tree = tree.transform(lambda node: _adapt_node(node, database, suffix), copy=False)
    case_depth = _find_case_depth(tree)
    if case_depth > database.max_case_depth:
        raise BackendError(
            f"the model needs CASEs that are nested {case_depth} levels deep; {database.name} "
            f"allows {database.max_case_depth} levels"
        )
    return str(tree.sql(dialect=database.dialect))


def _find_case_depth(node: exp.Expression) -> int:
    max_depth, pending = 0, [(node, 0)]
    while pending:
        current, outer_depth = pending.pop()
        depth = outer_depth + isinstance(current, exp.Case)
        max_depth = max(max_depth, depth)
        pending += [(child, depth) for child in current.iter_expressions()]
    return max_depth


def _adapt_node(node: exp.Expression, database: Database, string_suffix: str) -> exp.Expression:
    if isinstance(node, exp.Anonymous) and node.name == ROUNDED_SUM:
        return _make_verbatim(_build_rounded_sum(node.expressions, database))
    if isinstance(node, exp.Func):
        formula = database.substitutes.get(node.sql_name().lower())
        if formula is not None:
            return _expand_formula(formula, node.this)
    if isinstance(node, exp.DataType) and node.this is exp.DType.FLOAT and database.float32_name:
        return exp.DataType(this=exp.DType.USERDEFINED, kind=database.float32_name)
    if isinstance(node, exp.Boolean) and database.booleans:
        return _make_verbatim(database.booleans[node.this])
    if isinstance(node, exp.Literal) and node.is_string:
        text = node.this + string_suffix
        if database.quote_odd_text is None or text.isascii() and "\\" not in text:
            return exp.Literal.string(text)
        return _make_verbatim(database.quote_odd_text(text))
    if not (isinstance(node, exp.Cast) and _is_number_literal(node)):
        return node
    value = float(node.this.this)
    if "infinity" in node.this.this and not database.has_infinity:
        return exp.null()
    if math.isinf(value):
        return _make_verbatim(database.infinity if value > 0 else f"(-{database.infinity})")
    return _make_verbatim(database.format_literal(value))


def _scale_results(node: exp.Expression, database: Database) -> exp.Expression:
    """Rewrite the results of an outermost CASE as integers times a power of 2, if that is exact."""
    if not isinstance(node, exp.Case) or node.find_ancestor(exp.Case):
        return node
    literals = _collect_result_literals(node)
    values = [float(literal.this.this) for literal in literals]
    if len(values) < _MIN_RESULTS or not all(map(math.isfinite, values)):
        return node
    exponent = find_common_exponent(values)
    scaled_values = [math.ldexp(value, -exponent) for value in values]
    if [math.ldexp(value, exponent) for value in scaled_values] != values:
        return node
    for literal, value in zip(literals, scaled_values, strict=True):
        text = str(int(value)) if value.is_integer() else database.format_literal(value)
        literal.replace(_make_verbatim(text))
    factor = _make_verbatim(database.format_literal(2.0**exponent))
    return exp.paren(exp.Mul(this=exp.paren(node, copy=False), expression=factor), copy=False)


_MIN_RESULTS = 4  # With fewer results, the multiplication is not worth its cost.


def find_common_exponent(values: Sequence[float]) -> int:
    """Return the exponent of the largest power of 2 that divides all values.

    If some values are far larger than others, the result is a larger exponent, so that the values
    divided by the power remain below 2^62.

    >>> [find_common_exponent(x) for x in ([0.75, 2.0], [1.0, 2.0**-200], [0.0, 2.0**-100])]
    [-2, -61, -100]
    """
    ratios = [value.as_integer_ratio() for value in values if value]
    if not ratios:
        return 0
    # A denominator d is a power of 2; n & -n is the greatest one that divides the numerator n.
    min_exponent = min((n & -n).bit_length() - d.bit_length() for n, d in ratios)
    max_exponent = max(math.frexp(value)[1] for value in values if value)
    return max(min_exponent, max_exponent - 62)


def _collect_result_literals(case: exp.Case) -> list[exp.Expression]:
    """Return the literals of all branches of nested CASEs, or [] if any branch is not a literal."""
    results: list[exp.Expression] = []
    for branch in [*(when.args["true"] for when in case.args["ifs"]), case.args.get("default")]:
        inner = branch.unnest() if isinstance(branch, exp.Paren) else branch
        if isinstance(inner, exp.Case) and (nested_results := _collect_result_literals(inner)):
            results += nested_results
        elif isinstance(inner, exp.Cast) and _is_number_literal(inner):
            results.append(inner)
        else:
            return []
    return results


def _build_rounded_sum(terms: Sequence[exp.Expression], database: Database) -> str:
    """Build the text of a sum rounded after each addition, whose tree sqlglot cannot render."""
    tree = _parse_expression(database.numbers.rounded("sqlml_sum"))
    rounding, suffix = _render_expression(tree, database, for_display=False).split("sqlml_sum")
    rendered_terms = [
        term.transform(lambda node: _adapt_node(node, database, "")).sql(dialect=database.dialect)
        for term in terms
    ]
    fragments = [f"{rounding}(" * (len(rendered_terms) - 1), rendered_terms[0]]
    fragments += [f" + {text}){suffix}" for text in rendered_terms[1:]]
    return "".join(fragments)


def _is_number_literal(node: exp.Cast) -> bool:
    is_string = isinstance(node.this, exp.Literal) and node.this.is_string
    return is_string and node.to.this in (exp.DType.DOUBLE, exp.DType.FLOAT)


def _expand_formula(formula: str, operand: exp.Expression) -> exp.Expression:
    tree = _parse_expression(formula).transform(
        lambda node: operand.copy() if isinstance(node, exp.Column) else node
    )
    return exp.paren(tree, copy=False)


def _make_verbatim(text: str) -> exp.Expression:
    return exp.Literal(this=text, is_string=False)


def quote_name(name: str, database: Database) -> str:
    """Quote `name` for the database; leave plain names unquoted if quotes preserve case."""
    is_plain = database.reserved is not None and _PLAIN_NAME.fullmatch(name) is not None
    if is_plain and name.upper() in (database.reserved or ()):
        # The database stores unquoted names in upper case.
        name, is_plain = name.upper(), False
    return str(exp.to_identifier(name, quoted=not is_plain).sql(dialect=database.dialect))


_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
