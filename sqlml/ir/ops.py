"""The operators of the IR: one row each, with arity, attributes and the rule for the result type.

What an operator computes is defined by `reference.py`; this table says what is well-formed.
Two levels share it (architecture.md): *model* operators, which importers emit and the native
backend runs, and *tensor* operators, which torch and onnxruntime run. Passes lower the first to
the second. `group` is the fusion class of paper 002, section 4.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from sqlml.config import MAX_CONSTANT_VALUES, MAX_ROW_VALUES
from sqlml.errors import ProgramError
from sqlml.ir.program import Attrs
from sqlml.ir.trees import Ensemble
from sqlml.types import (
    DTYPES,
    FLOATS,
    INTEGERS,
    ROWS,
    DType,
    TensorType,
    dtype_of,
    matrix,
    promote,
)

Types = Sequence[TensorType]
Rule = Callable[[Types, Attrs], TensorType]
Level = Literal["model", "tensor", "both"]
Group = Literal["source", "injective", "reduction", "complex", "opaque"]


@dataclass(frozen=True, slots=True)
class Op:
    """One row of the table.

    `attrs` names each attribute and its Python type; a type ending in `?` may be left out.
    `arity` is (fewest, most) inputs, most None for any number.
    """

    name: str
    level: Level
    group: Group
    arity: tuple[int, int | None]
    rule: Rule
    attrs: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def _need(condition: bool, message: str) -> None:
    if not condition:
        raise ProgramError(message)


def _array(attrs: Attrs, name: str) -> np.ndarray[Any, Any]:
    value: np.ndarray[Any, Any] = attrs[name]
    _need(isinstance(value, np.ndarray), f"attribute {name} is not an array")
    return value


def _broadcast(types: Types) -> tuple[int, ...]:
    """numpy's broadcasting, where ROWS meets only itself and 1."""
    rank = max(len(t.shape) for t in types)
    shape: list[int] = []
    for axis in range(rank):
        dims = {t.shape[axis - rank + len(t.shape)] for t in types if len(t.shape) >= rank - axis}
        dims.discard(1)
        _need(len(dims) <= 1, f"shapes do not broadcast: {', '.join(map(repr, types))}")
        shape.append(dims.pop() if dims else 1)
    _need(ROWS not in shape[1:], "a row-wise value must have the highest rank")
    return tuple(shape)


def _same_dtype(types: Types) -> DType:
    dtypes = {t.dtype for t in types}
    _need(len(dtypes) == 1, f"dtypes differ: {', '.join(map(repr, types))}")
    return types[0].dtype


def _numeric(dtype: DType) -> DType:
    _need(dtype in FLOATS or dtype in INTEGERS, f"{dtype} is not numeric")
    return dtype


def _floating(dtype: DType) -> DType:
    _need(dtype in FLOATS, f"{dtype} is not a float")
    return dtype


def _arithmetic(types: Types, attrs: Attrs) -> TensorType:
    return TensorType(_numeric(_same_dtype(types)), _broadcast(types))


def _division(types: Types, attrs: Attrs) -> TensorType:
    _floating(types[0].dtype)
    return _arithmetic(types, attrs)


def _comparison(types: Types, attrs: Attrs) -> TensorType:
    _need(_same_dtype(types) != "string", "strings are compared by encode alone")
    return TensorType("bool", _broadcast(types))


def _logical(types: Types, attrs: Attrs) -> TensorType:
    _need(_same_dtype(types) == "bool", "logical operators take bool")
    return TensorType("bool", _broadcast(types))


def _bitwise(types: Types, attrs: Attrs) -> TensorType:
    _need(_same_dtype(types) in INTEGERS, "bit operators take integers")
    return TensorType(types[0].dtype, _broadcast(types))


def _float_unary(types: Types, attrs: Attrs) -> TensorType:
    _floating(types[0].dtype)
    return types[0]


def _numeric_unary(types: Types, attrs: Attrs) -> TensorType:
    _numeric(types[0].dtype)
    return types[0]


def _isnan(types: Types, attrs: Attrs) -> TensorType:
    _need(types[0].dtype in FLOATS or types[0].dtype == "string", "isnan takes floats or strings")
    return TensorType("bool", types[0].shape)


def _where(types: Types, attrs: Attrs) -> TensorType:
    _need(types[0].dtype == "bool", "where takes a bool condition")
    return TensorType(_same_dtype(types[1:]), _broadcast(types))


def _input(types: Types, attrs: Attrs) -> TensorType:
    dtype, width = attrs["dtype"], attrs["width"]
    _need(isinstance(width, int) and width >= 0, "input width must be a whole number")
    return matrix(dtype, width)


def _constant(types: Types, attrs: Attrs) -> TensorType:
    value = _array(attrs, "value")
    return TensorType(dtype_of(value), value.shape)


def _cast(types: Types, attrs: Attrs) -> TensorType:
    _need("string" not in (types[0].dtype, attrs["dtype"]), "strings are not cast")
    return TensorType(attrs["dtype"], types[0].shape)


def _concat(types: Types, attrs: Attrs) -> TensorType:
    _need(all(t.rowwise and len(t.shape) == 2 for t in types), "concat takes (n, k) values")
    return matrix(promote(*[t.dtype for t in types]), sum(t.width for t in types))


def _select(types: Types, attrs: Attrs) -> TensorType:
    indices = _array(attrs, "indices")
    _need(types[0].rowwise and len(types[0].shape) == 2, "select takes an (n, k) value")
    _need(indices.ndim == 1 and indices.dtype == np.int64, "indices must be int64, one axis")
    _need(
        indices.size == 0 or (indices.min() >= 0 and indices.max() < types[0].width),
        f"select reaches outside {types[0]!r}",
    )
    return matrix(types[0].dtype, indices.size)


def _reshape(types: Types, attrs: Attrs) -> TensorType:
    shape = attrs["shape"]
    _need(
        isinstance(shape, tuple) and all(type(d) is int and d >= 0 for d in shape),
        "shape must be a tuple of whole numbers",
    )
    _need(types[0].rowwise, "reshape takes a row-wise value; shape is that of one row")
    new = (ROWS, *shape)
    size = was = 1
    for d in new[1:]:
        size *= d
    for d in types[0].shape[1:]:
        was *= d
    _need(size == was, f"{types[0]!r} does not reshape to {new}")
    return TensorType(types[0].dtype, tuple(new))


def _reduce(types: Types, attrs: Attrs) -> TensorType:
    axis = attrs["axis"]
    _need(isinstance(axis, int) and 0 < axis < len(types[0].shape), "axis must be a column axis")
    _numeric(types[0].dtype)
    shape = tuple(1 if i == axis else d for i, d in enumerate(types[0].shape))
    return TensorType(types[0].dtype, shape)


def _argmax(types: Types, attrs: Attrs) -> TensorType:
    return TensorType("int64", _reduce(types, attrs).shape)


def _softmax(types: Types, attrs: Attrs) -> TensorType:
    _floating(types[0].dtype)
    _need(len(types[0].shape) == 2, "softmax takes an (n, k) value")
    _floating(attrs["sum_dtype"])
    return types[0]


def _matmul(types: Types, attrs: Attrs) -> TensorType:
    a, b = types
    _numeric(_same_dtype(types))
    _need(len(a.shape) == 2 and len(b.shape) == 2 and not b.rowwise, "matmul takes (n,k) @ (k,m)")
    _need(a.shape[1] == b.shape[0], f"matmul of {a!r} and {b!r}")
    return TensorType(a.dtype, (a.shape[0], b.shape[1]))


def _batch_matmul(types: Types, attrs: Attrs) -> TensorType:
    a, b = types
    _numeric(_same_dtype(types))
    _need(
        len(a.shape) == 3 and len(b.shape) == 3 and not b.rowwise and a.shape[1:] == b.shape[:2],
        f"batch_matmul of {a!r} and {b!r}",
    )
    return TensorType(a.dtype, (a.shape[0], a.shape[1], b.shape[2]))


def _take(types: Types, attrs: Attrs) -> TensorType:
    table, index = types
    _need(not table.rowwise and len(table.shape) >= 1, "take reads a constant table")
    _need(index.dtype in INTEGERS, "take is indexed by integers")
    return TensorType(table.dtype, index.shape + table.shape[1:])


def _gather(types: Types, attrs: Attrs) -> TensorType:
    x, index = types
    _need(x.rowwise and index.rowwise and index.dtype in INTEGERS, "gather takes (n,k) and (n,t)")
    _need(len(x.shape) == 2 and len(index.shape) == 2, "gather takes (n,k) and (n,t)")
    return TensorType(x.dtype, index.shape)


def _accumulate(types: Types, attrs: Attrs) -> TensorType:
    base, target = _array(attrs, "base"), _array(attrs, "target")
    x = types[0]
    _floating(x.dtype)
    _need(x.rowwise and len(x.shape) == 3, "accumulate takes (n, trees, values)")
    _need(base.ndim == 1 and dtype_of(base) == x.dtype, "base must have the values' dtype")
    _need(target.shape == (x.shape[1],) and target.dtype == np.int32, "one target a tree")
    _need(
        target.size == 0 or (target.min() >= 0 and target.max() + x.shape[2] <= base.size),
        "a target reaches outside base",
    )
    return matrix(x.dtype, base.size)


def _fill(types: Types, attrs: Attrs) -> TensorType:
    _need(types[0].dtype == "string" and isinstance(attrs["value"], str), "fill takes strings")
    return types[0]


def _encode(types: Types, attrs: Attrs) -> TensorType:
    categories = _array(attrs, "categories")
    _need(len(types[0].shape) == 2 and types[0].width == 1, "encode takes one column")
    _need(
        categories.ndim == 1 and dtype_of(categories) == types[0].dtype,
        f"categories of {categories.dtype} for a column {types[0]!r}",
    )
    if types[0].dtype == "string":
        _need(
            not any("\0" in str(c) for c in categories),
            "a category holds a NUL character, which SQL cannot spell",
        )
    missing = attrs["missing"]
    _need(
        isinstance(missing, int) and -1 <= missing <= categories.size,
        "missing must be a code or -1",
    )
    return TensorType("int64", types[0].shape)


def _require_known(types: Types, attrs: Attrs) -> TensorType:
    _need(types[0].dtype in INTEGERS, "require_known takes codes")
    return types[0]


def _require_finite(types: Types, attrs: Attrs) -> TensorType:
    _floating(types[0].dtype)
    features = attrs["features"]
    _need(
        isinstance(features, tuple) and len(features) == types[0].width,
        "require_finite names each column",
    )
    return types[0]


def _one_hot(types: Types, attrs: Attrs) -> TensorType:
    _need(types[0].dtype in INTEGERS and types[0].width == 1, "one_hot takes one column of codes")
    _need(attrs["dtype"] != "string", "one_hot makes numbers")
    _need(isinstance(attrs["width"], int) and attrs["width"] >= 0, "width must be a whole number")
    return matrix(attrs["dtype"], attrs["width"])


def _impute(types: Types, attrs: Attrs) -> TensorType:
    fill = _array(attrs, "fill")
    _need(dtype_of(fill) == _floating(types[0].dtype), "fill must have the dtype of the columns")
    _need(fill.shape == (types[0].width,), "one fill a column")
    return types[0]


def _linear(types: Types, attrs: Attrs) -> TensorType:
    weights, bias = _array(attrs, "weights"), _array(attrs, "bias")
    dtype = _floating(types[0].dtype)
    _need(dtype_of(weights) == dtype and dtype_of(bias) == dtype, "weights have another dtype")
    _need(
        weights.ndim == 2
        and weights.shape[0] == types[0].width
        and bias.shape == weights.shape[1:],
        f"weights {weights.shape} and bias {bias.shape} for {types[0]!r}",
    )
    return matrix(dtype, weights.shape[1])


def _tree_ensemble(types: Types, attrs: Attrs) -> TensorType:
    ensemble = Ensemble.of(attrs)
    ensemble.check(types[0])
    return matrix(dtype_of(ensemble.base), ensemble.base.size)


UNARY_FLOAT = ("exp", "log", "log1p", "expm1", "sqrt", "sigmoid", "tanh", "trunc")
UNARY_NUMERIC = ("neg", "abs", "sign", "square")
ARITHMETIC = ("add", "sub", "mul", "maximum", "minimum")
COMPARISON = ("lt", "le", "gt", "ge", "eq", "ne")
LOGICAL = ("and", "or")
BITWISE = ("shift_right", "bit_and")
REDUCTION = ("sum", "max", "min")

_TREES = {
    "roots": "array",
    "feature": "array",
    "threshold": "array",
    "left": "array",
    "right": "array",
    "default_left": "array",
    "leaf_values": "array",
    "target": "array",
    "base": "array",
    "compare": "str",
    "categorical": "array?",
    "set_offsets": "array?",
    "set_words": "array?",
}

TABLE: tuple[Op, ...] = (
    # sources
    Op("input", "both", "source", (0, 0), _input, {"name": "str", "dtype": "str", "width": "int"}),
    Op("constant", "both", "source", (0, 0), _constant, {"value": "array"}),
    # elementwise, with broadcasting; both sides of an operator have one dtype
    *(Op(n, "both", "injective", (1, 1), _float_unary) for n in UNARY_FLOAT),
    *(Op(n, "both", "injective", (1, 1), _numeric_unary) for n in UNARY_NUMERIC),
    *(Op(n, "both", "injective", (2, 2), _arithmetic) for n in ARITHMETIC),
    Op("div", "both", "injective", (2, 2), _division),
    *(Op(n, "both", "injective", (2, 2), _comparison) for n in COMPARISON),
    *(Op(n, "both", "injective", (2, 2), _logical) for n in LOGICAL),
    *(Op(n, "both", "injective", (2, 2), _bitwise) for n in BITWISE),
    Op("not", "both", "injective", (1, 1), _logical),
    Op("isnan", "both", "injective", (1, 1), _isnan),
    Op("where", "both", "injective", (3, 3), _where),
    Op("cast", "both", "injective", (1, 1), _cast, {"dtype": "str"}),
    # layout
    Op("concat", "both", "injective", (1, None), _concat),
    Op("select", "both", "injective", (1, 1), _select, {"indices": "array"}),
    Op("reshape", "tensor", "injective", (1, 1), _reshape, {"shape": "tuple"}),
    Op("take", "tensor", "injective", (2, 2), _take),
    Op("gather", "tensor", "injective", (2, 2), _gather),
    # reductions keep their axis with length 1
    *(Op(n, "both", "reduction", (1, 1), _reduce, {"axis": "int"}) for n in REDUCTION),
    Op("argmax", "both", "reduction", (1, 1), _argmax, {"axis": "int"}),
    Op("softmax", "both", "reduction", (1, 1), _softmax, {"sum_dtype": "str"}),
    Op(
        "accumulate",
        "tensor",
        "reduction",
        (1, 1),
        _accumulate,
        {"base": "array", "target": "array"},
    ),
    # products
    Op("matmul", "tensor", "complex", (2, 2), _matmul),
    Op("batch_matmul", "tensor", "complex", (2, 2), _batch_matmul),
    # model operators
    Op("fill", "model", "injective", (1, 1), _fill, {"value": "str", "missing": "str?"}),
    Op("encode", "model", "injective", (1, 1), _encode, {"categories": "array", "missing": "int"}),
    Op(
        "require_known",
        "model",
        "injective",
        (1, 1),
        _require_known,
        {"feature": "str", "step": "str"},
    ),
    Op(
        "require_finite",
        "model",
        "injective",
        (1, 1),
        _require_finite,
        {"features": "tuple", "allow_nan": "bool", "step": "str"},
    ),
    Op("one_hot", "model", "injective", (1, 1), _one_hot, {"width": "int", "dtype": "str"}),
    Op("impute", "model", "injective", (1, 1), _impute, {"fill": "array", "missing": "float"}),
    Op("linear", "model", "complex", (1, 1), _linear, {"weights": "array", "bias": "array"}),
    Op("tree_ensemble", "model", "opaque", (1, 1), _tree_ensemble, _TREES),
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
            _need(kind.endswith("?"), f"{op} lacks attribute {name}")
        else:
            _need(_is_kind(attrs[name], kind.rstrip("?")), f"{op}: attribute {name} is not {kind}")
    for name in attrs:
        _need(name in row.attrs, f"{op} has no attribute {name}")
    for key in ("dtype", "sum_dtype"):
        if key in row.attrs:
            _need(attrs[key] in DTYPES, f"{op}: unknown dtype {attrs[key]!r}")
    result = row.rule(types, attrs)
    count = math.prod(result.shape[1:] if result.rowwise else result.shape)
    most = MAX_ROW_VALUES if result.rowwise else MAX_CONSTANT_VALUES
    _need(count <= most, f"{op} makes {count} numbers: too many")
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
