"""Which parts of a WHERE clause are evaluated for each row, from tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from sqlml.front.lexer import Token, brackets_around, closing
from sqlml.front.lexer import level as top_level
from sqlml.planner.blocks import block_tokens, clause_span, clause_tokens

_CONDITIONS = frozenset({"OR", "CASE", "COALESCE", "IF", "IFNULL", "NULLIF", "TRY", "LAMBDA"})
"""Words whose operands may not be evaluated, or may fail unseen."""


def filters(tokens: Sequence[Token], place: int, in_calls: Set[int]) -> Iterator[range]:
    """The operands of the ANDs of WHERE, of the block around `place`, that call no model."""
    where = clause_span(tokens, place, "WHERE")
    inside = [
        i
        for i in block_tokens(tokens, place)
        if where is not None and where.start <= tokens[i].start < where.end
    ]
    if not inside or any(tokens[i].upper in _CONDITIONS for i in inside):
        return
    between, ends = False, []
    for i in inside:
        if tokens[i].upper == "AND" and not between:
            ends.append(i)
        between = tokens[i].upper == "BETWEEN" or (between and tokens[i].upper != "AND")
    begin = inside[0]
    for end in [*ends, inside[-1] + 1]:
        operand = range(begin, end)
        if operand and in_calls.isdisjoint(operand):
            yield operand
        begin = end + 1


def always_asked(tokens: Sequence[Token], place: int) -> bool:
    """Whether the clause around token `place` evaluates it for each row, and not under a condition.

    >>> from sqlml.front.lexer import tokenize
    >>> tokens = tokenize("SELECT a FROM t WHERE (b OR c) AND f(d) AND (e OR f(g))")
    >>> [always_asked(tokens, i) for i, t in enumerate(tokens) if t.text == "f"]
    [True, False]
    """
    start, end = clause_tokens(tokens, place)
    for opening in [*brackets_around(tokens, place), None]:
        if opening is not None and not start <= opening < place:
            continue
        if opening is not None and tokens[opening - 1].upper in _CONDITIONS:
            return False
        first = start if opening is None else opening + 1
        last = end if opening is None else closing(tokens, opening) or end
        inside = top_level(tokens, first, last)
        if any(tokens[i].upper in _CONDITIONS or tokens[i].is_symbol("->") for i in inside):
            return False
    return True
