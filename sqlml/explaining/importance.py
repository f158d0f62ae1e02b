"""`importances`: what a model by itself says of how much it uses each input.

The library's own numbers, where the Program has what they are made of: splits, gains and covers of
trees (XGBoost's `get_score`, LightGBM's `feature_importance`, scikit-learn's
`feature_importances_`). What belongs to one input is added up: the columns of its categories, say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sqlml.explaining.owners import owners
from sqlml.ir.program import Program
from sqlml.ir.trees import Ensemble
from sqlml.types import Array


@dataclass(frozen=True, slots=True)
class Importance:
    """Of one input: how many tests of trees read it, and what these improved and covered together.

    `own` is the library's `feature_importances_` (of LightGBM by splits), for a model that is no
    pipeline. It is None, and so are `gain` and `cover`, where
    the Program does not have what it is made of.
    """

    feature: str
    own: float | None
    splits: int
    gain: float | None
    cover: float | None


def importances(program: Program, source: str) -> list[Importance] | None:
    """One for each input, in their order; None for a model without trees whose columns are made of
    one input each.

    Args:
        source: the class of the fitted object.
    """
    found = list(_forests(program))
    if not found:
        return None
    players = len(program.inputs)
    splits = np.zeros(players)
    gain: Array | None = np.zeros(players)
    cover: Array | None = np.zeros(players)
    for e, owner in found:
        reads = owner[e.feature]
        if (reads < 0).any():
            return None
        splits += np.bincount(reads, minlength=players)
        gain = _added(gain, reads, e.gain)
        cover = _added(cover, reads, e.cover)
    own = _own(program, source, found, splits, gain)
    return [
        Importance(
            name,
            None if own is None else float(own[k]),
            int(splits[k]),
            None if gain is None else float(gain[k]),
            None if cover is None else float(cover[k]),
        )
        for k, name in enumerate(program.inputs)
    ]


def _own(
    program: Program,
    source: str,
    found: list[tuple[Ensemble, Array]],
    splits: Array,
    gain: Array | None,
) -> Array | None:
    """The library's `feature_importances_`, (inputs,)."""
    if source.startswith("lightgbm."):
        return splits
    if gain is None or len(found) != 1:
        return None
    if source.startswith("xgboost."):  # the mean gain of a split
        return _shares(np.divide(gain, splits, out=np.zeros(gain.size), where=splits > 0))
    if not source.startswith(("sklearn.ensemble.", "sklearn.tree.")) or "hist_gradient" in source:
        return None
    ((e, owner),) = found
    assert e.gain is not None
    each = np.zeros((e.trees, gain.size))
    np.add.at(each, (e.node_roots(), owner[e.feature]), e.gain.astype(np.float64))
    if "GradientBoosting" in source:  # `_gb.py`: shares of the whole decrease
        if e.cover is not None:
            roots = e.roots >= 0
            each[roots] /= e.cover[e.roots[roots], None]
        return _shares(each.sum(axis=0))
    kept = each[each.sum(axis=1) > 0]  # `_forest.py`: the mean of the trees' shares
    return _shares(np.mean([_shares(tree) for tree in kept], axis=0)) if len(kept) else each.sum(0)


def _shares(numbers: Array) -> Array:
    total = numbers.sum()
    return numbers / total if total > 0 else numbers


def _added(total: Array | None, owner: Array, numbers: Array | None) -> Array | None:
    if total is None or numbers is None:
        return None
    return total + np.bincount(owner, numbers.astype(np.float64), minlength=total.size)


def _forests(program: Program) -> Iterator[tuple[Ensemble, Array]]:
    """The sums of trees, with the owner of each of their columns."""
    known = owners(program)
    for node in program.nodes:
        if node.op == "tree_ensemble":
            yield Ensemble.of(node.attrs), known[node.inputs[0]]
