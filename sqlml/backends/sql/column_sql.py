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
"""Maximum number of characters between quotes, as in errors of the reference interpreter."""


def format_quoted_value(sql: str, dialect: Dialect) -> str:
    """Return SQL that quotes the string `sql` and truncates a long string; NULL is not quoted."""
    beginning = dialect.call("left", sql, str(_MAX_LENGTH - 3))
    is_long = f"{dialect.call('length', sql)} > {_MAX_LENGTH}"
    quote = dialect.text("'")
    truncated = dialect.call("concat", quote, beginning, dialect.text("...'"))
    complete = dialect.call("concat", quote, sql, quote)
    cases = f"WHEN {sql} IS NULL THEN {dialect.text('NULL')} WHEN {is_long} THEN {truncated}"
    return f"CASE {cases} ELSE {complete} END"


def format_number(number: str, nan: bool, dialect: Dialect) -> str:
    """Return SQL for the shortest text of `number`; if `nan`, the text of NaN is NULL."""
    digits = f"CAST({number} AS {dialect.type('VARCHAR')})"
    fraction, empty, null = map(dialect.text, ("[.]0$", "", "NULL"))
    without_fraction = dialect.call("regexp_replace", digits, fraction, empty)
    if not nan:
        return without_fraction
    return f"CASE WHEN {dialect.call('isnan', number)} THEN {null} ELSE {without_fraction} END"


def _print_linear(printer: NodePrinter) -> Value:
    weights, bias = printer.attrs["weights"], printer.attrs["bias"]
    x = printer.bind(printer.values[0]) if weights.shape[1] > 1 else printer.values[0]
    return tuple(
        _print_dot_product(printer, x, printer.literals(weights[:, k]), printer.number(bias[k]))
        for k in range(weights.shape[1])
    )


def _print_dot_product(
    printer: NodePrinter, columns: Sequence[Expression], weights: Sequence[Expression], *added: str
) -> Expression:
    pairs = zip(columns, weights, strict=True)
    terms = [printer.operator("*", column.sql, weight.sql) for column, weight in pairs]
    return Expression(printer.total([*terms, *added]))


def _print_sum(printer: NodePrinter) -> Value:
    sums = (printer.total([operand.sql for operand in line]) for line in printer.lines())
    return tuple(Expression(sql, nan=printer.dtype in FLOATS) for sql in sums)


def _make_reduction_printer(name: str) -> Printer:
    def to_sql(printer: NodePrinter) -> Value:
        lines = map(printer.bind, printer.lines()) if name == "least" else printer.lines()
        return tuple(_print_extreme(printer, name, line) for line in lines)

    return to_sql


def _print_extreme(printer: NodePrinter, name: str, numbers: Value) -> Expression:
    """Print the "greatest" or "least" number, or a missing number if any number is missing."""
    sql = printer.dialect.call(name, *(operand.sql for operand in numbers))
    nan = any(operand.nan for operand in numbers)
    # Without a CASE, NaN is the greatest number.
    if nan and (name == "least" or printer.dialect.missing_is_null):
        missing_test = " OR ".join(printer.missing(operand) for operand in numbers if operand.nan)
        sql = f"CASE WHEN {missing_test} THEN {printer.number(np.nan)} ELSE {sql} END"
    return Expression(sql, nan=nan)


def _print_argmax(printer: NodePrinter) -> Value:
    """Print the index of the first greatest number of each line; NaN is the greatest number."""
    indices = (_print_first_greatest(printer, line) for line in printer.lines())
    return tuple(Expression(sql, nan=False) for sql in indices)


def _print_first_greatest(printer: NodePrinter, line: Value) -> str:
    sql_type = TYPES[printer.dtype]
    if len(line) == 1:
        return printer.number(0)
    if printer.dialect.missing_is_null:
        return _print_first_greatest_case(printer, printer.bind(line))
    if len(line) == 2:
        return f"CAST(CASE WHEN {line[0].sql} >= {line[1].sql} THEN 0 ELSE 1 END AS {sql_type})"
    name = printer.bindings.name(printer.dialect.array([operand.sql for operand in line]))
    position = printer.dialect.operator("-", printer.dialect.place_of_greatest(name), "1")
    return f"CAST({position} AS {sql_type})"


def _print_first_greatest_case(printer: NodePrinter, numbers: Value) -> str:
    branches = [f"WHEN {printer.missing(e)} THEN {k}" for k, e in enumerate(numbers) if e.nan]
    for k, operand in enumerate(numbers[:-1]):
        greatest_test = " AND ".join(f"{operand.sql} >= {other.sql}" for other in numbers[k + 1 :])
        branches.append(f"WHEN {greatest_test} THEN {k}")
    return f"CAST(CASE {' '.join(branches)} ELSE {len(numbers) - 1} END AS {printer.sql_type})"


def _print_softmax(printer: NodePrinter) -> Value:
    x = printer.bind(printer.values[0])
    if not x:
        return ()
    dialect, is_single = printer.dialect, printer.dtype == "float32"
    sum_dtype = str(printer.attrs["sum_dtype"])
    (maximum,) = printer.bind([_print_extreme(printer, "greatest", x)])
    differences: Value = tuple(Expression(printer.operator("-", e.sql, maximum.sql)) for e in x)
    if dialect.missing_is_null:
        differences = printer.bind(differences)
    exponents = [f"CAST({e.sql} AS DOUBLE)" if is_single else e.sql for e in differences]
    exponentials = [dialect.call("exp", exponent) for exponent in exponents]
    if is_single:
        exponentials = list(map(dialect.narrowed, exponentials))
    bound_exponentials = printer.bind([Expression(exponential) for exponential in exponentials])
    wide_type = printer.type_of(sum_dtype)
    terms = [f"CAST({exponential.sql} AS {wide_type})" for exponential in bound_exponentials]
    total = printer.bindings.total(terms, sum_dtype)
    total = dialect.narrowed(total) if is_single else f"CAST({total} AS DOUBLE)"
    (divisor,) = printer.bind([Expression(total)])
    quotients = [dialect.divided(e.sql, divisor.sql, printer.sql_type) for e in bound_exponentials]
    return tuple(Expression(dialect.rounded(sql) if is_single else sql) for sql in quotients)


def _print_encode(printer: NodePrinter) -> Value:
    (operand,), dialect = printer.bind(printer.values[0]), printer.dialect
    codes = {float(c): k for k, c in enumerate(printer.attrs["categories"].tolist()) if c == c}
    code = printer.number(-1, "int64")
    if codes and dialect.missing_is_null:
        whens = [f"WHEN {printer.number(c, printer.operand)} THEN {k}" for c, k in codes.items()]
        code = f"CAST(CASE {operand.sql} {' '.join(whens)} ELSE -1 END AS BIGINT)"
    elif codes:
        keys = dialect.array([printer.number(c, printer.operand) for c in codes])
        code_map = dialect.map(keys, dialect.array(list(map(str, codes.values()))))
        # Adding 0 turns -0.0, which would be another key, into 0.0.
        key = dialect.operator("+", operand.sql, printer.number(0, printer.operand))
        code = f"CAST(coalesce({dialect.value_at(code_map, key)}, -1) AS BIGINT)"
    if operand.nan:
        missing_code = printer.number(printer.attrs["missing"], "int64")
        code = f"CASE WHEN {printer.missing(operand)} THEN {missing_code} ELSE {code} END"
    category = format_number(operand.sql, operand.nan, dialect)
    return (Expression(code, nan=False, category=category),)


def _print_require_known(printer: NodePrinter) -> Value:
    checked = []
    attrs = printer.attrs
    for operand in printer.bind(printer.values[0]):
        value_description = "a category" if operand.category is None else VALUE
        template = make_unknown_category_error(attrs["feature"], attrs["step"], value_description)
        rejections = [(f"{operand.sql} < 0", printer.error(template, operand.category))]
        checked.append(printer.reject_when(operand, rejections, nan=False))
    return tuple(checked)


def _print_one_hot(printer: NodePrinter) -> Value:
    (operand,) = printer.bind(printer.values[0])
    return tuple(
        Expression(printer.dialect.number_of(f"{operand.sql} = {k}", printer.sql_type), nan=False)
        for k in range(printer.type.width)
    )


def _print_take(printer: NodePrinter) -> Value:
    (table, index), dialect = printer.values, printer.dialect
    columns = np.arange(len(table)).reshape(printer.shapes[0][0], -1).T.tolist()
    nan = any(entry.nan for entry in table)

    def print_entry(row: str, column: Sequence[int]) -> str:
        if dialect.missing_is_null:
            whens = " ".join(f"WHEN {k} THEN {table[i].sql}" for k, i in enumerate(column))
            return f"CASE {row} {whens} END"
        entries = f"({dialect.array([table[i].sql for i in column])})"
        return dialect.at(entries, dialect.operator("+", row, "1"))

    entries = [print_entry(row.sql, column) for row in printer.bind(index) for column in columns]
    return tuple(Expression(sql, nan=nan) for sql in entries)


def _print_matmul(printer: NodePrinter) -> Value:
    # A batch has one product for each tree.
    x, weights = printer.bind(printer.values[0]), printer.values[1]
    *batch, inner, outer = printer.shapes[1]
    products = []
    for t in range(math.prod(batch)):
        row = x[t * inner : (t + 1) * inner]
        matrix = weights[t * inner * outer : (t + 1) * inner * outer]
        products += [_print_dot_product(printer, row, matrix[k::outer]) for k in range(outer)]
    return tuple(products)


def _print_pairwise(printer: NodePrinter) -> Value:
    points = printer.attrs["points"]
    print_term = _METRICS.get(printer.attrs["metric"])
    is_unsupported = "weights" in printer.attrs or printer.attrs.get("expanded", False)
    if print_term is None or is_unsupported or points.size > 5000:
        metric = printer.attrs["metric"]
        raise BackendError(f"distances ({metric}) to {len(points)} points are not printed as SQL")
    x = printer.bind(printer.values[0])
    distances = []
    for point in points:
        pairs = zip(x, printer.literals(point), strict=True)
        terms = [print_term(printer, operand.sql, literal.sql) for operand, literal in pairs]
        distances.append(Expression(printer.total(terms)))
    return tuple(distances)


def _print_square_difference(printer: NodePrinter, x: str, c: str) -> str:
    difference = printer.operator("-", x, c)
    return printer.operator("*", difference, difference)


_METRICS: Mapping[str, Callable[[NodePrinter, str, str], str]] = {
    "dot": lambda p, x, c: p.operator("*", x, c),
    "sqeuclidean": _print_square_difference,
    "manhattan": lambda p, x, c: p.dialect.call("abs", p.operator("-", x, c)),
}
"""Map a metric to a function that returns SQL for the term of one column."""


def _print_search_sorted(printer: NodePrinter) -> Value:
    """Print the index of each number among the edges of the column; NaN is above all edges."""
    edge_literals = printer.literals(printer.attrs["edges"], printer.operand)
    offsets = printer.attrs["offsets"].tolist()
    symbol = "<=" if printer.attrs["side"] == "right" else "<"
    counts = []
    for k, operand in enumerate(printer.bind(printer.values[0])):
        column_edges = edge_literals[offsets[k] : offsets[k + 1]]
        tests = [f"{edge.sql} {symbol} {operand.sql}" for edge in column_edges]
        if operand.nan and printer.dialect.missing_is_null:
            tests = [f"({test} OR {printer.missing(operand)})" for test in tests]
        terms = [printer.dialect.number_of(test, "BIGINT") for test in tests]
        counts.append(Expression(printer.total(terms), nan=False))
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
