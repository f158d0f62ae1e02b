"""Frames of many columns, which a Scorer reads at once: dtypes, names and orders of every kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.linear_model import LinearRegression

import sqlml
from sqlml import errors
from sqlml.scorer.python_rows import find_columns
from sqlml.types import Feature

pytestmark = pytest.mark.version

NAMES = ["a", "B", "c d", "é", "e"]


@pytest.fixture(scope="module")
def scorer() -> sqlml.Scorer:
    """Its values tell the columns apart: digits of a decimal number."""
    model = LinearRegression().fit(pd.DataFrame(np.eye(5), columns=NAMES), np.arange(5.0))
    model.coef_, model.intercept_ = 10.0 ** np.arange(5), 0.0
    return sqlml.compile(model)


def frame(rows: int = 4) -> pd.DataFrame:
    return pd.DataFrame(np.arange(5 * rows).reshape(rows, 5) % 7.0, columns=NAMES)


def values(table: pd.DataFrame) -> list[float]:
    return (table[NAMES].astype("float64").to_numpy() @ 10.0 ** np.arange(5)).tolist()


DTYPES = {
    "whole numbers": {"a": "int8", "B": "uint16", "c d": "int64"},
    "float32 and float16": {"a": "float32", "e": "float16"},
    "nullable ones between": {"B": "Int64", "é": "Float32"},
    "Arrow's": {"a": "int64[pyarrow]", "é": "double[pyarrow]"},
    "objects": {"c d": object},
    "nothing plain": dict.fromkeys(NAMES, "Int16"),
}


@pytest.mark.parametrize("kind", DTYPES)
def test_columns_of_every_dtype(scorer: sqlml.Scorer, kind: str) -> None:
    table = frame().astype(DTYPES[kind])
    assert scorer.predict(table).tolist() == values(frame())
    assert scorer.predict(table[NAMES[::-1]]).tolist() == values(frame())
    assert scorer.predict(table.iloc[:0]).tolist() == []
    assert scorer.predict(table.iloc[[2]]).tolist() == values(frame())[2:3]


def test_booleans_are_0_and_1(scorer: sqlml.Scorer) -> None:
    table = frame(2).assign(a=[True, False], e=pd.array([False, True], "boolean"))
    assert scorer.predict(table).tolist() == values(table.astype({"a": float, "e": float}))


def test_the_largest_whole_numbers_round_once(scorer: sqlml.Scorer) -> None:
    big = np.array([2**64 - 1, 2**53 + 1], np.uint64)
    table = pd.DataFrame({**{n: [0.0, 0.0] for n in NAMES}, "a": big})
    assert scorer.predict(table).tolist() == big.astype(np.float64).tolist()


def test_nullable_missing_values_are_null(scorer: sqlml.Scorer) -> None:
    table = frame().astype({"B": "Int64"})
    table.loc[1, "B"] = pd.NA
    with pytest.raises(errors.MissingValueError, match="'B'"):
        scorer.predict(table)


def test_other_columns_may_be_anything(scorer: sqlml.Scorer) -> None:
    table = frame()
    table.insert(0, "text", ["x", "y", None, "z"])
    table.insert(3, "when", pd.Timestamp("2020-01-01"))
    table[("two", "levels")] = 1j
    assert scorer.predict(table).tolist() == values(frame())


def test_a_wrong_dtype_names_its_column(scorer: sqlml.Scorer) -> None:
    for wrong in ("x", pd.Timestamp("2020-01-01")):
        with pytest.raises(errors.InputTypeError, match="'é' takes numbers"):
            scorer.predict(frame().assign(**{"é": wrong}))


HOLDERS: dict[str, Any] = {
    "pandas": lambda f: f,
    "polars": pl.from_pandas,
    "Arrow": lambda f: pa.Table.from_pandas(f, preserve_index=False),
    "batch": lambda f: pa.RecordBatch.from_pandas(f, preserve_index=False),
    "dict": lambda f: {n: f[n].to_numpy() for n in f},
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_the_same_scorer_reads_one_layout_after_another(scorer: sqlml.Scorer, holder: str) -> None:
    hold, want = HOLDERS[holder], values(frame())
    for order in (NAMES, NAMES[::-1], [*NAMES[2:], *NAMES[:2]]):
        for _ in range(2):
            assert scorer.predict(hold(frame()[order])).tolist() == want
    other_case = frame().rename(columns={"a": "A", "B": "b"})
    assert scorer.predict(hold(other_case)).tolist() == want
    assert scorer.predict(hold(frame().assign(A=99.0))).tolist() == want  # the exact name counts
    with pytest.raises(errors.MissingColumnError, match="'e'"):
        scorer.predict(hold(frame().drop(columns="e")))


def test_names_in_another_case_in_ascii_alone(scorer: sqlml.Scorer) -> None:
    table = frame().rename(columns={"a": "A", "B": "b", "c d": "C D"})
    assert scorer.predict(table).tolist() == values(frame())
    with pytest.raises(errors.MissingColumnError, match="'é'"):
        scorer.predict(table.rename(columns={"é": "É"}))
    with pytest.raises(errors.AmbiguousColumnError, match="2 columns are called 'e'"):
        scorer.predict(table.rename(columns={"A": "E"}).assign(a=1.0).set_axis(
            ["E", "b", "C D", "é", "E", "a"], axis=1
        ))  # fmt: skip


def test_two_columns_of_one_name(scorer: sqlml.Scorer) -> None:
    twice = pd.concat([frame(), frame()[["B"]]], axis=1)
    with pytest.raises(errors.AmbiguousColumnError, match="2 columns are called 'B'"):
        scorer.predict(twice)
    unused = pd.concat([frame(), frame().assign(x=1)[["x"]], frame().assign(x=2)[["x"]]], axis=1)
    assert scorer.predict(unused).tolist() == values(frame())


def test_names_that_are_no_strings() -> None:
    """1 and 1.0 are equal, but their names are "1" and "1.0"."""
    features = (Feature("1", "number"), Feature("1.0", "number"))
    assert dict(find_columns(features, ["1.0", "1"])) == {"1": 1, "1.0": 0}
    model = LinearRegression().fit(np.eye(2), [0.0, 1.0])
    model.coef_, model.intercept_ = np.array([1.0, 10.0]), 0.0
    named = sqlml.compile(model, inputs=["1", "2"])
    assert named.predict(pd.DataFrame({2: [3.0], 1: [4.0]})).tolist() == [34.0]
    with pytest.raises(errors.MissingColumnError, match="'1'"):
        named.predict(pd.DataFrame({2.0: [3.0], 1.0: [4.0]}))


def test_threads_read_slices(scorer: sqlml.Scorer) -> None:
    table = frame(40_000).astype({"B": "Int64", "a": "int16"})
    want = values(frame(40_000))
    assert scorer.predict(table, threads=2).tolist() == want
    assert scorer.predict(table, threads=1).tolist() == want


def test_more_columns_than_are_read_one_by_one() -> None:
    rng = np.random.default_rng(0)
    names = [f"n{i}" for i in range(40)]
    x = rng.integers(-9, 9, (6, 40)).astype(float)
    model = LinearRegression().fit(pd.DataFrame(x, columns=names), x[:, 0])
    model.coef_, model.intercept_ = 2.0 ** np.arange(40), 0.0
    scorer, want = sqlml.compile(model), (x @ model.coef_).tolist()
    table = pd.DataFrame(x, columns=names)
    mixed = {"n3": "int8", "n4": "Int64", "n30": "float32", "n31": "double[pyarrow]"}
    for held in (table, table.astype(mixed)):
        assert scorer.predict(held).tolist() == want
        assert scorer.predict(held[names[::-1]]).tolist() == want
        assert scorer.predict(held.assign(more="text")).tolist() == want
        assert (
            scorer.predict(pd.concat([held, held[["n0"]] + 1], axis=1).iloc[:, :40]).tolist()
            == want
        )
        twice = pd.concat([held.assign(x=0), held.assign(x=1)[["x"]]], axis=1)
        assert scorer.predict(twice).tolist() == want
