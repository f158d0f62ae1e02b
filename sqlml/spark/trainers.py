"""`SparkTrainers`: models are trained on the rows of Spark's queries.

XGBoost's boosted trees are trained where the rows are, in the executors. What all other libraries
do in one process is done in the driver's, on rows that it fetches, up to a number of them.
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
from sqlml.spark.training_rows import with_places
from sqlml.training.options.request import Request
from sqlml.training.row_store import Part
from sqlml.training.train_estimator import train_estimator
from sqlml.training.train_model import Trained, train
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

    def by_type(self, query: str, request: Request, transform: Sequence[str] | None) -> Trained:
        """A model of a type.

        Raises:
            ConfigError: TRANSFORM, or more rows than the driver fetches.
            ParseError: it is no query.
        """
        if transform is not None:
            raise ConfigError(
                "TRANSFORM uses DuckDB's functions and is not available in Spark; compute the "
                "features in the query, or in a view that training and scoring both read"
            )
        if request.num_workers is not None and not is_distributed(request):
            raise ConfigError("option num_workers is for boosted trees by xgboost")
        rows, request = with_places(self._rows(query), request)
        if is_distributed(request):
            return _without_places(train_distributed(rows, request))
        with _at_hand(rows, request.trainer.path.rpartition(".")[2]) as host:
            return _without_places(train(host, _FETCHED, request, inlines=False, identity=query))

    def by_estimator(self, query: str, estimator: Any, request: Request) -> Trained:
        """An estimator of Python's, on rows that the driver fetches.

        Raises:
            ConfigError: there are too many of them.
            ParseError: it is no query.
        """
        rows, request = with_places(self._rows(query), request)
        with _at_hand(rows, type(estimator).__name__) as host:
            return _without_places(train_estimator(host, _FETCHED, estimator, request))

    def held_out(self, query: str, trained: Trained, model: Model) -> Part:
        """The rows that a training held out; models have no TRANSFORM here."""
        assert trained.held_out_rows is not None
        return trained.held_out_rows()

    def _rows(self, query: str) -> DataFrame:
        """A query's rows.

        Raises:
            ParseError: it is no query. ConfigError: two columns of one name.
        """
        from pyspark.errors import ParseException

        try:
            rows = self._spark.sql(f"SELECT * FROM (\n{query}\n)")
        except ParseException as error:
            raise ParseError(str(error).split("\n")[0]) from None
        counted = Counter(map(fold, rows.columns))
        twice = next((name for name in rows.columns if counted[fold(name)] > 1), None)
        if twice is not None:
            raise ConfigError(
                f"the query has several columns {twice!r}; give each a name of its own with AS"
            )
        return rows


def _without_places(trained: Trained) -> Trained:
    """Name no column of places in the split, as a later training makes one of its own."""
    if trained.split.method != "random":
        return trained
    return replace(trained, split=replace(trained.split, column=None))


_FETCHED = "SELECT * FROM sqlml_fetched"


@contextmanager
def _at_hand(rows: DataFrame, what: str) -> Iterator[DuckDBHost]:
    """The rows as `_FETCHED` in a database of their own.

    Args:
        what: trains on them, for messages.

    Raises:
        ConfigError: there are too many.
    """
    fetched = rows.limit(MAX_FETCHED_ROWS + 1).toArrow()
    if fetched.num_rows > MAX_FETCHED_ROWS:
        raise ConfigError(
            f"{what} trains in the driver, which fetches {MAX_FETCHED_ROWS:,} rows at most: train "
            "boosted trees with library = 'xgboost', which learns in the executors, or on a "
            "sample, SELECT .. TABLESAMPLE (10 PERCENT)"
        )
    with duckdb.connect() as own:
        own.register("sqlml_fetched", fetched)
        yield DuckDBHost(DuckDBEngine(own, Registry(own)))
