"""The definitions of a WITH clause, from tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlml.front.lexer import Token
from sqlml.planner.clauses import Span


@dataclass(frozen=True, slots=True)
class Cte:
    """One definition `name AS (...)` of a WITH clause."""

    name: str
    span: Span


def with_clause(
    tokens: Sequence[Token], level: list[int], place: int
) -> tuple[tuple[Cte, ...], bool, int | None]:
    """Definitions in scope at `place`, RECURSIVE or not, and the token where the body starts.

    The body is None when `place` lies in one of the definitions.
    """
    words = [tokens[i].upper for i in level]
    at = next((k for k in range(len(level)) if _starts_with_clause(tokens, level, k)), -1)
    if at < 0 or any(w in ("SELECT", "FROM", "VALUES") for w in words[:at]):
        return (), False, level[0] if level else 0
    at += 1
    recursive = at < len(level) and words[at] == "RECURSIVE"
    at += recursive
    ctes: list[Cte] = []
    while at < len(level):
        begin = at
        while at < len(level) and words[at] != "AS":
            at += 1
        while at < len(level) and not tokens[level[at]].is_symbol("("):
            at += 1
        close = at + 1
        if close >= len(level):
            break
        cte = Cte(
            tokens[level[begin]].text, Span(tokens[level[begin]].start, tokens[level[close]].end)
        )
        if level[at] < place < level[close]:
            return (*ctes, cte) if recursive else tuple(ctes), recursive, None
        ctes.append(cte)
        at = close + 1
        while (
            at < len(level)
            and words[at] in ("USING", "KEY")
            or (at < len(level) and tokens[level[at]].is_symbol("(") and words[at - 1] == "KEY")
        ):
            at += 2 if tokens[level[at]].is_symbol("(") else 1
        if at < len(level) and tokens[level[at]].is_symbol(","):
            at += 1
            continue
        break
    return tuple(ctes), recursive, level[at] if at < len(level) else level[-1]


def _starts_with_clause(tokens: Sequence[Token], level: list[int], k: int) -> bool:
    """Whether level[k] is the WITH of `WITH [RECURSIVE] name [(columns)] AS [..] (`.

    WITH TIME ZONE, WITH ORDINALITY and WITH NO DATA are not.
    """

    def word(j: int) -> str:
        return tokens[level[j]].upper if j < len(level) else ""

    def symbol(j: int, text: str) -> bool:
        return j < len(level) and tokens[level[j]].is_symbol(text)

    if word(k) != "WITH":
        return False
    j = k + 1 + (word(k + 1) == "RECURSIVE")
    if j >= len(level) or not tokens[level[j]].is_identifier:
        return False
    j += 1
    if symbol(j, "("):
        j += 2
    if word(j) == "USING":  # USING KEY (columns)
        j += 4
    if word(j) != "AS":
        return False
    j += 1 + (word(j + 1) == "NOT")
    j += word(j) == "MATERIALIZED"
    return symbol(j, "(")
