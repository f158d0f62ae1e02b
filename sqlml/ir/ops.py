"""The operators of the IR: one row each, with arity, attributes, the rule for the result type and
the meaning.

The families in `operators/` say what is well-formed and what is computed. Two levels share the
table: *model* operators, which importers emit and the native backend runs, and *tensor* operators,
which torch and onnxruntime run. Passes lower the first to the second. `group` is the fusion class
of Chen's thesis, section 4.2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from sqlml.errors import ProgramError
from sqlml.ir.operators import (
    categories,
    columns,
    combinations,
    contributions,
    coupling,
    distances,
    elementwise,
    forests,
    hashing,
    items,
    knn_impute,
    layout,
    neighbours,
    opaque,
    piecewise,
    products,
    reductions,
    sampled,
    sparse,
    text,
    torch_module,
)
from sqlml.ir.operators.op import Op, Types, array, need
from sqlml.ir.program import Attrs
from sqlml.limits import MAX_CONSTANT_VALUES, MAX_ROW_VALUES
from sqlml.types import DATETIME, DTYPES, NESTED, TensorType, dtype_of, matrix


def _input_type(types: Types, attrs: Attrs) -> TensorType:
    dtype, width = attrs["dtype"], attrs["width"]
    need(isinstance(width, int) and width >= 0, "input width must be an integer of 0 or more")
    need(dtype not in NESTED or width == 1, "a column of lists or maps must have width 1")
    if "kind" in attrs:
        dates = attrs["kind"] == DATETIME and dtype == "float64" and width == 1
        need(dates, "an input's kind may only be datetime, of one float64 column")
    return matrix(dtype, width)


def _constant_type(types: Types, attrs: Attrs) -> TensorType:
    value = array(attrs, "value")
    return TensorType(dtype_of(value), value.shape)


TABLE: tuple[Op, ...] = (
    Op(
        "input",
        "both",
        "source",
        _input_type,
        None,
        {"name": "str", "dtype": "str", "width": "int", "kind": "str?"},
        arity=(0, 0),
    ),
    Op(
        "constant",
        "both",
        "source",
        _constant_type,
        lambda args, attrs: attrs["value"],
        {"value": "array"},
        arity=(0, 0),
    ),
    *elementwise.OPERATORS,
    *layout.OPERATORS,
    *reductions.OPERATORS,
    *products.OPERATORS,
    *distances.OPERATORS,
    *neighbours.OPERATORS,
    *coupling.OPERATORS,
    *categories.OPERATORS,
    *hashing.OPERATORS,
    *combinations.OPERATORS,
    *columns.OPERATORS,
    *piecewise.OPERATORS,
    *knn_impute.OPERATORS,
    *forests.OPERATORS,
    *contributions.OPERATORS,
    Op(
        "sampled_contributions",
        "model",
        "opaque",
        sampled.sampled_type,
        None,  # it runs a Program: `ir/reference.py` says how
        sampled.ATTRS,
        arity=(1, None),
    ),
    *torch_module.OPERATORS,
    *opaque.OPERATORS,
    *sparse.OPERATORS,
    *text.OPERATORS,
    *items.OPERATORS,
)
"""All operators; a new family's file is named here."""

NEVER_STORED = frozenset({"tree_contributions", "sampled_contributions"})
"""Operators of explanations, which are made when a query asks for them: no model has them."""

OPS: Mapping[str, Op] = MappingProxyType({op.name: op for op in TABLE})


def infer(op: str, types: Types, attrs: Attrs) -> TensorType:
    """The result type of `op`, or ProgramError when inputs or attributes break its rule."""
    row = OPS.get(op)
    if row is None:
        raise ProgramError(f"unknown operator {op!r}")
    fewest, most = row.arity
    if len(types) < fewest or (most is not None and len(types) > most):
        raise ProgramError(f"{op} takes {fewest} to {most} inputs, not {len(types)}")
    _check_attrs(row, attrs)
    if not row.sparse and any(t.sparse for t in types):
        raise ProgramError(f"{op} takes no sparse rows; densify them before it")
    if not row.nested and any(t.dtype in NESTED for t in types):
        raise ProgramError(f"{op} takes no lists or maps")
    result = row.rule(types, attrs)
    # An axis of no length counts as one: numpy limits the others all the same.
    count = math.prod(max(d, 1) for d in result.shape[1 if result.rowwise else 0 :])
    stored = result.rowwise and not result.sparse
    most = MAX_ROW_VALUES if stored else MAX_CONSTANT_VALUES
    if count > most:
        raise ProgramError(f"{op} makes {count} numbers: too many, the limit is {most}")
    return result


def _check_attrs(row: Op, attrs: Attrs) -> None:
    """Raise ProgramError unless the attributes are there, of their types, and no others."""
    found = 0
    for name, kind in row.attrs.items():
        if name not in attrs:
            need(kind.endswith("?"), f"{row.name} lacks attribute {name}")
            continue
        found += 1
        value = attrs[name]
        wanted = _KINDS[kind]
        if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
            raise ProgramError(f"{row.name}: attribute {name} is not {kind}")
    if found != len(attrs):
        other = next(name for name in attrs if name not in row.attrs)
        raise ProgramError(f"{row.name} has no attribute {other}")
    for key in ("dtype", "sum_dtype"):
        if key in row.attrs and attrs[key] not in DTYPES:
            raise ProgramError(f"{row.name}: unknown dtype {attrs[key]!r}")
        if key in row.attrs and attrs[key] in NESTED and row.name != "input":
            raise ProgramError(f"{row.name} makes no lists or maps")


_KINDS: Mapping[str, type] = MappingProxyType(
    {
        name + optional: kind
        for name, kind in {
            "str": str,
            "int": int,
            "float": float,
            "bool": bool,
            "tuple": tuple,
            "array": np.ndarray,
        }.items()
        for optional in ("", "?")
    }
)
