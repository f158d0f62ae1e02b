"""A small model of trees as one tree over the columns that it reads, with results as leaves. Exact.

Trees of an ensemble grow on each other's leaves (a test that the path has answered already is left
out), and what a model makes of its margins is computed once for each leaf: classes, probabilities.
Scalers, imputers and casts before the trees become part of their thresholds by bisection over the
floats, as in `fold_into_trees`; checks become the range of values that the model takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from sqlml.bounded_cache import of_programs
from sqlml.ir import reference
from sqlml.ir.builder import Builder
from sqlml.ir.program import Program
from sqlml.ir.trees import Ensemble
from sqlml.passes.float_order import Step, last_true, step_below
from sqlml.passes.fold_into_trees import Impute
from sqlml.types import FLOATS, Array, DType, numpy_dtype

MOST_TESTS = 63
"""Tests of the one tree; more are never faster than a kernel."""

MOST_TREES = 16

_CHECKS = ("require_finite", "require_known")


@dataclass(frozen=True, slots=True, eq=False)
class Leaf:
    """What the model gives: `value`, (width,)."""

    value: Array


@dataclass(frozen=True, slots=True, eq=False)
class Test:
    """x[column] <= threshold goes left, a missing one where `missing_left` says.

    A threshold of NaN lets no number go left.
    """

    column: int
    threshold: float
    missing_left: bool
    left: Tree
    right: Tree


Tree = Test | Leaf


@dataclass(frozen=True, slots=True)
class Range:
    """The values of a column that the model takes: low <= x <= high, and maybe missing ones."""

    low: float = -np.inf
    high: float = np.inf
    missing: bool = True

    @property
    def limited(self) -> bool:
        """Whether there are values that it does not take."""
        return self != Range()


@dataclass(frozen=True, slots=True, eq=False)
class OneTree:
    """`tree` gives the result for rows whose columns all lie in their `ranges`."""

    tree: Tree
    ranges: tuple[Range, ...]

    @property
    def tests(self) -> int:
        """How many tests there are."""
        return sum(1 for _ in _tests(self.tree))

    @property
    def levels(self) -> float:
        """Tests that a row passes if every test sends half of the rows each way."""
        return sum(_tests(self.tree))


def _tests(tree: Tree, share: float = 1.0) -> Iterator[float]:
    """For each test the share of the rows that come to it."""
    if isinstance(tree, Test):
        yield share
        yield from _tests(tree.left, share / 2)
        yield from _tests(tree.right, share / 2)


@of_programs
def one_tree(program: Program, most: int = MOST_TESTS) -> OneTree | None:
    """The one output of `program`, which reads one matrix; None if it is another kind of model, or
    takes more than `most` tests."""
    places = [i for i, node in enumerate(program.nodes) if node.op == "tree_ensemble"]
    if len(places) != 1 or len(program.inputs) != 1 or len(program.outputs) != 1:
        return None
    e = Ensemble.of(program.nodes[places[0]].attrs)
    if e.has_categories or e.nodes > most or e.trees > MOST_TREES:
        return None
    try:
        reader = _Reader(program)
        paths = reader.paths(program.nodes[places[0]].inputs[0])
        tests = _thresholds(e, paths)
        ranges = reader.ranges()
        grown = _Growing(e, tests, ranges, most)
        tree = grown.from_tree(0, int(e.roots[0]) if e.trees else 0, e.base, {})
        return OneTree(_valued(tree, _results(program, places[0], grown.sums)), ranges)
    except _AnotherKind:
        return None


class _AnotherKind(Exception):
    """The model is not a small tree."""


@dataclass(frozen=True, slots=True)
class _Path:
    """From a column of the input to a value: steps, each with the column that it has there."""

    source: int
    dtype: DType
    steps: tuple[tuple[Step | Impute, int], ...] = ()

    def then(self, step: Step | Impute, column: int) -> _Path:
        return _Path(self.source, self.dtype, (*self.steps, (step, column)))

    def apply(self, x: Array) -> Array:
        """The value for inputs x (m,)."""
        for step, column in self.steps:
            x = step.apply(x, np.full(x.size, column))
        return x

    def of_missing(self) -> float:
        """The value for a missing input."""
        return float(self.apply(np.full(1, np.nan, numpy_dtype(self.dtype)))[0])


@dataclass(slots=True)
class _Reader:
    """Follows columns down to the input, and notes the checks on the way."""

    program: Program
    checks: list[tuple[_Path, float, float, bool]] = field(default_factory=list)
    seen: dict[int, list[_Path]] = field(default_factory=dict)

    def paths(self, at: int) -> list[_Path]:
        """Of the columns of node `at`."""
        if at not in self.seen:
            self.seen[at] = self._paths(at)
        return self.seen[at]

    def _paths(self, at: int) -> list[_Path]:
        node = self.program.nodes[at]
        if node.op == "input" and node.type.dtype in FLOATS:
            return [_Path(k, node.type.dtype) for k in range(node.type.width)]
        if node.op == "select":
            below = self.paths(node.inputs[0])
            return [below[j] for j in node.attrs["indices"].tolist()]
        if node.op == "concat":
            return [path for j in node.inputs for path in self.paths(j)]
        if node.op == "require_finite":
            below = self.paths(node.inputs[0])
            most = np.full(len(below), np.finfo(numpy_dtype(node.type.dtype)).max)
            low = np.maximum(node.attrs.get("low", -most), -most).tolist()
            high = np.minimum(node.attrs.get("high", most), most).tolist()
            nan = bool(node.attrs["allow_nan"])
            self.checks += zip(below, low, high, [nan] * len(below), strict=True)
            return below
        step: Step | Impute
        if node.op == "impute" and node.attrs["missing"] != node.attrs["missing"]:
            place, step = node.inputs[0], Impute(node.attrs["fill"])
        else:
            b = Builder(self.program.nodes)
            found = step_below(b, b.value(at))
            if found is None:
                raise _AnotherKind
            place, step = found[0].index, found[1]
        return [p.then(step, k) for k, p in enumerate(self.paths(place))]

    def ranges(self) -> tuple[Range, ...]:
        """What all checks take together."""
        (source,) = self.program.inputs.values()
        made = [Range()] * self.program.nodes[source].type.width
        for path, low, high, nan in self.checks:
            dtype = numpy_dtype(path.dtype)
            _, first = last_true(partial(_below, path, low, np.less), 1, dtype)
            last, _ = last_true(partial(_below, path, high, np.less_equal), 1, dtype)
            if np.isnan(first[0]) or np.isnan(last[0]):
                raise _AnotherKind
            gone = path.of_missing()
            own, r = (nan if gone != gone else low <= gone <= high), made[path.source]
            made[path.source] = Range(
                max(r.low, float(first[0])), min(r.high, float(last[0])), r.missing and own
            )
        return tuple(made)


def _thresholds(e: Ensemble, paths: Sequence[_Path]) -> list[tuple[int, float, bool]]:
    """Each node's test of the input itself: column, threshold, whether a missing one goes left."""
    made: list[tuple[int, float, bool]] = []
    for k in range(e.nodes):
        path, wanted = paths[int(e.feature[k])], e.threshold[k]

        def left(x: Array, path: _Path = path, wanted: Array = wanted) -> Array:
            value = path.apply(x)
            held: Array = value < wanted if e.compare == "lt" else value <= wanted
            return held

        dtype = numpy_dtype(path.dtype)
        last, _ = last_true(left, 1, dtype)
        gone = path.of_missing()
        missing = bool(e.default_left[k]) if gone != gone else bool(left(np.full(1, np.nan, dtype)))
        if last[0] == -np.inf:
            raise _AnotherKind
        made.append((path.source, float(last[0]), missing))
    return made


_Known = Mapping[int, Range]
"""What the path to a place implies for columns: low < x <= high, or missing."""


@dataclass(slots=True)
class _Growing:
    """The trees of `e` on each other's leaves; `sums` are their sums, leaf by leaf."""

    e: Ensemble
    tests: list[tuple[int, float, bool]]
    ranges: tuple[Range, ...]
    most: int
    made: int = 0
    sums: list[Array] = field(default_factory=list)

    def from_tree(self, t: int, at: int, total: Array, known: _Known) -> Tree:
        """From node `at` of tree `t`, with the sum of the trees before it."""
        e = self.e
        if t == e.trees:
            self.sums.append(total)
            return Leaf(np.array([len(self.sums) - 1]))
        if at < 0:
            values, first = e.leaf_values[~at], int(e.target[t])
            total = total.copy()
            total[first : first + values.size] += values
            following = int(e.roots[t + 1]) if t + 1 < e.trees else 0
            return self.from_tree(t + 1, following, total, known)
        column, threshold, missing_left = self.tests[at]
        now = known.get(column) or self._first(column)
        sides = [int(e.left[at]), int(e.right[at])]
        below = replace(now, high=min(now.high, threshold), missing=now.missing and missing_left)
        above = replace(now, low=max(now.low, threshold), missing=now.missing and not missing_left)
        if threshold != threshold:
            below, above = replace(below, high=-np.inf, low=np.inf), replace(above, low=now.low)
        for side, other, place in ((below, above, 1), (above, below, 0)):
            if not side.low < side.high and not side.missing:
                return self.from_tree(t, sides[place], total, {**known, column: other})
        self.made += 1
        if self.made > self.most:
            raise _AnotherKind
        return Test(
            column,
            threshold,
            missing_left,
            self.from_tree(t, sides[0], total, {**known, column: below}),
            self.from_tree(t, sides[1], total, {**known, column: above}),
        )

    def _first(self, column: int) -> Range:
        """The range of a column as `_Known` has it: without its lower end.

        -inf goes where the lowest number goes, since no threshold is -inf.
        """
        r = self.ranges[column]
        with np.errstate(over="ignore"):
            return replace(r, low=float(np.nextafter(r.low, -np.inf)))


def _results(program: Program, ensemble: int, sums: Sequence[Array]) -> Array:
    """What the output is for each of the sums, (leaves, width)."""
    (last,) = program.outputs.values()
    values: dict[int, Array] = {ensemble: np.stack(sums)}

    def value(i: int) -> Array:
        node = program.nodes[i]
        if i not in values:
            if node.op == "input" or node.op in _CHECKS:
                raise _AnotherKind
            values[i] = reference.FUNCTIONS[node.op]([value(j) for j in node.inputs], node.attrs)
        return values[i]

    with np.errstate(all="ignore"):
        return value(last).reshape(len(sums), -1)


def _valued(tree: Tree, results: Array) -> Tree:
    """The tree with its leaves' results, and without tests on which nothing depends."""
    if isinstance(tree, Leaf):
        return Leaf(results[tree.value[0]])
    left, right = _valued(tree.left, results), _valued(tree.right, results)
    if isinstance(left, Leaf) and isinstance(right, Leaf):
        if left.value.tobytes() == right.value.tobytes():
            return left
    return replace(tree, left=left, right=right)


def _below(path: _Path, bound: float, compare: Callable[[Array, float], Array], x: Array) -> Array:
    """Whether what comes of inputs x (m,) on `path` is below `bound`."""
    return compare(path.apply(x), bound)
