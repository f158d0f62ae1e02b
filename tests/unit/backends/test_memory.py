"""How much memory a block of rows takes, and which arrays may be written over."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sqlml.backends.native.stepwise import StepRunner, find_in_place_operators
from sqlml.backends.row_blocks import measure_row_bytes
from sqlml.ir import reference
from sqlml.ir.builder import Builder, Value
from sqlml.ir.operators.elementwise import UFUNCS
from sqlml.ir.ops import OPS
from sqlml.ir.program import Program

WIDTH, ROWS = 40, 2000
Make = Callable[[Builder, Value], Value]


def number(b: Builder, value: float) -> Value:
    return b.constant(np.array([value]))


def linear(b: Builder, x: Value) -> Value:
    return b.op("linear", x, weights=np.ones((WIDTH, 5)), bias=np.zeros(5))


def chain(b: Builder, x: Value) -> Value:
    return b.op("sqrt", b.op("abs", b.op("add", b.op("neg", x), number(b, 1.0))))


def diamond(b: Builder, x: Value) -> Value:
    return b.op("add", b.op("neg", x), b.op("square", x))


def residual(b: Builder, x: Value) -> Value:
    h = b.op("exp", x)
    return b.op("add", h, b.op("tanh", b.op("neg", h)))


def imputed(b: Builder, x: Value) -> Value:
    return b.op("where", b.op("isnan", x), number(b, 0.0), b.op("exp", x))


def side_by_side(b: Builder, x: Value) -> Value:
    return b.op("concat", b.op("neg", x), b.op("exp", x), b.op("abs", x))


def summed(b: Builder, x: Value) -> Value:
    return b.op("sum", b.op("exp", b.op("exp", x)), axis=1)


def scored(b: Builder, x: Value) -> Value:
    return linear(b, b.op("exp", b.op("exp", x)))


def program_of(make: Make) -> Program:
    b = Builder()
    return b.build({"transform": make(b, b.input("x", "float64", WIDTH))})


def peak(program: Program, monkeypatch: pytest.MonkeyPatch) -> int:
    """Bytes that scoring ROWS rows as one block takes beyond the batch itself."""
    for name in ("BLOCK_BYTES", "MOST_ROWS"):
        monkeypatch.setattr(f"sqlml.backends.native.stepwise.{name}", 1 << 40)
    model = StepRunner(program)
    batch = {"x": np.random.default_rng(0).normal(size=(ROWS, WIDTH))}
    model.run(batch)
    tracemalloc.start()
    try:
        model.run(batch)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("make", [side_by_side, imputed, summed, scored])
def test_a_block_takes_the_memory_that_was_planned(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = program_of(make)
    assert peak(program, monkeypatch) == pytest.approx(measure_row_bytes(program) * ROWS, rel=0.02)


@pytest.mark.parametrize(("make", "arrays"), [(chain, 1), (diamond, 2), (residual, 2)])
def test_operators_write_over_what_only_they_read(
    make: Make, arrays: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = program_of(make)
    found = peak(program, monkeypatch)
    assert found == pytest.approx(arrays * ROWS * WIDTH * 8, rel=0.02)
    assert found < measure_row_bytes(program) * ROWS


@st.composite
def arithmetic(draw: st.DrawFn) -> Program:
    """A DAG of ufuncs, columns and linear scores, with two of its values as outputs."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    b = Builder()
    x = b.input("x", "float64", WIDTH)
    values = [x, b.op("select", x, indices=np.arange(WIDTH)[::-1].copy()), b.op("neg", x)]
    binary = ("add", "sub", "mul", "div", "maximum", "minimum")
    unary = [op for op in UFUNCS if OPS[op].arity == (1, 1) and op != "not"]
    for _ in range(draw(st.integers(3, 15))):
        left, right = (values[i] for i in rng.integers(0, len(values), 2))
        kind = rng.choice(["unary", "binary", "constant", "same", "cast"])
        if kind == "unary":
            values.append(b.op(str(rng.choice(unary)), left))
        elif kind == "binary":
            values.append(b.op(str(rng.choice(binary)), left, right))
        elif kind == "constant":
            values.append(b.op(str(rng.choice(binary)), b.constant(rng.normal(size=WIDTH)), left))
        elif kind == "same":
            values.append(b.op("select", left, indices=np.arange(WIDTH)))
        else:
            values.append(b.op("cast", left, dtype="float64"))
    return b.build({"transform": values[-1], "score": values[int(rng.integers(len(values)))]})


@settings(max_examples=60, deadline=None, derandomize=True)
@given(arithmetic(), st.sampled_from([0, 1, 50]))
def test_nothing_that_is_still_read_is_written_over(program: Program, rows: int) -> None:
    x = np.random.default_rng(rows).normal(0, 2, (rows, WIDTH))
    before = x.copy()
    x.setflags(write=False)
    model = StepRunner(program)
    want = reference.run(program, {"x": x})
    for outputs in (["transform", "score"], ["transform"], ["score"]):
        for name, got in model.run({"x": x}, outputs).items():
            np.testing.assert_array_equal(got, want[name])
    np.testing.assert_array_equal(x, before)


def test_views_constants_and_inputs_are_never_written_over() -> None:
    b = Builder()
    x = b.input("x", "float64", 3)
    part = b.op("select", b.op("neg", x), indices=np.arange(3))  # a view of neg's result
    kept = b.op("abs", part)
    other = b.op("neg", b.op("cast", x, dtype="float64"))  # maybe the batch itself
    wide = b.op("add", b.op("sum", b.op("square", x), axis=1), b.op("abs", x))
    program = b.build({"transform": b.op("concat", kept, other, wide)})
    changed = {program.nodes[i].op for i in find_in_place_operators(program)}
    assert changed == {"add"}  # of abs(x), which is as wide as the sum and read by no other
