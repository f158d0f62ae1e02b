"""Kernel calls of trees, as the compilers of sqlml make them, for tests of argument checks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

import sqlml
from sqlml.backends.base import find_filler
from sqlml.backends.native.argument_checks.contribution_checks import (
    check_contributions,
    check_leaf_models,
)
from sqlml.backends.native.argument_checks.lockstep_check import check_lockstep
from sqlml.backends.native.argument_checks.tree_checks import (
    check_cursor_forest,
    check_descent_forest,
)
from sqlml.backends.native.backend import NativeBackend
from sqlml.backends.native.kernel_calls import INPUT, RESULT, SCRATCH, Call, RowKernel, Rows
from sqlml.backends.native.trees import (
    contribution_kernel,
    cursor_forest,
    descent_forest,
    linear_leaves,
    lockstep,
)
from sqlml.backends.native.trees.binned import bin_tests
from sqlml.backends.native.trees.cursor_forest import compile_cursor_forest
from sqlml.backends.native.trees.descent_forest import compile_descent_forest
from sqlml.backends.native.trees.lockstep_forest import compile_lockstep_forest
from sqlml.ir.trees import Ensemble
from sqlml.planner.program.prepare_program import prepare_output
from tests.support.guarded_arrays import get_function
from tests.support.random_trees import WIDTH, Recipe, covered, grow

CHECKS: Mapping[Callable[..., Any], Callable[..., Any]] = {
    cursor_forest.score: check_cursor_forest,
    descent_forest.score: check_descent_forest,
    lockstep.score: check_lockstep,
    contribution_kernel.contributions: check_contributions,
    linear_leaves._add_leaf_models: check_leaf_models,
}
"""Maps the function of each kernel for trees to its argument check."""

MANY_ROWS = 1 << 20
"""A row count for which the kernels for blocks of rows are chosen."""


def find_check(call: Call) -> Callable[..., Any] | None:
    """Return the argument check of a kernel for trees, or None for another kernel."""
    return CHECKS.get(get_function(call))


def find_model_calls(model: Any, strategy: str = "traverse") -> Iterator[Call]:
    """Yield the calls of kernels for trees that score the outputs of a fitted model."""
    program = sqlml.compile(model).program
    for output, layout in itertools.product(program.outputs, ("f32", "f64")):
        core = prepare_output(program, output, None, layout).split.core
        for node in core.inputs.values():
            width = core.nodes[node].type.width
        compiled = NativeBackend().compile(core, strategy=strategy)
        filler: Any = find_filler(compiled, output, list(range(width)), width)
        if not hasattr(filler, "make_calls"):
            continue
        for count in (1, MANY_ROWS):
            x, out = Rows(INPUT, filler.input, width), Rows(RESULT, filler.dtype, filler.width)
            arguments = (count,) if hasattr(filler, "find_large_batch") else ()
            calls = filler.make_calls(x, out, itertools.count(SCRATCH), *arguments)
            yield from (call for call in calls if find_check(call) is not None)


def call_for_rows(kernel: RowKernel, source: str, width: int = WIDTH) -> Call:
    """Return a call of a kernel for rows of `width` numbers."""
    x = Rows(INPUT, np.dtype(source), width)
    return kernel.make_call(x, Rows(RESULT, kernel.dtype, kernel.width))


def call_cursors(recipe: Recipe, source: str | None = None, paged: bool = False) -> Call:
    e = grow(recipe)
    return call_cursors_of(e, source or recipe.dtype, paged)


def call_cursors_of(e: Ensemble, source: str, paged: bool = False) -> Call:
    tests = bin_tests(e, paged)
    assert tests is not None
    kernel = compile_cursor_forest(e, tests, np.dtype(source))
    assert kernel is not None
    return call_for_rows(kernel, source)


def call_descent(recipe: Recipe, cut: int, source: str | None = None) -> Call:
    e = grow(recipe)
    tests = bin_tests(e)
    assert tests is not None
    cuts = np.minimum(np.arange(e.trees), cut)
    kernel = compile_descent_forest(e, tests, cuts, np.dtype(source or recipe.dtype))
    assert kernel is not None
    return call_for_rows(kernel, source or recipe.dtype)


def call_lockstep(recipe: Recipe, source: str | None = None, allowed: int = lockstep.ANY) -> Call:
    e = grow(recipe)
    source = source or recipe.dtype
    x = Rows(INPUT, np.dtype(source), WIDTH)
    forest = compile_lockstep_forest(e, x.dtype)
    return forest.make_call(x, Rows(RESULT, e.base.dtype, e.outputs), allowed)


def call_contributions(recipe: Recipe, backgrounds: int = 0) -> Call:
    e = covered(grow(recipe))
    attrs = {**e.attrs(), "player": (np.arange(WIDTH) % 3).astype(np.int32), "players": 3}
    if backgrounds:
        rng = np.random.default_rng(recipe.seed)
        attrs["background"] = rng.normal(size=(backgrounds, WIDTH)).astype(recipe.dtype)
    kernel = contribution_kernel.make_contribution_kernel(attrs, np.dtype(recipe.dtype))
    return call_for_rows(kernel, recipe.dtype)


def call_leaf_models(term_counts: tuple[int, ...], trees: int, outputs: int) -> Call:
    rng = np.random.default_rng(0)
    total = sum(term_counts)
    attrs = {
        "value": rng.normal(size=len(term_counts)),
        "const": rng.normal(size=len(term_counts)),
        "begin": np.cumsum([0, *term_counts]).astype(np.int32),
        "feature": rng.integers(0, 4, total).astype(np.int32),
        "weights": rng.normal(size=total),
        "base": np.zeros(outputs),
        "target": (np.arange(trees) % outputs).astype(np.int32),
    }
    return call_for_rows(linear_leaves.make_leaf_model_kernel(attrs), "float64", trees + 4)


def make_oblivious_trees(depth: int, trees: int) -> Ensemble:
    """Return trees with one test per level, as CatBoost grows them."""
    rng = np.random.default_rng(depth)
    size, leaves = (1 << depth) - 1, 1 << depth
    levels = np.zeros(size, np.int64)
    left, right = np.zeros((2, size), np.int64)

    def place(node: int, level: int, first_leaf: int) -> int:
        """Place a subtree in pre-order; return the next node."""
        levels[node] = level
        half = 1 << (depth - 1 - level)
        if half == 1:
            left[node], right[node] = ~first_leaf, ~(first_leaf + 1)
            return node + 1
        left[node] = node + 1
        right[node] = place(node + 1, level + 1, first_leaf)
        return place(int(right[node]), level + 1, first_leaf + half)

    place(0, 0, 0)
    tree = np.arange(trees)[:, None]
    children = [np.where(c >= 0, c + tree * size, c - tree * leaves) for c in (left, right)]
    features = rng.integers(WIDTH, size=(trees, depth)).astype(np.int32)
    thresholds = rng.normal(size=(trees, depth)).astype(np.float32)
    return Ensemble(
        roots=(tree.ravel() * size).astype(np.int32),
        feature=features[:, levels].ravel(),
        threshold=thresholds[:, levels].ravel(),
        left=children[0].astype(np.int32).ravel(),
        right=children[1].astype(np.int32).ravel(),
        default_left=np.zeros(trees * size, bool),
        leaf_values=rng.normal(size=(trees * leaves, 1)),
        target=np.zeros(trees, np.int32),
        base=np.zeros(1),
        compare="le",
    )


def call_mixed_trees() -> Call:
    """Return a call for oblivious trees among others."""
    e = make_oblivious_trees(4, 5)
    thresholds = e.threshold.copy()
    thresholds[-1] += 1  # The last node of the last tree differs from others of its level.
    return call_cursors_of(replace(e, threshold=thresholds), "float32")


SETS = {"sets": True, "compare": "le", "dtype": "float64", "leaves": "float64"}
WIDE = {"values": 3, "outputs": 3}

CALLS: Mapping[str, Callable[[], Call]] = {
    "cursors of a byte": lambda: call_cursors(Recipe(1, 6, 5)),
    "cursors, double rows": lambda: call_cursors(Recipe(2, 9, 4), "float64"),
    "cursors and sets": lambda: call_cursors(Recipe(3, 6, 5, **SETS)),
    "cursors of two bytes": lambda: call_cursors(Recipe(3, 3, 13, leaves="float64")),
    "cursors and pages": lambda: call_cursors(Recipe(7, 200, 6), paged=True),
    "cursors, few values": lambda: call_cursors(Recipe(4, 6, 4, values=1, outputs=3)),
    "cursors, many values": lambda: call_cursors(Recipe(5, 6, 4, **WIDE)),
    "oblivious trees": call_mixed_trees,
    "descent": lambda: call_descent(Recipe(6, 5, 6), cut=3),
    "descent from the root": lambda: call_descent(Recipe(7, 4, 7), cut=0),
    "descent and sets": lambda: call_descent(Recipe(8, 5, 6, **SETS), cut=2),
    "descent, many values": lambda: call_descent(Recipe(9, 5, 6, **WIDE), cut=2),
    "descent, two bytes": lambda: call_descent(Recipe(7, 100, 6), cut=3),
    "lockstep": lambda: call_lockstep(Recipe(10, 5, 6)),
    "lockstep, deep": lambda: call_lockstep(Recipe(11, 3, 18, chain=True)),
    "lockstep, double": lambda: call_lockstep(Recipe(12, 4, 5, "float64", "float64")),
    "lockstep and sets": lambda: call_lockstep(Recipe(13, 5, 6, **SETS), allowed=lockstep.FINITE),
    "lockstep, other rows": lambda: call_lockstep(Recipe(14, 5, 6), "float64", allowed=2),
    "lockstep, windows": lambda: call_lockstep(Recipe(15, 300, 3, values=2, outputs=3)),
    "contributions": lambda: call_contributions(Recipe(16, 4, 5, values=2, outputs=3)),
    "contributions and sets": lambda: call_contributions(Recipe(17, 4, 5, **SETS)),
    "contributions, background": lambda: call_contributions(Recipe(18, 3, 6), backgrounds=3),
    "leaf models": lambda: call_leaf_models((1, 0, 3, 2), trees=3, outputs=2),
}
"""Calls of each kernel, by name."""
