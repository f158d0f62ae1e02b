"""ALTER MODEL .. RETRAIN: another version by the definition of one that was trained."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType

from sqlml.catalog.model import Model, Reference, TrainingFacts
from sqlml.errors import CatalogError, ConfigError
from sqlml.long_work import long_work, stage
from sqlml.parsing.statements import Promotion, Retrain, Training
from sqlml.scorer.scorer import Scorer
from sqlml.statements.models import Answer, Models
from sqlml.statements.options import given
from sqlml.statements.train import by_estimator, by_type, new_version, stored_estimator, told
from sqlml.statements.training_statement import from_json
from sqlml.training.model_types import MODEL_TYPES, metrics_of
from sqlml.training.train_model import Trained
from sqlml.types import fold

COMPARED: Mapping[str, Callable[[float, float], bool]] = MappingProxyType(
    {">=": operator.ge, ">": operator.gt, "<=": operator.le, "<": operator.lt}
)


NONE_TO_PROMOTE = (
    "PROMOTE IF compares rows that are held out, and this definition holds none out of these rows: "
    "leave out PROMOTE IF, or give the model a definition that does, by CREATE OR REPLACE MODEL "
    "with the option split = 'random'"
)


def retrain(models: Models, reference: Reference, change: Retrain) -> Answer:
    """Train a version again, on the rows that its query, or another one, gives now.

    The new version becomes the default, unless PROMOTE IF says that it must reach something first.

    Raises:
        CatalogError: sqlml did not train the model.
        ConfigError: the new version has no such metric, or no rows were held out to measure it.
        UntrustedArtifactError: the definition is a pickled estimator.
    """
    whole = Reference(reference.name, reference.database)
    model, current = models.catalog.get(reference), models.catalog.get(whole)
    facts = models.catalog.training(model)
    if facts is None:
        raise CatalogError(
            f"sqlml did not train model {model.label}: CREATE OR REPLACE MODEL .. AS SELECT does"
        )
    models.changes.check_writable(reference)
    _check_metric(change.promotion, facts)
    training = _training(model, facts, change.query)
    _check_columns(models, change.promotion, training, current)
    held_out_for = None if change.promotion is None else NONE_TO_PROMOTE
    with long_work(f"retraining {reference.name}"):
        if facts.model_type in MODEL_TYPES:
            trained = by_type(models, training, held_out_for)
        else:
            estimator = stored_estimator(models, reference)
            trained = by_estimator(models, training, estimator, held_out_for)
        new = new_version(whole, training, trained)
        stage("comparing it with the current version")
        promoted, reason = _promoted(models, change.promotion, training, trained, current)
        stage("storing it")
        if promoted:
            models.changes.create(whole, new, or_replace=True)
        else:
            models.versions.add(whole, new)
    return told(whole, new, [("promoted", f"{'yes' if promoted else 'no'}{reason}")])


def _training(model: Model, facts: TrainingFacts, query: str | None) -> Training:
    """The definition of a version, with the options that it has now."""
    kept = given(model.options)
    options = {name: from_json(value) for name, value in facts.options.items()}
    options = {**options, **kept}
    if facts.model_type not in MODEL_TYPES:
        options.pop("model_type", None)
    return Training(query or facts.query, MappingProxyType(options), facts.transform)


def _check_metric(promotion: Promotion | None, facts: TrainingFacts) -> None:
    """Refuse a metric that the model has not, before it is trained."""
    if promotion is not None and promotion.metric not in facts.metrics:
        raise ConfigError(
            f"unknown metric {promotion.metric!r}; metrics: {', '.join(facts.metrics)}"
        )


def _check_columns(
    models: Models, promotion: Promotion | None, training: Training, current: Model
) -> None:
    """Refuse a query that lacks columns of the model to be compared with, before the training."""
    if promotion is None or promotion.least is not None:
        return
    known = {fold(name) for name in models.host.columns(models.runnable(training.query))}
    made = current.transform is not None  # of columns of any type
    needed = [f.name for f in current.columns if made or f.kind != "any"]
    missing = [name for name in needed if fold(name) not in known]
    if missing:
        listed = ", ".join(map(repr, missing))
        raise ConfigError(
            f"PROMOTE IF .. CURRENT compares with {current.label}, which needs {listed}: add it to "
            "the query, compare with a number, or leave out PROMOTE IF"
        )


def _promoted(
    models: Models,
    promotion: Promotion | None,
    training: Training,
    trained: Trained,
    current: Model,
) -> tuple[bool, str]:
    """Whether the new version becomes the default, and why."""
    if promotion is None:
        return True, ""
    if trained.held_out_rows is None:
        raise ConfigError(NONE_TO_PROMOTE)
    found = _value(promotion.metric, trained.metrics)
    least = promotion.least
    if least is None:
        part = models.trainers.held_out(models.runnable(training.query), trained, current)
        labels = [] if trained.labels is None else list(trained.labels.values)
        if labels != [v for s in current.program.labels for v in s.values]:
            raise ConfigError(
                f"the new version has other classes than {current.label}: PROMOTE IF cannot "
                "compare them"
            )
        scorer = Scorer(current.program, current.features, {})
        metrics = metrics_of(scorer, part, trained.request.task, len(labels))
        least = _value(promotion.metric, metrics)
    reached = COMPARED[promotion.symbol](found, least)
    sign = "" if reached else "not "
    return reached, f": {promotion.metric} {found:.6g} is {sign}{promotion.symbol} {least:.6g}"


def _value(metric: str, metrics: Mapping[str, float | None]) -> float:
    """The value of a metric.

    Raises:
        ConfigError: the rows held out do not define it.
    """
    value = metrics.get(metric)
    if value is None:
        raise ConfigError(
            f"the rows held out do not define {metric}: they may be too few, or of one class only"
        )
    return value
