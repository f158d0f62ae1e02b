"""`export`: a model as the bytes of a file, in sqlml's own format, as ONNX or as SQL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlml.backends.base import load
from sqlml.errors import BackendError, ConfigError
from sqlml.ir import store
from sqlml.ir.program import Program
from sqlml.ir.trees import Ensemble
from sqlml.passes.lower import lower, lower_model_ops
from sqlml.planner.model_sql.export_macros import export_sql

FORMATS = ("ONNX", "SQLML", "SQL")


def export(
    program: Program,
    format: str,
    name: str = "model",
    about: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
) -> bytes:
    """The bytes of a model file.

    Args:
        name: of the macros, in SQL.
        options: the model's options, for SQL (`export_sql`).
        about: what a file in sqlml's own format says about the model besides its Program
            (`importers/sqlml_file.py`).

    Raises:
        ConfigError: unknown format.
        BackendError: that format cannot express the model; the message says why.
        MissingDependencyError: the package that writes it is not installed.
    """
    wanted = format.upper()
    if wanted not in FORMATS:
        raise ConfigError(f"unknown export format {format!r}; formats: {', '.join(FORMATS)}")
    if wanted == "SQLML":
        return store.dumps(program, about)
    if wanted == "SQL":
        return export_sql(program, name, options).encode()
    load("onnxruntime")  # raises if it is not installed
    from sqlml.backends.onnxruntime import export_onnx

    sets = any(
        Ensemble.of(n.attrs).has_categories for n in program.nodes if n.op == "tree_ensemble"
    )
    try:
        lowered = lower(program, "tt") if sets else lower_model_ops(program)
        return export_onnx(lowered, store.dumps(program))
    except RecursionError:
        raise BackendError("the steps of this model are nested too deeply for ONNX") from None
