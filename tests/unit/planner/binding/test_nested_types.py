"""Which column types feed lists, maps and pairs, and what an error proposes for the others."""

from __future__ import annotations

import pytest

from sqlml.dialects.type_names import element, map_types, pair_types
from sqlml.planner.binding.column_types import convert_to_json, suggest_conversion
from sqlml.types import Kind

NESTED: tuple[Kind, ...] = ("list", "map", "pairs")


def feeds(kind: str) -> list[Kind]:
    return [k for k in NESTED if convert_to_json("c", kind, k) == "system.main.to_json(c)"]


@pytest.mark.parametrize(
    "kind",
    [
        "VARCHAR[]",
        "VARCHAR[3]",
        "INTEGER[]",
        "UHUGEINT[]",
        "BIGNUM[]",
        "DECIMAL(38,2)[]",
        "BOOLEAN[]",
        "FLOAT[4]",
        "ENUM('a', 'b)]', 'it''s')[]",
        "UUID[]",
    ],
)
def test_lists(kind: str) -> None:
    assert feeds(kind) == ["list"]


@pytest.mark.parametrize(
    "kind",
    [
        "MAP(VARCHAR, DOUBLE)",
        "MAP(ENUM('a', 'b,c'), DECIMAL(9,2))",
        "MAP(VARCHAR, VARCHAR)",
        'MAP("NULL", "NULL")',
        "STRUCT(a INTEGER)",
        'STRUCT("a, b" VARCHAR, "c""d" ENUM(\'x\', \')\'), e BOOLEAN)',
        "STRUCT(list INTEGER, map FLOAT)",
    ],
)
def test_maps(kind: str) -> None:
    assert feeds(kind) == ["map"]


@pytest.mark.parametrize(
    "kind",
    [
        "STRUCT(k VARCHAR, v INTEGER)[]",
        "STRUCT(\"key\" ENUM('a', 'b'), \"value\" VARCHAR)[]",
        "STRUCT(VARCHAR, DOUBLE)[]",
        "TUPLE(VARCHAR, DOUBLE)[]",
        "TUPLE(VARCHAR, DECIMAL(9,2))[2]",
    ],
)
def test_pairs(kind: str) -> None:
    assert feeds(kind) == ["pairs"]


@pytest.mark.parametrize(
    "kind",
    [
        "VARCHAR",
        "INTEGER",
        "DATE[]",
        "BLOB[]",
        "JSON[]",
        "VARCHAR[][]",
        "VARIANT",
        "UNION(a INTEGER)",
        "MAP(INTEGER, INTEGER)",
        "MAP(VARCHAR, DATE)",
        "MAP(VARCHAR, INTEGER[])",
        "MAP(VARCHAR, MAP(VARCHAR, INTEGER))",
        "STRUCT(a DATE)",
        "STRUCT(a INTEGER[])",
        "STRUCT(a STRUCT(b INTEGER))",
        "STRUCT(k INTEGER, v INTEGER)[]",
        "STRUCT(k VARCHAR)[]",
        "STRUCT(k VARCHAR, v INTEGER, w INTEGER)[]",
        "ENUM('a[]')",
        "STRUCT()",
        "",
    ],
)
def test_others_feed_nothing(kind: str) -> None:
    assert feeds(kind) == []


@pytest.mark.parametrize("kind", NESTED)
def test_json_and_what_has_no_type_feed_all(kind: Kind) -> None:
    assert convert_to_json("c", "JSON", kind) == "CAST(c AS VARCHAR)"
    assert (
        convert_to_json("?", '"NULL"', kind)
        == convert_to_json("?", "UNKNOWN", kind)
        == "system.main.to_json(?)"
    )
    if kind != "map":
        assert convert_to_json("[]", '"NULL"[]', kind) == "system.main.to_json([])"


@pytest.mark.parametrize(
    ("type", "kind", "fix"),
    [
        ("VARCHAR", "list", "[c]"),
        ("MAP(VARCHAR, INTEGER)", "list", "map_keys(c)"),
        ("DATE[]", "list", "CAST(c AS VARCHAR[])"),
        ("VARCHAR", "map", "CAST(c AS JSON)"),
        ("MAP(INTEGER, DOUBLE)", "map", "CAST(c AS MAP(VARCHAR, DOUBLE))"),
        ("MAP(VARCHAR, DATE)", "map", "CAST(c AS MAP(VARCHAR, VARCHAR))"),
        ("STRUCT(k VARCHAR, v DOUBLE)[]", "map", "map_from_entries(c)"),
        ("INTEGER", "map", "{'x': c}"),
        ("MAP(VARCHAR, INTEGER)", "pairs", "map_entries(c)"),
        ("INTEGER", "pairs", "[{'name': 'x', 'value': c}]"),
        ("INTEGER[]", "pairs", "[{'name': 'x', 'value': ..}]"),
    ],
)
def test_what_an_error_proposes(type: str, kind: Kind, fix: str) -> None:
    assert suggest_conversion("c", type, kind) == fix


def test_types_taken_apart() -> None:
    assert element("STRUCT(a INTEGER[])[]") == "STRUCT(a INTEGER[])"
    assert element("STRUCT(a INTEGER[])") is None
    assert map_types("MAP(ENUM('a,b', 'c)'), STRUCT(a INTEGER, b VARCHAR))") == (
        "ENUM('a,b', 'c)')",
        "STRUCT(a INTEGER, b VARCHAR)",
    )
    assert map_types("MAP(VARCHAR, INTEGER)[]") is None
    assert pair_types("STRUCT(a INTEGER)") is None
    assert pair_types("INTEGER") is None
