"""`Models`: what the statements about models are carried out on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from sqlml.catalog.change_models import ModelChanges
from sqlml.catalog.change_versions import VersionChanges
from sqlml.catalog.model import Reference, parse_reference
from sqlml.catalog.read import Catalog
from sqlml.dialects import DUCKDB, Dialect
from sqlml.host import Host
from sqlml.parsing.statements import ModelName
from sqlml.training.trainers import Trainers


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
