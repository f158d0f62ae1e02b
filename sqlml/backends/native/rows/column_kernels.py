"""Kernels that pass over columns once: copies, conversions, imputation, checks and scalers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.backends.native.jit.argument_kinds import ArrayKind
from sqlml.backends.native.jit.specialise import FLAG, kinds_of, reads, specialise, writes
from sqlml.backends.native.kernel_calls import Call, RowKernel, Rows
from sqlml.ir.program import Node, Program
from sqlml.types import Array, TensorType


def call_convert(x: Rows, out: Rows) -> Call:
    """Return the call that writes contiguous numbers as those of another dtype."""
    return Call(converter(x.dtype, out.dtype), (x, out))


def converter(source: np.dtype[Any], target: np.dtype[Any]) -> Callable[[Array, Array], None]:
    """Return the kernel that converts numbers (n,) of dtype `source` to those of `target`."""
    return specialise(_convert, (reads(source, 1, "C"), writes(target, 1)))


def call_take(x: Rows, columns: Array, out: Rows) -> Call:
    """Return the call that copies `columns` int64 of rows, possibly as another dtype."""
    columns = np.ascontiguousarray(columns, np.int64)
    target = writes(out.dtype, 2) if out.is_contiguous else ArrayKind(out.dtype, 2, "A", False)
    kinds = (reads(x.dtype, 2), *kinds_of(columns), target)
    return Call(specialise(_take, kinds), (x, columns, out))


def call_shift(x: Rows, offsets: Array, out: Rows) -> Call:
    """Return the call that adds `offsets` int64 (k,) to the columns of rows."""
    return RowKernel.of(_shift, x.dtype, (offsets,), out.width, out.dtype).call(x, out)


def _convert(x: Any, out: Any) -> None:
    for i in range(x.size):
        out[i] = x[i]


def _shift(x: Any, offsets: Any, out: Any) -> None:
    for r in range(x.shape[0]):
        for c in range(offsets.size):
            out[r, c] = x[r, c] + offsets[c]


def _take(x: Any, columns: Any, out: Any) -> None:
    for r in range(x.shape[0]):
        for c in range(columns.size):
            out[r, c] = x[r, columns[c]]


def imputer(fill: Array, missing: float) -> RowKernel:
    """Replace `missing` (NaN: any NaN) with `fill` (k,), in x (n, k) of the dtype of `fill`."""
    constants = (fill, np.array([missing], fill.dtype))
    return RowKernel.of(_impute, fill.dtype, constants, fill.size, fill.dtype)


def _impute(x: Any, fill: Any, missing: Any, out: Any) -> None:
    marker = missing[0]
    if marker != marker:
        for r in range(x.shape[0]):
            for c in range(x.shape[1]):
                value = x[r, c]
                out[r, c] = fill[c] if value != value else value
    else:
        for r in range(x.shape[0]):
            for c in range(x.shape[1]):
                value = x[r, c]
                out[r, c] = fill[c] if value == marker else value


def one_hot(width: int, codes: np.dtype[Any], dtype: np.dtype[Any]) -> RowKernel:
    """Turn codes (n, 1) into (n, width) with 1 in the code's column; others are all 0."""
    return RowKernel.of(_one_hot, codes, (), width, dtype, is_zeroed=True)


def _one_hot(codes: Any, out: Any) -> None:
    width = out.shape[1]
    for r in range(codes.shape[0]):
        code = codes[r, 0]
        if code >= 0 and code < width:
            out[r, code] = 1


def argmax(dtype: np.dtype[Any]) -> RowKernel:
    """Find the first column of the maximum or NaN in x (n, k), k > 0: int64 (n, 1)."""
    return RowKernel.of(_argmax, dtype, (), 1, np.dtype(np.int64))


def _argmax(x: Any, out: Any) -> None:
    for r in range(x.shape[0]):
        best, index = x[r, 0], 0
        for c in range(x.shape[1]):
            value = x[r, c]
            if value != value:
                index = c
                break
            if value > best:
                best, index = value, c
        out[r, 0] = index


def call_check(x: Rows, allow_nan: bool) -> Call:
    """Return the call that stops at a row with an infinity (or NaN, unless `allow_nan`)."""
    function = _has_infinity if allow_nan else _has_nan_times_zero
    return Call(specialise(function, (reads(x.dtype, 2),)), (x,))


def checker(dtype: np.dtype[Any], allow_nan: bool) -> Callable[[Array], bool]:
    """Return a predicate: whether x (n, k) has an infinity (or NaN, unless `allow_nan`)."""
    kernel = specialise(_has_nan_times_zero, (reads(dtype, 2),))
    strict = specialise(_has_infinity, (reads(dtype, 2),))
    return lambda x: bool(kernel(x)) and (not allow_nan or bool(strict(x)))


def _has_nan_times_zero(x: Any) -> bool:
    # x * 0 is NaN for NaN and the infinities and 0 otherwise: one test per row, not per value.
    for r in range(x.shape[0]):
        bad = False
        for c in range(x.shape[1]):
            bad |= x[r, c] * 0 != 0
        if bad:
            return True
    return False


def _has_infinity(x: Any) -> bool:
    for r in range(x.shape[0]):
        for c in range(x.shape[1]):
            value = x[r, c]
            if value == np.inf or value == -np.inf:
                return True
    return False


def range_checker(low: Array, high: Array, allow_nan: bool) -> Callable[[Array], bool]:
    """Return a predicate: whether x (n, k) has values outside low (k,) .. high (k,) or bad NaN."""
    dtype = low.dtype
    largest = np.finfo(dtype).max
    lowest, highest = np.maximum(low, -largest), np.minimum(high, largest)
    kernel = specialise(_is_outside, (reads(dtype, 2), *kinds_of(lowest, highest), FLAG))
    return lambda x: bool(kernel(x, lowest, highest, allow_nan))


def _is_outside(x: Any, low: Any, high: Any, allow_nan: Any) -> bool:
    for r in range(x.shape[0]):
        for c in range(x.shape[1]):
            value = x[r, c]
            if not (low[c] <= value <= high[c]) and not (allow_nan and value != value):
                return True
    return False


# Kernels that read, check, compute and write contiguous rows in one pass.


@dataclass(frozen=True, slots=True, eq=False)
class LineKernel:
    """A kernel over contiguous rows as one line of numbers, with its constants. Thread-safe."""

    kernel: Callable[..., Any]
    constants: tuple[Any, ...]

    @classmethod
    def of(cls, function: Callable[..., Any], source: TensorType, *constants: Any) -> LineKernel:
        """Compile `function(x, *constants, out)` for rows of type `source`."""
        kinds = (reads(source.dtype, 1, "C"), *kinds_of(*constants), writes(np.float64, 1))
        return cls(specialise(function, kinds), constants)

    def fill(self, x: Array, out: Array) -> bool:
        """Write the results of rows `x` (n * k,) to `out`; return True if a number is refused."""
        failed: bool = self.kernel(x, *self.constants, out)
        return failed

    def call(self, x: Rows, out: Rows) -> Call:
        return Call(self.kernel, (x, *self.constants, out))


def find_line_kernel(program: Program, output: str) -> LineKernel | None:
    """Return a kernel that makes `output` of the only input, or None."""
    return _match_column_map(program, output) or _match_row_norms(program, output)


MOST_COLUMNS = 128
"""numpy sums wider rows in another order."""

_NORMS = {("sum", "square"): 0, ("sum", "abs"): 1, ("max", "abs"): 2}
_U = np.uint64


def _match_row_norms(program: Program, output: str) -> LineKernel | None:
    """Match rows that are scaled to length 1 (`Normalizer`)."""
    nodes = program.nodes

    def first(node: Node) -> Node:
        return nodes[node.inputs[0]]

    top = nodes[program.outputs[output]]
    if top.op != "div" or top.type.dtype != "float64":
        return None
    check, divisor = (nodes[j] for j in top.inputs)
    if divisor.op != "where" or check.op != "require_finite" or check.attrs["allow_nan"]:
        return None
    is_tiny, one, norm = (nodes[j] for j in divisor.inputs)
    length = first(norm) if norm.op == "sqrt" else norm
    if length.op not in ("sum", "max") or length.attrs["axis"] != 1:
        return None
    kind = _NORMS.get((length.op, first(length).op))
    if kind is None or (kind == 0) != (norm.op == "sqrt") or first(first(length)) is not check:
        return None
    source = first(check)
    source = first(source) if source.op == "cast" else source
    if is_tiny.op != "lt" or first(is_tiny) is not norm or source.op != "input":
        return None
    least = nodes[is_tiny.inputs[1]]
    if least.op != "constant" or one.op != "constant" or {"low", "high"} & check.attrs.keys():
        return None
    if least.attrs["value"].shape != (1,) or one.attrs["value"].tolist() != [1.0]:
        return None
    width = check.type.width
    if not 0 < width <= MOST_COLUMNS:
        return None
    limits = least.attrs["value"].astype(np.float64)
    return LineKernel.of(_normalise, source.type, np.array([width, kind]), limits)


def _normalise(x: Any, settings: Any, limits: Any, out: Any) -> Any:
    width, kind, least = _U(settings[0]), settings[1], limits[0]
    lanes = width - width % _U(8)
    sums = np.empty(8)
    start = _U(0)
    while start < _U(x.size):
        total = 0.0
        if kind == 2:
            for c in range(width):
                size = abs(np.float64(x[start + c]))
                total = size if size > total or size != size else total
        else:
            # Sum in numpy's order: eight partial sums of every eighth number.
            for lane in range(_U(8)):
                sums[lane] = 0.0
            for c in range(_U(0), lanes, _U(8)):
                for lane in range(_U(8)):
                    value = np.float64(x[start + c + lane])
                    sums[lane] += value * value if kind == 0 else abs(value)
            front = (sums[0] + sums[1]) + (sums[2] + sums[3])
            total = front + ((sums[4] + sums[5]) + (sums[6] + sums[7]))
            for c in range(lanes, width):
                value = np.float64(x[start + c])
                total += value * value if kind == 0 else abs(value)
        if total * 0.0 != 0.0:
            for c in range(width):
                if np.float64(x[start + c]) * 0.0 != 0.0:
                    return True
        length = np.sqrt(total) if kind == 0 else total
        if length < least:
            length = 1.0
        for c in range(width):
            out[start + c] = np.float64(x[start + c]) / length
        start += width
    return False


# Scalers and binarizers: a map of checked rows with parameters a (k,) and b (k,) per column,
# (x - a) / b, or x * a + b, or 1 where x > a and else 0.
#
# A row is too short for vector instructions, so the parameters are repeated for each row of a
# block, which is then processed as one long line of numbers.

LINE = 1024
"""The most numbers of a block."""

SUB_DIV, MUL_ADD, ABOVE = 0, 1, 2

# These identities change no number, not even -0 and NaN: - 0, / 1, * 1, + -0.
_MAPS: dict[tuple[str, ...], Callable[..., tuple[int, Any, Any]]] = {
    ("sub", "div"): lambda a, b: (SUB_DIV, a, b),
    ("sub",): lambda a: (SUB_DIV, a, 1.0),
    ("div",): lambda b: (SUB_DIV, 0.0, b),
    ("mul", "add"): lambda a, b: (MUL_ADD, a, b),
    ("mul",): lambda a: (MUL_ADD, a, -0.0),
    ("add",): lambda b: (MUL_ADD, 1.0, b),
    ("gt",): lambda a: (ABOVE, a, a),
}


def _match_column_map(program: Program, output: str) -> LineKernel | None:
    """Match checked rows with a map of `_MAPS`."""
    nodes, node = program.nodes, program.nodes[program.outputs[output]]
    if node.type.dtype != "float64":
        return None
    steps: list[tuple[str, Array]] = []
    while node.op != "require_finite":
        below = nodes[node.inputs[0]] if node.inputs else node
        if node.op != "cast" or below.type.dtype != "bool":
            if node.op not in ("sub", "div", "mul", "add", "gt") or len(steps) == 2:
                return None
            constant = nodes[node.inputs[1]]
            if constant.op != "constant" or not below.type.rowwise:
                return None
            steps.insert(0, (node.op, constant.attrs["value"]))
        node = below
    width, source = node.type.width, nodes[node.inputs[0]]
    source = nodes[source.inputs[0]] if source.op == "cast" else source
    if {"low", "high"} & node.attrs.keys() or node.type.dtype != "float64":
        return None
    if source.op != "input" or source.type.dtype not in ("float32", "float64"):
        return None
    make_parameters = _MAPS.get(tuple(op for op, _ in steps))
    if make_parameters is None or not width:
        return None
    if any(value.shape not in ((1,), (width,)) for _, value in steps):
        return None
    kind, *parameters = make_parameters(*(value for _, value in steps))
    a, b = (
        np.tile(np.broadcast_to(v, (width,)).astype(np.float64), max(1, LINE // width))
        for v in parameters
    )
    return LineKernel.of(_map, source.type, a, b, kind, bool(node.attrs["allow_nan"]))


def _map(x: Any, a: Any, b: Any, kind: Any, allow_nan: Any, out: Any) -> Any:
    # Unsigned numbers spare numba's test for negative indices.
    size, end, first = _U(a.size), _U(x.size), _U(0)
    while first < end:
        count = min(size, end - first)
        odd = 0
        for i in range(count):
            odd += 1 if np.float64(x[first + i]) * 0.0 != 0.0 else 0
        if odd > 0:
            for i in range(count):
                value = np.float64(x[first + i])
                if value * 0.0 != 0.0 and not (allow_nan and value != value):
                    return True
        if kind == SUB_DIV:
            for i in range(count):
                out[first + i] = (np.float64(x[first + i]) - a[i]) / b[i]
        elif kind == MUL_ADD:
            for i in range(count):
                out[first + i] = np.float64(x[first + i]) * a[i] + b[i]
        else:
            for i in range(count):
                out[first + i] = 1.0 if np.float64(x[first + i]) > a[i] else 0.0
        first += count
    return False
