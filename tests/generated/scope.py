"""What an expression may be made of: the tables that the generated queries read, and scopes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

FEATURES = {"a": "a", "b": "b", "g": "g", "s": "s"}

TABLES: Mapping[str, Mapping[str, str]] = {
    "t1": {"id": "id", **FEATURES},
    "t2": {"id": "id", **FEATURES},
    "t3": {"id": "id", "g": "g", "s": "s"},
    "t4": {"id": "id", "h": "a"},
    "t5": {"id": "id", "r": "row", "l": "as"},
    "e1": {"id": "id", **FEATURES},
}
"""Table -> column -> what it holds: a key, a feature's values, a struct of all features, a list."""

CREATE = """
CREATE TABLE t1 AS SELECT i::INTEGER AS id, nullif(i * 5 % 7, 6)::INTEGER AS a,
    nullif(i * 3 % 8 / 2, 3.5)::DOUBLE AS b, nullif(i % 5, 4)::INTEGER AS g,
    ['red', 'green', 'blue', NULL, 'violet'][1 + i * i % 5] AS s FROM range(24) r(i);
UPDATE t1 SET b = 1 WHERE b > 2.5;
CREATE TABLE t2 AS SELECT i::INTEGER AS id, (i * 5 % 6)::BIGINT AS a,
    (i % 6 / 2)::DECIMAL(3, 1) AS b, (i % 4)::TINYINT AS g,
    ['red', 'green', 'blue'][1 + i % 3] AS s FROM range(3, 20) r(i);
CREATE TABLE t3 AS SELECT (i * 2)::INTEGER AS id, nullif(i % 5, 4)::DOUBLE AS g,
    ['red', 'blue', NULL][1 + i % 3]::ENUM('red', 'green', 'blue') AS s FROM range(7) r(i);
CREATE TABLE t4 AS SELECT (i * 3)::INTEGER AS id, (i % 6)::INTEGER AS h FROM range(6) r(i);
CREATE TABLE t5 AS SELECT id, {'a': a, 'b': b, 'g': g, 's': s} AS r, [a, 3, g] AS l FROM t1
    WHERE id % 2 = 0;
CREATE TABLE e1 AS FROM t1 WHERE false;
"""

FILL = """
CREATE OR REPLACE TABLE d (id INTEGER PRIMARY KEY, a INTEGER, b DOUBLE, g INTEGER, s VARCHAR,
    w DOUBLE, label VARCHAR);
INSERT INTO d SELECT id, a, b, g, s, 0, 'none' FROM t2 WHERE id < 12;
"""
"""What the changes change, as it was."""

TARGET = {"id": "id", **FEATURES, "w": "number", "label": "label"}


@dataclass(frozen=True, slots=True)
class Relation:
    """A table in a FROM clause under its alias; without one its columns stand alone.

    `key`: whether no two rows have one id; `row`: whether its alias stands for the row.
    """

    alias: str
    columns: Mapping[str, str]
    key: bool = True
    row: bool = True

    def column(self, name: str) -> str:
        return f"{self.alias}.{name}" if self.alias else name


@dataclass(frozen=True, slots=True)
class Scope:
    """Texts of an expression and what they give, the relations whose stars may be written."""

    atoms: tuple[tuple[str, str], ...] = ()
    relations: tuple[Relation, ...] = ()
    subqueries: bool = True
    merged: frozenset[str] = frozenset()
    """Columns that USING made one of."""

    @classmethod
    def of(cls, *relations: Relation, merged: frozenset[str] = frozenset()) -> Scope:
        atoms = tuple((r.column(c), k) for r in relations for c, k in r.columns.items())
        return cls(atoms, relations, merged=merged)

    def __add__(self, other: Scope) -> Scope:
        """Both, side by side in one FROM."""
        return Scope(
            self.atoms + other.atoms,
            self.relations + other.relations,
            self.subqueries and other.subqueries,
            self.merged | other.merged,
        )

    def inside(self, outer: Scope) -> Scope:
        """With the columns of the query around it."""
        return replace(self, atoms=self.atoms + outer.atoms)

    def having(self, *atoms: tuple[str, str]) -> Scope:
        return replace(self, atoms=self.atoms + atoms)

    def only(self, *atoms: tuple[str, str]) -> Scope:
        """These texts alone, and no star: what a grouped query has."""
        return replace(self, atoms=atoms, relations=())

    def without_subqueries(self) -> Scope:
        return replace(self, subqueries=False)

    def of_kind(self, kind: str) -> list[str]:
        return [text for text, k in self.atoms if k == kind]

    def has_star(self, features: tuple[str, ...]) -> bool:
        """Whether `*` means one column for each feature."""
        names = [c for r in self.relations for c in r.columns]
        return all(names.count(f) == 1 + (f in self.merged) for f in features)

    @property
    def keys(self) -> list[str]:
        """Columns that tell all rows apart; none where there are no such."""
        found = [r.column("id") for r in self.relations if r.key and "id" in r.columns]
        return found if len(found) == len(self.relations) else []
