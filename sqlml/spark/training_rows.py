"""Prepare the rows of a DataFrame for XGBoost: count, encode, split and weight them.

The driver only sees counts, the names of categories, and a sample of each side of the split.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlml.dialects.type_names import NUMBERS
from sqlml.errors import ConfigError
from sqlml.training.column_statistics import MAX_SAMPLED, Classes, ColumnStatistics
from sqlml.training.options.request import Request
from sqlml.training.options.splits import BITS, STEP, Split
from sqlml.training.rows.check_rows import MAX_CLASSES
from sqlml.training.rows.estimator_input import compute_class_weights
from sqlml.training.rows.feature_pipeline import MAX_NATIVE_CATEGORIES
from sqlml.training.rows.read_rows import Side, TrainingRows
from sqlml.training.rows.training_columns import Role, TrainingColumn, TrainingColumns
from sqlml.training.train_model_type import MAX_MEASURED_ROWS
from sqlml.types import Array, fold
from sqlml.udfs.spark.engine import read_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MOST_CATEGORIES = MAX_NATIVE_CATEGORIES["xgboost"]
"""Maximum number of categories of a column in XGBoost."""

LABEL, HELD, WEIGHT = "sqlml_label", "sqlml_held", "sqlml_weight"
"""Columns of the training rows besides the features `f0`, `f1`, ..."""

PLACE = "sqlml_place"
"""The column that decides which rows a random split holds out."""


def with_places(rows: DataFrame, request: Request) -> tuple[DataFrame, Request]:
    """Add the positions of a random split to the rows, and name their column in the request.

    All models then hold out the same rows of a query, in every library, in the executors or in the
    driver.
    """
    if request.split.method not in ("auto", "random"):
        return rows, request
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    seed, label, group = f.lit(request.seed), fold(request.label or ""), request.group
    columns = read_columns(rows.schema)
    hashed = {fold(c.name): f.col(_quoted(c.name)) for c in columns if "MAP(" not in c.type}
    if group is not None and fold(group) in hashed:
        row, number = f.xxhash64(hashed[fold(group)].cast("string"), seed), f.lit(0)
    else:
        value = hashed.pop(label, f.lit(0))
        row = f.xxhash64(*hashed.values(), seed)
        equal = Window.partitionBy(row, value.isNull()).orderBy(f.xxhash64(value))
        number = f.row_number().over(equal) - 1
    place = f.shiftrightunsigned(row, 64 - BITS) + number.cast("bigint") * STEP
    split = replace(request.split, column=PLACE)
    return rows.withColumn(PLACE, place % 2**BITS), replace(request, split=split)


@dataclass(frozen=True, slots=True)
class Counted:
    """Counts of the rows.

    Attributes:
        statistics: statistics of each feature.
        labelled, unlabelled: numbers of rows with and without a label.
    """

    statistics: Mapping[str, ColumnStatistics]
    labelled: int
    unlabelled: int


class SparkRows:
    """The rows of a DataFrame in Spark; `columns` are the columns to learn from."""

    def __init__(self, rows: DataFrame, request: Request) -> None:
        from pyspark.sql import functions

        self._f = functions
        self._request = request
        self.columns = _columns(rows, request)
        self._rows = rows.select(*(self._plain(c.name, c.type) for c in read_columns(rows.schema)))

    def _plain(self, name: str, kind: str) -> Column:
        """Replace NaN by NULL in a column."""
        column = self._f.col(_quoted(name))
        if kind in ("FLOAT", "DOUBLE"):
            column = self._f.when(~self._f.isnan(column), column)
        return column.alias(name)

    def counted(self) -> Counted:
        """Compute the statistics of all features, and count the rows, in two queries.

        Raises:
            ConfigError: the rows are empty, or labels, weights or numbers are unusable.
        """
        f, request = self._f, self._request
        statistics = {c.name: ColumnStatistics(c.name, c.type) for c in self.columns.features}
        aggregates = [f.count(f.lit(1))]
        for column in self.columns.features:
            value = f.col(_quoted(column.name))
            aggregates.append(f.count(value))
            if column.role == "category":
                aggregates.append(f.approx_count_distinct(value))
                continue
            number = value.cast("int") if column.type == "BOOLEAN" else value
            double = number.cast("double")
            aggregates += [f.min(double), f.max(double), f.avg(double), f.var_pop(double)]
        labelled = self._rows.where(f.col(_quoted(str(request.label))).isNotNull())
        if request.weight is not None:
            weight = f.col(_quoted(request.weight)).cast("double")
            aggregates.append(f.count(f.when(weight.isNull() | (weight < 0), 1)))
        everything = int(self._rows.count())
        values = list(labelled.agg(*aggregates).first() or ())
        if request.weight is not None and values.pop():
            raise ConfigError(
                f"column {request.weight!r} must have weights of at least 0, without NULL"
            )
        count, *rest = values
        results = iter(rest)
        for column in self.columns.features:
            feature = statistics[column.name]
            feature.rows, feature.nulls = count, count - int(next(results))
            if column.role == "category":
                feature.distinct = int(next(results))
                continue
            feature.least, feature.most, mean, variance = (next(results) for _ in range(4))
            feature.mean = mean or 0.0
            feature.spread = (variance or 0.0) * (count - feature.nulls)
            if np.isinf([v for v in (feature.least, feature.most) if v is not None]).any():
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
        return Counted(statistics, count, everything - count)

    def names(self, counted: Counted) -> tuple[dict[str, tuple[str, ...]], list[str]]:
        """Return the sorted categories of each column, and the columns with too many."""
        f, names, too_many = self._f, dict[str, tuple[str, ...]](), []
        labelled = f.when(f.col(_quoted(str(self._request.label))).isNotNull(), 1)
        for column in self.columns.features:
            if column.role != "category":
                continue
            statistics = counted.statistics[column.name]
            rows: list[Any] = []
            if (statistics.distinct or 0) <= 2 * MOST_CATEGORIES:  # The estimate is off by 5%.
                value = f.col(_quoted(column.name))
                counts = self._rows.where(value.isNotNull()).groupBy(value).agg(f.count(labelled))
                rows = counts.limit(MOST_CATEGORIES + 1).collect()
            if 0 < len(rows) <= MOST_CATEGORIES or statistics.nulls == statistics.rows:
                names[column.name] = tuple(sorted(row[0] for row in rows))
                statistics.set_names({row[0]: row[1] for row in rows})
            else:
                too_many.append(column.name)
        return names, too_many

    def tell_numbers(self, counted: Counted) -> None:
        """Add a sample of each column's numbers, from all partitions, to the statistics."""
        f = self._f
        numbers = [c for c in self.columns.features if c.role == "number"]
        if not numbers:
            return
        rows = self._rows.where(f.col(_quoted(str(self._request.label))).isNotNull())
        if counted.labelled > MAX_SAMPLED:
            rows = rows.sample(1.1 * MAX_SAMPLED / counted.labelled, self._request.seed)
        picked = [self._feature(c, {}).alias(f"f{n}") for n, c in enumerate(numbers)]
        table = rows.select(*picked).limit(MAX_SAMPLED).toArrow()
        for column, values in zip(numbers, table.columns, strict=True):
            counted.statistics[column.name].set_values(values.to_numpy())

    def classes(self) -> Classes | None:
        """Return the classes of the label; None for a regression."""
        import pyarrow as pa

        if self._request.task != "classify":
            return None
        label = self._label()
        labels = self._rows.where(label.isNotNull()).select(label).distinct()
        values = [row[0] for row in labels.limit(MAX_CLASSES + 1).collect()]
        kind = self.columns.label.type if self.columns.label is not None else ""
        classes = Classes(kind)
        classes.codes(pa.array(values))
        return classes

    def _label(self) -> Column:
        """Return the label in a type from which classes or numbers are read.

        Raises:
            ConfigError: the type does not fit the model.
        """
        label = self.columns.label
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

    def assembled(
        self,
        features: Sequence[TrainingColumn],
        names: Mapping[str, Sequence[str]],
        classes: Classes | None,
    ) -> DataFrame:
        """Return the labelled rows for XGBoost, with the position or column of the split."""
        f, request = self._f, self._request
        label = self._label()
        y = label.cast("double") if classes is None else self._code(label, classes.values())
        picked = [self._feature(column, names).alias(f"f{n}") for n, column in enumerate(features)]
        weight = f.lit(1.0)
        if request.weight is not None:
            weight = f.col(_quoted(request.weight)).cast("double")
        column = request.split.column
        place = f.lit(0) if column is None else f.col(_quoted(column))
        rows = self._rows.where(label.isNotNull())
        return rows.select(*picked, y.alias(LABEL), weight.alias(WEIGHT), place.alias(HELD))

    def _feature(self, column: TrainingColumn, names: Mapping[str, Sequence[str]]) -> Any:
        value = self._f.col(_quoted(column.name))
        if column.role == "category":
            return self._code(value, names[column.name])
        number = value.cast("int") if column.type == "BOOLEAN" else value
        return self._f.coalesce(number.cast("double"), self._f.lit(float("nan")))

    def _code(self, value: Column, names: Sequence[Any]) -> Any:
        """Return the index of a value in `names`; NaN if it is missing."""
        f = self._f
        if not names:
            return f.lit(float("nan"))
        place = f.array_position(f.array(*map(f.lit, names)), value)
        return f.when(place > 0, (place - 1).cast("double")).otherwise(f.lit(float("nan")))

    def split(
        self, frame: DataFrame, split: Split
    ) -> tuple[DataFrame, tuple[int, ...], tuple[int, int]]:
        """Split the rows into fitted and held-out ones.

        Returns the rows with a BOOLEAN column `HELD`; the numbers of the classes that only held-out
        rows would have, whose rows are fitted instead; and the counts of fitted and held-out rows.
        """
        f, place = self._f, self._f.col(HELD)
        if split.method == "none":
            is_held_out = f.lit(False)
        elif split.method == "custom":
            if frame.schema[HELD].dataType.typeName() != "boolean":
                raise ConfigError(
                    f"split_column {split.column!r} must be a BOOLEAN for split custom"
                )
            is_held_out = f.coalesce(place, f.lit(True))
        elif split.method == "random":
            is_held_out = place < split.bound
        else:
            is_held_out = self._after(frame, split)
        frame = frame.withColumn(HELD, is_held_out)
        rescued: tuple[int, ...] = ()
        if self._request.task == "classify" and split.method != "none":
            counts = frame.groupBy(LABEL).agg(f.count(f.when(~f.col(HELD), 1)))
            rescued = tuple(sorted(int(label) for label, count in counts.collect() if not count))
            if rescued:
                is_rescued = f.col(LABEL).isin(*map(float, rescued))
                frame = frame.withColumn(HELD, f.col(HELD) & ~is_rescued)
        held_out = frame.where(f.col(HELD)).count()
        return frame, rescued, (frame.count() - held_out, held_out)

    def _after(self, frame: DataFrame, split: Split) -> Any:
        """Return a column that marks rows after the last fitted one, in the order of `HELD`."""
        f, place = self._f, self._f.col(HELD)
        count = frame.count()
        trained = split.count_trained(count)
        if trained >= count:
            return f.lit(False)
        ordered = frame.select(place).orderBy(place.asc_nulls_last())
        last = ordered.offset(max(trained, 1) - 1).limit(1).collect()[0][0]
        return place.isNull() if last is None else f.coalesce(place > f.lit(last), f.lit(True))

    def sampled(
        self,
        frame: DataFrame,
        features: Sequence[TrainingColumn],
        names: Mapping[str, tuple[str, ...]],
        classes: Classes | None,
        counted: Counted,
        split: Split,
        kept: tuple[int, ...],
        counts: tuple[int, int],
    ) -> TrainingRows:
        """Sample up to `MOST_MEASURED` rows of each side, for the checks and the metrics."""
        is_held_out = self._f.col(HELD)
        fitted = self._side(frame.where(~is_held_out), len(features), counts[0], classes)
        held_out = None
        if counts[1]:
            held_out = self._side(frame.where(is_held_out), len(features), counts[1], classes)
        values = [] if classes is None else classes.values()
        return TrainingRows(
            tuple(c.name for c in self.columns.features if c in features),
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
        if rows > MAX_MEASURED_ROWS:  # Sampling, unlike LIMIT, reads all partitions.
            frame = frame.sample(1.1 * MAX_MEASURED_ROWS / rows, self._request.seed)
        table = frame.limit(MAX_MEASURED_ROWS).drop(HELD).toArrow()
        columns = [column.to_numpy() for column in table.columns]
        X = np.empty((table.num_rows, width), np.float32)
        for k in range(width):
            X[:, k] = columns[k]
        label: Array = columns[width]
        weight = None if self._request.weight is None else columns[width + 1]
        return Side(X, label if classes is None else label.astype(np.int64), weight, None, rows)

    def weighted(self, frame: DataFrame, sample: TrainingRows) -> DataFrame:
        """Multiply the weights of the fitted rows by the weights of their classes."""
        f, request = self._f, self._request
        if request.class_weights is None or sample.classes is None:
            return frame
        if request.class_weights == "balanced":
            fitted = frame.where(~f.col(HELD)).groupBy(LABEL).count().collect()
            counts = {int(label): count for label, count in fitted}
            total = sum(counts.values())
            weights = [total / (len(counts) * counts[k]) for k in range(len(counts))]
        else:
            weights = [float(w) for w in compute_class_weights(request, sample)]
        factor = f.element_at(f.array(*map(f.lit, weights)), f.col(LABEL).cast("int") + 1)
        weight = f.col(WEIGHT)
        return frame.withColumn(WEIGHT, f.when(~f.col(HELD), weight * factor).otherwise(weight))


def _columns(rows: DataFrame, request: Request) -> TrainingColumns:
    """Divide the columns into those that a model learns from, and the others."""
    described = read_columns(rows.schema)
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


def _quoted(name: str) -> str:
    """Quote a name for `col`."""
    return "`" + name.replace("`", "``") + "`"
