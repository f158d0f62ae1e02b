"""Scalers: scikit-learn's own operation order, so equal bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

from sqlml.errors import MissingValueError, UnsupportedModelError
from sqlml.importers.registry import import_model
from tests.support.oracles import mixed_frame, special_rows
from tests.support.sklearn_checks import assert_both_raise, assert_same, scored

SCALERS: dict[str, Any] = {
    "standard": StandardScaler(),
    "standard without mean": StandardScaler(with_mean=False),
    "standard without std": StandardScaler(with_std=False),
    "standard doing nothing": StandardScaler(with_mean=False, with_std=False),
    "min max": MinMaxScaler(),
    "min max clipped": MinMaxScaler(feature_range=(-2, 0.3), clip=True),
    "max abs": MaxAbsScaler(),
    "max abs clipped": MaxAbsScaler(clip=True),
    "robust": RobustScaler(),
    "robust without centering": RobustScaler(with_centering=False),
    "robust without scaling": RobustScaler(with_scaling=False),
    "robust with unit variance": RobustScaler(quantile_range=(10, 90), unit_variance=True),
}
NUMBERS = ["age", "income", "ratio", "visits", "level", "active", "constant"]


@pytest.mark.parametrize("scaler", SCALERS.values(), ids=SCALERS.keys())
def test_numbers_of_every_type_with_nulls_scale_bit_for_bit(scaler: Any) -> None:
    frame = mixed_frame(80)[NUMBERS]
    scaler.fit(frame)
    assert_same(scaler, frame[NUMBERS[::-1]][NUMBERS], exact=True)
    assert_same(scaler, frame.iloc[:1], exact=True)


@pytest.mark.parametrize("scaler", SCALERS.values(), ids=SCALERS.keys())
def test_special_values_pass_and_infinity_raises(scaler: Any) -> None:
    scaler.fit(np.random.default_rng(0).normal(size=(50, 3)))
    assert_same(scaler, special_rows(3, infinite=False), exact=True)
    assert_both_raise(scaler, np.array([[0.0, np.inf, 0.0]]), MissingValueError, "x1.*infinity")


def test_zero_rows_give_zero_rows() -> None:
    imported = import_model(StandardScaler().fit(np.ones((3, 2))))
    assert scored(imported, np.empty((0, 2)))["transform"].shape == (0, 2)


def test_shuffled_columns_are_found_by_name() -> None:
    frame = mixed_frame(30)[NUMBERS]
    scaler = StandardScaler().fit(frame)
    ours = scored(import_model(scaler), frame[NUMBERS[::-1]])["transform"]
    np.testing.assert_array_equal(ours, scaler.transform(frame))


def test_float32_training_data_is_scored_in_float64() -> None:
    x = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
    scaler = StandardScaler().fit(x)
    ours = scored(import_model(scaler), x)["transform"]
    np.testing.assert_array_equal(ours, scaler.transform(x.astype(np.float64)))


def test_an_unfitted_scaler_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="fit"):
        import_model(StandardScaler())
