"""Which rows are held out."""

from __future__ import annotations

import datetime
from collections import Counter

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from sqlml.errors import ConfigError
from sqlml.training.options import splits
from sqlml.training.options.splits import BITS, SplitRule


@pytest.mark.parametrize(
    ("split", "rows", "settled"),
    [
        (SplitRule(), 499, SplitRule("none")),
        (SplitRule(), 500, SplitRule("random", 0.2)),
        (SplitRule(), 50_000, SplitRule("random", 0.2)),
        (SplitRule(), 200_000, SplitRule("random", 0.05)),
        (SplitRule("auto", 0.5), 10, SplitRule("random", 0.5)),
        (SplitRule("random"), 10, SplitRule("random", 0.2)),
        (SplitRule("seq", None, "d"), 10, SplitRule("seq", 0.2, "d")),
        (SplitRule("custom", None, "e"), 10, SplitRule("custom", None, "e")),
        (SplitRule("none"), 10, SplitRule("none")),
    ],
)
def test_a_split_is_settled_by_the_number_of_rows(
    split: SplitRule, rows: int, settled: SplitRule
) -> None:
    assert split.settle(rows) == settled


def test_seq_holds_out_the_greatest_values_and_trains_on_ties() -> None:
    split = SplitRule("seq", 0.4, "d")
    assert split.find_held_out([pa.array([5, 1, 4, 2, 3])]).tolist() == [
        True,
        False,
        True,
        False,
        False,
    ]
    assert split.find_held_out([pa.array([1, 2, 2, 2, 3])]).tolist() == [
        False,
        False,
        False,
        False,
        True,
    ]
    days = pa.array([datetime.date(2026, 1, day) for day in (3, 1, 2, 5, 4)])
    assert split.find_held_out([days]).tolist() == [False, False, False, True, True]
    assert split.find_held_out([pa.array(["b", "a", "c", "e", "d"])]).tolist() == [
        *(False, False, False),
        *(True, True),
    ]


def test_null_comes_last_and_is_held_out() -> None:
    split = SplitRule("seq", 0.5, "d")
    assert split.find_held_out([pa.array([None, 1, 2, None])]).tolist() == [
        True,
        False,
        False,
        True,
    ]
    assert split.find_held_out([pa.array([None, None, 2, None])]).tolist() == [
        True,
        True,
        False,
        True,
    ]


def test_nothing_is_held_out_of_a_fraction_of_nothing() -> None:
    assert not SplitRule("seq", 0.0, "d").find_held_out([pa.array([1, 2])]).any()


def test_custom_takes_a_boolean() -> None:
    split = SplitRule("custom", None, "e")
    assert split.find_held_out([pa.array([True, False, None])]).tolist() == [True, False, True]
    with pytest.raises(ConfigError, match="'e' must be a BOOLEAN"):
        split.find_held_out([pa.array([1, 0])])


def test_random_compares_places_with_the_share() -> None:
    places = np.arange(10) * 2**BITS // 10
    assert SplitRule("random", 0.3).find_held_out([places]).tolist() == [True] * 3 + [False] * 7


def test_the_share_of_equal_rows_is_held_out_evenly_among_their_labels() -> None:
    labels = np.repeat(np.arange(4, dtype=np.uint64), 250)
    for row in (0, 2**33, 2**64 - 1):
        rows = np.full(1000, row, np.uint64)
        for share in (0.01, 0.2, 0.5, 0.9):
            mask = SplitRule("random", share).find_held_out([rows, labels])
            assert abs(mask.sum() - 1000 * share) <= 3
            assert all(abs(mask[labels == k].sum() - 250 * share) <= 3 for k in range(4))


def test_the_order_of_rows_does_not_matter_nor_how_many_are_sorted_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draw = np.random.default_rng(0)
    rows = draw.choice(draw.integers(0, 2**64, 300, np.uint64), 20_000)
    labels = draw.integers(0, 3, 20_000).astype(np.uint64)
    split = SplitRule("random", 0.2)
    mask = split.find_held_out([rows, labels])
    monkeypatch.setattr(splits, "_PORTION_ROWS", 500)
    assert (split.find_held_out([rows, labels]) == mask).all()
    order = draw.permutation(20_000)
    again = split.find_held_out([rows[order], labels[order]])
    assert Counter(zip(rows[mask], labels[mask], strict=True)) == Counter(
        zip(rows[order][again], labels[order][again], strict=True)
    )
    labels[:] = 0  # the features that are held out do not depend on the labels
    assert Counter(rows[split.find_held_out([rows, labels])]) == Counter(rows[mask])


@pytest.mark.parametrize(
    "split",
    [
        SplitRule("random", 0.3),
        SplitRule("seq", 0.3, "a"),
        SplitRule("seq", 0.9, "n"),
        SplitRule("custom", None, "c"),
    ],
)
def test_the_engine_holds_out_the_same_rows(split: SplitRule) -> None:
    with duckdb.connect() as con:
        con.execute("CREATE MACRO hash(x) AS 1; CREATE MACRO row_number() AS 1")
        con.execute(
            "CREATE TABLE t AS SELECT a, if(a < 3, NULL, b) AS n, b % 2 = 0 AS c, b::VARCHAR AS y "
            "FROM range(1, 13) u(a), range(40) v(b), range(3)"
        )
        columns = {"a": "BIGINT", "n": "BIGINT", "c": "BOOLEAN", "y": "VARCHAR"}
        for group in (None, "a"):
            keys = split.build_keys(columns, "Y", group, 7)
            table = con.sql(f"SELECT *, {', '.join(keys)} FROM t").to_arrow_table()
            found = table.columns[4:]
            values = [k.to_numpy() if split.reads_hashes else k.combine_chunks() for k in found]
            mask = split.find_held_out(values)
            rows = list(zip(*(column.to_pylist() for column in table.columns[:4]), strict=True))
            last = None
            if split.method == "seq":
                trained = split.count_trained(len(rows))
                (key,) = keys
                last = (
                    f"(SELECT {key} FROM t ORDER BY {key} NULLS LAST LIMIT 1 OFFSET {trained - 1})"
                )
            for held_out in (True, False):
                sql = split.select_side("t", keys, last, held_out=held_out)
                wanted = Counter(
                    row for row, out in zip(rows, mask, strict=True) if out == held_out
                )
                assert Counter(con.execute(sql).fetchall()) == wanted
            assert 0 < mask.sum() < len(rows)
