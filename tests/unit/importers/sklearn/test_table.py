"""The table of classes against the installed scikit-learn."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from sklearn.experimental import (  # noqa: F401  # their import is their use
    enable_halving_search_cv,
    enable_iterative_imputer,
)
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import HalvingGridSearchCV, HalvingRandomSearchCV

from sqlml.importers.registry import find_class_key
from sqlml.importers.sklearn.estimator_checks import PARAMETERS
from sqlml.importers.sklearn.estimator_table import COMPOSITES, IMPORTERS
from tests.support.sklearn_checks import assert_same


def test_every_class_that_is_imported_has_its_parameters_listed() -> None:
    assert set(IMPORTERS) | set(COMPOSITES) <= set(PARAMETERS)
    assert not set(IMPORTERS) & set(COMPOSITES)


@pytest.mark.parametrize("path", PARAMETERS)
def test_the_installed_scikit_learn_has_no_parameter_that_we_do_not_know(path: str) -> None:
    module, name = path.rsplit(".", 1)
    cls = getattr(importlib.import_module(module), name)
    assert set(cls._get_param_names()) <= set(PARAMETERS[path].split())
    assert f"{cls.__module__}.{cls.__qualname__}" == path


@pytest.mark.parametrize("search", [HalvingGridSearchCV, HalvingRandomSearchCV])
def test_halving_searches_stand_for_their_best_estimator(search: type) -> None:
    x = np.random.default_rng(0).normal(size=(60, 2))
    model = search(LogisticRegression(), {"C": [0.1, 1.0]}, cv=2, random_state=0)
    assert find_class_key(model) in COMPOSITES
    assert_same(model.fit(x, x[:, 0] > 0), x)
