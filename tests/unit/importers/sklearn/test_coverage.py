"""Every estimator of the installed scikit-learn is imported, or listed with a reason."""

from __future__ import annotations

import pytest
from sklearn.cluster import DBSCAN
from sklearn.experimental import (  # noqa: F401  # their import is their use
    enable_halving_search_cv,
    enable_iterative_imputer,
)
from sklearn.utils import all_estimators

import sqlml
from sqlml.errors import UnsupportedModelError
from sqlml.importers.sklearn.estimator_table import COMPOSITES, IMPORTERS, UNSUPPORTED

PATHS = sorted(f"{c.__module__}.{c.__qualname__}" for _, c in all_estimators())


@pytest.mark.parametrize("path", PATHS)
def test_it_is_imported_or_the_reason_is_listed(path: str) -> None:
    imported = path in IMPORTERS or path in COMPOSITES
    assert imported != (path in UNSUPPORTED)


def test_the_reason_is_what_the_user_reads() -> None:
    with pytest.raises(UnsupportedModelError, match="has no method for new rows"):
        sqlml.compile(DBSCAN().fit([[0.0], [1.0]]))
