"""The model passes: what they make of a Program, and that its meaning stays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sqlml.errors import ConfigError
from sqlml.ir import reference
from sqlml.ir.builder import Builder, Value
from sqlml.ir.program import Program, render
from sqlml.passes import MODEL_PASSES, run, select_outputs
from sqlml.passes.fold_layout import fold_layout
from sqlml.passes.selection import inject_selection, push_selection
from sqlml.passes.split import PACKED, PackedColumn, split


def scaled_linear() -> Program:
    """Three columns, scaled; the linear model has no weight for the second."""
    b = Builder()
    x = b.op("concat", *[b.input(n, "float64") for n in "abc"])
    x = b.op("require_finite", x, features=("a", "b", "c"), allow_nan=False, step="Ridge")
    x = b.op("sub", x, b.constant(np.array([1.0, 2.0, 3.0])))
    y = b.op("linear", x, weights=np.array([[2.0], [0.0], [-1.0]]), bias=np.array([0.5]))
    return b.build({"label": y})


def test_selection_is_injected_before_an_operator_that_ignores_columns() -> None:
    lines = render(inject_selection(scaled_linear())).splitlines()
    assert lines[-3:] == [
        "%7 float64[n,2] = select %6 indices=[0, 2]",
        "%8 float64[n,1] = linear %7 weights=[[2.0], [-1.0]] bias=[0.5]",
        "return label=%8",
    ]


def test_selection_moves_down_to_the_inputs() -> None:
    text = render(push_selection(inject_selection(scaled_linear())))
    assert text.splitlines() == [
        "%0 float64[n,1] = input name='a'",
        "%1 float64[n,1] = input name='c'",
        "%2 float64[n,2] = concat %0 %1",
        "%3 float64[n,2] = require_finite %2 features=('a', 'c') allow_nan=False step='Ridge'",
        "%4 float64[2] = constant value=[1.0, 3.0]",
        "%5 float64[n,2] = sub %3 %4",
        "%6 float64[n,1] = linear %5 weights=[[2.0], [-1.0]] bias=[0.5]",
        "return label=%6",
    ]


def test_layout_is_folded() -> None:
    b = Builder()
    x = b.input("x", "float32", 4)
    first = b.op("select", x, indices=np.array([1, 2]))
    second = b.op("select", x, indices=np.array([3]))
    wide = [b.op("cast", v, dtype="float64") for v in (first, second)]
    y = b.op("cast", b.op("concat", *wide), dtype="float32")
    y = b.op("select", y, indices=np.array([2, 0]))
    assert render(fold_layout(b.build({"transform": y}))).splitlines() == [
        "%0 float32[n,4] = input name='x'",
        "%1 float32[n,2] = select %0 indices=[3, 1]",
        "return transform=%1",
    ]


def test_a_pass_can_be_left_out() -> None:
    program = scaled_linear()
    assert list(run(program).inputs) == ["a", "c"]
    assert "sub" in [n.op for n in run(program, without=["fold_scaling"])]
    assert "sub" not in [n.op for n in run(program)]
    with pytest.raises(ConfigError, match="nope.*push_selection"):
        run(program, without=["nope"])


def test_strings_stay_before_the_cut_and_numbers_behind_it() -> None:
    b = Builder()
    code = b.op(
        "encode",
        b.op("fill", b.input("plan", "string"), value="x"),
        categories=np.array(["x", "y"], object),
        missing=-1,
    )
    hot = b.op("one_hot", code, width=2, dtype="float64")
    x = b.op("concat", hot, b.input("tenure", "float64"))
    program = b.build({"transform": x})
    parts = split(program, "f32")
    assert parts.columns == (PackedColumn("tenure"), PackedColumn("code2", is_encoded=True))
    assert parts.encoders is not None
    assert [n.op for n in parts.encoders] == ["input", "fill", "encode"]
    assert parts.core.input_type(PACKED).dtype == "float32"
    rows = {"plan": np.array(["y", None, "q"], object), "tenure": np.array([1.5, np.nan, 3.0])}
    want = reference.run(program, rows)["transform"]
    codes = reference.run(parts.encoders, rows)["code2"]
    packed = np.column_stack([rows["tenure"], codes[:, 0]]).astype(np.float32)
    np.testing.assert_array_equal(reference.run(parts.core, {PACKED: packed})["transform"], want)


def test_a_model_that_reads_nothing_still_counts_rows() -> None:
    b = Builder()
    x = b.input("x", "float64")
    zero = b.op("mul", x, b.constant(np.array([0.0])))
    del zero
    empty = b.op("select", x, indices=np.array([], np.int64))
    y = b.op("linear", empty, weights=np.zeros((0, 1)), bias=np.array([7.0]))
    core = split(run(b.build({"label": y}))).core
    got = reference.run(core, {PACKED: np.zeros((3, 1))})["label"]
    assert got.tolist() == [[7.0]] * 3


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Random chains of column-wise operators, selects and concats over five inputs."""
    b = Builder()
    values: list[Value] = [b.input(n, "float64") for n in "abcde"]
    for _ in range(draw(st.integers(3, 12))):
        x = draw(st.sampled_from(values))
        width = x.type.width
        kind = draw(st.sampled_from(["concat", "select", "add", "cast", "impute", "linear"]))
        if kind == "concat":
            values.append(b.op("concat", x, *draw(st.lists(st.sampled_from(values), max_size=3))))
        elif kind == "select":
            picks = draw(st.lists(st.integers(0, width - 1), min_size=1, max_size=6))
            values.append(b.op("select", x, indices=np.array(picks, np.int64)))
        elif kind == "add":
            row = draw(st.lists(st.integers(-3, 3), min_size=width, max_size=width))
            values.append(b.op("add", x, b.constant(np.array(row, float))))
        elif kind == "cast":
            narrow = b.op("cast", x, dtype="float32")
            values.append(b.op("cast", narrow, dtype="float64"))
        elif kind == "impute":
            fill = np.arange(width, dtype=float)
            values.append(b.op("impute", x, fill=fill, missing=float("nan")))
        else:
            column = draw(
                st.lists(st.sampled_from([0.0, 1.0, -2.0]), min_size=width, max_size=width)
            )
            weights = np.array(column)[:, None]
            values.append(b.op("linear", x, weights=weights, bias=np.array([1.0])))
    last = [v for v in values if v.type.width <= 64][-3:]
    return b.build({"transform": b.op("concat", *last), "label": last[-1]})


@settings(max_examples=150, deadline=None)
@given(programs(), st.integers(0, 2**32 - 1))
def test_passes_keep_the_meaning(program: Program, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = {n: rng.integers(-4, 5, 20).astype(float) for n in program.inputs}
    rows = {n: np.where(rng.random(20) < 0.1, np.nan, v) for n, v in rows.items()}
    imputed = {n: np.nan_to_num(v, nan=2.0) for n, v in rows.items()}
    want = reference.run(program, imputed)
    done = program
    for apply in MODEL_PASSES:
        done = apply(done)
        got = reference.run(done, {n: imputed[n] for n in done.inputs})
        for name in want:
            np.testing.assert_array_equal(got[name], want[name])
    alone = run(select_outputs(program, ["label"]))
    got_label = reference.run(alone, {n: imputed[n] for n in alone.inputs})["label"]
    np.testing.assert_array_equal(got_label, want["label"])
