"""What a query, UPDATE, DELETE, INSERT or MERGE reads, and the names that it gives, from tokens."""

from __future__ import annotations

from collections.abc import Sequence

from sqlml.front.lexer import Token
from sqlml.planner.clauses import Span, clause


def sources_of(tokens: Sequence[Token], level: list[int], place: int) -> tuple[Span, ...]:
    """The texts of what a query reads, whose tokens outside of brackets are `level`."""
    if not level:
        return ()
    words = [tokens[i].upper for i in level]
    sources: list[Span] = []
    if words[0] == "MERGE" and {"INTO", "USING", "ON"} <= set(words):
        into, using = words.index("INTO"), words.index("USING")
        on = words.index("ON", using)
        return (
            Span(tokens[level[into + 1]].start, tokens[level[using] - 1].end),
            Span(tokens[level[using + 1]].start, tokens[level[on] - 1].end),
        )
    if words[:2] == ["ALTER", "TABLE"]:
        stop = next((k for k in range(2, len(words)) if words[k] in ("ALTER", "ADD", "SET")), 2)
        if stop > 2:
            return (Span(tokens[level[2]].start, tokens[level[stop] - 1].end),)
    verb = _verb(words)
    if words[verb] == "UPDATE" and "SET" in words[verb:]:
        k = verb
        stop = words.index("SET", k)
        if stop > k + 1:
            sources.append(Span(tokens[level[k + 1]].start, tokens[level[stop] - 1].end))
    elif words[verb] == "INSERT" and "INTO" in words:
        selects = [k for k, w in enumerate(words) if w in _AFTER_TARGET]
        late = [k for k, w in enumerate(words) if w in ("RETURNING", "CONFLICT")]
        if late and place > level[late[0]]:
            k = words.index("INTO")
            stop = min([j for j in [*selects, *late] if j > k + 1], default=len(level))
            names = [level[j] for j in range(k + 1, stop)]
            name_end = next((j for j in names if tokens[j].is_symbol("(")), None)
            last = (name_end or level[stop]) - 1
            return (Span(tokens[level[k + 1]].start, tokens[last].end),)
    elif words[0] in ("PIVOT", "UNPIVOT") and len(level) > 1:
        stop = next((k for k, w in enumerate(words) if w in ("ON", "USING")), len(level))
        return (Span(tokens[level[1]].start, tokens[level[stop] - 1].end),)
    span = clause(tokens, level, "FROM")
    if span is not None:
        if words[verb] == "DELETE" and "USING" in words:
            k = words.index("USING")
            table = Span(span.start, tokens[level[k] - 1].end)
            sources += [table, Span(tokens[level[k]].end, span.end)]
        else:
            sources.append(span)
    return tuple(sources)


_AFTER_TARGET = frozenset({"SELECT", "FROM", "VALUES", "TABLE", "WITH", "DEFAULT", "BY"})
"""What may stand behind the table of INSERT INTO, besides its columns: BY NAME, DEFAULT VALUES."""


def _verb(words: list[str]) -> int:
    """Index of the word that says what the statement does, behind EXPLAIN and PREPARE .. AS."""
    at = 0
    if words[at] == "EXPLAIN":
        at += 1 + (words[1:2] == ["ANALYZE"])
    if words[at : at + 1] == ["PREPARE"] and "AS" in words:
        at = words.index("AS") + 1
    return min(at, len(words) - 1)


def aliases(tokens: Sequence[Token], level: list[int]) -> tuple[Span, ...]:
    """The select items `expression AS name`, which other items and clauses may use by name."""
    span = clause(tokens, level, "SELECT")
    if span is None:
        return ()
    inside = [i for i in level if span.start <= tokens[i].start < span.end]
    items: list[list[int]] = [[]]
    for i in inside:
        if tokens[i].is_symbol(","):
            items.append([])
        else:
            items[-1].append(i)
    found = []
    for item in items:
        if len(item) >= 3 and tokens[item[-2]].upper == "AS":
            found.append(Span(tokens[item[0]].start, tokens[item[-1]].end))
        elif len(item) >= 3 and tokens[item[1]].is_symbol(":"):  # DuckDB's `name: expression`
            found.append(Span(tokens[item[0]].start, tokens[item[-1]].end))
    return tuple(found)
