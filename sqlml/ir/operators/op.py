"""`Op`, a row of the operator table, and the checks that type rules use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Any, Literal

from sqlml.errors import ProgramError
from sqlml.ir.program import Attrs
from sqlml.types import FLOATS, INTEGERS, ROWS, Array, DType, TensorType

Types = Sequence[TensorType]
Rule = Callable[[Types, Attrs], TensorType]
Group = Literal["source", "injective", "reduction", "complex", "opaque"]

Function = Callable[[Sequence[Any], Attrs], Any]
"""A function that maps inputs and attributes to a result; all are arrays, `Csr` or `TextColumn`."""


@dataclass(frozen=True, slots=True)
class Op:
    """A row of the operator table.

    `group` is the fusion class of Chen's thesis, section 4.2. The operator "input" has no
    `function`. `attributes` are written as in "width: int, fill: float?, words, ends?": a name
    without a type is an array, and `?` marks an optional attribute. `attrs` maps the names of
    attributes to types. `arity` is the minimum and the maximum number of inputs; None means no
    limit. Only `sparse` operators accept sparse rows (`ir/csr.py`), and only `nested` operators
    accept columns with many values per row (`types.NESTED`).
    """

    name: str
    group: Group
    rule: Rule
    function: Function | None
    attributes: InitVar[str] = ""
    arity: tuple[int, int | None] = (1, 1)
    sparse: bool = False
    nested: bool = False
    attrs: Mapping[str, str] = field(init=False)

    def __post_init__(self, attributes: str) -> None:
        attrs: dict[str, str] = {}
        for name, _, attr_type in (a.partition(": ") for a in attributes.split(", ") if a):
            array_type = "array?" if name.endswith("?") else "array"
            attrs[name.removesuffix("?")] = attr_type or array_type
        object.__setattr__(self, "attrs", attrs)


def require(condition: object, message: str) -> None:
    if not condition:
        raise ProgramError(message)


def array_attribute(
    attrs: Attrs, name: str, dtype: str | None = None, shape: tuple[int | None, ...] | None = None
) -> Array:
    """Return the array attribute `name`; raise ProgramError if dtype or shape differs.

    If an axis of `shape` is None, the axis may have any length.
    """
    value: Array = attrs[name]
    actual_dtype = "string" if value.dtype.kind in "OUT" else value.dtype.name
    has_shape = shape is None or (
        len(shape) == value.ndim
        and all(d is None or d == axis for d, axis in zip(shape, value.shape, strict=True))
    )
    if not has_shape or dtype not in (None, actual_dtype):
        expected_sizes = "" if shape is None else str(["any" if d is None else d for d in shape])
        expected = f"{dtype or 'an array of shape '}{expected_sizes}"
        raise ProgramError(f"{name} must be {expected}, not {actual_dtype}{list(value.shape)}")
    return value


def require_matrix(x: TensorType, dtype: str | None = None, width: int | None = None) -> TensorType:
    """Return `x`; raise ProgramError unless it is an (n, k) matrix of this dtype and width."""
    is_valid = x.rowwise and len(x.shape) == 2 and dtype in (None, x.dtype)
    if not is_valid or width not in (None, x.width):
        raise ProgramError(f"needs {dtype or ''}[n,{width or 'k'}] values, not {x!r}")
    return x


def broadcast_shape(types: Types) -> tuple[int, ...]:
    """Return the shape to which numpy broadcasts `types`; ROWS matches only ROWS and 1."""
    rank = max(len(t.shape) for t in types)
    shape: list[int] = []
    for axis in range(rank):
        dims = {t.shape[axis - rank + len(t.shape)] for t in types if len(t.shape) >= rank - axis}
        dims.discard(1)
        require(len(dims) <= 1, f"shapes do not broadcast: {', '.join(map(repr, types))}")
        shape.append(dims.pop() if dims else 1)
    require(ROWS not in shape[1:], "a row-wise value must have the highest rank")
    return tuple(shape)


def require_same_dtype(types: Types) -> DType:
    dtypes = {t.dtype for t in types}
    require(len(dtypes) == 1, f"dtypes differ: {', '.join(map(repr, types))}")
    return types[0].dtype


def require_numeric(dtype: DType) -> DType:
    require(dtype in FLOATS or dtype in INTEGERS, f"{dtype} is not numeric")
    return dtype


def require_float(dtype: DType) -> DType:
    require(dtype in FLOATS, f"{dtype} is not a float")
    return dtype


def ignore_attributes(function: Callable[..., Any]) -> Function:
    """Return an operator function that calls `function` without the attributes."""
    return lambda args, attrs: function(*args)
