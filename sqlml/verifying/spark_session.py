"""Sources of pyspark.ml models, which this process's SparkSession loads and scores."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlml.errors import ArtifactError, ConfigError, MissingDependencyError
from sqlml.importers.spark_ml.importer import StagePlan, make_plan
from sqlml.importers.spark_ml.live import read_object
from sqlml.regular_files import find_local_path
from sqlml.verifying.ask_library import PredictionRequest, Predictions

if TYPE_CHECKING:
    import pandas as pd


def load_spark_model(path: str) -> Any:
    """Load a pyspark.ml object from a folder; the importer has checked the classes."""
    session = _get_active_session()
    if session is None:
        raise ConfigError(
            f"verifying {path!r} needs a SparkSession, and this process has none: create one with "
            "SparkSession.builder.getOrCreate() and try again"
        )
    from pyspark.ml.util import DefaultParamsReader

    local_folder = find_local_path(path)
    uri = path if local_folder is None else f"file://{os.path.abspath(local_folder)}"
    try:
        return DefaultParamsReader.loadParamsInstance(uri, session)
    except Exception as error:  # Errors of Java have classes of several packages.
        reason = f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}"
        raise ArtifactError(f"{path}: Spark cannot read it ({reason})") from error


def _get_active_session() -> Any:
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise MissingDependencyError(
            "verifying the model needs pyspark, which is not installed: pip install 'sqlml[spark]'"
        ) from error
    return SparkSession.getActiveSession()


def predict_with_spark(model: Any, frame: pd.DataFrame, request: PredictionRequest) -> Predictions:
    """Return the outputs of `model.transform` for a frame; missing values become NULL."""
    pipeline = make_plan(read_object(model, trees=False))
    rows = _get_active_session().createDataFrame(*_to_spark_rows(frame, request, pipeline.vector))
    columns = _find_output_columns(pipeline, request)
    column_names = dict.fromkeys(name for names in columns.values() for name in names)
    results = model.transform(rows).select(*column_names).collect()
    return {
        output: np.array([np.hstack([_to_numbers(row[name]) for name in names]) for row in results])
        for output, names in columns.items()
    }


def _to_spark_rows(
    frame: pd.DataFrame, request: PredictionRequest, vector: str | None
) -> tuple[list[Any], Any]:
    from pyspark.ml.linalg import Vectors, VectorUDT
    from pyspark.sql.types import DoubleType, StringType, StructType

    if vector is not None:
        numbers = frame.to_numpy(np.float64)
        return [(Vectors.dense(row),) for row in numbers], StructType().add(vector, VectorUDT())
    schema = StructType()
    columns: list[list[Any]] = []
    for name in frame.columns:
        is_text = name in request.text_columns
        schema.add(name, StringType() if is_text else DoubleType())
        column = frame[name].astype(object)
        column = column.where(column.notna(), None).tolist()
        columns.append([value if value is None or is_text else float(value) for value in column])
    return list(zip(*columns, strict=True)), schema


def _find_output_columns(
    pipeline: StagePlan, request: PredictionRequest
) -> dict[str, tuple[str, ...]]:
    if pipeline.predictor is None:
        return {"transform": pipeline.outputs}
    predictor, label_stage = pipeline.predictor, pipeline.label_stage
    candidates = {
        "label": (label_stage or predictor).text(
            "predictionCol" if label_stage is None else "outputCol"
        ),
        "proba": predictor.text("probabilityCol", ""),
        "score": predictor.text("rawPredictionCol", ""),
    }
    return {output: (column,) for output, column in candidates.items() if output in request.outputs}


def _to_numbers(value: Any) -> Any:
    return value.toArray() if hasattr(value, "toArray") else value
