"""A classifier that encodes its classes as integers.

scikit-learn only has TransformedTargetRegressor. XGBoost requires the classes 0, 1, 2, ..., and all
libraries spend time on sorting and comparing class names. Stored models name this class by its
path, so it must not move.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.utils.metaestimators import available_if

from sqlml.types import Array


def _has_method(method: str) -> Callable[[Any], bool]:
    return lambda model: hasattr(getattr(model, "classifier_", model.classifier), method)


class EncodedTargetClassifier(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A meta-estimator that fits `classifier` to the indices of labels among the sorted classes.

    The fitted `classifier_` has the classes 0 to k - 1; `classes_` are the (k,) labels.
    """

    def __init__(self, classifier: Any) -> None:
        self.classifier = classifier

    def fit(self, X: Any, y: Any, **parameters: Any) -> Self:
        """Fit a clone of the classifier to its input and (n,) labels."""
        self.classes_, codes = np.unique(np.asarray(y), return_inverse=True)
        self.classifier_ = clone(self.classifier).fit(X, codes, **parameters)
        return self

    def predict(self, X: Any) -> Array:
        """Return (n,) labels."""
        codes = np.asarray(self.classifier_.predict(X)).reshape(-1).astype(int)
        return np.asarray(self.classes_[codes])

    @available_if(_has_method("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Array:
        """Return the (n, k) probabilities of the classes."""
        return np.asarray(self.classifier_.predict_proba(X))

    @available_if(_has_method("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Array:
        """Return the (n,) or (n, k) margins of the classes."""
        return np.asarray(self.classifier_.decision_function(X))

    @property
    def feature_names_in_(self) -> Any:
        return self.classifier_.feature_names_in_

    @property
    def n_features_in_(self) -> Any:
        return self.classifier_.n_features_in_
