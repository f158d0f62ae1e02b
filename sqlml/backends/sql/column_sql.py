"""Operators that select, concatenate, reduce, encode and weight the columns of a row, as SQL."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from sqlml.backends.sql.expression import TYPES, VALUE, Expression, Printer, Printing, Value
from sqlml.dialects import Dialect
from sqlml.errors import BackendError
from sqlml.ir.operators.categories import make_unknown_category_error
from sqlml.types import FLOATS

_MAX_LENGTH = 58
"""Maximum number of characters between the quotes, as in `unknown_category.shown`."""


def format_quoted_value(sql: str, dialect: Dialect) -> str:
    """Return SQL for a string in quotes, for error messages.

    A long string is truncated, and a missing string becomes NULL.
    """
    beginning = dialect.call("left", sql, str(_MAX_LENGTH - 3))
    is_long = f"{dialect.call('length', sql)} > {_MAX_LENGTH}"
    quote = dialect.text("'")
    truncated = dialect.call("concat", quote, beginning, dialect.text("...'"))
    complete = dialect.call("concat", quote, sql, quote)
    null = dialect.text("NULL")
    return (
        f"CASE WHEN {sql} IS NULL THEN {null} WHEN {is_long} THEN {truncated} ELSE {complete} END"
    )


def format_number(number: str, nan: bool, dialect: Dialect) -> str:
    """Return SQL for the shortest digits of a number; if `nan`, it may be NaN and becomes NULL."""
    digits = f"CAST({number} AS {dialect.type('VARCHAR')})"
    without_fraction = dialect.call(
        "regexp_replace", digits, dialect.text("[.]0$"), dialect.text("")
    )
    null = dialect.text("NULL")
    if not nan:
        return without_fraction
    return f"CASE WHEN {dialect.call('isnan', number)} THEN {null} ELSE {without_fraction} END"


def _print_linear(node: Printing) -> Value:
    """Print weighted sums, added column by column as in the reference."""
    weights, bias = node.attrs["weights"], node.attrs["bias"]
    x = node.bind(node.values[0]) if weights.shape[1] > 1 else node.values[0]
    return tuple(
        _print_dot_product(node, x, node.constants(weights[:, k]), node.number(bias[k]))
        for k in range(weights.shape[1])
    )


def _print_dot_product(
    node: Printing, columns: Sequence[Expression], weights: Sequence[Expression], *more_terms: str
) -> Expression:
    terms = [
        node.operator("*", operand.sql, w.sql) for operand, w in zip(columns, weights, strict=True)
    ]
    return Expression(node.total([*terms, *more_terms]))


def _print_sum(node: Printing) -> Value:
    sums = (node.total([operand.sql for operand in line]) for line in node.lines())
    return tuple(Expression(sql, nan=node.dtype in FLOATS) for sql in sums)


def _make_reduction_printer(name: str) -> Printer:
    def printer(node: Printing) -> Value:
        lines = map(node.bind, node.lines()) if name == "least" else node.lines()
        return tuple(_print_extreme(node, name, line) for line in lines)

    return printer


def _print_extreme(node: Printing, name: str, line: Value) -> Expression:
    """Print the greatest or the least of some numbers; it is missing if one of them is missing."""
    sql = node.dialect.call(name, *(operand.sql for operand in line))
    nan = any(operand.nan for operand in line)
    # Without a CASE, NaN is the greatest number.
    if nan and (name == "least" or node.dialect.missing_is_null):
        any_missing = " OR ".join(node.missing(operand) for operand in line if operand.nan)
        sql = f"CASE WHEN {any_missing} THEN {node.number(np.nan)} ELSE {sql} END"
    return Expression(sql, nan=nan)


def _print_argmax(node: Printing) -> Value:
    """Print the index of the first greatest number; NaN is the greatest, as in numpy."""
    return tuple(Expression(_print_first_greatest(node, line), nan=False) for line in node.lines())


def _print_first_greatest(node: Printing, line: Value) -> str:
    sql_type = TYPES[node.dtype]
    if len(line) == 1:
        return node.number(0)
    if node.dialect.missing_is_null:
        return _print_first_greatest_by_cases(node, node.bind(line))
    if len(line) == 2:
        return f"CAST(CASE WHEN {line[0].sql} >= {line[1].sql} THEN 0 ELSE 1 END AS {sql_type})"
    name = node.bindings.name(node.dialect.array([operand.sql for operand in line]))
    position = node.dialect.operator("-", node.dialect.place_of_greatest(name), "1")
    return f"CAST({position} AS {sql_type})"


def _print_first_greatest_by_cases(node: Printing, line: Value) -> str:
    """Print the index of the first greatest number by a CASE; a missing number is the greatest."""
    whens = [
        f"WHEN {node.missing(operand)} THEN {k}" for k, operand in enumerate(line) if operand.nan
    ]
    for k, operand in enumerate(line[:-1]):
        above = " AND ".join(f"{operand.sql} >= {other.sql}" for other in line[k + 1 :])
        whens.append(f"WHEN {above} THEN {k}")
    return f"CAST(CASE {' '.join(whens)} ELSE {len(line) - 1} END AS {node.sql_type})"


def _print_softmax(node: Printing) -> Value:
    x = node.bind(node.values[0])
    if not x:
        return ()
    (maximum,) = node.bind([_print_extreme(node, "greatest", x)])
    differences: Sequence[Expression] = [
        Expression(node.operator("-", operand.sql, maximum.sql)) for operand in x
    ]
    if node.dialect.missing_is_null:
        differences = node.bind(differences)
    if node.dtype == "float32":
        double_powers = [node.dialect.call("exp", f"CAST({b.sql} AS DOUBLE)") for b in differences]
        powers = [node.dialect.narrowed(power) for power in double_powers]
    else:
        powers = [node.dialect.call("exp", b.sql) for b in differences]
    operand = node.bind([Expression(power) for power in powers])
    wide_type = node.type_of(str(node.attrs["sum_dtype"]))
    parts = [f"CAST({v.sql} AS {wide_type})" for v in operand]
    summed = node.bindings.total(parts, str(node.attrs["sum_dtype"]))
    narrowed_sum = (
        node.dialect.narrowed(summed) if node.dtype == "float32" else f"CAST({summed} AS DOUBLE)"
    )
    (total,) = node.bind([Expression(narrowed_sum)])
    parts = [node.dialect.divided(v.sql, total.sql, node.sql_type) for v in operand]
    if node.dtype == "float32":
        parts = [node.dialect.rounded(part) for part in parts]
    return tuple(map(Expression, parts))


def _print_encode(node: Printing) -> Value:
    """Print a lookup of a number in the categories; the last of equal categories counts."""
    (operand,) = node.bind(node.values[0])
    codes = {float(c): k for k, c in enumerate(node.attrs["categories"].tolist()) if c == c}
    code = node.number(-1, "int64")
    if codes and node.dialect.missing_is_null:
        whens = " ".join(
            f"WHEN {node.number(c, node.operand)} THEN {code}" for c, code in codes.items()
        )
        code = f"CAST(CASE {operand.sql} {whens} ELSE -1 END AS BIGINT)"
    elif codes:
        keys = node.dialect.array([node.number(c, node.operand) for c in codes])
        code_map = node.dialect.map(
            keys, node.dialect.array([str(code) for code in codes.values()])
        )
        zero = node.number(
            0, node.operand
        )  # Adding 0 turns -0.0, which is a key of its own, into 0.0.
        code_or_null = node.dialect.value_at(
            code_map, node.dialect.operator("+", operand.sql, zero)
        )
        code = f"CAST(coalesce({code_or_null}, -1) AS BIGINT)"
    missing = node.attrs["missing"]
    if operand.nan:
        missing_code = node.number(missing, "int64")
        code = f"CASE WHEN {node.missing(operand)} THEN {missing_code} ELSE {code} END"
    return (
        Expression(code, nan=False, category=format_number(operand.sql, operand.nan, node.dialect)),
    )


def _print_require_known(node: Printing) -> Value:
    checked = []
    for operand in node.bind(node.values[0]):
        value = "a category" if operand.category is None else VALUE
        error = make_unknown_category_error(node.attrs["feature"], node.attrs["step"], value)
        whens = [(f"{operand.sql} < 0", node.error(error, operand.category))]
        checked.append(node.reject_when(operand, whens, nan=False))
    return tuple(checked)


def _print_one_hot(node: Printing) -> Value:
    (operand,) = node.bind(node.values[0])
    return tuple(
        Expression(node.dialect.number_of(f"{operand.sql} = {k}", node.sql_type), nan=False)
        for k in range(node.type.width)
    )


def _print_take(node: Printing) -> Value:
    """Print rows of a constant table, selected by indices that are never out of range."""
    table, index = node.values
    shape = node.shapes[0]
    columns = np.arange(len(table)).reshape(shape[0], -1).T.tolist()
    missing = any(operand.nan for operand in table)
    if node.dialect.missing_is_null:
        whens = [
            " ".join(f"WHEN {k} THEN {table[i].sql}" for k, i in enumerate(column))
            for column in columns
        ]
        return tuple(
            Expression(f"CASE {operand.sql} {cases} END", nan=missing)
            for operand in node.bind(index)
            for cases in whens
        )
    lists = [f"({node.dialect.array([table[i].sql for i in column])})" for column in columns]
    return tuple(
        Expression(
            node.dialect.at(entries, node.dialect.operator("+", operand.sql, "1")), nan=missing
        )
        for operand in node.bind(index)
        for entries in lists
    )


def _print_matmul(node: Printing) -> Value:
    """Print (i,) times a constant (i, l), or (t, i) times a constant (t, i, l) for each t."""
    x, weights = node.bind(node.values[0]), node.values[1]
    *batch, inner, outer = node.shapes[1]
    products = []
    for t in range(math.prod(batch)):
        line = x[t * inner : (t + 1) * inner]
        matrix = weights[t * inner * outer : (t + 1) * inner * outer]
        products += [_print_dot_product(node, line, matrix[k::outer]) for k in range(outer)]
    return tuple(products)


def _print_pairwise(node: Printing) -> Value:
    points = node.attrs["points"]
    print_term = _METRICS.get(node.attrs["metric"])
    is_unsupported = "weights" in node.attrs or node.attrs.get("expanded", False)
    if print_term is None or is_unsupported or points.size > 5000:
        raise BackendError(
            f"distances ({node.attrs['metric']}) to {points.shape[0]} points are not printed as SQL"
        )
    x = node.bind(node.values[0])
    distances = []
    for point in points:
        terms = [
            print_term(node, operand.sql, c.sql)
            for operand, c in zip(x, node.constants(point), strict=True)
        ]
        distances.append(Expression(node.total(terms)))
    return tuple(distances)


def _print_square_difference(node: Printing, x: str, c: str) -> str:
    difference = node.operator("-", x, c)
    return node.operator("*", difference, difference)


_METRICS: Mapping[str, Callable[[Printing, str, str], str]] = {
    "dot": lambda p, x, c: p.operator("*", x, c),
    "sqeuclidean": _print_square_difference,
    "manhattan": lambda p, x, c: p.dialect.call("abs", p.operator("-", x, c)),
}
"""Map metrics to functions that return the SQL of one column's term in the distance."""


def _print_search_sorted(node: Printing) -> Value:
    """Print the number of edges below a number; NaN is above all edges, as in numpy."""
    edges, offsets = (
        node.constants(node.attrs["edges"], node.operand),
        node.attrs["offsets"].tolist(),
    )
    symbol = "<=" if node.attrs["side"] == "right" else "<"
    counts = []
    for k, operand in enumerate(node.bind(node.values[0])):
        column_edges = edges[offsets[k] : offsets[k + 1]]
        holds = [f"{edge.sql} {symbol} {operand.sql}" for edge in column_edges]
        if operand.nan and node.dialect.missing_is_null:
            holds = [f"({test} OR {node.missing(operand)})" for test in holds]
        terms = [node.dialect.number_of(test, "BIGINT") for test in holds]
        counts.append(Expression(node.total(terms), nan=False))
    return tuple(counts)


PRINTERS: Mapping[str, Printer] = {
    "concat": lambda p: tuple(e for value in p.values for e in value),
    "select": lambda p: tuple(p.values[0][j] for j in p.attrs["indices"].tolist()),
    "linear": _print_linear,
    "sum": _print_sum,
    "max": _make_reduction_printer("greatest"),
    "min": _make_reduction_printer("least"),
    "argmax": _print_argmax,
    "softmax": _print_softmax,
    "encode": _print_encode,
    "require_known": _print_require_known,
    "one_hot": _print_one_hot,
    "reshape": lambda p: p.values[0],
    "take": _print_take,
    "matmul": _print_matmul,
    "batch_matmul": _print_matmul,
    "pairwise": _print_pairwise,
    "search_sorted": _print_search_sorted,
}
