"""Which operators the native backend runs with code of its own: operator -> how to bind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.backends.category_lookup import encoder
from sqlml.backends.native.rows.distances import nearest, pairwise
from sqlml.backends.native.rows.impute_one_hot import (
    argmax,
    checker,
    imputer,
    one_hot,
    range_checker,
)
from sqlml.backends.native.rows.linear import linear
from sqlml.backends.native.rows.piecewise import interpolator, searcher
from sqlml.backends.native.rows.quadratic import Quadratic, quadratic
from sqlml.backends.native.rows.sparse import normaliser, sparse_linear
from sqlml.backends.native.rows.splines import bspline
from sqlml.backends.native.text.category_codes import text_encoder, text_filler
from sqlml.backends.native.text.count_tokens import counter
from sqlml.backends.native.trees import Forest
from sqlml.ir import reference
from sqlml.ir.csr import Selector
from sqlml.ir.program import Program
from sqlml.ir.trees import Ensemble
from sqlml.ir.utf8_column import Texts
from sqlml.types import Array, numpy_dtype

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


def _select(program: Program, i: int) -> Bound | None:
    indices: Array = program.nodes[i].attrs["indices"]
    if program.nodes[i].type.sparse:
        below = program.nodes[program.nodes[i].inputs[0]].type
        return Bound(program.nodes[i].inputs, Selector(below.width, indices))
    start = int(indices[0]) if indices.size else 0
    if not np.array_equal(indices, np.arange(start, start + indices.size)):
        return None
    stop = start + indices.size
    return Bound(program.nodes[i].inputs, lambda x: x[:, start:stop])


def _cast(program: Program, i: int) -> Bound | None:
    dtype = numpy_dtype(program.nodes[i].type.dtype)
    return Bound(program.nodes[i].inputs, lambda x: x.astype(dtype, copy=False))


def _encode(program: Program, i: int) -> Bound | None:
    attrs = program.nodes[i].attrs
    categories, missing = attrs["categories"], attrs["missing"]
    if categories.dtype != object:
        return Bound(program.nodes[i].inputs, encoder(categories, missing))
    of_texts = cache(lambda: text_encoder(categories, missing))
    of_objects = cache(lambda: encoder(categories, missing))
    return Bound(
        program.nodes[i].inputs,
        lambda x: of_texts()(x) if isinstance(x, Texts) else of_objects()(x),
    )


def _fill(program: Program, i: int) -> Bound | None:
    node = program.nodes[i]
    of_texts = text_filler(node.attrs)

    def fill(x: Any) -> Any:
        return of_texts(x) if isinstance(x, Texts) else reference.FUNCTIONS["fill"]([x], node.attrs)

    return Bound(node.inputs, fill)


def _one_hot(program: Program, i: int) -> Bound | None:
    node = program.nodes[i]
    if node.type.dtype == "float16":
        return None
    codes = program.nodes[node.inputs[0]].type.dtype
    kernel = one_hot(node.type.width, numpy_dtype(codes), numpy_dtype(node.type.dtype))
    return Bound(node.inputs, kernel)


def _impute(program: Program, i: int) -> Bound | None:
    node = program.nodes[i]
    if node.type.dtype not in KERNEL_FLOATS:
        return None
    return Bound(node.inputs, imputer(node.attrs["fill"], node.attrs["missing"]))


def _argmax(program: Program, i: int) -> Bound | None:
    x = program.nodes[program.nodes[i].inputs[0]].type
    if x.dtype not in KERNEL_FLOATS or len(x.shape) != 2 or not x.rowwise or not x.width:
        return None
    return Bound(program.nodes[i].inputs, argmax(numpy_dtype(x.dtype)))


def _require_finite(program: Program, i: int) -> Bound | None:
    node = program.nodes[i]
    if node.type.dtype not in KERNEL_FLOATS:
        return None
    attrs = node.attrs
    dtype = numpy_dtype(node.type.dtype)
    if "low" in attrs or "high" in attrs:
        width = node.type.width
        low = attrs.get("low", np.full(width, -np.inf, dtype))
        high = attrs.get("high", np.full(width, np.inf, dtype))
        fails = range_checker(low, high, bool(attrs["allow_nan"]))
    else:
        fails = checker(dtype, bool(attrs["allow_nan"]))
    explain = reference.FUNCTIONS["require_finite"]
    return Bound(node.inputs, lambda x: explain([x], attrs) if fails(x) else x)


def _linear(program: Program, i: int) -> Bound | None:
    node = program.nodes[i]
    if node.type.dtype not in KERNEL_FLOATS:
        return None
    make = sparse_linear if program.nodes[node.inputs[0]].type.sparse else linear
    return Bound(node.inputs, make(node.attrs["weights"], node.attrs["bias"]))


def _count_tokens(program: Program, i: int) -> Bound | None:
    node = program.nodes[i]
    return Bound(node.inputs, counter(node.attrs, hashed=node.op == "hash_tokens"))


def _normalise_stored(program: Program, i: int) -> Bound | None:
    node = program.nodes[i]
    return Bound(node.inputs, normaliser(node.attrs["norm"], numpy_dtype(node.type.dtype)))


def _pairwise(program: Program, i: int) -> Bound | None:
    node = program.nodes[i]
    kernel = pairwise(node.attrs) if node.type.dtype in KERNEL_FLOATS else None
    return None if kernel is None else Bound(node.inputs, kernel)


def _nearest(program: Program, i: int) -> Bound | None:
    kernel = nearest(program.nodes[i].attrs)
    return None if kernel is None else Bound(program.nodes[i].inputs, kernel)


def _sum(program: Program, i: int) -> Bound | None:
    found = Quadratic.of(program, i)
    return None if found is None else Bound((found.node,), quadratic(found))


def _search_sorted(program: Program, i: int) -> Bound | None:
    node = program.nodes[i]
    edges: Array = node.attrs["edges"]
    if edges.dtype.name not in KERNEL_FLOATS:
        return None
    kernel = searcher(edges, node.attrs["offsets"], str(node.attrs["side"]))
    return Bound(node.inputs, kernel)


def _interpolate(program: Program, i: int) -> Bound | None:
    attrs = program.nodes[i].attrs
    kernel = interpolator(attrs["points"], attrs["values"], attrs["offsets"])
    return Bound(program.nodes[i].inputs, kernel)


def _bspline(program: Program, i: int) -> Bound | None:
    node = program.nodes[i]
    return Bound(node.inputs, bspline(node.attrs["knots"], node.attrs["degree"]))


KERNELS: Mapping[str, Bind] = MappingProxyType(
    {
        "tree_ensemble": tree_ensemble,
        "select": _select,
        "cast": _cast,
        "encode": _encode,
        "fill": _fill,
        "one_hot": _one_hot,
        "impute": _impute,
        "argmax": _argmax,
        "require_finite": _require_finite,
        "count_tokens": _count_tokens,
        "hash_tokens": _count_tokens,
        "normalise_stored": _normalise_stored,
        "linear": _linear,
        "pairwise": _pairwise,
        "nearest": _nearest,
        "bspline": _bspline,
        "sum": _sum,
        "search_sorted": _search_sorted,
        "interpolate": _interpolate,
    }
)
