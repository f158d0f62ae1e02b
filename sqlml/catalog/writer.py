"""The base of catalog changes: transactions, rows, stamps and macros."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlml.catalog.connection import Connection, read_only_error, write_stamp
from sqlml.catalog.lookup import Catalog
from sqlml.catalog.model import MAX_VERSION, NewVersion, Reference, training_facts_to_json
from sqlml.catalog.scoring_macros import Macros, ModelCall
from sqlml.catalog.small_models import SmallModel, dumps, kind_of
from sqlml.catalog.tables import (
    ESTIMATORS,
    SMALL_MODELS,
    TABLES,
    TRAINING_TABLES,
    TRAININGS,
    VIEWS,
)
from sqlml.dialects.duckdb import fold_in_sql
from sqlml.errors import CatalogError
from sqlml.types import class_text, fold

CallsOf = Callable[[NewVersion], Sequence[ModelCall]]
"""A function that returns the expressions of a version for plain connections' macros."""

Report = Callable[[Reference, Sequence[ModelCall]], None]
"""A function that is called after each change of a model, with its new macro expressions, if any.
"""

Work = Callable[[str, bool], Sequence[ModelCall] | None]
"""Statements to run in a schema. The flag tells whether the transaction is the user's own. Returns
the model's new macro expressions, if any."""


@dataclass(frozen=True, slots=True)
class Writer:
    """Changes of the catalogs in the databases that one connection sees.

    The macros of plain connections compute a model's default version. `report` lets the session
    react to every change.
    """

    connection: Connection
    catalog: Catalog
    macros: Macros
    calls_of: CallsOf
    report: Report

    def change(self, reference: Reference, work: Work) -> None:
        """Run `work` on a model that exists afterwards, and give it a new stamp."""

        def work_and_stamp(schema: str, shared: bool) -> Sequence[ModelCall] | None:
            calls = work(schema, shared)
            write_stamp(self.connection, schema, reference.key)
            return calls

        self.run_atomically(reference, self.catalog.existing_schema(reference), work_and_stamp)

    def run_atomically(self, reference: Reference, schema: str, work: Work) -> None:
        """Run `work` entirely or not at all, on checked tables, and report the change."""
        shared = self.connection.in_transaction()
        calls: list[ModelCall] = []

        def check_and_work() -> None:
            self.connection.tables(schema)  # within the transaction, so that nobody alters them
            calls[:] = work(schema, shared) or ()

        self.connection.atomic(check_and_work, shared)
        self.report(reference, calls)

    def report_existing(self, reference: Reference) -> None:
        """Report an existing model that another session may have created."""
        self.report(reference, self.calls_of(self.catalog.get(reference)))

    def check_writable(self, reference: Reference) -> None:
        """Reject long work whose result could not be stored.

        Raises:
            CatalogError: the database is not attached or read-only.
        """
        self.catalog.check_database(reference.database)
        name = reference.database
        database_sql = "system.main.current_database()" if name is None else "?"
        databases = self.connection.read(
            "SELECT readonly, database_name FROM system.main.duckdb_databases() "
            f"WHERE {fold_in_sql('database_name')} = {fold_in_sql(database_sql)}",
            [] if name is None else [name],
        )
        if databases and databases[0][0]:
            raise read_only_error(str(databases[0][1]))

    def make_tables(self, schema: str, database: str | None) -> None:
        """Create the missing tables and views of a catalog."""
        for statement in TABLES:
            self.connection.write(statement.format(schema=schema))
        if fold(schema) == '"sqlml"."sqlml"':
            return  # the engine cannot bind such views
        # A file may later be attached under another name, so its views use the bare schema name.
        view_schema = '"sqlml"'
        if database is not None or self.connection.has_database("sqlml"):
            view_schema = schema
        for name, query in VIEWS.items():
            self.connection.write(
                f"CREATE VIEW IF NOT EXISTS {schema}.{name} AS {query.format(schema=view_schema)}"
            )

    def find_model(self, reference: Reference, schema: str) -> tuple[int, int] | None:
        """Return the default and the last version of a model; None if there is no such model."""
        rows = self.connection.read(
            f"SELECT default_version, last_version FROM {schema}.catalog_models WHERE key = ?",
            [reference.key],
        )
        return (int(rows[0][0]), int(rows[0][1])) if rows else None

    def require_model(self, reference: Reference, schema: str) -> tuple[int, int]:
        """Return the default and the last version of a model.

        Raises:
            UnknownModelError: there is no such model.
        """
        versions = self.find_model(reference, schema)
        if versions is None:
            raise self.catalog.missing_version_error(
                Reference(reference.name, reference.database), schema
            )
        return versions

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
            [
                {"name": f.name, "kind": f.kind, "used": f.name in new.used_features}
                for f in new.features
            ],
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
            (
                TRAININGS,
                None if new.training is None else training_facts_to_json(new.training),
            ),
            (ESTIMATORS, new.estimator),
        ):
            if value is not None:
                self.connection.write(
                    f"INSERT INTO {schema}.{table} VALUES (?, ?, ?, ?)",
                    [reference.key, version, value, now()],
                )

    def insert_small_model(self, key: str, schema: str, version: int, small: SmallModel) -> None:
        """Store a small model of a version, replacing one of its kind."""
        program = small.small
        self.catalog.programs.put(program, schema)
        self.connection.write(
            f"INSERT OR REPLACE INTO {schema}.{SMALL_MODELS} VALUES (?, ?, ?, ?, ?, ?)",
            [key, version, kind_of(small), program.hash, dumps(small.facts), now()],
        )

    def set_column(self, reference: Reference, schema: str, column: str, value: str | None) -> int:
        """Change a column of the version that `reference` means, and return the version number."""
        version = self.catalog.version(reference)
        self.connection.write(
            f"UPDATE {schema}.catalog_versions SET {column} = ? WHERE key = ? AND version = ?",
            [value, reference.key, version],
        )
        return version

    def delete_training(self, schema: str, key: str, version: int | None = None) -> None:
        """Delete how a model, or one of its versions, was trained."""
        for table in {TRAININGS, ESTIMATORS} & self.connection.tables(schema):
            self.connection.write(
                f"DELETE FROM {schema}.{table} WHERE key = ? AND version = coalesce(?, version)",
                [key, version],
            )

    def delete_small_models(
        self, schema: str, key: str, version: int | None = None, kind: str | None = None
    ) -> list[str]:
        """Delete the small models of a model, version or kind, and return the hashes of their
        Programs."""
        if SMALL_MODELS not in self.connection.tables(schema):
            return []
        where = (
            f"FROM {schema}.{SMALL_MODELS} WHERE key = ? AND version = coalesce(?, version) "
            "AND kind = coalesce(?, kind)"
        )
        programs = self.connection.read(f"SELECT program {where}", [key, version, kind])
        self.connection.write(f"DELETE {where}", [key, version, kind])
        return [str(digest) for (digest,) in programs]

    def update_default_macros(
        self, reference: Reference, schema: str, shared: bool
    ) -> Sequence[ModelCall]:
        """Update the macros to the model's default version, and return its expressions."""
        default = self.catalog.get(Reference(reference.name, reference.database))
        calls = self.calls_of(default)
        self.macros.update(schema, reference.database, reference.key, calls, shared)
        return calls


def check_version_number(version: int) -> int:
    """Return a version number. Raises CatalogError if it is too large."""
    if version > MAX_VERSION:
        raise CatalogError(f"invalid version number {version}: it is too large")
    return version


def check_exists(
    kind: str, name: str, reference: Reference, existing: Mapping[str, object]
) -> None:
    """Raise CatalogError unless a model has the alias or tag (`kind`) called `name`."""
    if fold(name) not in existing:
        others = f"; it has {', '.join(existing)}" if existing else ""
        raise CatalogError(f"model {reference.name!r} has no {kind} {name!r}{others}")


def as_json(value: Mapping[str, Any]) -> str:
    """Return options as canonical JSON: equal options are equal texts."""
    return json.dumps(dict(value), sort_keys=True)


def now() -> datetime.datetime:
    """Return the time in UTC as a TIMESTAMP of the catalog."""
    return datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
