"""`train`: from a query and a `Request` to a fitted pipeline, and what is to be known of it.

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
from sqlml.training.features.columns import TrainingColumns, columns_of
from sqlml.training.features.feature_pipeline import (
    FOLDS,
    FeatureGroups,
    feature_groups,
    feature_transformer,
    learns_in_blocks,
    text_columns,
)
from sqlml.training.fitting.checkpoint import Checkpoint, Fitting, TrainingLog
from sqlml.training.fitting.fit import cannot_be_trained, fit
from sqlml.training.fitting.tuning import Fit, is_end_of_trial, tuned
from sqlml.training.model_types import SUPERVISED, block_estimator, metrics_of
from sqlml.training.options import estimator_parameters
from sqlml.training.options.request import Request
from sqlml.training.options.splits import Split
from sqlml.training.reading.checks import check_rows, keys_of
from sqlml.training.reading.rows import SHARES, MemoryGuard, TrainingRows, read_rows
from sqlml.training.reading.shaped_rows import (
    encoded_blocks,
    frame_of,
    held_out_part,
    matrix_of,
    part_of,
    whole_model,
)
from sqlml.training.storage.row_store import Part, StoredRows, sample
from sqlml.types import Labels

MOST_MEASURED = 100_000
"""Rows that metrics are computed on where none are held out."""


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """A model that was trained, and what is to be known of it.

    model: the fitted pipeline. labels: its classes in their SQL type, or None. rows, held_out:
    numbers of rows fitted to and held out. metrics: on those held out, or, without any, on those
    fitted to. statistics: of the features. notices: for the user. held_out_rows: those rows, X a
    pandas frame, for who would compare another model; None without any. columns: of the query.
    trials: of a search, as `TrainingFacts.trials` has them.
    """

    model: Any
    labels: Labels | None
    request: Request
    split: Split
    rows: int
    held_out: int
    metrics: Metrics
    log: TrainingLog
    statistics: tuple[Mapping[str, Any], ...]
    notices: tuple[str, ...]
    versions: Mapping[str, str]
    seconds: float
    held_out_rows: Callable[[], Part] | None
    columns: TrainingColumns
    trials: tuple[tuple[Any, ...], ...] = ()


def train(
    host: RowHost,
    query: str,
    request: Request,
    transform: Sequence[str] | None = None,
    *,
    inlines: bool = True,
    identity: str = "",
) -> Trained:
    """Train what is asked for on the rows of a query.

    Args:
        transform: the items of TRANSFORM (..).
        inlines: whether queries can make features of columns where the model is to score.
        identity: the query as the user has written it, by which a search or a checkpoint is found
            again; "": `query`.

    Raises:
        ConfigError: the rows do not suit the model, or the library refuses them.
        ParseError: it is no query.
        duckdb.PermissionException: the engine's settings forbid the folder of a checkpoint.
    """
    start = time.perf_counter()
    if request.checkpoint is not None:
        host.check_access(os.path.join(request.checkpoint, "training.checkpoint"))
    columns, request = columns_of(host, query, request, transform)
    if not inlines:
        columns = columns.without_expressions()
    if not columns.features:
        raise ConfigError("the query has no column that a model can learn from")
    log = TrainingLog()
    try:
        return _trained(host, query, columns, request, log, start, inlines, identity or query)
    finally:
        log.progress.close()


def _trained(
    host: RowHost,
    query: str,
    columns: TrainingColumns,
    request: Request,
    log: TrainingLog,
    start: float,
    inlines: bool,
    identity: str,
) -> Trained:
    rows = read_rows(host, query, columns, request, log.progress)
    if rows.held_out is None and request.held_out_for is not None:
        raise ConfigError(request.held_out_for)
    keys = keys_of(rows)
    texts = text_columns(rows.features, rows.names, keys, request)
    label_type = None if columns.label is None else columns.label.type
    notices = [*_not_learned(columns, inlines), *check_rows(rows, request, texts, label_type)]
    features = [
        f
        for f in rows.features
        if not rows.statistics[f.name].is_empty and (f.name not in keys or f.name in texts)
    ]
    if not features:
        raise ConfigError("the query has no column that a model can learn from")
    filled = [name for name in texts if rows.statistics[name].nulls]
    if filled and not inlines:
        raise ConfigError(
            f"column {filled[0]!r} holds texts and NULLs: write coalesce({filled[0]}, '') in the "
            "query"
        )
    groups = feature_groups(features, rows.names, texts, request)
    request, notes = _in_blocks(rows, groups, request)
    notices += notes
    try:
        prepared = _prepared(rows, groups, request)
    except ValueError as error:  # of a transformer
        raise ConfigError(f"the columns cannot be learned from: {error}") from error
    trials: tuple[tuple[Any, ...], ...] = ()
    if request.searched:
        found = tuned(prepared.fit, request, log, prepared.checkpoint(identity))
        made, trials = found.fit, found.trials
    else:
        made = prepared.fit(request.parameters, log, prepared.checkpoint(identity))
    return Trained(
        whole_model(prepared.transformer, made.estimator, rows.classes),
        None if rows.classes is None else rows.classes.labels(),
        request,
        rows.split,
        rows.fitted.rows,
        0 if rows.held_out is None else rows.held_out.rows,
        made.metrics,
        made.log,
        tuple(rows.statistics[f.name].to_dict() for f in features),
        tuple(notices),
        versions_of(request),
        time.perf_counter() - start,
        None if rows.held_out is None else partial(held_out_part, rows, groups, request),
        columns.with_texts(filled),
        trials,
    )


def _in_blocks(
    rows: TrainingRows, groups: FeatureGroups, request: Request
) -> tuple[Request, list[str]]:
    """The request as it is kept, and notices, where rows are in a file and the library makes
    another model of them than it would in memory: who makes it again needs that, too."""
    package = request.trainer.package
    if package not in SHARES or not _is_stored(rows, groups, request):
        return request, []
    notices = []
    other = block_estimator(request.trainer.path, request.parameters)
    if other is not None and not request.out_of_core:
        learns, instead = (p.rpartition(".")[2] for p in (other.path, request.trainer.path))
        notices.append(
            f"{learns} learns block by block instead of {instead}, because the rows would take "
            "much of memory_limit; out_of_core = false keeps them in memory"
        )
    given = MappingProxyType({**request.given, "out_of_core": True})
    return replace(request, given=given, out_of_core=True), notices


def _not_learned(columns: TrainingColumns, inlines: bool) -> list[str]:
    """Notices of columns that are not used as features, though no option names them."""
    notices = []
    for column in columns.left_out:
        if column.type in UNTYPED:
            notices.append(f"column {column.name!r} has no value in any row and is left out")
            continue
        lengths = NUMBERS.fullmatch(column.type.removesuffix("[]")) is not None
        where = (" of different lengths" if lengths else "") if inlines else " in Spark"
        notices.append(
            f"column {column.name!r} is left out: models do not learn from {column.type}{where}"
        )
    return notices


@dataclass(frozen=True, slots=True, eq=False)
class _Prepared:
    """Rows as the estimator takes them, and the fitted transformer that makes them so.

    categories: places of the columns that the estimator knows to be categories.
    """

    rows: TrainingRows
    request: Request
    transformer: Any
    X: Any
    fitted: Part
    held_out: Part | None
    categories: list[int]
    groups: FeatureGroups

    def checkpoint(self, query: str) -> Checkpoint | None:
        """Where the rounds of this training are saved, if they are.

        Raises:
            ConfigError: the folder is not the user's own.
        """
        request = self.request
        if request.checkpoint is None:
            return None
        others = ("checkpoint", "num_trials")  # a search may go on with more trials
        asked = sorted(repr(item) for item in request.given.items() if item[0] not in others)
        versions = versions_of(request)
        if request.searched:
            versions["optuna"] = version("optuna")
        identity = repr((query, asked, sorted(versions.items())))
        return Checkpoint.of(request.checkpoint, identity, (self.fitted, self.held_out))

    def fit(
        self,
        parameters: Mapping[str, Any],
        log: TrainingLog,
        checkpoint: Checkpoint | None = None,
    ) -> Fit:
        """Fit the estimator with some parameters.

        Raises:
            ConfigError: the library refuses the parameters or the rows.
        """
        request, rows = self.request, self.rows
        try:
            classes = 0 if rows.classes is None else len(rows.classes)
            fitting = Fitting(
                request,
                _in_order(parameters, self),
                self.categories,
                self.fitted,
                self.held_out,
                log,
                rows.memory_limit,
                classes,
                checkpoint,
            )
            estimator = fit(fitting)
            known = self.held_out
            if known is None:
                known = sample(part_of(rows.fitted, self.X, request, rows), MOST_MEASURED)
            elif request.task not in SUPERVISED:  # whose metrics look at all rows at once
                known = sample(known, MOST_MEASURED)
            return Fit(estimator, metrics_of(estimator, known, request.task, classes), log)
        except SqlmlError:
            raise
        except Exception as error:  # libraries raise what they like
            if is_end_of_trial(error):
                raise
            kind = request.trainer.path.rpartition(".")[2]
            raise cannot_be_trained(kind, error) from error


def _prepared(rows: TrainingRows, groups: FeatureGroups, request: Request) -> _Prepared:
    """Rows as the estimator takes them.

    Raises:
        ConfigError: the transformer refuses them.
    """
    if groups.many:
        _check_folds(rows, groups.many[0])
    transformer = feature_transformer(groups, rows.names, request)
    if not learns_in_blocks(groups, rows.names, request):
        _check_fits(rows, groups, request)
    if request.trainer.features == "scaled" and _is_stored(rows, groups, request):
        source: Any = matrix_of(rows, rows.fitted, groups)
        X: Any = encoded_blocks(source, groups, rows.names, rows.order, request)
        transformer, held_X = X.transformer, None
        if rows.held_out is not None:
            held_X = replace(X, source=matrix_of(rows, rows.held_out, groups))
    elif request.trainer.features == "ordinal" and not (groups.many or groups.texts):
        transformer.fit(frame_of(rows, rows.fitted, groups.names, part=slice(0, 1)))
        X = matrix_of(rows, rows.fitted, groups)
        held_X = None if rows.held_out is None else matrix_of(rows, rows.held_out, groups)
    else:
        frame = frame_of(rows, rows.fitted, groups.names, groups.texts)
        supervised = () if rows.fitted.label is None else (rows.fitted.label,)
        X = transformer.fit_transform(frame, *supervised)
        held_X = None
        if rows.held_out is not None:
            held_X = transformer.transform(
                frame_of(rows, rows.held_out, groups.names, groups.texts)
            )
    fitted = part_of(rows.fitted, X, request, rows, weighs_classes=True)
    held_out = None if rows.held_out is None else part_of(rows.held_out, held_X, request, rows)
    first = len(groups.numbers)
    categories = list(range(first, first + len(groups.few)))
    native = request.trainer.features in ("ordinal", "named")
    own = fitted, held_out, categories if native else []
    return _Prepared(rows, request, transformer, X, *own, groups)


def _in_order(parameters: Mapping[str, Any], prepared: _Prepared) -> dict[str, Any]:
    """The parameters, with constraints in the order of the estimator's columns.

    Raises:
        ConfigError: they are not those of the features.
    """
    query = [name for name in prepared.rows.order if name in prepared.groups.names]
    numbers = prepared.groups.numbers  # whose columns are the first
    columns = [*numbers, *[None] * (prepared.fitted.X.shape[1] - len(numbers))]
    package = prepared.request.trainer.package
    return estimator_parameters.ordered(parameters, package, query, columns, numbers)


def _check_folds(rows: TrainingRows, column: str) -> None:
    """Refuse fewer rows than means of the label are learned from in turn.

    Raises:
        ConfigError: there are fewer, or fewer of each class.
    """
    label, most = rows.fitted.label, rows.fitted.rows
    if rows.classes is not None and label is not None:
        most = int(np.bincount(label).max())
    if most < FOLDS:
        raise ConfigError(
            f"column {column!r} has too many names for so few rows: its names become means of the "
            f"label, which takes {FOLDS} rows{' of a class' if rows.classes is not None else ''}; "
            "set encoding = 'one_hot'"
        )


def _is_stored(rows: TrainingRows, groups: FeatureGroups, request: Request) -> bool:
    """Whether rows are in a file, and stay there."""
    return isinstance(rows.fitted.features, StoredRows) and learns_in_blocks(
        groups, rows.names, request
    )


def _check_fits(rows: TrainingRows, groups: FeatureGroups, request: Request) -> None:
    """Refuse rows in a file that have to be in memory, if they do not fit there.

    Raises:
        ConfigError: they do not, or are asked to stay in the file.
    """
    if not isinstance(rows.fitted.features, StoredRows):
        return
    name = next(iter((*groups.many, *groups.texts, *groups.few)))
    if request.out_of_core:
        raise ConfigError(
            f"column {name!r} has {len(rows.names[name]):,} different texts, and is learned from "
            "with all rows in memory: leave out out_of_core, or group them in the query"
        )
    width = len(rows.features) * 8 * 2  # and what is made of them
    count = rows.fitted.rows + (0 if rows.held_out is None else rows.held_out.rows)
    MemoryGuard(request, width, rows.memory_limit).check(count)


def versions_of(request: Request) -> dict[str, str]:
    """The versions of what trains the model."""
    packages = dict.fromkeys(
        ("duckdb", "numpy", "sklearn", request.trainer.package, *request.trainer.packages)
    )
    return {name: str(import_module(name).__version__) for name in packages}
