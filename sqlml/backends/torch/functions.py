"""Tensor operators in torch, with the results of the reference interpreter.

Elementary functions are computed in float64 and rounded once, as in the reference interpreter;
rounding to integers is exact in any dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sqlml.ir import reference
from sqlml.ir.operators.distances import compute_distances
from sqlml.ir.operators.piecewise import split_points
from sqlml.ir.operators.torch_module import make_runner
from sqlml.ir.program import Node
from sqlml.types import FLOATS, INTEGERS, Array

TensorFunction = Callable[..., Tensor]
Put = Callable[[Array], Tensor]
"""A function that copies a numpy array to the device."""
NodeBinder = Callable[[Node, Put], TensorFunction]
"""A function that returns the function of a node, with the node's constants on the device."""


def _make_binder(function: Callable[..., Any]) -> NodeBinder:
    return lambda node, put: function


def _make_float64_binder(function: Callable[..., Tensor]) -> NodeBinder:
    def compute(*args: Tensor) -> Tensor:
        return function(*[x.to(torch.float64) for x in args]).to(args[0].dtype)

    return lambda node, put: compute


def _cbrt(x: Tensor) -> Tensor:
    """Return the cube root: a power, refined by a step of Newton's method if that is finite."""
    root = torch.copysign(torch.pow(torch.abs(x), 1 / 3), x)
    improved = root - (root * root * root - x) / (3 * root * root)
    can_improve = (torch.abs(x) > 1e-280) & torch.isfinite(x)
    return torch.where(can_improve, improved, root)


def _ndtr(x: Tensor) -> Tensor:
    doubled_result: Tensor = torch.special.erfc(-x * 0.5**0.5)
    return 0.5 * doubled_result


def _put_columns(node: Node, put: Put, name: str) -> list[Tensor]:
    return [put(column) for column in split_points(node.attrs[name], node.attrs["offsets"])]


def _bind_search_sorted(node: Node, put: Put) -> TensorFunction:
    edges_by_column, counts_equal = _put_columns(node, put, "edges"), node.attrs["side"] == "right"

    def search(x: Tensor) -> Tensor:
        index = torch.empty(x.shape, dtype=torch.int64, device=x.device)
        for j, column_edges in enumerate(edges_by_column):
            index[:, j] = torch.searchsorted(column_edges, x[:, j].contiguous(), right=counts_equal)
        return index

    return search


def _bind_interpolate(node: Node, put: Put) -> TensorFunction:
    points, values = _put_columns(node, put, "points"), _put_columns(node, put, "values")

    def interpolate(x: Tensor) -> Tensor:
        result = torch.empty_like(x)
        for j, column in enumerate(zip(points, values, strict=True)):
            result[:, j] = _interpolate_column(x[:, j].contiguous(), *column)
        return result

    return interpolate


def _interpolate_column(x: Tensor, points: Tensor, values: Tensor) -> Tensor:
    """Interpolate as `np.interp` does: on the line that starts at the last point up to x."""
    last_below = torch.searchsorted(points, x, right=True) - 1
    low = last_below.clamp(0, max(0, points.shape[0] - 2))
    high = (low + 1).clamp(max=points.shape[0] - 1)
    left_point, left_value, width = points[low], values[low], points[high] - points[low]
    slope = (values[high] - left_value) / torch.where(width == 0, torch.ones_like(width), width)
    line = torch.where(x == left_point, left_value, slope * (x - left_point) + left_value)
    line = torch.where(last_below < 0, values[0], line)
    line = torch.where(last_below >= points.shape[0] - 1, values[-1], line)
    return torch.where(torch.isnan(x), x, line)


def _bind_bspline(node: Node, put: Put) -> TensorFunction:
    degree: int = node.attrs["degree"]
    knots = [put(row) for row in node.attrs["knots"]]
    num_functions = node.type.width // max(1, len(knots))

    def bspline(x: Tensor) -> Tensor:
        shape = (x.shape[0], len(knots), num_functions)
        result = torch.zeros(shape, dtype=x.dtype, device=x.device)
        offsets = torch.arange(degree + 1, device=x.device)
        for j, column_knots in enumerate(knots):
            column = x[:, j].contiguous()
            is_missing = torch.isnan(column)
            filled_column = torch.where(is_missing, torch.full_like(column, -np.inf), column)
            inner_knots = column_knots[degree + 1 : num_functions]
            knot_index = degree + torch.searchsorted(inner_knots, filled_column, right=True)
            basis = _evaluate_basis(column_knots, column, knot_index, degree)
            result[:, j].scatter_(1, knot_index[:, None] - degree + offsets, basis)
            result[:, j][is_missing] = np.nan
        return result.reshape(x.shape[0], node.type.width)

    return bspline


def _evaluate_basis(knots: Tensor, x: Tensor, knot_index: Tensor, degree: int) -> Tensor:
    """Return the B-splines that are not 0 at x; `knot_index` is that of the last knot up to x."""
    zero = torch.zeros_like(x)
    basis = [torch.ones_like(x)]
    for j in range(1, degree + 1):
        previous, basis = basis, [zero]
        for n in range(1, j + 1):
            high, low = knots[knot_index + n], knots[knot_index + n - j]
            width = high - low
            is_empty = width == 0
            share = previous[n - 1] / torch.where(is_empty, torch.ones_like(width), width)
            basis[n - 1] = basis[n - 1] + torch.where(is_empty, zero, share * (high - x))
            basis.append(torch.where(is_empty, zero, share * (x - low)))
    return torch.stack(basis, dim=1)


Terms = tuple["slice | Array | None", ...]
"""Columns of a matrix (n, trees * values) to add in order, for each output; None if no columns."""


def bind_accumulate(node: Node, put: Any) -> Callable[[Tensor], Tensor]:
    """Return a function that adds the trees' values to the base in the source library's order.

    torch's sums add in another order, and one call of torch per tree is too slow for a few rows. On
    the CPU, one call of numpy's `add.reduce` over the outer axis of (trees, rows) adds the trees
    one by one. Over an inner axis, `add.reduce` adds pairwise, so a batch of one row uses
    `add.accumulate`. 100 trees took 4 us instead of 241 for 1 row, 205 instead of 437 for 3,000.
    """
    base, targets = node.attrs["base"], node.attrs["target"]
    device_base = put(base)
    get_terms = lru_cache(maxsize=1)(lambda values: _find_terms(targets, values, base.size))
    get_runs = lru_cache(maxsize=1)(lambda values: _find_runs(targets, values))

    def add_by_runs(x: Tensor) -> Tensor:
        # With trees first, the values of a tree for all rows are contiguous.
        values_by_tree = x.permute(1, 2, 0).contiguous()
        sums: Tensor = device_base.reshape(-1, 1).repeat(1, x.shape[0])
        for start, stop in get_runs(x.shape[2]):
            first_output = int(targets[start])
            run_values = values_by_tree[start:stop].flatten(0, 1)
            sums[first_output : first_output + run_values.shape[0]] += run_values
        return sums.transpose(0, 1)

    def add_by_outputs(x: Tensor) -> Tensor:
        num_rows, num_trees, width = x.shape
        by_tree = torch.empty((num_trees, width, num_rows), dtype=x.dtype).copy_(x.permute(1, 2, 0))
        tree_values = by_tree.flatten(0, 1).numpy()
        sums = np.empty((base.size, num_rows), tree_values.dtype)
        for k, terms in enumerate(get_terms(width)):
            if terms is None:
                sums[k] = base[k]
                continue
            selected = tree_values[terms]
            selected[0] += base[k]
            if num_rows == 1:
                sums[k] = np.add.accumulate(selected, axis=0)[-1]
            else:
                np.add.reduce(selected, axis=0, out=sums[k])
        return torch.from_numpy(sums).transpose(0, 1)

    def add_on_host(x: Tensor) -> Tensor:
        has_fewer_runs = len(get_runs(x.shape[2])) < base.size
        with np.errstate(all="ignore"):
            return add_by_runs(x) if has_fewer_runs else add_by_outputs(x)

    return add_on_host if device_base.device.type == "cpu" else add_by_runs


def _find_runs(targets: Array, values_per_tree: int) -> list[tuple[int, int]]:
    """Return ranges of consecutive trees whose outputs are adjacent, so one addition suffices."""
    edges = np.flatnonzero(np.diff(targets) != values_per_tree) + 1
    return list(zip([0, *edges], [*edges, targets.size], strict=True)) if targets.size else []


def _find_terms(targets: Array, values_per_tree: int, num_outputs: int) -> Terms:
    output_of_column = (targets[:, None] + np.arange(values_per_tree)).ravel()
    terms: list[slice | Array | None] = []
    for k in range(num_outputs):
        columns = np.flatnonzero(output_of_column == k)
        steps = np.unique(np.diff(columns))
        if not columns.size:
            terms.append(None)
        elif steps.size > 1:
            terms.append(columns)
        else:  # A slice avoids a copy.
            terms.append(slice(columns[0], columns[-1] + 1, int(steps[0]) if steps.size else 1))
    return tuple(terms)


DTYPES: Mapping[str, torch.dtype] = {
    name: getattr(torch, name) for name in ("bool", *sorted(FLOATS | INTEGERS))
}


def _sigmoid(x: Tensor) -> Tensor:
    if x.dtype == torch.float32:  # This is XGBoost's formula; clamp keeps NaN.
        return 1 / (torch.exp(torch.clamp(-x, max=88.7)) + 1 + 1e-16)
    return 1 / (1 + torch.exp(-x))


def _sign(x: Tensor) -> Tensor:
    return torch.where(torch.isnan(x), x, torch.sign(x)) if x.is_floating_point() else torch.sign(x)


def _bind_constant(node: Node, put: Put) -> TensorFunction:
    value = put(node.attrs["value"])
    return lambda: value


def _bind_cast(node: Node, put: Put) -> TensorFunction:
    dtype = DTYPES[node.type.dtype]
    return lambda x: x.to(dtype)


def _bind_concat(node: Node, put: Put) -> TensorFunction:
    dtype = DTYPES[node.type.dtype]
    return lambda *tensors: torch.cat([tensor.to(dtype) for tensor in tensors], dim=1)


def _bind_select(node: Node, put: Put) -> TensorFunction:
    indices: Array = node.attrs["indices"]
    start, width = int(indices[0]) if indices.size else 0, indices.size
    if np.array_equal(indices, np.arange(start, start + width)):
        return lambda x: x[:, start : start + width]
    column_indices = put(indices)
    return lambda x: torch.index_select(x, 1, column_indices)


def _bind_reshape(node: Node, put: Put) -> TensorFunction:
    shape = node.type.shape[1:]
    return lambda x: x.reshape(x.shape[0], *shape)


def _take(table: Tensor, index: Tensor) -> Tensor:
    # index_select also accepts int32, and is twice as fast as torch.take.
    wide_index = index if index.dtype == torch.int32 else index.to(torch.int64)
    flat_rows = torch.index_select(table, 0, wide_index.reshape(-1))
    return flat_rows.reshape(*index.shape, *table.shape[1:])


def _make_reduction_binder(function: Callable[..., Tensor]) -> NodeBinder:
    def bind(node: Node, put: Put) -> TensorFunction:
        axis = node.attrs["axis"]
        return lambda x: function(x, dim=axis, keepdim=True)

    return bind


def _bind_sum(node: Node, put: Put) -> TensorFunction:
    axis: int = node.attrs["axis"]
    return lambda x: torch.sum(x, dim=axis, keepdim=True, dtype=x.dtype)


def _bind_softmax(node: Node, put: Put) -> TensorFunction:
    dtype = DTYPES[str(node.attrs["sum_dtype"])]
    if not node.type.width:
        return lambda x: x

    def softmax(x: Tensor) -> Tensor:
        exponentials = torch.exp(x - torch.amax(x, dim=1, keepdim=True))
        return exponentials / torch.sum(exponentials, dim=1, keepdim=True, dtype=dtype).to(x.dtype)

    return softmax


def _bind_weighted_median(node: Node, put: Put) -> TensorFunction:
    weights = put(node.attrs["weights"])

    def weighted_median(x: Tensor) -> Tensor:
        sorted_values, order = torch.sort(x, dim=1, stable=True)
        cumulative = torch.cumsum(weights[order], dim=1)
        reaches_half = (cumulative >= 0.5 * cumulative[:, -1:]).to(torch.int8)
        return torch.gather(sorted_values, 1, torch.argmax(reaches_half, dim=1, keepdim=True))

    return weighted_median


def _matmul(a: Tensor, b: Tensor) -> Tensor:
    """Multiply two matrices; use float64 if the GPU would round float32 to TF32."""
    if a.is_cuda and a.dtype == torch.float32 and _rounds_products():
        return torch.matmul(a.to(torch.float64), b.to(torch.float64)).to(torch.float32)
    return torch.matmul(a, b)


def _rounds_products() -> bool:
    # TF32 rounds the factors of products to 10 bits.
    settings = torch.backends.cuda.matmul
    precision = getattr(settings, "fp32_precision", None)  # It exists from torch 2.9 on.
    return bool(settings.allow_tf32) if precision is None else precision not in ("none", "ieee")


def _batch_matmul(a: Tensor, b: Tensor) -> Tensor:
    if a.shape[2] <= 16:  # With rows last, 7 columns were 2.5 times as fast, but 31 were slower.
        return torch.bmm(b.transpose(1, 2), a.permute(1, 2, 0)).permute(2, 0, 1)
    return torch.bmm(a.transpose(0, 1), b).transpose(0, 1)


def _bind_pairwise(node: Node, put: Put) -> TensorFunction:
    attrs = node.attrs
    metric, p, points = attrs["metric"], attrs.get("p", 0.0), put(attrs["points"])
    weights, inverse = (put(attrs[k]) if k in attrs else None for k in ("weights", "inverse"))

    def pairwise(x: Tensor) -> Tensor:
        result: Tensor = compute_distances(torch, x, points, metric, p, weights, inverse)
        return result.to(x.dtype)

    return pairwise


def _bind_check(node: Node, find_rejected: Callable[..., Tensor]) -> TensorFunction:
    """Return a function that returns x, or raises the error of `node` if a row is rejected."""
    node_attrs, raise_error = node.attrs, reference.FUNCTIONS[node.op]

    def check(x: Tensor, *other_inputs: Tensor) -> Tensor:
        if bool(find_rejected(x, *other_inputs).any()):
            raise_error([a.cpu().numpy() for a in (x, *other_inputs)], node_attrs)
        return x

    return check


def _bind_require_finite(node: Node, put: Put) -> TensorFunction:
    find_not_finite = torch.isinf if node.attrs["allow_nan"] else lambda x: ~torch.isfinite(x)
    low, high = (put(node.attrs[k]) if k in node.attrs else None for k in ("low", "high"))
    has_bounds = low is not None or high is not None

    def find_rejected(x: Tensor) -> Tensor:
        is_bad = find_not_finite(x)
        if low is not None:
            is_bad = is_bad | (x < low)
        return is_bad if high is None else is_bad | (x > high)

    check = _bind_check(node, find_rejected)

    def require_finite(x: Tensor) -> Tensor:
        # If the sum is finite, all numbers are. An infinite sum may be an overflow.
        if not has_bounds and x.is_floating_point() and math.isfinite(float(x.sum())):
            return x
        return check(x)

    return require_finite


def _bind_torch_module(node: Node, put: Put) -> TensorFunction:
    return make_runner(node.attrs["archive"].tobytes(), node.attrs, put(np.zeros(1)).device)


FUNCTIONS: Mapping[str, NodeBinder] = {
    **{
        name: _make_binder(getattr(torch, name))
        for name in (
            *("exp", "log", "log1p", "expm1", "sqrt", "tanh", "trunc", "floor", "ceil"),
            *("neg", "abs", "square", "add", "sub", "mul", "maximum", "minimum"),
            *("lt", "le", "gt", "ge", "eq", "ne", "isnan", "where"),
        )
    },
    "rint": _make_binder(torch.round),
    "sigmoid": _make_binder(_sigmoid),
    "sign": _make_binder(_sign),
    "div": _make_binder(torch.true_divide),
    "and": _make_binder(torch.logical_and),
    "or": _make_binder(torch.logical_or),
    "not": _make_binder(torch.logical_not),
    "shift_right": _make_binder(torch.bitwise_right_shift),
    "bit_and": _make_binder(torch.bitwise_and),
    **{
        name: _make_float64_binder(getattr(torch, name))
        for name in (
            *("exp2", "log2", "log10", "sin", "cos", "tan", "arcsin", "arccos", "arctan"),
            *("sinh", "cosh", "arcsinh", "arccosh", "arctanh", "pow"),
        )
    },
    "cbrt": _make_float64_binder(_cbrt),
    "ndtr": _make_float64_binder(_ndtr),
    "ndtri": _make_float64_binder(torch.special.ndtri),
    "constant": _bind_constant,
    "cast": _bind_cast,
    "concat": _bind_concat,
    "select": _bind_select,
    "reshape": _bind_reshape,
    "take": _make_binder(_take),
    "gather": _make_binder(lambda x, index: torch.gather(x, 1, index.to(torch.int64))),
    "sum": _bind_sum,
    "max": _make_reduction_binder(torch.amax),
    "min": _make_reduction_binder(torch.amin),
    "argmax": _make_reduction_binder(torch.argmax),
    "softmax": _bind_softmax,
    "weighted_median": _bind_weighted_median,
    "accumulate": bind_accumulate,
    "matmul": _make_binder(_matmul),
    "batch_matmul": _make_binder(_batch_matmul),
    "pairwise": _bind_pairwise,
    "search_sorted": _bind_search_sorted,
    "interpolate": _bind_interpolate,
    "bspline": _bind_bspline,
    "require": lambda node, put: _bind_check(node, lambda x, condition: ~condition),
    "require_finite": _bind_require_finite,
    "require_known": lambda node, put: _bind_check(node, lambda x: x < 0),
    "torch_module": _bind_torch_module,
}
"""Map an operator to the function that binds a node of this operator."""
