"""Scalers and binarizers in one pass over the rows, as they lie: read, check, compute, write.

A row is too short for vector instructions, so the numbers of the columns stand here once for each
row of a block, and a block is one long line of numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sqlml.backends.native.jit.specialise import COUNT, FLAG, reads, specialise, writes
from sqlml.backends.native.kernel_calls import Call, Rows
from sqlml.ir.program import Program
from sqlml.types import Array

LINE = 1024
"""Numbers of a block, or fewer."""

SUB_DIV, MUL_ADD, ABOVE = 0, 1, 2


@dataclass(frozen=True, slots=True)
class ColumnMap:
    """What is done to column j of checked rows with numbers a (k,) and b (k,).

    (x - a) / b, or x * a + b, or 1 where x > a and else 0.
    """

    kind: int
    a: Array
    b: Array
    allow_nan: bool

    @classmethod
    def of(cls, program: Program, output: str) -> ColumnMap | None:
        """How `output` follows from the Program's only input; None if it does not follow this
        pattern."""
        nodes, at = program.nodes, program.outputs[output]
        steps: list[tuple[str, Array]] = []
        while nodes[at].op != "require_finite":
            node = nodes[at]
            if node.op == "cast" and nodes[node.inputs[0]].type.dtype == "bool":
                at = node.inputs[0]
                continue
            if node.op not in ("sub", "div", "mul", "add", "gt") or len(steps) == 2:
                return None
            below, constant = (nodes[j] for j in node.inputs)
            if constant.op != "constant" or not below.type.rowwise:
                return None
            steps.insert(0, (node.op, constant.attrs["value"]))
            at = node.inputs[0]
        check = nodes[at]
        width = check.type.width
        if "low" in check.attrs or "high" in check.attrs or check.type.dtype != "float64":
            return None
        source = nodes[check.inputs[0]]
        source = nodes[source.inputs[0]] if source.op == "cast" else source
        if source.op != "input" or source.type.dtype not in ("float32", "float64"):
            return None
        if any(value.shape not in ((1,), (width,)) for _, value in steps):
            return None
        wide = [np.broadcast_to(value, (width,)).astype(np.float64) for _, value in steps]
        made = _KINDS.get(tuple(op for op, _ in steps))
        if made is None or nodes[program.outputs[output]].type.dtype != "float64":
            return None
        kind, numbers = made(wide, width)
        return cls(kind, *numbers, bool(check.attrs["allow_nan"]))


_Numbers = tuple[int, tuple[Array, Array]]
_Wide = Callable[[list[Array], int], _Numbers]
# What does nothing to any number, -0 and NaN among them: - 0, / 1, * 1, + -0.
_KINDS: dict[tuple[str, ...], _Wide] = {
    ("sub", "div"): lambda v, k: (SUB_DIV, (v[0], v[1])),
    ("sub",): lambda v, k: (SUB_DIV, (v[0], np.ones(k))),
    ("div",): lambda v, k: (SUB_DIV, (np.zeros(k), v[0])),
    ("mul", "add"): lambda v, k: (MUL_ADD, (v[0], v[1])),
    ("mul",): lambda v, k: (MUL_ADD, (v[0], np.full(k, -0.0))),
    ("add",): lambda v, k: (MUL_ADD, (np.ones(k), v[0])),
    ("gt",): lambda v, k: (ABOVE, (v[0], v[0])),
}


class MapKernel:
    """A ColumnMap for contiguous rows of one dtype. Thread-safe."""

    def __init__(self, found: ColumnMap, dtype: npt.DTypeLike) -> None:
        repeats = max(1, LINE // max(1, found.a.size))
        self._line = (np.tile(found.a, repeats), np.tile(found.b, repeats))
        self._how = (found.kind, found.allow_nan)
        line = reads(np.float64, 1, "C")
        self._kernel = specialise(
            _map, (reads(dtype, 1, "C"), line, line, COUNT, FLAG, writes(np.float64, 1))
        )

    def fill(self, x: Array, out: Array) -> bool:
        """Write the results of all rows `x` (n * k,); whether a number is one that is refused."""
        failed: bool = self._kernel(x, *self._line, *self._how, out)
        return failed

    def calls(self, x: Rows, out: Rows) -> tuple[Call, ...]:
        """The call that writes the results of the numbers `x` to `out`."""
        return (Call(self._kernel, (x, *self._line, *self._how, out)),)


def _map(x: Any, a: Any, b: Any, kind: Any, allow_nan: Any, out: Any) -> Any:
    # Unsigned, so that no index is tested for being negative.
    size, end, first = _U(a.size), _U(x.size), _U(0)
    while first < end:
        n = min(size, end - first)
        bad = 0
        for i in range(n):
            bad += 1 if np.float64(x[first + i]) * 0.0 != 0.0 else 0
        if bad > 0:
            for i in range(n):
                value = np.float64(x[first + i])
                if value * 0.0 != 0.0 and not (allow_nan and value != value):
                    return True
        if kind == SUB_DIV:
            for i in range(n):
                out[first + i] = (np.float64(x[first + i]) - a[i]) / b[i]
        elif kind == MUL_ADD:
            for i in range(n):
                out[first + i] = np.float64(x[first + i]) * a[i] + b[i]
        else:
            for i in range(n):
                out[first + i] = 1.0 if np.float64(x[first + i]) > a[i] else 0.0
        first += n
    return False


_U = np.uint64
