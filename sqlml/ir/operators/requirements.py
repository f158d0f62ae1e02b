"""`require`: stop with the model's own message if a row breaks one of its rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from sqlml.errors import MissingValueError
from sqlml.ir.operators.op import Function, Op, Types, need
from sqlml.ir.program import Attrs
from sqlml.types import Array, TensorType


def _require_type(types: Types, attrs: Attrs) -> TensorType:
    x, fine = types
    need(fine.rowwise and fine.dtype == "bool" and fine.shape[1:] == (1,), "require tests a row")
    need(x.rowwise, "require passes rows on")
    need(bool(attrs["message"]), "require says what is wrong")
    return x


def _require(args: Sequence[Array], attrs: Attrs) -> Array:
    """The first input, where the second is true of every row."""
    x, fine = args
    if not fine.all():
        raise MissingValueError(str(attrs["message"]))
    return x


OPERATORS: tuple[Op, ...] = (
    Op("require", "both", "injective", (2, 2), _require_type, {"message": "str"}),
)

FUNCTIONS: Mapping[str, Function] = MappingProxyType({"require": _require})
