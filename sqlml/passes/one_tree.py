"""`OneTree`: a small tree model as a single tree over the input columns. Exact.

Each tree of an ensemble is appended to the leaves of the previous tree, without the tests whose
outcome the path already decides. The leaves hold the final results, so everything after the margins
is computed once per leaf. Scalers, imputers and casts in front of the trees become part of the
thresholds, and checks become ranges of accepted values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from sqlml.bounded_cache import cache_by_program
from sqlml.ir import reference
from sqlml.ir.builder import Builder
from sqlml.ir.program import Program
from sqlml.ir.trees import Ensemble
from sqlml.passes.float_order import Step, find_last_true
from sqlml.passes.fold_into_trees import Imputer, match_step_or_imputer
from sqlml.passes.sink_checks import read_check
from sqlml.types import FLOATS, Array, DType, numpy_dtype

MAX_TESTS, MAX_TREES = 63, 16
"""Maximum number of tests, and of trees; with more of either, a kernel is always faster."""


@dataclass(frozen=True, slots=True, eq=False)
class Leaf:
    """A leaf that holds the result of the model, `value` (width,)."""

    value: Array


@dataclass(frozen=True, slots=True, eq=False)
class TreeTest:
    """A test: a row goes left if `x[column] <= threshold`, or if x is NaN and `missing_left`.

    If the threshold is NaN, all numbers go right.
    """

    column: int
    threshold: float
    missing_left: bool
    left: Tree
    right: Tree


Tree = TreeTest | Leaf


@dataclass(frozen=True, slots=True)
class ValueRange:
    """The accepted values of a column: `low` to `high`, and missing values if `missing`."""

    low: float = -np.inf
    high: float = np.inf
    missing: bool = True

    @property
    def is_limited(self) -> bool:
        return self != ValueRange()


@dataclass(frozen=True, slots=True, eq=False)
class OneTree:
    """A model as one tree, for rows whose values all lie in the `ranges` of the columns."""

    tree: Tree
    ranges: tuple[ValueRange, ...]

    @property
    def tests(self) -> int:
        return sum(1 for _ in _iterate_test_shares(self.tree))

    @property
    def mean_levels(self) -> float:
        """The mean number of tests of a row if every test sends half of the rows each way."""
        return sum(_iterate_test_shares(self.tree))


def _iterate_test_shares(tree: Tree, share: float = 1.0) -> Iterator[float]:
    """Yield, for each test, the share of the rows that reach it."""
    if isinstance(tree, TreeTest):
        yield share
        yield from _iterate_test_shares(tree.left, share / 2)
        yield from _iterate_test_shares(tree.right, share / 2)


@cache_by_program
def build_one_tree(program: Program, max_tests: int = MAX_TESTS) -> OneTree | None:
    """Convert a Program of one input and one output to one tree of up to `max_tests` tests.

    Return None if the tree needs more tests, or if the Program does not have exactly one ensemble,
    has more than `MAX_TREES` trees, or has operators that thresholds cannot absorb.
    """
    ensembles = [i for i, node in enumerate(program.nodes) if node.op == "tree_ensemble"]
    if len(ensembles) != 1 or len(program.inputs) != 1 or len(program.outputs) != 1:
        return None
    ensemble = Ensemble.of(program.nodes[ensembles[0]].attrs)
    if ensemble.has_categories or ensemble.nodes > max_tests or ensemble.trees > MAX_TREES:
        return None
    try:
        reader = _PathReader(program)
        tests = _fold_tests(ensemble, reader.find_paths(program.nodes[ensembles[0]].inputs[0]))
        ranges = reader.find_ranges()
        grower = _TreeGrower(ensemble, tests, ranges, max_tests)
        tree = grower.grow(0, int(ensemble.roots[0]) if ensemble.trees else 0, ensemble.base, {})
        (output,) = program.outputs.values()
        results = reference.compute_node(program, {ensembles[0]: np.stack(grower.sums)}, output)
        if results is None:
            return None
        return OneTree(_set_results(tree, results.reshape(len(grower.sums), -1)), ranges)
    except _NotOneTree:
        return None


class _NotOneTree(Exception):
    """The model cannot be written as one small tree."""


@dataclass(frozen=True, slots=True)
class _Path:
    """Steps that turn input column `source` into a value, each with the column of its operand."""

    source: int
    dtype: DType
    steps: tuple[tuple[Step | Imputer, int], ...] = ()

    def append(self, step: Step | Imputer, column: int) -> _Path:
        return _Path(self.source, self.dtype, (*self.steps, (step, column)))

    def apply(self, values: Array) -> Array:
        for step, column in self.steps:
            values = step.apply(values, np.full(values.size, column))
        return values

    def find_last_true(self, holds: Callable[[Array], Array]) -> tuple[float, float]:
        """Return the largest input whose result makes `holds` true, and the next float."""
        last, following = find_last_true(lambda x: holds(self.apply(x)), 1, numpy_dtype(self.dtype))
        return float(last[0]), float(following[0])

    def map_missing(self) -> float:
        """Return the result of the steps if the input column is NaN."""
        return float(self.apply(np.full(1, np.nan, numpy_dtype(self.dtype)))[0])


@dataclass(slots=True)
class _PathReader:
    """Finds the path from the input to each column of a node, and the checks on the paths."""

    program: Program
    checks: list[tuple[_Path, float, float, bool]] = field(default_factory=list)
    paths_of_nodes: dict[int, list[_Path]] = field(default_factory=dict)

    def find_paths(self, index: int) -> list[_Path]:
        if index not in self.paths_of_nodes:
            self.paths_of_nodes[index] = self._find_paths(index)
        return self.paths_of_nodes[index]

    def _find_paths(self, index: int) -> list[_Path]:
        node = self.program.nodes[index]
        if node.op == "input" and node.type.dtype in FLOATS:
            return [_Path(k, node.type.dtype) for k in range(node.type.width)]
        if node.op == "select":
            source_paths = self.find_paths(node.inputs[0])
            return [source_paths[j] for j in node.attrs["indices"].tolist()]
        if node.op == "concat":
            return [path for j in node.inputs for path in self.find_paths(j)]
        if node.op == "require_finite":
            source_paths = self.find_paths(node.inputs[0])
            check = read_check(node)
            bounds = zip(source_paths, check.low.tolist(), check.high.tolist(), strict=True)
            self.checks += [(path, low, high, check.allow_nan) for path, low, high in bounds]
            return source_paths
        builder = Builder(self.program.nodes)
        match = match_step_or_imputer(builder, builder.value(index))
        if match is None:
            raise _NotOneTree
        source, step = match
        return [p.append(step, k) for k, p in enumerate(self.find_paths(source.index))]

    def find_ranges(self) -> tuple[ValueRange, ...]:
        """Return the range of each input column that all checks accept."""
        (source,) = self.program.inputs.values()
        ranges = [ValueRange()] * self.program.nodes[source].type.width
        for path, low, high, allows_nan in self.checks:
            _, lowest = path.find_last_true(partial(np.greater, low))
            highest, _ = path.find_last_true(partial(np.greater_equal, high))
            if np.isnan(lowest) or np.isnan(highest):
                raise _NotOneTree
            imputed = path.map_missing()
            accepts_missing = allows_nan if imputed != imputed else low <= imputed <= high
            column_range = ranges[path.source]
            low, high = max(column_range.low, lowest), min(column_range.high, highest)
            ranges[path.source] = ValueRange(low, high, column_range.missing and accepts_missing)
        return tuple(ranges)


def _fold_tests(ensemble: Ensemble, paths: Sequence[_Path]) -> list[tuple[int, float, bool]]:
    """Return each node's test: an input column, a threshold, and if missing values go left."""
    tests: list[tuple[int, float, bool]] = []
    for k in range(ensemble.nodes):
        path, threshold = paths[int(ensemble.feature[k])], ensemble.threshold[k]

        def goes_left(value: Array, threshold: Array = threshold) -> Array:
            return np.asarray(value < threshold if ensemble.compare == "lt" else value <= threshold)

        folded_threshold, _ = path.find_last_true(goes_left)
        imputed = np.array(path.map_missing())
        missing_left = ensemble.default_left[k] if np.isnan(imputed) else goes_left(imputed)
        if folded_threshold == -np.inf:
            raise _NotOneTree
        tests.append((path.source, folded_threshold, bool(missing_left)))
    return tests


_PathRanges = Mapping[int, ValueRange]
"""Map a column to the values with which a row reaches a node: low < x <= high, or missing."""


@dataclass(slots=True)
class _TreeGrower:
    """Grows the one tree. A leaf holds an index of `sums`, which sum the values of all trees."""

    ensemble: Ensemble
    tests: list[tuple[int, float, bool]]
    ranges: tuple[ValueRange, ...]
    max_tests: int
    test_count: int = 0
    sums: list[Array] = field(default_factory=list)

    def grow(self, tree: int, node: int, total: Array, ranges: _PathRanges) -> Tree:
        """Grow the subtree for rows in `ranges` at `node` of `tree`; `total` sums earlier trees."""
        ensemble = self.ensemble
        if tree == ensemble.trees:
            self.sums.append(total)
            return Leaf(np.array([len(self.sums) - 1]))
        if node < 0:
            values, start = ensemble.leaf_values[~node], int(ensemble.target[tree])
            total = total.copy()
            total[start : start + values.size] += values
            next_root = int(ensemble.roots[tree + 1]) if tree + 1 < ensemble.trees else 0
            return self.grow(tree + 1, next_root, total, ranges)
        column, threshold, missing_left = self.tests[node]
        limits = ranges.get(column) or self._open_lower_end(column)
        children = [int(ensemble.left[node]), int(ensemble.right[node])]
        missing_goes_left = limits.missing and missing_left
        missing_goes_right = limits.missing and not missing_left
        left = replace(limits, high=min(limits.high, threshold), missing=missing_goes_left)
        right = replace(limits, low=max(limits.low, threshold), missing=missing_goes_right)
        if threshold != threshold:
            left, right = (replace(left, high=-np.inf, low=np.inf), replace(right, low=limits.low))
        for limits_of_side, limits_of_other, other_child in (
            (left, right, children[1]),
            (right, left, children[0]),
        ):
            if (
                not limits_of_side.low < limits_of_side.high and not limits_of_side.missing
            ):  # No row takes this side.
                return self.grow(tree, other_child, total, {**ranges, column: limits_of_other})
        self.test_count += 1
        if self.test_count > self.max_tests:
            raise _NotOneTree
        return TreeTest(
            column,
            threshold,
            missing_left,
            self.grow(tree, children[0], total, {**ranges, column: left}),
            self.grow(tree, children[1], total, {**ranges, column: right}),
        )

    def _open_lower_end(self, column: int) -> ValueRange:
        column_range = self.ranges[column]
        # The ranges of paths exclude their lower end.
        with np.errstate(over="ignore"):
            return replace(column_range, low=float(np.nextafter(column_range.low, -np.inf)))


def _set_results(tree: Tree, results: Array) -> Tree:
    """Replace the index in each leaf with a row of `results`; drop tests between equal leaves."""
    if isinstance(tree, Leaf):
        return Leaf(results[tree.value[0]])
    left, right = _set_results(tree.left, results), _set_results(tree.right, results)
    if isinstance(left, Leaf) and isinstance(right, Leaf):
        if left.value.tobytes() == right.value.tobytes():
            return left
    return replace(tree, left=left, right=right)
