"""`owners`: which one input each column of a value is made of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sqlml.ir.operators.categories import combinations
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


def sharing(program: Program, known: Sequence[Array], i: int) -> list[frozenset[int] | None]:
    """For each column of node i the inputs that it is made of, where these are known: one, or the
    categories that a look-up combines; else None.

    A look-up may also depend on tests of numbers. CatBoost's own contributions leave these out, and
    so do these (catboost/libs/fstr/shap_prepared_trees.cpp).

    known: the `owners`.
    """
    node = program.nodes[i]
    if node.op == "concat":
        return [one for j in node.inputs for one in sharing(program, known, j)]
    if node.op == "select":
        below = sharing(program, known, node.inputs[0])
        return [below[k] for k in node.attrs["indices"].tolist()]
    if node.op == "cast":
        return sharing(program, known, node.inputs[0])
    if node.op == "look_up_combinations":
        own, hashed = known[node.inputs[0]], _are_hashed(program, node.inputs[0])
        made: list[frozenset[int] | None] = []
        for c in combinations(node.attrs):
            columns = c.columns[hashed[c.columns]]
            of = frozenset(own[columns].tolist()) - {NONE}
            made += [None if SEVERAL in of else of] * c.values.shape[1]
        return made
    single = {SEVERAL: None, NONE: frozenset[int]()}
    return [single.get(one, frozenset({one})) for one in known[i].tolist()]


def _are_hashed(program: Program, i: int) -> Array:
    """Which columns of a node are hashes of categories, bool (width,)."""
    node = program.nodes[i]
    if node.op == "concat":
        return np.concatenate([_are_hashed(program, j) for j in node.inputs])
    if node.op in ("require", "require_finite"):
        return _are_hashed(program, node.inputs[0])
    return np.full(node.type.width, node.op == "hash_categories")


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
