"""The owners of columns: the single input on which each column of a value depends."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sqlml.ir.operators.categories import unpack_combinations
from sqlml.ir.ops import OPS
from sqlml.ir.program import Node, Program
from sqlml.types import Array

NONE, SEVERAL = -1, -2
"""The owners of a constant column, and of a column that depends on several inputs."""

_COLUMN_BY_COLUMN = frozenset({"interpolate"})
"""Further operators whose output column j depends only on input column j."""


def find_owners(program: Program) -> list[Array]:
    """Return, for each node, the owner of each column, int32: an input's index, NONE or SEVERAL."""
    input_index = {node: k for k, node in enumerate(program.inputs.values())}
    owners_of_nodes: list[Array] = []
    for i, node in enumerate(program.nodes):
        if i in input_index:
            owners_of_nodes.append(np.full(node.type.width, input_index[i], np.int32))
        else:
            owners_of_nodes.append(_combine_owners(node, [owners_of_nodes[j] for j in node.inputs]))
    return owners_of_nodes


def find_sharing_inputs(
    program: Program, owners_of_nodes: Sequence[Array], i: int
) -> list[frozenset[int] | None]:
    """Return the inputs on which each column of node i depends; None where they are unknown.

    A look-up of combinations depends on several inputs: the categories that it combines. CatBoost's
    own contributions ignore tests of numbers in a combination, and so does this function
    (catboost/libs/fstr/shap_prepared_trees.cpp).
    """

    def find_below(j: int) -> list[frozenset[int] | None]:
        return find_sharing_inputs(program, owners_of_nodes, j)

    node = program.nodes[i]
    if node.op == "concat":
        return [inputs for j in node.inputs for inputs in find_below(j)]
    if node.op == "select":
        source_sets = find_below(node.inputs[0])
        return [source_sets[k] for k in node.attrs["indices"].tolist()]
    if node.op == "cast":
        return find_below(node.inputs[0])
    if node.op == "look_up_combinations":
        owner = owners_of_nodes[node.inputs[0]]
        is_hashed = _find_hashed_columns(program, node.inputs[0])
        input_sets: list[frozenset[int] | None] = []
        for combination in unpack_combinations(node.attrs):
            columns = combination.columns[is_hashed[combination.columns]]
            inputs = frozenset(owner[columns].tolist()) - {NONE}
            input_sets += [None if SEVERAL in inputs else inputs] * combination.values.shape[1]
        return input_sets
    special_cases = {SEVERAL: None, NONE: frozenset[int]()}
    return [special_cases.get(owner, frozenset({owner})) for owner in owners_of_nodes[i].tolist()]


def _find_hashed_columns(program: Program, i: int) -> Array:
    """Return which columns of a node are hashes of categories, bool (width,)."""
    node = program.nodes[i]
    if node.op == "concat":
        return np.concatenate([_find_hashed_columns(program, j) for j in node.inputs])
    if node.op in ("require", "require_finite"):
        return _find_hashed_columns(program, node.inputs[0])
    return np.full(node.type.width, node.op == "hash_categories")


def _combine_owners(node: Node, input_owners: Sequence[Array]) -> Array:
    width = node.type.shape[-1] if node.type.shape else 1
    if not input_owners:
        return np.full(width, NONE, np.int32)
    if node.op == "select":
        return input_owners[0][node.attrs["indices"]]
    if node.op == "concat":
        return np.concatenate(input_owners)
    if node.op == "look_up_combinations":
        parts = [
            np.full(c.values.shape[1], _find_common_owner(input_owners[0][c.columns]), np.int32)
            for c in unpack_combinations(node.attrs)
        ]
        return np.concatenate(parts)
    is_by_column = OPS[node.op].group == "injective" or node.op in _COLUMN_BY_COLUMN
    if is_by_column and all(operand.size in (1, width) for operand in input_owners):
        owner = np.full(width, NONE, np.int32)
        for operand in input_owners:
            agrees = (operand == NONE) | (operand == owner)
            owner = np.where(owner == NONE, operand, np.where(agrees, owner, SEVERAL))
        return owner.astype(np.int32)
    return np.full(width, _find_common_owner(np.concatenate(input_owners)), np.int32)


def _find_common_owner(column_owners: Array) -> int:
    """Return the owner of a value that depends on all columns with these owners."""
    distinct = np.unique(column_owners[column_owners != NONE])
    return int(distinct[0]) if distinct.size == 1 else SEVERAL if distinct.size else NONE
