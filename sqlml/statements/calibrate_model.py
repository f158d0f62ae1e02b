"""ALTER MODEL ... CALIBRATE: compute conformity scores from the rows of a query, and store them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, replace
from importlib import import_module
from importlib.metadata import version as version_of
from numbers import Number
from typing import Any

import numpy as np

from sqlml.catalog.model import (
    Model,
    NewVersion,
    Origin,
    Reference,
    TrainingFacts,
    parse_reference,
)
from sqlml.catalog.small_models import COVERAGE, Calibration, CalibrationFacts
from sqlml.errors import ConfigError
from sqlml.importers.frame import to_category_array, to_python
from sqlml.ir.operators.categories import MAX_EXACT_INTEGER
from sqlml.ir.program import Program
from sqlml.parsing.statements import Calibrate
from sqlml.scorer.input_table import read_program_inputs
from sqlml.statements.connection_models import Answer, Models, format_pairs_answer
from sqlml.statements.describe_model import describe_small_model
from sqlml.statements.learn_small_models import (
    check_option_names,
    encode_labels,
    fetch_rows,
    find_label_column,
    select_column,
)
from sqlml.statements.model_options import ESTIMATOR, OUTPUT
from sqlml.training import calibrated_probabilities
from sqlml.training.conformal import (
    METHODS,
    CalibrationTask,
    Groups,
    calibrate,
    check_classes,
    find_calibration_options,
)
from sqlml.training.options.request import Request
from sqlml.types import Array, fold

_OPTIONS = ("label", "method", "by", "weight", "difficulty", "beta", "lower", "upper", "symmetric")

_OPTIONS_OF_METHODS: Mapping[str, tuple[str, ...]] = {
    "difficulty": ("normalized",),
    "beta": ("normalized",),
    "lower": ("cqr",),
    "upper": ("cqr",),
    "symmetric": ("split", "normalized", "cqr"),
}
"""Maps an option to the methods that it belongs to."""

_PURPOSES = {"by": "the groups", "weight": "the weights"}

_DEFAULT_BETA = 0.01  # The default of crepes.


def calibrate_model(models: Models, reference: Reference, change: Calibrate) -> Answer:
    """Carry out CALIBRATE [USING (query)] OPTIONS (label = ..., method = ..., ...)."""
    model = models.catalog.get(reference)
    facts = models.catalog.training(model)
    method = _read_method(change.options)
    if method in calibrated_probabilities.METHODS:
        return _add_calibrated_version(models, reference, model, facts, change, method)
    calibration = _calibrate(models, model, facts, change.query, change.options)
    models.versions.add_small_model(model, calibration)
    return format_pairs_answer(("property", "value"), describe_small_model(calibration.facts))


def _add_calibrated_version(
    models: Models,
    reference: Reference,
    model: Model,
    training: TrainingFacts | None,
    change: Calibrate,
    method: str,
) -> Answer:
    """Add a version whose probabilities are calibrated, without making it the default."""
    options = change.options
    check_option_names(options, ("label", "method", "weight"), f"CALIBRATE with method {method!r}")
    if not _is_classifier(model.program):
        message = f"model {model.label} has no probabilities of classes for one label"
        raise ConfigError(message)
    frame, label = _fetch_labelled_rows(models, model, training, change.query, options)
    weight = _find_column(options, "weight", frame)
    program = calibrated_probabilities.calibrate_probabilities(
        model.program,
        method,
        read_program_inputs(model.program, frame),
        encode_labels(frame[label], model),
        None if weight is None else _read_weights(frame, weight),
        by_score="score" in model.program.outputs and _has_decision_function(model),
    )
    source = f"CalibratedClassifierCV({method}) of version {model.version}"
    version = NewVersion(
        program,
        model.features,
        model.used_features,
        Origin(source, f"sklearn {version_of('scikit-learn')}"),
        {name: value for name, value in model.options.items() if name != ESTIMATOR},
        transform=model.transform,
    )
    whole_model = Reference(reference.name, reference.database)
    models.versions.add(whole_model, version)
    number = models.catalog.version(replace(whole_model, alias="last"))
    description = [
        ("version", str(number)),
        ("method", method),
        ("label", label),
        ("rows", f"{len(frame):,}"),
        ("default", f"no; ALTER MODEL ... SET DEFAULT_VERSION = {number} makes it the default"),
    ]
    return format_pairs_answer(("property", "value"), description)


def _is_classifier(program: Program) -> bool:
    return len(program.labels) == 1 and "proba" in program.outputs


_WITHOUT_DECISION_FUNCTION = ("xgboost", "catboost")
"""Libraries whose classifiers have no `decision_function`, although sqlml has their scores."""


def _has_decision_function(model: Model) -> bool:
    """Return whether scikit-learn would calibrate the scores of a model, not its probabilities."""
    origin = f"{model.origin.library} {model.origin.source} {model.options.get(ESTIMATOR, '')}"
    if "lightgbm" in origin:
        with suppress(ImportError):  # Old versions have no decision_function.
            return hasattr(import_module("lightgbm").LGBMClassifier, "decision_function")
    return not any(library in origin for library in _WITHOUT_DECISION_FUNCTION)


def calibrate_new_version(models: Models, reference: Reference, version: NewVersion) -> NewVersion:
    """Calibrate a trained version on its held-out rows if its options request this."""
    facts = version.training
    options = {} if facts is None else find_calibration_options(facts.options)
    if not options:
        return version
    content: dict[str, Any] = {f.name: getattr(version, f.name) for f in fields(version)}
    identity: dict[str, Any] = {"name": reference.name, "version": 0, "created_at": None}
    model = Model(**content, **identity, database=reference.database)
    calibration = _calibrate(models, model, facts, None, options)
    return replace(version, small_models=(*version.small_models, calibration))


def check_calibration_request(request: Request) -> str | None:
    """Check the options of a training that request a calibration, before the training.

    Return the error to raise if the training holds out no rows, or None if none is requested.
    """
    options = find_calibration_options(request.options)
    if not options:
        return None
    method = str(options.get("method", "mondrian")).lower()
    allowed = _METHODS_AT_TRAINING.get(request.task, ())
    if method not in allowed:
        raise ConfigError(
            f"option calibration: {method!r} does not fit {request.model_type} models; "
            + (f"methods: {', '.join(allowed)}" if allowed else "they cannot be calibrated")
        )
    return (
        "option calibration needs held-out rows, and the training holds out none of these rows: "
        "set split = 'random', or leave it out and use ALTER MODEL ... CALIBRATE USING (query)"
    )


_METHODS_AT_TRAINING = {
    "regress": ("split", "mondrian"),
    "classify": ("lac", "aps", "mondrian"),
}
"""Maps tasks to the methods that need no further models."""


def _find_held_out_rows(models: Models, model: Model, facts: TrainingFacts | None) -> str:
    rows = None if facts is None else models.trainers.find_held_out_rows(facts)
    if rows is None:
        raise ConfigError(
            f"sqlml held out no rows for model {model.label}: name rows that the model was not "
            "trained on, as in CALIBRATE USING (SELECT ...)"
        )
    return f"FROM {rows} AS sqlml_held_out"


def _calibrate(
    models: Models,
    model: Model,
    training: TrainingFacts | None,
    query: str | None,
    options: Mapping[str, Any],
) -> Calibration:
    check_option_names(options, _OPTIONS, "CALIBRATE")
    method = _choose_method(model, options)
    others = _find_other_models(models, model, method, options)
    frame, label = _fetch_labelled_rows(models, model, training, query, options)
    by, weight = (_find_column(options, name, frame) for name in ("by", "weight"))
    program = model.program
    if METHODS[method].makes_sets:
        truth = encode_labels(frame[label], model)
    else:
        truth = _read_numbers(frame, label)
    groups = None if by is None else _find_groups(model, frame, by, label)
    check_classes(truth, program, groups)
    rows: dict[str, Array] = {}
    for read_program in (program, *others):
        rows |= read_program_inputs(read_program, frame)
    task = CalibrationTask(
        program=program,
        others=others,
        method=method,
        rows=rows,
        truth=truth,
        groups=groups,
        weights=None if weight is None else _read_weights(frame, weight),
        beta=_read_beta(options),
        symmetric=_read_symmetric(options),
    )
    calibrated = calibrate(task)
    facts = CalibrationFacts(
        query="" if query is None else query.strip(),
        method=method,
        label=label,
        by=by or "",
        weight=weight or "",
        difficulty=str(options.get("difficulty", "")),
        beta=task.beta,
        lower=str(options.get("lower", "")),
        upper=str(options.get("upper", "")),
        symmetric=task.symmetric,
        rows=len(frame),
        groups=len(calibrated.group_rows),
        smallest=int(calibrated.group_rows.min()),
        highest=calibrated.highest,
    )
    return Calibration(calibrated.program, facts)


def _fetch_labelled_rows(
    models: Models,
    model: Model,
    training: TrainingFacts | None,
    query: str | None,
    options: Mapping[str, Any],
) -> tuple[Any, str]:
    """Return the calibration rows that have a label, as a pandas frame, and the label column."""
    rows_query = _find_held_out_rows(models, model, training) if query is None else query.strip()
    frame = fetch_rows(models.host, rows_query, model, "ALTER MODEL ... CALIBRATE")
    label = find_label_column(options.get("label", model.options.get(OUTPUT)), model, frame)
    frame = frame[frame[label].notna().to_numpy()].reset_index(drop=True)
    if frame.empty:
        raise ConfigError(
            f"no row to calibrate on has a label in column {label!r}: CALIBRATE needs rows with "
            "true labels that the model was not trained on"
        )
    return frame, label


def _choose_method(model: Model, options: Mapping[str, Any]) -> str:
    """Return the method of the options, or the default for the model; raise if it does not fit."""
    program = model.program
    if COVERAGE in program.inputs:
        message = f"model {model.label} has a feature called {COVERAGE!r}: rename it to calibrate"
        raise ConfigError(message)
    is_classifier = _is_classifier(program)
    is_regressor = not program.labels and "label" in program.outputs
    if not is_classifier and not is_regressor:
        reason = "predicts neither numbers nor probabilities of classes for one label"
        raise ConfigError(f"model {model.label} {reason}, so it cannot be calibrated")
    method = _read_method(options) or ("mondrian" if "by" in options else None)
    if method == "mondrian" and "by" not in options:
        message = "method 'mondrian' needs groups: OPTIONS (by = 'column')"
        raise ConfigError(message)
    if method in (None, "mondrian"):
        method = "lac" if is_classifier else "split"
    fitting = [name for name, m in METHODS.items() if m.makes_sets == is_classifier]
    if method not in fitting:
        result = "classes" if is_classifier else "a number"
        further = calibrated_probabilities.METHODS if is_classifier else ()
        listing = ", ".join(["mondrian", *fitting, *further])
        raise ConfigError(
            f"method {method!r} does not fit model {model.label}, which predicts {result}; "
            f"methods: {listing}"
        )
    if is_regressor and program.target_count > 1 and (method != "cqr" or "lower" in options):
        raise ConfigError(
            f"model {model.label} predicts {program.target_count} targets, and an interval is for "
            "one; only method 'cqr' takes several, the first and last being quantiles"
        )
    for option, methods in _OPTIONS_OF_METHODS.items():
        if option in options and method not in methods:
            message = f"option {option!r} belongs to method {' or '.join(methods)}, not {method}"
            raise ConfigError(message)
    return str(method)


def _read_method(options: Mapping[str, Any]) -> str | None:
    method = options.get("method")
    return method.lower() if isinstance(method, str) else method


def _find_other_models(
    models: Models, model: Model, method: str, options: Mapping[str, Any]
) -> tuple[Program, ...]:
    """Return the Programs of the models that a method reads beside the calibrated one."""
    if method == "normalized" and "difficulty" not in options:
        raise ConfigError(
            "method 'normalized' needs a model of how far predictions are off: CREATE MODEL "
            f"difficulty ... AS SELECT ..., abs(y - predict('{model.name}', *)) AS label, and then "
            "OPTIONS (method = 'normalized', difficulty = 'difficulty')"
        )
    if method == "cqr" and model.program.target_count == 1 or "lower" in options:
        for option in ("lower", "upper"):
            if option not in options:
                raise ConfigError(
                    "method 'cqr' needs models of a low and a high quantile: OPTIONS (method = "
                    f"'cqr', lower = 'model', upper = 'model'); {option} is missing"
                )
    names = [options[o] for o in ("difficulty", "lower", "upper") if o in options]
    return tuple(_load_other_model(models, name) for name in names)


def _load_other_model(models: Models, name: Any) -> Program:
    if not isinstance(name, str):
        raise ConfigError(f"expected the name of a model, not {name!r}")
    other = models.catalog.get(parse_reference(name))
    program = other.program
    if program.labels or "label" not in program.outputs or program.target_count != 1:
        raise ConfigError(f"model {other.label} does not predict a number")
    if other.transform is not None:
        raise ConfigError(
            f"model {other.label} {other.transform.summary()}: train it on columns that the query "
            "computes"
        )
    return program


def _find_column(options: Mapping[str, Any], option: str, frame: Any) -> str | None:
    name = options.get(option)
    return None if name is None else select_column(frame, name, _PURPOSES[option])


def _read_numbers(frame: Any, column: str) -> Array:
    """Return a column of finite numbers as float64 (n,); raise ConfigError for other values."""
    is_number = frame[column].map(lambda value: isinstance(value, Number | np.bool_)).all()
    values = frame[column].to_numpy(np.float64) if is_number else np.full(1, np.nan)
    if not np.isfinite(values).all():
        raise ConfigError(f"column {column!r} must have finite numbers")
    return np.asarray(values)


def _read_weights(frame: Any, column: str) -> Array:
    weights = _read_numbers(frame, column)
    if not (weights > 0).all():
        raise ConfigError(f"column {column!r} has weights, which must be positive")
    return weights


def _read_beta(options: Mapping[str, Any]) -> float:
    beta = options.get("beta", _DEFAULT_BETA)
    if type(beta) not in (int, float) or not 0 < beta < float("inf"):
        raise ConfigError(f"option 'beta' must be a positive number, not {beta!r}")
    return float(beta)


def _read_symmetric(options: Mapping[str, Any]) -> bool:
    symmetric = options.get("symmetric", True)
    if not isinstance(symmetric, bool):
        raise ConfigError(f"option 'symmetric' must be true or false, not {symmetric!r}")
    return symmetric


def _find_groups(model: Model, frame: Any, by: str, label: str) -> Groups:
    program = model.program
    if by == COVERAGE:
        raise ConfigError(f"option 'by' takes no column called {COVERAGE!r}: rename it")
    if program.labels and fold(by) == fold(label):
        labels = program.labels[0]
        return Groups(
            column=None, categories=np.array(labels.values), codes=encode_labels(frame[by], model)
        )
    values = frame[by]
    is_null = values.isna().to_numpy()
    categories, codes = _encode_groups(values.to_numpy(object)[~is_null], by)
    all_codes = np.full(len(frame), len(categories), np.int64)
    all_codes[~is_null] = codes
    names = {fold(name): name for name in program.inputs}
    return Groups(column=names.get(fold(by), by), categories=categories, codes=all_codes)


def _encode_groups(values: Array, column: str) -> tuple[Array, Array]:
    """Return the distinct values as the categories of `Groups`, and the index of each value."""
    plain_values = to_python(values.tolist())
    for value in plain_values:
        is_number = isinstance(value, int | float) and abs(value) <= MAX_EXACT_INTEGER
        if not is_number and (not isinstance(value, str) or "\0" in value):
            raise ConfigError(
                f"option 'by' takes a column of strings, booleans or integers up to 2^53, and "
                f"column {column!r} contains {value!r:.40}: cast it to VARCHAR"
            )
    if not plain_values:
        raise ConfigError(f"column {column!r} is NULL in all rows, so option 'by' makes no groups")
    distinct = list(dict.fromkeys(plain_values))
    codes = {value: code for code, value in enumerate(distinct)}
    categories = to_category_array(distinct, column)
    return categories, np.array([codes[value] for value in plain_values], np.int64)
