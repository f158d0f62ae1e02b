"""Open a session on a live SparkSession."""

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
"""The first Spark version that passes Arrow arrays to Python functions."""


def open_spark(
    spark: pyspark.sql.SparkSession, catalog: str | None, allow_pickle: bool
) -> SparkSession:
    """Open a session on a live SparkSession.

    Raises:
        BackendError: a remote session (Spark Connect), or a Spark that is too old or stopped.
        ConfigError: the directory has no name.
        CatalogError: the catalog cannot be read.
    """
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise BackendError(
            "sqlml runs in the driver's own process, and this is a session of Spark Connect; open "
            "one with SparkSession.builder.master(...).getOrCreate()"
        )
    require_live(spark)
    version = re.match(r"(\d+)\.(\d+)", spark.version)
    if version is None or (int(version[1]), int(version[2])) < LEAST:
        raise BackendError(
            f"this is Spark {spark.version}, and sqlml needs {'.'.join(map(str, LEAST))} or later: "
            "pip install 'sqlml[spark]'"
        )
    conf: Any = spark.conf
    directory = conf.get("spark.sqlml.catalog", None) if catalog is None else catalog
    if directory == "":
        raise ConfigError("the model directory has no name; write, for example, catalog='models'")
    if directory is None:
        directory = f"{conf.get('spark.sql.warehouse.dir').rstrip('/')}/_sqlml"
    session = SparkSession(spark, files_of(directory, spark), allow_pickle=allow_pickle)
    _hand_over_rows(conf)
    return session


_COLUMNAR = "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled"
_ARROW_BACKED = ("spark.plugins", "spark.sql.extensions", "spark.sql.cache.serializer")
"""Settings that may give Spark columns in Arrow's own memory."""


def _hand_over_rows(conf: Any) -> None:
    """Let Spark send rows, not columns, to Python, unless configured otherwise.

    Spark passes Arrow columns on as they are, but not those of its Parquet reader: Spark 4.3 visits
    these value by value, and a query takes a quarter longer than with rows (28 FLOATs, 500 trees;
    docs/spark.md).
    """
    from pyspark.errors import PySparkException

    if any(key in conf.getAll for key in (_COLUMNAR, *_ARROW_BACKED)):
        return
    try:
        conf.get(_COLUMNAR)
    except PySparkException:
        return  # Earlier versions of Spark always write rows.
    conf.set(_COLUMNAR, "false")
