"""`LifeCycle`: the statements about models carried out, from CREATE to DROP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from sqlml import answers
from sqlml import options as model_options
from sqlml.catalog.catalog import Catalog
from sqlml.catalog.changes import Changes
from sqlml.catalog.model import Reference, parse_reference
from sqlml.errors import NotYetError
from sqlml.exporting import export_to_file
from sqlml.front.statements import (
    AddVersion,
    AlterModel,
    CommentOn,
    CreateModel,
    DescribeModel,
    DropModel,
    DropVersion,
    ExplainModel,
    ExportModel,
    ModelName,
    Rename,
    Reserved,
    ResetOptions,
    SetAlias,
    SetDefault,
    SetOptions,
    SetTags,
    ShowCreate,
    ShowModels,
    ShowVersions,
    UnsetAlias,
    UnsetTags,
    VerifyModel,
)
from sqlml.planner.choice import choose
from sqlml.planner.explain_model import explain_model
from sqlml.registration import version_from_file
from sqlml.udfs.duckdb import DuckDBEngine


class LifeCycle:
    """What one connection does with its models.

    Each statement is carried out whole or not at all; those that have an answer give a query
    whose result it is.
    """

    def __init__(
        self, engine: DuckDBEngine, catalog: Catalog, changes: Changes, allow_pickle: bool
    ) -> None:
        self._engine = engine
        self._catalog = catalog
        self._changes = changes
        self._allow_pickle = allow_pickle

    def carry_out(self, statement: Any) -> answers.Answer | None:
        """Do what a statement about models says.

        Raises:
            SqlmlError: see the statements' own methods; nothing has changed then.
        """
        return _RULES[type(statement)](self, statement)

    def _create(self, s: CreateModel) -> None:
        reference = _whole(s.name)
        if s.if_not_exists and self._exists(reference):
            return
        new = version_from_file(s.artifact, self._engine, self._allow_pickle)
        self._changes.create(
            reference,
            new,
            comment=s.artifact.comment,
            or_replace=s.or_replace,
            if_not_exists=s.if_not_exists,
        )

    def _drop(self, s: DropModel) -> None:
        self._changes.drop(_whole(s.name), s.if_exists)

    def _alter(self, s: AlterModel) -> None:
        reference = referred(s.name)
        if s.if_exists and not self._exists(reference):
            return
        change, changes = s.change, self._changes
        match change:
            case AddVersion():
                new = version_from_file(change.artifact, self._engine, self._allow_pickle)
                new = replace(new, comment=change.artifact.comment)
                changes.add_version(reference, new, change.number)
            case DropVersion():
                changes.drop_version(referred(change.version))
            case SetDefault():
                changes.set_default(referred(change.version))
            case SetAlias():
                changes.set_alias(referred(change.version), change.alias)
            case UnsetAlias():
                changes.unset_alias(reference, change.alias)
            case SetTags():
                changes.tag(reference, change.tags)
            case UnsetTags():
                changes.untag(reference, change.tags)
            case SetOptions():
                self._set_options(reference, lambda had: {**had, **change.options})
            case ResetOptions():
                gone = model_options.checked(change.names)
                self._set_options(
                    reference, lambda had: {k: had[k] for k in had if gone and k not in gone}
                )
            case Rename():
                changes.rename(reference, change.name)

    def _set_options(
        self, reference: Reference, change: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    ) -> None:
        model = self._catalog.get(reference)
        options = model_options.altered(change(model.options))
        if options:
            choose(model.program, options)
        self._changes.set_options(reference, options)

    def _comment(self, s: CommentOn) -> None:
        self._changes.comment(referred(s.name), s.comment)

    def _export(self, s: ExportModel) -> None:
        model = self._catalog.get(referred(s.name))
        export_to_file(model.program, s.path, s.format, self._engine, model.name)

    def _show_models(self, s: ShowModels) -> answers.Answer:
        return answers.models(self._catalog, s.like, s.database)

    def _show_versions(self, s: ShowVersions) -> answers.Answer:
        reference = _whole(s.name)
        self._catalog.version(reference)
        return answers.versions(self._catalog, reference)

    def _show_create(self, s: ShowCreate) -> answers.Answer:
        return answers.creation(self._catalog, referred(s.name))

    def _describe(self, s: DescribeModel) -> answers.Answer:
        return answers.description(self._catalog, referred(s.name))

    def _explain(self, s: ExplainModel) -> answers.Answer:
        model = self._catalog.get(referred(s.name))
        found = explain_model(model.program, model.options)
        return answers.rows(("explain_key", "explain_value"), found)

    def _not_yet(self, s: Reserved | VerifyModel) -> None:
        what = s.what if isinstance(s, Reserved) else "VERIFY MODEL"
        raise NotYetError(f"{what} is reserved for a later version of sqlml", s.sql, 0)

    def _exists(self, reference: Reference) -> bool:
        there = self._catalog.schema_exists(reference.database)
        return there and self._catalog.default(reference) is not None


def referred(name: ModelName) -> Reference:
    """The reference that a name in a statement is; `"m/2"` in quotes is a version, too."""
    reference = Reference(name.name, name.database, name.version, name.alias)
    if reference.names_a_version or not any(c in name.name for c in "@/"):
        return reference
    found = parse_reference(name.name)
    return found if name.database is None else replace(found, database=name.database)


def _whole(name: ModelName) -> Reference:
    """The same for a model as a whole."""
    return Reference(name.name, name.database)


_RULES: Mapping[type, Callable[[LifeCycle, Any], answers.Answer | None]] = MappingProxyType(
    {
        CreateModel: LifeCycle._create,
        DropModel: LifeCycle._drop,
        AlterModel: LifeCycle._alter,
        CommentOn: LifeCycle._comment,
        ExportModel: LifeCycle._export,
        ShowModels: LifeCycle._show_models,
        ShowVersions: LifeCycle._show_versions,
        ShowCreate: LifeCycle._show_create,
        DescribeModel: LifeCycle._describe,
        ExplainModel: LifeCycle._explain,
        VerifyModel: LifeCycle._not_yet,
        Reserved: LifeCycle._not_yet,
    }
)
