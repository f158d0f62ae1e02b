"""Facts that a Program contains about its model, for SQL's table functions.

The facts are statistics of features in training, importances, linear weights and nodes of trees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from sqlml.explaining.explained import LINKS, find_explained_output
from sqlml.explaining.owners import find_owners
from sqlml.ir.program import Node, Program
from sqlml.ir.trees import Ensemble
from sqlml.types import Array


@dataclass(frozen=True, slots=True)
class FeatureFacts:
    """Facts about the values of an input in training; an unknown fact is None."""

    feature: str
    kind: str
    least: float | None = None
    most: float | None = None
    mean: float | None = None
    stddev: float | None = None
    categories: int | None = None


def find_feature_facts(program: Program) -> list[FeatureFacts]:
    """Return the facts in encoders, StandardScalers and LightGBM's bounds about each input."""
    kinds = {feature.name: feature.kind for feature in program.features}
    facts = [FeatureFacts(name, kinds.get(name, "number")) for name in program.inputs]
    owners = find_owners(program)
    for node in program.nodes:
        for name, values, columns in _find_facts_of_node(program, node):
            for source, value in zip(columns, values, strict=True):
                input_index = int(owners[source[0]][source[1]])
                if input_index >= 0 and getattr(facts[input_index], name) is None:
                    facts[input_index] = replace(facts[input_index], **{name: value})
    return facts


Facts = list[tuple[str, Sequence[Any], Sequence[tuple[int, int]]]]
"""Tuples of the name of a fact, the values, and the node and column of each value."""


def _find_facts_of_node(program: Program, node: Node) -> Facts:
    if node.op == "encode":
        return [("categories", [len(node.attrs["categories"])], [(node.inputs[0], 0)])]
    if node.op in ("sub", "div"):
        return _find_facts_of_scaler(program, node)
    if node.op == "tree_ensemble":
        ensemble, input_index = Ensemble.of(node.attrs), node.inputs[0]
        if ensemble.input_least is None or not _has_original_features(program, input_index):
            return []
        columns = [(input_index, j) for j in range(len(ensemble.input_least))]
        bounds = (("least", ensemble.input_least), ("most", ensemble.input_most))
        return [(name, _to_numbers(bound), columns) for name, bound in bounds if bound is not None]
    return []


def _find_facts_of_scaler(program: Program, node: Node) -> Facts:
    operand, constant = (program.nodes[k] for k in node.inputs)
    index = node.inputs[0]
    if node.op == "div" and operand.op == "sub":
        index = operand.inputs[0]
    source = program.nodes[index]
    is_scaler = source.op == "require_finite" and source.attrs["step"] == "StandardScaler"
    if not is_scaler or constant.op != "constant" or not _has_original_features(program, index):
        return []
    values = np.ravel(constant.attrs["value"])
    name = "mean" if node.op == "sub" else "stddev"
    return [(name, _to_numbers(values), [(index, j) for j in range(len(values))])]


def _has_original_features(program: Program, index: int) -> bool:
    """Return whether a node has unchanged inputs, apart from checks and imputation."""
    node = program.nodes[index]
    if node.op == "input":
        return True
    passes_through = node.op in ("require_finite", "impute", "concat", "select", "cast")
    return passes_through and all(_has_original_features(program, k) for k in node.inputs)


def _to_numbers(values: Array) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in values]


@dataclass(frozen=True, slots=True)
class Importance:
    """The importance of one input in a tree model.

    `library_importance` is `feature_importances_` of the library; LightGBM counts splits by
    default. `splits` is the number of tests of the input. Missing statistics are None.
    """

    feature: str
    library_importance: float | None
    splits: int
    gain: float | None
    cover: float | None


def compute_importances(program: Program, source: str) -> list[Importance] | None:
    """Compute the importance of each input as in the library of the class `source`.

    The importance of an input is the sum over its columns, such as those of categories. Return None
    if the Program has no trees, or if a tested column depends on several inputs.
    """
    owners_of_nodes = find_owners(program)
    nodes = [node for node in program.nodes if node.op == "tree_ensemble"]
    forests = [(Ensemble.of(node.attrs), owners_of_nodes[node.inputs[0]]) for node in nodes]
    if not forests:
        return None
    input_count = len(program.inputs)
    splits, zeros = np.zeros((2, input_count))
    gain: Array | None = zeros
    cover: Array | None = zeros
    for ensemble, column_owners in forests:
        owners = column_owners[ensemble.feature]
        if (owners < 0).any():
            return None
        splits += np.bincount(owners, minlength=input_count)
        gain = _add_by_owner(gain, owners, ensemble.gain)
        cover = _add_by_owner(cover, owners, ensemble.cover)
    importances = _compute_library_importances(source, forests, splits, gain)

    def to_list(numbers: Array | None) -> Sequence[float | None]:
        return [None] * input_count if numbers is None else numbers.astype(float).tolist()

    columns = (to_list(importances), splits.astype(int).tolist(), to_list(gain), to_list(cover))
    return [Importance(*row) for row in zip(program.inputs, *columns, strict=True)]


def _compute_library_importances(
    source: str, forests: list[tuple[Ensemble, Array]], splits: Array, gain: Array | None
) -> Array | None:
    """Return `feature_importances_` of the library, (inputs,), or None if unknown."""
    if source.startswith("lightgbm."):
        return splits
    if gain is None or len(forests) != 1:
        return None
    if source.startswith("xgboost."):  # XGBoost uses the mean gain of a split.
        return _normalize(np.divide(gain, splits, out=np.zeros(gain.size), where=splits > 0))
    if not source.startswith(("sklearn.ensemble.", "sklearn.tree.")) or "hist_gradient" in source:
        return None
    ((ensemble, column_owners),) = forests
    assert ensemble.gain is not None
    gain_by_tree = np.zeros((ensemble.trees, gain.size))
    tree_and_input = (ensemble.node_roots(), column_owners[ensemble.feature])
    np.add.at(gain_by_tree, tree_and_input, ensemble.gain.astype(np.float64))
    if "GradientBoosting" in source:  # scikit-learn's `_gb.py` uses shares of the total decrease.
        if ensemble.cover is not None:
            has_root = ensemble.roots >= 0
            gain_by_tree[has_root] /= ensemble.cover[ensemble.roots[has_root], None]
        return _normalize(gain_by_tree.sum(axis=0))
    # scikit-learn's `_forest.py` uses the mean of the trees' shares.
    shares = [_normalize(tree) for tree in gain_by_tree if tree.sum() > 0]
    return _normalize(np.mean(shares, axis=0)) if shares else gain_by_tree.sum(axis=0)


def _normalize(numbers: Array) -> Array:
    total = numbers.sum()
    return numbers / total if total > 0 else numbers


def _add_by_owner(total: Array | None, owner: Array, values: Array | None) -> Array | None:
    if total is None or values is None:
        return None
    return total + np.bincount(owner, values.astype(np.float64), minlength=total.size)


@dataclass(frozen=True, slots=True)
class Weight:
    """The weight of one column for one output of a linear model.

    The intercept has no `feature`. If an input was encoded into several columns, `column` is a
    category, a word, `MISSING`, or the 1-based number of the column.
    """

    feature: str | None
    column: str | None
    output: int
    weight: float


def read_weights(program: Program) -> list[Weight] | None:
    """Return the weights of the linear model of the explained output, or None for other models."""
    node = find_last_sum(program)
    columns = None if node is None else find_columns(program, node.inputs[0])
    if node is None or columns is None:
        return None
    rows = []
    for output in range(node.attrs["weights"].shape[1]):
        rows.append(Weight(None, None, output, float(node.attrs["bias"][output])))
        weights = node.attrs["weights"][:, output].tolist()
        rows += [Weight(*column, output, w) for column, w in zip(columns, weights, strict=True)]
    return rows


def find_columns(program: Program, i: int) -> list[tuple[str, str | None]] | None:
    """Return the input of each column of node i, and the column as in `Weight`.

    Return None if a column depends on several inputs or on none.
    """
    inputs, owners, names = (
        list(program.inputs),
        find_owners(program)[i],
        find_column_names(program, i),
    )
    if (owners < 0).any():
        return None
    is_unnamed = np.array([name is None for name in names], bool)
    counts = np.bincount(owners[is_unnamed], minlength=len(inputs))
    for j in np.flatnonzero(is_unnamed & (counts[owners] > 1)).tolist():
        names[j] = str(int((is_unnamed[: j + 1] & (owners[: j + 1] == owners[j])).sum()))
    return [(inputs[k], name) for k, name in zip(owners.tolist(), names, strict=True)]


def find_last_sum(program: Program) -> Node | None:
    """Return the weighted sum from which only links and casts lead to the output, or None."""
    output_name = find_explained_output(program)
    index = None if output_name is None else program.outputs[output_name]
    while index is not None:
        node = program.nodes[index]
        if node.op == "linear":
            return node
        rowwise_inputs = [j for j in node.inputs if program.nodes[j].type.rowwise]
        can_follow = node.op in (*LINKS, "cast", "select") and len(rowwise_inputs) == 1
        index = rowwise_inputs[0] if can_follow else None
    return None


MISSING = "missing"
"""The name of a column that is 1 where the input is missing."""


def find_column_names(program: Program, i: int) -> list[str | None]:
    """Return the category, the word, MISSING or None that each column of node i represents."""
    node = program.nodes[i]
    if node.op == "concat":
        return [name for j in node.inputs for name in find_column_names(program, j)]
    if node.op == "select":
        source_names = find_column_names(program, node.inputs[0])
        return [source_names[int(k)] for k in node.attrs["indices"]]
    if node.op == "one_hot":
        return _name_one_hot_columns(program, node)
    if node.op in ("count_tokens", "has_items"):
        text, ends = node.attrs["words"].tobytes(), node.attrs["ends"].tolist()
        return [text[start:stop].decode("utf-8", "replace") for start, stop in pairwise([0, *ends])]
    if node.op == "isnan":
        return [MISSING] * node.type.width
    if node.inputs:
        source_type = program.nodes[node.inputs[0]].type
        if source_type.rowwise and source_type.shape == node.type.shape:
            return find_column_names(program, node.inputs[0])
    return [None] * node.type.width


def _name_one_hot_columns(program: Program, node: Node) -> list[str | None]:
    encoder, width = program.nodes[node.inputs[0]], node.type.width
    while encoder.op not in ("encode", "input") and encoder.inputs:
        encoder = program.nodes[encoder.inputs[0]]
    if encoder.op != "encode":
        return [None] * width
    names: list[str | None] = [str(value) for value in encoder.attrs["categories"].tolist()]
    if encoder.attrs["missing"] == len(names):
        names.append("NULL")
    return names if len(names) == width else [None] * width


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A node of a decision tree; number 0 is the root. A leaf has `values` instead of a test.

    `output` is the first output to which the tree adds values. `column` is as in `Weight`.
    `operator` is "<" or "<=" with a threshold, or "in" with category codes. `yes`, `no` and
    `missing` are the children for rows that pass the test, fail the test, or lack the value.
    `leaf` is the number by which the library calls the leaf, if it is known.
    """

    node: int
    depth: int
    output: int
    feature: str | None = None
    column: str | None = None
    operator: str | None = None
    threshold: float | None = None
    categories: tuple[str, ...] | None = None
    yes: int | None = None
    no: int | None = None
    missing: int | None = None
    cover: float | None = None
    gain: float | None = None
    values: tuple[float, ...] | None = None
    leaf: int | None = None


def count_trees(program: Program) -> int:
    return sum(Ensemble.of(n.attrs).trees for n in program.nodes if n.op == "tree_ensemble")


def list_tree_nodes(program: Program, tree: int) -> list[TreeNode]:
    """Return the nodes of a tree level by level; `tree` counts from 0 over all ensembles."""
    for node in program.nodes:
        if node.op != "tree_ensemble":
            continue
        ensemble = Ensemble.of(node.attrs)
        if tree < ensemble.trees:
            return _list_tree_nodes(program, node.inputs[0], ensemble, tree)
        tree -= ensemble.trees
    return []


def _list_tree_nodes(program: Program, i: int, ensemble: Ensemble, tree: int) -> list[TreeNode]:
    owners, names = find_owners(program)[i], find_column_names(program, i)
    inputs, nodes = list(program.inputs), list[TreeNode]()
    pending, numbers = [(int(ensemble.roots[tree]), 0)], {int(ensemble.roots[tree]): 0}
    for index, depth in pending:
        common_fields: dict[str, Any] = {"depth": depth, "output": int(ensemble.target[tree])}
        if index < 0:
            values = tuple(ensemble.leaf_values[~index].astype(np.float64).tolist())
            cover = None if ensemble.leaf_cover is None else float(ensemble.leaf_cover[~index])
            leaf = None if ensemble.leaf_number is None else int(ensemble.leaf_number[~index])
            common_fields |= {"cover": cover, "values": values, "leaf": leaf}
            nodes.append(TreeNode(numbers[index], **common_fields))
            continue
        for child in (int(ensemble.left[index]), int(ensemble.right[index])):
            numbers[child] = len(numbers)
            pending.append((child, depth + 1))
        column = int(ensemble.feature[index])
        is_set = ensemble.categorical is not None and bool(ensemble.categorical[index])
        members = map(str, ensemble.set_members(index).tolist()) if is_set else ()
        yes, no = numbers[int(ensemble.left[index])], numbers[int(ensemble.right[index])]
        nodes.append(
            TreeNode(
                numbers[index],
                feature=inputs[owners[column]] if owners[column] >= 0 else None,
                column=names[column],
                operator="in" if is_set else "<" if ensemble.compare == "lt" else "<=",
                threshold=None if is_set else float(ensemble.threshold[index]),
                categories=tuple(members) if is_set else None,
                yes=yes,
                no=no,
                missing=yes if ensemble.default_left[index] else no,
                cover=None if ensemble.cover is None else float(ensemble.cover[index]),
                gain=None if ensemble.gain is None else float(ensemble.gain[index]),
                **common_fields,
            )
        )
    return nodes
