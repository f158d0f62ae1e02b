"""The owner of a column: the only input on which the column depends."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from sqlml.ir.operators.categories import unpack_combinations
from sqlml.ir.ops import OPS
from sqlml.ir.program import Node, Program
from sqlml.types import Array

NONE, SEVERAL = -1, -2
"""The owners of a constant column, and of a column that depends on several inputs."""

_COLUMN_BY_COLUMN = frozenset({"interpolate"})
"""Further operators in which column j of the result depends only on column j of the input."""


def find_owners(program: Program) -> list[Array]:
    """Return the owners of each node's columns, int32: an index of an input, NONE or SEVERAL."""
    input_index = {node: k for k, node in enumerate(program.inputs.values())}
    owners_of_nodes: list[Array] = []
    for i, node in enumerate(program.nodes):
        if i in input_index:
            owners_of_nodes.append(np.full(node.type.width, input_index[i], np.int32))
        else:
            owners_of_nodes.append(_combine_owners(node, [owners_of_nodes[j] for j in node.inputs]))
    return owners_of_nodes


InputSet = frozenset[int] | None
"""The inputs on which a column depends, or None if they are unknown."""


def find_input_sets(program: Program, owners: Sequence[Array], i: int) -> list[InputSet]:
    """Return the set of inputs on which each column of node i depends, or None if unknown.

    A lookup of combinations depends on all combined categories. Tests of numbers in a combination
    are ignored, as in CatBoost's contributions (catboost/libs/fstr/shap_prepared_trees.cpp).
    """
    find_sets_of_node = partial(find_input_sets, program, owners)
    node = program.nodes[i]
    if node.op == "concat":
        return [inputs for j in node.inputs for inputs in find_sets_of_node(j)]
    if node.op == "select":
        source_sets = find_sets_of_node(node.inputs[0])
        return [source_sets[k] for k in node.attrs["indices"].tolist()]
    if node.op == "cast":
        return find_sets_of_node(node.inputs[0])
    if node.op == "look_up_combinations":
        owner = owners[node.inputs[0]]
        is_hashed = _find_hashed_columns(program, node.inputs[0])
        input_sets: list[InputSet] = []
        for combination in unpack_combinations(node.attrs):
            columns = combination.columns[is_hashed[combination.columns]]
            inputs = frozenset(owner[columns].tolist()) - {NONE}
            input_sets += [None if SEVERAL in inputs else inputs] * combination.values.shape[1]
        return input_sets
    special_cases = {SEVERAL: None, NONE: frozenset[int]()}
    return [special_cases.get(owner, frozenset({owner})) for owner in owners[i].tolist()]


def _find_hashed_columns(program: Program, i: int) -> Array:
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
        combinations = list(unpack_combinations(node.attrs))
        owners = [_find_common_owner(input_owners[0][c.columns]) for c in combinations]
        return np.repeat(owners, [c.values.shape[1] for c in combinations]).astype(np.int32)
    is_by_column = OPS[node.op].group == "injective" or node.op in _COLUMN_BY_COLUMN
    if is_by_column and all(operand.size in (1, width) for operand in input_owners):
        owner = np.full(width, NONE, np.int32)
        for operand in input_owners:
            agrees = (operand == NONE) | (operand == owner)
            owner = np.where(owner == NONE, operand, np.where(agrees, owner, SEVERAL))
        return owner.astype(np.int32)
    return np.full(width, _find_common_owner(np.concatenate(input_owners)), np.int32)


def _find_common_owner(column_owners: Array) -> int:
    owners = np.unique(column_owners[column_owners != NONE])
    return int(owners[0]) if owners.size == 1 else SEVERAL if owners.size else NONE
