"""`train_distributed`: boosted trees by XGBoost in Spark's executors, where the rows are.

`xgboost.spark` trains on the DataFrame of the query; what the driver sees of the rows are counts,
the names of categories, and a sample for the checks and the metrics.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlml.dialects.type_names import NUMBERS
from sqlml.errors import ConfigError
from sqlml.training.checks import MOST_CLASSES, check_rows, keys_of
from sqlml.training.classes import Classes
from sqlml.training.column_statistics import ColumnStatistics
from sqlml.training.columns import Role, TrainingColumn, TrainingColumns
from sqlml.training.feature_pipeline import MOST_NATIVE, FeatureGroups, feature_transformer
from sqlml.training.metrics import metrics_of
from sqlml.training.model_types import makes_bins
from sqlml.training.request import Request
from sqlml.training.rows import Side, TrainingRows
from sqlml.training.shaped_rows import class_weights, held_out_part, part_of, whole_model
from sqlml.training.splits import BITS, Split
from sqlml.training.train import MOST_MEASURED, Trained, versions_of
from sqlml.training.training_log import TrainingLog
from sqlml.types import Array, fold
from sqlml.udfs.spark.types import columns_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MOST_CATEGORIES = MOST_NATIVE["xgboost"]
"""Categories of a column that XGBoost takes."""

_LABEL, _HELD, _WEIGHT = "sqlml_label", "sqlml_held", "sqlml_weight"
"""Columns of the rows that are trained on, beside the features `f0`, `f1`, .."""

_SPARKS = ("n_jobs", "enable_categorical")
"""Parameters of XGBoost's estimators that those for Spark do not take."""


def is_distributed(request: Request) -> bool:
    """Whether this is trained in the executors; the driver trains what this function refuses."""
    kind = request.model_type.removeprefix("boosted_tree_")
    return (
        kind in ("classifier", "regressor")
        and request.trainer.package == "xgboost"
        and makes_bins(request.parameters)
        and not request.searched
        and request.checkpoint is None
        and request.encoding != "target"
    )


def train_distributed(rows: DataFrame, request: Request) -> Trained:
    """Train boosted trees on the rows of a DataFrame.

    Raises:
        ConfigError: the rows do not suit the model, or XGBoost refuses them.
        MissingColumnError: an option names a column that the rows lack.
    """
    start = time.perf_counter()
    request = request.with_columns({fold(name): name for name in rows.columns})
    log = TrainingLog()
    held = rows.persist()  # read several times, and a query may give others each time
    try:
        return _Training(held, request, log).trained(start)
    finally:
        held.unpersist()
        log.progress.close()


@dataclass(frozen=True, slots=True)
class _Counted:
    """The rows as Spark counts them.

    statistics: of each feature. labelled, unlabelled: numbers of rows.
    """

    statistics: Mapping[str, ColumnStatistics]
    labelled: int
    unlabelled: int


class _Training:
    """One training; `rows` are kept by Spark."""

    def __init__(self, rows: DataFrame, request: Request, log: TrainingLog) -> None:
        from pyspark.sql import functions

        self._f = functions
        self._request = request
        self._log = log
        self._columns = _columns(rows, request)
        self._rows = rows.select(*(self._plain(c.name, c.type) for c in columns_of(rows.schema)))

    def trained(self, start: float) -> Trained:
        """The model, and what is to be known of it."""
        request, columns = self._request, self._columns
        counted = self._counted()
        names, too_many = self._names(counted)
        features = [c for c in columns.features if c.name not in too_many]
        notices = [
            f"column {c.name!r} is left out: models do not learn from {c.type} in Spark"
            for c in columns.left_out
        ]
        notices += [
            f"column {name!r} has more than {MOST_CATEGORIES:,} names and is left out: group them "
            "in the query"
            for name in too_many
        ]
        if not features:
            raise ConfigError("the query has no column that a model can learn from")
        ordered = sorted(features, key=lambda column: column.role == "category")
        classes = self._classes()
        split = request.split.settled(counted.labelled)
        frame, kept, counts = self._split(self._assembled(ordered, names, classes), split)
        made = self._training_rows(frame, ordered, names, classes, counted, split, kept, counts)
        notices += check_rows(made, request, frozenset())
        ordered = [c for c in ordered if c.name not in keys_of(made)]
        groups = _groups(ordered)
        workers = self._workers(counts[0])
        given = MappingProxyType({**request.given, "num_workers": workers})
        request = replace(request, given=given)
        frame = self._weighted(frame, made)
        estimator = self._fitted(frame, list(made.features), ordered, workers, counts[1] > 0)
        transformer = feature_transformer(groups, names, request).fit(_example(groups, names))
        side = made.fitted if made.held_out is None else made.held_out
        places = [made.features.index(c) for c in ordered]
        measured = part_of(side, np.asarray(side.features)[:, places], request, made)
        if len(ordered) < len(made.features) and made.held_out is not None:
            X = np.asarray(made.held_out.features)[:, places]
            rest = replace(made.held_out, features=X)
            made = replace(made, features=tuple(ordered), held_out=rest)
        number = 0 if classes is None else len(classes)
        return Trained(
            whole_model(transformer, estimator, classes),
            None if classes is None else classes.labels(),
            request,
            split,
            counts[0],
            counts[1],
            metrics_of(estimator, measured, request.task, number),
            self._log,
            tuple(counted.statistics[c.name].to_dict() for c in ordered),
            tuple(notices),
            {**versions_of(request), "pyspark": _pyspark_version()},
            time.perf_counter() - start,
            None if made.held_out is None else partial(held_out_part, made, groups, request),
            columns,
        )

    def _plain(self, name: str, kind: str) -> Column:
        """A column with NULL for NaN."""
        column = self._f.col(_quoted(name))
        if kind in ("FLOAT", "DOUBLE"):
            column = self._f.when(~self._f.isnan(column), column)
        return column.alias(name)

    def _counted(self) -> _Counted:
        f, request = self._f, self._request
        known = {c.name: ColumnStatistics(c.name, c.type) for c in self._columns.features}
        asked = [f.count(f.lit(1))]
        for column in self._columns.features:
            value = f.col(_quoted(column.name))
            asked.append(f.count(value))
            if column.role == "category":
                asked.append(f.approx_count_distinct(value))
                continue
            number = value.cast("int") if column.type == "BOOLEAN" else value
            double = number.cast("double")
            asked += [f.min(double), f.max(double), f.avg(double), f.var_pop(double)]
        labelled = self._rows.where(f.col(_quoted(str(request.label))).isNotNull())
        if request.weight is not None:
            weight = f.col(_quoted(request.weight)).cast("double")
            bad = f.count(f.when(weight.isNull() | (weight < 0), 1))
            asked.append(bad)
        everything = int(self._rows.count())
        values = list(labelled.agg(*asked).first() or ())
        if request.weight is not None and values.pop():
            raise ConfigError(
                f"column {request.weight!r} must have weights of at least 0, and no NULL"
            )
        count, *rest = values
        found = iter(rest)
        for column in self._columns.features:
            made = known[column.name]
            made.rows, made.nulls = count, count - int(next(found))
            if column.role == "category":
                made.distinct = int(next(found))
                continue
            made.least, made.most, mean, variance = (next(found) for _ in range(4))
            made.mean, made.spread = mean or 0.0, (variance or 0.0) * (count - made.nulls)
            if np.isinf([v for v in (made.least, made.most) if v is not None]).any():
                raise ConfigError(
                    f"column {column.name!r} has infinite values, which models cannot learn from; "
                    "turn them into NULL in the query"
                )
        if not count:
            raise ConfigError(
                f"all values of the label {request.label!r} are NULL"
                if everything
                else "the query returns no rows: there is nothing to train on"
            )
        return _Counted(known, count, everything - count)

    def _names(self, counted: _Counted) -> tuple[dict[str, tuple[str, ...]], list[str]]:
        """The categories of each column in order, and the columns that have too many."""
        names: dict[str, tuple[str, ...]] = {}
        too_many = []
        for column in self._columns.features:
            if column.role != "category":
                continue
            statistics = counted.statistics[column.name]
            found: list[Any] = []
            if (statistics.distinct or 0) <= 2 * MOST_CATEGORIES:  # told with an error of 5%
                value = self._f.col(_quoted(column.name))
                distinct = self._rows.where(value.isNotNull()).select(value).distinct()
                found = distinct.limit(MOST_CATEGORIES + 1).collect()
            if 0 < len(found) <= MOST_CATEGORIES or statistics.nulls == statistics.rows:
                names[column.name] = tuple(sorted(row[0] for row in found))
                statistics.distinct = len(found)
            else:
                too_many.append(column.name)
        return names, too_many

    def _classes(self) -> Classes | None:
        """The classes of the label; None for a regression."""
        import pyarrow as pa

        if self._request.task != "classify":
            return None
        label = self._label()
        found = self._rows.where(label.isNotNull()).select(label).distinct()
        values = [row[0] for row in found.limit(MOST_CLASSES + 1).collect()]
        kind = self._columns.label.type if self._columns.label is not None else ""
        classes = Classes(kind)
        classes.codes(pa.array(values))
        return classes

    def _label(self) -> Column:
        """The label as classes or numbers are read from it.

        Raises:
            ConfigError: its type does not fit the model.
        """
        label = self._columns.label
        assert label is not None
        value = self._f.col(_quoted(label.name))
        if self._request.task != "classify":
            if not NUMBERS.fullmatch(label.type):
                raise ConfigError(
                    f"{self._request.model_type} models predict numbers, and column "
                    f"{label.name!r} has type {label.type}"
                )
            return value.cast("double")
        if label.type in ("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "VARCHAR"):
            return value
        if label.type == "DATE" or NUMBERS.fullmatch(label.type):
            return value.cast("string" if label.type == "DATE" else "double")
        raise ConfigError(
            f"classes cannot have type {label.type}; cast column {label.name!r} to STRING in the "
            "query"
        )

    def _assembled(
        self,
        features: Sequence[TrainingColumn],
        names: Mapping[str, Sequence[str]],
        classes: Classes | None,
    ) -> DataFrame:
        """The labelled rows as XGBoost takes them, and the place or column of the split."""
        f, request = self._f, self._request
        label = self._label()
        y = label.cast("double") if classes is None else self._code(label, classes.values())
        picked = [self._feature(column, names).alias(f"f{n}") for n, column in enumerate(features)]
        weight = f.lit(1.0)
        if request.weight is not None:
            weight = f.col(_quoted(request.weight)).cast("double")
        hashed = [
            f.col(_quoted(name)) for name, kind in self._columns.raw.items() if "MAP(" not in kind
        ]
        place = f.shiftrightunsigned(f.xxhash64(*hashed, f.lit(request.seed)), 64 - BITS)
        if request.split.column is not None:
            place = f.col(_quoted(request.split.column))
        rows = self._rows.where(label.isNotNull())
        return rows.select(*picked, y.alias(_LABEL), weight.alias(_WEIGHT), place.alias(_HELD))

    def _feature(self, column: TrainingColumn, names: Mapping[str, Sequence[str]]) -> Any:
        value = self._f.col(_quoted(column.name))
        if column.role == "category":
            return self._code(value, names[column.name])
        number = value.cast("int") if column.type == "BOOLEAN" else value
        return self._f.coalesce(number.cast("double"), self._f.lit(float("nan")))

    def _code(self, value: Column, names: Sequence[Any]) -> Any:
        """The place of a value among others, from 0; NaN for one that is not there."""
        f = self._f
        if not names:
            return f.lit(float("nan"))
        place = f.array_position(f.array(*map(f.lit, names)), value)
        return f.when(place > 0, (place - 1).cast("double")).otherwise(f.lit(float("nan")))

    def _split(
        self, frame: DataFrame, split: Split
    ) -> tuple[DataFrame, tuple[int, ...], tuple[int, int]]:
        """The rows with a BOOLEAN in place of `_HELD`, the numbers of classes that only held-out
        rows have had, and how many rows are fitted to and held out."""
        f, place = self._f, self._f.col(_HELD)
        if split.method == "none":
            held = f.lit(False)
        elif split.method == "custom":
            if frame.schema[_HELD].dataType.typeName() != "boolean":
                raise ConfigError(
                    f"split_column {split.column!r} must be a BOOLEAN for split custom"
                )
            held = f.coalesce(place, f.lit(True))
        elif split.method == "random":
            held = place < split.bound
        else:
            held = self._after(frame, split)
        frame = frame.withColumn(_HELD, held)
        kept: tuple[int, ...] = ()
        if self._request.task == "classify" and split.method != "none":
            counted = frame.groupBy(_LABEL).agg(f.count(f.when(~f.col(_HELD), 1)))
            kept = tuple(sorted(int(label) for label, count in counted.collect() if not count))
            if kept:
                alone = f.col(_LABEL).isin(*map(float, kept))
                frame = frame.withColumn(_HELD, f.col(_HELD) & ~alone)
        held_out = frame.where(f.col(_HELD)).count()
        return frame, kept, (frame.count() - held_out, held_out)

    def _after(self, frame: DataFrame, split: Split) -> Any:
        """Whether a row comes after the last one that is fitted to, in the order of a column."""
        f, place = self._f, self._f.col(_HELD)
        count = frame.count()
        trained = split.trained(count)
        if trained >= count:
            return f.lit(False)
        ordered = frame.select(place).orderBy(place.asc_nulls_last())
        last = ordered.offset(max(trained, 1) - 1).limit(1).collect()[0][0]
        return place.isNull() if last is None else f.coalesce(place > f.lit(last), f.lit(True))

    def _training_rows(
        self,
        frame: DataFrame,
        features: Sequence[TrainingColumn],
        names: Mapping[str, tuple[str, ...]],
        classes: Classes | None,
        counted: _Counted,
        split: Split,
        kept: tuple[int, ...],
        counts: tuple[int, int],
    ) -> TrainingRows:
        """What the checks and the metrics look at: up to `MOST_MEASURED` rows of each side."""
        held = self._f.col(_HELD)
        fitted = self._side(frame.where(~held), len(features), counts[0], classes)
        held_out = None
        if counts[1]:
            held_out = self._side(frame.where(held), len(features), counts[1], classes)
        values = [] if classes is None else classes.values()
        return TrainingRows(
            tuple(c.name for c in self._columns.features if c in features),
            tuple(features),
            names,
            classes,
            counted.statistics,
            fitted,
            held_out,
            split,
            tuple(values[k] for k in kept),
            counted.unlabelled,
            float("inf"),
        )

    def _side(self, frame: DataFrame, width: int, rows: int, classes: Classes | None) -> Side:
        if rows > MOST_MEASURED:  # of all partitions alike
            frame = frame.sample(1.1 * MOST_MEASURED / rows, self._request.seed)
        table = frame.limit(MOST_MEASURED).drop(_HELD).toArrow()
        columns = [column.to_numpy() for column in table.columns]
        X = np.empty((table.num_rows, width), np.float32)
        for k in range(width):
            X[:, k] = columns[k]
        label: Array = columns[width]
        weight = None if self._request.weight is None else columns[width + 1]
        return Side(X, label if classes is None else label.astype(np.int64), weight, None, rows)

    def _weighted(self, frame: DataFrame, made: TrainingRows) -> DataFrame:
        """The rows with the weights of their classes."""
        f, request = self._f, self._request
        if request.class_weights is None or made.classes is None:
            return frame
        if request.class_weights == "balanced":
            fitted = frame.where(~f.col(_HELD)).groupBy(_LABEL).count().collect()
            counts = {int(label): count for label, count in fitted}
            total = sum(counts.values())
            weights = [total / (len(counts) * counts[k]) for k in range(len(counts))]
        else:
            weights = [float(w) for w in class_weights(request, made)]
        own = f.element_at(f.array(*map(f.lit, weights)), f.col(_LABEL).cast("int") + 1)
        held = f.col(_WEIGHT)
        return frame.withColumn(_WEIGHT, f.when(~f.col(_HELD), held * own).otherwise(held))

    def _workers(self, rows: int) -> int:
        """The workers that train together: as many as were asked for, or one in each executor.

        Raises:
            ConfigError: less than one, or more than rows.
        """
        asked = self._request.num_workers
        if asked is not None:
            if not 1 <= asked <= rows:
                raise ConfigError(f"num_workers must be from 1 to the number of rows, not {asked}")
            return asked
        context: Any = self._rows.sparkSession.sparkContext._jsc.sc()
        executors = int(context.getExecutorMemoryStatus().size()) - 1  # one is the driver's
        return max(min(executors, rows), 1)

    def _fitted(
        self,
        frame: DataFrame,
        features: Sequence[TrainingColumn],
        learned: Sequence[TrainingColumn],
        workers: int,
        holds_out: bool,
    ) -> Any:
        """XGBoost's own estimator with the trees that the executors have made."""
        from xgboost import spark as xgboost_spark

        request, log = self._request, self._log
        parameters = dict(request.parameters)
        if parameters.get("n_jobs") is not None:
            raise ConfigError("option n_jobs is not available in Spark: set spark.task.cpus")
        kinds = ["c" if c.role == "category" else "q" for c in learned]
        if "c" in kinds:
            parameters["feature_types"] = kinds
        patience = request.early_stopping_rounds if holds_out else None
        options = {n: v for n, v in parameters.items() if n not in _SPARKS}
        if patience is not None:
            options["early_stopping_rounds"] = patience
        if holds_out:
            options["validation_indicator_col"] = _HELD
        if request.weight is not None or request.class_weights is not None:
            options["weight_col"] = _WEIGHT
        kind = request.trainer.estimator_class()
        spark_kind = getattr(xgboost_spark, f"Spark{kind.__name__}")
        log.start(parameters.get("n_estimators"))
        try:
            fitted = spark_kind(
                features_col=[f"f{features.index(c)}" for c in learned],
                label_col=_LABEL,
                num_workers=workers,
                force_repartition=True,  # each worker needs rows of both sides
                verbose=False,
                **options,
            ).fit(frame if holds_out else frame.drop(_HELD))
        except Exception as error:  # of Spark, of Python in an executor, of XGBoost
            text = _last_line(str(error))
            raise ConfigError(f"{kind.__name__} cannot be trained: {text}") from error
        summary = fitted.training_summary
        sides = (summary.train_objective_history, summary.validation_objective_history)
        losses: list[Any] = [next(reversed(side.values()), []) if side else [] for side in sides]
        log.metric = next(reversed(sides[0]), "") if sides[0] else ""
        for number, loss in enumerate(losses[0]):
            log.past(float(loss), float(losses[1][number]) if losses[1] else None)
        booster = fitted.get_booster()
        booster.feature_names = None  # f0, f1, ..
        made = kind(**parameters, early_stopping_rounds=patience)
        made.load_model(booster.save_raw("ubj"))
        return made


def _columns(rows: DataFrame, request: Request) -> TrainingColumns:
    """The columns that a model learns from, and those that it does not."""
    described = columns_of(rows.schema)
    roles: dict[str, Role | None] = {c.name: _role(c.type) for c in described}
    listed = [TrainingColumn(c.name, c.type, roles[c.name]) for c in described]
    others = [c for c in listed if c.name not in request.other_columns]
    label = next((c for c in listed if c.name == request.label), None)
    return TrainingColumns(
        {c.name: c.type for c in described},
        tuple(c for c in others if c.role),
        tuple(c for c in others if not c.role),
        None if label is None else replace(label, role=None),
    )


def _role(kind: str) -> Role | None:
    if NUMBERS.fullmatch(kind):
        return "number"
    return "category" if kind == "VARCHAR" else None


def _groups(features: Sequence[TrainingColumn]) -> FeatureGroups:
    numbers = tuple(c.name for c in features if c.role == "number")
    return FeatureGroups(numbers, tuple(c.name for c in features if c.role == "category"), ())


def _example(groups: FeatureGroups, names: Mapping[str, Sequence[str]]) -> Any:
    """One row, which the transformer is fitted to: its categories are known."""
    import pandas as pd

    columns: dict[str, Any] = {name: [0.0] for name in groups.numbers}
    for name in groups.few:
        columns[name] = pd.Series([next(iter(names[name]), np.nan)], dtype=object)
    return pd.DataFrame(columns)


def _quoted(name: str) -> str:
    """A name as `col` takes it."""
    return "`" + name.replace("`", "``") + "`"


def _last_line(text: str) -> str:
    """What an error of an executor says at the end of its trace."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    told = [line for line in lines if "Error: " in line]
    return (told or lines or [""])[-1][:500]


def _pyspark_version() -> str:
    import pyspark

    return str(pyspark.__version__)
