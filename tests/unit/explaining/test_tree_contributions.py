"""The contributions of trees equal Shapley values by their definition, and add up."""

from __future__ import annotations

import numpy as np
import pytest

from sqlml.backends.native.trees.contribution_kernel import ROWS, make_contribution_kernel
from sqlml.errors import UnsupportedModelError
from sqlml.importers.registry import import_model
from sqlml.ir import reference
from sqlml.ir.builder import Builder
from tests.support.random_trees import WIDTH, Recipe, covered, grow, rows_for
from tests.support.shapley import Worth, by_definition, expected_of_trees

RECIPES = {
    "deep": Recipe(seed=1, depth=9),
    "chains": Recipe(seed=2, depth=30, chain=True, trees=3),
    "several outputs": Recipe(seed=3, values=2, outputs=4, depth=4),
    "sets": Recipe(seed=4, dtype="float64", compare="le", leaves="float64", sets=True),
}


@pytest.mark.parametrize("name", RECIPES)
def test_they_equal_the_definition(name: str) -> None:
    e = covered(grow(RECIPES[name]))
    x = rows_for(e, 7)
    attrs = {**e.attrs(), "player": np.arange(WIDTH, dtype=np.int32), "players": WIDTH}
    got = make_contribution_kernel(attrs, x.dtype)(x).reshape(len(x), e.outputs, WIDTH + 1)
    for row, contributions in zip(x, got, strict=True):
        worth = expected_of_trees(e, row)
        want = by_definition(worth, WIDTH).T
        np.testing.assert_allclose(contributions[:, :-1], want, rtol=0, atol=1e-12)
        np.testing.assert_allclose(contributions[:, -1], worth(frozenset()), rtol=0, atol=1e-12)
        everything = worth(frozenset(range(WIDTH)))
        np.testing.assert_allclose(contributions.sum(axis=1), everything, rtol=0, atol=1e-12)


def test_columns_of_one_player_are_known_together() -> None:
    e = covered(grow(RECIPES["deep"]))
    x = rows_for(e, 7)
    player = (np.arange(WIDTH) % 3).astype(np.int32)
    attrs = {**e.attrs(), "player": player, "players": 3}
    got = make_contribution_kernel(attrs, x.dtype)(x)
    for row, contributions in zip(x, got, strict=True):
        of_columns = expected_of_trees(e, row)

        def worth(known: frozenset[int], of_columns: Worth = of_columns) -> np.ndarray:
            return of_columns(frozenset(np.flatnonzero(np.isin(player, list(known))).tolist()))

        np.testing.assert_allclose(
            contributions[:-1], by_definition(worth, 3)[:, 0], rtol=0, atol=1e-12
        )
    some = reference.FUNCTIONS["tree_contributions"]([x], attrs)
    np.testing.assert_allclose(got, some, rtol=0, atol=1e-12)


@pytest.mark.parametrize("rows", [0, 1, 7, ROWS - 1, ROWS, 2 * ROWS + 3])
def test_a_row_has_the_same_contributions_in_any_batch(rows: int) -> None:
    e = covered(grow(RECIPES["deep"]))
    x = rows_for(e, rows)
    attrs = {**e.attrs(), "player": np.zeros(WIDTH, np.int32), "players": 1}
    run = make_contribution_kernel(attrs, x.dtype)
    whole = run(x)
    assert whole.shape == (rows, 2)
    for k in range(0, rows, 97):
        np.testing.assert_array_equal(run(x[k : k + 1]), whole[k : k + 1])
    some = reference.FUNCTIONS["tree_contributions"]([x[:20]], attrs)
    np.testing.assert_allclose(whole[:20], some, rtol=0, atol=1e-12)


def test_columns_in_any_layout_of_memory() -> None:
    e = covered(grow(RECIPES["deep"]))
    x = rows_for(e, 50)
    attrs = {**e.attrs(), "player": np.arange(WIDTH, dtype=np.int32), "players": WIDTH}
    run = make_contribution_kernel(attrs, x.dtype)
    np.testing.assert_array_equal(run(np.asfortranarray(x)), run(x))
    np.testing.assert_array_equal(run(np.repeat(x, 2, axis=0)[::2]), run(x))


def test_wide_results_take_blocks_of_few_rows() -> None:
    e = covered(grow(RECIPES["several outputs"]))
    x = rows_for(e, 50)
    player = np.array([7, 0, 299_999, 3, 4], np.int32)
    wide = {**e.attrs(), "player": player, "players": 300_000}
    narrow = {**e.attrs(), "player": np.arange(WIDTH, dtype=np.int32), "players": WIDTH}
    got = make_contribution_kernel(wide, x.dtype)(x[:9]).reshape(9, e.outputs, 300_001)
    want = make_contribution_kernel(narrow, x.dtype)(x[:9]).reshape(9, e.outputs, WIDTH + 1)
    np.testing.assert_array_equal(got[:, :, [*player, 300_000]], want)
    assert np.count_nonzero(got) <= np.count_nonzero(want)


def test_no_model_has_operators_of_explanations() -> None:
    e = covered(grow(RECIPES["deep"]))
    b = Builder()
    player = np.zeros(WIDTH, np.int32)
    columns = [b.input(f"x{k}", e.threshold.dtype.name) for k in range(WIDTH)]
    x = b.op("concat", *columns)
    value = b.op("tree_contributions", x, **e.attrs(), player=player, players=1)
    with pytest.raises(UnsupportedModelError, match="belongs to a query, not to a model"):
        import_model(b.build({"transform": value}))
