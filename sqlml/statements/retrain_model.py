"""ALTER MODEL ... RETRAIN: train another version by the definition of an existing one."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType

from sqlml.catalog.model import Model, Reference, TrainingFacts
from sqlml.errors import CatalogError, ConfigError
from sqlml.long_work import long_work, show_stage
from sqlml.parsing.statements import Promotion, Retrain, Training
from sqlml.scorer.scorer import Scorer
from sqlml.statements.model_options import user_options
from sqlml.statements.models import Answer, Models
from sqlml.statements.show_create_model import from_json
from sqlml.statements.train_model import (
    answer_training,
    build_trained_version,
    load_estimator,
    train_by_estimator,
    train_by_type,
)
from sqlml.training.model_types import MODEL_TYPES, compute_model_metrics
from sqlml.training.train_model_type import TrainedModel
from sqlml.types import fold

COMPARISONS: Mapping[str, Callable[[float, float], bool]] = MappingProxyType(
    {">=": operator.ge, ">": operator.gt, "<=": operator.le, "<": operator.lt}
)
"""Symbol of PROMOTE IF -> the comparison of the new metric with the bound."""

_NO_HELD_OUT_ROWS = (
    "PROMOTE IF compares rows that are held out, and this definition holds none out of these rows: "
    "leave out PROMOTE IF, or give the model a definition that does, by CREATE OR REPLACE MODEL "
    "with the option split = 'random'"
)


def retrain_model(models: Models, reference: Reference, change: Retrain) -> Answer:
    """Train a version again, on the current rows of its query or of another one.

    The new version becomes the default, unless PROMOTE IF names a bound that it misses.

    Raises:
        CatalogError: sqlml did not train the model.
        ConfigError: the new version has no such metric, or no rows were held out to measure it.
        UntrustedArtifactError: the definition is a pickled estimator.
    """
    whole_model = Reference(reference.name, reference.database)
    model, current = models.catalog.get(reference), models.catalog.get(whole_model)
    facts = models.catalog.training(model)
    if facts is None:
        raise CatalogError(
            f"sqlml did not train model {model.label}: CREATE OR REPLACE MODEL ... AS SELECT does"
        )
    models.changes.check_writable(reference)
    _check_metric(change.promotion, facts)
    training = _read_definition(model, facts, change.query)
    _check_columns(models, change.promotion, training, current)
    held_out_for = None if change.promotion is None else _NO_HELD_OUT_ROWS
    with long_work(f"retraining {reference.name}"):
        if facts.model_type in MODEL_TYPES:
            trained = train_by_type(models, training, held_out_for)
        else:
            estimator = load_estimator(models, reference)
            trained = train_by_estimator(models, training, estimator, held_out_for)
        version = build_trained_version(whole_model, training, trained)
        show_stage("comparing it with the current version")
        is_promoted, reason = _decide_promotion(
            models, change.promotion, training, trained, current
        )
        show_stage("storing it")
        if is_promoted:
            models.changes.create(whole_model, version, or_replace=True)
        else:
            models.versions.add(whole_model, version)
    promoted = f"{'yes' if is_promoted else 'no'}{reason}"
    return answer_training(whole_model, version, [("promoted", promoted)])


def _read_definition(model: Model, facts: TrainingFacts, query: str | None) -> Training:
    """Return the definition of a version, with its current options."""
    options = {name: from_json(value) for name, value in facts.options.items()}
    options = {**options, **user_options(model.options)}
    if facts.model_type not in MODEL_TYPES:
        options.pop("model_type", None)
    return Training(query or facts.query, MappingProxyType(options), facts.transform)


def _check_metric(promotion: Promotion | None, facts: TrainingFacts) -> None:
    """Reject a metric that the model does not have, before it is trained."""
    if promotion is not None and promotion.metric not in facts.metrics:
        raise ConfigError(
            f"unknown metric {promotion.metric!r}; metrics: {', '.join(facts.metrics)}"
        )


def _check_columns(
    models: Models, promotion: Promotion | None, training: Training, current: Model
) -> None:
    """Reject a query that lacks columns of the model to compare with, before the training."""
    if promotion is None or promotion.threshold is not None:
        return
    columns = {fold(name) for name in models.host.columns(models.runnable(training.query))}
    has_transform = current.transform is not None  # which reads columns of any type
    needed = [f.name for f in current.columns if has_transform or f.kind != "any"]
    missing = [name for name in needed if fold(name) not in columns]
    if missing:
        raise ConfigError(
            f"PROMOTE IF ... CURRENT compares with {current.label}, which needs "
            f"{', '.join(map(repr, missing))}: add it to the query, compare with a number, or "
            "leave out PROMOTE IF"
        )


def _decide_promotion(
    models: Models,
    promotion: Promotion | None,
    training: Training,
    trained: TrainedModel,
    current: Model,
) -> tuple[bool, str]:
    """Return whether the new version becomes the default, and the reason as a suffix."""
    if promotion is None:
        return True, ""
    if trained.held_out_rows is None:
        raise ConfigError(_NO_HELD_OUT_ROWS)
    value = _read_metric(promotion.metric, trained.metrics)
    bound = promotion.threshold
    if bound is None:
        metrics = _measure_current(models, training, trained, current)
        bound = _read_metric(promotion.metric, metrics)
    is_reached = COMPARISONS[promotion.symbol](value, bound)
    sign = "" if is_reached else "not "
    return is_reached, f": {promotion.metric} {value:.6g} is {sign}{promotion.symbol} {bound:.6g}"


def _measure_current(
    models: Models, training: Training, trained: TrainedModel, current: Model
) -> Mapping[str, float | None]:
    """Measure the current version on the rows that the new one was measured on."""
    held_out = models.trainers.read_held_out(models.runnable(training.query), trained, current)
    labels = [] if trained.labels is None else list(trained.labels.values)
    if labels != [v for target in current.program.labels for v in target.values]:
        raise ConfigError(
            f"the new version has other classes than {current.label}: PROMOTE IF cannot compare "
            "them"
        )
    scorer = Scorer(current.program, current.features, {})
    return compute_model_metrics(scorer, held_out, trained.request.task, len(labels))


def _read_metric(metric: str, metrics: Mapping[str, float | None]) -> float:
    value = metrics.get(metric)
    if value is None:
        raise ConfigError(
            f"the rows held out do not define {metric}: they may be too few, or of one class only"
        )
    return value
