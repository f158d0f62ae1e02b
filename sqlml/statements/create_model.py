"""CREATE MODEL and ADD VERSION: register a fitted object, or the model in a file.

A statement names a file, and a Python call passes an object. Both become a `ModelRequest`, from
which `build_version` imports the model, checks it, and compares it with its source library. The
functions below follow the order of the work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlml.backends.devices import is_installed
from sqlml.catalog.model import (
    TRANSFORM,
    NewVersion,
    Origin,
    Reference,
    parse_reference,
    read_transform,
)
from sqlml.catalog.small_models import KINDS, SmallModel, load_small_model
from sqlml.errors import (
    ArtifactError,
    ConfigError,
    UnknownModelError,
    UnsupportedModelError,
    VerificationError,
)
from sqlml.importers.model_checks import check_model
from sqlml.importers.model_file import ModelFile, import_file, read_file
from sqlml.importers.onnx.document import OnnxModel
from sqlml.importers.registry import Imported, import_model
from sqlml.importers.sqlml_file import StoredModel
from sqlml.ir.ops import CALIBRATED_OUTPUTS, OUTPUTS, find_invalid_unicode
from sqlml.ir.program import Program
from sqlml.long_work import long_work, show_stage
from sqlml.parsing.statements import AddVersion, Artifact, CreateModel, Description
from sqlml.planner.binding.requested_output import OUTPUTS_OF
from sqlml.planner.program.prepare_program import prepare_output
from sqlml.planner.program.result_sql import find_result_type
from sqlml.statements import model_options
from sqlml.statements.connection_models import Models, resolve_model
from sqlml.training.cascades.recipe import extract_recipe
from sqlml.verifying.ask_library import has_source
from sqlml.verifying.source import open_source
from sqlml.verifying.verification import Verification, verify_object, verify_source


@dataclass(frozen=True, slots=True, eq=False)
class ModelRequest:
    """The name of a model to register, and all other arguments of the user.

    `inputs` lists the column names in training order, or maps them to SQL types. `output` contains
    the name and SQL type of the prediction. If an argument is invalid, ConfigError is raised.
    """

    reference: Reference
    inputs: Sequence[str] | Mapping[str, str] | None = None
    output: Sequence[tuple[str, str]] | None = None
    description: Description = Description()
    or_replace: bool = False
    if_not_exists: bool = False
    number: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        comment = self.description.comment
        if not (comment is None or isinstance(comment, str)):
            raise ConfigError(f"comment must be a string, not {comment!r}")
        if not (self.number is None or type(self.number) is int):
            raise ConfigError(f"number must be an integer, not {self.number!r}")
        for name in ("or_replace", "if_not_exists"):
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise ConfigError(f"{name} must be True or False, not {value!r}")
        model_options.validate_options(self.options)


def parse_model_name(name: Any) -> Reference:
    """Parse `model` or `database.model`, or raise ConfigError for any other text."""
    if not isinstance(name, str):
        fault = f"the model name comes first and must be a string, not a {type(name).__name__}"
        raise ConfigError(f"{fault}: create_model('churn', model)")
    try:
        reference = parse_reference(name)
    except UnknownModelError:
        reference = None
    if reference is None or reference.has_version:
        advice = "write 'model' or 'database.model', with neither part empty or containing . @ or /"
        raise ConfigError(f"invalid model name {name!r}: {advice}")
    return reference


def create_model(models: Models, statement: CreateModel) -> None:
    """Carry out CREATE MODEL ... FROM 'path'."""
    reference = resolve_model(statement.name)
    if statement.if_not_exists and models.exists(reference):
        models.changes.report_existing(reference)
        return
    flags = {"or_replace": statement.or_replace, "if_not_exists": statement.if_not_exists}
    _register_file(models, reference, statement.artifact, create_from_object, **flags)


def add_version(models: Models, reference: Reference, change: AddVersion) -> None:
    """Carry out ALTER MODEL ... ADD VERSION ... FROM 'path'."""
    _register_file(models, reference, change.artifact, add_object, number=change.number)


def create_from_object(
    models: Models, model: Any, request: ModelRequest, file: ModelFile | None = None
) -> None:
    """Create a model from a fitted object, which may have been read from a file."""
    with long_work(f"registering {request.reference.name}"):
        version = _build_stored_version(models, model, request, file)
        show_stage("storing it")
        flags = {"or_replace": request.or_replace, "if_not_exists": request.if_not_exists}
        models.changes.create(request.reference, version, description=request.description, **flags)


def add_object(
    models: Models, model: Any, request: ModelRequest, file: ModelFile | None = None
) -> None:
    """Add a fitted object, which may have been read from a file, as a version of a model."""
    with long_work(f"registering {request.reference.name}"):
        version = _build_stored_version(models, model, request, file)
        show_stage("storing it")
        version = replace(version, comment=request.description.comment)
        models.versions.add(request.reference, version, request.number)


def _register_file(
    models: Models,
    reference: Reference,
    artifact: Artifact,
    register: Callable[[Models, Any, ModelRequest, ModelFile], None],
    **request_options: Any,
) -> None:
    request = ModelRequest(
        reference,
        inputs=None if artifact.inputs is None else dict(artifact.inputs),
        output=artifact.output,
        description=artifact.description,
        options=artifact.options,
        **request_options,
    )
    with long_work(f"registering {request.reference.name}"):
        show_stage("reading the file")
        file = read_file(
            artifact.source,
            models.host,
            format=artifact.format,
            sha256=artifact.options.get("sha256"),
            allow_pickle=models.allow_pickle or artifact.options.get("allow_pickle") is True,
        )
        register(models, file.model, request, file)


def _build_stored_version(
    models: Models, model: Any, request: ModelRequest, file: ModelFile | None
) -> NewVersion:
    version = build_version(model, request, file)
    stored_transform = version.options.get(TRANSFORM)
    if stored_transform is None:
        return version
    if not models.dialect.lazy_calls:
        raise ConfigError("this model has a TRANSFORM of DuckDB's functions: score it in DuckDB")
    transform = read_transform(models.host.read, stored_transform, version.origin.source)
    return replace(version, transform=transform)


def build_version(model: Any, request: ModelRequest, file: ModelFile | None = None) -> NewVersion:
    """Import `model`, check that it fits the request, and compare it with its source library.

    If the model predicts differently from its source, VerificationError is raised. If the file is
    damaged or its library cannot read it, ArtifactError is raised. UnsupportedModelError and
    ConfigError may be raised, too.
    """
    show_stage("importing it")
    version = import_version(model, request, file)
    verify = request.options.get("verify", True)
    is_stored = isinstance(model, Program | StoredModel)
    if verify is False or is_stored or not (isinstance(model, OnnxModel) or has_source(model)):
        return version
    show_stage("comparing it with its source")
    if isinstance(model, OnnxModel) and not is_installed("onnxruntime"):
        comparison = Verification(skipped="onnxruntime is not installed")
    elif file is None:
        comparison = verify_object(model, version.program, version.features)
    else:
        source = open_source(file, version.program, allow_pickle=False)
        comparison = verify_source(source, version.program, version.features)
    if verify is True:
        require_agreement(model, comparison)
    return replace(version, verification=comparison.to_dict())


def require_agreement(model: Any, comparison: Verification) -> None:
    """Raise VerificationError if the imported model predicts differently from `model` itself."""
    if not comparison.agrees:
        raise VerificationError(
            f"the imported model predicts differently from this {type(model).__name__} itself: "
            f"{comparison.complaint}. Nothing was registered; the option verify = 'record' "
            "registers it anyway. Please report this message: the fault is sqlml's"
        )


def import_version(model: Any, request: ModelRequest, file: ModelFile | None = None) -> NewVersion:
    """Import `model` and check that it fits the request, without comparing it with its source."""
    inputs = request.inputs
    imported = import_model(model, inputs) if file is None else import_file(file, inputs)
    program = imported.program
    _check_column_names(model, imported)
    _reject_string_outputs(program)
    options = _collect_options(model, request, program)
    origin = Origin(imported.source, imported.library)
    if file is not None:
        origin = replace(origin, path=file.path, format=file.format, sha256=file.sha256)
    small_models = _load_small_models(model, program)
    used = _find_used_inputs(program)
    return NewVersion(program, imported.features, used, origin, options, small_models=small_models)


def _check_column_names(model: Any, imported: Imported) -> None:
    if imported.is_named or imported.has_default_names:
        return
    num_columns = len(imported.features)
    columns = "1 column" if num_columns == 1 else f"{num_columns} columns"
    raise ConfigError(
        f"this {type(model).__name__} comes without column names; name its {columns}: "
        "create_model(..., inputs=['a', 'b', ...]), or CREATE MODEL m INPUT (a DOUBLE, b "
        "DOUBLE, ...) FROM '...'"
    )


def _reject_string_outputs(program: Program) -> None:
    if any(program.output_type(name).dtype == "string" for name in program.outputs):
        raise UnsupportedModelError(
            "this model only fills columns of strings, and transform(...) in SQL returns numbers: "
            "write coalesce(column, 'value') in the query; sqlml.compile accepts the model"
        )
    invalid = find_invalid_unicode(program)
    if invalid is not None:
        raise UnsupportedModelError(
            f"this model compares with the string {invalid!r}, which is not valid Unicode, so "
            "no string in a database can equal it: fit it on other strings; sqlml.compile accepts "
            "the model"
        )


def _find_used_inputs(program: Program) -> frozenset[str]:
    return frozenset(
        name
        for outputs in OUTPUTS_OF.values()
        for output in outputs
        if output in program.outputs
        for name in prepare_output(program, output).program.inputs
    )


def _collect_options(model: Any, request: ModelRequest, program: Program) -> dict[str, Any]:
    options = model_options.validate_options(request.options)
    if isinstance(model, StoredModel):
        options = {**model_options.read_exported_options(model.options), **options}
    model_options.check_options_fit(program, options)
    recipe = extract_recipe(model)
    if recipe is not None:
        options[model_options.ESTIMATOR] = recipe.to_dict()
    if request.output is not None:
        options[model_options.OUTPUT] = _check_declared_output(program, request.output)
    return options


def _check_declared_output(program: Program, output: Sequence[tuple[str, str]]) -> str:
    """Check the OUTPUT clause against the Program, and return the declared prediction name."""
    if "label" not in program.outputs:
        raise ConfigError("OUTPUT names what a model predicts, but this model predicts nothing")
    if len(output) != 1:
        raise ConfigError("OUTPUT names one column: predict(...) returns no more")
    ((name, declared_type),) = output
    predicted_type = find_result_type(program, "label", None)
    if _normalize_type(declared_type) != _normalize_type(predicted_type):
        fault = f"OUTPUT declares {name} {declared_type}, but the model predicts {predicted_type}"
        raise ConfigError(f"{fault}: write OUTPUT ({name} {predicted_type})")
    return name


_TYPE_SYNONYMS = {
    **dict.fromkeys(("TEXT", "STRING", "CHAR", "BPCHAR"), "VARCHAR"),
    **dict.fromkeys(("INT8", "LONG", "INT64"), "BIGINT"),
    **dict.fromkeys(("FLOAT8", "FLOAT64"), "DOUBLE"),
    **dict.fromkeys(("BOOL", "LOGICAL"), "BOOLEAN"),
}


def _normalize_type(name: str) -> str:
    compact = "".join(name.upper().split())
    return _TYPE_SYNONYMS.get(compact, compact)


def _load_small_models(model: Any, program: Program) -> tuple[SmallModel, ...]:
    if not isinstance(model, StoredModel):
        return ()
    small_models = []
    for kind, (small_program, facts) in model.small_models.items():
        if kind not in KINDS:
            raise ArtifactError(f"the file has a small model of an unknown kind, {kind!r}")
        check_model(small_program, (*OUTPUTS, *CALIBRATED_OUTPUTS))
        small_models.append(load_small_model(kind, small_program, facts, program, "in the file"))
    return tuple(small_models)
