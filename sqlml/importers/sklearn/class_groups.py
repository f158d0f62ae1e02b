"""Classes or components in groups, so that what is made for each of them stays small."""

from __future__ import annotations

from collections.abc import Callable

from sqlml.ir.builder import Builder, Value

MAX_VALUES = 2048
"""Most numbers of one row that a group makes: classes times columns, if more than one class."""


def by_group(builder: Builder, classes: int, width: int, make: Callable[[slice], Value]) -> Value:
    """(n, classes) out of the (n, size) that `make` computes for each slice of the classes.

    Args:
        width: numbers of one row that `make` needs for each class.
    """
    size = max(1, MAX_VALUES // max(1, width))
    parts = [make(slice(start, start + size)) for start in range(0, classes, size)]
    return builder.beside(parts)
