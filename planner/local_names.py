"""Names that are no columns: parameters of a lambda, a list comprehension or a macro.

The engine types them only when it binds the whole statement, so probes see NULL in their place
and the call casts what it gets.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlml.front.lexer import Token, as_tokens, brackets_around, closing, level
from sqlml.types import fold


def local_names(tokens: Sequence[Token], place: int) -> frozenset[str]:
    """Folded names that are local at token `place`."""
    if _GIVE_NAMES.isdisjoint(as_tokens(tokens).words):
        return frozenset()
    names = set(_macro_parameters(tokens, place))
    for opening in brackets_around(tokens, place):
        close = closing(tokens, opening) or len(tokens)
        inside = level(tokens, opening + 1, close)
        names |= _lambda_parameters(tokens, inside, place)
        if tokens[opening].is_symbol("["):
            names |= _comprehension_variables(tokens, inside)
    return frozenset(fold(name) for name in names)


def local_tokens(tokens: Sequence[Token], start: int, end: int) -> frozenset[int]:
    """Tokens of tokens[start:end] that spell a local name, with the fields behind it (`x.a`)."""
    names = local_names(tokens, start)
    if not names:
        return frozenset()
    found: set[int] = set()
    for i in range(start, end):
        if i in found or not tokens[i].is_identifier or fold(tokens[i].text) not in names:
            continue
        after = tokens[i + 1] if i + 1 < len(tokens) else None
        called = after is not None and (after.is_symbol("(") or after.is_symbol(":="))
        if called or tokens[i - 1].is_symbol("."):
            continue
        found.add(i)
        j = i + 1
        while j + 1 < end and tokens[j].is_symbol(".") and tokens[j + 1].is_identifier:
            found |= {j, j + 1}
            j += 2
    return frozenset(found)


def _macro_parameters(tokens: Sequence[Token], place: int) -> set[str]:
    words = [t.upper for t in tokens[:6]]
    if words[:1] != ["CREATE"] or not {"MACRO", "FUNCTION"} & set(words):
        return set()
    found: set[str] = set()
    table: bool | None = None
    for i in level(tokens, 0, place):
        close = closing(tokens, i) if tokens[i].is_symbol("(") else None
        if close is None or close >= place or tokens[close + 1].upper not in _BODIES:
            continue
        is_table = close + 2 < len(tokens) and tokens[close + 2].upper == "TABLE"
        if table is not None and not (tokens[i - 1].is_symbol(",") and table == is_table):
            continue  # in the body; another definition of the macro comes behind a comma
        table = is_table
        starts = [i, *(j for j in range(i, close) if tokens[j].is_symbol(","))]
        found = {tokens[j + 1].text for j in starts if tokens[j + 1].is_identifier}
    return found


_GIVE_NAMES = frozenset({"MACRO", "FUNCTION", "LAMBDA", "->", "FOR"})

_BODIES = frozenset({"AS", "RETURNS", "RETURN"})
"""What follows the parameters of a macro, and of a function of Spark."""


def _lambda_parameters(tokens: Sequence[Token], inside: list[int], place: int) -> set[str]:
    """`lambda x, y:` and the older `x ->` and `(x, y) ->`, before `place`."""
    names: set[str] = set()
    colon = 0
    for k, i in enumerate(inside):
        if i >= place:
            break
        if tokens[i].is_symbol(",") and k > colon:
            names = set()  # an argument ends, and with it the lambda
        if tokens[i].upper == "LAMBDA":
            j = k + 1
            while j < len(inside) and not tokens[inside[j]].is_symbol(":"):
                if tokens[inside[j]].is_identifier:
                    names.add(tokens[inside[j]].text)
                j += 1
            colon = j
        elif tokens[i].is_symbol("->") and k:
            before = inside[k - 1]
            if tokens[before].is_identifier:
                names.add(tokens[before].text)
            elif tokens[before].is_symbol(")") and k >= 2:
                between = tokens[inside[k - 2] + 1 : before]
                if all(t.is_identifier or t.is_symbol(",") for t in between):
                    names |= {t.text for t in between if t.is_identifier}
    return names


def _comprehension_variables(tokens: Sequence[Token], inside: list[int]) -> set[str]:
    """`[.. for x, i in list if ..]`."""
    words = [tokens[i].upper for i in inside]
    if "FOR" not in words or "IN" not in words[words.index("FOR") :]:
        return set()
    start = words.index("FOR")
    stop = words.index("IN", start)
    return {tokens[i].text for i in inside[start + 1 : stop] if tokens[i].is_identifier}
