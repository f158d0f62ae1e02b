"""Pipelines, ColumnTransformer, FeatureUnion and searches, and what they refuse by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer, make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    StandardScaler,
)

from sqlml.errors import MissingValueError, UnsupportedModelError
from sqlml.importers.registry import import_model
from tests.support.oracles import batch, classes, mixed_frame
from tests.support.sklearn_checks import assert_both_raise, assert_same, scored

NUMBERS = ["age", "income", "visits"]
STRINGS = ["city", "plan"]


def preparation(strings: str) -> ColumnTransformer:
    missing: Any = np.nan if strings == "str" else None
    return ColumnTransformer(
        [
            ("numbers", make_pipeline(SimpleImputer(), StandardScaler()), NUMBERS),
            (
                "strings",
                make_pipeline(
                    SimpleImputer(missing_values=missing, strategy="constant", fill_value="(none)"),
                    OneHotEncoder(handle_unknown="ignore", min_frequency=3),
                ),
                STRINGS,
            ),
        ]
    )


@pytest.mark.parametrize("strings", ["str", "object"])
@pytest.mark.parametrize("scores", [LogisticRegression(), RandomForestClassifier(9)], ids=str)
def test_the_usual_pipeline_on_a_shuffled_frame_with_nulls(strings: str, scores: Any) -> None:
    frame = mixed_frame(150, strings=strings)
    model = make_pipeline(preparation(strings), scores)
    model.fit(frame, classes("string", frame["visits"].to_numpy() % 3))
    later = mixed_frame(100, seed=4, nulls=0.3, strings=strings)
    imported = assert_same(model, later)
    shuffled = later[later.columns[::-1]]
    np.testing.assert_array_equal(
        scored(imported, shuffled)["proba"], scored(imported, later)["proba"]
    )
    assert [f.name for f in imported.features] == list(frame.columns)
    kinds = {f.name: f.kind for f in imported.features}
    assert kinds["city"] == "string" and kinds["age"] == "number" and kinds["zip"] == "any"
    assert scored(imported, later.iloc[:0])["proba"].shape == (0, 3)
    assert_same(model, later.iloc[:1])


@pytest.mark.parametrize(
    "columns",
    [
        ["age", "visits"],
        [0, 3],
        slice(0, 2),
        slice("age", "ratio"),
        [True, True] + [False] * 8,
        make_column_selector(dtype_include=np.int64),
        lambda frame: [c for c in frame.columns if c.startswith("v")],
        [-7, 0],
    ],
    ids=["names", "ints", "slice", "name slice", "mask", "selector", "callable", "negative"],
)
@pytest.mark.parametrize("remainder", ["drop", "passthrough", MinMaxScaler()], ids=str)
def test_columns_are_chosen_in_every_way(columns: Any, remainder: Any) -> None:
    frame = mixed_frame(50).drop(columns=["city", "plan"])
    frame["more"] = np.arange(50)
    frame["most"] = frame["age"] * 2
    model = ColumnTransformer(
        [
            ("scaled", StandardScaler(), columns),
            ("raw", "passthrough", ["zip"]),
            ("gone", "drop", ["ratio"]),
            ("none", StandardScaler(), []),
        ],
        remainder=remainder,
    ).fit(frame)
    assert_same(model, frame, exact=True)


def test_string_columns_pass_through_raw_to_a_later_encoder() -> None:
    frame = mixed_frame(60)[["age", "city", "plan"]]
    model = make_pipeline(
        ColumnTransformer([("pass", "passthrough", [1, 2])], remainder="drop"),
        OrdinalEncoder(),
        HistGradientBoostingClassifier(max_iter=3, min_samples_leaf=2),
    ).fit(frame, np.arange(60) % 2)
    assert_same(model, frame, exact=True)


def test_the_same_column_may_feed_two_transformers() -> None:
    frame = mixed_frame(60)
    model = ColumnTransformer(
        [("scaled", StandardScaler(), ["visits"]), ("coded", OneHotEncoder(), ["visits", "plan"])]
    ).fit(frame)
    assert_same(model, frame, exact=True)


@pytest.mark.parametrize(
    "scaler",
    [StandardScaler(with_mean=False), MaxAbsScaler(), RobustScaler(with_centering=False)],
    ids=str,
)
def test_a_sparse_matrix_is_scaled_by_the_reciprocal(scaler: Any) -> None:
    frame = mixed_frame(90)[["visits", "plan", "city"]]
    sparse = ColumnTransformer(
        [("codes", OneHotEncoder(), ["plan", "city"]), ("number", "passthrough", ["visits"])],
        sparse_threshold=1.0,
    )
    model = make_pipeline(sparse, scaler).fit(frame)
    assert sparse.sparse_output_
    assert_same(model, frame, exact=True)


def test_a_forest_takes_nan_dense_but_not_sparse() -> None:
    frame = mixed_frame(90)[["age", "plan"]]
    parts = [("codes", OneHotEncoder(), ["plan"]), ("number", "passthrough", ["age"])]
    forest = RandomForestClassifier(3, random_state=0)
    y = np.arange(90) % 2
    dense = make_pipeline(ColumnTransformer(parts, sparse_threshold=0), forest)
    assert_same(dense.fit(frame, y), frame, exact=True)
    sparse = make_pipeline(ColumnTransformer(parts, sparse_threshold=1.0), forest)
    sparse.fit(frame.fillna({"age": 1}), y)
    assert_same(sparse, frame.fillna({"age": 1}), exact=True)
    assert_both_raise(sparse, frame, MissingValueError, "'age'.*NULL")


def test_weights_multiply_each_part() -> None:
    frame = mixed_frame(40)[["age", "visits"]]
    parts = [("a", StandardScaler(), ["age"]), ("b", "passthrough", ["visits"])]
    weights = {"a": 0.3, "b": 7}
    assert_same(ColumnTransformer(parts, transformer_weights=weights).fit(frame), frame, exact=True)
    union = FeatureUnion(
        [("a", StandardScaler()), ("b", "passthrough"), ("c", "drop"), ("d", MinMaxScaler())],
        transformer_weights={"d": 0.1},
    ).fit(frame)
    assert_same(union, frame, exact=True)


def test_steps_that_do_nothing_are_skipped() -> None:
    frame = mixed_frame(40)[["age", "visits"]].fillna(0)
    model = Pipeline(
        [
            ("a", "passthrough"),
            ("b", FunctionTransformer()),
            ("c", None),
            ("d", FunctionTransformer(validate=True)),
            ("m", LinearRegression()),
        ]
    ).fit(frame, np.arange(40.0))
    assert_same(model, frame)


def test_a_pipeline_with_pandas_output_keeps_its_names() -> None:
    frame = mixed_frame(60)[["age", "visits", "plan"]].dropna()
    inner = make_column_transformer(
        (StandardScaler(), ["age"]), remainder="passthrough", verbose_feature_names_out=False
    ).set_output(transform="pandas")
    outer = make_column_transformer((OneHotEncoder(), ["plan"]), remainder="passthrough")
    assert_same(make_pipeline(inner, outer).fit(frame), frame, exact=True)


def test_searches_and_frozen_estimators_stand_for_what_they_hold() -> None:
    frame = mixed_frame(60)[["age", "visits"]].fillna(1)
    y = frame["visits"] > 8
    pipe = make_pipeline(StandardScaler(), LogisticRegression())
    grid = GridSearchCV(pipe, {"logisticregression__C": [0.1, 1]}, cv=2).fit(frame, y)
    assert_same(grid, frame)
    random = RandomizedSearchCV(
        LogisticRegression(), {"C": [0.1, 1]}, n_iter=2, cv=2, random_state=0
    ).fit(frame, y)
    assert_same(random, frame)
    assert_same(FrozenEstimator(pipe.fit(frame, y)), frame)
    kept = GridSearchCV(LogisticRegression(), {"C": [1]}, cv=2, refit=False).fit(frame, y)
    with pytest.raises(UnsupportedModelError, match="refit=True"):
        import_model(kept, inputs=["age", "visits"])


def test_an_error_at_scoring_names_column_and_estimator() -> None:
    frame = mixed_frame(60)[["age", "visits"]].fillna(1)
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(frame, frame["visits"] > 8)
    null = frame.assign(age=np.nan)
    assert_both_raise(model, null, MissingValueError, "'age'.*LogisticRegression")


class Doubling(TransformerMixin, BaseEstimator):
    def fit(self, x: Any, y: Any = None) -> Doubling:
        self.n_features_in_ = x.shape[1]
        return self

    def transform(self, x: Any) -> Any:
        return x * 2


class OwnScaler(StandardScaler):
    """A subclass may compute anything."""

    def transform(self, X: Any, copy: Any = None) -> Any:
        return super().transform(X, copy)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (Doubling(), "Doubling"),
        (OwnScaler(), "subclass of StandardScaler.*plain StandardScaler"),
        (FunctionTransformer(np.cumsum), "cumsum.*cannot run inside SQL"),
        (FunctionTransformer(lambda x: x), "lambda"),
    ],
    ids=["own class", "subclass", "function", "lambda"],
)
def test_a_refusal_names_every_step_on_the_way(step: Any, message: str) -> None:
    frame = mixed_frame(30)[["age", "visits"]].fillna(1)
    model = Pipeline(
        [
            ("prep", ColumnTransformer([("inner", step, ["age", "visits"])])),
            ("model", LinearRegression()),
        ]
    ).fit(frame, np.arange(30.0))
    with pytest.raises(UnsupportedModelError, match=f"step 'prep': step 'inner': .*{message}"):
        import_model(model)


def test_a_step_fitted_by_nobody_is_named() -> None:
    frame = mixed_frame(30)[["age", "visits"]].fillna(1)
    model = make_pipeline(StandardScaler(), LinearRegression()).fit(frame, np.arange(30.0))
    model.steps[1] = ("linear", LinearRegression())
    with pytest.raises(UnsupportedModelError, match=r"step 'linear'.*call its fit\(\)"):
        import_model(model)
    with pytest.raises(UnsupportedModelError, match="fit"):
        import_model(make_pipeline(StandardScaler(), LinearRegression()))


def test_a_parameter_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = LogisticRegression().fit(np.arange(6.0)[:, None], [0, 0, 0, 1, 1, 1])
    known = type(model).get_params
    monkeypatch.setattr(
        type(model), "get_params", lambda self, deep=True: {**known(self, deep), "flux": 1}
    )
    with pytest.raises(UnsupportedModelError, match="'flux'.*version"):
        import_model(model)


def test_a_matrix_of_strings_and_numbers_is_refused() -> None:
    frame = mixed_frame(40)[["age", "city"]].fillna({"age": 1})
    filled = ("s", SimpleImputer(strategy="most_frequent"), ["city"])
    model = make_pipeline(
        ColumnTransformer([filled, ("n", "passthrough", ["age"])]),
        FunctionTransformer(validate=False),
    ).fit(frame)
    with pytest.raises(UnsupportedModelError, match="encode the strings"):
        import_model(model)


def test_a_column_cannot_be_both_a_string_and_a_number() -> None:
    frame = pd.DataFrame({"c": ["1", "2", "3", "1"]}, dtype="object")
    model = ColumnTransformer(
        [("coded", OneHotEncoder(), ["c"]), ("scaled", StandardScaler(), ["c"])]
    ).fit(frame)
    with pytest.raises(UnsupportedModelError, match="step 'scaled'.*'c'.*both"):
        import_model(model)


def test_inputs_arrive_as_a_sql_table_gives_them() -> None:
    frame = mixed_frame(80)
    model = make_pipeline(preparation("str"), LogisticRegression())
    model.fit(frame, frame["visits"] % 2)
    arrays = batch(import_model(model).program, frame)
    assert arrays["city"].dtype == object
    assert any(v is None for v in arrays["city"])
