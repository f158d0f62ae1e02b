"""Generated pipelines: whatever transformers and model meet, the Program agrees or both raise."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from sklearn.base import is_classifier
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    StandardScaler,
)
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from threadpoolctl import threadpool_limits

from sqlml.errors import ScoringError
from sqlml.importers.registry import import_model
from tests.support.oracles import classes, mixed_frame
from tests.support.sklearn_checks import assert_same, scored

NUMBERS = ("age", "income", "ratio", "visits", "level", "active", "constant", "zip")
STRINGS = ("city", "plan")
flag = st.booleans()


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Idle OpenMP threads spin, which on a busy machine costs more than these small fits."""
    with threadpool_limits(1):
        yield


def imputers(strings: str | None) -> st.SearchStrategy[Any]:
    if strings is None:
        return st.builds(
            SimpleImputer,
            strategy=st.sampled_from(["mean", "median", "most_frequent", "constant"]),
            add_indicator=flag,
        )
    return st.builds(
        SimpleImputer,
        missing_values=st.just(np.nan if strings == "str" else None),
        strategy=st.sampled_from(["most_frequent", "constant"]),
        add_indicator=flag,
    )


scalers = st.one_of(
    st.builds(StandardScaler, with_mean=flag, with_std=flag),
    st.builds(MinMaxScaler, clip=flag),
    st.builds(MaxAbsScaler, clip=flag),
    st.builds(RobustScaler, with_centering=flag, with_scaling=flag),
)
rare = st.sampled_from([{}, {"min_frequency": 8}, {"max_categories": 2}])
encoders = st.one_of(
    st.builds(
        lambda kwargs, **others: OneHotEncoder(**kwargs, **others),
        rare,
        drop=st.sampled_from([None, "first", "if_binary"]),
        handle_unknown=st.sampled_from(["error", "ignore", "infrequent_if_exist"]),
    ),
    st.builds(
        lambda kwargs: OrdinalEncoder(
            handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-2, **kwargs
        ),
        rare,
    ),
    st.builds(OrdinalEncoder),
)
models = st.sampled_from(
    [
        LogisticRegression(max_iter=30),
        SGDClassifier(loss="log_loss", max_iter=20, random_state=0),
        Ridge(),
        DecisionTreeClassifier(max_depth=4),
        DecisionTreeRegressor(max_depth=4),
        ExtraTreesClassifier(5, random_state=0),
        RandomForestRegressor(5, random_state=0),
        GradientBoostingClassifier(n_estimators=3),
        GradientBoostingRegressor(n_estimators=3),
        HistGradientBoostingClassifier(max_iter=3, min_samples_leaf=3),
        HistGradientBoostingRegressor(max_iter=3, min_samples_leaf=3),
        "passthrough",
    ]
)


@st.composite
def pipelines(draw: st.DrawFn) -> tuple[Any, str]:
    strings = draw(st.sampled_from(["str", "object"]))
    numeric = draw(st.lists(st.sampled_from(NUMBERS), min_size=1, max_size=4, unique=True))
    coded = draw(st.lists(st.sampled_from((*NUMBERS[3:6], "zip")), max_size=2, unique=True))
    text = draw(st.lists(st.sampled_from(STRINGS), max_size=2, unique=True))
    parts = [("numbers", make_pipeline(draw(imputers(None)), draw(scalers)), numeric)]
    if coded:
        parts.append(("coded", draw(encoders), coded))
    if text:
        steps = [draw(encoders)]
        if draw(flag):
            steps.insert(0, draw(imputers(strings)))
        parts.append(("text", make_pipeline(*steps), text))
    remainder = "passthrough" if text == list(STRINGS) and draw(flag) else "drop"
    preparation = ColumnTransformer(
        draw(st.permutations(parts)), remainder=remainder, sparse_threshold=0
    )
    return make_pipeline(preparation, draw(models)), strings


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(pipelines(), st.integers(2, 3), st.integers(0, 99))
def test_generated_pipelines_agree_or_both_raise(
    built: tuple[Any, str], count: int, seed: int
) -> None:
    model, strings = built
    frame = mixed_frame(70, seed, strings=strings)
    codes = (frame["visits"].to_numpy() + frame["active"]) % count
    y: Any = classes("string", codes) if is_classifier(model) else codes * 1.7
    later = pd.concat(
        [frame.iloc[:20], mixed_frame(30, seed + 100, nulls=0.3, strings=strings)]
    ).reset_index(drop=True)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            model.fit(frame, y)
        except ValueError:
            event("does not fit")
            return
        # A frame of float32 alone is scored in float32 there; SQL has the float64 answer.
        frame, later = frame.astype({"ratio": float}), later.astype({"ratio": float})
        try:
            (model.predict if hasattr(model, "predict") else model.transform)(later)
        except ValueError:
            event("both raise")
            with pytest.raises(ScoringError):
                scored(import_model(model), later)
            later = frame
    event("both agree")
    assert_same(model, later)
