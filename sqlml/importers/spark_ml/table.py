"""pyspark.ml's rows of the registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from sqlml.importers.frame import Frame, Outputs, Schema
from sqlml.importers.spark_ml.live import read_object
from sqlml.importers.spark_ml.pipeline import import_stages, schema_of
from sqlml.importers.spark_ml.stages import PACKAGES, PYTHON

FOLDER = "pyspark.ml folder"
"""What `folder.read_folder` makes of a folder, as `registry.NAMES` calls it."""

PIPELINE = f"{PYTHON}pipeline.PipelineModel"
CLASSES = (PIPELINE, *(f"{PYTHON}{package}.{kind}" for kind, package in PACKAGES.items()))


def import_object(model: Any, frame: Frame) -> Frame | Outputs:
    """A fitted pipeline or stage of this process."""
    return import_stages(read_object(model), frame)


def object_schema(model: Any) -> Schema:
    """Its columns."""
    return schema_of(read_object(model, trees=False))


IMPORTERS: Mapping[str, Callable[[Any, Frame], Frame | Outputs]] = MappingProxyType(
    {**dict.fromkeys(CLASSES, import_object), FOLDER: import_stages}
)
SCHEMAS: Mapping[str, Callable[[Any], Schema]] = MappingProxyType(
    {**dict.fromkeys(CLASSES, object_schema), FOLDER: schema_of}
)
