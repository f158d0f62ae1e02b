"""Neural networks of scikit-learn."""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.neural_network import BernoulliRBM, MLPClassifier, MLPRegressor

from sqlml.types import Array
from tests.contract.estimators.case import Case, real, three, two
from tests.contract.estimators.linear import EVERY_KIND, above_zero, narrow


def shares(rows: int, seed: int) -> pd.DataFrame:
    """Four columns from 0 to 1, as a restricted Boltzmann machine wants them."""
    return pd.DataFrame(np.random.default_rng(seed).random((rows, 4)), columns=list("abcd"))


def two_reals(table: pd.DataFrame, seed: int) -> Array:
    """Two real targets."""
    return np.stack([real(table, seed), real(table, seed + 1) ** 2], axis=1)


def three_flags(table: pd.DataFrame, seed: int) -> Array:
    """An indicator matrix of three labels; float, so that nobody renames its classes."""
    target = real(table, seed)
    return np.stack([target > 0, target > 0.5, np.abs(target) < 1], axis=1).astype(float)


CASES: tuple[Case, ...] = (
    *(
        Case(
            f"MLPClassifier {activation} {target.__name__}",
            lambda activation=activation: MLPClassifier(
                (7, 5), activation=activation, max_iter=30, random_state=0
            ),
            target,
            data=narrow,
            labels=EVERY_KIND if target is two and activation == "relu" else ("string",),
        )
        for activation in ("identity", "logistic", "tanh", "relu")
        for target in (two, three)
    ),
    Case(
        "MLPClassifier several labels",
        lambda: MLPClassifier((6,), max_iter=30, random_state=0),
        three_flags,
        data=narrow,
    ),
    Case(
        "MLPClassifier lbfgs",
        lambda: MLPClassifier((4, 4, 4), solver="lbfgs", max_iter=30, random_state=0),
        three,
        data=narrow,
    ),
    *(
        Case(
            f"MLPRegressor {activation}",
            lambda activation=activation: MLPRegressor(
                hidden_layer_sizes=(8,), activation=activation, max_iter=30, random_state=0
            ),
            real,
            data=narrow,
        )
        for activation in ("identity", "logistic", "tanh", "relu")
    ),
    Case(
        "MLPRegressor poisson",
        lambda: MLPRegressor(hidden_layer_sizes=(5,), loss="poisson", max_iter=30, random_state=0),
        above_zero,
        data=narrow,
    ),
    Case(
        "MLPRegressor two targets",
        lambda: MLPRegressor(hidden_layer_sizes=(5, 3), max_iter=30, random_state=0),
        two_reals,
        data=narrow,
    ),
    Case("BernoulliRBM", lambda: BernoulliRBM(6, n_iter=3, random_state=0), data=shares),
)
