"""Constants in functions' names come back as they were."""

from __future__ import annotations

import math
import re

from hypothesis import given
from hypothesis import strategies as st

from sqlml.planner.program.function_spec import (
    CONSTANTS_PATTERN,
    FunctionSpec,
    ResultPart,
    encode_constants,
    parse_constants,
    parse_function_name,
)

VALUES = st.one_of(st.none(), st.floats(allow_nan=False), st.text(st.characters(codec="utf-8")))


@given(st.lists(st.tuples(st.integers(0, 999_999), VALUES), max_size=4).map(tuple), st.booleans())
def test_a_name_tells_the_values_to_the_bit(constants: tuple, again: bool) -> None:
    text = encode_constants(constants)
    assert re.fullmatch(CONSTANTS_PATTERN, text) and re.fullmatch(r"[a-z0-9_]*", text)
    assert parse_constants(text) == constants
    for (_, value), (_, back) in zip(constants, parse_constants(text), strict=True):
        assert type(value) is type(back)
        if isinstance(value, float):
            assert math.copysign(1, value) == math.copysign(1, back)
    spec = FunctionSpec(
        "0" * 24,
        (ResultPart("label"), ResultPart("proba", 1)),
        "f64",
        "native",
        "traverse",
        "cpu",
        again,
        constants=constants,
    )
    assert parse_function_name(f"SELECT {spec.name}(x)") == spec


def test_names_without_constants_are_as_before() -> None:
    spec = FunctionSpec("a" * 24, (ResultPart("label"),), "f32", "native", "traverse", "cpu")
    assert spec.name == f"sqlml_{'a' * 24}_label_f32_native_traverse_cpu"
    assert parse_function_name(spec.name) == spec
