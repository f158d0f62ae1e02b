"""Where the clauses and operands of a query begin, from the tokens outside of its brackets.

DuckDB's clause keywords are reserved words, so at one bracket depth they cannot be anything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlml.front.lexer import Token, starts_query

_CLAUSES = frozenset(
    "SELECT FROM WHERE GROUP HAVING WINDOW QUALIFY ORDER SORT CLUSTER DISTRIBUTE LIMIT OFFSET "
    "RETURNING USING_SAMPLE".split()
)
_MAY_START = _CLAUSES | {"USING", "ON", "INSERT", "WITH"}
_BEFORE_BY = frozenset({"GROUP", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE"})
_OPERANDS = frozenset("SELECT FROM VALUES TABLE WITH ALL DISTINCT".split())
_SET_OPERATORS = frozenset({"UNION", "INTERSECT", "EXCEPT", "MINUS"})


@dataclass(frozen=True, slots=True)
class Span:
    """Characters sql[start:end]."""

    start: int
    end: int


def keyword(tokens: Sequence[Token], level: list[int], k: int) -> str:
    """The clause that starts at level[k], or "" for a word that starts none."""
    word = tokens[level[k]].upper
    if word not in _MAY_START:
        return ""
    before = tokens[level[k - 1]].upper if k else ""
    after = tokens[level[k + 1]].upper if k + 1 < len(level) else ""
    if k and tokens[level[k - 1]].is_symbol("."):
        return ""
    if word == "FROM" and before == "DISTINCT" and k >= 2:
        if tokens[level[k - 2]].upper in ("IS", "NOT"):
            return ""
    if word == "USING" and after == "SAMPLE":
        return "USING_SAMPLE"
    if word == "ON" and after == "CONFLICT" and k + 2 < len(level):
        then = tokens[level[k + 2]]
        return "CONFLICT" if then.is_symbol("(") or then.upper in ("DO", "ON") else ""
    if word == "INSERT" and k and after in ("INTO", "OVERWRITE"):
        return "INSERT"  # behind the FROM that it reads
    if word == "WITH" and after in ("NO", "DATA"):
        return "WITH_DATA"  # of CREATE TABLE .. AS
    if word in _BEFORE_BY and after != "BY":
        return ""
    return word if word in _CLAUSES else ""


def clause(tokens: Sequence[Token], level: list[int], word: str) -> Span | None:
    """Characters after the keyword `word` up to the next clause."""
    for k in range(len(level)):
        if keyword(tokens, level, k) == word:
            stop = next((j for j in range(k + 1, len(level)) if keyword(tokens, level, j)), None)
            last = level[stop] - 1 if stop is not None else level[-1]
            return Span(tokens[level[k]].end, tokens[last].end) if last > level[k] else None
    return None


def is_set_operator(tokens: Sequence[Token], level: list[int], k: int) -> bool:
    """Whether level[k] is a set operator, and no type, nor the list behind a star (Spark)."""
    i = level[k]
    if tokens[i].upper not in _SET_OPERATORS or (i and tokens[i - 1].is_symbol("::")):
        return False
    after = tokens[i + 1 : i + 3]
    if tokens[i].upper == "MINUS":  # elsewhere than in Spark a name like others
        bracketed = len(after) == 2 and after[0].is_symbol("(") and starts_query(tokens, i + 2)
        return bool(after) and (after[0].upper in _OPERANDS or bracketed)
    listed = len(after) == 2 and after[0].is_symbol("(") and not starts_query(tokens, i + 2)
    return not (i and tokens[i - 1].is_symbol("*") and listed and not after[1].is_symbol("("))


def segment_at(
    tokens: Sequence[Token], level: list[int], place: int
) -> tuple[list[int], int | None]:
    """The part of a UNION chain that holds `place`.

    The second value is set when `place` lies in the ORDER BY or LIMIT of the whole chain: the
    character where the chain ends.
    """
    cuts = [k for k in range(len(level)) if is_set_operator(tokens, level, k)]
    if not cuts:
        return level, None
    tail = next(
        (
            k
            for k in range(cuts[-1], len(level))
            if tokens[level[k]].upper in ("ORDER", "LIMIT", "OFFSET")
        ),
        None,
    )
    if tail is not None and level[tail] < place:
        return [], tokens[level[tail] - 1].end
    begin = 0
    for cut in [*cuts, len(level)]:
        if cut == len(level) or place < level[cut]:
            return level[begin : tail if cut == len(level) else cut], None
        begin = cut + 1
        while begin < len(level) and tokens[level[begin]].upper in (
            "ALL",
            "DISTINCT",
            "BY",
            "NAME",
        ):
            begin += 1
    return level, None
