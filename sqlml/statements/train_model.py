"""CREATE MODEL ... AS SELECT, ADD VERSION ... AS SELECT and RETRAIN: train, check and store."""

from __future__ import annotations

import operator
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from hashlib import sha256
from typing import Any

from sqlml.catalog.model import TRANSFORM, Model, NewVersion, Origin, Reference, TrainingFacts
from sqlml.catalog.small_models import FOLD, FoldFacts, FoldModels
from sqlml.errors import CatalogError, ConfigError, ModelExistsError, UntrustedArtifactError
from sqlml.explaining.decompositions import find_scaling
from sqlml.ir.builder import Builder
from sqlml.ir.ops import verify
from sqlml.ir.program import Program
from sqlml.long_work import long_work, show_stage
from sqlml.parsing.statements import Promotion, RetrainModel, Training, TrainModel, TrainVersion
from sqlml.passes.share_work import share_work
from sqlml.scorer.scorer import Scorer
from sqlml.statements.calibrate_model import calibrate_new_version, check_calibration_request
from sqlml.statements.connection_models import Answer, Models, format_pairs_answer, resolve_model
from sqlml.statements.create_model import ModelRequest, build_version, require_agreement
from sqlml.statements.describe_model import describe_small_model
from sqlml.statements.model_options import AT_CREATION, OUTPUT, STORED, select_user_options
from sqlml.statements.model_partitions import keep_definition, merge_partitions, select_rows
from sqlml.statements.show_create_model import decode_option, encode_option
from sqlml.training.conformal import append_programs
from sqlml.training.cross_validation import CrossValidation
from sqlml.training.model_types import MODEL_TYPES, compute_model_metrics
from sqlml.training.options.request import parse_request
from sqlml.training.train_estimator import parse_estimator_request
from sqlml.training.train_model_type import TrainedModel
from sqlml.types import fold
from sqlml.verifying.verification import verify_object

_MODEL_OPTIONS = (*STORED, "verify")
"""Options of a training statement that are stored with the model or control the verification."""

_OWN_PICKLES: set[bytes] = set()
"""Digests of the pickles that this process wrote, and therefore trusts."""

_COMPARISONS = {">=": operator.ge, ">": operator.gt, "<=": operator.le, "<": operator.lt}
"""Maps symbols of PROMOTE IF to comparisons of the new metric with the bound."""

_NO_HELD_OUT_ROWS = (
    "PROMOTE IF compares metrics on held-out rows, but the model's definition holds out none of "
    "these rows: leave out PROMOTE IF, or define the model with the option split = 'random' by "
    "CREATE OR REPLACE MODEL"
)


def train_model(models: Models, statement: TrainModel) -> Answer | None:
    """Carry out CREATE MODEL ... AS query."""
    reference = resolve_model(statement.name)
    version = train_and_create(
        models,
        reference,
        statement.training,
        or_replace=statement.or_replace,
        if_not_exists=statement.if_not_exists,
    )
    return None if version is None else _answer_training(reference, version)


def train_and_create(
    models: Models,
    reference: Reference,
    training: Training,
    estimator: Any = None,
    *,
    or_replace: bool,
    if_not_exists: bool,
) -> NewVersion | None:
    """Train and store a model; return the new version, or None if the model already exists.

    `estimator` is an unfitted Python object, or None to train the option `model_type`.
    """
    if if_not_exists and models.exists(reference):
        models.changes.report_existing(reference)
        return None
    if not or_replace and models.exists(reference):  # Check this before hours of training.
        raise ModelExistsError(
            f"model {reference.name!r} already exists; CREATE OR REPLACE MODEL (in Python: "
            "train(..., or_replace=True)) adds a version to it, DROP MODEL removes it"
        )
    models.changes.check_writable(reference)
    with long_work(f"training {reference.name}"):
        version = _build_trained_version(
            reference, training, _train_requested(models, training, estimator)
        )
        version = calibrate_new_version(models, reference, version)
        show_stage("storing it")
        models.changes.create(
            reference,
            version,
            description=training.description,
            or_replace=or_replace,
            if_not_exists=if_not_exists,
        )
    return version


def train_version(models: Models, reference: Reference, change: TrainVersion) -> Answer:
    """Carry out ALTER MODEL ... ADD VERSION ... AS query."""
    training = change.training
    models.catalog.version(Reference(reference.name, reference.database))
    models.changes.check_writable(reference)
    with long_work(f"training {reference.name}"):
        version = _build_trained_version(reference, training, _train_requested(models, training))
        version = calibrate_new_version(models, reference, version)
        show_stage("storing it")
        version = replace(version, comment=training.description.comment)
        models.versions.add(reference, version, change.number)
    return _answer_training(reference, version)


def retrain_model(models: Models, reference: Reference, change: RetrainModel) -> Answer:
    """Train a version again, on the current rows of its query or of another query.

    The new version becomes the default, unless it fails the condition of PROMOTE IF.
    """
    whole_model = Reference(reference.name, reference.database)
    model = models.catalog.get(reference)
    current = models.catalog.get(whole_model)
    facts = models.catalog.training(model)
    if facts is None:
        raise CatalogError(
            f"sqlml did not train model {model.label}: CREATE OR REPLACE MODEL ... AS SELECT does"
        )
    models.changes.check_writable(reference)
    definition = training = _read_definition(model, facts, change.query)
    if change.partition is not None:
        training = select_rows(definition, facts, change.partition, models.dialect)
    if change.promotion is not None:
        _check_promotion(models, change.promotion, facts, training, current)
    held_out_for = None if change.promotion is None else _NO_HELD_OUT_ROWS
    with long_work(f"retraining {reference.name}"):
        estimator = None if facts.model_type in MODEL_TYPES else load_estimator(models, reference)
        trained = _train_requested(models, training, estimator, held_out_for)
        show_stage("comparing it with the current version")
        promotion = change.promotion
        is_promoted, reason = _decide_promotion(models, promotion, training, trained, current)
        if change.partition is not None:
            trained = merge_partitions(model, facts, trained, change.partition)
        version = _build_trained_version(whole_model, definition, trained)
        if change.partition is not None:
            version = keep_definition(version, model, facts)
        version = calibrate_new_version(models, whole_model, version)
        show_stage("storing it")
        if is_promoted:
            models.changes.create(whole_model, version, or_replace=True)
        else:
            models.versions.add(whole_model, version)
    promoted = f"{'yes' if is_promoted else 'no'}{reason}"
    return _answer_training(whole_model, version, [("promoted", promoted)])


def _read_definition(model: Model, stored_facts: TrainingFacts, query: str | None) -> Training:
    options = {name: decode_option(value) for name, value in stored_facts.options.items()}
    options = {**options, **select_user_options(model.options)}
    if stored_facts.model_type not in MODEL_TYPES:
        options.pop("model_type", None)
    return Training(query or stored_facts.query, options, stored_facts.transform)


def _check_promotion(
    models: Models, promotion: Promotion, facts: TrainingFacts, training: Training, current: Model
) -> None:
    if promotion.metric not in facts.metrics:
        message = f"unknown metric {promotion.metric!r}; metrics: {', '.join(facts.metrics)}"
        raise ConfigError(message)
    if promotion.threshold is not None:
        return
    columns = {fold(name) for name in models.host.columns(models.runnable(training.query))}
    has_transform = current.transform is not None  # TRANSFORM reads columns of any type.
    needed_columns = [f.name for f in current.columns if has_transform or f.kind != "any"]
    missing = [name for name in needed_columns if fold(name) not in columns]
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
    """Return whether the new version becomes the default, and the reason for the answer."""
    if promotion is None:
        return True, ""
    if trained.held_out_rows is None or not trained.held_out:
        raise ConfigError(_NO_HELD_OUT_ROWS)
    metric = promotion.metric
    new_value = _read_metric(metric, trained.metrics)
    bound = promotion.threshold
    if bound is None:
        bound = _read_metric(metric, _measure_current(models, training, trained, current))
    is_reached = _COMPARISONS[promotion.symbol](new_value, bound)
    negation = "" if is_reached else "not "
    return is_reached, f": {metric} {new_value:.6g} is {negation}{promotion.symbol} {bound:.6g}"


def _measure_current(
    models: Models, training: Training, trained: TrainedModel, current: Model
) -> Mapping[str, float | None]:
    held_out = models.trainers.read_held_out(models.runnable(training.query), trained, current)
    labels = [] if trained.labels is None else list(trained.labels.values)
    if labels != [value for target in current.program.labels for value in target.values]:
        fault = f"the new version has other classes than {current.label}"
        raise ConfigError(f"{fault}: PROMOTE IF cannot compare them")
    scorer = Scorer(current.program, current.features, {})
    return compute_model_metrics(scorer, held_out, trained.request.task, len(labels))


def _read_metric(metric: str, metrics: Mapping[str, float | None]) -> float:
    value = metrics.get(metric)
    if value is None:
        raise ConfigError(
            f"the held-out rows do not define {metric}: they may be too few, or of one class only"
        )
    return value


def _train_requested(
    models: Models, training: Training, estimator: Any = None, held_out_for: str | None = None
) -> TrainedModel:
    """Train the requested model; `held_out_for` is the error to raise if no rows are held out."""
    if estimator is not None:
        request = parse_estimator_request(estimator, training.options, _MODEL_OPTIONS)
        held_out_for = held_out_for or check_calibration_request(request)
        request = replace(request, held_out_for=held_out_for)
        return models.trainers.train_estimator(models.runnable(training.query), estimator, request)
    request = parse_request(training.options, _MODEL_OPTIONS)
    held_out_for = held_out_for or check_calibration_request(request)
    if held_out_for is not None:
        if request.split.method == "none":
            raise ConfigError(held_out_for)
        request = replace(request, held_out_for=held_out_for)
    query = models.runnable(training.query)
    return models.trainers.train_model_type(query, request, training.transform)


def _build_trained_version(
    reference: Reference, training: Training, trained: TrainedModel
) -> NewVersion:
    request = trained.request
    options = {n: v for n, v in request.stored_options.items() if n in STORED or n in AT_CREATION}

    def build(model: Any) -> NewVersion:
        version = build_version(model, ModelRequest(reference, options=options))
        if trained.labels is None or len(version.program.labels) != 1:
            return version
        return replace(version, program=replace(version.program, labels=(trained.labels,)))

    version = build(trained.model)
    validation = trained.cross_validation
    if validation is not None:
        programs = [build(fit.model).program for fit in validation.fits]
        facts = _collect_fold_facts(validation, request.seed)
        fold_models = FoldModels(_combine_folds(programs, version.program), facts)
        version = replace(version, small_models=(*version.small_models, fold_models))
    transform = trained.columns.build_transform([feature.name for feature in version.features])
    stored_options = {
        **version.options,
        **({} if request.label is None else {OUTPUT: request.label}),
        **({} if transform is None else {TRANSFORM: transform.to_json()}),
    }
    verify = request.stored_options.get("verify", True)
    if trained.samples and verify is not False:
        version = replace(version, verification=_verify_partitions(trained, verify is True))
    keeps_estimator = request.keep_estimator and not trained.samples
    library_version = trained.versions.get(request.library)
    library = request.library + ("" if library_version is None else f" {library_version}")
    return replace(
        version,
        options=stored_options,
        origin=Origin(request.model_type, library),
        training=_collect_facts(training, trained, version.program),
        estimator=_pickle_estimator(trained.model) if keeps_estimator else None,
        transform=transform,
    )


def _verify_partitions(trained: TrainedModel, requires_agreement: bool) -> Mapping[str, Any]:
    """Compare the models of some partitions with their source, and return the least exact result.

    Raise VerificationError if `requires_agreement` and one of them predicts differently.
    """
    show_stage("comparing it with its source")
    comparisons = []
    for model, program in trained.samples:
        comparison = verify_object(model, program, program.features)
        if requires_agreement:
            require_agreement(model, comparison)
        comparisons.append(comparison)
    return min(comparisons, key=lambda comparison: comparison.agrees).to_dict()


def _collect_facts(training: Training, trained: TrainedModel, program: Program) -> TrainingFacts:
    request, inference = trained.request, trained.inference
    return TrainingFacts(
        model_type=request.model_type,
        library=request.library,
        query=training.query,
        options={name: encode_option(value) for name, value in request.options.items()},
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
        features=tuple(column.to_dict() for column in trained.statistics),
        trials=trained.trials,
        pipeline=repr(trained.samples[0][0] if trained.samples else trained.model),
        notices=(*request.notices, *trained.notices),
        versions=trained.versions,
        partitions=trained.partitions,
        seconds=round(trained.seconds, 3),
        inference=() if inference is None else inference.tabulate(*find_scaling(program)),
    )


def _collect_fold_facts(validation: CrossValidation, seed: int) -> FoldFacts:
    folds, names = validation.folds, tuple(validation.fits[0].metrics)
    return FoldFacts(
        method=folds.rule.method,
        column=folds.rule.column or "",
        seed=seed,
        bounds=folds.bounds,
        metrics=names,
        folds=tuple(
            (fit.fitted, fit.measured, *(fit.metrics.get(name) for name in names))
            for fit in validation.fits
        ),
    )


def _combine_folds(programs: Sequence[Program], final: Program) -> Program:
    """Return a Program with the `label` and `proba` of the fold that its input `FOLD` names."""
    if any(FOLD in program.inputs for program in programs):
        raise ConfigError(f"option cv: rename the column {FOLD!r} in the query")
    builder = Builder()
    all_outputs = append_programs(builder, programs)
    fold_number = builder.input(FOLD, "float64")
    chosen = {}
    for name in ("label", "proba"):
        if name not in final.outputs:
            continue
        value = all_outputs[0][name]
        for number, outputs in enumerate(all_outputs[1:], 2):
            is_fold = builder.op("eq", fold_number, float(number))
            value = builder.op("where", is_fold, outputs[name], value)
        chosen[name] = value
    return share_work(verify(builder.build(chosen, final.labels)))


def _pickle_estimator(model: Any) -> bytes | None:
    try:
        content = pickle.dumps(model)
    except Exception:  # Objects that cannot be pickled may raise any exception.
        return None
    _OWN_PICKLES.add(sha256(content).digest())
    return content


def load_estimator(models: Models, reference: Reference) -> Any:
    """Load the fitted object of a version that sqlml trained, if unpickling it is allowed."""
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


def _describe_folds(version: NewVersion) -> list[tuple[str, str]]:
    folds = (small for small in version.small_models if isinstance(small, FoldModels))
    return [pair for small in folds for pair in describe_small_model(small.facts)[:1]]


def _answer_training(
    reference: Reference, version: NewVersion, extra_pairs: Sequence[tuple[str, str]] = ()
) -> Answer:
    facts = version.training
    assert facts is not None
    pairs = [
        ("model", reference.name),
        ("model_type", f"{facts.model_type} by {facts.library}"),
        ("rows", f"{facts.rows:,}"),
        ("held_out", f"{facts.held_out:,}"),
        *((name, f"{value:.6g}") for name, value in facts.metrics.items() if value is not None),
        *_describe_folds(version),
        *(("notice", notice) for notice in facts.notices),
        ("seconds", f"{facts.seconds:.3g}"),
        *extra_pairs,
    ]
    return format_pairs_answer(("property", "value"), pairs)
