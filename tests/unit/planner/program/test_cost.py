"""The cost model: what it counts, how it ranks, and what is chosen by it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sqlml.backends import costs
from sqlml.backends.costs import DEFAULT_COSTS, estimate_tree_costs
from sqlml.errors import ConfigError
from sqlml.ir.builder import Builder
from sqlml.ir.program import Program
from sqlml.ir.tree_shape import TreeShape, measure_tree_shape
from sqlml.ir.trees import Ensemble
from sqlml.planner.program import cost
from sqlml.planner.program.choose import choose_way, estimate_choice
from sqlml.planner.program.cost import estimate_ways
from sqlml.tools.calibration.backends import make_perfect_trees
from sqlml.tools.calibration.calibrate import calibrate
from tests.support.random_trees import Recipe, grow, program_of


def full(depth: int, trees: int, columns: int = 4, thresholds: int = 50) -> Program:
    """Trees that are filled to `depth`, in columns of so many thresholds."""
    e = make_perfect_trees(depth, trees, columns, thresholds)
    b = Builder()
    x = b.input("x", "float32", columns)
    return b.build({"score": b.op("tree_ensemble", x, **e.attrs())})


def shape_of(program: Program) -> TreeShape:
    [node] = [n for n in program.nodes if n.op == "tree_ensemble"]
    return measure_tree_shape(Ensemble.of(node.attrs))


def test_neighbours_cost_as_many_comparisons_as_points() -> None:
    def estimate(points: int) -> float:
        b = Builder()
        attrs = {"metric": "sqeuclidean", "squared": False, "ties": "index"}
        distances = b.op(
            "nearest", b.input("x", "float32", 2), points=np.ones((points, 2), "f4"), k=1, **attrs
        )
        return estimate_ways(b.build({"score": distances}), DEFAULT_COSTS)[0].seconds

    added = (estimate(1_100) - estimate(100)) / 1_000 / cost.ROWS * 1e9
    assert DEFAULT_COSTS["native.point"] <= added < 1.1 * DEFAULT_COSTS["native.point"]


def test_texts_are_added_to_the_estimates_of_functions() -> None:
    program = full(3, 20)
    choice = choose_way(program, {}, by_column=True)
    one, three = (estimate_choice(program, choice, 1_000, True, texts) for texts in (1, 3))
    for few, many in zip(one.estimates, three.estimates, strict=True):
        added = many.seconds - few.seconds
        assert added == pytest.approx(1_000 * 2 * DEFAULT_COSTS["column.text"] * 1e-9)


def test_the_shape_counts_levels_paths_and_thresholds() -> None:
    shape = shape_of(full(depth=3, trees=2, columns=3, thresholds=1))
    assert shape.nodes.tolist() == [[1, 2, 4]] * 2
    assert shape.inside.tolist() == [[1.0, 1.0, 1.0]] * 2
    assert shape.steps.tolist() == [3.0, 3.0]
    assert (shape.values, shape.thresholds, shape.sets) == (1, 1, 0)
    chain = measure_tree_shape(grow(Recipe(0, trees=1, depth=4, chain=True)))
    assert chain.nodes.tolist() == [[1, 1, 1, 1]]
    assert chain.inside.tolist() == [[1.0, 0.8, 0.6, 0.4]]  # one of five leaves ends at a level
    deep = measure_tree_shape(grow(Recipe(0, trees=1, depth=90, chain=True)))
    assert deep.nodes.shape == (1, 64)
    assert deep.nodes.sum() == 90
    none = measure_tree_shape(grow(Recipe(0, trees=2, depth=0)))
    assert none.nodes.shape == (2, 0)
    assert none.oblivious.all()


def test_shallow_trees_are_walked_and_deep_ones_cut() -> None:
    shallow = estimate_tree_costs(shape_of(full(4, 30)), DEFAULT_COSTS)
    assert shallow.cursor <= shallow.descent
    assert (shallow.cut == 4).all()
    deep = estimate_tree_costs(shape_of(full(13, 3)), DEFAULT_COSTS)
    assert deep.descent < deep.cursor
    assert ((deep.cut > 3) & (deep.cut < 12)).all()
    slow_steps = {**DEFAULT_COSTS, "native.step": 1e6}
    assert (estimate_tree_costs(shape_of(full(13, 3)), slow_steps).cut == 13).all()


def test_more_thresholds_take_pages_then_wider_bins_and_too_many_none() -> None:
    few, many = (shape_of(full(7, 40, 1, thresholds)) for thresholds in (99, 999))
    bytes_, pages = (
        estimate_tree_costs(few, DEFAULT_COSTS),
        estimate_tree_costs(many, DEFAULT_COSTS),
    )
    shorts = estimate_tree_costs(replace(many, all_thresholds=500_000), DEFAULT_COSTS)
    assert (bytes_.paged, pages.paged, shorts.paged) == (False, True, False)
    assert 1.2 < pages.cursor / bytes_.cursor < 1.6 < shorts.cursor / bytes_.cursor < 3.5
    shape = shape_of(full(3, 2))
    made = estimate_tree_costs(
        replace(shape, thresholds=70_000, all_thresholds=70_000), DEFAULT_COSTS
    )
    assert made.cursor == made.descent == np.inf
    assert np.isfinite(made.lockstep)


@pytest.fixture
def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine that has none."""
    monkeypatch.setattr(cost, "is_available", lambda device: False)


def test_few_rows_go_by_lockstep_and_the_estimate_says_so(without_gpu: None) -> None:
    program = full(6, 100)
    kernels = {rows: estimate_ways(program, DEFAULT_COSTS, rows)[0].kernel for rows in (1, 100_000)}
    assert kernels == {1: "lockstep", 100_000: "cursor"}
    assert estimate_ways(full(13, 3), DEFAULT_COSTS, 100_000)[0].kernel == "descent"


def test_estimates_grow_with_rows_and_trees_and_come_in_order() -> None:
    few, many = (estimate_ways(full(5, 50), DEFAULT_COSTS, rows) for rows in (1_000, 1_000_000))
    for e in few:
        [same] = [m for m in many if m.name == e.name or (m.backend, e.backend) == ("native",) * 2]
        assert same.seconds > 100 * e.seconds
    costs_ = [e.start + e.seconds for e in many]
    assert costs_ == sorted(costs_)
    assert estimate_ways(full(5, 500), DEFAULT_COSTS, 1000)[0].seconds > few[0].seconds


def test_gemm_pays_for_depth_and_ptt_is_out_of_question_for_deep_trees() -> None:
    by_depth = {
        depth: {
            e.strategy: e.seconds
            for e in estimate_ways(full(depth, 4), DEFAULT_COSTS)
            if e.backend == "torch"
        }
        for depth in (2, 11)
    }
    if not by_depth[2]:
        pytest.skip("torch is not installed")
    assert by_depth[2]["gemm"] < by_depth[2]["tt"]
    assert by_depth[11]["gemm"] > by_depth[11]["tt"]
    assert by_depth[11]["ptt"] == np.inf


def test_the_choice_is_the_cheapest_way_that_fits_the_options(without_gpu: None) -> None:
    program = program_of(grow(Recipe(seed=1)))
    auto = choose_way(program, {})
    assert (auto.backend, auto.strategy, auto.device) == ("native", "traverse", "cpu")
    assert auto.reason == "the least estimated time"
    assert auto.estimates[0].backend == "native"
    assert len(auto.estimates) > 1
    assert choose_way(program, {"strategy": "tt"}).backend == "torch"
    assert choose_way(program, {"strategy": "descent"}).backend == "native"
    named = choose_way(program, {"backend": "torch"})
    assert named.backend == "torch"
    assert {e.backend for e in named.estimates} == {"torch"}
    assert choose_way(program, {"backend": "reference"}).estimates == ()
    with pytest.raises(
        ConfigError, match="no strategy 'gemm'; strategies: traverse, cursor, descent"
    ):
        choose_way(program, {"backend": "native", "strategy": "gemm"})


def test_costs_are_read_from_the_file_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "here" / "costs.json"
    monkeypatch.setenv("SQLML_COSTS", str(path))
    costs.current_costs.cache_clear()
    try:
        with pytest.raises(ConfigError, match="SQLML_COSTS: cannot read"):
            costs.current_costs()
        assert costs.save_costs({"native.node": 0.5}) == path
        assert json.loads(path.read_text()) == {"native.node": 0.5}
        assert costs.current_costs()["native.node"] == 0.5
        assert costs.current_costs()["native.step"] == DEFAULT_COSTS["native.step"]
        for text, why in (
            ("[1]", "not an object"),
            ('{"native.nod": 1}', "unknown cost 'native.nod'"),
            ('{"native.node": -1}', "native.node must be a positive number of nanoseconds"),
            ('{"native.node": true}', "native.node must be a positive number of nanoseconds"),
            ("{", "Expecting"),
        ):
            path.write_text(text)
            costs.current_costs.cache_clear()
            with pytest.raises(ConfigError, match=why):
                costs.current_costs()
        monkeypatch.setenv("SQLML_COSTS", "default")
        costs.current_costs.cache_clear()
        assert costs.current_costs() is DEFAULT_COSTS
    finally:
        costs.current_costs.cache_clear()


def test_a_damaged_cache_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SQLML_COSTS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "sqlml").mkdir()
    (tmp_path / "sqlml" / "costs.json").write_text("damaged")
    costs.current_costs.cache_clear()
    try:
        assert costs.current_costs() is DEFAULT_COSTS
    finally:
        costs.current_costs.cache_clear()


@pytest.mark.nightly
def test_calibration_measures_and_keeps_every_cost_of_what_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "costs.json"
    path.write_text("{}")
    monkeypatch.setenv("SQLML_COSTS", str(path))
    costs.current_costs.cache_clear()
    try:
        measured = calibrate()
        assert json.loads(path.read_text()) == measured
        assert costs.current_costs()["native.node"] == measured.get("native.node", 0.0075)
        assert set(measured) <= set(DEFAULT_COSTS)
        # Noise may cost a slope, never most of them.
        for part in ("native.", "sql.", "udf."):
            own = {name for name in DEFAULT_COSTS if name.startswith(part)}
            assert 2 * len(own & set(measured)) >= len(own), part
        for name, value in measured.items():
            assert DEFAULT_COSTS[name] / 50 < value < DEFAULT_COSTS[name] * 50
    finally:
        costs.current_costs.cache_clear()


def test_small_batches_cost_a_gpu_its_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sqlml.planner.program.cost._is_available", lambda way: True)
    program = full(8, 100)

    def seconds(batch: int) -> float:
        found = estimate_ways(program, DEFAULT_COSTS, 1_000_000, batch)
        return min(e.seconds for e in found if e.device == "cuda")

    calls = 1_000_000 / 2_048 - 1  # more than all rows at once
    assert seconds(2_048) - seconds(1_000_000) >= calls * DEFAULT_COSTS["cuda.call"] * 1e-9
    on_cpu = {
        batch: [
            e.seconds
            for e in estimate_ways(program, DEFAULT_COSTS, 1_000_000, batch)
            if e.device == "cpu"
        ]
        for batch in (2_048, 1_000_000)
    }
    assert on_cpu[2_048] == on_cpu[1_000_000]
