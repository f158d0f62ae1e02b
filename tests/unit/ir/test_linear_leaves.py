"""`linear_leaves`: what it means, and that no attribute can reach outside its arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sqlml.errors import ProgramError
from sqlml.ir import reference
from sqlml.ir.builder import Builder

ATTRS: dict[str, Any] = {
    "value": np.array([10.0, 20.0, 30.0]),
    "const": np.array([1.0, 2.0, 3.0]),
    "begin": np.array([0, 2, 2, 3], np.int32),
    "feature": np.array([0, 1, 1], np.int32),
    "weights": np.array([0.5, -1.0, 4.0]),
    "base": np.array([0.25]),
    "target": np.zeros(2, np.int32),
}


def build(**changes: Any) -> Any:
    b = Builder()
    leaves, x = b.input("leaves", "int64", 2), b.input("x", "float64", 2)
    return b.build({"score": b.op("linear_leaves", leaves, x, **{**ATTRS, **changes})})


def test_terms_are_added_to_the_constant_and_nan_takes_the_plain_value() -> None:
    x = np.array([[2.0, 3.0], [2.0, np.nan], [np.nan, 3.0], [np.inf, 1.0]])
    leaves = np.array([[0, 1], [0, 1], [2, 1], [0, 2]])
    got = reference.run(build(), {"leaves": leaves, "x": x})["score"][:, 0]
    assert got.tolist() == [0.25 + (1 + 1 - 3) + 2, 0.25 + 10 + 2, 0.25 + 15 + 2, np.inf]


def test_numbers_that_are_no_leaf_count_as_the_nearest() -> None:
    x = np.zeros((2, 2))
    far = np.array([[-5, 99], [np.iinfo(np.int64).min, np.iinfo(np.int64).max]])
    near = np.array([[0, 2], [0, 2]])
    one, two = (reference.run(build(), {"leaves": k, "x": x})["score"] for k in (far, near))
    assert one.tolist() == two.tolist()


@pytest.mark.parametrize(
    "changes",
    [
        {"value": np.zeros(0), "const": np.zeros(0), "begin": np.zeros(1, np.int32)},
        {"const": np.zeros(2)},
        {"value": np.zeros((3, 1))},
        {"value": np.zeros(3, np.float32)},
        {"begin": np.array([0, 2, 1, 3], np.int32)},
        {"begin": np.array([0, 2, 2, 9], np.int32)},
        {"begin": np.array([1, 2, 2, 3], np.int32)},
        {"begin": np.array([0, 2, 2, 3])},
        {"begin": np.array([0, 3], np.int32)},
        {"feature": np.array([0, 1, 2], np.int32)},
        {"feature": np.array([0, -1, 1], np.int32)},
        {"feature": np.array([0, 1], np.int32)},
        {"weights": np.zeros(4)},
        {"target": np.ones(2, np.int32)},
        {"target": np.zeros(3, np.int32)},
        {"target": np.zeros(2)},
        {"base": np.zeros(0)},
        {"base": np.zeros((1, 1))},
    ],
)
def test_attributes_that_do_not_fit_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ProgramError):
        build(**changes)
