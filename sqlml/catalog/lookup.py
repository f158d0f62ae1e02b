"""Lookups in the catalog: the models of a database by name, version or alias."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any

from sqlml.bounded_cache import RecentCache
from sqlml.catalog.catalog_connection import Connection, read_stamp, read_stamps
from sqlml.catalog.model import (
    RESERVED_ALIASES,
    TRANSFORM,
    Model,
    Origin,
    Reference,
    TrainingFacts,
    extend_version,
    parse_reference,
    read_training_facts,
    read_transform,
)
from sqlml.catalog.small_models import KINDS, SmallModel, load_small_model
from sqlml.catalog.stored_programs import Programs
from sqlml.catalog.tables import ESTIMATORS, MODELS, SMALL_MODELS, TRAININGS, VERSIONS
from sqlml.dialects.duckdb import builtin
from sqlml.errors import ArtifactError, CatalogError, SqlmlError, UnknownModelError
from sqlml.ir.program import Program
from sqlml.suggestions import closest
from sqlml.types import Feature, fold

Row = tuple[Any, ...]


class Catalog:
    """The models in the databases that one connection sees."""

    def __init__(self, connection: Connection, programs: Programs) -> None:
        self._connection = connection
        self.programs = programs

    def in_transaction(self) -> bool:
        return self._connection.in_transaction()

    def check_once(self) -> AbstractContextManager[None]:
        """Check the catalog's tables once in the block, which runs no statement of the user."""
        return self._connection.check_once()

    def get(self, reference: Reference) -> Model:
        """Load the model that a reference names, and check its Program.

        If the model, version or alias is unknown, UnknownModelError is raised. If the stored data
        are damaged, ArtifactError is raised.
        """
        previous_message = ""
        while True:
            try:
                return self._load_model(reference)
            except UnknownModelError as error:
                # Between the queries of a lookup, another connection may have created or dropped
                # the model, so an error is only final if it repeats.
                if error.message == previous_message:
                    raise
                previous_message = error.message

    def load_available(self, references: Iterable[Reference]) -> Iterator[tuple[Reference, Model]]:
        """Yield each reference with its model; skip references whose model cannot be loaded."""
        schemas: dict[str | None, str] = {}
        for reference in references:
            try:
                if reference.database not in schemas:
                    schemas[reference.database] = self.require_schema(reference)
                yield reference, self._load_model(reference, schemas[reference.database])
            except SqlmlError:
                continue

    def _load_model(self, reference: Reference, schema: str | None = None) -> Model:
        schema = schema or self.require_schema(reference)
        columns = (
            "m.name, v.version, v.program, v.features, v.source, v.library, v.path, v.format, "
            "v.sha256, v.options, v.verification, coalesce(v.comment, m.comment), v.created_at"
        )
        rows = self._read_version(columns, reference, schema)
        if not rows:
            raise self.missing_version_error(reference, schema)
        name, version, digest, features, *origin = rows[0][:9]
        json_options, verification, comment, created_at = rows[0][9:]
        if not _is_hash(digest):
            raise ArtifactError(f"the catalog row of model {name!r} is damaged; create it again")
        program = self.programs.get(digest, schema)
        options = _read_json(json_options, name, "options")
        model = Model(
            program,
            *_read_features(features, program, name),
            Origin(*origin),
            options,
            None if verification is None else _read_json(verification, name, "verification"),
            comment,
            name=name,
            version=version,
            created_at=created_at,
            database=reference.database,
            transform=read_transform(self._connection.read, options.get(TRANSFORM), name),
        )
        return self._select_folds(model) if reference.folds else model

    def _select_folds(self, model: Model) -> Model:
        """Return the models of the folds of a cross-validation, which read the column `FOLD`."""
        folds = self.small_models(model).get("folds")
        if folds is None:
            raise UnknownModelError(f"model {model.label} was not trained with the option cv")
        used = frozenset(folds.small.inputs)
        return replace(extend_version(model, folds.small), used_features=used)

    def program(self, digest: str, database: str | None = None) -> Program:
        return self.programs.get(digest, self._connection.schema(database))

    def small_models(self, model: Model) -> dict[str, SmallModel]:
        """Return the small models of `model` keyed by kind; raise ArtifactError if damaged."""
        schema = self._connection.schema(model.database)
        small_models = {}
        for version, kind, digest, facts in self._read_small_models(schema, fold(model.name)):
            if version != model.version:
                continue
            if kind not in KINDS or not _is_hash(digest):
                advice = "ALTER MODEL ... DROP CASCADE and DROP TOP_K FILTER remove what there is"
                raise ArtifactError(f"a small model before {model.name!r} is damaged; {advice}")
            program = self.programs.get(digest, schema)
            small_models[kind] = load_small_model(kind, program, facts, model.program, model.name)
        return small_models

    def _read_small_models(self, schema: str, key: str) -> list[Row]:
        if SMALL_MODELS not in self._connection.list_tables(schema):
            return []
        query = f"SELECT version, kind, program, facts FROM {schema}.{SMALL_MODELS} WHERE key = ?"
        return self._connection.read(f"{query} ORDER BY version, kind", [key])

    def training(self, model: Model) -> TrainingFacts | None:
        """Return the training facts of `model`, or None if sqlml did not train the model."""
        facts_json = self._read_version_value(model, TRAININGS, "facts")
        return None if facts_json is None else read_training_facts(facts_json, model.name)

    def estimator(self, model: Model) -> bytes | None:
        """Return the pickled estimator of a trained `model`, or None if no pickle was stored."""
        pickled = self._read_version_value(model, ESTIMATORS, "pickled")
        return pickled if isinstance(pickled, bytes) else None

    def _read_version_value(self, model: Model, table: str, column: str) -> Any:
        schema = self._connection.schema(model.database)
        if table not in self._connection.list_tables(schema):
            return None
        query = f"SELECT {column} FROM {schema}.{table} WHERE key = ? AND version = ?"
        rows = self._connection.read(query, [fold(model.name), model.version])
        return rows[0][0] if rows else None

    def measure_stored_size(self, model: Model) -> int:
        schema = self._check_schema(model.database)
        return self.programs.measure_stored_size(model.program.hash, schema)

    def version(self, reference: Reference) -> int:
        """Return the number of the existing version that a reference names."""
        schema = self.require_schema(reference)
        rows = self._read_version("v.version", reference, schema)
        if not rows:
            raise self.missing_version_error(reference, schema)
        return int(rows[0][0])

    def stamp(self, reference: Reference) -> tuple[Any, ...] | None:
        """Return the current stamp of the model that a reference names, or None if unknown.

        If the stamp is equal, the Program, columns, options and small models are unchanged.
        """
        database = reference.database
        schema = self._connection.schema(database) if database else '"sqlml"'
        stamp = read_stamp(self._connection, schema, reference.key)
        if stamp is not None:
            return (stamp,)
        try:  # The stamp may be missing if an older sqlml wrote the model, or if it was dropped.
            schema = self._check_schema(database)
            columns = "m.name, v.version, v.program, v.features, v.options, v.created_at"
            rows = self._read_version(columns, reference, schema)
            return (*rows[0], *self._read_small_models(schema, reference.key)) if rows else None
        except CatalogError:
            return None

    def stamps(self, references: Collection[Reference]) -> dict[Reference, tuple[Any, ...] | None]:
        """Map each reference to its model's stamp, or to None if the model is unknown.

        References to unattached databases are omitted.
        """
        stamps: dict[Reference, tuple[Any, ...] | None] = {}
        for database in {reference.database for reference in references}:
            if database is not None and not self._connection.has_database(database):
                continue
            local_references = [other for other in references if other.database == database]
            is_large = len(local_references) >= 64  # Two queries over the catalog are then faster.
            known_stamps = read_stamps(self._connection, database) if is_large else {}
            existing_keys: set[str] | None = None
            for reference in local_references:
                key = reference.key
                if key in known_stamps:
                    stamps[reference] = (known_stamps[key],)
                    continue
                if is_large and existing_keys is None:
                    existing_keys = set(map(fold, self.names(database)))
                is_unknown = existing_keys is not None and key not in existing_keys
                stamps[reference] = None if is_unknown else self.stamp(reference)
        return stamps

    def aliases(self, reference: Reference) -> dict[str, int]:
        return dict(self._read_model_rows("alias, version", "catalog_aliases", reference))

    def tags(self, reference: Reference) -> dict[str, str]:
        return dict(self._read_model_rows("tag, value", "catalog_tags", reference))

    def comment(self, reference: Reference) -> str | None:
        """Return the comment on a model instead of its versions, or None without a comment."""
        rows = self._read_model_rows("comment", "catalog_models", reference)
        return rows[0][0] if rows else None

    def default_version(self, reference: Reference) -> int | None:
        """Return the number of a model's default version, or None if the model is unknown."""
        rows = self._read_model_rows("default_version", "catalog_models", reference)
        return int(rows[0][0]) if rows else None

    def _read_model_rows(self, columns: str, table: str, reference: Reference) -> list[Row]:
        schema = self._check_schema(reference.database)
        query = f"SELECT {columns} FROM {schema}.{table} WHERE key = ? ORDER BY ALL"
        return self._connection.read(query, [reference.key])

    def _check_schema(self, database: str | None) -> str:
        schema = self._connection.schema(database)
        self._connection.list_tables(schema)
        return schema

    def names(self, database: str | None = None) -> list[str]:
        schema = self._connection.schema(database)
        if not self._connection.has_catalog(schema):
            return []
        rows = self._connection.read(f"SELECT name FROM {schema}.catalog_models ORDER BY key")
        return [row[0] for row in rows]

    def schema_exists(self, database: str | None = None) -> bool:
        return self._connection.has_catalog(self._connection.schema(database))

    def check_database(self, database: str | None) -> None:
        """Raise CatalogError if a database is not attached."""
        if database is not None and not self._connection.has_database(database):
            raise CatalogError(_describe_missing_database(database))

    def models_query(self, database: str | None = None) -> str:
        """Return the query behind the view `models`, which fails if a database is named sqlml."""
        return MODELS.format(schema=self._check_schema(database))

    def versions_query(self, database: str | None = None) -> str:
        return VERSIONS.format(schema=self._check_schema(database))

    def _read_version(self, columns: str, reference: Reference, schema: str) -> list[Row]:
        parameters: list[Any] = [reference.key]
        alias = None if reference.alias is None else fold(reference.alias)
        if alias in ("first", "last"):
            versions = f"{schema}.catalog_versions w WHERE w.key = m.key"
            aggregate = builtin("min" if alias == "first" else "max")
            version_sql = f"(SELECT {aggregate}(version) FROM {versions})"
        elif alias is not None and alias not in RESERVED_ALIASES:
            aliases = f"{schema}.catalog_aliases a WHERE a.key = m.key AND a.alias = ?"
            version_sql = f"(SELECT version FROM {aliases})"
            parameters.append(alias)
        elif reference.version is not None:
            version_sql = f"{reference.version:d}"
        else:
            version_sql = "m.default_version"
        return self._connection.read(
            f"SELECT {columns} FROM {schema}.catalog_models m JOIN {schema}.catalog_versions v "
            f"ON v.key = m.key WHERE m.key = ? AND v.version = {version_sql}",
            parameters,
        )

    def require_schema(self, reference: Reference) -> str:
        """Return the catalog schema of a reference; raise UnknownModelError if it is missing."""
        schema = self._connection.schema(reference.database)
        if self._connection.has_catalog(schema):
            return schema
        database = reference.database
        if database is not None and not self._connection.has_database(database):
            raise UnknownModelError(_describe_missing_database(database))
        raise self._unknown_model_error(reference, [])

    def missing_version_error(self, reference: Reference, schema: str) -> UnknownModelError:
        versions = self._connection.read(
            f"SELECT {builtin('list')}(version ORDER BY version) FROM {schema}.catalog_versions "
            "WHERE key = ?",
            [reference.key],
        )[0][0]
        if versions is None:
            rows = self._connection.read(f"SELECT name FROM {schema}.catalog_models")
            names = [str(name) for (name,) in rows if fold(str(name)) != reference.key]
            return self._unknown_model_error(reference, names)
        version_name = f"{reference.version}"
        if reference.alias is not None and fold(reference.alias) not in RESERVED_ALIASES:
            version_name = f"with the alias {reference.alias!r}"
        elif reference.version is None:
            version_name = "marked as its default"
        version_names = ", ".join(map(str, versions[-20:]))
        aliases = [f"@{alias}" for alias in (*self.aliases(reference), *RESERVED_ALIASES)]
        return UnknownModelError(
            f"model {reference.name!r} has no version {version_name}; it has {version_names} "
            f"(also {', '.join(aliases)})"
        )

    def _unknown_model_error(self, reference: Reference, names: list[str]) -> UnknownModelError:
        closest_name = closest(reference.name, names)
        names_no_database = reference.database is None
        other_database = self._find_other_database(reference) if names_no_database else None
        if other_database is not None:
            hint = f"database {other_database!r} has one: write '{other_database}.{reference.name}'"
        elif closest_name is not None:
            hint = f"did you mean {closest_name!r}?"
        elif names:
            more = f" and {len(names) - 10} more, which SHOW MODELS lists" if names[10:] else ""
            hint = f"models: {', '.join(sorted(names)[:10])}{more}"
        else:
            hint = "none exist yet: CREATE MODEL or create_model() registers one"
        return UnknownModelError(f"unknown model {reference.name!r}; {hint}")

    def _find_other_database(self, reference: Reference) -> str | None:
        databases = self._connection.read(
            "SELECT database_name FROM system.main.duckdb_tables() WHERE schema_name = 'sqlml' "
            "AND table_name = 'catalog_models' AND database_name <> system.main.current_database()"
        )
        for (database,) in databases:
            with suppress(CatalogError):  # An unrelated catalog may be damaged.
                other_reference = replace(reference, database=str(database))
                if self._read_model_rows("1", "catalog_models", other_reference):
                    return other_reference.database
        return None


def _is_hash(digest: object) -> bool:
    return isinstance(digest, str) and len(digest) == 64


def _read_features(
    stored: Any, program: Program, name: str
) -> tuple[tuple[Feature, ...], frozenset[str]]:
    row_name = f"the catalog row of model {name!r}"
    try:
        features = tuple(Feature.from_stored_kind(str(f["name"]), f["kind"]) for f in stored)
        used_names = frozenset(str(f["name"]) for f in stored if f["used"])
    except (TypeError, KeyError):
        raise ArtifactError(f"{row_name} is damaged (features); create it again") from None
    kinds = {f.name: f.kind for f in features}
    for f in program.features:
        if kinds.get(f.name) != f.kind:
            message = f"{row_name} does not fit its program (feature {f.name!r}); create it again"
            raise ArtifactError(message)
    return features, used_names


def _read_json(text: Any, name: str, field: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ArtifactError(f"the {field} of model {name!r} are damaged; create it again")
    return value


def _describe_missing_database(database: str) -> str:
    return (
        f"unknown database {database!r}; ATTACH it, or name the model without it: models belong to "
        "a database, not to a schema"
    )


# Another connection may drop and recreate a model in two statements.
RECREATION_TIMEOUT = 1.0
_RETRY_DELAYS = (0.005, 0.01, 0.02, 0.04, 0.08)  # Seconds; the last one repeats.

_parse_short = lru_cache(maxsize=16384)(parse_reference)


def _parse_cached(text: str) -> Reference:
    return _parse_short(text) if len(text) <= _SHORT else parse_reference(text)


_SHORT = 200
"""The most characters of a reference whose parts are cached, since any string may be looked up."""


class ModelCache:
    """A cache of models, keyed by references such as 'churn', that are reloaded after changes."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._cache: RecentCache[str, tuple[object, Model]] = RecentCache()

    def model(self, name: str) -> Model:
        """Return the current model for a reference such as 'churn/2'; see `Catalog.get`."""
        stamp = self.stamp(name)
        cached = self._cache.get(name)
        if stamp is not None and cached is not None and cached[0] == stamp:
            return cached[1]
        delays = iter(_RETRY_DELAYS)
        deadline: float | None = None
        while True:
            try:
                model = self.catalog.get(parse_reference(name))
            except UnknownModelError:
                self._cache.take(lambda key: key == name)
                if deadline is None:
                    deadline = time.monotonic() + (0.0 if cached is None else RECREATION_TIMEOUT)
                # The user's transaction does not see the changes of other connections.
                if time.monotonic() >= deadline or self.catalog.in_transaction():
                    raise
                stamp = None
                while stamp is None and time.monotonic() < deadline:
                    time.sleep(next(delays, _RETRY_DELAYS[-1]))
                    stamp = self.stamp(name)
                continue
            self._cache.put(name, (stamp, model), model.program.nbytes)
            return model

    def load_all(self, names: Iterable[str]) -> Mapping[str, object]:
        """Load the models with these `names` into the cache, and return their stamps.

        The result maps each name to a stamp, or to None if the model does not exist. Invalid names,
        and names of models in unattached databases, are omitted.
        """
        references = {}
        for name in names:
            with suppress(UnknownModelError):
                references[name] = _parse_cached(name)
        stamps = self.catalog.stamps(set(references.values()))
        stamps_by_name = {n: stamps[r] for n, r in references.items() if r in stamps}
        cached = self._cache.get_all(stamps_by_name)
        outdated = {
            references[name]: name
            for name, stamp in stamps_by_name.items()
            if stamp is not None and ((entry := cached[name]) is None or entry[0] != stamp)
        }
        for reference, model in self.catalog.load_available(outdated):
            name = outdated[reference]
            self._cache.put(name, (stamps_by_name[name], model), model.program.nbytes)
        return {n: s for n, s in stamps_by_name.items() if s is not None or cached[n] is None}

    def training(self, model: Model) -> TrainingFacts | None:
        return self.catalog.training(model)

    def stamp(self, name: str) -> object:
        """Return a value that changes with each change of the model, or None if it is unknown."""
        return self.catalog.stamp(_parse_cached(name))

    def clear(self) -> None:
        """Drop all cached models after a change by this session."""
        self._cache = RecentCache()
