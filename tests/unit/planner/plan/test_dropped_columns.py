"""Why an input is not needed: which pass found it out."""

from __future__ import annotations

import numpy as np

from sqlml.ir.builder import Builder
from sqlml.ir.program import Program
from sqlml.passes import MODEL_PASSES
from sqlml.planner.plan.plan import SELECTION_PASSES, find_dropping_passes
from sqlml.planner.program.function_spec import ResultPart
from sqlml.planner.program.prepare_program import prepare_parts


def two_outputs() -> Program:
    """label reads a and d, b with the weight 0; score reads c alone."""
    b = Builder()
    columns = [b.input(name, "float64") for name in "abcd"]
    x = b.op("concat", columns[0], columns[1], columns[3])
    weights = np.array([[2.0], [0.0], [1.0]])
    label = b.op("linear", x, weights=weights, bias=np.zeros(1))
    chosen = b.op("select", b.op("concat", columns[2], columns[3]), indices=np.array([0]))
    return b.build({"label": label, "score": chosen})


def test_other_outputs_passes_and_weights_of_nothing() -> None:
    program = two_outputs()
    by_selection = {"c": "other outputs", "b": SELECTION_PASSES}
    assert dict(find_dropping_passes(program, (ResultPart("label"),))) == by_selection
    by_step = {"a": "other outputs", "b": "other outputs", "d": "push_selection"}
    assert dict(find_dropping_passes(program, (ResultPart("score"),))) == by_step
    both = find_dropping_passes(program, (ResultPart("label"), ResultPart("score")))
    assert dict(both) == {"b": SELECTION_PASSES}


def test_what_is_dropped_is_what_is_not_read() -> None:
    program = two_outputs()
    passes = {apply.__name__ for apply in MODEL_PASSES} | {SELECTION_PASSES, "other outputs"}
    for parts in (
        (ResultPart("label"),),
        (ResultPart("score"),),
        (ResultPart("label", 0), ResultPart("score")),
    ):
        read = set(prepare_parts(program, parts).program.inputs)
        why = find_dropping_passes(program, parts)
        assert set(why) == set(program.inputs) - read
        assert set(why.values()) <= passes
