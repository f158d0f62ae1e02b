"""torch's rows of the registry. A user's module is found by its base class."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from sqlml.importers.frame import Frame, Outputs, Schema
from sqlml.importers.torch import importer

MODULE = "torch.nn.modules.module.Module"
PROGRAM = "torch.export.exported_program.ExportedProgram"
FILE = "torch.export file"
"""What `file_formats.read_artifact` makes of a file, as `registry.NAMES` calls it."""

IMPORTERS: Mapping[str, Callable[[Any, Frame], Frame | Outputs]] = MappingProxyType(
    {
        MODULE: importer.import_module,
        PROGRAM: importer.import_program,
        FILE: importer.import_file,
    }
)
SCHEMAS: Mapping[str, Callable[[Any], Schema]] = MappingProxyType(
    {
        MODULE: importer.module_schema,
        PROGRAM: importer.program_schema,
        FILE: importer.file_schema,
    }
)
FAMILIES: frozenset[str] = frozenset((MODULE,))
"""Classes whose subclasses are imported as they are: users write their own."""
