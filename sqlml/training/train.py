"""`train`: from a query and a `Request` to a fitted pipeline, and what is to be known of it.

::

    query -> columns -> rows, split, checked -> features -> estimator, fitted -> metrics
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import ConfigError, SqlmlError
from sqlml.host import Host
from sqlml.training.block_estimators import block_estimator
from sqlml.training.checkpoint import Checkpoint
from sqlml.training.checks import check_rows, keys_of
from sqlml.training.columns import TrainingColumns, columns_of
from sqlml.training.encoded_blocks import encoded_blocks
from sqlml.training.feature_pipeline import (
    FeatureGroups,
    feature_groups,
    feature_transformer,
    text_columns,
)
from sqlml.training.fit import fit
from sqlml.training.fitting import Fitting
from sqlml.training.metrics import Metrics, metrics_of
from sqlml.training.part import Part, sample
from sqlml.training.request import Request
from sqlml.training.row_store import StoredRows
from sqlml.training.rows import SHARES, Side, TrainingRows, read_rows
from sqlml.training.splits import Split
from sqlml.training.training_log import TrainingLog
from sqlml.training.tuning import Fit, is_end_of_trial, tuned
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
    host: Host, query: str, request: Request, transform: Sequence[str] | None = None
) -> Trained:
    """Train what is asked for on the rows of a query.

    Args:
        transform: the items of TRANSFORM (..).

    Raises:
        ConfigError: the rows do not suit the model, or the library refuses them.
        ParseError: it is no query.
    """
    start = time.perf_counter()
    columns, request = columns_of(host, query, request, transform)
    if not columns.features:
        raise ConfigError("the query has no column that a model can learn from")
    log = TrainingLog()
    try:
        return _trained(host, query, columns, request, log, start)
    finally:
        log.progress.close()


def _trained(
    host: Host,
    query: str,
    columns: TrainingColumns,
    request: Request,
    log: TrainingLog,
    start: float,
) -> Trained:
    rows = read_rows(host, query, columns, request, log.progress)
    keys = keys_of(rows)
    texts = text_columns(rows.features, rows.names, keys, request)
    notices = [*_not_learned(columns), *check_rows(rows, request, texts)]
    features = [f for f in rows.features if f.name not in keys or f.name in texts]
    if not features:
        raise ConfigError("the query has no column that a model can learn from")
    request, notes = _in_blocks(rows, request)
    notices += notes
    groups = feature_groups(features, rows.names, texts, request)
    prepared = _prepared(rows, groups, request)
    trials: tuple[tuple[Any, ...], ...] = ()
    if request.searched:
        if rows.held_out is None:
            raise ConfigError("a search compares rows that are held out, and none are: set split")
        asked = {n: v for n, v in request.given.items() if n not in ("num_trials", "checkpoint")}
        identity = repr((query, sorted(map(repr, asked.items())), rows.fitted.rows))
        found = tuned(prepared.fit, request, log, identity)
        made, trials = found.fit, found.trials
    else:
        made = prepared.fit(request.parameters, log, prepared.checkpoint(query))
    return Trained(
        prepared.pipeline(made.estimator),
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
        None if rows.held_out is None else partial(_held_out_rows, rows, groups, request),
        columns.with_texts([n for n in texts if rows.statistics[n].nulls]),
        trials,
    )


def _in_blocks(rows: TrainingRows, request: Request) -> tuple[Request, list[str]]:
    """The request as it is kept, and notices, where rows are in a file and the library makes
    another model of them than it would in memory: who makes it again needs that, too."""
    package = request.trainer.package
    if package not in SHARES or not isinstance(rows.fitted.features, StoredRows):
        return request, []
    notices = []
    other = block_estimator(request.trainer.path, request.parameters)
    if other is not None and not request.out_of_core:
        kinds = (path.rpartition(".")[2] for path in (other.path, request.trainer.path))
        learns, instead = kinds
        notices.append(
            f"{learns} learns block by block in place of {instead}: the rows take much of "
            "memory_limit (out_of_core = false keeps them in memory)"
        )
    given = MappingProxyType({**request.given, "out_of_core": True})
    return replace(request, given=given, out_of_core=True), notices


def _held_out_rows(rows: TrainingRows, groups: FeatureGroups, request: Request) -> Part:
    """The rows held out, with all that the query has."""
    side = rows.held_out
    assert side is not None
    names = [feature.name for feature in rows.features]
    return _part(side, _frame(rows, side, names, groups.texts), request, rows)


def _not_learned(columns: TrainingColumns) -> list[str]:
    """Notices of columns that are not used as features, though no option names them."""
    return [
        f"column {column.name!r} is left out: models do not learn from {column.type}"
        + (" of different lengths" if column.type.endswith("[]") else "")
        for column in columns.left_out
    ]


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

    def checkpoint(self, query: str) -> Checkpoint | None:
        """Where the rounds of this training are saved, if they are.

        Raises:
            ConfigError: the folder is not the user's own.
        """
        request = self.request
        if request.checkpoint is None:
            return None
        asked = sorted(repr(item) for item in request.given.items() if item[0] != "checkpoint")
        identity = repr((query, asked, sorted(versions_of(request).items())))
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
                dict(parameters),
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
                known = sample(_part(rows.fitted, self.X, request, rows), MOST_MEASURED)
            return Fit(estimator, metrics_of(estimator, known, request.task, classes), log)
        except SqlmlError:
            raise
        except Exception as error:  # libraries raise what they like
            if is_end_of_trial(error):
                raise
            kind = request.trainer.path.rpartition(".")[2]
            text = str(error).split("\nStack trace")[0]  # as XGBoost's errors have it
            raise ConfigError(
                f"{kind} cannot be trained: {type(error).__name__}: {text}"
            ) from error

    def pipeline(self, estimator: Any) -> Any:
        """The transformer and a fitted estimator, which says the classes' own names."""
        from sklearn.pipeline import Pipeline

        model = Pipeline([("features", self.transformer), ("model", estimator)])
        classes = self.rows.classes
        named = classes is not None and not classes.is_numbered()
        return _named(model, self.rows) if named else model


def _prepared(rows: TrainingRows, groups: FeatureGroups, request: Request) -> _Prepared:
    """Rows as the estimator takes them.

    Raises:
        ConfigError: the transformer refuses them.
    """
    transformer = feature_transformer(groups, rows.names, request)
    in_blocks = isinstance(rows.fitted.features, StoredRows)
    if request.trainer.features == "scaled" and in_blocks:
        source: Any = _matrix(rows, rows.fitted, groups)
        X: Any = encoded_blocks(source, groups, rows.names, rows.order, request)
        transformer, held_X = X.transformer, None
        if rows.held_out is not None:
            held_X = replace(X, source=_matrix(rows, rows.held_out, groups))
    elif request.trainer.features == "ordinal" and not (groups.many or groups.texts):
        transformer.fit(_frame(rows, rows.fitted, groups.names, part=slice(0, 1)))
        X = _matrix(rows, rows.fitted, groups)
        held_X = None if rows.held_out is None else _matrix(rows, rows.held_out, groups)
    else:
        frame = _frame(rows, rows.fitted, groups.names, groups.texts)
        supervised = () if rows.fitted.label is None else (rows.fitted.label,)
        X = transformer.fit_transform(frame, *supervised)
        held_X = None
        if rows.held_out is not None:
            held_X = transformer.transform(_frame(rows, rows.held_out, groups.names, groups.texts))
    fitted = _part(rows.fitted, X, request, rows, weighs_classes=True)
    held_out = None if rows.held_out is None else _part(rows.held_out, held_X, request, rows)
    first = len(groups.numbers)
    categories = list(range(first, first + len(groups.few)))
    native = request.trainer.features in ("ordinal", "named")
    own = fitted, held_out, categories if native else []
    return _Prepared(rows, request, transformer, X, *own)


def _named(model: Any, rows: TrainingRows) -> Any:
    """A classifier of numbers as one that says the classes' names."""
    from sklearn.base import clone

    from sqlml.training.encoded_target import EncodedTargetClassifier

    made = EncodedTargetClassifier(clone(model))
    values = [] if rows.classes is None else rows.classes.values()
    made.classes_ = np.array(values, object if isinstance(values[0], str) else None)
    made.classifier_ = model
    return made


def _part(
    side: Side, X: Any, request: Request, rows: TrainingRows, weighs_classes: bool = False
) -> Part:
    """A side as an estimator takes it."""
    weight = side.weight
    if weighs_classes and request.class_weights is not None and rows.classes is not None:
        per_class = _class_weights(request, rows)
        own = per_class[side.label]
        weight = own if weight is None else weight * own
    return Part(X, side.label, weight, side.group)


def _class_weights(request: Request, rows: TrainingRows) -> Any:
    """(k,) the weights of the classes.

    Raises:
        ConfigError: a weight is given to a class that there is not.
    """
    values = [] if rows.classes is None else rows.classes.values()
    if request.class_weights == "balanced" or request.class_weights is None:
        counts = np.bincount(np.asarray(rows.fitted.label), minlength=len(values))
        return counts.sum() / (len(values) * counts)
    spelled = [str(v).lower() if isinstance(v, bool) else str(v) for v in values]
    weights = dict(request.class_weights)  # type: ignore[arg-type]
    unknown = next((name for name in weights if name not in spelled), None)
    if unknown is not None:
        raise ConfigError(
            f"option class_weights: unknown class {unknown!r}; classes: {', '.join(spelled[:20])}"
        )
    return np.array([weights.get(name, 1.0) for name in spelled])


def _matrix(rows: TrainingRows, side: Side, groups: FeatureGroups) -> Any:
    """(n, k) the features in the order of the groups; no copy where all are there."""
    order = [f.name for f in rows.features]
    places = [order.index(name) for name in groups.names]
    held: Any = side.features
    if places == list(range(len(order))):
        return held
    if isinstance(held, StoredRows):
        return replace(held, columns=tuple(places))
    return held[:, places]


def _frame(
    rows: TrainingRows,
    side: Side,
    names: Collection[str],
    texts: Collection[str] = (),
    part: slice = slice(None),
) -> Any:
    """A pandas frame of some features, categories as texts, NaN for NULL, and "" for one of
    `texts`."""
    import pandas as pd

    order = [f.name for f in rows.features]
    held: Any = side.features
    if isinstance(held, StoredRows):
        held = held.array() if part == slice(None) else next(held.blocks())
    matrix = isinstance(held, np.ndarray)
    columns = {}
    for name in (name for name in rows.order if name in names):
        values = held[part, order.index(name)] if matrix else held[name][part]
        if name in rows.names:
            codes = np.where(np.isnan(values), -1, values).astype(int) if matrix else values
            missing = "" if name in texts else np.nan
            known = np.array([*rows.names[name], missing], object)
            values = pd.Series(known[codes], dtype=object)
        columns[name] = values
    return pd.DataFrame(columns, copy=False)


def versions_of(request: Request) -> dict[str, str]:
    """The versions of what trains the model."""
    packages = dict.fromkeys(
        ("duckdb", "numpy", "sklearn", request.trainer.package, *request.trainer.packages)
    )
    return {name: str(import_module(name).__version__) for name in packages}
