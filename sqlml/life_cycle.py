"""`LifeCycle`: the statements about models carried out, from CREATE to DROP."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from sqlml import answers
from sqlml import options as model_options
from sqlml.catalog.catalog import Catalog
from sqlml.catalog.changes import Changes
from sqlml.catalog.model import Model, NewVersion, Reference, parse_reference
from sqlml.dialects import DUCKDB, Dialect
from sqlml.errors import (
    ConfigError,
    MissingColumnError,
    NotYetError,
    ParseError,
    UntrustedArtifactError,
    VerificationError,
)
from sqlml.exporting import export_to_file
from sqlml.front import statements
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
from sqlml.importers.stored import StoredModel
from sqlml.ir.program import Program
from sqlml.planner.explain_model import explain_model
from sqlml.planner.syntax.arguments import seems_to_call
from sqlml.registration import (
    Artifact,
    check_arguments,
    check_fit,
    read_file,
    version_of,
    whole_model,
)
from sqlml.types import fold
from sqlml.udfs.engine import Host
from sqlml.verifying.source import source_of
from sqlml.verifying.sources import has_source
from sqlml.verifying.verify import verify_object, verify_rows, verify_source


class LifeCycle:
    """What one connection does with its models.

    Each statement is carried out whole or not at all; those that have an answer give a query
    whose result it is.
    """

    def __init__(
        self,
        host: Host,
        catalog: Catalog,
        changes: Changes,
        allow_pickle: bool,
        dialect: Dialect = DUCKDB,
    ) -> None:
        self._dialect = dialect
        self._host = host
        self._catalog = catalog
        self._changes = changes
        self._allow_pickle = allow_pickle

    def carry_out(self, statement: Any) -> answers.Answer | None:
        """Do what a statement about models says.

        Raises:
            SqlmlError: see the statements' own methods; nothing has changed then.
        """
        return _RULES[type(statement)](self, statement)

    def verified_version(
        self,
        model: Any,
        *,
        inputs: Sequence[str] | Mapping[str, str] | None,
        options: Mapping[str, Any],
        file: Artifact | None = None,
        output: Sequence[tuple[str, str]] | None = None,
    ) -> NewVersion:
        """Import a fitted object, and compare the two as the option `verify` says.

        Raises:
            VerificationError: they answer otherwise.
            ArtifactError: the library that wrote the file ends on it.
            UnsupportedModelError, ConfigError.
        """
        new = version_of(model, inputs=inputs, options=options, file=file, output=output)
        verify = options.get("verify", True)
        if verify is False or isinstance(model, Program | StoredModel) or not has_source(model):
            return new
        if file is None:
            found = verify_object(model, new.program, new.features)
        else:
            made_of = source_of(file, new.program, allow_pickle=False)
            found = verify_source(made_of, new.program, new.features)
        if verify is True and not found.agrees:
            raise VerificationError(
                f"sqlml's form of this {type(model).__name__} does not answer as the object itself "
                f"does: {found.complaint}. Nothing is registered; the option verify = 'record' "
                "registers it all the same. Please report this message: the fault is sqlml's"
            )
        return replace(new, verification=found.to_dict())

    def create_from_object(
        self,
        name: str,
        model: Any,
        *,
        inputs: Sequence[str] | Mapping[str, str] | None,
        or_replace: bool,
        if_not_exists: bool,
        comment: str | None,
        options: Mapping[str, Any],
    ) -> None:
        """Register a fitted object: `Session.create_model`."""
        reference = whole_model(name)
        check_arguments(comment=comment, or_replace=or_replace, if_not_exists=if_not_exists)
        new = self.verified_version(model, inputs=inputs, options=options)
        self._changes.create(
            reference, new, comment=comment, or_replace=or_replace, if_not_exists=if_not_exists
        )

    def add_object(
        self,
        name: str,
        model: Any,
        *,
        number: int | None,
        inputs: Sequence[str] | Mapping[str, str] | None,
        comment: str | None,
        options: Mapping[str, Any],
    ) -> None:
        """Add a fitted object as a version: `Session.add_version`."""
        reference = whole_model(name)
        check_arguments(comment=comment, number=number)
        new = self.verified_version(model, inputs=inputs, options=options)
        self._changes.add_version(reference, replace(new, comment=comment), number)

    def _version_from(self, artifact: statements.Artifact) -> NewVersion:
        options = artifact.options
        model_options.stored(options)
        file = read_file(
            artifact.source,
            self._host,
            format=artifact.format,
            sha256=options.get("sha256"),
            allow_pickle=self._allow_pickle or options.get("allow_pickle") is True,
        )
        inputs = None if artifact.inputs is None else dict(artifact.inputs)
        return self.verified_version(
            file.model, inputs=inputs, options=options, file=file, output=artifact.output
        )

    def _create(self, s: CreateModel) -> None:
        reference = _whole(s.name)
        if s.if_not_exists and self._exists(reference):
            return
        new = self._version_from(s.artifact)
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
                new = self._version_from(change.artifact)
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
        def altered(model: Model) -> Mapping[str, Any]:
            kept = {k: v for k, v in model.options.items() if k == model_options.OUTPUT}
            options = model_options.altered(
                change({k: v for k, v in model.options.items() if k not in kept})
            )
            check_fit(model.program, options)
            return {**options, **kept}

        self._changes.set_options(reference, altered)

    def _comment(self, s: CommentOn) -> None:
        self._changes.comment(referred(s.name), s.comment)

    def _export(self, s: ExportModel) -> None:
        model = self._catalog.get(referred(s.name))
        export_to_file(model, s.path, s.format, self._host)

    def _show_models(self, s: ShowModels) -> answers.Answer:
        return answers.models(self._catalog, s.like, s.database)

    def _show_versions(self, s: ShowVersions) -> answers.Answer:
        reference = _whole(s.name)
        self._catalog.version(reference)
        return answers.versions(self._catalog, reference)

    def _show_create(self, s: ShowCreate) -> answers.Answer:
        return answers.creation(self._catalog, referred(s.name), self._dialect)

    def _describe(self, s: DescribeModel) -> answers.Answer:
        return answers.description(self._catalog, referred(s.name))

    def _explain(self, s: ExplainModel) -> answers.Answer:
        model = self._catalog.get(referred(s.name))
        found = explain_model(model.program, model.options)
        return answers.rows(("explain_key", "explain_value"), found)

    def _verify(self, s: VerifyModel) -> answers.Answer:
        model = self._catalog.get(referred(s.name))
        path, sha256, form = s.against, None, "AUTO"
        if path is None:
            path, sha256, form = model.origin.path, model.origin.sha256, model.origin.format or form
        if path is None:
            raise ConfigError(
                f"model {model.label} came from an object of Python, which is not kept; name a "
                "file of the original: VERIFY MODEL .. USING (..) AGAINST 'path'"
            )
        trusted = self._allow_pickle
        if form == "PICKLE" and not trusted:
            raise UntrustedArtifactError(
                f"{path} is a pickle, and reading it would execute code that it brings along; "
                "connect with allow_pickle=True if you trust it"
            )
        file = read_file(path, self._host, format=form, sha256=sha256, allow_pickle=trusted)
        with source_of(file, model.program, allow_pickle=trusted) as source:
            frame = self._frame(s.query, model)
            found = verify_rows(source, model.program, model.features, model.options, frame)
        rows = [
            (d.output, d.rows, d.absolute, d.relative, d.bound, d.flips, d.agrees)
            for d in found.differences
        ]
        return answers.table(_VERIFICATION, rows)

    def _frame(self, query: str, model: Model) -> Any:
        """The rows of a query as a pandas frame with the model's own columns, in their order."""
        if seems_to_call(query):
            raise ParseError("VERIFY MODEL .. USING takes a query that calls no model itself")
        try:
            frame = self._host.fetch_frame(query)
        except ParseError as error:
            raise ParseError(f"VERIFY MODEL .. USING takes one query: {error}") from None
        if frame.empty:
            raise ConfigError("the query of VERIFY MODEL gives no rows, so nothing is compared")
        have = {fold(str(column)): column for column in frame.columns}
        missing = [f.name for f in model.features if fold(f.name) not in have]
        if missing:
            raise MissingColumnError(
                f"model {model.label} needs {', '.join(missing)}; the query has "
                f"{', '.join(map(str, frame.columns))}"
            )
        return frame[[have[fold(f.name)] for f in model.features]].set_axis(
            [f.name for f in model.features], axis=1
        )

    def _not_yet(self, s: Reserved) -> None:
        raise NotYetError(f"{s.what} is reserved for a later version of sqlml", s.sql, 0)

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


_VERIFICATION: Mapping[str, str] = MappingProxyType(
    {
        "output": "VARCHAR",
        "rows": "BIGINT",
        "max_difference": "DOUBLE",
        "max_deviation": "DOUBLE",
        "allowed": "DOUBLE",
        "label_flips": "BIGINT",
        "agrees": "BOOLEAN",
    }
)
"""The columns of VERIFY MODEL's answer."""

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
        VerifyModel: LifeCycle._verify,
        Reserved: LifeCycle._not_yet,
    }
)
