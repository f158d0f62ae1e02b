"""`Columns`: what the nodes of an Ensemble test, as integers a row and a column.

A GPU reads few bytes fast and compares integers in any mode of its floats, so each value
becomes its rank among the thresholds that it is compared with: how many of them lie below it.
Then `y <= threshold` is `rank(y) <= rank(threshold)`, in integers and without loss (see
`ir/decisions.py` for y, which is x or minus x). NaN has a rank above all; a test that never holds
has rank -1. A feature with sets of categories has its code instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sqlml.errors import BackendError
from sqlml.ir.decisions import decisions
from sqlml.ir.trees import Ensemble
from sqlml.types import Array

NARROW = np.iinfo(np.int16).max
"""Columns, ranks and codes up to this fit 16 bits, and a node of a tree fits 32."""

MAX_EDGES = 1 << 28
"""Most thresholds, when all columns have as many as the one with the most."""

MAX_WORDS = 1 << 24
"""Most words of sets of categories, 4 bytes each, when all sets of a feature are equally long.

So no set has more than 2^29 codes, and a multiple of 32 up to that is exact in float32.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """C columns of rows, numeric ones and then categories, and how nodes test them.

    Of each column: its `feature`, int32, and whether it is `negated`, int8. A numeric column has
    `size` -1 and holds ranks among its `edges` (C, 2^steps - 1): its thresholds in order, filled up
    with infinity; NaN has rank `missing`. A column of categories holds trunc(x) for 0 <= x < size
    (int32), size for other numbers, and size + 1 for NaN.
    Of each inner node, int64 (M,): the column, and its `test`, a rank, or for `categorical` nodes
    (bool) the first word of its set in `words` (uint32), which has a bit for each code. `narrow`
    says that ranks, codes and columns fit 16 bits.
    """

    feature: Array
    negated: Array
    size: Array
    edges: Array
    steps: int
    column: Array
    test: Array
    categorical: Array
    words: Array
    narrow: bool

    @property
    def missing(self) -> int:
        """The rank of NaN."""
        return NARROW if self.narrow else int(np.iinfo(np.int32).max)


def columns(e: Ensemble) -> Columns:
    """The columns that the nodes of `e` test.

    Raises:
        BackendError: there would be more than MAX_EDGES or MAX_WORDS.
    """
    d = decisions(e)
    none = np.zeros(e.nodes, bool)
    categorical = none if e.categorical is None else e.categorical
    number = np.flatnonzero(~categorical)
    # Columns of x itself come first, then those of minus x.
    kinds, of_node = np.unique(
        d.negated[number].astype(np.int64) << 32 | d.feature[number], return_inverse=True
    )
    column, test = np.zeros((2, e.nodes), np.int64)
    column[number] = of_node
    own: list[Array] = []
    for j in range(kinds.size):
        nodes = number[of_node == j]
        thresholds = d.threshold[nodes]
        never = np.isnan(thresholds)
        own.append(np.unique(thresholds[~never]))
        test[nodes] = np.where(never, -1, np.searchsorted(own[-1], thresholds))
    longest = max((edges.size for edges in own), default=0)
    set_feature, set_size, words = _sets(e, column, test, kinds.size)
    feature = np.concatenate([kinds & 0xFFFFFFFF, set_feature])
    steps = longest.bit_length()
    # Thresholds of float16 are searched in float32, which is exact.
    wide = np.float64 if e.threshold.dtype == np.float64 else np.float32
    if feature.size << steps > MAX_EDGES:
        raise BackendError(
            f"strategy fused gives all {feature.size} columns as many thresholds as the one with "
            f"the most, {longest} (the limit is {MAX_EDGES} in all); use strategy='tt'"
        )
    edges = np.full((max(1, feature.size), (1 << steps) - 1), np.inf, wide)
    for row, values in zip(edges, own, strict=False):
        row[: values.size] = values
    largest = max(feature.size, longest, int(set_size.max(initial=0)) + 1)
    return Columns(
        feature=feature.astype(np.int32),
        negated=np.append(kinds >> 32, np.zeros(set_feature.size, np.int64)).astype(np.int8),
        size=np.append(np.full(kinds.size, -1), set_size).astype(np.int32),
        edges=edges,
        steps=steps,
        column=column,
        test=test,
        categorical=categorical,
        words=words,
        narrow=largest < NARROW,
    )


def _sets(e: Ensemble, column: Array, test: Array, numeric: int) -> tuple[Array, Array, Array]:
    """Fill in `column` and `test` of the categorical nodes: features, sizes and words."""
    nothing = np.zeros(0, np.int64)
    if e.categorical is None or e.set_offsets is None or e.set_words is None:
        return nothing, nothing, np.zeros(1, np.uint32)
    nodes = np.flatnonzero(e.categorical)
    features, of_node = np.unique(e.feature[nodes], return_inverse=True)
    counts = np.diff(e.set_offsets)[nodes].astype(np.int64)
    most = np.zeros(features.size, np.int64)
    np.maximum.at(most, of_node, counts)
    # One more word, for numbers that are not a category and for NaN.
    begin = np.concatenate([[0], np.cumsum(most[of_node] + 1)])
    if begin[-1] > MAX_WORDS:
        raise BackendError(
            f"strategy fused gives all sets of a feature the same length, and that is {begin[-1]} "
            f"words (the limit is {MAX_WORDS}); use strategy='tt'"
        )
    words = np.zeros(max(1, int(begin[-1])), np.uint32)
    for place, node in enumerate(nodes):
        first, stop = e.set_offsets[node], e.set_offsets[node + 1]
        words[begin[place] : begin[place] + counts[place]] = e.set_words[first:stop]
    words[begin[1:] - 1] = np.where(e.default_left[nodes], 2, 0)
    column[nodes], test[nodes] = numeric + of_node, begin[:-1]
    return features.astype(np.int64), 32 * most, words
