"""`unneeded_joins`: LEFT JOINs that nobody needs any more are left out.

`SELECT predict('m', *) FROM orders o LEFT JOIN customers c ON o.customer = c.id` joins for the sake
of the star. Where the model reads nothing of `c` after all, and `c.id` is unique, each row of
`orders` comes once with or without the join, and so the same rows are scored.

A join goes only if all of this holds: its equations cover a key that is unique in the joined table
(declared, or made by GROUP BY or DISTINCT); both sides of each have one type, and none of which two
values may compare as equal ('1' and '01' are one number); neither the table's name nor the name of
one of its columns is written anywhere else; and the query binds without it, to the same columns.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sqlml.planner.binding.context import UniqueKeys
from sqlml.planner.binding.probe_queries import Describe, ProbeError
from sqlml.planner.rewrites.draft import Draft
from sqlml.planner.syntax.arguments import words_of
from sqlml.planner.syntax.joins import LeftJoin, left_joins
from sqlml.types import fold

_BITWISE = frozenset(
    "TINYINT SMALLINT INTEGER BIGINT HUGEINT UTINYINT USMALLINT UINTEGER UBIGINT UHUGEINT BOOLEAN "
    "UUID DATE TIME TIMESTAMP".split()
)
"""Types of which equal values are the same value."""


def unneeded_joins(draft: Draft) -> Draft:
    """The statement without the joins that nobody needs."""
    keys, describe = draft.context.unique_keys, draft.context.describe
    if keys is None or not draft.targets or "join" not in draft.text.lower():
        return draft
    while (join := _unneeded(draft.sql, draft.probe, describe, keys)) is not None:
        draft = draft.without_join(join)
    return draft


def _unneeded(
    rewritten: str, probed: str, describe: Describe, unique_keys: UniqueKeys
) -> str | None:
    """The text of a join that may go.

    Args:
        rewritten: the statement as it goes to the engine.
        probed: the statement with NULLs in the places of calls and parameters, which can be bound.
    """
    for join in left_joins(probed):
        text = probed[join.span.start : join.span.end]
        if rewritten.count(text) != 1 or probed.count(text) != 1:
            continue
        try:
            if not has_one_partner(join, unique_keys, describe):
                continue
            types = [fold(c.name) for c in describe(f"SELECT * FROM {join.table}")]
            read = set(types) - set(join.keys if join.using else ())
            if _is_written(rewritten, text, join.names, read):
                continue
            if describe(probed.replace(text, "", 1)) == describe(probed):
                return text
        except ProbeError:
            continue
    return None


def has_one_partner(
    join: LeftJoin,
    unique_keys: UniqueKeys,
    describe: Describe,
    told: Collection[frozenset[str]] = (),
) -> bool:
    """Whether a row has at most one partner in the joined table.

    Args:
        told: columns of which a user says so, whatever table is joined on them.

    Raises:
        ProbeError: the engine cannot bind the join by itself.
    """
    is_told = any(key <= join.keys.keys() for key in told)
    if not is_told and not _is_unique(join, unique_keys):
        return False
    types = {fold(c.name): c.type for c in describe(f"SELECT * FROM {join.table}")}
    return _same_types(join, types, describe, bitwise=not is_told)


def _is_unique(join: LeftJoin, unique_keys: UniqueKeys) -> bool:
    """Whether at most one row of the joined table has the values of the join's keys."""
    if join.distinct is not None:
        return bool(join.distinct) and join.distinct <= join.keys.keys()
    return any(key <= join.keys.keys() for key in unique_keys(join.table))


def _same_types(
    join: LeftJoin, types: Mapping[str, str], describe: Describe, bitwise: bool
) -> bool:
    """Whether each key has the type of what it is equated with; and, if `bitwise`, one of which
    equal values are the same value."""
    if not join.keys:
        return False
    others = describe(f"SELECT {', '.join(join.keys.values())} FROM {join.before}")
    return len(others) == len(join.keys) and all(
        other.type == types.get(key) and (other.type in _BITWISE or not bitwise)
        for key, other in zip(join.keys, others, strict=True)
    )


def _is_written(sql: str, join: str, names: Collection[str], columns: Collection[str]) -> bool:
    """Whether a name of the table stands outside the join, or one of its columns by itself."""
    start = sql.index(join)
    return any(
        word in names or (word in columns and not qualified)
        for word, place, qualified in words_of(sql)
        if not start <= place < start + len(join)
    )
