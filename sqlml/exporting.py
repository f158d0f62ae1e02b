"""EXPORT MODEL carried out: a model as a file, under the engine's own access settings."""

from __future__ import annotations

from sqlml.catalog.model import Model
from sqlml.errors import ConfigError
from sqlml.importers.stored import about
from sqlml.planner.export import FORMATS, export
from sqlml.udfs.engine import Host


def export_to_file(model: Model, path: str, format: str | None, host: Host) -> None:
    """Write a model to a file.

    Args:
        format: ONNX, SQLML or SQL, whose macros have the model's name; None: what the ending of
            the path says.

    Raises:
        ConfigError: no such format, or the ending says none.
        BackendError: the model has no form in it.
    """
    if "\0" in path:
        raise ConfigError(f"{path!r} is no path: it has a zero character in it")
    ending = path.rsplit(".", 1)[-1].upper()
    if format is None and ending not in FORMATS:
        raise ConfigError(f"which format is {path!r}? write FORMAT ONNX, SQLML or SQL")
    origin = model.origin
    told = about(model.features, origin.source, origin.library, model.options)
    content = export(model.program, format or ending, model.name, told, model.options)
    host.write_file(path, content)
