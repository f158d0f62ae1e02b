"""EXPORT MODEL carried out: a model as a file, under the engine's own access settings."""

from __future__ import annotations

from sqlml.errors import ConfigError
from sqlml.ir.program import Program
from sqlml.planner.export import FORMATS, export
from sqlml.udfs.duckdb import DuckDBEngine


def export_to_file(
    program: Program, path: str, format: str | None, engine: DuckDBEngine, name: str = "model"
) -> None:
    """Write a model to a file.

    Args:
        format: ONNX, SQLML or SQL, whose macros are called `name`; None: what the ending of the
            path says.

    Raises:
        ConfigError: no such format, or the ending says none.
        BackendError: the model has no form in it.
    """
    ending = path.rsplit(".", 1)[-1].upper()
    if format is None and ending not in FORMATS:
        raise ConfigError(f"which format is {path!r}? write FORMAT ONNX, SQLML or SQL")
    engine.write_file(path, export(program, format or ending, name))
