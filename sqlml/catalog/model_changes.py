"""Changes of models and of their versions, each in the user's transaction and all or nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlml.catalog.connection import drop_stamp, write_stamp
from sqlml.catalog.model import RESERVED_ALIASES, Model, NewVersion, Reference, is_name
from sqlml.catalog.scoring_macros import ModelCall
from sqlml.catalog.small_models import KINDS, SmallModel, kind_of
from sqlml.catalog.tables import LATER_TABLES, SMALL_MODELS
from sqlml.catalog.writer import Writer, as_json, check_exists, check_version_number, now
from sqlml.errors import CatalogError, ConflictError, ModelExistsError
from sqlml.types import fold


class ModelChanges(Writer):
    """Changes of the models in the databases that one connection sees."""

    def create(
        self,
        reference: Reference,
        new: NewVersion,
        *,
        comment: str | None = None,
        or_replace: bool = False,
        if_not_exists: bool = False,
    ) -> None:
        """Register a model, or (`or_replace`) add a version that becomes its default.

        Raises:
            ModelExistsError: the name is taken, without `or_replace`.
            CatalogError: the name is empty or has one of `.`, `@`, `/`.
        """
        _check_name(reference.name)
        self.catalog.check_database(reference.database)
        calls = self.calls_of(new)

        def create_model(schema: str, shared: bool) -> Sequence[ModelCall]:
            self.make_tables(schema, reference.database)
            versions = self.find_model(reference, schema)
            if versions is not None and if_not_exists:
                return self.calls_of(self.catalog.get(reference))
            if versions is not None and not or_replace:
                raise ModelExistsError(
                    f"model {reference.name!r} already exists; CREATE OR REPLACE MODEL (in "
                    "Python: create_model(..., or_replace=True)) adds a version to it, DROP MODEL "
                    "removes it"
                )
            version = 1 if versions is None else check_version_number(versions[1] + 1)
            if versions is None:
                self.connection.write(
                    f"INSERT INTO {schema}.catalog_models VALUES (?, ?, ?, ?, ?, ?)",
                    [reference.key, reference.name, version, version, comment, now()],
                )
            else:
                self.connection.write(
                    f"UPDATE {schema}.catalog_models SET default_version = ?, last_version = ?, "
                    "comment = coalesce(?, comment) WHERE key = ?",
                    [version, version, comment, reference.key],
                )
            self.insert(reference, schema, version, new)
            self.macros.update(schema, reference.database, reference.key, calls, shared)
            write_stamp(self.connection, schema, reference.key)
            return calls

        self.run_atomically(reference, self.connection.schema(reference.database), create_model)

    def drop(self, reference: Reference, if_exists: bool = False) -> None:
        """Remove a model, all its versions, and the Programs that no other version needs.

        Raises:
            UnknownModelError: there is no such model, without `if_exists`.
        """

        def work(schema: str, shared: bool) -> None:
            if self.find_model(reference, schema) is None:
                if if_exists:
                    return
                raise self.catalog.missing_version_error(
                    Reference(reference.name, reference.database), schema
                )
            programs = self.connection.read(
                f"SELECT program FROM {schema}.catalog_versions WHERE key = ?", [reference.key]
            )
            for table in ("aliases", "tags", "versions", "models"):
                self.connection.write(
                    f"DELETE FROM {schema}.catalog_{table} WHERE key = ?", [reference.key]
                )
            self.delete_training(schema, reference.key)
            unneeded = self.delete_small_models(schema, reference.key)
            unneeded += [str(digest) for (digest,) in programs]
            self.catalog.programs.collect(unneeded, schema)
            self.macros.update(schema, reference.database, reference.key, (), shared)
            drop_stamp(self.connection, schema, reference.key)

        if if_exists and not self.catalog.schema_exists(reference.database):
            self.report(reference, ())
        else:
            self.run_atomically(reference, self.catalog.existing_schema(reference), work)

    def rename(self, reference: Reference, name: str) -> None:
        """Rename a model, with its versions, aliases and tags.

        Raises:
            ModelExistsError: the new name is taken.
            UnknownModelError, CatalogError: there is no such model, or the new name is invalid.
        """
        _check_name(name)
        new_reference = Reference(name, reference.database)

        def work(schema: str, shared: bool) -> Sequence[ModelCall]:
            self.require_model(reference, schema)
            if (
                new_reference.key != reference.key
                and self.find_model(new_reference, schema) is not None
            ):
                raise ModelExistsError(
                    f"model {name!r} already exists; remove it with DROP MODEL, or choose another "
                    "name"
                )
            self.connection.write(
                f"UPDATE {schema}.catalog_models SET key = ?, name = ? WHERE key = ?",
                [new_reference.key, name, reference.key],
            )
            if new_reference.key == reference.key:
                return ()
            tables = {"catalog_versions", "catalog_aliases", "catalog_tags", *LATER_TABLES}
            for table in sorted(tables & self.connection.tables(schema)):
                self.connection.write(
                    f"UPDATE {schema}.{table} SET key = ? WHERE key = ?",
                    [new_reference.key, reference.key],
                )
            drop_stamp(self.connection, schema, reference.key)
            self.macros.update(schema, reference.database, reference.key, (), shared)
            return self.update_default_macros(new_reference, schema, shared)

        self.change(new_reference, work)
        self.report(reference, ())

    def comment(self, reference: Reference, text: str | None) -> None:
        """Set the comment of a model, or of the one version that `reference` names."""

        def work(schema: str, shared: bool) -> None:
            if reference.has_version:
                self.set_column(reference, schema, "comment", text)
                return
            self.require_model(reference, schema)
            self.connection.write(
                f"UPDATE {schema}.catalog_models SET comment = ? WHERE key = ?",
                [text, reference.key],
            )

        self.change(reference, work)

    def tag(self, reference: Reference, tags: Mapping[str, str]) -> None:
        """Set tags of a model."""

        def work(schema: str, shared: bool) -> None:
            self.require_model(reference, schema)
            for tag, value in tags.items():
                self.connection.write(
                    f"INSERT OR REPLACE INTO {schema}.catalog_tags VALUES (?, ?, ?)",
                    [reference.key, fold(tag), value],
                )

        self.change(reference, work)

    def untag(self, reference: Reference, tags: Sequence[str]) -> None:
        """Remove tags from a model.

        Raises:
            CatalogError: the model has no such tag.
        """

        def work(schema: str, shared: bool) -> None:
            self.require_model(reference, schema)
            existing = self.catalog.tags(reference)
            for tag in tags:
                check_exists("tag", tag, reference, existing)
            for tag in tags:
                self.connection.write(
                    f"DELETE FROM {schema}.catalog_tags WHERE key = ? AND tag = ?",
                    [reference.key, fold(tag)],
                )

        self.change(reference, work)


def _check_name(name: str) -> None:
    if not is_name(name):
        raise CatalogError(
            f"invalid model name {name!r}: it must not be empty or contain . @ / or NUL; the name "
            "of a database is quoted apart from it"
        )


class VersionChanges(Writer):
    """Changes of the versions of models."""

    def add(self, reference: Reference, new: NewVersion, number: int | None = None) -> None:
        """Add a version, which does not become the default.

        Args:
            number: the version number; by default one more than the last one ever used.

        Raises:
            ModelExistsError: the model has or had a version of that number.
            UnknownModelError, CatalogError: there is no such model, or the number is too large.
        """

        def work(schema: str, shared: bool) -> None:
            _, last = self.require_model(reference, schema)
            version = last + 1 if number is None else number
            if version <= last:
                raise ModelExistsError(
                    f"model {reference.name!r} has or had a version {version}, and version "
                    f"numbers are never reused; leave it out, or write {last + 1}"
                )
            self.connection.write(
                f"UPDATE {schema}.catalog_models SET last_version = ? WHERE key = ?",
                [check_version_number(version), reference.key],
            )
            if new.small_models:  # files of an older sqlml lack the table
                self.make_tables(schema, reference.database)
            self.insert(reference, schema, version, new)

        self.change(reference, work)

    def drop(self, reference: Reference) -> None:
        """Remove the version that `reference` names, and its Program if no other version needs it.

        Raises:
            CatalogError: it is the default, or an alias points to it.
            UnknownModelError: there is no such version.
        """

        def work(schema: str, shared: bool) -> None:
            default, _ = self.require_model(reference, schema)
            version = self.catalog.version(reference)
            description = f"version {version} of model {reference.name!r}"
            if version == default:
                raise CatalogError(
                    f"{description} is its default; SET DEFAULT_VERSION to another one first, or "
                    "DROP MODEL with all its versions"
                )
            aliases = [a for a, v in self.catalog.aliases(reference).items() if v == version]
            if aliases:
                raise CatalogError(
                    f"alias {aliases[0]!r} points to {description}; SET ALIAS {aliases[0]} to "
                    f"another version, or UNSET ALIAS {aliases[0]}, first"
                )
            where = f"FROM {schema}.catalog_versions WHERE key = ? AND version = ?"
            version_key = [reference.key, version]
            ((digest,),) = self.connection.read(f"SELECT program {where}", version_key)
            self.connection.write(f"DELETE {where}", version_key)
            self.delete_training(schema, reference.key, version)
            unneeded = [str(digest), *self.delete_small_models(schema, reference.key, version)]
            self.catalog.programs.collect(unneeded, schema)

        self.change(reference, work)

    def set_default(self, reference: Reference) -> None:
        """Make the version that `reference` names the default."""

        def work(schema: str, shared: bool) -> Sequence[ModelCall]:
            version = self.catalog.version(reference)
            self.connection.write(
                f"UPDATE {schema}.catalog_models SET default_version = ? WHERE key = ?",
                [version, reference.key],
            )
            return self.update_default_macros(reference, schema, shared)

        self.change(reference, work)

    def set_alias(self, reference: Reference, alias: str) -> None:
        """Point `alias` to the version that `reference` names.

        Raises:
            CatalogError: the name is reserved or invalid.
        """
        name = fold(alias)
        if name in RESERVED_ALIASES or re.fullmatch(r"(?!\d+$)\w+", name) is None:
            raise CatalogError(
                f"invalid alias {alias!r}: use letters, digits and _; it must not be a number or "
                f"one of {', '.join(RESERVED_ALIASES)}"
            )

        def work(schema: str, shared: bool) -> None:
            self.connection.write(
                f"INSERT OR REPLACE INTO {schema}.catalog_aliases VALUES (?, ?, ?)",
                [reference.key, name, self.catalog.version(reference)],
            )

        self.change(reference, work)

    def unset_alias(self, reference: Reference, alias: str) -> None:
        """Remove an alias.

        Raises:
            CatalogError: there is no such alias.
        """

        def work(schema: str, shared: bool) -> None:
            self.require_model(reference, schema)
            check_exists("alias", alias, reference, self.catalog.aliases(reference))
            self.connection.write(
                f"DELETE FROM {schema}.catalog_aliases WHERE key = ? AND alias = ?",
                [reference.key, fold(alias)],
            )

        self.change(reference, work)

    def add_small_model(self, model: Model, small: SmallModel) -> None:
        """Add a small model to a version, replacing one of its kind."""
        reference = Reference(model.name, model.database, model.version)

        def work(schema: str, shared: bool) -> None:
            self.make_tables(schema, model.database)
            if self.catalog.get(reference).program.hash != model.program.hash:
                raise ConflictError(f"model {model.label} has changed meanwhile; try again")
            small_model_key = [reference.key, model.version, kind_of(small)]
            existing = self.connection.read(
                f"SELECT program FROM {schema}.{SMALL_MODELS} "
                "WHERE key = ? AND version = ? AND kind = ?",
                small_model_key,
            )
            self.insert_small_model(reference.key, schema, model.version, small)
            unneeded = [str(digest) for (digest,) in existing if digest != small.small.hash]
            self.catalog.programs.collect(unneeded, schema)

        self.change(reference, work)

    def drop_small_model(self, reference: Reference, kind: str) -> None:
        """Remove the small model of a kind from the version that `reference` names.

        Raises:
            CatalogError: there is none.
        """

        def work(schema: str, shared: bool) -> None:
            version = self.catalog.version(reference)
            unneeded = self.delete_small_models(schema, reference.key, version, kind)
            if not unneeded:
                raise CatalogError(
                    f"model {reference.name!r} has no {KINDS[kind][2].lower()} for its version "
                    f"{version}"
                )
            self.catalog.programs.collect(unneeded, schema)

        self.change(reference, work)

    def set_options(
        self, reference: Reference, change: Callable[[Model], Mapping[str, Any]]
    ) -> None:
        """Set the options of a version (by default the model's default version) to the result of
        `change`.

        The version is read in the same transaction, so that no concurrent change is lost.
        """

        def work(schema: str, shared: bool) -> Sequence[ModelCall]:
            options = change(self.catalog.get(reference))
            version = self.set_column(reference, schema, "options", as_json(options))
            if version == self.catalog.default(reference):
                return self.update_default_macros(reference, schema, shared)
            return ()

        self.change(reference, work)
