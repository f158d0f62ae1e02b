"""`require_live`: a SparkSession that has been stopped is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlml.errors import BackendError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def require_live(spark: SparkSession) -> None:
    """Refuse a session that has been stopped.

    Raises:
        BackendError: it has.
    """
    if getattr(spark.sparkContext, "_jsc", None) is None:
        raise BackendError(
            "the SparkSession has been stopped; create another one and attach it: the models are "
            "still in their directory"
        )
