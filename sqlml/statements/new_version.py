"""`version_of`: a fitted object, or the model in a file, as the catalog keeps it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlml.cascades.recipe import recipe_of
from sqlml.catalog.model import NewVersion, Origin
from sqlml.catalog.small_models import KINDS, SmallModel, loads
from sqlml.errors import ArtifactError, ConfigError, UnsupportedModelError
from sqlml.importers.foreign import check_model
from sqlml.importers.model_file import ModelFile, import_file
from sqlml.importers.registry import import_model
from sqlml.importers.sqlml_file import StoredModel
from sqlml.ir.program import Program
from sqlml.ir.spec import text_that_is_not_unicode
from sqlml.planner.binding.requested_output import OUTPUTS_OF
from sqlml.planner.program.prepare import prepare
from sqlml.statements import options as model_options
from sqlml.statements.declared_output import label_name
from sqlml.statements.registration import Registration


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
