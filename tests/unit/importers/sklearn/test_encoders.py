"""OneHotEncoder and OrdinalEncoder: every kind of category, missing, unknown and infrequent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

import sqlml
from sqlml.errors import MissingValueError, UnknownCategoryError, UnsupportedModelError
from sqlml.importers.registry import import_model
from tests.support.oracles import mixed_frame
from tests.support.sklearn_checks import assert_both_raise, assert_same, scored

COLUMNS = ["city", "plan", "visits", "level", "active", "age", "zip"]


def table(rows: int = 120, seed: int = 0, strings: str = "str") -> pd.DataFrame:
    frame = mixed_frame(rows, seed, strings=strings)[COLUMNS]
    return frame.assign(age=frame["age"] // 20)


def with_unknown(strings: str = "str") -> pd.DataFrame:
    frame = table(60, seed=3, strings=strings)
    frame.loc[:5, "city"] = "Atlantis"
    frame.loc[3:8, "visits"] = 999
    frame.loc[4:9, "age"] = 2.5
    return frame


@pytest.mark.parametrize("strings", ["str", "object"])
@pytest.mark.parametrize("encoder", [OneHotEncoder, OrdinalEncoder])
def test_known_categories_with_null_as_one_of_them(strings: str, encoder: Any) -> None:
    model = encoder().fit(table(strings=strings))
    assert_same(model, table(strings=strings), exact=True)


@pytest.mark.by_day(3)
@pytest.mark.parametrize("drop", [None, "first", "if_binary"])
@pytest.mark.parametrize("unknown", ["ignore", "infrequent_if_exist", "warn"])
@pytest.mark.parametrize(
    "rare",
    [
        {},
        {"min_frequency": 9},
        {"max_categories": 3},
        {"max_categories": 1},
        {"min_frequency": 0.2},
    ],
    ids=str,
)
@pytest.mark.parametrize("strings", ["str", "object"])
def test_unknown_infrequent_and_dropped_one_hot(
    drop: str | None, unknown: str, rare: dict[str, Any], strings: str
) -> None:
    model = OneHotEncoder(drop=drop, handle_unknown=unknown, **rare).fit(table(strings=strings))
    assert_same(model, with_unknown(strings), exact=True)


@pytest.mark.parametrize("rare", [{}, {"min_frequency": 4}], ids=str)
def test_named_categories_are_dropped(rare: dict[str, Any]) -> None:
    frame = table()
    model = OneHotEncoder(drop=["Oslo", np.nan, 3, 2, True, 2.0, 8001], **rare).fit(frame)
    assert_same(model, frame, exact=True)


@pytest.mark.parametrize("missing_count", [1, 30])
def test_the_missing_category_itself_may_be_infrequent(missing_count: int) -> None:
    column = ["a"] * 20 + ["b"] * 20 + ["c"] * 2 + [None] * missing_count
    frame = pd.DataFrame({"c": column}, dtype=object)
    for minimum in (2, 3, 25):
        for unknown in ("ignore", "infrequent_if_exist"):
            model = OneHotEncoder(min_frequency=minimum, handle_unknown=unknown).fit(frame)
            assert_same(model, pd.DataFrame({"c": ["a", "c", None, "new", "b"]}, dtype=object))
        model = OrdinalEncoder(
            min_frequency=minimum, handle_unknown="use_encoded_value", unknown_value=-5
        ).fit(frame)
        assert_same(model, pd.DataFrame({"c": ["a", "c", None, "new", "b"]}, dtype=object))


def test_only_the_missing_category_is_infrequent() -> None:
    frame = pd.DataFrame({"c": ["a"] * 9 + ["b"] * 9 + [None]}, dtype=object)
    for unknown in ("ignore", "infrequent_if_exist", "error"):
        model = OneHotEncoder(min_frequency=2, handle_unknown=unknown).fit(frame)
        assert_same(model, frame, exact=True)
    model = OneHotEncoder(min_frequency=2, handle_unknown="infrequent_if_exist").fit(frame)
    assert_same(model, pd.DataFrame({"c": ["zzz", "a", None]}, dtype=object), exact=True)


@pytest.mark.parametrize("encoded", [np.nan, -2, 77])
@pytest.mark.parametrize("value", [np.nan, -1, 99])
@pytest.mark.parametrize("rare", [{}, {"min_frequency": 9}, {"max_categories": 2}], ids=str)
@pytest.mark.parametrize("strings", ["str", "object"])
def test_missing_and_unknown_ordinals_have_their_own_values(
    encoded: float, value: float, rare: dict[str, Any], strings: str
) -> None:
    model = OrdinalEncoder(
        handle_unknown="use_encoded_value",
        unknown_value=value,
        encoded_missing_value=encoded,
        **rare,
    ).fit(table(strings=strings))
    assert_same(model, with_unknown(strings), exact=True)


@pytest.mark.parametrize("encoder", [OneHotEncoder, OrdinalEncoder])
def test_unknown_categories_raise_and_name_the_column(encoder: Any) -> None:
    frame = table().dropna()
    model = encoder().fit(frame)
    unknown = frame.iloc[:1].assign(city="Atlantis")
    assert_both_raise(model, unknown, UnknownCategoryError, "'city'.*seen")
    assert_both_raise(model, frame.iloc[:1].assign(age=np.nan), UnknownCategoryError, "'age'")
    null = frame.iloc[:1].assign(plan=pd.Series([None], dtype="str", index=frame.index[:1]))
    assert_both_raise(model, null, UnknownCategoryError, "'plan'")


def test_infinity_raises_even_where_unknown_is_ignored() -> None:
    model = OneHotEncoder(handle_unknown="ignore").fit(np.array([[1.0], [2.0]]))
    assert_both_raise(model, np.array([[np.inf]]), MissingValueError, "infinity")


def test_the_float_neighbours_of_a_category_are_unknown() -> None:
    model = OneHotEncoder(handle_unknown="ignore").fit(np.array([[0.1], [0.3], [2.0]]))
    near = np.array([0.1, np.nextafter(0.1, 1), np.float32(0.1), 0.30000000000000004, 2, -0.0])
    assert_same(model, near[:, None], exact=True)


def test_categories_given_by_hand_keep_their_order() -> None:
    frame = pd.DataFrame({"c": ["lo", "hi", "mid", "lo"]}, dtype=object)
    cats = [["lo", "mid", "hi", "never"]]
    assert_same(OneHotEncoder(categories=cats).fit(frame), frame, exact=True)
    assert_same(OrdinalEncoder(categories=cats).fit(frame), frame, exact=True)


@pytest.mark.parametrize("encoder", [OneHotEncoder, OrdinalEncoder])
def test_booleans_with_null_in_an_object_column_are_numbers(encoder: Any) -> None:
    frame = pd.DataFrame({"flag": [True, None, False, True]}, dtype=object)
    imported = assert_same(encoder().fit(frame), frame, exact=True)
    assert imported.program.features[0].kind == "number"


@pytest.mark.parametrize(
    "dtype", [np.float64, np.float32, np.float16, np.int64, np.int8, np.uint8], ids=str
)
def test_ordinal_dtypes(dtype: Any) -> None:
    frame = table()[["city", "visits"]].dropna()
    assert_same(OrdinalEncoder(dtype=dtype).fit(frame), frame, exact=True)


def test_ordinal_dtypes_that_cannot_hold_the_codes_are_refused() -> None:
    frame = pd.DataFrame({"a": np.arange(200)})
    unknown = OrdinalEncoder(dtype=np.uint8, handle_unknown="use_encoded_value", unknown_value=-1)
    for encoder in (OrdinalEncoder(dtype=np.int8), OrdinalEncoder(dtype=bool), unknown):
        with pytest.raises(UnsupportedModelError, match="float64"):
            import_model(encoder.fit(frame))


def test_zero_rows_and_one_row() -> None:
    frame = table()
    imported = import_model(OneHotEncoder().fit(frame))
    width = imported.program.output_type("transform").width
    assert scored(imported, frame.iloc[:0])["transform"].shape == (0, width)
    assert_same(OneHotEncoder().fit(frame), frame.iloc[:1], exact=True)


def test_none_and_nan_together_are_refused() -> None:
    frame = pd.DataFrame({"c": ["a", None, np.nan]}, dtype=object)
    with pytest.raises(UnsupportedModelError, match="None and NaN"):
        import_model(OneHotEncoder().fit(frame))


def test_nanoseconds_and_huge_integers_as_categories_are_refused() -> None:
    moments = pd.DataFrame({"d": np.array([1, 2], "datetime64[ns]")})
    with pytest.raises(UnsupportedModelError, match="'d'.*to the microsecond.*cast"):
        import_model(OneHotEncoder().fit(moments))
    huge = np.array([[2**53 + 1], [2**53 + 2]])
    with pytest.raises(UnsupportedModelError, match="2\\^53"):
        import_model(OneHotEncoder().fit(huge))


@pytest.mark.parametrize("unit", ["datetime64[us]", "datetime64[ns]", "object"])
def test_dates_are_categories(unit: str) -> None:
    days = pd.Series(pd.date_range("2026-01-01", periods=3, freq="31h").repeat(9))
    rows = pd.DataFrame({"day": [d.to_pydatetime() for d in days] if unit == "object" else days})
    rows = rows.astype({"day": unit})
    other = rows.iloc[:2].assign(day=rows["day"].iloc[0] + pd.Timedelta(1, "us"))
    for encoder in (
        OneHotEncoder(handle_unknown="ignore", sparse_output=False),
        OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
    ):
        encoder.fit(rows)
        scorer = sqlml.compile(encoder)
        for given in (rows, other):
            np.testing.assert_array_equal(scorer.transform(given), encoder.transform(given))
