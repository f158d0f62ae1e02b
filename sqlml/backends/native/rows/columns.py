"""Columns copied out of rows, numbers converted and shifted: kernels that stand between others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sqlml.backends.native.jit.argument_kinds import ArrayKind
from sqlml.backends.native.jit.specialise import COUNT, FLAG, kinds_of, reads, specialise, writes
from sqlml.backends.native.kernel_calls import Call, Rows
from sqlml.ir.program import Node, Program
from sqlml.types import Array


def converted(x: Rows, out: Rows) -> Call:
    """The call that writes the numbers of a line as those of another dtype."""
    return Call(specialise(_convert, (reads(x.dtype, 1, "C"), writes(out.dtype, 1))), (x, out))


def taken(x: Rows, columns: Array, out: Rows) -> Call:
    """The call that copies `columns` int64 of rows, maybe as another dtype."""
    columns = np.ascontiguousarray(columns, np.int64)
    to = writes(out.dtype, 2) if out.whole else ArrayKind(out.dtype, 2, "A", False)
    kinds = (reads(x.dtype, 2), *kinds_of(columns), to)
    return Call(specialise(_take, kinds), (x, columns, out))


def shifted(x: Rows, by: Array, out: Rows) -> Call:
    """The call that adds the numbers `by` int64 to the columns of rows."""
    kinds = (reads(x.dtype, 2), *kinds_of(by), writes(out.dtype, 2))
    return Call(specialise(_shift, kinds), (x, by, out))


def _convert(x: Any, out: Any) -> None:
    for i in range(x.size):
        out[i] = x[i]


def _shift(x: Any, by: Any, out: Any) -> None:
    for r in range(x.shape[0]):
        for c in range(by.size):
            out[r, c] = x[r, c] + by[c]


def _take(x: Any, columns: Any, out: Any) -> None:
    for r in range(x.shape[0]):
        for c in range(columns.size):
            out[r, c] = x[r, columns[c]]


# Rows brought to length 1 in one pass, as they lie: `Normalizer`.


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


# Scalers and binarizers in one pass over the rows, as they lie: read, check, compute, write.
#
# A row is too short for vector instructions, so the numbers of the columns stand here once for
# each row of a block, and a block is one long line of numbers.


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
