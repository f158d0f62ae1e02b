"""Rows brought to length 1 in one pass, as they lie: `Normalizer`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sqlml.backends.native.jit.specialise import reads, specialise, writes
from sqlml.backends.native.kernel_calls import Call, Rows
from sqlml.ir.program import Node, Program
from sqlml.types import Array

MOST_COLUMNS = 128
"""Wider rows are summed by numpy in another order."""

_NORMS = {("sum", "square"): 0, ("sum", "abs"): 1, ("max", "abs"): 2}
_U = np.uint64


class RowNorms:
    """The kernel for contiguous rows of one width and dtype. Thread-safe."""

    def __init__(self, width: int, norm: int, least: float, dtype: npt.DTypeLike) -> None:
        self._how = (np.array([width, norm]), np.array([least]))
        self._kernel = specialise(
            _normalise,
            (
                reads(dtype, 1, "C"),
                reads(np.int64, 1, "C"),
                reads(np.float64, 1, "C"),
                writes(np.float64, 1),
            ),
        )

    @classmethod
    def of(cls, program: Program, output: str) -> RowNorms | None:
        """How `output` follows from the Program's only input; None if it does not follow this
        pattern."""
        nodes = program.nodes

        def below(node: Node, *ops: str) -> Node | None:
            """The first input of the last of `ops`, which stand one under the other."""
            for op in ops:
                if node.op != op:
                    return None
                node = nodes[node.inputs[0]]
            return node

        top = nodes[program.outputs[output]]
        if top.op != "div" or top.type.dtype != "float64":
            return None
        check, chosen = (nodes[j] for j in top.inputs)
        if chosen.op != "where" or check.op != "require_finite" or check.attrs["allow_nan"]:
            return None
        tiny, one, norm = (nodes[j] for j in chosen.inputs)
        length = (below(norm, "sqrt") or norm) if norm.op == "sqrt" else norm
        part = below(length, length.op)
        source = None if part is None else below(check, check.op)
        if source is None or part is None or below(part, part.op) is not check:
            return None
        source = nodes[source.inputs[0]] if source.op == "cast" else source
        kind = _NORMS.get((length.op, part.op))
        if kind is None or (kind == 0) != (norm.op == "sqrt") or length.attrs["axis"] != 1:
            return None
        if tiny.op != "lt" or nodes[tiny.inputs[0]] is not norm or source.op != "input":
            return None
        least = nodes[tiny.inputs[1]]
        if least.op != "constant" or one.op != "constant" or "low" in check.attrs:
            return None
        if least.attrs["value"].shape != (1,) or one.attrs["value"].tolist() != [1.0]:
            return None
        width = check.type.width
        if "high" in check.attrs or not 0 < width <= MOST_COLUMNS:
            return None
        return cls(width, kind, float(least.attrs["value"][0]), source.type.dtype)

    def fill(self, x: Array, out: Array) -> bool:
        """Write the results of all rows `x` (n * k,); whether a number is one that is refused."""
        failed: bool = self._kernel(x, *self._how, out)
        return failed

    def calls(self, x: Rows, out: Rows) -> tuple[Call, ...]:
        """The call that writes the results of the numbers `x` to `out`."""
        return (Call(self._kernel, (x, *self._how, out)),)


def _normalise(x: Any, how: Any, limits: Any, out: Any) -> Any:
    width, kind, least = _U(how[0]), how[1], limits[0]
    lanes = width - width % _U(8)
    sums = np.empty(8)
    at = _U(0)
    while at < _U(x.size):
        total = 0.0
        if kind == 2:
            for c in range(width):
                size = abs(np.float64(x[at + c]))
                total = size if size > total or size != size else total
        else:
            # In the order of numpy: eight sums of every eighth number.
            for k in range(_U(8)):
                sums[k] = 0.0
            for c in range(_U(0), lanes, _U(8)):
                for k in range(_U(8)):
                    value = np.float64(x[at + c + k])
                    sums[k] += value * value if kind == 0 else abs(value)
            total = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + (
                (sums[4] + sums[5]) + (sums[6] + sums[7])
            )
            for c in range(lanes, width):
                value = np.float64(x[at + c])
                total += value * value if kind == 0 else abs(value)
        if total * 0.0 != 0.0:
            for c in range(width):
                if np.float64(x[at + c]) * 0.0 != 0.0:
                    return True
        length = np.sqrt(total) if kind == 0 else total
        if length < least:
            length = 1.0
        for c in range(width):
            out[at + c] = np.float64(x[at + c]) / length
        at += width
    return False
