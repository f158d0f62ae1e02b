"""`open_spark`: how a session on Spark begins."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from sqlml.errors import BackendError, ConfigError
from sqlml.spark.files import files_of
from sqlml.spark.session import SparkSession
from sqlml.udfs.spark.engine import require_live

if TYPE_CHECKING:
    import pyspark.sql

LEAST = (4, 1)
"""The first Spark that hands Arrow arrays to functions of Python."""


def open_spark(
    spark: pyspark.sql.SparkSession, catalog: str | None, allow_pickle: bool
) -> SparkSession:
    """A session on a live SparkSession.

    Raises:
        BackendError: a remote session (Spark Connect), a Spark that is too old or stopped.
        ConfigError: the directory has no name.
        CatalogError: it cannot be read.
    """
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise BackendError(
            "sqlml runs in the driver's own process, and this is a session of Spark Connect; open "
            "one with SparkSession.builder.master(..).getOrCreate()"
        )
    require_live(spark)
    found = re.match(r"(\d+)\.(\d+)", spark.version)
    if found is None or (int(found[1]), int(found[2])) < LEAST:
        raise BackendError(
            f"this is Spark {spark.version}, and sqlml needs {'.'.join(map(str, LEAST))} or later: "
            "pip install 'sqlml[spark]'"
        )
    conf: Any = spark.conf
    place = conf.get("spark.sqlml.catalog", None) if catalog is None else catalog
    if place == "":
        raise ConfigError("the model directory has no name; write, for example, catalog='models'")
    if place is None:
        place = f"{conf.get('spark.sql.warehouse.dir').rstrip('/')}/_sqlml"
    session = SparkSession(spark, files_of(place, spark), allow_pickle=allow_pickle)
    _hand_over_rows(conf)
    return session


_COLUMNAR = "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled"
_ARROW_BACKED = ("spark.plugins", "spark.sql.extensions", "spark.sql.cache.serializer")
"""What may give Spark columns that are Arrow's own, where it stands for something."""


def _hand_over_rows(conf: Any) -> None:
    """Let Spark send rows, not columns, to Python, unless configured otherwise.

    Columns that are Arrow's own are passed on as they are. Those of Spark's Parquet reader are not:
    Spark 4.3 visits them value by value, and a query takes a quarter longer than with rows (28
    FLOATs, 500 trees; docs/spark.md).
    """
    from pyspark.errors import PySparkException

    if any(key in conf.getAll for key in (_COLUMNAR, *_ARROW_BACKED)):
        return
    try:
        conf.get(_COLUMNAR)
    except PySparkException:
        return  # an earlier Spark, which always writes rows
    conf.set(_COLUMNAR, "false")
