"""`NodeTests`: the tests of a tree_ensemble's nodes as tensor operators.

The three tree strategies differ in which nodes they test for a row; what a test is stands here.
Every comparison and every direction of NaN becomes one `le` (`ir/decisions.py`), on the columns
of x and of minus x side by side.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sqlml.ir.builder import Builder, Value
from sqlml.ir.decisions import decisions
from sqlml.ir.trees import Ensemble
from sqlml.types import Array


class NodeTests:
    """The nodes 0 .. M-1 of an ensemble, and node M that stands for no node.

    Where a test holds, a row goes on to `then`, else to `otherwise` (int64 (M+1,)), which count
    as `Ensemble.left` does. Arrays by node: feature int64, threshold; for categorical nodes their
    set is `members[begin + category]` for categories below size, and NaN reads
    `members[absent]`, whose first two entries are False and True.
    """

    def __init__(self, builder: Builder, x: Value, e: Ensemble) -> None:
        d = decisions(e)
        self.builder = builder
        self.ensemble = e
        self.then = np.append(d.then, 0).astype(np.int64)
        self.otherwise = np.append(d.otherwise, 0).astype(np.int64)
        self._dtype = e.threshold.dtype
        threshold = np.append(d.threshold, np.array([np.nan], self._dtype))
        feature = d.feature.astype(np.int64)
        if d.negated.any():
            minus = builder.op("neg", x)
            if not d.negated.all():
                feature = np.where(d.negated, feature + x.type.width, feature)
                minus = builder.op("concat", x, minus)
            x = minus
        self.x = x
        self._feature = np.append(feature, 0)
        self._arrays: tuple[Array, ...] = (threshold,)
        self._members: Value | None = None
        if e.has_categories:
            self._read_sets(e)

    def _read_sets(self, e: Ensemble) -> None:
        if e.categorical is None or e.set_offsets is None or e.set_words is None:
            raise AssertionError("an ensemble with categories must have their sets")
        bits = (e.set_words[:, None] >> np.arange(32, dtype=np.uint32)) & np.uint32(1)
        table = np.concatenate([[False, True], bits.ravel().astype(bool)])
        self._members = self.builder.constant(table)
        counts = 32 * np.diff(e.set_offsets.astype(np.int64))
        self._arrays += (
            np.append(2 + 32 * e.set_offsets[:-1].astype(np.int64), 0),
            np.append(counts, 0).astype(self._dtype),
            np.append(e.categorical & e.default_left, False).astype(np.int64),
        )

    def at(self, nodes: Array) -> Value:
        """bool (n, nodes.size): the same nodes for every row."""
        b = self.builder
        values = b.op("select", self.x, indices=self._feature[nodes])
        return self._decide(values, [b.constant(array[nodes]) for array in self._arrays])

    def table(self, nodes: Array) -> list[Value]:
        """What `nodes` test, as constant tables for `look_up`: features, then the parameters."""
        return [self.builder.constant(array[nodes]) for array in (self._feature, *self._arrays)]

    def look_up(self, table: Sequence[Value], index: Value) -> Value:
        """bool, in the shape of index (n, t): the node at each index of the table's."""
        b = self.builder
        feature, *parameters = table
        values = b.op("gather", self.x, b.op("take", feature, index))
        return self._decide(values, [b.op("take", part, index) for part in parameters])

    def _decide(self, values: Value, parameters: Sequence[Value]) -> Value:
        """Whether the tests hold; `parameters` are threshold, and of sets begin, size, absent."""
        b = self.builder
        threshold, *of_sets = parameters
        holds = b.op("le", values, threshold)
        if self._members is None:
            return holds
        begin, size, absent = of_sets
        zero = b.constant(np.zeros(1, self._dtype))
        none = b.constant(np.zeros(1, np.int64))
        inside = b.op("and", b.op("ge", values, zero), b.op("lt", values, size))
        code = b.op("cast", b.op("where", inside, values, zero), dtype="int64")
        missing = b.op("where", b.op("isnan", values), absent, none)
        place = b.op("where", inside, b.op("add", begin, code), missing)
        return b.op("or", holds, b.op("take", self._members, place))
