"""The torch backend's own promises: devices, resident constants, blocks, exact float32."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sqlml.backends.torch import TorchBackend
from sqlml.errors import BackendError
from sqlml.ir import reference
from sqlml.ir.builder import Builder
from sqlml.passes.lower import lower
from tests.random_trees import Recipe, grow, program_of, rows_for

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


@no_gpu
@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
def test_cuda_without_a_gpu_names_the_fix(device: str) -> None:
    program = lower(program_of(grow(Recipe(seed=1))), "tt")
    with pytest.raises(BackendError, match="use device='cpu' or 'auto'"):
        TorchBackend().compile(program, device=device)


def test_an_unknown_device_is_refused() -> None:
    program = lower(program_of(grow(Recipe(seed=1))), "tt")
    for device in ("gpu", "cuda:x", "tpu"):
        with pytest.raises(BackendError, match="there are cpu, cuda"):
            TorchBackend().compile(program, device=device)


def test_auto_takes_what_there_is() -> None:
    e = grow(Recipe(seed=1))
    program, x = program_of(e), rows_for(e, 50)
    model = TorchBackend().compile(lower(program, "ptt"), device="auto")
    np.testing.assert_array_equal(
        model.run({"x": x})["score"], reference.run(program, {"x": x})["score"]
    )


@gpu
@pytest.mark.parametrize("strategy", ["gemm", "tt", "ptt"])
@pytest.mark.parametrize("leaves", ["float32", "float64"])
def test_trees_on_the_gpu_are_bit_for_bit_those_of_the_reference(
    strategy: str, leaves: str
) -> None:
    e = grow(Recipe(seed=7, trees=50, depth=7, leaves=leaves, outputs=3, sets=True))
    program, x = program_of(e), rows_for(e, 5000)
    model = TorchBackend().compile(lower(program, strategy), device="cuda")
    np.testing.assert_array_equal(
        model.run({"x": x})["score"], reference.run(program, {"x": x})["score"]
    )


def test_constants_are_made_once() -> None:
    program = lower(program_of(grow(Recipe(seed=1))), "tt")
    model = TorchBackend().compile(program)
    before = [id(t) for t in model._constants.values()]
    model.run({"x": np.zeros((3, 5), np.float32)})
    assert [id(t) for t in model._constants.values()] == before
    assert all(isinstance(t, torch.Tensor) for t in model._constants.values())


def test_a_large_batch_runs_in_blocks_of_bounded_memory() -> None:
    """gemm holds every node and leaf of every tree for each row of a block."""
    e = grow(Recipe(seed=7, trees=250, depth=7))
    program, x = program_of(e), rows_for(e, 4000)
    model = TorchBackend().compile(lower(program, "gemm"))
    assert model._rows < 4000
    np.testing.assert_array_equal(
        model.run({"x": x})["score"], reference.run(program, {"x": x})["score"]
    )


def test_sums_of_float32_trees_are_sequential() -> None:
    """A tree-wise or float64 sum would keep the ones that float32 loses beside 2^24."""
    b = Builder()
    values = b.op("reshape", b.input("x", "float32", 101), shape=(101, 1))
    target, base = np.zeros(101, np.int32), np.zeros(1, np.float32)
    program = b.build({"score": b.op("accumulate", values, base=base, target=target)})
    x = np.ones((2, 101), np.float32)
    x[:, 0] = 2.0**24
    assert TorchBackend().compile(program).run({"x": x})["score"].tolist() == [[2.0**24]] * 2


def test_the_float32_sigmoid_is_xgboosts() -> None:
    b = Builder()
    program = b.build({"proba": b.op("sigmoid", b.input("x", "float32"))})
    x = np.array([-200, -88.8, -88.7, -1, 0, 3, 200, np.inf, -np.inf, np.nan], np.float32)
    got = TorchBackend().compile(program).run({"x": x})["proba"]
    want = reference.run(program, {"x": x})["proba"]
    np.testing.assert_allclose(got, want, rtol=2e-7)
    # The formula never reaches 0, where torch.sigmoid does.
    assert got[0] > 0 and torch.sigmoid(torch.tensor(-200.0)).item() == 0
    assert np.isnan(got[-1])


def test_a_mixed_concat_promotes_as_numpy_does() -> None:
    """torch makes float32 of int64 beside float32, and loses 2^24 + 1."""
    b = Builder()
    x = b.op("concat", b.input("i", "int64"), b.input("f", "float32"))
    batch = {"i": np.array([2**24 + 1]), "f": np.array([0.5], np.float32)}
    got = TorchBackend().compile(b.build({"transform": x})).run(batch)["transform"]
    assert got.dtype == np.float64
    assert got.tolist() == [[2.0**24 + 1, 0.5]]


def test_strings_pass_through_on_the_host() -> None:
    b = Builder()
    filled = b.op("fill", b.input("plan", "string"), value="free")
    codes = b.op("encode", filled, categories=np.array(["free", "pro"], object), missing=-1)
    hot = b.op("one_hot", codes, width=2, dtype="float64")
    program = lower(b.build({"transform": hot}), "tt")
    batch = {"plan": np.array(["pro", None, "x"], object)}
    got = TorchBackend().compile(program).run(batch)["transform"]
    assert got.tolist() == [[0, 1], [1, 0], [0, 0]]
