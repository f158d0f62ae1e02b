"""Function names can be read back, also out of longer text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sqlml.dialects.type_names import struct_fields
from sqlml.planner.binding.probe_queries import Column
from sqlml.planner.program.function_spec import FunctionSpec, ResultPart, parse_function_name


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize(
    "parts",
    [
        [ResultPart("label")],
        [ResultPart("proba")],
        [ResultPart("proba", 12)],
        [ResultPart("label"), ResultPart("proba", 0), ResultPart("score")],
        [ResultPart("leaf"), ResultPart("leaf", 99)],
    ],
)
def test_a_name_is_read_back(parts: list[ResultPart], again: bool) -> None:
    digest = "0123456789abcdef01234567"
    spec = FunctionSpec(digest, tuple(parts), "f32", "torch", "gemm", "cuda", again)
    assert parse_function_name(spec.name) == spec
    twin = replace(spec, twin=7)
    message = f'Catalog Error: Scalar Function with name {twin.name} does not exist! "x"'
    assert parse_function_name(message) == twin and twin.name == f"{spec.name}_t7"


@pytest.mark.parametrize(
    "text", ["", "sqlml_abc", "sqlml_0123456789abcdef01234567_label", "mysqlml_", "predict"]
)
def test_other_names_are_not_ours(text: str) -> None:
    assert parse_function_name(text) is None


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("STRUCT(a INTEGER)", [("a", "INTEGER")]),
        (
            'STRUCT("a, b" DECIMAL(9,2), "c""d" VARCHAR)',
            [("a, b", "DECIMAL(9,2)"), ('c"d', "VARCHAR")],
        ),
        (
            "STRUCT(s STRUCT(x INTEGER, y VARCHAR[]), m MAP(VARCHAR, DOUBLE), e ENUM('a,b', 'c)'))",
            [
                ("s", "STRUCT(x INTEGER, y VARCHAR[])"),
                ("m", "MAP(VARCHAR, DOUBLE)"),
                ("e", "ENUM('a,b', 'c)')"),
            ],
        ),
    ],
)
def test_fields_of_a_struct_type(kind: str, fields: list[tuple[str, str]]) -> None:
    assert struct_fields(kind) == tuple(Column(*f) for f in fields)


def test_other_types_have_no_fields() -> None:
    assert struct_fields("INTEGER") is None
    assert struct_fields("STRUCT(a INTEGER)[]") is None
