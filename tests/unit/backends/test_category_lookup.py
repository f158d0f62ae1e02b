"""Encoding many rows at once: the same codes as comparing each row with each category."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sqlml.backends.category_lookup import make_encoder
from sqlml.ir import reference

texts = st.text(st.characters(exclude_characters="\0"), max_size=2)  # a Program refuses NUL
words = st.one_of(st.none(), st.sampled_from(["a", "b", "", "ß"]), texts)
numbers = st.one_of(st.sampled_from([0.0, -0.0, 1.0, np.nan, np.inf, -np.inf]), st.floats())


def reference_codes(x: np.ndarray, categories: np.ndarray, missing: int) -> list[int]:
    attrs = {"categories": categories, "missing": missing}
    return reference.FUNCTIONS["encode"]([x], attrs)[:, 0].tolist()


def strings(values: list[object]) -> np.ndarray:
    made = np.empty(len(values), object)
    made[:] = values
    return made


@settings(max_examples=100, deadline=None)
@given(
    categories=st.lists(texts, max_size=6),
    column=st.lists(words, max_size=12),
    missing=st.integers(-1, 1),
)
def test_strings_have_the_codes_of_the_reference(
    categories: list[str], column: list[object], missing: int
) -> None:
    known, x = strings([*categories]), strings(column).reshape(-1, 1)
    codes = make_encoder(known, missing)(x)
    assert codes.shape == x.shape and codes.dtype == np.int64
    assert codes[:, 0].tolist() == reference_codes(x, known, missing)


@settings(max_examples=100, deadline=None)
@given(categories=st.lists(numbers, max_size=6), column=st.lists(numbers, max_size=12))
def test_numbers_have_the_codes_of_the_reference(
    categories: list[float], column: list[float]
) -> None:
    known = np.array(categories, np.float64)
    x = np.array([*column, *categories], np.float64).reshape(-1, 1)
    assert make_encoder(known, 5)(x)[:, 0].tolist() == reference_codes(x, known, 5)


@pytest.mark.parametrize("odd", [3, 2.5, b"a", float("nan"), ("a",), ["a"]])
def test_what_is_no_string_is_missing(odd: object) -> None:
    x = np.empty((2, 1), object)
    x[0, 0], x[1, 0] = "a", odd
    assert make_encoder(strings(["a"]), 1)(x)[:, 0].tolist() == [0, 1]


def test_whole_numbers_beyond_float64_stay_apart() -> None:
    known = np.array([2**53, 2**53 + 1])
    assert make_encoder(known, -1)(known.reshape(-1, 1))[:, 0].tolist() == [0, 1]
