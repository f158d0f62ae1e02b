"""Neural networks: activations, labels at one half, several targets, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.neural_network import BernoulliRBM, MLPClassifier, MLPRegressor

from sqlml.errors import MissingValueError, UnsupportedModelError
from sqlml.importers.registry import import_model
from tests.support.oracles import classes
from tests.support.sklearn_checks import assert_both_raise, assert_same, scored

X = np.random.default_rng(0).normal(size=(120, 3))
CODES = np.digitize(X[:, 0], [-0.4, 0.4])


@pytest.mark.parametrize("kind", ["string", "int64", "float64"])
@pytest.mark.parametrize("count", [2, 3])
def test_labels_of_every_kind(kind: Any, count: int) -> None:
    y = classes(kind, np.minimum(CODES, count - 1))
    model = MLPClassifier((4,), max_iter=20, random_state=0).fit(X, y)
    assert_same(model, X)


def test_an_output_of_exactly_one_half_is_the_first_class() -> None:
    model = MLPClassifier((2,), max_iter=5, random_state=0).fit(X, CODES > 0)
    model.coefs_ = [np.zeros_like(weights) for weights in model.coefs_]
    model.intercepts_ = [np.zeros_like(bias) for bias in model.intercepts_]
    imported = assert_same(model, X)
    made = scored(imported, X)
    assert (made["proba"] == 0.5).all()
    assert (made["label"] == 0).all()


def test_large_inputs_overflow_as_in_the_source() -> None:
    model = MLPClassifier((4,), activation="identity", max_iter=9, random_state=0).fit(X, CODES)
    assert_same(model, X * 1e300)
    assert_same(model, X * -1e150)


def test_relu_of_minus_zero_and_of_negative_numbers_is_zero() -> None:
    model = MLPRegressor(hidden_layer_sizes=(3,), max_iter=9, random_state=0).fit(X, X[:, 0])
    assert_same(model, np.concatenate([X, np.zeros((1, 3)), -np.zeros((1, 3)), -100 * np.abs(X)]))


def test_a_network_of_three_targets() -> None:
    model = MLPRegressor(hidden_layer_sizes=(3,), max_iter=9, random_state=0).fit(X, X**2)
    imported = assert_same(model, X)
    assert imported.program.output_type("label").width == 3


def test_several_labels_a_row() -> None:
    model = MLPClassifier((4,), max_iter=9, random_state=0).fit(X, (X > 0).astype(int))
    imported = assert_same(model, X)
    assert [labels.values for labels in imported.program.labels] == [(0, 1)] * 3


def test_float32_weights_are_used_as_they_are() -> None:
    model = MLPRegressor(hidden_layer_sizes=(4,), max_iter=9, random_state=0)
    model.fit(X.astype(np.float32), X[:, 0].astype(np.float32))
    assert model.coefs_[0].dtype == np.float32
    assert_same(model, X)


def test_missing_values_are_refused_by_both() -> None:
    model = MLPClassifier((2,), max_iter=5).fit(X, CODES)
    assert_both_raise(model, np.full((1, 3), np.nan), MissingValueError, "MLPClassifier")


def test_hidden_units_of_a_boltzmann_machine() -> None:
    shares = np.abs(X) / np.abs(X).max()
    model = BernoulliRBM(5, n_iter=2, random_state=0).fit(shares)
    made = scored(import_model(model), shares)
    assert list(made) == ["transform"]  # score_samples draws at random
    np.testing.assert_allclose(made["transform"], model.transform(shares), rtol=1e-12)


def test_an_unknown_activation_is_refused() -> None:
    model = MLPRegressor(hidden_layer_sizes=(2,), max_iter=5).fit(X, X[:, 0])
    model.activation = "gelu"
    with pytest.raises(UnsupportedModelError, match="activation 'gelu' is not known"):
        import_model(model)


def test_an_unfitted_network_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="fit"):
        import_model(MLPClassifier())
