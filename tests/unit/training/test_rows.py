"""Buffers, names, classes and statistics: what is kept of batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from sqlml.errors import ConfigError
from sqlml.training import row_store
from sqlml.training.column_statistics import CategoryNumbers, Classes, ColumnStatistics
from sqlml.training.row_store import EstimatorRows, RowBuffer, RowStore, StoredRows, sample_rows
from sqlml.types import Labels


@pytest.mark.parametrize("width", [None, 3])
def test_a_buffer_holds_what_was_appended_and_gives_up_a_part(width: int | None) -> None:
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=n if width is None else (n, width)) for n in (1, 70_000, 0, 5, 90_000)]
    buffer = RowBuffer(np.float64, width)
    for part in parts:
        buffer.append(part)
    whole = np.concatenate(parts)
    mask = rng.random(len(whole)) < 0.3
    assert np.array_equal(buffer.take_out(mask), whole[mask])
    assert np.array_equal(buffer.array(), whole[~mask]) and len(buffer) == (~mask).sum()


def test_names_are_numbered_across_batches_and_sorted_in_the_end() -> None:
    names = CategoryNumbers()
    first = names.encode(pa.array(["pro", None, "basic", "pro"]))
    second = names.encode(pa.array(["max", "basic", "pro"]).dictionary_encode())
    place = names.sorted_positions()
    assert names.sorted() == ("basic", "max", "pro")
    assert [names.sorted()[place[c]] for c in second] == ["max", "basic", "pro"]
    assert first.tolist()[1] == -1 and first[0] == first[3] == second[2]


def test_names_of_an_empty_batch() -> None:
    names = CategoryNumbers()
    assert names.encode(pa.array([], pa.string())).tolist() == []
    assert names.encode(pa.array([None], pa.string())).tolist() == [-1]
    assert len(names) == 0


@pytest.mark.parametrize(
    ("values", "sql_type", "labels"),
    [
        ([3, 1, 3], "INTEGER", Labels("int64", (1, 3), "INTEGER")),
        ([True, False], "BOOLEAN", Labels("bool", (False, True), "BOOLEAN")),
        (["b", "a"], "VARCHAR", Labels("string", ("a", "b"), "VARCHAR")),
        (["2026-01-01"], "DATE", Labels("string", ("2026-01-01",), "DATE")),
        (["b", "a"], "ENUM('b', 'a', 'c')", Labels("string", ("a", "b"), "ENUM('b', 'a', 'c')")),
        ([0.5, -0.0], "DECIMAL(3,1)", Labels("float64", (0.0, 0.5), "DECIMAL(3,1)")),
        ([5.0], "HUGEINT", Labels("float64", (5.0,), "HUGEINT")),
    ],
)
def test_classes_keep_their_type(values: list[object], sql_type: str, labels: Labels) -> None:
    classes = Classes(sql_type)
    codes = classes.encode(pa.array(values))
    assert classes.labels() == labels
    place = classes.sorted_positions()
    assert [classes.values()[place[c]] for c in codes] == values


def test_classes_that_are_their_own_numbers() -> None:
    classes = Classes("BIGINT")
    classes.encode(pa.array([1, 0, 2]))
    assert classes.is_numbered()
    classes.encode(pa.array([4]))
    assert not classes.is_numbered()


def test_statistics_of_batches_are_those_of_all_rows() -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(1e6, 1, 10_000)
    values[rng.random(10_000) < 0.1] = np.nan
    found = ColumnStatistics("x", "DOUBLE")
    for start in range(0, 10_000, 777):
        found.add_numbers(values[start : start + 777])
    told = found.to_dict()
    assert (told["rows"], told["nulls"]) == (10_000, int(np.isnan(values).sum()))
    assert (told["min"], told["max"]) == (np.nanmin(values), np.nanmax(values))
    assert told["mean"] == pytest.approx(np.nanmean(values), rel=1e-14)
    assert told["stddev"] == pytest.approx(np.nanstd(values), rel=1e-9)
    assert not found.is_constant and not found.has_infinite


def test_statistics_of_odd_columns() -> None:
    gone = ColumnStatistics("x", "DOUBLE")
    gone.add_numbers(np.array([np.nan, np.nan]))
    assert gone.is_constant and gone.to_dict()["mean"] is None
    same = ColumnStatistics("x", "INTEGER")
    same.add_numbers(np.array([3, 3]))
    assert same.is_constant
    same.add_numbers(np.array([np.nan]))
    assert not same.is_constant
    huge = ColumnStatistics("x", "DOUBLE")
    huge.add_numbers(np.array([1e308, 1e308, -1e308]))
    assert not huge.has_infinite
    huge.add_numbers(np.array([np.inf]))
    assert huge.has_infinite


@pytest.mark.parametrize("most", [0, 1 << 40])
def test_a_store_gives_back_what_it_got_from_memory_or_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(row_store, "block_rows", lambda *_: 1000)
    rng = np.random.default_rng(0)
    whole = rng.normal(size=(5_500, 3)).astype(np.float32)
    whole[:, 2] = rng.integers(0, 4, 5_500)
    whole[rng.random(5_500) < 0.2, 2] = np.nan
    store = RowStore(np.float32, 3, most, str(tmp_path))
    for start in range(0, 5_500, 777):
        store.append(whole[start : start + 777])
    assert len(store) == 5_500 and store.in_memory == (most > 0)
    assert np.array_equal(store.array(), whole, equal_nan=True)
    assert list(tmp_path.iterdir()) == []
    mask = rng.random(5_500) < 0.3
    if store.in_memory:
        assert np.array_equal(store.take_out(mask), whole[mask], equal_nan=True)
        assert np.array_equal(store.array(), whole[~mask], equal_nan=True)
        return
    rows = StoredRows(store, mask, {2: np.array([3, 2, 1, 0])}, (2, 0))
    wanted = np.stack([3 - whole[mask, 2], whole[mask, 0]], axis=1)
    assert rows.shape == wanted.shape == rows.array().shape
    assert np.array_equal(rows.array(), wanted, equal_nan=True)
    assert np.array_equal(np.concatenate(list(rows.blocks())), wanted, equal_nan=True)
    assert np.array_equal(rows.column(1), wanted[:, 1])
    assert np.array_equal(rows.rows(7, 1400), wanted[7:1400], equal_nan=True)
    assert np.array_equal(rows.first_block, wanted[:1000], equal_nan=True)
    assert rows.rows(9, 9).shape == (0, 2)
    sample = sample_rows(EstimatorRows(rows, np.arange(len(rows)), None, None), 50)
    assert sample.X.shape == (50, 2) and np.array_equal(sample.X[:, 1], wanted[sample.y, 1])


def test_a_full_disk_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    monkeypatch.setattr(row_store.tempfile, "TemporaryFile", lambda **_: open("/dev/full", "wb", 0))
    store = RowStore(np.float64, 2, 0)
    with pytest.raises(
        ConfigError, match=r"training needs .*\(No space left on device\): free some"
    ):
        store.append(np.zeros((10, 2)))
