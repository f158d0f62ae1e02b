"""`Models`: what the statements about models are carried out on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlml.catalog.lookup import Catalog
from sqlml.catalog.model import Reference, parse_reference
from sqlml.catalog.model_changes import ModelChanges, VersionChanges
from sqlml.dialects import DUCKDB, Dialect
from sqlml.host import Host
from sqlml.parsing.statements import ModelName
from sqlml.training.train_estimator import Trainers

# `Answer`: what a statement about models answers, as a query whose result it is.


Answer = tuple[str, list[Any] | None]
"""A query, and its parameters."""


def rows(columns: tuple[str, str], found: Sequence[tuple[str, str]]) -> Answer:
    """A query whose result is `found`."""
    marks = ", ".join(f"({n}, ?, ?)" for n in range(len(found)))
    query = (
        f"SELECT a AS {columns[0]}, b AS {columns[1]} FROM (VALUES {marks}) t(n, a, b) ORDER BY n"
    )
    return query, [text for row in found for text in row]


def table(columns: Mapping[str, str], found: Sequence[Sequence[Any]]) -> Answer:
    """A query whose result is `found`, its columns of these types."""
    names = ", ".join(f"CAST(c{n} AS {t}) AS {c}" for n, (c, t) in enumerate(columns.items()))
    marks = ", ".join("?" * len(columns))
    values = ", ".join(f"({n}, {marks})" for n in range(len(found)))
    held = ", ".join(f"c{n}" for n in range(len(columns)))
    query = f"SELECT {names} FROM (VALUES {values}) t(place, {held}) ORDER BY place"
    return query, [value for row in found for value in row]


@dataclass(frozen=True, slots=True)
class Models:
    """The models of one connection, and the files that it reads and writes.

    Each statement is carried out whole or not at all. `runnable` makes of a query that may call
    models one that the engine runs, and `trainers` train on its rows. `allow_pickle` says that the
    user trusts files that execute code; SHOW CREATE MODEL answers in the words of `dialect`.
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
        """Whether there is a model of this name."""
        there = self.catalog.schema_exists(reference.database)
        return there and self.catalog.default(reference) is not None


def referred(name: ModelName) -> Reference:
    """The reference that a name in a statement is; `"m/2"` in quotes is a version, too."""
    reference = Reference(name.name, name.database, name.version, name.alias)
    if reference.names_a_version or not any(c in name.name for c in "@/"):
        return reference
    found = parse_reference(name.name)
    return found if name.database is None else replace(found, database=name.database)


def whole(name: ModelName) -> Reference:
    """The reference of the model as a whole, whatever version a statement names."""
    return Reference(name.name, name.database)
