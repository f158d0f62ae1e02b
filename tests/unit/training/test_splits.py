"""Which rows are held out."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pytest

from sqlml.errors import ConfigError
from sqlml.training.options.splits import Split


@pytest.mark.parametrize(
    ("split", "rows", "settled"),
    [
        (Split(), 499, Split("none")),
        (Split(), 500, Split("random", 0.2)),
        (Split(), 50_000, Split("random", 0.2)),
        (Split(), 200_000, Split("random", 0.05)),
        (Split("auto", 0.5), 10, Split("random", 0.5)),
        (Split("random"), 10, Split("random", 0.2)),
        (Split("seq", None, "d"), 10, Split("seq", 0.2, "d")),
        (Split("custom", None, "e"), 10, Split("custom", None, "e")),
        (Split("none"), 10, Split("none")),
    ],
)
def test_a_split_is_settled_by_the_number_of_rows(split: Split, rows: int, settled: Split) -> None:
    assert split.settled(rows) == settled


def test_seq_holds_out_the_greatest_values_and_trains_on_ties() -> None:
    split = Split("seq", 0.4, "d")
    assert split.held_out(pa.array([5, 1, 4, 2, 3])).tolist() == [True, False, True, False, False]
    assert split.held_out(pa.array([1, 2, 2, 2, 3])).tolist() == [False, False, False, False, True]
    days = pa.array([datetime.date(2026, 1, day) for day in (3, 1, 2, 5, 4)])
    assert split.held_out(days).tolist() == [False, False, False, True, True]
    assert split.held_out(pa.array(["b", "a", "c", "e", "d"])).tolist() == [
        *(False, False, False),
        *(True, True),
    ]


def test_null_comes_last_and_is_held_out() -> None:
    split = Split("seq", 0.5, "d")
    assert split.held_out(pa.array([None, 1, 2, None])).tolist() == [True, False, False, True]
    assert split.held_out(pa.array([None, None, 2, None])).tolist() == [True, True, False, True]


def test_nothing_is_held_out_of_a_fraction_of_nothing() -> None:
    assert not Split("seq", 0.0, "d").held_out(pa.array([1, 2])).any()


def test_custom_takes_a_boolean() -> None:
    split = Split("custom", None, "e")
    assert split.held_out(pa.array([True, False, None])).tolist() == [True, False, True]
    with pytest.raises(ConfigError, match="'e' must be a BOOLEAN"):
        split.held_out(pa.array([1, 0]))


def test_random_compares_places_with_the_share() -> None:
    places = pa.array(np.arange(10) * (2**53 // 10))
    assert Split("random", 0.3).held_out(places).tolist() == [True] * 3 + [False] * 7
