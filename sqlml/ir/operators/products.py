"""Products with weights: of matrices, and the linear model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sqlml.ir import csr
from sqlml.ir.csr import Csr
from sqlml.ir.operators.op import (
    Op,
    Types,
    array,
    floating,
    function_of,
    need,
    numeric,
    same_dtype,
)
from sqlml.ir.program import Attrs
from sqlml.types import Array, TensorType, dtype_of, matrix


def _matmul_type(types: Types, attrs: Attrs) -> TensorType:
    a, b = types
    numeric(same_dtype(types))
    need(len(a.shape) == 2 and len(b.shape) == 2 and not b.rowwise, "matmul takes (n,k) @ (k,m)")
    need(a.shape[1] == b.shape[0], f"matmul of {a!r} and {b!r}")
    return TensorType(a.dtype, (a.shape[0], b.shape[1]))


def _batch_matmul_type(types: Types, attrs: Attrs) -> TensorType:
    a, b = types
    numeric(same_dtype(types))
    need(
        len(a.shape) == 3 and len(b.shape) == 3 and not b.rowwise and a.shape[1:] == b.shape[:2],
        f"batch_matmul of {a!r} and {b!r}",
    )
    return TensorType(a.dtype, (a.shape[0], a.shape[1], b.shape[2]))


def _linear_type(types: Types, attrs: Attrs) -> TensorType:
    weights, bias = array(attrs, "weights"), array(attrs, "bias")
    dtype = floating(types[0].dtype)
    need(dtype_of(weights) == dtype and dtype_of(bias) == dtype, "weights have a different dtype")
    need(
        weights.ndim == 2
        and weights.shape[0] == types[0].width
        and weights.shape[1] > 0
        and bias.shape == weights.shape[1:],
        f"weights {weights.shape} and bias {bias.shape} for {types[0]!r}",
    )
    return matrix(dtype, weights.shape[1])


def _linear(args: Sequence[Array], attrs: Attrs) -> Array:
    """Summed column by column, so that a row scores the same in every batch (BLAS does not)."""
    (x,) = args
    if isinstance(x, Csr):
        return csr.linear(x, attrs["weights"], attrs["bias"])
    scores: Array = np.zeros((x.shape[0], attrs["weights"].shape[1]), x.dtype)
    for column, weights in zip(x.T, attrs["weights"], strict=True):
        scores += column[:, None] * weights
    scores += attrs["bias"]
    return scores


OPERATORS: tuple[Op, ...] = (
    Op("matmul", "tensor", "complex", _matmul_type, function_of(np.matmul), arity=(2, 2)),
    Op(
        "batch_matmul",
        "tensor",
        "complex",
        _batch_matmul_type,
        lambda args, attrs: np.einsum("nti,til->ntl", *args),
        arity=(2, 2),
    ),
    Op(
        "linear",
        "model",
        "complex",
        _linear_type,
        _linear,
        {"weights": "array", "bias": "array"},
        sparse=True,
    ),
)
