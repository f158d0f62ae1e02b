"""`assemble`: translate one output of a Program to bytecode, if the VM supports all operators.

A value is represented by an array of register numbers, which has the shape of a row of the value.
So `select`, `concat` and `reshape` need no instruction, and numpy does the broadcasting.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce

import numpy as np

from sqlml.backends.native.vm.assembler import Assembler, OneHot, TooLargeError, VmCode
from sqlml.ir.program import Node, Program
from sqlml.types import INTEGERS, Array, DType

DTYPES = frozenset({"bool", "int32", "int64", "float32", "float64"})
"""The dtypes that the VM can represent. All values are represented as float64."""

EXACT_OPERATORS = frozenset(
    "input select concat reshape require_finite require_known require impute where cast take "
    "one_hot".split()
)
"""Operators that never round, so float64 registers give exact float32 results."""

INTEGER_OPERATORS = frozenset("gt ge lt le eq ne maximum minimum max min argmax take".split())
"""Operators that are exact on integers, if float64 represents the integers exactly."""

CHECKED_OPERATORS = frozenset({"add", "sub", "mul"})
"""Operators on integers whose results are checked, since large results could be rounded."""

LARGEST_INTEGERS: Mapping[str, float] = {"int32": 2.0**31 - 1, "int64": 2.0**53 - 1}
"""Maps a dtype to the largest magnitude of a result that neither overflows nor is rounded."""

ROUNDED_OPERATORS = frozenset(
    "add sub mul div square sqrt exp exp2 log log1p tanh sigmoid softmax sum".split()
)
"""Operators whose float32 result is the rounded float64 result. Each inner step is rounded too."""

FLOAT32_OPERATORS = frozenset(
    (
        *EXACT_OPERATORS,
        *ROUNDED_OPERATORS,
        *"constant maximum minimum neg abs sign max min linear pairwise".split(),
    )
)
"""Operators that may return float32."""

MAX_WIDTH = 1 << 13

MIN_ROW_COLUMNS = 4
"""The fewest columns of a table whose rows are read at once. Others are read number by number."""

MOST_CHECKS = 3
"""The most columns that are checked one by one; a sum of more columns is checked instead."""


@dataclass(frozen=True, slots=True)
class _RuleContext:
    """The arguments of a rule; `args` holds the registers of the inputs of `node`."""

    program: Program
    asm: Assembler
    node: Node
    args: tuple[Array, ...]


Rule = Callable[[_RuleContext], Array]
"""A function that writes the instructions of a node, and returns the registers of the value."""


class _UnsupportedError(Exception):
    """The VM does not support a node."""


def assemble(program: Program, output: str) -> VmCode | None:
    """Return the bytecode that computes `output`, or None if the VM does not support a node.

    The Program's only input must be a float matrix.
    """
    output_node = program.outputs[output]
    needed_nodes = program.find_needed_nodes([output_node])
    input_nodes = [i for i in needed_nodes if program.nodes[i].op == "input"]
    output_type = program.nodes[output_node].type
    if len(input_nodes) != 1 or len(program.inputs) != 1:
        return None
    if output_type.dtype not in ("int64", "float64", "float32") or not output_type.rowwise:
        return None
    input_type = program.nodes[input_nodes[0]].type
    if input_type.dtype not in ("float32", "float64") or not 0 < input_type.width <= MAX_WIDTH:
        return None
    if len(output_type.shape) != 2 or not 0 < output_type.width <= MAX_WIDTH:
        return None
    if not all(_is_supported(program, program.nodes[i]) for i in needed_nodes):
        return None
    asm, tables = Assembler(input_type.width), _find_tables(program, needed_nodes)
    values: dict[int, Array] = {i: np.empty(0, np.int64) for i in tables}
    try:
        for i in needed_nodes:
            node = program.nodes[i]
            if i in tables:
                continue
            if node.op == "input":
                values[i] = np.arange(input_type.width)
            else:
                arguments = tuple(values[j] for j in node.inputs)
                values[i] = RULES[node.op](_RuleContext(program, asm, node, arguments))
                if node.type.dtype in INTEGERS and node.op in CHECKED_OPERATORS:
                    limit = LARGEST_INTEGERS[node.type.dtype]
                    _emit_range_checks(asm, values[i], -limit, limit)
                if node.type.dtype == "float32" and node.op in ROUNDED_OPERATORS:
                    values[i] = _round_to_single(asm, values[i])
        results = values[output_node].tolist()
        return asm.finish(range(input_type.width), results, output_type.dtype == "int64")
    except (TooLargeError, _UnsupportedError):
        return None


def find_upper_bound(program: Program, i: int) -> int | None:
    """Return an exclusive upper bound of node i if all values are >= 0, or None if unknown."""
    node = program.nodes[i]
    if node.op == "argmax":
        return program.nodes[node.inputs[0]].type.width
    if node.op == "cast" and program.nodes[node.inputs[0]].type.dtype == "bool":
        return 2
    if node.op == "select":
        return find_upper_bound(program, node.inputs[0])
    return None


def _is_supported(program: Program, node: Node) -> bool:
    if node.op == "input":
        return True
    if node.op not in RULES or node.type.dtype not in DTYPES or node.type.sparse:
        return False
    if node.op == "constant":
        return True
    if not node.type.rowwise or np.prod(node.type.shape[1:], dtype=np.int64) > 4 * MAX_WIDTH:
        return False
    if node.type.dtype == "float32":
        return node.op in FLOAT32_OPERATORS
    has_integers = any(program.nodes[j].type.dtype in INTEGERS for j in node.inputs)
    return not has_integers or node.op in EXACT_OPERATORS | INTEGER_OPERATORS | CHECKED_OPERATORS


def _load_constant(ctx: _RuleContext) -> Array:
    value = _to_doubles(ctx.node.attrs["value"])
    if value.size > MAX_WIDTH:
        raise _UnsupportedError
    registers = [ctx.asm.constant(v) for v in value.ravel().tolist()]
    return np.array(registers, np.int64).reshape(value.shape)


def _to_doubles(numbers: Array) -> Array:
    """Convert constants to float64; raise _UnsupportedError if an integer would be rounded."""
    doubles = numbers.astype(np.float64)
    if not np.array_equal(doubles.astype(numbers.dtype), numbers, equal_nan=True):
        raise _UnsupportedError
    return doubles


def _map_registers(ctx: _RuleContext, function: Callable[..., int], *args: Array) -> Array:
    """Broadcast the arguments, and apply `function` to the registers at each position."""
    row_shape = ctx.node.type.shape[1:]
    columns = [_broadcast(x, row_shape).ravel().tolist() for x in args or ctx.args]
    results = [function(*operands) for operands in zip(*columns, strict=True)]
    return np.array(results, np.int64).reshape(row_shape)


def _broadcast(registers: Array, row_shape: tuple[int, ...]) -> Array:
    """Broadcast registers to `row_shape`; constants may have an extra first axis of length 1."""
    if registers.ndim > len(row_shape):
        if registers.ndim != len(row_shape) + 1 or registers.shape[0] != 1:
            raise _UnsupportedError
        registers = registers[0]
    return np.broadcast_to(registers, row_shape)


def _round_to_single(asm: Assembler, registers: Array) -> Array:
    rounded = [asm.emit("single", register) for register in registers.ravel().tolist()]
    return np.array(rounded, np.int64).reshape(registers.shape)


def _make_instruction_rule(op: str) -> Rule:
    return lambda ctx: _map_registers(ctx, partial(ctx.asm.emit, op))


def _make_composed_rule(function: Callable[..., int]) -> Rule:
    return lambda ctx: _map_registers(ctx, partial(function, ctx.asm))


def _emit_sigmoid(ctx: _RuleContext) -> Array:
    is_single = ctx.node.type.dtype == "float32"
    return _make_composed_rule(Assembler.single_sigmoid if is_single else Assembler.sigmoid)(ctx)


def _emit_cast(ctx: _RuleContext) -> Array:
    exact_sources = {
        "float64": ("bool", "float32", "float64", "int32", "int64"),
        "float32": ("bool", "float32"),
        "int32": ("bool", "int32"),
        "int64": ("bool", "int32", "int64"),
    }
    dtype = ctx.node.type.dtype
    source_dtype = ctx.program.nodes[ctx.node.inputs[0]].type.dtype
    if source_dtype in exact_sources.get(dtype, ()):
        return ctx.args[0]
    if dtype == "float32" and source_dtype in ("float64", "int32", "int64"):
        return _round_to_single(ctx.asm, ctx.args[0])
    if dtype == "int64" and source_dtype in ("float32", "float64"):
        return _map_registers(ctx, partial(ctx.asm.emit, "whole"))
    if dtype == "int32" and source_dtype in ("float32", "float64"):
        return _make_composed_rule(Assembler.whole_int32)(ctx)
    raise _UnsupportedError


def _emit_require_finite(ctx: _RuleContext) -> Array:
    (x,), attrs = ctx.args, ctx.node.attrs
    largest = float(np.finfo(ctx.node.type.dtype).max)
    lows = np.broadcast_to(np.maximum(attrs.get("low", -largest), -largest), x.shape)
    highs = np.broadcast_to(np.minimum(attrs.get("high", largest), largest), x.shape)
    allows_nan = float(bool(attrs["allow_nan"]))
    if not allows_nan and "low" not in attrs and "high" not in attrs and x.size > MOST_CHECKS:
        # 0 * x is NaN if x is not finite, otherwise 0. So one check of a sum serves all columns.
        (total,) = _emit_lists(ctx, "linear", np.zeros((1, x.size)), ctx.asm.store(np.zeros(1)))
        ctx.asm.emit("check", int(total), 0, ctx.asm.store_numbers(0.0, 0.0, 0.0))
        return x
    for register, low, high in zip(x.tolist(), lows.tolist(), highs.tolist(), strict=True):
        limits = ctx.asm.store_numbers(float(low), float(high), allows_nan)
        ctx.asm.emit("check", register, 0, limits)
    return x


def _emit_range_checks(asm: Assembler, registers: Array, low: float, high: float) -> None:
    limits = asm.store_numbers(low, high, 0.0)
    for register in registers.ravel().tolist():
        asm.emit("check", register, 0, limits)


def _emit_require(ctx: _RuleContext, checked: int, low: float, high: float) -> Array:
    """Emit checks that input `checked` is from low to high; return the node's first input."""
    _emit_range_checks(ctx.asm, ctx.args[checked], low, high)
    return ctx.args[0]


def _emit_one_hot(ctx: _RuleContext) -> Array:
    (code,) = ctx.args[0].ravel().tolist()
    return np.array(ctx.asm.make_one_hot(code, ctx.node.type.width), np.int64)


def _emit_table_lookup(ctx: _RuleContext) -> Array:
    """Emit `take` from a constant table. The VM stops at an index out of range."""
    table = _to_doubles(ctx.program.nodes[ctx.node.inputs[0]].attrs["value"])
    rows = table.reshape(len(table), -1)
    _emit_range_checks(ctx.asm, ctx.args[1], 0.0, len(table) - 1.0)
    indices, width = ctx.args[1].ravel().tolist(), rows.shape[1]
    if width >= MIN_ROW_COLUMNS:
        is_single = ctx.node.type.dtype == "float32"
        tables = ctx.asm.store_tables([rows], is_single)
        sums = (ctx.asm.emit_row_sums([i], tables, width, is_single) for i in indices)
        results = [register for registers in sums for register in registers]
    else:
        columns = rows.T.tolist()
        results = [ctx.asm.emit_take(index, values) for index in indices for values in columns]
    return np.array(results, np.int64).reshape(ctx.node.type.shape[1:])


def _find_tables(program: Program, needed_nodes: Sequence[int]) -> frozenset[int]:
    """Return constant nodes that only `take` reads, as tables."""
    tables, other_uses = set[int](), set(program.outputs.values())
    for node in (program.nodes[i] for i in needed_nodes):
        is_take = node.op == "take"
        other_uses.update(node.inputs[1:] if is_take else node.inputs)
        if is_take and program.nodes[node.inputs[0]].op == "constant":
            tables.add(node.inputs[0])
    return frozenset(tables - other_uses)


def _emit_impute(ctx: _RuleContext) -> Array:
    asm, missing = ctx.asm, float(ctx.node.attrs["missing"])

    def choose(x: int, fill: int) -> int:
        if missing != missing:
            return asm.emit("where", asm.compare(x, x, 0.0, 1.0), x, fill)
        is_missing = asm.compare(x, asm.constant(missing), 0.0, 1.0)
        return asm.emit("where", is_missing, fill, x)

    fills = [asm.constant(v) for v in ctx.node.attrs["fill"].astype(np.float64).tolist()]
    return _map_registers(ctx, choose, ctx.args[0], np.array(fills))


def _list_reduced_registers(ctx: _RuleContext) -> list[list[int]]:
    """Return the registers to reduce for each result, in the order of the results."""
    (x,) = ctx.args
    axis = int(ctx.node.attrs.get("axis", x.ndim)) - 1
    if not x.shape[axis]:
        raise _UnsupportedError
    rows: list[list[int]] = np.moveaxis(x, axis, -1).reshape(-1, x.shape[axis]).tolist()
    return rows


def _make_reduction_rule(function: Callable[[Assembler, list[int]], int]) -> Rule:
    def emit(ctx: _RuleContext) -> Array:
        results = [function(ctx.asm, row) for row in _list_reduced_registers(ctx)]
        return np.array(results, np.int64).reshape(ctx.node.type.shape[1:])

    return emit


def _emit_sum(ctx: _RuleContext) -> Array:
    add = _get_addition(ctx.asm, ctx.node.type.dtype)
    # Along any other axis than the last, numpy adds whole slices in order.
    after_axis = ctx.args[0].shape[int(ctx.node.attrs["axis"]) :]
    if math.prod(after_axis) == 1:
        return _make_reduction_rule(lambda asm, row: asm.sum_registers(row, add))(ctx)
    return _make_reduction_rule(lambda asm, row: reduce(add, row))(ctx)


def _get_addition(asm: Assembler, dtype: DType) -> Callable[[int, int], int]:
    """Return a function that emits the sum of two registers, rounded to `dtype`."""
    if dtype == "float32":
        return lambda a, b: asm.emit("single", asm.add(a, b))
    return asm.add


def _emit_softmax(ctx: _RuleContext) -> Array:
    asm, (x,) = ctx.asm, ctx.args
    is_single = ctx.node.type.dtype == "float32"
    sum_dtype = ctx.node.attrs["sum_dtype"]
    if sum_dtype != "float64" and not is_single:
        raise _UnsupportedError
    registers = x.tolist()
    maximum = asm.largest(registers)
    exponents = np.array([asm.add(r, maximum, -1.0) for r in registers], np.int64)
    exponents = _round_to_single(asm, exponents) if is_single else exponents
    exponentials = np.array([asm.emit("exp", r) for r in exponents.tolist()], np.int64)
    exponentials = _round_to_single(asm, exponentials) if is_single else exponentials
    total = asm.sum_registers(exponentials.tolist(), _get_addition(asm, sum_dtype))
    total = asm.emit("single", total) if is_single else total
    return np.array([asm.emit("div", r, total) for r in exponentials.tolist()], np.int64)


def _emit_product(ctx: _RuleContext, weights: Array, bias: Array) -> Array:
    """Emit weights (m, k) times the input columns (k,), plus bias (m,)."""
    columns = [ctx.asm.find_one_hot(r) for r in ctx.args[0].tolist()]
    if not any(columns) or not np.isfinite(weights).all():  # 0 * inf is NaN
        return _emit_lists(ctx, "linear", weights, ctx.asm.store(bias))
    return _emit_product_with_lookups(ctx, weights, bias, columns)


def _emit_product_with_lookups(
    ctx: _RuleContext, weights: Array, bias: Array, columns: Sequence[OneHot | None]
) -> Array:
    """Emit the product, but look up the weights of each group of one-hot columns."""
    asm, is_single = ctx.asm, ctx.node.type.dtype == "float32"

    def add_all(registers: Sequence[int], others: Sequence[int]) -> list[int]:
        totals = [*map(asm.add, registers, others)]
        return [asm.emit("single", total) for total in totals] if is_single else totals

    is_plain = np.array([c is None for c in columns])
    groups: dict[int, list[int]] = {}
    for k, column in enumerate(columns):
        if column is not None:
            groups.setdefault(column.code, []).append(k)
    plain_context = replace(ctx, args=(ctx.args[0][is_plain],))
    sums = [asm.constant(float(b)) for b in bias]
    if is_plain.any():
        sums = _emit_lists(plain_context, "linear", weights[:, is_plain], asm.store(bias)).tolist()
    tables = dict[int, Array]()
    for code, group in groups.items():
        one_hot_columns = [c for c in columns if c is not None and c.code == code]
        table = np.zeros((max(c.count for c in one_hot_columns), len(bias)))
        for k, column in zip(group, one_hot_columns, strict=True):
            table[column.place] += weights[:, k]
        tables[code] = table
    if len(bias) >= MIN_ROW_COLUMNS:
        index = asm.store_tables([*tables.values()], is_single)
        sums = add_all(sums, asm.emit_row_sums([*tables], index, len(bias), is_single))
        return np.array(sums, np.int64)
    for code, table in tables.items():
        sums = add_all(sums, [asm.emit_take(code, values) for values in table.T.tolist()])
    return np.array(sums, np.int64)


def _emit_pairwise(ctx: _RuleContext) -> Array:
    attrs = ctx.node.attrs
    points = attrs["points"]
    is_plain = "weights" not in attrs and not attrs.get("expanded", False)
    if not is_plain or attrs["metric"] not in ("dot", "sqeuclidean"):
        raise _UnsupportedError
    if attrs["metric"] == "dot":
        return _emit_product(ctx, points, np.zeros(len(points)))
    return _emit_lists(ctx, "sqeuclidean", points, 0)


def _emit_lists(ctx: _RuleContext, op: str, numbers: Array, first_bias: int) -> Array:
    """Emit `op` over the columns for each row of `numbers` (m, k); `first_bias` is an index."""
    columns = ctx.args[0].tolist()
    is_single, width = ctx.node.type.dtype == "float32", len(columns)
    index = ctx.asm.store_singles(numbers) if is_single else ctx.asm.store(numbers)
    op = f"{op}32" if is_single else op
    lists = ((columns, index + row * width, first_bias + row) for row in range(len(numbers)))
    return np.array([ctx.asm.emit_list(op, *operands) for operands in lists], np.int64)


RULES: Mapping[str, Rule] = {
    "constant": _load_constant,
    "select": lambda ctx: ctx.args[0][ctx.node.attrs["indices"]],
    "concat": lambda ctx: np.concatenate(ctx.args),
    "reshape": lambda ctx: ctx.args[0].reshape(ctx.node.attrs["shape"]),
    "cast": _emit_cast,
    "require_finite": _emit_require_finite,
    "require_known": lambda ctx: _emit_require(ctx, 0, 0.0, np.inf),
    "require": lambda ctx: _emit_require(ctx, 1, 1.0, 1.0),
    "one_hot": _emit_one_hot,
    "take": _emit_table_lookup,
    "impute": _emit_impute,
    "add": _make_composed_rule(Assembler.add),
    "sub": _make_composed_rule(lambda asm, a, b: asm.add(a, b, -1.0)),
    "mul": _make_instruction_rule("mul"),
    "div": _make_instruction_rule("div"),
    "maximum": _make_instruction_rule("maximum"),
    "minimum": _make_composed_rule(Assembler.minimum),
    "gt": _make_composed_rule(lambda asm, a, b: asm.compare(a, b, 1.0, 0.0)),
    "ge": _make_composed_rule(lambda asm, a, b: asm.compare(a, b, 1.0, 1.0)),
    "lt": _make_composed_rule(lambda asm, a, b: asm.compare(b, a, 1.0, 0.0)),
    "le": _make_composed_rule(lambda asm, a, b: asm.compare(b, a, 1.0, 1.0)),
    "eq": _make_composed_rule(lambda asm, a, b: asm.compare(a, b, 0.0, 1.0)),
    "ne": _make_composed_rule(lambda asm, a, b: asm.negation(asm.compare(a, b, 0.0, 1.0))),
    "and": _make_instruction_rule("mul"),
    "or": _make_instruction_rule("maximum"),
    "not": _make_composed_rule(Assembler.negation),
    "isnan": _make_composed_rule(lambda asm, a: asm.negation(asm.compare(a, a, 0.0, 1.0))),
    "where": _make_instruction_rule("where"),
    "neg": _make_composed_rule(Assembler.negative),
    "abs": _make_composed_rule(Assembler.absolute),
    "sign": _make_composed_rule(Assembler.sign),
    "trunc": _make_composed_rule(Assembler.truncated),
    "square": _make_composed_rule(lambda asm, a: asm.emit("mul", a, a)),
    "sqrt": _make_instruction_rule("sqrt"),
    "exp": _make_instruction_rule("exp"),
    "exp2": _make_instruction_rule("exp2"),
    "log": _make_composed_rule(lambda asm, a: asm.emit("log", a, asm.constant(0.0))),
    "log1p": _make_composed_rule(lambda asm, a: asm.emit("log", a, asm.constant(1.0))),
    "expm1": _make_composed_rule(Assembler.expm1),
    "sigmoid": _emit_sigmoid,
    "tanh": _make_instruction_rule("tanh"),
    "sum": _emit_sum,
    "max": _make_reduction_rule(Assembler.largest),
    "min": _make_reduction_rule(Assembler.smallest),
    "argmax": _make_reduction_rule(Assembler.argmax),
    "softmax": _emit_softmax,
    "linear": lambda ctx: _emit_product(ctx, ctx.node.attrs["weights"].T, ctx.node.attrs["bias"]),
    "pairwise": _emit_pairwise,
}
"""Maps an operator to a rule."""
