"""`SparkRows`: the rows of a DataFrame as XGBoost takes them: counted, coded, split, weighted.

What the driver sees of them are counts, the names of categories, and a sample of each side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlml.dialects.type_names import NUMBERS
from sqlml.errors import ConfigError
from sqlml.training.column_statistics import MOST_SEEN, Classes, ColumnStatistics
from sqlml.training.options.request import Request
from sqlml.training.options.splits import BITS, STEP, Split
from sqlml.training.rows.check_rows import MOST_CLASSES
from sqlml.training.rows.estimator_input import class_weights
from sqlml.training.rows.feature_pipeline import MOST_NATIVE
from sqlml.training.rows.read_rows import Side, TrainingRows
from sqlml.training.rows.training_columns import Role, TrainingColumn, TrainingColumns
from sqlml.training.train_model import MOST_MEASURED
from sqlml.types import Array, fold
from sqlml.udfs.spark.engine import columns_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MOST_CATEGORIES = MOST_NATIVE["xgboost"]
"""Categories of a column that XGBoost takes."""

LABEL, HELD, WEIGHT = "sqlml_label", "sqlml_held", "sqlml_weight"
"""Columns of the rows that are trained on, beside the features `f0`, `f1`, .."""

PLACE = "sqlml_place"
"""The column that decides which rows of a random split are held out."""


def with_places(rows: DataFrame, request: Request) -> tuple[DataFrame, Request]:
    """Add the places of a random split to the rows, and name their column in the request.

    So all models hold out the same rows of a query, whichever library trains them, and whether it
    does so in the executors or in the driver.
    """
    if request.split.method not in ("auto", "random"):
        return rows, request
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    seed, label, group = f.lit(request.seed), fold(request.label or ""), request.group
    columns = columns_of(rows.schema)
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
    """The rows as Spark counts them.

    statistics: of each feature. labelled, unlabelled: numbers of rows.
    """

    statistics: Mapping[str, ColumnStatistics]
    labelled: int
    unlabelled: int


class SparkRows:
    """The rows of a DataFrame, which Spark keeps; `columns` are what is learned from."""

    def __init__(self, rows: DataFrame, request: Request) -> None:
        from pyspark.sql import functions

        self._f = functions
        self._request = request
        self.columns = _columns(rows, request)
        self._rows = rows.select(*(self._plain(c.name, c.type) for c in columns_of(rows.schema)))

    def _plain(self, name: str, kind: str) -> Column:
        """A column with NULL for NaN."""
        column = self._f.col(_quoted(name))
        if kind in ("FLOAT", "DOUBLE"):
            column = self._f.when(~self._f.isnan(column), column)
        return column.alias(name)

    def counted(self) -> Counted:
        f, request = self._f, self._request
        known = {c.name: ColumnStatistics(c.name, c.type) for c in self.columns.features}
        asked = [f.count(f.lit(1))]
        for column in self.columns.features:
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
        for column in self.columns.features:
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
        return Counted(known, count, everything - count)

    def names(self, counted: Counted) -> tuple[dict[str, tuple[str, ...]], list[str]]:
        """The categories of each column in order, and the columns that have too many."""
        f, names, too_many = self._f, dict[str, tuple[str, ...]](), []
        labelled = f.when(f.col(_quoted(str(self._request.label))).isNotNull(), 1)
        for column in self.columns.features:
            if column.role != "category":
                continue
            statistics = counted.statistics[column.name]
            found: list[Any] = []
            if (statistics.distinct or 0) <= 2 * MOST_CATEGORIES:  # told with an error of 5%
                value = f.col(_quoted(column.name))
                counts = self._rows.where(value.isNotNull()).groupBy(value).agg(f.count(labelled))
                found = counts.limit(MOST_CATEGORIES + 1).collect()
            if 0 < len(found) <= MOST_CATEGORIES or statistics.nulls == statistics.rows:
                names[column.name] = tuple(sorted(row[0] for row in found))
                statistics.tell_names({row[0]: row[1] for row in found})
            else:
                too_many.append(column.name)
        return names, too_many

    def tell_numbers(self, counted: Counted) -> None:
        """Look at some of the numbers of each column, of all partitions alike."""
        f = self._f
        numbers = [c for c in self.columns.features if c.role == "number"]
        if not numbers:
            return
        rows = self._rows.where(f.col(_quoted(str(self._request.label))).isNotNull())
        if counted.labelled > MOST_SEEN:
            rows = rows.sample(1.1 * MOST_SEEN / counted.labelled, self._request.seed)
        picked = [self._feature(c, {}).alias(f"f{n}") for n, c in enumerate(numbers)]
        table = rows.select(*picked).limit(MOST_SEEN).toArrow()
        for column, values in zip(numbers, table.columns, strict=True):
            counted.statistics[column.name].tell_values(values.to_numpy())

    def classes(self) -> Classes | None:
        """The classes of the label; None for a regression."""
        import pyarrow as pa

        if self._request.task != "classify":
            return None
        label = self._label()
        found = self._rows.where(label.isNotNull()).select(label).distinct()
        values = [row[0] for row in found.limit(MOST_CLASSES + 1).collect()]
        kind = self.columns.label.type if self.columns.label is not None else ""
        classes = Classes(kind)
        classes.codes(pa.array(values))
        return classes

    def _label(self) -> Column:
        """The label as classes or numbers are read from it.

        Raises:
            ConfigError: its type does not fit the model.
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
        """The labelled rows as XGBoost takes them, and the place or column of the split."""
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
        """The place of a value among others, from 0; NaN for one that is not there."""
        f = self._f
        if not names:
            return f.lit(float("nan"))
        place = f.array_position(f.array(*map(f.lit, names)), value)
        return f.when(place > 0, (place - 1).cast("double")).otherwise(f.lit(float("nan")))

    def split(
        self, frame: DataFrame, split: Split
    ) -> tuple[DataFrame, tuple[int, ...], tuple[int, int]]:
        """The rows with a BOOLEAN in place of `HELD`, the numbers of classes that only held-out
        rows have had, and how many rows are fitted to and held out."""
        f, place = self._f, self._f.col(HELD)
        if split.method == "none":
            held = f.lit(False)
        elif split.method == "custom":
            if frame.schema[HELD].dataType.typeName() != "boolean":
                raise ConfigError(
                    f"split_column {split.column!r} must be a BOOLEAN for split custom"
                )
            held = f.coalesce(place, f.lit(True))
        elif split.method == "random":
            held = place < split.bound
        else:
            held = self._after(frame, split)
        frame = frame.withColumn(HELD, held)
        kept: tuple[int, ...] = ()
        if self._request.task == "classify" and split.method != "none":
            counted = frame.groupBy(LABEL).agg(f.count(f.when(~f.col(HELD), 1)))
            kept = tuple(sorted(int(label) for label, count in counted.collect() if not count))
            if kept:
                alone = f.col(LABEL).isin(*map(float, kept))
                frame = frame.withColumn(HELD, f.col(HELD) & ~alone)
        held_out = frame.where(f.col(HELD)).count()
        return frame, kept, (frame.count() - held_out, held_out)

    def _after(self, frame: DataFrame, split: Split) -> Any:
        """Whether a row comes after the last one that is fitted to, in the order of a column."""
        f, place = self._f, self._f.col(HELD)
        count = frame.count()
        trained = split.trained(count)
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
        """What the checks and the metrics look at: up to `MOST_MEASURED` rows of each side."""
        held = self._f.col(HELD)
        fitted = self._side(frame.where(~held), len(features), counts[0], classes)
        held_out = None
        if counts[1]:
            held_out = self._side(frame.where(held), len(features), counts[1], classes)
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
        if rows > MOST_MEASURED:  # of all partitions alike
            frame = frame.sample(1.1 * MOST_MEASURED / rows, self._request.seed)
        table = frame.limit(MOST_MEASURED).drop(HELD).toArrow()
        columns = [column.to_numpy() for column in table.columns]
        X = np.empty((table.num_rows, width), np.float32)
        for k in range(width):
            X[:, k] = columns[k]
        label: Array = columns[width]
        weight = None if self._request.weight is None else columns[width + 1]
        return Side(X, label if classes is None else label.astype(np.int64), weight, None, rows)

    def weighted(self, frame: DataFrame, made: TrainingRows) -> DataFrame:
        """The rows with the weights of their classes."""
        f, request = self._f, self._request
        if request.class_weights is None or made.classes is None:
            return frame
        if request.class_weights == "balanced":
            fitted = frame.where(~f.col(HELD)).groupBy(LABEL).count().collect()
            counts = {int(label): count for label, count in fitted}
            total = sum(counts.values())
            weights = [total / (len(counts) * counts[k]) for k in range(len(counts))]
        else:
            weights = [float(w) for w in class_weights(request, made)]
        own = f.element_at(f.array(*map(f.lit, weights)), f.col(LABEL).cast("int") + 1)
        held = f.col(WEIGHT)
        return frame.withColumn(WEIGHT, f.when(~f.col(HELD), held * own).otherwise(held))


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


def _quoted(name: str) -> str:
    """A name as `col` takes it."""
    return "`" + name.replace("`", "``") + "`"
