"""Print models with one weighted sum as SQL expressions, which are faster than function calls.

Each column is a term of the sum, so a NULL, NaN or infinity makes the sum NULL, NaN or infinite. If
the sum is not finite, the caller runs the Program, whose errors name the column. So only an imputer
of values that no previous step rejects may turn NULL or NaN into a number before the sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from sqlml.backends.sql.expression import number_literal
from sqlml.dialects import DUCKDB
from sqlml.ir.program import Attrs, Program

MAX_COLUMNS = 256
"""Maximum number of columns; the sum of all columns is repeated up to three times."""


@dataclass(frozen=True, slots=True)
class LinearSql:
    """SQL of a model's output and weighted sum; the output is valid only if `sum` is finite."""

    value: str
    sum: str


def print_linear(program: Program, columns: Sequence[str]) -> LinearSql | None:
    """Print a model that consists of one weighted sum, or return None for another model.

    `columns` are short expressions of type DOUBLE for the columns of the model's only input.
    """
    if len(program.inputs) != 1 or len(program.outputs) != 1 or len(columns) > MAX_COLUMNS:
        return None
    sum_nodes = [i for i, node in enumerate(program.nodes) if node.op == "linear"]
    if len(sum_nodes) != 1 or program.nodes[sum_nodes[0]].type.width != 1:
        return None
    (output_node,) = program.outputs.values()
    if program.nodes[output_node].type.width != 1:
        return None
    sql_of_nodes: list[list[str]] = []
    # For each node: whether it depends on columns other than through the sum, and whether rows with
    # missing values are rejected before it.
    depends_on_columns: list[bool] = []
    is_checked: list[bool] = []
    for i, node in enumerate(program.nodes):
        depends_on_column = node.op == "input" or any(depends_on_columns[j] for j in node.inputs)
        depends_on_column = depends_on_column and node.op != "linear"
        rejects_missing = node.op == "require_finite" and not node.attrs["allow_nan"]
        depends_on_columns.append(depends_on_column)
        is_checked.append(rejects_missing or any(is_checked[j] for j in node.inputs))
        if node.op == "input":
            sql_of_nodes.append(list(columns))
            continue
        printer = PRINTERS.get(node.op)
        if printer is None or node.type.dtype not in ("float64", "int64", "bool"):
            return None
        keeps_nan = node.op in _NAN_PRESERVING and node.type.dtype == "float64"
        # A column that is read after the sum may not be a term of the sum.
        if depends_on_column and (not keeps_nan or i > sum_nodes[0]):
            return None
        divides_by_column = node.op == "div" and depends_on_columns[node.inputs[1]]
        fills_rejected = node.op == "impute" and is_checked[i]
        if divides_by_column or fills_rejected:
            return None
        node_sql = printer([sql_of_nodes[j] for j in node.inputs], node.attrs)
        if node_sql is None:
            return None
        sql_of_nodes.append(node_sql)
    return LinearSql(sql_of_nodes[output_node][0], sql_of_nodes[sum_nodes[0]][0])


_NAN_PRESERVING = frozenset("select concat cast require_finite impute add sub mul div neg".split())
"""Operators that map NULL, NaN and infinity to NULL, NaN or infinity, except for impute."""

Values = list[str]
"""One expression for each column of a value."""
Printer = Callable[[Sequence[Values], Attrs], Values | None]
"""A function that prints an operator, or returns None if the attributes are unsupported."""


def _print_cast(args: Sequence[Values], attrs: Attrs) -> Values | None:
    if attrs["dtype"] == "float64":
        return list(args[0])
    return [f"CAST({sql} AS BIGINT)" for sql in args[0]] if attrs["dtype"] == "int64" else None


def _print_require_finite(args: Sequence[Values], attrs: Attrs) -> Values | None:
    bounds = [attrs[name] for name in ("low", "high") if name in attrs]
    # Wide bounds only detect an overflow, which the sum reveals.
    are_wide = all((np.abs(bound) >= 1e290).all() for bound in bounds)
    return list(args[0]) if are_wide else None


def _print_impute(args: Sequence[Values], attrs: Attrs) -> Values | None:
    if attrs["missing"] == attrs["missing"]:
        return None
    filled = zip(args[0], attrs["fill"].astype(np.float64).tolist(), strict=True)
    return [
        f"CASE WHEN {sql} IS NULL OR {DUCKDB.call('isnan', sql)} "
        f"THEN {_format_number(fill)} ELSE {sql} END"
        for sql, fill in filled
    ]


def _print_weighted_sum(args: Sequence[Values], attrs: Attrs) -> Values | None:
    pairs = zip(args[0], attrs["weights"].astype(np.float64)[:, 0].tolist(), strict=True)
    terms = [DUCKDB.operator("*", sql, _format_number(weight)) for sql, weight in pairs]
    return [DUCKDB.total([*terms, _format_number(float(attrs["bias"][0]))])]


def _format_number(value: float) -> str:
    """Return a literal such as 0.5e0, a DOUBLE that is parsed faster than a cast."""
    if not math.isfinite(value):
        return number_literal(value)
    text = repr(value)
    return text if "e" in text else f"{text}e0"


def _make_binary_printer(form: Callable[[str, str], str]) -> Printer:
    def printer(args: Sequence[Values], attrs: Attrs) -> Values | None:
        a, b = args
        width = max(len(a), len(b))
        if min(len(a), len(b)) not in (1, width):
            return None
        pairs = zip(a * (width // len(a)), b * (width // len(b)), strict=True)
        return [form(x, y) for x, y in pairs]

    return printer


def _make_unary_printer(form: Callable[[str], str]) -> Printer:
    return lambda args, attrs: [form(v) for v in args[0]]


def _format_comparison(x: str, y: str, symbol: str) -> str:
    return f"({x} {symbol} {y})"


def _format_sigmoid(x: str) -> str:
    denominator = DUCKDB.operator("+", "1", DUCKDB.call("exp", DUCKDB.negated(x)))
    return DUCKDB.operator("/", "1", denominator)


PRINTERS: Mapping[str, Printer] = {
    "constant": lambda args, attrs: [_format_number(float(v)) for v in attrs["value"].flat],
    "select": lambda args, attrs: [args[0][j] for j in attrs["indices"].tolist()],
    "concat": lambda args, attrs: [value for part in args for value in part],
    "cast": _print_cast,
    "require_finite": _print_require_finite,
    "impute": _print_impute,
    "linear": _print_weighted_sum,
    **{
        op: _make_binary_printer(partial(DUCKDB.operator, symbol))
        for op, symbol in (("add", "+"), ("sub", "-"), ("mul", "*"), ("div", "/"))
    },
    **{
        op: _make_binary_printer(partial(_format_comparison, symbol=symbol))
        for op, symbol in (("gt", ">"), ("ge", ">="), ("lt", "<"), ("le", "<="))
    },
    "neg": _make_unary_printer(DUCKDB.negated),
    "sigmoid": _make_unary_printer(_format_sigmoid),
    "exp": _make_unary_printer(lambda x: DUCKDB.call("exp", x)),
}
