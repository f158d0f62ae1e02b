"""CatBoost's rows of the registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from sqlml.importers.catboost import importer
from sqlml.importers.frame import Frame, Outputs, Schema

FILE = "catboost file"
"""What `file_formats.read_artifact` makes of a file, as `registry.NAMES` calls it."""

IMPORTERS: Mapping[str, Callable[[Any, Frame], Frame | Outputs]] = MappingProxyType(
    {
        "catboost.core.CatBoostClassifier": importer.import_classifier,
        "catboost.core.CatBoostRegressor": importer.import_regressor,
        "catboost.core.CatBoostRanker": importer.import_raw,
        "catboost.core.CatBoost": importer.import_raw,
        FILE: importer.import_file,
    }
)
SCHEMAS: Mapping[str, Callable[[Any], Schema]] = MappingProxyType(
    {path: importer.file_schema if path == FILE else importer.schema for path in IMPORTERS}
)
