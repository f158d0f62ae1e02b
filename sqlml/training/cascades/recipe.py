"""The recipe of a model's last estimator: its class and parameters, to train small models."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import MissingDependencyError, UnsupportedModelError
from sqlml.importers.registry import COMPOSITES, IMPORTERS, find_class_key

_LIBRARIES = ("sklearn", "xgboost", "lightgbm", "catboost")
"""Packages whose estimators follow scikit-learn's conventions."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """The class of an estimator, and its non-default parameters as JSON values."""

    path: str
    parameters: Mapping[str, Any]

    @classmethod
    def from_stored(cls, stored: Any) -> Recipe:
        try:
            path, parameters = stored["class"], stored["parameters"]
        except (TypeError, KeyError):
            path, parameters = None, None
        if not isinstance(path, str) or not isinstance(parameters, Mapping):
            raise UnsupportedModelError("the catalog's record of the estimator is damaged")
        return cls(path, parameters)

    def to_regression(self) -> Recipe:
        """Return the recipe of the regression that corresponds to a classifier.

        The recipe of a regression is returned unchanged.
        """
        module, _, name = self.path.rpartition(".")
        if name in _LINEAR_CLASSIFIERS:
            return Recipe("sklearn.linear_model._ridge.Ridge", {})
        path = _REGRESSIONS.get(name, self.path)
        if name.removesuffix("Classifier") in _RENAMED:
            path = f"{module}.{name.replace('Classifier', 'Regressor')}"
        if path == self.path and ("Classifier" in name or name in _NO_REGRESSION):
            raise UnsupportedModelError(f"no regression that corresponds to {name} is known")
        parameters = {k: v for k, v in self.parameters.items() if k not in _CLASS_PARAMETERS}
        return Recipe(path, MappingProxyType(parameters))

    def to_dict(self) -> dict[str, Any]:
        return {"class": self.path, "parameters": dict(self.parameters)}

    def make_estimator(self) -> Any:
        """Create the unfitted estimator, if its class and parameters are allowed."""
        module, _, name = self.path.rpartition(".")
        package = module.split(".")[0]
        if self.path not in IMPORTERS and self.path not in COMPOSITES or package not in _LIBRARIES:
            raise UnsupportedModelError(f"no small model can be trained as a {self.path}")
        try:
            cls = getattr(importlib.import_module(module), name)
        except ImportError:
            advice = f"pip install 'sqlml[{package}]'"
            message = f"a small model is trained by {package}, which is not installed: {advice}"
            raise MissingDependencyError(message) from None
        except AttributeError:
            raise UnsupportedModelError(f"the installed {package} has no {name}") from None
        try:
            defaults = cls().get_params()
        except TypeError:  # A recipe cannot describe an estimator that contains other estimators.
            raise UnsupportedModelError(f"no small model can be trained as a {self.path}") from None
        allowed = {*inspect.signature(cls.__init__).parameters, *defaults} - _FORBIDDEN
        unknown = sorted(self.parameters.keys() - allowed)
        if unknown:
            raise UnsupportedModelError(f"no {name} is trained with parameter {unknown[0]!r}")
        if any(_has_separators(value) for value in self.parameters.values()):
            raise UnsupportedModelError(f"the catalog's record of the {name} is damaged")
        parameters = {k: v for k, v in self.parameters.items() if k not in _RUN_PARAMETERS}
        try:
            return cls(**{**parameters, **_QUIET.get(package, {})})
        except Exception as error:  # A library may raise any exception.
            message = f"the model's {name} cannot be created: {type(error).__name__}: {error}"
            raise UnsupportedModelError(message) from error


def extract_recipe(model: Any) -> Recipe | None:
    """Return the recipe of a fitted object's last estimator, or None if it cannot be stored."""
    estimator = _find_last_estimator(model)
    path = find_class_key(estimator)
    if path.split(".")[0] not in _LIBRARIES or not hasattr(estimator, "get_params"):
        return None
    try:
        parameters = estimator.get_params(deep=False)
    except Exception:  # An object from a file may lack attributes that its class expects.
        return None
    signature = inspect.signature(type(estimator).__init__)
    defaults = {name: parameter.default for name, parameter in signature.parameters.items()}
    changed = {}
    for name, value in parameters.items():
        default = defaults.get(name)
        is_default = type(value) is type(default) and (value is default or bool(value == default))
        if name not in _RUN_PARAMETERS and not is_default:
            changed[name] = value
    try:
        return Recipe(path, MappingProxyType(_to_json_value(changed)))
    except TypeError:
        return None


_LINEAR_CLASSIFIERS = frozenset(
    "BernoulliNB ComplementNB LinearSVC LogisticRegression LogisticRegressionCV MultinomialNB "
    "PassiveAggressiveClassifier Perceptron RidgeClassifier RidgeClassifierCV SGDClassifier".split()
)

_RENAMED = frozenset(
    "CatBoost DecisionTree ExtraTree ExtraTrees GradientBoosting HistGradientBoosting LGBM MLP "
    "RandomForest XGB XGBRF".split()
)
"""Classifiers whose regression has the same name, in the same module."""

_REGRESSIONS: Mapping[str, str] = {
    "SVC": "sklearn.svm._classes.SVR",
    "NuSVC": "sklearn.svm._classes.NuSVR",
    "KNeighborsClassifier": "sklearn.neighbors._regression.KNeighborsRegressor",
}
"""Maps the names of other classifiers to the paths of the corresponding regressions."""

_NO_REGRESSION = frozenset("CategoricalNB GaussianNB NearestCentroid".split())

_CLASS_PARAMETERS = frozenset(
    "auto_class_weights class_weight class_weights criterion loss loss_function objective "
    "probability scale_pos_weight".split()
)
"""Parameters that concern classes, or that have a different meaning for a regression."""

_RUN_PARAMETERS = frozenset(
    "allow_writing_files callbacks early_stopping_rounds eval_metric logging_level missing n_jobs "
    "silent thread_count train_dir verbose verbose_eval verbosity".split()
)
"""Parameters that affect the fitting, but not the fitted model."""

_FORBIDDEN = frozenset(
    "callbacks input_borders kwargs memory output_borders save_snapshot self snapshot_file "
    "train_dir".split()
)
"""Parameters that name files or run code: the recipe may come from an untrusted database."""


def _has_separators(value: Any) -> bool:
    """Return whether a value contains a string that LightGBM would read as several parameters."""
    if isinstance(value, list):
        return any(map(_has_separators, value))
    if isinstance(value, dict):
        return any(map(_has_separators, [*value, *value.values()]))
    return isinstance(value, str) and any(c.isspace() or c == "=" for c in value)


_QUIET: Mapping[str, Mapping[str, Any]] = {
    "catboost": {"allow_writing_files": False, "verbose": False},
    "lightgbm": {"verbose": -1},
    "xgboost": {"verbosity": 0},
}
"""Maps packages to parameters that keep estimators from writing files and output."""


def _find_last_estimator(model: Any) -> Any:
    while True:
        steps = getattr(model, "steps", None)
        if isinstance(steps, list) and steps:
            model = steps[-1][1]
            continue
        inner = next(filter(None, (getattr(model, n, None) for n in _INNER_ESTIMATORS)), None)
        if inner is None:
            return model
        model = inner


_INNER_ESTIMATORS = ("best_estimator_", "final_estimator_", "classifier_")
"""Attributes of searches, stacks and class encoders with the estimator that predicts."""


def _to_json_value(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, list | tuple):
        return [_to_json_value(element) for element in value]
    if isinstance(value, dict):
        return {str(key): _to_json_value(element) for key, element in value.items()}
    if value is not None and not isinstance(value, bool | int | float | str):
        raise TypeError(f"a {type(value).__name__} cannot be stored")
    return value
