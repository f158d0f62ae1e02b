"""`verified`: a version to be registered, once it answers as the object or file it comes from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlml.backends.installed import installed
from sqlml.catalog.model import NewVersion
from sqlml.errors import VerificationError
from sqlml.importers.model_file import ModelFile
from sqlml.importers.onnx.document import OnnxModel
from sqlml.importers.sqlml_file import StoredModel
from sqlml.ir.program import Program
from sqlml.long_work import stage
from sqlml.statements.new_version import version_of
from sqlml.statements.registration import Registration
from sqlml.verifying.ask_library import has_source
from sqlml.verifying.source import source_of
from sqlml.verifying.verify import Verification, verify_object, verify_source


def verified(model: Any, wanted: Registration, file: ModelFile | None) -> NewVersion:
    """Import a model, and compare the two as the option `verify` says.

    Raises:
        VerificationError: they answer otherwise.
        ArtifactError: the library that wrote the file ends on it.
        UnsupportedModelError, ConfigError.
    """
    stage("importing it")
    new = version_of(model, wanted, file)
    verify = wanted.options.get("verify", True)
    if verify is False or not _has_source(model):
        return new
    stage("comparing it with its source")
    if isinstance(model, OnnxModel) and not installed("onnxruntime"):
        found = Verification(skipped="onnxruntime is not installed")
    elif file is None:
        found = verify_object(model, new.program, new.features)
    else:
        made_of = source_of(file, new.program, allow_pickle=False)
        found = verify_source(made_of, new.program, new.features)
    if verify is True and not found.agrees:
        raise VerificationError(
            f"the imported model predicts differently from this {type(model).__name__} itself: "
            f"{found.complaint}. Nothing is registered; the option verify = 'record' registers it "
            "anyway. Please report this message: the fault is sqlml's"
        )
    return replace(new, verification=found.to_dict())


def _has_source(model: Any) -> bool:
    """Whether a model can be compared with its library; an ONNX file is, with onnxruntime."""
    if isinstance(model, Program | StoredModel):
        return False
    return isinstance(model, OnnxModel) or has_source(model)
