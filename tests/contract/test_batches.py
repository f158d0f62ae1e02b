"""Batches of every make give the numbers of a clean one, on every kernel, or a typed error."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from lightgbm import LGBMClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from xgboost import XGBClassifier

import sqlml
from sqlml.errors import InputTypeError, MissingValueError, SqlmlError
from sqlml.passes.split import PACKED
from sqlml.planner.program.choose import choose_way
from sqlml.planner.program.prepare_program import compile_core, prepare_output
from sqlml.udfs.batch_function import BatchFunction

WIDTH, ROWS = 6, 9_001
NAMES = [f"c{i}" for i in range(WIDTH)]

MODELS: dict[str, Callable[[], Any]] = {
    "bytes of thresholds": lambda: XGBClassifier(n_estimators=20, max_depth=4),
    "deep trees": lambda: RandomForestClassifier(20, random_state=0),
    "categories' kernel": lambda: LGBMClassifier(n_estimators=20, verbose=-1),
    "one pass": lambda: make_pipeline(StandardScaler(), LogisticRegression()),
    "layers": lambda: MLPClassifier((8,), max_iter=20, random_state=0),
    "neighbours": lambda: KNeighborsClassifier(3),
}
TAKE_NAN = ("bytes of thresholds", "deep trees", "categories' kernel")


@cache
def clean() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(ROWS, WIDTH))


@cache
def scorer(name: str) -> sqlml.Scorer:
    x = clean()[:800]
    model = MODELS[name]()
    model.max_iter = 20
    frame = pd.DataFrame(x, columns=NAMES)
    return sqlml.compile(model.fit(frame, (x[:, 0] * x[:, 1] > 0).astype(int)))


@cache
def wanted(name: str) -> np.ndarray:
    return scorer(name).predict_proba(np.ascontiguousarray(clean()))


def misaligned(x: np.ndarray) -> np.ndarray:
    raw = np.zeros(x.nbytes + 1, np.uint8)
    made = raw[1:].view(np.uint8)[: x.nbytes].view(x.dtype).reshape(x.shape)
    made[:] = x
    return made


def read_only(x: np.ndarray) -> np.ndarray:
    made = x.copy()
    made.flags.writeable = False
    return made


LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "columns in a row": np.asfortranarray,
    "every other column of wider rows": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "every third row": lambda x: np.repeat(x, 3, axis=0)[::3],
    "backwards": lambda x: np.ascontiguousarray(x[::-1])[::-1],
    "columns backwards": lambda x: np.ascontiguousarray(x[:, ::-1])[:, ::-1],
    "read-only": read_only,
    "at an odd address": misaligned,
    "the other byte order": lambda x: x.astype(x.dtype.newbyteorder()),
    "a matrix of objects": lambda x: x.astype(object),
}


@pytest.mark.by_day(6)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", MODELS)
def test_arrays_of_any_layout(name: str, layout: str) -> None:
    for rows in (0, 1, 700):
        got = scorer(name).predict_proba(LAYOUTS[layout](clean()[:rows]))
        np.testing.assert_array_equal(got, wanted(name)[:rows])


@pytest.mark.parametrize("name", MODELS)
def test_any_number_of_rows_and_of_threads(name: str) -> None:
    whole = wanted(name)
    for rows, threads in ((0, 4), (1, 7), (2, 64), (ROWS, 1), (ROWS, 3), (ROWS, 64)):
        got = scorer(name).predict_proba(clean()[:rows], threads=threads)
        np.testing.assert_array_equal(got, whole[:rows])


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "int8", "uint64", "bool"])
@pytest.mark.parametrize("name", MODELS)
def test_numbers_of_any_dtype_are_what_they_are_as_float64(name: str, dtype: str) -> None:
    x = (clean()[:300] * 3).astype(np.int8 if dtype.startswith("u") else dtype)
    x = np.abs(x).astype(dtype)
    got = scorer(name).predict_proba(x)
    want = scorer(name).predict_proba(x.astype(np.float64))
    np.testing.assert_allclose(got, want, rtol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_what_is_no_number_is_refused(name: str) -> None:
    for bad in (
        np.full((3, WIDTH), "one"),
        np.full((3, WIDTH), 1j),
        np.full((3, WIDTH), np.datetime64("2020-01-01")),
        np.full((3, WIDTH), {"a": 1}, object),
        np.zeros((3, WIDTH - 1)),
        np.zeros((3, WIDTH, 1)),
        np.zeros(WIDTH),
    ):
        with pytest.raises(SqlmlError, match=r"column|feature|2-d array"):
            scorer(name).predict_proba(bad)


@pytest.mark.parametrize("name", MODELS)
def test_missing_values_anywhere_in_a_batch(name: str) -> None:
    x = clean().copy()
    for row in (0, 511, 512, ROWS - 1):
        holes = x.copy()
        holes[row, 2] = np.nan
        if name not in TAKE_NAN:
            with pytest.raises(MissingValueError, match="c2"):
                scorer(name).predict_proba(holes)
            continue
        got = scorer(name).predict_proba(holes)
        rest = np.arange(ROWS) != row
        np.testing.assert_array_equal(got[rest], wanted(name)[rest])
        np.testing.assert_array_equal(got[row], scorer(name).predict_proba(holes[row : row + 1])[0])


def packed(x: np.ndarray, kind: pa.DataType, mask: np.ndarray | None = None) -> pa.Array:
    values = pa.array(x.ravel(), kind, mask=None if mask is None else mask.ravel())
    return pa.FixedSizeListArray.from_arrays(values, WIDTH)


def batch_function(name: str) -> BatchFunction:
    prepared = prepare_output(scorer(name).program, "proba", None, "f64")
    core = prepared.split.core
    compiled = compile_core(core, choose_way(core, {}))
    return BatchFunction(compiled, PACKED, "proba", WIDTH, "float64", False, 2)


@pytest.mark.parametrize("name", MODELS)
def test_arrow_arrays_with_offsets_chunks_and_nulls(name: str) -> None:
    score, x, want = batch_function(name), clean(), wanted(name)

    def rows(result: pa.Array) -> np.ndarray:
        return result.flatten().to_numpy().reshape(-1, 2)

    whole = packed(x, pa.float64())
    np.testing.assert_array_equal(rows(score(whole)), want)
    np.testing.assert_array_equal(rows(score(whole.slice(17, 600))), want[17:617])
    np.testing.assert_array_equal(rows(score(whole.slice(ROWS - 1))), want[-1:])
    assert len(score(whole.slice(5, 0))) == 0
    parts = pa.chunked_array([whole.slice(0, 3), whole.slice(3, 0), whole.slice(3, 900)])
    np.testing.assert_array_equal(rows(score(parts)), want[:903])
    none = pa.chunked_array([], whole.type)
    assert len(score(none)) == 0
    mask = np.zeros(x.shape, bool)
    mask[40, 3] = True
    holed = packed(x, pa.float64(), mask).slice(30, 50)
    if name in TAKE_NAN:
        got = rows(score(holed))
        holes = np.where(mask, np.nan, x)[30:80]
        np.testing.assert_array_equal(got, scorer(name).predict_proba(holes))
    else:
        with pytest.raises(Exception, match="failure"):
            score(holed)
    for wrong in (packed(x, pa.float32()), pa.array([[1.0] * WIDTH]), pa.array([1.0])):
        with pytest.raises(Exception, match="failure"):
            score(wrong)


@pytest.mark.parametrize("name", MODELS)
def test_tables_of_chunks_and_of_null_columns(name: str) -> None:
    x = clean()[:2_000]
    table = pa.table({n: pa.chunked_array([x[:7, i], x[7:, i]]) for i, n in enumerate(NAMES)})
    np.testing.assert_array_equal(scorer(name).predict_proba(table), wanted(name)[:2_000])
    part = table.slice(5, 900)
    np.testing.assert_array_equal(scorer(name).predict_proba(part), wanted(name)[5:905])
    empty = table.slice(0, 0)
    assert scorer(name).predict_proba(empty).shape == (0, 2)
    gone = table.set_column(1, "c1", pa.nulls(2_000))
    if name in TAKE_NAN:
        holes = x.copy()
        holes[:, 1] = np.nan
        np.testing.assert_array_equal(
            scorer(name).predict_proba(gone), scorer(name).predict_proba(holes)
        )
    else:
        with pytest.raises(MissingValueError, match="c1"):
            scorer(name).predict_proba(gone)
    text = table.set_column(1, "c1", pa.array(["one"] * 2_000))
    with pytest.raises(InputTypeError, match="c1"):
        scorer(name).predict_proba(text)
