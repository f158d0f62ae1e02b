"""Kernels that read columns once: copies, conversions, imputation, checks and scalers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.backends.native.jit.argument_kinds import ArrayKind
from sqlml.backends.native.jit.specialise import FLAG, reads, specialise, to_kinds, writes
from sqlml.backends.native.kernel_calls import Call, RowKernel, Rows
from sqlml.ir.program import Node, Program
from sqlml.types import Array, TensorType


def call_convert(x: Rows, out: Rows) -> Call:
    return Call(make_converter(x.dtype, out.dtype), (x, out))


def make_converter(source: np.dtype[Any], target: np.dtype[Any]) -> Callable[[Array, Array], None]:
    return specialise(_convert, (reads(source, 1, "C"), writes(target, 1)))


def call_take(x: Rows, columns: Array, out: Rows) -> Call:
    """Return the call that copies columns `columns` of `x` to `out`, converted to the dtype."""
    indices = np.ascontiguousarray(columns, np.int64)
    out_kind = writes(out.dtype, 2) if out.is_contiguous else ArrayKind(out.dtype, 2, "A", False)
    argument_kinds = (reads(x.dtype, 2), *to_kinds(indices), out_kind)
    return Call(specialise(_take, argument_kinds), (x, indices, out))


def call_shift(x: Rows, offsets: Array, out: Rows) -> Call:
    """Return the call that writes `x` plus `offsets`, int64 (k,), to `out`."""
    return RowKernel.of(_shift, x.dtype, (offsets,), out.width, out.dtype).make_call(x, out)


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


def make_impute_kernel(fill: Array, missing: float) -> RowKernel:
    """Return a kernel that replaces `missing`, a number or NaN, with `fill` (k,) in x (n, k)."""
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


def make_one_hot_kernel(width: int, code_dtype: np.dtype[Any], dtype: np.dtype[Any]) -> RowKernel:
    """Return a kernel from codes (n, 1) to one-hot columns; invalid codes give zeros."""
    return RowKernel.of(_one_hot, code_dtype, (), width, dtype, is_zeroed=True)


def _one_hot(codes: Any, out: Any) -> None:
    width = out.shape[1]
    for r in range(codes.shape[0]):
        code = codes[r, 0]
        if code >= 0 and code < width:
            out[r, code] = 1


def make_argmax_kernel(dtype: np.dtype[Any]) -> RowKernel:
    """Return a kernel that finds the first maximum or NaN in each row of x (n, k), with k > 0."""
    return RowKernel.of(_argmax, dtype, (), 1, np.dtype(np.int64))


def _argmax(x: Any, out: Any) -> None:
    for r in range(x.shape[0]):
        max_value, index = x[r, 0], 0
        for c in range(x.shape[1]):
            value = x[r, c]
            if value != value:
                index = c
                break
            if value > max_value:
                max_value, index = value, c
        out[r, 0] = index


def call_check(x: Rows, allow_nan: bool) -> Call:
    """Return the call that rejects infinities, and NaN unless `allow_nan`."""
    function = _has_infinity if allow_nan else _has_nan_times_zero
    return Call(specialise(function, (reads(x.dtype, 2),)), (x,))


def make_finite_checker(dtype: np.dtype[Any], allow_nan: bool) -> Callable[[Array], bool]:
    """Return a predicate: x (n, k) contains an infinity, or NaN unless `allow_nan`."""
    has_non_finite = specialise(_has_nan_times_zero, (reads(dtype, 2),))
    has_infinity = specialise(_has_infinity, (reads(dtype, 2),))
    return lambda x: bool(has_non_finite(x)) and (not allow_nan or bool(has_infinity(x)))


def _has_nan_times_zero(x: Any) -> bool:
    # x * 0 is NaN if x is NaN or infinite, otherwise 0. So each row needs only one branch.
    for r in range(x.shape[0]):
        row_has_non_finite = False
        for c in range(x.shape[1]):
            row_has_non_finite |= x[r, c] * 0 != 0
        if row_has_non_finite:
            return True
    return False


def _has_infinity(x: Any) -> bool:
    for r in range(x.shape[0]):
        for c in range(x.shape[1]):
            value = x[r, c]
            if value == np.inf or value == -np.inf:
                return True
    return False


def make_range_checker(low: Array, high: Array, allow_nan: bool) -> Callable[[Array], bool]:
    """Return a predicate: x (n, k) contains a number outside `low` (k,) to `high` (k,).

    Infinities always count as outside, and NaN does unless `allow_nan`.
    """
    largest = np.finfo(low.dtype).max
    limits = (np.maximum(low, -largest), np.minimum(high, largest))
    kernel = specialise(_is_outside, (reads(low.dtype, 2), *to_kinds(*limits), FLAG))
    return lambda x: bool(kernel(x, *limits, allow_nan))


def _is_outside(x: Any, low: Any, high: Any, allow_nan: Any) -> bool:
    for r in range(x.shape[0]):
        for c in range(x.shape[1]):
            value = x[r, c]
            if not (low[c] <= value <= high[c]) and not (allow_nan and value != value):
                return True
    return False


@dataclass(frozen=True, slots=True, eq=False)
class LineKernel:
    """A kernel that checks and maps contiguous rows, as one line of numbers, with the constants."""

    kernel: Callable[..., Any]
    constants: tuple[Any, ...]

    @classmethod
    def of(cls, function: Callable[..., Any], source: TensorType, *constants: Any) -> LineKernel:
        """Compile `function(x, *constants, out)` for rows of type `source`."""
        argument_kinds = (reads(source.dtype, 1, "C"), *to_kinds(*constants), writes(np.float64, 1))
        return cls(specialise(function, argument_kinds), constants)

    def fill(self, x: Array, out: Array) -> bool:
        """Write the results of rows `x` (n * k,) to `out`; return True if a number was rejected."""
        failed: bool = self.kernel(x, *self.constants, out)
        return failed

    def make_call(self, x: Rows, out: Rows) -> Call:
        return Call(self.kernel, (x, *self.constants, out))


def find_line_kernel(program: Program, output: str) -> LineKernel | None:
    """Return a kernel if `output` is a map of `_MAPS` or scales rows to norm 1, otherwise None."""
    return _match_column_map(program, output) or _match_row_norms(program, output)


MAX_NORM_COLUMNS = 128
"""The most columns for `_normalise`, because numpy sums wider rows in another order."""

_NORM_CODES = {("sum", "square"): 0, ("sum", "abs"): 1, ("max", "abs"): 2}
"""Maps a reduction and the operator before it to a code for the L2, L1 or maximum norm."""
_U = np.uint64


def _match_row_norms(program: Program, output: str) -> LineKernel | None:
    """Return a kernel if `output` scales rows to norm 1 as `Normalizer` does, otherwise None."""
    nodes = program.nodes

    def first_input(node: Node) -> Node:
        return nodes[node.inputs[0]]

    division = nodes[program.outputs[output]]
    if division.op != "div" or division.type.dtype != "float64":
        return None
    check, divisor = (nodes[j] for j in division.inputs)
    if divisor.op != "where" or check.op != "require_finite" or check.attrs["allow_nan"]:
        return None
    is_tiny, one, norm = (nodes[j] for j in divisor.inputs)
    reduction = first_input(norm) if norm.op == "sqrt" else norm
    if reduction.op not in ("sum", "max") or reduction.attrs["axis"] != 1:
        return None
    norm_code = _NORM_CODES.get((reduction.op, first_input(reduction).op))
    if norm_code is None or (norm_code == 0) != (norm.op == "sqrt"):
        return None
    if first_input(first_input(reduction)) is not check:
        return None
    source = first_input(check)
    source = first_input(source) if source.op == "cast" else source
    if is_tiny.op != "lt" or first_input(is_tiny) is not norm or source.op != "input":
        return None
    tiny_limit = nodes[is_tiny.inputs[1]]
    if tiny_limit.op != "constant" or one.op != "constant" or {"low", "high"} & check.attrs.keys():
        return None
    if tiny_limit.attrs["value"].shape != (1,) or one.attrs["value"].tolist() != [1.0]:
        return None
    width = check.type.width
    if not 0 < width <= MAX_NORM_COLUMNS:
        return None
    limit_array = tiny_limit.attrs["value"].astype(np.float64)
    return LineKernel.of(_normalise, source.type, np.array([width, norm_code]), limit_array)


def _normalise(x: Any, settings: Any, limits: Any, out: Any) -> Any:
    """Divide rows by their norms unless these are tiny; return True if a number is not finite."""
    width, norm_code, tiny_limit = _U(settings[0]), settings[1], limits[0]
    lanes = width - width % _U(8)
    sums = np.empty(8)
    start = _U(0)
    while start < _U(x.size):
        total = 0.0
        if norm_code == 2:
            for c in range(width):
                magnitude = abs(np.float64(x[start + c]))
                total = magnitude if magnitude > total or magnitude != magnitude else total
        else:
            # Sum in numpy's order: eight partial sums of every eighth number.
            for lane in range(_U(8)):
                sums[lane] = 0.0
            for c in range(_U(0), lanes, _U(8)):
                for lane in range(_U(8)):
                    value = np.float64(x[start + c + lane])
                    sums[lane] += value * value if norm_code == 0 else abs(value)
            first_half = (sums[0] + sums[1]) + (sums[2] + sums[3])
            total = first_half + ((sums[4] + sums[5]) + (sums[6] + sums[7]))
            for c in range(lanes, width):
                value = np.float64(x[start + c])
                total += value * value if norm_code == 0 else abs(value)
        if total * 0.0 != 0.0:
            for c in range(width):
                if np.float64(x[start + c]) * 0.0 != 0.0:
                    return True
        norm = np.sqrt(total) if norm_code == 0 else total
        if norm < tiny_limit:
            norm = 1.0
        for c in range(width):
            out[start + c] = np.float64(x[start + c]) / norm
        start += width
    return False


# Scalers and binarizers map checked rows to (x - a) / b, to x * a + b, or to 1 where x > a and
# otherwise 0. Each column has parameters a and b. A row is too short for vector instructions, so
# the parameters are repeated for each row of a block, which is processed as one line of numbers.

LINE = 1024
"""The most numbers in a block, unless a single row has more."""

SUB_DIV, MUL_ADD, ABOVE = 0, 1, 2

# Subtracting 0, dividing or multiplying by 1, and adding -0 change no number, not even -0 and NaN.
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
    """Return a kernel if `output` applies a map of `_MAPS` to checked rows, otherwise None."""
    nodes, node = program.nodes, program.nodes[program.outputs[output]]
    if node.type.dtype != "float64":
        return None
    steps: list[tuple[str, Array]] = []
    while node.op != "require_finite":
        input_node = nodes[node.inputs[0]] if node.inputs else node
        if node.op != "cast" or input_node.type.dtype != "bool":
            if node.op not in ("sub", "div", "mul", "add", "gt") or len(steps) == 2:
                return None
            constant = nodes[node.inputs[1]]
            if constant.op != "constant" or not input_node.type.rowwise:
                return None
            steps.insert(0, (node.op, constant.attrs["value"]))
        node = input_node
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
    map_code, *parameters = make_parameters(*(value for _, value in steps))
    parameter_rows = (np.broadcast_to(value, (width,)).astype(np.float64) for value in parameters)
    a, b = (np.tile(row, max(1, LINE // width)) for row in parameter_rows)
    return LineKernel.of(_map, source.type, a, b, map_code, bool(node.attrs["allow_nan"]))


def _map(x: Any, a: Any, b: Any, map_code: Any, allow_nan: Any, out: Any) -> Any:
    """Apply the map `map_code` to x in blocks; return True if a number is rejected."""
    # With unsigned indices, numba omits the test for negative indices.
    size, end, start = _U(a.size), _U(x.size), _U(0)
    while start < end:
        count = min(size, end - start)
        non_finite_count = 0
        for i in range(count):
            non_finite_count += 1 if np.float64(x[start + i]) * 0.0 != 0.0 else 0
        if non_finite_count > 0:
            for i in range(count):
                value = np.float64(x[start + i])
                if value * 0.0 != 0.0 and not (allow_nan and value != value):
                    return True
        if map_code == SUB_DIV:
            for i in range(count):
                out[start + i] = (np.float64(x[start + i]) - a[i]) / b[i]
        elif map_code == MUL_ADD:
            for i in range(count):
                out[start + i] = np.float64(x[start + i]) * a[i] + b[i]
        else:
            for i in range(count):
                out[start + i] = 1.0 if np.float64(x[start + i]) > a[i] else 0.0
        start += count
    return False
