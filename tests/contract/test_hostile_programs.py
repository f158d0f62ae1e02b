"""Programs that a stored model may claim to be: no rule lets them pass, or they end in an error."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from sqlml.errors import (
    ProgramError,
    SqlmlError,
    UnsupportedModelError,
)
from sqlml.importers.registry import import_model
from sqlml.ir import store
from sqlml.ir.builder import Builder, Value
from sqlml.ir.trees import Ensemble
from tests.support import hostile
from tests.support.onnx_checks import graph, node


def test_a_stored_tree_that_is_too_deep() -> None:
    depth = 10_001
    inner = np.arange(depth, dtype=np.int32)
    right = inner + 1
    right[-1] = ~depth
    trees = Ensemble(
        roots=np.zeros(1, np.int32),
        feature=np.zeros(depth, np.int32),
        threshold=np.linspace(0, 1, depth),
        left=~inner,
        right=right,
        default_left=np.zeros(depth, bool),
        leaf_values=np.zeros((depth + 1, 1)),
        target=np.zeros(1, np.int32),
        base=np.zeros(1),
        compare="le",
    )
    b = Builder()
    with pytest.raises(ProgramError, match="more than 10000 tests deep"):
        b.op("tree_ensemble", b.input("x", "float64"), **trees.attrs())


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("leaf_number", np.zeros(1, np.int32)),
        ("leaf_number", np.zeros((2, 1), np.int32)),
        ("leaf_number", np.zeros(2)),
        ("stage_ends", np.zeros(0, np.int32)),
        ("stage_ends", np.zeros(1, np.int32)),
        ("stage_ends", np.array([2], np.int32)),
        ("stage_ends", np.array([1, 0, 1], np.int32)),
        ("stage_ends", np.array([-1, 1], np.int32)),
        ("stage_ends", np.ones(1)),
    ],
)
def test_statistics_of_trees_that_do_not_fit(name: str, array: np.ndarray) -> None:
    trees = {
        "roots": np.zeros(1, np.int32),
        "feature": np.zeros(1, np.int32),
        "threshold": np.zeros(1),
        "left": np.array([-1], np.int32),
        "right": np.array([-2], np.int32),
        "default_left": np.zeros(1, bool),
        "leaf_values": np.zeros((2, 1)),
        "target": np.zeros(1, np.int32),
        "base": np.zeros(1),
        "compare": "le",
    }
    b = Builder()
    with pytest.raises(ProgramError, match=name):
        b.op("tree_ensemble", b.input("x", "float64"), **trees, **{name: array})


Make = Callable[[Builder, Value], Value]


PROGRAMS: dict[str, tuple[Make, str]] = {
    "a row of 10^12": (
        lambda b, x: b.op("select", x, indices=np.zeros(2**21, np.int64)),
        "too many",
    ),
    "a column outside": (lambda b, x: b.op("select", x, indices=np.array([3])), "outside"),
    "a layer of no columns": (
        lambda b, x: b.op("linear", x, weights=np.zeros((3, 0)), bias=np.zeros(0)),
        "weights",
    ),
    "a column of no table": (lambda b, x: b.op("select", x, indices=np.array([-1])), "outside"),
    "no column to choose": (
        lambda b, x: b.op("argmax", b.op("select", x, indices=np.zeros(0, np.int64)), axis=1),
        "has no values along",
    ),
}


@pytest.mark.parametrize(("make", "match"), PROGRAMS.values(), ids=PROGRAMS)
def test_programs_that_no_rule_lets_pass(make: Make, match: str) -> None:
    b = Builder()
    with pytest.raises(ProgramError, match=match):
        make(b, b.input("x", "float64", 3))


@pytest.mark.parametrize("op", ["take", "gather"])
def test_a_place_that_rows_compute_is_checked_when_it_is_used(op: str) -> None:
    b = Builder()
    x = b.input("x", "float64")
    place = b.op("cast", x, dtype="int64")
    table = b.constant(np.arange(3.0)) if op == "take" else x
    program = b.build({"transform": b.op(op, table, place)})
    for name in hostile.BACKENDS:
        for value in (-1.0, 3.0, 1e18):
            with pytest.raises(SqlmlError, match="reaches outside its table"):
                hostile.base.load_backend(name).compile(program).run({"x": np.array([value])})


def test_an_onnx_graph_in_a_stored_program_is_tried_first() -> None:
    """As in an ONNX file: a graph that crashes or fills the memory ends a process of its own."""
    nodes = [node("Tile", "x s", "e"), node("ReduceSum", "e a", "y")]
    constants = {"s": np.array([1, 1 << 34]), "a": np.array([1])}
    huge = graph(nodes, {"x": ("float32", (None, 1))}, {"y": "float32"}, constants)
    fine = graph([node("Relu", "x", "y")], {"x": ("float32", (None, 1))}, {"y": "float32"})
    for content, width in ((huge, 1), (fine, 2), (fine, 1)):
        b = Builder()
        value = b.op(
            "onnx_graph",
            b.op("cast", b.input("x", "float64"), dtype="float32"),
            model=np.frombuffer(content, np.uint8),
            inputs=("x",),
            output="y",
            dtype="float32",
            width=width,
        )
        stored = store.dumps(b.build({"transform": value}))
        if content is fine and width == 1:
            assert hostile.outcome(stored, "SQLML") in ("scored", "unscored")
            assert import_model(store.loads(stored)).is_named
        else:
            with pytest.raises(UnsupportedModelError, match="cannot run the ONNX graph of this"):
                import_model(store.loads(stored))
