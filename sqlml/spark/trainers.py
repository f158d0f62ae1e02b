"""Train models on the rows of Spark's queries.

XGBoost's boosted trees are trained in the executors, where the rows are. All other models are
trained in the driver, which fetches up to `MAX_FETCHED_ROWS` rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import duckdb

from sqlml.catalog.model import Model
from sqlml.errors import ConfigError, ParseError
from sqlml.limits import MAX_FETCHED_ROWS
from sqlml.spark.distributed_xgboost import is_distributed, train_distributed
from sqlml.spark.training_rows import add_positions
from sqlml.training.options.request import Request
from sqlml.training.row_store import Part
from sqlml.training.train_estimator import train_estimator
from sqlml.training.train_model_type import TrainedModel, train
from sqlml.types import fold
from sqlml.udfs.duckdb.engine import DuckDBEngine
from sqlml.udfs.duckdb.function_registry import Registry
from sqlml.udfs.duckdb.host import DuckDBHost

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SparkTrainers:
    """Trains on the rows of a SparkSession's queries (`Trainers`)."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def train_model_type(
        self, query: str, request: Request, transform: Sequence[str] | None
    ) -> TrainedModel:
        """Train a model of a model type."""
        if transform is not None:
            raise ConfigError(
                "TRANSFORM uses DuckDB's functions and is not available in Spark; compute the "
                "features in the query, or in a view that training and scoring both read"
            )
        if request.num_workers is not None and not is_distributed(request):
            raise ConfigError("option num_workers is only for boosted trees by xgboost")
        rows, request = add_positions(self._open_rows(query), request)
        if is_distributed(request):
            return _forget_positions(train_distributed(rows, request))
        with _fetch_rows(rows, request.trainer.path.rpartition(".")[2]) as host:
            return _forget_positions(train(host, _FETCHED, request, inlines=False, identity=query))

    def train_estimator(self, query: str, estimator: Any, request: Request) -> TrainedModel:
        """Fit a Python estimator on rows that the driver fetches."""
        rows, request = add_positions(self._open_rows(query), request)
        with _fetch_rows(rows, type(estimator).__name__) as host:
            return _forget_positions(train_estimator(host, _FETCHED, estimator, request))

    def read_held_out(self, query: str, trained: TrainedModel, model: Model) -> Part:
        """Return the rows that a training held out; models have no TRANSFORM here."""
        assert trained.held_out_rows is not None
        return trained.held_out_rows()

    def _open_rows(self, query: str) -> DataFrame:
        """Return the rows of a query, whose columns must have different names."""
        from pyspark.errors import ParseException

        try:
            rows = self._spark.sql(f"SELECT * FROM (\n{query}\n)")
        except ParseException as error:
            raise ParseError(str(error).split("\n")[0]) from None
        counts = Counter(map(fold, rows.columns))
        for name in rows.columns:
            if counts[fold(name)] > 1:
                raise ConfigError(
                    f"the query has several columns {name!r}; give each its own name with AS"
                )
        return rows


def _forget_positions(trained: TrainedModel) -> TrainedModel:
    """Forget the position column of a random split, since a later training adds its own."""
    if trained.split.method != "random":
        return trained
    return replace(trained, split=replace(trained.split, column=None))


_FETCHED = "SELECT * FROM sqlml_fetched"


@contextmanager
def _fetch_rows(rows: DataFrame, model: str) -> Iterator[DuckDBHost]:
    """Open a database in memory with the rows as `_FETCHED`; messages name the model."""
    fetched = rows.limit(MAX_FETCHED_ROWS + 1).toArrow()
    if fetched.num_rows > MAX_FETCHED_ROWS:
        raise ConfigError(
            f"{model} trains in the driver, which fetches at most {MAX_FETCHED_ROWS:,} rows: train "
            "boosted trees with library = 'xgboost', which learns in the executors, or train on a "
            "sample, SELECT ... TABLESAMPLE (10 PERCENT)"
        )
    with duckdb.connect() as connection:
        connection.register("sqlml_fetched", fetched)
        yield DuckDBHost(DuckDBEngine(connection, Registry(connection)))
