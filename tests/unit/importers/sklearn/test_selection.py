"""Selectors: strings that are selected past, what is refused, and ColumnTransformer's columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_selection import (
    RFE,
    SelectFromModel,
    SelectFwe,
    SelectKBest,
    VarianceThreshold,
    f_classif,
)
from sklearn.linear_model import Lasso, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from sqlml.errors import MissingValueError, UnsupportedModelError
from sqlml.importers.registry import import_model
from tests.support.oracles import mixed_frame
from tests.support.sklearn_checks import assert_both_raise, assert_same


def frame_and_classes() -> tuple[pd.DataFrame, Any]:
    frame = mixed_frame(80, nulls=0)[["age", "visits", "ratio", "level"]].astype(float)
    return frame, (frame["age"] > 50).to_numpy().astype(int)


def test_columns_that_are_not_selected_are_not_read() -> None:
    frame, y = frame_and_classes()
    imported = assert_same(SelectKBest(f_classif, k=1).fit(frame, y), frame, exact=True)
    kinds = {f.name: f.kind for f in imported.features}
    assert kinds == {"age": "number", "visits": "any", "ratio": "any", "level": "any"}


def test_nan_raises_where_the_selector_or_its_estimator_does_not_take_it() -> None:
    frame, y = frame_and_classes()
    plain = SelectFromModel(LogisticRegression(), threshold=-1).fit(frame, y)
    trees = SelectFromModel(DecisionTreeClassifier(), threshold=-1).fit(frame, y)
    variance = VarianceThreshold().fit(frame)
    frame.loc[0, "age"] = np.nan
    assert_both_raise(plain, frame, MissingValueError, "'age'.*SelectFromModel")
    assert_same(trees, frame, exact=True)
    frame.loc[1, "visits"] = np.inf
    assert_same(variance, frame, exact=True)
    assert_same(trees, frame, exact=True)


def test_strings_pass_a_selector_whose_estimator_encodes_them() -> None:
    frame = mixed_frame(80, nulls=0)[["age", "city", "plan"]]
    y = (frame["plan"] == "pro").to_numpy().astype(int)
    inner = make_pipeline(
        ColumnTransformer([("codes", OrdinalEncoder(), [1, 2])], remainder="passthrough"),
        DecisionTreeClassifier(max_depth=3, random_state=0),
    )
    selector = SelectFromModel(
        inner,
        importance_getter="named_steps.decisiontreeclassifier.feature_importances_",
        threshold=-np.inf,
    )
    model = make_pipeline(
        selector, OrdinalEncoder(), HistGradientBoostingClassifier(max_iter=2, min_samples_leaf=3)
    )
    imported = assert_same(model.fit(frame, y), frame, exact=True)
    assert {f.name: f.kind for f in imported.features}["city"] == "string"


def test_a_selector_that_keeps_nothing_is_refused() -> None:
    frame, _ = frame_and_classes()
    rng = np.random.default_rng(0)
    model = SelectFwe(alpha=1e-12).fit(frame, rng.integers(0, 2, 80))
    with pytest.raises(UnsupportedModelError, match="SelectFwe keeps no column"):
        import_model(model)


def test_prefit_and_max_features() -> None:
    frame, y = frame_and_classes()
    inner = LogisticRegression().fit(frame, y)
    for max_features in (None, 1, lambda x: 2):
        model = SelectFromModel(inner, prefit=True, max_features=max_features, threshold=-1)
        assert_same(model.fit(frame), frame, exact=True)
    unfitted = SelectFromModel(inner, prefit=True)
    with pytest.raises(UnsupportedModelError, match="SelectFromModel"):
        import_model(unfitted)


def test_rfe_predicts_and_transforms() -> None:
    frame, y = frame_and_classes()
    model = RFE(LogisticRegression(), n_features_to_select=2).fit(frame, np.array(["n", "y"])[y])
    imported = import_model(model)
    assert set(imported.program.outputs) == {"label", "proba", "score", "transform"}
    assert imported.program.output_type("transform").width == 2
    later = make_pipeline(StandardScaler(), RFE(Lasso(0.01)), DecisionTreeClassifier(max_depth=2))
    assert_same(later.fit(frame, y), frame, exact=True)


@pytest.mark.parametrize("remainder", ["drop", "passthrough", StandardScaler()], ids=str)
@pytest.mark.parametrize(
    "columns",
    [
        "age",
        0,
        ["level", "age"],
        [-1, 0],
        slice(1, 3),
        slice("visits", "level"),
        np.array([True, False, False, True]),
        pd.Index(["ratio"]),
        lambda x: [c for c in x.columns if "i" in c],
        [],
    ],
    ids=["name", "int", "names", "ints", "slice", "names' slice", "mask", "index", "call", "none"],
)
def test_the_columns_of_a_column_transformer(columns: Any, remainder: Any) -> None:
    frame, _ = frame_and_classes()
    scale = VarianceThreshold() if not isinstance(columns, str | int) else "passthrough"
    if isinstance(columns, list) and not columns and remainder == "drop":
        pytest.skip("nothing is left")
    columns = [columns] if isinstance(columns, str | int) else columns
    model = ColumnTransformer([("chosen", scale, columns)], remainder=remainder).fit(frame)
    assert_same(model, frame, exact=True)
    assert_same(model, frame[frame.columns[::-1]] if _by_name(columns) else frame, exact=True)


def _by_name(columns: Any) -> bool:
    """Whether scikit-learn too finds the columns in a shuffled frame."""
    return isinstance(columns, list) and all(isinstance(c, str) for c in columns) and bool(columns)
