"""Importers of imbalanced-learn: its samplers change the rows of training, and none afterwards.

Its ensembles are scikit-learn's, fitted on samples of the rows: they predict as those do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from sqlml.importers.frame import Frame, Outputs, Recurse, Schema
from sqlml.importers.model_checks import as_class
from sqlml.importers.sklearn.meta.compose import composite_schema


def pipeline(model: Any, frame: Frame, recurse: Recurse) -> Frame | Outputs:
    """All steps but the samplers, one after the other."""
    return recurse(_without_samplers(model), frame)


def pipeline_schema(model: Any) -> Schema:
    """The columns of the first step that says what it reads."""
    return composite_schema(_without_samplers(model))


def _without_samplers(model: Any) -> Any:
    from sklearn.pipeline import Pipeline

    made = as_class(model, Pipeline)
    made.steps = [(name, step) for name, step in model.steps if not hasattr(step, "fit_resample")]
    return made


def ensemble(model: Any, frame: Frame, recurse: Recurse) -> Frame | Outputs:
    """What scikit-learn's class of which this is a subclass does with its members."""
    base = next(c for c in type(model).__mro__ if c.__module__.startswith("sklearn.ensemble."))
    return recurse(as_class(model, base), frame)


COMPOSITES: Mapping[str, Callable[[Any, Frame, Recurse], Frame | Outputs]] = MappingProxyType(
    {
        "imblearn.ensemble._bagging.BalancedBaggingClassifier": ensemble,
        "imblearn.ensemble._easy_ensemble.EasyEnsembleClassifier": ensemble,
        "imblearn.ensemble._forest.BalancedRandomForestClassifier": ensemble,
        "imblearn.ensemble._weight_boosting.RUSBoostClassifier": ensemble,
        "imblearn.pipeline.Pipeline": pipeline,
    }
)

SCHEMAS: Mapping[str, Callable[[Any], Schema]] = MappingProxyType(
    {"imblearn.pipeline.Pipeline": pipeline_schema}
)
