"""`splice`: a statement's own text with calls and single tokens replaced, else byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from sqlml.dialects import Dialect
from sqlml.errors import BindError
from sqlml.front.lexer import CLOSING, Token, brackets_around, closing, queries_around
from sqlml.planner.blocks import clause_at, query_depth
from sqlml.planner.calls import FUNCTIONS, Call
from sqlml.planner.clauses import Span
from sqlml.planner.select_items import select_item
from sqlml.types import fold


def inner_first(tokens: Sequence[Token], calls: Iterable[Call]) -> list[Call]:
    """Calls that others may depend on first: nested queries, FROM clauses, arguments of calls.

    Brackets alone do not tell: `SELECT max(f(x.*)) FROM (SELECT f(..) ..) x` has both calls in one.
    """

    def order(call: Call) -> tuple[int, bool, int, int]:
        depth = len(brackets_around(tokens, call.start))
        in_from = clause_at(tokens, call.start) == "FROM"
        return -query_depth(tokens, call.start), not in_from, -depth, call.start

    calls = list(calls)
    return sorted(calls, key=order) if len(calls) > 1 else calls


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
    edits = [
        (tokens[c.start].start, tokens[c.end - 1].end, text)
        for c, text in replaced.items()
        if span.start <= tokens[c.start].start < span.end
    ]
    edits += [(tokens[i].start, tokens[i].end, text) for i, text in patches.items()]
    edits += [(s.start, s.end, text) for s, text in (sources or {}).items()]
    edits += [(at, at, text) for at, text in (insertions or {}).items()]
    edits = [e for e in edits if span.start <= e[0] and e[1] <= span.end]
    pieces, at = [], span.start
    for start, end, text in sorted(edits, key=lambda e: (e[0], -e[1])):
        if start < at:  # inside a call that has been replaced as a whole
            continue
        before = _gap(sql[max(0, start - 1) : start], text[:1])
        pieces += [sql[at:start], before, text, _gap(text[-1:], sql[end : end + 1])]
        at = end
    return "".join([*pieces, sql[at : span.end]])


def _gap(left: str, right: str) -> str:
    """A blank between two characters that would else make one word: `END` and `as`, `$1` and `AND`.

    >>> _gap("D", "a"), _gap(")", "a"), _gap("D", "")
    (' ', '', '')
    """
    return " " if all(c.isalnum() or c in ("_", "$") for c in (left, right)) else ""


def column_names(
    sql: str,
    tokens: Sequence[Token],
    calls: Iterable[Call],
    column_name: Callable[[str], str | None],
    dialect: Dialect,
) -> dict[int, str]:
    """` AS "<the engine's name>"` for each select item with a call and without a name.

    The engine names a column after its expression, which would now be our rewritten text.

    Args:
        column_name: how the engine names an expression; None: as it is written.
    """
    names: dict[int, str] = {}
    for start, end in dict.fromkeys(i for call in calls for i in _items_around(tokens, call.start)):
        if not (_has_name(tokens, start, end) or _is_several(tokens, start, end)):
            written = sql[tokens[start].start : tokens[end - 1].end]
            name = column_name(written) or " ".join(written.split())
            with suppress(BindError):  # Spark's variable ${..}: its name is that of our text
                names[tokens[end - 1].end] = f" AS {dialect.quote_name(name)}"
    return names


def _items_around(tokens: Sequence[Token], place: int) -> Iterator[tuple[int, int]]:
    """Token ranges of the select items that hold token `place`: its own, and of queries around."""
    for at in (place, *reversed(queries_around(tokens, place))):
        item = select_item(tokens, at)
        if item is not None:
            yield item


def _has_name(tokens: Sequence[Token], start: int, end: int) -> bool:
    """Whether a select item names itself: `x AS a`, `x a`, `a: x`."""
    last, before = tokens[end - 1], tokens[end - 2] if end - start > 1 else None
    if end - start > 2 and tokens[start].is_identifier and tokens[start + 1].is_symbol(":"):
        return True
    if before is None or before.upper == "AS":
        return before is not None
    if last.is_symbol(")"):  # Spark's `explode(x) AS (a, b)`, also without AS
        opening = brackets_around(tokens, end - 1)[-1]
        return tokens[opening - 1].upper == "AS" or tokens[opening - 1].is_symbol(")")
    if not last.is_identifier or last.upper in _LAST_WORDS:
        return False
    if before.kind == "symbol":  # an operator's right side is no name
        return before.text in CLOSING
    return before.upper not in _OPERATORS


_LAST_WORDS = frozenset("END NULL TRUE FALSE ISNULL NOTNULL UNKNOWN".split())
"""Words that end an expression and are no names."""

_OPERATORS = frozenset("AND OR NOT IN IS LIKE ILIKE GLOB SIMILAR TO BETWEEN COLLATE FROM".split())
"""Words whose right side is no name either."""


_GENERATORS = frozenset(
    "EXPLODE EXPLODE_OUTER POSEXPLODE POSEXPLODE_OUTER INLINE INLINE_OUTER STACK JSON_TUPLE".split()
)


def _is_several(tokens: Sequence[Token], begin: int, end: int) -> bool:
    """Whether an item gives several columns, which have names of their own.

    It is a star (`* REPLACE (..)`), a generator of Spark's, or holds COLUMNS(..) that is no model
    call's argument.
    """
    opened = end - begin > 2 and tokens[begin + 1].is_symbol("(")
    if opened and tokens[begin].upper in _GENERATORS and closing(tokens, begin + 1) == end - 1:
        return True
    star = begin + 2 if begin + 2 < end and tokens[begin + 1].is_symbol(".") else begin
    columns = [i for i in range(begin, end - 1) if tokens[i].upper == "COLUMNS"]
    around = [brackets_around(tokens, i)[-1:] for i in columns if tokens[i + 1].is_symbol("(")]
    return tokens[star].is_symbol("*") or any(
        not b or b[0] <= begin or fold(tokens[b[0] - 1].text) not in FUNCTIONS for b in around
    )
