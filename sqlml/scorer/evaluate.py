"""`evaluated`: how good a Scorer is on rows with labels, as `ml_evaluate` says it in SQL."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from sqlml import html
from sqlml.errors import ConfigError
from sqlml.ir.program import Program
from sqlml.planner.binding.class_argument import index_of
from sqlml.scorer.metrics import Metrics, class_metrics, number_metrics
from sqlml.types import Array, Labels, list_classes


class Predicts(Protocol):
    """What a Scorer has of the methods of an estimator."""

    program: Program

    def predict(self, X: Any) -> Array: ...

    def predict_proba(self, X: Any) -> Array | list[Array]: ...

    def decision_function(self, X: Any) -> Array: ...


class Evaluation(dict[str, float | None]):
    """Metrics by name; None for one that the rows do not define."""

    def _repr_html_(self) -> str:
        told = [(name, None if value is None else f"{value:.6g}") for name, value in self.items()]
        return html.table(("metric", "value"), told, numbers=(False, True))


def evaluated(model: Predicts, X: Any, y: Any, weight: Any = None) -> Evaluation | list[Evaluation]:
    """The metrics on rows X with labels y; a list of several targets, each a column of y.

    Rows without a label are left out.

    Raises:
        ConfigError: the model predicts nothing, a label is not one of its classes, or no row has a
            label.
    """
    program = model.program
    if "label" not in program.outputs:
        raise ConfigError("this model predicts nothing that could be evaluated")
    predicted = np.asarray(model.predict(X))
    weights = None if weight is None else np.asarray(weight, np.float64)
    labels, truths = program.labels, _columns(y, predicted.shape[1:] or (1,))
    several = len(truths) > 1
    found = predicted.reshape(len(predicted), -1)
    if not labels:
        values = [
            Evaluation(_numbers(truth, found[:, t], weights)) for t, truth in enumerate(truths)
        ]
        return values if several else values[0]
    probas = _probabilities(model, X, len(truths))
    score = None
    if probas is None and "score" in program.outputs and not several:
        score = np.asarray(model.decision_function(X), np.float64)
    made = [
        Evaluation(
            _classes(
                *(truth, found[:, t], labels[t], weights),
                None if probas is None else probas[t],
                score,
            )
        )
        for t, truth in enumerate(truths)
    ]
    return made if several else made[0]


def _columns(y: Any, shape: tuple[int, ...]) -> list[Array]:
    """The labels of each target, (n,) objects."""
    values = np.asarray(y.tolist() if hasattr(y, "tolist") else y, dtype=object)
    if shape == (1,):
        return [values.reshape(len(values))]
    return list(values.reshape(len(values), *shape).T)


def _probabilities(model: Predicts, X: Any, targets: int) -> list[Array] | None:
    """(n, K) of each target; None for a model without."""
    program = model.program
    if "proba" not in program.outputs:
        return None
    told = model.predict_proba(X)
    if targets == 1:
        return [np.asarray(told, np.float64)]
    if program.one_probability:
        whole = np.asarray(told, np.float64)
        return [np.stack([1 - p, p], axis=1) for p in whole.T]
    return [np.asarray(part, np.float64) for part in told]


def _numbers(truth: Array, predicted: Array, weight: Array | None) -> Metrics:
    y = np.array([np.nan if v is None else v for v in truth], np.float64)
    known = _some(~np.isnan(y))
    return number_metrics(y[known], np.asarray(predicted[known], np.float64), _part(weight, known))


def _classes(
    truth: Array,
    predicted: Array,
    labels: Labels,
    weight: Array | None,
    proba: Array | None,
    score: Array | None,
) -> Metrics:
    places: dict[Any, int] = {}
    for value in set(truth[[not _is_missing(v) for v in truth]].tolist()):
        place = index_of(labels, value)
        if place is None:
            known = list_classes(labels.values)
            raise ConfigError(f"the label {value!r} is not a class of this model; classes: {known}")
        places[value] = place
    y = np.array([-1 if _is_missing(v) else places[v] for v in truth], np.int64)
    some = _some(y >= 0)
    own = {value: place for place, value in enumerate(labels.values)}
    hat = np.array([own[v] for v in predicted.tolist()], np.int64)
    return class_metrics(
        *(y[some], hat[some], len(labels), _part(weight, some)),
        proba=_part(proba, some),
        score=_part(score, some),
    )


def _is_missing(value: Any) -> bool:
    return value is None or value != value


def _some(known: Array) -> Array:
    if not known.any():
        raise ConfigError("no row has a label: there is nothing to evaluate")
    return known


def _part(values: Array | None, known: Array) -> Array | None:
    return None if values is None else values[known]
