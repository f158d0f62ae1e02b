"""What the user sees of an engine function's result, as SQL text and type."""

from __future__ import annotations

import duckdb
import numpy as np
import pytest

from sqlml.dialects import DUCKDB, SPARK
from sqlml.ir.builder import Builder
from sqlml.ir.program import Program
from sqlml.planner.program.result_sql import (
    build_label_array,
    build_label_literal,
    decode_result,
    find_first_positions,
    find_result_type,
)
from sqlml.types import Labels

ab, xyz = Labels("string", ("a", "it's")), Labels("string", ("x", "y", "z"))
flag, number = Labels("bool", (False, True)), Labels("int64", (-1, 4))


def program(labels: tuple[Labels, ...], label: int, proba: int = 0) -> Program:
    b = Builder()
    x = b.input("x", "float64")
    kind = b.op("cast", x, dtype="int64") if labels else x
    outputs = {"label": b.op("select", kind, indices=np.zeros(label, np.int64))}
    if proba:
        outputs["proba"] = b.op("select", x, indices=np.zeros(proba, np.int64))
    return b.build(outputs, labels)


@pytest.mark.parametrize(
    ("made", "output", "chosen", "kind", "sql"),
    [
        (program((), 1), "label", None, "DOUBLE", "f()"),
        (program((), 3), "label", None, "DOUBLE[]", "f()"),
        (
            program((flag,), 1, 2), "label", None, "BOOLEAN",
            'array_extract((list_value(false, true)), "+"(f(), 1))',
        ),
        (
            program((flag,), 1, 2), "proba", None, "MAP(BOOLEAN, DOUBLE)",
            "array_extract(list_transform(list_value(f()), lambda sqlml_p: "
            "CASE WHEN sqlml_p IS NOT NULL THEN CAST(struct_pack("
            "\"false\" := array_extract(sqlml_p, '1'::BIGINT), "
            "\"true\" := array_extract(sqlml_p, '2'::BIGINT)) "
            "AS MAP(BOOLEAN, DOUBLE)) END), '1'::BIGINT)",
        ),
        (program((flag,), 1, 2), "proba", (1,), "DOUBLE", "f()"),
        (
            program((ab, xyz), 2, 5), "label", None, "VARCHAR[]",
            "list_select(list_value('a', 'it''s', 'x', 'y', 'z'), f())",
        ),
        (
            program((ab, flag), 2, 4), "label", None, "STRUCT(t0 VARCHAR, t1 BOOLEAN)",
            "array_extract(list_transform(list_value(f()), lambda sqlml_p: struct_pack("
            "t0 := array_extract((list_value('a', 'it''s')), \"-\"(array_extract(sqlml_p, 1), 0)), "
            "t1 := array_extract((list_value(false, true)), "
            "\"-\"(array_extract(sqlml_p, 2), 2)))), '1'::BIGINT)",
        ),
        (
            program((ab, ab), 2, 4), "proba", None, "MAP(VARCHAR, DOUBLE)[]",
            "list_transform(f(), lambda sqlml_p: CASE WHEN sqlml_p IS NOT NULL THEN CAST("
            "struct_pack(\"a\" := array_extract(sqlml_p, '1'::BIGINT), "
            "\"it's\" := array_extract(sqlml_p, '2'::BIGINT)) AS MAP(VARCHAR, DOUBLE)) END)",
        ),
        (
            program((ab, xyz), 2, 5), "proba", None, "MAP(VARCHAR, DOUBLE)[]",
            "array_extract(list_transform(list_value(f()), lambda sqlml_p: list_value("
            "CASE WHEN array_extract(sqlml_p, 1) IS NOT NULL THEN CAST(struct_pack("
            "\"a\" := array_extract(array_extract(sqlml_p, 1), '1'::BIGINT), "
            "\"it's\" := array_extract(array_extract(sqlml_p, 1), '2'::BIGINT)) "
            "AS MAP(VARCHAR, DOUBLE)) END, "
            "CASE WHEN array_extract(sqlml_p, 2) IS NOT NULL THEN CAST(struct_pack("
            "\"x\" := array_extract(array_extract(sqlml_p, 2), '1'::BIGINT), "
            "\"y\" := array_extract(array_extract(sqlml_p, 2), '2'::BIGINT), "
            "\"z\" := array_extract(array_extract(sqlml_p, 2), '3'::BIGINT)) "
            "AS MAP(VARCHAR, DOUBLE)) END)), '1'::BIGINT)",
        ),
        (
            program((ab, xyz), 2, 5), "proba", (None, 2), "DOUBLE[]",
            "array_extract(list_transform(list_value(f()), lambda sqlml_p: list_value("
            "CAST(NULL AS DOUBLE), array_extract(array_extract(sqlml_p, 2), 3))), '1'::BIGINT)",
        ),
        (
            program((flag, flag), 2, 2), "proba", None, "MAP(BOOLEAN, DOUBLE)[]",
            'list_transform(f(), lambda sqlml_p: CAST(struct_pack("false" := "-"(1, sqlml_p), '
            '"true" := sqlml_p) AS MAP(BOOLEAN, DOUBLE)))',
        ),
        (
            program((flag, flag), 2, 2), "proba", (1, 0), "DOUBLE[]",
            "array_extract(list_transform(list_value(f()), lambda sqlml_p: list_value("
            "array_extract(sqlml_p, 1), \"-\"(1, array_extract(sqlml_p, 2)))), '1'::BIGINT)",
        ),
    ],
)  # fmt: skip
def test_a_result_as_sql(
    made: Program, output: str, chosen: tuple[int | None, ...] | None, kind: str, sql: str
) -> None:
    assert find_result_type(made, output, chosen) == kind
    assert DUCKDB.display(decode_result("f()", made, output, chosen)) == sql


@pytest.mark.version
@pytest.mark.parametrize(
    "labels",
    [
        ab,
        flag,
        number,
        Labels("string", ("", "a")),
        Labels("string", ("Yes", "yes")),
        Labels("string", ('say "no"', "ß", "a\\b", "x y := z")),
        Labels("string", ("2020-02-29", "2020-03-01"), "DATE"),
        Labels("string", ("low", "high"), "ENUM('low', 'high')"),
        Labels("int64", (-(2**63), 2**63 - 1)),
        Labels("int64", (0, 1), "TINYINT"),
        Labels("float64", (0.1, 2.0), "FLOAT"),
        Labels("float64", (-0.5, 1e300)),
        Labels("string", tuple(f"class {k}" for k in range(200))),
    ],
    ids=str,
)
def test_maps_are_those_that_map_makes(labels: Labels) -> None:
    classes = len(labels)
    map_sql = decode_result("v", program((labels,), 1, classes), "proba", None)
    keys = build_label_array(labels)
    query = f"""
        SELECT {map_sql} AS made, map({keys}, v) AS expected, typeof(made), typeof(expected),
               map_keys(made) = {keys} FROM (VALUES (range({classes}) :: DOUBLE[]), (NULL)) AS t(v)
    """
    (row, (null, *_)) = duckdb.execute(query).fetchall()
    made, expected, type_name, expected_type, has_keys = row
    assert made == expected
    assert has_keys
    assert type_name == expected_type
    assert type_name == find_result_type(program((labels,), 1, classes), "proba", None)
    assert null is None


@pytest.mark.version
@pytest.mark.parametrize("targets", [(ab, ab), (ab, xyz), (ab, flag), (flag, number)], ids=str)
def test_maps_of_several_targets(targets: tuple[Labels, ...]) -> None:
    several = program(targets, len(targets), sum(map(len, targets)))
    values = [[0.25 * k for k in range(len(labels))] for labels in targets]
    query = f"""
        SELECT {decode_result("v", several, "proba", None)} AS maps, typeof(maps)
        FROM (VALUES ({values} :: DOUBLE[][]), ([NULL, {values[1]}]), (NULL)) AS t(v)
    """
    (maps, type_name), (partial_maps, _), (nulls, _) = duckdb.execute(query).fetchall()
    maps, partial_maps, nulls = (
        list(found.values()) if isinstance(found, dict) else found
        for found in (maps, partial_maps, nulls)
    )
    expected = [
        dict(zip(labels.values, numbers, strict=True))
        for labels, numbers in zip(targets, values, strict=True)
    ]
    assert type_name == find_result_type(several, "proba", None)
    assert maps == expected
    assert partial_maps == [None, expected[1]]
    assert nulls is None or nulls == [None, None]


def test_many_keys_and_other_engines_have_maps_of_lists() -> None:
    """A struct of many fields takes long to plan, and Spark cannot cast structs to MAPs."""
    many = tuple(Labels("int64", tuple(range(k, k + 50))) for k in (0, 1, 2))
    sql = decode_result("f()", program(many, 3, 150), "proba", None)
    assert "struct_pack" not in sql
    one = program((ab,), 1, 2)
    assert "struct_pack" in decode_result("f()", one, "proba", None)
    assert decode_result("f()", one, "proba", None, SPARK).startswith("map_from_arrays(")


def test_positions_count_through_the_classes_of_all_targets() -> None:
    assert find_first_positions((ab, xyz, flag)) == (1, 3, 6)


def test_literals_keep_their_type() -> None:
    assert build_label_literal(-(2**63), "int64") == "'-9223372036854775808'::BIGINT"
    assert build_label_literal(0.1, "float64") == "'0.1'::DOUBLE"
    assert build_label_literal(True, "bool") == "true"
    assert build_label_literal("a'b", "string") == "'a''b'"
    assert find_result_type(program((number,), 1, 2), "label", None) == "BIGINT"
