"""Models of one weighted sum as SQL expressions, which are faster than any function call.

A number in SQL may be NULL, NaN or infinite. SQL does not repeat how a model treats that, for
example by an error that names the column. Such a row makes the sum NULL, NaN or infinite, because
each column is a term of it, and the caller then runs the Program. So nothing before the sum may
turn such a value into a number: no comparison, no exp(), no quotient by it. Only impute may, for
values that no step before it rejects.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from sqlml.backends.sql.expression import number_literal
from sqlml.dialects import DUCKDB
from sqlml.ir.program import Attrs, Program
from sqlml.types import Array

MOST_COLUMNS = 256
"""Most columns; the sum, with each column in it, is written two or three times."""

WIDEST_BOUND = 1e290
"""Bounds of a check that are at least this wide only detect overflow, which the sum shows."""


@dataclass(frozen=True, slots=True)
class Linear:
    """The output `value`, which is correct if the weighted sum `sum` is finite."""

    value: str
    sum: str


def print_linear(program: Program, columns: Sequence[str]) -> Linear | None:
    """Return the only output of `program`, one column wide; None if it is another kind of model.

    Args:
        program: has one input, a matrix.
        columns: for each column of the matrix a DOUBLE in SQL that is cheap to repeat.
    """
    if len(program.inputs) != 1 or len(program.outputs) != 1 or len(columns) > MOST_COLUMNS:
        return None
    sums = [i for i, node in enumerate(program.nodes) if node.op == "linear"]
    if len(sums) != 1 or program.nodes[sums[0]].type.width != 1:
        return None
    (last,) = program.outputs.values()
    if program.nodes[last].type.width != 1:
        return None
    printed_values: list[list[str]] = []
    # For each node: whether it depends on columns other than through the sum, and whether rows with
    # missing values were rejected before it.
    depends_on_columns: list[bool] = []
    is_checked: list[bool] = []
    for node in program.nodes:
        depends_on_columns.append(
            node.op == "input"
            or node.op != "linear"
            and any(depends_on_columns[i] for i in node.inputs)
        )
        is_checked.append(
            any(is_checked[i] for i in node.inputs)
            or node.op == "require_finite"
            and not node.attrs["allow_nan"]
        )
        if node.op == "input":
            printed_values.append(list(columns))
            continue
        printer = PRINTERS.get(node.op)
        if printer is None or node.type.dtype not in ("float64", "int64", "bool"):
            return None
        if depends_on_columns[-1] and (
            node.op not in _NAN_PRESERVING or node.type.dtype != "float64"
        ):
            return None
        # A column that is read after the sum may not be a term of it.
        if depends_on_columns[-1] and len(printed_values) > sums[0]:
            return None
        if (
            node.op == "div"
            and depends_on_columns[node.inputs[1]]
            or node.op == "impute"
            and is_checked[-1]
        ):
            return None
        printed = printer([printed_values[i] for i in node.inputs], node.attrs)
        if printed is None:
            return None
        printed_values.append(printed)
    return Linear(printed_values[last][0], printed_values[sums[0]][0])


_NAN_PRESERVING = frozenset(
    {"select", "concat", "cast", "require_finite", "impute", "add", "sub", "mul", "div", "neg"}
)
"""Operators that map NULL, NaN and infinity to NULL, NaN or infinity, except impute."""

Values = list[str]
"""An expression for each column of a value."""


def _constant(args: Sequence[Values], attrs: Attrs) -> Values | None:
    value: Array = attrs["value"]
    return [_number(v) for v in value.astype(np.float64).ravel().tolist()]


def _select(args: Sequence[Values], attrs: Attrs) -> Values | None:
    return [args[0][j] for j in attrs["indices"].tolist()]


def _concat(args: Sequence[Values], attrs: Attrs) -> Values | None:
    return [value for part in args for value in part]


def _cast(args: Sequence[Values], attrs: Attrs) -> Values | None:
    if attrs["dtype"] == "float64":
        return list(args[0])
    return [f"CAST({v} AS BIGINT)" for v in args[0]] if attrs["dtype"] == "int64" else None


def _require_finite(args: Sequence[Values], attrs: Attrs) -> Values | None:
    for name in ("low", "high"):
        if name in attrs and not (np.abs(attrs[name]) >= WIDEST_BOUND).all():
            return None
    return list(args[0])


def _impute(args: Sequence[Values], attrs: Attrs) -> Values | None:
    if attrs["missing"] == attrs["missing"]:
        return None
    filled = zip(args[0], attrs["fill"].astype(np.float64).tolist(), strict=True)
    return [
        f"CASE WHEN {v} IS NULL OR {DUCKDB.call('isnan', v)} THEN {_number(fill)} ELSE {v} END"
        for v, fill in filled
    ]


def _linear(args: Sequence[Values], attrs: Attrs) -> Values | None:
    weights = attrs["weights"].astype(np.float64)[:, 0].tolist()
    terms = [DUCKDB.operator("*", v, _number(w)) for v, w in zip(args[0], weights, strict=True)]
    return [DUCKDB.total([*terms, _number(float(attrs["bias"][0]))])]


def _number(value: float) -> str:
    """Return a literal that is a DOUBLE without a cast, which the engine parses faster."""
    if not math.isfinite(value):
        return number_literal(value)
    text = repr(value)
    return text if "e" in text else f"{text}e0"


def _binary(form: Callable[[str, str], str]) -> Callable[[Sequence[Values], Attrs], Values | None]:
    def printer(args: Sequence[Values], attrs: Attrs) -> Values | None:
        a, b = args
        width = max(len(a), len(b))
        if min(len(a), len(b)) not in (1, width):
            return None
        pairs = zip(a * (width // len(a)), b * (width // len(b)), strict=True)
        return [form(x, y) for x, y in pairs]

    return printer


def _unary(form: Callable[[str], str]) -> Callable[[Sequence[Values], Attrs], Values | None]:
    return lambda args, attrs: [form(v) for v in args[0]]


def _computed(symbol: str) -> Callable[[str, str], str]:
    return lambda x, y: DUCKDB.operator(symbol, x, y)


def _compared(symbol: str) -> Callable[[str, str], str]:
    return lambda x, y: f"({x} {symbol} {y})"


def _sigmoid(x: str) -> str:
    denominator = DUCKDB.operator("+", "1", DUCKDB.call("exp", DUCKDB.negated(x)))
    return DUCKDB.operator("/", "1", denominator)


PRINTERS: Mapping[str, Callable[[Sequence[Values], Attrs], Values | None]] = MappingProxyType(
    {
        "constant": _constant,
        "select": _select,
        "concat": _concat,
        "cast": _cast,
        "require_finite": _require_finite,
        "impute": _impute,
        "linear": _linear,
        "add": _binary(_computed("+")),
        "sub": _binary(_computed("-")),
        "mul": _binary(_computed("*")),
        "div": _binary(_computed("/")),
        "gt": _binary(_compared(">")),
        "ge": _binary(_compared(">=")),
        "lt": _binary(_compared("<")),
        "le": _binary(_compared("<=")),
        "neg": _unary(DUCKDB.negated),
        "sigmoid": _unary(_sigmoid),
        "exp": _unary(lambda x: DUCKDB.call("exp", x)),
    }
)
