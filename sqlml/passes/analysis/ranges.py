"""`ranges`: the integers between which the values of a node lie, whatever the rows are.

Only values that are integers for every row have a range: indices, counts, 0/1 results, and
what is computed from them. Everything else (inputs, measurements, NaN) has none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from sqlml.ir.program import Node, Program
from sqlml.types import Array

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
