"""Indices and counts computed in int32 where they were int64 or float32. Exact.

CMLCompiler, section 4.3.1, orders the types float32 > int32/float16 > int16 > int8 > bool and takes
the lowest that holds every possible value (`ranges`). Lossless is one condition; the other is
that it pays, and on CPUs that left one step of the ladder (torch 2.13, onnxruntime 1.31, one
thread, best of 7; times of float32 or int64 = 1, lower is better):

* traversal (TT, 8 levels, 100 trees): int64 indices 1, int32 indices 0.52; tables of features in
  int32 or int8, which `gather` needs in int64 again, 0.7;
* path counts (GEMM, 7 to 100 inner nodes): product of int8 1.5 to 2.7, of int16 1.9 to 2.0, of
  int32 1.3 to 4.2. The exit leaf's number (where and maximum) alone: int32 0.6 to 1.7, int16
  0.6 to 2.9; all of GEMM with it in int32 0.7 to 1.0, since the cast to int64 goes;
* one-hot columns: no difference between int64, int32, int16 and int8 codes;
* onnxruntime's MatMulInteger (int8): 3.6 at 7 inner nodes, 0.8 at 31, 0.3 at 100, where GEMM is not
  worth choosing; int32 2.8 to 7.5.

Whole forests of 100 trees became 1.02 to 1.3 (torch) and 1.04 to 1.4 (onnxruntime) times as fast.
So products stay in float32, where at most 2^24 inner nodes are counted exactly, and a region of
index arithmetic becomes int32 if nothing at its border has to be cast back: its values end as
indices of `take`, or in a cast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from sqlml.ir.builder import Builder, Value, copy, rewrite
from sqlml.ir.program import Node, Program
from sqlml.types import Array

# `ranges`: the integers between which the values of a node lie, whatever the rows are.
#
# Only values that are integers for every row have a range: indices, counts, 0/1 results, and
# what is computed from them. Everything else (inputs, measurements, NaN) has none.


Range = tuple[int, int]
"""(least, greatest), both reached or not."""

MOST = 1 << 53
"""Ranges beyond it are given up: so far, float64 holds every integer."""

EXACT: Mapping[str, int] = MappingProxyType(
    {
        "int8": (1 << 7) - 1,
        "int16": (1 << 15) - 1,
        "int32": (1 << 31) - 1,
        "float16": 1 << 11,
        "float32": 1 << 24,
    }
)
"""Up to here a dtype has every integer: nothing wraps, and every sum on the way is exact."""


def ranges(program: Program) -> list[Range | None]:
    """The range of each node of `program`; None if unknown."""
    found: list[Range | None] = []
    for node in program.nodes:
        made = _range(program, node, [found[i] for i in node.inputs])
        wide = made is None or max(-made[0], made[1]) > EXACT.get(node.type.dtype, MOST)
        found.append(None if wide else made)
    return found


def _range(program: Program, node: Node, reads: Sequence[Range | None]) -> Range | None:
    if node.type.dtype == "bool":
        return (0, 1)
    if node.op == "constant":
        return _of_array(node.attrs["value"])
    if node.op in ("matmul", "batch_matmul") and reads[0] is not None:
        weights = program.nodes[node.inputs[1]]
        return _product(reads[0], weights.attrs["value"]) if weights.op == "constant" else None
    if node.op == "sum":
        count = program.nodes[node.inputs[0]].type.shape[node.attrs["axis"]]
        return _total(reads[0], count)
    rule = RULES.get(node.op)
    needed = reads[PARTS.get(node.op, slice(None))]
    known = [r for r in needed if r is not None]
    return None if rule is None or len(known) < len(needed) else rule(known, node)


def _total(each: Range | None, count: int) -> Range | None:
    if not count:
        return (0, 0)
    return None if each is None else (count * min(each[0], 0), count * max(each[1], 0))


def _of_array(value: Array) -> Range | None:
    if value.dtype.kind not in "bif":
        return None
    if not value.size:
        return (0, 0)
    with np.errstate(invalid="ignore"):
        if value.dtype.kind == "f" and not (np.isfinite(value) & (value == np.rint(value))).all():
            return None
    return (int(value.min()), int(value.max()))


def _product(x: Range, weights: Array) -> Range | None:
    """What the columns of constant weights make of numbers in `x`; every partial sum, too."""
    if _of_array(weights) is None:
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


PARTS: Mapping[str, slice] = MappingProxyType(
    {
        "where": slice(1, 3),
        "take": slice(0, 1),
        "gather": slice(0, 1),
        "encode": slice(0, 0),
        "one_hot": slice(0, 0),
    }
)
"""Which inputs the range of a result depends on, where not on all."""

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


NARROW = "int32"
MOVES = frozenset({"constant", "where", "max", "min", "select", "concat", "reshape"})
"""Operators that only choose among numbers; no others are narrowed from float32 (-0.0 is not an
int)."""
INDEX = MOVES | {"cast", "take", "add", "sub", "mul", "maximum", "minimum"}
"""Operators of index arithmetic; a `gather` wants its index in int64."""


def narrow_dtypes(program: Program) -> Program:
    """Return `program` with its index arithmetic in int32."""
    chosen = _regions(program)
    if not any(program.nodes[i].inputs for i in chosen):
        return program
    narrow: dict[int, Value] = {}  # by number of the node in `program`
    number = -1

    def rule(b: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
        nonlocal number
        number += 1
        accepts = number in chosen or _accepts(program, number)
        given = [
            narrow[j] if accepts and j in narrow and not _condition(node, place) else v
            for place, (j, v) in enumerate(zip(node.inputs, inputs, strict=True))
        ]
        if number not in chosen:
            if node.op == "take" and node.inputs[0] in narrow:
                given[0] = inputs[0]  # its numbers are asked for as they were
            return copy(b, node, given) if given != list(inputs) else None
        if node.op == "constant":
            narrow[number] = b.constant(node.attrs["value"].astype(NARROW))
            return None  # others may read it as it was
        if node.op == "cast":
            x = given[0]
            narrow[number] = x if x.type.dtype == NARROW else b.op("cast", x, dtype=NARROW)
        else:
            narrow[number] = copy(b, node, given)
        return narrow[number]

    return rewrite(program, rule, keep_inputs=True)


def _regions(program: Program) -> set[int]:
    """The nodes that become int32."""
    limit = np.iinfo(NARROW)
    chosen = {
        i
        for i, (node, r) in enumerate(zip(program.nodes, ranges(program), strict=True))
        if r is not None
        and limit.min <= r[0]
        and r[1] <= limit.max
        and node.op in {"int64": INDEX, "float32": MOVES}.get(node.type.dtype, frozenset())
    } - set(program.outputs.values())
    readers: dict[int, list[int]] = {}
    for i, node in enumerate(program.nodes):
        for j in node.inputs:
            readers.setdefault(j, []).append(i)
    doubtful = set(chosen)
    while doubtful:
        i = doubtful.pop()
        if i not in chosen or _stays(program, i, chosen, readers.get(i, [])):
            continue
        chosen.discard(i)
        doubtful |= chosen & {*program.nodes[i].inputs, *readers.get(i, [])}
    return chosen


def _stays(program: Program, i: int, chosen: set[int], readers: Sequence[int]) -> bool:
    node = program.nodes[i]
    if node.op == "constant":
        return True  # readers that are not chosen read the constant as it was
    for place, j in enumerate(node.inputs):
        free = node.op == "cast" or _condition(node, place) or (node.op == "take" and place == 1)
        if not free and j not in chosen:
            return False
    for r in readers:
        reader = program.nodes[r]
        if reader.op == "take" and reader.inputs[0] != i:
            continue
        if reader.op == "cast" and (r in chosen or _to_integer(program, r)):
            continue
        if r not in chosen:
            return False
    return True


def _condition(node: Node, place: int) -> bool:
    return node.op == "where" and place == 0


def _accepts(program: Program, i: int) -> bool:
    """Whether node i, itself not narrowed, takes numbers in int32 for those that it read."""
    return program.nodes[i].op == "take" or _to_integer(program, i)


def _to_integer(program: Program, i: int) -> bool:
    """A cast of integers: of int64 to anything, of float32 to int64 (which has no -0.0)."""
    node = program.nodes[i]
    if node.op != "cast":
        return False
    return "int64" in (node.type.dtype, program.nodes[node.inputs[0]].type.dtype)
