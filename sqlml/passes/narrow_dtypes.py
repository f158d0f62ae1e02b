"""Compute indices and counts in int32 instead of int64 or float32. Exact.

CMLCompiler, section 4.3.1, uses the lowest of float32 > int32/float16 > int16 > int8 > bool that
has every possible value. On CPUs only int32 pays off (torch 2.13, onnxruntime 1.31, one thread,
best of 7): forests of 100 trees became 1.02 to 1.4 times as fast. Products of integers take 1.3 to
4.2 times as long as those of float32, which counts up to 2^24 inner nodes exactly. So index
arithmetic becomes int32 if all results are indices of `take` or operands of a cast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from sqlml.ir.builder import Builder, Value, copy_retyped, rewrite
from sqlml.ir.program import Node, Program
from sqlml.types import Array, DType

Range = tuple[int, int]
"""A lower and an upper bound of the values, which may be too wide."""

MAX_BOUND = 1 << 53
"""Largest bound of a range: float64 represents every integer up to this bound."""

EXACT: Mapping[str, int] = {
    **{name: int(np.iinfo(name).max) for name in ("int8", "int16", "int32")},
    "float16": 1 << 11,
    "float32": 1 << 24,
}
"""Map a dtype to the magnitude up to which every integer, and so every sum, is exact."""


def infer_ranges(program: Program) -> list[Range | None]:
    """Return the range of each node, or None for a node of unknown range."""
    ranges: list[Range | None] = []
    for node in program.nodes:
        candidate = _infer_range(program, node, [ranges[i] for i in node.inputs])
        limit = EXACT.get(node.type.dtype, MAX_BOUND)
        is_exact = candidate is not None and max(-candidate[0], candidate[1]) <= limit
        ranges.append(candidate if is_exact else None)
    return ranges


def _infer_range(
    program: Program, node: Node, input_ranges: Sequence[Range | None]
) -> Range | None:
    if node.type.dtype == "bool" or node.op == "one_hot":
        return (0, 1)
    if node.op == "constant":
        return _find_range_of_array(node.attrs["value"])
    if node.op == "encode":
        missing, last_code = int(node.attrs["missing"]), int(node.attrs["categories"].size) - 1
        return (min(-1, missing), max(last_code, missing))
    if node.op in ("matmul", "batch_matmul") and input_ranges[0] is not None:
        weights = program.nodes[node.inputs[1]]
        if weights.op != "constant":
            return None
        return _find_range_of_product(input_ranges[0], weights.attrs["value"])
    if node.op == "sum":
        count = program.nodes[node.inputs[0]].type.shape[node.attrs["axis"]]
        low, high = input_ranges[0] or (0, 0)
        is_known = input_ranges[0] is not None or not count
        return (count * min(low, 0), count * max(high, 0)) if is_known else None
    rule = RULES.get(node.op)
    if node.op in ("take", "gather"):
        input_ranges = input_ranges[:1]  # The second input has the indices.
    elif node.op == "where":
        input_ranges = input_ranges[1:]
    ranges = [input_range for input_range in input_ranges if input_range is not None]
    return None if rule is None or len(ranges) < len(input_ranges) else rule(*ranges)


def _find_range_of_array(value: Array) -> Range | None:
    if value.dtype.kind not in "bif":
        return None
    if not value.size:
        return (0, 0)
    with np.errstate(invalid="ignore"):
        if value.dtype.kind == "f" and not (np.isfinite(value) & (value == np.rint(value))).all():
            return None
    return (int(value.min()), int(value.max()))


def _find_range_of_product(x: Range, weights: Array) -> Range | None:
    """Return a range of x @ weights and of all partial sums, or None if `weights` has no range."""
    if _find_range_of_array(weights) is None:
        return None
    products = np.stack([weights * float(x[0]), weights * float(x[1])]).astype(np.float64)
    lower_bounds = np.minimum(products.min(axis=0), 0).sum(axis=-2)
    upper_bounds = np.maximum(products.max(axis=0), 0).sum(axis=-2)
    return (int(lower_bounds.min(initial=0)), int(upper_bounds.max(initial=0)))


def _join_ranges(*ranges: Range) -> Range:
    return (min(low for low, _ in ranges), max(high for _, high in ranges))


def _multiply(left: Range, right: Range) -> Range:
    products = [x * y for x in left for y in right]
    return (min(products), max(products))


RULES: Mapping[str, Callable[..., Range]] = {
    **dict.fromkeys(("cast", "select", "concat", "reshape", "where"), _join_ranges),
    **dict.fromkeys(("take", "gather", "max", "min"), _join_ranges),
    "add": lambda x, y: (x[0] + y[0], x[1] + y[1]),
    "sub": lambda x, y: (x[0] - y[1], x[1] - y[0]),
    "mul": _multiply,
    "maximum": lambda x, y: (max(x[0], y[0]), max(x[1], y[1])),
    "minimum": lambda x, y: (min(x[0], y[0]), min(x[1], y[1])),
}
"""Map an operator to a function that computes the result's range from the inputs' ranges."""

NARROW_DTYPE: DType = "int32"
SELECTING_OPERATORS = frozenset({"constant", "where", "max", "min", "select", "concat", "reshape"})
"""Operators that only select numbers. Other operators are not narrowed from float32, which has
-0.0."""
INDEX_OPERATORS = SELECTING_OPERATORS | {"cast", "take", "add", "sub", "mul", "maximum", "minimum"}
"""Operators of index arithmetic, without `gather`, which needs an int64 index."""


def narrow_dtypes(program: Program) -> Program:
    """Return `program` with its index arithmetic narrowed to int32."""
    narrow_nodes = _find_narrow_nodes(program)
    if not any(program.nodes[i].inputs for i in narrow_nodes):
        return program
    narrowed: dict[int, Value] = {}  # Keys are indices of nodes in `program`.
    index = -1

    def rule(builder: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
        nonlocal index
        index += 1
        is_reader = index in narrow_nodes or node.op == "take" or _is_integer_cast(program, index)
        operands = [
            narrowed[j]
            if is_reader and j in narrowed and not _is_condition(node, position)
            else value
            for position, (j, value) in enumerate(zip(node.inputs, inputs, strict=True))
        ]
        if index not in narrow_nodes:
            if node.op == "take" and node.inputs[0] in narrowed:
                operands[0] = inputs[0]  # Readers need the table in the original dtype.
            return copy_retyped(builder, node, operands) if operands != list(inputs) else None
        if node.op == "constant":
            narrowed[index] = builder.constant(node.attrs["value"].astype(NARROW_DTYPE))
            return None  # Other nodes may read it in the original dtype.
        if node.op == "cast":
            narrowed[index] = builder.cast(operands[0], NARROW_DTYPE)
        else:
            narrowed[index] = copy_retyped(builder, node, operands)
        return narrowed[index]

    return rewrite(program, rule, keep_inputs=True)


def _find_narrow_nodes(program: Program) -> set[int]:
    dtype_limits = np.iinfo(NARROW_DTYPE)
    operators = {"int64": INDEX_OPERATORS, "float32": SELECTING_OPERATORS}
    ranges = infer_ranges(program)

    def may_be_narrow(i: int) -> bool:
        node, (low, high) = program.nodes[i], ranges[i] or (0, dtype_limits.max + 1)
        is_in_range = dtype_limits.min <= low and high <= dtype_limits.max
        return is_in_range and node.op in operators.get(node.type.dtype, ())

    narrow_nodes = set(filter(may_be_narrow, range(len(ranges)))) - set(program.outputs.values())
    readers: dict[int, list[int]] = {}
    for i, node in enumerate(program.nodes):
        for j in node.inputs:
            readers.setdefault(j, []).append(i)
    pending = set(narrow_nodes)
    while pending:
        i = pending.pop()
        if i not in narrow_nodes or _can_be_narrow(program, i, narrow_nodes, readers.get(i, [])):
            continue
        narrow_nodes.discard(i)
        pending |= narrow_nodes & {*program.nodes[i].inputs, *readers.get(i, [])}
    return narrow_nodes


def _can_be_narrow(program: Program, i: int, narrowed: set[int], readers: Sequence[int]) -> bool:
    """Return whether node i can be int32 if exactly `narrow_nodes` are int32."""
    node = program.nodes[i]
    if node.op == "constant":
        return True  # Readers that are not narrow read the original constant.
    for position, j in enumerate(node.inputs):
        is_index = node.op == "take" and position == 1
        if node.op == "cast" or is_index or _is_condition(node, position):
            continue  # This input need not be narrowed.
        if j not in narrowed:
            return False
    for reader_index in readers:
        reader = program.nodes[reader_index]
        is_index = reader.op == "take" and reader.inputs[0] != i
        if not (is_index or reader_index in narrowed or _is_integer_cast(program, reader_index)):
            return False
    return True


def _is_condition(node: Node, position: int) -> bool:
    return node.op == "where" and position == 0


def _is_integer_cast(program: Program, i: int) -> bool:
    """Return whether node i is a cast from or to int64, which never results in -0.0."""
    node = program.nodes[i]
    if node.op != "cast":
        return False
    return "int64" in (node.type.dtype, program.nodes[node.inputs[0]].type.dtype)
