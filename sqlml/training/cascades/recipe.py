"""`Recipe`: how a model's last estimator is made, kept with the model so that a small one can be
trained like it."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import MissingDependencyError, UnsupportedModelError
from sqlml.importers.registry import COMPOSITES, IMPORTERS, class_path

_PLAIN = (type(None), bool, int, float, str)
_LIBRARIES = ("sklearn", "xgboost", "lightgbm", "catboost")
"""Packages whose estimators follow scikit-learn's conventions."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """The class of an estimator, and its parameters that are not the class's own defaults.

    Values are None, booleans, numbers, strings, and lists and dicts of these.
    """

    path: str
    parameters: Mapping[str, Any]

    @classmethod
    def of(cls, told: Any) -> Recipe:
        """What `to_dict` made.

        Raises:
            UnsupportedModelError: it is something else.
        """
        try:
            path, parameters = told["class"], told["parameters"]
        except (TypeError, KeyError):
            path, parameters = None, None
        if not isinstance(path, str) or not isinstance(parameters, Mapping):
            raise UnsupportedModelError("what the catalog says of the estimator is damaged")
        return cls(path, parameters)

    def regression(self) -> Recipe:
        """The recipe of the regression of the same kind; this one if it is a regression.

        Raises:
            UnsupportedModelError: there is none of the kind.
        """
        name = self.path.rpartition(".")[2]
        path = _REGRESSIONS.get(name, self.path)
        if path == self.path and ("Classifier" in name or name in _NO_REGRESSION):
            raise UnsupportedModelError(f"no regression is known that is like a {name}")
        if path == _RIDGE and path != self.path:
            return Recipe(path, {})
        kept = {k: v for k, v in self.parameters.items() if k not in _OF_CLASSES}
        return Recipe(path, MappingProxyType(kept))

    def to_dict(self) -> dict[str, Any]:
        """As the catalog keeps it."""
        return {"class": self.path, "parameters": dict(self.parameters)}

    def estimator(self) -> Any:
        """A new estimator, not fitted.

        Raises:
            UnsupportedModelError: sqlml imports no such class, or it may not have a parameter.
            MissingDependencyError: its library is not installed.
        """
        module, _, name = self.path.rpartition(".")
        package = module.split(".")[0]
        if self.path not in IMPORTERS and self.path not in COMPOSITES or package not in _LIBRARIES:
            raise UnsupportedModelError(f"no model is trained as a {self.path}")
        try:
            kind = getattr(importlib.import_module(module), name)
        except ImportError:
            raise MissingDependencyError(
                f"a small model is trained by {package}, which is not installed: "
                f"pip install 'sqlml[{package}]'"
            ) from None
        except AttributeError:
            raise UnsupportedModelError(f"this {package} has no {name}") from None
        try:
            plain = kind().get_params()
        except TypeError:  # it holds others, which a recipe cannot say
            raise UnsupportedModelError(f"no model is trained as a {self.path}") from None
        known = {*inspect.signature(kind.__init__).parameters, *plain} - _FORBIDDEN
        odd = sorted(self.parameters.keys() - known)
        if odd:
            raise UnsupportedModelError(f"no {name} is trained with parameter {odd[0]!r}")
        if any(_is_several(value) for value in self.parameters.values()):
            raise UnsupportedModelError(f"what the catalog says of the {name} is damaged")
        kept = {k: v for k, v in self.parameters.items() if k not in _OF_A_RUN}
        try:
            return kind(**{**kept, **_QUIET.get(package, {})})
        except Exception as error:  # a library raises what it likes
            raise UnsupportedModelError(
                f"no {name} can be made as the model was: {type(error).__name__}: {error}"
            ) from error


def recipe_of(model: Any) -> Recipe | None:
    """How the last estimator of a fitted object was made; None if that cannot be written down."""
    last = _last(model)
    path = class_path(last)
    if path.split(".")[0] not in _LIBRARIES or not hasattr(last, "get_params"):
        return None
    try:
        given = last.get_params(deep=False)
    except Exception:  # an object from a file may lack what its class expects
        return None
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(type(last).__init__).parameters.items()
    }
    chosen = {}
    for name, value in given.items():
        if name in _OF_A_RUN or _same(value, defaults.get(name)):
            continue
        plain = _plain(value)
        if plain is _ODD:
            return None
        chosen[name] = plain
    return Recipe(path, MappingProxyType(chosen))


_RIDGE = "sklearn.linear_model._ridge.Ridge"

_REGRESSIONS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(
            "BernoulliNB ComplementNB LinearSVC LogisticRegression LogisticRegressionCV "
            "MultinomialNB PassiveAggressiveClassifier Perceptron RidgeClassifier "
            "RidgeClassifierCV SGDClassifier".split(),
            _RIDGE,
        ),
        "SVC": "sklearn.svm._classes.SVR",
        "NuSVC": "sklearn.svm._classes.NuSVR",
        "RandomForestClassifier": "sklearn.ensemble._forest.RandomForestRegressor",
        "ExtraTreesClassifier": "sklearn.ensemble._forest.ExtraTreesRegressor",
        "GradientBoostingClassifier": "sklearn.ensemble._gb.GradientBoostingRegressor",
        "HistGradientBoostingClassifier": "sklearn.ensemble._hist_gradient_boosting."
        "gradient_boosting.HistGradientBoostingRegressor",
        "DecisionTreeClassifier": "sklearn.tree._classes.DecisionTreeRegressor",
        "ExtraTreeClassifier": "sklearn.tree._classes.ExtraTreeRegressor",
        "MLPClassifier": "sklearn.neural_network._multilayer_perceptron.MLPRegressor",
        "KNeighborsClassifier": "sklearn.neighbors._regression.KNeighborsRegressor",
        "XGBClassifier": "xgboost.sklearn.XGBRegressor",
        "XGBRFClassifier": "xgboost.sklearn.XGBRFRegressor",
        "LGBMClassifier": "lightgbm.sklearn.LGBMRegressor",
        "CatBoostClassifier": "catboost.core.CatBoostRegressor",
    }
)
"""The name of a classifier's class -> the regression that is like it."""

_NO_REGRESSION = frozenset("CategoricalNB GaussianNB NearestCentroid".split())

_OF_CLASSES = frozenset(
    "auto_class_weights class_weight class_weights criterion loss loss_function objective "
    "probability scale_pos_weight".split()
)
"""Parameters that concern classes, or are of another meaning to a regression."""

_OF_A_RUN = frozenset(
    "allow_writing_files callbacks early_stopping_rounds eval_metric logging_level missing n_jobs "
    "silent thread_count train_dir verbose verbose_eval verbosity".split()
)
"""Parameters that say how a model is fitted, not what it becomes."""

_FORBIDDEN = frozenset(
    "callbacks input_borders kwargs memory output_borders save_snapshot self snapshot_file "
    "train_dir".split()
)
"""Parameters that name files or run code: the recipe may come from a stranger's database."""


def _is_several(value: Any) -> bool:
    """Whether it holds a string that LightGBM would read as more than one parameter."""
    if isinstance(value, list):
        return any(map(_is_several, value))
    if isinstance(value, dict):
        return any(map(_is_several, [*value, *value.values()]))
    return isinstance(value, str) and any(c.isspace() or c == "=" for c in value)


_QUIET: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "catboost": {"allow_writing_files": False, "verbose": False},
        "lightgbm": {"verbose": -1},
        "xgboost": {"verbosity": 0},
    }
)
"""Package -> what keeps its estimators from writing files and to the terminal."""

_ODD: Any = object()


def _last(model: Any) -> Any:
    """The estimator at the end: of a pipeline its last step, of a stack its final estimator."""
    while True:
        steps = getattr(model, "steps", None)
        if isinstance(steps, list) and steps:
            model = steps[-1][1]
            continue
        inner = next((getattr(model, n, None) for n in _INNER if getattr(model, n, None)), None)
        if inner is None:
            return model
        model = inner


_INNER = ("best_estimator_", "final_estimator_", "classifier_")
"""Where searches, stacks and what numbers classes keep the estimator that answers."""


def _same(value: Any, default: Any) -> bool:
    return type(value) is type(default) and bool(value == default or value is default)


def _plain(value: Any) -> Any:
    """A value of a parameter as JSON has it, or `_ODD`."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, list | tuple):
        items = [_plain(item) for item in value]
        return _ODD if any(item is _ODD for item in items) else items
    if isinstance(value, dict):
        held = {str(key): _plain(item) for key, item in value.items()}
        return _ODD if any(item is _ODD for item in held.values()) else held
    return value if isinstance(value, _PLAIN) else _ODD
