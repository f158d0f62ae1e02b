"""`Op`, a row of the operator table, and the checks that type rules are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from sqlml.errors import ProgramError
from sqlml.ir.program import Attrs
from sqlml.types import FLOATS, INTEGERS, ROWS, Array, DType, TensorType

Types = Sequence[TensorType]
Rule = Callable[[Types, Attrs], TensorType]
Level = Literal["model", "tensor", "both"]
Group = Literal["source", "injective", "reduction", "complex", "opaque"]

Function = Callable[[Sequence[Array], Attrs], Array]
"""An operator's function, from input arrays and attributes to one array."""


@dataclass(frozen=True, slots=True)
class Op:
    """A row of the operator table.

    `rule` infers the result type, and `function` computes the result; an input has no function.
    `attrs` maps each attribute to its Python type, which ends in `?` if it is optional. `arity` is
    the (least, most) number of inputs; most is None if there is no limit. `sparse` operators also
    take sparse rows (`ir/csr.py`), `nested` ones take columns with many values per row
    (`types.NESTED`); all others reject these.
    """

    name: str
    level: Level
    group: Group
    rule: Rule
    function: Function | None
    attrs: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    arity: tuple[int, int | None] = (1, 1)
    sparse: bool = False
    nested: bool = False


def require(condition: bool, message: str) -> None:
    if not condition:
        raise ProgramError(message)


def array_attribute(attrs: Attrs, name: str) -> np.ndarray[Any, Any]:
    value: np.ndarray[Any, Any] = attrs[name]
    require(isinstance(value, np.ndarray), f"attribute {name} is not an array")
    return value


def broadcast_shape(types: Types) -> tuple[int, ...]:
    """Return the shape that numpy broadcasts to; ROWS only fits itself and 1."""
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
    """Return an operator's function that calls `function` with the arrays only."""
    return lambda args, attrs: function(*args)
