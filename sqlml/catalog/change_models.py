"""`ModelChanges`: models made, renamed, described and dropped, in the user's own transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlml.catalog.change_stamps import drop_stamp, write_stamp
from sqlml.catalog.model import NewVersion, Reference, is_name
from sqlml.catalog.plain_macros.keep import ModelCall
from sqlml.catalog.tables import LATER
from sqlml.catalog.writer import Writer, check_there, checked_number, now
from sqlml.errors import CatalogError, ModelExistsError
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
