"""CatBoost's estimators: raw values bit for bit, and what is refused."""

from __future__ import annotations

from typing import Any

import catboost as cb
import numpy as np
import pandas as pd
import pytest

from sqlml.errors import (
    UnsupportedModelError,
)
from sqlml.importers.registry import import_model
from sqlml.ir import reference
from tests.support import oracles
from tests.support.catboost_checks import (
    GROWTH,
    ROWS,
    SMALL,
    assert_same,
    classes,
    hard_rows,
    read,
    rows,
    saved,
)


@pytest.fixture(scope="module")
def x() -> Any:
    return rows()


@pytest.fixture(scope="module")
def y(x: Any) -> Any:
    return classes(x)


@pytest.mark.parametrize("grow", GROWTH)
@pytest.mark.parametrize("nan_mode", ["Min", "Max", "Forbidden"])
def test_trees_of_every_shape_equal_catboost(x: Any, y: Any, grow: str, nan_mode: str) -> None:
    data = np.nan_to_num(x) if nan_mode == "Forbidden" else x
    params = {**SMALL, "grow_policy": grow, "nan_mode": nan_mode}
    binary = cb.CatBoostClassifier(**params).fit(data, y > 0)
    assert_same(binary, x)  # NaN is scored also by a model that never saw one
    assert_same(cb.CatBoostClassifier(**params).fit(data, y), x)
    assert_same(cb.CatBoostRegressor(**params).fit(data, y), x)


@pytest.mark.parametrize("grow", GROWTH)
def test_a_column_without_nan_in_training_takes_the_false_branch(grow: str) -> None:
    x = np.arange(200.0).reshape(-1, 1)
    model = cb.CatBoostRegressor(**SMALL, grow_policy=grow, nan_mode="Max").fit(x, x[:, 0])
    rows = np.array([[np.nan], [-np.inf], [np.inf]])
    program = import_model(model).program
    got = reference.run(program, {"0": rows})["label"].ravel()
    np.testing.assert_array_equal(got, model.predict(rows))
    assert got[0] == got[1] != got[2]


def test_many_trees_are_summed_in_catboosts_order(x: Any) -> None:
    target = np.nan_to_num(x).sum(axis=1) * 0.1
    for params in ({"iterations": 203}, {"depth": 10}, {"depth": 1}):
        assert_same(cb.CatBoostRegressor(**{**SMALL, **params}).fit(x, target), x)


def test_one_row_and_no_rows(x: Any, y: Any) -> None:
    model = cb.CatBoostClassifier(**SMALL).fit(x, y)
    program = import_model(model).program
    for row in x[:20]:
        got = reference.run(program, oracles.batch(program, row[None, :]))
        np.testing.assert_array_equal(
            got["score"][0], model.predict(row, prediction_type="RawFormulaVal")
        )
    assert reference.run(program, oracles.batch(program, x[:0]))["proba"].shape == (0, 3)


@pytest.mark.parametrize("dtype", ["float32", "int64", "int8", "bool"])
def test_columns_of_every_dtype(x: Any, y: Any, dtype: str) -> None:
    whole = np.nan_to_num(x * 2).astype(dtype)
    model = cb.CatBoostClassifier(**SMALL).fit(whole, y)
    program = import_model(model).program
    got = reference.run(program, oracles.batch(program, whole))
    raw = model.predict(whole, prediction_type="RawFormulaVal")
    np.testing.assert_array_equal(got["score"], raw)


LOSSES = [
    "RMSE", "MAE", "Poisson", "Tweedie:variance_power=1.5", "Quantile:alpha=0.3", "LogLinQuantile",
    "MAPE", "Expectile:alpha=0.2", "Huber:delta=1", "Lq:q=2", "LogCosh", "RMSEWithUncertainty",
    "MultiQuantile:alpha=0.1,0.5", "Cox",
]  # fmt: skip


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_has_its_prediction(x: Any, y: Any, loss: str) -> None:
    imported = assert_same(cb.CatBoostRegressor(**SMALL, loss_function=loss).fit(x, y + 0.3), x)
    wide = loss.startswith(("Multi", "RMSEWith"))
    assert imported.program.output_type("label").width == (2 if wide else 1)


def test_several_targets_make_a_label_of_several_columns(x: Any, y: Any) -> None:
    targets = np.stack([y, y * 2.5, -y], axis=1)
    model = cb.CatBoostRegressor(**SMALL, loss_function="MultiRMSE").fit(x, targets)
    assert assert_same(model, x).program.output_type("label").width == 3


def test_ranker_scores_rows(x: Any, y: Any) -> None:
    model = cb.CatBoostRanker(**SMALL).fit(x, y, group_id=np.arange(ROWS) // 20)
    program = import_model(model).program
    rows = hard_rows(program, x)
    got = reference.run(program, oracles.batch(program, rows))
    np.testing.assert_array_equal(got["label"].ravel(), model.predict(rows))


@pytest.mark.parametrize("loss", ["MultiClass", "MultiClassOneVsAll"])
def test_losses_of_several_classes(x: Any, y: Any, loss: str) -> None:
    assert_same(cb.CatBoostClassifier(**SMALL, loss_function=loss).fit(x, y), x)
    assert_same(cb.CatBoostClassifier(**SMALL, loss_function=loss).fit(x, y > 0), x)


def test_cross_entropy_takes_shares_and_predicts_two_classes(x: Any, y: Any) -> None:
    model = cb.CatBoostClassifier(**SMALL, loss_function="CrossEntropy").fit(x, y / 2)
    assert_same(model, x)


def test_plain_catboost_is_a_classifier_by_its_loss_and_else_predicts_raw_values(
    x: Any, y: Any
) -> None:
    model = cb.CatBoost({**SMALL, "loss_function": "Logloss"}).fit(x, np.minimum(y, 1))
    assert assert_same(model, x).program.labels
    poisson = cb.CatBoost({**SMALL, "loss_function": "Poisson"}).fit(x, y)
    assert_same(poisson, x)
    # A file of that loss is read as CatBoostRegressor reads it.
    program = import_model(read(saved(poisson))).program
    got = reference.run(program, oracles.batch(program, x))
    expected = poisson.predict(x, prediction_type="Exponent")
    np.testing.assert_allclose(got["label"].ravel(), expected, rtol=1e-12)


@pytest.mark.parametrize("kind", ["string", "int64", "bool", "float64"])
def test_labels_are_those_of_training(x: Any, y: Any, kind: Any) -> None:
    labels = oracles.classes(kind, np.minimum(y, 1) if kind == "bool" else y)
    imported = assert_same(cb.CatBoostClassifier(**SMALL).fit(x, labels), x)
    assert [labels.kind for labels in imported.program.labels] == [kind]
    two = assert_same(cb.CatBoostClassifier(**SMALL).fit(x, labels == labels[0]), x)
    assert len(two.program.labels[0]) == 2


def test_classes_that_training_never_saw_have_no_probability(x: Any, y: Any) -> None:
    rare = np.where(y == 2, 3, y)
    names = [0, 1, 2, 3, 4]
    for loss in ("MultiClass", "MultiClassOneVsAll"):
        model = cb.CatBoostClassifier(**SMALL, class_names=names, loss_function=loss)
        imported = assert_same(model.fit(x, rare), x)
        got = reference.run(imported.program, oracles.batch(imported.program, x))
        assert not got["proba"][:, [2, 4]].any()
        assert set(got["label"].ravel()) <= {0, 1, 3}


def test_order_of_class_names_is_the_users(x: Any, y: Any) -> None:
    model = cb.CatBoostClassifier(**SMALL, class_names=["z", "a"]).fit(x, np.where(y > 0, "a", "z"))
    imported = assert_same(model, x)
    assert imported.program.labels[0].values == ("z", "a")


def test_probability_threshold_moves_the_label_alone(x: Any, y: Any) -> None:
    model = cb.CatBoostClassifier(**SMALL).fit(x, y > 0)
    before = import_model(model).program
    model.set_probability_threshold(0.2)
    program = assert_same(model, x).program
    inputs = oracles.batch(program, x)
    first, second = reference.run(before, inputs), reference.run(program, inputs)
    assert (first["label"] != second["label"]).any()
    np.testing.assert_array_equal(first["proba"], second["proba"])


@pytest.mark.parametrize("values", [(2.5, 0.0), (1.0, -0.3), (1.7, 0.3)])
def test_scale_and_bias(x: Any, y: Any, values: tuple[float, float]) -> None:
    model = cb.CatBoostRegressor(**SMALL).fit(x, y)
    model.set_scale_and_bias(*values)
    assert_same(model, x)


@pytest.mark.parametrize("loss", ["MultiLogloss", "MultiCrossEntropy"])
def test_several_labels_a_row(x: Any, y: Any, loss: str) -> None:
    labels = np.stack([y > 0, y > 1, y < 2], axis=1) * 1
    model = cb.CatBoostClassifier(**SMALL, loss_function=loss).fit(x, labels)
    assert len(assert_same(model, x).program.labels) == 3


def test_text_features_are_refused(x: Any, y: Any) -> None:
    data = pd.DataFrame({"a": x[:, 0], "t": np.where(y > 0, "good day", "bad hello")})
    model = cb.CatBoostClassifier(**SMALL, text_features=["t"]).fit(data, y > 0)
    with pytest.raises(UnsupportedModelError, match="text features"):
        import_model(model)


def test_unfitted_estimator_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="not fitted"):
        import_model(cb.CatBoostRegressor())


def test_names_come_from_the_frame_and_none_from_a_matrix(x: Any, y: Any) -> None:
    columns = ["Age", "b", "c", "d", "e"]
    model = cb.CatBoostRegressor(**SMALL).fit(pd.DataFrame(x, columns=columns), y)
    for imported in (import_model(model), import_model(read(saved(model)))):
        assert imported.is_named
        assert [f.name for f in imported.features] == columns
        assert imported.library == f"catboost {cb.__version__}"
    bare = cb.CatBoostRegressor(**SMALL).fit(x, y)
    assert not import_model(bare).is_named
    assert not import_model(read(saved(bare))).is_named
