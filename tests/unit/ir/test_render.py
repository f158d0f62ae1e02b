"""A Program as text: one line a node, and no line too long to read."""

from __future__ import annotations

import numpy as np
import pytest

from sqlml.ir.builder import Builder
from sqlml.ir.program import Program, render
from sqlml.types import Labels
from tests.contract.operator_cases import CASES
from tests.support.random_trees import Recipe, grow, program_of

LONGEST = 300


@pytest.mark.parametrize("op", list(CASES))
def test_every_operator_prints_on_one_line(op: str) -> None:
    for make in CASES[op]:
        b = Builder()
        program = b.build({"transform": make(b)})
        lines = render(program).splitlines()
        assert len(lines) == len(program.nodes) + 1
        assert max(map(len, lines)) <= LONGEST, max(lines, key=len)
        for line, node in zip(lines, program.nodes, strict=False):
            assert f" {node.type!r} = {node.op}" in line
            assert ("sparse " in line) == node.type.sparse


def last_line(value: object) -> str:
    b = Builder()
    x = b.input("x", "string", 1)
    return render(b.build({"transform": b.op("fill", x, value=value)})).splitlines()[1]


def test_long_texts_are_cut() -> None:
    assert last_line("gone") == "%1 string[n,1] = fill %0 value='gone'"
    assert last_line("z" * 1000) == f"%1 string[n,1] = fill %0 value='{'z' * 80}'..."


def encode(*categories: str) -> str:
    b = Builder()
    names = np.array(categories, object)
    code = b.op("encode", b.input("x", "string"), categories=names, missing=-1)
    return render(b.build({"transform": code})).splitlines()[1]


def test_arrays_are_written_out_while_they_are_short() -> None:
    assert "categories=['a', 'b']" in encode("a", "b")
    assert "categories=string[7]" in encode(*"abcdefg")
    assert "categories=string[2]" in encode("a", "b" * 90)


def program(labels: tuple[Labels, ...]) -> Program:
    b = Builder()
    columns = [b.op("cast", b.input("x", "float64"), dtype="int64")] * len(labels)
    return b.build({"label": columns[0] if len(columns) == 1 else b.op("concat", *columns)}, labels)


def test_the_classes_of_each_target_are_named() -> None:
    some = Labels("string", ("ham", "spam"))
    many = Labels("int64", tuple(range(100)))
    assert str(program((some,))).endswith("return label=%1 labels=('ham', 'spam')")
    assert str(program((some, many))).endswith(
        "return label=%2 labels=('ham', 'spam'); (0, 1, 2, 3, 4, 5, ... 100)"
    )
    assert str(program((some,) * 30)).endswith("; ('ham', 'spam'); ... 30 targets")
    long = Labels("string", ("x" * 500, "y"))
    assert str(program((long,))).endswith(f"labels=('{'x' * 13}'..., 'y')")


def test_a_program_prints_itself() -> None:
    small = program_of(grow(Recipe(seed=1)))
    assert str(small) == render(small)
    assert repr(small) == "<Program of 2 nodes: x -> score>"
    b = Builder()
    wide = b.op("concat", *[b.input(f"column_{i}", "float64") for i in range(500)])
    assert len(repr(b.build({"transform": wide}))) < 120
