"""Trees as rows of a table of PostgreSQL, and the expression that walks them.

A row is a part of a tree: a binary heap of a few levels, in which node k has the children 2k and
2k + 1. One expression walks the levels of any part, so the text of a query does not grow with the
number of trees. Leaves above the last level are repeated there. So all parts have the same size and
are walked without branches, as in the perfect tree traversal of Hummingbird (section 4.1).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from sqlml.backends.sql.expression import Value
from sqlml.backends.sql.layers import Verbatim
from sqlml.errors import BackendError
from sqlml.ir.trees import Ensemble
from sqlml.planner.databases.targets import Database
from sqlml.planner.databases.transpiled import transpile

MOST_LEVELS = 7  # Of a part.
LEAF = -1  # The number of the next part below a leaf.
BASE = -1  # The number of the tree that is added first: the initial value of all sums.


@dataclass(slots=True)
class TreeTable:
    """The table, by its quoted `name`, and the rows that are inserted into it."""

    name: str
    database: Database
    rows: list[str] = field(default_factory=list)
    ensembles: int = 0

    def walk(self, e: Ensemble, x: Value) -> Verbatim:
        """Return the array of the sums of an ensemble's leaves, as an expression over columns."""
        values = e.leaf_values.shape[1]
        _check_trees(e, values)
        rounds = max(1, math.ceil(e.depth / MOST_LEVELS))
        levels = max(1, math.ceil(e.depth / rounds))
        features, texts = _collect_features(e, x, self.database)
        number, self.ensembles = self.ensembles, self.ensembles + 1
        base, width = e.base.tolist(), (1 << levels)
        for target in range(0, len(base), values):
            part = _Part(target, values, width)
            part.value[:] = base[target : target + values]
            self.rows.append(part.row(number, BASE - target, 0))
        for tree, root in enumerate(e.roots.tolist()):
            parts = _split_tree(e, root, int(e.target[tree]), levels, features)
            self.rows += [part.row(number, tree, k) for k, part in enumerate(parts)]
        walk = _Walk(self.name, number, levels, rounds, values, len(base), e.compare)
        return Verbatim(walk.query(texts, "real" if e.base.dtype == np.float32 else ""))

    def statements(self) -> str:
        if not self.rows:
            raise BackendError("the model has no trees; write FORM select, view or function")
        columns = (
            "ensemble integer, tree integer, part integer, target integer, feature integer[], "
            "threshold double precision[], value double precision[], next integer[], "
            "PRIMARY KEY (ensemble, tree, part)"
        )
        rows = ",\n".join(self.rows)
        return (
            f"CREATE TABLE {self.name} ({columns});\n\n"
            f"INSERT INTO {self.name} VALUES\n{rows};\n\n"
            f"ANALYZE {self.name};\n"
        )


class _Part:
    """A row of the table: the tests of its nodes, and the values or parts below its last level."""

    def __init__(self, target: int, values: int, width: int) -> None:
        self.target = target
        self.feature = [1] * (width - 1)
        self.threshold = [0.0] * (width - 1)
        self.value = np.zeros((width, values))
        self.next = [LEAF] * width

    def row(self, ensemble: int, tree: int, part: int) -> str:
        arrays = (self.feature, self.threshold, self.value.ravel().tolist(), self.next)
        texts = ", ".join(f"'{{{','.join(map(repr, array))}}}'" for array in arrays)
        return f"({ensemble}, {tree}, {part}, {self.target}, {texts})"


def _check_trees(e: Ensemble, values: int) -> None:
    if e.has_categories or (e.categorical is not None and e.categorical.any()):
        raise BackendError(
            "FORM nodes does not take trees that test sets of categories; write FORM view"
        )
    below_all = np.isneginf(e.threshold) & e.default_left & (e.compare == "lt")
    if np.isnan(e.threshold).any() or below_all.any():
        raise BackendError(
            "FORM nodes does not take trees whose thresholds are NaN or -infinity; write FORM view"
        )
    if values > 1 and (values != len(e.base) or e.target.any()):
        raise BackendError(
            "FORM nodes does not take trees for some of several targets; write FORM view"
        )


def _collect_features(
    e: Ensemble, x: Value, database: Database
) -> tuple[dict[tuple[int, bool], int], str]:
    """Return the array of the features that an ensemble reads, and the position of each in it.

    A feature has two positions if missing values go left at some nodes and right at others: missing
    values become -infinity or NaN, which PostgreSQL orders above all numbers.
    """
    keys = sorted({(int(f), bool(d)) for f, d in zip(e.feature, e.default_left, strict=True)})
    items = []
    for feature, left in keys:
        missing = "'-infinity'" if left else "'NaN'"
        items.append(f"coalesce({transpile(x[feature].sql, database)}, {missing}::float8)")
    positions = {key: k for k, key in enumerate(keys, 1)}
    return positions, f"ARRAY[{', '.join(items)}]::float8[]"


def _split_tree(
    e: Ensemble, root: int, target: int, levels: int, positions: dict[tuple[int, bool], int]
) -> Iterator[_Part]:
    """Yield the parts of a tree, that with the root first; `next` holds indices of this order."""
    tops, width = [root], 1 << levels
    for top in tops:  # The list grows while it is read.
        part = _Part(target, e.leaf_values.shape[1], width)
        pending = [(top, 1, 0)]
        while pending:
            node, position, level = pending.pop()
            below = levels - level
            slots = slice((position << below) - width, ((position + 1) << below) - width)
            if node < 0:
                part.value[slots] = e.leaf_values[~node]
            elif not below:
                part.next[position - width] = len(tops)
                tops.append(node)
            else:
                key = int(e.feature[node]), bool(e.default_left[node])
                part.feature[position - 1] = positions[key]
                part.threshold[position - 1] = float(e.threshold[node])
                pending += [
                    (int(e.left[node]), 2 * position, level + 1),
                    (int(e.right[node]), 2 * position + 1, level + 1),
                ]
        yield part


@dataclass(frozen=True, slots=True)
class _Walk:
    """The query that walks the rows of an ensemble for one row of numbers."""

    table: str
    ensemble: int
    levels: int
    rounds: int
    values: int
    outputs: int
    compare: str

    def query(self, numbers: str, type: str) -> str:
        """Return the array of sums, which are computed in `type` (float8 by default)."""
        sums = ", ".join(self._sum_output(k, type) for k in range(self.outputs))
        row = f"(SELECT {numbers} AS x OFFSET 0) AS r"
        relation = f"{row} CROSS JOIN {self.table} AS p1 CROSS JOIN {self._lateral_slot(1)}"
        for n in range(2, self.rounds + 1):
            same_tree = f"p{n}.ensemble = p1.ensemble AND p{n}.tree = p1.tree"
            relation += (
                f" LEFT JOIN {self.table} AS p{n} ON {same_tree} "
                f"AND p{n}.part = p{n - 1}.next[s{n - 1}.slot] CROSS JOIN {self._lateral_slot(n)}"
            )
        where = f"p1.ensemble = {self.ensemble} AND p1.part = 0"
        return f"(SELECT ARRAY[{sums}] FROM {relation} WHERE {where})"

    def _lateral_slot(self, n: int) -> str:
        return f"LATERAL (SELECT {self._find_slot(f'p{n}', 1, 0)} AS slot OFFSET 0) AS s{n}"

    def _find_slot(self, part: str, at: int, level: int) -> str:
        """Return the position, from 1, that a row reaches below a part's last level."""
        if level == self.levels:
            return str(at - (1 << self.levels) + 1)
        left, right = (self._find_slot(part, below, level + 1) for below in (2 * at, 2 * at + 1))
        symbol = "<" if self.compare == "lt" else "<="
        test = f"r.x[{part}.feature[{at}]] {symbol} {part}.threshold[{at}]"
        return f"CASE WHEN {test} THEN {left} ELSE {right} END"

    def _sum_output(self, output: int, type: str) -> str:
        """Return the sum of one output, in the order of the trees."""
        offset = f"{self.values} * (s@.slot - 1) + {output + 1}"
        index = offset if self.values > 1 else "s@.slot"
        values = [f"p@.value[{index}]".replace("@", str(n + 1)) for n in range(self.rounds)]
        whens = "".join(
            f"WHEN p{n}.next[s{n}.slot] = {LEAF} THEN {value} "
            for n, value in enumerate(values[:-1], 1)
        )
        value = f"CASE {whens}ELSE {values[-1]} END" if whens else values[-1]
        typed = f"({value})::{type}" if type else value
        condition = f" FILTER (WHERE p1.target = {output})" if self.values < self.outputs else ""
        return f"CAST(sum({typed} ORDER BY p1.tree){condition} AS float8)"
