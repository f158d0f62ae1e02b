"""What each pass promises, on random Programs: the same bits, or the bound that it states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sqlml.errors import ConfigError, MissingValueError
from sqlml.ir import reference
from sqlml.ir.builder import Builder, Value
from sqlml.ir.ops import verify
from sqlml.ir.program import Program
from sqlml.passes import run
from sqlml.passes.float_order import find_last_true
from sqlml.passes.fold_arguments import fold_arguments
from sqlml.passes.fold_into_leaves import fold_into_leaves
from sqlml.passes.fold_into_trees import fold_into_trees
from sqlml.passes.fold_missing_zeros import fold_missing_zeros
from sqlml.passes.fold_monotone import compare_margins
from sqlml.passes.fold_one_hot import fold_one_hot
from sqlml.passes.fold_scaling import fold_scaling
from sqlml.passes.selection import inject_selection
from sqlml.passes.share_work import merge_linears, share_work
from sqlml.passes.simplify_trees import settle_missing
from sqlml.passes.sink_checks import sink_checks
from sqlml.types import Array, DType, Labels
from tests.support.oracles import neighbours
from tests.support.random_trees import WIDTH, Recipe, grow

quick = settings(
    max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
seeds = st.integers(0, 2**32 - 1)
NAMES = "abcde"


def rows_of(program: Program, seed: int, interesting: Array) -> Array:
    """Rows (300, WIDTH): ordinary numbers, the interesting ones, and special ones."""
    rng = np.random.default_rng(seed)
    special = [0.0, -0.0, np.nan, np.inf, -np.inf, 5e-324, 1e300, -1e300, 3.4e38, 3.5e38]
    pool = np.concatenate([rng.normal(0, 3, 60), interesting, special])
    return rng.choice(pool, (300, WIDTH))


def answers(program: Program, rows: Array) -> list[object]:
    """Row by row: the outputs' bits, or that a check has raised."""
    made: list[object] = []
    for row in rows:
        inputs = {n: row[i : i + 1] for i, n in enumerate(NAMES) if n in program.inputs}
        try:
            out = reference.run(program, inputs)
            made.append({n: v.tobytes() for n, v in sorted(out.items())})
        except MissingValueError:
            made.append("raises")
    return made


@st.composite
def monotone_chains(draw: st.DrawFn) -> Callable[[Builder, Value], Value]:
    """Chains of scalers, clips, imputers, casts and checks over float64 columns."""
    kinds = st.sampled_from(
        ["add", "sub", "mul", "div", "maximum", "minimum", "impute", "check", "narrow"]
    )
    steps = draw(st.lists(kinds, min_size=1, max_size=5))
    rng = np.random.default_rng(draw(seeds))
    allow_nan = draw(st.booleans())

    def build(b: Builder, x: Value) -> Value:
        for kind in steps:
            dtype = x.type.dtype
            number = rng.normal(0, 2, WIDTH).astype(dtype)
            if kind in ("mul", "div"):
                number = np.exp(number)
            if kind == "check":
                names = {"features": tuple(NAMES), "step": "Ridge"}
                x = b.op("require_finite", x, allow_nan=allow_nan, **names)
            elif kind == "impute":
                x = b.op("impute", x, fill=number, missing=float("nan"))
            elif kind == "narrow":
                x = b.op("cast", x, dtype="float32")
            else:
                x = b.op(kind, x, b.constant(number))
        return x

    return build


@pytest.mark.nightly
@quick
@given(monotone_chains(), seeds, st.sampled_from(["lt", "le"]))
def test_trees_behind_monotone_steps_keep_their_bits(
    chain: Callable[[Builder, Value], Value], seed: int, compare: str
) -> None:
    b = Builder()
    x = chain(b, b.op("concat", *[b.input(n, "float64") for n in NAMES]))
    e = grow(Recipe(seed=seed, trees=3, depth=3, dtype=x.type.dtype, compare=compare))
    program = b.build({"score": b.op("tree_ensemble", x, **e.attrs())})
    folded = verify(settle_missing(verify(fold_into_trees(verify(sink_checks(program))))))
    thresholds = [
        neighbours(n.attrs["threshold"][np.isfinite(n.attrs["threshold"])])
        for n in (*program.nodes, *folded.nodes)
        if n.op == "tree_ensemble"
    ]
    rows = rows_of(program, seed, np.concatenate(thresholds))
    assert answers(folded, rows) == answers(program, rows)


def test_scalers_and_imputers_before_trees_are_gone() -> None:
    b = Builder()
    x = b.op("concat", *[b.input(n, "float64") for n in NAMES])
    x = b.op("impute", x, fill=np.ones(WIDTH), missing=float("nan"))
    x = b.op("div", b.op("sub", x, b.constant(np.ones(WIDTH))), b.constant(np.full(WIDTH, 3.0)))
    x = b.op("cast", x, dtype="float32")
    e = grow(Recipe(seed=2, depth=4))
    program = run(b.build({"score": b.op("tree_ensemble", x, **e.attrs())}))
    assert {n.op for n in program} <= {"input", "concat", "tree_ensemble"}


@quick
@given(
    seeds,
    st.sampled_from(["lt", "le"]),
    st.sampled_from([(), ("float32",), ("float16", "float32")]),
    st.booleans(),
)
def test_codes_in_place_of_one_hot_columns(
    seed: int, compare: str, casts: tuple[DType, ...], zeros_are_missing: bool
) -> None:
    rng = np.random.default_rng(seed)
    b = Builder()
    categories = rng.permutation([0.0, 1.0, 2.5])
    missing = int(rng.integers(-1, 3))
    codes = b.op("encode", b.input("c", "float64"), categories=categories, missing=missing)
    hot = b.op("one_hot", codes, width=3, dtype="float64")
    hot = b.op("select", hot, indices=rng.permutation(3))
    parts = [b.input("a", "float64"), hot, b.input("b", "float64")]
    x = b.op("concat", *[parts[k] for k in rng.permutation(3)])
    if zeros_are_missing:
        zero, nan = b.constant(np.zeros(1)), b.constant(np.array([np.nan]))
        x = b.op("where", b.op("eq", x, zero), nan, x)
    for dtype in casts:
        x = b.cast(x, dtype)
    e = grow(Recipe(seed=seed, trees=3, depth=4, dtype=x.type.dtype, compare=compare))
    # Integers as thresholds separate 0 from 1, or send both the same way.
    is_whole = rng.random(e.threshold.size) < 0.5
    thresholds = np.where(is_whole, rng.integers(-1, 3, e.threshold.size), e.threshold)
    e = replace(e, threshold=thresholds.astype(e.threshold.dtype))
    program = b.build({"score": b.op("tree_ensemble", x, **e.attrs())})
    folded = verify(fold_one_hot(verify(fold_missing_zeros(program))))
    is_rounded_twice = zeros_are_missing and len(casts) == 2
    assert ("one_hot" in {n.op for n in folded}) == is_rounded_twice
    numbers = [e.threshold, e.threshold + 1e-4, categories, [-1.0, 3.0]]
    rows = rows_of(program, seed, np.concatenate(numbers))
    inputs = {name: rows[:, k] for k, name in enumerate("abc")}
    got, want = (reference.run(p, inputs)["score"] for p in (folded, program))
    np.testing.assert_array_equal(got, want)


@quick
@given(seeds, st.sampled_from(["float32", "float64"]))
def test_results_of_single_trees_as_leaves(seed: int, dtype: str) -> None:
    rng = np.random.default_rng(seed)
    b = Builder()
    x = b.input("a", "float64", WIDTH)
    total, thresholds = None, []
    for k in range(int(rng.integers(1, 5))):
        e = grow(Recipe(seed=seed + k, trees=1, depth=3, dtype="float64", leaves=dtype))
        e = replace(e, base=np.zeros_like(e.base))
        thresholds.append(e.threshold)
        tree = b.op("tree_ensemble", x, **e.attrs())
        number = b.constant(rng.normal(size=e.outputs).astype(dtype))
        steps = {
            "mul": lambda v, n=number: b.op("mul", v, n),
            "vote": lambda v, n=number: b.cast(b.op("gt", v, n), dtype),
            "exp": lambda v: b.op("div", b.op("exp", v), b.op("add", b.op("abs", v), v)),
        }
        for name in rng.choice(list(steps), int(rng.integers(0, 3))):
            tree = steps[name](tree)
        if total is not None:
            tree = b.op("add", tree, total) if rng.random() < 0.5 else b.op("add", total, tree)
        total = tree
    assert total is not None
    program = b.build({"score": total})
    folded = verify(fold_into_leaves(program))
    assert [n.op for n in folded] == ["input", "tree_ensemble"]
    rows = rows_of(program, seed, np.concatenate(thresholds))
    got, want = (reference.run(p, {"a": rows})["score"] for p in (folded, program))
    np.testing.assert_array_equal(got, want)


def test_a_tree_that_has_two_uses_stays() -> None:
    b = Builder()
    x = b.input("a", "float64", WIDTH)
    recipe = Recipe(seed=1, trees=1, dtype="float64", leaves="float64")
    tree = b.op("tree_ensemble", x, **grow(recipe).attrs())
    doubled = b.op("mul", tree, b.constant(np.array([2.0])))
    program = b.build({"score": tree, "label": b.op("exp", doubled)})
    assert fold_into_leaves(program) is program


def test_a_scaler_that_turns_the_order_stays() -> None:
    b = Builder()
    x = b.op("mul", b.input("a", "float64", WIDTH), b.constant(-np.ones(WIDTH)))
    e = grow(Recipe(seed=2, dtype="float64"))
    program = b.build({"score": b.op("tree_ensemble", x, **e.attrs())})
    assert [n.op for n in fold_into_trees(program)] == [n.op for n in program]


@quick
@given(seeds, st.sampled_from(["gt", "ge", "lt", "le"]), st.sampled_from(["float32", "float64"]))
def test_comparisons_of_sigmoids_keep_their_result(seed: int, op: str, dtype: str) -> None:
    rng = np.random.default_rng(seed)
    bound = rng.choice([0.5, 0.0, 1.0, rng.random(), 1e-30, 1 - 1e-7])
    b = Builder()
    x = b.input("a", dtype)
    limit = b.constant(np.array([bound], dtype))
    program = b.build({"label": b.op("cast", b.op(op, b.op("sigmoid", x), limit), dtype="int64")})
    after = compare_margins(program)
    changed = [n.attrs["value"] for n in after if n.op == "constant"]
    rows = np.concatenate([rng.normal(0, 30, 200), *(neighbours(c) for c in changed), [np.nan]])
    rows = np.append(rows, [np.inf, -np.inf, 0.0, -0.0])
    np.testing.assert_array_equal(
        reference.run(after, {"a": rows})["label"], reference.run(program, {"a": rows})["label"]
    )


def test_the_usual_threshold_needs_no_sigmoid() -> None:
    b = Builder()
    p = b.op("sigmoid", b.input("a", "float64"))
    half = b.constant(np.array([0.5]))
    after = compare_margins(b.build({"label": b.op("cast", b.op("gt", p, half), dtype="int64")}))
    assert "sigmoid" not in {n.op for n in after}


@pytest.mark.nightly
@quick
@given(seeds, st.lists(st.integers(0, WIDTH - 1), max_size=4, unique=True), st.booleans())
def test_known_arguments_prune_trees_and_nothing_else(
    seed: int, known: list[int], sets: bool
) -> None:
    e = grow(Recipe(seed=seed, trees=4, depth=5, dtype="float64", sets=sets))
    b = Builder()
    x = b.op("concat", *[b.input(n, "float64") for n in NAMES])
    x = b.op("impute", x, fill=np.full(WIDTH, 0.3), missing=-1.5)
    program = b.build({"score": b.op("tree_ensemble", x, **e.attrs())})
    rng = np.random.default_rng(seed)
    pool = np.concatenate([e.threshold[np.isfinite(e.threshold)], [np.nan, -1.5, 3.0, 7.0]])
    arguments = {NAMES[i]: float(rng.choice(pool)) for i in known}
    folded = verify(fold_arguments(program, arguments))
    rows = rows_of(program, seed, pool)
    for i in known:
        rows[:, i] = arguments[NAMES[i]]
    assert answers(folded, rows) == answers(program, rows)
    left = run(inject_selection(folded))
    assert len(left.inputs) == 1 or not set(left.inputs) & set(arguments)  # one counts the rows


def test_a_known_string_decides_its_one_hot_columns() -> None:
    b = Builder()
    names = np.array(["basic", "pro"], object)
    code = b.op("encode", b.input("plan", "string"), categories=names, missing=-1)
    hot = b.op("one_hot", code, width=2, dtype="float64")
    x = b.op("concat", hot, b.input("age", "float64"))
    e = grow(Recipe(seed=8, trees=6, depth=4, dtype="float64"))
    attrs = {**e.attrs(), "feature": (e.feature % 3).astype(np.int32)}
    program = b.build({"score": b.op("tree_ensemble", x, **attrs)})
    for plan in ("basic", "pro", "else", None):
        folded = run(fold_arguments(program, {"plan": plan}))
        assert list(folded.inputs) == ["age"]
        ages = np.linspace(-3, 3, 40)
        full = {"plan": np.array([plan] * 40, object), "age": ages}
        np.testing.assert_array_equal(
            reference.run(folded, {"age": ages})["score"], reference.run(program, full)["score"]
        )
    with pytest.raises(ConfigError, match="'city'"):
        fold_arguments(program, {"city": "Bern"})


@quick
@given(seeds)
def test_folded_scaling_stays_within_its_bound(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mean, scale = rng.normal(0, 100, WIDTH), np.exp(rng.normal(0, 2, WIDTH))
    weights, bias = rng.normal(0, 1, (WIDTH, 2)), rng.normal(0, 1, 2)
    b = Builder()
    x = b.op("concat", *[b.input(n, "float64") for n in NAMES])
    x = b.op("div", b.op("sub", x, b.constant(mean)), b.constant(scale))
    program = b.build({"score": b.op("linear", x, weights=weights, bias=bias)})
    folded = fold_scaling(program)
    assert ("sub" in [n.op for n in folded]) == (np.abs(mean / scale).max() > 2**10)
    rows = rng.normal(mean, 3 * scale, (200, WIDTH))
    inputs = {n: rows[:, i] for i, n in enumerate(NAMES)}
    got, want = (reference.run(p, inputs)["score"] for p in (folded, program))
    terms = np.abs((rows - mean) / scale) @ np.abs(weights) + np.abs(bias)
    assert (np.abs(got - want) <= 1e-12 * (terms + 2**10 * np.abs(weights).sum(axis=0))).all()


def test_a_model_with_class_labels_keeps_its_scaler() -> None:
    b = Builder()
    x = b.op("sub", b.input("a", "float64"), b.constant(np.ones(1)))
    score = b.op("linear", x, weights=np.ones((1, 1)), bias=np.zeros(1))
    label = b.op("cast", b.op("gt", score, b.constant(np.zeros(1))), dtype="int64")
    program = b.build({"label": label}, Labels("int64", (0, 1)))
    assert fold_scaling(program) is program


@quick
@given(seeds)
def test_merged_linear_models_keep_their_bits(seed: int) -> None:
    rng = np.random.default_rng(seed)
    b = Builder()
    x = b.op("concat", *[b.input(n, "float64") for n in NAMES])
    parts = [
        b.op("linear", x, weights=rng.normal(size=(WIDTH, k)), bias=rng.normal(size=k))
        for k in rng.integers(1, 4, 4)
    ]
    program = b.build({"score": b.op("concat", *parts), "transform": parts[1]})
    merged = verify(merge_linears(program))
    assert [n.op for n in merged].count("linear") == 1
    rows = rng.normal(0, 5, (100, WIDTH))
    inputs = {n: rows[:, i] for i, n in enumerate(NAMES)}
    for name, want in reference.run(program, inputs).items():
        np.testing.assert_array_equal(reference.run(merged, inputs)[name], want)


def test_equal_trees_and_checks_are_shared_and_others_are_not() -> None:
    b = Builder()
    x = b.op("concat", *[b.input(n, "float64") for n in NAMES])
    first, second = (grow(Recipe(seed=s, dtype="float64")) for s in (1, 2))
    nodes = [b.op("tree_ensemble", x, **e.attrs()) for e in (first, first, second)]
    nans = [b.op("impute", x, fill=np.zeros(WIDTH), missing=m) for m in (np.nan, np.nan, 0.0)]
    shared = share_work(
        b.build({"score": b.op("concat", *nodes), "transform": b.op("concat", *nans)})
    )
    ops = [n.op for n in shared]
    assert ops.count("tree_ensemble") == 2 and ops.count("impute") == 2


@settings(deadline=None)
@given(st.floats(allow_nan=False), st.sampled_from(["float32", "float64"]))
def test_bisection_finds_every_float(limit: float, dtype: str) -> None:
    with np.errstate(over="ignore"):
        wanted = np.array([limit], dtype)
    last, following = find_last_true(lambda x: x <= wanted, 1, np.dtype(dtype))
    assert last[0] == wanted[0]
    if np.isposinf(wanted[0]):
        assert np.isnan(following[0])
    else:
        assert following[0] == np.nextafter(wanted, np.array(np.inf, dtype))[0]
    last, following = find_last_true(lambda x: x < wanted, 1, np.dtype(dtype))
    assert following[0] == wanted[0] and np.isnan(last[0]) == np.isneginf(wanted[0])
