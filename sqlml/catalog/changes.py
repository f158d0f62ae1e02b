"""`ModelChanges`: models made, renamed, described and dropped, in the user's own transaction."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlml.catalog.connection import drop_stamp, write_stamp
from sqlml.catalog.model import SPECIAL, Model, NewVersion, Reference, is_name
from sqlml.catalog.plain_macros import ModelCall
from sqlml.catalog.small_models import KINDS, SmallModel, kind_of
from sqlml.catalog.tables import LATER, SMALL_MODELS
from sqlml.catalog.writer import Writer, as_json, check_there, checked_number, now
from sqlml.errors import CatalogError, ConflictError, ModelExistsError
from sqlml.types import fold


class ModelChanges(Writer):
    """What one connection writes about the models in its databases, each as a whole.

    Each method changes all that it says or nothing.
    """

    def create(
        self,
        reference: Reference,
        new: NewVersion,
        *,
        comment: str | None = None,
        or_replace: bool = False,
        if_not_exists: bool = False,
    ) -> None:
        """Register a model, or (`or_replace`) a version of it that becomes its default.

        Raises:
            ModelExistsError: the name is taken, without `or_replace`.
            CatalogError: the name is empty or holds one of `.`, `@`, `/`.
        """
        _check_name(reference.name)
        self.catalog.check_database(reference.database)
        calls = self.calls_of(new)

        def work(schema: str, shared: bool) -> Sequence[ModelCall]:
            self.make_tables(schema, reference.database)
            known = self.model(reference, schema)
            if known is not None and if_not_exists:
                return self.calls_of(self.catalog.get(reference))
            if known is not None and not or_replace:
                raise ModelExistsError(
                    f"model {reference.name!r} already exists; CREATE OR REPLACE MODEL (in "
                    "Python: create_model(.., or_replace=True)) adds a version to it, DROP MODEL "
                    "removes it"
                )
            version = 1 if known is None else checked_number(known[1] + 1)
            if known is None:
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
            self.macros.keep(schema, reference.database, reference.key, calls, shared)
            write_stamp(self.connection, schema, reference.key)
            return calls

        self.atomically(reference, self.connection.schema(reference.database), work)

    def drop(self, reference: Reference, if_exists: bool = False) -> None:
        """Remove a model, all its versions, and the Programs that nobody else needs.

        Raises:
            UnknownModelError: no such model, without `if_exists`.
        """

        def work(schema: str, shared: bool) -> None:
            if self.model(reference, schema) is None:
                if if_exists:
                    return
                raise self.catalog.missing(Reference(reference.name, reference.database), schema)
            programs = self.connection.read(
                f"SELECT program FROM {schema}.catalog_versions WHERE key = ?", [reference.key]
            )
            for table in ("aliases", "tags", "versions", "models"):
                self.connection.write(
                    f"DELETE FROM {schema}.catalog_{table} WHERE key = ?", [reference.key]
                )
            self.without_training(schema, reference.key)
            gone = self.without_small_models(schema, reference.key)
            gone += [str(digest) for (digest,) in programs]
            self.catalog.programs.collect(gone, schema)
            self.macros.keep(schema, reference.database, reference.key, (), shared)
            drop_stamp(self.connection, schema, reference.key)

        if if_exists and not self.catalog.schema_exists(reference.database):
            self.report(reference, ())
        else:
            self.atomically(reference, self.catalog.existing_schema(reference), work)

    def rename(self, reference: Reference, name: str) -> None:
        """Give a model another name; its versions, aliases and tags go with it.

        Raises:
            ModelExistsError: the new name is taken.
            UnknownModelError, CatalogError.
        """
        _check_name(name)
        to = Reference(name, reference.database)

        def work(schema: str, shared: bool) -> Sequence[ModelCall]:
            self.known(reference, schema)
            if to.key != reference.key and self.model(to, schema) is not None:
                raise ModelExistsError(
                    f"model {name!r} already exists; remove it with DROP MODEL, or choose another "
                    "name"
                )
            self.connection.write(
                f"UPDATE {schema}.catalog_models SET key = ?, name = ? WHERE key = ?",
                [to.key, name, reference.key],
            )
            if to.key == reference.key:
                return ()
            tables = {"catalog_versions", "catalog_aliases", "catalog_tags", *LATER}
            for table in sorted(tables & self.connection.tables(schema)):
                self.connection.write(
                    f"UPDATE {schema}.{table} SET key = ? WHERE key = ?",
                    [to.key, reference.key],
                )
            drop_stamp(self.connection, schema, reference.key)
            self.macros.keep(schema, reference.database, reference.key, (), shared)
            return self.keep_default(to, schema, shared)

        self.change(to, work)
        self.report(reference, ())

    def comment(self, reference: Reference, text: str | None) -> None:
        """Say what a model, or the one version that `reference` names, is."""

        def work(schema: str, shared: bool) -> None:
            if reference.names_a_version:
                self.set_column(reference, schema, "comment", text)
                return
            self.known(reference, schema)
            self.connection.write(
                f"UPDATE {schema}.catalog_models SET comment = ? WHERE key = ?",
                [text, reference.key],
            )

        self.change(reference, work)

    def tag(self, reference: Reference, tags: Mapping[str, str]) -> None:
        """Set tags of a model."""

        def work(schema: str, shared: bool) -> None:
            self.known(reference, schema)
            for tag, value in tags.items():
                self.connection.write(
                    f"INSERT OR REPLACE INTO {schema}.catalog_tags VALUES (?, ?, ?)",
                    [reference.key, fold(tag), value],
                )

        self.change(reference, work)

    def untag(self, reference: Reference, tags: Sequence[str]) -> None:
        """Remove tags from a model.

        Raises:
            CatalogError: it has no such tag.
        """

        def work(schema: str, shared: bool) -> None:
            self.known(reference, schema)
            have = self.catalog.tags(reference)
            for tag in tags:
                check_there("tag", tag, reference, have)
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


# `VersionChanges`: versions of a model made, named, altered and dropped.


class VersionChanges(Writer):
    """What one connection writes about the versions of its models.

    Each method changes all that it says or nothing, in the user's own transaction.
    """

    def add(self, reference: Reference, new: NewVersion, number: int | None = None) -> None:
        """Add a version, which does not become the default.

        Args:
            number: of the version; None: one more than the last one ever made.

        Raises:
            ModelExistsError: the model has or had a version of that number.
            UnknownModelError, CatalogError.
        """

        def work(schema: str, shared: bool) -> None:
            _, last = self.known(reference, schema)
            version = last + 1 if number is None else number
            if version <= last:
                raise ModelExistsError(
                    f"model {reference.name!r} has or had a version {version}, and version "
                    f"numbers are never reused; leave it out, or write {last + 1}"
                )
            self.connection.write(
                f"UPDATE {schema}.catalog_models SET last_version = ? WHERE key = ?",
                [checked_number(version), reference.key],
            )
            if new.small_models:  # an older sqlml made no table for it
                self.make_tables(schema, reference.database)
            self.insert(reference, schema, version, new)

        self.change(reference, work)

    def drop(self, reference: Reference) -> None:
        """Remove the version that `reference` names, and its Program if nobody else needs it.

        Raises:
            CatalogError: it is the default, or an alias needs it.
            UnknownModelError: no such version.
        """

        def work(schema: str, shared: bool) -> None:
            default, _ = self.known(reference, schema)
            version = self.catalog.version(reference)
            what = f"version {version} of model {reference.name!r}"
            if version == default:
                raise CatalogError(
                    f"{what} is its default; SET DEFAULT_VERSION to another one first, or DROP "
                    "MODEL with all its versions"
                )
            needed = [a for a, v in self.catalog.aliases(reference).items() if v == version]
            if needed:
                raise CatalogError(
                    f"alias {needed[0]!r} points to {what}; SET ALIAS {needed[0]} to another "
                    f"version, or UNSET ALIAS {needed[0]}, first"
                )
            where = f"FROM {schema}.catalog_versions WHERE key = ? AND version = ?"
            at = [reference.key, version]
            ((digest,),) = self.connection.read(f"SELECT program {where}", at)
            self.connection.write(f"DELETE {where}", at)
            self.without_training(schema, reference.key, version)
            gone = [str(digest), *self.without_small_models(schema, reference.key, version)]
            self.catalog.programs.collect(gone, schema)

        self.change(reference, work)

    def set_default(self, reference: Reference) -> None:
        """Make the version that `reference` names the default."""

        def work(schema: str, shared: bool) -> Sequence[ModelCall]:
            version = self.catalog.version(reference)
            self.connection.write(
                f"UPDATE {schema}.catalog_models SET default_version = ? WHERE key = ?",
                [version, reference.key],
            )
            return self.keep_default(reference, schema, shared)

        self.change(reference, work)

    def set_alias(self, reference: Reference, alias: str) -> None:
        """Point `alias` to the version that `reference` names.

        Raises:
            CatalogError: the name is reserved, or cannot follow an @.
        """
        name = fold(alias)
        if name in SPECIAL or re.fullmatch(r"(?!\d+$)\w+", name) is None:
            raise CatalogError(
                f"invalid alias {alias!r}: use letters, digits and _; it must not be a number or "
                f"one of {', '.join(SPECIAL)}"
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
            CatalogError: no such alias.
        """

        def work(schema: str, shared: bool) -> None:
            self.known(reference, schema)
            check_there("alias", alias, reference, self.catalog.aliases(reference))
            self.connection.write(
                f"DELETE FROM {schema}.catalog_aliases WHERE key = ? AND alias = ?",
                [reference.key, fold(alias)],
            )

        self.change(reference, work)

    def add_small_model(self, model: Model, small: SmallModel) -> None:
        """Let a small model stand before a version, in place of one of its kind."""
        reference = Reference(model.name, model.database, model.version)

        def work(schema: str, shared: bool) -> None:
            self.make_tables(schema, model.database)
            if self.catalog.get(reference).program.hash != model.program.hash:
                raise ConflictError(f"model {model.label} has changed meanwhile; try again")
            at = [reference.key, model.version, kind_of(small)]
            had = self.connection.read(
                f"SELECT program FROM {schema}.{SMALL_MODELS} "
                "WHERE key = ? AND version = ? AND kind = ?",
                at,
            )
            self.insert_small_model(reference.key, schema, model.version, small)
            gone = [str(digest) for (digest,) in had if digest != small.small.hash]
            self.catalog.programs.collect(gone, schema)

        self.change(reference, work)

    def drop_small_model(self, reference: Reference, kind: str) -> None:
        """Remove the small model of a kind from the version that `reference` names.

        Raises:
            CatalogError: it has none.
        """

        def work(schema: str, shared: bool) -> None:
            version = self.catalog.version(reference)
            gone = self.without_small_models(schema, reference.key, version, kind)
            if not gone:
                raise CatalogError(
                    f"model {reference.name!r} has no {KINDS[kind][2].lower()} for its version "
                    f"{version}"
                )
            self.catalog.programs.collect(gone, schema)

        self.change(reference, work)

    def set_options(
        self, reference: Reference, change: Callable[[Model], Mapping[str, Any]]
    ) -> None:
        """Give a version (of a model: its default one) the options that `change` makes of it.

        It is read in the same transaction, so that no other's change is lost.
        """

        def work(schema: str, shared: bool) -> Sequence[ModelCall]:
            options = change(self.catalog.get(reference))
            version = self.set_column(reference, schema, "options", as_json(options))
            if version == self.catalog.default(reference):
                return self.keep_default(reference, schema, shared)
            return ()

        self.change(reference, work)
