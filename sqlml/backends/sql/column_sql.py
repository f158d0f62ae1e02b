"""SQL for operators that select, concatenate, reduce, encode and weight the columns of a row."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from sqlml.backends.sql.expression import TYPES, VALUE, Expression, NodePrinter, Printer, Value
from sqlml.dialects import Dialect
from sqlml.errors import BackendError
from sqlml.ir.operators.categories import make_unknown_category_error
from sqlml.types import FLOATS

_MAX_LENGTH = 58
"""Maximum number of characters between the quotes, as in errors of the reference interpreter."""


def format_quoted_value(sql: str, dialect: Dialect) -> str:
    """Return SQL that quotes the string `sql` and truncates long strings; NULL gets no quotes."""
    beginning = dialect.call("left", sql, str(_MAX_LENGTH - 3))
    is_long = f"{dialect.call('length', sql)} > {_MAX_LENGTH}"
    quote = dialect.text("'")
    truncated = dialect.call("concat", quote, beginning, dialect.text("...'"))
    complete = dialect.call("concat", quote, sql, quote)
    cases = f"WHEN {sql} IS NULL THEN {dialect.text('NULL')} WHEN {is_long} THEN {truncated}"
    return f"CASE {cases} ELSE {complete} END"


def format_number(number: str, nan: bool, dialect: Dialect) -> str:
    """Return SQL that prints `number` in the fewest digits; if `nan`, it prints NULL for NaN."""
    digits = f"CAST({number} AS {dialect.type('VARCHAR')})"
    fraction, empty, null = map(dialect.text, ("[.]0$", "", "NULL"))
    without_fraction = dialect.call("regexp_replace", digits, fraction, empty)
    if not nan:
        return without_fraction
    return f"CASE WHEN {dialect.call('isnan', number)} THEN {null} ELSE {without_fraction} END"


def _linear_sql(context: NodePrinter) -> Value:
    """Print x @ weights + bias; each sum adds the columns in order, and then the bias."""
    weights, bias = context.attrs["weights"], context.attrs["bias"]
    x = context.bind(context.values[0]) if weights.shape[1] > 1 else context.values[0]
    return tuple(
        _dot_product_sql(context, x, context.literals(weights[:, k]), context.number(bias[k]))
        for k in range(weights.shape[1])
    )


def _dot_product_sql(
    context: NodePrinter, columns: Sequence[Expression], weights: Sequence[Expression], *added: str
) -> Expression:
    """Return the sum of `columns` times `weights`, followed by the terms `added`."""
    pairs = zip(columns, weights, strict=True)
    terms = [context.operator("*", column.sql, weight.sql) for column, weight in pairs]
    return Expression(context.total([*terms, *added]))


def _sum_sql(context: NodePrinter) -> Value:
    sums = (context.total([operand.sql for operand in line]) for line in context.lines())
    return tuple(Expression(sql, nan=context.dtype in FLOATS) for sql in sums)


def _make_reduction_printer(name: str) -> Printer:
    def to_sql(context: NodePrinter) -> Value:
        lines = map(context.bind, context.lines()) if name == "least" else context.lines()
        return tuple(_extreme_sql(context, name, line) for line in lines)

    return to_sql


def _extreme_sql(context: NodePrinter, name: str, line: Value) -> Expression:
    """Print the "greatest" or "least" number of `line`, which is missing if any number is."""
    sql = context.dialect.call(name, *(operand.sql for operand in line))
    nan = any(operand.nan for operand in line)
    # Without a CASE, NaN is the greatest number.
    if nan and (name == "least" or context.dialect.missing_is_null):
        any_missing = " OR ".join(context.missing(operand) for operand in line if operand.nan)
        sql = f"CASE WHEN {any_missing} THEN {context.number(np.nan)} ELSE {sql} END"
    return Expression(sql, nan=nan)


def _argmax_sql(context: NodePrinter) -> Value:
    """Print the index of the first greatest number in each line; NaN is greatest, as in numpy."""
    indices = (_first_greatest_sql(context, line) for line in context.lines())
    return tuple(Expression(sql, nan=False) for sql in indices)


def _first_greatest_sql(context: NodePrinter, line: Value) -> str:
    sql_type = TYPES[context.dtype]
    if len(line) == 1:
        return context.number(0)
    if context.dialect.missing_is_null:
        return _first_greatest_case_sql(context, context.bind(line))
    if len(line) == 2:
        return f"CAST(CASE WHEN {line[0].sql} >= {line[1].sql} THEN 0 ELSE 1 END AS {sql_type})"
    name = context.bindings.name(context.dialect.array([operand.sql for operand in line]))
    position = context.dialect.operator("-", context.dialect.place_of_greatest(name), "1")
    return f"CAST({position} AS {sql_type})"


def _first_greatest_case_sql(context: NodePrinter, line: Value) -> str:
    """Return a CASE for the index of the first greatest number; a missing number is greatest."""
    branches = [f"WHEN {context.missing(e)} THEN {k}" for k, e in enumerate(line) if e.nan]
    for k, operand in enumerate(line[:-1]):
        greatest_test = " AND ".join(f"{operand.sql} >= {other.sql}" for other in line[k + 1 :])
        branches.append(f"WHEN {greatest_test} THEN {k}")
    return f"CAST(CASE {' '.join(branches)} ELSE {len(line) - 1} END AS {context.sql_type})"


def _softmax_sql(context: NodePrinter) -> Value:
    x = context.bind(context.values[0])
    if not x:
        return ()
    dialect, is_single = context.dialect, context.dtype == "float32"
    sum_dtype = str(context.attrs["sum_dtype"])
    (maximum,) = context.bind([_extreme_sql(context, "greatest", x)])
    differences: Value = tuple(Expression(context.operator("-", e.sql, maximum.sql)) for e in x)
    if dialect.missing_is_null:
        differences = context.bind(differences)
    exponents = [f"CAST({e.sql} AS DOUBLE)" if is_single else e.sql for e in differences]
    exponentials = [dialect.call("exp", exponent) for exponent in exponents]
    if is_single:
        exponentials = list(map(dialect.narrowed, exponentials))
    bound_exponentials = context.bind([Expression(power) for power in exponentials])
    wide_type = context.type_of(sum_dtype)
    terms = [f"CAST({power.sql} AS {wide_type})" for power in bound_exponentials]
    total = context.bindings.total(terms, sum_dtype)
    total = dialect.narrowed(total) if is_single else f"CAST({total} AS DOUBLE)"
    (divisor,) = context.bind([Expression(total)])
    quotients = [dialect.divided(e.sql, divisor.sql, context.sql_type) for e in bound_exponentials]
    return tuple(Expression(dialect.rounded(sql) if is_single else sql) for sql in quotients)


def _encode_sql(context: NodePrinter) -> Value:
    """Print the code of a number: the index of the last category that equals the number, or -1."""
    (operand,), dialect = context.bind(context.values[0]), context.dialect
    codes = {float(c): k for k, c in enumerate(context.attrs["categories"].tolist()) if c == c}
    code = context.number(-1, "int64")
    if codes and dialect.missing_is_null:
        whens = [f"WHEN {context.number(c, context.operand)} THEN {k}" for c, k in codes.items()]
        code = f"CAST(CASE {operand.sql} {' '.join(whens)} ELSE -1 END AS BIGINT)"
    elif codes:
        keys = dialect.array([context.number(c, context.operand) for c in codes])
        code_map = dialect.map(keys, dialect.array(list(map(str, codes.values()))))
        # Adding 0 turns -0.0, which is a key of its own, into 0.0.
        key = dialect.operator("+", operand.sql, context.number(0, context.operand))
        code = f"CAST(coalesce({dialect.value_at(code_map, key)}, -1) AS BIGINT)"
    if operand.nan:
        missing_code = context.number(context.attrs["missing"], "int64")
        code = f"CASE WHEN {context.missing(operand)} THEN {missing_code} ELSE {code} END"
    category = format_number(operand.sql, operand.nan, dialect)
    return (Expression(code, nan=False, category=category),)


def _require_known_sql(context: NodePrinter) -> Value:
    checked = []
    attrs = context.attrs
    for operand in context.bind(context.values[0]):
        value = "a category" if operand.category is None else VALUE
        error = make_unknown_category_error(attrs["feature"], attrs["step"], value)
        rejections = [(f"{operand.sql} < 0", context.error(error, operand.category))]
        checked.append(context.reject_when(operand, rejections, nan=False))
    return tuple(checked)


def _one_hot_sql(context: NodePrinter) -> Value:
    (operand,) = context.bind(context.values[0])
    return tuple(
        Expression(context.dialect.number_of(f"{operand.sql} = {k}", context.sql_type), nan=False)
        for k in range(context.type.width)
    )


def _take_sql(context: NodePrinter) -> Value:
    """Print a look-up of rows in a constant table, with indices that are never out of range."""
    (table, index), dialect = context.values, context.dialect
    columns = np.arange(len(table)).reshape(context.shapes[0][0], -1).T.tolist()
    nan = any(entry.nan for entry in table)

    def print_entry(row: str, column: Sequence[int]) -> str:
        if dialect.missing_is_null:
            whens = " ".join(f"WHEN {k} THEN {table[i].sql}" for k, i in enumerate(column))
            return f"CASE {row} {whens} END"
        entries = f"({dialect.array([table[i].sql for i in column])})"
        return dialect.at(entries, dialect.operator("+", row, "1"))

    entries = [print_entry(row.sql, column) for row in context.bind(index) for column in columns]
    return tuple(Expression(sql, nan=nan) for sql in entries)


def _matmul_sql(context: NodePrinter) -> Value:
    """Print the product of (i,) and (i, l), or of row t of (t, i) and matrix t of (t, i, l)."""
    x, weights = context.bind(context.values[0]), context.values[1]
    *batch, inner, outer = context.shapes[1]
    products = []
    for t in range(math.prod(batch)):
        line = x[t * inner : (t + 1) * inner]
        matrix = weights[t * inner * outer : (t + 1) * inner * outer]
        products += [_dot_product_sql(context, line, matrix[k::outer]) for k in range(outer)]
    return tuple(products)


def _pairwise_sql(context: NodePrinter) -> Value:
    points = context.attrs["points"]
    print_term = _METRICS.get(context.attrs["metric"])
    is_unsupported = "weights" in context.attrs or context.attrs.get("expanded", False)
    if print_term is None or is_unsupported or points.size > 5000:
        metric = context.attrs["metric"]
        raise BackendError(f"distances ({metric}) to {len(points)} points are not printed as SQL")
    x = context.bind(context.values[0])
    distances = []
    for point in points:
        pairs = zip(x, context.literals(point), strict=True)
        terms = [print_term(context, operand.sql, c.sql) for operand, c in pairs]
        distances.append(Expression(context.total(terms)))
    return tuple(distances)


def _square_difference_sql(context: NodePrinter, x: str, c: str) -> str:
    difference = context.operator("-", x, c)
    return context.operator("*", difference, difference)


_METRICS: Mapping[str, Callable[[NodePrinter, str, str], str]] = {
    "dot": lambda p, x, c: p.operator("*", x, c),
    "sqeuclidean": _square_difference_sql,
    "manhattan": lambda p, x, c: p.dialect.call("abs", p.operator("-", x, c)),
}
"""Metric -> function that returns the SQL of one column's term in the distance."""


def _search_sorted_sql(context: NodePrinter) -> Value:
    """Print the index of each number among its column's edges; NaN is above all, as in numpy."""
    edges = context.literals(context.attrs["edges"], context.operand)
    offsets = context.attrs["offsets"].tolist()
    symbol = "<=" if context.attrs["side"] == "right" else "<"
    counts = []
    for k, operand in enumerate(context.bind(context.values[0])):
        column_edges = edges[offsets[k] : offsets[k + 1]]
        tests = [f"{edge.sql} {symbol} {operand.sql}" for edge in column_edges]
        if operand.nan and context.dialect.missing_is_null:
            tests = [f"({test} OR {context.missing(operand)})" for test in tests]
        terms = [context.dialect.number_of(test, "BIGINT") for test in tests]
        counts.append(Expression(context.total(terms), nan=False))
    return tuple(counts)


PRINTERS: Mapping[str, Printer] = {
    "concat": lambda p: tuple(e for value in p.values for e in value),
    "select": lambda p: tuple(p.values[0][j] for j in p.attrs["indices"].tolist()),
    "linear": _linear_sql,
    "sum": _sum_sql,
    "max": _make_reduction_printer("greatest"),
    "min": _make_reduction_printer("least"),
    "argmax": _argmax_sql,
    "softmax": _softmax_sql,
    "encode": _encode_sql,
    "require_known": _require_known_sql,
    "one_hot": _one_hot_sql,
    "reshape": lambda p: p.values[0],
    "take": _take_sql,
    "matmul": _matmul_sql,
    "batch_matmul": _matmul_sql,
    "pairwise": _pairwise_sql,
    "search_sorted": _search_sorted_sql,
}
