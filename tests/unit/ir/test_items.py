"""Operators over lists, maps and pairs: rules that hold for hostile Programs, and rows that are
no such thing."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from sqlml.errors import ArtifactError, InputTypeError, MissingValueError, ProgramError
from sqlml.ir import reference, store
from sqlml.ir.builder import Builder, Value
from sqlml.ir.operators.sparse_rows import pack_items, unpack_items
from sqlml.ir.ops import verify
from sqlml.ir.program import Program
from sqlml.passes.selection import push_selection
from sqlml.passes.split import split, text_input_name
from sqlml.types import NESTED, Array, DType, promote


def has(b: Builder, *items: Any, column: DType = "list", **changes: Any) -> Value:
    words, ends = pack_items(items)
    attrs = {"kind": "list", "dtype": "float64", "feature": "x", "step": "S"}
    return b.op(
        "has_items", b.input("x", column), **(attrs | {"words": words, "ends": ends} | changes)
    )


def hashed(b: Builder, kind: DType, **changes: Any) -> Value:
    attrs = {"kind": kind, "dtype": "float64", "width": 6, "alternate_sign": True}
    return b.op("hash_items", b.input("x", kind), feature="x", step="S", **(attrs | changes))


def dense(b: Builder, x: Value) -> Program:
    return verify(b.build({"transform": b.op("densify", x, fill=0.0)}))


def run(program: Program, *rows: Any) -> Array:
    texts = np.array(
        [None if r is None else r if isinstance(r, str) else json.dumps(r) for r in rows], object
    )
    return reference.run(program, {"x": texts})["transform"]


def program_of(kind: DType) -> Program:
    b = Builder()
    return dense(b, hashed(b, kind))


def test_items_are_packed_as_they_are() -> None:
    items = ["a", "", "\udc80", 1, -(2**70), 0.1, float("inf"), None, True]
    back = unpack_items(*pack_items(items))
    assert back == items and [type(i) for i in back] == [type(i) for i in items]


def test_equal_items_are_the_same_item() -> None:
    b = Builder()
    program = dense(b, has(b, "1", 1, 0.5, None, 2**53 + 1))
    made = run(program, [1.0], [True], ["1"], [None, 5e-1], [2.0**53], [2**53 + 1, 2**53 + 1])
    want = np.zeros((6, 5))
    want[[0, 1, 2, 3, 3, 5], [1, 1, 0, 2, 3, 4]] = 1
    np.testing.assert_array_equal(made, want)


def test_a_store_brings_all_kinds_back() -> None:
    for kind in sorted(NESTED):
        program = program_of(kind)  # type: ignore[arg-type]
        again = store.loads(store.dumps(program))
        assert again.hash == program.hash
        assert [f.kind for f in again.features] == [kind]
        assert f"{kind}[n,1] = input name='x'" in str(again)


def test_a_name_twice_adds_up_and_the_last_member_counts() -> None:
    one = run(program_of("pairs"), [["a", 1]])
    np.testing.assert_array_equal(
        run(program_of("pairs"), '[["a", 1], {"p": "a", "q": 2}]'), 3 * one
    )
    np.testing.assert_array_equal(run(program_of("map"), '{"a": 1, "a": 2}'), 2 * one)
    np.testing.assert_array_equal(run(program_of("list"), ["a", "a"]), 2 * one)
    np.testing.assert_array_equal(run(program_of("pairs"), '[{"": "a", "": 2}]'), 2 * one)


def test_a_float32_sum_is_taken_in_float32() -> None:
    b = Builder()
    program = dense(b, hashed(b, "pairs", dtype="float32", width=1, alternate_sign=False))
    values = [1e8, 1.0, 1.0, -1e8, 0.1]
    want = np.float32(0)
    for value in values:
        want += np.float32(value)
    assert run(program, [["a", v] for v in values]).tolist() == [[want]]


@pytest.mark.parametrize(
    ("kind", "row", "error", "message"),
    [
        ("list", None, MissingValueError, "has NULL, which S does not take"),
        ("list", "null", MissingValueError, "a JSON null"),
        ("list", "", InputTypeError, "not JSON"),
        ("list", "[", InputTypeError, "not JSON"),
        ("list", "[1] [2]", InputTypeError, "not JSON"),
        ("list", "[" * 100_000, InputTypeError, "nested too deeply"),
        ("list", "9" * 5000, InputTypeError, "not JSON"),
        ("list", "{}", InputTypeError, "an object in a row"),
        ("list", '"a"', InputTypeError, "a string in a row"),
        ("list", "[null]", MissingValueError, "where a name is expected"),
        ("list", "[[]]", InputTypeError, "takes a string"),
        ("list", '["\\ud800"]', InputTypeError, "lone surrogate"),
        ("map", "[]", InputTypeError, "a list in a row"),
        ("map", '{"a": null}', MissingValueError, "as the value of 'a'"),
        ("map", '{"a": []}', InputTypeError, "a list in a row"),
        ("map", '{"a": {}}', InputTypeError, "an object in a row"),
        ("map", '{"a": 1' + "0" * 400 + "}", InputTypeError, "too large for a float"),
        ("pairs", '["ab"]', InputTypeError, "a string in a row"),
        ("pairs", '[["a"]]', InputTypeError, "a list in a row"),
        ("pairs", '[["a", 1, 2]]', InputTypeError, "a list in a row"),
        ("pairs", '[{"a": 1}]', InputTypeError, "an object in a row"),
        ("pairs", "[null]", MissingValueError, "among its pairs"),
        ("pairs", "[[null, 1]]", MissingValueError, "where a name is expected"),
        ("pairs", "[[1, 1]]", InputTypeError, "takes a string"),
        ("pairs", "[[[], 1]]", InputTypeError, "takes a string"),
    ],
)
def test_a_row_that_is_no_such_thing(
    kind: DType, row: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        run(program_of(kind), row)


def test_a_list_in_a_list_is_no_item() -> None:
    b = Builder()
    program = dense(b, has(b, "a"))
    with pytest.raises(InputTypeError, match="a list in a row"):
        run(program, '["a", ["a"]]')
    with pytest.raises(InputTypeError, match="an object in a row"):
        run(program, "[{}]")


def test_a_weight_of_zero_is_left_out_before_its_name_is_read() -> None:
    assert not run(program_of("pairs"), "[[1, 0], [null, 0.0], [[], false]]").any()
    assert run(program_of("pairs"), '[[1, "x"]]').any()


def test_rules_refuse_what_is_damaged() -> None:
    words, ends = pack_items(["a", 1])
    bad = [
        {"words": words[:-1]},
        {"ends": ends[::-1].copy()},
        {"words": np.frombuffer(b"[" * 90_000, np.uint8), "ends": np.array([90_000])},
        {"dtype": "int64"},
        {"dtype": "list"},
        {"kind": "map"},
        {"kind": "zoo"},
    ]
    for changes in bad:
        with pytest.raises(ProgramError):
            has(Builder(), "a", 1, **changes)
    for items in ((1, 1.0), (True, 1), ([1],), ({"a": 1},), (float("nan"),)):
        with pytest.raises(ProgramError, match="distinct single values"):
            has(Builder(), *items)
    for changes in ({"width": 0}, {"width": -1}, {"width": 1 << 40}, {"dtype": "string"}):
        with pytest.raises(ProgramError):
            hashed(Builder(), "map", **changes)
    with pytest.raises(ProgramError, match="kind must match the column"):
        has(Builder(), "a", column="map")


@pytest.mark.parametrize("kind", sorted(NESTED))
def test_no_other_operator_takes_or_makes_lists(kind: DType) -> None:
    b = Builder()
    x = b.input("x", kind)
    some: list[tuple[str, dict[str, Any]]] = [
        ("select", {"indices": np.array([0])}),
        ("concat", {}),
        ("isnan", {}),
        ("fill", {"value": "[]"}),
        ("neg", {}),
        ("cast", {"dtype": "float64"}),
        ("reshape", {"shape": (1,)}),
    ]
    for op, attrs in some:
        with pytest.raises(ProgramError, match="does not take lists or maps"):
            b.op(op, x, **attrs)
    number = b.input("n", "float64")
    with pytest.raises(ProgramError, match="does not make lists"):
        b.op("cast", number, dtype=kind)
    with pytest.raises(ProgramError, match="must have width 1"):
        b.input("y", kind, 2)
    with pytest.raises(ProgramError, match="not numbers"):
        verify(b.build({"transform": x}))
    with pytest.raises(TypeError, match="no common type"):
        promote(kind, kind)


def test_a_stored_program_with_a_list_for_an_output_is_refused() -> None:
    b = Builder()
    blob = store.dumps(b.build({"transform": b.input("x", "list")}))
    with pytest.raises(ArtifactError, match="not numbers"):
        store.loads(blob)


def test_a_selection_is_pushed_into_the_items() -> None:
    b = Builder()
    x = b.op("select", has(b, "a", "b", "c"), indices=np.array([2, 0]))
    pushed = push_selection(dense(b, x))
    (node,) = [n for n in pushed if n.op == "has_items"]
    assert unpack_items(node.attrs["words"], node.attrs["ends"]) == ["c", "a"]
    assert "select" not in [n.op for n in pushed]
    assert run(pushed, ["a", "b"], ["c"]).tolist() == [[0.0, 1.0], [1.0, 0.0]]


def test_split_hands_lists_over_beside_the_numbers() -> None:
    b = Builder()
    both = b.op("concat", hashed(b, "map"), b.input("n", "float64"))
    parts = split(dense(b, both))
    assert parts.encoders is None
    assert parts.texts == ("x",) and [c.name for c in parts.columns] == ["n"]
    assert parts.core.input_type(text_input_name(0)).dtype == "map"
