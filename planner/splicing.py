"""`splice`: a statement's own text with calls and single tokens replaced, else byte for byte."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sqlml.front.lexer import Token, quote_name
from sqlml.planner.blocks import Span, select_item
from sqlml.planner.calls import Call


def inner_first(tokens: Sequence[Token], calls: Iterable[Call]) -> list[Call]:
    """Calls that others may depend on first: arguments of calls, FROM clauses, CTEs."""

    def depth(call: Call) -> int:
        level = 0
        for token in tokens[: call.start]:
            if token.kind == "symbol":
                level += token.text in "([{"
                level -= token.text in ")]}"
        return level

    return sorted(calls, key=lambda c: (-depth(c), c.start))


def splice(
    sql: str,
    tokens: Sequence[Token],
    replaced: Mapping[Call, str],
    patches: Mapping[int, str],
    span: Span,
    insertions: Mapping[int, str] | None = None,
    sources: Mapping[Span, str] | None = None,
) -> str:
    """sql[span] with calls, `sources` and single tokens (`patches`: index -> text) replaced.

    `insertions` puts text behind a character.
    """
    edits = [(tokens[c.start].start, tokens[c.end - 1].end, text) for c, text in replaced.items()]
    edits += [(tokens[i].start, tokens[i].end, text) for i, text in patches.items()]
    edits += [(s.start, s.end, text) for s, text in (sources or {}).items()]
    edits += [(at, at, text) for at, text in (insertions or {}).items()]
    edits = [e for e in edits if span.start <= e[0] and e[1] <= span.end]
    pieces, at = [], span.start
    for start, end, text in sorted(edits, key=lambda e: (e[0], -e[1])):
        if start < at:  # inside a call that has been replaced as a whole
            continue
        pieces += [sql[at:start], text]
        at = end
    return "".join([*pieces, sql[at : span.end]])


def column_names(sql: str, tokens: Sequence[Token], calls: Iterable[Call]) -> dict[int, str]:
    """` AS "<the item as written>"` for each select item with a call and without a name.

    The engine names a column after its expression, which would now be our rewritten text.
    """
    names: dict[int, str] = {}
    for call in calls:
        item = select_item(tokens, call.start)
        if item is not None and not _has_name(tokens, *item):
            written = sql[tokens[item[0]].start : tokens[item[1] - 1].end]
            names[tokens[item[1] - 1].end] = f" AS {quote_name(' '.join(written.split()))}"
    return names


def _has_name(tokens: Sequence[Token], start: int, end: int) -> bool:
    """Whether a select item names itself: `x AS a`, `x a`, `a: x`."""
    last, before = tokens[end - 1], tokens[end - 2] if end - start > 1 else None
    if end - start > 2 and tokens[start].is_identifier and tokens[start + 1].is_symbol(":"):
        return True
    if before is None or not (last.is_identifier or last.kind == "string"):
        return False
    return not before.is_symbol(".") and last.upper not in ("END", "NULL", "TRUE", "FALSE")
