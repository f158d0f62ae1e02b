"""The rule `unneeded_joins`: LEFT JOINs whose columns nothing reads are removed.

`SELECT predict('m', *) FROM orders o LEFT JOIN customers c ON o.customer = c.id` joins only for the
star. If the model reads nothing of `c`, and `c.id` is unique, each row of `orders` occurs once with
or without the join, so the same rows are scored.

A join is removed only if its equations cover a unique key of the joined table (declared, or made by
GROUP BY or DISTINCT); both sides of each equation have the same type, in which equal values are
identical ('1' and '01' are one number); neither the table nor one of its columns is mentioned
elsewhere; and the query binds to the same columns without the join.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from sqlml.planner.binding.context import UniqueKeys
from sqlml.planner.binding.probe_queries import Describe, ProbeError
from sqlml.planner.rewrites.draft import Draft
from sqlml.planner.syntax.arguments import find_identifiers
from sqlml.planner.syntax.joins import LeftJoin, find_left_joins
from sqlml.types import fold

_IDENTITY_TYPES = frozenset(
    "TINYINT SMALLINT INTEGER BIGINT HUGEINT UTINYINT USMALLINT UINTEGER UBIGINT UHUGEINT BOOLEAN "
    "UUID DATE TIME TIMESTAMP".split()
)
"""Types whose equal values are identical."""


def unneeded_joins(draft: Draft) -> Draft:
    """Remove LEFT JOINs whose columns neither a model nor the rest of the statement reads."""
    keys, describe = draft.context.unique_keys, draft.context.describe
    if keys is None or not draft.targets or "join" not in draft.text.lower():
        return draft
    while (join_sql := _find_unneeded_join(draft.sql, draft.probe, describe, keys)) is not None:
        draft = replace(draft, removed_joins=(*draft.removed_joins, join_sql))
    return draft


def _find_unneeded_join(sql: str, probe: str, describe: Describe, keys: UniqueKeys) -> str | None:
    """Return the text of a join that can be removed, or None if all joins are needed.

    The text must occur exactly once both in the statement `sql` and in `probe`.
    """
    for join in find_left_joins(probe):
        join_sql = probe[join.span.start : join.span.end]
        if sql.count(join_sql) != 1 or probe.count(join_sql) != 1:
            continue
        try:
            if not has_one_partner(join, keys, describe):
                continue
            columns = {fold(c.name) for c in describe(f"SELECT * FROM {join.table}")}
            columns -= set(join.keys if join.is_using else ())
            is_mentioned = _is_mentioned(sql, join_sql, join.names, columns)
            if not is_mentioned and describe(probe.replace(join_sql, "", 1)) == describe(probe):
                return join_sql
        except ProbeError:
            continue
    return None


def has_one_partner(
    join: LeftJoin,
    unique_keys: UniqueKeys,
    describe: Describe,
    user_keys: Collection[frozenset[str]] = (),
) -> bool:
    """Return whether each row matches at most one row of the joined table.

    The user guarantees that each set of columns in `user_keys` is unique in any table that is
    joined on this set. Raises ProbeError if the engine cannot bind the join on its own.
    """
    is_declared = any(key <= join.keys.keys() for key in user_keys)
    if not join.keys or not (is_declared or _is_unique(join, unique_keys)):
        return False
    types = {fold(c.name): c.type for c in describe(f"SELECT * FROM {join.table}")}
    left_columns = describe(f"SELECT {', '.join(join.keys.values())} FROM {join.preceding_sql}")
    return len(left_columns) == len(join.keys) and all(
        left_column.type == types.get(key) and (is_declared or left_column.type in _IDENTITY_TYPES)
        for key, left_column in zip(join.keys, left_columns, strict=True)
    )


def _is_unique(join: LeftJoin, unique_keys: UniqueKeys) -> bool:
    if join.distinct_columns is not None:
        return bool(join.distinct_columns) and join.distinct_columns <= join.keys.keys()
    return any(key <= join.keys.keys() for key in unique_keys(join.table))


def _is_mentioned(sql: str, join: str, names: Collection[str], columns: Collection[str]) -> bool:
    """Return whether one of the table's `names` or unqualified `columns` occurs outside `join`."""
    start = sql.index(join)
    return any(
        word in names or (word in columns and not is_qualified)
        for word, offset, is_qualified in find_identifiers(sql)
        if not start <= offset < start + len(join)
    )
