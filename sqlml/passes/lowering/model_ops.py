"""Model operators other than trees, written as tensor operators.

The checks (`require_finite`, `require_known`), strings (`fill`, `encode` of strings) and long
lists of categories remain: a backend of tensors runs them on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from sqlml.ir.builder import Builder, Value
from sqlml.ir.program import Attrs, Node, Program
from sqlml.ir.rewrite import rewrite
from sqlml.passes.lowering.linear_leaves import linear_leaves
from sqlml.types import FLOATS, Array, numpy_dtype

MAX_CATEGORIES = 256
"""Longest list of categories that a row is compared with one at a time."""

Lower = Callable[[Builder, Value, Attrs], Value | None]


def lower_model_ops(program: Program) -> Program:
    """Lower linear, one_hot, impute and encode; trees have strategies of their own."""

    def rule(builder: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
        if node.op == "linear_leaves":
            return linear_leaves(builder, inputs[0], inputs[1], node.attrs)
        lower = LOWERINGS.get(node.op)
        return None if lower is None else lower(builder, inputs[0], node.attrs)

    return rewrite(program, rule, keep_inputs=True)


def _linear(b: Builder, x: Value, attrs: Attrs) -> Value | None:
    if x.type.sparse:
        return None  # a kernel of the host runs it
    weights, bias = _array(attrs, "weights"), _array(attrs, "bias")
    return b.op("add", b.op("matmul", x, b.constant(weights)), b.constant(bias))


def _one_hot(b: Builder, codes: Value, attrs: Attrs) -> Value | None:
    width: int = attrs["width"]
    if width > np.iinfo(numpy_dtype(codes.type.dtype)).max:
        codes = b.op("cast", codes, dtype="int64")
    columns = b.constant(np.arange(width, dtype=numpy_dtype(codes.type.dtype)))
    return b.op("cast", b.op("eq", codes, columns), dtype=attrs["dtype"])


def _impute(b: Builder, x: Value, attrs: Attrs) -> Value | None:
    missing: float = attrs["missing"]
    if missing != missing:
        gone = b.op("isnan", x)
    else:
        gone = b.op("eq", x, b.constant(np.array([missing], numpy_dtype(x.type.dtype))))
    return b.op("where", gone, b.constant(_array(attrs, "fill")), x)


def _encode(b: Builder, x: Value, attrs: Attrs) -> Value | None:
    categories = _array(attrs, "categories")
    if x.type.dtype == "string" or not 0 < categories.size <= MAX_CATEGORIES:
        return None
    # float32 holds all codes, and its maximum is fast; of equal categories the last one counts.
    codes = b.constant(np.arange(categories.size, dtype=np.float32))
    none = b.constant(np.array([-1], np.float32))
    same = b.op("eq", x, b.constant(categories))
    code = b.op("cast", b.op("max", b.op("where", same, codes, none), axis=1), dtype="int64")
    if x.type.dtype not in FLOATS:
        return code
    missing = b.constant(np.array([attrs["missing"]], np.int64))
    return b.op("where", b.op("isnan", x), missing, code)


def _array(attrs: Attrs, name: str) -> Array:
    value: Array = attrs[name]
    return value


LOWERINGS: Mapping[str, Lower] = MappingProxyType(
    {"linear": _linear, "one_hot": _one_hot, "impute": _impute, "encode": _encode}
)
