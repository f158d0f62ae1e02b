"""`Catalog`: create, find, list and drop models, inside the user's own transaction."""

from __future__ import annotations

import datetime
import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol
from uuid import uuid4

from sqlml.catalog.macros import Macros, ModelCall
from sqlml.catalog.model import Model, Reference
from sqlml.catalog.tables import MODELS, TABLES, VIEWS
from sqlml.config import FORMAT_VERSION
from sqlml.errors import ArtifactError, CatalogError, ModelExistsError, UnknownModelError
from sqlml.ir import store
from sqlml.ir.program import Program
from sqlml.types import Feature

_HASH_DIGITS = 64


class Connection(Protocol):
    """What the catalog needs of an engine's connection."""

    def read(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Rows of a query, in the user's transaction."""
        ...

    def write(self, sql: str, params: Sequence[Any] = ()) -> None:
        """Run a statement in the user's transaction."""
        ...

    def columns(self, relation: str) -> tuple[str, ...] | None:
        """The columns' names of a qualified table or view (already quoted); None: there is none."""
        ...

    def exists(self, schema: str) -> bool:
        """Whether the qualified schema (already quoted) exists."""
        ...

    def atomic(self, work: Callable[[], None]) -> None:
        """Run `work` in the user's open transaction, or else in one of its own."""
        ...

    def in_transaction(self) -> bool:
        """Whether the user has a transaction open."""
        ...

    def schema(self, database: str | None) -> str:
        """The qualified, quoted schema of the catalog in a database (None: the current one)."""
        ...

    def has_database(self, name: str) -> bool:
        """Whether a database of this name is attached."""
        ...


class Catalog:
    """The models of the databases that one connection sees.

    Loaded Programs are kept by content hash in `programs`, which connections of one database may
    share: a Program never changes, so it never goes stale.
    """

    def __init__(self, connection: Connection, programs: dict[str, Program]) -> None:
        self._connection = connection
        self._programs = programs
        self.macros = Macros(connection)

    def create(
        self,
        name: str,
        program: Program,
        features: Sequence[Feature],
        *,
        source: str,
        library: str,
        options: Mapping[str, Any],
        comment: str | None = None,
        database: str | None = None,
        or_replace: bool = False,
        if_not_exists: bool = False,
        calls: Sequence[ModelCall] = (),
    ) -> int | None:
        """Register a model; all rows or none are written.

        `calls` are what the macros compute that plain connections call.

        Returns:
            The version made, or None when `if_not_exists` found the model.

        Raises:
            ModelExistsError: the name is taken, without `or_replace`.
            CatalogError: the name is empty or holds one of `.`, `@`, `/`.
        """
        if not name or any(c in name for c in ".@/"):
            raise CatalogError(
                f"{name!r} is no name for a model: it is empty or has . @ or / in it"
            )
        if database is not None and not self._connection.has_database(database):
            raise CatalogError(f"there is no database {database!r}; ATTACH it first")
        key, schema = name.lower(), self._schema(database)
        made: list[int] = []
        shared = self._connection.in_transaction()
        now = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)

        def work() -> None:
            # In a database that is itself called sqlml the engine cannot bind such views.
            views = () if schema.lower() == '"sqlml"."sqlml"' else VIEWS
            for statement in (*TABLES, *views):
                self._connection.write(statement.format(schema=schema))
            found = self._connection.read(
                f"SELECT count(*), max(version) FROM {schema}.catalog_versions WHERE key = ?", [key]
            )
            count, last = found[0]
            if count and if_not_exists:
                return
            if count and not or_replace:
                raise ModelExistsError(
                    f"model {name!r} exists already; CREATE OR REPLACE MODEL (in Python: "
                    "create_model(.., or_replace=True)) adds a version to it, DROP MODEL removes it"
                )
            version = (last or 0) + 1
            self._put_program(schema, program)
            if count:
                self._connection.write(
                    f"UPDATE {schema}.catalog_models SET default_version = ?, comment = "
                    "coalesce(?, comment) WHERE key = ?",
                    [version, comment, key],
                )
            else:
                self._connection.write(
                    f"INSERT INTO {schema}.catalog_models VALUES (?, ?, ?, ?, ?)",
                    [key, name, version, comment, now],
                )
            labels = program.labels
            names = [""] if len(labels) == 1 else [f"t{t}=" for t in range(len(labels))]
            self._connection.write(
                f"INSERT INTO {schema}.catalog_versions VALUES "
                "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    key,
                    version,
                    program.hash,
                    [{"name": f.name, "kind": f.kind} for f in features],
                    ", ".join(dict.fromkeys(s.kind for s in labels)) or None,
                    [f"{n}{v}" for n, s in zip(names, labels, strict=True) for v in s.values]
                    or None,
                    list(program.outputs),
                    program.nbytes,
                    source,
                    library,
                    json.dumps(dict(options), sort_keys=True),
                    now,
                ],
            )
            # Another name, or another content, of a view is seen without reading a row.
            self._connection.write(
                f'CREATE OR REPLACE VIEW {_stamp_view(schema, key)} AS SELECT 1 AS "{uuid4().hex}"'
            )
            self.macros.keep(schema, database, key, calls, shared)
            made.append(version)

        self._connection.atomic(work)
        return made[0] if made else None

    def _put_program(self, schema: str, program: Program) -> None:
        known = self._connection.read(
            f"SELECT 1 FROM {schema}.catalog_programs WHERE hash = ?", [program.hash]
        )
        if not known:
            self._connection.write(
                f"INSERT INTO {schema}.catalog_programs VALUES (?, ?, ?)",
                [program.hash, FORMAT_VERSION, store.dumps(program)],
            )
        self._programs[program.hash] = program

    def get(self, reference: Reference) -> Model:
        """The model that a reference means, its Program loaded and checked.

        Raises:
            UnknownModelError: no such model or version; the message has the closest name.
            ArtifactError: the stored row is damaged.
        """
        schema = self._existing_schema(reference)
        rows = self._rows(
            "m.name, v.version, v.program, v.features, v.source, v.library, v.options, "
            "m.comment, v.created_at",
            reference,
            schema,
        )
        if not rows:
            raise self._missing(reference, schema)
        name, version, digest, features, source, library, options, comment, created = rows[0]
        if not isinstance(digest, str) or len(digest) != _HASH_DIGITS:
            raise ArtifactError(f"the catalog row of model {name!r} is damaged; create it again")
        program = self.program(digest, reference.database)
        return Model(
            name,
            version,
            program,
            _features(features, program, name),
            source,
            library,
            _options(options, name),
            comment,
            created,
            reference.database,
        )

    def stamp(self, reference: Reference) -> tuple[Any, ...] | None:
        """What the model behind a reference is now, in one look; None where that is not known.

        Two equal stamps mean the same Program, bound to the same columns with the same options.
        """
        database = reference.database
        schema = self._connection.schema(database) if database else '"sqlml"'
        made = self._connection.columns(_stamp_view(schema, reference.name.lower()))
        if made is not None:
            return made
        try:  # of an sqlml that made no stamps
            rows = self._rows(
                "m.name, v.version, v.program, v.features, v.options, v.created_at",
                reference,
                schema,
            )
        except CatalogError:
            return None
        return rows[0] if rows else None

    def _rows(self, columns: str, reference: Reference, schema: str) -> list[tuple[Any, ...]]:
        """`columns` of the model `m` and its version `v` behind a reference: one row, or none."""
        if reference.alias not in (None, "first", "last", "default"):
            return []
        wanted = "m.default_version"
        if reference.alias in ("first", "last"):
            pick = "min" if reference.alias == "first" else "max"
            wanted = (
                f"(SELECT {pick}(version) FROM {schema}.catalog_versions w WHERE w.key = m.key)"
            )
        elif reference.version is not None:
            wanted = f"{reference.version:d}"
        return self._connection.read(
            f"SELECT {columns} FROM {schema}.catalog_models m JOIN {schema}.catalog_versions v "
            f"ON v.key = m.key WHERE m.key = ? AND v.version = {wanted}",
            [reference.name.lower()],
        )

    def program(self, digest: str, database: str | None = None) -> Program:
        """The stored Program with this content hash (or a prefix of it, 20 digits or more).

        Raises:
            UnknownModelError: it is not stored in the database.
            ArtifactError: the stored bytes are damaged.
        """
        if digest in self._programs:
            return self._programs[digest]
        schema = self._schema(database)
        rows = (
            self._connection.read(
                f"SELECT hash, content FROM {schema}.catalog_programs WHERE starts_with(hash, ?)",
                [digest],
            )
            if self._connection.exists(schema)
            else []
        )
        if not rows:
            raise UnknownModelError(
                f"the model program {digest[:20]} is not stored in this database; the model that "
                "a view was made with may have been dropped: make the view again"
            )
        full, content = rows[0]
        if not isinstance(content, bytes):
            raise ArtifactError(f"the stored model {digest[:20]} is damaged; create it again")
        program = store.loads(content)
        if program.hash != full:
            raise ArtifactError(
                f"the stored model {full[:20]} has other content than its hash says; create it "
                "again"
            )
        self._programs[full] = program
        if digest != full:
            self._programs[digest] = program
        return program

    def drop(self, name: str, database: str | None = None, if_exists: bool = False) -> bool:
        """Remove a model, all its versions, and the Programs that nobody else needs.

        Raises:
            UnknownModelError: no such model, without `if_exists`.
        """
        schema, key = self._schema(database), name.lower()
        reference = Reference(name, database)
        if not self._connection.exists(schema):
            if if_exists:
                return False
            raise self._unknown(reference, [])
        dropped: list[bool] = []
        shared = self._connection.in_transaction()

        def work() -> None:
            found = self._connection.read(
                f"SELECT 1 FROM {schema}.catalog_models WHERE key = ?", [key]
            )
            if not found:
                if if_exists:
                    return
                raise self._missing(reference, schema)
            for table in ("catalog_versions", "catalog_models"):
                self._connection.write(f"DELETE FROM {schema}.{table} WHERE key = ?", [key])
            self._connection.write(f"DROP VIEW IF EXISTS {_stamp_view(schema, key)}")
            self._connection.write(
                f"DELETE FROM {schema}.catalog_programs WHERE hash NOT IN "
                f"(SELECT program FROM {schema}.catalog_versions)"
            )
            self.macros.keep(schema, database, key, (), shared)
            dropped.append(True)

        self._connection.atomic(work)
        return bool(dropped)

    def names(self, database: str | None = None) -> list[str]:
        """Names of all models, in order."""
        schema = self._schema(database)
        if not self._connection.exists(schema):
            return []
        rows = self._connection.read(f"SELECT name FROM {schema}.catalog_models ORDER BY key")
        return [row[0] for row in rows]

    def schema_exists(self, database: str | None = None) -> bool:
        """Whether any model was ever registered in the database."""
        return self._connection.exists(self._schema(database))

    def models_query(self) -> str:
        """The query behind the view `models`.

        The view itself fails where another database is attached under the name sqlml.
        """
        return MODELS.format(schema=self._schema(None))

    def _existing_schema(self, reference: Reference) -> str:
        schema = self._schema(reference.database)
        if self._connection.exists(schema):
            return schema
        database = reference.database
        if database is not None and not self._connection.has_database(database):
            raise UnknownModelError(
                f"there is no database {database!r}; ATTACH it, or name the model without it"
            )
        raise self._unknown(reference, [])

    def _schema(self, database: str | None) -> str:
        return self._connection.schema(database)

    def _missing(self, reference: Reference, schema: str) -> UnknownModelError:
        rows = self._connection.read(
            f"SELECT name, list(version ORDER BY version) FROM {schema}.catalog_models "
            f"JOIN {schema}.catalog_versions USING (key) GROUP BY name"
        )
        versions = {str(name).lower(): found for name, found in rows}
        if reference.name.lower() in versions:
            have = ", ".join(map(str, versions[reference.name.lower()]))
            what = f"alias {reference.alias!r}" if reference.alias else f"{reference.version}"
            what = "that is its default" if what == "None" else what
            return UnknownModelError(
                f"model {reference.name!r} has no version {what}; it has {have} (also @default, "
                "@first, @last)"
            )
        return self._unknown(reference, [str(name) for name, _ in rows])

    def _unknown(self, reference: Reference, names: list[str]) -> UnknownModelError:
        close = difflib.get_close_matches(reference.name, names, 1, 0.5)
        if close:
            hint = f"did you mean {close[0]!r}?"
        elif names:
            hint = f"there are {', '.join(sorted(names)[:10])}"
        else:
            hint = "there are none yet: CREATE MODEL or create_model() registers one"
        return UnknownModelError(f"there is no model {reference.name!r}; {hint}")


def _stamp_view(schema: str, key: str) -> str:
    """The view whose one column has another name after each change of a model.

    A view for each model: two transactions that make different models do not conflict.
    """
    name = key.replace('"', '""')
    return f'{schema}."stamp_{name}"'


def _features(stored: Any, program: Program, name: str) -> tuple[Feature, ...]:
    try:
        features = tuple(Feature(str(f["name"]), f["kind"]) for f in stored)
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
    return features


def _options(text: Any, name: str) -> Mapping[str, Any]:
    try:
        options = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        options = None
    if not isinstance(options, dict):
        raise ArtifactError(f"the options of model {name!r} are damaged; create it again")
    return options
