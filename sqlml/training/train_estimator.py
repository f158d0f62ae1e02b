"""Fit an estimator from Python to the rows of a query, and the trainers that a session uses.

The estimator may be a pipeline or a search. The input is a pandas frame of the query's columns.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from sqlml.catalog.model import Model, TrainingFacts
from sqlml.dialects.duckdb import DUCKDB
from sqlml.dialects.type_names import STRINGS
from sqlml.errors import ConfigError, MissingDependencyError, UnsupportedModelError
from sqlml.host import RowHost
from sqlml.long_work import show_stage
from sqlml.scorer.evaluate import Metrics
from sqlml.training import model_types
from sqlml.training.column_statistics import Classes
from sqlml.training.cross_validation import Folds, cross_validate
from sqlml.training.fitting.fit import make_training_error
from sqlml.training.options import sqlml_options
from sqlml.training.options.request import Request
from sqlml.training.progress import Progress, TrainingLog
from sqlml.training.row_store import EstimatorRows
from sqlml.training.rows.check_rows import check_classes, check_frame, check_label
from sqlml.training.rows.estimator_input import build_frame, build_held_out_query, make_part
from sqlml.training.rows.read_rows import check_weights, read_rows
from sqlml.training.rows.training_columns import (
    Role,
    TrainingColumn,
    TrainingColumns,
    build_label_sql,
    read_columns,
)
from sqlml.training.train_model_type import TrainedModel, collect_versions, train
from sqlml.training.train_partitions import train_partitions
from sqlml.types import NESTED

_KEYS = ("sqlml_key_0", "sqlml_key_1")
"""Columns that decide which rows are held out."""

_FOLD_KEYS = ("sqlml_fold_0", "sqlml_fold_1")
"""Columns that decide the fold of a row."""


def parse_estimator_request(
    estimator: Any, options: Mapping[str, Any], stored_options: tuple[str, ...]
) -> Request:
    """Parse the options of a training; `stored_options` are names of options of every model."""
    is_estimator = hasattr(estimator, "fit") and hasattr(estimator, "get_params")
    if isinstance(estimator, type) or not is_estimator:
        accepted = "the name of a model type, or an estimator with fit and get_params"
        raise ConfigError(f"train takes {accepted}, not {estimator!r:.80}")
    missing = model_types.find_missing_packages()
    if missing:
        advice = "pip install 'sqlml[train]'"
        raise MissingDependencyError(
            f"training needs {model_types.describe_missing(missing)}: {advice}"
        )
    renamed = sqlml_options.Options.from_mapping(options).rename(sqlml_options.ALIASES)
    sqlml_values = sqlml_options.read_sqlml_options(renamed, sqlml_options.ESTIMATOR_OPTIONS)
    other_options = renamed.exclude((*sqlml_options.ESTIMATOR_OPTIONS, *stored_options))
    unknown = next((renamed.written[name] for name in other_options.values), None)
    if unknown is not None:
        names = ", ".join(sqlml_options.ESTIMATOR_OPTIONS)
        raise ConfigError(
            f"unknown option {unknown!r}; options of train with an estimator: {names}; parameters "
            "belong to the estimator itself"
        )
    cls = type(estimator)
    trainer = model_types.Trainer(f"{cls.__module__}.{cls.__qualname__}", "given")
    return Request.from_sqlml_options(
        sqlml_values, cls.__name__, _find_task(estimator), trainer, options, stored_options
    )


def _find_task(estimator: Any) -> model_types.Task:
    from sklearn import base

    if base.is_classifier(estimator):
        return "classify"
    if base.is_regressor(estimator):
        return "regress"
    if base.is_clusterer(estimator):
        return "cluster"
    return "isolate" if base.is_outlier_detector(estimator) else "project"


def train_estimator(host: RowHost, query: str, estimator: Any, request: Request) -> TrainedModel:
    """Fit a clone of `estimator` to the rows of a query, except for the held-out rows."""
    start = time.perf_counter()
    if request.label is None and request.task in ("classify", "regress"):
        name = type(estimator).__name__
        raise ConfigError(f"{name} learns from a label: name its column, as in label='churned'")
    columns, request = read_columns(host, query, request, None)
    types = columns.raw
    features = [name for name in types if name not in request.other_columns]
    if not features:
        raise ConfigError("the query has no column that a model can learn from")
    show_stage("reading")
    frame = host.fetch_frame(_build_query(query, columns, request))
    split, mask = _find_held_out(frame, request)
    numbers, bounds = _assign_folds(frame.loc[~mask], request)
    has_held_out = bool(mask.any())
    if request.held_out_for is not None and not has_held_out:
        raise ConfigError(request.held_out_for)
    classes = _read_classes(types, frame, request)
    make_part_of = partial(_make_part, features=features, request=request, classes=classes)
    all_rows = make_part_of(frame)
    if all_rows.weight is not None:
        check_weights(all_rows.weight, request)
    n_classes = None if classes is None else len(classes)
    statistics, notices = check_frame(frame, types, features, all_rows.y, n_classes, request)
    notices += check_label(request, types.get(request.label or ""))
    log = TrainingLog()
    validation = None
    if request.folds is not None:
        rows = frame.loc[~mask]
        part = make_part_of(rows)
        folds = Folds(request.folds, numbers, bounds, np.asarray(part.y), part.weight, classes)
        folds.check()

        def fit_fold(number: int, fitted: Any, measured: Any) -> tuple[Any, Metrics]:
            show_stage(f"fitting fold {number} of {folds.rule.count}")
            fold_model = _fit_clone(estimator, rows.loc[fitted], features, request, types)
            fold_part = make_part_of(rows.loc[measured])
            return fold_model, _compute_metrics(fold_model, fold_part, request, classes)

        validation = cross_validate(folds, fit_fold)
    show_stage("fitting")
    model = _fit_clone(estimator, frame.loc[~mask], features, request, types)
    show_stage("measuring it")
    log.add_round(None, None)
    if validation is not None and not has_held_out:
        metrics: Metrics = validation.metrics
    else:
        measured_rows = make_part_of(frame.loc[mask if has_held_out else ~mask])
        metrics = _compute_metrics(model, measured_rows, request, classes)
    return TrainedModel(
        model=model,
        labels=None if classes is None else classes.labels(),
        request=request,
        split=split,
        rows=int((~mask).sum()),
        held_out=int(mask.sum()),
        metrics=metrics,
        log=log,
        statistics=tuple(statistics),
        notices=tuple(notices),
        versions=collect_versions(request),
        seconds=time.perf_counter() - start,
        held_out_rows=partial(make_part_of, frame.loc[mask]) if has_held_out else None,
        columns=replace(columns, features=()),
        cross_validation=validation,
    )


def _build_query(query: str, columns: TrainingColumns, request: Request) -> str:
    keys = request.split.build_keys(columns.raw, request.label, None, request.seed)
    named_keys = [*zip(_KEYS, keys, strict=False)]
    if request.folds is not None:
        fold_keys = request.folds.build_keys(columns.raw, request.label, request.seed)
        named_keys += zip(_FOLD_KEYS, fold_keys, strict=False)
    key_columns = "".join(f", {key} AS {name}" for name, key in named_keys)
    where_clause = replace_clause = ""
    if columns.label is not None:
        name = DUCKDB.quote_name(columns.label.name)
        where_clause = f" WHERE {name} IS NOT NULL"
        label_sql = build_label_sql(columns.label, request) if request.task == "classify" else name
        if columns.label.type.startswith("DECIMAL"):
            label_sql = f"CAST({name} AS DOUBLE)"
        replace_clause = f" REPLACE ({label_sql} AS {name})" if label_sql != name else ""
    return f"SELECT *{replace_clause}{key_columns} FROM (\n{query}\n) AS sqlml_rows{where_clause}"


def _find_held_out(frame: Any, request: Request) -> tuple[Any, Any]:
    import pyarrow as pa

    split = request.split.settle(len(frame))
    keys = [frame[name] for name in _KEYS if name in frame]
    if split.method == "none" or not len(frame):
        return split, np.zeros(len(frame), bool)
    if split.reads_hashes:
        return split, split.find_held_out([key.to_numpy() for key in keys])
    return split, split.find_held_out([pa.Array.from_pandas(key) for key in keys])


def _assign_folds(frame: Any, request: Request) -> tuple[Any, tuple[str, ...]]:
    import pyarrow as pa

    if request.folds is None or not len(frame):
        return None, ()
    keys = [pa.Array.from_pandas(frame[name]) for name in _FOLD_KEYS if name in frame]
    return request.folds.assign(keys)


def _read_classes(types: Mapping[str, str], frame: Any, request: Request) -> Classes | None:
    import pyarrow as pa

    if not len(frame):
        raise ConfigError("the query returns no rows with a label: there is nothing to train on")
    if request.task != "classify" or request.label is None:
        return None
    classes = Classes(types[request.label])
    classes.encode(pa.Array.from_pandas(frame[request.label]))
    check_classes(classes, len(frame), request)
    return classes


def _fit_clone(
    estimator: Any, rows: Any, features: list[str], request: Request, types: Mapping[str, str]
) -> Any:
    from sklearn.base import clone

    y = () if request.label is None else (rows[request.label],)
    weights = {} if request.weight is None else {"sample_weight": rows[request.weight]}
    try:
        return clone(estimator).fit(rows[features], *y, **weights)
    except Exception as error:  # A library may raise any exception.
        hint = _suggest_fix(str(error), rows, features, types)
        raise make_training_error(type(estimator).__name__, error, hint) from error


def _suggest_fix(message: str, rows: Any, features: list[str], types: Mapping[str, str]) -> str:
    """Return advice on a library's error about strings or missing values, or "" without advice."""
    if _TEXT_ERROR.search(message):
        strings = [name for name in features if STRINGS.fullmatch(types[name])]
        if strings:
            return (
                f"column {strings[0]!r} contains strings: put an encoder such as OneHotEncoder "
                "before the estimator in a Pipeline, or name a model type instead: it encodes them"
            )
    if _MISSING_ERROR.search(message):
        null_columns = [name for name in features if rows[name].isna().any()]
        if null_columns:
            return (
                f"column {null_columns[0]!r} is NULL in some rows: fill it in the query, or put an "
                "imputer such as SimpleImputer before the estimator in a Pipeline"
            )
    return ""


_TEXT_ERROR = re.compile("could not convert string to float|dtypes.* must be int")
_MISSING_ERROR = re.compile(r"\b(NaN|nan|missing values)\b")
"""Messages of libraries that do not support strings, or missing values."""


def _make_part(
    rows: Any, features: list[str], request: Request, classes: Classes | None
) -> EstimatorRows:
    y: Any = None if request.label is None else rows[request.label].to_numpy()
    if classes is not None:
        y = classes.find_positions(y)
    weight = None
    if request.weight is not None:
        weight = rows[request.weight].to_numpy(np.float64, na_value=np.nan)
    return EstimatorRows(rows[features], y, weight, None)


def _compute_metrics(
    model: Any, part: EstimatorRows, request: Request, classes: Classes | None
) -> Metrics:
    if classes is not None and not hasattr(model, "predict_proba"):
        is_correct = classes.find_positions(model.predict(part.X)) == part.y
        return {"accuracy": float(np.average(is_correct, weights=part.weight))}
    try:
        n_classes = 0 if classes is None else len(classes)
        return model_types.compute_model_metrics(model, part, request.task, n_classes)
    except (AttributeError, ValueError, TypeError) as error:
        raise UnsupportedModelError(
            f"{type(model).__name__} does not predict as scikit-learn's estimators do: {error}"
        ) from error


class Trainers(Protocol):
    """Trains models on the rows of a session's queries."""

    def train_model_type(
        self, query: str, request: Request, transform: Sequence[str] | None
    ) -> TrainedModel:
        """Train the requested model type, on the features of TRANSFORM (...) if it is given."""

    def train_estimator(self, query: str, estimator: Any, request: Request) -> TrainedModel: ...

    def read_held_out(self, query: str, trained: TrainedModel, model: Model) -> EstimatorRows:
        """Read the rows that a training held out, with the features that `model` reads."""

    def find_held_out_rows(self, facts: TrainingFacts) -> str | None:
        """Return the query of the rows that a training held out, or None if it is not known."""


@dataclass(frozen=True)
class RowTrainers:
    """Trains models on the rows that a host reads."""

    host: RowHost

    def train_model_type(
        self, query: str, request: Request, transform: Sequence[str] | None
    ) -> TrainedModel:
        if request.num_workers is not None:
            raise ConfigError("num_workers applies only to boosted trees by xgboost in Spark")
        train_requested = train_partitions if request.partition_by else train
        return train_requested(self.host, query, request, transform)

    def train_estimator(self, query: str, estimator: Any, request: Request) -> TrainedModel:
        return train_estimator(self.host, query, estimator, request)

    def read_held_out(self, query: str, trained: TrainedModel, model: Model) -> EstimatorRows:
        has_expressions = any(column.expression is not None for column in trained.columns.features)
        if trained.partitions and (model.transform is not None or has_expressions):
            raise ConfigError(
                "PROMOTE IF ... CURRENT does not compare models with PARTITION BY that compute "
                "features from columns: compare with a number"
            )
        if model.transform is not None or has_expressions:
            return self._read_held_out_for(query, trained, model)
        assert trained.held_out_rows is not None
        return trained.held_out_rows()

    def find_held_out_rows(self, facts: TrainingFacts) -> str | None:
        return build_held_out_query(self.host, facts)

    def _read_held_out_for(self, query: str, trained: TrainedModel, model: Model) -> EstimatorRows:
        expressions = {} if model.transform is None else model.transform.expressions
        features = []
        for feature in model.features:
            if feature.kind == "any":
                continue  # The model does not use it.
            expression = expressions.get(feature.name)
            if feature.kind in NESTED:
                fault = f"feature {feature.name!r} is a {feature.kind}"
                raise ConfigError(f"PROMOTE IF cannot compare with {model.label}, whose {fault}")
            sql_type = trained.columns.raw[feature.name] if expression is None else expression.type
            role: Role = "category" if feature.kind == "string" else "number"
            features.append(TrainingColumn(feature.name, sql_type, role, expression))
        columns = replace(trained.columns, features=tuple(features), left_out=())
        # With the form "scaled", features are read as columns by name, in memory.
        trainer = replace(trained.request.trainer, features="scaled")
        request = replace(trained.request, trainer=trainer, out_of_core=False)
        rows = read_rows(self.host, query, columns, request, Progress())
        assert rows.held_out is not None
        return make_part(rows.held_out, build_frame(rows, rows.held_out, rows.order), request, rows)
