"""CREATE MODEL ... AS SELECT and ADD VERSION ... AS SELECT: train, check and store a model."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from hashlib import sha256
from types import MappingProxyType
from typing import Any

from sqlml.catalog.model import TRANSFORM, NewVersion, Origin, Reference, TrainingFacts
from sqlml.errors import CatalogError, ConfigError, ModelExistsError, UntrustedArtifactError
from sqlml.long_work import long_work, show_stage
from sqlml.parsing.statements import Training, TrainModel, TrainVersion
from sqlml.statements.build_version import ModelRequest, build_version
from sqlml.statements.model_options import AT_CREATION, OUTPUT, STORED
from sqlml.statements.models import Answer, Models, pairs_answer, resolve_model
from sqlml.statements.show_create_model import as_json
from sqlml.training.options.request import parse_request
from sqlml.training.train_estimator import parse_estimator_request
from sqlml.training.train_model_type import TrainedModel

_MODEL_OPTIONS = (*STORED, "verify")
"""Options of a training statement that are stored with the model, or say how it is checked."""

_OWN_PICKLES: set[bytes] = set()
"""Digests of the pickles that this process has written, which it trusts wherever they are."""


def train_model(models: Models, statement: TrainModel) -> Answer | None:
    """Carry out CREATE MODEL ... AS query; nothing changes if it fails.

    Raises:
        ModelExistsError: the name is taken, without OR REPLACE.
        ConfigError, ParseError, MissingColumnError, MissingDependencyError: an option, the query or
            its rows do not suit the model.
        CatalogError: the database cannot be written to.
    """
    reference, training = resolve_model(statement.name), statement.training
    version = _train_and_create(
        models,
        reference,
        training,
        partial(train_by_type, models, training),
        or_replace=statement.or_replace,
        if_not_exists=statement.if_not_exists,
    )
    return None if version is None else answer_training(reference, version)


def train_object(
    models: Models,
    reference: Reference,
    what: Any,
    training: Training,
    *,
    or_replace: bool,
    if_not_exists: bool,
) -> tuple[str, ...]:
    """Train a model type, or an estimator from Python, and store it.

    Args:
        what: the name of a type, or an estimator that is not fitted.

    Returns:
        Notices about the rows for the user.
    """
    if isinstance(what, str):
        options = MappingProxyType({**training.options, "model_type": what})
        training = replace(training, options=options)
        train = partial(train_by_type, models, training)
    else:
        train = partial(train_by_estimator, models, training, what)
    version = _train_and_create(
        models, reference, training, train, or_replace=or_replace, if_not_exists=if_not_exists
    )
    return () if version is None or version.training is None else version.training.notices


def train_version(models: Models, reference: Reference, change: TrainVersion) -> Answer:
    """Carry out ALTER MODEL ... ADD VERSION ... AS query."""
    training = change.training
    models.catalog.version(Reference(reference.name, reference.database))
    models.changes.check_writable(reference)
    with long_work(f"training {reference.name}"):
        version = build_trained_version(reference, training, train_by_type(models, training))
        show_stage("storing it")
        version = replace(version, comment=training.comment)
        models.versions.add(reference, version, change.number)
    return answer_training(reference, version)


def _train_and_create(
    models: Models,
    reference: Reference,
    training: Training,
    train: Callable[[], TrainedModel],
    *,
    or_replace: bool,
    if_not_exists: bool,
) -> NewVersion | None:
    """Train and store a model; None if there is one of that name and IF NOT EXISTS was written."""
    if if_not_exists and models.exists(reference):
        models.changes.report_existing(reference)
        return None
    if not or_replace and models.exists(reference):  # checked before hours of training
        raise ModelExistsError(
            f"model {reference.name!r} already exists; CREATE OR REPLACE MODEL (in Python: "
            "train(..., or_replace=True)) adds a version to it, DROP MODEL removes it"
        )
    models.changes.check_writable(reference)
    with long_work(f"training {reference.name}"):
        version = build_trained_version(reference, training, train())
        show_stage("storing it")
        models.changes.create(
            reference,
            version,
            comment=training.comment,
            or_replace=or_replace,
            if_not_exists=if_not_exists,
        )
    return version


def train_by_type(
    models: Models, training: Training, held_out_for: str | None = None
) -> TrainedModel:
    """Train a model of a type on the rows of the statement's query.

    Args:
        held_out_for: the error if no rows are held out; None: they need not be.
    """
    request = parse_request(training.options, _MODEL_OPTIONS)
    if held_out_for is not None:
        request = replace(request, held_out_for=held_out_for)
        if request.split.method == "none":
            raise ConfigError(held_out_for)
    query = models.runnable(training.query)
    return models.trainers.train_model_type(query, request, training.transform)


def train_by_estimator(
    models: Models, training: Training, estimator: Any, held_out_for: str | None = None
) -> TrainedModel:
    """Fit an estimator from Python to the rows of a query; see `train_by_type`."""
    request = parse_estimator_request(estimator, training.options, _MODEL_OPTIONS)
    request = replace(request, held_out_for=held_out_for)
    return models.trainers.train_estimator(models.runnable(training.query), estimator, request)


def build_trained_version(
    reference: Reference, training: Training, trained: TrainedModel
) -> NewVersion:
    """Build a version from a trained object, once its Program predicts what the object does.

    Raises:
        VerificationError: the predictions differ.
        UnsupportedModelError: sqlml cannot import the object that these options produce.
    """
    request = trained.request
    options = {n: v for n, v in request.kept.items() if n in STORED or n in AT_CREATION}
    version = build_version(trained.model, ModelRequest(reference, options=options))
    if trained.labels is not None and len(version.program.labels) == 1:
        version = replace(version, program=replace(version.program, labels=(trained.labels,)))
    stored_options = dict(version.options)
    if request.label is not None:
        stored_options[OUTPUT] = request.label
    transform = trained.columns.transform([feature.name for feature in version.features])
    if transform is not None:
        stored_options[TRANSFORM] = transform.to_json()
    library = request.library
    if library in trained.versions:
        library = f"{library} {trained.versions[library]}"
    return replace(
        version,
        options=stored_options,
        origin=Origin(request.model_type, library),
        training=_collect_facts(training, trained),
        estimator=_pickle_estimator(trained.model) if request.keep_estimator else None,
        transform=transform,
    )


def _collect_facts(training: Training, trained: TrainedModel) -> TrainingFacts:
    """Return what the catalog stores about a training."""
    request = trained.request
    return TrainingFacts(
        model_type=request.model_type,
        library=request.library,
        query=training.query,
        options={name: as_json(value) for name, value in request.given.items()},
        transform=training.transform,
        split=asdict(trained.split),
        seed=request.seed,
        rows=trained.rows,
        held_out=trained.held_out,
        metrics=dict(trained.metrics),
        loss=trained.log.metric,
        rounds=tuple(
            (r.iteration, r.loss, r.eval_loss, r.seconds and round(r.seconds, 6))
            for r in trained.log.rounds
        ),
        features=trained.statistics,
        trials=trained.trials,
        pipeline=repr(trained.model),
        notices=trained.notices,
        versions=trained.versions,
        seconds=round(trained.seconds, 3),
    )


def _pickle_estimator(model: Any) -> bytes | None:
    """Pickle the fitted object; None if it cannot be pickled."""
    try:
        content = pickle.dumps(model)
    except Exception:  # objects that cannot be pickled may raise any exception
        return None
    _OWN_PICKLES.add(sha256(content).digest())
    return content


def load_estimator(models: Models, reference: Reference) -> Any:
    """Load the fitted object of a version that sqlml trained.

    Raises:
        UntrustedArtifactError: the user has not allowed to unpickle it.
        CatalogError: it was not stored, or sqlml did not train the model.
    """
    model = models.catalog.get(reference)
    content = models.catalog.estimator(model)
    if content is None:
        raise CatalogError(
            f"no fitted object is stored for model {model.label}: sqlml did not train it, it "
            "cannot be pickled, or the option keep_estimator is false"
        )
    if not models.allow_pickle and sha256(content).digest() not in _OWN_PICKLES:
        raise UntrustedArtifactError(
            f"the fitted object of model {model.label} is stored as a pickle, and unpickling can "
            "execute code that somebody put into the database: if you trust it, open it with "
            "allow_pickle=True"
        )
    return pickle.loads(content)


def answer_training(
    reference: Reference, version: NewVersion, more: Sequence[tuple[str, str]] = ()
) -> Answer:
    """Return what was trained, its metrics and the notices, as the answer of the statement.

    Args:
        more: rows to add.
    """
    facts = version.training
    assert facts is not None
    pairs = [
        ("model", reference.name),
        ("model_type", f"{facts.model_type} by {facts.library}"),
        ("rows", f"{facts.rows:,}"),
        ("held_out", f"{facts.held_out:,}"),
        *((name, f"{value:.6g}") for name, value in facts.metrics.items() if value is not None),
        *(("notice", text) for text in facts.notices),
        ("seconds", f"{facts.seconds:.3g}"),
        *more,
    ]
    return pairs_answer(("property", "value"), pairs)
