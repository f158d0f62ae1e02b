"""XGBoost's rows of the registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from sqlml.importers.frame import Frame, Outputs, Schema
from sqlml.importers.xgboost import importer

FILE = "xgboost file"
"""What `file_formats.read_artifact` makes of a file, as `registry.NAMES` calls it."""

IMPORTERS: Mapping[str, Callable[[Any, Frame], Frame | Outputs]] = MappingProxyType(
    {
        "xgboost.sklearn.XGBClassifier": importer.import_classifier,
        "xgboost.sklearn.XGBRFClassifier": importer.import_classifier,
        "xgboost.sklearn.XGBRegressor": importer.import_regressor,
        "xgboost.sklearn.XGBRFRegressor": importer.import_regressor,
        "xgboost.sklearn.XGBRanker": importer.import_regressor,
        "xgboost.core.Booster": importer.import_booster,
        FILE: importer.import_file,
    }
)
SCHEMAS: Mapping[str, Callable[[Any], Schema]] = MappingProxyType(
    {path: importer.file_schema if path == FILE else importer.schema for path in IMPORTERS}
)
