"""Operators that select, concatenate, reduce, encode and weight the columns of a row, as SQL."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from sqlml.backends.sql.expression import TYPES, VALUE, Expression, Printer, Printing, Value
from sqlml.dialects import Dialect
from sqlml.errors import BackendError
from sqlml.ir.operators.categories import unknown_category_error
from sqlml.types import FLOATS

_LONGEST = 58
"""Most characters between the quotes, as in `unknown_category.shown`."""


def quoted_value(text: str, dialect: Dialect) -> str:
    """Return SQL for a text in quotes, cut if it is long, for error messages; NULL if missing."""
    begin = dialect.call("left", text, str(_LONGEST - 3))
    long = f"{dialect.call('length', text)} > {_LONGEST}"
    quote = dialect.text("'")
    cut = dialect.call("concat", quote, begin, dialect.text("...'"))
    unshortened = dialect.call("concat", quote, text, quote)
    null = dialect.text("NULL")
    return f"CASE WHEN {text} IS NULL THEN {null} WHEN {long} THEN {cut} ELSE {unshortened} END"


def shown_number(number: str, nan: bool, dialect: Dialect) -> str:
    """Return SQL for the shortest digits of a number; NULL for NaN, which is possible if `nan`."""
    digits = f"CAST({number} AS {dialect.type('VARCHAR')})"
    short = dialect.call("regexp_replace", digits, dialect.text("[.]0$"), dialect.text(""))
    null = dialect.text("NULL")
    if not nan:
        return short
    return f"CASE WHEN {dialect.call('isnan', number)} THEN {null} ELSE {short} END"


def _linear(p: Printing) -> Value:
    """Sum column by column, as the reference does."""
    weights, bias = p.attrs["weights"], p.attrs["bias"]
    x = p.bind(p.values[0]) if weights.shape[1] > 1 else p.values[0]
    return tuple(
        _dot(p, x, p.constants(weights[:, k]), p.number(bias[k])) for k in range(weights.shape[1])
    )


def _dot(
    p: Printing, line: Sequence[Expression], weights: Sequence[Expression], *more_terms: str
) -> Expression:
    terms = [p.operator("*", e.sql, w.sql) for e, w in zip(line, weights, strict=True)]
    return Expression(p.total([*terms, *more_terms]))


def _sum(p: Printing) -> Value:
    sums = (p.total([e.sql for e in line]) for line in p.lines())
    return tuple(Expression(sql, nan=p.dtype in FLOATS) for sql in sums)


def _reduction(name: str) -> Printer:
    def printer(p: Printing) -> Value:
        lines = map(p.bind, p.lines()) if name == "least" else p.lines()
        return tuple(_extreme(p, name, line) for line in lines)

    return printer


def _extreme(p: Printing, name: str, line: Value) -> Expression:
    """Return the greatest or the least of numbers, which is missing if one of them is."""
    sql = p.dialect.call(name, *(e.sql for e in line))
    nan = any(e.nan for e in line)
    # Otherwise NaN is the greatest number.
    if nan and (name == "least" or p.dialect.missing_is_null):
        any_missing = " OR ".join(p.missing(e) for e in line if e.nan)
        sql = f"CASE WHEN {any_missing} THEN {p.number(np.nan)} ELSE {sql} END"
    return Expression(sql, nan=nan)


def _argmax(p: Printing) -> Value:
    """Return the index of the first greatest number; NaN is the greatest here and in numpy."""
    return tuple(Expression(_first_greatest(p, line), nan=False) for line in p.lines())


def _first_greatest(p: Printing, line: Value) -> str:
    kind = TYPES[p.dtype]
    if len(line) == 1:
        return p.number(0)
    if p.dialect.missing_is_null:
        return _first_greatest_by_cases(p, p.bind(line))
    if len(line) == 2:
        return f"CAST(CASE WHEN {line[0].sql} >= {line[1].sql} THEN 0 ELSE 1 END AS {kind})"
    name = p.bindings.name(p.dialect.array([e.sql for e in line]))
    position = p.dialect.operator("-", p.dialect.place_of_greatest(name), "1")
    return f"CAST({position} AS {kind})"


def _first_greatest_by_cases(p: Printing, line: Value) -> str:
    """Return the index of the first greatest number; a missing one is the greatest, as in numpy."""
    whens = [f"WHEN {p.missing(e)} THEN {k}" for k, e in enumerate(line) if e.nan]
    for k, e in enumerate(line[:-1]):
        above = " AND ".join(f"{e.sql} >= {other.sql}" for other in line[k + 1 :])
        whens.append(f"WHEN {above} THEN {k}")
    return f"CAST(CASE {' '.join(whens)} ELSE {len(line) - 1} END AS {p.sql_type})"


def _softmax(p: Printing) -> Value:
    x = p.bind(p.values[0])
    if not x:
        return ()
    (most,) = p.bind([_extreme(p, "greatest", x)])
    differences: Sequence[Expression] = [Expression(p.operator("-", e.sql, most.sql)) for e in x]
    if p.dialect.missing_is_null:
        differences = p.bind(differences)
    if p.dtype == "float32":
        wide = [p.dialect.call("exp", f"CAST({b.sql} AS DOUBLE)") for b in differences]
        powers = [p.dialect.narrowed(power) for power in wide]
    else:
        powers = [p.dialect.call("exp", b.sql) for b in differences]
    e = p.bind([Expression(power) for power in powers])
    wide_type = p.type_of(str(p.attrs["sum_dtype"]))
    parts = [f"CAST({v.sql} AS {wide_type})" for v in e]
    summed = p.bindings.total(parts, str(p.attrs["sum_dtype"]))
    narrow = p.dialect.narrowed(summed) if p.dtype == "float32" else f"CAST({summed} AS DOUBLE)"
    (total,) = p.bind([Expression(narrow)])
    parts = [p.dialect.divided(v.sql, total.sql, p.sql_type) for v in e]
    if p.dtype == "float32":
        parts = [p.dialect.rounded(part) for part in parts]
    return tuple(map(Expression, parts))


def _encode(p: Printing) -> Value:
    """Look a number up in the categories; the last of equal ones counts, as in the reference."""
    (e,) = p.bind(p.values[0])
    codes = {float(c): k for k, c in enumerate(p.attrs["categories"].tolist()) if c == c}
    code = p.number(-1, "int64")
    if codes and p.dialect.missing_is_null:
        whens = " ".join(f"WHEN {p.number(c, p.operand)} THEN {code}" for c, code in codes.items())
        code = f"CAST(CASE {e.sql} {whens} ELSE -1 END AS BIGINT)"
    elif codes:
        keys = p.dialect.array([p.number(c, p.operand) for c in codes])
        code_map = p.dialect.map(keys, p.dialect.array([str(code) for code in codes.values()]))
        zero = p.number(0, p.operand)  # Adding 0 turns -0.0, which is a key of its own, into 0.0.
        code_or_null = p.dialect.value_at(code_map, p.dialect.operator("+", e.sql, zero))
        code = f"CAST(coalesce({code_or_null}, -1) AS BIGINT)"
    missing = p.attrs["missing"]
    if e.nan:
        code = f"CASE WHEN {p.missing(e)} THEN {p.number(missing, 'int64')} ELSE {code} END"
    return (Expression(code, nan=False, category=shown_number(e.sql, e.nan, p.dialect)),)


def _require_known(p: Printing) -> Value:
    checked = []
    for e in p.bind(p.values[0]):
        value = "a category" if e.category is None else VALUE
        error = unknown_category_error(p.attrs["feature"], p.attrs["step"], value)
        whens = [(f"{e.sql} < 0", p.error(error, e.category))]
        checked.append(p.reject_when(e, whens, nan=False))
    return tuple(checked)


def _one_hot(p: Printing) -> Value:
    (e,) = p.bind(p.values[0])
    return tuple(
        Expression(p.dialect.number_of(f"{e.sql} = {k}", p.sql_type), nan=False)
        for k in range(p.type.width)
    )


def _take(p: Printing) -> Value:
    """Return rows of a constant table, by indices that are never out of range."""
    table, index = p.values
    shape = p.shapes[0]
    columns = np.arange(len(table)).reshape(shape[0], -1).T.tolist()
    missing = any(e.nan for e in table)
    if p.dialect.missing_is_null:
        whens = [
            " ".join(f"WHEN {k} THEN {table[i].sql}" for k, i in enumerate(column))
            for column in columns
        ]
        return tuple(
            Expression(f"CASE {e.sql} {cases} END", nan=missing)
            for e in p.bind(index)
            for cases in whens
        )
    lists = [f"({p.dialect.array([table[i].sql for i in column])})" for column in columns]
    return tuple(
        Expression(p.dialect.at(entries, p.dialect.operator("+", e.sql, "1")), nan=missing)
        for e in p.bind(index)
        for entries in lists
    )


def _matmul(p: Printing) -> Value:
    """Return (i,) times a constant (i, l), or (t, i) times a constant (t, i, l) for each t."""
    x, weights = p.bind(p.values[0]), p.values[1]
    *batch, inner, outer = p.shapes[1]
    products = []
    for t in range(math.prod(batch)):
        line = x[t * inner : (t + 1) * inner]
        matrix = weights[t * inner * outer : (t + 1) * inner * outer]
        products += [_dot(p, line, matrix[k::outer]) for k in range(outer)]
    return tuple(products)


def _pairwise(p: Printing) -> Value:
    points = p.attrs["points"]
    print_term = _METRICS.get(p.attrs["metric"])
    other = "weights" in p.attrs or p.attrs.get("expanded", False)
    if print_term is None or other or points.size > 5000:
        raise BackendError(
            f"distances ({p.attrs['metric']}) to {points.shape[0]} points are not printed as SQL"
        )
    x = p.bind(p.values[0])
    distances = []
    for point in points:
        terms = [print_term(p, e.sql, c.sql) for e, c in zip(x, p.constants(point), strict=True)]
        distances.append(Expression(p.total(terms)))
    return tuple(distances)


def _square_difference(p: Printing, x: str, c: str) -> str:
    difference = p.operator("-", x, c)
    return p.operator("*", difference, difference)


_METRICS: Mapping[str, Callable[[Printing, str, str], str]] = {
    "dot": lambda p, x, c: p.operator("*", x, c),
    "sqeuclidean": _square_difference,
    "manhattan": lambda p, x, c: p.dialect.call("abs", p.operator("-", x, c)),
}
"""Metric -> the SQL of one column's term in the distance."""


def _search_sorted(p: Printing) -> Value:
    """Count the edges below a number; NaN is above all edges, as in numpy."""
    edges, offsets = p.constants(p.attrs["edges"], p.operand), p.attrs["offsets"].tolist()
    symbol = "<=" if p.attrs["side"] == "right" else "<"
    counts = []
    for k, e in enumerate(p.bind(p.values[0])):
        column_edges = edges[offsets[k] : offsets[k + 1]]
        holds = [f"{edge.sql} {symbol} {e.sql}" for edge in column_edges]
        if e.nan and p.dialect.missing_is_null:
            holds = [f"({test} OR {p.missing(e)})" for test in holds]
        terms = [p.dialect.number_of(test, "BIGINT") for test in holds]
        counts.append(Expression(p.total(terms), nan=False))
    return tuple(counts)


PRINTERS: Mapping[str, Printer] = {
    "concat": lambda p: tuple(e for value in p.values for e in value),
    "select": lambda p: tuple(p.values[0][j] for j in p.attrs["indices"].tolist()),
    "linear": _linear,
    "sum": _sum,
    "max": _reduction("greatest"),
    "min": _reduction("least"),
    "argmax": _argmax,
    "softmax": _softmax,
    "encode": _encode,
    "require_known": _require_known,
    "one_hot": _one_hot,
    "reshape": lambda p: p.values[0],
    "take": _take,
    "matmul": _matmul,
    "batch_matmul": _matmul,
    "pairwise": _pairwise,
    "search_sorted": _search_sorted,
}
