"""Trees on a GPU: the same numbers as the reference, bit for bit, whatever the memory."""

from __future__ import annotations

import pickle
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sqlml.backends.torch import gpu_transfers
from sqlml.backends.torch.backend import TorchBackend
from sqlml.errors import BackendError
from sqlml.ir import reference
from sqlml.passes import TENSOR_PASSES, run
from sqlml.passes.lower import lower
from sqlml.scorer.scorer import compile
from tests.gpu.marks import on_gpu
from tests.support.random_trees import Recipe, grow, program_of, rows_for
from tests.support.tree_recipes import RECIPES

pytestmark = on_gpu

STRATEGIES = ("gemm", "tt", "ptt", "fused")


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(recipe=RECIPES, rows=st.sampled_from([0, 1, 2, 127, 128, 129, 1000]))
def test_trees_are_bit_for_bit_those_of_the_reference(recipe: Recipe, rows: int) -> None:
    e = grow(recipe)
    program, x = program_of(e), rows_for(e, rows, recipe.seed)
    want = reference.run(program, {"x": x})["score"]
    for strategy in STRATEGIES:
        passed = run(lower(program, strategy), passes=TENSOR_PASSES)
        got = TorchBackend().compile(passed, device="cuda").run({"x": x})["score"]
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want, strategy)


@pytest.mark.parametrize("strategy", ["tt", "fused"])
def test_a_chain_of_300_nodes(strategy: str) -> None:
    e = grow(Recipe(seed=5, trees=3, depth=300, chain=True, sets=True, dtype="float64"))
    program, x = program_of(e), rows_for(e, 500)
    got = TorchBackend().compile(lower(program, strategy), device="cuda").run({"x": x})["score"]
    np.testing.assert_array_equal(got, reference.run(program, {"x": x})["score"])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_batch_of_many_blocks_of_any_layout(
    strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_transfers, "SMALL_ROWS", 700)
    e = grow(Recipe(seed=7, trees=50, depth=7, outputs=3, sets=True))
    program, x = program_of(e), rows_for(e, 20_000)
    model = TorchBackend().compile(lower(program, strategy), device="cuda")
    want = reference.run(program, {"x": x})["score"]
    columns = np.asfortranarray(x)
    columns.setflags(write=False)
    for given_x, back in ((x, 1), (columns, 1), (x[::-1], -1)):
        np.testing.assert_array_equal(model.run({"x": given_x})["score"][::back], want)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.run({"x": x})["score"], want)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_four_threads_at_once(strategy: str) -> None:
    e = grow(Recipe(seed=2, trees=20, sets=True))
    program = program_of(e)
    model = TorchBackend().compile(lower(program, strategy), device="cuda")
    batches = [rows_for(e, 3000, seed) for seed in range(4)]
    wanted = [reference.run(program, {"x": x})["score"] for x in batches]
    wrong: list[object] = []

    def score(x: np.ndarray, want: np.ndarray) -> None:
        for _ in range(20):
            if not np.array_equal(model.run({"x": x})["score"], want):
                wrong.append(x)

    threads = [threading.Thread(target=score, args=p) for p in zip(batches, wanted, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_short_memory_makes_smaller_blocks_and_the_same_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The free memory is overstated, so that torch's own limit is met in the middle of a block."""
    e = grow(Recipe(seed=7, trees=250, depth=8))
    program, x = program_of(e), rows_for(e, 100_000)
    model = TorchBackend().compile(lower(program, "tt"), device="cuda")
    want = model.run({"x": x})["score"]
    total = torch.cuda.get_device_properties(0).total_memory
    used = torch.cuda.memory_allocated()
    torch.cuda.empty_cache()
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (total, total))
    torch.cuda.set_per_process_memory_fraction((used + (64 << 20)) / total)
    try:
        np.testing.assert_array_equal(model.run({"x": x})["score"], want)
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(1e-9)
        with pytest.raises(BackendError, match="not enough memory.*device='cpu'"):
            model.run({"x": x})
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    np.testing.assert_array_equal(model.run({"x": x})["score"], want)


def test_estimators_score_on_the_gpu_as_on_the_cpu() -> None:
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 6))
    y = np.digitize(x[:, 0] * x[:, 1] + x[:, 2], [-0.5, 0.5])
    for model in (
        RandomForestClassifier(20, max_depth=6, random_state=0),
        RandomForestClassifier(3, random_state=0),
        HistGradientBoostingClassifier(max_iter=20, random_state=0),
        make_pipeline(StandardScaler(), LogisticRegression()),
    ):
        model.fit(x, y)
        want = model.predict_proba(x)
        forest = hasattr(model, "n_estimators") or hasattr(model, "max_iter")
        for strategy in ("tt", "fused") if forest else ("tt",):
            scorer = compile(model, backend="torch", device="cuda", strategy=strategy)
            np.testing.assert_allclose(scorer.predict_proba(x), want, rtol=1e-12, atol=1e-14)
            np.testing.assert_array_equal(scorer.predict(x), model.predict(x))


def test_denormal_values_are_not_zero() -> None:
    e = grow(Recipe(seed=1, trees=30, depth=4, compare="lt"))
    tiny = np.full_like(e.threshold, 3e-45)
    e = replace(e, threshold=tiny)
    x = np.array([[0.0] * 5, [1.4e-45] * 5, [3e-45] * 5, [4.2e-45] * 5, [-1e-45] * 5], np.float32)
    want = reference.run(program_of(e), {"x": x})["score"]
    for strategy in STRATEGIES:
        lowered = lower(program_of(e), strategy)
        got = TorchBackend().compile(lowered, device="cuda").run({"x": x})["score"]
        np.testing.assert_array_equal(got, want, strategy)
