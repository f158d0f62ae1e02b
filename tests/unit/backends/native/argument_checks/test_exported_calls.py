"""Argument checks accept the calls of exported models."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.e2e import family_zoo, model_zoo
from tests.support.exported_calls import (
    CHECKS,
    has_rows_where_annotated,
    is_safe,
    list_exported_calls,
    name_kernel,
)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork and mmap")

FAMILIES = (
    *("SVC", "KernelRidge", "KNeighborsRegressor", "LabelSpreading", "QuantileTransformer"),
    *("SplineTransformer", "KBinsDiscretizer", "QuadraticDiscriminantAnalysis", "ClassifierChain"),
    *("AdaBoostRegressor", "RandomForestRegressor of two", "a linear model of texts"),
    *("a forest of texts", "text, categories and numbers"),
)
"""Families that need different kernels."""

PYTHON = (
    *("CategoricalNB", "KNNImputer", "pipeline logistic, strings, one-hot"),
    "xgboost, numbers, linear",
)
"""Models that need Python, and are not exported."""


def check_calls(model: Any) -> None:
    calls = list(list_exported_calls(model))
    assert calls
    for call in calls:
        assert is_safe(call), call
        assert name_kernel(call) not in CHECKS or has_rows_where_annotated(call)


@pytest.mark.parametrize("name", FAMILIES)
def test_calls_of_families(name: str) -> None:
    check_calls(family_zoo.model(name))


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted({*family_zoo.FAMILIES} - {*FAMILIES, *PYTHON}))
def test_calls_of_all_families(name: str) -> None:
    check_calls(family_zoo.model(name))


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted({*model_zoo.MODELS} - {*PYTHON}))
def test_calls_of_all_models(name: str) -> None:
    check_calls(model_zoo.model(name))
