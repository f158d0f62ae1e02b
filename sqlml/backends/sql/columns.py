"""Operators that choose, join, sum up and weigh the columns of a row, as SQL."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from sqlml.backends.sql.expression import Expression, Value, constants
from sqlml.backends.sql.literals import TYPES, number
from sqlml.backends.sql.messages import shown_number
from sqlml.backends.sql.printing import VALUE, Printing
from sqlml.dialects import Dialect
from sqlml.errors import BackendError
from sqlml.ir.operators.categories import unknown_category
from sqlml.types import FLOATS

LONGEST_SUM = 400
"""Terms in a row: the engine refuses expressions that are nested 1000 deep."""


def total(terms: Sequence[str], dialect: Dialect) -> str:
    """The sum of `terms` from left to right, or of groups of them where they are very many.

    >>> from sqlml.dialects import SPARK
    >>> total(["a", "b", "c"], SPARK)
    '(a + b + c)'
    """
    while len(terms) > LONGEST_SUM:
        groups = range(0, len(terms), LONGEST_SUM)
        terms = [dialect.total(terms[g : g + LONGEST_SUM]) for g in groups]
    return dialect.total(terms)


def _concat(p: Printing) -> Value:
    return tuple(e for value in p.values for e in value)


def _select(p: Printing) -> Value:
    return tuple(p.values[0][j] for j in p.attrs["indices"].tolist())


def _linear(p: Printing) -> Value:
    """Summed column by column, as the reference does."""
    weights, bias = p.attrs["weights"], p.attrs["bias"]
    x = p.bind(p.values[0]) if weights.shape[1] > 1 else p.values[0]
    made = []
    for k in range(weights.shape[1]):
        terms = [
            p.dialect.operator("*", e.sql, w.sql)
            for e, w in zip(x, constants(weights[:, k], p.dtype), strict=True)
        ]
        made.append(Expression(total([*terms, number(bias[k], p.dtype)], p.dialect)))
    return tuple(made)


def _sum(p: Printing) -> Value:
    zero = number(0, p.dtype)
    return tuple(
        Expression(total([e.sql for e in line], p.dialect) if line else zero, nan=p.dtype in FLOATS)
        for line in p.lines()
    )


def _max(p: Printing) -> Value:
    return tuple(
        Expression(p.dialect.call("greatest", *(e.sql for e in line)), nan=any(e.nan for e in line))
        for line in p.lines()
    )


def _min(p: Printing) -> Value:
    made = []
    for line in map(p.bind, p.lines()):
        sql = p.dialect.call("least", *(e.sql for e in line))
        gone = [p.missing(e) for e in line if e.nan]
        if gone:
            nan = number(np.nan, p.dtype)
            sql = f"CASE WHEN {' OR '.join(gone)} THEN {nan} ELSE {sql} END"
        made.append(Expression(sql, nan=bool(gone)))
    return tuple(made)


def _argmax(p: Printing) -> Value:
    """The first of the greatest; NaN, the greatest in the engine, is what numpy would find too."""
    return tuple(Expression(_first_greatest(p, line), nan=False) for line in p.lines())


def _first_greatest(p: Printing, line: Value) -> str:
    kind = TYPES[p.dtype]
    if len(line) == 1:
        return number(0, p.dtype)
    if len(line) == 2:
        return f"CAST(CASE WHEN {line[0].sql} >= {line[1].sql} THEN 0 ELSE 1 END AS {kind})"
    name = p.bindings.name(p.dialect.array([e.sql for e in line]))
    place = p.dialect.operator("-", p.dialect.place_of_greatest(name), "1")
    return f"CAST({place} AS {kind})"


def _softmax(p: Printing) -> Value:
    x = p.bind(p.values[0])
    if not x:
        return ()
    (most,) = p.bind([Expression(p.dialect.call("greatest", *(e.sql for e in x)))])
    below = [p.dialect.operator("-", e.sql, most.sql) for e in x]
    if p.dtype == "float32":
        wide = [p.dialect.call("exp", f"CAST({b} AS DOUBLE)") for b in below]
        powers = [f"CAST({power} AS FLOAT)" for power in wide]
    else:
        powers = [p.dialect.call("exp", b) for b in below]
    e = p.bind([Expression(power) for power in powers])
    parts = [f"CAST({v.sql} AS {TYPES[str(p.attrs['sum_dtype'])]})" for v in e]
    (whole,) = p.bind([Expression(f"CAST({total(parts, p.dialect)} AS {TYPES[p.dtype]})")])
    kind = TYPES[p.dtype]
    return tuple(Expression(p.dialect.divided(v.sql, whole.sql, kind)) for v in e)


def _encode(p: Printing) -> Value:
    """Of equal categories the last one counts, as in the reference."""
    (e,) = p.bind(p.values[0])
    codes = {float(c): k for k, c in enumerate(p.attrs["categories"].tolist()) if c == c}
    code = number(-1, "int64")
    if codes:
        keys = p.dialect.array([number(c, p.operand) for c in codes])
        known = p.dialect.map(keys, p.dialect.array([str(code) for code in codes.values()]))
        zero = number(0, p.operand)  # -0.0 is another key than 0.0
        found = p.dialect.value_at(known, p.dialect.operator("+", e.sql, zero))
        code = f"CAST(coalesce({found}, -1) AS BIGINT)"
    missing = p.attrs["missing"]
    if e.nan:
        code = f"CASE WHEN {p.missing(e)} THEN {number(missing, 'int64')} ELSE {code} END"
    return (Expression(code, nan=False, category=shown_number(e.sql, e.nan, p.dialect)),)


def _require_known(p: Printing) -> Value:
    made = []
    for e in p.bind(p.values[0]):
        found = "a category" if e.category is None else VALUE
        error = p.error(unknown_category(p.attrs["feature"], p.attrs["step"], found), e.category)
        sql = f"CASE WHEN {e.sql} < 0 THEN {error} ELSE {e.sql} END"
        made.append(Expression(sql, nan=False))
    return tuple(made)


def _one_hot(p: Printing) -> Value:
    (e,) = p.bind(p.values[0])
    kind = TYPES[p.dtype]
    return tuple(
        Expression(f"CAST({e.sql} = {k} AS {kind})", nan=False) for k in range(p.type.width)
    )


def _reshape(p: Printing) -> Value:
    return p.values[0]


def _take(p: Printing) -> Value:
    """Rows of a constant table, by indices that are never outside it."""
    table, index = p.values
    shape = p.shapes[0]
    columns = np.arange(len(table)).reshape(shape[0], -1).T.tolist()
    lists = [f"({p.dialect.array([table[i].sql for i in column])})" for column in columns]
    missing = any(e.nan for e in table)
    return tuple(
        Expression(p.dialect.at(entries, p.dialect.operator("+", e.sql, "1")), nan=missing)
        for e in p.bind(index)
        for entries in lists
    )


def _matmul(p: Printing) -> Value:
    """(i,) times constant (i, l); or (t, i) times constant (t, i, l), for each t."""
    x, weights = p.bind(p.values[0]), p.values[1]
    *batch, inner, outer = p.shapes[1]
    made = []
    for t in range(math.prod(batch)):
        line = x[t * inner : (t + 1) * inner]
        for k in range(outer):
            own = [weights[(t * inner + i) * outer + k] for i in range(inner)]
            made.append(_dot(p, line, own))
    return tuple(made)


def _dot(p: Printing, line: Sequence[Expression], weights: Sequence[Expression]) -> Expression:
    terms = [p.dialect.operator("*", e.sql, w.sql) for e, w in zip(line, weights, strict=True)]
    return Expression(total(terms, p.dialect) if terms else number(0, p.dtype))


def _pairwise(p: Printing) -> Value:
    points = p.attrs["points"]
    part = _METRICS.get(p.attrs["metric"])
    other = "weights" in p.attrs or p.attrs.get("expanded", False)
    if part is None or other or points.size > MOST_NUMBERS:
        raise BackendError(
            f"distances ({p.attrs['metric']}) to {points.shape[0]} points are not printed as SQL"
        )
    x = p.bind(p.values[0])
    made = []
    for point in points:
        own = constants(point, p.dtype)
        terms = [part(p.dialect, e.sql, c.sql) for e, c in zip(x, own, strict=True)]
        made.append(Expression(total(terms, p.dialect)))
    return tuple(made)


def _squared(d: Dialect, x: str, c: str) -> str:
    apart = d.operator("-", x, c)
    return d.operator("*", apart, apart)


_METRICS: Mapping[str, Callable[[Dialect, str, str], str]] = MappingProxyType(
    {
        "dot": lambda d, x, c: d.operator("*", x, c),
        "sqeuclidean": _squared,
        "manhattan": lambda d, x, c: d.call("abs", d.operator("-", x, c)),
    }
)
"""One column's part in the distance."""

MOST_NUMBERS = 5000
"""Numbers of the points to which distances are printed."""


def _search_sorted(p: Printing) -> Value:
    """How many edges lie below; above all of them for NaN, as in numpy."""
    edges, offsets = constants(p.attrs["edges"], p.operand), p.attrs["offsets"].tolist()
    symbol = "<=" if p.attrs["side"] == "right" else "<"
    made = []
    for k, e in enumerate(p.bind(p.values[0])):
        own = edges[offsets[k] : offsets[k + 1]]
        terms = [f"CAST({edge.sql} {symbol} {e.sql} AS BIGINT)" for edge in own]
        made.append(Expression(total(terms, p.dialect) if terms else number(0, "int64"), nan=False))
    return tuple(made)


PRINTERS: Mapping[str, Callable[[Printing], Value]] = MappingProxyType(
    {
        "concat": _concat,
        "select": _select,
        "linear": _linear,
        "sum": _sum,
        "max": _max,
        "min": _min,
        "argmax": _argmax,
        "softmax": _softmax,
        "encode": _encode,
        "require_known": _require_known,
        "one_hot": _one_hot,
        "reshape": _reshape,
        "take": _take,
        "matmul": _matmul,
        "batch_matmul": _matmul,
        "pairwise": _pairwise,
        "search_sorted": _search_sorted,
    }
)
