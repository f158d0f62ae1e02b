"""`EncodedTargetClassifier`: a classifier that learns the numbers of its classes, and says names.

scikit-learn has TransformedTargetRegressor, and nothing like it for classifiers; XGBoost takes only
the classes 0, 1, 2 .., and all libraries sort and compare names row by row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.utils.metaestimators import available_if

from sqlml.types import Array


def _inside(method: str) -> Callable[[Any], bool]:
    """Whether the classifier inside has a method."""
    return lambda model: hasattr(getattr(model, "classifier_", model.classifier), method)


class EncodedTargetClassifier(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Fit `classifier` to the places of the labels among the sorted classes.

    Attributes:
        classes_: (k,) the classes. classifier_: the fitted classifier, whose classes are 0 to k-1.
    """

    def __init__(self, classifier: Any) -> None:
        self.classifier = classifier

    def fit(self, X: Any, y: Any, **parameters: Any) -> Self:
        """Fit a clone of the classifier.

        Args:
            X: what the classifier takes. y: (n,) labels.
            parameters: those of the classifier's fit.
        """
        self.classes_, codes = np.unique(np.asarray(y), return_inverse=True)
        self.classifier_ = clone(self.classifier).fit(X, codes, **parameters)
        return self

    def predict(self, X: Any) -> Array:
        """(n,) labels."""
        made: Array = self.classes_[np.asarray(self.classifier_.predict(X)).reshape(-1).astype(int)]
        return made

    @available_if(_inside("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Array:
        """(n, k) probabilities of the classes."""
        made: Array = self.classifier_.predict_proba(X)
        return made

    @available_if(_inside("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Array:
        """(n,) or (n, k) margins of the classes."""
        made: Array = self.classifier_.decision_function(X)
        return made

    @property
    def feature_names_in_(self) -> Any:
        """Names of the columns that the classifier was fitted to."""
        return self.classifier_.feature_names_in_

    @property
    def n_features_in_(self) -> Any:
        """How many there are."""
        return self.classifier_.n_features_in_
