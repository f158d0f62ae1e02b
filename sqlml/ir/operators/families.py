"""The families of operators, in the order of the table: a new family's file is named here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from sqlml.ir.operators import (
    categories,
    columns,
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
    order,
    piecewise,
    products,
    reductions,
    requirements,
    sparse,
    text,
    torch_module,
)
from sqlml.ir.operators.op import Function, Op


class Family(Protocol):
    """A module of operators: their rows in the table, and by name what each computes."""

    @property
    def OPERATORS(self) -> tuple[Op, ...]: ...

    @property
    def FUNCTIONS(self) -> Mapping[str, Function]: ...


FAMILIES: tuple[Family, ...] = (
    elementwise,
    layout,
    reductions,
    order,
    products,
    distances,
    neighbours,
    coupling,
    requirements,
    categories,
    hashing,
    columns,
    piecewise,
    knn_impute,
    forests,
    torch_module,
    opaque,
    sparse,
    text,
    items,
)
