"""The torch backend's own promises: devices, resident constants, blocks, exact float32."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch

from sqlml.backends.torch import gpu_transfers
from sqlml.backends.torch.backend import TorchBackend
from sqlml.backends.torch.gpu_transfers import run_in_blocks
from sqlml.errors import BackendError
from sqlml.ir import reference
from sqlml.ir.builder import Builder
from sqlml.passes.lower import lower
from tests.support.random_trees import Recipe, grow, program_of, rows_for

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


@no_gpu
@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
def test_cuda_without_a_gpu_names_the_fix(device: str) -> None:
    program = lower(program_of(grow(Recipe(seed=1))), "tt")
    with pytest.raises(BackendError, match="use device='cpu' or 'auto'"):
        TorchBackend().compile(program, device=device)


def test_an_unknown_device_is_refused() -> None:
    program = lower(program_of(grow(Recipe(seed=1))), "tt")
    for device in ("gpu", "cuda:x", "tpu"):
        with pytest.raises(BackendError, match="devices: auto, cpu, cuda"):
            TorchBackend().compile(program, device=device)


def test_auto_takes_what_there_is() -> None:
    e = grow(Recipe(seed=1))
    program, x = program_of(e), rows_for(e, 50)
    model = TorchBackend().compile(lower(program, "ptt"), device="auto")
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
    assert model._block_rows < 4000
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


def test_many_trees_add_in_order_whatever_they_add_to() -> None:
    """One target, targets in turn, targets that overlap, and outputs that no tree adds to."""
    rng = np.random.default_rng(0)
    for outputs, values, target in (
        (1, 1, np.zeros(40)),
        (3, 1, np.arange(40) % 3),
        (4, 3, rng.integers(0, 2, 40)),
        (5, 2, np.full(40, 2)),
        (40, 1, np.arange(40)),
    ):
        for dtype in ("float16", "float32", "float64"):
            b = Builder()
            terms = b.op("reshape", b.input("x", dtype, 40 * values), shape=(40, values))
            base = rng.normal(size=outputs).astype(dtype)
            total = b.op("accumulate", terms, base=base, target=target.astype(np.int32))
            program = b.build({"score": total})
            model = TorchBackend().compile(program)
            for rows in (0, 1, 2, 33):
                size = 10.0 ** rng.integers(-3, 4, (rows, 40 * values))
                x = (rng.normal(size=size.shape) * size).astype(dtype)
                kept = x.copy()
                np.testing.assert_array_equal(
                    model.run({"x": x})["score"], reference.run(program, {"x": x})["score"]
                )
                np.testing.assert_array_equal(x, kept)


def test_a_batch_runs_block_after_block() -> None:
    stored: list[tuple[int, int]] = []
    under_way: list[int] = []

    def load(begin: int, end: int) -> int:
        under_way.append(begin)
        assert len(under_way) <= 2, "at most the block and the one after it are loaded"
        return begin

    def start(loaded: int, begin: int, end: int) -> Callable[[], None]:
        assert loaded == begin == under_way.pop(0)
        return lambda: stored.append((begin, end))

    run_in_blocks(10, 4, 1, load, start, lambda: None)
    assert stored == [(0, 4), (4, 8), (8, 10)]


@pytest.mark.parametrize("where", ["load", "start"])
@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"),
    ],
)
def test_a_block_too_large_is_halved_until_it_fits(where: str, error: RuntimeError) -> None:
    stored: list[int] = []
    released: list[None] = []

    def fails(place: str, rows: int) -> None:
        if place == where and rows > 6:
            raise error

    def load(begin: int, end: int) -> None:
        fails("load", end - begin)

    def start(loaded: None, begin: int, end: int) -> Callable[[], None]:
        fails("start", end - begin)
        return lambda: stored.extend(range(begin, end))

    run_in_blocks(50, 20, 2, load, start, lambda: released.append(None))
    assert stored == list(range(50))
    assert len(released) == 2, "20, 10 and then 5 rows"


def test_no_block_that_fits_is_an_error_that_names_the_fix() -> None:
    def load(begin: int, end: int) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    def start(loaded: None, begin: int, end: int) -> Callable[[], None]:
        raise AssertionError("nothing was loaded")

    with pytest.raises(BackendError, match="not enough memory for 16 rows.*device='cpu'"):
        run_in_blocks(50, 20, 16, load, start, lambda: None)


def test_a_lost_device_is_told_from_a_fault_of_the_model() -> None:
    gone = RuntimeError("CUDA error: unspecified launch failure\nCUDA kernel errors might be late")
    assert gpu_transfers.is_device_lost(gone) and not gpu_transfers.is_out_of_memory(gone)
    said = str(gpu_transfers.make_lost_device_error(gone, torch.device("cuda:1")))
    assert "'cuda:1' failed while scoring (CUDA error: unspecified launch failure)" in said
    assert "no result of this batch was returned" in said and "device='cpu'" in said
    wrapped = BackendError("the module cannot score")
    wrapped.__cause__ = torch.OutOfMemoryError("CUDA out of memory")
    assert gpu_transfers.is_out_of_memory(wrapped)
    fault = RuntimeError("mat1 and mat2 shapes cannot be multiplied")
    assert not gpu_transfers.is_device_lost(fault) and not gpu_transfers.is_out_of_memory(fault)
    assert not gpu_transfers.is_device_lost(ValueError("CUDA"))


@no_gpu
def test_without_a_driver_torch_is_not_imported_to_ask_for_a_gpu() -> None:
    code = (
        "import sys; from sqlml.backends.devices import is_available; "
        "assert is_available('cpu') and not is_available('cuda') and not is_available('cuda:1'); "
        "assert not is_available('tpu'); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
