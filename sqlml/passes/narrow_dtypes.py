"""Compute indices and counts in int32 instead of int64 or float32. Exact.

CMLCompiler, section 4.3.1, orders the types float32 > int32/float16 > int16 > int8 > bool and uses
the lowest that has every possible value (`ranges`). It must also pay off, and on CPUs only one step
does (torch 2.13, onnxruntime 1.31, one thread, best of 7; times of float32 or int64 = 1, lower is
better):

* traversal (TT, 8 levels, 100 trees): int64 indices 1, int32 indices 0.52; tables of features in
  int32 or int8, which `gather` needs in int64 again, 0.7;
* path counts (GEMM, 7 to 100 inner nodes): product of int8 1.5 to 2.7, of int16 1.9 to 2.0, of
  int32 1.3 to 4.2. The exit leaf's number (where and maximum) alone: int32 0.6 to 1.7, int16
  0.6 to 2.9; all of GEMM with it in int32 0.7 to 1.0, because it needs no cast to int64;
* one-hot columns: no difference between int64, int32, int16 and int8 codes;
* onnxruntime's MatMulInteger (int8): 3.6 at 7 inner nodes, 0.8 at 31, 0.3 at 100, where GEMM is not
  worth choosing; int32 2.8 to 7.5.

Forests of 100 trees became 1.02 to 1.3 (torch) and 1.04 to 1.4 (onnxruntime) times as fast. So
products stay in float32, which counts up to 2^24 inner nodes exactly. A region of index arithmetic
becomes int32 if nothing at its border must be cast back: its values end as indices of `take`, or in
a cast.

`ranges` finds the least and the greatest integer that a node can have for any rows. Only values
that are always integers have a range: indices, counts, 0/1 results and values computed from them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from sqlml.ir.builder import Builder, Value, copy_retyped, rewrite
from sqlml.ir.program import Node, Program
from sqlml.types import Array

Range = tuple[int, int]
"""(least, greatest) bounds, which need not be attained."""

MAX_BOUND = 1 << 53
"""Largest bound of a range; up to it, float64 represents every integer."""

EXACT: Mapping[str, int] = MappingProxyType(
    {
        "int8": (1 << 7) - 1,
        "int16": (1 << 15) - 1,
        "int32": (1 << 31) - 1,
        "float16": 1 << 11,
        "float32": 1 << 24,
    }
)
"""Dtype -> the magnitude up to which it represents every integer, so that sums are exact."""


def infer_ranges(program: Program) -> list[Range | None]:
    """Return the range of each node of `program`; None if unknown."""
    result: list[Range | None] = []
    for node in program.nodes:
        candidate = _infer_range(program, node, [result[i] for i in node.inputs])
        wide = candidate is None or max(-candidate[0], candidate[1]) > EXACT.get(
            node.type.dtype, MAX_BOUND
        )
        result.append(None if wide else candidate)
    return result


def _infer_range(program: Program, node: Node, reads: Sequence[Range | None]) -> Range | None:
    if node.type.dtype == "bool":
        return (0, 1)
    if node.op == "constant":
        return _range_of_array(node.attrs["value"])
    if node.op in ("matmul", "batch_matmul") and reads[0] is not None:
        weights = program.nodes[node.inputs[1]]
        return (
            _range_of_product(reads[0], weights.attrs["value"])
            if weights.op == "constant"
            else None
        )
    if node.op == "sum":
        count = program.nodes[node.inputs[0]].type.shape[node.attrs["axis"]]
        return _range_of_sum(reads[0], count)
    rule = RULES.get(node.op)
    needed = reads[RANGE_INPUTS.get(node.op, slice(None))]
    known_ranges = [r for r in needed if r is not None]
    return None if rule is None or len(known_ranges) < len(needed) else rule(known_ranges, node)


def _range_of_sum(each: Range | None, count: int) -> Range | None:
    if not count:
        return (0, 0)
    return None if each is None else (count * min(each[0], 0), count * max(each[1], 0))


def _range_of_array(value: Array) -> Range | None:
    if value.dtype.kind not in "bif":
        return None
    if not value.size:
        return (0, 0)
    with np.errstate(invalid="ignore"):
        if value.dtype.kind == "f" and not (np.isfinite(value) & (value == np.rint(value))).all():
            return None
    return (int(value.min()), int(value.max()))


def _range_of_product(x: Range, weights: Array) -> Range | None:
    """Return the range of x @ weights and of all its partial sums."""
    if _range_of_array(weights) is None:
        return None
    ends = np.stack([weights * float(x[0]), weights * float(x[1])]).astype(np.float64)
    least = np.minimum(ends.min(axis=0), 0).sum(axis=-2)
    most = np.maximum(ends.max(axis=0), 0).sum(axis=-2)
    return (int(least.min(initial=0)), int(most.max(initial=0)))


Rule = Callable[[Sequence[Range], Node], Range]


def _hull(reads: Sequence[Range], node: Node) -> Range:
    return (min(low for low, _ in reads), max(high for _, high in reads))


def _add(reads: Sequence[Range], node: Node) -> Range:
    (a, b), (c, d) = reads
    return (a + c, b + d)


def _sub(reads: Sequence[Range], node: Node) -> Range:
    (a, b), (c, d) = reads
    return (a - d, b - c)


def _mul(reads: Sequence[Range], node: Node) -> Range:
    (a, b), (c, d) = reads
    ends = (a * c, a * d, b * c, b * d)
    return (min(ends), max(ends))


def _maximum(reads: Sequence[Range], node: Node) -> Range:
    return (max(low for low, _ in reads), max(high for _, high in reads))


def _minimum(reads: Sequence[Range], node: Node) -> Range:
    return (min(low for low, _ in reads), min(high for _, high in reads))


def _codes(reads: Sequence[Range], node: Node) -> Range:
    missing = int(node.attrs["missing"])
    return (min(-1, missing), max(int(node.attrs["categories"].size) - 1, missing))


RANGE_INPUTS: Mapping[str, slice] = MappingProxyType(
    {
        "where": slice(1, 3),
        "take": slice(0, 1),
        "gather": slice(0, 1),
        "encode": slice(0, 0),
        "one_hot": slice(0, 0),
    }
)
"""Operator -> the inputs that the range of its result depends on, if not on all."""

RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "cast": _hull,
        "select": _hull,
        "concat": _hull,
        "reshape": _hull,
        "where": _hull,
        "take": _hull,
        "gather": _hull,
        "max": _hull,
        "min": _hull,
        "add": _add,
        "sub": _sub,
        "mul": _mul,
        "maximum": _maximum,
        "minimum": _minimum,
        "encode": _codes,
        "one_hot": lambda reads, node: (0, 1),
    }
)


NARROW_DTYPE = "int32"
SELECTING_OPERATORS = frozenset({"constant", "where", "max", "min", "select", "concat", "reshape"})
"""Operators that only select numbers; only these are narrowed from float32, which has -0.0."""
INDEX_OPERATORS = SELECTING_OPERATORS | {"cast", "take", "add", "sub", "mul", "maximum", "minimum"}
"""Operators of index arithmetic; `gather` is not one, because it needs an index of int64."""


def narrow_dtypes(program: Program) -> Program:
    """Return `program` with its index arithmetic in int32."""
    chosen = _find_narrow_nodes(program)
    if not any(program.nodes[i].inputs for i in chosen):
        return program
    narrow: dict[int, Value] = {}  # Keys are numbers of nodes in `program`.
    number = -1

    def rule(b: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
        nonlocal number
        number += 1
        accepts = number in chosen or _accepts_narrow(program, number)
        operands = [
            narrow[j] if accepts and j in narrow and not _is_condition(node, position) else v
            for position, (j, v) in enumerate(zip(node.inputs, inputs, strict=True))
        ]
        if number not in chosen:
            if node.op == "take" and node.inputs[0] in narrow:
                operands[0] = inputs[0]  # Readers need its numbers in the original dtype.
            return copy_retyped(b, node, operands) if operands != list(inputs) else None
        if node.op == "constant":
            narrow[number] = b.constant(node.attrs["value"].astype(NARROW_DTYPE))
            return None  # Other nodes may read it in the original dtype.
        if node.op == "cast":
            x = operands[0]
            narrow[number] = (
                x if x.type.dtype == NARROW_DTYPE else b.op("cast", x, dtype=NARROW_DTYPE)
            )
        else:
            narrow[number] = copy_retyped(b, node, operands)
        return narrow[number]

    return rewrite(program, rule, keep_inputs=True)


def _find_narrow_nodes(program: Program) -> set[int]:
    """Return the nodes that become int32."""
    limit = np.iinfo(NARROW_DTYPE)
    chosen = {
        i
        for i, (node, r) in enumerate(zip(program.nodes, infer_ranges(program), strict=True))
        if r is not None
        and limit.min <= r[0]
        and r[1] <= limit.max
        and node.op
        in {"int64": INDEX_OPERATORS, "float32": SELECTING_OPERATORS}.get(
            node.type.dtype, frozenset()
        )
    } - set(program.outputs.values())
    readers: dict[int, list[int]] = {}
    for i, node in enumerate(program.nodes):
        for j in node.inputs:
            readers.setdefault(j, []).append(i)
    doubtful = set(chosen)
    while doubtful:
        i = doubtful.pop()
        if i not in chosen or _can_stay(program, i, chosen, readers.get(i, [])):
            continue
        chosen.discard(i)
        doubtful |= chosen & {*program.nodes[i].inputs, *readers.get(i, [])}
    return chosen


def _can_stay(program: Program, i: int, chosen: set[int], readers: Sequence[int]) -> bool:
    node = program.nodes[i]
    if node.op == "constant":
        return True  # Readers that are not chosen read the original constant.
    for position, j in enumerate(node.inputs):
        needs_no_narrowing = (
            node.op == "cast"
            or _is_condition(node, position)
            or (node.op == "take" and position == 1)
        )
        if not needs_no_narrowing and j not in chosen:
            return False
    for r in readers:
        reader = program.nodes[r]
        if reader.op == "take" and reader.inputs[0] != i:
            continue
        if reader.op == "cast" and (r in chosen or _is_integer_cast(program, r)):
            continue
        if r not in chosen:
            return False
    return True


def _is_condition(node: Node, position: int) -> bool:
    return node.op == "where" and position == 0


def _accepts_narrow(program: Program, i: int) -> bool:
    """Return whether node i, which is not narrowed, accepts narrowed inputs."""
    return program.nodes[i].op == "take" or _is_integer_cast(program, i)


def _is_integer_cast(program: Program, i: int) -> bool:
    """Return whether node i is a cast from or to int64, which has no -0.0."""
    node = program.nodes[i]
    if node.op != "cast":
        return False
    return "int64" in (node.type.dtype, program.nodes[node.inputs[0]].type.dtype)
