"""From a Program to something compiled: what is refused, and that it is refused clearly."""

from __future__ import annotations

import numpy as np
import pytest

from sqlml.errors import BackendError, ConfigError
from sqlml.ir.builder import Builder
from sqlml.planner.program.choose import Choice
from sqlml.planner.program.prepare_program import compile_core, prepare_output


def test_a_program_of_endless_steps_is_refused() -> None:
    b = Builder()
    x = b.op("concat", b.input("a", "float64"), b.input("b", "float64"))
    for _ in range(5000):
        x = b.op("add", x, b.constant(np.array([1.0, 2.0])))
    y = b.op("linear", x, weights=np.array([[1.0], [0.0]]), bias=np.array([0.0]))
    with pytest.raises(BackendError, match="too deeply"):
        prepare_output(b.build({"label": y}), "label")


def test_what_a_model_lacks_cannot_be_prepared() -> None:
    b = Builder()
    program = b.build({"label": b.op("neg", b.input("a", "float64"))})
    for output, column in (("proba", None), ("label", 1)):
        with pytest.raises(ConfigError, match="unknown output"):
            prepare_output(program, output, column)
    core = prepare_output(program, "label").split.core
    with pytest.raises(ConfigError, match="unknown backend"):
        compile_core(core, Choice("abacus", "traverse", "cpu", "test"))


def test_one_column_of_an_output_computes_that_alone() -> None:
    b = Builder()
    x = b.op("concat", *[b.input(n, "float64") for n in "abc"])
    program = b.build({"transform": b.op("neg", x)})
    prepared = prepare_output(program, "transform", 1)
    assert list(prepared.program.inputs) == ["b"]
    run = compile_core(prepared.split.core, Choice("native", "traverse", "cpu", "test")).run
    got = run({"x": np.array([[2.5], [np.nan]])})["transform"]
    np.testing.assert_array_equal(got, [[-2.5], [np.nan]])
