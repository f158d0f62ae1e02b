"""`Answer`: what a statement about models answers, as a query whose result it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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
