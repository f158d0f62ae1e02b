"""Bind operators to kernels of the native backend, if it has a kernel for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from sqlml.backends.category_lookup import make_encoder
from sqlml.backends.native.kernel_calls import RowKernel
from sqlml.backends.native.rows import column_kernels, distance_kernels, piecewise_kernels
from sqlml.backends.native.rows.combinations import make_combination_kernel
from sqlml.backends.native.rows.linear_kernels import make_linear_function
from sqlml.backends.native.rows.matmul_tiles import find_quadratic
from sqlml.backends.native.rows.normal_distribution import (
    make_probability_kernel,
    make_quantile_kernel,
)
from sqlml.backends.native.rows.sparse import make_row_normalizer, make_sparse_linear
from sqlml.backends.native.rows.weighted_median import make_median_kernel
from sqlml.backends.native.text.city_hash import make_number_hash_kernel, make_text_hasher
from sqlml.backends.native.text.count_tokens import (
    make_text_encoder,
    make_text_fill,
    make_token_counter,
)
from sqlml.backends.native.trees.contribution_kernel import make_contribution_kernel
from sqlml.backends.native.trees.native_forest import Forest
from sqlml.ir import reference
from sqlml.ir.csr import ColumnSelector
from sqlml.ir.program import Node, Program
from sqlml.ir.trees import Ensemble
from sqlml.ir.utf8_column import TextColumn
from sqlml.types import Array, TensorType, numpy_dtype

KERNEL_FLOATS = ("float32", "float64")


@dataclass(frozen=True, slots=True)
class BoundOperator:
    """A function that computes a node from `inputs`: the node's inputs, or earlier nodes."""

    inputs: tuple[int, ...]
    function: Callable[..., Array]


Bind = Callable[[Program, int], BoundOperator | None]
"""Binds node i of a Program to a kernel, or returns None if no kernel supports the node."""


@dataclass(frozen=True, slots=True)
class ColumnSource:
    """The source of a value: column j of the value is column columns[j] of the earlier `node`."""

    node: int
    columns: Array


def find_source(program: Program, i: int, dtype: str) -> ColumnSource:
    """Return the source of node i's columns, before select, concat and a cast to `dtype`.

    A kernel that selects columns itself then reads the batch without intermediate values.
    """
    node = program.nodes[i]
    if node.op == "select":
        source = find_source(program, node.inputs[0], dtype)
        return ColumnSource(source.node, source.columns[node.attrs["indices"]])
    if node.op == "cast" and node.type.dtype == dtype:
        source = find_source(program, node.inputs[0], dtype)
        # The source must hold floats: only the kernel may convert and round them.
        if program.nodes[source.node].type.dtype in KERNEL_FLOATS:
            return source
    if node.op == "concat":
        sources = [find_source(program, j, dtype) for j in node.inputs]
        nodes = {source.node for source in sources}
        source_dtype = program.nodes[sources[0].node].type.dtype
        if len(nodes) == 1 and (source_dtype == node.type.dtype or node.type.dtype == dtype):
            columns = np.concatenate([source.columns for source in sources])
            return ColumnSource(sources[0].node, columns)
    return ColumnSource(i, np.arange(node.type.width))


def bind_trees(program: Program, i: int, strategy: str = "traverse") -> BoundOperator | None:
    """Bind trees to the kernel named by `strategy`, or return None for float16 trees."""
    node = program.nodes[i]
    ensemble = Ensemble.of(node.attrs)
    if not {ensemble.threshold.dtype.name, ensemble.base.dtype.name} <= {*KERNEL_FLOATS}:
        return None
    source = find_source(program, node.inputs[0], ensemble.threshold.dtype.name)
    dtype = numpy_dtype(program.nodes[source.node].type.dtype)
    return BoundOperator((source.node,), Forest(ensemble, dtype, source.columns, strategy))


MakeKernel = Callable[[Node, TensorType], Callable[..., Any] | None]
"""Makes the kernel of a node, given the type of the first input, or returns None."""


def _bind_inputs(make_kernel: MakeKernel) -> Bind:
    """Return a function that binds a node to the result of `make_kernel`."""

    def bind(program: Program, i: int) -> BoundOperator | None:
        node = program.nodes[i]
        kernel = make_kernel(node, program.nodes[node.inputs[0]].type)
        return None if kernel is None else BoundOperator(node.inputs, kernel)

    return bind


def _bind_floats(make_kernel: MakeKernel) -> Bind:
    """Return a function that binds nodes to kernels if the first input is float32 or float64."""
    return _bind_inputs(lambda node, x: make_kernel(node, x) if x.dtype in KERNEL_FLOATS else None)


def _pass_attrs(make_kernel: Callable[..., Callable[..., Any] | None], *names: str) -> MakeKernel:
    return lambda node, x: make_kernel(*(node.attrs[name] for name in names))


def _make_column_selector(node: Node, x_type: TensorType) -> Callable[..., Any] | None:
    indices: Array = node.attrs["indices"]
    if x_type.sparse:
        return ColumnSelector(x_type.width, indices)
    start = int(indices[0]) if indices.size else 0
    if not np.array_equal(indices, np.arange(start, start + indices.size)):
        return None
    stop = start + indices.size
    return lambda x: x[:, start:stop]


def _make_cast_function(node: Node, x_type: TensorType) -> Callable[..., Any]:
    dtype = numpy_dtype(node.type.dtype)
    return lambda x: x.astype(dtype, copy=False)


def _make_encode_function(node: Node, x_type: TensorType) -> Callable[..., Any]:
    categories, missing = node.attrs["categories"], node.attrs["missing"]
    if categories.dtype != object:
        return make_encoder(categories, missing)
    encode_texts = cache(lambda: make_text_encoder(categories, missing))
    encode_objects = cache(lambda: make_encoder(categories, missing))
    return lambda x: (encode_texts if isinstance(x, TextColumn) else encode_objects)()(x)


def _make_fill_function(node: Node, x_type: TensorType) -> Callable[..., Any]:
    fill_texts, fill_values = make_text_fill(node.attrs), reference.FUNCTIONS["fill"]
    return lambda x: fill_texts(x) if isinstance(x, TextColumn) else fill_values([x], node.attrs)


def _make_hashed_encoder(node: Node, x_type: TensorType) -> Callable[..., Any]:
    hashes, missing, hash_texts = node.attrs["hashes"], node.attrs["missing"], make_text_hasher()
    encode = make_encoder(hashes.astype(np.float64), missing)
    return lambda x: encode(hash_texts(x) % (1 << 32))


def _make_category_hasher(node: Node, x_type: TensorType) -> Callable[..., Any]:
    return make_text_hasher() if x_type.dtype == "string" else make_number_hash_kernel()


def _make_one_hot_function(node: Node, codes: TensorType) -> Callable[..., Any] | None:
    if node.type.dtype == "float16":
        return None
    dtypes = (numpy_dtype(codes.dtype), numpy_dtype(node.type.dtype))
    return column_kernels.make_one_hot_kernel(node.type.width, *dtypes)


def _make_argmax_function(node: Node, x_type: TensorType) -> Callable[..., Any] | None:
    is_matrix = len(x_type.shape) == 2 and x_type.rowwise and x_type.width
    return column_kernels.make_argmax_kernel(numpy_dtype(x_type.dtype)) if is_matrix else None


def _make_elementwise(make_kernel: Callable[[int, Any], RowKernel]) -> MakeKernel:
    """Return a function that makes a kernel for the width and dtype of a matrix."""

    def make(node: Node, x_type: TensorType) -> RowKernel | None:
        is_matrix = len(x_type.shape) == 2 and x_type.rowwise and x_type.width
        return make_kernel(x_type.width, numpy_dtype(x_type.dtype)) if is_matrix else None

    return make


def _make_finite_check(node: Node, x_type: TensorType) -> Callable[..., Any]:
    attrs, dtype = node.attrs, numpy_dtype(node.type.dtype)
    if "low" in attrs or "high" in attrs:
        width = node.type.width
        low = attrs.get("low", np.full(width, -np.inf, dtype))
        high = attrs.get("high", np.full(width, np.inf, dtype))
        has_rejected = column_kernels.make_range_checker(low, high, bool(attrs["allow_nan"]))
    else:
        has_rejected = column_kernels.make_finite_checker(dtype, bool(attrs["allow_nan"]))
    raise_error = reference.FUNCTIONS["require_finite"]
    return lambda x: raise_error([x], attrs) if has_rejected(x) else x


def _make_linear_kernel(node: Node, x_type: TensorType) -> Callable[..., Any]:
    make_kernel = make_sparse_linear if x_type.sparse else make_linear_function
    return make_kernel(node.attrs["weights"], node.attrs["bias"])


def _bind_sum(program: Program, i: int) -> BoundOperator | None:
    quadratic = find_quadratic(program, i)
    return None if quadratic is None else BoundOperator((quadratic[0],), quadratic[1])


KERNELS: Mapping[str, Bind] = {
    "tree_ensemble": bind_trees,
    "tree_contributions": _bind_floats(
        lambda node, x: make_contribution_kernel(node.attrs, numpy_dtype(x.dtype))
    ),
    "select": _bind_inputs(_make_column_selector),
    "cast": _bind_inputs(_make_cast_function),
    "encode": _bind_inputs(_make_encode_function),
    "encode_hashed": _bind_inputs(_make_hashed_encoder),
    "hash_categories": _bind_inputs(_make_category_hasher),
    "look_up_combinations": _bind_inputs(lambda node, x: make_combination_kernel(node.attrs)),
    "fill": _bind_inputs(_make_fill_function),
    "one_hot": _bind_inputs(_make_one_hot_function),
    "impute": _bind_floats(_pass_attrs(column_kernels.make_impute_kernel, "fill", "missing")),
    "argmax": _bind_floats(_make_argmax_function),
    "require_finite": _bind_floats(_make_finite_check),
    "count_tokens": _bind_inputs(lambda node, x: make_token_counter(node.attrs, hashed=False)),
    "hash_tokens": _bind_inputs(lambda node, x: make_token_counter(node.attrs, hashed=True)),
    "normalise_stored": _bind_floats(
        lambda node, x: make_row_normalizer(node.attrs["norm"], numpy_dtype(x.dtype))
    ),
    "linear": _bind_floats(_make_linear_kernel),
    "pairwise": _bind_floats(lambda node, x: distance_kernels.make_pairwise_function(node.attrs)),
    "nearest": _bind_floats(lambda node, x: distance_kernels.make_nearest_function(node.attrs)),
    "bspline": _bind_floats(_pass_attrs(piecewise_kernels.make_bspline_kernel, "knots", "degree")),
    "sum": _bind_sum,
    "ndtr": _bind_floats(_make_elementwise(make_probability_kernel)),
    "ndtri": _bind_floats(_make_elementwise(make_quantile_kernel)),
    "weighted_median": _bind_floats(
        lambda node, x: make_median_kernel(node.attrs["weights"], numpy_dtype(x.dtype))
    ),
    "search_sorted": _bind_floats(
        _pass_attrs(piecewise_kernels.make_search_kernel, "edges", "offsets", "side")
    ),
    "interpolate": _bind_floats(
        _pass_attrs(piecewise_kernels.make_interpolation_kernel, "points", "values", "offsets")
    ),
}
