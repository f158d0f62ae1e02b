"""`Writer`: what every change of a catalog is made of: its transaction, rows, stamps and macros."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlml.catalog import model as training_facts
from sqlml.catalog.connection import Connection, read_only_database, write_stamp
from sqlml.catalog.model import MOST_VERSIONS, NewVersion, Reference
from sqlml.catalog.plain_macros import Macros, ModelCall
from sqlml.catalog.read import Catalog
from sqlml.catalog.small_models import SmallModel, dumps, kind_of
from sqlml.catalog.tables import (
    ESTIMATORS,
    SMALL_MODELS,
    TABLES,
    TRAINING_TABLES,
    TRAININGS,
    VIEWS,
)
from sqlml.dialects.duckdb import folded
from sqlml.errors import CatalogError
from sqlml.types import class_text, fold

CallsOf = Callable[[NewVersion], Sequence[ModelCall]]
"""What the macros of plain connections compute of a version."""

Report = Callable[[Reference, Sequence[ModelCall]], None]
"""Called with each model that a statement may have changed, once it is done, and with what the
macros of plain connections compute for it now, if that may be new."""

Work = Callable[[str, bool], Sequence[ModelCall] | None]
"""Statements in a schema, and whether they are in a transaction of the user's own; gives back what
the macros of plain connections compute for the model now, if that may be new."""


@dataclass(frozen=True, slots=True)
class Writer:
    """How one connection changes the catalogs of its databases.

    A model's default version is what the macros of plain connections compute. `report` is where a
    session reacts to every change: it forgets what it knew of the model.
    """

    connection: Connection
    catalog: Catalog
    macros: Macros
    calls_of: CallsOf
    report: Report

    def change(self, reference: Reference, work: Work) -> None:
        """Do `work` on a model that is there when it is done, and give it another stamp."""

        def whole(schema: str, shared: bool) -> Sequence[ModelCall] | None:
            calls = work(schema, shared)
            write_stamp(self.connection, schema, reference.key)
            return calls

        self.atomically(reference, self.catalog.existing_schema(reference), whole)

    def atomically(self, reference: Reference, schema: str, work: Work) -> None:
        """Do `work` whole or not at all, on tables that are as sqlml makes them, and report it."""
        shared = self.connection.in_transaction()
        calls: list[ModelCall] = []

        def checked() -> None:
            self.connection.tables(schema)  # in the transaction, so that they stay as they are
            calls[:] = work(schema, shared) or ()

        self.connection.atomic(checked, shared)
        self.report(reference, calls)

    def found(self, reference: Reference) -> None:
        """Report a model that is there, and that another session may have made."""
        self.report(reference, self.calls_of(self.catalog.get(reference)))

    def check_writable(self, reference: Reference) -> None:
        """Refuse what will take long, if its result cannot be stored in the end.

        Raises:
            CatalogError: no such database, or it is read-only.
        """
        self.catalog.check_database(reference.database)
        name = reference.database
        which = "system.main.current_database()" if name is None else "?"
        found = self.connection.read(
            "SELECT readonly, database_name FROM system.main.duckdb_databases() "
            f"WHERE {folded('database_name')} = {folded(which)}",
            [] if name is None else [name],
        )
        if found and found[0][0]:
            raise read_only_database(str(found[0][1]))

    def make_tables(self, schema: str, database: str | None) -> None:
        """Make the tables and views of a catalog, where they are not there."""
        for statement in TABLES:
            self.connection.write(statement.format(schema=schema))
        if fold(schema) == '"sqlml"."sqlml"':
            return  # the engine cannot bind such views
        # A file may be attached under another name, which its views do not know.
        inner = '"sqlml"'
        if database is not None or self.connection.has_database("sqlml"):
            inner = schema
        for name, query in VIEWS.items():
            self.connection.write(
                f"CREATE VIEW IF NOT EXISTS {schema}.{name} AS {query.format(schema=inner)}"
            )

    def model(self, reference: Reference, schema: str) -> tuple[int, int] | None:
        """The default version of a model, and the last one ever made; None if there is no such
        model."""
        rows = self.connection.read(
            f"SELECT default_version, last_version FROM {schema}.catalog_models WHERE key = ?",
            [reference.key],
        )
        return (int(rows[0][0]), int(rows[0][1])) if rows else None

    def known(self, reference: Reference, schema: str) -> tuple[int, int]:
        """The default version of a model, and the last one ever made.

        Raises:
            UnknownModelError: no such model.
        """
        found = self.model(reference, schema)
        if found is None:
            raise self.catalog.missing(Reference(reference.name, reference.database), schema)
        return found

    def insert(self, reference: Reference, schema: str, version: int, new: NewVersion) -> None:
        """Store a version, its Program, and how it was trained."""
        program, origin = new.program, new.origin
        self.catalog.programs.put(program, schema)
        labels = program.labels
        names = [""] if len(labels) == 1 else [f"t{t}=" for t in range(len(labels))]
        row = [
            reference.key,
            version,
            program.hash,
            [{"name": f.name, "kind": f.kind, "used": f.name in new.used} for f in new.features],
            ", ".join(dict.fromkeys(s.kind for s in labels)) or None,
            [f"{n}{class_text(v)}" for n, s in zip(names, labels, strict=True) for v in s.values]
            or None,
            list(program.outputs),
            program.nbytes,
            origin.source,
            origin.library,
            origin.path,
            origin.format,
            origin.sha256,
            as_json(new.options),
            None if new.verification is None else as_json(new.verification),
            new.comment,
            now(),
        ]
        marks = ", ".join("?" * len(row))
        self.connection.write(f"INSERT INTO {schema}.catalog_versions VALUES ({marks})", row)
        for small in new.small_models:
            self.insert_small_model(reference.key, schema, version, small)
        for statement in TRAINING_TABLES if new.training is not None else ():
            self.connection.write(statement.format(schema=schema))
        for table, value in (
            (TRAININGS, None if new.training is None else training_facts.dumps(new.training)),
            (ESTIMATORS, new.estimator),
        ):
            if value is not None:
                self.connection.write(
                    f"INSERT INTO {schema}.{table} VALUES (?, ?, ?, ?)",
                    [reference.key, version, value, now()],
                )

    def insert_small_model(self, key: str, schema: str, version: int, small: SmallModel) -> None:
        """Store a small model of a version, in place of one of its kind."""
        program = small.small
        self.catalog.programs.put(program, schema)
        self.connection.write(
            f"INSERT OR REPLACE INTO {schema}.{SMALL_MODELS} VALUES (?, ?, ?, ?, ?, ?)",
            [key, version, kind_of(small), program.hash, dumps(small.facts), now()],
        )

    def set_column(self, reference: Reference, schema: str, column: str, value: str | None) -> int:
        """Change a column of the version that `reference` names; its number."""
        version = self.catalog.version(reference)
        self.connection.write(
            f"UPDATE {schema}.catalog_versions SET {column} = ? WHERE key = ? AND version = ?",
            [value, reference.key, version],
        )
        return version

    def without_training(self, schema: str, key: str, version: int | None = None) -> None:
        """Forget how a model, or one of its versions, was trained."""
        for table in {TRAININGS, ESTIMATORS} & self.connection.tables(schema):
            self.connection.write(
                f"DELETE FROM {schema}.{table} WHERE key = ? AND version = coalesce(?, version)",
                [key, version],
            )

    def without_small_models(
        self, schema: str, key: str, version: int | None = None, kind: str | None = None
    ) -> list[str]:
        """Remove the small models of a model, of one of its versions, or of one kind; the hashes
        of their Programs."""
        if SMALL_MODELS not in self.connection.tables(schema):
            return []
        where = (
            f"FROM {schema}.{SMALL_MODELS} WHERE key = ? AND version = coalesce(?, version) "
            "AND kind = coalesce(?, kind)"
        )
        found = self.connection.read(f"SELECT program {where}", [key, version, kind])
        self.connection.write(f"DELETE {where}", [key, version, kind])
        return [str(digest) for (digest,) in found]

    def keep_default(self, reference: Reference, schema: str, shared: bool) -> Sequence[ModelCall]:
        """Let the macros compute the model's default version as it is now; what they compute."""
        default = self.catalog.get(Reference(reference.name, reference.database))
        calls = self.calls_of(default)
        self.macros.keep(schema, reference.database, reference.key, calls, shared)
        return calls


def checked_number(version: int) -> int:
    """The number of a version. Raises CatalogError if it is too large."""
    if version > MOST_VERSIONS:
        raise CatalogError(f"invalid version number {version}: it is too large")
    return version


def check_there(what: str, name: str, reference: Reference, have: Mapping[str, object]) -> None:
    """Raise CatalogError unless a model has the alias or tag (`what`) called `name`."""
    if fold(name) not in have:
        others = f"; it has {', '.join(have)}" if have else ""
        raise CatalogError(f"model {reference.name!r} has no {what} {name!r}{others}")


def as_json(value: Mapping[str, Any]) -> str:
    """Options and the like as the catalog keeps them: equal ones are equal texts."""
    return json.dumps(dict(value), sort_keys=True)


def now() -> datetime.datetime:
    """The time in UTC, as the catalog's columns of type TIMESTAMP take it."""
    return datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
