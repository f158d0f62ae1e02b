"""Option `unique_keys` of ADD CASCADE and ADD TOP_K FILTER: keys that tables do not declare.

Files, attached tables and many a table of the database declare none. Where a key is unique all the
same, a row has one partner at most, so that a join makes one row of it with and without a partner.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlml.dialects.duckdb import builtin
from sqlml.errors import ConfigError
from sqlml.planner.syntax.joins import LeftJoin, left_joins
from sqlml.statements.models import Models
from sqlml.types import fold

UNIQUE_KEYS = "unique_keys"


def unique_keys(models: Models, options: Mapping[str, Any], query: str) -> tuple[str, ...]:
    """The option's keys, each of which is unique in the tables that the query joins on it.

    Raises:
        ConfigError: it is no list of columns; no table is joined on one of them, or has it twice.
    """
    given = options.get(UNIQUE_KEYS, ())
    keys = (given,) if isinstance(given, str) else given
    if not isinstance(keys, list | tuple) or not all(isinstance(k, str) and k for k in keys):
        raise ConfigError(
            f"option {UNIQUE_KEYS} takes columns, such as ['song', 'shop, day'], not {given!r}"
        )
    joins = left_joins(query) if keys else []
    for key in keys:
        columns = {fold(column.strip()) for column in key.split(",")}
        own = [join for join in joins if columns <= join.keys.keys()]
        if not own:
            raise ConfigError(
                f"option {UNIQUE_KEYS}: the query has no LEFT JOIN of a table by {key!r}"
            )
        for join in own:
            _check(models, join, key)
    return tuple(keys)


def _check(models: Models, join: LeftJoin, key: str) -> None:
    """Raise ConfigError if two rows of a joined table have the same values of a key."""
    columns = [models.dialect.quote_name(column.strip()) for column in key.split(",")]
    listed, known = ", ".join(columns), " AND ".join(f"{c} IS NOT NULL" for c in columns)
    twice = models.host.fetch_frame(
        f"SELECT {listed} FROM {join.table} AS sqlml_rows WHERE {known} GROUP BY {listed} "
        f"HAVING {builtin('count')}(*) > 1 LIMIT 1"
    )
    if len(twice):
        values = ", ".join(repr(value) for value in twice.iloc[0].tolist())
        raise ConfigError(f"option {UNIQUE_KEYS}: {join.table} has {key} = {values} several times")
