"""ONNX's rows of the registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from sqlml.importers.frame import Frame, Outputs, Schema
from sqlml.importers.onnx import importer

FILE = "onnx file"
"""What `file_formats.read_artifact` makes of a file, as `registry.NAMES` calls it."""
PROTO = "onnx.onnx_ml_pb2.ModelProto"

IMPORTERS: Mapping[str, Callable[[Any, Frame], Frame | Outputs]] = MappingProxyType(
    {FILE: importer.import_file, PROTO: importer.import_proto}
)
SCHEMAS: Mapping[str, Callable[[Any], Schema]] = MappingProxyType(
    {FILE: importer.file_schema, PROTO: importer.proto_schema}
)
