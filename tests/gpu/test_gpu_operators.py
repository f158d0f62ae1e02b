"""Every operator on a GPU gives what the reference interpreter gives."""

from __future__ import annotations

import numpy as np
import pytest

from sqlml.backends import base
from sqlml.errors import BackendError, MissingValueError
from sqlml.ir import ops, reference
from sqlml.ir.builder import Builder
from sqlml.ir.operators.opaque import NATIVE_ONLY, OWNING_BACKENDS
from sqlml.ir.ops import verify
from sqlml.ir.program import Program
from sqlml.passes import TENSOR_PASSES
from sqlml.passes import run as run_passes
from sqlml.passes.lower import STRATEGIES, lower, lower_model_ops
from tests.contract.operator_cases import CASES, ROUNDS, batch
from tests.contract.test_backends import same
from tests.gpu.marks import on_gpu, onnxruntime_on_gpu

pytestmark = on_gpu

BACKENDS = ("torch", pytest.param("onnxruntime", marks=onnxruntime_on_gpu))


def forms(program: Program, op: str) -> list[Program]:
    """The ways to lower an operator for a backend of tensors."""
    if op == "tree_ensemble":
        return [run_passes(lower(program, s), passes=TENSOR_PASSES) for s in STRATEGIES]
    if op in OWNING_BACKENDS:
        return [program]
    return [run_passes(lower_model_ops(program), passes=TENSOR_PASSES)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("op", [op.name for op in ops.TABLE if op.name not in NATIVE_ONLY])
def test_operator_equals_the_reference(op: str, backend: str) -> None:
    if OWNING_BACKENDS.get(op, backend) != backend:
        pytest.skip(f"{op} runs only on backend {OWNING_BACKENDS[op]}")
    engine = base.load_backend(backend)
    for number, make in enumerate(CASES[op]):
        b = Builder()
        program = verify(b.build({"transform": make(b)}))
        for lowered in forms(program, op):
            model = engine.compile(lowered, device="cuda")
            for rows in (0, 1, 300):
                inputs = batch(program, rows)
                want = reference.run(program, inputs)["transform"]
                got = model.run(inputs)["transform"]
                try:
                    same(got, want, exact=op not in ROUNDS)
                except AssertionError as error:
                    raise AssertionError(f"{op} case {number}: {error}") from None


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_check_names_what_it_refuses(backend: str) -> None:
    b = Builder()
    x = b.input("x", "float64", 2)
    x = b.op("require_finite", x, features=("age", "plan"), allow_nan=False, step="Ridge")
    model = base.load_backend(backend).compile(b.build({"score": b.op("neg", x)}), device="cuda")
    with pytest.raises(MissingValueError, match="'plan' has NULL or NaN"):
        model.run({"x": np.array([[1.0, 2.0], [3.0, np.nan]])})
    assert model.run({"x": np.ones((2, 2))})["score"].tolist() == [[-1, -1]] * 2


def test_products_of_float32_keep_all_their_digits() -> None:
    """TF32 would round the factors to 10 bits, even where a user's process has asked for it."""
    import torch

    rng = np.random.default_rng(0)
    b = Builder()
    weights = b.constant(rng.normal(size=(64, 8)).astype(np.float32))
    program = b.build({"score": b.op("matmul", b.input("x", "float32", 64), weights)})
    x = rng.normal(size=(500, 64)).astype(np.float32)
    want = reference.run(program, {"x": x.astype(np.float32)})["score"]
    before = torch.backends.cuda.matmul.allow_tf32
    for allowed in (False, True):
        torch.backends.cuda.matmul.allow_tf32 = allowed
        try:
            got = base.load_backend("torch").compile(program, device="cuda").run({"x": x})["score"]
        finally:
            torch.backends.cuda.matmul.allow_tf32 = before
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_a_gpu_that_is_not_there_names_the_fix() -> None:
    b = Builder()
    program = b.build({"score": b.op("neg", b.input("x", "float64"))})
    with pytest.raises(BackendError, match="numbered from 0"):
        base.load_backend("torch").compile(program, device="cuda:99")
