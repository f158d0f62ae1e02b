"""Every operator on every backend that supports it gives what the reference interpreter gives."""

from __future__ import annotations

import pickle
import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sqlml.backends import base
from sqlml.backends.devices import is_available
from sqlml.errors import BackendError, InputTypeError, MissingValueError, UnknownCategoryError
from sqlml.ir import ops, reference
from sqlml.ir.builder import Builder
from sqlml.ir.operators.opaque import NATIVE_ONLY, OWNING_BACKENDS
from sqlml.ir.ops import verify
from sqlml.ir.program import Program
from sqlml.ir.trees import Ensemble
from sqlml.passes import TENSOR_PASSES
from sqlml.passes import run as run_passes
from sqlml.passes.lower import STRATEGIES, lower, lower_model_ops
from tests.contract.operator_cases import CASES, ROUNDS, batch
from tests.contract.text_cases import words
from tests.support.random_trees import Recipe, grow, program_of, rows_for
from tests.support.tree_recipes import RECIPES

OWN_MATHEMATICS = frozenset(
    {
        *("exp", "exp2", "expm1", "log", "log1p", "ndtri", "sigmoid", "softmax", "tanh"),
        *NATIVE_ONLY,
    }
)
"""Operators that the native backend computes otherwise than numpy."""


def same(got: np.ndarray, want: np.ndarray, exact: bool) -> None:
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    if want.dtype == object:
        assert got.tolist() == want.tolist() or all(
            a is b or a == b or (a != a and b != b)
            for a, b in zip(got.ravel(), want.ravel(), strict=True)
        )
    elif exact or want.dtype.kind != "f":
        np.testing.assert_array_equal(got, want)
    else:
        bound = 1e-6 if want.dtype == np.float32 else 1e-13
        np.testing.assert_allclose(got, want, rtol=bound, atol=bound)


def runs(program: Program, op: str) -> list[tuple[str, Program]]:
    """(backend, what to compile on it) for each backend that the operator concerns."""
    native = [("native", program), ("reference", program)]
    if op == "tree_ensemble":
        tensors = [(b, lower(program, s)) for b in ("torch", "onnxruntime") for s in STRATEGIES]
        whole = [] if Ensemble.of(program.nodes[-1].attrs).has_categories else [program]
        return [*native, *tensors, *(("onnxruntime", p) for p in whole)]
    if op in NATIVE_ONLY:
        return native
    if op in OWNING_BACKENDS:
        return [("reference", program), (OWNING_BACKENDS[op], program)]
    lowered = verify(lower_model_ops(program))
    passed = run_passes(lowered, passes=TENSOR_PASSES)
    forms = [lowered] if passed is lowered else [lowered, passed]
    backends = ("native", "reference", "torch", "onnxruntime")
    made = [*native, *((b, form) for b in backends for form in forms)]
    return list({(backend, id(form)): (backend, form) for backend, form in made}.values())


LONG = {"nearest": pytest.mark.nightly}
"""Operators whose cases compile for long, and when they run."""


@pytest.mark.by_day(8)
@pytest.mark.parametrize(
    "op", [pytest.param(op.name, marks=LONG.get(op.name, ())) for op in ops.TABLE]
)
def test_operator_equals_the_reference(op: str) -> None:
    assert op in CASES, f"operator {op} has no case in CASES"
    for number, make in enumerate(CASES[op]):
        b = Builder()
        program = verify(b.build({"transform": make(b)}))
        assert any(node.op == op for node in program)
        for rows in (0, 1, 300):
            inputs = batch(program, rows)
            want = reference.run(program, inputs)["transform"]
            for backend, lowered in runs(program, op):
                engine = base.load_backend(backend)
                assert engine.supports(lowered) is None
                got = engine.compile(lowered).run(inputs)["transform"]
                own = backend == "native" and op in OWN_MATHEMATICS
                try:
                    same(got, want, exact=(lowered is program and not own) or op not in ROUNDS)
                except AssertionError as error:
                    raise AssertionError(f"{op} case {number} on {backend}: {error}") from None


def test_torch_runs_every_operator_that_needs_no_lowering() -> None:
    torch = base.load_backend("torch")
    for op, makes in CASES.items():
        b = Builder()
        program = b.build({"transform": makes[0](b)})
        reason = torch.supports(program)
        if op in NATIVE_ONLY:
            assert reason is not None and op in reason
        elif op in ("tree_ensemble", "linear_leaves", "linear", "one_hot", "impute"):
            fused = op == "tree_ensemble" and is_available(
                "cuda"
            )  # which runs there, see tests/gpu
            assert fused or (reason is not None and op in reason)
            with pytest.raises(BackendError, match="lowered"):
                torch.compile(program)
        elif OWNING_BACKENDS.get(op, "torch") != "torch":
            assert reason is not None and repr(OWNING_BACKENDS[op]) in reason
        else:
            assert reason is None


USUAL = settings(
    max_examples=3, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
ROWS = st.sampled_from([0, 1, 2, 127, 128, 129, 260])


@USUAL
@given(recipe=RECIPES, rows=ROWS)
def test_trees_are_bit_for_bit_those_of_the_reference(recipe: Recipe, rows: int) -> None:
    check_trees(recipe, rows)


@pytest.mark.nightly
@settings(USUAL, max_examples=300, derandomize=False)
@given(recipe=RECIPES, rows=ROWS)
def test_many_trees_are_bit_for_bit_those_of_the_reference(recipe: Recipe, rows: int) -> None:
    check_trees(recipe, rows)


def check_trees(recipe: Recipe, rows: int) -> None:
    e = grow(recipe)
    program, x = program_of(e), rows_for(e, rows, recipe.seed)
    want = reference.run(program, {"x": x})["score"]
    np.testing.assert_array_equal(
        base.load_backend("native").compile(program).run({"x": x})["score"], want
    )
    for strategy in STRATEGIES:
        lowered = verify(lower(program, strategy))
        np.testing.assert_array_equal(reference.run(lowered, {"x": x})["score"], want)
        passed = run_passes(lowered, passes=TENSOR_PASSES)
        for backend in ("torch", "onnxruntime"):
            got = base.load_backend(backend).compile(passed).run({"x": x})["score"]
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(got, want)
    if not e.has_categories:
        got = base.load_backend("onnxruntime").compile(program).run({"x": x})["score"]
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


@pytest.mark.nightly
@pytest.mark.parametrize("strategy", ["native", "gemm", "tt"])
def test_a_chain_of_300_nodes(strategy: str) -> None:
    e = grow(Recipe(seed=5, trees=3, depth=300, chain=True, sets=True, dtype="float64"))
    assert e.depth == 300
    program, x = program_of(e), rows_for(e, 500)
    want = reference.run(program, {"x": x})["score"]
    got = compiled(program, strategy).run({"x": x})["score"]
    np.testing.assert_array_equal(got, want)


@pytest.mark.nightly
@pytest.mark.parametrize("strategy", ["native", *STRATEGIES])
def test_a_nan_only_row_goes_by_default_directions(strategy: str) -> None:
    e = grow(Recipe(seed=8, trees=30, depth=4, sets=True))
    program, x = program_of(e), np.full((1, 5), np.nan, np.float32)
    want = reference.run(program, {"x": x})["score"]
    np.testing.assert_array_equal(compiled(program, strategy).run({"x": x})["score"], want)


def compiled(program: Program, strategy: str) -> base.CompiledProgram:
    if strategy == "native":
        return base.load_backend("native").compile(program)
    return base.load_backend("torch").compile(lower(program, strategy))


@pytest.mark.parametrize("strategy", ["native", *STRATEGIES])
def test_infinite_leaves_survive(strategy: str) -> None:
    """A one-hot product would make NaN of 0 * inf."""
    e = grow(Recipe(seed=9, trees=1, depth=3, leaves="float64"))
    values = e.leaf_values.copy()
    values[::2] = np.inf
    program = program_of(type(e)(**{**e.attrs(), "leaf_values": values}))
    x = rows_for(e, 50)
    want = reference.run(program, {"x": x})["score"]
    assert np.isinf(want).any() and np.isfinite(want).any()
    np.testing.assert_array_equal(compiled(program, strategy).run({"x": x})["score"], want)


@pytest.mark.parametrize("strategy", ["reference", "native", *STRATEGIES])
def test_a_pickled_model_scores_the_same(strategy: str) -> None:
    e = grow(Recipe(seed=1, sets=True))
    program, x = program_of(e), rows_for(e, 100)
    model = (
        base.load_backend("reference").compile(program)
        if strategy == "reference"
        else compiled(program, strategy)
    )
    again = pickle.loads(pickle.dumps(model))
    assert again.program.hash == model.program.hash
    np.testing.assert_array_equal(again.run({"x": x})["score"], model.run({"x": x})["score"])


@pytest.mark.by_day(4)
@pytest.mark.parametrize("strategy", ["native", *STRATEGIES])
def test_four_threads_at_once(strategy: str) -> None:
    e = grow(Recipe(seed=2, trees=20, sets=True))
    program = program_of(e)
    model = compiled(program, strategy)
    batches = [rows_for(e, 400, seed) for seed in range(4)]
    wanted = [reference.run(program, {"x": x})["score"] for x in batches]
    wrong: list[object] = []

    def score(x: np.ndarray, want: np.ndarray) -> None:
        for _ in range(20):
            if not np.array_equal(model.run({"x": x})["score"], want):
                wrong.append(x)

    threads = [
        threading.Thread(target=score, args=pair) for pair in zip(batches, wanted, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


TENSOR = ("torch", "onnxruntime")
CHECKING = ("reference", "native", "torch", "onnxruntime")


@pytest.mark.parametrize("backend", CHECKING)
@pytest.mark.parametrize(
    ("allow_nan", "value", "word"),
    [(False, np.nan, "NULL or NaN"), (False, np.inf, "infinity"), (True, -np.inf, "infinity")],
)
def test_a_value_that_the_model_does_not_take_is_named(
    backend: str, allow_nan: bool, value: float, word: str
) -> None:
    b = Builder()
    x = b.op(
        "require_finite",
        b.input("x", "float64", 2),
        features=("age", "plan"),
        allow_nan=allow_nan,
        step="LogisticRegression",
    )
    model = base.load_backend(backend).compile(b.build({"transform": b.op("neg", x)}))
    fine = np.array([[1.0, np.nan if allow_nan else 2.0]])
    np.testing.assert_array_equal(model.run({"x": fine})["transform"], -fine)
    with pytest.raises(MissingValueError, match=f"'plan' has {word}"):
        model.run({"x": np.array([[1.0, 2.0], [3.0, value]])})


@pytest.mark.parametrize("backend", CHECKING)
def test_an_unknown_category_is_named(backend: str) -> None:
    b = Builder()
    codes = b.op("encode", b.input("c", "string"), categories=words("a"), missing=-1)
    known_codes = b.op("require_known", codes, feature="c", step="OrdinalEncoder")
    model = base.load_backend(backend).compile(b.build({"transform": known_codes}))
    assert model.run({"c": np.array(["a"], object)})["transform"].tolist() == [[0]]
    for bad in ("z", None):
        with pytest.raises(UnknownCategoryError, match="'c' has a category"):
            model.run({"c": np.array(["a", bad], object)})


@pytest.mark.parametrize("backend", CHECKING)
def test_a_batch_that_does_not_fit_is_an_input_type_error(backend: str) -> None:
    b = Builder()
    total = b.op("add", b.input("x", "float64"), b.input("y", "float64"))
    model = base.load_backend(backend).compile(b.build({"score": total}))
    with pytest.raises(InputTypeError, match="no column 'y'"):
        model.run({"x": np.zeros(2)})
    with pytest.raises(InputTypeError, match="'y' has shape"):
        model.run({"x": np.zeros(2), "y": np.zeros((2, 3))})
    with pytest.raises(InputTypeError, match="'y' is <U1, not numbers"):
        model.run({"x": np.zeros(2), "y": np.array(["a", "b"])})


@pytest.mark.parametrize("backend", CHECKING)
def test_only_the_outputs_asked_for_run(backend: str) -> None:
    b = Builder()
    x = b.input("x", "float64")
    checked = b.op("require_finite", x, features=("x",), allow_nan=False, step="Ridge")
    program = b.build({"score": b.op("neg", x), "label": checked})
    model = base.load_backend(backend).compile(program)
    assert list(model.run({"x": np.array([np.inf])}, ["score"])) == ["score"]
    with pytest.raises(MissingValueError):
        model.run({"x": np.array([np.inf])})


@pytest.mark.parametrize("backend", CHECKING)
def test_read_only_strided_reversed_and_unaligned_input(backend: str) -> None:
    b = Builder()
    filled = b.op("impute", b.input("x", "float64", 3), fill=np.zeros(3), missing=-1.0)
    x = b.op("select", filled, indices=np.array([2, 1]))
    program = b.build({"transform": b.op("neg", x)})
    model = base.load_backend(backend).compile(
        lower_model_ops(program) if backend in TENSOR else program
    )
    wide = np.arange(60.0).reshape(10, 6)
    unaligned = np.zeros(241, np.uint8)[1:].view(np.float64).reshape(10, 3)
    unaligned[:] = wide[:, :3]
    columns = np.asfortranarray(wide)[:, :3]
    for given_x in (wide[:, ::2], columns, wide[::-1, 3:], wide[::3, :3], unaligned):
        given_x = given_x.view()
        given_x.setflags(write=False)
        got = model.run({"x": given_x})["transform"]
        np.testing.assert_array_equal(got, -given_x[:, [2, 1]])
