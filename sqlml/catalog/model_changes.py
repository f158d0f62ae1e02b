"""Changes to models and their versions. Each is atomic and runs in the user's transaction."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlml.catalog import tables
from sqlml.catalog.catalog_connection import Connection, drop_stamp, read_only_error, write_stamp
from sqlml.catalog.lookup import Catalog
from sqlml.catalog.model import MAX_VERSION, RESERVED_ALIASES, Model, NewVersion, Reference, is_name
from sqlml.catalog.scoring_macros import Macros, ModelCall
from sqlml.catalog.small_models import KINDS, SmallModel, dump_facts, find_kind
from sqlml.catalog.tables import ESTIMATORS, SMALL_MODELS, TRAININGS
from sqlml.dialects.duckdb import fold_in_sql
from sqlml.errors import ArtifactError, CatalogError, ConflictError, ModelExistsError
from sqlml.parsing.statements import Description
from sqlml.types import class_text, fold

_NO_DESCRIPTION = Description()

Calls = Sequence[ModelCall]
"""The calls with which macros compute a model's default version for clients without sqlml."""


@dataclass(frozen=True, slots=True)
class ChangedModel:
    """A model that a transaction changes, and the qualified and quoted `schema` of the catalog.

    If `is_shared` is set, the user opened the transaction, and macros are rebuilt after its end.
    """

    reference: Reference
    schema: str
    is_shared: bool

    @property
    def key(self) -> str:
        return self.reference.key


@dataclass(frozen=True, slots=True)
class CatalogWriter:
    """The base class of catalog changes, which writes rows, stamps and macros in transactions.

    `calls_of` returns the calls with which macros compute a version of the model with a key, and
    `compile_for_clients` the version's data for clients without Python. After each change, `report`
    is called with the model's reference and its new calls, or () for unchanged calls.
    """

    connection: Connection
    catalog: Catalog
    macros: Macros
    calls_of: Callable[[str, NewVersion], Calls]
    compile_for_clients: Callable[[NewVersion], str | None]
    report: Callable[[Reference, Calls], None]

    def run_atomically(
        self, reference: Reference, schema: str, function: Callable[[ChangedModel], Calls | None]
    ) -> None:
        """Check the catalog tables, run `function` entirely or not at all, and report the change.

        `function` returns the new calls of the model, or None for unchanged calls.
        """
        target = ChangedModel(reference, schema, self.connection.in_transaction())
        calls: list[ModelCall] = []

        def check_tables_and_work() -> None:
            # During the transaction, no other connection can alter the checked tables.
            with self.connection.check_once():
                self.connection.list_tables(schema)
                calls[:] = function(target) or ()

        self.connection.run_atomically(check_tables_and_work, target.is_shared)
        self.report(reference, calls)

    def report_existing(self, reference: Reference) -> None:
        """Report an existing model, which another session may have created."""
        self.report(reference, self.calls_of(reference.key, self.catalog.get(reference)))

    def check_writable(self, reference: Reference) -> None:
        """Raise CatalogError if the model's database is read-only, before a long training."""
        self.catalog.check_database(reference.database)
        databases = self.connection.read(
            "SELECT readonly, database_name FROM system.main.duckdb_databases() "
            f"WHERE {fold_in_sql('database_name')} = "
            f"{fold_in_sql('coalesce(?, system.main.current_database())')}",
            [reference.database],
        )
        if databases and databases[0][0]:
            raise read_only_error(str(databases[0][1]))

    def write(self, target: ChangedModel, sql: str, *parameters: Any) -> None:
        """Run a statement in which `{schema}` stands for the schema of the catalog."""
        self.connection.write(sql.replace("{schema}", target.schema), parameters)

    def create_tables(self, target: ChangedModel) -> None:
        """Create the tables and views that the model's catalog lacks."""
        self.connection.create_tables(target.schema, tables.TABLES)
        if fold(target.schema) == '"sqlml"."sqlml"':
            return  # The engine cannot bind such views.
        # The file may be attached under another name later, so views use the bare schema name.
        is_bare = target.reference.database is None and not self.connection.has_database("sqlml")
        view_schema = '"sqlml"' if is_bare else target.schema
        for name, query in tables.VIEWS.items():
            view = f"{target.schema}.{name} AS {query.format(schema=view_schema)}"
            self.connection.write(f"CREATE VIEW IF NOT EXISTS {view}")

    def find_model(self, target: ChangedModel) -> tuple[int, int] | None:
        """Return the numbers of the default and last versions, or None for an unknown model."""
        query = f"SELECT default_version, last_version FROM {target.schema}.catalog_models"
        rows = self.connection.read(f"{query} WHERE key = ?", [target.key])
        return (int(rows[0][0]), int(rows[0][1])) if rows else None

    def require_model(self, target: ChangedModel) -> tuple[int, int]:
        """Return the numbers of the default and last versions of an existing model."""
        versions = self.find_model(target)
        if versions is None:
            whole_model = Reference(target.reference.name, target.reference.database)
            raise self.catalog.missing_version_error(whole_model, target.schema)
        return versions

    def update_model(self, target: ChangedModel, **columns: Any) -> None:
        assignments = ", ".join(f"{column} = ?" for column in columns)
        sql = f"UPDATE {{schema}}.catalog_models SET {assignments} WHERE key = ?"
        self.write(target, sql, *columns.values(), target.key)

    def insert_version(self, target: ChangedModel, version: int, new: NewVersion) -> None:
        """Store a version of the model, with its Program and training facts."""
        program, origin, used_names = new.program, new.origin, new.used_features
        labels = program.labels
        self.catalog.programs.put(program, target.schema)
        target_prefixes = [""] if len(labels) == 1 else [f"t{t}=" for t in range(len(labels))]
        classes = [
            f"{prefix}{class_text(value)}"
            for prefix, target_labels in zip(target_prefixes, labels, strict=True)
            for value in target_labels.values
        ]
        row = [
            target.key,
            version,
            program.hash,
            [
                {"name": f.name, "kind": f.stored_kind, "used": f.name in used_names}
                for f in new.features
            ],
            ", ".join(dict.fromkeys(target_labels.kind for target_labels in labels)) or None,
            classes or None,
            list(program.outputs),
            program.nbytes,
            *(origin.source, origin.library, origin.path, origin.format, origin.sha256),
            dump_json(new.options),
            None if new.verification is None else dump_json(new.verification),
            new.comment,
            now(),
        ]
        placeholders = ", ".join("?" * len(row))
        self.write(target, f"INSERT INTO {{schema}}.catalog_versions VALUES ({placeholders})", *row)
        for small_model in new.small_models:
            self.insert_small_model(target, version, small_model)
        if new.training is None:
            return
        self.connection.create_tables(target.schema, tables.TRAINING_TABLES)
        training_json = json.dumps(asdict(new.training))
        for table, value in ((TRAININGS, training_json), (ESTIMATORS, new.estimator)):
            if value is not None:
                sql = f"INSERT INTO {{schema}}.{table} VALUES (?, ?, ?, ?)"
                self.write(target, sql, target.key, version, value, now())

    def insert_small_model(self, target: ChangedModel, version: int, model: SmallModel) -> None:
        self.catalog.programs.put(model.small, target.schema)
        sql = f"INSERT OR REPLACE INTO {{schema}}.{SMALL_MODELS} VALUES (?, ?, ?, ?, ?, ?)"
        content = (find_kind(model), model.small.hash, dump_facts(model.facts))
        self.write(target, sql, target.key, version, *content, now())

    def set_column(self, target: ChangedModel, column: str, value: str | None) -> int:
        """Set a column of the version that `target` names, and return the version number."""
        version = self.catalog.version(target.reference)
        sql = f"UPDATE {{schema}}.catalog_versions SET {column} = ? WHERE key = ? AND version = ?"
        self.write(target, sql, value, target.key, version)
        return version

    def delete_training_records(self, target: ChangedModel, version: int | None = None) -> None:
        condition = "key = ? AND version = coalesce(?, version)"
        for table in {TRAININGS, ESTIMATORS} & self.connection.list_tables(target.schema):
            sql = f"DELETE FROM {{schema}}.{table} WHERE {condition}"
            self.write(target, sql, target.key, version)

    def delete_small_models(
        self, target: ChangedModel, version: int | None = None, kind: str | None = None
    ) -> list[str]:
        """Delete small models, by default of all versions and kinds; return the hashes."""
        if SMALL_MODELS not in self.connection.list_tables(target.schema):
            return []
        source_sql = (
            f"FROM {target.schema}.{SMALL_MODELS} WHERE key = ? "
            "AND version = coalesce(?, version) AND kind = coalesce(?, kind)"
        )
        parameters = [target.key, version, kind]
        programs = self.connection.read(f"SELECT program {source_sql}", parameters)
        self.connection.write(f"DELETE {source_sql}", parameters)
        return [str(digest) for (digest,) in programs]

    def update_macros(
        self, target: ChangedModel, calls: Calls, compiled: str | None = None
    ) -> Calls:
        """Redefine the model's macros to make `calls`; if `calls` is empty, drop the macros.

        `compiled` is the result of `compile_for_clients`.
        """
        database = target.reference.database
        self.macros.update(target.schema, database, target.key, calls, compiled, target.is_shared)
        return calls

    def update_default_macros(self, target: ChangedModel) -> Calls:
        """Redefine the macros to compute the model's default version, and return its calls."""
        default_reference = Reference(target.reference.name, target.reference.database)
        version = self.catalog.get(default_reference)
        with suppress(ArtifactError):  # Damaged small models are no reason to keep old macros.
            small_models = tuple(self.catalog.small_models(version).values())
            version = replace(version, small_models=small_models)
        compiled = self.compile_for_clients(version)
        return self.update_macros(target, self.calls_of(target.key, version), compiled)


W = TypeVar("W", bound=CatalogWriter)
P = ParamSpec("P")


def changes_model(
    function: Callable[Concatenate[W, ChangedModel, P], Calls | None],
) -> Callable[Concatenate[W, Reference, P], None]:
    """Run the decorated change of a model in one transaction, and write a new stamp."""

    @wraps(function)
    def change(self: W, reference: Reference, /, *args: P.args, **kwargs: P.kwargs) -> None:
        def apply_and_stamp(target: ChangedModel) -> Calls | None:
            calls = function(self, target, *args, **kwargs)
            write_stamp(self.connection, target.schema, target.key)
            return calls

        self.run_atomically(reference, self.catalog.require_schema(reference), apply_and_stamp)

    return change


class ModelChanges(CatalogWriter):
    """Changes to the models in the databases that one connection sees."""

    def create(
        self,
        reference: Reference,
        new: NewVersion,
        *,
        description: Description = _NO_DESCRIPTION,
        or_replace: bool = False,
        if_not_exists: bool = False,
    ) -> None:
        """Register a model, or add a new default version to an existing model (`or_replace`)."""
        _check_name(reference.name)
        self.catalog.check_database(reference.database)
        calls, compiled = self.calls_of(reference.key, new), self.compile_for_clients(new)

        def create_model(target: ChangedModel) -> Calls:
            self.create_tables(target)
            versions = self.find_model(target)
            if versions is not None and if_not_exists:
                return self.calls_of(reference.key, self.catalog.get(reference))
            if versions is not None and not or_replace:
                raise ModelExistsError(
                    f"model {reference.name!r} already exists; CREATE OR REPLACE MODEL (in "
                    "Python: create_model(..., or_replace=True)) adds a version to it, DROP MODEL "
                    "removes it"
                )
            version = 1 if versions is None else check_version_number(versions[1] + 1)
            if versions is None:
                query = "INSERT INTO {schema}.catalog_models VALUES (?, ?, ?, ?, ?, ?)"
                row = target.key, reference.name, version, version, None, now()
                self.write(target, query, *row)
            else:
                self.update_model(target, default_version=version, last_version=version)
            self._describe(target, description)
            self.insert_version(target, version, new)
            self.update_macros(target, calls, compiled)
            write_stamp(self.connection, target.schema, target.key)
            return calls

        self.run_atomically(reference, self.connection.schema(reference.database), create_model)

    def drop(self, reference: Reference, if_exists: bool = False) -> None:
        """Remove a model with all versions, and the Programs that no other version uses."""

        def drop_model(target: ChangedModel) -> None:
            if if_exists and self.find_model(target) is None:
                return
            self.require_model(target)
            query = f"SELECT program FROM {target.schema}.catalog_versions WHERE key = ?"
            programs = self.connection.read(query, [target.key])
            for table in ("aliases", "tags", "versions", "models"):
                query = f"DELETE FROM {{schema}}.catalog_{table} WHERE key = ?"
                self.write(target, query, target.key)
            self.delete_training_records(target)
            unneeded = [*self.delete_small_models(target), *(str(digest) for (digest,) in programs)]
            self.catalog.programs.collect(unneeded, target.schema)
            self.update_macros(target, ())
            drop_stamp(self.connection, target.schema, target.key)

        if if_exists and not self.catalog.schema_exists(reference.database):
            self.report(reference, ())
        else:
            self.run_atomically(reference, self.catalog.require_schema(reference), drop_model)

    @changes_model
    def compile_again(self, target: ChangedModel) -> Calls:
        """Write a model's macros and its data for clients without Python again."""
        self.require_model(target)
        return self.update_default_macros(target)

    def rename(self, reference: Reference, name: str) -> None:
        """Rename a model, with its versions, aliases and tags."""
        _check_name(name)

        @changes_model
        def rename_model(self: ModelChanges, renamed: ChangedModel) -> Calls:
            target = replace(renamed, reference=reference)
            self.require_model(target)
            has_same_key = renamed.key == target.key
            if not has_same_key and self.find_model(renamed) is not None:
                advice = "remove it with DROP MODEL, or choose another name"
                raise ModelExistsError(f"model {name!r} already exists; {advice}")
            self.update_model(target, key=renamed.key, name=name)
            if has_same_key:
                return ()
            names = {"catalog_versions", "catalog_aliases", "catalog_tags", *tables.LATER_TABLES}
            for table in sorted(names & self.connection.list_tables(target.schema)):
                query = f"UPDATE {{schema}}.{table} SET key = ? WHERE key = ?"
                self.write(target, query, renamed.key, target.key)
            drop_stamp(self.connection, target.schema, target.key)
            self.update_macros(target, ())
            return self.update_default_macros(renamed)

        rename_model(self, Reference(name, reference.database))
        self.report(reference, ())

    @changes_model
    def comment(self, target: ChangedModel, text: str | None) -> None:
        """Set the comment on a model, or on a version if the reference names a version."""
        self._set_comment(target, text)

    def _set_comment(self, target: ChangedModel, text: str | None) -> None:
        if target.reference.has_version:
            self.set_column(target, "comment", text)
        else:
            self.require_model(target)
            self.update_model(target, comment=text)

    @changes_model
    def describe(self, target: ChangedModel, description: Description) -> None:
        """Set the comment, replace the tags, or do both."""
        self.require_model(target)
        self._describe(target, description)

    def _describe(self, target: ChangedModel, description: Description) -> None:
        if description.changes_comment:
            self._set_comment(target, description.comment)
        if description.changes_tags:
            self.write(target, "DELETE FROM {schema}.catalog_tags WHERE key = ?", target.key)
            self._insert_tags(target, description.tags)

    @changes_model
    def tag(self, target: ChangedModel, tags: Mapping[str, str]) -> None:
        self.require_model(target)
        self._insert_tags(target, tags)

    def _insert_tags(self, target: ChangedModel, tags: Mapping[str, str]) -> None:
        for tag, value in tags.items():
            sql = "INSERT OR REPLACE INTO {schema}.catalog_tags VALUES (?, ?, ?)"
            self.write(target, sql, target.key, fold(tag), value)

    @changes_model
    def untag(self, target: ChangedModel, tags: Sequence[str]) -> None:
        self.require_model(target)
        existing = self.catalog.tags(target.reference)
        for tag in tags:
            require_existing("tag", tag, target.reference, existing)
        for tag in tags:
            sql = "DELETE FROM {schema}.catalog_tags WHERE key = ? AND tag = ?"
            self.write(target, sql, target.key, fold(tag))


def _check_name(name: str) -> None:
    if not is_name(name):
        raise CatalogError(
            f"invalid model name {name!r}: it must not be empty or contain . @ / or NUL; quote the "
            'name of a database separately: "db"."model"'
        )


class VersionChanges(CatalogWriter):
    """Changes to the versions of models."""

    @changes_model
    def add(self, target: ChangedModel, new: NewVersion, number: int | None = None) -> None:
        """Add a version without making it the default; `number` defaults to the next number."""
        _, last_version = self.require_model(target)
        version = last_version + 1 if number is None else number
        if version <= last_version:
            raise ModelExistsError(
                f"model {target.reference.name!r} has or had a version {version}, and version "
                f"numbers are never reused; leave it out, or write {last_version + 1}"
            )
        self.update_model(target, last_version=check_version_number(version))
        if new.small_models:  # Files of an older sqlml lack the table.
            self.create_tables(target)
        self.insert_version(target, version, new)

    @changes_model
    def drop(self, target: ChangedModel) -> None:
        """Remove the version that `target` names, and its Program if no other version uses it."""
        reference = target.reference
        default_version, _ = self.require_model(target)
        version = self.catalog.version(reference)
        description = f"version {version} of model {reference.name!r}"
        if version == default_version:
            advice = "SET DEFAULT_VERSION to another one first, or DROP MODEL with all its versions"
            raise CatalogError(f"{description} is its default; {advice}")
        aliases = [alias for alias, v in self.catalog.aliases(reference).items() if v == version]
        if aliases:
            raise CatalogError(
                f"alias {aliases[0]!r} points to {description}; SET ALIAS {aliases[0]} to "
                f"another version, or UNSET ALIAS {aliases[0]}, first"
            )
        source_sql = f"FROM {target.schema}.catalog_versions WHERE key = ? AND version = ?"
        version_key = [target.key, version]
        ((digest,),) = self.connection.read(f"SELECT program {source_sql}", version_key)
        self.connection.write(f"DELETE {source_sql}", version_key)
        self.delete_training_records(target, version)
        unneeded = [str(digest), *self.delete_small_models(target, version)]
        self.catalog.programs.collect(unneeded, target.schema)

    @changes_model
    def set_default(self, target: ChangedModel) -> Calls:
        """Make the version that `target` names the default version of its model."""
        self.update_model(target, default_version=self.catalog.version(target.reference))
        return self.update_default_macros(target)

    @changes_model
    def set_alias(self, target: ChangedModel, alias: str) -> None:
        """Point `alias` to the version that `target` names."""
        folded_alias = fold(alias)
        if folded_alias in RESERVED_ALIASES or re.fullmatch(r"(?!\d+$)\w+", folded_alias) is None:
            raise CatalogError(
                f"invalid alias {alias!r}: use letters, digits and _; it must not be a number or "
                f"one of {', '.join(RESERVED_ALIASES)}"
            )
        sql = "INSERT OR REPLACE INTO {schema}.catalog_aliases VALUES (?, ?, ?)"
        self.write(target, sql, target.key, folded_alias, self.catalog.version(target.reference))

    @changes_model
    def unset_alias(self, target: ChangedModel, alias: str) -> None:
        self.require_model(target)
        require_existing("alias", alias, target.reference, self.catalog.aliases(target.reference))
        sql = "DELETE FROM {schema}.catalog_aliases WHERE key = ? AND alias = ?"
        self.write(target, sql, target.key, fold(alias))

    def add_small_model(self, model: Model, small_model: SmallModel) -> None:
        """Add a small model to a version, replacing an existing one of the same kind."""

        @changes_model
        def add(self: VersionChanges, target: ChangedModel) -> Calls | None:
            self.create_tables(target)
            if self.catalog.get(target.reference).program.hash != model.program.hash:
                raise ConflictError(f"model {model.label} has changed meanwhile; try again")
            existing = self.connection.read(
                f"SELECT program FROM {target.schema}.{SMALL_MODELS} "
                "WHERE key = ? AND version = ? AND kind = ?",
                [target.key, model.version, find_kind(small_model)],
            )
            self.insert_small_model(target, model.version, small_model)
            unneeded = [str(digest) for (digest,) in existing if digest != small_model.small.hash]
            self.catalog.programs.collect(unneeded, target.schema)
            return self._update_macros_of(target, model.version, find_kind(small_model))

        add(self, Reference(model.name, model.database, model.version))

    def _update_macros_of(self, target: ChangedModel, version: int, kind: str) -> Calls | None:
        """Redefine the macros if they follow the changed calibration of a version."""
        default_version = self.catalog.default_version(target.reference)
        is_read = kind == "calibration" and version == default_version
        return self.update_default_macros(target) if is_read else None

    @changes_model
    def drop_small_model(self, target: ChangedModel, kind: str) -> Calls | None:
        """Remove the small model of a kind from the version that `target` names."""
        version = self.catalog.version(target.reference)
        unneeded = self.delete_small_models(target, version, kind)
        if not unneeded:
            missing = f"{KINDS[kind][2].lower()} for its version {version}"
            raise CatalogError(f"model {target.reference.name!r} has no {missing}")
        self.catalog.programs.collect(unneeded, target.schema)
        return self._update_macros_of(target, version, kind)

    @changes_model
    def set_options(
        self, target: ChangedModel, change: Callable[[Model], Mapping[str, Any]]
    ) -> Calls | None:
        """Set a version's options to `change(model)`, in the transaction that reads the model."""
        options = change(self.catalog.get(target.reference))
        version = self.set_column(target, "options", dump_json(options))
        is_default = version == self.catalog.default_version(target.reference)
        return self.update_default_macros(target) if is_default else None


def check_version_number(version: int) -> int:
    if version > MAX_VERSION:
        raise CatalogError(f"invalid version number {version}: the largest is {MAX_VERSION}")
    return version


def require_existing(kind: str, name: str, reference: Reference, existing: Collection[str]) -> None:
    if fold(name) not in existing:
        others = f"; it has {', '.join(existing)}" if existing else ""
        raise CatalogError(f"model {reference.name!r} has no {kind} {name!r}{others}")


def dump_json(value: Mapping[str, Any]) -> str:
    return json.dumps(dict(value), sort_keys=True)


def now() -> datetime.datetime:
    """Return the current UTC time without a time zone, for a TIMESTAMP column."""
    return datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
