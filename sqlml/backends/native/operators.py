"""Which operators the native backend runs with code of its own: operator -> how to bind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.backends.category_lookup import make_encoder
from sqlml.backends.native.rows.combinations import combined
from sqlml.backends.native.rows.distances import nearest, pairwise
from sqlml.backends.native.rows.impute_one_hot import (
    argmax,
    checker,
    imputer,
    one_hot,
    range_checker,
)
from sqlml.backends.native.rows.linear import linear
from sqlml.backends.native.rows.matmul_tiles import Quadratic, quadratic
from sqlml.backends.native.rows.piecewise import bspline, interpolator, searcher
from sqlml.backends.native.rows.sparse import normaliser, sparse_linear
from sqlml.backends.native.text.city_hash import number_hasher, text_hasher
from sqlml.backends.native.text.count_tokens import counter, text_encoder, text_filler
from sqlml.backends.native.trees import Forest
from sqlml.backends.native.trees.contributions import contributor
from sqlml.ir import reference
from sqlml.ir.csr import ColumnSelector
from sqlml.ir.program import Node, Program
from sqlml.ir.trees import Ensemble
from sqlml.ir.utf8_column import TextColumn
from sqlml.types import Array, TensorType, numpy_dtype

KERNEL_FLOATS = ("float32", "float64")


@dataclass(frozen=True, slots=True)
class Bound:
    """A function of the arrays of nodes `inputs`, which need not be the node's own inputs."""

    inputs: tuple[int, ...]
    function: Callable[..., Array]


Bind = Callable[[Program, int], Bound | None]
"""Node i of a Program, prepared; None to run the reference's own function."""


@dataclass(frozen=True, slots=True)
class Source:
    """Column j of a value is column `columns[j]` of node `node`, an earlier one."""

    node: int
    columns: Array


def source(program: Program, i: int, dtype: str) -> Source:
    """Where the columns of node i come from, through select, concat and a cast to `dtype`.

    So a kernel that picks its columns itself reads the batch, and nothing in between is made.
    """
    node = program.nodes[i]
    if node.op == "select":
        inner = source(program, node.inputs[0], dtype)
        return Source(inner.node, inner.columns[node.attrs["indices"]])
    if node.op == "cast" and node.type.dtype == dtype:
        inner = source(program, node.inputs[0], dtype)
        # Only one rounding may happen, in the kernel, so what is below must not be a float cast.
        if program.nodes[inner.node].type.dtype in KERNEL_FLOATS:
            return inner
    if node.op == "concat":
        parts = [source(program, j, dtype) for j in node.inputs]
        nodes = {part.node for part in parts}
        below = program.nodes[parts[0].node].type.dtype
        if len(nodes) == 1 and (below == node.type.dtype or node.type.dtype == dtype):
            return Source(parts[0].node, np.concatenate([part.columns for part in parts]))
    return Source(i, np.arange(node.type.width))


def tree_ensemble(program: Program, i: int, strategy: str = "traverse") -> Bound | None:
    """Trees by one of the kernels; None for float16, which the reference runs."""
    node = program.nodes[i]
    e = Ensemble.of(node.attrs)
    if e.threshold.dtype.name not in KERNEL_FLOATS or e.base.dtype.name not in KERNEL_FLOATS:
        return None
    below = source(program, node.inputs[0], e.threshold.dtype.name)
    dtype = numpy_dtype(program.nodes[below.node].type.dtype)
    return Bound((below.node,), Forest(e, dtype, below.columns, strategy))


Make = Callable[[Node, TensorType], Callable[..., Any] | None]
"""From a node and the type of its first input to its kernel; None: the reference's function."""


def _own(make: Make) -> Bind:
    """A kernel of the node's own inputs."""

    def bind(program: Program, i: int) -> Bound | None:
        node = program.nodes[i]
        kernel = make(node, program.nodes[node.inputs[0]].type)
        return None if kernel is None else Bound(node.inputs, kernel)

    return bind


def _floats(make: Make) -> Bind:
    """A kernel of the node's own inputs of float32 or float64; the reference runs all others."""
    return _own(lambda node, x: make(node, x) if x.dtype in KERNEL_FLOATS else None)


def _select(node: Node, x: TensorType) -> Callable[..., Any] | None:
    indices: Array = node.attrs["indices"]
    if x.sparse:
        return ColumnSelector(x.width, indices)
    start = int(indices[0]) if indices.size else 0
    if not np.array_equal(indices, np.arange(start, start + indices.size)):
        return None
    stop = start + indices.size
    return lambda x: x[:, start:stop]


def _cast(node: Node, x: TensorType) -> Callable[..., Any]:
    dtype = numpy_dtype(node.type.dtype)
    return lambda x: x.astype(dtype, copy=False)


def _encode(node: Node, x: TensorType) -> Callable[..., Any]:
    categories, missing = node.attrs["categories"], node.attrs["missing"]
    if categories.dtype != object:
        return make_encoder(categories, missing)
    of_texts = cache(lambda: text_encoder(categories, missing))
    of_objects = cache(lambda: make_encoder(categories, missing))
    return lambda x: of_texts()(x) if isinstance(x, TextColumn) else of_objects()(x)


def _fill(node: Node, x: TensorType) -> Callable[..., Any]:
    of_texts, function = text_filler(node.attrs), reference.FUNCTIONS["fill"]
    return lambda x: of_texts(x) if isinstance(x, TextColumn) else function([x], node.attrs)


def _encode_hashed(node: Node, x: TensorType) -> Callable[..., Any]:
    hashes, missing, of_texts = node.attrs["hashes"], node.attrs["missing"], text_hasher()
    encode = make_encoder(hashes.astype(np.float64), missing)
    return lambda x: encode(of_texts(x) % (1 << 32))


def _hash_categories(node: Node, x: TensorType) -> Callable[..., Any]:
    return text_hasher() if x.dtype == "string" else number_hasher()


def _one_hot(node: Node, codes: TensorType) -> Callable[..., Any] | None:
    if node.type.dtype == "float16":
        return None
    return one_hot(node.type.width, numpy_dtype(codes.dtype), numpy_dtype(node.type.dtype))


def _argmax(node: Node, x: TensorType) -> Callable[..., Any] | None:
    fits = len(x.shape) == 2 and x.rowwise and x.width
    return argmax(numpy_dtype(x.dtype)) if fits else None


def _require_finite(node: Node, x: TensorType) -> Callable[..., Any]:
    attrs, dtype = node.attrs, numpy_dtype(node.type.dtype)
    if "low" in attrs or "high" in attrs:
        width = node.type.width
        low = attrs.get("low", np.full(width, -np.inf, dtype))
        high = attrs.get("high", np.full(width, np.inf, dtype))
        fails = range_checker(low, high, bool(attrs["allow_nan"]))
    else:
        fails = checker(dtype, bool(attrs["allow_nan"]))
    explain = reference.FUNCTIONS["require_finite"]
    return lambda x: explain([x], attrs) if fails(x) else x


def _linear(node: Node, x: TensorType) -> Callable[..., Any]:
    make = sparse_linear if x.sparse else linear
    return make(node.attrs["weights"], node.attrs["bias"])


def _sum(program: Program, i: int) -> Bound | None:
    found = Quadratic.of(program, i)
    return None if found is None else Bound((found.node,), quadratic(found))


KERNELS: Mapping[str, Bind] = MappingProxyType(
    {
        "tree_ensemble": tree_ensemble,
        "tree_contributions": _floats(
            lambda node, x: contributor(node.attrs, numpy_dtype(x.dtype))
        ),
        "select": _own(_select),
        "cast": _own(_cast),
        "encode": _own(_encode),
        "encode_hashed": _own(_encode_hashed),
        "hash_categories": _own(_hash_categories),
        "look_up_combinations": _own(lambda node, x: combined(node.attrs)),
        "fill": _own(_fill),
        "one_hot": _own(_one_hot),
        "impute": _floats(lambda node, x: imputer(node.attrs["fill"], node.attrs["missing"])),
        "argmax": _floats(_argmax),
        "require_finite": _floats(_require_finite),
        "count_tokens": _own(lambda node, x: counter(node.attrs, hashed=False)),
        "hash_tokens": _own(lambda node, x: counter(node.attrs, hashed=True)),
        "normalise_stored": _floats(
            lambda node, x: normaliser(node.attrs["norm"], numpy_dtype(x.dtype))
        ),
        "linear": _floats(_linear),
        "pairwise": _floats(lambda node, x: pairwise(node.attrs)),
        "nearest": _floats(lambda node, x: nearest(node.attrs)),
        "bspline": _floats(lambda node, x: bspline(node.attrs["knots"], node.attrs["degree"])),
        "sum": _sum,
        "search_sorted": _floats(
            lambda node, x: searcher(node.attrs["edges"], node.attrs["offsets"], node.attrs["side"])
        ),
        "interpolate": _floats(
            lambda node, x: interpolator(
                node.attrs["points"], node.attrs["values"], node.attrs["offsets"]
            )
        ),
    }
)
