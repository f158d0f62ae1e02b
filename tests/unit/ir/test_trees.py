"""Raw trees become an Ensemble; what is no tree is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sqlml.errors import ProgramError
from sqlml.ir import reference
from sqlml.ir.builder import Builder
from sqlml.ir.trees import Ensemble, RawTrees, build_ensemble


def raw(**changes: Any) -> RawTrees:
    """Two trees: a stump on feature 1 and, written back to front, a tree of depth 2."""
    arrays: dict[str, Any] = {
        "roots": np.array([0, 7]),
        "feature": np.array([1, 0, 0, 0, 0, 0, 0, 0]),
        "threshold": np.array([2.0, 0, 0, 0, 0, -1.0, 0, 1.0]),
        "left": np.array([1, 0, 0, 0, 0, 3, 0, 5]),
        "right": np.array([2, 0, 0, 0, 0, 4, 0, 6]),
        "leaf": np.array([0, 1, 1, 1, 1, 0, 1, 0], bool),
        "default_left": np.zeros(8, bool),
        "value": np.arange(8.0)[:, None] * 10,
    }
    return RawTrees(**{**arrays, **changes})


def made(**changes: Any) -> Ensemble:
    return build_ensemble(raw(**changes), target=np.zeros(2), base=np.zeros(1), compare="le")


def test_nodes_are_numbered_in_pre_order_and_leaves_from_left_to_right() -> None:
    e = made()
    assert e.roots.tolist() == [0, 1]
    assert e.left.tolist() == [~0, 2, ~2]
    assert e.right.tolist() == [~1, ~4, ~3]
    assert e.leaf_values[:, 0].tolist() == [10, 20, 30, 40, 60]
    assert (e.trees, e.nodes, e.depth, e.outputs) == (2, 3, 2, 1)


def test_a_row_adds_the_leaves_it_reaches() -> None:
    b = Builder()
    x = b.input("x", "float64", 2)
    program = b.build({"score": b.op("tree_ensemble", x, **made().attrs())})
    rows = np.array([[-1.0, 2.0], [0.0, 2.5], [1.0, np.nan], [9.0, -np.inf]])
    assert reference.run(program, {"x": rows})["score"][:, 0].tolist() == [40, 60, 60, 70]


def test_a_tree_may_be_a_single_leaf() -> None:
    e = made(roots=np.array([3, 0]))
    assert e.roots.tolist() == [~0, 0]
    assert e.leaf_values[:, 0].tolist() == [30, 10, 20]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"left": np.array([0, 0, 0, 0, 0, 3, 0, 5])}, "cycle"),
        ({"left": np.array([1, 0, 0, 0, 0, 7, 0, 5])}, "cycle"),
        ({"left": np.array([99, 0, 0, 0, 0, 3, 0, 5])}, "out of range"),
        ({"left": np.array([-1, 0, 0, 0, 0, 3, 0, 5])}, "out of range"),
        ({"right": np.array([1, 0, 0, 0, 0, 4, 0, 6])}, "two parents"),
        ({"roots": np.array([0, 0])}, "two parents"),
    ],
)
def test_what_is_no_tree_is_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ProgramError, match=says):
        made(**changes)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"feature": np.array([1, 0, 9], np.int32)}, "no such feature"),
        ({"threshold": np.array([1.0, np.nan, 2.0])}, "NaN"),
        ({"threshold": np.zeros(3, np.float32)}, "threshold"),
        ({"left": np.array([~0, 0, ~2], np.int32)}, "one parent"),
        ({"right": np.array([~1, ~4, ~4], np.int32)}, "one parent"),
        ({"target": np.array([0, 1], np.int32)}, "outside base"),
        ({"compare": "gt"}, "unknown comparison"),
        ({"base": np.zeros(1, np.float32)}, "base must be float64"),
    ],
)
def test_an_ensemble_that_breaks_its_rules_is_refused(changes: dict[str, Any], says: str) -> None:
    b = Builder()
    x = b.input("x", "float64", 2)
    with pytest.raises(ProgramError, match=says):
        b.op("tree_ensemble", x, **{**made().attrs(), **changes})


def test_a_target_at_the_end_of_its_integers_reaches_outside() -> None:
    """A kernel would write there, and 2^31 - 1 + 1 is negative in 32 bits."""
    last = np.array([np.iinfo(np.int32).max, 0], np.int32)
    b = Builder()
    x = b.input("x", "float64", 2)
    with pytest.raises(ProgramError, match="target reaches outside"):
        b.op("tree_ensemble", x, **{**made().attrs(), "target": last})
    leaves = b.op("reshape", x, shape=(2, 1))
    assert b.op("accumulate", leaves, target=last * 0, base=np.zeros(1)).type.width == 1
    with pytest.raises(ProgramError, match="target reaches outside"):
        b.op("accumulate", leaves, target=last, base=np.zeros(1))
