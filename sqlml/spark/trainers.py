"""Train models on the rows of Spark's queries.

`xgboost.spark` trains XGBoost's boosted trees in the executors, where the rows are. The driver only
receives counts, the names of categories, and a sample for checks and metrics. All other models are
trained in the driver, which fetches up to `MAX_FETCHED_ROWS` rows.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np

from sqlml.catalog.model import Model, TrainingFacts
from sqlml.errors import ConfigError, ParseError
from sqlml.limits import MAX_FETCHED_ROWS
from sqlml.spark import training_rows
from sqlml.training.fitting.fit import shorten_message
from sqlml.training.model_types import compute_model_metrics, uses_bins
from sqlml.training.options import estimator_parameters
from sqlml.training.options.request import Request
from sqlml.training.progress import TrainingLog
from sqlml.training.row_store import EstimatorRows
from sqlml.training.rows.check_rows import check_rows, find_keys
from sqlml.training.rows.estimator_input import assemble_model, make_part, read_held_out
from sqlml.training.rows.feature_pipeline import FeatureGroups, make_transformer
from sqlml.training.rows.training_columns import TrainingColumn, TrainingColumns
from sqlml.training.train_estimator import train_estimator
from sqlml.training.train_model_type import TrainedModel, collect_versions, train
from sqlml.training.train_partitions import train_partitions
from sqlml.types import fold
from sqlml.udfs.duckdb.engine import DuckDBEngine
from sqlml.udfs.duckdb.function_registry import Registry
from sqlml.udfs.duckdb.host import DuckDBHost

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SparkTrainers:
    """Implements `Trainers`: trains models on the rows of a SparkSession's queries."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def train_model_type(
        self, query: str, request: Request, transform: Sequence[str] | None
    ) -> TrainedModel:
        if transform is not None:
            raise ConfigError(
                "TRANSFORM uses DuckDB's functions and is not available in Spark; compute the "
                "features in the query, or in a view that training and scoring both read"
            )
        if request.num_workers is not None and not _is_distributed(request):
            raise ConfigError("option num_workers is only for boosted trees by xgboost")
        _reject_calibration(request)
        rows, request = training_rows.add_positions(self._open_rows(query), request)
        if _is_distributed(request):
            return _forget_positions(_train_distributed(rows, request))
        with _fetch_rows(rows, request.trainer.path.rpartition(".")[2]) as host:
            if request.partition_by:
                trained = train_partitions(host, _FETCHED, request, inlines=False)
            else:
                trained = train(host, _FETCHED, request, inlines=False, identity=query)
            return _forget_positions(trained)

    def train_estimator(self, query: str, estimator: Any, request: Request) -> TrainedModel:
        _reject_calibration(request)
        rows, request = training_rows.add_positions(self._open_rows(query), request)
        with _fetch_rows(rows, type(estimator).__name__) as host:
            return _forget_positions(train_estimator(host, _FETCHED, estimator, request))

    def read_held_out(self, query: str, trained: TrainedModel, model: Model) -> EstimatorRows:
        """Return the rows that training held out; `query` is unused."""
        assert trained.held_out_rows is not None
        return trained.held_out_rows()

    def find_held_out_rows(self, facts: TrainingFacts) -> str | None:
        """Return None, since the positions by which rows were held out are not stored."""
        return None

    def _open_rows(self, query: str) -> DataFrame:
        from pyspark.errors import ParseException

        try:
            rows = self._spark.sql(f"SELECT * FROM (\n{query}\n)")
        except ParseException as error:
            raise ParseError(str(error).split("\n")[0]) from None
        counts = Counter(map(fold, rows.columns))
        name = next((name for name in rows.columns if counts[fold(name)] > 1), None)
        if name is not None:
            message = f"the query has several columns {name!r}; give each its own name with AS"
            raise ConfigError(message)
        return rows


def _reject_calibration(request: Request) -> None:
    if request.options.keys() & {"calibration", "calibration_by"}:
        raise ConfigError(
            "option calibration is not available in Spark, which does not keep the held-out rows: "
            "use ALTER MODEL ... CALIBRATE USING (query)"
        )


def _forget_positions(trained: TrainedModel) -> TrainedModel:
    """Remove the position column of a random split, because each training adds the column again."""
    is_random = trained.split.method == "random"
    return replace(trained, split=replace(trained.split, column=None)) if is_random else trained


_FETCHED = "SELECT * FROM sqlml_fetched"


@contextmanager
def _fetch_rows(rows: DataFrame, model_name: str) -> Iterator[DuckDBHost]:
    """Fetch `rows` into DuckDB, and yield a host on which the query `_FETCHED` returns the rows."""
    table = rows.limit(MAX_FETCHED_ROWS + 1).toArrow()
    if table.num_rows > MAX_FETCHED_ROWS:
        raise ConfigError(
            f"{model_name} trains in the driver, which fetches at most {MAX_FETCHED_ROWS:,} rows: "
            "train boosted trees with library = 'xgboost', which learns in the executors, or train "
            "on a sample, SELECT ... TABLESAMPLE (10 PERCENT)"
        )
    with duckdb.connect() as connection:
        connection.register("sqlml_fetched", table)
        yield DuckDBHost(DuckDBEngine(connection, Registry(connection)))


_NOT_IN_SPARK = ("n_jobs", "enable_categorical")
"""Parameters that XGBoost's Spark estimators lack."""


def _is_distributed(request: Request) -> bool:
    task = request.model_type.removeprefix("boosted_tree_")
    return (
        task in ("classifier", "regressor")
        and request.trainer.package == "xgboost"
        and uses_bins(request.parameters)
        and not request.searched
        and request.checkpoint is None
        and not request.partition_by
        and request.encoding != "target"
        and request.folds is None
    )


def _train_distributed(rows: DataFrame, request: Request) -> TrainedModel:
    start = time.perf_counter()
    request = request.with_columns({fold(name): name for name in rows.columns})
    log = TrainingLog()
    # The rows are read several times, and a query may return different rows each time.
    persisted_rows = rows.persist()
    try:
        return _Training(persisted_rows, request, log).train(start)
    finally:
        persisted_rows.unpersist()
        log.progress.close()


class _Training:
    """One training of XGBoost in the executors, on rows that Spark has persisted."""

    def __init__(self, rows: DataFrame, request: Request, log: TrainingLog) -> None:
        self._request = request
        self._log = log
        self._session = rows.sparkSession
        self._rows = training_rows.SparkRows(rows, request)

    def train(self, start: float) -> TrainedModel:
        """Choose columns, split the rows, train and compute metrics; `start` is a start time."""
        import pyspark

        request, rows, columns = self._request, self._rows, self._rows.columns
        high_cardinality = rows.measure()
        features = [c for c in columns.features if c.name not in high_cardinality]
        notices = _describe_left_out(columns, high_cardinality)
        _require_columns(features)
        candidates = sorted(features, key=lambda column: column.role == "category")
        split = request.split.settle(rows.labelled)
        split_rows = rows.split(candidates, split)
        sample = rows.sample(split_rows, candidates, split)
        label_type = None if columns.label is None else columns.label.type
        notices += check_rows(sample, request, frozenset(), label_type)
        unusable = find_keys(sample) | {n for n, s in sample.statistics.items() if s.is_empty}
        learned_columns = [c for c in candidates if c.name not in unusable]
        _require_columns(learned_columns)
        groups = _group_features(learned_columns)
        num_workers = self._count_workers(split_rows.fitted)
        request = replace(request, options={**request.options, "num_workers": num_workers})
        frame = rows.weigh_classes(split_rows.frame, sample)
        holds_out = split_rows.held_out > 0
        estimator = self._fit(frame, sample.features, learned_columns, num_workers, holds_out)
        transformer = make_transformer(groups, rows.names, request)
        transformer = transformer.fit(_make_example(groups, rows.names))
        side = sample.fitted if sample.held_out is None else sample.held_out
        column_indices = [sample.features.index(c) for c in learned_columns]
        measured = make_part(side, np.asarray(side.features)[:, column_indices], request, sample)
        if len(learned_columns) < len(sample.features) and sample.held_out is not None:
            X = np.asarray(sample.held_out.features)[:, column_indices]
            held_out = replace(sample.held_out, features=X)
            sample = replace(sample, features=tuple(learned_columns), held_out=held_out)
        classes, num_classes = rows.classes, 0 if rows.classes is None else len(rows.classes)
        return TrainedModel(
            assemble_model(transformer, estimator, classes),
            None if classes is None else classes.labels(),
            request,
            split,
            split_rows.fitted,
            split_rows.held_out,
            compute_model_metrics(estimator, measured, request.task, num_classes),
            self._log,
            tuple(rows.statistics[c.name] for c in learned_columns),
            tuple(notices),
            {**collect_versions(request), "pyspark": str(pyspark.__version__)},
            time.perf_counter() - start,
            None if sample.held_out is None else partial(read_held_out, sample, groups, request),
            columns,
        )

    def _count_workers(self, num_rows: int) -> int:
        """Return the requested number of workers, or by default, the number of executors."""
        requested = self._request.num_workers
        if requested is not None:
            if 1 <= requested <= num_rows:
                return requested
            raise ConfigError(f"num_workers must be from 1 to the number of rows, not {requested}")
        context: Any = self._session.sparkContext._jsc.sc()
        num_executors = int(context.getExecutorMemoryStatus().size()) - 1  # Without the driver.
        return max(min(num_executors, num_rows), 1)

    def _fit(
        self,
        frame: DataFrame,
        features: Sequence[TrainingColumn],
        learned_columns: Sequence[TrainingColumn],
        num_workers: int,
        holds_out: bool,
    ) -> Any:
        """Train on `learned_columns`, a subset of `features`; return a plain XGBoost estimator."""
        from xgboost import spark as xgboost_spark

        request, log = self._request, self._log
        names = [c.name for c in learned_columns]
        orders = (names, names, [c.name for c in learned_columns if c.role != "category"])
        parameters = estimator_parameters.order_constraints(request.parameters, "xgboost", *orders)
        if parameters.get("n_jobs") is not None:
            raise ConfigError("option n_jobs is not available in Spark: set spark.task.cpus")
        feature_types = ["c" if c.role == "category" else "q" for c in learned_columns]
        if "c" in feature_types:
            parameters["feature_types"] = feature_types
        options = {name: value for name, value in parameters.items() if name not in _NOT_IN_SPARK}
        if holds_out:
            options["validation_indicator_col"] = training_rows.HELD_OUT
            if request.early_stopping_rounds is not None:
                options["early_stopping_rounds"] = request.early_stopping_rounds
        if request.weight is not None or request.class_weights is not None:
            options["weight_col"] = training_rows.WEIGHT
        estimator_class = request.trainer.estimator_class()
        spark_class = getattr(xgboost_spark, f"Spark{estimator_class.__name__}")
        log.start(parameters.get("n_estimators"))
        try:
            fitted = spark_class(
                features_col=[f"f{features.index(c)}" for c in learned_columns],
                label_col=training_rows.LABEL,
                num_workers=num_workers,
                force_repartition=True,  # Each worker needs rows of both sides of the split.
                verbose=False,
                **options,
            ).fit(frame if holds_out else frame.drop(training_rows.HELD_OUT))
        except Exception as error:  # Spark, Python workers and XGBoost raise different errors.
            reason = _find_last_error(str(error))
            raise ConfigError(f"{estimator_class.__name__} cannot be trained: {reason}") from error
        summary = fitted.training_summary
        histories = (summary.train_objective_history, summary.validation_objective_history)
        losses: list[Any] = [next(reversed(h.values()), []) if h else [] for h in histories]
        fitted_losses, held_out_losses = losses
        log.metric = next(reversed(histories[0]), "") if histories[0] else ""
        for i, loss in enumerate(fitted_losses):
            log.add_past(float(loss), float(held_out_losses[i]) if held_out_losses else None)
        booster = fitted.get_booster()
        booster.feature_names = None  # Spark's names are f0, f1, ...
        # Leave out early_stopping_rounds, so that a clone can be fitted without held-out rows.
        estimator = estimator_class(**parameters)
        estimator.load_model(booster.save_raw("ubj"))
        return estimator


def _describe_left_out(columns: TrainingColumns, high_cardinality: Sequence[str]) -> list[str]:
    limit = f"more than {training_rows.MAX_CATEGORIES:,} categories"
    reason = "is left out: models do not learn from"
    notices = [f"column {c.name!r} {reason} {c.type} in Spark" for c in columns.left_out]
    advice = "and is left out: group them in the query"
    return [*notices, *(f"column {name!r} has {limit} {advice}" for name in high_cardinality)]


def _require_columns(features: Sequence[TrainingColumn]) -> None:
    if not features:
        raise ConfigError("the query has no column that a model can learn from")


def _group_features(features: Sequence[TrainingColumn]) -> FeatureGroups:
    numbers = tuple(c.name for c in features if c.role == "number")
    return FeatureGroups(numbers, tuple(c.name for c in features if c.role == "category"), ())


def _make_example(groups: FeatureGroups, names: Mapping[str, Sequence[str]]) -> Any:
    """Make a frame of one row with known categories, for fitting a transformer."""
    import pandas as pd

    columns: dict[str, Any] = {name: [0.0] for name in groups.numbers}
    for name in groups.categories:
        columns[name] = pd.Series([next(iter(names[name]), np.nan)], dtype=object)
    return pd.DataFrame(columns)


def _find_last_error(text: str) -> str:
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    errors = [line for line in lines if "Error: " in line]
    return shorten_message((errors or lines or [""])[-1])[:500]
