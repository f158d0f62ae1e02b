"""Prepare the rows of a Spark DataFrame for XGBoost: count, encode, split and weight them.

The driver only receives counts, the names of categories, and samples of both sides of the split.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlml.dialects.type_names import NUMBERS
from sqlml.errors import ConfigError
from sqlml.training.column_statistics import MAX_SAMPLED, Classes, ColumnStatistics
from sqlml.training.options.request import Request
from sqlml.training.options.splits import BITS, STEP, SplitRule
from sqlml.training.rows.check_rows import MAX_CLASSES
from sqlml.training.rows.estimator_input import compute_class_weights
from sqlml.training.rows.feature_pipeline import MAX_NATIVE_CATEGORIES
from sqlml.training.rows.read_rows import SplitSide, TrainingRows
from sqlml.training.rows.training_columns import Role, TrainingColumn, TrainingColumns
from sqlml.training.train_model_type import MAX_MEASURED_ROWS
from sqlml.types import Array, fold
from sqlml.udfs.spark.engine import read_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MAX_CATEGORIES = MAX_NATIVE_CATEGORIES["xgboost"]
LABEL, HELD_OUT, WEIGHT = "sqlml_label", "sqlml_held", "sqlml_weight"
"""Columns of the training rows besides the features `f0`, `f1`, ..."""

POSITION = "sqlml_place"
"""The column that decides which rows a random split holds out."""


def add_positions(rows: DataFrame, request: Request) -> tuple[DataFrame, Request]:
    """For a random split, add the column `POSITION` to the rows and to the request.

    All models of a query then hold out the same rows, even if the driver trains some of the models.
    """
    if request.split.method not in ("auto", "random"):
        return rows, request
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    seed, label, group = F.lit(request.seed), fold(request.label or ""), request.group
    columns = read_columns(rows.schema)
    hashed = {fold(c.name): F.col(_quote(c.name)) for c in columns if "MAP(" not in c.type}
    if group is not None and fold(group) in hashed:
        row_hash, copy_number = F.xxhash64(hashed[fold(group)].cast("string"), seed), F.lit(0)
    else:
        value = hashed.pop(label, F.lit(0))
        row_hash = F.xxhash64(*hashed.values(), seed)
        equal_rows = Window.partitionBy(row_hash, value.isNull()).orderBy(F.xxhash64(value))
        copy_number = F.row_number().over(equal_rows) - 1
    position = F.shiftrightunsigned(row_hash, 64 - BITS) + copy_number.cast("bigint") * STEP
    split = replace(request.split, column=POSITION)
    return rows.withColumn(POSITION, position % 2**BITS), replace(request, split=split)


@dataclass(frozen=True, slots=True)
class SplitRows:
    """Labelled rows for XGBoost; the BOOLEAN column `HELD_OUT` marks the held-out rows.

    `fitted` and `held_out` are row counts. `rescued` lists the classes that only occur in held-out
    rows; these rows are fitted instead.
    """

    frame: DataFrame
    rescued: tuple[int, ...]
    fitted: int
    held_out: int


class SparkRows:
    """The rows of a DataFrame; `measure` reads statistics, categories and classes.

    Attributes:
        columns: the columns to learn from.
        statistics: the statistics of each feature.
        labelled, unlabelled: the numbers of rows with and without a label.
        names: the sorted categories of each column with at most `MAX_CATEGORIES` categories.
        classes: the classes of the label, or None for a regression.
    """

    def __init__(self, rows: DataFrame, request: Request) -> None:
        from pyspark.sql import functions

        self._functions = functions
        self._request = request
        self.columns = _find_columns(rows, request)
        columns = read_columns(rows.schema)
        self._rows = rows.select(*(self._replace_nan(c.name, c.type) for c in columns))
        self._labelled = self._rows.where(self._get_column(str(request.label)).isNotNull())
        self.statistics = {c.name: ColumnStatistics(c.name, c.type) for c in self.columns.features}
        self.labelled = self.unlabelled = 0
        self.names: dict[str, tuple[str, ...]] = {}
        self.classes: Classes | None = None

    def _get_column(self, name: str) -> Column:
        return self._functions.col(_quote(name))

    def _replace_nan(self, name: str, sql_type: str) -> Column:
        column = self._get_column(name)
        if sql_type in ("FLOAT", "DOUBLE"):
            column = self._functions.when(~self._functions.isnan(column), column)
        return column.alias(name)

    def measure(self) -> list[str]:
        """Read statistics, categories and classes; return columns with too many categories."""
        self._compute_statistics()
        high_cardinality = self._read_names()
        self._sample_numbers()
        self.classes = self._read_classes()
        return high_cardinality

    def _compute_statistics(self) -> None:
        F, request = self._functions, self._request
        aggregates = [F.count(F.lit(1))]
        for column in self.columns.features:
            value = self._get_column(column.name)
            aggregates.append(F.count(value))
            if column.role == "category":
                aggregates.append(F.approx_count_distinct(value))
                continue
            number = (value.cast("int") if column.type == "BOOLEAN" else value).cast("double")
            aggregates += [F.min(number), F.max(number), F.avg(number), F.var_pop(number)]
        if request.weight is not None:
            weight = self._get_column(request.weight).cast("double")
            aggregates.append(F.count(F.when(weight.isNull() | (weight < 0), 1)))
        total = int(self._rows.count())
        aggregate_values = list(self._labelled.agg(*aggregates).first() or ())
        if request.weight is not None and aggregate_values.pop():
            message = f"column {request.weight!r} must have weights of at least 0, without NULL"
            raise ConfigError(message)
        results = iter(aggregate_values)
        num_labelled = next(results)
        for column in self.columns.features:
            stats = self.statistics[column.name]
            stats.row_count, stats.null_count = num_labelled, num_labelled - int(next(results))
            if column.role == "category":
                stats.distinct_count = int(next(results))
                continue
            stats.min_value, stats.max_value, mean, variance = (next(results) for _ in range(4))
            stats.mean = mean or 0.0
            stats.spread = (variance or 0.0) * (num_labelled - stats.null_count)
            if np.isinf([v for v in (stats.min_value, stats.max_value) if v is not None]).any():
                raise ConfigError(
                    f"column {column.name!r} has infinite values, which models cannot learn from; "
                    "turn them into NULL in the query"
                )
        if not num_labelled:
            no_rows = "the query returns no rows: there is nothing to train on"
            no_labels = f"all values of the label {request.label!r} are NULL"
            raise ConfigError(no_labels if total else no_rows)
        self.labelled, self.unlabelled = num_labelled, total - num_labelled

    def _read_names(self) -> list[str]:
        """Read the categories of each column; return columns with more than `MAX_CATEGORIES`."""
        F, high_cardinality = self._functions, []
        is_labelled = F.when(self._get_column(str(self._request.label)).isNotNull(), 1)
        for column in (c for c in self.columns.features if c.role == "category"):
            statistics = self.statistics[column.name]
            counts: dict[Any, int] = {}
            if (statistics.distinct_count or 0) <= 2 * MAX_CATEGORIES:  # The estimate is off by 5%.
                value = self._get_column(column.name)
                groups = self._rows.where(value.isNotNull()).groupBy(value)
                counted_groups = groups.agg(F.count(is_labelled)).limit(MAX_CATEGORIES + 1)
                counts = dict(counted_groups.collect())
            if 0 < len(counts) <= MAX_CATEGORIES or statistics.null_count == statistics.row_count:
                self.names[column.name] = tuple(sorted(counts))
                statistics.set_names(counts)
            else:
                high_cardinality.append(column.name)
        return high_cardinality

    def _sample_numbers(self) -> None:
        number_columns = [c for c in self.columns.features if c.role == "number"]
        if not number_columns:
            return
        rows = self._labelled
        if self.labelled > MAX_SAMPLED:
            rows = rows.sample(1.1 * MAX_SAMPLED / self.labelled, self._request.seed)
        features = [self._build_feature(c).alias(f"f{n}") for n, c in enumerate(number_columns)]
        table = rows.select(*features).limit(MAX_SAMPLED).toArrow()
        for column, values in zip(number_columns, table.columns, strict=True):
            self.statistics[column.name].set_values(values.to_numpy())

    def _read_classes(self) -> Classes | None:
        import pyarrow as pa

        if self._request.task != "classify":
            return None
        label = self._build_label()
        labels = self._rows.where(label.isNotNull()).select(label).distinct()
        values = [value for (value,) in labels.limit(MAX_CLASSES + 1).collect()]
        classes = Classes(self.columns.label.type if self.columns.label is not None else "")
        classes.encode(pa.array(values))
        return classes

    def _build_label(self) -> Column:
        label = self.columns.label
        assert label is not None
        value = self._get_column(label.name)
        if self._request.task != "classify":
            if NUMBERS.fullmatch(label.type):
                return value.cast("double")
            fault = f"column {label.name!r} has type {label.type}"
            raise ConfigError(f"{self._request.model_type} models predict numbers, and {fault}")
        if label.type in ("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "VARCHAR"):
            return value
        if label.type == "DATE" or NUMBERS.fullmatch(label.type):
            return value.cast("string" if label.type == "DATE" else "double")
        advice = f"cast column {label.name!r} to STRING in the query"
        raise ConfigError(f"classes cannot have type {label.type}; {advice}")

    def _build_feature(self, column: TrainingColumn) -> Any:
        value = self._get_column(column.name)
        if column.role == "category":
            return self._build_code(value, self.names[column.name])
        number = value.cast("int") if column.type == "BOOLEAN" else value
        return self._functions.coalesce(number.cast("double"), self._functions.lit(float("nan")))

    def _build_code(self, value: Column, names: Sequence[Any]) -> Any:
        """Build a column with the index of `value` in `names`, or NaN if `names` lacks `value`."""
        F = self._functions
        if not names:
            return F.lit(float("nan"))
        position = F.array_position(F.array(*map(F.lit, names)), value)
        return F.when(position > 0, (position - 1).cast("double")).otherwise(F.lit(float("nan")))

    def split(self, features: Sequence[TrainingColumn], split: SplitRule) -> SplitRows:
        """Split the labelled rows into rows to fit and rows to hold out."""
        F, key = self._functions, self._functions.col(HELD_OUT)
        frame = self._select_training_columns(features)
        if split.method == "none":
            is_held_out = F.lit(False)
        elif split.method == "custom":
            if frame.schema[HELD_OUT].dataType.typeName() != "boolean":
                message = f"split_column {split.column!r} must be a BOOLEAN for split custom"
                raise ConfigError(message)
            is_held_out = F.coalesce(key, F.lit(True))
        elif split.method == "random":
            is_held_out = key < split.bound
        else:
            is_held_out = self._build_last_condition(frame, split)
        frame = frame.withColumn(HELD_OUT, is_held_out)
        rescued: tuple[int, ...] = ()
        if self._request.task == "classify" and split.method != "none":
            counts = frame.groupBy(LABEL).agg(F.count(F.when(~key, 1)))
            rescued = tuple(sorted(int(label) for label, count in counts.collect() if not count))
            if rescued:
                frame = frame.withColumn(HELD_OUT, key & ~F.col(LABEL).isin(*map(float, rescued)))
        held_out = frame.where(key).count()
        return SplitRows(frame, rescued, frame.count() - held_out, held_out)

    def _select_training_columns(self, features: Sequence[TrainingColumn]) -> DataFrame:
        """Select features, label, weight and split key (as `HELD_OUT`) of the labelled rows."""
        F, request = self._functions, self._request
        label = self._build_label()
        codes = [self._build_feature(column).alias(f"f{n}") for n, column in enumerate(features)]
        weight = F.lit(1.0)
        if request.weight is not None:
            weight = self._get_column(request.weight).cast("double")
        key_name = request.split.column
        key = F.lit(0) if key_name is None else self._get_column(key_name)
        classes = self.classes
        y = label.cast("double") if classes is None else self._build_code(label, classes.values())
        rows = self._rows.where(label.isNotNull())
        return rows.select(*codes, y.alias(LABEL), weight.alias(WEIGHT), key.alias(HELD_OUT))

    def _build_last_condition(self, frame: DataFrame, split: SplitRule) -> Any:
        """Build the condition for holding out the rows with the last keys; NULL keys come last."""
        F, key = self._functions, self._functions.col(HELD_OUT)
        num_rows = frame.count()
        num_trained = split.count_trained(num_rows)
        if num_trained >= num_rows:
            return F.lit(False)
        ordered_keys = frame.select(key).orderBy(key.asc_nulls_last())
        last_key = ordered_keys.offset(max(num_trained, 1) - 1).limit(1).collect()[0][0]
        return key.isNull() if last_key is None else F.coalesce(key > F.lit(last_key), F.lit(True))

    def sample(
        self, rows: SplitRows, features: Sequence[TrainingColumn], split: SplitRule
    ) -> TrainingRows:
        """Fetch up to `MAX_MEASURED_ROWS` rows per side of the split, for checks and metrics."""
        width, is_held_out = len(features), self._functions.col(HELD_OUT)
        held_out_rows = rows.frame.where(is_held_out)
        held_out = self._fetch_side(held_out_rows, width, rows.held_out) if rows.held_out else None
        class_values = [] if self.classes is None else self.classes.values()
        return TrainingRows(
            tuple(c.name for c in self.columns.features if c in features),
            tuple(features),
            self.names,
            self.classes,
            self.statistics,
            self._fetch_side(rows.frame.where(~is_held_out), width, rows.fitted),
            held_out,
            split,
            tuple(class_values[k] for k in rows.rescued),
            self.unlabelled,
            float("inf"),
        )

    def _fetch_side(self, frame: DataFrame, width: int, row_count: int) -> SplitSide:
        if row_count > MAX_MEASURED_ROWS:  # Sampling, unlike LIMIT, reads all partitions.
            frame = frame.sample(1.1 * MAX_MEASURED_ROWS / row_count, self._request.seed)
        table = frame.limit(MAX_MEASURED_ROWS).drop(HELD_OUT).toArrow()
        columns = [column.to_numpy() for column in table.columns]
        X = np.empty((table.num_rows, width), np.float32)
        for i in range(width):
            X[:, i] = columns[i]
        label: Array = columns[width]
        label = label if self.classes is None else label.astype(np.int64)
        weight = None if self._request.weight is None else columns[width + 1]
        return SplitSide(X, label, weight, None, row_count)

    def weigh_classes(self, frame: DataFrame, sample: TrainingRows) -> DataFrame:
        """Multiply the weights of fitted rows by class weights."""
        F, request = self._functions, self._request
        if request.class_weights is None or sample.classes is None:
            return frame
        if request.class_weights == "balanced":
            fitted = frame.where(~F.col(HELD_OUT)).groupBy(LABEL).count().collect()
            counts = {int(label): count for label, count in fitted}
            total = sum(counts.values())
            class_weights = [total / (len(counts) * counts[k]) for k in range(len(counts))]
        else:
            class_weights = [float(w) for w in compute_class_weights(request, sample)]
        factor = F.element_at(F.array(*map(F.lit, class_weights)), F.col(LABEL).cast("int") + 1)
        weight = F.col(WEIGHT)
        return frame.withColumn(WEIGHT, F.when(~F.col(HELD_OUT), weight * factor).otherwise(weight))


def _find_columns(rows: DataFrame, request: Request) -> TrainingColumns:
    schema = read_columns(rows.schema)
    columns = [TrainingColumn(c.name, c.type, _find_role(c.type)) for c in schema]
    candidates = [c for c in columns if c.name not in request.other_columns]
    label = next((c for c in columns if c.name == request.label), None)
    return TrainingColumns(
        {c.name: c.type for c in columns},
        tuple(c for c in candidates if c.role),
        tuple(c for c in candidates if not c.role),
        None if label is None else replace(label, role=None),
    )


def _find_role(sql_type: str) -> Role | None:
    if NUMBERS.fullmatch(sql_type):
        return "number"
    return "category" if sql_type == "VARCHAR" else None


def _quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
