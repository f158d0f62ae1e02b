"""Import models of imbalanced-learn, whose samplers only change the rows of training.

The ensembles are fitted on samples of the rows, but predict like their scikit-learn base classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlml.importers.frame import Frame, Outputs, Recurse, Schema
from sqlml.importers.model_checks import convert_class
from sqlml.importers.sklearn.meta.compose import read_composite_schema


def import_sampling_pipeline(model: Any, frame: Frame, recurse: Recurse) -> Frame | Outputs:
    return recurse(_remove_samplers(model), frame)


def read_sampling_schema(model: Any) -> Schema:
    return read_composite_schema(_remove_samplers(model))


def _remove_samplers(model: Any) -> Any:
    from sklearn.pipeline import Pipeline

    pipeline = convert_class(model, Pipeline)
    pipeline.steps = [pair for pair in model.steps if not hasattr(pair[1], "fit_resample")]
    return pipeline


def import_ensemble(model: Any, frame: Frame, recurse: Recurse) -> Frame | Outputs:
    """Import an ensemble of imbalanced-learn as an object of its scikit-learn base class."""
    base = next(c for c in type(model).__mro__ if c.__module__.startswith("sklearn.ensemble."))
    return recurse(convert_class(model, base), frame)


COMPOSITES: Mapping[str, Callable[[Any, Frame, Recurse], Frame | Outputs]] = {
    "imblearn.ensemble._bagging.BalancedBaggingClassifier": import_ensemble,
    "imblearn.ensemble._easy_ensemble.EasyEnsembleClassifier": import_ensemble,
    "imblearn.ensemble._forest.BalancedRandomForestClassifier": import_ensemble,
    "imblearn.ensemble._weight_boosting.RUSBoostClassifier": import_ensemble,
    "imblearn.pipeline.Pipeline": import_sampling_pipeline,
}

SCHEMAS: Mapping[str, Callable[[Any], Schema]] = {
    "imblearn.pipeline.Pipeline": read_sampling_schema
}
