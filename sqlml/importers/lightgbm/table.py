"""LightGBM's rows of the registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from sqlml.importers.frame import Frame, Outputs, Schema
from sqlml.importers.lightgbm import importer

FILE = "lightgbm file"
"""What `file_formats.read_artifact` makes of a file, as `registry.NAMES` calls it."""

IMPORTERS: Mapping[str, Callable[[Any, Frame], Frame | Outputs]] = MappingProxyType(
    {
        "lightgbm.sklearn.LGBMClassifier": importer.import_classifier,
        "lightgbm.sklearn.LGBMRegressor": importer.import_regressor,
        "lightgbm.sklearn.LGBMRanker": importer.import_regressor,
        "lightgbm.basic.Booster": importer.import_booster,
        FILE: importer.import_file,
    }
)
SCHEMAS: Mapping[str, Callable[[Any], Schema]] = MappingProxyType(
    {path: importer.file_schema if path == FILE else importer.schema for path in IMPORTERS}
)
