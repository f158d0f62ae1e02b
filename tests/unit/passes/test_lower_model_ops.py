"""Model operators as tensor operators: what is lowered, and what must stay on the host."""

from __future__ import annotations

import numpy as np

from sqlml.ir.builder import Builder, Value
from sqlml.ir.ops import verify
from sqlml.ir.program import Program
from sqlml.passes.lower import MAX_CATEGORIES, lower_model_ops


def lowered(b: Builder, value: Value) -> Program:
    return verify(lower_model_ops(b.build({"transform": value})))


def operators(program: Program) -> list[str]:
    return [node.op for node in program if node.op not in ("input", "constant")]


def test_linear_is_a_product_and_a_sum() -> None:
    b = Builder()
    x = b.input("x", "float64", 3)
    program = lowered(b, b.op("linear", x, weights=np.ones((3, 1)), bias=np.ones(1)))
    assert operators(program) == ["matmul", "add"]


def test_impute_compares_with_its_marker_or_looks_for_nan() -> None:
    for missing, test in ((float("nan"), "isnan"), (-1.0, "eq")):
        b = Builder()
        x = b.input("x", "float32", 2)
        program = lowered(b, b.op("impute", x, fill=np.zeros(2, np.float32), missing=missing))
        assert operators(program) == [test, "where"]


def test_checks_stay_as_they_are() -> None:
    b = Builder()
    x = b.op(
        "require_finite",
        b.input("x", "float64"),
        features=("x",),
        allow_nan=False,
        step="Ridge",
    )
    codes = b.op("encode", x, categories=np.array([1.0, 2.0]), missing=-1)
    known = b.op("require_known", codes, feature="x", step="OneHotEncoder")
    ops = operators(lowered(b, known))
    assert ops[0] == "require_finite"
    assert ops[-1] == "require_known"
    assert "encode" not in ops


def test_strings_and_long_lists_of_categories_stay_on_the_host() -> None:
    names = np.array(["a", "b"], object)
    long = np.arange(MAX_CATEGORIES + 1.0)
    for dtype, categories in (("string", names), ("float64", long)):
        b = Builder()
        codes = b.op("encode", b.input("x", dtype), categories=categories, missing=-1)
        assert operators(lowered(b, codes)) == ["encode"]


def test_inputs_keep_their_order_and_outputs_their_labels() -> None:
    b = Builder()
    first, second = b.input("b", "float64"), b.input("a", "float64")
    score = b.op("linear", second, weights=np.ones((1, 1)), bias=np.zeros(1))
    program = lower_model_ops(b.build({"score": b.op("add", score, first)}))
    assert list(program.inputs) == ["b", "a"]
