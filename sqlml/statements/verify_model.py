"""VERIFY MODEL: compare a model with its source, and small models with the full model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from sqlml.catalog.model import Model
from sqlml.catalog.small_models import (
    COVERAGE,
    DEFAULT_COVERAGE,
    Calibration,
    Cascade,
    FoldModels,
    SmallModel,
    TopKFilter,
)
from sqlml.errors import ConfigError, MissingColumnError
from sqlml.host import Host
from sqlml.importers.file_formats import check_trusted
from sqlml.importers.model_file import read_file
from sqlml.long_work import long_work, show_stage
from sqlml.parsing.statements import VerifyModel
from sqlml.passes.fold_arguments import fold_input
from sqlml.planner.table_functions.evaluated_model import has_calibration_columns
from sqlml.scorer.input_table import read_program_inputs
from sqlml.statements.connection_models import Answer, Models, resolve_name
from sqlml.statements.learn_small_models import encode_labels, fetch_rows, find_label_column
from sqlml.training.cascades.last_estimator import compute_output
from sqlml.training.cascades.learn import measure_cascade_loss, measure_filter_loss
from sqlml.types import fold
from sqlml.verifying.source import SourceModel, open_source
from sqlml.verifying.verification import verify_rows

_COLUMNS = {
    "output": "VARCHAR",
    "rows": "BIGINT",
    **dict.fromkeys(("max_difference", "max_deviation", "allowed"), "DOUBLE"),
    "label_flips": "BIGINT",
    "agrees": "BOOLEAN",
}


def verify_model(models: Models, statement: VerifyModel) -> Answer:
    """Carry out VERIFY MODEL ... USING (query) [AGAINST 'path'].

    The answer has a row for each small model and, if the source file of the model is known, a row
    for each output. A cascade or calibration is measured only if the query returns the true labels.
    """
    model = models.catalog.get(resolve_name(statement.name))
    small_models = models.catalog.small_models(model)
    path = statement.against or model.origin.path
    if path is None and not small_models:
        raise ConfigError(
            f"model {model.label} was made from a Python object, which is not stored; name a file "
            "of the original: VERIFY MODEL ... USING (...) AGAINST 'path'"
        )
    with long_work(f"verifying {model.label}"):
        has_source = path is not None
        opened = _open_source(models, model, statement.against) if has_source else nullcontext()
        with opened as source:
            show_stage("fetching the rows")
            frame = _fetch_features(models.host, statement.query, model)
            show_stage("comparing the predictions")
            rows = [] if source is None else _compare_outputs(source, model, frame)
        rows += _measure_small_models(model, small_models, frame)
    if not rows:
        measured = (Cascade, Calibration)
        labels = [s.facts.label for s in small_models.values() if isinstance(s, measured)]
        raise ConfigError(
            f"the query has no column {', '.join(labels)} with the true labels, by which the "
            f"cascade or calibration of {model.label} is measured, and the model was made from a "
            "Python object, which is not stored; add the column, or name a file of the original: "
            "AGAINST 'path'"
        )
    placeholders = ", ".join("?" * len(_COLUMNS))
    values = ", ".join(f"({number}, {placeholders})" for number in range(len(rows)))
    columns = ", ".join(f"CAST({name} AS {kind}) AS {name}" for name, kind in _COLUMNS.items())
    values_table = f"(VALUES {values}) t(row_number, {', '.join(_COLUMNS)})"
    query = f"SELECT {columns} FROM {values_table} ORDER BY row_number"
    return query, [value for row in rows for value in row]


def _open_source(
    models: Models, model: Model, against: str | None
) -> AbstractContextManager[SourceModel]:
    origin = model.origin
    path = str(origin.path) if against is None else against
    sha256 = origin.sha256 if against is None else None
    format = "AUTO" if against is not None else origin.format or "AUTO"
    allow_pickle = models.allow_pickle
    check_trusted(format, path, allow_pickle)  # Check this before looking for the file.
    file = read_file(path, models.host, format=format, sha256=sha256, allow_pickle=allow_pickle)
    return open_source(file, model.program, allow_pickle=allow_pickle)


def _fetch_features(host: Host, query: str, model: Model) -> Any:
    frame = fetch_rows(host, query, model, "VERIFY MODEL ...")
    if frame.empty:
        raise ConfigError("the query of VERIFY MODEL returns no rows, so nothing is compared")
    columns = {fold(str(column)) for column in frame.columns}
    missing = [feature.name for feature in model.features if fold(feature.name) not in columns]
    if missing:
        column_names = ", ".join(map(str, frame.columns))
        message = f"model {model.label} needs {', '.join(missing)}; the query has {column_names}"
        raise MissingColumnError(message)
    return frame


def _compare_outputs(source: SourceModel, model: Model, frame: Any) -> list[tuple[Any, ...]]:
    columns_by_name = {fold(str(column)): column for column in frame.columns}
    names = [feature.name for feature in model.features]
    features = frame[[columns_by_name[fold(name)] for name in names]].set_axis(names, axis=1)
    verification = verify_rows(source, model.program, model.features, model.options, features)
    return [
        (d.output, d.rows, d.absolute, d.relative, d.tolerance, d.flips, d.agrees)
        for d in verification.differences
    ]


def _measure_small_models(
    model: Model, small_models: Mapping[str, SmallModel], frame: Any
) -> Iterator[tuple[Any, ...]]:
    for small_model in small_models.values():
        match small_model:
            case Cascade(facts=facts):
                if fold(facts.label) not in {fold(str(column)) for column in frame.columns}:
                    continue
                codes = encode_labels(frame[find_label_column(facts.label, model, frame)], model)
                if (codes < 0).all():
                    raise ConfigError(f"all labels in column {facts.label} are NULL")
                inputs = read_program_inputs(model.program, frame[codes >= 0])
                loss = measure_cascade_loss(model.program, small_model, inputs, codes[codes >= 0])
                name = "cascade"
            case Calibration():
                yield from _measure_coverage(model, small_model, frame)
                continue
            case FoldModels():
                continue
            case TopKFilter():
                inputs = read_program_inputs(model.program, frame)
                loss = measure_filter_loss(model.program, small_model, inputs)
                name = "top_k filter"
        yield name, loss.rows, loss.loss, None, loss.allowed, loss.differing, loss.agrees


_SIGMAS = 3.0
"""Standard deviations by which the share of uncovered rows may exceed the promised share."""


def _measure_coverage(
    model: Model, calibration: Calibration, frame: Any
) -> Iterator[tuple[Any, ...]]:
    """Yield the share of labels outside the intervals or sets of the default coverage.

    Nothing is yielded if the rows lack the label or a column of the calibration. Both the rows and
    the calibration rows are samples, so the share varies around the promise.
    """
    facts = calibration.facts
    names = list(map(str, frame.columns))
    has_label = fold(facts.label) in map(fold, names)
    if not has_label or not has_calibration_columns(model, calibration, names):
        return
    labels = frame[find_label_column(facts.label, model, frame)]
    is_labelled = labels.notna().to_numpy()
    count = int(is_labelled.sum())
    if not count:
        raise ConfigError(f"all labels in column {facts.label} are NULL")
    coverage = min(DEFAULT_COVERAGE, facts.highest)
    program = fold_input(calibration.small, COVERAGE, coverage)
    result = compute_output(
        program, calibration.output, read_program_inputs(program, frame[is_labelled])
    )
    if calibration.output == "set":
        is_covered = result[np.arange(count), encode_labels(labels[is_labelled], model)] > 0
    else:
        truth = labels[is_labelled].to_numpy(np.float64)
        is_covered = (result[:, 0] <= truth) & (truth <= result[:, 1])
    missed = count - int(is_covered.sum())
    deviation = math.sqrt(coverage * (1 - coverage) * (1 / count + 1 / facts.rows))
    allowed = 1 - coverage + _SIGMAS * deviation
    share = missed / count
    yield calibration.output, count, share, None, allowed, missed, share <= allowed
