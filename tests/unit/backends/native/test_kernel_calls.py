"""An output as a table of calls that need no Python: the numbers are those of the filler itself."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from lightgbm import LGBMClassifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import (
    AdaBoostClassifier,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import Binarizer, Normalizer, StandardScaler
from sklearn.tree import DecisionTreeClassifier
from xgboost import XGBClassifier

import sqlml
from sqlml.backends.base import find_filler
from sqlml.backends.native.backend import NativeBackend
from sqlml.backends.native.kernel_calls import (
    INPUT,
    PATCH_ADDRESS,
    RESULT,
    SCRATCH,
    Call,
    KernelCalls,
    Rows,
    pack_arrays,
)
from sqlml.backends.native.step_filler import StepFiller
from sqlml.planner.program.prepare_program import prepare_output
from sqlml.types import Array

WIDTH = 5
MODELS: dict[str, Callable[[], Any]] = {
    "tree": lambda: DecisionTreeClassifier(random_state=0),
    "forest": lambda: RandomForestClassifier(60, max_depth=5, random_state=0),
    "stages": lambda: GradientBoostingRegressor(n_estimators=9, random_state=0),
    "histograms": lambda: HistGradientBoostingClassifier(max_iter=9, random_state=0),
    "xgboost": lambda: XGBClassifier(n_estimators=9, n_jobs=1),
    "lightgbm": lambda: LGBMClassifier(n_estimators=9, n_jobs=1, verbose=-1),
    "logistic": lambda: make_pipeline(StandardScaler(), LogisticRegression()),
    "sum": lambda: LinearRegression(),
    "bayes": lambda: GaussianNB(),
    "network": lambda: MLPClassifier((4,), max_iter=20, random_state=0),
    "scaler": lambda: StandardScaler(),
    "norms": lambda: Normalizer(),
    "zeros and ones": lambda: Binarizer(),
}

STAGED: dict[str, Callable[[], Any]] = {
    "imputed forest": lambda: make_pipeline(
        SimpleImputer(), StandardScaler(), RandomForestClassifier(20, max_depth=5, random_state=0)
    ),
    "votes": lambda: VotingClassifier(
        [("a", RandomForestClassifier(5, random_state=0)), ("b", LogisticRegression())],
        voting="soft",
    ),
    "stack": lambda: StackingClassifier(
        [("a", DecisionTreeClassifier(max_depth=3, random_state=0)), ("b", LogisticRegression())],
        cv=2,
    ),
    "boosted": lambda: AdaBoostClassifier(
        DecisionTreeClassifier(max_depth=4, random_state=0), n_estimators=9, random_state=0
    ),
    "calibrated": lambda: CalibratedClassifierCV(
        GradientBoostingClassifier(n_estimators=5, random_state=0), cv=2
    ),
    "together": lambda: make_pipeline(
        make_union(StandardScaler(), Binarizer()), XGBClassifier(n_estimators=9, n_jobs=1)
    ),
}
"""Models of trees with other steps before or beside them."""


def table(rows: int, dtype: str = "float64") -> Array:
    return np.random.default_rng(0).normal(size=(rows, WIDTH)).astype(dtype)


def followed(calls: KernelCalls, x: Array, out: Array, between: Sequence[Array] = ()) -> int:
    """Make the calls of a table as machine code does: its words, with the block's own numbers.

    `between` are what the first places between have.
    """
    rooms = [np.empty(max(1, size * len(x)), np.uint8) for size in calls.measure_scratch()]
    rooms[: len(between)] = between
    places = [x.ctypes.data, out.ctypes.data, *(room.ctypes.data for room in rooms)]
    words = calls.encode()
    assert words is not None
    table, at = words.tolist(), 0
    for _ in calls.calls:
        address, size, changes = table[at : at + 3]
        given = np.array(table[at + 3 : at + 3 + size], np.int64)
        assert size <= calls.count_max_words()
        at += 3 + size
        for _ in range(changes):
            place, what, value = table[at : at + 3]
            beyond = value & 0xFFFFFFFF
            given[place] = places[value >> 32] + beyond if what == PATCH_ADDRESS else value * len(x)
            at += 3
        entry = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(address)
        found = entry(given.ctypes.data)
        if found >= 0:
            return found
    assert at == len(table)
    return -1


def calls_of(filler: Any, width: int, rows: int) -> KernelCalls:
    x, out = Rows(INPUT, filler.input, width), Rows(RESULT, filler.dtype, filler.width)
    size = (rows,) if hasattr(filler, "find_large_batch") else ()
    made: Sequence[Call] = filler.make_calls(x, out, itertools.count(SCRATCH), *size)
    return KernelCalls(tuple(made))


def fillers(name: str, layout: Any, columns: list[int], width: int) -> list[tuple[str, Any]]:
    y = np.digitize(table(400)[:, 0] * table(400)[:, 1], [-0.3, 0.3])
    imputing = make_pipeline(KNNImputer(n_neighbors=2), LogisticRegression())
    made = {**MODELS, **STAGED, "imputing": lambda: imputing}[name]()
    scorer = sqlml.compile(made.fit(table(400), y))
    found = []
    for output in scorer.program.outputs:
        core = prepare_output(scorer.program, output, None, layout).split.core
        compiled = NativeBackend().compile(core)
        found.append((output, find_filler(compiled, output, columns, width)))
    return found


@pytest.mark.parametrize("layout", ["f32", "f64"])
@pytest.mark.parametrize("name", MODELS)
def test_the_numbers_are_those_of_the_filler(name: str, layout: str) -> None:
    for output, filler in fillers(name, layout, list(range(WIDTH)), WIDTH):
        for rows in (1, 3, 65, 2048):
            x = table(rows, filler.input.name)
            want = np.empty((rows, filler.width), filler.dtype)
            assert filler.fill(x, want) < 0
            made = np.full_like(want, 77)
            assert followed(calls_of(filler, WIDTH, rows), x, made) < 0
            assert made.tobytes() == want.tobytes(), (output, rows)


@pytest.mark.by_day(12)
@pytest.mark.parametrize("layout", ["f32", "f64"])
@pytest.mark.parametrize("name", STAGED)
def test_trees_between_other_steps(name: str, layout: str) -> None:
    for output, filler in fillers(name, layout, list(range(WIDTH)), WIDTH):
        assert hasattr(filler, "make_calls"), output
        for rows in (1, 65, 2048):
            x = table(rows, filler.input.name)
            want = np.empty((rows, filler.width), filler.dtype)
            assert filler.fill(x, want) < 0
            made = np.full_like(want, 77)
            assert followed(calls_of(filler, WIDTH, rows), x, made) < 0
            # exp of the machine, and of numpy, may differ by a unit in the last place
            np.testing.assert_allclose(made, want, rtol=1e-14, atol=0, err_msg=f"{output} {rows}")
            x[rows // 2, 1] = np.inf
            refused = filler.fill(x, want) >= 0
            found = followed(calls_of(filler, WIDTH, rows), x, made)
            assert refused == (found >= 0), (output, rows)


def test_what_takes_numpy_between_its_kernels_has_no_calls() -> None:
    found = [filler for _, filler in fillers("imputing", "f64", list(range(WIDTH)), WIDTH)]
    assert any(isinstance(filler, StepFiller) for filler in found)
    assert not hasattr(StepFiller, "make_calls")


@pytest.mark.parametrize("columns", [[1, 2, 3, 4, 5], [6, 0, 2, 1, 5]])
@pytest.mark.parametrize("name", ["forest", "xgboost", "logistic"])
def test_columns_of_wider_rows(name: str, columns: list[int]) -> None:
    wide = np.random.default_rng(1).normal(size=(300, 7))
    for _, filler in fillers(name, "f64", columns, 7):
        for rows in (2, 300):
            want = np.empty((rows, filler.width), filler.dtype)
            filler.fill(wide[:rows], want)
            made = np.full_like(want, 77)
            assert followed(calls_of(filler, 7, rows), wide[:rows].copy(), made) < 0
            assert made.tobytes() == want.tobytes()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", MODELS)
def test_a_refused_row_ends_the_calls(name: str, bad: float) -> None:
    for rows in (2, 1000):
        x = table(rows)
        x[rows // 2, 1] = bad
        for output, filler in fillers(name, "f64", list(range(WIDTH)), WIDTH):
            own = x.astype(filler.input)
            out = np.empty((rows, filler.width), filler.dtype)
            refused = filler.fill(own, out) >= 0
            made = np.full_like(out, 77)
            assert (followed(calls_of(filler, WIDTH, rows), own, made) >= 0) == refused, output
            assert refused or made.tobytes() == out.tobytes()


def test_packed_arrays_are_equal_and_lie_together() -> None:
    arrays = (np.arange(5, dtype=np.uint8), np.zeros((0, 3)), np.arange(6.0).reshape(2, 3))
    nested = (7, arrays, None, np.ones(70, np.float32))
    packed = pack_arrays(nested)
    assert packed[0] == 7 and packed[2] is None
    first = packed[1][0].ctypes.data
    for array, copy in zip((*arrays, nested[3]), (*packed[1], packed[3]), strict=True):
        np.testing.assert_array_equal(copy, array)
        assert copy.dtype == array.dtype and copy.flags.c_contiguous
        assert copy.ctypes.data % 64 == 0 and 0 <= copy.ctypes.data - first <= 128
