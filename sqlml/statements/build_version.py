"""`Registration`: what CREATE MODEL and ADD VERSION specify besides the model itself, checked
once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from sqlml.backends.devices import installed
from sqlml.catalog.model import NewVersion, Origin, Reference, parse_reference
from sqlml.catalog.small_models import KINDS, SmallModel, loads
from sqlml.errors import (
    ArtifactError,
    ConfigError,
    UnknownModelError,
    UnsupportedModelError,
    VerificationError,
)
from sqlml.importers.model_checks import check_model
from sqlml.importers.model_file import ModelFile, import_file
from sqlml.importers.onnx.document import OnnxModel
from sqlml.importers.registry import import_model
from sqlml.importers.sqlml_file import StoredModel
from sqlml.ir.ops import text_that_is_not_unicode
from sqlml.ir.program import Program
from sqlml.long_work import stage
from sqlml.planner.binding.requested_output import OUTPUTS_OF
from sqlml.planner.program.prepare import prepare
from sqlml.planner.program.result_sql import result_type
from sqlml.statements import options as model_options
from sqlml.training.cascades.recipe import recipe_of
from sqlml.verifying.ask_library import has_source
from sqlml.verifying.source import source_of
from sqlml.verifying.verification import Verification, verify_object, verify_source


@dataclass(frozen=True, slots=True, eq=False)
class Registration:
    """Under which name a model is to be registered, and how.

    Args:
        reference: the model as a whole.
        inputs: names of the columns in training order, or name -> SQL type.
        output: name and SQL type of what it predicts.
        comment: of the model, or of the version that is added.
        or_replace: add a version that becomes the default, if the model exists.
        if_not_exists: do nothing if the model exists.
        number: of the version that is added; None: one more than the last one ever made.
        options: those of `options.py`.

    Raises:
        ConfigError: one of them is of the wrong type, or an option or value is unknown.
    """

    reference: Reference
    inputs: Sequence[str] | Mapping[str, str] | None = None
    output: Sequence[tuple[str, str]] | None = None
    comment: str | None = None
    or_replace: bool = False
    if_not_exists: bool = False
    number: int | None = None
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        if not (self.comment is None or isinstance(self.comment, str)):
            raise ConfigError(f"comment must be a string, not {self.comment!r}")
        if not (self.number is None or type(self.number) is int):
            raise ConfigError(f"number must be an integer, not {self.number!r}")
        for name in ("or_replace", "if_not_exists"):
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise ConfigError(f"{name} must be True or False, not {value!r}")
        model_options.stored(self.options)


def whole_model(name: Any) -> Reference:
    """The reference of `model` or `database.model`, as `create_model` is given it.

    Raises:
        ConfigError: it is not a valid reference, or names a version.
    """
    if not isinstance(name, str):
        raise ConfigError(
            f"the model name comes first and must be a string, not a {type(name).__name__}: "
            "create_model('churn', model)"
        )
    try:
        reference = parse_reference(name)
    except UnknownModelError:
        reference = None
    if reference is None or reference.names_a_version:
        raise ConfigError(
            f"invalid model name {name!r}: write 'model' or 'database.model', with neither part "
            "empty or containing . @ or /"
        )
    return reference


# `label_name`: what OUTPUT (name type) declares, checked against what the model predicts.


def label_name(program: Program, output: Sequence[tuple[str, str]]) -> str:
    """The name that OUTPUT gives to what the model predicts.

    Args:
        output: the names and SQL types that it declares.

    Raises:
        ConfigError: several of them, another type, or a model that predicts nothing.
    """
    if "label" not in program.outputs:
        raise ConfigError("OUTPUT names what a model predicts, but this one predicts nothing")
    if len(output) != 1:
        raise ConfigError("OUTPUT names one column: predict(..) returns no more")
    ((name, declared),) = output
    kind = result_type(program, "label", None)
    if _same_type(declared) != _same_type(kind):
        raise ConfigError(
            f"OUTPUT declares {name} {declared}, but the model predicts {kind}: write "
            f"OUTPUT ({name} {kind})"
        )
    return name


def _same_type(name: str) -> str:
    """One name of those that SQL has for a type."""
    words = "".join(name.upper().split())
    return _TYPES.get(words, words)


_TYPES = MappingProxyType(
    {
        **dict.fromkeys(("TEXT", "STRING", "CHAR", "BPCHAR"), "VARCHAR"),
        **dict.fromkeys(("INT8", "LONG", "INT64"), "BIGINT"),
        **dict.fromkeys(("FLOAT8", "FLOAT64"), "DOUBLE"),
        **dict.fromkeys(("BOOL", "LOGICAL"), "BOOLEAN"),
    }
)


# `version_of`: a fitted object, or the model in a file, as the catalog keeps it.


def version_of(model: Any, wanted: Registration, file: ModelFile | None = None) -> NewVersion:
    """Import a fitted object, or what a `file` holds.

    Raises:
        UnsupportedModelError, ConfigError.
    """
    kept = model_options.stored(wanted.options)
    if isinstance(model, StoredModel):
        kept = {**model_options.read_back(model.options), **kept}
    inputs = wanted.inputs
    imported = import_model(model, inputs) if file is None else import_file(file, inputs)
    if not (imported.named or imported.numbered):
        count = len(imported.features)
        columns = "1 column" if count == 1 else f"{count} columns"
        raise ConfigError(
            f"this {type(model).__name__} comes without column names; name its {columns}: "
            "create_model(.., inputs=['a', 'b', ...]), or CREATE MODEL m INPUT (a DOUBLE, b "
            "DOUBLE, ...) FROM '...'"
        )
    _check_numbers(imported.program)
    _check_texts(imported.program)
    model_options.check_fit(imported.program, kept)
    recipe = recipe_of(model)
    if recipe is not None:
        kept[model_options.ESTIMATOR] = recipe.to_dict()
    if wanted.output is not None:
        kept[model_options.OUTPUT] = label_name(imported.program, wanted.output)
    origin = Origin(imported.source, imported.library)
    if file is not None:
        origin = replace(origin, path=file.path, format=file.format, sha256=file.sha256)
    return NewVersion(
        imported.program,
        imported.features,
        _used(imported.program),
        origin,
        kept,
        small_models=_small_models(model, imported.program),
    )


def _small_models(model: Any, program: Program) -> tuple[SmallModel, ...]:
    """The small models that a file of ours brings."""
    found = []
    brought = model.small_models if isinstance(model, StoredModel) else {}
    for kind, (small, facts) in brought.items():
        if kind not in KINDS:
            raise ArtifactError(f"the file holds a small model of an unknown kind, {kind!r}")
        check_model(small)
        found.append(loads(kind, small, facts, program, "in the file"))
    return tuple(found)


def _check_numbers(program: Program) -> None:
    if any(program.output_type(name).dtype == "string" for name in program.outputs):
        raise UnsupportedModelError(
            "this model only fills columns of strings, and transform(..) in SQL gives numbers: "
            "write coalesce(column, 'value') in the query; sqlml.compile takes the model as it is"
        )


def _check_texts(program: Program) -> None:
    text = text_that_is_not_unicode(program)
    if text is not None:
        raise UnsupportedModelError(
            f"this model knows the text {text!r}, which is not valid Unicode, so that no text in a "
            "database can be that: fit it on other texts; sqlml.compile takes the model as it is"
        )


def _used(program: Program) -> frozenset[str]:
    """The inputs that some output needs once the passes have run."""
    return frozenset(
        name
        for outputs in OUTPUTS_OF.values()
        for output in outputs
        if output in program.outputs
        for name in prepare(program, output).program.inputs
    )


# `verified`: a version to be registered, once it answers as the object or file it comes from.


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
