"""The items of a SELECT list, and the names that they give themselves, from tokens."""

from __future__ import annotations

from collections.abc import Sequence

from sqlml.front.lexer import Token, split_commas
from sqlml.front.lexer import level as top_level
from sqlml.planner.blocks import block_tokens, clause_at, query_around
from sqlml.planner.calls import Call
from sqlml.planner.clauses import clause, is_set_operator, keyword
from sqlml.types import fold

_SEE_OUTPUTS = frozenset({"GROUP", "HAVING", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE"})


def select_item(tokens: Sequence[Token], place: int) -> tuple[int, int] | None:
    """Token range of the select item that holds token `place`; None outside a SELECT list."""
    start, end = query_around(tokens, place)
    level = top_level(tokens, start, end)
    keywords = [
        k
        for k in range(len(level))
        if keyword(tokens, level, k)
        or is_set_operator(tokens, level, k)
        or tokens[level[k]].text == "|>"
    ]
    before = [k for k in keywords if level[k] <= place]
    if not before or tokens[level[before[-1]]].upper != "SELECT":
        return None
    k = before[-1] + 1
    if k < len(level) and tokens[level[k]].upper in ("DISTINCT", "ALL"):
        k += 1
        if k < len(level) and tokens[level[k]].upper == "ON":
            k += 3
    stop = next((j for j in keywords if j > before[-1]), len(level))
    first = level[k] if k < len(level) else end
    last = level[stop] if stop < len(level) else end
    while last > first and tokens[last - 1].is_symbol(";"):
        last -= 1
    for begin, finish in split_commas(tokens, first, last):
        if begin <= place < finish:
            return begin, finish
    return None


def output_names(tokens: Sequence[Token], place: int) -> frozenset[str]:
    """Names, folded, that the select items around token `place` give themselves, and maybe more.

    >>> from sqlml.front.lexer import tokenize
    >>> sorted(output_names(tokenize("SELECT a, -b AS c, f(d) E, t.x FROM t ORDER BY g(c)"), 18))
    ['c', 'e']
    """
    level = block_tokens(tokens, place)
    span = clause(tokens, level, "SELECT")
    items: list[list[Token]] = [[]]
    for i in level:
        if span is not None and span.start <= tokens[i].start < span.end:
            if tokens[i].is_symbol(","):
                items.append([])
            else:
                items[-1].append(tokens[i])
    return frozenset(
        fold(item[-1].text)
        for item in items
        if len(item) > 1 and item[-1].is_identifier and not item[-2].is_symbol(".")
    )


def hidden_columns(tokens: Sequence[Token], call: Call) -> frozenset[str]:
    """Names, folded, that mean select items where a call stands, though its star means columns."""
    star = any(tokens[argument.start].is_symbol("*") for argument in call.arguments)
    if not star or clause_at(tokens, call.start) not in _SEE_OUTPUTS:
        return frozenset()
    return output_names(tokens, call.start)


def means_outputs(tokens: Sequence[Token], call: Call) -> bool:
    """Whether a call stands where names are select items first, and names one of them."""
    if clause_at(tokens, call.start) not in _SEE_OUTPUTS:
        return False
    words = {
        fold(token.text)
        for argument in call.arguments
        for token in tokens[argument.start : argument.end]
        if token.is_identifier
    }
    return not words.isdisjoint(output_names(tokens, call.start))
