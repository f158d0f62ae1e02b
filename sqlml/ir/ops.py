"""The operators of the IR: one row each, with arity, attributes and the rule for the result type.

The families in `operators/` say what is well-formed and what is computed. Two levels share the
table (architecture.md): *model* operators, which importers emit and the native backend runs, and
*tensor* operators, which torch and onnxruntime run. Passes lower the first to the second. `group`
is the fusion class of paper 002, section 4.2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.config import MAX_CONSTANT_VALUES, MAX_ROW_VALUES
from sqlml.errors import ProgramError
from sqlml.ir.operators import (
    categories,
    columns,
    elementwise,
    forests,
    layout,
    products,
    reductions,
)
from sqlml.ir.operators.op import Op, Types, array, need
from sqlml.ir.program import Attrs
from sqlml.types import DTYPES, TensorType, dtype_of, matrix


def _input_type(types: Types, attrs: Attrs) -> TensorType:
    dtype, width = attrs["dtype"], attrs["width"]
    need(isinstance(width, int) and width >= 0, "input width must be a whole number")
    return matrix(dtype, width)


def _constant_type(types: Types, attrs: Attrs) -> TensorType:
    value = array(attrs, "value")
    return TensorType(dtype_of(value), value.shape)


SOURCES: tuple[Op, ...] = (
    Op(
        "input",
        "both",
        "source",
        (0, 0),
        _input_type,
        {"name": "str", "dtype": "str", "width": "int"},
    ),
    Op("constant", "both", "source", (0, 0), _constant_type, {"value": "array"}),
)

TABLE: tuple[Op, ...] = (
    *SOURCES,
    *elementwise.OPERATORS,
    *layout.OPERATORS,
    *reductions.OPERATORS,
    *products.OPERATORS,
    *categories.OPERATORS,
    *columns.OPERATORS,
    *forests.OPERATORS,
)

OPS: Mapping[str, Op] = MappingProxyType({op.name: op for op in TABLE})


def infer(op: str, types: Types, attrs: Attrs) -> TensorType:
    """The result type of `op`, or ProgramError when inputs or attributes break its rule."""
    row = OPS.get(op)
    if row is None:
        raise ProgramError(f"unknown operator {op!r}")
    fewest, most = row.arity
    if len(types) < fewest or (most is not None and len(types) > most):
        raise ProgramError(f"{op} takes {fewest} to {most} inputs, not {len(types)}")
    for name, kind in row.attrs.items():
        if name not in attrs:
            need(kind.endswith("?"), f"{op} lacks attribute {name}")
        else:
            need(_is_kind(attrs[name], kind.rstrip("?")), f"{op}: attribute {name} is not {kind}")
    for name in attrs:
        need(name in row.attrs, f"{op} has no attribute {name}")
    for key in ("dtype", "sum_dtype"):
        if key in row.attrs:
            need(attrs[key] in DTYPES, f"{op}: unknown dtype {attrs[key]!r}")
    result = row.rule(types, attrs)
    count = math.prod(result.shape[1:] if result.rowwise else result.shape)
    most = MAX_ROW_VALUES if result.rowwise else MAX_CONSTANT_VALUES
    need(count <= most, f"{op} makes {count} numbers: too many")
    return result


def _is_kind(value: object, kind: str) -> bool:
    kinds: dict[str, Any] = {
        "str": str,
        "int": int,
        "float": float,
        "bool": bool,
        "tuple": tuple,
        "array": np.ndarray,
    }
    if kind == "int" and isinstance(value, bool):
        return False
    return isinstance(value, kinds[kind])
