"""Print models with one weighted sum as SQL expressions, which are faster than function calls.

Each column is a term of the sum, so a NULL, NaN or infinity makes the sum NULL, NaN or infinite.
The caller then runs the Program, whose errors name the column. So no operator before the sum may
turn such a value into a number, except impute, for values that no previous step rejects.
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
"""Maximum number of columns; the sum of all columns is written two or three times."""


@dataclass(frozen=True, slots=True)
class LinearSql:
    """SQL of a model: its output `value` is valid in rows whose weighted sum `sum` is finite."""

    value: str
    sum: str


def print_linear(program: Program, columns: Sequence[str]) -> LinearSql | None:
    """Print a model that consists of one weighted sum; return None if the model has another form.

    `columns` are short expressions of type DOUBLE for the columns of the model's only input.
    """
    if len(program.inputs) != 1 or len(program.outputs) != 1 or len(columns) > MAX_COLUMNS:
        return None
    sums = [i for i, node in enumerate(program.nodes) if node.op == "linear"]
    if len(sums) != 1 or program.nodes[sums[0]].type.width != 1:
        return None
    (output_node,) = program.outputs.values()
    if program.nodes[output_node].type.width != 1:
        return None
    printed_values: list[list[str]] = []
    # These lists tell for each node whether it depends on columns other than through the sum, and
    # whether rows with missing values were rejected before it.
    depends_on_columns: list[bool] = []
    is_checked: list[bool] = []
    for i, node in enumerate(program.nodes):
        depends = node.op == "input" or any(depends_on_columns[j] for j in node.inputs)
        depends = depends and node.op != "linear"
        checks = node.op == "require_finite" and not node.attrs["allow_nan"]
        depends_on_columns.append(depends)
        is_checked.append(checks or any(is_checked[j] for j in node.inputs))
        if node.op == "input":
            printed_values.append(list(columns))
            continue
        printer = PRINTERS.get(node.op)
        if printer is None or node.type.dtype not in ("float64", "int64", "bool"):
            return None
        keeps_nan = node.op in _NAN_PRESERVING and node.type.dtype == "float64"
        # A column that is read after the sum may not be a term of it.
        if depends and (not keeps_nan or i > sums[0]):
            return None
        divides_by_column = node.op == "div" and depends_on_columns[node.inputs[1]]
        fills_rejected = node.op == "impute" and is_checked[i]
        if divides_by_column or fills_rejected:
            return None
        printed = printer([printed_values[j] for j in node.inputs], node.attrs)
        if printed is None:
            return None
        printed_values.append(printed)
    return LinearSql(printed_values[output_node][0], printed_values[sums[0]][0])


_NAN_PRESERVING = frozenset("select concat cast require_finite impute add sub mul div neg".split())
"""Operators that map NULL, NaN and infinity to NULL, NaN or infinity; impute is an exception."""

Values = list[str]
"""One expression for each column of a value."""
Printer = Callable[[Sequence[Values], Attrs], Values | None]
"""Prints an operator, given its inputs; returns None if its attributes are not supported."""


def _cast_sql(args: Sequence[Values], attrs: Attrs) -> Values | None:
    if attrs["dtype"] == "float64":
        return list(args[0])
    return [f"CAST({sql} AS BIGINT)" for sql in args[0]] if attrs["dtype"] == "int64" else None


def _require_finite_sql(args: Sequence[Values], attrs: Attrs) -> Values | None:
    bounds = [attrs[name] for name in ("low", "high") if name in attrs]
    # Such wide bounds only detect overflow, which the sum shows.
    are_wide = all((np.abs(bound) >= 1e290).all() for bound in bounds)
    return list(args[0]) if are_wide else None


def _impute_sql(args: Sequence[Values], attrs: Attrs) -> Values | None:
    if attrs["missing"] == attrs["missing"]:
        return None
    filled = zip(args[0], attrs["fill"].astype(np.float64).tolist(), strict=True)
    return [
        f"CASE WHEN {sql} IS NULL OR {DUCKDB.call('isnan', sql)} "
        f"THEN {_format_number(fill)} ELSE {sql} END"
        for sql, fill in filled
    ]


def _weighted_sum_sql(args: Sequence[Values], attrs: Attrs) -> Values | None:
    weights = attrs["weights"].astype(np.float64)[:, 0].tolist()
    pairs = zip(args[0], weights, strict=True)
    terms = [DUCKDB.operator("*", sql, _format_number(weight)) for sql, weight in pairs]
    return [DUCKDB.total([*terms, _format_number(float(attrs["bias"][0]))])]


def _format_number(value: float) -> str:
    """Return `value` as a literal such as 0.5e0: a DOUBLE without a cast, which parses faster."""
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


def _comparison_sql(x: str, y: str, symbol: str) -> str:
    return f"({x} {symbol} {y})"


def _sigmoid_sql(x: str) -> str:
    denominator = DUCKDB.operator("+", "1", DUCKDB.call("exp", DUCKDB.negated(x)))
    return DUCKDB.operator("/", "1", denominator)


PRINTERS: Mapping[str, Printer] = {
    "constant": lambda args, attrs: [_format_number(float(v)) for v in attrs["value"].flat],
    "select": lambda args, attrs: [args[0][j] for j in attrs["indices"].tolist()],
    "concat": lambda args, attrs: [value for part in args for value in part],
    "cast": _cast_sql,
    "require_finite": _require_finite_sql,
    "impute": _impute_sql,
    "linear": _weighted_sum_sql,
    **{
        op: _make_binary_printer(partial(DUCKDB.operator, symbol))
        for op, symbol in (("add", "+"), ("sub", "-"), ("mul", "*"), ("div", "/"))
    },
    **{
        op: _make_binary_printer(partial(_comparison_sql, symbol=symbol))
        for op, symbol in (("gt", ">"), ("ge", ">="), ("lt", "<"), ("le", "<="))
    },
    "neg": _make_unary_printer(DUCKDB.negated),
    "sigmoid": _make_unary_printer(_sigmoid_sql),
    "exp": _make_unary_printer(lambda x: DUCKDB.call("exp", x)),
}
