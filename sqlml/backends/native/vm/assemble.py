"""`assemble`: one output of a Program as code for the machine, if the machine has all its
operators.

A value is an array of registers of the shape of one row of it: so `select`, `concat` and `reshape`
take no instruction, and numbers are broadcast as numpy does it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

import numpy as np

from sqlml.backends.native.vm.assembler import (
    Assembler,
    Code,
    OneHot,
    TooLarge,
    absolute,
    add,
    argmax,
    compare,
    expm1,
    largest,
    minimum,
    negation,
    negative,
    sigmoid,
    single_sigmoid,
    smallest,
    summed,
    tanh,
)
from sqlml.backends.native.vm.run import LISTED
from sqlml.ir.program import Node, Program
from sqlml.types import Array

KINDS = frozenset({"bool", "int64", "float32", "float64"})
"""dtypes of values that the machine holds, all as float64."""

EXACT = frozenset(
    {
        *("input", "select", "concat", "reshape", "require_finite", "require_known"),
        *("require", "impute", "where", "cast", "one_hot"),
    }
)
"""Operators that round nothing, so that they may work on float32 as well."""

COMPARED = frozenset({"gt", "ge", "lt", "le", "eq", "ne", "maximum", "minimum", "take"})
"""Operators that are exact of whole numbers, if these are exact as float64."""

ROUNDED = frozenset({"add", "sub", "mul", "div", "sqrt", "exp", "sigmoid", "softmax"})
"""Operators whose float32 result is that of float64, rounded: their steps are rounded as well."""

SINGLE = frozenset({*EXACT, *ROUNDED, "constant", "maximum", "minimum", "neg", "abs", "max", "min"})
"""Operators that may make float32."""

MOST_WIDTH = 2048


@dataclass(frozen=True, slots=True)
class _Work:
    """What a rule has: the assembler, the node, and its inputs' registers and dtypes."""

    program: Program
    asm: Assembler
    node: Node
    args: tuple[Array, ...]
    dtypes: tuple[str, ...]


class _Unknown(Exception):
    """A node that the machine has no instructions for."""


def assemble(program: Program, output: str, single: bool = False) -> Code | None:
    """The code, or None. Its input is the Program's only one, a matrix of floats.

    Args:
        single: with the operators that round to float32, and an output of that.
    """
    last = program.outputs[output]
    live = program.find_needed([last])
    inputs = [i for i in live if program.nodes[i].op == "input"]
    kind = program.nodes[last].type
    if (
        len(inputs) != 1
        or len(program.inputs) != 1
        or kind.dtype not in ("int64", "float64", "float32")[: 3 if single else 2]
        or not kind.rowwise
    ):
        return None
    below = program.nodes[inputs[0]].type
    if below.dtype not in ("float32", "float64") or not 0 < below.width <= MOST_WIDTH:
        return None
    if len(kind.shape) != 2 or not 0 < kind.width <= MOST_WIDTH:
        return None
    if any(not _known(program, program.nodes[i], SINGLE if single else EXACT) for i in live):
        return None
    asm, tables = Assembler(below.width), _tables(program, live)
    values: dict[int, Array] = {i: np.empty(0, np.int64) for i in tables}
    try:
        for i in live:
            node = program.nodes[i]
            if i in tables:
                continue
            if node.op == "input":
                values[i] = np.arange(below.width)
            else:
                args = tuple(values[j] for j in node.inputs)
                dtypes = tuple(program.nodes[j].type.dtype for j in node.inputs)
                values[i] = RULES[node.op](_Work(program, asm, node, args, dtypes))
                if node.type.dtype == "float32" and node.op in ROUNDED:
                    values[i] = _single(asm, values[i])
        return asm.finish(range(below.width), values[last].tolist(), kind.dtype == "int64")
    except (TooLarge, _Unknown):
        return None


def below(program: Program, i: int) -> int | None:
    """An upper bound of the non-negative integers of node i; None if it has none."""
    node = program.nodes[i]
    if node.op == "argmax":
        return program.nodes[node.inputs[0]].type.width
    if node.op == "cast" and program.nodes[node.inputs[0]].type.dtype == "bool":
        return 2
    if node.op == "select":
        return below(program, node.inputs[0])
    return None


def _known(program: Program, node: Node, single: frozenset[str]) -> bool:
    if node.op == "input":
        return True
    if node.op not in RULES or node.type.dtype not in KINDS or node.type.sparse:
        return False
    if node.op == "constant":
        return True
    if not node.type.rowwise or np.prod(node.type.shape[1:], dtype=np.int64) > 4 * MOST_WIDTH:
        return False
    if node.type.dtype == "float32":
        return node.op in single
    whole = any(program.nodes[j].type.dtype == "int64" for j in node.inputs)
    return not whole or node.op in EXACT or node.op in COMPARED


def _constant(work: _Work) -> Array:
    value = work.node.attrs["value"].astype(np.float64)
    if value.size > MOST_WIDTH or not np.array_equal(value, work.node.attrs["value"], True):
        raise _Unknown
    registers = [work.asm.constant(v) for v in value.ravel().tolist()]
    return np.array(registers, np.int64).reshape(value.shape)


def _each(work: _Work, function: Callable[..., int], *args: Array) -> Array:
    """`function` of the registers at each place of the arguments, which are broadcast."""
    tail = work.node.type.shape[1:]
    wide = [_fitted(a, tail).ravel().tolist() for a in (args or work.args)]
    made = [function(*registers) for registers in zip(*wide, strict=True)]
    return np.array(made, np.int64).reshape(tail)


def _fitted(value: Array, tail: tuple[int, ...]) -> Array:
    """Registers broadcast to the shape of a row; a constant may have an axis for the rows."""
    if value.ndim > len(tail):
        if value.ndim != len(tail) + 1 or value.shape[0] != 1:
            raise _Unknown
        value = value[0]
    return np.broadcast_to(value, tail)


def _single(asm: Assembler, value: Array) -> Array:
    """Each register rounded to float32."""
    rounded = [asm.emit("single", r) for r in value.ravel().tolist()]
    return np.array(rounded, np.int64).reshape(value.shape)


def _instruction(op: str) -> Callable[[_Work], Array]:
    return lambda work: _each(work, partial(work.asm.emit, op))


def _composed(function: Callable[..., int]) -> Callable[[_Work], Array]:
    return lambda work: _each(work, partial(function, work.asm))


def _sigmoid(work: _Work) -> Array:
    single = work.node.type.dtype == "float32"
    return _composed(single_sigmoid if single else sigmoid)(work)


def _cast(work: _Work) -> Array:
    fine = {
        "float64": ("bool", "float32", "float64", "int64"),
        "float32": ("bool", "float32"),
        "int64": ("bool", "int64"),
    }
    kind, own = work.node.type.dtype, work.dtypes[0]
    if own in fine.get(kind, ()):
        return work.args[0]
    if kind == "float32" and own in ("float64", "int64"):
        return _single(work.asm, work.args[0])
    if kind == "int64" and own in ("float32", "float64"):
        return _each(work, partial(work.asm.emit, "whole"))
    raise _Unknown


def _concat(work: _Work) -> Array:
    return np.concatenate(work.args)


def _select(work: _Work) -> Array:
    chosen: Array = work.args[0][work.node.attrs["indices"]]
    return chosen


def _reshape(work: _Work) -> Array:
    return work.args[0].reshape(work.node.attrs["shape"])


def _check(work: _Work) -> Array:
    (x,), attrs = work.args, work.node.attrs
    most = float(np.finfo(work.node.type.dtype).max)
    low = np.broadcast_to(np.maximum(attrs.get("low", -most), -most), x.shape)
    high = np.broadcast_to(np.minimum(attrs.get("high", most), most), x.shape)
    nan = float(bool(attrs["allow_nan"]))
    if not nan and "low" not in attrs and "high" not in attrs and x.size > LISTED:
        # 0 * x is 0, or NaN for what is not finite: one check of a sum for all columns.
        (total,) = _listed(work, "linear", np.zeros((1, x.size)), work.asm.store(np.zeros(1)))
        work.asm.emit("check", int(total), 0, work.asm.numbers(0.0, 0.0, 0.0))
        return x
    for register, least, greatest in zip(x.tolist(), low.tolist(), high.tolist(), strict=True):
        place = work.asm.numbers(float(least), float(greatest), nan)
        work.asm.emit("check", register, 0, place)
    return x


def _known_codes(work: _Work) -> Array:
    place = work.asm.numbers(0.0, np.inf, 0.0)
    for register in work.args[0].ravel().tolist():
        work.asm.emit("check", register, 0, place)
    return work.args[0]


def _require(work: _Work) -> Array:
    x, fine = work.args
    (register,) = fine.ravel().tolist()
    work.asm.emit("check", register, 0, work.asm.numbers(1.0, 1.0, 0.0))
    return x


def _one_hot(work: _Work) -> Array:
    (code,) = work.args[0].ravel().tolist()
    return np.array(work.asm.one_hot(code, work.node.type.width), np.int64)


def _take(work: _Work) -> Array:
    """The rows of a constant table; a place outside of it stops the machine."""
    table = work.program.nodes[work.node.inputs[0]].attrs["value"].astype(np.float64)
    columns = table.reshape(len(table), -1).T.tolist()
    inside = work.asm.numbers(0.0, len(table) - 1.0, 0.0)
    for place in work.args[1].ravel().tolist():
        work.asm.emit("check", place, 0, inside)
    made = [
        work.asm.take(place, values)
        for place in work.args[1].ravel().tolist()
        for values in columns
    ]
    return np.array(made, np.int64).reshape(work.node.type.shape[1:])


def _tables(program: Program, live: Sequence[int]) -> frozenset[int]:
    """Constants that are tables to take rows of, and nothing else."""
    tables, others = set[int](), set(program.outputs.values())
    for node in (program.nodes[i] for i in live):
        table, *rest = node.inputs if node.op == "take" else (-1, *node.inputs)
        others.update(rest)
        tables |= {table} if table >= 0 and program.nodes[table].op == "constant" else set()
    return frozenset(tables - others)


def _impute(work: _Work) -> Array:
    asm, missing = work.asm, float(work.node.attrs["missing"])

    def choose(x: int, fill: int) -> int:
        if missing != missing:
            return asm.emit("where", compare(asm, x, x, 0.0, 1.0), x, fill)
        gone = compare(asm, x, asm.constant(missing), 0.0, 1.0)
        return asm.emit("where", gone, fill, x)

    fills = [asm.constant(v) for v in work.node.attrs["fill"].astype(np.float64).tolist()]
    return _each(work, choose, work.args[0], np.array(fills))


def _rows_of(work: _Work) -> list[list[int]]:
    """The registers along the last axis, which is the one that is reduced."""
    (x,) = work.args
    if work.node.attrs.get("axis", x.ndim) != x.ndim or not x.shape[-1]:
        raise _Unknown
    rows: list[list[int]] = x.reshape(-1, x.shape[-1]).tolist()
    return rows


def _reduced(function: Callable[[Assembler, list[int]], int]) -> Callable[[_Work], Array]:
    def reduce(work: _Work) -> Array:
        made = [function(work.asm, row) for row in _rows_of(work)]
        return np.array(made, np.int64).reshape(work.node.type.shape[1:])

    return reduce


def _softmax(work: _Work) -> Array:
    asm, (x,) = work.asm, work.args
    if work.node.attrs["sum_dtype"] != "float64":
        raise _Unknown
    single = work.node.type.dtype == "float32"
    row = x.tolist()
    top = largest(asm, row)
    raised = np.array([add(asm, r, top, -1.0) for r in row], np.int64)
    raised = _single(asm, raised) if single else raised
    raised = np.array([asm.emit("exp", r) for r in raised.tolist()], np.int64)
    raised = _single(asm, raised) if single else raised
    total = summed(asm, raised.tolist())
    total = asm.emit("single", total) if single else total
    return np.array([asm.emit("div", r, total) for r in raised.tolist()], np.int64)


def _linear(work: _Work) -> Array:
    attrs = work.node.attrs
    return _products(work, attrs["weights"].T, attrs["bias"])


def _products(work: _Work, weights: Array, bias: Array) -> Array:
    columns = [work.asm.one_hot_of(r) for r in work.args[0].tolist()]
    if not any(columns) or not np.isfinite(weights).all():  # 0 * inf is NaN
        return _listed(work, "linear", weights, work.asm.store(bias))
    return _with_lookups(work, weights, bias, columns)


def _with_lookups(
    work: _Work, weights: Array, bias: Array, columns: Sequence[OneHot | None]
) -> Array:
    """Products of which those with one-hot columns are lookups of the weight of their 1."""
    asm = work.asm
    plain = np.array([c is None for c in columns])
    groups: dict[int, list[int]] = {}
    for k, column in enumerate(columns):
        if column is not None:
            groups.setdefault(column.code, []).append(k)
    rest = replace(work, args=(work.args[0][plain],))
    made = [asm.constant(float(b)) for b in bias]
    if plain.any():
        made = _listed(rest, "linear", weights[:, plain], asm.store(bias)).tolist()
    for code, places in groups.items():
        ones = [c for c in columns if c is not None and c.code == code]
        for m, register in enumerate(made):
            values = np.zeros(ones[0].count)
            for k, column in zip(places, ones, strict=True):
                values[column.place] += weights[m, k]
            made[m] = add(asm, register, asm.take(code, values.tolist()))
    return np.array(made, np.int64)


def _pairwise(work: _Work) -> Array:
    attrs = work.node.attrs
    points = attrs["points"]
    if "weights" in attrs or attrs.get("expanded", False):
        raise _Unknown
    if attrs["metric"] not in ("dot", "sqeuclidean"):
        raise _Unknown
    if attrs["metric"] == "dot":
        return _products(work, points, np.zeros(len(points)))
    return _listed(work, "sqeuclidean", points, 0)


def _listed(work: _Work, op: str, numbers: Array, biases: int) -> Array:
    """One result for each row of numbers (m, k), of all k columns."""
    columns = work.args[0].tolist()
    columns += [work.asm.constant(0.0)] * (-len(columns) % LISTED)
    wide = np.zeros((len(numbers), len(columns)))
    wide[:, : numbers.shape[1]] = numbers
    first = work.asm.store(wide)
    made = [
        work.asm.emit_list(op, columns, first + m * len(columns), biases + m)
        for m in range(len(numbers))
    ]
    return np.array(made, np.int64)


RULES: Mapping[str, Callable[[_Work], Array]] = MappingProxyType(
    {
        "constant": _constant,
        "select": _select,
        "concat": _concat,
        "reshape": _reshape,
        "cast": _cast,
        "require_finite": _check,
        "require_known": _known_codes,
        "require": _require,
        "one_hot": _one_hot,
        "take": _take,
        "impute": _impute,
        "add": _composed(add),
        "sub": _composed(lambda asm, a, b: add(asm, a, b, -1.0)),
        "mul": _instruction("mul"),
        "div": _instruction("div"),
        "maximum": _instruction("maximum"),
        "minimum": _composed(minimum),
        "gt": _composed(lambda asm, a, b: compare(asm, a, b, 1.0, 0.0)),
        "ge": _composed(lambda asm, a, b: compare(asm, a, b, 1.0, 1.0)),
        "lt": _composed(lambda asm, a, b: compare(asm, b, a, 1.0, 0.0)),
        "le": _composed(lambda asm, a, b: compare(asm, b, a, 1.0, 1.0)),
        "eq": _composed(lambda asm, a, b: compare(asm, a, b, 0.0, 1.0)),
        "ne": _composed(lambda asm, a, b: negation(asm, compare(asm, a, b, 0.0, 1.0))),
        "and": _instruction("mul"),
        "or": _instruction("maximum"),
        "not": _composed(negation),
        "isnan": _composed(lambda asm, a: negation(asm, compare(asm, a, a, 0.0, 1.0))),
        "where": _instruction("where"),
        "neg": _composed(negative),
        "abs": _composed(absolute),
        "square": _composed(lambda asm, a: asm.emit("mul", a, a)),
        "sqrt": _instruction("sqrt"),
        "exp": _instruction("exp"),
        "log": _composed(lambda asm, a: asm.emit("log", a, asm.constant(0.0))),
        "log1p": _composed(lambda asm, a: asm.emit("log", a, asm.constant(1.0))),
        "expm1": _composed(expm1),
        "sigmoid": _sigmoid,
        "tanh": _composed(tanh),
        "sum": _reduced(summed),
        "max": _reduced(largest),
        "min": _reduced(smallest),
        "argmax": _reduced(argmax),
        "softmax": _softmax,
        "linear": _linear,
        "pairwise": _pairwise,
    }
)
