"""`Binned`: the node tests of an Ensemble as comparisons of small integers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sqlml.backends.native.trees.ranks import PAGE, Ranks, ranks
from sqlml.backends.native.trees.set_bins import SetBins, set_bins
from sqlml.ir.decisions import largest_below
from sqlml.ir.trees import Ensemble
from sqlml.types import Array

PanelArrays = tuple[tuple[Array, ...], tuple[Array, ...] | None]


@dataclass(frozen=True, slots=True, eq=False)
class Binned:
    """A row goes right at node i when its bin in panel column `slot[i]` is `rank[i]` or more.

    slot and rank are int64 (M,). The bins of numeric tests come from `tables` and are made of the
    ensemble's columns `columns` int64 (C,); those of `sets` follow them in the panel.
    """

    tables: Ranks
    columns: Array
    sets: SetBins
    slot: Array
    rank: Array

    @property
    def width(self) -> int:
        """Columns of a panel."""
        return self.tables.width + self.sets.begin.size

    def arrays(self, columns: Array | None) -> PanelArrays:
        """What `bins` reads, and what `fill_set_bins` does: None if there is no set.

        Column j of the ensemble's input is column `columns[j]` of the batch (default: j).
        """

        def read(own: Array) -> Array:
            return np.ascontiguousarray(own if columns is None else columns[own], np.int64)

        numbers = (read(self.columns), *self.tables.arrays())
        if not self.sets.begin.size:
            return numbers, None
        return numbers, (read(self.sets.columns), *self.sets.arrays())


def binned(e: Ensemble, paged: bool = False) -> Binned | None:
    """The tests of `e`, using only bytes if `paged`.

    None if a column has over 65,535 thresholds or a set is too large.
    """
    sets = set_bins(e)
    if sets is None:
        return None
    numeric = sets.of_node < 0
    at_most = e.threshold if e.compare == "le" else largest_below(e.threshold)
    used = np.unique(e.feature[numeric])
    column = np.searchsorted(used, e.feature)
    never = np.isnan(at_most)  # only NaN goes left there
    nodes_of = np.split(
        np.argsort(np.where(numeric, column, used.size), kind="stable"),
        np.cumsum(np.bincount(column[numeric], minlength=used.size)),
    )[: used.size]
    thresholds = [np.unique(at_most[nodes][~never[nodes]]) for nodes in nodes_of]
    rank = np.ones(e.nodes, np.int64)
    for own, nodes in zip(thresholds, nodes_of, strict=True):
        found = np.searchsorted(own, at_most[nodes], side="left") + 1
        rank[nodes] = np.where(never[nodes], 0, found)
    gone = [_of_nan(rank[nodes], e.default_left[nodes]) for nodes in nodes_of]
    twice = np.array([bin is None for bin in gone], bool)
    shifted = np.array([(e.default_left & never)[nodes].any() for nodes in nodes_of], bool)
    tables = ranks(
        thresholds,
        gone=np.array([c.size if b is None else b for c, b in zip(thresholds, gone, strict=True)]),
        least=twice,
        shifted=twice & shifted,
        kind=at_most.dtype,
        paged=paged,
    )
    if tables is None:
        return None
    slot = tables.width + sets.of_node
    for c, nodes in enumerate(nodes_of):
        in_least = e.default_left[nodes] & twice[c]
        rank[nodes] += tables.shift[c] * in_least
        slot[nodes] = np.where(in_least, tables.least[c], tables.high[c])
    if paged:
        page = np.where(numeric, np.maximum(rank - 1, 0) // PAGE, 0)
        slot, rank = slot + page, rank - PAGE * page
    return Binned(tables, used.astype(np.int64), sets, slot, rank)


def _of_nan(rank: Array, goes_left: Array) -> int | None:
    """A bin that every node sends the same way as NaN; None if there is none.

    For features without missing values in training, some libraries send NaN with zero, or with the
    most rows.
    """
    bin = int(rank[~goes_left].max(initial=0))
    return bin if bin < rank[goes_left].min(initial=np.iinfo(np.int64).max) else None
