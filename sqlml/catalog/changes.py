"""`Changes`: models and their versions made, altered and dropped, in the user's own transaction."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlml.catalog.catalog import Catalog
from sqlml.catalog.connection import Connection
from sqlml.catalog.macros import Macros, ModelCall
from sqlml.catalog.model import MOST_VERSIONS, SPECIAL, Model, NewVersion, Reference
from sqlml.catalog.stamps import drop_stamp, write_stamp
from sqlml.catalog.tables import TABLES, VIEWS
from sqlml.errors import CatalogError, ModelExistsError
from sqlml.types import fold

CallsOf = Callable[[NewVersion | Model], Sequence[ModelCall]]
"""What the macros of plain connections compute of a version."""

Work = Callable[[str, bool], None]
"""Statements in a schema, and whether they are in a transaction of the user's own."""


class Changes:
    """What one connection writes about the models in its databases.

    Each method changes all that it says or nothing. A model's default version is what the macros
    of plain connections compute.
    """

    def __init__(
        self, connection: Connection, catalog: Catalog, macros: Macros, calls_of: CallsOf
    ) -> None:
        self._connection = connection
        self._catalog = catalog
        self._macros = macros
        self._calls_of = calls_of

    # -- models

    def create(
        self,
        reference: Reference,
        new: NewVersion,
        *,
        comment: str | None = None,
        or_replace: bool = False,
        if_not_exists: bool = False,
    ) -> int | None:
        """Register a model, or (`or_replace`) a version of it that becomes its default.

        Returns:
            The version made, or None when `if_not_exists` found the model.

        Raises:
            ModelExistsError: the name is taken, without `or_replace`.
            CatalogError: the name is empty or holds one of `.`, `@`, `/`.
        """
        _check_name(reference.name)
        self._catalog.check_database(reference.database)
        calls = self._calls_of(new)
        made: list[int] = []

        def work(schema: str, shared: bool) -> None:
            self._make_tables(schema, reference.database)
            known = self._model(reference, schema)
            if known is not None and if_not_exists:
                return
            if known is not None and not or_replace:
                raise ModelExistsError(
                    f"model {reference.name!r} exists already; CREATE OR REPLACE MODEL (in Python: "
                    "create_model(.., or_replace=True)) adds a version to it, DROP MODEL removes it"
                )
            version = 1 if known is None else _checked(known[1] + 1)
            if known is None:
                self._connection.write(
                    f"INSERT INTO {schema}.catalog_models VALUES (?, ?, ?, ?, ?, ?)",
                    [reference.key, reference.name, version, version, comment, _now()],
                )
            else:
                self._connection.write(
                    f"UPDATE {schema}.catalog_models SET default_version = ?, last_version = ?, "
                    "comment = coalesce(?, comment) WHERE key = ?",
                    [version, version, comment, reference.key],
                )
            self._insert(reference, schema, version, new)
            self._macros.keep(schema, reference.database, reference.key, calls, shared)
            write_stamp(self._connection, schema, reference.key)
            made.append(version)

        self._atomically(self._connection.schema(reference.database), work)
        return made[0] if made else None

    def drop(self, reference: Reference, if_exists: bool = False) -> bool:
        """Remove a model, all its versions, and the Programs that nobody else needs.

        Raises:
            UnknownModelError: no such model, without `if_exists`.
        """
        dropped: list[bool] = []

        def work(schema: str, shared: bool) -> None:
            if self._model(reference, schema) is None:
                if if_exists:
                    return
                raise self._catalog.missing(Reference(reference.name, reference.database), schema)
            programs = self._connection.read(
                f"SELECT program FROM {schema}.catalog_versions WHERE key = ?", [reference.key]
            )
            for table in ("aliases", "tags", "versions", "models"):
                self._connection.write(
                    f"DELETE FROM {schema}.catalog_{table} WHERE key = ?", [reference.key]
                )
            self._catalog.programs.collect([str(digest) for (digest,) in programs], schema)
            self._macros.keep(schema, reference.database, reference.key, (), shared)
            drop_stamp(self._connection, schema, reference.key)
            dropped.append(True)

        if if_exists and not self._catalog.schema_exists(reference.database):
            return False
        self._atomically(self._catalog.existing_schema(reference), work)
        return bool(dropped)

    def rename(self, reference: Reference, name: str) -> None:
        """Give a model another name; its versions, aliases and tags go with it.

        Raises:
            ModelExistsError: the new name is taken.
            UnknownModelError, CatalogError.
        """
        _check_name(name)
        to = Reference(name, reference.database)

        def work(schema: str, shared: bool) -> None:
            self._known(reference, schema)
            if to.key != reference.key and self._model(to, schema) is not None:
                raise ModelExistsError(
                    f"model {name!r} exists already; DROP MODEL removes it, or take another name"
                )
            self._connection.write(
                f"UPDATE {schema}.catalog_models SET key = ?, name = ? WHERE key = ?",
                [to.key, name, reference.key],
            )
            if to.key == reference.key:
                return
            for table in ("versions", "aliases", "tags"):
                self._connection.write(
                    f"UPDATE {schema}.catalog_{table} SET key = ? WHERE key = ?",
                    [to.key, reference.key],
                )
            drop_stamp(self._connection, schema, reference.key)
            self._macros.keep(schema, reference.database, reference.key, (), shared)
            self._keep_default(to, schema, shared)

        self._change(to, work)

    def comment(self, reference: Reference, text: str | None) -> None:
        """Say what a model, or the one version that `reference` names, is."""

        def work(schema: str, shared: bool) -> None:
            if reference.names_a_version:
                self._set(reference, schema, "comment", text)
                return
            self._known(reference, schema)
            self._connection.write(
                f"UPDATE {schema}.catalog_models SET comment = ? WHERE key = ?",
                [text, reference.key],
            )

        self._change(reference, work)

    def tag(self, reference: Reference, tags: Mapping[str, str]) -> None:
        """Set tags of a model."""

        def work(schema: str, shared: bool) -> None:
            self._known(reference, schema)
            for tag, value in tags.items():
                self._connection.write(
                    f"INSERT OR REPLACE INTO {schema}.catalog_tags VALUES (?, ?, ?)",
                    [reference.key, fold(tag), value],
                )

        self._change(reference, work)

    def untag(self, reference: Reference, tags: Sequence[str]) -> None:
        """Take tags away from a model.

        Raises:
            CatalogError: it has no such tag.
        """

        def work(schema: str, shared: bool) -> None:
            self._known(reference, schema)
            have = self._catalog.tags(reference)
            for tag in tags:
                _check_there("tag", tag, reference, have)
            for tag in tags:
                self._connection.write(
                    f"DELETE FROM {schema}.catalog_tags WHERE key = ? AND tag = ?",
                    [reference.key, fold(tag)],
                )

        self._change(reference, work)

    # -- versions

    def add_version(self, reference: Reference, new: NewVersion, number: int | None = None) -> int:
        """Add a version, which does not become the default.

        Args:
            number: of the version; None: one more than the last one ever made.

        Raises:
            ModelExistsError: the model has or had a version of that number.
            UnknownModelError, CatalogError.
        """
        made: list[int] = []

        def work(schema: str, shared: bool) -> None:
            _, last = self._known(reference, schema)
            version = last + 1 if number is None else number
            if version <= last:
                raise ModelExistsError(
                    f"model {reference.name!r} has or had a version {version}, and numbers are not "
                    f"used again; leave it out, or write {last + 1}"
                )
            self._connection.write(
                f"UPDATE {schema}.catalog_models SET last_version = ? WHERE key = ?",
                [_checked(version), reference.key],
            )
            self._insert(reference, schema, version, new)
            made.append(version)

        self._change(reference, work)
        return made[0]

    def drop_version(self, reference: Reference) -> None:
        """Remove the version that `reference` names, and its Program if nobody else needs it.

        Raises:
            CatalogError: it is the default, or an alias needs it.
            UnknownModelError: no such version.
        """

        def work(schema: str, shared: bool) -> None:
            default, _ = self._known(reference, schema)
            version = self._catalog.version(reference)
            what = f"version {version} of model {reference.name!r}"
            if version == default:
                raise CatalogError(
                    f"{what} is its default; SET DEFAULT_VERSION to another one first, or DROP "
                    "MODEL with all its versions"
                )
            needed = [a for a, v in self._catalog.aliases(reference).items() if v == version]
            if needed:
                raise CatalogError(
                    f"{what} is what the alias {needed[0]!r} means; SET ALIAS {needed[0]} to "
                    f"another version, or UNSET ALIAS {needed[0]}, first"
                )
            where = f"FROM {schema}.catalog_versions WHERE key = ? AND version = ?"
            at = [reference.key, version]
            ((digest,),) = self._connection.read(f"SELECT program {where}", at)
            self._connection.write(f"DELETE {where}", at)
            self._catalog.programs.collect([str(digest)], schema)

        self._change(reference, work)

    def set_default(self, reference: Reference) -> None:
        """Make the version that `reference` names the default."""

        def work(schema: str, shared: bool) -> None:
            version = self._catalog.version(reference)
            self._connection.write(
                f"UPDATE {schema}.catalog_models SET default_version = ? WHERE key = ?",
                [version, reference.key],
            )
            self._keep_default(reference, schema, shared)

        self._change(reference, work)

    def set_alias(self, reference: Reference, alias: str) -> None:
        """Let `alias` mean the version that `reference` names.

        Raises:
            CatalogError: the name has a meaning of its own, or cannot stand behind an @.
        """
        name = fold(alias)
        if name in SPECIAL or re.fullmatch(r"(?!\d+$)\w+", name) is None:
            raise CatalogError(
                f"{alias!r} is no name for an alias: it has letters, digits and _, is no number, "
                f"and none of {', '.join(SPECIAL)}"
            )

        def work(schema: str, shared: bool) -> None:
            self._connection.write(
                f"INSERT OR REPLACE INTO {schema}.catalog_aliases VALUES (?, ?, ?)",
                [reference.key, name, self._catalog.version(reference)],
            )

        self._change(reference, work)

    def unset_alias(self, reference: Reference, alias: str) -> None:
        """Take an alias away.

        Raises:
            CatalogError: there is no such alias.
        """

        def work(schema: str, shared: bool) -> None:
            self._known(reference, schema)
            _check_there("alias", alias, reference, self._catalog.aliases(reference))
            self._connection.write(
                f"DELETE FROM {schema}.catalog_aliases WHERE key = ? AND alias = ?",
                [reference.key, fold(alias)],
            )

        self._change(reference, work)

    def set_options(
        self, reference: Reference, change: Callable[[Model], Mapping[str, Any]]
    ) -> None:
        """Give a version (of a model: its default one) the options that `change` makes of it.

        It is read in the same transaction, so that no other's change is lost.
        """

        def work(schema: str, shared: bool) -> None:
            options = change(self._catalog.get(reference))
            version = self._set(reference, schema, "options", _text(options))
            if version == self._catalog.default(reference):
                self._keep_default(reference, schema, shared)

        self._change(reference, work)

    # -- parts

    def _change(self, reference: Reference, work: Work) -> None:
        """Do `work` on a model that is there when it is done, and give it another stamp."""

        def whole(schema: str, shared: bool) -> None:
            work(schema, shared)
            write_stamp(self._connection, schema, reference.key)

        self._atomically(self._catalog.existing_schema(reference), whole)

    def _atomically(self, schema: str, work: Work) -> None:
        shared = self._connection.in_transaction()

        def checked() -> None:
            self._connection.tables(schema)  # in the transaction, so that they stay as they are
            work(schema, shared)

        self._connection.atomic(checked)

    def _make_tables(self, schema: str, database: str | None) -> None:
        for statement in TABLES:
            self._connection.write(statement.format(schema=schema))
        if fold(schema) == '"sqlml"."sqlml"':
            return  # the engine cannot bind such views
        # A file may be attached under another name, which its views do not know.
        inner = '"sqlml"'
        if database is not None or self._connection.has_database("sqlml"):
            inner = schema
        for name, query in VIEWS.items():
            self._connection.write(
                f"CREATE VIEW IF NOT EXISTS {schema}.{name} AS {query.format(schema=inner)}"
            )

    def _model(self, reference: Reference, schema: str) -> tuple[int, int] | None:
        """The default version of a model, and the last one ever made; None: there is none."""
        rows = self._connection.read(
            f"SELECT default_version, last_version FROM {schema}.catalog_models WHERE key = ?",
            [reference.key],
        )
        return (int(rows[0][0]), int(rows[0][1])) if rows else None

    def _known(self, reference: Reference, schema: str) -> tuple[int, int]:
        found = self._model(reference, schema)
        if found is None:
            raise self._catalog.missing(Reference(reference.name, reference.database), schema)
        return found

    def _insert(self, reference: Reference, schema: str, version: int, new: NewVersion) -> None:
        program, origin = new.program, new.origin
        self._catalog.programs.put(program, schema)
        labels = program.labels
        names = [""] if len(labels) == 1 else [f"t{t}=" for t in range(len(labels))]
        row = [
            reference.key,
            version,
            program.hash,
            [{"name": f.name, "kind": f.kind, "used": f.name in new.used} for f in new.features],
            ", ".join(dict.fromkeys(s.kind for s in labels)) or None,
            [f"{n}{v}" for n, s in zip(names, labels, strict=True) for v in s.values] or None,
            list(program.outputs),
            program.nbytes,
            origin.source,
            origin.library,
            origin.path,
            origin.format,
            origin.sha256,
            _text(new.options),
            None if new.verification is None else _text(new.verification),
            new.comment,
            _now(),
        ]
        marks = ", ".join("?" * len(row))
        self._connection.write(f"INSERT INTO {schema}.catalog_versions VALUES ({marks})", row)

    def _set(self, reference: Reference, schema: str, column: str, value: str | None) -> int:
        """Change a column of the version that `reference` names; its number."""
        version = self._catalog.version(reference)
        self._connection.write(
            f"UPDATE {schema}.catalog_versions SET {column} = ? WHERE key = ? AND version = ?",
            [value, reference.key, version],
        )
        return version

    def _keep_default(self, reference: Reference, schema: str, shared: bool) -> None:
        """Let the macros compute the model's default version as it is now."""
        default = self._catalog.get(Reference(reference.name, reference.database))
        calls = self._calls_of(default)
        self._macros.keep(schema, reference.database, reference.key, calls, shared)


def _check_name(name: str) -> None:
    if not name or any(c in name for c in ".@/\0"):
        raise CatalogError(
            f"{name!r} is no name for a model: it is empty or has . @ / or a zero character in it"
        )


def _checked(version: int) -> int:
    if version > MOST_VERSIONS:
        raise CatalogError(f"{version} is no number for a version: it is too large")
    return version


def _check_there(what: str, name: str, reference: Reference, have: Mapping[str, object]) -> None:
    if fold(name) not in have:
        others = f"; it has {', '.join(have)}" if have else ""
        raise CatalogError(f"model {reference.name!r} has no {what} {name!r}{others}")


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(dict(value), sort_keys=True)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
