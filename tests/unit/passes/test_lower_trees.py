"""The tree strategies as Programs: what they are made of, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

from sqlml.errors import BackendError, ConfigError
from sqlml.ir import reference
from sqlml.ir.builder import Builder
from sqlml.ir.operators.forests import find_exit_leaves
from sqlml.ir.ops import verify
from sqlml.ir.program import Program
from sqlml.ir.trees import Ensemble, RawTrees, build_ensemble
from sqlml.passes import tree_strategies
from sqlml.passes.lower import STRATEGIES, lower
from sqlml.passes.tree_strategies import lower_gemm, lower_ptt, lower_tt, measure_structure
from tests.support.random_trees import Recipe, grow, program_of, rows_for


def stump(compare: str, threshold: float, default_left: bool) -> Program:
    """One test on column 0: left leaf 10, right leaf 20."""
    raw = RawTrees(
        roots=np.array([0]),
        feature=np.zeros(3, np.int64),
        threshold=np.array([threshold, 0, 0]),
        left=np.array([1, 0, 0]),
        right=np.array([2, 0, 0]),
        leaf=np.array([False, True, True]),
        default_left=np.array([default_left, False, False]),
        value=np.array([[0.0], [10.0], [20.0]]),
    )
    return program_of(build_ensemble(raw, target=np.zeros(1), base=np.zeros(1), compare=compare), 1)


def scores(program: Program, *values: float) -> list[float]:
    x = np.array(values).reshape(-1, 1)
    return reference.run(program, {"x": x})["score"].ravel().tolist()


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("default_left", [True, False])
def test_null_goes_to_default_direction(strategy: str, default_left: bool) -> None:
    program = lower(stump("lt", 0.5, default_left), strategy)
    assert scores(program, np.nan) == [10.0 if default_left else 20.0]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("default_left", [True, False])
@pytest.mark.parametrize("threshold", [0.0, 0.1, np.inf, -np.inf, 5e-324])
def test_a_tie_goes_as_the_source_compares(
    strategy: str, default_left: bool, threshold: float
) -> None:
    around = [threshold, np.nextafter(threshold, np.inf), np.nextafter(threshold, -np.inf)]
    for compare, ties in (("lt", False), ("le", True)):
        program = lower(stump(compare, threshold, default_left), strategy)
        goes_left = [v < threshold or (ties and v == threshold) for v in around]
        assert scores(program, *around) == [10.0 if left else 20.0 for left in goes_left]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_minus_zero_is_zero(strategy: str) -> None:
    assert scores(lower(stump("lt", 0.0, True), strategy), -0.0, 0.0) == [20.0, 20.0]
    assert scores(lower(stump("le", -0.0, True), strategy), -0.0, 0.0) == [10.0, 10.0]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_tree_ensemble_remains(strategy: str) -> None:
    program = verify(lower(program_of(grow(Recipe(seed=1, sets=True))), strategy))
    assert "tree_ensemble" not in {node.op for node in program}
    assert list(program.inputs) == ["x"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_trees_of_all_sizes_are_added_in_their_own_order(strategy: str) -> None:
    """float32 sums differ with their order; groups by size must not reorder them."""
    e = grow(Recipe(seed=11, trees=40, depth=6))
    assert len(set(measure_structure(e).depth.tolist())) > 4
    program, x = program_of(e), rows_for(e, 300)
    want = reference.run(program, {"x": x})["score"]
    np.testing.assert_array_equal(reference.run(lower(program, strategy), {"x": x})["score"], want)
    backwards = find_exit_leaves(e, x)[:, ::-1]
    other = np.repeat(e.base[None], 300, axis=0)
    for leaves in backwards.T:
        other += e.leaf_values[leaves]
    assert not np.array_equal(other, want)


def test_gemm_counts_paths_in_one_product_a_group() -> None:
    program = lower_gemm(program_of(grow(Recipe(seed=2, trees=30, depth=5))))
    products = [node for node in program if node.op == "batch_matmul"]
    nodes = [program.nodes[node.inputs[1]].attrs["value"] for node in products]
    assert 1 <= len(products) <= 6
    assert all(np.isin(paths, [-1, 0, 1]).all() for paths in nodes)


def test_tree_traversal_looks_up_one_level_a_step() -> None:
    e = grow(Recipe(seed=4, trees=1, depth=7, chain=True))
    program = lower_tt(program_of(e))
    assert sum(node.op == "gather" for node in program) == e.depth - 1


def test_perfect_trees_need_no_table_of_children() -> None:
    program = lower_ptt(program_of(grow(Recipe(seed=4, trees=1, depth=3, chain=True))))
    tables = [node.attrs["value"] for node in program if node.op == "constant"]
    assert max(table.shape[0] for table in tables) == 8


def test_perfect_trees_of_depth_10_and_no_deeper() -> None:
    e = grow(Recipe(seed=6, trees=2, depth=tree_strategies.MAX_DEPTH, chain=True))
    program, x = program_of(e), rows_for(e, 200)
    np.testing.assert_array_equal(
        reference.run(lower_ptt(program), {"x": x})["score"],
        reference.run(program, {"x": x})["score"],
    )
    deeper = grow(Recipe(seed=6, trees=2, depth=tree_strategies.MAX_DEPTH + 1, chain=True))
    with pytest.raises(BackendError, match=r"depth 11 .* use strategy='tt'"):
        lower_ptt(program_of(deeper))


def test_gemm_refuses_trees_whose_matrices_would_not_fit() -> None:
    inner = 9000  # a chain: 9000 * 9001 entries
    numbers = np.arange(inner, dtype=np.int32)
    e = Ensemble(
        roots=np.zeros(1, np.int32),
        feature=np.zeros(inner, np.int32),
        threshold=np.zeros(inner, np.float32),
        left=np.where(numbers + 1 < inner, numbers + 1, ~np.int32(inner)).astype(np.int32),
        right=~numbers,
        default_left=np.zeros(inner, bool),
        leaf_values=np.zeros((inner + 1, 1), np.float32),
        target=np.zeros(1, np.int32),
        base=np.zeros(1, np.float32),
        compare="lt",
    )
    with pytest.raises(BackendError, match="81009000 entries .* use strategy='tt'"):
        lower_gemm(program_of(e))


def test_one_deep_tree_does_not_pad_the_others() -> None:
    deep = grow(Recipe(seed=1, trees=1, depth=60, chain=True))
    small = grow(Recipe(seed=2, trees=63, depth=3))
    shift, leaves = deep.nodes, deep.leaf_values.shape[0]

    def moved(child: np.ndarray) -> np.ndarray:
        return np.where(child >= 0, child + shift, child - leaves).astype(np.int32)

    joined = Ensemble(
        roots=np.append(deep.roots, moved(small.roots)),
        feature=np.append(deep.feature, small.feature),
        threshold=np.append(deep.threshold, small.threshold),
        left=np.append(deep.left, moved(small.left)),
        right=np.append(deep.right, moved(small.right)),
        default_left=np.append(deep.default_left, small.default_left),
        leaf_values=np.concatenate([deep.leaf_values, small.leaf_values]),
        target=np.append(deep.target, small.target),
        base=deep.base,
        compare="lt",
    )
    program, x = program_of(joined), rows_for(joined, 100)
    lowered = lower_tt(program)
    wide = [node for node in lowered if node.op == "gather" and node.type.width > 1]
    assert len(wide) < 6
    np.testing.assert_array_equal(
        reference.run(lowered, {"x": x})["score"], reference.run(program, {"x": x})["score"]
    )


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_model_that_reads_no_column(strategy: str) -> None:
    """Trees that are bare leaves, on an input without columns."""
    e = grow(Recipe(seed=0, trees=3, depth=0, dtype="float64"))
    program = lower(program_of(e, width=0), strategy)
    want = e.base + e.leaf_values.sum(dtype=e.base.dtype)
    got = reference.run(program, {"x": np.zeros((4, 0))})["score"]
    np.testing.assert_allclose(got, np.tile(want, (4, 1)), rtol=1e-6)


def test_an_unknown_strategy_is_a_config_error() -> None:
    b = Builder()
    program = b.build({"score": b.input("x", "float64")})
    with pytest.raises(ConfigError, match="strategies: traverse, gemm, tt, ptt"):
        lower(program, "leaf_cursor")
