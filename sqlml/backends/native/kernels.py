"""Which operators the native backend runs with code of its own: operator -> how to bind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from sqlml.backends.encoding import encoder
from sqlml.backends.native.columns import argmax, checker, imputer, one_hot
from sqlml.backends.native.forest import forest
from sqlml.backends.native.linear import linear
from sqlml.ir import reference
from sqlml.ir.program import Program
from sqlml.ir.trees import Ensemble
from sqlml.types import Array, numpy_dtype

KERNEL_FLOATS = ("float32", "float64")


@dataclass(frozen=True, slots=True)
class Bound:
    """A function of the arrays of nodes `inputs`, which need not be the node's own inputs."""

    inputs: tuple[int, ...]
    function: Callable[..., Array]


Bind = Callable[[Program, int], Bound | None]
"""Node i of a Program made ready, or None where the reference's own function shall run."""


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


def _tree_ensemble(program: Program, i: int) -> Bound | None:
    node = program.nodes[i]
    e = Ensemble.of(node.attrs)
    if e.threshold.dtype.name not in KERNEL_FLOATS or e.base.dtype.name not in KERNEL_FLOATS:
        return None
    below = source(program, node.inputs[0], e.threshold.dtype.name)
    dtype = numpy_dtype(program.nodes[below.node].type.dtype)
    return Bound((below.node,), forest(e, dtype, below.columns))


def _select(program: Program, i: int) -> Bound | None:
    indices: Array = program.nodes[i].attrs["indices"]
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
    encode = encoder(attrs["categories"], attrs["missing"])
    return Bound(program.nodes[i].inputs, encode)


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
    fails = checker(numpy_dtype(node.type.dtype), bool(attrs["allow_nan"]))
    explain = reference.FUNCTIONS["require_finite"]
    return Bound(node.inputs, lambda x: explain([x], attrs) if fails(x) else x)


def _linear(program: Program, i: int) -> Bound | None:
    node = program.nodes[i]
    if node.type.dtype not in KERNEL_FLOATS:
        return None
    return Bound(node.inputs, linear(node.attrs["weights"], node.attrs["bias"]))


KERNELS: Mapping[str, Bind] = MappingProxyType(
    {
        "tree_ensemble": _tree_ensemble,
        "select": _select,
        "cast": _cast,
        "encode": _encode,
        "one_hot": _one_hot,
        "impute": _impute,
        "argmax": _argmax,
        "require_finite": _require_finite,
        "linear": _linear,
    }
)
