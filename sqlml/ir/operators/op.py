"""`Op`: one row of the operator table, and the checks that its rules are made of."""

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
"""What an operator computes: arrays and attributes in, one array out."""


@dataclass(frozen=True, slots=True)
class Op:
    """One row of the table.

    `function` is the meaning of the operator; an input has none. `attrs` names each attribute and
    its Python type; a type ending in `?` may be left out. `arity` is (fewest, most) inputs, most
    None for any number. `sparse` operators take values of sparse rows (`ir/csr.py`) as well as
    dense ones, `nested` ones columns of many values per row (`types.NESTED`), which all others
    refuse.
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


def need(condition: bool, message: str) -> None:
    if not condition:
        raise ProgramError(message)


def array(attrs: Attrs, name: str) -> np.ndarray[Any, Any]:
    value: np.ndarray[Any, Any] = attrs[name]
    need(isinstance(value, np.ndarray), f"attribute {name} is not an array")
    return value


def broadcast(types: Types) -> tuple[int, ...]:
    """numpy's broadcasting, where ROWS meets only itself and 1."""
    rank = max(len(t.shape) for t in types)
    shape: list[int] = []
    for axis in range(rank):
        dims = {t.shape[axis - rank + len(t.shape)] for t in types if len(t.shape) >= rank - axis}
        dims.discard(1)
        need(len(dims) <= 1, f"shapes do not broadcast: {', '.join(map(repr, types))}")
        shape.append(dims.pop() if dims else 1)
    need(ROWS not in shape[1:], "a row-wise value must have the highest rank")
    return tuple(shape)


def same_dtype(types: Types) -> DType:
    dtypes = {t.dtype for t in types}
    need(len(dtypes) == 1, f"dtypes differ: {', '.join(map(repr, types))}")
    return types[0].dtype


def numeric(dtype: DType) -> DType:
    need(dtype in FLOATS or dtype in INTEGERS, f"{dtype} is not numeric")
    return dtype


def floating(dtype: DType) -> DType:
    need(dtype in FLOATS, f"{dtype} is not a float")
    return dtype


def function_of(function: Callable[..., Any]) -> Function:
    """Make `function`, of only the arrays, an operator's function, which ignores the attributes."""
    return lambda args, attrs: function(*args)
