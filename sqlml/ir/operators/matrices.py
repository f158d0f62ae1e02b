"""Operators that select, concatenate, reshape, multiply and reduce columns, or look up in tables.

Reductions keep the reduced axis with length 1. `couple` turns probabilities of pairs of classes
into probabilities of classes by the second method of Wu, Lin and Weng, "Probability Estimates for
Multi-class Classification by Pairwise Coupling" (2004). All steps are those of libsvm's
`multiclass_probability`, which stops at a tolerance of 0.005 / K that is visible in the results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from sqlml.errors import ProgramError
from sqlml.ir import csr
from sqlml.ir.csr import Csr
from sqlml.ir.operators.elementwise import exp
from sqlml.ir.operators.op import (
    Function,
    Op,
    Types,
    array_attribute,
    ignore_attributes,
    require,
    require_float,
    require_matrix,
    require_numeric,
    require_same_dtype,
)
from sqlml.ir.program import Attrs
from sqlml.types import INTEGERS, ROWS, Array, TensorType, matrix, promote


def _concat_type(types: Types, attrs: Attrs) -> TensorType:
    is_sparse = any(t.sparse for t in types)
    width = sum(require_matrix(t).width for t in types)
    dtype = promote(*[t.dtype for t in types])
    require(not is_sparse or dtype != "string", "sparse rows must be numbers")
    return matrix(dtype, width, is_sparse)


def _select_type(types: Types, attrs: Attrs) -> TensorType:
    x, indices = require_matrix(types[0]), array_attribute(attrs, "indices", "int64", (None,))
    if indices.size and (indices.min() < 0 or indices.max() >= x.width):
        raise ProgramError(f"select reaches outside {x!r}")
    return matrix(x.dtype, indices.size, x.sparse)


def _reshape_type(types: Types, attrs: Attrs) -> TensorType:
    shape = attrs["shape"]
    is_shape = isinstance(shape, tuple) and all(type(size) is int and size >= 0 for size in shape)
    require(is_shape, "shape must be a tuple of integers")
    require(types[0].rowwise, "reshape takes a row-wise value; shape is that of one row")
    same_size = math.prod(shape) == math.prod(types[0].shape[1:])
    require(same_size, f"{types[0]!r} does not reshape to {(ROWS, *shape)}")
    return TensorType(types[0].dtype, (ROWS, *shape))


def _take_type(types: Types, attrs: Attrs) -> TensorType:
    table, index = types
    require(not table.rowwise and len(table.shape) >= 1, "take needs a constant table")
    require(index.dtype in INTEGERS, "take needs integer indices")
    return TensorType(table.dtype, index.shape + table.shape[1:])


def _gather_type(types: Types, attrs: Attrs) -> TensorType:
    x, index = types
    require(require_matrix(index).dtype in INTEGERS, "gather needs integer indices")
    return TensorType(require_matrix(x).dtype, index.shape)


def _concat(args: Sequence[Array], attrs: Attrs) -> Any:
    if any(isinstance(x, Csr) for x in args):
        return csr.concat_columns(args)
    return np.concatenate(args, axis=1)


def _select(args: Sequence[Any], attrs: Attrs) -> Any:
    (x,) = args
    if isinstance(x, Csr):
        return csr.ColumnSelector(x.width, attrs["indices"])(x)
    return x[:, attrs["indices"]]


def _reshape(args: Sequence[Array], attrs: Attrs) -> Array:
    return args[0].reshape(args[0].shape[0], *attrs["shape"])


def _take(args: Sequence[Array], attrs: Attrs) -> Array:
    table, index = args
    _require_in_range("take", index, table.shape[0])
    return table[index]


def _gather(args: Sequence[Array], attrs: Attrs) -> Array:
    x, index = args
    _require_in_range("gather", index, x.shape[1])
    return np.take_along_axis(x, index.astype(np.int64), 1)


def _require_in_range(op: str, index: Array, length: int) -> None:
    if index.size and (index.min() < 0 or index.max() >= length):
        raise ProgramError(f"{op} reaches outside its table of {length}; create the model again")


def _matmul_type(types: Types, attrs: Attrs) -> TensorType:
    x, y = types
    require_numeric(require_same_dtype(types))
    require(len(x.shape) == 2 and len(y.shape) == 2 and not y.rowwise, "matmul takes (n,k) @ (k,m)")
    require(x.shape[1] == y.shape[0], f"matmul: inner sizes differ: {x!r} and {y!r}")
    return TensorType(x.dtype, (x.shape[0], y.shape[1]))


def _batch_matmul_type(types: Types, attrs: Attrs) -> TensorType:
    x, y = types
    require_numeric(require_same_dtype(types))
    is_valid = len(x.shape) == len(y.shape) == 3 and x.shape[1:] == y.shape[:2]
    require(is_valid and not y.rowwise, f"batch_matmul cannot multiply {x!r} and {y!r}")
    return TensorType(x.dtype, (x.shape[0], x.shape[1], y.shape[2]))


def _batch_matmul(args: Sequence[Array], attrs: Attrs) -> Array:
    return np.asarray(np.einsum("nti,til->ntl", *args))


_LINEAR = "weights, bias, mean: array?, explained_variance: array?, variance_ratio: array?"
"""The optional attributes are facts about a decomposition that do not affect the result: the mean
of the training rows, (k,), and the variance of each component and its share of the total, (w,)."""


def _linear_type(types: Types, attrs: Attrs) -> TensorType:
    dtype = require_float(types[0].dtype)
    weights = array_attribute(attrs, "weights", dtype, (types[0].width, None))
    num_outputs = weights.shape[1]
    array_attribute(attrs, "bias", dtype, (num_outputs,))
    require(num_outputs > 0, "the weights have no column")
    sizes = {"mean": types[0].width}
    for name in attrs.keys() - {"weights", "bias"}:
        array_attribute(attrs, name, "float64", (sizes.get(name, num_outputs),))
    return matrix(dtype, num_outputs)


def _linear(args: Sequence[Array], attrs: Attrs) -> Array:
    """Return x @ weights + bias; terms are added by column, so that batches do not affect a row."""
    (x,) = args
    if isinstance(x, Csr):
        return csr.multiply(x, attrs["weights"], attrs["bias"])
    scores: Array = np.zeros((x.shape[0], attrs["weights"].shape[1]), x.dtype)
    for column, weights in zip(x.T, attrs["weights"], strict=True):
        scores += column[:, None] * weights
    scores += attrs["bias"]
    return scores


def _reduce_type(types: Types, attrs: Attrs) -> TensorType:
    axis = attrs["axis"]
    require(isinstance(axis, int) and 0 < axis < len(types[0].shape), "axis must be a column axis")
    require_numeric(types[0].dtype)
    shape = tuple(1 if i == axis else size for i, size in enumerate(types[0].shape))
    return TensorType(types[0].dtype, shape)


def _extreme_type(types: Types, attrs: Attrs) -> TensorType:
    result_type = _reduce_type(types, attrs)
    require(types[0].shape[attrs["axis"]] > 0, f"{types[0]!r} has no values along the axis")
    return result_type


def _argmax_type(types: Types, attrs: Attrs) -> TensorType:
    return TensorType("int64", _extreme_type(types, attrs).shape)


def _softmax_type(types: Types, attrs: Attrs) -> TensorType:
    require_float(types[0].dtype)
    require(len(types[0].shape) == 2, "softmax takes an (n, k) value")
    require_float(attrs["sum_dtype"])
    return types[0]


def _softmax(args: Sequence[Array], attrs: Attrs) -> Array:
    (x,) = args
    if not x.shape[1]:
        return x
    exponentials = exp(x - x.max(axis=1, keepdims=True))
    total = exponentials.sum(axis=1, keepdims=True, dtype=str(attrs["sum_dtype"]))
    return np.asarray(exponentials / total.astype(x.dtype))


def _make_reduction(function: Callable[..., Any]) -> Function:
    return lambda args, attrs: function(args[0], axis=attrs["axis"], keepdims=True)


def _sum(args: Sequence[Array], attrs: Attrs) -> Array:
    return np.asarray(args[0].sum(axis=attrs["axis"], keepdims=True, dtype=args[0].dtype))


def _weighted_median_type(types: Types, attrs: Attrs) -> TensorType:
    x = require_matrix(types[0])
    require_float(x.dtype)
    require(x.width > 0, "weighted_median needs a column")
    array_attribute(attrs, "weights", "float64", (x.width,))
    return matrix(x.dtype, 1)


def _weighted_median(args: Sequence[Array], attrs: Attrs) -> Array:
    """Return the smallest value of each row at which the cumulative weight reaches one half."""
    (x,) = args
    weights: Array = attrs["weights"]
    order = np.argsort(x, axis=1, kind="stable")  # NaN counts as the largest value.
    cumulative = np.cumsum(weights[order], axis=1)
    reaches_half = cumulative >= 0.5 * cumulative[:, -1:]
    columns = np.take_along_axis(order, reaches_half.argmax(axis=1)[:, None], axis=1)
    return np.take_along_axis(x, columns, axis=1)


MAX_CLASSES = 1000


def _couple_type(types: Types, attrs: Attrs) -> TensorType:
    num_classes: int = attrs["classes"]
    require(2 <= num_classes <= MAX_CLASSES, f"couple takes 2 to {MAX_CLASSES} classes")
    x = require_matrix(types[0], None, num_classes * (num_classes - 1) // 2)
    require_float(x.dtype)
    return matrix(x.dtype, num_classes)


def _couple(args: Sequence[Array], attrs: Attrs) -> Array:
    """Return class probabilities (n, classes) from the probability of each pair's first class."""
    (x,) = args
    num_classes: int = attrs["classes"]
    probabilities = np.empty((x.shape[0], num_classes), x.dtype)
    rows_per_block = max(1, (1 << 20) // (num_classes * num_classes))
    for start in range(0, x.shape[0], rows_per_block):
        probabilities[start : start + rows_per_block] = _couple_block(
            x[start : start + rows_per_block], num_classes
        )
    return probabilities


def _couple_block(x: Array, k: int) -> Array:
    """Run libsvm's iteration on a block of rows; return class probabilities (n, k).

    r, p and q (the matrix Q) are named as in Wu, Lin and Weng; qp is Q p, and pqp is p' Q p.
    """
    number = x.dtype.type
    r = np.zeros((x.shape[0], k, k), x.dtype)
    for column, (i, j) in enumerate(combinations(range(k), 2)):
        r[:, i, j] = x[:, column]
        r[:, j, i] = 1.0 - x[:, column]
    q = -np.swapaxes(r, 1, 2) * r
    for t in range(k):
        q[:, t, t] = 0.0
        for j in range(k):
            if j != t:
                q[:, t, t] += r[:, j, t] * r[:, j, t]
    p = np.full((x.shape[0], k), number(1.0) / number(k))
    rows = np.arange(x.shape[0])
    for _ in range(max(100, k)):
        current = p[rows]
        qp = np.zeros_like(current)
        for j in range(k):
            qp += q[rows, :, j] * current[:, j : j + 1]
        pqp = np.zeros(len(rows), x.dtype)
        for t in range(k):
            pqp += current[:, t] * qp[:, t]
        # As in libsvm, NaN ends the iteration.
        error = np.fmax.reduce(np.abs(qp - pqp[:, None]), axis=1)
        is_active = error >= number(0.005) / number(k)
        rows, current, qp, pqp = rows[is_active], current[is_active], qp[is_active], pqp[is_active]
        if not rows.size:
            break
        p[rows] = _update_classes(current, qp, pqp, q[rows], k)
    return p


def _update_classes(p: Array, qp: Array, pqp: Array, q: Array, k: int) -> Array:
    """Update each class once, and return the new `p`; the arguments may be overwritten."""
    for t in range(k):
        step = (-qp[:, t] + pqp) / q[:, t, t]
        p[:, t] += step
        increase = step * (step * q[:, t, t] + 2 * qp[:, t])
        pqp = (pqp + increase) / (1 + step) / (1 + step)
        qp = (qp + step[:, None] * q[:, t]) / (1 + step)[:, None]
        p /= (1 + step)[:, None]
    return p


OPERATORS: tuple[Op, ...] = (
    Op("concat", "injective", _concat_type, _concat, arity=(1, None), sparse=True),
    Op("select", "injective", _select_type, _select, "indices", sparse=True),
    Op("reshape", "injective", _reshape_type, _reshape, "shape: tuple"),
    Op("take", "injective", _take_type, _take, arity=(2, 2)),
    Op("gather", "injective", _gather_type, _gather, arity=(2, 2)),
    Op("matmul", "complex", _matmul_type, ignore_attributes(np.matmul), arity=(2, 2)),
    Op("batch_matmul", "complex", _batch_matmul_type, _batch_matmul, arity=(2, 2)),
    Op("linear", "complex", _linear_type, _linear, _LINEAR, sparse=True),
    Op("sum", "reduction", _reduce_type, _sum, "axis: int"),
    Op("max", "reduction", _extreme_type, _make_reduction(np.max), "axis: int"),
    Op("min", "reduction", _extreme_type, _make_reduction(np.min), "axis: int"),
    Op("argmax", "reduction", _argmax_type, _make_reduction(np.argmax), "axis: int"),
    Op("softmax", "reduction", _softmax_type, _softmax, "sum_dtype: str"),
    Op("weighted_median", "reduction", _weighted_median_type, _weighted_median, "weights"),
    Op("couple", "opaque", _couple_type, _couple, "classes: int"),
)
