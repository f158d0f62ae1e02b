"""`train_estimator`: an estimator with scikit-learn's conventions is fitted to a query's rows.

The estimator gets a pandas frame of the query's columns, as DuckDB makes it: what is done to them
is up to the estimator, which may be a pipeline or a search.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from sqlml.catalog.model import Model
from sqlml.dialects.duckdb import DUCKDB
from sqlml.dialects.type_names import STRINGS
from sqlml.errors import ConfigError, MissingDependencyError, UnsupportedModelError
from sqlml.host import RowHost
from sqlml.long_work import stage
from sqlml.scorer.evaluate import Metrics
from sqlml.training.features.columns import (
    Role,
    TrainingColumn,
    TrainingColumns,
    columns_of,
    label_sql,
)
from sqlml.training.fitting.checkpoint import TrainingLog
from sqlml.training.fitting.fit import cannot_be_trained
from sqlml.training.model_types import Task, Trainer, metrics_of, missing_packages, not_installed
from sqlml.training.options.own_options import ALIASES, OF_ESTIMATORS, Options, own_options
from sqlml.training.options.request import Request
from sqlml.training.progress import Progress
from sqlml.training.reading.checks import check_classes, check_frame, check_label
from sqlml.training.reading.rows import read_rows
from sqlml.training.reading.shaped_rows import frame_of, part_of
from sqlml.training.storage.column_statistics import Classes
from sqlml.training.storage.row_store import Part
from sqlml.training.train import Trained, train, versions_of
from sqlml.types import NESTED

_KEYS = ("sqlml_key_0", "sqlml_key_1")
"""The columns that decide which rows are held out."""


def estimator_request(estimator: Any, options: Mapping[str, Any], kept: tuple[str, ...]) -> Request:
    """What is to be trained, and how.

    Args:
        estimator: not fitted, with fit and get_params.
        options: label, split, weight and the like; the estimator has its own parameters.
        kept: names of options that are kept with any model.

    Raises:
        ConfigError: it is no estimator, or an option is unknown or of the wrong type.
        MissingDependencyError: scikit-learn or pandas is not installed.
    """
    described = hasattr(estimator, "fit") and hasattr(estimator, "get_params")
    if isinstance(estimator, type) or not described:
        raise ConfigError(
            "train takes the name of a model type, or an estimator with fit and get_params, not "
            f"{estimator!r:.80}"
        )
    missing = missing_packages()
    if missing:
        raise MissingDependencyError(
            f"training needs {not_installed(missing)}: pip install 'sqlml[train]'"
        )
    named = Options.of(options).renamed(ALIASES)
    own = own_options(named, OF_ESTIMATORS)
    rest = named.without((*OF_ESTIMATORS, *kept))
    unknown = next((named.written[name] for name in rest.values), None)
    if unknown is not None:
        raise ConfigError(
            f"unknown option {unknown!r}; options of train with an estimator: "
            f"{', '.join(OF_ESTIMATORS)}; parameters belong to the estimator itself"
        )
    kind = type(estimator)
    path = f"{kind.__module__}.{kind.__qualname__}"
    trainer = Trainer(path, "given")
    return Request.of_own(own, kind.__name__, _task(estimator), trainer, options, kept)


def _task(estimator: Any) -> Task:
    from sklearn import base

    if base.is_classifier(estimator):
        return "classify"
    if base.is_regressor(estimator):
        return "regress"
    if base.is_clusterer(estimator):
        return "cluster"
    return "isolate" if base.is_outlier_detector(estimator) else "project"


def train_estimator(host: RowHost, query: str, estimator: Any, request: Request) -> Trained:
    """Fit a clone of an estimator to the rows of a query that are not held out.

    Raises:
        ConfigError: the rows do not suit it, or it refuses them.
        ParseError: it is no query.
    """
    start = time.perf_counter()
    kind = type(estimator).__name__
    if request.label is None and request.task in ("classify", "regress"):
        raise ConfigError(f"{kind} learns from a label: name its column, as in label='churned'")
    columns, request = columns_of(host, query, request, None)
    types = columns.raw
    features = [name for name in types if name not in request.other_columns]
    if not features:
        raise ConfigError("the query has no column that a model can learn from")
    stage("reading")
    frame = host.fetch_frame(_sql(query, columns, request))
    split, mask = _held_out(frame, request)
    if request.held_out_for is not None and not mask.any():
        raise ConfigError(request.held_out_for)
    classes = _classes(types, frame, request)
    everything = _rows(frame, features, request, classes)
    if everything.weight is not None:
        _check_weights(everything.weight, request)
    statistics, notices = check_frame(
        frame, types, features, everything.y, None if classes is None else len(classes), request
    )
    notices += check_label(request, types.get(request.label or ""))
    log = TrainingLog()
    stage("fitting")
    made = _fitted(estimator, frame.loc[~mask], features, request, types)
    stage("measuring it")
    log.round(None, None)
    known = frame.loc[mask] if mask.any() else frame.loc[~mask]
    return Trained(
        made,
        None if classes is None else classes.labels(),
        request,
        split,
        int((~mask).sum()),
        int(mask.sum()),
        _metrics(made, _rows(known, features, request, classes), request, classes),
        log,
        tuple(column.to_dict() for column in statistics),
        tuple(notices),
        versions_of(request),
        time.perf_counter() - start,
        partial(_rows, frame.loc[mask], features, request, classes) if mask.any() else None,
        replace(columns, features=()),
    )


def _sql(query: str, columns: TrainingColumns, request: Request) -> str:
    """The rows with a label, and what decides whether they are held out.

    Labels are what the classes of a model of ours are: a DATE is a text, a DECIMAL a DOUBLE.
    """
    keys = request.split.keys(columns.raw, request.label, None, request.seed)
    listed = "".join(f", {key} AS {name}" for key, name in zip(keys, _KEYS, strict=False))
    where = replaced = ""
    if columns.label is not None:
        name = DUCKDB.quote_name(columns.label.name)
        where = f" WHERE {name} IS NOT NULL"
        made = label_sql(columns.label, request) if request.task == "classify" else name
        if columns.label.type.startswith("DECIMAL"):
            made = f"CAST({name} AS DOUBLE)"
        replaced = f" REPLACE ({made} AS {name})" if made != name else ""
    return f"SELECT *{replaced}{listed} FROM (\n{query}\n) AS sqlml_rows{where}"


def _check_weights(weights: Any, request: Request) -> None:
    """Raise ConfigError for weights that are none."""
    if not (np.isfinite(weights) & (weights >= 0)).all():
        raise ConfigError(
            f"column {request.weight!r} must have finite weights of at least 0, and no NULL"
        )


def _held_out(frame: Any, request: Request) -> tuple[Any, Any]:
    """The split, and which rows are held out, (n,) bool."""
    import pyarrow as pa

    split = request.split.settled(len(frame))
    keys = [frame[name] for name in _KEYS if name in frame]
    if split.method == "none" or not len(frame):
        return split, np.zeros(len(frame), bool)
    if split.reads_hashes:
        return split, split.held_out([key.to_numpy() for key in keys])
    return split, split.held_out([pa.Array.from_pandas(key) for key in keys])


def _classes(types: Mapping[str, str], frame: Any, request: Request) -> Classes | None:
    """The classes of the label; None if it has none.

    Raises:
        ConfigError: no rows, or a label that a classifier cannot learn.
    """
    import pyarrow as pa

    if not len(frame):
        raise ConfigError("the query returns no rows with a label: there is nothing to train on")
    if request.task != "classify" or request.label is None:
        return None
    made = Classes(types[request.label])
    made.codes(pa.Array.from_pandas(frame[request.label]))
    check_classes(made, len(frame), request)
    return made


def _fitted(
    estimator: Any, rows: Any, features: list[str], request: Request, types: Mapping[str, str]
) -> Any:
    from sklearn.base import clone

    y = () if request.label is None else (rows[request.label],)
    weights = {} if request.weight is None else {"sample_weight": rows[request.weight]}
    try:
        return clone(estimator).fit(rows[features], *y, **weights)
    except Exception as error:  # a library may raise any exception
        hint = _hint(str(error), rows, features, types)
        raise cannot_be_trained(type(estimator).__name__, error, hint) from error


def _hint(message: str, rows: Any, features: list[str], types: Mapping[str, str]) -> str:
    """Say which column a library refuses, and what to do: many libraries name none."""
    if _OF_TEXTS.search(message):
        texts = [name for name in features if STRINGS.fullmatch(types[name])]
        if texts:
            return (
                f"column {texts[0]!r} holds texts: put an encoder such as OneHotEncoder before the "
                "estimator in a Pipeline, or name a model type instead, which encodes them"
            )
    if _OF_GAPS.search(message):
        gaps = [name for name in features if rows[name].isna().any()]
        if gaps:
            return (
                f"column {gaps[0]!r} is NULL in some rows: fill it in the query, or put an imputer "
                "such as SimpleImputer before the estimator in a Pipeline"
            )
    return ""


_OF_TEXTS = re.compile("could not convert string to float|dtypes.* must be int")
_OF_GAPS = re.compile(r"\b(NaN|nan|missing values)\b")
"""Messages of libraries that do not take texts, or missing values."""


def _rows(rows: Any, features: list[str], request: Request, classes: Classes | None) -> Part:
    """Rows as metrics take them: y the numbers of classes, or numbers."""
    y: Any = None
    if request.label is not None:
        y = rows[request.label].to_numpy()
    if classes is not None:
        place = {value: n for n, value in enumerate(classes.values())}
        y = np.array([place[value] for value in classes.plain(y)])
    weight = None
    if request.weight is not None:
        weight = rows[request.weight].to_numpy(np.float64, na_value=np.nan)
    return Part(rows[features], y, weight, None)


def _metrics(model: Any, part: Part, request: Request, classes: Classes | None) -> Metrics:
    """The metrics of what scikit-learn's conventions let anybody measure."""
    if classes is not None and not hasattr(model, "predict_proba"):
        place = {value: n for n, value in enumerate(classes.values())}
        told = [place.get(value, -1) for value in classes.plain(model.predict(part.X))]
        return {"accuracy": float(np.average(np.array(told) == part.y, weights=part.weight))}
    try:
        return metrics_of(model, part, request.task, 0 if classes is None else len(classes))
    except (AttributeError, ValueError, TypeError) as error:
        raise UnsupportedModelError(
            f"{type(model).__name__} does not predict as scikit-learn's estimators do: {error}"
        ) from error


# `compared_rows`: the rows that a training held out, as another model takes them.


def compared_rows(host: RowHost, query: str, trained: Trained, model: Model) -> Part:
    """The rows of a training query that were held out, with the features of another model.

    Args:
        query: of the training, whose columns the model needs, too.

    Raises:
        ConfigError: the model takes lists or maps.
    """
    made = {} if model.transform is None else model.transform.made
    features = []
    for feature in model.features:
        if feature.kind == "any":
            continue  # the model never looks at it
        expression = made.get(feature.name)
        if feature.kind in NESTED:
            raise ConfigError(
                f"PROMOTE IF cannot compare with {model.label}, whose feature {feature.name!r} is "
                f"a {feature.kind}"
            )
        kind = trained.columns.raw[feature.name] if expression is None else expression.type
        role: Role = "category" if feature.kind == "string" else "number"
        features.append(TrainingColumn(feature.name, kind, role, expression))
    columns = replace(trained.columns, features=tuple(features), left_out=())
    trainer = replace(trained.request.trainer, features="scaled")  # columns by name, in memory
    request = replace(trained.request, trainer=trainer, out_of_core=False)
    rows = read_rows(host, query, columns, request, Progress())
    assert rows.held_out is not None
    return part_of(rows.held_out, frame_of(rows, rows.held_out, rows.order), request, rows)


# `Trainers`: what trains models on the rows of a session's queries.


class Trainers(Protocol):
    """What trains models on the rows of a session's queries."""

    def by_type(self, query: str, request: Request, transform: Sequence[str] | None) -> Trained:
        """A model of a type, as `train` makes it.

        Args:
            transform: the items of TRANSFORM (..).
        """
        ...

    def by_estimator(self, query: str, estimator: Any, request: Request) -> Trained:
        """An estimator of Python's, as `train_estimator` fits it."""
        ...

    def held_out(self, query: str, trained: Trained, model: Model) -> Part:
        """The rows that a training held out, X a frame with the features of another model."""
        ...


@dataclass(frozen=True)
class RowTrainers:
    """Trains on the rows that a host reads."""

    host: RowHost

    def by_type(self, query: str, request: Request, transform: Sequence[str] | None) -> Trained:
        """A model of a type."""
        if request.num_workers is not None:
            raise ConfigError(
                "option num_workers applies only to boosted trees by xgboost in Spark"
            )
        return train(self.host, query, request, transform)

    def by_estimator(self, query: str, estimator: Any, request: Request) -> Trained:
        """An estimator of Python's."""
        return train_estimator(self.host, query, estimator, request)

    def held_out(self, query: str, trained: Trained, model: Model) -> Part:
        """The rows that a training held out, for another model."""
        made = any(column.expression is not None for column in trained.columns.features)
        if model.transform is not None or made:
            return compared_rows(self.host, query, trained, model)
        assert trained.held_out_rows is not None
        return trained.held_out_rows()
