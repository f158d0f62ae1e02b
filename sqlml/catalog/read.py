"""`Catalog`: the models of a database, found by name, version or alias."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from sqlml.bounded_cache import Recent
from sqlml.catalog import model as training_facts
from sqlml.catalog.connection import Connection, read_stamp, read_stamps
from sqlml.catalog.model import (
    SPECIAL,
    TRANSFORM,
    Model,
    Origin,
    Reference,
    TrainingFacts,
    parse_reference,
    transform_of,
)
from sqlml.catalog.small_models import KINDS, SmallModel, loads
from sqlml.catalog.stored_programs import Programs
from sqlml.catalog.tables import ESTIMATORS, MODELS, SMALL_MODELS, TRAININGS, VERSIONS
from sqlml.dialects.duckdb import builtin
from sqlml.errors import ArtifactError, CatalogError, SqlmlError, UnknownModelError
from sqlml.ir.program import Program
from sqlml.suggestions import closest
from sqlml.types import Feature, fold

_HASH_DIGITS = 64

_MANY = 64
"""Models whose stamps are read by a query over the whole catalog; fewer are looked at one by one.
"""


class Catalog:
    """What one connection reads of the models in its databases; `Changes` writes."""

    def __init__(self, connection: Connection, programs: Programs) -> None:
        self._connection = connection
        self.programs = programs

    def in_transaction(self) -> bool:
        """Whether the user has a transaction open, which sees no change that others make."""
        return self._connection.in_transaction()

    def get(self, reference: Reference) -> Model:
        """The model that a reference means, its Program loaded and checked.

        Raises:
            UnknownModelError: no such model, version or alias; the message has the closest name.
            ArtifactError: the stored row is damaged.
        """
        said = ""
        while True:
            try:
                return self._read(reference)
            except UnknownModelError as error:
                # Several looks lead to it, and between two of them another connection may have
                # dropped the model or created it.
                if error.message == said:
                    raise
                said = error.message

    def several(self, references: Iterable[Reference]) -> Iterator[tuple[Reference, Model]]:
        """The models that references mean, but for those that `get` raises an error for.

        The tables of a catalog are looked at once for all, which is most of the work of `get`.
        """
        schemas: dict[str | None, str] = {}
        for reference in references:
            try:
                if reference.database not in schemas:
                    schemas[reference.database] = self.existing_schema(reference)
                yield reference, self._read(reference, schemas[reference.database])
            except SqlmlError:
                continue

    def _read(self, reference: Reference, schema: str | None = None) -> Model:
        schema = schema or self.existing_schema(reference)
        rows = self._rows(
            "m.name, v.version, v.program, v.features, v.source, v.library, v.path, v.format, "
            "v.sha256, v.options, v.verification, coalesce(v.comment, m.comment), v.created_at",
            reference,
            schema,
        )
        if not rows:
            raise self.missing(reference, schema)
        name, version, digest, features, *origin, options, verification, comment, made = rows[0]
        if not isinstance(digest, str) or len(digest) != _HASH_DIGITS:
            raise ArtifactError(f"the catalog row of model {name!r} is damaged; create it again")
        program = self.programs.get(digest, schema)
        said = _json(options, name, "options")
        return Model(
            program,
            *_features(features, program, name),
            Origin(*origin),
            said,
            None if verification is None else _json(verification, name, "verification"),
            comment,
            name=name,
            version=version,
            created_at=made,
            database=reference.database,
            transform=transform_of(self._connection.read, said.get(TRANSFORM), name),
        )

    def program(self, digest: str, database: str | None = None) -> Program:
        """The stored Program of a content hash; see `Programs.get`."""
        return self.programs.get(digest, self._connection.schema(database))

    def small_models(self, model: Model) -> dict[str, SmallModel]:
        """The small models of a version, by kind.

        Raises:
            ArtifactError: one is damaged.
        """
        schema = self._connection.schema(model.database)
        found = {}
        for version, kind, digest, facts in self._small_rows(schema, fold(model.name)):
            if version != model.version:
                continue
            if kind not in KINDS or not isinstance(digest, str) or len(digest) != _HASH_DIGITS:
                raise ArtifactError(
                    f"a small model before {model.name!r} is damaged; ALTER MODEL .. DROP CASCADE "
                    "and DROP TOP_K FILTER remove what there is"
                )
            small = self.programs.get(digest, schema)
            found[kind] = loads(kind, small, facts, model.program, model.name)
        return found

    def _small_rows(self, schema: str, key: str) -> list[tuple[Any, ...]]:
        """Version, kind, Program and facts of a model's small models."""
        if SMALL_MODELS not in self._connection.tables(schema):
            return []
        return self._connection.read(
            f"SELECT version, kind, program, facts FROM {schema}.{SMALL_MODELS} "
            "WHERE key = ? ORDER BY version, kind",
            [key],
        )

    def training(self, model: Model) -> TrainingFacts | None:
        """How a version was trained; None if sqlml did not do it.

        Raises:
            ArtifactError: what is stored is damaged.
        """
        found = self._of_version(model, TRAININGS, "facts")
        return None if found is None else training_facts.loads(found, model.name)

    def estimator(self, model: Model) -> bytes | None:
        """The pickled object of a version that was trained; None if it was not kept."""
        found = self._of_version(model, ESTIMATORS, "pickled")
        return found if isinstance(found, bytes) else None

    def _of_version(self, model: Model, table: str, column: str) -> Any:
        """What one of the later tables has for a version."""
        schema = self._connection.schema(model.database)
        if table not in self._connection.tables(schema):
            return None
        rows = self._connection.read(
            f"SELECT {column} FROM {schema}.{table} WHERE key = ? AND version = ?",
            [fold(model.name), model.version],
        )
        return rows[0][0] if rows else None

    def stored_bytes(self, model: Model) -> int:
        """What the model's Program takes in the database."""
        return self.programs.stored_bytes(model.program.hash, self._checked(model.database))

    def version(self, reference: Reference) -> int:
        """The number of the version that a reference means.

        Raises:
            UnknownModelError: no such model, version or alias.
        """
        schema = self.existing_schema(reference)
        rows = self._rows("v.version", reference, schema)
        if not rows:
            raise self.missing(reference, schema)
        return int(rows[0][0])

    def stamp(self, reference: Reference) -> tuple[Any, ...] | None:
        """The current stamp of the model behind a reference; None if it is unknown.

        Two equal stamps mean the same Program, bound to the same columns with the same options, and
        the same small models before it.
        """
        database = reference.database
        schema = self._connection.schema(database) if database else '"sqlml"'
        made = read_stamp(self._connection, schema, reference.key)
        if made is not None:
            return (made,)
        try:  # an older sqlml made none, or somebody took it away
            schema = self._checked(database)
            rows = self._rows(
                "m.name, v.version, v.program, v.features, v.options, v.created_at",
                reference,
                schema,
            )
            return (*rows[0], *self._small_rows(schema, reference.key)) if rows else None
        except CatalogError:
            return None

    def stamps(self, references: Collection[Reference]) -> dict[Reference, tuple[Any, ...] | None]:
        """`stamp` of each reference to an attached database; of many by two queries for all."""
        made: dict[Reference, tuple[Any, ...] | None] = {}
        for database in {reference.database for reference in references}:
            if database is not None and not self._connection.has_database(database):
                continue
            asked = [reference for reference in references if reference.database == database]
            keys: frozenset[str] | None = None
            known: dict[str, str] = {}
            if len(asked) >= _MANY:
                keys = frozenset(map(fold, self.names(database)))
                known = read_stamps(self._connection, database)
            for reference in asked:
                if keys is not None and reference.key not in keys:
                    made[reference] = None
                elif reference.key in known:
                    made[reference] = (known[reference.key],)
                else:
                    made[reference] = self.stamp(reference)
        return made

    def aliases(self, reference: Reference) -> dict[str, int]:
        """The aliases of a model and the versions that they mean."""
        return dict(self._of_model("alias, version", "catalog_aliases", reference))

    def tags(self, reference: Reference) -> dict[str, str]:
        """The tags of a model."""
        return dict(self._of_model("tag, value", "catalog_tags", reference))

    def comment(self, reference: Reference) -> str | None:
        """The comment of a model, whatever those of its versions are."""
        found = self._of_model("comment", "catalog_models", reference)
        return found[0][0] if found else None

    def default(self, reference: Reference) -> int | None:
        """The number of a model's default version; None if there is no such model."""
        found = self._of_model("default_version", "catalog_models", reference)
        return int(found[0][0]) if found else None

    def _of_model(self, columns: str, table: str, reference: Reference) -> list[tuple[Any, ...]]:
        schema = self._checked(reference.database)
        return self._connection.read(
            f"SELECT {columns} FROM {schema}.{table} WHERE key = ? ORDER BY ALL", [reference.key]
        )

    def _checked(self, database: str | None) -> str:
        """The schema of a database's catalog, whose tables may be read.

        Raises:
            CatalogError: they are not as sqlml makes them.
        """
        schema = self._connection.schema(database)
        self._connection.tables(schema)
        return schema

    def names(self, database: str | None = None) -> list[str]:
        """Names of all models, in order."""
        schema = self._connection.schema(database)
        if not self._connection.exists(schema):
            return []
        rows = self._connection.read(f"SELECT name FROM {schema}.catalog_models ORDER BY key")
        return [row[0] for row in rows]

    def schema_exists(self, database: str | None = None) -> bool:
        """Whether any model was ever registered in the database."""
        return self._connection.exists(self._connection.schema(database))

    def check_database(self, database: str | None) -> None:
        """Check that a database is attached.

        Raises:
            CatalogError: it is not attached.
        """
        if database is not None and not self._connection.has_database(database):
            raise CatalogError(_describe_missing_database(database))

    def models_query(self, database: str | None = None) -> str:
        """The query of the view `models`.

        The view itself fails where another database is attached under the name sqlml.
        """
        return MODELS.format(schema=self._checked(database))

    def versions_query(self, database: str | None = None) -> str:
        """The query of the view `model_versions`."""
        return VERSIONS.format(schema=self._checked(database))

    def _rows(self, columns: str, reference: Reference, schema: str) -> list[tuple[Any, ...]]:
        """`columns` of the model `m` and its version `v` behind a reference: one row, or none."""
        parameters: list[Any] = [reference.key]
        alias = None if reference.alias is None else fold(reference.alias)
        if alias in ("first", "last"):
            pick = "min" if alias == "first" else "max"
            found = f"SELECT {builtin(pick)}(version) FROM {schema}.catalog_versions w"
            wanted = f"({found} WHERE w.key = m.key)"
        elif alias is not None and alias not in SPECIAL:
            wanted = (
                f"(SELECT version FROM {schema}.catalog_aliases a "
                "WHERE a.key = m.key AND a.alias = ?)"
            )
            parameters.append(alias)
        elif reference.version is not None:
            wanted = f"{reference.version:d}"
        else:
            wanted = "m.default_version"
        return self._connection.read(
            f"SELECT {columns} FROM {schema}.catalog_models m JOIN {schema}.catalog_versions v "
            f"ON v.key = m.key WHERE m.key = ? AND v.version = {wanted}",
            parameters,
        )

    # -- what is not there

    def existing_schema(self, reference: Reference) -> str:
        """The schema of the catalog that a reference looks into.

        Raises:
            UnknownModelError: that database has no models, or is not attached.
        """
        schema = self._connection.schema(reference.database)
        if self._connection.exists(schema):
            return schema
        database = reference.database
        if database is not None and not self._connection.has_database(database):
            raise UnknownModelError(_describe_missing_database(database))
        raise self._unknown(reference, [])

    def missing(self, reference: Reference, schema: str) -> UnknownModelError:
        """The error for a reference that matches no version of a model."""
        found = self._connection.read(
            f"SELECT {builtin('list')}(version ORDER BY version) FROM {schema}.catalog_versions "
            "WHERE key = ?",
            [reference.key],
        )[0][0]
        if found is None:
            rows = self._connection.read(f"SELECT name FROM {schema}.catalog_models")
            names = [str(name) for (name,) in rows]
            return self._unknown(reference, [n for n in names if fold(n) != reference.key])
        what = f"{reference.version}"
        if reference.alias is not None and fold(reference.alias) not in SPECIAL:
            what = f"with the alias {reference.alias!r}"
        elif reference.version is None:
            what = "marked as its default"
        have = [f"{n}" for n in found[-20:]]
        others = [f"@{alias}" for alias in (*self.aliases(reference), *SPECIAL)]
        return UnknownModelError(
            f"model {reference.name!r} has no version {what}; it has {', '.join(have)} (also "
            f"{', '.join(others)})"
        )

    def _unknown(self, reference: Reference, names: list[str]) -> UnknownModelError:
        close = closest(reference.name, names)
        elsewhere = None if reference.database is not None else self._elsewhere(reference)
        if elsewhere is not None:
            hint = f"database {elsewhere!r} has one: write '{elsewhere}.{reference.name}'"
        elif close is not None:
            hint = f"did you mean {close!r}?"
        elif names:
            more = f" and {len(names) - 10} more, which SHOW MODELS lists" if names[10:] else ""
            hint = f"models: {', '.join(sorted(names)[:10])}{more}"
        else:
            hint = "none exist yet: CREATE MODEL or create_model() registers one"
        return UnknownModelError(f"unknown model {reference.name!r}; {hint}")

    def _elsewhere(self, reference: Reference) -> str | None:
        """Another database that has a model of this name."""
        others = self._connection.read(
            "SELECT database_name FROM system.main.duckdb_tables() WHERE schema_name = 'sqlml' "
            "AND table_name = 'catalog_models' AND database_name <> system.main.current_database()"
        )
        for (database,) in others:
            try:
                schema = self._checked(str(database))
            except CatalogError:  # nobody asked about that one
                continue
            ask = f"SELECT 1 FROM {schema}.catalog_models WHERE key = ?"
            if self._connection.read(ask, [reference.key]):
                return str(database)
        return None


def _features(
    stored: Any, program: Program, name: str
) -> tuple[tuple[Feature, ...], frozenset[str]]:
    """The features of a row, and the names of those that the outputs need."""
    try:
        features = tuple(Feature(str(f["name"]), f["kind"]) for f in stored)
        used = frozenset(str(f["name"]) for f in stored if f["used"])
    except (TypeError, KeyError):
        raise ArtifactError(
            f"the catalog row of model {name!r} is damaged (features); create it again"
        ) from None
    read = {f.name: f.kind for f in features}
    for f in program.features:
        if read.get(f.name) != f.kind:
            raise ArtifactError(
                f"the catalog row of model {name!r} does not fit its program (feature {f.name!r}); "
                "create it again"
            )
    return features, used


def _json(text: Any, name: str, what: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ArtifactError(f"the {what} of model {name!r} are damaged; create it again")
    return found


def _describe_missing_database(database: str) -> str:
    """Say that a database is not attached; people who know BigQuery mean a dataset."""
    return (
        f"unknown database {database!r}; ATTACH it, or name the model without it: models belong to "
        "a database, not to a schema"
    )


# `Lookup`: the models that a session has found, by what its queries call them.


PATIENCE = 1.0
"""Seconds to wait for a model that existed before: another connection may drop and recreate it in
two statements."""
_LOOKS = (0.005, 0.01, 0.02, 0.04, 0.08)
"""Seconds from one look to the next; the last one from then on."""

_reference = lru_cache(maxsize=256)(parse_reference)


class Lookup:
    """Models by references such as 'churn' or 'churn/3', read again when their stamp changes."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._known: Recent[str, tuple[object, Model]] = Recent()

    def model(self, name: str) -> Model:
        """The model that a reference means now.

        Raises:
            UnknownModelError: no such model, version or alias.
            ArtifactError: it is damaged.
        """
        stamp, known = self.stamp(name), self._known.get(name)
        if stamp is not None and known is not None and known[0] == stamp:
            return known[1]
        looks = iter(_LOOKS)
        end: float | None = None
        while True:
            try:
                found = self._catalog.get(parse_reference(name))
            except UnknownModelError:
                self._known.take(lambda key: key == name)
                if end is None:
                    end = time.monotonic() + (0.0 if known is None else PATIENCE)
                # A transaction of the user's sees no change of others.
                if time.monotonic() >= end or self._catalog.in_transaction():
                    raise
                stamp = None
                while stamp is None and time.monotonic() < end:
                    time.sleep(next(looks, _LOOKS[-1]))
                    stamp = self.stamp(name)
                continue
            self._known.put(name, (stamp, found), found.program.nbytes)
            return found

    def several(self, names: Iterable[str]) -> Mapping[str, object]:
        """Read the models of these references together; `model` then has them at hand.

        Returns:
            The stamps of those that are written as references to a database that is attached; None
            for a model that does not exist and never did.
        """
        references = {}
        for name in names:
            try:
                references[name] = _reference(name)
            except UnknownModelError:
                continue
        stamps = self._catalog.stamps(set(references.values()))
        found = {n: stamps[r] for n, r in references.items() if r in stamps}
        known = {name: self._known.get(name) for name in found}
        others = {
            references[name]: name
            for name, stamp in found.items()
            if stamp is not None and ((kept := known[name]) is None or kept[0] != stamp)
        }
        for reference, model in self._catalog.several(others):
            name = others[reference]
            self._known.put(name, (found[name], model), model.program.nbytes)
        return {n: s for n, s in found.items() if s is not None or known[n] is None}

    def training(self, model: Model) -> TrainingFacts | None:
        """How a version was trained; None if sqlml did not train it."""
        return self._catalog.training(model)

    def small_models(self, model: Model) -> Mapping[str, SmallModel]:
        """The small models of a version, by kind. Raises ArtifactError if one is damaged."""
        return self._catalog.small_models(model)

    def stamp(self, name: str) -> object:
        """A value that changes with the model; None if that is unknown."""
        return self._catalog.stamp(_reference(name))

    def forget(self) -> None:
        """Know no model any more, and wait for none: this session changed one."""
        self._known = Recent()
