"""Facts about the features that a Program contains: their values in training, their importance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sqlml.explaining.owners import find_owners
from sqlml.ir.program import Node, Program
from sqlml.ir.trees import Ensemble
from sqlml.types import Array


@dataclass(frozen=True, slots=True)
class FeatureFacts:
    """Training-time facts about one input; None where they are unknown.

    Attributes:
        feature: the name of the input.
        kind: "number", "string" or another feature kind.
        categories: the number of categories that an encoder knows.
    """

    feature: str
    kind: str
    least: float | None = None
    most: float | None = None
    mean: float | None = None
    stddev: float | None = None
    categories: int | None = None


def feature_facts(program: Program) -> list[FeatureFacts]:
    """Return one entry per input, in order, from what the steps of the model learned.

    Sources are the categories of encoders, the means and deviations of a StandardScaler, and the
    least and greatest numbers that LightGBM stores.
    """
    kinds = {feature.name: feature.kind for feature in program.features}
    facts = [FeatureFacts(name, kinds.get(name, "number")) for name in program.inputs]
    owner = find_owners(program)
    for node in program.nodes:
        for name, values, columns in _facts_of_node(program, node):
            for column, value in zip(columns, values, strict=True):
                k = int(owner[column[0]][column[1]])
                if k >= 0 and getattr(facts[k], name) is None:
                    facts[k] = replace(facts[k], **{name: value})
    return facts


Facts = list[tuple[str, Sequence[Any], Sequence[tuple[int, int]]]]
"""Facts by name: the values, and the node and column that each is about."""


def _facts_of_node(program: Program, node: Node) -> Facts:
    """Return the facts that a node has about columns that are still original features."""
    if node.op == "encode":
        return [("categories", [len(node.attrs["categories"])], [(node.inputs[0], 0)])]
    if node.op in ("sub", "div"):
        return _facts_of_scaler(program, node)
    if node.op == "tree_ensemble":
        ensemble, input_index = Ensemble.of(node.attrs), node.inputs[0]
        if ensemble.input_least is None or not _has_original_features(program, input_index):
            return []
        columns = [(input_index, j) for j in range(len(ensemble.input_least))]
        bounds = (("least", ensemble.input_least), ("most", ensemble.input_most))
        return [(name, _numbers(values), columns) for name, values in bounds if values is not None]
    return []


def _facts_of_scaler(program: Program, node: Node) -> Facts:
    """Return the means that a StandardScaler subtracts, or the deviations that it divides by."""
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
    return [(name, _numbers(values), [(index, j) for j in range(len(values))])]


def _has_original_features(program: Program, index: int) -> bool:
    """Return whether a node has the features unchanged, apart from checks and imputation."""
    node = program.nodes[index]
    if node.op == "input":
        return True
    passes_through = node.op in ("require_finite", "impute", "concat", "select", "cast")
    return passes_through and all(_has_original_features(program, k) for k in node.inputs)


def _numbers(values: Array) -> list[float | None]:
    """Convert to floats, with None for NaN."""
    return [None if np.isnan(v) else float(v) for v in values]


@dataclass(frozen=True, slots=True)
class Importance:
    """The importance of one input in a tree model.

    Attributes:
        own: the library's `feature_importances_` (LightGBM's default: by splits); None if the
            Program lacks the statistics, or the model is a pipeline.
        splits: the number of tree tests that read the input.
        gain, cover: their total gain and cover; None if the Program lacks these.
    """

    feature: str
    library_importance: float | None
    splits: int
    gain: float | None
    cover: float | None


def importances(program: Program, source: str) -> list[Importance] | None:
    """Return one entry per input, in order, computed as the library does.

    This follows XGBoost's `get_score`, LightGBM's `feature_importance` and scikit-learn's
    `feature_importances_`. Columns that belong to one input, such as its categories, are added up.

    Args:
        source: the class of the fitted object.

    Returns:
        None for a model without trees, or with columns that depend on several inputs.
    """
    forests = list(_find_forests(program))
    if not forests:
        return None
    input_count = len(program.inputs)
    splits = np.zeros(input_count)
    gain: Array | None = np.zeros(input_count)
    cover: Array | None = np.zeros(input_count)
    for e, owner in forests:
        owners = owner[e.feature]
        if (owners < 0).any():
            return None
        splits += np.bincount(owners, minlength=input_count)
        gain = _add_by_owner(gain, owners, e.gain)
        cover = _add_by_owner(cover, owners, e.cover)
    library_importances = _compute_library_importances(program, source, forests, splits, gain)
    return [
        Importance(
            name,
            None if library_importances is None else float(library_importances[k]),
            int(splits[k]),
            None if gain is None else float(gain[k]),
            None if cover is None else float(cover[k]),
        )
        for k, name in enumerate(program.inputs)
    ]


def _compute_library_importances(
    program: Program,
    source: str,
    forests: list[tuple[Ensemble, Array]],
    splits: Array,
    gain: Array | None,
) -> Array | None:
    """Return the library's `feature_importances_`, (inputs,), or None."""
    if source.startswith("lightgbm."):
        return splits
    if gain is None or len(forests) != 1:
        return None
    if source.startswith("xgboost."):  # the mean gain of a split
        return _normalize(np.divide(gain, splits, out=np.zeros(gain.size), where=splits > 0))
    if not source.startswith(("sklearn.ensemble.", "sklearn.tree.")) or "hist_gradient" in source:
        return None
    ((e, owner),) = forests
    assert e.gain is not None
    gain_by_tree = np.zeros((e.trees, gain.size))
    np.add.at(gain_by_tree, (e.node_roots(), owner[e.feature]), e.gain.astype(np.float64))
    if "GradientBoosting" in source:  # `_gb.py`: shares of the total decrease
        if e.cover is not None:
            roots = e.roots >= 0
            gain_by_tree[roots] /= e.cover[e.roots[roots], None]
        return _normalize(gain_by_tree.sum(axis=0))
    trees_with_gain = gain_by_tree[
        gain_by_tree.sum(axis=1) > 0
    ]  # `_forest.py`: the mean of the trees' shares
    return (
        _normalize(np.mean([_normalize(tree) for tree in trees_with_gain], axis=0))
        if len(trees_with_gain)
        else gain_by_tree.sum(0)
    )


def _normalize(numbers: Array) -> Array:
    total = numbers.sum()
    return numbers / total if total > 0 else numbers


def _add_by_owner(total: Array | None, owner: Array, values: Array | None) -> Array | None:
    if total is None or values is None:
        return None
    return total + np.bincount(owner, values.astype(np.float64), minlength=total.size)


def _find_forests(program: Program) -> Iterator[tuple[Ensemble, Array]]:
    known = find_owners(program)
    for node in program.nodes:
        if node.op == "tree_ensemble":
            yield Ensemble.of(node.attrs), known[node.inputs[0]]
