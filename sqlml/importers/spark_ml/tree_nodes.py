"""`TreeNodes`: the trees of a model as the table that Spark saves, checked, and as an Ensemble.

A row goes left at a split of numbers when `feature <= threshold`, so NaN goes right
(`ContinuousSplit` in `org/apache/spark/ml/tree/Split.scala`). At a split of categories Spark keeps
the smaller of the two sets, and a value that is in neither (NaN, a code beyond them, no integer)
goes the way of the larger one (`CategoricalSplit`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sqlml.errors import ArtifactError, ProgramError
from sqlml.importers.claimed_sizes import MAX_FEATURES
from sqlml.ir.trees import Ensemble, RawTrees, ensemble
from sqlml.types import Array

MAX_CATEGORIES = 1 << 27
"""Most categories that all splits of a model together may speak of."""


@dataclass(frozen=True, slots=True, eq=False)
class TreeNodes:
    """The N nodes of T trees, concatenated, in the order of Spark's numbers.

    tree, left, right, feature and categories are int64 (N,), prediction float64 (N,), stats
    float64 (N, K): what reached the node. `left` and `right` are numbers in the same tree, -1 at a
    leaf; `categories` is -1 at a split of numbers. The threshold of node i, or the categories that
    go left, are `split_values[split_begin[i]:split_begin[i + 1]]`.
    """

    tree: Array
    prediction: Array
    stats: Array
    left: Array
    right: Array
    feature: Array
    categories: Array
    split_begin: Array
    split_values: Array
    trees: int

    def ensemble(self, values: Array, features: int) -> Ensemble:
        """The trees with `values` (N, V) at their leaves, whose sum starts from 0.

        Raises:
            ArtifactError: what no fit of Spark makes.
        """
        raw = self._raw(features)
        try:
            made = ensemble(
                replace(raw, value=values),
                target=np.zeros(self.trees, np.int32),
                base=np.zeros(values.shape[1]),
                compare="le",
            )
        except ProgramError as error:
            raise _damaged(str(error)) from None
        if made.nodes + made.leaf_values.shape[0] != self.tree.size:
            raise _damaged("a node has no parent")
        return made

    @property
    def categorical(self) -> Array:
        """The columns that are tested for membership in a set."""
        return np.unique(self.feature[(self.left >= 0) & (self.categories >= 0)])

    def _raw(self, features: int) -> RawTrees:
        leaf = self.left < 0
        if (leaf != (self.right < 0)).any():
            raise _damaged("a node has one child")
        sizes = np.bincount(self.tree, minlength=self.trees)
        if (sizes == 0).any():
            raise _damaged("a tree has no node")
        first = np.cumsum(sizes) - sizes
        for child in (self.left, self.right):
            if (child[~leaf] >= sizes[self.tree][~leaf]).any():
                raise _damaged("a child belongs to no tree")
        if features > MAX_FEATURES or (self.feature[~leaf] >= features).any():
            raise _damaged("a split reads a column that does not exist")
        if (self.feature[~leaf] < 0).any():
            raise _damaged("a split has no column")
        shift = first[self.tree]
        left = np.where(leaf, 0, self.left + shift)
        right = np.where(leaf, 0, self.right + shift)
        numeric = ~leaf & (self.categories < 0)
        counts = np.diff(self.split_begin)
        if (counts[numeric] != 1).any():
            raise _damaged("a numeric split does not have exactly one threshold")
        threshold = np.zeros(leaf.size)
        threshold[numeric] = self.split_values[self.split_begin[:-1][numeric]]
        if not np.isfinite(threshold).all():
            raise _damaged("a threshold is not finite")
        sets, swapped = self._sets(~leaf & (self.categories >= 0))
        return RawTrees(
            roots=first,
            feature=np.where(leaf, 0, self.feature),
            threshold=threshold,
            left=np.where(swapped, right, left),
            right=np.where(swapped, left, right),
            leaf=leaf,
            default_left=np.zeros(leaf.size, bool),
            value=np.zeros((leaf.size, 1)),
            sets=sets or None,
        )

    def _sets(self, categorical: Array) -> tuple[dict[int, Array], Array]:
        """The smaller set of each split of categories, and where that is of those that go right."""
        sets: dict[int, Array] = {}
        swapped = np.zeros(categorical.size, bool)
        numbers_too = np.intersect1d(
            self.feature[categorical], self.feature[(self.left >= 0) & ~categorical]
        )
        if numbers_too.size:
            raise _damaged(f"column {numbers_too[0]} is split as numbers and as categories")
        if int(self.categories[categorical].sum()) > MAX_CATEGORIES:
            raise _damaged("its splits have more categories than sqlml reads")
        for i in np.flatnonzero(categorical).tolist():
            count = int(self.categories[i])
            members = self.split_values[self.split_begin[i] : self.split_begin[i + 1]]
            whole = (members >= 0) & (members < count) & (members == np.floor(members))
            codes = np.unique(members.astype(np.int64)) if whole.all() else members[:0]
            if codes.size != members.size:
                raise _damaged("a split reads categories that do not exist")
            swapped[i] = codes.size > count // 2
            if swapped[i]:
                codes = np.setdiff1d(np.arange(count, dtype=np.int64), codes)
            sets[i] = codes
        return sets, swapped


def _damaged(what: str) -> ArtifactError:
    return ArtifactError(f"the trees of the Spark model are damaged: {what}")
