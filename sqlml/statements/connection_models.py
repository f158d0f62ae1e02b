"""The models of one connection, and the answers of statements about them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlml.catalog.lookup import Catalog
from sqlml.catalog.model import Reference, parse_reference
from sqlml.catalog.model_changes import ModelChanges, VersionChanges
from sqlml.dialects import DUCKDB, Dialect
from sqlml.errors import UnknownModelError
from sqlml.host import Host
from sqlml.parsing.statements import ModelName
from sqlml.training.train_estimator import Trainers

Answer = tuple[str, list[Any] | None]
"""The query whose result answers a statement, and the parameters of the query."""


@dataclass(frozen=True, slots=True)
class Models:
    """The models of one connection, and the files that the connection reads and writes.

    Every statement takes effect completely or not at all. `runnable` rewrites a query that may call
    models to SQL for the engine. SHOW CREATE MODEL writes SQL in `dialect`.
    """

    host: Host
    catalog: Catalog
    changes: ModelChanges
    versions: VersionChanges
    allow_pickle: bool
    runnable: Callable[[str], str]
    trainers: Trainers
    dialect: Dialect = DUCKDB

    def exists(self, reference: Reference) -> bool:
        """Return whether the model of a reference exists; the version is not checked."""
        has_schema = self.catalog.schema_exists(reference.database)
        return has_schema and self.catalog.default_version(reference) is not None


def resolve_name(name: ModelName) -> Reference:
    """Convert a parsed name to a reference; a quoted name such as `"m/2"` may contain a version."""
    reference = Reference(name.name, name.database, name.version, name.alias)
    if reference.has_version or not any(character in name.name for character in "@/"):
        return reference
    parsed = parse_reference(name.name)
    if parsed.folds:
        raise UnknownModelError(f"{name.name!r} names models of folds, which only predict")
    return parsed if name.database is None else replace(parsed, database=name.database)


def resolve_model(name: ModelName) -> Reference:
    """Convert a parsed name to a reference to the whole model, and ignore a version in the name."""
    return Reference(name.name, name.database)


def format_pairs_answer(columns: tuple[str, str], pairs: Sequence[tuple[str, str]]) -> Answer:
    """Build a query that returns `pairs` as two string columns."""
    placeholders = ", ".join(f"({n}, ?, ?)" for n in range(len(pairs)))
    column_names = f"a AS {columns[0]}, b AS {columns[1]}"
    query = f"SELECT {column_names} FROM (VALUES {placeholders}) t(n, a, b) ORDER BY n"
    return query, [text for pair in pairs for text in pair]
