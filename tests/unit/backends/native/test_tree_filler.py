"""Trees and what follows from them, written where the result shall be, in two calls of kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    AdaBoostClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    IsolationForest,
    RandomForestClassifier,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from xgboost import XGBClassifier

import sqlml
from sqlml.backends.native.backend import NativeBackend
from sqlml.backends.native.step_filler import StepFiller, TreeFiller
from sqlml.errors import MissingValueError
from sqlml.ir import reference
from sqlml.ir.builder import Builder
from sqlml.ir.program import Program
from sqlml.planner.program.prepare_program import prepare_output
from sqlml.tools.calibration.backends import make_perfect_trees

WIDTH = 6
MODELS: dict[str, Callable[[], Any]] = {
    "tree": lambda: DecisionTreeClassifier(random_state=0),
    "values": lambda: DecisionTreeRegressor(random_state=0),
    "forest": lambda: RandomForestClassifier(300, max_depth=5, random_state=0),
    "stages": lambda: GradientBoostingClassifier(n_estimators=9, random_state=0),
    "histograms": lambda: HistGradientBoostingClassifier(max_iter=9, random_state=0),
    "isolation": lambda: IsolationForest(n_estimators=20, random_state=0),
    "xgboost": lambda: XGBClassifier(n_estimators=9, n_jobs=1),
    "lightgbm": lambda: LGBMClassifier(n_estimators=9, n_jobs=1, verbose=-1),
}
ROWS = [0, 1, 2, 17, 65, 257, 1500]


def table(rows: int, dtype: str, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, WIDTH)).astype(dtype)


def fitted(name: str, classes: int) -> Any:
    x = table(400, "float32")
    y = np.digitize(x[:, 0] * x[:, 1], [-0.3, 0.3][: classes - 1])
    return MODELS[name]().fit(x, y)


def core_of(model: Any, output: str, dtype: str) -> tuple[Program, list[int]]:
    """What scores the packed rows, and which of the model's columns it reads."""
    layout: Any = {"float32": "f32", "float64": "f64"}[dtype]
    scorer = sqlml.compile(model)
    parts = prepare_output(scorer.program, output, None, layout).split
    names = [feature.name for feature in scorer.features]
    return parts.core, [names.index(column.name) for column in parts.columns]


def want(program: Program, output: str, x: np.ndarray) -> np.ndarray:
    (name,) = program.inputs
    return reference.run(program, {name: x}, (output,))[output]


@pytest.mark.by_day(8)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", list(MODELS))
def test_each_output_is_that_of_the_reference(name: str, classes: int, dtype: str) -> None:
    model = fitted(name, classes)
    for output in ("label", "proba", "score"):
        if output not in sqlml.compile(model).program.outputs:
            continue
        program, columns = core_of(model, output, dtype)
        filler = NativeBackend().compile(program).filler(output, columns, WIDTH)
        assert isinstance(filler, TreeFiller), (output, str(program))
        for rows in ROWS:
            x = table(rows, dtype, seed=1)
            if name in ("tree", "forest", "xgboost", "lightgbm", "histograms"):
                x[::3, 2] = np.nan
            out = np.empty((rows, filler.width), filler.dtype)
            assert filler.fill(x, out) < 0
            wanted = want(program, output, x[:, columns])
            is_power = (name, output) == ("isolation", "score")
            if wanted.dtype == np.float64 and (output == "proba" or is_power):
                np.testing.assert_allclose(out, wanted, rtol=1e-14, atol=2e-16 * is_power)
            else:
                np.testing.assert_array_equal(out, wanted)
            turned = np.empty_like(out)
            assert filler.fill(np.asfortranarray(x), turned) < 0
            np.testing.assert_array_equal(turned, out)


@pytest.mark.parametrize("place", [0, 40, 700])
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan, 1e39])
def test_a_number_that_the_model_refuses_is_found(bad: float, place: int) -> None:
    scorer = sqlml.compile(fitted("stages", 2))
    x = table(place + 3, "float64")
    assert len(scorer.predict(x)) == place + 3
    x[place, 5] = bad
    with pytest.raises(MissingValueError):
        scorer.predict(x)


def test_a_tree_takes_nan_but_no_infinity() -> None:
    scorer = sqlml.compile(fitted("tree", 2))
    x = table(90, "float32")
    x[3, 1] = np.nan
    assert len(scorer.predict(x)) == 90
    x[80, 1] = np.inf  # a block without NaN, and one with both
    with pytest.raises(MissingValueError):
        scorer.predict(x)
    x[3, 1] = np.inf
    with pytest.raises(MissingValueError):
        scorer.predict(x[:4])


def test_chosen_columns_of_wider_rows() -> None:
    program, columns = core_of(fitted("forest", 3), "proba", "float64")
    assert columns == list(range(WIDTH))
    x = table(30, "float64", seed=2)
    wanted = want(program, "proba", x)
    for columns in ([2, 3, 4, 5, 6, 7], [7, 0, 2, 5, 1, 8]):
        wide = np.full((30, 9), np.nan)
        wide[:, columns] = x
        filler = NativeBackend().compile(program).filler("proba", columns, 9)
        assert isinstance(filler, TreeFiller)
        out = np.empty((30, 3))
        assert filler.fill(wide, out) < 0
        np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize(("operator", "values"), [("sigmoid", 1), ("softmax", 3), ("softmax", 9)])
def test_probabilities_of_large_margins_are_those_of_float32(operator: str, values: int) -> None:
    e = make_perfect_trees(6, 5, WIDTH, 50, values)
    single = {"leaf_values": 25 * e.leaf_values, "base": e.base}
    e = replace(e, **{name: array.astype(np.float32) for name, array in single.items()})
    b = Builder()
    margins = b.op("tree_ensemble", b.input("x", "float32", WIDTH), **e.attrs())
    attrs = {"sum_dtype": "float64"} if operator == "softmax" else {}
    program = b.build({"proba": b.op(operator, margins, **attrs)})
    filler = NativeBackend().compile(program).filler("proba", range(WIDTH), WIDTH)
    assert isinstance(filler, TreeFiller)
    x = table(3000, "float32")
    out = np.empty((3000, values), np.float32)
    assert filler.fill(x, out) < 0
    assert out.min() < 1e-37 and out.max() > 0.999
    np.testing.assert_array_equal(out, want(program, "proba", x))


def test_what_stands_before_the_trees_runs_step_by_step() -> None:
    x = table(200, "float64")
    model = AdaBoostClassifier(n_estimators=9, random_state=0).fit(x, x[:, 0] * x[:, 1] > 0)
    program, columns = core_of(model, "label", "float64")  # numbers in the range of float32
    filler = NativeBackend().compile(program).filler("label", columns, WIDTH)
    assert isinstance(filler, StepFiller)
    out = np.empty((200, 1), filler.dtype)
    assert filler.fill(x, out) < 0
    np.testing.assert_array_equal(out, want(program, "label", x[:, columns]))


@pytest.mark.parametrize("remainder", ["drop", "passthrough"])
def test_columns_that_are_encoded_before_the_trees(remainder: str) -> None:
    """The trees' columns are not those of the rows: there are more of them, or fewer."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"c": rng.choice(list("abc"), 200), "n": rng.normal(size=200)})
    encoded = make_column_transformer((OneHotEncoder(drop="first"), ["c"]), remainder=remainder)
    model = make_pipeline(encoded, DecisionTreeClassifier()).fit(
        frame, (frame.n > 0) & (frame.c == "a")
    )
    program = prepare_output(sqlml.compile(model).program, "label").split.core
    wide = program.input_type("x").width
    x = rng.integers(0, 3, (50, wide)).astype(float)  # codes of categories among them
    filler = NativeBackend().compile(program).filler("label", list(range(wide)), wide)
    assert filler is not None
    out = np.empty((50, 1), filler.dtype)
    assert filler.fill(x, out) < 0
    np.testing.assert_array_equal(out, want(program, "label", x))
