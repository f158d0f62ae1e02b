"""`owners`: which one input each column of a value is made of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sqlml.ir.operators.combinations import combinations
from sqlml.ir.ops import OPS
from sqlml.ir.program import Node, Program
from sqlml.types import Array

NONE, SEVERAL = -1, -2
"""Owners of a column that is a constant, and of one that is made of several inputs."""

_COLUMN_BY_COLUMN = frozenset({"interpolate"})
"""Operators besides the injective ones whose column j depends on columns j alone."""


def owners(program: Program) -> list[Array]:
    """For each node an owner per column: the place of an input, NONE or SEVERAL; int32."""
    place = {node: k for k, node in enumerate(program.inputs.values())}
    made: list[Array] = []
    for i, node in enumerate(program.nodes):
        if i in place:
            made.append(np.full(node.type.width, place[i], np.int32))
        else:
            made.append(_owners(node, [made[j] for j in node.inputs]))
    return made


def _owners(node: Node, given: Sequence[Array]) -> Array:
    width = node.type.shape[-1] if node.type.shape else 1
    if not given:
        return np.full(width, NONE, np.int32)
    if node.op == "select":
        return given[0][node.attrs["indices"]]
    if node.op == "concat":
        return np.concatenate(given)
    if node.op == "look_up_combinations":
        each = [(_of_all(given[0][c.columns]), c.values.shape[1]) for c in combinations(node.attrs)]
        return np.concatenate([np.full(width, owner, np.int32) for owner, width in each])
    by_column = OPS[node.op].group == "injective" or node.op in _COLUMN_BY_COLUMN
    if by_column and all(one.size in (1, width) for one in given):
        owner = np.full(width, NONE, np.int32)
        for one in given:
            owner = np.where(
                owner == NONE, one, np.where((one == NONE) | (one == owner), owner, SEVERAL)
            )
        return owner.astype(np.int32)
    return np.full(width, _of_all(np.concatenate(given)), np.int32)


def _of_all(given: Array) -> int:
    """The owner of what is made of columns with these owners."""
    known = np.unique(given[given != NONE])
    return int(known[0]) if known.size == 1 else SEVERAL if known.size else NONE
