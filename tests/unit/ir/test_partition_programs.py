"""The Programs of partitions: forged operators, and Programs that do not belong into one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sqlml.errors import ArtifactError, ProgramError
from sqlml.ir import reference, store
from sqlml.ir.builder import Builder
from sqlml.ir.partition_programs import (
    check_partitions,
    count_partitions,
    find_partition_columns,
    load_program,
    pack_programs,
)
from sqlml.ir.program import Program


def make_member(factor: float, name: str = "x", output: str = "label") -> Program:
    builder = Builder()
    return builder.build({output: builder.op("mul", builder.input(name, "float64"), factor)})


MEMBERS = [make_member(2.0), make_member(3.0)]


def make_model(members: list[Program] = MEMBERS, **attrs: Any) -> Program:
    """A model of one number `x`, whose partition is the number `g`, 0 or 1."""
    builder = Builder()
    code = builder.op(
        "encode", builder.input("g", "float64"), categories=np.array([0.0, 1.0]), missing=-1
    )
    defaults = {"names": ("x",), "output": "label", "dtype": "float64", "width": 1}
    options = {**pack_programs(members), **defaults, "has_default": False, **attrs}
    value = builder.op("by_partition", code, builder.input("x", "float64"), **options)
    return builder.build({"label": value})


def test_each_row_is_scored_by_the_program_of_its_partition() -> None:
    rows = {"g": np.array([1.0, 0.0, 7.0, np.nan, 1.0]), "x": np.arange(5.0)}
    labels = reference.run(make_model(), rows)["label"][:, 0]
    np.testing.assert_array_equal(labels, [0, 2, np.nan, np.nan, 12])
    labels = reference.run(make_model(has_default=True), rows)["label"][:, 0]
    np.testing.assert_array_equal(labels, [0, 2, 6, 9, 12])
    assert reference.run(make_model(), {"g": np.empty(0), "x": np.empty(0)})["label"].shape == (
        0,
        1,
    )


def test_what_a_model_says_about_its_partitions() -> None:
    model = make_model()
    assert find_partition_columns(model) == ("g",)
    assert count_partitions(model) == 2
    assert find_partition_columns(MEMBERS[0]) == ()
    restored = store.loads(store.dumps(model))
    assert restored.hash == model.hash
    check_partitions(restored)


@pytest.mark.parametrize(
    "attrs",
    [
        {"ends": np.empty(0, np.int64)},
        {"ends": np.array([5, 4], np.int64)},
        {"ends": np.array([0, 10], np.int64)},
        {"ends": np.array([10, 1 << 40], np.int64)},
        {"ends": np.array([1.0])},
        {"programs": np.zeros(4, np.int64)},
        {"names": ()},
        {"names": ("x", "x")},
        {"names": (1,)},
        {"dtype": "string"},
        {"width": 0},
        {"width": -1},
        {"width": True},
        {"has_default": 1},
    ],
)
def test_forged_operators_are_illegal(attrs: dict[str, Any]) -> None:
    with pytest.raises(ProgramError):
        make_model(**attrs)


def _nest() -> Program:
    return make_model()


@pytest.mark.parametrize(
    ("members", "attrs", "message"),
    [
        ([make_member(2.0), make_member(2.0, "y")], {}, "reads columns that the model does not"),
        ([make_member(2.0), make_member(2.0, output="score")], {}, "lacks the output 'label'"),
        (MEMBERS, {"width": 2}, "returns float64"),
        (MEMBERS, {"dtype": "float32"}, "returns float64"),
        ([_nest(), _nest()], {"names": ("x",)}, "never stores in a partition"),
    ],
)
def test_programs_that_do_not_fit(
    members: list[Program], attrs: dict[str, Any], message: str
) -> None:
    model = make_model(members, **attrs)
    with pytest.raises(ArtifactError, match=message):
        check_partitions(model)


def test_damaged_programs() -> None:
    packed = pack_programs(MEMBERS)
    for position in (0, 40, len(packed["programs"]) - 1):
        content = packed["programs"].copy()
        content[position] ^= 1
        model = make_model(programs=content)
        with pytest.raises(ArtifactError):
            check_partitions(model)
        with pytest.raises(ArtifactError):
            for index in range(2):
                load_program(model.nodes[-1].attrs, index)
