"""CREATE MODEL .. AS SELECT, ADD VERSION .. AS SELECT: a model is trained, checked and stored."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from hashlib import sha256
from types import MappingProxyType
from typing import Any

from sqlml.catalog.model import TRANSFORM, NewVersion, Origin, Reference, TrainingFacts
from sqlml.errors import CatalogError, ConfigError, ModelExistsError, UntrustedArtifactError
from sqlml.long_work import long_work, stage
from sqlml.parsing.statements import Training, TrainModel, TrainVersion
from sqlml.statements.build_version import Registration, verified
from sqlml.statements.models import Answer, Models, rows, whole
from sqlml.statements.options import AT_CREATION, OUTPUT, STORED
from sqlml.statements.training_statement import as_json
from sqlml.training.options.request import request_of
from sqlml.training.train_estimator import estimator_request
from sqlml.training.train_model import Trained


def train_model(models: Models, statement: TrainModel) -> Answer | None:
    """CREATE MODEL .. AS query: the model is trained and stored, or nothing has changed.

    Raises:
        ModelExistsError: the name is taken, without OR REPLACE.
        ConfigError, ParseError, MissingColumnError, MissingDependencyError: an option, the query or
            its rows do not suit the model.
        CatalogError: the database cannot be written to.
    """
    reference, training = whole(statement.name), statement.training
    how = {"or_replace": statement.or_replace, "if_not_exists": statement.if_not_exists}
    new = _created(models, reference, training, partial(by_type, models, training), **how)
    return None if new is None else told(reference, new)


def train_object(
    models: Models,
    reference: Reference,
    what: Any,
    training: Training,
    *,
    or_replace: bool,
    if_not_exists: bool,
) -> tuple[str, ...]:
    """Train a model type, or an estimator of Python's, and store it; the notices for the user.

    Args:
        what: the name of a type, or an estimator that is not fitted.
    """
    if isinstance(what, str):
        given = MappingProxyType({**training.options, "model_type": what})
        training = replace(training, options=given)
        work = partial(by_type, models, training)
    else:
        work = partial(by_estimator, models, training, what)
    how = {"or_replace": or_replace, "if_not_exists": if_not_exists}
    new = _created(models, reference, training, work, **how)
    return () if new is None or new.training is None else new.training.notices


def train_version(models: Models, reference: Reference, change: TrainVersion) -> Answer:
    """ALTER MODEL .. ADD VERSION .. AS query."""
    models.catalog.version(Reference(reference.name, reference.database))
    models.changes.check_writable(reference)
    with long_work(f"training {reference.name}"):
        new = new_version(reference, change.training, by_type(models, change.training))
        stage("storing it")
        models.versions.add(reference, replace(new, comment=change.training.comment), change.number)
    return told(reference, new)


def stored_estimator(models: Models, reference: Reference) -> Any:
    """The fitted object of a version that was trained.

    Raises:
        UntrustedArtifactError: the user has not allowed to unpickle it.
        CatalogError: it was not kept, or sqlml did not train the model.
    """
    model = models.catalog.get(reference)
    kept = models.catalog.estimator(model)
    if kept is None:
        raise CatalogError(
            f"no fitted object is kept of model {model.label}: sqlml did not train it, it cannot "
            "be pickled, or the option keep_estimator is false"
        )
    if not models.allow_pickle and sha256(kept).digest() not in _OWN_PICKLES:
        raise UntrustedArtifactError(
            f"the fitted object of model {model.label} is kept as a pickle, and unpickling can "
            "execute code that somebody put into the database: if you trust it, open it with "
            "allow_pickle=True"
        )
    return pickle.loads(kept)


def _created(
    models: Models,
    reference: Reference,
    training: Training,
    work: Callable[[], Trained],
    *,
    or_replace: bool,
    if_not_exists: bool,
) -> NewVersion | None:
    """A model that was trained and stored; None if there is one of that name already."""
    if if_not_exists and models.exists(reference):
        models.changes.found(reference)
        return None
    if not or_replace and models.exists(reference):  # said before hours of work, not after
        raise ModelExistsError(
            f"model {reference.name!r} already exists; CREATE OR REPLACE MODEL (in Python: "
            "train(.., or_replace=True)) adds a version to it, DROP MODEL removes it"
        )
    models.changes.check_writable(reference)
    with long_work(f"training {reference.name}"):
        new = new_version(reference, training, work())
        stage("storing it")
        models.changes.create(
            reference,
            new,
            comment=training.comment,
            or_replace=or_replace,
            if_not_exists=if_not_exists,
        )
    return new


def by_type(models: Models, training: Training, held_out_for: str | None = None) -> Trained:
    """A model of a type, trained on the rows of the statement's query.

    Args:
        held_out_for: the error if no rows are held out; None: they need not be.
    """
    request = request_of(training.options, _KEPT)
    if held_out_for is not None:
        request = replace(request, held_out_for=held_out_for)
        if request.split.method == "none":
            raise ConfigError(held_out_for)
    query = models.runnable(training.query)
    return models.trainers.by_type(query, request, training.transform)


def by_estimator(
    models: Models, training: Training, estimator: Any, held_out_for: str | None = None
) -> Trained:
    """An estimator of Python's, fitted to the rows of a query; see `by_type`."""
    request = estimator_request(estimator, training.options, _KEPT)
    request = replace(request, held_out_for=held_out_for)
    return models.trainers.by_estimator(models.runnable(training.query), estimator, request)


_KEPT = (*STORED, "verify")
"""Options of a training statement that are kept with the model, or say how it is stored."""


def new_version(reference: Reference, training: Training, trained: Trained) -> NewVersion:
    """A version of what was trained, once its Program answers as the trained object does.

    Raises:
        VerificationError: it does not.
        UnsupportedModelError: sqlml cannot import what these options make.
    """
    request = trained.request
    kept = {n: v for n, v in request.kept.items() if n in STORED or n in AT_CREATION}
    new = verified(trained.model, Registration(reference, options=kept), None)
    if trained.labels is not None and len(new.program.labels) == 1:
        new = replace(new, program=replace(new.program, labels=(trained.labels,)))
    options = dict(new.options)
    if request.label is not None:
        options[OUTPUT] = request.label
    transform = trained.columns.transform([feature.name for feature in new.features])
    if transform is not None:
        options[TRANSFORM] = transform.to_json()
    origin = Origin(request.model_type, _with_version(request.library, trained.versions))
    facts = TrainingFacts(
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
    pickled = _pickled(trained.model) if request.keep_estimator else None
    return replace(
        new,
        options=options,
        origin=origin,
        training=facts,
        estimator=pickled,
        transform=transform,
    )


def _with_version(library: str, versions: Mapping[str, str]) -> str:
    return f"{library} {versions[library]}" if library in versions else library


def _pickled(model: Any) -> bytes | None:
    """The fitted object as bytes; None if it cannot be pickled."""
    try:
        made = pickle.dumps(model)
    except Exception:  # objects say in their own ways that they cannot be
        return None
    _OWN_PICKLES.add(sha256(made).digest())
    return made


_OWN_PICKLES: set[bytes] = set()
"""Digests of the pickles that this process has made, and can trust wherever it finds them."""


def told(reference: Reference, new: NewVersion, more: Sequence[tuple[str, str]] = ()) -> Answer:
    """What the statement answers: what was trained, how good it is, and what may be unintended.

    Args:
        more: rows to add.
    """
    facts = new.training
    assert facts is not None
    found = [
        ("model", reference.name),
        ("model_type", f"{facts.model_type} by {facts.library}"),
        ("rows", f"{facts.rows:,}"),
        ("held_out", f"{facts.held_out:,}"),
        *((name, f"{value:.6g}") for name, value in facts.metrics.items() if value is not None),
        *(("notice", text) for text in facts.notices),
        ("seconds", f"{facts.seconds:.3g}"),
        *more,
    ]
    return rows(("property", "value"), found)
