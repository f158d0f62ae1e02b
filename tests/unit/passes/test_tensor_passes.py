"""What the tensor-level passes promise: the same bits, or the bound that they state."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sqlml.backends import base
from sqlml.ir import reference
from sqlml.ir.builder import Builder, Value
from sqlml.ir.ops import verify
from sqlml.ir.program import Program
from sqlml.passes import TENSOR_PASSES, run
from sqlml.passes.lower import STRATEGIES, lower
from sqlml.passes.narrow_dtypes import infer_ranges, narrow_dtypes
from sqlml.passes.sparse_weights import MIN_COLUMNS, sparse_weights
from tests.support.random_trees import Recipe, grow, program_of, rows_for

quick = settings(
    max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
seeds = st.integers(0, 2**32 - 1)
TENSORS = ("torch", "onnxruntime")
recipes = st.builds(
    Recipe,
    seed=seeds,
    trees=st.integers(0, 6),
    depth=st.integers(0, 6),
    dtype=st.sampled_from(["float32", "float64"]),
    values=st.integers(1, 3),
    outputs=st.integers(3, 5),
    sets=st.booleans(),
)


@quick
@given(recipes, st.sampled_from(list(STRATEGIES)), st.sampled_from(TENSORS))
def test_lowered_trees_keep_their_bits(recipe: Recipe, strategy: str, backend: str) -> None:
    e = grow(recipe)
    program, x = program_of(e), rows_for(e, 200, recipe.seed)
    want = reference.run(program, {"x": x})["score"]
    made = run(lower(program, strategy), passes=TENSOR_PASSES)
    np.testing.assert_array_equal(reference.run(made, {"x": x})["score"], want)
    np.testing.assert_array_equal(
        base.load_backend(backend).compile(made).run({"x": x})["score"], want
    )


@st.composite
def whole_numbers(draw: st.DrawFn) -> tuple[Program, int]:
    """Random index arithmetic on comparisons; all nodes are outputs, so that each is seen."""
    rng = np.random.default_rng(draw(seeds))
    b = Builder()
    x = b.input("x", "float64", 3)
    values = [b.op("cast", b.op("gt", x, b.constant(rng.normal(size=3))), dtype="int64")]
    for _ in range(draw(st.integers(1, 12))):
        values.append(_grown(b, rng, values))
    wide = [v for v in values if len(v.type.shape) == 2]
    return b.build({f"o{i}": v for i, v in enumerate(wide)}), len(wide)


def _grown(b: Builder, rng: np.random.Generator, values: list[Value]) -> Value:
    x, y = (values[i] for i in rng.integers(0, len(values), 2))
    kind = rng.choice(["add", "sub", "mul", "maximum", "minimum", "where", "row", "take", "max"])
    if kind == "row":
        return b.op("mul", x, b.constant(rng.integers(-5, 6, 1)))
    if kind == "where":
        return b.op("where", b.op("gt", x, y), x, y) if x.type == y.type else x
    if kind == "max":
        return b.op("max", x, axis=1)
    if kind == "take":
        zero, most = (b.constant(np.array([n])) for n in (0, 3))
        place = b.op("minimum", b.op("maximum", x, zero), most)
        return b.op("take", b.constant(rng.integers(-9, 10, 4)), place)
    return b.op(str(kind), x, y)


@quick
@given(whole_numbers(), seeds)
def test_ranges_hold_every_value(made: tuple[Program, int], seed: int) -> None:
    program, _ = made
    found = infer_ranges(program)
    x = np.random.default_rng(seed).normal(0, 3, (100, 3))
    for name, values in reference.run(program, {"x": x}).items():
        bound = found[program.outputs[name]]
        if bound is not None:
            assert bound[0] <= values.min() and values.max() <= bound[1]


@quick
@given(whole_numbers(), seeds)
def test_index_arithmetic_keeps_its_values(made: tuple[Program, int], seed: int) -> None:
    program, count = made
    b = Builder()
    values: list[Value] = []
    for node in program.nodes:
        if node.op == "input":
            values.append(b.input("x", "float64", 3))
        else:
            values.append(b.op(node.op, *[values[i] for i in node.inputs], **node.attrs))
    last = values[program.outputs[f"o{count - 1}"]]
    b_program = b.build({"score": b.op("cast", last, dtype="float64")})
    narrow = verify(narrow_dtypes(b_program))
    x = np.random.default_rng(seed).normal(0, 3, (100, 3))
    want = reference.run(b_program, {"x": x})["score"]
    for run_it in (reference.run, lambda p, i: base.load_backend("torch").compile(p).run(i)):
        np.testing.assert_array_equal(run_it(narrow, {"x": x})["score"], want)


def index_times(factor: int) -> Program:
    """take(table, min(test * factor, 1)): whether int32 holds it depends on the factor."""
    b = Builder()
    code = b.op("cast", b.op("gt", b.input("x", "float64"), b.constant(np.zeros(1))), dtype="int64")
    place = b.op("mul", code, b.constant(np.array([factor])))
    place = b.op("minimum", place, b.constant(np.array([1])))
    return b.build({"score": b.op("take", b.constant(np.array([0.5, 1.5])), place)})


def test_the_last_number_of_int32_is_narrowed_and_the_next_is_not() -> None:
    for factor, dtype in ((2**31 - 1, "int32"), (2**31, "int64")):
        program = narrow_dtypes(index_times(factor))
        assert [n.type.dtype for n in program if n.op == "mul"] == [dtype]
        got = reference.run(program, {"x": np.array([-1.0, 1.0])})["score"]
        assert got.tolist() == [[0.5], [1.5]]


def test_outputs_and_indices_of_gather_keep_int64() -> None:
    b = Builder()
    code = b.op("cast", b.op("gt", b.input("x", "float64"), b.constant(np.zeros(1))), dtype="int64")
    program = b.build({"label": b.op("add", code, code)})
    assert narrow_dtypes(program) is program
    e = grow(Recipe(seed=4, trees=3, depth=5))
    made = narrow_dtypes(lower(program_of(e), "tt"))
    gathers = [n for n in made if n.op == "gather"]
    assert gathers and all(made.nodes[n.inputs[1]].type.dtype == "int64" for n in gathers)
    takes = [n for n in made if n.op == "take"]
    assert {made.nodes[n.inputs[1]].type.dtype for n in takes} == {"int32"}


def test_sums_of_small_integers_that_wrap_have_no_range() -> None:
    b = Builder()
    small = b.op(
        "cast", b.op("gt", b.input("x", "float64", 2), b.constant(np.zeros(2))), dtype="int8"
    )
    wide = b.op("mul", small, b.constant(np.array([100], np.int8)))
    program = b.build({"score": b.op("sum", wide, axis=1), "label": wide})
    found = infer_ranges(program)
    assert found[program.outputs["score"]] is None
    assert found[program.outputs["label"]] == (0, 100)


def encoded(width: int, outputs: int, missing: int, weights: np.ndarray | None = None) -> Program:
    """Numbers beside the one-hot columns of a code, times weights."""
    rng = np.random.default_rng(width * 1000 + outputs)
    b = Builder()
    names = np.arange(float(width))
    code = b.op("encode", b.input("c", "float64"), categories=names, missing=missing)
    x = b.op(
        "concat",
        b.input("a", "float64", 2),
        b.op("one_hot", code, width=width, dtype="float64"),
        b.op("one_hot", b.input("k", "int8"), width=width, dtype="float64"),
    )
    if weights is None:
        weights = rng.normal(size=(x.type.width, outputs))
    return b.build({"score": b.op("linear", x, weights=weights, bias=rng.normal(size=outputs))})


@pytest.mark.parametrize("backend", ["reference", *TENSORS])
@pytest.mark.parametrize(("width", "outputs"), [(5, 1), (7, 3), (40, 20)])
@pytest.mark.parametrize("missing", [-1, 0, 4])
def test_lookups_equal_products(backend: str, width: int, outputs: int, missing: int) -> None:
    program = encoded(width, outputs, missing)
    made = run(lower(program, "tt"), passes=TENSOR_PASSES)
    assert sum(n.op == "take" for n in made) == 2
    rng = np.random.default_rng(1)
    c = rng.integers(-2, width + 2, 300).astype(float)
    c[::7] = np.nan
    k = rng.integers(-128, 128, 300).astype(np.int8)
    batch = {"a": rng.normal(size=(300, 2)), "c": c, "k": k}
    want = reference.run(program, batch)["score"]
    got = base.load_backend(backend).compile(made).run(batch)["score"]
    np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-13)


def test_what_a_lookup_may_not_replace() -> None:
    infinite = np.ones((2 + 2 * 6, 1))
    infinite[4] = np.inf
    lowered = lower(encoded(6, 1, -1, infinite), "tt")
    assert sum(n.op == "take" for n in sparse_weights(lowered)) == 1
    narrow = lower(encoded(MIN_COLUMNS - 1, 1, -1), "tt")
    many = lower(encoded(20, 50, -1), "tt")
    for program in (narrow, many):
        assert not any(n.op == "take" for n in sparse_weights(program))


def test_one_hot_columns_that_others_read_stay() -> None:
    b = Builder()
    hot = b.op("one_hot", b.input("k", "int64"), width=8, dtype="float64")
    score = b.op("linear", hot, weights=np.ones((8, 1)), bias=np.zeros(1))
    lowered = lower(b.build({"score": score, "transform": hot}), "tt")
    assert not any(n.op == "take" for n in sparse_weights(lowered))
