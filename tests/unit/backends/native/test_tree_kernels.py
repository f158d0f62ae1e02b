"""Every kernel for trees gives what the reference interpreter gives, bit for bit."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sqlml.backends import costs
from sqlml.backends.base import BACKENDS
from sqlml.backends.native.kernel_calls import RowKernel
from sqlml.backends.native.trees import lockstep
from sqlml.backends.native.trees import lockstep_forest as lockstep_forest_module
from sqlml.backends.native.trees.binned import TILE, bin_tests, fill_bins, make_ranks
from sqlml.backends.native.trees.cursor_forest import compile_cursor_forest
from sqlml.backends.native.trees.descent_forest import compile_descent_forest
from sqlml.backends.native.trees.lockstep_forest import compile_lockstep_forest
from sqlml.backends.native.trees.native_forest import Forest
from sqlml.backends.native.trees.set_bins import SIDE
from sqlml.backends.native.trees.walk import BLOCK_BYTES
from sqlml.errors import BackendError, ProgramError
from sqlml.ir import reference
from sqlml.ir.ops import verify
from sqlml.ir.tree_shape import find_oblivious_trees, unify_decisions
from sqlml.ir.trees import Ensemble
from tests.support.random_trees import WIDTH, Recipe, grow, program_of, rows_for

ROOT = Path(__file__).parents[4]
SOURCES = (("float32", "float32"), ("float32", "float64"), ("float64", "float64"))
"""Dtypes of tests and of leaves: XGBoost, scikit-learn, LightGBM."""

COMMON = settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


def by_cursor(e: Ensemble, dtype: np.dtype, paged: bool = False) -> RowKernel:
    tests = bin_tests(e, paged)
    assert tests is not None
    made = compile_cursor_forest(e, tests, dtype)
    assert made is not None
    return made


def uses_wide_cursors(kernel: RowKernel) -> bool:
    """Return whether bins and cursors take two bytes."""
    rank = kernel.constants[4][1]
    return bool(rank.dtype == np.uint16)


def want(e: Ensemble, x: np.ndarray) -> np.ndarray:
    return reference.FUNCTIONS["tree_ensemble"]([x], e.attrs())


RANDOM_TREES = given(
    seed=st.integers(0, 2**31),
    depth=st.integers(0, 9),
    dtypes=st.sampled_from(SOURCES),
    compare=st.sampled_from(["lt", "le"]),
    values=st.integers(1, 2),
    chain=st.booleans(),
    sets=st.sampled_from(["none", "large", "some", "all"]),
    rows=st.sampled_from([0, 1, 63, 64, 65, 129, 257, 511, 512, 513, 1200, 9000]),
)


@settings(COMMON, max_examples=3)
@RANDOM_TREES
def test_random_trees(**example: Any) -> None:
    check_random_trees(**example)


@pytest.mark.nightly
@settings(COMMON, max_examples=600, derandomize=False)
@RANDOM_TREES
def test_many_random_trees(**example: Any) -> None:
    check_random_trees(**example)


def check_random_trees(
    seed: int,
    depth: int,
    dtypes: tuple[str, str],
    compare: str,
    values: int,
    chain: bool,
    sets: str,
    rows: int,
) -> None:
    recipe = Recipe(seed, 6, depth, *dtypes, values, values + 1, compare, sets != "none", chain)
    e = grow(replace(recipe, single=sets if sets in ("some", "all") else ""))
    verify(program_of(e))
    x = rows_for(e, rows, seed)
    tests = bin_tests(e)
    assert tests is not None
    expected_scores = want(e, x)
    np.testing.assert_array_equal(by_cursor(e, x.dtype)(x), expected_scores)
    np.testing.assert_array_equal(by_cursor(e, x.dtype, paged=True)(x), expected_scores)
    np.testing.assert_array_equal(compile_lockstep_forest(e, x.dtype)(x), expected_scores)
    for cut in (np.zeros(e.trees, np.int64), np.arange(e.trees) % 4, np.full(e.trees, depth)):
        kernel = compile_descent_forest(e, tests, cut, x.dtype)
        assert kernel is not None
        np.testing.assert_array_equal(kernel(x), expected_scores)


@pytest.mark.parametrize("dtypes", SOURCES)
@pytest.mark.parametrize("single", ["", "all", pytest.param("some", marks=pytest.mark.nightly)])
def test_columns_with_dozens_of_sets(dtypes: tuple[str, str], single: str) -> None:
    e = grow(Recipe(11, 80, 5, *dtypes, sets=True, single=single))
    x = rows_for(e, 700)
    tests = bin_tests(e)
    assert tests is not None
    assert tests.sets.count.max() > SIDE
    expected_scores = want(e, x)
    np.testing.assert_array_equal(by_cursor(e, x.dtype)(x), expected_scores)
    np.testing.assert_array_equal(compile_lockstep_forest(e, x.dtype)(x), expected_scores)
    descent = compile_descent_forest(e, tests, np.full(e.trees, 2), x.dtype)
    assert descent is not None
    np.testing.assert_array_equal(descent(x), expected_scores)


def test_other_backends_refuse_single_categories() -> None:
    ensemble = grow(Recipe(11, 4, 3, sets=True, single="all"))
    with pytest.raises(ProgramError, match="only the native backend"):
        unify_decisions(ensemble)


def test_the_costs_know_what_the_kernel_does() -> None:
    assert costs.LOW == lockstep.LEVELS


@pytest.mark.parametrize("depth", [0, 3, 4, 5, 9])
@pytest.mark.parametrize("dtypes", SOURCES)
def test_upper_levels_are_answered_for_many_rows_of_many_columns(
    dtypes: tuple[str, str], depth: int
) -> None:
    """The last block is not full, 43 columns do not fill vectors, and some passes have NaN."""
    e = grow(Recipe(7, 40, depth, *dtypes))
    rng = np.random.default_rng(depth)
    columns = rng.permutation(43)[:WIDTH]
    kernel = compile_lockstep_forest(e, np.dtype(dtypes[0]), columns)
    for n in (64, 65, 127, 7000):
        values = rows_for(e, n, n)
        if n == 7000:
            values[:4000] = np.nan_to_num(values[:4000], posinf=np.inf, neginf=-np.inf)
        x = rng.normal(size=(n, 43)).astype(values.dtype)
        x[:, columns] = values
        np.testing.assert_array_equal(kernel(x), want(e, values))


@pytest.mark.nightly
@pytest.mark.parametrize(("dtypes", "sets"), [(d, s) for d in SOURCES for s in (0, 1)])
def test_rows_that_go_down_a_tree_in_several_passes(
    dtypes: tuple[str, str], sets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    e = grow(Recipe(5, 5, 15, *dtypes, sets=bool(sets)))
    x = rows_for(e, 2 * (lockstep.PASS_NUMBERS // WIDTH) + 77, 2)
    expected_scores = want(e, x)
    short = compile_lockstep_forest(e, x.dtype)
    monkeypatch.setattr(lockstep_forest_module, "PAYLOAD", 0)  # as if a tree had too many leaves
    long = compile_lockstep_forest(e, x.dtype)
    sizes = [
        next(a.itemsize for a in f.arguments if getattr(a, "ndim", 0) and a.dtype.names)
        for f in (short, long)
    ]
    assert sizes == [8 if dtypes[0] == "float32" else 16, 16]
    for forest in (short, long):
        np.testing.assert_array_equal(forest(x), expected_scores)
    finite = np.nan_to_num(x, posinf=1, neginf=-1)
    finite[-80, 1] = np.inf
    out = np.empty((len(x), e.outputs), e.base.dtype)
    assert 0 < short.fill(finite, out, lockstep.FINITE_OR_NAN) <= len(x) - 80
    finite[-80, 1] = np.nan
    assert short.fill(finite, out, lockstep.FINITE_OR_NAN) == -1
    np.testing.assert_array_equal(out, want(e, finite))
    assert 0 < short.fill(finite, out, lockstep.FINITE) <= len(x) - 80


@pytest.mark.nightly
@pytest.mark.parametrize(("compare", "dtypes"), [(c, d) for c in ("lt", "le") for d in SOURCES])
def test_thresholds_beyond_a_byte_lie_on_several_pages(
    compare: str, dtypes: tuple[str, str]
) -> None:
    e = grow(Recipe(7, 1200, 7, *dtypes, compare=compare, sets=True))
    x = rows_for(e, 1500, 1)
    tests, short = bin_tests(e, paged=True), bin_tests(e)
    assert tests is not None and short is not None
    assert short.tables.dtype == np.uint16 and tests.tables.dtype == np.uint8
    assert tests.tables.pages.min() > 1 and tests.rank.max() == 255
    x[::7, 2], x[1::7, 3] = np.nan, np.inf
    forest = Forest(e, x.dtype)
    assert isinstance(forest.block_kernel, RowKernel) and not uses_wide_cursors(forest.block_kernel)
    np.testing.assert_array_equal(forest.block_kernel(x), want(e, x))
    np.testing.assert_array_equal(by_cursor(e, x.dtype)(x), want(e, x))


def levels_alike(depth: int, trees: int, seed: int) -> Ensemble:
    """Trees that ask the same question of all nodes of a level."""
    rng = np.random.default_rng(seed)
    size = (1 << depth) - 1
    feature = rng.integers(WIDTH, size=(trees, depth)).astype(np.int32)
    threshold = rng.normal(size=(trees, depth)).astype(np.float32)
    default = rng.random((trees, depth)) < 0.5
    number = np.arange(trees * size).reshape(trees, size)
    left, right = np.zeros((trees, size), np.int32), np.zeros((trees, size), np.int32)
    level_of = np.zeros(size, int)

    def place(at: int, level: int, leaf: int) -> int:
        """Pre-order: what lies below the node, its first leaf being `leaf`; the next number."""
        level_of[at] = level
        half = 1 << (depth - 1 - level)
        if half == 1:
            left[:, at] = ~(leaf + (np.arange(trees) << depth))
            right[:, at] = ~(leaf + 1 + (np.arange(trees) << depth))
            return at + 1
        left[:, at] = number[:, at + 1]
        after = place(at + 1, level + 1, leaf)
        right[:, at] = number[:, after]
        return place(after, level + 1, leaf + half)

    place(0, 0, 0)
    return Ensemble(
        roots=number[:, 0].astype(np.int32),
        feature=feature[:, level_of].ravel(),
        threshold=threshold[:, level_of].ravel(),
        left=left.ravel(),
        right=right.ravel(),
        default_left=default[:, level_of].ravel(),
        leaf_values=rng.normal(size=(trees << depth, 1)),
        target=np.zeros(trees, np.int32),
        base=np.zeros(1),
        compare="le",
    )


@pytest.mark.by_day(3)
@pytest.mark.parametrize("depth", [1, 6, 9])
def test_trees_of_one_question_a_level(depth: int) -> None:
    e = levels_alike(depth, 20, depth)
    x = rows_for(e, 1500)
    assert find_oblivious_trees(e).all()
    np.testing.assert_array_equal(by_cursor(e, x.dtype)(x), want(e, x))
    other = e.threshold.copy()
    other[-1] += 1  # the last tree's last node asks something else now
    mixed = replace(e, threshold=other)
    assert find_oblivious_trees(mixed).tolist() == [True] * 19 + [depth == 1]
    np.testing.assert_array_equal(by_cursor(mixed, x.dtype)(x), want(mixed, x))


def test_a_bare_leaf_and_no_tree_at_all() -> None:
    for trees in (0, 3):
        e = Ensemble(
            roots=~np.arange(trees, dtype=np.int32),
            feature=np.zeros(0, np.int32),
            threshold=np.zeros(0, np.float32),
            left=np.zeros(0, np.int32),
            right=np.zeros(0, np.int32),
            default_left=np.zeros(0, bool),
            leaf_values=np.arange(float(trees))[:, None],
            target=np.zeros(trees, np.int32),
            base=np.array([0.5]),
            compare="le",
        )
        for rows in (0, 1, 700):
            x = np.zeros((rows, 2), np.float32)
            np.testing.assert_array_equal(Forest(e, x.dtype)(x), want(e, x))


def one_feature(thresholds: np.ndarray, compare: str = "le", left: bool = False) -> Ensemble:
    """Stumps on column 0, one a threshold; each adds its number to the power of two, or 0."""
    m = thresholds.size
    return Ensemble(
        roots=np.arange(m, dtype=np.int32),
        feature=np.zeros(m, np.int32),
        threshold=thresholds,
        left=~(2 * np.arange(m, dtype=np.int32)),
        right=~(2 * np.arange(m, dtype=np.int32) + 1),
        default_left=np.full(m, left),
        leaf_values=np.arange(2.0 * m)[:, None] ** 2,
        target=np.zeros(m, np.int32),
        base=np.zeros(1),
        compare=compare,
    )


@pytest.mark.by_day(5)
@pytest.mark.parametrize("count", [1, 254, 255, 256, 70_000])
@pytest.mark.parametrize("left", [False, True])
def test_bytes_shorts_and_too_many_thresholds(count: int, left: bool) -> None:
    thresholds = np.sort(np.random.default_rng(count).lognormal(0, 3, count))
    e = one_feature(thresholds, left=left)
    if count > 65_535:
        assert bin_tests(e) is None
        return
    kernel = by_cursor(e, np.dtype(np.float64))
    assert uses_wide_cursors(kernel) == (count > 255)
    some = np.concatenate([thresholds[:40], thresholds[-40:]])
    x = np.concatenate([some, np.nextafter(some, np.inf), np.nextafter(some, -np.inf)])
    x = np.append(x, [np.nan, np.inf, -np.inf, 0.0, -0.0])[:, None]
    np.testing.assert_array_equal(kernel(x), want(e, x))


@pytest.mark.parametrize("compare", ["lt", "le"])
@pytest.mark.parametrize("left", [False, True])
def test_infinite_thresholds_and_a_full_byte_of_them(compare: str, left: bool) -> None:
    """`x < -inf` never holds, and then NaN alone may go left."""
    for extra in ([], np.arange(253.0)):
        e = one_feature(np.array([-np.inf, np.inf, *extra]), compare, left)
        x = np.array([np.nan, -np.inf, np.inf, 0.0, 1.5, -1e300, 252.0, 260.0])[:, None]
        kernel = by_cursor(e, x.dtype)
        np.testing.assert_array_equal(kernel(x), want(e, x))


@pytest.mark.parametrize("kind", ["bytes", "sets", "levels", "shorts", "descent"])
def test_incomplete_blocks(kind: str) -> None:
    """A block whose rows fill some of its vectors is tested by fewer of them."""
    if kind == "levels":
        e = levels_alike(6, 20, 6)
    else:
        depth = 15 if kind == "shorts" else 5
        e = grow(Recipe(3, 6, depth, "float32", "float64", 1, 1, "le", kind == "sets"))
    x = rows_for(e, 700)
    tests = bin_tests(e)
    assert tests is not None
    kernel: RowKernel | None = by_cursor(e, x.dtype)
    if kind == "descent":
        kernel = compile_descent_forest(e, tests, np.full(e.trees, 2), x.dtype)
    assert kernel is not None
    expected_scores = want(e, x)
    for rows in (1, 31, 32, 33, 64, 65, 127, 128, 129, 192, 255, 256, 257, 300, 511, 513, 641):
        np.testing.assert_array_equal(kernel(x[:rows]), expected_scores[:rows])


def test_trees_of_more_leaves_than_a_byte_counts() -> None:
    e = grow(Recipe(3, 3, 15, "float32", "float64", 1, 1, "le"))
    assert max(np.bincount(e.node_roots())) > 255
    x = rows_for(e, 700)
    kernel = by_cursor(e, x.dtype)
    assert uses_wide_cursors(kernel)
    np.testing.assert_array_equal(kernel(x), want(e, x))


@pytest.mark.parametrize("width", [1, 3])
def test_any_layout_of_a_batch_and_any_choice_of_columns(width: int) -> None:
    e = grow(Recipe(1, 20, 4))
    x = rows_for(e, 1000)
    spread = np.zeros((1000, 2 * WIDTH), np.float32)
    spread[:, ::2] = x
    columns = 2 * np.arange(WIDTH)
    for given_rows in (spread, np.asfortranarray(spread), spread[::-1], spread[::width]):
        made = Forest(e, spread.dtype, columns)(given_rows)
        np.testing.assert_array_equal(made, want(e, given_rows[:, ::2]))


@pytest.mark.by_day(2)
@pytest.mark.parametrize("sets", [False, True])
def test_a_wider_batch_is_rounded_to_the_tests_dtype_first(sets: bool) -> None:
    e = grow(Recipe(4, 40, 5, "float32", sets=sets))
    x = rows_for(e, 1000).astype(np.float64)
    x = np.where(np.arange(1000)[:, None] % 2, x, np.nextafter(x, -np.inf))
    with np.errstate(over="ignore"):
        rounded = x.astype(np.float32)
    made = Forest(e, np.dtype(np.float64))(x)
    np.testing.assert_array_equal(made, want(e, rounded))


def test_few_rows_and_many_give_the_same() -> None:
    e = grow(Recipe(5, 30, 5, outputs=3, values=1))
    x = rows_for(e, 2 * BLOCK_BYTES)
    forest = Forest(e, x.dtype)
    whole = forest(x)
    for rows in (0, 1, 2, 30, BLOCK_BYTES // 2, BLOCK_BYTES - 1):
        np.testing.assert_array_equal(forest(x[:rows]), whole[:rows])


@pytest.mark.parametrize("leaves", ["float32", "float64"])
@pytest.mark.parametrize("values", [3, 7, 8, 17])
def test_leaves_of_many_values(values: int, leaves: str) -> None:
    e = grow(Recipe(values, 12, 6, "float32", leaves, values, values))
    x = rows_for(e, 1100)
    expected_scores = want(e, x)
    for strategy in BACKENDS["native"].strategies:
        np.testing.assert_array_equal(Forest(e, x.dtype, strategy=strategy)(x), expected_scores)
    part = grow(Recipe(values, 12, 6, "float32", leaves, values, values + 2))  # two outputs besides
    np.testing.assert_array_equal(Forest(part, x.dtype)(x), want(part, x))


@pytest.mark.parametrize("strategy", BACKENDS["native"].strategies)
def test_each_kernel_runs_all_batches_when_asked(strategy: str) -> None:
    e = grow(Recipe(5, 30, 5, outputs=3, values=1))
    x = rows_for(e, 700)
    forest = Forest(e, x.dtype, strategy=strategy)
    for rows in (0, 1, 700):
        np.testing.assert_array_equal(forest(x[:rows]), want(e, x[:rows]))


def test_a_kernel_that_cannot_run_the_trees_says_so() -> None:
    thresholds = np.sort(np.random.default_rng(0).lognormal(0, 3, 70_000))
    e = one_feature(thresholds)
    x = np.array([[0.5], [1.5]])
    for strategy in ("cursor", "descent"):
        with pytest.raises(BackendError, match=f"strategy '{strategy}' cannot run these trees"):
            Forest(e, x.dtype, strategy=strategy)(x)
    np.testing.assert_array_equal(Forest(e, x.dtype)(np.repeat(x, 400, 0))[:1], want(e, x[:1]))


@COMMON
@given(
    st.lists(st.floats(width=32, allow_nan=False), max_size=400),
    st.sampled_from([np.float32, np.float64]),
    st.booleans(),
)
def test_a_bin_counts_the_thresholds_below(
    values: list[float], dtype: type[np.floating], shifted: bool
) -> None:
    thresholds = np.unique(np.array(values, dtype))
    near = np.concatenate([np.nextafter(thresholds, dtype(s)) for s in (np.inf, -np.inf)])
    x = np.concatenate([thresholds, near, np.array([np.inf, -np.inf, 0, np.nan], dtype)])
    yes, no = np.ones(1, bool), np.zeros(1, bool)
    gone = np.array([thresholds.size])
    table = make_ranks([thresholds], gone, yes, yes if shifted else no, np.dtype(dtype))
    assert table is not None
    assert table.width == 2
    rows = BLOCK_BYTES
    panel = np.empty(2 * rows, table.dtype)
    below = (thresholds[None, :] < x[:, None]).sum(1)
    for start in range(0, len(x), rows):
        value, place = np.empty(TILE * rows, dtype), np.empty(rows, np.uint32)
        tables = (np.zeros(1, np.int64), *table.arrays())
        fill_bins(x[:, None], start, tables, value, place, panel, rows)
        part = slice(start, min(start + rows, len(x)))
        size = part.stop - part.start
        high, least = panel[:size].astype(int), panel[rows : rows + size].astype(int)
        gone = np.isnan(x[part])
        np.testing.assert_array_equal(high, np.where(gone, thresholds.size, below[part]))
        np.testing.assert_array_equal(least, np.where(gone, 0, below[part] + shifted))


@pytest.mark.by_day(2)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_leaves_from_memory_and_from_registers(dtype: str) -> None:
    """Trees of 1 to some hundred leaves: their tables have other sizes, and none reads beyond."""
    seen = set()
    for depth in range(14):
        for seed in range(3):
            e = grow(Recipe(seed, 1, depth, "float32", dtype, 2, 3, "le"))
            seen.add(int(e.leaf_values.shape[0] > 64) + int(e.leaf_values.shape[0] > 256))
            x = rows_for(e, 600)
            kernel = by_cursor(e, x.dtype)
            np.testing.assert_array_equal(kernel(x), want(e, x))
    assert seen == {0, 1, 2}


GENERIC = """
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from sqlml.backends.native.jit import processor_levels
from sqlml.backends.native.trees.binned import bin_tests
from sqlml.backends.native.trees.cursor_forest import compile_cursor_forest
from sqlml.ir import reference
from tests.support.random_trees import Recipe, grow, rows_for
assert processor_levels.VECTOR_BYTES == 16
for leaves in ("float32", "float64"):
    e = grow(Recipe(2, 9, 6, leaves=leaves, sets=True))
    x = rows_for(e, 700)
    want = reference.FUNCTIONS["tree_ensemble"]([x], e.attrs())
    assert np.array_equal(compile_cursor_forest(e, bin_tests(e), x.dtype)(x), want)
"""


@pytest.mark.nightly
def test_a_processor_without_wide_vectors() -> None:
    environment = os.environ | {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    subprocess.run([sys.executable, "-c", GENERIC], check=True, env=environment, cwd=ROOT)


def test_thousands_of_thresholds_are_searched_in_a_few_steps() -> None:
    thresholds = np.unique(np.random.default_rng(0).normal(size=5_000).astype(np.float32))
    no = np.zeros(1, bool)
    tables = make_ranks([thresholds], np.zeros(1, np.int64), no, no, thresholds.dtype)
    assert tables is not None and tables.steps[0] <= 4
