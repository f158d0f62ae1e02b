"""What is done to sparse rows (`ir/csr.py`) without storing their zeros; the ways in and out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sqlml.errors import MissingValueError
from sqlml.ir import csr
from sqlml.ir.csr import Csr
from sqlml.ir.operators.op import Op, Types, array, floating, need
from sqlml.ir.program import Attrs
from sqlml.types import Array, TensorType, dtype_of, matrix

MAPS = ("sublinear", "one", "positive")
"""log(x) + 1, 1, and whether x > 0 as 1 or 0, of what is stored."""


def _stored_type(types: Types, attrs: Attrs) -> TensorType:
    need(types[0].sparse, "it takes sparse rows")
    return types[0]


def _scale_type(types: Types, attrs: Attrs) -> TensorType:
    factors = array(attrs, "factors")
    floating(dtype_of(factors))
    need(factors.shape in ((types[0].width,), (1,)), "one factor a column, or one for all")
    return _stored_type(types, attrs)


def _map_type(types: Types, attrs: Attrs) -> TensorType:
    need(attrs["function"] in MAPS, f"no function {attrs['function']!r} of what is stored")
    return _stored_type(types, attrs)


def _normalise_type(types: Types, attrs: Attrs) -> TensorType:
    need(attrs["norm"] in ("l1", "l2"), f"no norm {attrs['norm']!r}")
    return _stored_type(types, attrs)


def _densify_type(types: Types, attrs: Attrs) -> TensorType:
    need(types[0].sparse, "it takes sparse rows")
    return matrix(types[0].dtype, types[0].width)


def _sparsify_type(types: Types, attrs: Attrs) -> TensorType:
    need(types[0].rowwise and len(types[0].shape) == 2, "sparsify takes (n, k) values")
    floating(types[0].dtype)
    need(types[0].dtype != "float16", "sparse rows are float32 or float64")
    return matrix(types[0].dtype, types[0].width, sparse=True)


def _scale(args: Sequence[Any], attrs: Attrs) -> Any:
    (x,) = args
    factors: Array = attrs["factors"]
    by = factors[x.indices] if factors.size != 1 else factors
    return x.with_data((x.data * by).astype(x.dtype, copy=False))


def _map(args: Sequence[Any], attrs: Attrs) -> Any:
    (x,) = args
    if attrs["function"] == "one":
        return x.with_data(np.ones_like(x.data))
    if attrs["function"] == "positive":
        return x.with_data((x.data > 0).astype(x.dtype))
    return x.with_data(np.log(x.data) + x.dtype.type(1))


def _normalise(args: Sequence[Any], attrs: Attrs) -> Any:
    return csr.normalise(args[0], attrs["norm"])


def _sparsify(args: Sequence[Any], attrs: Attrs) -> Any:
    return csr.of(args[0])


def _require_finite(args: Sequence[Any], attrs: Attrs) -> Any:
    (x,) = args
    fine = np.isfinite(x.data)
    if not fine.all():
        raise MissingValueError(
            f"{attrs['feature']!r} makes {x.data[~fine][0]}, which {attrs['step']} does not take; "
            "filter such rows"
        )
    return x


def _densify(args: Sequence[Any], attrs: Attrs) -> Array:
    x: Csr = args[0]
    return x.toarray(attrs["fill"])


OPERATORS: tuple[Op, ...] = (
    Op(
        "scale_stored", "model", "injective", _scale_type, _scale, {"factors": "array"}, sparse=True
    ),
    Op("map_stored", "model", "injective", _map_type, _map, {"function": "str"}, sparse=True),
    Op(
        "normalise_stored",
        "model",
        "complex",
        _normalise_type,
        _normalise,
        {"norm": "str"},
        sparse=True,
    ),
    Op(
        "require_finite_stored",
        "model",
        "injective",
        _stored_type,
        _require_finite,
        {"feature": "str", "step": "str"},
        sparse=True,
    ),
    Op("densify", "model", "injective", _densify_type, _densify, {"fill": "float"}, sparse=True),
    Op("sparsify", "model", "injective", _sparsify_type, _sparsify),
)
