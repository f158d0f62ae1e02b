"""`spark_answers`, `loaded`: models of pyspark.ml asked in the session that this process has."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlml.errors import ArtifactError, ConfigError, MissingDependencyError
from sqlml.importers.spark_ml.live import read_object
from sqlml.importers.spark_ml.pipeline import Plan, plan
from sqlml.regular_files import local_path
from sqlml.types import Array
from sqlml.verifying.compare import Asked

if TYPE_CHECKING:
    import pandas as pd


def loaded(path: str) -> Any:
    """The pyspark.ml object in a folder, whose classes the importer knows.

    Raises:
        MissingDependencyError: pyspark is not installed.
        ConfigError: this process has no SparkSession.
        ArtifactError: Spark cannot read the folder.
    """
    session = _session()
    if session is None:
        raise ConfigError(
            f"verifying {path!r} needs a SparkSession, and this process has none: create one with "
            "SparkSession.builder.getOrCreate() and try again"
        )
    from pyspark.ml.util import DefaultParamsReader

    place = local_path(path)
    uri = path if place is None else f"file://{os.path.abspath(place)}"
    try:
        return DefaultParamsReader.loadParamsInstance(uri, session)
    except Exception as error:  # Java's errors come as classes of several packages
        reason = next(iter(str(error).strip().splitlines()), "")
        raise ArtifactError(
            f"{path}: Spark cannot read it ({type(error).__name__}: {reason})"
        ) from error


def _session() -> Any:
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise MissingDependencyError(
            "verifying the model needs pyspark, which is not installed: pip install 'sqlml[spark]'"
        ) from error
    return SparkSession.getActiveSession()


def spark_answers(model: Any, frame: pd.DataFrame, asked: Asked) -> dict[str, Array]:
    """The result of `model.transform` for the rows of a frame, whose missing values are NULL."""
    made = plan(read_object(model, trees=False))
    rows = _session().createDataFrame(*_rows(frame, asked, made.vector))
    columns = _columns(made, asked)
    needed = dict.fromkeys(name for names in columns.values() for name in names)
    told = model.transform(rows).select(*needed).collect()
    return {
        output: np.array([np.hstack([_plain(row[name]) for name in names]) for row in told])
        for output, names in columns.items()
    }


def _rows(frame: pd.DataFrame, asked: Asked, vector: str | None) -> tuple[list[Any], Any]:
    """The rows and their schema; of a model that reads one vector, its numbers as that."""
    from pyspark.ml.linalg import Vectors, VectorUDT
    from pyspark.sql.types import DoubleType, StringType, StructType

    if vector is not None:
        numbers = frame.to_numpy(np.float64)
        return [(Vectors.dense(row),) for row in numbers], StructType().add(vector, VectorUDT())
    schema = StructType()
    held: list[list[Any]] = []
    for name in frame.columns:
        text = name in asked.texts
        schema.add(name, StringType() if text else DoubleType())
        column = frame[name].astype(object)
        column = column.where(column.notna(), None).tolist()
        held.append([v if v is None or text else float(v) for v in column])
    return list(zip(*held, strict=True)), schema


def _columns(made: Plan, asked: Asked) -> dict[str, tuple[str, ...]]:
    """Output -> the columns of Spark's that say the same."""
    if made.predictor is None:
        return {"transform": made.made}
    stage, naming = made.predictor, made.naming
    found = {
        "label": (naming or stage).text("predictionCol" if naming is None else "outputCol"),
        "proba": stage.text("probabilityCol", ""),
        "score": stage.text("rawPredictionCol", ""),
    }
    return {output: (column,) for output, column in found.items() if output in asked.outputs}


def _plain(value: Any) -> Any:
    return value.toArray() if hasattr(value, "toArray") else value
