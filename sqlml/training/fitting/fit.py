"""Fit an estimator as its library does it, with rows held out and rounds logged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from sqlml.long_work import stage
from sqlml.training.fitting.fit_catboost import fit_catboost
from sqlml.training.fitting.fit_lightgbm import fit_lightgbm
from sqlml.training.fitting.fit_sklearn import fit_sklearn
from sqlml.training.fitting.fit_torch import fit_torch
from sqlml.training.fitting.fit_xgboost import fit_xgboost
from sqlml.training.fitting.fitting import Fitting


def fit(fitting: Fitting) -> Any:
    """Return the fitted estimator.

    Raises:
        Exception: whatever the library raises.
    """
    names = ("n_estimators", "iterations", "max_iter", "max_epochs")
    rounds = next((fitting.parameters[n] for n in names if n in fitting.parameters), None)
    fitting.log.start(rounds)
    made = FITTERS[fitting.request.trainer.package](fitting)
    stage("measuring it")
    if fitting.checkpoint is not None:
        fitting.checkpoint.remove()
    return made


FITTERS: Mapping[str, Callable[[Fitting], Any]] = MappingProxyType(
    {
        "xgboost": fit_xgboost,
        "lightgbm": fit_lightgbm,
        "catboost": fit_catboost,
        "sklearn": fit_sklearn,
        "torch": fit_torch,
    }
)
"""Package of an estimator -> what fits it."""
