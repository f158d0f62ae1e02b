"""LightGBM's estimators and Booster: the reference interpreter gives their own numbers."""

from __future__ import annotations

import re
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest

import sqlml
from sqlml.errors import ArtifactError, UnsupportedModelError
from sqlml.importers.file_formats import read_artifact
from sqlml.importers.lightgbm.document import read_text
from sqlml.importers.lightgbm.forest import ZERO
from sqlml.importers.registry import import_model
from sqlml.ir import reference
from tests.support import oracles
from tests.support.sklearn_checks import count_calls

ROWS, WIDTH = 1200, 5
SMALL = {"n_estimators": 8, "num_leaves": 12, "verbose": -1, "random_state": 0, "n_jobs": 1}


@pytest.fixture(scope="module")
def x() -> Any:
    """Rows with missing values, many zeros, values around zero and small whole numbers."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(ROWS, WIDTH))
    x[:, 3] = rng.integers(0, 40, ROWS)
    x[rng.random(x.shape) < 0.1] = np.nan
    x[:, 4] = np.where(rng.random(ROWS) < 0.4, 0.0, x[:, 4])
    return x


@pytest.fixture(scope="module")
def y(x: Any) -> Any:
    """Three classes that depend on zeros and on missing values too."""
    filled = np.nan_to_num(x)
    first = (filled[:, 0] + filled[:, 1] * filled[:, 2] > 0).astype(int)
    return first + ((x[:, 4] == 0) | np.isnan(x[:, 3]) | (filled[:, 3] % 3 == 1))


def thresholds(booster: Any) -> dict[int, Any]:
    """Feature -> its numeric thresholds, by LightGBM's own dump."""
    found: dict[int, list[float]] = {}

    def walk(node: dict[str, Any]) -> None:
        if "split_feature" in node:
            if node["decision_type"] == "<=":
                found.setdefault(node["split_feature"], []).append(node["threshold"])
            walk(node["left_child"])
            walk(node["right_child"])

    for tree in booster.dump_model()["tree_info"]:
        walk(tree["tree_structure"])
    return {f: np.array(t) for f, t in found.items()}


def hard_rows(booster: Any, x: Any) -> Any:
    """Thresholds, their neighbours, values around LightGBM's zero and codes, beside plain rows."""
    edges = oracles.threshold_rows(thresholds(booster), x, limit=1500)
    near_zero = [ZERO, -ZERO, *np.nextafter([ZERO, ZERO, -ZERO, -ZERO], [0, 1, 0, -1]), 1e-40]
    codes = [-1.0, -0.5, 0.9, 31.0, 32.0, 39.7, 63.0, 64.0, 2.0**31, 2.0**32 + 1, -(2.0**32) + 1]
    special = np.repeat(x[:20], WIDTH * len(near_zero + codes), axis=0)
    for i, value in enumerate(near_zero + codes):
        for feature in range(WIDTH):
            special[i * WIDTH + feature :: WIDTH * len(near_zero + codes), feature] = value
    return np.concatenate([x, edges, special, oracles.special_rows(WIDTH)])


def assert_same(model: Any, x: Any, extra: bool = True) -> None:
    """Raw scores bit for bit, labels equal, predictions within 1e-12."""
    rows = hard_rows(getattr(model, "booster_", model), x) if extra else x
    program = import_model(model).program
    got = reference.run(program, oracles.batch(program, rows))
    raw = model.predict(rows, raw_score=True)
    np.testing.assert_array_equal(got["score"], np.reshape(raw, (len(rows), -1)))
    predicted = model.predict(rows)
    if not program.labels:
        label = got["label"].reshape(predicted.shape)
        np.testing.assert_allclose(label, predicted, rtol=1e-12)
    elif isinstance(model, lgb.Booster):
        ours = got["proba"] if predicted.ndim == 2 else got["proba"][:, 1]
        np.testing.assert_allclose(ours, predicted, rtol=1e-12)
    else:
        np.testing.assert_array_equal(program.labels[0].array()[got["label"].ravel()], predicted)
        np.testing.assert_allclose(got["proba"], model.predict_proba(rows), rtol=1e-12)


PARAMS: dict[str, dict[str, Any]] = {
    "gbdt": {},
    "dart": {"boosting_type": "dart", "drop_rate": 0.5},
    "goss": {"data_sample_strategy": "goss"},
    "rf": {"boosting_type": "rf", "bagging_freq": 1, "bagging_fraction": 0.6},
    "missing type None": {"use_missing": False},
    "missing type Zero": {"zero_as_missing": True},
    "stumps of one leaf": {"min_child_samples": 10_000},
    "extra trees": {"extra_trees": True, "num_leaves": 31},
}


@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS)
def test_classifiers_and_boosters_equal_lightgbm(x: Any, y: Any, params: dict[str, Any]) -> None:
    binary = lgb.LGBMClassifier(**{**SMALL, **params}).fit(x, y > 0)
    assert_same(binary, x)
    assert_same(binary.booster_, x)
    multi = lgb.LGBMClassifier(**{**SMALL, **params}).fit(x, y)
    assert_same(multi, x)
    assert_same(multi.booster_, x)


@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS)
def test_categorical_features_equal_lightgbm(x: Any, y: Any, params: dict[str, Any]) -> None:
    sets = {"cat_smooth": 0, "min_data_per_group": 1, "max_cat_to_onehot": 1}
    model = lgb.LGBMRegressor(**{**SMALL, **sets, **params})
    assert_same(model.fit(x, y, categorical_feature=[3]), x)


OBJECTIVES = [
    "regression", "regression_l1", "huber", "fair", "poisson", "quantile", "mape", "gamma",
    "tweedie", "cross_entropy", "cross_entropy_lambda", "binary",
]  # fmt: skip


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_has_its_transform(x: Any, y: Any, objective: str) -> None:
    target = np.minimum(y, 1) if objective == "binary" else y * 0.3 + 0.2
    assert_same(lgb.LGBMRegressor(objective=objective, **SMALL).fit(x, target), x)


def test_reg_sqrt_squares_with_the_sign(x: Any, y: Any) -> None:
    assert_same(lgb.LGBMRegressor(reg_sqrt=True, **SMALL).fit(x, y - 1.3), x)


@pytest.mark.parametrize("objective", ["lambdarank", "rank_xendcg"])
def test_ranker_scores_rows(x: Any, y: Any, objective: str) -> None:
    model = lgb.LGBMRanker(objective=objective, **SMALL)
    assert_same(model.fit(x, y, group=[100] * 12), x)


@pytest.mark.parametrize("sigmoid", [0.3, 1.0, 2.5])
def test_sigmoid_parameter_scales_the_score(x: Any, y: Any, sigmoid: float) -> None:
    assert_same(lgb.LGBMClassifier(sigmoid=sigmoid, **SMALL).fit(x, y > 0), x)
    ova = lgb.LGBMClassifier(objective="multiclassova", sigmoid=sigmoid, **SMALL)
    assert_same(ova.fit(x, y), x)


def test_classifier_of_an_uncommon_objective_compares_both_probabilities(x: Any, y: Any) -> None:
    assert_same(lgb.LGBMClassifier(objective="cross_entropy", **SMALL).fit(x, y > 0), x)


@pytest.mark.parametrize("kind", ["string", "int64", "bool", "float64"])
def test_labels_are_those_of_training(x: Any, y: Any, kind: Any) -> None:
    labels = oracles.classes(kind, np.minimum(y, 1) if kind == "bool" else y)
    model = lgb.LGBMClassifier(**SMALL).fit(x, labels)
    program = import_model(model).program
    assert [labels.kind for labels in program.labels] == [kind]
    assert_same(model, x)


def test_classifier_of_one_class_always_predicts_it(x: Any) -> None:
    model = lgb.LGBMClassifier(**SMALL).fit(x, np.full(ROWS, "only"))
    program = import_model(model).program
    got = reference.run(program, oracles.batch(program, x))
    assert set(program.labels[0].array()[got["label"].ravel()]) == set(model.predict(x)) == {"only"}


def test_more_outputs_than_classes_are_refused(x: Any) -> None:
    made = lgb.LGBMClassifier(**{**SMALL, "objective": "multiclass", "num_class": 3})
    with pytest.raises(UnsupportedModelError, match="3 outputs, but its labels had 1 distinct"):
        import_model(made.fit(x, np.full(ROWS, "only")))


def test_booster_in_training_stops_at_its_best_iteration(x: Any, y: Any) -> None:
    noise = np.random.default_rng(0).permutation(y[600:])
    train = lgb.Dataset(x[:600], y[:600])
    booster = lgb.train(
        {
            "objective": "multiclass",
            "num_class": 3,
            "learning_rate": 0.5,
            "verbose": -1,
            "num_threads": 1,
        },
        train,
        40,
        valid_sets=[lgb.Dataset(x[600:], noise, reference=train)],
        callbacks=[lgb.early_stopping(2, verbose=False)],
        keep_training_booster=True,
    )
    assert booster.best_iteration < booster.current_iteration()
    assert_same(booster, x)


def test_values_within_1e_35_of_zero_are_zero_on_both_sides() -> None:
    rng = np.random.default_rng(1)
    column = np.where(rng.random(2000) < 0.5, 0.0, rng.normal(size=2000))
    target = (column == 0) * 3.0 + column
    model = lgb.LGBMRegressor(n_estimators=3, min_child_samples=1, verbose=-1, n_jobs=1)
    model.fit(column[:, None], target)
    edges = {t for t in thresholds(model.booster_)[0] if abs(t) < 1e-30}
    assert {-ZERO, ZERO} <= edges
    around = np.nextafter([ZERO, ZERO, -ZERO, -ZERO], [0, 1, 0, -1])
    rows = np.concatenate([[0.0, -0.0, ZERO, -ZERO, 5e-324, -5e-324, 1e-36, -1e-36], around])
    program = import_model(model).program
    got = reference.run(program, {"Column_0": rows})["score"].ravel()
    np.testing.assert_array_equal(got, model.predict(rows[:, None], raw_score=True))


@pytest.mark.parametrize("dtype", ["float32", "int64", "int8", "bool"])
def test_columns_of_every_dtype_are_read_as_float64(x: Any, y: Any, dtype: str) -> None:
    whole = np.nan_to_num(x * 2).astype(dtype)
    assert_same(lgb.LGBMClassifier(**SMALL).fit(whole, y), whole, extra=False)


def test_zero_rows_and_one_row(x: Any, y: Any) -> None:
    model = lgb.LGBMClassifier(**SMALL).fit(x, y)
    program = import_model(model).program
    assert reference.run(program, oracles.batch(program, x[:0]))["proba"].shape == (0, 3)
    assert_same(model, x[:1], extra=False)


def frame_of_categories(rows: int, seed: int = 6) -> pd.DataFrame:
    table = oracles.mixed_frame(rows, seed=seed)
    return pd.DataFrame(
        {
            "age": table["age"],
            "city": table["city"].astype("category"),
            "active": table["active"],
            "zip": table["zip"].astype("category"),
        }
    )


def test_pandas_categories_are_strings_and_numbers_in_sql() -> None:
    train = frame_of_categories(900)
    target = train["city"].isin(["Zürich", "日本"]) * 2.0 + (train["zip"] == 8001)
    model = lgb.LGBMRegressor(**SMALL, cat_smooth=0, min_data_per_group=1, max_cat_to_onehot=1)
    model.fit(train, target)
    imported = import_model(model)
    kinds = {f.name: f.kind for f in imported.features}
    assert kinds["city"] == "string"
    assert kinds["zip"] == "number"
    # Other rows, another order of categories, and a city and a zip that training never saw.
    test = frame_of_categories(500, seed=7)
    cities = [None if pd.isna(c) else str(c) for c in test["city"]]
    cities[:30] = ["Atlantis"] * 30
    zips = test["zip"].astype(int).to_numpy().copy()
    zips[20:50] = 1
    categories = test.assign(city=pd.Categorical(cities), zip=pd.Categorical(zips))
    plain = test.assign(city=np.array(cities, object), zip=zips)
    got = reference.run(imported.program, oracles.batch(imported.program, plain))
    np.testing.assert_array_equal(got["score"].ravel(), model.predict(categories, raw_score=True))


def test_ordered_categories_are_found_among_the_columns() -> None:
    rng = np.random.default_rng(5)
    sizes = pd.Categorical(rng.choice(["S", "M", "L"], 400), ["S", "M", "L"], ordered=True)
    colours = pd.Categorical(rng.choice(["red", "green"], 400))
    train = pd.DataFrame({"weight": rng.normal(size=400), "size": sizes, "colour": colours})
    model = lgb.LGBMRegressor(**SMALL, min_child_weight=0)
    model.fit(train, sizes.codes * 2 + colours.codes)
    program = import_model(model).program
    assert {f.name: f.kind for f in program.features}["size"] == "string"
    plain = train.astype({"size": object, "colour": object})
    got = reference.run(program, oracles.batch(program, plain))
    np.testing.assert_array_equal(got["score"].ravel(), model.predict(train, raw_score=True))


def test_ordered_categories_beside_whole_numbers_are_refused_as_ambiguous() -> None:
    rng = np.random.default_rng(5)
    sizes = pd.Categorical(rng.choice(["S", "M", "L"], 400), ["S", "M", "L"], ordered=True)
    train = pd.DataFrame({"count": rng.integers(0, 3, 400), "size": sizes})
    model = lgb.LGBMRegressor(**SMALL).fit(train, sizes.codes)
    with pytest.raises(UnsupportedModelError, match="which columns"):
        import_model(model)


def test_names_come_from_the_frame_and_none_from_a_matrix(x: Any, y: Any) -> None:
    columns = ["Age", "b", "c", "d", "e"]
    named = import_model(lgb.LGBMRegressor(**SMALL).fit(pd.DataFrame(x, columns=columns), y))
    assert named.is_named
    assert [f.name for f in named.features] == columns
    bare = import_model(lgb.LGBMRegressor(**SMALL).fit(x, y))
    assert not bare.is_named


def test_unfitted_estimator_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="not fitted"):
        import_model(lgb.LGBMClassifier())


def test_an_objective_of_ones_own_with_several_outputs(x: Any, y: Any) -> None:
    def squares(raw: Any, data: Any) -> Any:
        raw = raw.reshape(ROWS, 2, order="F") if raw.ndim == 1 else raw
        label = data.get_label()
        return raw - np.stack([label, -2 * label], axis=1), np.ones_like(raw)

    params = {"objective": squares, "num_class": 2, "num_leaves": 6, "verbose": -1}
    booster = lgb.train(params, lgb.Dataset(x, y.astype(float)), 4)
    assert_same(booster, x)
    assert import_model(booster).program.target_count == 2


LINEAR: dict[str, dict[str, Any]] = {
    "gbdt": {},
    "dart": {"boosting_type": "dart", "drop_rate": 0.5},
    "rf": {"boosting_type": "rf", "bagging_freq": 1, "bagging_fraction": 0.6},
    "strong": {"linear_lambda": 5.0, "learning_rate": 0.5},
    "stumps of one leaf": {"min_child_samples": 10_000},
    "one round": {"n_estimators": 1},
    "not from the average": {"boost_from_average": False},
}


@pytest.mark.parametrize("params", LINEAR.values(), ids=LINEAR)
def test_linear_leaves_equal_lightgbm(x: Any, y: Any, params: dict[str, Any]) -> None:
    """A row with NaN in a feature of its leaf's model gets the leaf's plain value."""
    params = {**SMALL, "linear_tree": True, **params}
    target = y + np.nan_to_num(x[:, 0]) * np.abs(np.nan_to_num(x[:, 1]))
    assert_same(lgb.LGBMRegressor(**params).fit(x, target), x)
    assert_same(lgb.LGBMClassifier(**params).fit(x, y > 0), x)
    assert_same(lgb.LGBMClassifier(**params).fit(x, y), x)
    plain = np.nan_to_num(x)
    model = lgb.LGBMRegressor(**params).fit(plain, target, categorical_feature=[3])
    assert_same(model, plain)


def test_linear_leaves_from_a_file_and_on_every_backend(x: Any, y: Any) -> None:
    model = lgb.LGBMRegressor(**SMALL, linear_tree=True).fit(x, y + np.nan_to_num(x[:, 0]))
    content = model.booster_.model_to_string().encode()
    read = read_artifact(content, format="AUTO", path="model.txt", allow_pickle=False)
    imported = import_model(read)
    for backend in ("reference", "native", "torch"):
        scorer = sqlml.compile(imported.program, backend=backend)
        np.testing.assert_array_equal(scorer.predict(x), model.predict(x))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("num_features=", "num_features=9 ", "do not fit"),
        ("leaf_coeff=0", "leaf_coeff=0 0", "more or fewer terms"),
        ("leaf_const=", "leaf_const=1 ", "do not fit"),
        ("leaf_features=", "leaf_features=z ", "damaged"),
    ],
)
def test_damaged_linear_leaves_are_refused(
    x: Any, y: Any, old: str, new: str, message: str
) -> None:
    model = lgb.LGBMRegressor(**SMALL, linear_tree=True).fit(x, y)
    text = model.booster_.model_to_string()
    assert text.count(old) > 1
    text = re.sub(r"(?m)^tree_sizes=.*\n", "", text)  # as older files, which do not say them
    with pytest.raises(ArtifactError, match=message):
        read_text(text.replace(old, new))


def test_prediction_that_stops_early_is_refused_by_its_parameter(x: Any, y: Any) -> None:
    model = lgb.LGBMClassifier(**SMALL, pred_early_stop=True).fit(x, y)
    with pytest.raises(UnsupportedModelError, match="pred_early_stop"):
        import_model(model)


def test_a_classifier_with_an_objective_of_its_own_is_refused_and_a_regressor_is_not(
    x: Any, y: Any
) -> None:
    def squared(labels: Any, predictions: Any) -> Any:
        return predictions - labels, np.ones_like(labels)

    assert_same(lgb.LGBMRegressor(objective=squared, **SMALL).fit(x, y), x)
    classifier = lgb.LGBMClassifier(objective=squared, **SMALL).fit(x, np.minimum(y, 1))
    with pytest.raises(UnsupportedModelError, match="booster_"):
        import_model(classifier)
    assert_same(classifier.booster_, x)


def test_an_unknown_objective_is_refused_by_name(x: Any, y: Any) -> None:
    booster = lgb.LGBMRegressor(**SMALL).fit(x, y).booster_
    text = booster.model_to_string().replace("objective=regression", "objective=future", 1)
    from_text = read_text(text)
    with pytest.raises(UnsupportedModelError, match="'future'"):
        import_model(from_text)


def test_large_trees_are_imported_by_arrays_and_not_by_nodes(x: Any, y: Any) -> None:
    noisy = y + np.random.default_rng(0).normal(size=ROWS)
    model = lgb.LGBMRegressor(
        n_estimators=500, num_leaves=255, min_child_samples=2, verbose=-1, n_jobs=1, max_bin=31
    )
    booster = model.fit(x, noisy).booster_
    text = booster.model_to_string()
    imported = import_model(read_text(text))
    assert count_calls(lambda: import_model(read_text(text))) < 1_000 * 500
    got = reference.run(imported.program, oracles.batch(imported.program, x[:20]))
    np.testing.assert_array_equal(got["score"].ravel(), booster.predict(x[:20], raw_score=True))
