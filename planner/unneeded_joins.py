"""LEFT JOINs that nobody needs any more are left out.

`SELECT predict('m', *) FROM orders o LEFT JOIN customers c ON o.customer = c.id` joins for the sake
of the star. Where the model reads nothing of `c` after all, and `c.id` is unique, each row of
`orders` comes once with or without the join, and so the same rows are scored.

A join goes only if all of this holds: its equations cover a key that is unique in the joined table
(declared, or made by GROUP BY or DISTINCT); both sides of each have one type, and none of which two
values may compare as equal ('1' and '01' are one number); neither the table's name nor the name of
one of its columns is written anywhere else; and the query binds without it, to the same columns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlml.front.lexer import Token, closing, tokenize
from sqlml.planner.probe import Describe, ProbeError
from sqlml.types import fold

UniqueKeys = Callable[[str], tuple[frozenset[str], ...]]
"""A table as written -> the sets of columns that are declared to be unique, folded."""

_BITWISE = frozenset(
    "TINYINT SMALLINT INTEGER BIGINT HUGEINT UTINYINT USMALLINT UINTEGER UBIGINT UHUGEINT BOOLEAN "
    "UUID DATE TIME TIMESTAMP".split()
)
"""Types of which equal values are the same value."""
_QUERIES = frozenset({"SELECT", "FROM", "WITH"})
_CHANGES = frozenset("INSERT UPDATE DELETE MERGE CREATE COPY ALTER NATURAL POSITIONAL".split())
"""Words of statements that are no mere query, and of joins that look at all columns."""
_ENDS = frozenset(
    "LEFT RIGHT FULL INNER OUTER CROSS JOIN NATURAL POSITIONAL ASOF SEMI ANTI WHERE GROUP HAVING "
    "WINDOW QUALIFY ORDER LIMIT OFFSET USING SAMPLE UNION INTERSECT EXCEPT SELECT TABLESAMPLE "
    "RETURNING".split()
)


@dataclass(frozen=True, slots=True)
class _Join:
    """A LEFT JOIN at tokens[start:end]: its table as written, and its names.

    keys: a column of the table -> what it is equated with, as written.
    """

    start: int
    end: int
    table: str
    names: frozenset[str]
    keys: Mapping[str, str]
    proven: frozenset[str] | None
    using: bool


def without_unneeded(
    rewritten: str, probed: str, describe: Describe, unique_keys: UniqueKeys
) -> tuple[str, tuple[str, ...]]:
    """The statement without the joins that nobody needs, and those joins.

    Args:
        rewritten: the statement as it goes to the engine.
        probed: the same with NULLs in the places of calls and parameters, which can be bound.
    """
    dropped: list[str] = []
    while (join := _unneeded(rewritten, probed, describe, unique_keys)) is not None:
        rewritten, probed = (text.replace(join, "", 1) for text in (rewritten, probed))
        dropped.append(" ".join(join.split()))
    return rewritten, tuple(dropped)


def _unneeded(
    rewritten: str, probed: str, describe: Describe, unique_keys: UniqueKeys
) -> str | None:
    """The text of a join that may go."""
    if "join" not in rewritten.lower():
        return None
    tokens = tokenize(rewritten)
    words = {t.upper for t in tokens if t.kind == "word"}
    if not tokens or tokens[0].upper not in _QUERIES or words & _CHANGES:
        return None
    for join in _joins(rewritten, tokens):
        text = rewritten[tokens[join.start].start : tokens[join.end - 1].end]
        if rewritten.count(text) != 1 or probed.count(text) != 1:
            continue
        if not _is_unique(join, unique_keys):
            continue
        try:
            types = {fold(c.name): c.type for c in describe(f"SELECT * FROM {join.table}")}
            if not _same_types(probed, text, join.keys, types, describe):
                continue
            read = set(types) - set(join.keys if join.using else ())
            if _is_written(tokens, join, read):
                continue
            if describe(probed.replace(text, "", 1)) == describe(probed):
                return text
        except ProbeError:
            continue
    return None


def _is_unique(join: _Join, unique_keys: UniqueKeys) -> bool:
    """Whether at most one row of the joined table has the values of the join's keys."""
    if join.proven is not None:
        return bool(join.proven) and join.proven <= join.keys.keys()
    return any(key <= join.keys.keys() for key in unique_keys(join.table))


def _same_types(
    probed: str, join: str, keys: Mapping[str, str], types: Mapping[str, str], describe: Describe
) -> bool:
    """Whether each key has the type of what it is equated with, and values compare bit by bit."""
    before = probed[: probed.index(join)]
    start = _last_from(tokenize(before))
    if start is None:
        return False
    sources = before[start:]
    others = describe(f"SELECT {', '.join(keys.values())} FROM {sources}")
    return len(others) == len(keys) and all(
        other.type == types.get(key) and other.type in _BITWISE
        for key, other in zip(keys, others, strict=True)
    )


def _last_from(tokens: Sequence[Token]) -> int | None:
    """Where the FROM clause begins that the end of the text stands in."""
    depth = 0
    for token in reversed(tokens):
        if token.kind == "symbol":
            depth += (token.text in ")]}") - (token.text in "([{")
        if depth == 0 and token.upper == "FROM":
            return token.end
    return None


def _is_written(tokens: Sequence[Token], join: _Join, columns: Collection[str]) -> bool:
    """Whether a name of the table stands outside the join, or one of its columns by itself."""
    for i, token in enumerate(tokens):
        if join.start <= i < join.end or not token.is_identifier:
            continue
        qualified = i > 0 and tokens[i - 1].is_symbol(".")
        name = fold(token.text)
        if name in join.names or (name in columns and not qualified):
            return True
    return False


def _joins(sql: str, tokens: Sequence[Token]) -> Iterator[_Join]:
    for i, token in enumerate(tokens):
        if token.upper != "LEFT" or token.kind != "word":
            continue
        at = i + 1 + (tokens[i + 1].upper == "OUTER" if i + 1 < len(tokens) else 0)
        if at < len(tokens) and tokens[at].upper == "JOIN":
            found = _join(sql, tokens, i, at + 1)
            if found is not None:
                yield found


def _join(sql: str, tokens: Sequence[Token], start: int, at: int) -> _Join | None:
    """The join whose table begins at token `at`; None where it is of another form."""
    first = at
    proven: frozenset[str] | None = None
    if tokens[at].is_symbol("("):
        close = closing(tokens, at)
        if close is None:
            return None
        proven = _distinct_columns(tokens[at + 1 : close])
        at = close + 1
        own: str | None = None
        names: set[str] = set()
    else:
        while at + 2 < len(tokens) and tokens[at + 1].is_symbol("."):
            at += 2
        if not tokens[at].is_identifier:
            return None
        own = fold(tokens[at].text)
        names = {own}  # elsewhere it would be a CTE of this name, or the table once more
        at += 1
    table = sql[tokens[first].start : tokens[at - 1].end]
    if at < len(tokens) and tokens[at].upper == "AS":
        at += 1
    if at < len(tokens) and tokens[at].is_identifier and tokens[at].upper not in ("ON", "USING"):
        own = fold(tokens[at].text)
        at += 1
    if own is None or at >= len(tokens):
        return None
    if tokens[at].upper == "USING" and tokens[at + 1].is_symbol("("):
        close = closing(tokens, at + 1)
        if close is None:
            return None
        listed = [t for t in tokens[at + 2 : close] if t.is_identifier]
        keys = {fold(t.text): sql[t.start : t.end] for t in listed}
        return _Join(start, close + 1, table, frozenset({own, *names}), keys, proven, True)
    if tokens[at].upper != "ON":
        return None
    end = _end_of_condition(tokens, at + 1)
    if any(t.kind == "param" or fold(t.text).startswith("sqlml_") for t in tokens[start:end]):
        return None
    keys = _equated(sql, tokens[at + 1 : end], own)
    return _Join(start, end, table, frozenset({own, *names}), keys, proven, False)


def _end_of_condition(tokens: Sequence[Token], at: int) -> int:
    depth = 0
    for i in range(at, len(tokens)):
        token = tokens[i]
        if token.kind == "symbol" and token.text in "([{":
            depth += 1
        elif token.kind == "symbol" and token.text in ")]}":
            depth -= 1
        ends = token.upper in _ENDS or token.is_symbol(",") or token.is_symbol(";")
        if depth < 0 or (depth == 0 and ends and not tokens[i - 1].is_symbol(".")):
            return i
    return len(tokens)


def _equated(sql: str, tokens: Sequence[Token], own: str) -> dict[str, str]:
    """The columns c of `own.c = other.d` (or the other way round) among the terms of an AND, and
    what they are equated with.

    Nothing where there is anything but such equations: other conditions would be correct too, but
    OR and NOT are not.
    """
    keys: dict[str, str] = {}
    terms: list[list[Token]] = [[]]
    for token in tokens:
        if token.upper == "AND":
            terms.append([])
        else:
            terms[-1].append(token)
    for term in terms:
        texts = [fold(t.text) for t in term]
        plain = (
            len(term) == 7
            and all(term[i].is_identifier for i in (0, 2, 4, 6))
            and (texts[1], texts[3], texts[5]) == (".", "=", ".")
        )
        if not plain or (texts[0] == own) == (texts[4] == own):
            return {}
        mine, other = (texts[2], term[4:]) if texts[0] == own else (texts[6], term[:3])
        keys[mine] = sql[other[0].start : other[-1].end]
    return keys


def _distinct_columns(tokens: Sequence[Token]) -> frozenset[str]:
    """The columns whose values no two rows of a subquery share; none where that is not plain."""
    words = [t.upper for t in tokens]
    if words[:1] != ["SELECT"] or {"UNION", "INTERSECT", "EXCEPT"} & set(words):
        return frozenset()
    selected = _plain_items(tokens, 2 if words[1:2] == ["DISTINCT"] else 1, ("FROM",))
    if words[1:2] == ["DISTINCT"]:
        every = None not in selected
        return frozenset(s for s in selected if s) if every else frozenset()
    groups = [i for i in range(len(words) - 1) if words[i : i + 2] == ["GROUP", "BY"]]
    if len(groups) != 1:
        return frozenset()
    grouped = _plain_items(tokens, groups[0] + 2, ("HAVING", "ORDER", "LIMIT", "QUALIFY"))
    if None in grouped or not set(grouped) <= set(selected):
        return frozenset()
    return frozenset(g for g in grouped if g)


def _plain_items(tokens: Sequence[Token], start: int, ends: Collection[str]) -> list[str | None]:
    """Items between commas that are a bare name; None for each that is anything else."""
    items: list[list[Token]] = [[]]
    depth = 0
    for token in tokens[start:]:
        if token.kind == "symbol":
            depth += (token.text in "([{") - (token.text in ")]}")
        if depth == 0 and token.kind == "word" and token.upper in ends:
            break
        if depth == 0 and token.is_symbol(","):
            items.append([])
        else:
            items[-1].append(token)
    return [
        fold(item[0].text) if len(item) == 1 and item[0].is_identifier else None for item in items
    ]
