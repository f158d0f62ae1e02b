"""Export of a model as the bytes of a file: in sqlml's own format, as ONNX, or as SQL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlml.backends.base import load_backend
from sqlml.errors import BackendError, ConfigError
from sqlml.ir import store
from sqlml.ir.program import Program
from sqlml.ir.trees import Ensemble
from sqlml.passes.lower import lower, lower_model_ops
from sqlml.planner.model_sql.export_macros import export_calibrated_macro, export_macros

FORMATS = ("ONNX", "SQLML", "SQL")


def export_to_bytes(
    program: Program,
    format: str,
    name: str = "model",
    about: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    calibrated: Program | None = None,
) -> bytes:
    """Return a model as the bytes of a file.

    Raises ConfigError for an unknown format, BackendError if the format cannot express the model,
    and MissingDependencyError if the package that writes the format is not installed.

    Args:
        format: one of `FORMATS`, in any case.
        name: the name of the macros in SQL.
        about: metadata for sqlml's own format (`importers/sqlml_file.py`).
        options: the model's options, for SQL.
        calibrated: the calibrated Program of the model, for SQL.
    """
    format_name = format.upper()
    if format_name not in FORMATS:
        raise ConfigError(f"unknown export format {format!r}; formats: {', '.join(FORMATS)}")
    if format_name == "SQLML":
        return store.dumps(program, about)
    if format_name == "SQL":
        statements = [export_macros(program, name, options)]
        if calibrated is not None:
            try:
                statements.append(export_calibrated_macro(calibrated, name, options or {}))
            except BackendError as error:  # The model itself can be exported.
                reason = " ".join(str(error).split())
                statements.append(f"-- The calibration is left out: {reason}.\n")
        return "\n".join(statements).encode()
    load_backend("onnxruntime")  # Raises an error if it is not installed.
    from sqlml.backends.onnxruntime.export import export_onnx

    ensembles = [node.attrs for node in program.nodes if node.op == "tree_ensemble"]
    has_category_sets = any(Ensemble.of(attributes).has_categories for attributes in ensembles)
    try:
        lowered_program = lower(program, "tt") if has_category_sets else lower_model_ops(program)
        return export_onnx(lowered_program, store.dumps(program))
    except RecursionError:
        raise BackendError("the steps of this model are nested too deeply for ONNX") from None
