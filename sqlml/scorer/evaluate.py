"""`evaluated`: how good a Scorer is on rows with labels, as `ml_evaluate` says it in SQL."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from sqlml import html
from sqlml.errors import ConfigError
from sqlml.explaining.explained import block_of
from sqlml.ir.program import Program
from sqlml.planner.binding.requested_output import index_of
from sqlml.planner.table_functions.evaluated_model import OF_CLASSES
from sqlml.types import Array, Feature, Labels, list_classes

# `class_metrics`, `number_metrics`: how good predictions are, by scikit-learn.
#
# `ml_evaluate` computes the same in the engine (`planner/table_functions/`).


Metrics = Mapping[str, float | None]
"""Name -> value; None for one that the rows do not define."""


def class_metrics(
    y: Array,
    predicted: Array,
    classes: int,
    weight: Array | None = None,
    *,
    proba: Array | None = None,
    score: Array | None = None,
) -> Metrics:
    """The metrics of a classifier: of two classes those of the second, else means over the classes.

    Args:
        y, predicted: (n,) the numbers of classes. classes: how many there are.
        weight: (n,) or None.
        proba: (n, classes) probabilities. score: what ranks rows in place of those: (n,) of two
            classes, else (n, classes).
    """
    from sklearn import metrics

    average = "binary" if classes == 2 else "macro"
    options = {"average": average, "zero_division": 0.0, "sample_weight": weight}
    precision, recall, f1, _ = metrics.precision_recall_fscore_support(y, predicted, **options)
    made: dict[str, float | None] = {
        **dict.fromkeys(OF_CLASSES),
        "precision": float(precision),
        "recall": float(recall),
        "accuracy": float(metrics.accuracy_score(y, predicted, sample_weight=weight)),
        "f1_score": float(f1),
    }
    given = {"sample_weight": weight, "labels": np.arange(classes)}
    if proba is not None:
        made["log_loss"] = float(metrics.log_loss(y, proba, **given))
        made["brier_score"] = float(metrics.brier_score_loss(y, proba, **given))
        score = proba[:, 1] if classes == 2 else proba
    if score is not None and len(np.unique(y)) == classes:
        several = {} if classes == 2 else {"multi_class": "ovr", "labels": np.arange(classes)}
        own = {"sample_weight": weight}
        if classes > 2 and proba is None:  # scores, which roc_auc_score does not take
            made["roc_auc"] = _mean_area(y, score, classes, weight)
        else:
            made["roc_auc"] = float(metrics.roc_auc_score(y, score, **several, **own))
    if score is not None:
        found = y if classes == 2 else np.eye(classes, dtype=np.int64)[y]
        with warnings.catch_warnings():  # without positive rows it is 0
            warnings.simplefilter("ignore", UserWarning)
            area = metrics.average_precision_score(found, score, sample_weight=weight)
        made["average_precision"] = float(area)
    return made


def _mean_area(y: Array, score: Array, classes: int, weight: Array | None) -> float:
    """The mean of the areas under the ROC curves of each class against the rest."""
    from sklearn.metrics import roc_auc_score

    areas = [roc_auc_score(y == k, score[:, k], sample_weight=weight) for k in range(classes)]
    return float(np.mean(areas))


def number_metrics(y: Array, predicted: Array, weight: Array | None = None) -> Metrics:
    """The metrics of a regressor.

    Args:
        y, predicted: (n,) numbers. weight: (n,) or None.
    """
    from sklearn import metrics

    given = {"sample_weight": weight}
    has_logarithms = bool((y > -1).all() and (predicted > -1).all())
    return {
        "mean_absolute_error": float(metrics.mean_absolute_error(y, predicted, **given)),
        "mean_squared_error": float(metrics.mean_squared_error(y, predicted, **given)),
        "mean_squared_log_error": float(metrics.mean_squared_log_error(y, predicted, **given))
        if has_logarithms
        else None,
        "median_absolute_error": float(metrics.median_absolute_error(y, predicted, **given)),
        "max_error": float(metrics.max_error(y, predicted)),
        "r2_score": float(metrics.r2_score(y, predicted, **given)) if len(y) > 1 else None,
        "explained_variance": float(metrics.explained_variance_score(y, predicted, **given)),
        "mean_absolute_percentage_error": float(
            metrics.mean_absolute_percentage_error(y, predicted, **given)
        ),
    }


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


# `Contributions`: what each column of rows contributes to what a model says of them.


SHOWN, BAR = 20, 30
"""How many columns a notebook shows, and the length of the longest bar."""


@dataclass(frozen=True, slots=True, eq=False)
class Contributions:
    """Shapley values of n rows, as `explain` gives them in SQL.

    Attributes:
        features: names of the columns of training, in their order, which is that of `values`.
        values: (n, features) float64; (n, targets, features) of several targets. A row's values add
            up, with its baseline, to the model's score: the margin of boosted trees, else the
            probability or the value.
        baseline: (n,) or (n, targets): what the model is expected to say of a row of which nothing
            is known.
        errors: the standard errors of `values`, where these are estimates; else None.
    """

    features: tuple[str, ...]
    values: Array
    baseline: Array
    errors: Array | None = None

    @classmethod
    def of(cls, blocks: Array, program: Program, columns: Sequence[Feature]) -> Contributions:
        """From rows of the blocks of an explained Program."""
        inputs, block = list(program.inputs), block_of(program)
        each = blocks.reshape(len(blocks), -1, block)
        features = tuple(column.name for column in columns)
        places = [features.index(name) for name in inputs]

        def placed(first: int) -> Array:
            made = np.zeros((*each.shape[:2], len(features)))
            made[:, :, places] = each[:, :, first : first + len(inputs)]
            return made[:, 0] if each.shape[1] == 1 else made

        baseline = each[:, :, len(inputs)]
        return cls(
            features,
            placed(0),
            (baseline[:, 0] if each.shape[1] == 1 else baseline).copy(),
            placed(len(inputs) + 1) if block > len(inputs) + 1 else None,
        )

    def _repr_html_(self) -> str:
        """The mean size of what each column contributes, the largest first."""
        sizes = np.abs(self.values).reshape(-1, len(self.features)).mean(axis=0)
        order = np.argsort(-sizes, kind="stable")[:SHOWN]
        most = max(float(sizes.max(initial=0.0)), np.finfo(float).tiny)
        rows = [
            (self.features[k], f"{sizes[k]:.6g}", "\N{FULL BLOCK}" * round(BAR * sizes[k] / most))
            for k in order
        ]
        below = f"{len(self.values):,} rows, {len(self.features)} columns"
        names = ("column", "mean |contribution|", "")
        return html.table(names, rows, numbers=(False, True, False), below=below)
