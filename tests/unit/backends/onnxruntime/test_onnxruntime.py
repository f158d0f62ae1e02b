"""The onnxruntime backend: stages, devices, and what the contract tests do not show."""

from __future__ import annotations

import pickle
import threading

import numpy as np
import onnxruntime
import pytest

from sqlml.backends import base
from sqlml.backends.onnxruntime import backend as onnx_backend
from sqlml.backends.onnxruntime.graph import split_into_stages
from sqlml.errors import BackendError, MissingValueError
from sqlml.ir import reference
from sqlml.ir.builder import Builder
from sqlml.passes.lower import lower
from sqlml.planner.program.choose import choose_way
from tests.contract.opaque_cases import onnx_graph
from tests.support.random_trees import Recipe, grow, program_of, rows_for


def test_a_check_parts_the_program_into_graph_host_graph() -> None:
    b = Builder()
    x = b.op("neg", b.input("x", "float64", 2))
    x = b.op("require_finite", x, features=("a", "b"), allow_nan=False, step="Ridge")
    program = b.build({"score": b.op("exp", b.op("neg", x))})
    hosts = [program.nodes[i].op == "require_finite" for i in range(len(program))]
    found = split_into_stages(program, ["score"], lambda i: hosts[i])
    assert [s.host for s in found] == [False, True, False]
    assert [len(s.nodes) for s in found] == [1, 1, 2]
    model = base.load_backend("onnxruntime").compile(program)
    x = np.array([[1.0, 2.0], [-3.0, 0.0]])
    np.testing.assert_allclose(model.run({"x": x})["score"], np.exp(x))
    with pytest.raises(MissingValueError, match="'b' has NULL"):
        model.run({"x": np.array([[0.0, np.nan]])})


def test_trees_with_categories_need_a_lowering() -> None:
    program = program_of(grow(Recipe(seed=1, sets=True)))
    backend = base.load_backend("onnxruntime")
    assert "strategy gemm, tt or ptt" in str(backend.supports(program))
    assert choose_way(program, {"backend": "onnxruntime"}).strategy in ("gemm", "tt", "ptt")
    assert choose_way(program_of(grow(Recipe(seed=1))), {"backend": "onnxruntime"}).strategy == (
        "traverse"
    )
    assert backend.supports(lower(program, "tt")) is None


def test_a_whole_graph_is_chosen_for_onnxruntime_alone() -> None:
    b = Builder()
    program = b.build({"transform": onnx_graph(b)})
    chosen = choose_way(program, {})
    assert chosen.backend == "onnxruntime" and "one backend" in chosen.reason
    for other in ("native", "torch"):
        assert "runs only on backend 'onnxruntime'" in str(
            base.load_backend(other).supports(program)
        )
    model = base.load_backend("onnxruntime").compile(program)
    x = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)
    want = reference.run(program, {"x": x})["transform"]
    np.testing.assert_array_equal(model.run({"x": x})["transform"], want)
    assert model.run({"x": x[:0]})["transform"].shape == (0, 3)


def test_a_pickled_model_and_four_threads_score_the_same() -> None:
    program = program_of(grow(Recipe(seed=4, trees=20)))
    model = base.load_backend("onnxruntime").compile(program)
    again = pickle.loads(pickle.dumps(model))
    assert again.program.hash == program.hash
    x = rows_for(grow(Recipe(seed=4, trees=20)), 300)
    want = reference.run(program, {"x": x})["score"]
    wrong: list[object] = []

    def score() -> None:
        for _ in range(10):
            if not np.array_equal(again.run({"x": x})["score"], want):
                wrong.append(1)

    threads = [threading.Thread(target=score) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_devices() -> None:
    b = Builder()
    program = b.build({"score": b.op("neg", b.input("x", "float64"))})
    backend = base.load_backend("onnxruntime")
    assert backend.compile(program, device="auto").run({"x": np.ones(2)})["score"].sum() == -2
    with pytest.raises(BackendError, match="unknown device 'tpu'"):
        backend.compile(program, device="tpu")
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        with pytest.raises(BackendError, match="built for the CPU only"):
            backend.compile(program, device="cuda")


def test_an_index_outside_its_table_is_an_error() -> None:
    b = Builder()
    taken = b.op("take", b.constant(np.arange(3.0)), b.input("i", "int64"))
    model = base.load_backend("onnxruntime").compile(b.build({"score": taken}))
    with pytest.raises(BackendError, match="could not run"):
        model.run({"i": np.array([5])})


def test_a_block_too_large_for_the_device_is_halved_until_it_fits() -> None:
    b = Builder()
    program = b.build({"score": b.op("neg", b.input("x", "float64"))})
    model = base.load_backend("onnxruntime").compile(program)
    model._block_rows = 400
    needed, (whole,) = model._plan(("score",))
    met: list[int] = []

    def on_a_small_device(limit: int) -> None:
        def run(values: dict[int, np.ndarray]) -> None:
            met.append(values[0].shape[0])
            if met[-1] > limit:
                said = RuntimeError("Failed to allocate memory for requested buffer of size 9")
                raise onnx_backend._convert_error(said, "cuda")
            whole(values)

        model._plans[("score",)] = needed, (run,)

    x = np.arange(1000.0)
    on_a_small_device(120)
    np.testing.assert_array_equal(model.run({"x": x})["score"][:, 0], -x)
    assert met == [400, 200, *[100] * 10]
    on_a_small_device(3)
    with pytest.raises(BackendError, match="'cuda' has not enough memory.*use device='cpu'"):
        model.run({"x": x})
    assert met[-1] == onnx_backend.FEWEST_ROWS


def test_a_lost_device_is_told_from_a_fault_of_the_graph() -> None:
    lost = onnx_backend._convert_error(
        RuntimeError("CUDA failure 700: illegal memory access"), "cuda:1"
    )
    assert "device 'cuda:1' failed while scoring; use device='cpu'" in str(lost)
    fault = onnx_backend._convert_error(RuntimeError("index 5 is out of bounds"), "cuda")
    assert str(fault) == "onnxruntime could not run the graph: index 5 is out of bounds"


def test_lookups_by_any_index_are_numpys() -> None:
    rng = np.random.default_rng(0)
    for dtype in ("bool", "int32", "int64", "float32", "float64"):
        table = rng.integers(0, 9, 50).astype(dtype)
        for shape in ((50,), (50, 1), (10, 5)):
            for index in ("int8", "int32", "int64"):
                b = Builder()
                at = b.input("i", index, 3)
                program = b.build({"score": b.op("take", b.constant(table.reshape(shape)), at)})
                model = base.load_backend("onnxruntime").compile(program)
                i = rng.integers(0, shape[0], (7, 3)).astype(index)
                np.testing.assert_array_equal(
                    model.run({"i": i})["score"], reference.run(program, {"i": i})["score"]
                )
    for chosen in ([4, 0, 2, 2, 1, 3], [1], [], [0, 1, 2, 3, 4], [2, 3, 4]):
        b = Builder()
        x = b.op("select", b.input("x", "float64", 5), indices=np.array(chosen, np.int64))
        model = base.load_backend("onnxruntime").compile(b.build({"transform": x}))
        rows = rng.normal(size=(6, 5))
        np.testing.assert_array_equal(model.run({"x": rows})["transform"], rows[:, chosen])


@pytest.mark.parametrize("strategy", ["traverse", "gemm", "tt", "ptt"])
def test_sums_of_float16_leaves_are_rounded_after_each_tree(strategy: str) -> None:
    """onnxruntime's CumSum would add them in float32."""
    e = grow(Recipe(seed=6, trees=9, depth=4, values=2, outputs=4, leaves="float16"))
    program, x = program_of(e), rows_for(e, 300)
    model = base.load_backend("onnxruntime").compile(lower(program, strategy))
    want = reference.run(program, {"x": x})["score"]
    assert want.dtype == np.float16
    np.testing.assert_array_equal(model.run({"x": x})["score"], want)
