"""Trees as rows of a PostgreSQL table, and the expression that walks them.

A row is a part of a tree: a binary heap of a few levels, in which node k has the children 2k and
2k + 1. One expression walks the levels of any part, so the text of a query does not grow with the
number of trees. Leaves above the last level are repeated at that level. So all parts have the same
size and are walked without branches, like perfect trees in Hummingbird (section 4.1).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from sqlml.backends.sql.expression import Value
from sqlml.backends.sql.layers import VerbatimSql
from sqlml.errors import BackendError
from sqlml.ir.trees import Ensemble
from sqlml.planner.databases.targets import Database
from sqlml.planner.databases.transpiled import transpile

MAX_LEVELS = 7  # The maximum number of levels of a part.
NO_NEXT_PART = -1  # The index of the next part below a leaf.
BASE_TREE = -1  # The first index, counting down, of the rows that hold initial values of sums.


@dataclass(slots=True)
class TreeTable:
    """A table of all trees of a model: the quoted name and the SQL of the rows to insert."""

    name: str
    database: Database
    rows: list[str] = field(default_factory=list)
    num_ensembles: int = 0

    def add_ensemble(self, ensemble: Ensemble, x: Value) -> VerbatimSql:
        """Add the trees of `ensemble`, and return SQL for the array of their sums at `x`."""
        num_leaf_values = ensemble.leaf_values.shape[1]
        _reject_unsupported_trees(ensemble, num_leaf_values)
        num_rounds = max(1, math.ceil(ensemble.depth / MAX_LEVELS))
        num_levels = max(1, math.ceil(ensemble.depth / num_rounds))
        positions, feature_array = _collect_tested_features(ensemble, x, self.database)
        index = self.num_ensembles
        self.num_ensembles += 1
        base = ensemble.base.tolist()
        for target in range(0, len(base), num_leaf_values):
            part = _Part(target, num_leaf_values, 1 << num_levels)
            part.value[:] = base[target : target + num_leaf_values]
            self.rows.append(part.build_row(index, BASE_TREE - target, 0))
        for tree, root in enumerate(ensemble.roots.tolist()):
            parts = _split_tree(ensemble, root, int(ensemble.target[tree]), num_levels, positions)
            self.rows += [part.build_row(index, tree, k) for k, part in enumerate(parts)]
        walk = _Walk(
            self.name, index, num_levels, num_rounds, num_leaf_values, len(base), ensemble.compare
        )
        sum_type = "real" if ensemble.base.dtype == np.float32 else ""
        return VerbatimSql(walk.build_query(feature_array, sum_type))

    def build_statements(self) -> str:
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
    """A part of a tree, which is a row of the tree table.

    It holds the tests of its nodes. Below its last level, it holds leaf values and the indices of
    other parts.
    """

    def __init__(self, target: int, num_leaf_values: int, width: int) -> None:
        self.target = target
        self.feature = [1] * (width - 1)
        self.threshold = [0.0] * (width - 1)
        self.value = np.zeros((width, num_leaf_values))
        self.next = [NO_NEXT_PART] * width

    def build_row(self, ensemble_index: int, tree_index: int, part_index: int) -> str:
        arrays = (self.feature, self.threshold, self.value.ravel().tolist(), self.next)
        array_sql = ", ".join(f"'{{{','.join(map(repr, array))}}}'" for array in arrays)
        return f"({ensemble_index}, {tree_index}, {part_index}, {self.target}, {array_sql})"


def _reject_unsupported_trees(ensemble: Ensemble, num_leaf_values: int) -> None:
    threshold = ensemble.threshold
    unsupported = None
    never_goes_left = np.isneginf(threshold) & ensemble.default_left & (ensemble.compare == "lt")
    if ensemble.has_categories or (ensemble.categorical is not None and ensemble.categorical.any()):
        unsupported = "trees that test sets of categories"
    elif np.isnan(threshold).any() or never_goes_left.any():
        unsupported = "trees whose thresholds are NaN or -infinity"
    elif num_leaf_values > 1 and (num_leaf_values != len(ensemble.base) or ensemble.target.any()):
        unsupported = "trees for some of several targets"
    if unsupported is not None:
        raise BackendError(f"FORM nodes does not take {unsupported}; write FORM view")


def _collect_tested_features(
    ensemble: Ensemble, x: Value, database: Database
) -> tuple[dict[tuple[int, bool], int], str]:
    """Return the 1-based positions of the tested features in a SQL array, and the array's SQL.

    A position is keyed by the feature's index and by whether missing values go left. A missing
    value becomes -infinity to go left. To go right, it becomes NaN, which PostgreSQL orders above
    all numbers.
    """
    tests = zip(ensemble.feature, ensemble.default_left, strict=True)
    keys = sorted({(int(feature), bool(goes_left)) for feature, goes_left in tests})
    elements = []
    for feature, goes_left in keys:
        missing_sql = "'-infinity'" if goes_left else "'NaN'"
        elements.append(f"coalesce({transpile(x[feature].sql, database)}, {missing_sql}::float8)")
    return {key: k for k, key in enumerate(keys, 1)}, f"ARRAY[{', '.join(elements)}]::float8[]"


def _split_tree(
    ensemble: Ensemble,
    root: int,
    target: int,
    num_levels: int,
    positions: dict[tuple[int, bool], int],
) -> Iterator[_Part]:
    """Yield the parts of a tree, starting at the root, in the order of their indices."""
    part_roots = [root]
    width = 1 << num_levels
    for part_root in part_roots:  # The list grows while it is read.
        part = _Part(target, ensemble.leaf_values.shape[1], width)
        pending = [(part_root, 1, 0)]
        while pending:
            node, position, level = pending.pop()
            num_below = num_levels - level
            leaf_slots = slice(
                (position << num_below) - width, ((position + 1) << num_below) - width
            )
            if node < 0:
                part.value[leaf_slots] = ensemble.leaf_values[~node]
            elif not num_below:
                part.next[position - width] = len(part_roots)
                part_roots.append(node)
            else:
                key = int(ensemble.feature[node]), bool(ensemble.default_left[node])
                part.feature[position - 1] = positions[key]
                part.threshold[position - 1] = float(ensemble.threshold[node])
                pending += [
                    (int(ensemble.left[node]), 2 * position, level + 1),
                    (int(ensemble.right[node]), 2 * position + 1, level + 1),
                ]
        yield part


@dataclass(frozen=True, slots=True)
class _Walk:
    """A query that walks the trees of an ensemble in the tree table for one row of features."""

    table: str
    ensemble: int  # The index of the ensemble in the table.
    num_levels: int  # The number of levels of a part.
    num_rounds: int  # The maximum number of parts from the root of a tree to a leaf.
    num_leaf_values: int  # The number of values of a leaf.
    num_outputs: int
    compare: str  # "lt" if a value equal to the threshold goes right.

    def build_query(self, feature_array: str, sum_type: str) -> str:
        """Build the SQL of an array of sums of the type `sum_type`, or float8 if that is empty."""
        sums = ", ".join(self._build_sum(k, sum_type) for k in range(self.num_outputs))
        row = f"(SELECT {feature_array} AS x OFFSET 0) AS r"
        relation = f"{row} CROSS JOIN {self.table} AS p1 CROSS JOIN {self._build_join(1)}"
        for n in range(2, self.num_rounds + 1):
            same_tree = f"p{n}.ensemble = p1.ensemble AND p{n}.tree = p1.tree"
            relation += (
                f" LEFT JOIN {self.table} AS p{n} ON {same_tree} "
                f"AND p{n}.part = p{n - 1}.next[s{n - 1}.slot] CROSS JOIN {self._build_join(n)}"
            )
        where = f"p1.ensemble = {self.ensemble} AND p1.part = 0"
        return f"(SELECT ARRAY[{sums}] FROM {relation} WHERE {where})"

    def _build_join(self, n: int) -> str:
        return f"LATERAL (SELECT {self._build_slot(f'p{n}', 1, 0)} AS slot OFFSET 0) AS s{n}"

    def _build_slot(self, alias: str, position: int, level: int) -> str:
        """Build SQL for the 1-based position that a row reaches below a part's last level."""
        if level == self.num_levels:
            return str(position - (1 << self.num_levels) + 1)
        left = self._build_slot(alias, 2 * position, level + 1)
        right = self._build_slot(alias, 2 * position + 1, level + 1)
        symbol = "<" if self.compare == "lt" else "<="
        test = f"r.x[{alias}.feature[{position}]] {symbol} {alias}.threshold[{position}]"
        return f"CASE WHEN {test} THEN {left} ELSE {right} END"

    def _build_sum(self, output: int, sum_type: str) -> str:
        offset = f"{self.num_leaf_values} * (s@.slot - 1) + {output + 1}"
        index_sql = offset if self.num_leaf_values > 1 else "s@.slot"
        values = [f"p@.value[{index_sql}]".replace("@", str(n + 1)) for n in range(self.num_rounds)]
        branches = "".join(
            f"WHEN p{n}.next[s{n}.slot] = {NO_NEXT_PART} THEN {value} "
            for n, value in enumerate(values[:-1], 1)
        )
        value = f"CASE {branches}ELSE {values[-1]} END" if branches else values[-1]
        typed_value = f"({value})::{sum_type}" if sum_type else value
        is_partial = self.num_leaf_values < self.num_outputs
        condition = f" FILTER (WHERE p1.target = {output})" if is_partial else ""
        return f"CAST(sum({typed_value} ORDER BY p1.tree){condition} AS float8)"
