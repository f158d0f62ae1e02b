"""Train a type of model on the rows of a query.

::

    query -> columns -> rows, split, checked -> features -> estimator, fitted -> metrics
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from importlib.metadata import version
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.dialects.type_names import NUMBERS, UNTYPED
from sqlml.errors import ConfigError, SqlmlError
from sqlml.host import RowHost
from sqlml.scorer.evaluate import Metrics
from sqlml.training.column_statistics import ColumnStatistics
from sqlml.training.cross_validation import CrossValidation, Folds, cross_validate
from sqlml.training.fitting.checkpoint import Checkpoint, FitArguments
from sqlml.training.fitting.fit import fit, make_training_error
from sqlml.training.fitting.tuning import FitResult, Trials, is_end_of_trial, tune
from sqlml.training.model_types import (
    SUPERVISED,
    MeasuredRows,
    compute_measured_metrics,
    compute_model_metrics,
    find_block_estimator,
    predict_measured,
)
from sqlml.training.options.estimator_parameters import order_constraints
from sqlml.training.options.folds import FoldRule
from sqlml.training.options.request import Request
from sqlml.training.options.splits import SplitRule
from sqlml.training.progress import TrainingLog
from sqlml.training.row_store import EstimatorRows, StoredRows, sample_rows
from sqlml.training.rows.check_rows import check_rows, find_keys
from sqlml.training.rows.estimator_input import (
    assemble_model,
    build_frame,
    encode_blocks,
    make_part,
    read_held_out,
    select_matrix,
)
from sqlml.training.rows.feature_pipeline import (
    FOLDS,
    FeatureGroups,
    find_text_columns,
    group_features,
    learns_in_blocks,
    make_transformer,
)
from sqlml.training.rows.read_rows import (
    MEMORY_SHARES,
    SplitSide,
    TrainingRows,
    check_memory,
    read_rows,
)
from sqlml.training.rows.training_columns import TrainingColumns, read_columns
from sqlml.training.standard_errors import Inference, infer
from sqlml.types import Array, Labels

MAX_MEASURED_ROWS = 100_000
"""Rows on which metrics are computed if none are held out."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainedModel:
    """A trained model with the facts that are stored with it.

    model: the fitted pipeline. labels: the classes in their SQL type, or None without classes.
    rows, held_out: the numbers of fitted and of held-out rows. metrics: metrics on the held-out
    rows, or on the fitted rows if no rows are held out. statistics: statistics of the features.
    notices: messages for the user. held_out_rows: a function that reads the held-out rows as a
    pandas frame, or None if no rows are held out. columns: the columns of the query. trials: the
    trials of a search, as in `TrainingFacts.trials`. measured: the predictions for the rows of the
    metrics. partitions: the values, numbers of fitted and held-out rows, metrics and seconds of
    each partition. samples: the fitted objects and Programs of some partitions, if `model` is the
    Program of all partitions. cross_validation: the models of the folds, or None.
    inference: the uncertainty of the weights, if calculate_p_values is set.
    """

    model: Any
    labels: Labels | None
    request: Request
    split: SplitRule
    rows: int
    held_out: int
    metrics: Metrics
    log: TrainingLog
    statistics: tuple[ColumnStatistics, ...]
    notices: tuple[str, ...]
    versions: Mapping[str, str]
    seconds: float
    held_out_rows: Callable[[], EstimatorRows] | None
    columns: TrainingColumns
    trials: Trials = ()
    measured: MeasuredRows | None = None
    partitions: tuple[tuple[Any, ...], ...] = ()
    samples: tuple[tuple[Any, Any], ...] = ()
    cross_validation: CrossValidation | None = None
    inference: Inference | None = None


def train(
    host: RowHost,
    query: str,
    request: Request,
    transform: Sequence[str] | None = None,
    *,
    inlines: bool = True,
    identity: str = "",
) -> TrainedModel:
    """Train the requested model on the rows of a query, with the features of TRANSFORM (...).

    `inlines` says whether the scoring engine can compute features in a query. `identity` is the
    query as the user wrote it, which identifies a checkpoint. If the settings of the engine forbid
    the folder of the checkpoint, duckdb.PermissionException is raised.
    """
    start = time.perf_counter()
    if request.checkpoint is not None:
        host.check_access(os.path.join(request.checkpoint, "training.checkpoint"))
    columns, request = read_columns(host, query, request, transform)
    if not inlines:
        columns = columns.drop_expressions()
    if not columns.features:
        raise ConfigError("the query has no column that a model can learn from")
    log = TrainingLog()
    try:
        rows = read_rows(host, query, columns, request, log.progress)
        trained = train_on_rows(rows, columns, request, log, inlines, identity or query)
    finally:
        log.progress.close()
    return replace(trained, seconds=time.perf_counter() - start)


def train_on_rows(
    rows: TrainingRows,
    columns: TrainingColumns,
    request: Request,
    log: TrainingLog,
    inlines: bool,
    identity: str,
) -> TrainedModel:
    """Train the requested model on `rows`; the other arguments are those of `train`."""
    if rows.held_out is None and request.held_out_for is not None:
        raise ConfigError(request.held_out_for)
    keys = find_keys(rows)
    text_columns = find_text_columns(rows.features, rows.names, keys, request)
    label_type = None if columns.label is None else columns.label.type
    notices = [
        *_report_left_out(columns, inlines),
        *_report_no_stop(rows, request),
        *check_rows(rows, request, text_columns, label_type),
    ]
    statistics = rows.statistics
    ignored = {name for name in statistics if statistics[name].is_empty} | (keys - text_columns)
    features = [feature for feature in rows.features if feature.name not in ignored]
    if not features:
        raise ConfigError("the query has no column that a model can learn from")
    filled_texts = [name for name in text_columns if statistics[name].null_count]
    if filled_texts and not inlines:
        advice = f"write coalesce({filled_texts[0]}, '') in the query"
        raise ConfigError(f"column {filled_texts[0]!r} contains strings and NULLs: {advice}")
    groups = group_features(features, rows.names, text_columns, request)
    if request.encoding == "dummy":
        _reject_missing_categories(groups, statistics)
    request, storage_notices = _settle_storage(rows, groups, request)
    notices += storage_notices
    try:
        prepared = _prepare_rows(rows, groups, request)
    except ValueError as error:  # A transformer raises it.
        raise ConfigError(f"the columns cannot be encoded: {error}") from error
    checkpoint = prepared.open_checkpoint(identity)
    trials: Trials = ()
    parameters = request.parameters
    fit_result = cross_validation = None
    if request.folds is not None:
        validator = _Validator(prepared, _divide(rows, request.folds))
        if request.searched:
            best, trials = tune(validator.fit, request, log, None)
        else:
            best = validator.fit(parameters, log)
        parameters, cross_validation = best.estimator
    elif request.searched:
        fit_result, trials = tune(prepared.fit, request, log, checkpoint)
    if fit_result is None:
        fit_result = prepared.fit(parameters, log, checkpoint)
    has_held_out = rows.held_out is not None
    metrics = fit_result.metrics
    if cross_validation is not None and not has_held_out:
        metrics = cross_validation.metrics
    inference = None
    if request.calculate_p_values:
        inference = infer(fit_result.estimator, prepared.fitted)
    return TrainedModel(
        model=assemble_model(prepared.transformer, fit_result.estimator, rows.classes),
        labels=None if rows.classes is None else rows.classes.labels(),
        request=request,
        split=rows.split,
        rows=rows.fitted.rows,
        held_out=0 if rows.held_out is None else rows.held_out.rows,
        metrics=metrics,
        log=fit_result.log,
        statistics=tuple(statistics[f.name] for f in features),
        notices=tuple(notices),
        versions=collect_versions(request),
        seconds=0.0,  # `train` sets the seconds.
        held_out_rows=partial(read_held_out, rows, groups, request) if has_held_out else None,
        columns=columns.fill_texts(filled_texts),
        trials=trials,
        measured=fit_result.measured,
        cross_validation=cross_validation,
        inference=inference,
    )


def _divide(rows: TrainingRows, rule: FoldRule) -> Folds:
    numbers, side = np.asarray(rows.folds), rows.fitted
    folds = Folds(
        rule, numbers, rows.fold_bounds, np.asarray(side.label), side.weight, rows.classes
    )
    folds.check()
    return folds


def _reject_missing_categories(
    groups: FeatureGroups, statistics: Mapping[str, ColumnStatistics]
) -> None:
    """Raise ConfigError if NULL would count as the category that dummy encoding leaves out."""
    for name in groups.categories:
        if statistics[name].null_count:
            raise ConfigError(
                f"encoding = 'dummy': column {name!r} has NULLs, which would count as its first "
                f"category; write coalesce({name}, 'unknown') AS {name} in the query"
            )


def _settle_storage(
    rows: TrainingRows, groups: FeatureGroups, request: Request
) -> tuple[Request, list[str]]:
    package = request.trainer.package
    if package not in MEMORY_SHARES or not _stays_in_file(rows, groups, request):
        return request, []
    notices = []
    replacement = find_block_estimator(request.trainer.path, request.parameters)
    if replacement is not None and not request.out_of_core:
        trained_name = replacement.path.rpartition(".")[2]
        requested_name = request.trainer.path.rpartition(".")[2]
        notices.append(
            f"{trained_name} learns block by block instead of {requested_name}, because the rows "
            "would take much of memory_limit; out_of_core = false keeps them in memory"
        )
    options = MappingProxyType({**request.options, "out_of_core": True})
    return replace(request, options=options, out_of_core=True), notices


def _report_no_stop(rows: TrainingRows, request: Request) -> list[str]:
    """Return a notice if the statement wants to stop early, but no rows tell when."""
    requested = [
        name for name in ("early_stop", "early_stopping_rounds") if request.options.get(name)
    ]
    if not requested or rows.held_out is not None or request.early_stopping_rounds is None:
        return []
    spelling = request.written.get(requested[0], requested[0])
    return [f"option {spelling} has no effect, because no rows are held out: set eval_fraction"]


def _report_left_out(columns: TrainingColumns, inlines: bool) -> list[str]:
    notices = []
    for column in columns.left_out:
        name, sql_type = column.name, column.type
        if sql_type in UNTYPED:
            notices.append(f"column {name!r} has no value in any row and is left out")
            continue
        is_list = NUMBERS.fullmatch(sql_type.removesuffix("[]")) is not None
        reason = (" of different lengths" if is_list else "") if inlines else " in Spark"
        notices.append(f"column {name!r} is left out: models do not learn from {sql_type}{reason}")
    return notices


@dataclass(frozen=True, slots=True, eq=False)
class _PreparedRows:
    """Rows in the form that an estimator expects, and the transformer that was fitted to them.

    categories: the indices of the columns that the estimator treats as categories. measured: the
    rows of a fold, or None to measure on the held-out rows.
    """

    rows: TrainingRows
    request: Request
    transformer: Any
    fitted: EstimatorRows
    held_out: EstimatorRows | None
    categories: list[int]
    groups: FeatureGroups
    measured: EstimatorRows | None = None

    def open_checkpoint(self, query: str) -> Checkpoint | None:
        request = self.request
        if request.checkpoint is None:
            return None
        excluded_names = ("checkpoint", "num_trials")  # A search may resume with more trials.
        options = sorted(
            repr(item) for item in request.options.items() if item[0] not in excluded_names
        )
        versions = collect_versions(request)
        if request.searched:
            versions["optuna"] = version("optuna")
        identity = repr((query, options, sorted(versions.items())))
        return Checkpoint.of(request.checkpoint, identity, (self.fitted, self.held_out))

    def fit(
        self, parameters: Mapping[str, Any], log: TrainingLog, checkpoint: Checkpoint | None = None
    ) -> FitResult:
        request, rows = self.request, self.rows
        n_classes = 0 if rows.classes is None else len(rows.classes)
        try:
            ordered_parameters = self._order_constraints(parameters)
            data = self.categories, self.fitted, self.held_out
            limits = rows.memory_limit, n_classes
            arguments = FitArguments(request, ordered_parameters, *data, log, *limits, checkpoint)
            estimator = fit(arguments)
            measured_rows = self.measured or self.held_out
            if measured_rows is None:
                fitted_rows = make_part(rows.fitted, self.fitted.X, request, rows)
                measured_rows = sample_rows(fitted_rows, MAX_MEASURED_ROWS)
            elif request.task not in SUPERVISED:  # These metrics need all rows at once.
                measured_rows = sample_rows(measured_rows, MAX_MEASURED_ROWS)
            measured = predict_measured(estimator, measured_rows, request.task)
            if measured is None:
                metrics = compute_model_metrics(estimator, measured_rows, request.task, n_classes)
            else:
                metrics = compute_measured_metrics(measured, n_classes)
            return FitResult(estimator, metrics, log, measured)
        except SqlmlError:
            raise
        except Exception as error:  # A library may raise any exception.
            if is_end_of_trial(error):
                raise
            raise make_training_error(request.trainer.path.rpartition(".")[2], error) from error

    def _order_constraints(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        query_columns = [name for name in self.rows.order if name in self.groups.names]
        numeric_columns = self.groups.numbers  # These come first.
        other_count = self.fitted.X.shape[1] - len(numeric_columns)
        columns = [*numeric_columns, *[None] * other_count]
        package = self.request.trainer.package
        return order_constraints(parameters, package, query_columns, columns, numeric_columns)


def _prepare_rows(rows: TrainingRows, groups: FeatureGroups, request: Request) -> _PreparedRows:
    if groups.target_encoded:
        _check_folds(rows, groups.target_encoded[0])
    transformer = make_transformer(groups, rows.names, request)
    if not learns_in_blocks(groups, rows.names, request):
        _check_fits_memory(rows, groups, request)
    if request.trainer.features == "scaled" and _stays_in_file(rows, groups, request):
        source: Any = select_matrix(rows, rows.fitted, groups)
        X: Any = encode_blocks(source, groups, rows.names, rows.order, request)
        transformer = X.transformer

        def encode(side: SplitSide) -> Any:
            return replace(X, source=select_matrix(rows, side, groups))

    elif request.trainer.features == "ordinal" and not (groups.target_encoded or groups.texts):
        transformer.fit(build_frame(rows, rows.fitted, groups.names, row_slice=slice(0, 1)))
        X = select_matrix(rows, rows.fitted, groups)

        def encode(side: SplitSide) -> Any:
            return select_matrix(rows, side, groups)

    else:
        frame = build_frame(rows, rows.fitted, groups.names, groups.texts)
        target_args = () if rows.fitted.label is None else (rows.fitted.label,)
        X = transformer.fit_transform(frame, *target_args)

        def encode(side: SplitSide) -> Any:
            return transformer.transform(build_frame(rows, side, groups.names, groups.texts))

    fitted_part = make_part(rows.fitted, X, request, rows, weighs_classes=True)
    held_out_part, measured_part = (
        None if side is None else make_part(side, encode(side), request, rows)
        for side in (rows.held_out, rows.measured)
    )
    categories: list[int] = []
    if request.trainer.features in ("ordinal", "named"):
        first_category = len(groups.numbers)
        categories = list(range(first_category, first_category + len(groups.categories)))
    parts = fitted_part, held_out_part, categories, groups, measured_part
    return _PreparedRows(rows, request, transformer, *parts)


@dataclass(frozen=True, slots=True, eq=False)
class _Validator:
    """Fits the models of the folds of `prepared`, each with a transformer of its own."""

    prepared: _PreparedRows
    folds: Folds

    def fit(self, parameters: Mapping[str, Any], log: TrainingLog) -> FitResult:
        """Fit all folds; the result's estimator is the pair (parameters, cross-validation)."""
        rows, request, groups = self.prepared.rows, self.prepared.request, self.prepared.groups

        def fit_fold(number: int, fitted: Array, measured: Array) -> tuple[Any, Metrics]:
            work = f"fitting fold {number} of {self.folds.rule.count}"
            try:
                prepared = _prepare_rows(rows.select_fold(fitted, measured), groups, request)
            except ValueError as error:  # A transformer raises it.
                raise ConfigError(f"{work}: the columns cannot be encoded: {error}") from error
            result = prepared.fit(parameters, TrainingLog(log.progress, work=work))
            model = assemble_model(prepared.transformer, result.estimator, rows.classes)
            return model, result.metrics

        validation = cross_validate(self.folds, fit_fold)
        return FitResult((parameters, validation), validation.metrics, log)


def _check_folds(rows: TrainingRows, column: str) -> None:
    label = rows.fitted.label
    row_count = rows.fitted.rows
    if rows.classes is not None and label is not None:
        row_count = int(np.bincount(label).max())
    if row_count < FOLDS:
        raise ConfigError(
            f"column {column!r} has too many names for so few rows: to encode them as means of the "
            f"label needs {FOLDS} rows{' of a class' if rows.classes is not None else ''}; set "
            "encoding = 'one_hot'"
        )


def _stays_in_file(rows: TrainingRows, groups: FeatureGroups, request: Request) -> bool:
    is_stored = isinstance(rows.fitted.features, StoredRows)
    return is_stored and learns_in_blocks(groups, rows.names, request)


def _check_fits_memory(rows: TrainingRows, groups: FeatureGroups, request: Request) -> None:
    if not isinstance(rows.fitted.features, StoredRows):
        return
    name = next(iter((*groups.target_encoded, *groups.texts, *groups.categories)))
    if request.out_of_core:
        raise ConfigError(
            f"column {name!r} has {len(rows.names[name]):,} distinct strings, which need all rows "
            "in memory to be encoded: leave out out_of_core, or group the strings in the query"
        )
    row_bytes = len(rows.features) * 8 * 2  # The rows, and the transformed rows.
    row_count = rows.fitted.rows + (0 if rows.held_out is None else rows.held_out.rows)
    check_memory(request, row_count, row_bytes, rows.memory_limit)


def collect_versions(request: Request) -> dict[str, str]:
    trainer = request.trainer
    packages = dict.fromkeys(("duckdb", "numpy", "sklearn", trainer.package, *trainer.packages))
    return {name: str(import_module(name).__version__) for name in packages}
